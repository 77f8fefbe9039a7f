"""Why a patch found no place, or more than one: where the candidates, the look-alikes or the nearest lines are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice

NEAREST = 3  # how many near lines an error shows
PLACES = 100  # how many line numbers an error lists
FUZZY = 20_000  # how many lines are compared to find the nearest ones
LINE_BREAK = re.compile(r"\r\n|\r|\n")  # what ends a line: for reading, patching, inserting alike


def why_not(text: str, old: str, spans: list[tuple[int, int]]) -> str:
    if spans:
        numbers = _lines_at(text, [begin for begin, _ in spans[:PLACES]])
        more = f" and {len(spans) - PLACES} more" if len(spans) > PLACES else ""
        lines = ", ".join(map(str, numbers))
        return f"old_content occurs {len(spans)} times, at lines {lines}{more}; give more of its surroundings"
    return _look_alike(text, old) or f"old_content is not in the file. {_nearest_lines(text, old)}"


def _lines_at(text: str, places: list[int]) -> list[int]:
    """Line numbers of ascending places."""
    out, line, at = [], 1, 0
    for place in places:
        line += len(LINE_BREAK.findall(text, at, place))
        at = place
        out.append(line)
    return out


_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_NOTHING = "\u200b\u200c\u200d\u2060\ufeff\xad"
_TWINS = dict(zip(
    "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "aeopcyxijshdqwABEKMHOPCTXIJSABEZHIKMNOPTYXo", strict=True
)) | dict.fromkeys("\u2018\u2019\u201a\u2032`\xb4", "'") | dict.fromkeys("\u201c\u201d\u201e\u2033\xab\xbb", '"') | dict.fromkeys(
    _DASHES, "-") | dict.fromkeys(_NOTHING, "") | {"\t": " ", "\r": "\n"}  # fmt: skip


@cache
def _fold(char: str) -> str:
    """What the character looks like, in plain characters."""
    if char in _TWINS:
        return _TWINS[char]
    if char < "\x80":
        return char
    import unicodedata

    return "".join(_TWINS.get(c, c) for c in unicodedata.normalize("NFKD", char))


_ODD = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-_a-\x7f\n]|\r")  # all that _fold may change


def _look_alike(text: str, old: str) -> str | None:
    """Where the file has something that only looks like `old`, and which characters differ; None when it has not."""
    text, old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    folded = _ODD.sub(lambda m: _fold(m[0]), text)
    wanted = _ODD.sub(lambda m: _fold(m[0]), old)
    at = folded.find(wanted) if wanted else -1
    if at < 0:
        return None
    begin = _unfolded(text, at)
    differ, line = [], text.count("\n", 0, begin) + 1
    for place, there, given in _differences(text, begin, old):
        where = text.count("\n", begin, place) + line
        saying = f"line {where} has {_named(there)} where you gave {_named(given)}"
        if saying not in differ:
            differ.append(saying)
    more = f"; and {len(differ) - 10} more" if len(differ) > 10 else ""
    return f"old_content is not in the file, but this looks like it: {'; '.join(differ[:10])}{more}"


def _unfolded(text: str, at: int) -> int:
    """The place in `text` of place `at` in its folded form."""
    shift = 0
    for odd in _ODD.finditer(text):
        width = len(_fold(odd[0]))
        if odd.start() + shift >= at:
            break
        if odd.start() + shift + width > at:
            return odd.start()  # in the middle of what the character looks like
        shift += width - 1
    return at - shift


def _differences(text: str, at: int, old: str) -> Iterator[tuple[int, str, str]]:
    """(place, what the file has, what was given) of each difference; both look the same from `at` on."""
    i = 0
    while i < len(old) and at < len(text):
        if text[at] == old[i]:
            at, i = at + 1, i + 1
            continue
        place, there, given = at, text[at], old[i]
        a, b = _fold(there), _fold(given)
        if not a or not b:  # it cannot be seen: there is one too many on its side
            yield place, "" if a else there, "" if b else given
            at, i = at + (not a), i + (not b)
            continue
        while a != b and len(there) + len(given) < 20:
            longer = len(a) > len(b)
            if longer and i + len(given) < len(old):
                given += old[i + len(given)]
            elif not longer and at + len(there) < len(text):
                there += text[at + len(there)]
            else:
                break
            a, b = "".join(map(_fold, there)), "".join(map(_fold, given))
        yield place, there, given
        at, i = at + len(there), i + len(given)
    if i < len(old):
        yield at, "", old[i:]


def _named(chars: str) -> str:
    if not chars:
        return "nothing"
    return f"{chars!r} ({' '.join(f'U+{ord(c):04X}' for c in chars)})"


def _nearest_lines(text: str, old: str) -> str:
    lines, wanted = LINE_BREAK.split(text), LINE_BREAK.split(old)
    skipped = next((i for i, line in enumerate(wanted) if line.strip()), 0)
    best = _similar(lines, wanted[skipped])
    if not best:
        return "No line is similar; read the file again"
    near = "\n".join(f"{n + 1}|{lines[n][:300]}" for n in best)
    return f"Nearest lines (white space counts):\n{near}{_first_difference(lines, best, wanted[skipped:])}"


def _similar(lines: list[str], line: str) -> list[int]:
    """Indexes of the lines most like this one: the same, the same but for white space or case, or similar letters."""
    from difflib import SequenceMatcher

    first = line.strip()[:500]
    plain = "".join(first.lower().split())
    word = max(re.findall(r"\w+", first), key=len, default="")
    matcher = SequenceMatcher(b=first, autojunk=False)
    scored: list[tuple[float, int]] = []
    likely = [n for n, text in enumerate(lines) if word in text] if word else []
    for n in islice(dict.fromkeys([*likely[:FUZZY], *range(min(FUZZY, len(lines)))]), FUZZY * 2):
        text = lines[n].strip()[:500]
        if lines[n] == line or plain and "".join(text.lower().split()) == plain:
            scored.append((2.0 + (lines[n] == line), -n))
            continue
        matcher.set_seq1(text)
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5 and len(scored) < 500:
            scored.append((matcher.ratio(), -n))
    return [-n for _, n in sorted(scored, reverse=True)[:NEAREST]]


def _first_difference(lines: list[str], starts: list[int], wanted: list[str]) -> str:
    """Which line of several does not fit, at the place where the most of them do."""

    def fitting(start: int) -> int:
        pairs = zip(lines[start:], wanted, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(wanted))

    start = max(starts, key=fitting)
    at = fitting(start)
    if at == 0 or at >= len(wanted):
        return ""
    if start + at >= len(lines):
        return f"\nFrom line {start + 1} on {at} lines fit, then the file ends"
    return (
        f"\nFrom line {start + 1} on the first that differs is\n{start + at + 1}|{lines[start + at][:300]}\n"
        f"where you gave\n{wanted[at][:300]}"
    )
