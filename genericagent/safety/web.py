"""What a call of the web tools would do, as the policy understands it. Pure.

To act in a page, and every script may, counts as sending to its host; so does to open an address. A host is known when
the user named it, or when the task was there before it had read anything of somebody else's. What only looks (a scan, a
picture) is free, but for tabs that the user had open and the task has nothing to do with: once text from outside is
read, those are asked about too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .policy import Action
from .zones import Zones

Tab = Mapping[str, Any]  # {"id", "url", …} as the driver lists it

UNKNOWN = "unknown-host"
LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1")
# What a page would be asked for with a hand on the mouse, or with eyes: as good as a script in it.
IN_PAGE = re.compile(
    r"(?:Input|DOM|DOMSnapshot|DOMDebugger|Accessibility|CSS|Overlay|Emulation|Runtime|Performance|LayerTree)\.\w+"
    r"|Page\.(?:captureScreenshot|printToPDF|getLayoutMetrics|getFrameTree|bringToFront|reload|enable|stopLoading)"
)
_NAMED = re.compile(
    r"(?:https?:|wss?:)?//([\w.-]+\.[a-z]{2,24}|localhost|\d{1,3}(?:\.\d{1,3}){3}|\[[\da-f:]+\])(:\d+)?(?![\w.-])", re.I
)
_SENDS = re.compile(r"\bmethod\b|sendBeacon|WebSocket|\.submit\(|\.send\(|WebTransport|RTCPeerConnection", re.I)
_TEMPLATE = "{{"
_UNSEEN: Tab = {"id": "", "url": "?"}  # nobody can say yet where it is


def place(url: str) -> str:
    """What a send goes to: the host of a URL, on loopback with its port; the scheme where there is no host."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return UNKNOWN
    if not host:
        return parts.scheme or "about"
    return f"{host}:{port or 80}" if LOOPBACK.fullmatch(host) else host


def knows(hosts: Collection[str], where: str) -> bool:
    """Whether a place is among the known hosts or below one of them: `shop.example.org` where `www.example.org` is known."""
    bare = {host.removeprefix("www.") for host in hosts}
    return where == "about" or where in hosts or any(where == host or where.endswith(f".{host}") for host in bare)


@dataclass(frozen=True)
class View:
    """What the guard knows when a call is judged. `theirs`: ids of tabs that are the user's alone; `real`: the real path."""

    hosts: Collection[str]
    tainted: bool
    theirs: Collection[str]
    zones: Zones
    real: Callable[[str], str]
    tab_of: Callable[[str], Tab | None]


def web_actions(tool: str, args: Mapping[str, Any], view: View) -> list[Action]:
    """The actions of a call of web_scan or web_execute_js. A send goes to a place (`place`).

    Beside the model's arguments `args` has "_tab", the tab it would work in (None: a new one, blank), and "_command",
    the command that `script` is (None: JavaScript).
    """
    tab, command = args.get("_tab"), args.get("_command")
    if tool == "web_scan":
        return [Action(tool, "read"), *([] if args.get("tabs_only") else _look(tool, tab, view))]
    found = (
        _script(tool, str(args.get("script") or ""), tab, view)
        if command is None
        else _command(tool, command, tab, view)
    )
    return list(dict.fromkeys(found))


def _command(tool: str, command: Mapping[str, Any], current: Tab | None, view: View) -> Iterator[Action]:
    name, tab = command["cmd"], current
    if command.get("tab") is not None:
        tab = view.tab_of(str(command["tab"])) or _UNSEEN
    if name == "batch":
        steps = command.get("steps")
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, Mapping) and isinstance(step.get("cmd"), str):
                yield from _command(tool, step, tab, view)
                tab = _UNSEEN if _moves(step) else tab  # where later steps are is not known before
    elif name == "js":
        yield from _script(tool, str(command.get("code") or ""), tab, view)
    elif name == "jump":
        yield from _open(tool, str(command.get("url") or ""), view)
    elif name == "tabs":
        yield from _tabs(tool, command, tab, view)
    elif name == "screenshot":
        yield from _look(tool, tab, view)
    elif name == "cookies":
        urls = command.get("urls")
        for url in urls if isinstance(urls, list) else [tab["url"] if tab else ""]:
            yield Action(tool, "control", (f"cookies {place(str(url))}",))
    elif name == "cdp":
        yield from _protocol(tool, command, tab, view)
    else:
        yield Action(tool, "control", (str(name),))


def _moves(step: Mapping[str, Any]) -> bool:
    return step["cmd"] == "jump" or (step["cmd"] == "tabs" and step.get("action") in ("create", "switch", "close"))


def _tabs(tool: str, command: Mapping[str, Any], tab: Tab | None, view: View) -> Iterator[Action]:
    if command.get("action") == "close":
        yield from _act(tool, tab, view)
    elif command.get("url"):
        yield from _open(tool, str(command["url"]), view)


def _protocol(tool: str, command: Mapping[str, Any], tab: Tab | None, view: View) -> Iterator[Action]:
    method = str(command.get("method") or "")
    given = command.get("params")
    params: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    files = params.get("files")
    if method == "Page.navigate":
        yield from _open(tool, str(params.get("url") or ""), view)
    elif not IN_PAGE.fullmatch(method):
        yield Action(tool, "control", (f"cdp {method}",))
    else:
        yield from _script(
            tool,
            " ".join(str(params.get(key) or "") for key in ("expression", "functionDeclaration", "source")),
            tab,
            view,
        )
    for file in files if isinstance(files, list) else ():
        yield from _file(tool, str(file), view)


def _act(tool: str, tab: Tab | None, view: View) -> Iterator[Action]:
    """Do something in the page that the tab shows."""
    where = UNKNOWN if tab is _UNSEEN else place(str(tab["url"])) if tab else "about"
    yield Action(tool, "send", (where,), known=not view.tainted or knows(view.hosts, where))


def _look(tool: str, tab: Tab | None, view: View) -> Iterator[Action]:
    if view.tainted and tab and tab["id"] in view.theirs:
        yield from _act(tool, tab, view)


def _open(tool: str, url: str, view: View) -> Iterator[Action]:
    if "://" not in url and not re.match(r"[a-z]+:", url, re.I):
        url = f"https://{url}"
    if url.lower().startswith("file:"):
        yield from _file(tool, unquote(urlsplit(url).path), view, bool(urlsplit(url).netloc))
        return
    where = UNKNOWN if _TEMPLATE in url else place(url)
    yield Action(tool, "send", (where,), known=not view.tainted or knows(view.hosts, where))


def _script(tool: str, code: str, tab: Tab | None, view: View) -> Iterator[Action]:
    """Act in the tab; and send to what the code names beside it, as far as that can be seen."""
    yield from _act(tool, tab, view)
    here = place(str(tab["url"])) if tab else ""
    if not (view.tainted or _SENDS.search(code)):
        return
    for match in _NAMED.finditer(code):
        where = place(f"http://{match[1]}{match[2] or ''}")
        if where != here and not knows(view.hosts, where):
            yield Action(tool, "send", (where,))


def _file(tool: str, path: str, view: View, elsewhere: bool = False) -> Iterator[Action]:
    """Show a local file to the browser, or hand it to a page: free for the workspace's own."""
    target = view.real(path)
    yield Action(tool, "read", (target,))
    if (
        elsewhere
        or _TEMPLATE in path
        or view.zones.hidden(Path(target))
        or view.zones.of(Path(target)) not in ("workspace", "temp")
    ):
        yield Action(tool, "control", (path if elsewhere else target,))
