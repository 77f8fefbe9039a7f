"""Content that a reply brings along instead of writing it into a tool call's arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_DOCUMENTS = ("markdown", "md", "mdx", "rst")  # languages whose text may itself hold bare fences


def extract_content(reply: str) -> str | None:
    """The content for file_write in a reply: between `<file_content>` and the last `</file_content>`, else the last
    fenced block. None when there is none, it is empty, or where it ends cannot be told for certain."""
    blocks, cut = _blocks(reply)
    opening = re.search(r"^[ \t]*<file_content>", reply, re.M) or re.search("<file_content>", reply)
    if opening and not any(b.begin < opening.start() < b.end for b in blocks if not b.body.startswith(opening[0])):
        return _tagged(reply, opening) or None
    if cut or not blocks:
        return None
    if not blocks[-1].language and any(b.language.lower() in _DOCUMENTS for b in blocks[:-1]):
        return None  # this may be a piece of that document
    return blocks[-1].body or None


def _tagged(reply: str, opening: re.Match[str]) -> str | None:
    tags = re.compile(r"^[ \t]*<file_content>|</file_content>(?=[ \t\r]*$)", re.M)
    depth, end = 1, -1
    for tag in tags.finditer(reply, opening.end()):
        if tag[0].startswith("</"):
            depth, end = depth - 1, tag.start()
        elif depth < 1:
            return None  # a second one begins: which is meant?
        else:
            depth += 1
    if end < 0:
        end = reply.rfind("</file_content>")
    if end < opening.end():
        return None
    return reply[opening.end() : end].removeprefix("\r\n").removeprefix("\n")


def last_code_block(reply: str, kinds: Sequence[str]) -> str | None:
    """The last fenced block of one of these languages; None when there is none, it is empty, or the reply breaks off."""
    blocks, cut = _blocks(reply)
    found = [b.body for b in blocks if b.language.lower() in kinds]
    return found[-1] or None if found and not cut else None


class _Block(NamedTuple):
    language: str
    body: str
    begin: int  # of the fence before it, in the reply
    end: int  # of the fence after it


def _blocks(reply: str) -> tuple[list[_Block], bool]:
    """(the outermost fenced blocks, whether the last is not closed). A longer fence, or an inner one with a language,
    nests."""
    out: list[_Block] = []
    fence, language, depth, begin, at = "", "", 0, 0, 0
    body: list[str] = []
    for line in reply.split("\n"):
        mark = _FENCE.match(line.rstrip("\r"))
        start, at = at, at + len(line) + 1
        if not fence:
            if mark:
                fence, body, depth, begin = mark[2], [], 0, start
                language = next(iter(mark[3].split()), "")
            continue
        if mark and mark[2][0] == fence[0] and len(mark[2]) >= len(fence):
            if mark[3].strip() and len(mark[2]) == len(fence):
                depth += 1
            elif not mark[3].strip() and depth:
                depth -= 1
            elif not mark[3].strip():
                out.append(_Block(language, "".join(f"{b}\n" for b in body), begin, at))
                fence = ""
                continue
        body.append(line)
    return out, bool(fence)
