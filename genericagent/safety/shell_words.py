"""How a POSIX shell (bash) reads words: quotes, substitutions, variables, heredocs. Each text is gone through once.

Only what `commands` needs to tell what a script would do: no arithmetic, no syntax errors. Fact: POSIX.1-2017, Shell Command
Language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

UNKNOWN = chr(0xFFFFF)  # the first of the marks in `effects`
T = TypeVar("T")
ALTERNATIVES = 32  # values that one variable may have
# Patterns are text: re keeps them once they are compiled, and no start pays for them.
_ARITHMETIC = r"\$?\(\((?:[^()`$\n]|\$\w+|\$\{\w+\}|\([^()`$\n]*\))*+\)\)"
_TEST = r"\[\[\s(?:(?!\$\()[^\n`]){0,300}?\s\]\](?=[\s;&|)]|$)"
_PARAMETER = r"\$(?:\{([!#]?)(\w+|[@*#?$!-])(?:\[[^]\n]*\])?(:?[-=?])?|(\d|\w+|[@*#?$!-]))"
_ESCAPE = r"\\(?:x[\da-fA-F]{2}|u[\da-fA-F]{4}|[0-3]?[0-7]{1,2}|[abfnrtv\\'\"])"
_RUNS = {"": r"[^\s'\"\\$`;&|<>()]+", "}": r"[^}'\"\\$`]+"}  # text without a meaning: in a word, in ${…}
ALL = "all"  # the end of a heredoc's text


def unescaped(text: str) -> str:
    """The text with the escapes of $'…', printf and echo -e undone."""
    return re.sub(_ESCAPE, lambda m: m[0].encode().decode("unicode_escape"), text)


class Words:
    """A place in a script and the words from there on; of a variable with several possible values, all of them.

    `broken`: a quote or bracket is not closed.
    """

    text, pos, broken = "", 0, False

    def variable(self, name: str) -> Sequence[str]:
        """The values that it may have, none if it is not set."""
        raise NotImplementedError

    def output(self, text: str | None = None) -> str:
        """What the commands print: those of the text, or those here up to a bracket."""
        raise NotImplementedError

    def deeper(self, act: Callable[[], T]) -> T | None:
        """Go into one more bracket, unless that is too deep: then the rest of the text is left out."""
        raise NotImplementedError

    def file_of(self, text: str) -> str:
        """A name for what <(…) gives."""
        raise NotImplementedError

    def take(self, pattern: str) -> re.Match[str] | None:
        if m := re.compile(pattern).match(self.text, self.pos):
            self.pos = m.end()
        return m

    def word(self, split: bool = True) -> list[str]:
        """The words that the next one becomes. Not `split`: the values that it has in an assignment."""
        done, now, keep, start = list[str](), [""], False, self.pos
        if self.take(_TEST) or self.take(_ARITHMETIC):
            return [self.text[start : self.pos]]
        for count, (values, quoted) in enumerate(self.pieces()):
            if count > 200 and count % 50 == 0:  # not a word that anybody writes
                now = [word if len(word) < 5000 else UNKNOWN for word in now]
            keep |= quoted
            ends: list[str] = []
            for first, *others in (re.split(r"\s+", value) if split and not quoted else [value] for value in values):
                whole = [word + first for word in now]
                done += [*whole, *others[:-1]] if others else []
                ends += others[-1:] or whole
            now = list(dict.fromkeys(ends))[:ALTERNATIVES] or [""]
        if self.text[self.pos - 1 : self.pos + 1] in ("!(", "@(", "+(", "*(", "?(") and self.take(r"\([^()\n]*\)"):
            now = [f"{word[:-1]}*" for word in now]  # an extended pattern
        self.pos += self.pos == start  # whatever it is, go on
        words = [word for word in done if word] + [word for word in now if word or keep]
        if self.text[start : start + 1] == "~":
            words = [re.sub(r"^~(\w*|\+)(?=/|$)", lambda m: self._home(m[1]), word) for word in words]
        return [one for word in words for one in _braces(word)] if split and not keep else words

    def _home(self, user: str) -> str:
        known = {"": "HOME", "+": "PWD"}.get(user)
        return "".join(self.variable(known)[:1]) if known else "/root" if user == "root" else f"/home/{user}"

    def pieces(self, end: str = "", quoted: bool = False) -> Iterator[tuple[Sequence[str], bool]]:
        """What a word is made of, or all up to `end`, which is skipped: values, and whether they are quoted."""
        run = _RUNS.get(end, r'[^"\\$`]+')
        while self.pos < len(self.text) and (c := self.text[self.pos]) != end:
            if m := self.take(run):
                yield [m[0]], quoted
            elif c == "\\":
                after = self.text[self.pos + 1 : self.pos + 2]
                self.pos += 2
                if after != "\n":
                    yield [after if not quoted or after in '$`"\\' else c + after], True
            elif not quoted and (m := self.take(r"'([^']*)'|\$'((?:[^'\\]|\\[\s\S])*+)'")):
                yield [m[1] or unescaped(m[2] or "")], True
            elif c == '"' and (not quoted or end == "}"):
                self.pos += 1
                yield [""], True
                yield from self.pieces('"', True)
            elif c in "$`":
                yield self._dollar(quoted), quoted
            elif not end and self.take(r"[<>]\("):
                yield [self.file_of(self.output())], False
            elif not end and c != "'":
                return
            else:
                self.broken |= c == "'" and not quoted
                self.pos += 1
                yield [c], True
        self.broken |= self.pos >= len(self.text) and end not in ("", ALL)
        self.pos += bool(end)

    def _dollar(self, quoted: bool) -> Sequence[str]:
        if m := self.take(r"`((?:[^`\\]|\\[\s\S])*+)(`?)"):
            self.broken |= not m[2]
            return [self.output(re.sub(r"\\([`\\$])", r"\1", m[1]))]
        if self.take(_ARITHMETIC):
            return ["0"]
        if self.take(r"\$\("):
            return [self.output()]
        m = self.take(_PARAMETER)
        if not m:
            self.pos += 1
            return [""] if self.text.startswith('"', self.pos) and not quoted else ["$"]
        found = self.variable(m[4] or m[2])
        if m[4]:
            return found or [UNKNOWN]
        start = self.pos
        values = self.deeper(lambda: self.values("}", quoted)) or [UNKNOWN]
        if m[3] and not m[1]:
            return found or (values if m[3][-1] != "?" else [UNKNOWN])
        same = m[1] != "!" and re.fullmatch(r"(%%?/|\^\^?|,,?)?}", self.text[start : self.pos])
        return found if same and found else [UNKNOWN]

    def values(self, end: str, quoted: bool) -> list[str]:
        """The texts that all up to `end` may be."""
        now = [""]
        for values, _ in self.pieces(end, quoted):
            now = [one + value if len(one) < 200_000 else one for one in now for value in values][:ALTERNATIVES]
        return now


def _braces(word: str) -> list[str]:
    """`a{b,c}` as ab and ac; what `{1..9}` stands for counts as unknown."""
    if "{" not in word or len(word) > 2000:
        return [word]
    words = [re.sub(r"\{[^{},]*\.\.[^{},]*\}", UNKNOWN, word)]
    for _ in range(5):
        found = [(one, re.search(r"\{([^{}]*,[^{}]*)\}", one)) for one in words[:ALTERNATIVES]]
        words = [
            one.replace(m[0], text, 1) if m else one for one, m in found for text in (m[1].split(",") if m else [""])
        ]
    return [re.sub(r"\{.*,.*\}", UNKNOWN, one) for one in words]
