"""Takes the configured keys out of text: as they are, and as scripts and protocols like to print them. Pure.

Only what is configured is masked: ids, hashes and words that merely look like a key stay.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 8  # characters; a shorter key is a word that may stand anywhere
CUT = 16  # characters; so much of the beginning of a key is masked too where a text was cut there ("…")
MARK = "[a key]"
_BREAK = "(?:\r?\n)?"  # base64 is wrapped at 64 or 76 columns by the usual tools
_LINE_END = re.compile(r"\r?\n|\r\Z")


class Redactor:
    """Knows `secrets` plain, escaped for JSON (twice too), Python, URLs and HTML, as hexadecimal and as base64, also
    inside of longer or wrapped base64. `longest`: characters of the longest form, 0 without secrets."""

    def __init__(self, secrets: Iterable[str]) -> None:
        real = [s for s in secrets if len(s) >= SHORTEST]
        flat, wrapped = {f for s in real for f in _forms(s)}, {f for s in real for f in _base64(s)}
        self.forms = sorted(flat | wrapped)
        self.firsts = {f[0] for f in self.forms}
        self.longest = max([*map(len, flat), *(3 * len(f) - 2 for f in wrapped)], default=0)
        # (what a text must hold, how to look for a form, the form): a plain search, before a pattern looks closely
        self._probes = [(f, _whole, f) for f in flat] + [(f[:CUT], _cut, f) for f in flat if len(f) > CUT]
        self._probes += [(part, _wrapped, f) for f in wrapped for part in _parts(f)]

    def __call__(self, text: str) -> str:
        found = self.pattern(text)
        return found.sub(MARK, text) if found else text

    def pattern(self, text: str) -> re.Pattern[str] | None:
        """What finds the forms that may be in `text`, None when there are none."""
        found = frozenset((how, form) for probe, how, form in self._probes if probe in text)
        return _compiled(found) if found else None

    def json(self, value: Any) -> Any:
        """A copy of plain data (dicts, lists, text) with every text and every name masked; the same without keys."""
        top: list[Any] = [value]
        todo: list[tuple[Any, Any]] = [(top, 0)] if self.forms else []
        while todo:  # not by recursion: a model can nest deeper than that goes
            holder, at = todo.pop()
            found = holder[at]
            if isinstance(found, str):
                holder[at] = self(found)
            elif isinstance(found, dict):
                holder[at] = copy = {self(k) if isinstance(k, str) else k: v for k, v in found.items()}
                todo += [(copy, k) for k in copy]
            elif isinstance(found, (list, tuple)):
                holder[at] = items = list(found)
                todo += [(items, n) for n in range(len(items))]
        return top[0]

    def stream(self) -> Stream:
        """Masks text that comes in pieces."""
        return Stream(self)


class Stream:
    """Text in pieces: what is fed comes out masked as the whole would be. Only an end that could be the beginning of
    a form waits for the next piece, so a key cut in two is found."""

    def __init__(self, redact: Redactor) -> None:
        self._redact, self._held = redact, ""

    def feed(self, text: str) -> str:
        if not self._redact.longest:
            return text
        text = self._held + text
        found, at, hold, out = self._redact.pattern(text), 0, self._waits(text, 0), list[str]()
        for match in found.finditer(text) if found else ():
            if match.start() >= hold:  # a longer form may still begin before it
                break
            out += [text[at : match.start()], MARK]
            at = match.end()
            hold = max(hold, at) if hold >= at else self._waits(text, at)
        self._held = text[hold:]
        return "".join([*out, text[at:hold]])

    def flush(self) -> str:
        """What was held back, at the end of the text or before something else is shown."""
        text, self._held = self._held, ""
        return self._redact(text)

    def _waits(self, text: str, start: int) -> int:
        """Where the end of `text` begins that more text could make a form; its length when there is no such end."""
        for at in range(max(start, len(text) - self._redact.longest + 1), len(text)):
            if text[at] in self._redact.firsts:
                tail = text[at:]
                if self._grows(tail) or ("\n" in tail or tail[-1] == "\r") and self._grows(_LINE_END.sub("", tail)):
                    return at
        return len(text)

    def _grows(self, tail: str) -> bool:
        forms = self._redact.forms
        after = bisect_right(forms, tail)
        return after < len(forms) and forms[after].startswith(tail)


@lru_cache(64)
def _compiled(found: frozenset[tuple[Callable[[str], str], str]]) -> re.Pattern[str]:
    longest_first = sorted({how(form) for how, form in found}, key=lambda p: (-len(p), p))
    return re.compile("|".join(longest_first))


def _whole(form: str) -> str:
    return re.escape(form)


def _wrapped(form: str) -> str:
    return _BREAK.join(map(re.escape, form))


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield secret
    for escape in (
        _json,
        _json_plain,
        _json_slash,
        lambda s: repr(s)[1:-1],
        lambda s: repr(s.encode(errors="surrogatepass"))[2:-1],
    ):
        once = escape(secret)
        yield from (once, _json_plain(once))
    for safe in ("", "/", "!'()*", ";,/?:@&=+$-_.!~*'()#"):  # strict; Python's default; JavaScript's component and URI
        quoted = quote(data, safe=safe)
        yield from (quoted, _lower(quoted))
    quoted = quote_plus(data)
    yield from (quoted, _lower(quoted), "".join(f"%{b:02X}" for b in data), "".join(f"%{b:02x}" for b in data))
    escaped = secret.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield from (
        escaped,
        escaped.replace('"', "&quot;").replace("'", "&#x27;"),
        escaped.replace('"', "&#34;").replace("'", "&#39;"),
    )
    yield from (data.hex(), data.hex().upper())


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _json_plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json_slash(text: str) -> str:
    return _json(text).replace("/", "\\/")  # as PHP writes it


def _lower(quoted: str) -> str:
    return re.sub("%..", lambda m: m[0].lower(), quoted)


def _cut(form: str) -> str:
    """The beginning of a form, more or less of it, before an ellipsis."""
    return re.escape(form[:CUT]) + "".join(f"{re.escape(c)}?+" for c in form[CUT:-1]) + "…"


def _parts(form: str) -> list[str]:
    """Cut so that one part at least is whole in wrapped text: more parts than a line of 64 can break."""
    size = len(form) // 2 if len(form) < 60 else 30
    return [form[at : at + size] for at in range(0, len(form) - size + 1, size)]


def _base64(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):  # where it begins within a group of three bytes
            whole = encode(b"\0" * before + data).decode().rstrip("=")
            inside = whole[(0, 2, 3)[before] :]  # what depends on the key alone
            last = (before + len(data)) % 3  # the last character depends on what comes behind
            yield inside[:-1] if last else inside
