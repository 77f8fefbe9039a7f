"""A real Chromium with the extension of `ga browser setup`, and small pages to work on. For the tests of the bridge."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ports import free_ports
from websockets.sync.client import connect

from genericagent.browser import wire
from genericagent.cli.browser import write_extension
from TMWebDriver import TMWebDriver

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "NO CHROMIUM: the tests with a real browser are skipped (apt-get install chromium)"
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
    "--disable-features=DisableLoadExtensionCommandLineSwitch",
]  # fmt: skip


def until(done: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for something true."""
    end = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.02)
    return found


class Chromium:
    """One browser, with the extension in `extension`; `profile` is a fresh folder, `flags` are for its command line."""

    def __init__(self, extension: Path | str, profile: Path, *flags: str) -> None:
        assert CHROMIUM
        self.profile = profile
        command = [
            CHROMIUM,
            *FLAGS,
            *flags,
            f"--user-data-dir={profile}",
            f"--load-extension={extension}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def signal(self, number: int) -> None:
        """To all its processes."""
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)  # tens of megabytes; a helper of it may still be ending

    def _debugging(self, path: str) -> Any:
        port_file = self.profile / "DevToolsActivePort"
        until(lambda: port_file.is_file() and port_file.read_text().strip())
        url = f"http://127.0.0.1:{port_file.read_text().split()[0]}/json/{path}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read()

    def _target(self, kind: str, part: str) -> dict[str, str] | None:
        ours = [t for t in json.loads(self._debugging("list")) if t["type"] == kind and part in t["url"]]
        return ours[0] if ours else None

    def evaluate(self, expression: str, kind: str, part: str) -> Any:
        """The value of an expression (awaited) in the target of this kind with `part` in its URL."""
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        with connect(until(lambda: self._target(kind, part))["webSocketDebuggerUrl"]) as ws:
            ws.send(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": params}))
            while (answer := json.loads(ws.recv(timeout=60))).get("id") != 1:
                pass
        assert "exceptionDetails" not in answer["result"], answer
        return answer["result"]["result"].get("value")

    def worker(self, expression: str) -> Any:
        """In the extension's worker: what a user's click would do there."""
        return self.evaluate(expression, "service_worker", wire.EXTENSION_ID)

    def popup(self, expression: str) -> Any:
        """In the extension's popup, shown in a tab of its own."""
        if not self._target("page", "popup.html"):
            until(lambda: self.worker("typeof globalThis.chrome?.tabs") == "object")  # it is just being started
            self.worker("chrome.tabs.create({url: 'popup.html'}).then(() => 1)")
        return self.evaluate(expression, "page", "popup.html")

    def started(self) -> None:
        """Wait until the extension runs."""
        until(lambda: self._target("service_worker", wire.EXTENSION_ID))

    def stop_worker(self) -> None:
        """As the browser does when it has nothing to do."""
        self._debugging(f"close/{until(lambda: self._target('service_worker', wire.EXTENSION_ID))['id']}")


class Bridged:
    """A home, a browser that is paired with it, and a driver."""

    def __init__(self, folder: Path, *flags: str, beside: Path | None = None, connects: bool = True) -> None:
        """`beside`: the folder of another extension. The first browser of a machine that has just started takes longer
        than a driver waits, so what `connects` is waited for here."""
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.ports = free_ports()
        self.extension = write_extension(self.home, *self.ports)
        self.driver = TMWebDriver(home=self.home)
        self.chromium = Chromium(",".join(map(str, filter(None, (self.extension, beside)))), folder / "profile", *flags)
        try:
            if connects:
                until(lambda: self.driver._ask("browsers"))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.driver.close()
        self.chromium.close()


Page = tuple[str, dict[str, str]] | str


class Site:
    """Pages on loopback: `site.pages[path] = html` or (html, headers) or a function of the handler. `site.seen`: paths."""

    def __init__(self, pages: dict[str, Page | Callable[[Any], Page]]) -> None:
        self.pages = pages
        self.seen: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.seen.append(self.path)
                page = site.pages.get(self.path.split("?")[0], ("not here", {"Status": "404"}))
                page = page(self) if callable(page) else page
                text, headers = (page, {}) if isinstance(page, str) else page
                body = (
                    text.replace("{other}", site.other)
                    .replace("{here}", site.url)
                    .encode("latin-1", "xmlcharrefreplace")
                )
                self.send_response(int(headers.get("Status", "200")))
                for name, value in ({"Content-Type": "text/html; charset=utf-8"} | headers).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the browser was killed
                    self.wfile.write(body)

            def do_POST(self) -> None:
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                self.do_GET()
                del self.body

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.other = f"http://localhost:{self.server.server_port}"  # another origin, and another site
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def serving(pages: dict[str, Page | Callable[[Any], Page]]) -> Iterator[Site]:
    site = Site(pages)
    try:
        yield site
    finally:
        site.close()
