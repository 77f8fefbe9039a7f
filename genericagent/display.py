"""What a human reads of a run, as plain text: tool calls in one line, replies tidied, output in fences. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from typing import Any

from . import tags
from .safety.redact import Redactor

HIDDEN = ("file_content", "thinking", "tool_use")


class Masked:
    """The last gate before whoever shows a task: its items without keys, also without one that comes in pieces."""

    def __init__(self, put: Callable[[dict[str, Any]], None], redact: Callable[[], Redactor]) -> None:
        self._put, self._redact = put, redact
        self._current = redact()
        self._stream, self._turn = self._current.stream(), 0

    def __call__(self, item: dict[str, Any]) -> None:
        redact, text = self._redact(), item.get("next")
        self._turn = item.get("turn", self._turn)
        if not text or redact is not self._current:
            self._say(self._stream.flush())
            self._current, self._stream = redact, redact.stream()
        if text:
            self._say(self._stream.feed(text))
        else:
            self._put(redact.json(item))

    def _say(self, text: str) -> None:
        if text:
            self._put({"next": text, "turn": self._turn})


def announce(name: str, args: dict[str, Any], verbose: bool) -> str:
    """The lines that say which tool runs: in full, or as `name(compact arguments)` of at most 120 characters."""
    shown = {k: v for k, v in args.items() if not k.startswith("_")}
    if verbose:
        pretty = json.dumps(shown, ensure_ascii=False, indent=2).replace("\\n", "\n")
        return f"\nTool: `{name}`\n````text\n{pretty}\n````\n"
    if name == "ask_user":
        return f"\nask_user: {shown.get('question')} {shown.get('candidates') or ''}\n"
    line = ", ".join(f"{k}={_short(k, v)}" for k, v in shown.items())
    return f"\n{name}({line if len(line) <= 120 else line[:119] + '…'})\n"


def _short(key: str, value: Any) -> str:
    if key == "path":
        return re.split(r"[\\/]", str(value))[-1]
    return " ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)).split())


def whole(chat: Generator[str, None, Any]) -> Generator[str, None, Any]:
    """A reply in one piece, tidied, once all of it is there. Returns what `chat` returns."""
    parts: list[str] = []
    while True:
        try:
            parts.append(next(chat))
        except StopIteration as end:
            yield tidy("".join(parts))
            return end.value


def fenced(
    run: Generator[Any, None, Any], shown: bool, redact: Callable[[str], str] = str
) -> Generator[Any, None, Any]:
    """A tool's own output inside a fence, or not at all. Returns what `run` returns."""
    opened = False
    while True:
        try:
            piece = next(run)
        except StopIteration as end:
            if opened:
                yield "\n`````\n"
            return end.value
        if shown:
            piece = redact(piece)
            yield piece if opened else f"`````\n{piece}"
            opened = True


def tidy(reply: str) -> str:
    """A reply without tool and file blocks, its code blocks over 6 lines shrunk to 5 and a count."""
    reply = _visible(reply, *HIDDEN)
    if "```" in reply:
        reply = _shrunk(reply)
    if "\n\n\n" in reply:
        reply = re.sub(r"\n{3,}", "\n\n", reply)
    return reply.strip("\n") + "\n"


def untagged(reply: str) -> str:
    """The words meant for the user: a reply without thinking, summary, tool and file blocks."""
    return _visible(reply, *HIDDEN, "summary").strip()


def _visible(reply: str, *hidden: str) -> str:
    """A tag that is opened and never closed is text, but for a call: that one was cut."""
    return tags.drop(reply, *hidden).partition("<tool_use>")[0]


def only_code(reply: str) -> bool:
    """Whether a reply is one fenced block of several lines and not a word beside it."""
    lines = reply.strip().split("\n")
    mark = _mark(lines[0])
    return bool(mark) and len(lines) >= 6 and lines[-1] == mark and mark not in map(str.rstrip, lines[1:-1])


def _mark(line: str) -> str:
    """The backticks that open a fenced block, "" when the line opens none."""
    ticks = line[: len(line) - len(line.lstrip("`"))]
    return ticks if len(ticks) >= 3 and "`" not in line[len(ticks) :] else ""


def _shrunk(reply: str) -> str:
    """Fenced blocks of more than 6 lines cut to 5 and a count."""
    out: list[str] = []
    block: list[str] = []
    mark = ""
    for line in reply.split("\n"):
        if not mark:
            out.append(line)
            mark = _mark(line)
        elif line.rstrip() == mark:
            out += block if len(block) <= 6 else [*block[:5], f"… {len(block) - 5} more lines"]
            out.append(line)
            block, mark = [], ""
        else:
            block.append(line)
    return "\n".join([*out, *block])
