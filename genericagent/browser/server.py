"""The sockets of the bridge: the browser's extension on one port, further processes of ours on the other.

The first process that needs the browser holds a lock in the home and listens (Bridge); the others find its address and
token in the home and go through it (Link). Both have the same calls. The only importer of `websockets`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import Aborted, ConfigError, ToolError
from ..paths import this_program
from ..safety.listener import NO_TOKEN, loopback_socket, new_token, refusal, status, token_file
from ..store import atomic
from ..store.lock import FileLock
from . import wire

try:
    from websockets.frames import Frame, Opcode
    from websockets.http11 import Request
    from websockets.protocol import OPEN
    from websockets.server import ServerProtocol
except ImportError as error:  # only where it was removed: it is a base dependency
    raise ConfigError(
        f"the browser bridge needs the package websockets ({error}): {sys.executable} -m pip install websockets"
    ) from error

_log = logging.getLogger(__name__)
TOKEN_HEADER = "X-GA-Token"
PAIRING_TIME = 5.0  # seconds to prove oneself
SILENCE = 65.0  # seconds: the extension says something every 20
GRACE = 3.0  # seconds on top of a call's own limit: the extension knows better what happened
FIND_US = 12.0  # seconds after our start: the extension looks for us every 3
WAKE_UP = 35.0  # seconds after the last contact: a sleeping extension wakes every 10, or 30 where the browser insists
MAX_UNPAIRED = 16  # connections at a time
MAX_BODY = wire.MAX_FRAME
Request_ = dict[str, Any]


class Browser:
    """A browser profile that has proved itself. Calls may come from any thread."""

    def __init__(self, connection: _Connection, info: dict[str, str]) -> None:
        self.info = info
        self.last_contact = time.monotonic()
        self._connection = connection
        self._pending: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._ids = itertools.count(1)

    def call(self, request: Request_, timeout: float, stop: Any = None) -> dict[str, Any]:
        """The extension's answer to a request, within `timeout` seconds (and a bit). Raises ToolError, Aborted."""
        number = next(self._ids)
        answer: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._pending[number] = answer

        def wake() -> None:
            answer.put({"error": "aborted"})

        if stop is not None:
            stop.on_set(wake)
        try:
            self._connection.send(wire.encode({**request, "id": number, "timeout": round(timeout * 1000)}))
            found = answer.get(timeout=timeout + GRACE)
        except Empty:
            raise ToolError(
                f"the browser did not answer within {timeout + GRACE:.0f} s; later answers are dropped"
            ) from None
        except OSError as error:
            raise ToolError(f"the connection to the browser broke: {error}") from error
        finally:
            self._pending.pop(number, None)
            if stop is not None:
                stop.forget(wake)
        if found.get("error") == "aborted":
            raise Aborted(getattr(stop, "why", "stopped"))
        return found

    def received(self, text: str) -> None:
        self.last_contact = time.monotonic()
        data = wire.decode(text)
        waiting = self._pending.pop(data.get("id", 0), None)
        if waiting is not None:  # else a beat, or an answer that came too late
            waiting.put(data)

    def lost(self) -> None:
        for waiting in list(self._pending.values()):
            waiting.put(
                {"error": "lost", "message": "the browser was closed, or its extension was stopped or restarted"}
            )

    def end(self) -> None:
        self._connection.end()


class _Connection(threading.Thread):
    """One TCP connection to the port of the extension, in a thread of its own."""

    def __init__(self, bridge: Bridge, sock: socket.socket) -> None:
        super().__init__(name="ga-browser", daemon=True)
        self._bridge, self._sock = bridge, sock
        self._protocol = ServerProtocol(max_size=wire.MAX_FRAME, logger=_log.getChild("ws"))
        self._lock = threading.RLock()
        self._parts: list[bytes] = []
        self.browser: Browser | None = None

    def run(self) -> None:
        pairing = self._bridge.pairing()
        try:
            self._read(pairing)
        except PermissionError as error:
            _log.warning("a connection to the browser port was refused: %s", error)
        except (OSError, ValueError) as error:
            _log.info("a connection to the browser port ended: %s", error)
        finally:
            self.end()
            self._sock.close()
            self._bridge.gone(self)

    def _read(self, pairing: wire.Pairing) -> None:
        deadline, unpaired = time.monotonic() + PAIRING_TIME, 0
        while True:
            self._sock.settimeout(SILENCE if self.browser else max(0.01, deadline - time.monotonic()))
            data = self._sock.recv(1 << 18)
            if self.browser is None:
                unpaired += len(data)
                if unpaired > wire.MAX_UNPAIRED or time.monotonic() > deadline:
                    raise PermissionError("too much or too slow for somebody who has proved nothing")
            with self._lock:
                if data:
                    self._protocol.receive_data(data)
                else:
                    self._protocol.receive_eof()
                events = self._protocol.events_received()
                for event in events:
                    if isinstance(event, Request):
                        self._handshake(event)
                self._flush()
            for event in events:
                if isinstance(event, Frame):
                    self._frame(event, pairing)
            if not data or self._protocol.close_expected():
                return

    def _handshake(self, request: Request) -> None:
        """Everything but the token has to be right: no page can send a header, its proof is in the first frame."""
        why = refusal(
            request.headers.raw_items(), port=self._bridge.port, token=new_token(), origins=[wire.ORIGIN]
        )  # fmt: skip
        if why == NO_TOKEN and "Origin" not in request.headers:
            why = "no Origin"
        if why != NO_TOKEN or request.path != "/":
            self._protocol.send_response(self._protocol.reject(403, ""))
            self._flush()
            raise PermissionError(why if why != NO_TOKEN else "unknown path")
        self._protocol.send_response(self._protocol.accept(request))

    def _frame(self, frame: Frame, pairing: wire.Pairing) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        text = b"".join(self._parts).decode()
        self._parts.clear()
        if self.browser:
            self.browser.received(text)
            return
        answer = pairing.take(text, time.time())
        if answer is not None:
            self.send(answer)
        elif pairing.browser:
            self.browser = Browser(self, pairing.browser)
            self._bridge.came(self.browser)

    def send(self, text: str) -> None:
        """Raises OSError when there is no connection any more."""
        with self._lock:
            if self._protocol.state is not OPEN:
                raise OSError("it is closed")
            self._protocol.send_text(text.encode())
            self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._sock.sendall(data)
            else:
                self._sock.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the other side may have gone first
            self._sock.shutdown(socket.SHUT_RDWR)


class Bridge:
    """Listens for the extension and for further processes. Raises ConfigError when it cannot."""

    def __init__(self, folder: Path, port: int, link_port: int, lock: FileLock) -> None:
        self._secret = token_file(folder / "secret")
        self._lock, self._address = lock, folder / "link.json"
        self._nonces = wire.Nonces()
        self._browsers: dict[str, Browser] = {}
        self._connections: set[_Connection] = set()
        self._changed = threading.Condition()
        self.started = time.monotonic()
        self.last_contact: float | None = None  # with a browser that is gone
        self._closed = False
        self._socket = _listen(port)
        try:
            self._link = _LinkServer(self, _listen(link_port))
        except ConfigError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        for listener, take in ((self._socket, self._take), (self._link.socket, self._link.process_request)):
            threading.Thread(target=self._accept, args=(listener, take), name="ga-browser-port", daemon=True).start()
        address = {"port": self._link.port, "token": self._link.token, "pid": os.getpid()}
        atomic.write_text(self._address, json.dumps(address), mode=0o600)

    def _accept(self, listener: socket.socket, take: Callable[[socket.socket, Any], None]) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # no descriptors left, or the client was gone at once
                continue
            if self._closed:
                sock.close()
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            take(sock, address)

    def _take(self, sock: socket.socket, address: Any) -> None:
        connection = _Connection(self, sock)
        with self._changed:
            full = sum(c.browser is None for c in self._connections) >= MAX_UNPAIRED
            if not full:
                self._connections.add(connection)
        if full:
            sock.close()
        else:
            connection.start()

    def pairing(self) -> wire.Pairing:
        from .. import __version__

        about = {"name": f"GenericAgent {__version__}", "pid": os.getpid()}
        return wire.Pairing(self._secret, self.port, self._nonces, secrets.token_hex(32), about)

    def came(self, browser: Browser) -> None:
        with self._changed:
            old = self._browsers.get(browser.info["id"])
            self._browsers[browser.info["id"]] = browser
            self._changed.notify_all()
        if old:
            old.end()  # the same profile, connected anew

    def gone(self, connection: _Connection) -> None:
        browser = connection.browser
        with self._changed:
            self._connections.discard(connection)
            if browser and self._browsers.get(browser.info["id"]) is browser:
                del self._browsers[browser.info["id"]]
                self.last_contact = browser.last_contact
        if browser:
            browser.lost()

    def browsers(self, wait: float = 0, stop: Any = None) -> list[dict[str, Any]]:
        """Who is connected: {"id", "name", "version", "agent", "age": seconds since the last contact}. With `wait`, not
        before one is there: at most so many seconds, and no longer than one that is awake, or was there, needs to find us."""
        limit = time.monotonic() + wait
        with self._changed:
            while not self._browsers and not (stop and stop.is_set()):
                end = min(limit, max(self.started + FIND_US, (self.last_contact or 0) + WAKE_UP))
                if (left := end - time.monotonic()) <= 0:
                    break
                self._changed.wait(min(left, 0.5))
            now = time.monotonic()
            return [{**b.info, "age": round(now - b.last_contact, 1)} for b in self._browsers.values()]

    def call(self, browser: str, request: Request_, timeout: float, stop: Any = None) -> dict[str, Any]:
        """The answer of the extension in that browser. Raises ToolError, Aborted."""
        found = self._browsers.get(browser)
        if found is None:
            raise ToolError(f"the browser {browser} is not connected any more")
        return found.call(request, timeout, stop)

    def status(self) -> dict[str, Any]:
        gone = None if self.last_contact is None else round(time.monotonic() - self.last_contact, 1)
        return {
            "pid": os.getpid(),
            "port": self.port,
            "link_port": self._link.port,
            "browsers": self.browsers(),
            "gone": gone,
        }

    def close(self) -> None:
        """End all connections and let another process take over."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            connections = list(self._connections)
        self._address.unlink(missing_ok=True)
        _wake(self._socket)
        _wake(self._link.socket)
        for connection in connections:
            connection.end()
        for connection in connections:
            connection.join(2)
        self._lock.release()


class _LinkServer(ThreadingHTTPServer):
    """HTTP for further processes: POST /call, /browsers and /status with JSON and the token that stands in the home."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, bridge: Bridge, sock: socket.socket) -> None:
        self.bridge, self.token, self.port = bridge, new_token(), sock.getsockname()[1]
        super().__init__(("127.0.0.1", self.port), _LinkHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = sock

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a request at the link port ended", exc_info=True)


class _LinkHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 75  # seconds of silence between two requests
    server: _LinkServer

    def do_POST(self) -> None:
        why = refusal(self.headers.items(), port=self.server.port, token=self.server.token, token_header=TOKEN_HEADER)
        length = self.headers.get("content-length", "")
        if why:
            return self._answer(status(why))
        if self.headers.get_content_type() != "application/json":
            return self._answer(415)
        if (
            "transfer-encoding" in self.headers
            or not length.isascii()
            or not length.isdigit()
            or int(length) > MAX_BODY
        ):
            return self._answer(413)
        try:
            data = wire.decode(self.rfile.read(int(length)))
            found = self._do(data)
        except ToolError as error:
            return self._answer(200, {"failed": str(error)})
        except (ValueError, KeyError, TypeError) as error:
            return self._answer(400, {"failed": f"malformed: {error}"})
        return self._answer(200, found) if found else self._answer(404)

    def _do(self, data: dict[str, Any]) -> dict[str, Any] | None:
        bridge = self.server.bridge
        if self.path == "/call":
            return {"answer": bridge.call(str(data["browser"]), dict(data["request"]), float(data["timeout"]))}
        if self.path == "/browsers":
            return {"answer": bridge.browsers(float(data["wait"]))}
        return {"answer": bridge.status()} if self.path == "/status" else None

    def _answer(self, code: int, data: dict[str, Any] | None = None) -> None:
        body = b"" if data is None else wire.encode(data).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code != 200:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Whatever else is asked: the number alone, and no more talk."""
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 %d \r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % code)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


class Link:
    """The bridge of another process of ours. Raises ConnectionError when it is gone."""

    def __init__(self, port: int, token: str, pid: int) -> None:
        self.pid = pid
        self._port, self._token = port, token

    def browsers(self, wait: float = 0, stop: Any = None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("/browsers", {"wait": wait}, wait + GRACE, stop)
        return found

    def call(self, browser: str, request: Request_, timeout: float, stop: Any = None) -> dict[str, Any]:
        body = {"browser": browser, "request": request, "timeout": timeout}
        found: dict[str, Any] = self._ask("/call", body, timeout + 2 * GRACE, stop)
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("/status", {}, GRACE)
        return found

    def close(self) -> None:
        """Nothing is held between calls."""

    def _ask(self, path: str, body: dict[str, Any], timeout: float, stop: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=timeout)

        def wake() -> None:
            with contextlib.suppress(OSError, AttributeError):  # not open yet, or not any more
                connection.sock.shutdown(socket.SHUT_RDWR)

        if stop is not None:
            stop.on_set(wake)
        try:
            headers = {"Content-Type": "application/json", TOKEN_HEADER: self._token}
            connection.request("POST", path, wire.encode(body).encode(), headers)
            response = connection.getresponse()
            data = response.read()
            if response.status != 200:
                raise ConnectionError(f"port {self._port} answered {response.status}")
            found = wire.decode(data)
        except (OSError, HTTPException, ValueError) as error:
            if stop is not None and stop.is_set():
                raise Aborted(stop.why) from error
            raise ConnectionError(f"the process {self.pid} that holds the browser bridge is gone: {error}") from error
        finally:
            if stop is not None:
                stop.forget(wake)
            connection.close()
        if "failed" in found:
            raise ToolError(found["failed"])
        return found["answer"]


def join(
    home: Path, port: int | None = None, link_port: int | None = None, sleep: Callable[[float], object] = time.sleep
) -> Bridge | Link:
    """The bridge of this home: ours when nobody has one, else the way to it. Ports: those of setup. Raises ConfigError."""
    folder = home / "browser"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    wanted = ports(home)
    lock = FileLock(folder / "bridge.lock")
    for _ in range(50):
        if lock.acquire():
            try:
                return Bridge(
                    folder, wanted[0] if port is None else port, wanted[1] if link_port is None else link_port, lock
                )
            except BaseException:
                lock.release()
                raise
        link = running(home)
        if link is not None:
            return link
        sleep(0.1)  # it is just beginning, or ending
    holder = lock.holder() or {}
    raise ConfigError(f"the process {holder.get('pid', '?')} holds the browser bridge and does not answer: end it")


def running(home: Path) -> Link | None:
    """The way to a bridge that runs and answers."""
    try:
        found = json.loads((home / "browser" / "link.json").read_text("utf-8"))
        link = Link(int(found["port"]), str(found["token"]), int(found["pid"]))
        link.status()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return link


def ports(home: Path) -> tuple[int, int]:
    """(of the extension, of further processes) as `ga browser setup` wrote them."""
    path = home / "browser" / "ports.json"
    try:
        found = json.loads(path.read_text("utf-8"))
        return int(found["port"]), int(found["link_port"])
    except FileNotFoundError:
        return wire.PORT, wire.LINK_PORT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is not readable ({error}): run `{this_program()} browser setup`") from error


def _listen(port: int) -> socket.socket:
    try:
        return loopback_socket(port)
    except ConfigError as error:
        who = who_listens(port)
        held = f", which {who} holds" if who else ""
        raise ConfigError(
            f"{error}{held}; end it, or choose other ports: {this_program()} browser setup --port N --link-port M"
        ) from error


def who_listens(port: int) -> str:
    """The program that listens on a port of this machine, as "name (process 123)", or "" where that cannot be seen.
    From /proc/net/tcp, see proc_pid_net(5)."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):  # not Linux
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # of another user, or ended meanwhile
            if any(str(fd.readlink()) in inodes for fd in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return "a program of another user"


def _wake(listener: socket.socket) -> None:
    """End an accept() that waits: closing alone doesn't do it everywhere."""
    with contextlib.suppress(OSError):  # a BSD says that a listener is not connected
        listener.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):  # it has ended already
        socket.create_connection(("127.0.0.1", listener.getsockname()[1]), timeout=1).close()
    listener.close()
