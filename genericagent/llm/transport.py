"""Bytes to and from a provider over HTTP: connect, send, read as they come, stop at once. The only user of requests.

A provider can be silent for minutes, so the blocking part of a call (name look-up, connect, waiting for the headers)
runs in a thread of its own: an abort leaves it behind instead of waiting for it, and closes the socket when it is known.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import requests
import requests.adapters
from requests.utils import get_environ_proxies

from .. import __version__
from ..abort import Abort
from ..config import is_loopback
from ..errors import Aborted, LLMError
from ..extras import EXTRAS, install_command
from ..paths import shipped
from .faults import http_error

READ_SIZE = 65536
USER_AGENT = f"genericagent/{__version__}"


class Dechunker:
    """Takes HTTP/1.1 chunked framing (RFC 9112 §7.1) off a byte stream. No I/O.

    Reading through http.client costs a Python call or three for every chunk, and providers send one event a chunk.
    """

    def __init__(self) -> None:
        self.ended = False
        self._held = b""
        self._left = 0  # bytes of the current chunk that are still to come, its line end included

    def feed(self, data: bytes) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        out: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            if self._left:
                end = at + self._left
                if end > size:
                    out.append(data[at : max(at, min(size, end - 2))])
                    self._left = end - size
                    break
                if self._left > 2:
                    out.append(data[at : end - 2])
                at, self._left = end, 0
                continue
            eol = data.find(b"\r\n", at)
            if eol < 0:
                self._held = data[at:]
                break
            line, at = data[at:eol], eol + 2
            if self.ended:
                continue  # trailer fields after the last chunk
            try:
                length = int(line.partition(b";")[0], 16)
            except ValueError:
                raise LLMError("broken chunked framing in the provider's answer", retryable=True) from None
            if length == 0:
                self.ended = True
                break
            self._left = length + 2
        return b"".join(out)


class Stream:
    """An open answer: `status`, `headers`, `content_type`; `chunks()` gives the body as it arrives."""

    def __init__(self, response: requests.Response, abort: Abort) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.headers.get("content-type", "")
        self._response = response
        self._abort = abort
        self._inner = getattr(response.raw, "_fp", None)  # the http.client response, for its socket and buffer
        self._sock = _socket_of(self._inner)
        abort.on_set(self._cut)

    def _cut(self) -> None:
        if self._sock is not None:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # closed already: there is nothing left to wake up

    def limit(self, seconds: float) -> None:
        """How long the next read may wait."""
        if self._sock is not None and self._sock.fileno() >= 0:  # http.client closes it behind the last byte
            self._sock.settimeout(max(0.05, seconds))

    def chunks(self) -> Iterator[bytes]:
        """Pieces of the body, each as soon as it is there. Raises Aborted, LLMError (retryable) on a broken connection."""
        try:
            yield from self._read_raw() if self._is_plain_chunked() else self._read_decoded()
        except Exception as error:
            self._abort.check()
            if isinstance(error, (LLMError, Aborted)):
                raise
            raise _network_error(error, "while the answer was coming") from error
        self._abort.check()

    def body(self) -> bytes:
        return b"".join(self.chunks())

    def close(self) -> None:
        self._abort.forget(self._cut)
        self._response.close()

    def _is_plain_chunked(self) -> bool:
        return (
            getattr(self._inner, "chunked", False)
            and getattr(self._inner, "fp", None) is not None
            and not self.headers.get("content-encoding")
        )

    def _read_raw(self) -> Iterator[bytes]:
        frames, buffer = Dechunker(), self._inner.fp  # type: ignore[union-attr]  # checked by _is_plain_chunked
        while not frames.ended:
            data = buffer.read1(READ_SIZE)
            if not data:
                raise LLMError("the connection was closed in the middle of the answer", retryable=True)
            if piece := frames.feed(data):
                yield piece
        self._inner.close()  # type: ignore[union-attr]  # the body is read: the connection can carry the next call
        self._response.raw.release_conn()

    def _read_decoded(self) -> Iterator[bytes]:
        raw = self._response.raw
        if self.headers.get("content-encoding"):
            yield from raw.stream(READ_SIZE, decode_content=True)
            return
        while data := raw.read1(READ_SIZE):
            yield data
        raw.release_conn()


class Transport:
    """The connection to one provider: kept alive between calls, through its proxy, with its TLS settings."""

    def __init__(self, proxy: str | None = None, verify: bool | str = True) -> None:
        """`proxy`: an address, "" for none, None for what the environment says (never for this machine)."""
        self._session = requests.Session()
        # Left on, requests would replace our Authorization by one from ~/.netrc and our proxy by the environment's.
        self._session.trust_env = False
        bundles = map(os.environ.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
        self._session.verify = next(filter(None, bundles), True) if verify is True else verify
        self._proxy = proxy
        self.date = ""  # of the last answer, as its header says
        adapter = requests.adapters.HTTPAdapter(pool_connections=2, pool_maxsize=4)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def _proxies(self, url: str) -> dict[str, str]:
        if self._proxy is not None:
            return {"http": self._proxy, "https": self._proxy} if self._proxy else {}
        return {} if is_loopback(url) else get_environ_proxies(url)

    def send(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        connect: float,
        first_byte: float,
        abort: Abort,
        now: Callable[[], float] = time.time,
    ) -> Stream:
        """POST the body, or GET where there is none, and wait for the status and headers. Times in seconds.

        Raises LLMError for a status >= 400 and for any network fault, Aborted when the user stops meanwhile.
        """
        heads = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity", "Content-Type": "application/json", **headers}
        answer: SimpleQueue[Any] = SimpleQueue()

        def call() -> None:
            try:
                response = self._session.request(
                    "GET" if body is None else "POST",
                    url,
                    data=body,
                    headers=heads,
                    stream=True,
                    timeout=(connect, first_byte),
                    allow_redirects=False,
                    proxies=self._proxies(url),
                )
            except Exception as error:  # handed to the caller, who raises it
                answer.put(error)
                return
            if abort.is_set():
                response.close()
            answer.put(response)

        def wake() -> None:
            answer.put(None)

        abort.check()
        abort.on_set(wake)
        threading.Thread(target=call, name="llm-request", daemon=True).start()
        try:
            outcome = answer.get(timeout=connect + first_byte + 30)
        except Empty:
            raise LLMError(f"{_host(url)} did not answer", retryable=True) from None
        finally:
            abort.forget(wake)
        abort.check()
        if isinstance(outcome, Exception):
            raise _network_error(outcome, f"calling {_host(url)}") from outcome
        stream = Stream(outcome, abort)
        self.date = stream.headers.get("date", "")
        if stream.status >= 300:
            stream.limit(first_byte)
            try:
                raise http_error(stream.status, dict(stream.headers), _error_body(stream), now())
            finally:
                stream.close()
        return stream


def get_json(url: str, timeout: float) -> Any:
    """The JSON that an address on this machine gives within `timeout` seconds; None when it gives none."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            heads = {"User-Agent": USER_AGENT}
            return session.get(url, timeout=timeout, headers=heads, allow_redirects=False).json()
        except (requests.RequestException, ValueError):
            return None


def _error_body(stream: Stream) -> bytes:
    """The start of an error's body; a body that breaks off is as good as the part that came."""
    got = b""
    try:
        for piece in stream.chunks():
            got += piece
            if len(got) > READ_SIZE:
                break
    except LLMError:
        return got
    return got


def _host(url: str) -> str:
    return url.split("/")[2] if "//" in url else url


def _socket_of(inner: Any) -> socket.socket | None:
    raw = getattr(getattr(inner, "fp", None), "raw", None)
    sock = getattr(raw, "_sock", None)
    return sock if hasattr(sock, "settimeout") else None


def _network_error(error: Exception, doing: str) -> LLMError:
    """A fault of requests, urllib3 or the socket as one line; whether it may pass decides `retryable`."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, requests.exceptions.InvalidSchema) and "SOCKS" in str(error):
        return LLMError(
            f"the environment names a SOCKS proxy, which needs PySocks: {install_command(*EXTRAS['socks'])}, or unset "
            "ALL_PROXY/HTTPS_PROXY"
        )
    if isinstance(error, (requests.exceptions.SSLError,)):
        return LLMError(
            f"TLS to the provider failed {doing}: {_reason(error)}; see `verify` in {shipped('docs', 'CONFIG.md')}"
        )
    if isinstance(error, (requests.exceptions.ConnectTimeout, requests.exceptions.ReadTimeout, TimeoutError)):
        return LLMError(f"timed out {doing}", retryable=True)
    if isinstance(error, (requests.exceptions.ProxyError,)):
        return LLMError(f"the proxy refused {doing}: {_reason(error)}", retryable=True)
    if isinstance(error, (requests.exceptions.InvalidURL, requests.exceptions.MissingSchema, UnicodeError)):
        return LLMError(f"the base URL is not usable {doing}: {_reason(error)}")
    if isinstance(error, (requests.exceptions.InvalidHeader, requests.exceptions.InvalidSchema)):
        return LLMError(f"the request could not be sent {doing}: {type(error).__name__}; check api_key and base_url")
    if "timed out" in text:
        return LLMError(f"timed out {doing}", retryable=True)
    return LLMError(f"network error {doing}: {_reason(error)}", retryable=True)


def _reason(error: BaseException) -> str:
    """The innermost reason of a chain of wrapped network errors, in one short line."""
    while error.args and isinstance(error.args[-1], BaseException):
        error = error.args[-1]
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _reason(reason)
    text = re.sub(
        r"^HTTPS?Connection(?:Pool)?\([^)]*\): (?:Failed to establish a new connection: )?",
        "",
        " ".join(str(error).split()),
    )
    if "[Errno 111]" in text or "Connection refused" in text:
        return "nothing answers there (connection refused)"
    return (text.split(">: ", 1)[-1] or type(error).__name__)[:200]
