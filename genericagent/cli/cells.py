"""Text in the cells of a terminal: how wide it is, cut to fit, broken between words. Wide characters take two cells."""

from __future__ import annotations

import re
import shutil
from typing import TextIO

# Chinese and Japanese text may break after each character, but not before closing nor after opening marks.
_WIDE, _OPENING, _CLOSING = ("\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60", "「『（《【〈", "，。、；：！？）」』】》〉")
WORD = re.compile(rf"\s*(?:[{_OPENING}]*[{_WIDE}][{_CLOSING}]*|[^\s{_WIDE}]+[{_CLOSING}]*)\s*")


def cells(text: str) -> int:
    """Columns that a line without tabs takes."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)


def cut(text: str, width: int) -> str:
    """The text's beginning that fits into `width` cells."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def flush(text: str, width: int) -> str:
    """It behind as many blanks as fill up `width` cells."""
    return " " * (width - cells(text)) + text


def wrapped(line: str, width: int, hang: str = "") -> list[str]:
    """A line in rows of at most `width` cells, broken between words, the later ones under its indentation and `hang`.

    A longer word, such as a path, is left to the terminal, which gives it back whole when it is copied; so is what stands
    behind an arrow: a command to be copied.
    """
    if cells(line.expandtabs()) <= width or line.lstrip().startswith("→ "):
        return [line]
    line = line.rstrip().expandtabs()
    indent = line[: len(line) - len(line.lstrip())] + hang
    rows, used = [""], 0
    for word in WORD.findall(line):
        if used and used + cells(word.rstrip()) > width:
            rows.append(indent if 2 * len(indent) < width else "")
            used = len(rows[-1])
        rows[-1] += word
        used += cells(word)
    return [row.rstrip() for row in rows]


def broken(line: str, width: int) -> list[str]:
    """A line in rows of at most `width` cells, broken anywhere."""
    rows, used = [""], 0
    for char in line.expandtabs(4):
        if used + cells(char) > width:
            rows, used = [*rows, ""], 0
        rows[-1] += char
        used += cells(char)
    return rows


def fitted(text: str, out: TextIO, hang: str = "") -> str:
    """What is to be written to `out`: for a terminal in rows that fit, see `wrapped`."""
    if not out.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(row for line in text.split("\n") for row in wrapped(line, width, hang))
