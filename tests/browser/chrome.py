"""A Chromium of the test's own, driven over its debugging pipe: what simphtml needs of a driver and nothing more.

Messages are JSON objects ended by a zero byte, on file descriptors 3 (to the browser) and 4 (from it):
https://chromedevtools.github.io/devtools-protocol/, `--remote-debugging-pipe`.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost", "--disable-dev-shm-usage",
]  # fmt: skip
WORLD = "genericagent"
SCRIPTS = Path(__file__).resolve().parents[2] / "assets" / "page"
CLOSED_ROOTS = """function(...pairs) { const map = new Map();
for (let i = 0; i < pairs.length; i += 2) map.set(pairs[i], pairs[i + 1]);
globalThis.chrome = {dom: {openOrClosedShadowRoot: e => e.shadowRoot || map.get(e) || null}}; }"""


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


class ChromeError(Exception):
    """The browser refused a command or the script in it failed."""


class Chrome:
    """The browser. `with Chrome() as chrome: tab = chrome.open(url); tab.execute_js("return 1")`."""

    def __init__(self) -> None:
        binary = find_chromium()
        if binary is None:
            raise ChromeError("no Chromium here")
        self._profile = tempfile.mkdtemp(prefix="ga-chrome-")
        self._to, self._from, self._process = _started(
            [binary, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        )
        self._ids, self._waiting = iter(range(1, 1 << 31)), dict[int, "queue.Queue[Any]"]()
        self.tabs: dict[str, Tab] = {}
        threading.Thread(target=self._read, daemon=True).start()
        self.call("Target.setDiscoverTargets", {"discover": True}, timeout=60)  # the first of a machine starts slowly

    def __enter__(self) -> Chrome:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        for _ in range(20):  # its helpers may still be writing
            shutil.rmtree(self._profile, ignore_errors=True)
            if not Path(self._profile).exists():
                break
            time.sleep(0.05)

    def call(self, method: str, params: Mapping[str, Any] | None = None, session: str = "", timeout: float = 20) -> Any:
        n = next(self._ids)
        answer = self._waiting[n] = queue.Queue()
        message = {"id": n, "method": method, "params": params or {}} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        try:
            got = answer.get(timeout=timeout)
        except queue.Empty:
            raise ChromeError(f"{method} was not answered within {timeout} s") from None
        if "error" in got:
            raise ChromeError(f"{method}: {got['error']['message']}")
        return got["result"]

    def open(self, url: str) -> Tab:
        """A new tab, after its load event."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        tab = Tab(self, target)
        tab.jump(url)
        return tab

    def _read(self) -> None:
        rest = b""
        while data := os.read(self._from, 1 << 20):
            *whole, rest = (rest + data).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "id" in message:
                    self._waiting.pop(message["id"]).put(message)
                elif tab := self.tabs.get(message.get("sessionId", "")):
                    tab.event(message["method"], message["params"], message["sessionId"])
        os.close(self._from)


def _started(command: list[str]) -> tuple[int, int, subprocess.Popen[bytes]]:
    """A browser with its two pipes: (to it, from it, process)."""
    to_read, to = os.pipe()
    back, to_write = os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (to_read, to_write)]  # so that neither is in the other's way

    def place() -> None:
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    process = subprocess.Popen(
        [*command, "--remote-debugging-pipe"], preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    for fd in (to_read, to_write, *high):
        os.close(fd)
    return to, back, process


class Tab:
    """A driver (see simphtml.Driver) of one tab."""

    def __init__(self, chrome: Chrome, target: str) -> None:
        self.chrome, self.target = chrome, target
        self.session = chrome.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self._loaded = threading.Event()
        self._frames: dict[str, str] = {}  # frames in processes of their own → session
        self._worlds: dict[tuple[str, str], int] = {}  # (session, frame) → isolated world
        self._main: dict[str, int] = {}  # frame → the page's own world
        self._attach(self.session)

    def _attach(self, session: str) -> None:
        self.chrome.tabs[session] = self
        self.chrome.call("Page.enable", session=session)
        self.chrome.call("Runtime.enable", session=session)
        follow = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
        self.chrome.call("Target.setAutoAttach", follow, session)

    def event(self, method: str, params: Any, session: str) -> None:
        if method == "Page.loadEventFired" and session == self.session:
            self._loaded.set()
        elif method == "Target.attachedToTarget" and params["targetInfo"]["type"] == "iframe":
            self._frames[params["targetInfo"]["targetId"]] = params["sessionId"]
            threading.Thread(target=self._attach, args=(params["sessionId"],), daemon=True).start()
        elif method == "Runtime.executionContextCreated":
            about = params["context"]["auxData"]
            if about.get("isDefault"):
                self._main[about["frameId"]] = params["context"]["id"]
        elif method == "Runtime.executionContextDestroyed":
            gone = params["executionContextId"]
            self._worlds = {k: v for k, v in self._worlds.items() if (k[0], v) != (session, gone)}
        elif method == "Runtime.executionContextsCleared":
            self._worlds = {k: v for k, v in self._worlds.items() if k[0] != session}
        elif method == "Target.detachedFromTarget":
            self._frames = {k: v for k, v in self._frames.items() if v != params["sessionId"]}

    def jump(self, url: str) -> None:
        self._loaded.clear()
        self.chrome.call("Page.navigate", {"url": url}, self.session)
        if not self._loaded.wait(60):
            raise ChromeError(f"{url} did not load")

    def close(self) -> None:
        self.chrome.call("Target.closeTarget", {"targetId": self.target})

    def execute_js(
        self, code: str, timeout: float = 10, session_id: str | None = None, *, dialogs: Any = None, frame: Any = 0,
        frame_url: str = "", around: str | None = None, args: dict[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """As TMWebDriver.execute_js: `around` is a page script to run with phase "begin" before and "end" after it."""
        if around:
            self.page_script(around, {**(args or {}), "phase": "begin"}, timeout)
        result: dict[str, Any] = {"tab": self.target}
        try:
            where = next((f for f in self._tree(self.session, None) if f[1] == frame), None) if frame else None
            session = where[0] if where else self.session
            result["value"] = self._evaluate(code, session, self._main.get(str(frame)) if where else None, timeout)
        except ChromeError as error:
            result |= {"error": str(error), "kind": "exception"}
        if around:
            result["around"] = self.page_script(around, {**(args or {}), "phase": "end"}, timeout)["frames"]
        return result

    def page_script(
        self, name: str, args: dict[str, Any] | None = None, timeout: float = 10, session_id: str | None = None, *,
        all_frames: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """As TMWebDriver.page_script; frames are named by the browser's ids."""
        code = f"return await (globalThis.gaPage?.[{name!r}]?.({json.dumps(args or {})}) ?? {{missing: true}})"
        frames: list[dict[str, Any]] = []
        for session, frame in list(self._tree(self.session, None)):
            try:
                value = self._run(session, frame, code, timeout)
                if isinstance(value, dict) and value.get("missing"):
                    body = (SCRIPTS / f"{name}.js").read_text("utf-8")
                    self._run(
                        session,
                        frame,
                        f"(globalThis.gaPage ??= {{}})[{name!r}] = async (args) => {{{body}\n}}",
                        timeout,
                    )
                    value = self._run(session, frame, code, timeout)
                frames.append({"frame": frame, "value": value})
            except ChromeError as error:
                frames.append({"frame": frame, "error": str(error)})
        return {"tab": self.target, "url": "", "title": "", "frames": frames}

    def _tree(self, session: str, parent: str | None) -> Iterator[tuple[str, str]]:
        todo = [self.chrome.call("Page.getFrameTree", session=session)["frameTree"]]
        while todo:
            tree = todo.pop(0)
            yield session, tree["frame"]["id"]
            todo += tree.get("childFrames", [])
        if parent is None:
            for frame_id, own in list(self._frames.items()):
                yield from self._tree(own, frame_id)

    def _run(self, session: str, frame: str, code: str, timeout: float) -> Any:
        return self._evaluate(code, session, self._world(session, frame), timeout)

    def _evaluate(self, code: str, session: str, context: int | None, timeout: float) -> Any:
        how = {"awaitPromise": True, "returnByValue": True, "userGesture": True} | (
            {"contextId": context} if context else {}
        )
        result = self.chrome.call(
            "Runtime.evaluate", {"expression": f"(async () => {{{code}\n}})()", **how}, session, timeout
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise ChromeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def _world(self, session: str, frame: str) -> int:
        key = (session, frame)
        if key not in self._worlds:
            made = self.chrome.call("Page.createIsolatedWorld", {"frameId": frame, "worldName": WORLD}, session)
            self._worlds[key] = made["executionContextId"]
        return self._worlds[key]

    def offer_closed_roots(self) -> None:
        """Stand in for chrome.dom.openOrClosedShadowRoot, which only an extension has, in the worlds of all frames."""
        for session, frame in list(self._tree(self.session, None)):
            world = self._world(session, frame)
            document = self.chrome.call("DOM.getDocument", {"depth": -1, "pierce": True}, session)["root"]
            found: list[dict[str, str]] = []
            for host, root in _closed(document):
                for node in (host, root):
                    where = {"backendNodeId": node, "executionContextId": world}
                    found.append(
                        {"objectId": self.chrome.call("DOM.resolveNode", where, session)["object"]["objectId"]}
                    )
            self.chrome.call(
                "Runtime.callFunctionOn",
                {"functionDeclaration": CLOSED_ROOTS, "executionContextId": world, "arguments": found}, session,
            )  # fmt: skip


def _closed(node: dict[str, Any]) -> Iterator[tuple[int, int]]:
    for root in node.get("shadowRoots", []):
        if root["shadowRootType"] == "closed":
            yield node["backendNodeId"], root["backendNodeId"]
        yield from _closed(root)
    for child in node.get("children", []):
        yield from _closed(child)


Show = Callable[..., Tab]  # the fixture `show`
Pages = Callable[[str], tuple[int, Mapping[str, str], bytes] | None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, pages: Pages, *args: Any) -> None:
        self.pages = pages
        super().__init__(*args)

    def do_GET(self) -> None:
        status, headers, body = self.pages(self.path) or (404, {}, b"no such page")
        self.send_response(status)
        for name, value in {"Content-Type": "text/html; charset=utf-8", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests speak."""


@contextlib.contextmanager
def serve(pages: Pages) -> Iterator[int]:
    """`pages(path)` → (status, headers, body) or None, on loopback; the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, pages)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
