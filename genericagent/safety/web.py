"""What a request to the user's browser would do, as the policy understands it. Pure.

To act in a page, and every script may, counts as sending to its place; so does to open an address. A place is known when the
user named it, or when the task chose it before anything of somebody else's was read. What only looks (a scan, a picture)
is free, but for tabs that are the user's and not the task's: once text from outside was read, those are asked about too.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .policy import UNKNOWN, Action
from .zones import Zones

Tab = Mapping[str, Any]  # {"id", "url", "browser", …} as the driver lists it

LOOPBACK = re.compile(r"localhost|127(?:\.\d+){3}|::1")
# Commands of the DevTools protocol that do what a hand on the mouse, eyes, or a script in the page could: with nothing
# else among their parameters than these.
IN_PAGE: dict[str, str] = {
    "Input.dispatchMouseEvent": "type x y modifiers button buttons clickCount deltaX deltaY pointerType",
    "Input.dispatchKeyEvent": "type modifiers text unmodifiedText key code keyIdentifier windowsVirtualKeyCode nativeVirtualKeyCode autoRepeat isKeypad",
    "Input.insertText": "text",
    "Input.dispatchTouchEvent": "type touchPoints modifiers",
    "DOM.getDocument": "depth pierce", "DOM.querySelector": "nodeId selector", "DOM.querySelectorAll": "nodeId selector",
    "DOM.getBoxModel": "nodeId backendNodeId", "DOM.getOuterHTML": "nodeId backendNodeId",
    "DOM.scrollIntoViewIfNeeded": "nodeId backendNodeId", "DOM.focus": "nodeId backendNodeId",
    "DOM.setFileInputFiles": "nodeId backendNodeId files",
    "Accessibility.getFullAXTree": "depth", "Accessibility.queryAXTree": "nodeId backendNodeId accessibleName role",
    "Runtime.evaluate": "expression awaitPromise returnByValue userGesture timeout",
    "Page.captureScreenshot": "format quality clip captureBeyondViewport", "Page.printToPDF": "landscape printBackground scale pageRanges",
    "Page.getLayoutMetrics": "", "Page.reload": "ignoreCache", "Page.bringToFront": "",
    "Emulation.setDeviceMetricsOverride": "width height deviceScaleFactor mobile", "Emulation.clearDeviceMetricsOverride": "",
}  # fmt: skip
# Hosts below which everybody may have one: to know such a one says nothing of the others.
SHARED = frozenset(
    [
        "github.io",
        "gitlab.io",
        "pages.dev",
        "workers.dev",
        "vercel.app",
        "netlify.app",
        "web.app",
        "firebaseapp.com",
        "herokuapp.com",
        "appspot.com",
        "blogspot.com",
        "wordpress.com",
        "amazonaws.com",
        "s3.amazonaws.com",
        "cloudfront.net",
        "azurewebsites.net",
        "windows.net",
        "onrender.com",
        "fly.dev",
        "googleusercontent.com",
    ]  # noqa: SIM905
)
_HTTP = re.compile(r"(?:https?|wss?|ftp):[\\/]*([^\\/?#]*)", re.I)
_NAMED = re.compile(r"(?:\b(?:https?|wss?|ftp):[\\/]{2,}|(?<=[\"'`(=])[\\/]{2})([\w\[][^\s\"'`\\/?#)<>]*)", re.I)
_SENDS = re.compile(r"\bmethod\b|sendBeacon|WebSocket|\.submit\(|\.send\(|WebTransport|RTCPeerConnection", re.I)
_NAMESPACES = ("www.w3.org", "schema.org")  # named in scripts, never asked by them


def place(url: str) -> str:
    """What a send goes to: the host of a URL as a browser reads it, on loopback with its port; else its scheme.

    https://url.spec.whatwg.org/#host-parsing, as far as hosts go: backslashes, userinfo, numbers as addresses, IDNA.
    """
    url = re.sub(r"[\t\r\n]", "", url.strip("".join(map(chr, range(33)))))
    match = _HTTP.match(url)
    if not match:
        return (
            url.partition(":")[0].lower() if re.match(r"[a-z][\w+.-]*:", url, re.I) else "about" if not url else UNKNOWN
        )
    host, port = _split(match[1].rpartition("@")[2])
    host = _host(unquote(host))
    if LOOPBACK.fullmatch(host):
        return f"{host}:{port or (443 if url.lower().startswith(('https', 'wss')) else 80)}"
    return host or UNKNOWN


def _split(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        return host if ":" in host else "", port.lstrip(":")
    host, _, port = authority.partition(":")
    return host, port


def _host(text: str) -> str:
    """Lower case, ASCII, addresses in their usual form; "" for what is no host."""
    try:
        if ":" in text:
            return str(ipaddress.IPv6Address(text))
        name = text if text.isascii() else text.encode("idna").decode()
        name = name.lower().rstrip(".")
        parts = name.split(".")
        if re.fullmatch(r"0x[\da-f]*|\d+", parts[-1]):
            return _address(parts)
    except (ValueError, UnicodeError):
        return ""
    return name if re.fullmatch(r"[\w.-]+", name) else ""


def _address(parts: list[str]) -> str:
    """An IPv4 address in one to four decimal, octal or hexadecimal numbers. Raises ValueError."""
    *first, last = (
        int(p, 16) if p.startswith("0x") and p[2:] else int(p, 8) if p.startswith("0") and p != "0x" else int(p or "x")
        for p in parts
    )
    if len(first) > 3 or any(n > 255 for n in first) or last >= 256 ** (4 - len(first)):
        raise ValueError(parts)
    return str(ipaddress.IPv4Address(sum(n << 8 * (3 - i) for i, n in enumerate(first)) + last))


def knows(hosts: Collection[str], where: str) -> bool:
    """Whether a place is among the known hosts or below one of them: `shop.example.org` where `www.example.org` is known."""
    bare = {host.removeprefix("www.") for host in hosts}
    return (
        where == "about"
        or where in hosts
        or any(where == host or (where.endswith(f".{host}") and not _is_shared(host)) for host in bare)
    )


def _is_shared(host: str) -> bool:
    return (
        host in SHARED or "." not in host or bool(re.fullmatch(r"(?:co|com|org|net|ac|gov|edu|ne|or)\.[a-z]{2}", host))
    )


@dataclass(frozen=True)
class View:
    """What the guard knows when a request is judged. `ours`: keys of the tabs that the task works in; `opened`: places
    that the user let it open or act in, if only once."""

    hosts: Collection[str]
    tainted: bool
    ours: Collection[str]
    opened: Collection[str]
    zones: Zones
    real: Callable[[str], str]
    tabs: Sequence[Tab]


def opened_by(request: Mapping[str, Any], tab: Tab | None) -> str:
    """The place that the user who lets this pass lets it open or act in; "" where there is none. What the code of a page
    names beside that is none, it is sent to, not shown; nor is the page around a frame."""
    if url := _as_jump(request).get("url"):
        return place(str(url))
    return place(str(tab["url"])) if tab is not None and not request.get("frame") else ""


def _as_jump(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """A navigation by the protocol as what it is; any other request as it stands."""
    params = request.get("params")
    if request["do"] == "cdp" and request.get("method") == "Page.navigate" and isinstance(params, Mapping):
        return {"do": "jump", "url": str(params.get("url"))} if set(params) <= {"url"} else request
    return request


def key_of(tab: Tab) -> str:
    """What a tab is called whichever browsers are connected."""
    return f"{tab.get('browser', '')}:{str(tab['id']).rpartition(':')[2]}"


def request_actions(tool: str, request: Mapping[str, Any], tab: Tab | None, view: View) -> list[Action]:
    """The actions of one request of the driver (TMWebDriver) in `tab`, None where a new tab is made."""
    return list(dict.fromkeys(_actions(tool, request, tab, view)))


def _actions(tool: str, request: Mapping[str, Any], tab: Tab | None, view: View) -> Iterator[Action]:
    request = _as_jump(request)
    do = request["do"]
    if do in ("jump", "create"):
        if request.get("url"):
            yield from _open(tool, str(request["url"]), view)
        if tab is not None and key_of(tab) not in view.ours:  # it takes the user's page away
            yield from _act(tool, tab, view)
    elif do == "js":
        yield from _script(
            tool, str(request["code"]), tab, view, str(request.get("frame_url") or "") if request.get("frame") else None
        )
    elif do == "cdp":
        yield from _protocol(tool, request, tab, view)
    elif do == "cookies":
        urls = request.get("urls")
        for url in urls if isinstance(urls, list) and urls else [tab["url"] if tab else ""]:
            yield Action(tool, "control", (f"cookies {place(str(url))}",))
    elif do == "close" and tab is not None and key_of(tab) not in view.ours:
        yield from _act(tool, tab, view)
    else:
        yield from _look(tool, tab, view)


def _protocol(tool: str, request: Mapping[str, Any], tab: Tab | None, view: View) -> Iterator[Action]:
    method, given = str(request.get("method")), request.get("params")
    params: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if method not in IN_PAGE or set(params) - set(IN_PAGE[method].split()) or (given and not params):
        yield Action(tool, "control", (f"cdp {method}",))
    else:
        yield from _script(tool, json.dumps(params, ensure_ascii=False) if params else "", tab, view)
        files = params.get("files", [])
        for file in files if isinstance(files, list) else [files]:
            yield from _file(tool, str(file), view)


def _act(tool: str, tab: Tab | None, view: View, frame: str | None = None) -> Iterator[Action]:
    """Do something in the page that the tab shows, or in a frame of another site in it (its URL)."""
    where = place(str(tab["url"])) if tab else "about"
    if frame is not None:
        where = place(frame) if frame else UNKNOWN
    yield Action(tool, "send", (where,), known=not view.tainted or knows(view.hosts, where))


def _look(tool: str, tab: Tab | None, view: View) -> Iterator[Action]:
    """Free, but for the user's own tabs, and for a site that the user has open in one and did not let it open."""
    yield Action(tool, "read")
    if view.tainted and tab is not None:
        theirs = {place(str(other["url"])) for other in view.tabs if key_of(other) not in view.ours}
        if key_of(tab) not in view.ours or place(str(tab["url"])) in theirs - {"about", *view.opened}:
            yield from _act(tool, tab, view)


def _open(tool: str, url: str, view: View) -> Iterator[Action]:
    where = place(url)
    if where == "file":
        yield from _file(
            tool, "/" + unquote(re.sub(r"^file:|[?#].*", "", url.strip(), flags=re.I | re.S)).lstrip("\\/"), view
        )
    yield Action(tool, "send", (where,), known=not view.tainted or knows(view.hosts, where))


def _script(tool: str, code: str, tab: Tab | None, view: View, frame: str | None = None) -> Iterator[Action]:
    """Act in the tab; and send to what the code names beside it, as far as that can be seen."""
    yield from _act(tool, tab, view, frame)
    here = place(str(tab["url"])) if tab else ""
    if view.tainted or _SENDS.search(code):
        for match in _NAMED.finditer(code):
            where = place(f"http://{match[1]}")
            if where not in (here, *_NAMESPACES) and not knows(view.hosts, where):
                yield Action(tool, "send", (where,))


def _file(tool: str, path: str, view: View) -> Iterator[Action]:
    """Show a local file to the browser, or hand it to a page: free for the workspace's own."""
    target = view.real(path)
    yield Action(tool, "read", (target,))
    if view.zones.hidden(Path(target)) or view.zones.of(Path(target)) not in ("workspace", "temp"):
        yield Action(tool, "control", (target,))
