"""What a memory may rest on: what successful calls have shown, and the user's words. Pure.

All names, numbers and paths of a new line, and three in four of its words (a name counts for three), must stand in the
user's messages or in what calls have shown; of a procedure (.md) half of both. A helper (.py) may rest on a script that
has run in this task. What is in the memory may move, and the index may name it.

A call shows the lines of its result that say more than its own text, and that text without what it only prints: an echo
of X is no evidence for X.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from .layers import L1

COUNTED = ("code_run", "file_read", "file_write", "file_patch", "web_scan", "web_execute_js")
REMEMBERED = 200  # calls
NAMED = 3  # calls in a line of the journal
LOOKED_AT = 10_000  # characters of a result that are compared with what is stored
_FACTS = frozenset({"status", "success", "exit", "code", "stdout", "0"})  # of each result


_PATTERNS = {
    # what a script only prints, or says to itself
    "printed": r"(?:^|(?<=[\s;|&(]))#[^\n]*"
    r"|\b(?:echo|printf)\b(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|[^\s;|&\"']+))*"
    r"|\b(?:print|puts|console\.log|write(?:_text)?)\s*+(?:\(\s*+)?[rbfu]*[\"'`][^\n]*",
    "heredoc": r"(?<!<)<<-?[ \t]*['\"]?(\w+)",
    "prints": r"\b(?:echo|printf|print|puts|log|write|cat\s*<<)",
    "end": r"(?<=[.!?])\s+|(?<=[。！？\n])",
    "asks": r"\s*(?:what|which|who|whose|where|when|why|how|is|are|do|does)\b",
    "asks_zh": r"什么|哪|谁|怎么|怎样|多少|吗",
}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name], re.I)  # takes time: when it is needed


def _asked(sentence: str) -> bool:
    question = sentence.rstrip().endswith(("?", "？"))
    return question and bool(_pattern("asks").match(sentence) or _pattern("asks_zh").search(sentence))


def _without_heredocs(script: str) -> str:
    """Also without the rest of the line that begins one."""
    lines, kept, end = script.split("\n"), list[str](), ""
    bare = [line.strip(" \t\r\"');") for line in lines]
    last = {line: number for number, line in enumerate(bare)}
    for number, line in enumerate(lines):
        if end:
            end = end if bare[number] != end else ""
        elif (begun := _pattern("heredoc").search(line)) and last.get(begun[1], -1) > number:
            kept.append(line[: begun.start()])
            end = begun[1]
        else:
            kept.append(line)
    return "\n".join(kept)


@dataclass(frozen=True)
class _Seen:
    shown: dict[str, Any]  # as the journal names it
    text: str  # the user's words, or the result
    call: str = ""  # the call's own text
    task: int = 0

    @cached_property
    def done(self) -> str:
        """The call's own text without what it only prints."""
        return _pattern("printed").sub(" ", _without_heredocs(self.call))

    @cached_property
    def words(self) -> set[str]:
        from .words import words

        if "told" in self.shown:
            sentences = _pattern("end").split(self.text)
            return words("\n".join(s for s in sentences if not _asked(s)))
        own, found, printed = words(self.call), words(self.done), set[str]()
        for line in self.text.split("\n"):
            said = words(line)
            (found if said - own - _FACTS else printed).update(said)
        return found - printed if _pattern("prints").search(self.call) else found


@dataclass
class Evidence:
    """What one conversation has seen and heard so far."""

    calls: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    said: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    task: int = 0

    def begin(self) -> None:
        """A new task: what ran before it is no ground for a helper any more."""
        self.task += 1

    def user_said(self, text: str) -> None:
        """A message of the user's."""
        self.said.append(_Seen({"told": " ".join(text.split())[:80]}, text))

    def saw(self, tool: str, turn: int, what: str, result: str) -> None:
        """A call of COUNTED that succeeded and has nothing to do with memory."""
        shown = {"tool": tool, "turn": turn, "what": " ".join(what.split())[:120]}
        shown["digest"] = hashlib.sha256(result.encode("utf-8", "replace")).hexdigest()[:12]
        self.calls.append(_Seen(shown, result[:LOOKED_AT], what[:LOOKED_AT], self.task))

    def of(
        self, name: str, added: Sequence[str], removed: Sequence[str], memory: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """(What a change of the file `name` rests on, the best first; the words of it that nothing has shown). Where the first
        is empty, it rests on nothing and must not be made. One with "doubt" says the opposite, as far as can be told.

        `added` and `removed` are lines, `memory` is name → text of all memory files before the change.
        """
        from .words import inverted, missing, wanted, words

        stands = Counter(line.strip() for text in memory.values() for line in text.split("\n"))
        gone = Counter(line.strip() for line in removed) - Counter(line.strip() for line in added)
        new = [line for line in added if line.strip() and not stands[line.strip()]]
        lost = [line for line in gone if line and stands[line] <= gone[line]]
        if not new and not lost:
            return [{"moved": True}], []
        lines = [line for line in new if not line.startswith("#")] or new or lost
        parts = [wanted(line) for line in lines]
        every = sum(parts, [])
        known = memory.values() if name == L1 else (line for line in stands if line.startswith("#"))
        seen = words("\n".join([*memory, *known, *removed])).union(*(s.words for s in (*self.said, *self.calls)))
        procedure = name.endswith((".md", ".py"))
        lacks = [w for part in ([every] if procedure else parts) for w in missing(part, seen, procedure)] if new else []
        ran = [c for c in self.calls if c.task == self.task and c.shown["tool"] == "code_run" and c.done.strip()]
        if lacks and not (name.endswith(".py") and ran):
            return [], list(dict.fromkeys(lacks))

        def worth(source: _Seen) -> int:
            return sum(word.weight for word in every if word.among(source.words))

        told, calls = (
            sorted(filter(worth, reversed(all_)), key=worth, reverse=True) for all_ in (self.said, self.calls)
        )
        ground = []
        for source in (*told[:1], *(calls or (ran if lacks else []))[:NAMED]):
            doubt = new and not name.endswith(".py") and any(inverted(line, source.text) for line in lines)
            ground.append({**source.shown, **({"doubt": "not"} if doubt else {})})
        if ground:
            return ground, []
        # nothing new is said: the index names what there is, or lines are put shorter and the half of them stays
        kept = not missing([w for line in lost for w in wanted(line)], words("\n".join(new)), procedure=True)
        return ([{"moved": True}], []) if new and (name == L1 or removed) and kept else ([], [w.text for w in every])
