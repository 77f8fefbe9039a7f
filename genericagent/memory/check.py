"""What is wrong with the memory as it lies there. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .. import paths
from ..llm.usage import estimate
from ..prompts import say
from ..safety.keylike import key_in
from .layers import INSIGHT_LINES, INSIGHT_TOKENS, L0, L1, L2
from .records import files, text_of

FACTS_TOKENS = 4000  # of L2
SOP_LINES = 120  # of a procedure
SAME = 30  # characters of a line that stands twice

_FILE = re.compile(r"(?<![\w./~-])(?:\.\./memory/)?((?:[\w.-]+/)*[\w.-]+\.(?:md|py|txt))\b")
_SECTION = re.compile(r"\[([^\]\n]+)\]")
_PATH = re.compile(r"(?<![\w./:<>{}$*-])(?:~|/[\w.-]+)(?:/[\w.@+-]+)+")


def check() -> list[str]:
    """One line for each thing that is wrong, with the file; empty when all is well."""
    folder = paths.memory()
    texts = {n: text_of((folder / n).read_bytes()) or "" for n in files(folder)} if folder.is_dir() else {}
    return [*_index(texts), *_sizes(texts), *_twice(texts), *_dead(texts)]


def _index(texts: dict[str, str]) -> Iterator[str]:
    index = texts.get(L1, "")
    for name in dict.fromkeys(_FILE.findall(index)):
        if name not in texts:
            yield say("check_dangling", file=L1, name=name)
    sections = set(re.findall(r"^##\s*\[([^\]]+)\]", texts.get(L2, ""), re.M))
    for line in index.splitlines():
        for section in _SECTION.findall(line) if L2 in line else ():
            if section not in sections:
                yield say("check_dangling", file=L1, name=f"{L2} [{section}]")
    named = {L0, L1, L2, *_FILE.findall(index)}
    for _ in range(2):  # a helper may be named by the procedure that needs it
        named |= {found for name in named if name != L0 for found in _FILE.findall(texts.get(name, ""))}
    for name in texts:
        if name.endswith((".md", ".py")) and name not in named:
            yield say("check_unnamed", file=name, index=L1)


def _sizes(texts: dict[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        lines, tokens = len(text.strip().splitlines()), estimate(text)
        if name == L1 and (lines > INSIGHT_LINES or tokens > INSIGHT_TOKENS):
            yield say("check_size", file=name, lines=lines, tokens=tokens, most=f"{INSIGHT_LINES} / {INSIGHT_TOKENS}")
        elif (name == L2 and tokens > FACTS_TOKENS) or (name.endswith(".md") and lines > SOP_LINES):
            yield say("check_size", file=name, lines=lines, tokens=tokens, most=f"{SOP_LINES} / {FACTS_TOKENS}")
        if found := key_in(text):
            yield say("check_key", file=name, what=found)


def _twice(texts: dict[str, str]) -> Iterator[str]:
    first: dict[str, str] = {}
    for name, text in texts.items():
        for line in text.splitlines() if not name.endswith(".py") else ():
            plain = " ".join(line.strip(" -*").split()).lower()
            if len(plain) >= SAME:
                if plain in first:
                    yield say("check_twice", file=name, other=first[plain], line=plain[:60])
                first.setdefault(plain, name)


def _dead(texts: dict[str, str]) -> Iterator[str]:
    """Paths below the user's home that lead nowhere; others may be routes, or lie on other machines."""
    homes = Path.home(), paths.home()
    for name, text in texts.items():
        for path in dict.fromkeys(_PATH.findall(text)) if not name.endswith(".py") else ():
            file = paths.expand(path.rstrip("."))
            if any(file.is_relative_to(home) for home in homes) and not file.exists():
                yield say("check_dead", file=name, path=path)
