"""The web tools: what the browser says, as the model reads it. `driver` is a TMWebDriver."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..browser import wire
from ..prompts import say
from .text import smart_format

TABS_SHOWN, TAB_CHARS = 5, 60  # other tabs beside a page, characters of a title or an address
JS_TIMEOUT, JUMP_TIMEOUT = 10.0, 20.0  # seconds

# What a page, not the browser, says, in the order in which it is told; and what is the browser's.
_EVENTS = ("error", "url", "navigated", "new_tabs", "blocked_popups", "dialogs", "downloads")
_FACTS = ("tab", "kind", "via", "loading", "closed", "note")
_PLAIN = ("string", "object", "array")  # kinds of values that can be told from their text


class Page(Protocol):
    """What is used of simphtml."""

    def execute_js_rich(
        self, script: str, driver: Any, no_monitor: bool, timeout: float, session_id: str | None, dialogs: Any = None, /
    ) -> dict[str, Any]: ...

    def el_source(self) -> str: ...


@dataclass
class Told:
    """A call's outcome. `facts` are ours; `shown` (the value) and `events` are the page's, to be fenced."""

    facts: dict[str, Any]
    value: Any = None  # whole, for a file
    shown: str = ""
    events: str = ""
    images: list[tuple[bytes, Mapping[str, Any]]] = field(default_factory=list)
    source: str = "about:blank"  # where the tab is now

    def said(self, limit: int) -> str:
        """What the page says in `limit` characters, the longer part cut first, with an honest count."""
        room = max(limit // 2, limit - len(self.shown))
        events = smart_format(self.events, room)
        return "\n".join(filter(None, (smart_format(self.shown, max(limit // 2, limit - len(events))), events)))


def tab_lines(tabs: list[dict[str, Any]], current: str | None = None, most: int | None = None) -> str:
    """A line for each tab: its id (`*` before the current one), address, title; `most` of the others, used last first."""
    others = sorted((tab for tab in tabs if tab["id"] != current), key=lambda tab: -tab["used"])
    lines = [f"{tab['id']} {_clip(tab['url'])} {_clip(tab['title'])}".rstrip() for tab in others[:most]]
    lines = [f"*{tab['id']} {tab['url'][:500]} {_clip(tab['title'])}" for tab in tabs if tab["id"] == current] + lines
    if most is not None and len(others) > most:
        lines.append(say("web_more_tabs", count=len(others) - most))
    return "\n".join(lines)


def _clip(text: str) -> str:
    return text if len(text) <= TAB_CHARS else text[: TAB_CHARS - 1] + "…"


def run(driver: Any, page: Page, script: str, tab: str | None, monitor: bool) -> Told:
    """Run JavaScript or a command in a tab. What went wrong in the page is told; raises ToolError for what is else."""
    command = wire.command_of(script)
    if command is None:
        return told(page.execute_js_rich(script, driver, not monitor, JS_TIMEOUT, tab), tab)
    if command["cmd"] == "js" and set(command) <= {"cmd", "code", "dialogs", "tab", "timeout"}:
        timeout, code = wire.seconds(command.get("timeout", JS_TIMEOUT)), str(command.get("code") or "")
        target = tab if command.get("tab") is None else str(command["tab"])
        return told(page.execute_js_rich(code, driver, not monitor, timeout, target, command.get("dialogs")), tab)
    steps = command.get("steps")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict) and step.get("cmd") == "js" and "el(" in str(step.get("code")):
            step["code"] = page.el_source() + str(step["code"])
    timeout = JUMP_TIMEOUT if "url" in command else JS_TIMEOUT
    return told(driver.execute_js(command, timeout, tab), tab, str(command.get("url") or ""), command["cmd"] == "batch")


def told(result: Mapping[str, Any], tab: str | None = None, asked: str = "", batch: bool = False) -> Told:
    """A result of the driver, sorted by who says it. `tab` and `asked` (an address) were the call's wish: said only when it
    is another."""
    rest = dict(result)
    out = Told({"status": "error" if "error" in rest else "success"})
    out.source = str(rest.get("url") or out.source)
    out.images = list(_taken_images(rest, batch))
    arrived = _bare(str(rest.get("url") or ""))
    if "type" in rest or rest.get("navigated") or arrived in (_bare(asked), _bare(f"https://{asked}")):
        rest.pop("url", None)
    if rest.get("via") == "debugger" or "type" not in rest:  # the usual way
        rest.pop("via", None)
    if rest.get("tab") == tab:
        rest.pop("tab", None)
    out.facts |= {key: rest[key] for key in _FACTS if rest.get(key)}
    kind = rest.get("type")
    if kind == "undefined":
        out.facts["value"] = "undefined"
    elif "value" in rest and _is_plain(rest["value"], kind):
        out.facts["value"] = rest["value"]
    elif "value" in rest:
        out.value = rest["value"]
        out.shown = f"value{'' if kind in _PLAIN else f' ({kind})'}: {_text(out.value)}"
    parts = [f"{key}: {_text(rest[key])}" for key in _EVENTS if rest.get(key)]
    parts += [_change(key, lines) for key, lines in (rest.get("changes") or {}).items() if lines]
    out.events = "\n".join(parts)
    return out


def _bare(url: str) -> str:
    return url.strip().rstrip("/")


def _is_plain(value: Any, kind: Any) -> bool:
    """Whether a page can say nothing with it: a number, true, false, null."""
    number = (
        isinstance(value, str)
        and kind in ("number", "bigint")
        and re.fullmatch(r"NaN|-?(?:Infinity|\d{1,40}n?)", value)
    )
    return bool(number) or value is None or isinstance(value, bool | int | float)


def _taken_images(result: dict[str, Any], batch: bool) -> Iterator[tuple[bytes, Mapping[str, Any]]]:
    """Pictures out of a result, and out of the steps of a batch: they become image blocks."""
    image = result.pop("image", None)
    if isinstance(image, dict):
        yield base64.b64decode(str(image.pop("data", ""))), image
    for step in result["value"] if batch and isinstance(result.get("value"), list) else ():
        if isinstance(step, dict):
            yield from _taken_images(step, False)


def _change(key: str, lines: Any) -> str:
    if not isinstance(lines, list):
        return f"{key}: {lines}"
    shown = (f"{line['from']} → {line['to']}" if isinstance(line, dict) else str(line) for line in lines)
    return "\n  ".join([f"{key}:", *shown])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
