"""Markdown → messages of a limited size, each as the small HTML that messengers take and as plain text. Pure.

The tags are those of Telegram's Bot API ("HTML style"): b, i, s, code, pre, a, blockquote; everything else is text. A message
is measured as it is sent, tags and escapes included, in UTF-16 units, which no reader of the limit counts more generously.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import category, east_asian_width

from ..safety.term import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

DEEPEST = 100_000  # levels; Python's own limit comes first
MOST_LINK = 1_000  # characters of an address; a longer one is no link
LONGEST_SIGN = 64  # characters of what a reader sees as one
FULL = 0.5  # of a message that is to be used before a better place for the cut counts for nothing
_LINKS = re.compile(r"(?:https?|mailto|tg):", re.I)
_STYLES = {"strong": "<b>", "em": "<i>", "s": "<s>"}


class Part(NamedTuple):
    """A message: `html` within the limit, and the same words without markup."""

    html: str
    plain: str


class Run(NamedTuple):
    """Text with its opening tags, the outermost first."""

    text: str
    tags: tuple[str, ...] = ()


def parts(markdown: str, limit: int) -> list[Part]:
    """The messages that `markdown` takes, none when it says nothing. `limit`: UTF-16 units of each one's HTML."""
    return [Part(_html(piece), "".join(run.text for run in piece)) for piece in _split(_runs(markdown), limit)]


def plain_parts(text: str, limit: int) -> list[Part]:
    """The same for text that is shown as it is."""
    return [Part(_html(piece), "".join(run.text for run in piece)) for piece in _split([Run(text)], limit)]


def literal(text: str) -> str:
    """Text in Markdown, shown as it is."""
    return re.sub(r"([\\`*_{}\[\]<>()#+.!|~-])", r"\\\1", text)


def fenced(text: str, language: str = "") -> str:
    """A block of code in Markdown, whatever is in it."""
    fence = "`" * max(3, *(len(found) + 1 for found in re.findall("`+", text)), 3)
    return f"{fence}{language}\n{text}\n{fence}"


def size(text: str) -> int:
    """Its length in UTF-16 units."""
    return len(text) + sum(c > "\uffff" for c in text)


# Markdown → runs


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # a definition of a link would be text that nobody sees; what is nested deeper than `maxNesting` is left out
    rules = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    return rules.enable(["table", "strikethrough"]).disable("reference")


def _runs(markdown: str) -> list[Run]:
    writer = _Writer()
    try:
        writer.blocks(_parser().parse(markdown))
        found = writer.runs
    except RecursionError:
        found = [Run(markdown)]
    return [run._replace(text=clean(run.text)) for run in found]  # entities stand for any character


class _Writer:
    """Walks the tokens once. Between blocks stand line feeds, inside the tags that both sides share."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._tags: list[str] = []
        self._gap = 0  # line feeds before the next text
        self._lists: list[int | None] = []  # the next number of each open list, None: bullets
        self._mark = ""  # of a list item that has no text yet

    def blocks(self, tokens: Sequence[Token]) -> None:
        cells = list[list[str]]()
        for token in tokens:
            kind = token.type
            if kind == "inline" and cells:
                cells[-1].append("".join(run.text for run in _inline(token, (), links=False)).replace("\n", " "))
            elif kind == "inline":
                for run in _inline(token, tuple(self._tags)):
                    self._write(*run)
            elif kind in ("fence", "code_block"):
                language = re.match(r"[\w+#.-]*", token.info.strip())
                name = language[0] if language else ""
                self._pre(token.content.removesuffix("\n"), f'<pre><code class="language-{name}">' if name else "<pre>")
            elif kind == "hr":
                self._write("———", tuple(self._tags))
                self._space(2)
            elif kind == "tr_open":
                cells.append([])
            elif kind == "table_close":
                self._pre(_table(cells), "<pre>")
                cells = []
            elif kind in ("bullet_list_open", "ordered_list_open"):
                self._space(1)
                self._lists.append(int(token.attrs.get("start", 1)) if kind[0] == "o" else None)
            elif kind in ("bullet_list_close", "ordered_list_close"):
                self._lists.pop()
                self._space(1 if self._lists else 2)
            elif kind == "list_item_open":
                self._item()
            elif kind == "list_item_close":
                if self._mark:  # it was empty
                    self._write("", tuple(self._tags))
                self._space(1)
            elif kind in ("heading_open", "blockquote_open"):
                self._space(2)
                self._tags.append("<b>" if kind[0] == "h" else "<blockquote>")
            elif kind in ("heading_close", "blockquote_close"):
                self._tags.pop()
                self._space(2)
            elif kind == "paragraph_close":
                self._space(1 if token.hidden else 2)

    def _item(self) -> None:
        number = self._lists[-1]
        self._mark = "• " if number is None else f"{number}. "
        if number is not None:
            self._lists[-1] = number + 1

    def _space(self, feeds: int) -> None:
        self._gap = max(self._gap, feeds)

    def _pre(self, text: str, tag: str) -> None:
        if self._mark:  # a list's item that begins so
            self._write("", tuple(self._tags))
        self._space(1)
        self._write(text, (*(t for t in self._tags if t == "<blockquote>"), tag))
        self._space(1)

    def _write(self, text: str, tags: tuple[str, ...]) -> None:
        depth, tags = len(self._lists), _solid(tags)
        pre = bool(tags) and tags[-1].startswith("<pre>")
        indent = "   " * (depth - 1) + (self._mark or "   ") if depth and not pre else ""
        if not self.runs:
            self._gap = 0
        if self._gap:
            last = self.runs[-1].tags
            shared = _shared(last, tags)
            self.runs.append(Run("\n" * self._gap, tags[:shared] if shared and tags[shared - 1][:4] != "<pre" else ()))
        if indent and (self._gap or not self.runs or self._mark):
            self.runs.append(Run(indent, tuple(tag for tag in tags if tag == "<blockquote>")))
        self._gap, self._mark = 0, ""
        if text:
            self.runs.append(Run(text, tags))


def _inline(token: Token, outer: tuple[str, ...], links: bool = True) -> Iterator[Run]:
    """The runs of a block's text. Without `links`, or where one has no text to press, its address is written out."""
    tags, after = list(outer), list[str]()
    children = token.children or []
    for n, child in enumerate(children):
        kind, _, edge = child.type.rpartition("_")
        if kind in _STYLES:
            if edge == "open":
                tags.append(_STYLES[kind])
            else:
                tags.pop()
        elif child.type == "link_open":
            href = str(child.attrs.get("href", ""))
            label = children[n + 1]
            good = links and bool(_LINKS.match(href)) and len(href) <= MOST_LINK and label.type != "link_close"
            after.append("" if good or label.content == href else f" ({href})")
            tags.append(f'<a href="{escape(href)}">' if good else "")
        elif child.type == "link_close":
            tags.pop()
            if text := after.pop():
                yield Run(text, _solid(tags))
        elif child.type == "code_inline":
            bare = [
                tag for tag in tags if tag[:2] == "<a" or tag == "<blockquote>"
            ]  # code may not be bold, nor in a link
            yield Run(child.content, _solid(bare if any(tag[:2] == "<a" for tag in bare) else [*bare, "<code>"]))
        elif child.type == "image":
            yield Run(f"{child.content or 'image'} ({child.attrs.get('src', '')})", _solid(tags))
        elif child.type in ("softbreak", "hardbreak"):
            yield Run("\n", _solid(tags))
        elif child.content:
            yield Run(child.content, _solid(tags))


def _solid(tags: Sequence[str]) -> tuple[str, ...]:
    """Without those that are nothing, and none twice."""
    return tuple(dict.fromkeys(filter(None, tags)))


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The cells in columns as wide as a terminal's font makes them."""
    count = max(map(len, rows), default=0)
    full = [[*row, *[""] * (count - len(row))] for row in rows]
    widths = [max(_cells(row[i]) for row in full) for i in range(count)]
    lines = [
        " │ ".join(cell + " " * (w - _cells(cell)) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in full
    ]
    return "\n".join([lines[0], "─┼─".join("─" * width for width in widths), *lines[1:]]) if lines else ""


def _cells(text: str) -> int:
    return sum(0 if category(c) in ("Mn", "Me", "Cf") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


# runs → messages


def _closing(tags: Sequence[str]) -> str:
    return "".join(f"</{name}>" for tag in reversed(tags) for name in reversed(re.findall(r"<(\w+)", tag)))


def _html(runs: Sequence[Run]) -> str:
    out, open_ = list[str](), tuple[str, ...]()
    for text, tags in runs:
        shared = _shared(open_, tags)
        out += [_closing(open_[shared:]), *tags[shared:], escape(text, quote=False)]
        open_ = tags
    return "".join([*out, _closing(open_)])


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _split(runs: list[Run], limit: int) -> Iterator[list[Run]]:
    rest = deque(runs)
    while rest:
        near, seen = list[Run](), 0  # what is further on does not matter for this message
        while rest and seen <= limit + LONGEST_SIGN:
            near.append(rest.popleft())
            seen += len(near[-1].text)
        near = _stripped(near)
        most = _fits(near, limit)
        text = _begin(near, most + LONGEST_SIGN)
        cut = len(text) if most >= len(text) else _place(near, text, most, limit)
        head, tail = _at(near, cut)
        rest.extendleft(reversed(tail))
        while head and not (last := head[-1]).text.rstrip("\n"):
            head.pop()
        if head:
            head[-1] = last._replace(text=last.text.rstrip("\n"))
        if any(run.text.strip() for run in head):
            yield head


def _stripped(runs: list[Run]) -> list[Run]:
    """Without line feeds at the front; what stands behind them may be a line's indentation."""
    for i, run in enumerate(runs):
        if text := run.text.lstrip("\n"):
            return [run._replace(text=text), *runs[i + 1 :]]
    return []


def _begin(runs: Sequence[Run], most: int) -> str:
    """The text of its first `most` characters."""
    found, left = list[str](), most
    for run in runs:
        found.append(run.text[:left])
        left -= len(found[-1])
        if left <= 0:
            break
    return "".join(found)


def _fits(runs: Sequence[Run], limit: int) -> int:
    """How many characters go into one message, at least one."""
    used, count, open_ = 0, 0, tuple[str, ...]()
    for text, tags in runs:
        shared = _shared(open_, tags)
        used += len(_closing(open_[shared:])) + sum(map(size, tags[shared:]))
        open_, room = tags, limit - used - len(_closing(tags))
        needed = size(escape(text[: max(room, 0) + 1], quote=False))
        if needed > room:
            for c in text:
                room -= size(escape(c, quote=False))
                if room < 0:
                    break
                count += 1
            return max(count, 1)
        used, count = used + needed, count + len(text)
    return count


def _place(runs: Sequence[Run], text: str, most: int, limit: int) -> int:
    """Where to cut at best, at most at `most`: before a block of code that fits into a message of its own, else between
    paragraphs, lines, words, signs."""
    at, inside = 0, False
    for run in runs:
        inside = bool(run.tags) and run.tags[-1].startswith("<pre>") and at < most < at + len(run.text)
        if inside:
            if at and text[:at].strip() and size(_html([run])) <= limit:
                return at
            break
        at += len(run.text)
    least = at + 1 if inside else int(most * FULL)
    for mark in ("\n",) if inside else ("\n\n", "\n", " "):
        found = text.rfind(mark, 0, most + (mark != " "))
        if found >= max(least, 1):
            return found + (mark == " ")
    return _between_signs(text, most)


def _between_signs(text: str, cut: int) -> int:
    """`cut`, or the nearest place before it that is not inside of what a reader sees as one sign."""
    at = cut
    while at > max(0, cut - LONGEST_SIGN) and _joined(text, at):
        at -= 1
    return at if at > max(0, cut - LONGEST_SIGN) else cut


def _joined(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    if _flag(before) and _flag(after):
        start = at
        while start and _flag(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 1
    tone = "\U0001f3fb" <= after <= "\U0001f3ff"
    return (
        before == "\u200d"
        or after == "\u200d"
        or tone
        or category(after) in ("Mn", "Me", "Mc")
        or "\U000e0020" <= after <= "\U000e007f"
    )


def _flag(c: str) -> bool:
    return "\U0001f1e6" <= c <= "\U0001f1ff"


def _at(runs: Sequence[Run], cut: int) -> tuple[list[Run], list[Run]]:
    head = list[Run]()
    for i, run in enumerate(runs):
        if cut < len(run.text):
            return [*head, run._replace(text=run.text[:cut])], [run._replace(text=run.text[cut:]), *runs[i + 1 :]]
        head.append(run)
        cut -= len(run.text)
    return head, []
