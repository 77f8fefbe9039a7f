"""What a memory may rest on: what successful calls have shown, and the user's words. Pure.

All names, numbers and paths of a new line, and three in four of its words (a name counts for three), must stand in the
user's messages or in what calls have shown; of a procedure (.md) half of both. A helper (.py) may rest on a script that
has run in this task. What is in the memory may move, and the index may name it.

A call shows the lines of its result that say more than its own text, and that text without what it only prints: an echo
of X is no evidence for X. A line that the task has written or printed itself shows nothing, nor does a call that hides its
failure (`|| true`) without a result. Of the user's words, questions do not count.
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
_FACTS = "status success exit_code stdout 0"  # of each result
_NUMBER = re.compile(r"^ *\d+[|:\t] ?")  # of a line

_PATTERNS = {
    # what a script only prints, or says to itself
    "printed": r"(?:^|(?<=[\s;|&(]))#[^\n]*"
    r"|<<<[ \t]*(?:\"[^\"]*\"|'[^']*'|\S+)"
    r"|\b(?:echo|printf|yes)\b(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|[^\s;|&\"']+))*"
    r"|\b(?:print|puts|console\.log|write(?:_text)?)\s*+(?:\(\s*+)?[rbfu]*[\"'`][^\n]*",
    "heredoc": r"(?<!<)<<-?[ \t]*['\"]?(\w+)",
    "prints": r"\b(?:echo|printf|print|puts|log|write|yes|declare|env|export)\b|<<",
    "masked": r"\|\||[;\n][ \t]*(?:true|:|exit 0)\Z",
    "failed": r"no such|not found|cannot|can't|could not|failed|refused|denied|timed out|unreachable|missing|error",
    "end": r"(?<=[.!?])\s+|(?<=[。！？\n])",
    "asks": r"\s*(?:what|which|who|whose|where|when|why|how|is|are|do|does)\b",
    "asks_zh": r"什么|哪|谁|怎么|怎样|多少|吗",
    "clause": r"(?<=[,;:])(?=\s)|(?<=[，；：])",
    "asks_how": r"\b(?:(?:tell|show) me|find out|wonder|look up|(?:not|n't|n’t) (?:know|sure)|(?:can|could|would) you (?:please )?(?:check|see|tell"
    r"|look)|please (?:check|see|verify|look))\b.{0,40}\b(?:what|which|who|whose|where|when|why|how|whether|if)\b"
    r"|^\s*(?:should|shall) (?:i|we)\b|是不是|是否|有没有|能不能|会不会|(?:看看|看一下|查|告诉我|不知道).{0,20}(?:什么|哪|谁|怎么|多少)",
}


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(_PATTERNS[name], re.I)  # takes time: when it is needed


def _told(sentence: str) -> str:
    """What a sentence says: nothing of a question."""
    if sentence.rstrip().endswith(("?", "？")) and (
        _pattern("asks").match(sentence) or _pattern("asks_zh").search(sentence)
    ):
        return ""
    return "".join(c for c in _pattern("clause").split(sentence) if not _pattern("asks_how").search(c))


def _parted(script: str) -> tuple[str, str]:
    """(A script without what it only prints or writes, and without the rest of a line that begins a heredoc; that)."""
    lines, kept, printed, end = script.split("\n"), list[str](), list[str](), ""
    bare = [line.strip(" \t\r\"');") for line in lines]
    last = {line: number for number, line in enumerate(bare)}
    for number, line in enumerate(lines):
        if end:
            printed.append(line)
            end = end if bare[number] != end else ""
        elif (begun := _pattern("heredoc").search(line)) and last.get(begun[1], -1) > number:
            kept.append(line[: begun.start()])
            end = begun[1]
        else:
            kept.append(line)
    rest = "\n".join(kept)
    printed += [found[0] for found in _pattern("printed").finditer(rest)]
    return _pattern("printed").sub(" ", rest), "\n".join(printed)


class _Own:
    """What the tasks have written or printed themselves, line by line, in order."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, bool]] = []  # (text, whether it is a script)
        self._index: dict[str, set[tuple[int, int]]] = {}
        self._read = 0

    def holds(self, said: set[str], before: int) -> bool:
        """Whether all that a line says stands in one line of the first texts."""
        from .words import words

        for number in range(self._read, len(self.texts)):
            text, script = self.texts[number]
            for at, line in enumerate((_parted(text)[1] if script else text).split("\n")):
                for word in words(line):
                    self._index.setdefault(word, set()).add((number, at))
        self._read = len(self.texts)
        places = [self._index.get(word, set()) for word in said]
        return bool(places) and all(places) and any(number < before for number, _ in set.intersection(*places))


@dataclass(frozen=True)
class _Seen:
    shown: dict[str, Any]  # as the journal names it
    text: str  # the user's words, or the result
    call: str = ""  # the call's own text
    task: int = 0
    own: _Own = field(default_factory=_Own)
    before: int = 0  # so many texts of that were there

    @cached_property
    def done(self) -> str:
        """The call's own text without what it only prints."""
        return _parted(self.call)[0]

    @cached_property
    def words(self) -> set[str]:
        from .words import words

        if "told" in self.shown:
            return words("\n".join(map(_told, _pattern("end").split(self.text))))
        own, shown, printed, facts = words(self.call), set[str](), set[str](), words(_FACTS)
        masked = _pattern("masked").search(self.call.rstrip())
        for line in self.text.split("\n"):
            said = words(_NUMBER.sub("", line))
            if not (masked and _pattern("failed").search(line)) and not self.own.holds(said - facts, self.before):
                (shown if said - own - facts else printed).update(said)
        found = shown if masked and not shown else shown | words(self.done)
        return found - printed if _pattern("prints").search(self.call) else found


@dataclass
class Evidence:
    """What one conversation has seen and heard so far."""

    calls: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    said: deque[_Seen] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    task: int = 0
    own: _Own = field(default_factory=_Own)

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
        what = what[:LOOKED_AT]
        self.calls.append(_Seen(shown, result[:LOOKED_AT], what, self.task, self.own, len(self.own.texts)))
        if tool == "code_run":
            self.own.texts.append((what, True))

    def wrote(self, text: str) -> None:
        """What a file tool has put into a file: reading it again shows nothing."""
        self.own.texts.append((text, False))

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
