"""The user's browser as Python sees it: its tabs, and code that runs in them.

    driver = TMWebDriver()
    driver.jump("https://example.org")
    driver.execute_js("document.title")        # {"value": "Example Domain", "type": "string", "tab": "17", …}

The extension in assets/tmwd_cdp_bridge/ does the work in the browser; genericagent/browser/ is the way to it. All calls
are synchronous. Each names its tab on the way, so drivers (and threads) don't get into each other's pages.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from genericagent import paths
from genericagent.browser import wire
from genericagent.errors import ToolError
from genericagent.store import atomic

if TYPE_CHECKING:
    from genericagent.abort import Abort
    from genericagent.browser.server import Bridge, Link

__all__ = ["TMWebDriver"]

SHOWN = 10  # tabs that an error lists
OUTCOMES = ("exception", "timeout", "stayed", "not_opened", "crashed")  # what a page does; all else is the way to it


class TMWebDriver:
    """One agent's view of the browser. `session` is the tab that calls without a `session_id` go to.

    `permit(request, tab, tabs)` is called before each request to a tab (None: a new one) and raises what stops it; the
    request then runs only as long as the tab is still on that site.

    Making one opens the bridge, or joins the one that another process of ours has. Ports: those that `ga browser setup`
    noted, unless given. `stop`: ends a call that waits (it raises Aborted then).
    It raises ToolError before `ga browser setup`, and ConfigError when the bridge cannot be had (a port is held by another
    program); methods raise ToolError when there is no browser, no such tab, or the user doesn't share it. What happens
    inside a page is told in the result instead.
    """

    def __init__(
        self,
        port: int | None = None,
        link_port: int | None = None,
        *,
        home: Path | None = None,
        stop: Abort | None = None,
    ) -> None:
        self.session: str | None = None
        self.stop = stop
        self.permit: Callable[[dict[str, Any], dict[str, Any] | None, list[dict[str, Any]]], None] | None = None
        self.made: set[str] = set()  # "browser:tab" of the tabs that calls have made or opened
        self._home, self._ports = home, (port, link_port)
        self._bridge: Bridge | Link | None = None
        self._join()

    def execute_js(
        self, code: str | dict[str, Any], timeout: float = 10, session_id: str | None = None, *, dialogs: Any = None,
        frame: int = 0, frame_url: str = "", around: str | None = None, args: dict[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Run code in a tab like a line in its console: statements, `await` and `return` all work. `timeout` in seconds.

        `code` may also be a command, an object with `cmd` or its text; see docs/BROWSER.md.
        `dialogs` says what else than "dismiss" to do with some, e.g. {"confirm": True, "prompt": "Ann", "beforeunload": True}.
        `frame`: a number that page_script() gave, `frame_url` where it is. `around`: a page script to run in all frames
        with {**args, "phase": "begin"} before the code and with "end" after it; `around` in the result is what the second
        time gave, a list as page_script() gives it ([] when the page was left).

        Returns {"value", "type", "tab", "url", "via"}, or {"error", "kind", …} without a value, kind being "exception",
        "timeout" and so on. When they happened: "dialogs" [{"type", "message", "accepted"}], "new_tabs" [{"id", "url",
        "title"}], "blocked_popups" [url], "navigated" url, "downloads" [{"url", "file"}], "closed", "note".
        """
        command = wire.command_of(code)
        if command is not None:
            return self._command(command, timeout, session_id)
        if not isinstance(code, str):
            raise ToolError("code must be JavaScript, or a command: an object with `cmd`")
        request: dict[str, Any] = {"do": "js", "code": code, "dialogs": dialogs, "frame": frame, "frame_url": frame_url}
        if around:
            request.update(around=self._page_file(around), args=args)
        return self._in_tab(request, timeout, session_id)

    def page_script(
        self, name: str, args: dict[str, Any] | None = None, timeout: float = 10, session_id: str | None = None, *,
        all_frames: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """Run assets/page/NAME.js, the body of `async (args) => {…}`, in a world of its own that the page doesn't see: it
        lasts as long as the document, chrome.dom.openOrClosedShadowRoot() is there, the page's policy doesn't count.

        Returns {"tab", "url", "title", "frames": [{"frame", "value"} or {"frame", "error"}, …]}; frame 0 is the top one.
        Where the browser lets no extension in (about:blank, its pages of errors) frame 0 has that error. Raises ToolError
        also when the page does not answer in time.
        """
        request = {"do": "page", "file": self._page_file(name), "args": args, "all_frames": all_frames}
        result = self._in_tab(request, timeout, session_id)
        if "frames" not in result:
            raise ToolError(f"the page could not be looked into: {result.get('error', 'it was left meanwhile')}")
        return result

    def get_all_sessions(self) -> list[dict[str, Any]]:
        """The tabs that the user shares, as they are now: [{"id", "url", "title", "active", "browser"}, …]. `active`: in
        front of the user. With several browsers connected an id has the form "browser:tab"."""
        there = self._browsers()
        return [tab for browser in there for tab in self._tabs(browser, there)]

    def look(self, session_id: str | None = None) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        """(the tab that a call with this `session_id` would go to now, all tabs). None: there is none, one would be made.
        Raises ToolError when that tab is gone."""
        return self._look(session_id, self._browsers())

    def _look(self, session_id: str | None, there: list[str]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
        tabs = [tab for browser in there for tab in self._tabs(browser, there)]
        wanted = session_id or self.session
        if wanted is None:
            return max(tabs, key=lambda tab: (tab["active"], tab["used"]), default=None), tabs
        found = [tab for tab in tabs if wanted in _names(tab)]
        if len(found) == 1:
            return found[0], tabs
        if wanted == self.session:
            self.session = None
        raise ToolError(f"tab {wanted} is closed or not shared with the agent; {_listed(tabs)}")

    def set_session(self, url_pattern: str) -> str | None:
        """Make the tab whose URL contains `url_pattern` the current one (the one used last, of several): its id, or None."""
        found = [tab for tab in self.get_all_sessions() if url_pattern.lower() in tab["url"].lower()]
        if not found:
            return None
        self.session = str(max(found, key=lambda tab: (tab["active"], tab["used"]))["id"])
        return self.session

    def jump(
        self, url: str, timeout: float = 20, session_id: str | None = None, *, dialogs: Any = None
    ) -> dict[str, Any]:
        """Open a URL in the current tab, or in a new one when none was chosen yet, and wait for its document.
        Returns {"tab", "url", …} as execute_js does; `error` when the page could not be opened or would not be left."""
        target = session_id or self.session
        request = {"url": _address(url), "dialogs": dialogs}
        if target is None or all(tab["id"] != target for tab in self.get_all_sessions()):
            return self._create(request, timeout)
        return self._in_tab({"do": "jump", **request}, timeout, target)

    def status(self, wait: float = 0) -> dict[str, Any]:
        """Who is connected, after a real round trip to each; with `wait`, raises ToolError when after that many seconds
        nobody is. {"pid", "port", "link_port", "browsers": [{"id", "name",
        "version", "agent", "age", "ms" or "error", "tabs"}]}. Times in seconds, `ms` apart."""
        if wait:
            self._browsers(wait)
        found = dict(self._ask("status"))
        for browser in found["browsers"]:
            begin = time.perf_counter()
            try:
                answer = self._ask("call", browser["id"], {"do": "tabs"}, 3.0, self.stop)
            except ToolError as error:
                answer = {"error": "lost", "message": str(error)}
            if "error" in answer:
                browser["error"] = str(answer.get("message") or answer["error"])
            else:
                browser.update(ms=round((time.perf_counter() - begin) * 1000, 1), tabs=len(answer["tabs"]), age=0.0)
        return found

    def close(self) -> None:
        if self._bridge is not None:
            self._bridge.close()
            self._bridge = None

    def __enter__(self) -> TMWebDriver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # the way to the browser

    def _join(self) -> Bridge | Link:
        if self._bridge is None:
            from genericagent.browser import server

            if not paths.pairing(self._home).is_file():
                raise ToolError(f"the browser is not set up: {paths.this_program()} browser setup")
            self._bridge = server.join(self._home or paths.home(), *self._ports)
        return self._bridge

    def _ask(self, what: str, *args: Any) -> Any:
        """A call of the bridge; when the process that held it has gone, of a new one. A call that may have reached the
        browser is not repeated."""
        for last in (False, True):
            try:
                return getattr(self._join(), what)(*args)
            except ConnectionError as error:
                self._bridge = None
                if last or what == "call":
                    raise ToolError(f"{error}; whether the call reached the browser is not known") from error
        raise AssertionError

    def _page_file(self, name: str) -> str:
        """Where the extension finds a page script: its world takes no text, only files of the extension's folder."""
        script = paths.shipped("assets", "page", f"{name}.js").read_text("utf-8")
        file = f"{name}-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
        path = (self._home or paths.home()) / "extension" / "page" / f"{file}.js"
        if not path.exists():
            if not path.parent.is_dir():
                raise ToolError(f"the extension is not set up: {paths.this_program()} browser setup")
            atomic.write_text(path, f"(globalThis.gaPage ??= {{}})['{file}'] = async (args) => {{\n{script}\n}};\n")
        return file

    def _browsers(self, wait: float = 60) -> list[str]:
        """Who is connected; waits for the first one, within reason. Raises ToolError when there is none."""
        found = [str(browser["id"]) for browser in self._ask("browsers", wait, self.stop)]
        if self.stop is not None:
            self.stop.check()
        if not found:
            state = self._ask("status")
            seen = f" (last contact {state['gone']:.0f} s ago)" if state["gone"] is not None else ""
            raise ToolError(
                f"no browser is connected to port {state['port']}{seen}: it is closed, or open in a profile without the "
                "extension, or the extension is off or of another setup. Its popup says what it waits for; "
                f"{paths.this_program()} browser setup says how to load it"
            )
        return found

    def _tabs(self, browser: str, there: list[str]) -> list[dict[str, Any]]:
        answer = self._checked(self._ask("call", browser, {"do": "tabs"}, 5.0, self.stop))
        return [
            {**tab, "id": _name(tab["id"], browser, there), "active": tab["focused"], "browser": browser}
            for tab in answer["tabs"]
        ]

    def _in_tab(self, request: dict[str, Any], timeout: float, session_id: str | None) -> dict[str, Any]:
        there, wanted = self._browsers(), session_id or self.session
        tab: dict[str, Any] | None
        tabs: list[dict[str, Any]] = []
        if self.permit is None and len(there) == 1 and wanted and re.fullmatch(r"[1-9]\d*", wanted):
            tab = {"id": wanted, "browser": there[0]}  # nobody asks where it is
        else:
            tab, tabs = self._look(session_id, there)
        if tab is None:
            self._create({}, 10)
            tab, tabs = self._look(None, there)
            assert tab is not None
        if session_id is None:
            self.session = str(tab["id"])
        if self.permit is not None:
            self.permit(request, tab, tabs)
            request = {**request, "at": tab["url"]}
        browser, number = str(tab["browser"]), int(str(tab["id"]).rpartition(":")[2])
        answer = self._ask("call", browser, {**request, "tab": number}, timeout, self.stop)
        if answer.get("error") in ("gone", "not_shared"):
            if session_id in (None, self.session):
                self.session = None
            raise ToolError(f"{answer['message']}; {_listed(self.get_all_sessions())}")
        result = self._told(answer, browser, there)
        if session_id is None and "tab" in result:
            self.session = str(result["tab"])  # another where the browser has put it to sleep meanwhile
        return result

    def _create(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        browser, there = self.session.rpartition(":")[0] if self.session else "", self._browsers()
        browser = browser if browser in there else there[0]
        if self.permit is not None:
            self.permit({"do": "create", **request}, None, [])
        answer = self._ask("call", browser, {"do": "create", **request}, timeout, self.stop)
        if "tab" in answer:
            self.made.add(f"{browser}:{answer['tab']}")
        result = self._told(answer, browser, there)
        self.session = str(result["tab"])
        return result

    def _told(self, answer: dict[str, Any], browser: str, there: list[str]) -> dict[str, Any]:
        """An answer as our callers know it: tabs by their ids, failures of the way to the page raised."""
        result = self._checked(answer)
        self.made.update(f"{browser}:{tab['id']}" for tab in result.get("new_tabs", ()))
        for holder, key in [(result, "tab"), *((tab, "id") for tab in result.get("new_tabs", ()))]:
            if key in holder:
                holder[key] = _name(holder[key], browser, there)
        for dialog in result.get("dialogs", ()):
            if "tab" in dialog:  # of another tab than the call's
                dialog["tab"] = _name(dialog["tab"], browser, there)
        return result

    @staticmethod
    def _checked(answer: dict[str, Any]) -> dict[str, Any]:
        result = {key: value for key, value in answer.items() if key != "id"}
        kind = result.pop("error", None)
        if kind is None:
            return result
        message = str(result.pop("message", kind))
        if kind not in OUTCOMES:
            raise ToolError(message)
        return {"error": message, "kind": kind, **result}

    # commands

    def _command(self, command: dict[str, Any], timeout: float, session_id: str | None) -> dict[str, Any]:
        name, rest = (
            command["cmd"],
            {key: value for key, value in command.items() if key not in ("cmd", "tab", "timeout")},
        )
        tab = command.get("tab", session_id)
        tab = None if tab is None else str(tab)
        timeout = wire.seconds(command.get("timeout", timeout))
        if name == "js":
            return self.execute_js(str(rest.pop("code", "")), timeout, tab, **_only(rest, "dialogs", "frame"))
        if name == "batch":
            return self._batch(command, timeout, tab)
        if name == "tabs":
            return self._tabs_command(str(rest.pop("action", "list")), rest, timeout, tab)
        if name == "jump":
            return self.jump(str(rest.pop("url", "")), timeout, tab, **_only(rest, "dialogs"))
        if name == "cdp":
            if not isinstance(rest.get("method"), str):
                raise ToolError(
                    'cdp needs a method, e.g. {"cmd": "cdp", "method": "Page.getLayoutMetrics", "params": {}}'
                )
            return self._in_tab({"do": "cdp", **_only(rest, "method", "params", "dialogs")}, timeout, tab)
        if name == "cookies":
            return self._in_tab({"do": "cookies", **_only(rest, "urls")}, timeout, tab)
        if name == "screenshot":
            return self._in_tab({"do": "screenshot", **_only(rest, "full", "format", "quality", "clip")}, timeout, tab)
        raise ToolError(f"there is no command {name}: js, tabs, jump, cdp, cookies, screenshot, batch")

    def _tabs_command(self, action: str, rest: dict[str, Any], timeout: float, tab: str | None) -> dict[str, Any]:
        if action == "list":
            return {"value": self.get_all_sessions(), "type": "array"}
        if action == "create":
            url = rest.pop("url", None)
            found = {"url": _address(str(url))} if url else {}
            return self._create({**found, **_only(rest, "active", "dialogs")}, timeout)
        if action == "switch":
            result = self._in_tab({"do": "activate", **_only(rest)}, timeout, tab)
            self.session = str(result["tab"])
            return result
        if action == "close":
            result = self._in_tab({"do": "close", **_only(rest, "dialogs")}, timeout, tab)
            if "error" not in result and self.session == result["tab"]:
                self.session = None
            return result
        raise ToolError(f"there is no action {action} of tabs: list, create, switch, close")

    def _batch(self, command: dict[str, Any], timeout: float, tab: str | None) -> dict[str, Any]:
        """Steps in order, each a command; `{{0.value}}` in a later one is what the first gave. Ends at the first error."""
        steps = command.get("steps")
        if not isinstance(steps, list) or not all(isinstance(step, dict) and "cmd" in step for step in steps):
            raise ToolError('batch needs steps: [{"cmd": "js", "code": "…"}, …]')
        results: list[dict[str, Any]] = []
        for number, step in enumerate(steps):
            try:
                found = {"tab": tab, **wire.resolve(step, results)}
                if found["cmd"] == "batch":
                    raise ToolError("a batch in a batch is not run")
                results.append(self._command(found, timeout, tab))
            except ToolError as error:
                results.append({"error": str(error), "kind": "refused"})
            if "error" in results[-1]:
                why = f"step {number} failed, {len(steps) - number - 1} were not done: {results[-1]['error']}"
                return {"value": results, "type": "array", "error": why, "kind": "batch"}
        return {"value": results, "type": "array"}


def _names(tab: dict[str, Any]) -> set[str]:
    """The ids by which a tab may be called: also those that it had before the browser put it to sleep."""
    browser, _, number = tab["id"].rpartition(":")
    numbers = {number, *map(str, tab["was"])}
    return numbers | {f"{browser}:{number}" for number in numbers}


def _listed(tabs: list[dict[str, Any]]) -> str:
    if not tabs:
        return "no tab is open"
    more = f" and {len(tabs) - SHOWN} more" if len(tabs) > SHOWN else ""
    return "open tabs: " + ", ".join(f"{tab['id']} {_site(tab['url'])}" for tab in tabs[:SHOWN]) + more


def _site(url: str) -> str:
    """As much of an address as a page has not written itself."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:80]


def _name(tab: Any, browser: str, there: list[str]) -> str:
    """A tab's id for our callers: its browser stands before it where several are connected."""
    return f"{browser}:{tab}" if len(there) > 1 else str(tab)


def _only(rest: dict[str, Any], *known: str) -> dict[str, Any]:
    if unknown := sorted(set(rest) - set(known)):
        raise ToolError(f"unknown: {', '.join(unknown)}" + (f"; known: {', '.join(known)}" if known else ""))
    return rest


def _address(url: str) -> str:
    """A URL that may be opened; `example.org` gets its https://."""
    url = url.strip()
    if url == "about:blank":
        return url
    if "://" not in url and not url.lower().startswith(
        ("javascript:", "data:", "blob:", "about:", "view-source:", "file:")
    ):
        url = f"https://{url}"
    if urlsplit(url).scheme.lower() not in ("http", "https", "file"):
        raise ToolError(f"{url[:100]} is not opened: only http, https and file")
    return url
