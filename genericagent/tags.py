"""`<tag>…</tag>` regions in text from a model. Linear in the length of the text, however many tags are never closed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Region(NamedTuple):
    """A region with its tags: text[begin:end]; what is inside: text[inner:close]."""

    tag: str
    begin: int
    inner: int
    close: int
    end: int


def regions(text: str, *tags: str) -> Iterator[Region]:
    """The closed regions from left to right; what lies inside of one is no region of its own."""
    last = {tag: text.rfind(f"</{tag}>") for tag in tags}
    opening = re.compile(f"<({'|'.join(tags)})>")
    at = 0
    while found := opening.search(text, at):
        tag, at = found[1], found.end()
        if last[tag] >= at:  # else it is never closed, and text like any other
            close = text.find(f"</{tag}>", at)
            end = close + len(tag) + 3
            yield Region(tag, found.start(), at, close, end)
            at = end


def replace(text: str, change: Callable[[str, str], str], *tags: str) -> str:
    """The text with every region replaced by `change(tag, what is inside)`."""
    out, at = [], 0
    for region in regions(text, *tags):
        out += [text[at : region.begin], change(region.tag, text[region.inner : region.close])]
        at = region.end
    return "".join([*out, text[at:]]) if out else text


def drop(text: str, *tags: str) -> str:
    return replace(text, lambda tag, inner: "", *tags)


def first(text: str, tag: str) -> str | None:
    """What is inside the first region, None without one."""
    found = next(regions(text, tag), None)
    return text[found.inner : found.close] if found else None
