"""The scripted model's sockets: an HTTP/1.1 server on loopback that plays a script, one thread a connection.

Written on plain sockets because the faults it plays (resets inside a chunk, silence, broken framing) are what an HTTP
library prevents.
"""

from __future__ import annotations

import json
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ..safety import listener
from .render import Kind, Piece, dump, kind_of, render
from .reply import Reply, Script
from .strict import violations

_log = logging.getLogger(__name__)
_READ = 65536
_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    429: "Too Many Requests",
}


class _Gone(Exception):
    """The client or the server ended the connection."""


@dataclass(slots=True)
class Recorded:
    """A request as it came. Times are time.monotonic(), comparable between processes of one machine.

    `headers` have lower-case names; `body` is the parsed JSON ({} when it is none, see `raw`); `connection` is the
    number of the TCP connection; `arrived` is when its first bytes were read; `previous_sent` when the last byte of
    the answer before it went out (None: there was none); `answered` when the last byte of its own answer did (None:
    not or not wholly).
    """

    n: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes = field(repr=False)
    arrived: float
    previous_sent: float | None
    connection: int
    answered: float | None = None

    @property
    def gap(self) -> float | None:
        """Seconds that the client took between the previous answer and this request."""
        return None if self.previous_sent is None else self.arrived - self.previous_sent


class ScriptedServer:
    """Plays `replies` to whoever asks; see Script. Use it as a context manager.

    requests  the model calls so far, in order
    strays    "METHOD path" of everything else that was asked
    faults    what was wrong with requests in strict mode, and exceptions of a script function: each was answered by
              a 400 with that text
    strict    answer 400 to what the real APIs refuse
    token     answer only to who has it as the API key (see safety/listener.py); empty: to everybody, for tests
    """

    def __init__(self, replies: Script = (), port: int = 0, *, strict: bool = False, token: str = "") -> None:
        self.replies = replies
        self.strict = strict
        self.token = token
        self.requests: list[Recorded] = []
        self.strays: list[str] = []
        self.faults: list[str] = []
        self._signed: dict[str, str] = {}  # signature → the thinking it was given for
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._last_sent: float | None = None
        self._open: dict[socket.socket, threading.Thread] = {}
        self._count = 0
        self._listener = listener.loopback_socket(port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._acceptor = threading.Thread(target=self._accept, name="scripted-model", daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every connection and thread."""
        if self._stop.is_set():
            return
        self._stop.set()
        try:  # wakes accept(), which closing a listening socket doesn't do everywhere
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError as error:
            _log.debug("waking the scripted model: %s", error)
        self._acceptor.join(timeout=5)
        self._listener.close()
        with self._lock:
            still = list(self._open.items())
        for conn, _ in still:
            _shut(conn)
        for _, thread in still:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while True:
            conn, _ = self._listener.accept()
            if self._stop.is_set():
                conn.close()
                return
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._count += 1
            name = f"scripted-model-{self._count}"
            thread = threading.Thread(target=self._serve, args=(conn, self._count), name=name, daemon=True)
            with self._lock:
                self._open[conn] = thread
            thread.start()

    def _serve(self, conn: socket.socket, number: int) -> None:
        try:
            reader = _Reader(conn)
            while not self._stop.is_set():
                method, path, pairs, arrived = reader.head()
                why = self.token and listener.refusal(pairs, port=self.port, token=self.token)
                if why:
                    self._refuse(conn, why)
                    return
                headers = dict(pairs)
                raw = reader.body(headers)
                stays = headers.get("connection", "").lower() != "close"
                kind = kind_of(path)
                if method != "POST" or kind is None:
                    self._stray(conn, method, path)
                else:
                    request = self._record(path, headers, raw, arrived, number)
                    stays &= self._answer(conn, kind, self._choose(kind, request), request)
                if not stays:
                    return
        except (OSError, _Gone) as error:
            _log.debug("connection %d of the scripted model ended: %s", number, error)
        finally:
            conn.close()
            with self._lock:
                self._open.pop(conn, None)

    def _record(self, path: str, headers: dict[str, str], raw: bytes, arrived: float, number: int) -> Recorded:
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        with self._lock:
            request = Recorded(
                n=len(self.requests),
                path=path,
                headers=headers,
                body=body if isinstance(body, dict) else {},
                raw=raw,
                arrived=arrived,
                previous_sent=self._last_sent,
                connection=number,
            )
            self.requests.append(request)
        return request

    def _choose(self, kind: Kind, request: Recorded) -> Reply:
        if self.strict:
            wrong = [*_headers_wrong(kind, request.headers), *violations(kind, request.body)]
            wrong = wrong or self._changed_thinking(request.body)
            if wrong:
                return self._fault(f"request {request.n}: " + "; ".join(wrong))
        try:
            if callable(self.replies):
                step = self.replies(request.body, request.n)
            elif request.n < len(self.replies):
                step = self.replies[request.n]
            else:
                return Reply(status=400, text=f"the script has no reply for request {request.n}")
        except Exception as error:  # a script is test code: its failing assertion must reach the test
            return self._fault(f"request {request.n}: the script failed: {type(error).__name__}: {error}")
        reply = Reply(text=step) if isinstance(step, str) else step
        if reply.signature:
            self._signed[reply.signature] = reply.thinking
        return reply

    def _fault(self, text: str) -> Reply:
        with self._lock:
            self.faults.append(text)
        return Reply(status=400, text=text)

    def _changed_thinking(self, body: dict[str, Any]) -> list[str]:
        blocks = [b for m in body.get("messages") or [] if isinstance(m.get("content"), list) for b in m["content"]]
        signed = {b.get("signature"): b.get("thinking") for b in blocks if b.get("type") == "thinking"}
        return [
            f"the thinking signed {signature!r} was changed"
            for signature, text in signed.items()
            if self._signed.get(signature, text) != text
        ]

    def _refuse(self, conn: socket.socket, why: str) -> None:
        """Before the body is read: whoever this is doesn't get to fill our memory."""
        body = dump({"error": why})
        reply = Reply(status=listener.status(why))
        conn.sendall(_head(reply, {"Content-Length": str(len(body)), "Connection": "close"}) + body)

    def _stray(self, conn: socket.socket, method: str, path: str) -> None:
        with self._lock:
            self.strays.append(f"{method} {path}")
        found = method == "GET" and path.partition("?")[0].endswith("/models")
        body = dump({"object": "list", "data": [{"id": "scripted", "object": "model"}]} if found else {"error": path})
        reply = Reply(status=200 if found else 404)
        conn.sendall(_head(reply, {"Content-Type": "application/json", "Content-Length": str(len(body))}) + body)

    def _answer(self, conn: socket.socket, kind: Kind, reply: Reply, request: Recorded) -> bool:
        """Send the reply. False when the connection ended with it."""
        self._pause(conn, reply.hang_before_headers)
        if reply.raw is not None:
            self._finish(conn, request, reply.raw)
            return True
        content_type, pieces = render(kind, reply, request.body, request.n)
        framing = reply.framing or ("chunked" if content_type == "text/event-stream" else "length")
        headers = {"Content-Type": content_type}
        if framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif framing == "length":
            headers["Content-Length"] = str(sum(len(p.data) for p in pieces))
        else:
            headers["Connection"] = "close"
        body = _Body(self, conn, replace(reply, framing=framing), _head(reply, headers))
        if not body.send(pieces):
            return False
        self._finish(conn, request, body.rest())
        return framing != "close"

    def _finish(self, conn: socket.socket, request: Recorded, rest: bytes) -> None:
        """Send what is left of an answer. The clock is read before: the client may be faster than this thread."""
        self._last_sent = request.answered = time.monotonic()
        conn.sendall(rest)

    def _pause(self, conn: socket.socket, seconds: float, ping: bytes = b"", every: float | None = None) -> None:
        """Wait, but not for a client that is gone. Sends `ping` at every interval."""
        end = time.monotonic() + seconds
        next_ping = time.monotonic() + (every or seconds + 1)
        while (now := time.monotonic()) < end:
            if every and now >= next_ping:
                conn.sendall(ping)
                next_ping += every
            readable, _, _ = select.select([conn], [], [], max(0.0, min(end, next_ping) - now))
            if readable and (self._stop.is_set() or not conn.recv(1, socket.MSG_PEEK)):
                raise _Gone("while waiting")
            if readable:
                self._stop.wait(min(0.01, seconds))  # a pipelined request: nothing to do with it yet


class _Body:
    """The body of one answer on its way: framing, pace, silence and breaks as the reply wants them."""

    def __init__(self, server: ScriptedServer, conn: socket.socket, reply: Reply, head: bytes) -> None:
        self._server, self._conn, self._reply = server, conn, reply
        self._out = bytearray(head)
        self._chunked = reply.framing == "chunked"

    def send(self, pieces: list[Piece]) -> bool:
        """Everything but the last write, which is left to rest(). False when the connection was broken."""
        r = self._reply
        if r.packet:
            whole = b"".join(p.data for p in pieces)
            pieces = [Piece(whole[i : i + r.packet]) for i in range(0, len(whole), r.packet)]
        if r.delay:
            self._wait(r.delay)
        hang_at = (r.hang_after if r.hang_after is not None else len(pieces) // 2) if r.hang_mid else -1
        size = chars = 0
        for i, piece in enumerate(pieces):
            if i == hang_at:
                self._wait(r.hang_mid)
            if r.pace and i:
                self._wait(r.pace)
            if r.drop_bytes is not None and size + len(piece.data) > r.drop_bytes:
                self._out += self._frame(piece.data)[: r.drop_bytes - size - len(piece.data) - 2 * self._chunked]
                return self._drop()
            if i == r.drop_after or (r.drop_text is not None and chars >= r.drop_text):
                return self._drop()
            self._out += self._frame(piece.data)
            size, chars = size + len(piece.data), chars + piece.chars
            if i < len(pieces) - 1:
                self._flush()  # the last one goes out together with the end of the body
        if r.drop_after is not None or r.drop_bytes is not None or r.drop_text is not None:
            return self._drop()
        return True

    def rest(self) -> bytes:
        return bytes(self._out) + (b"0\r\n\r\n" if self._chunked else b"")

    def _frame(self, data: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(data), data) if self._chunked and data else data

    def _flush(self) -> None:
        if self._out:
            self._conn.sendall(self._out)
            self._out.clear()

    def _wait(self, seconds: float) -> None:
        self._flush()
        every = self._reply.pings
        self._server._pause(self._conn, seconds, self._frame(b": ping\n\n"), every)

    def _drop(self) -> bool:
        self._flush()
        if self._reply.drop_how == "reset":
            self._conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False


class _Reader:
    """Requests off a connection. Raises _Gone when the client has ended it."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn
        self._held = b""

    def head(self) -> tuple[str, str, list[tuple[str, str]], float]:
        """(method, path, headers with lower-case names, time of its first bytes)."""
        if not self._held:
            self._more()
        arrived = time.monotonic()
        while (end := self._held.find(b"\r\n\r\n")) < 0:
            if len(self._held) > _READ:
                raise _Gone("with a head without an end")
            self._more()
        head, self._held = self._held[:end].decode("latin-1"), self._held[end + 4 :]
        first, *lines = head.split("\r\n")
        method, path, *_ = [*first.split(" "), "", ""]
        split = (line.partition(":") for line in lines)
        return method, path, [(name.lower(), value.strip()) for name, _, value in split], arrived

    def body(self, headers: Mapping[str, str]) -> bytes:
        length = headers.get("content-length") or "0"
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise _Gone("with a body of no length")
        pieces, have = [self._held], len(self._held)
        while have < int(length):
            pieces.append(self._conn.recv(_READ))
            have += len(pieces[-1])
            if not pieces[-1]:
                raise _Gone("inside a request")
        data = b"".join(pieces)
        body, self._held = data[: int(length)], data[int(length) :]
        return body

    def _more(self) -> None:
        data = self._conn.recv(_READ)
        if not data:
            raise _Gone("between requests")
        self._held += data


def _head(reply: Reply, headers: Mapping[str, str]) -> bytes:
    given = {name.lower() for name in reply.headers}
    merged = {k: v for k, v in headers.items() if k.lower() not in given} | dict(reply.headers)
    lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, 'Scripted')}"]
    lines += [f"{name}: {value}" for name, value in merged.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _headers_wrong(kind: Kind, headers: Mapping[str, str]) -> list[str]:
    wrong = []
    if "json" not in headers.get("content-type", ""):
        wrong.append("content-type: must be application/json")
    if kind == "anthropic":  # a local server of the other APIs needs no key
        if not headers.get("authorization") and not headers.get("x-api-key"):
            wrong.append("x-api-key: header is required")
        if not headers.get("anthropic-version"):
            wrong.append("anthropic-version: header is required")
    return wrong


def _shut(conn: socket.socket) -> None:
    try:
        conn.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        _log.debug("already closed: %s", error)
