"""A page in few characters, and what an action changed on it.

    get_html(driver)                                # the visible page; every control has a number
    execute_js_rich("el(12).click()", driver)       # el(12) is the control with the number 12

The work is done in one pass inside the page by assets/page/page.js, which also tells the notation. Here its frames are put
together and cut to size. `driver` is a TMWebDriver or anything else that has the two methods of Driver.
"""

from __future__ import annotations

import re
import secrets
from functools import cache
from typing import Any, Protocol

from genericagent import paths
from genericagent.errors import ToolError
from genericagent.prompts import catalog, say

__all__ = ["Driver", "execute_js_rich", "fold", "get_html"]

FRAME_NUMBERS = 100_000  # the controls of each frame of another origin begin at a multiple of it
NO_PAGE = re.compile(r"application/pdf|(?:image|video|audio)/")  # kinds of documents that the browser shows itself
IN_PAGE = ("page_dialog", "page_below", "page_broken", "page_options", "page_links")
KEPT = (100, 50, 25, 12, 6, 3)  # items of a long list, as few as are needed


class Driver(Protocol):
    """See TMWebDriver."""

    def execute_js(
        self, code: str, timeout: float = 10, session_id: str | None = None, *, dialogs: Any = None, frame: Any = 0,
        frame_url: str = "", around: str | None = None, args: dict[str, Any] | None = None,
    ) -> dict[str, Any]: ...  # fmt: skip

    def page_script(
        self, name: str, args: dict[str, Any] | None = None, timeout: float = 10, session_id: str | None = None, *,
        all_frames: bool = True,
    ) -> dict[str, Any]: ...  # fmt: skip


def get_html(
    driver: Driver, text_only: bool = False, maxchars: int = 35000, start: int = 0, session_id: str | None = None
) -> str:
    """The visible page of a tab as lines of compact HTML, or of plain text. Raises ToolError when it cannot be read.

    Over `maxchars` (and only then) long lists and tables keep their first items, and what still does not fit is left for
    the next part. Each place says how many characters and items are missing and the `start` from which another call
    goes on there.
    """
    args = {"phase": "scan", "text": text_only, "start": start, "max": maxchars, **_given()}
    answer = driver.page_script("page", args, session_id=session_id)
    if answer["url"] == "about:blank":
        return say("page_blank")
    frames = _frames(answer)
    if new := [v["id"] for v in frames if "base" not in v]:
        used = max((v["base"] for v in frames if "base" in v), default=0) // FRAME_NUMBERS
        bases = {frame: (used + i) * FRAME_NUMBERS for i, frame in enumerate(new, 1)}
        frames = _frames(driver.page_script("page", {**args, "bases": bases}, session_id=session_id))
    top = next((v for v in frames if not v["path"]), None)
    if top is None:
        why = next((one["error"] for one in answer["frames"] if "error" in one), "-")
        raise ToolError(say("page_unreadable", url=answer["url"], why=why.splitlines()[0]))
    lines, lists = _together(top, frames, [] if text_only else ["</frame>"])
    if NO_PAGE.match(top["kind"]):
        first = say("page_media", kind=top["kind"], title=answer["title"], url=answer["url"])
    else:
        first = f"~ = {top['home']}" if top["home"] and not text_only and any("~" in line for line in lines) else ""
    if first:
        lines.insert(0, first)
        lists = [_moved(one, 0, 1) for one in lists]
    return fold(lines, lists, maxchars, start, top["unsent"])


def _frames(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What frames say of themselves; those that their parents read, and those that went away, say nothing."""
    values = [one.get("value") for one in answer["frames"]]
    return [v for v in values if isinstance(v, dict) and "path" in v]


def _placed(places: list[dict[str, Any]], frames: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Index of a place → the frame that is there: several in shadow roots have one path, then address and size decide."""
    pairs = [
        (i, k) for i, p in enumerate(places) for k, f in enumerate(frames) if p["path"] == f["path"] and "lines" in f
    ]
    found: dict[int, int] = {}
    for i, k in sorted(pairs, key=lambda p: [places[p[0]][key] != frames[p[1]][key] for key in ("href", "size")]):
        if i not in found and k not in found.values():
            found[i] = k
    return {i: frames[k] for i, k in found.items()}


def _together(
    frame: dict[str, Any], frames: list[dict[str, Any]], tail: list[str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """The lines and long lists of a frame, with those of the frames of other origins in their places."""
    lines, lists = list(frame["lines"]), list(frame["lists"])
    inside = _placed(frame["frames"], frames)
    for i, place in reversed(list(enumerate(frame["frames"]))):
        inner = inside.get(i)
        if inner is None:
            lines[place["at"]] += " " + say("page_frame_unread")
        if inner is None or not inner["lines"]:
            continue
        more, more_lists = _together(inner, frames, tail)
        at = place["at"] + 1
        lists = [_moved(one, at, len(more) + len(tail)) for one in lists] + [_moved(one, 0, at) for one in more_lists]
        lines[at:at] = [*more, *tail]
    return lines, lists


def _moved(one: dict[str, Any], since: int, by: int) -> dict[str, Any]:
    """A long list after `by` lines were put in at line `since`."""
    items = [i + by if i >= since else i for i in one["items"]]
    return {**one, "items": items, "end": one["end"] + by if one["end"] > since or not since else one["end"]}


def fold(lines: list[str], lists: list[dict[str, Any]], maxchars: int, start: int = 0, unsent: int = 0) -> str:
    """Lines as one text of at most `maxchars` characters, from character `start` on; what is missing is said.

    `lists`: {"items": first lines of the items, "end": line behind the last, "rows": whether it is a table}; `unsent`: the
    characters that there are behind `lines`.
    """
    whole = "\n".join(lines)
    total = len(whole) + unsent
    if start and start >= total:
        return say("page_end", start=start, total=total)
    if start:
        return _cut(whole[start:], maxchars, start, total)
    if total <= maxchars:
        return whole
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    for keep in KEPT:
        shown, left = _without(lines, lists, offsets, keep)
        if len(shown) + unsent <= maxchars:
            return shown
    return _cut_lines(shown, left, maxchars, total)


def _without(
    lines: list[str], lists: list[dict[str, Any]], offsets: list[int], keep: int
) -> tuple[str, list[tuple[int, int]]]:
    """The text with `keep` items of each long list, and for each of its lines (its end in it, the same in the whole)."""
    skip: dict[int, tuple[int, str]] = {}
    for one in lists:
        items, end = one["items"], one["end"]
        if len(items) <= keep + 1 or offsets[end] - offsets[items[keep]] < 200:
            continue
        first, missing = items[keep], len(items) - keep
        chars, start = offsets[end] - offsets[first], offsets[first]
        key = "page_more_rows" if one["rows"] else "page_more_items"
        note = say(key, missing=missing, of=len(items), chars=chars, start=start)
        if first not in skip or skip[first][0] < end:
            skip[first] = (end, note)
    out, ends, size, i = [], [], 0, 0
    while i < len(lines):
        end, text = skip.get(i, (i + 1, lines[i]))
        out.append(text)
        size += len(text) + 1
        ends.append((size, offsets[end]))
        i = end
    return "\n".join(out), ends


def _cut_lines(text: str, ends: list[tuple[int, int]], maxchars: int, total: int) -> str:
    """Folded text up to the last line that fits."""
    room = maxchars - 100
    fitting = [(size, offset) for size, offset in ends if size <= room]
    if not fitting:
        return _cut(text, maxchars, 0, total)
    size, offset = fitting[-1]
    return text[:size] + say("page_left", left=total - offset, total=total, start=offset)


def _cut(text: str, maxchars: int, start: int, total: int) -> str:
    """A part of the whole text, ended at a line where there is one."""
    if start + len(text) == total and len(text) <= maxchars:
        return text
    room = max(200, maxchars - 100)
    end = text.rfind("\n", room // 2, room) + 1 or room
    return f"{text[:end].rstrip()}\n{say('page_left', left=total - start - end, total=total, start=start + end)}"


def execute_js_rich(
    script: str, driver: Driver, no_monitor: bool = False, timeout: float = 10, session_id: str | None = None,
    dialogs: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Run a script in a tab and tell what it changed: the driver's result, and "changes".

    el(n) is in it the element that the last get_html() numbered n, also in a shadow root or a frame; the script runs in
    the frame that has it. "changes" has lists of lines in the notation of get_html, each only when there are some:
    "appeared", "changed" [{"from", "to"}], "vanished", "briefly" (shown for a moment, as toasts are), and "more": how
    many lines there are beyond those.
    """
    numbers = sorted({int(n) for n in re.findall(r"\bel\(\s*(\d+)\s*\)", script)})
    frame, url = _frame_of(driver, numbers, session_id)
    code = el_source() + script if re.search(r"\bel\b", script) else script
    around = None if no_monitor else "page"
    result = driver.execute_js(
        code, timeout, session_id, dialogs=dialogs, frame=frame, frame_url=url, around=around, args=_given()
    )
    changes: dict[str, Any] = {}
    for one in result.pop("around", None) or []:
        value = one.get("value")
        for key, lines in value.items() if isinstance(value, dict) else ():
            if lines and key in ("appeared", "changed", "vanished", "briefly", "more"):
                changes[key] = changes[key] + lines if key in changes else lines
    if not no_monitor:
        result["changes"] = changes
    return result


def _frame_of(driver: Driver, numbers: list[int], session_id: str | None) -> tuple[Any, str]:
    """(the frame whose controls a script names, where it is): 0, the top one, unless they are in one of another origin."""
    if not any(n > FRAME_NUMBERS for n in numbers):
        return 0, ""
    answer = driver.page_script("page", {"phase": "find", "numbers": numbers}, session_id=session_id)
    holders = [
        (one["frame"], str(one["value"]["url"])) for one in answer["frames"] if (one.get("value") or {}).get("found")
    ]
    if len(holders) > 1:
        raise ToolError(say("page_frames_mixed"))
    return holders[0] if holders else (0, "")


@cache
def el_source() -> str:
    """The definition of el() on one line, so that the lines of a script behind it keep their numbers."""
    source = paths.shipped("assets", "page", "el.js").read_text("utf-8").replace("TOKEN", _token())
    return " ".join(line.strip() for line in source.splitlines() if not line.startswith("//")) + " "


def _given() -> dict[str, Any]:
    """What every phase of the page script needs."""
    return {"token": _token(), "texts": {key: catalog("messages")[key] for key in IN_PAGE}}


@cache
def _token() -> str:
    return f"ga-{secrets.token_hex(8)}"
