"""What a memory may rest on: calls that succeeded, and the user's words. Pure.

A call counts when it ran code, or used a file or the web, and has nothing to do with memory. The user's words count for
what they say: all numbers of the new text and three in four of its words stand in one of their messages. Lines that only
move, or go where they stand twice, rest on what they rested on.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

COUNTED = ("code_run", "file_read", "file_write", "file_patch", "web_scan", "web_execute_js")
REMEMBERED = 200  # calls
NAMED = 3  # calls in a line of the journal
LOOKED_AT = 4000  # characters of a result that are compared with what is stored
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Words of a sentence around a fact, none of its substance.
_FRAME = frozenset(
    re.findall(
        r"\w+",
        """the and for are was that this with from has have but its please remember note call called name
    named user users prefers prefer wants want likes like uses use says said see file facts fact should must can will about
    when his her their they you your our""",
    )
)
_FRAME_CJK = frozenset(("用户", "户的", "记住", "请记", "喜欢", "名称", "我的", "他的", "她的", "使用", "总是"))


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")  # takes time: when it is needed


def words(text: str) -> set[str]:
    """The words that carry a text: lower case, without those of the frame; numbers; pairs of CJK characters."""
    found = set[str]()
    for word in _word().findall(text.lower()):
        if re.match(f"[{_CJK}]", word):
            found |= {word[i : i + 2] for i in range(max(1, len(word) - 1))} - _FRAME_CJK
        elif any(c.isdigit() for c in word) or (len(word) > 2 and word not in _FRAME):
            found.add(word)
    return found


@dataclass(frozen=True)
class _Seen:
    shown: dict[str, Any]  # as the journal names it
    text: str
    task: int

    @cached_property
    def words(self) -> set[str]:
        return words(self.text)


@dataclass
class Evidence:
    """What one conversation has seen and heard so far."""

    calls: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    said: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    task: int = 0

    def begin(self) -> None:
        """A new task: from here on, calls before it count only for what they speak of."""
        self.task += 1

    def user_said(self, text: str) -> None:
        """A message of the user's."""
        self.said.append(_Seen({"told": " ".join(text.split())[:80]}, text, self.task))

    def saw(self, tool: str, turn: int, what: str, result: str) -> None:
        """A call of COUNTED that succeeded and has nothing to do with memory."""
        shown = {"tool": tool, "turn": turn, "what": " ".join(what.split())[:120]}
        shown["digest"] = hashlib.sha256(result.encode("utf-8", "replace")).hexdigest()[:12]
        self.calls.append(_Seen(shown, f"{what[:LOOKED_AT]} {result[:LOOKED_AT]}", self.task))

    def of(self, added: Sequence[str], removed: Sequence[str], memory: Mapping[str, str]) -> list[dict[str, Any]]:
        """What a change rests on, the best first; empty: on nothing, and it must not be made.

        `added` and `removed` are lines, `memory` is name → text of all memory files before the change.
        """
        stands = Counter(line.strip() for text in memory.values() for line in text.split("\n"))
        gone = Counter(line.strip() for line in removed) - Counter(line.strip() for line in added)
        new = [line for line in added if line.strip() and not stands[line.strip()]]
        lost = [line for line in gone if line and stands[line] <= gone[line]]
        if not new and not lost:
            return [{"moved": True}]
        headings = (line for line in stands if line.startswith("#"))
        wanted = words("\n".join(new or lost)) - words("\n".join([*memory, *headings]))
        if new:
            wanted -= words("\n".join(removed))
        told = [s.shown for s in self.said if (_says(s.words, wanted) if new else s.words & wanted)]
        calls = [c for c in self.calls if c.task == self.task or _says(c.words, wanted)]
        calls.sort(key=lambda call: len(wanted & call.words), reverse=True)
        return [*told[-1:], *(call.shown for call in calls[:NAMED])]


def _says(said: set[str], wanted: set[str]) -> bool:
    numbers = {word for word in wanted if any(c.isdigit() for c in word)}
    return bool(wanted) and numbers <= said and 4 * len(wanted & said) >= 3 * len(wanted)
