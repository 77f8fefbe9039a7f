"""A task's display items → the Markdown of its turns, as a messenger shows them. Pure but for the clock of View."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..cli.render import Piece, View, hint
from .markup import literal

_FILE = re.compile(r"\[FILE:([^\]\n]{1,1000})\]")


class Turns:
    """Feed it every item. `text` is what the running turn says; `files` are the paths of [FILE:path] so far."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts, self._view = texts, View(texts, alive=False)
        self._blocks: list[str] = []
        self._code: list[str] | None = None
        self._hint = ""
        self.files: list[str] = []

    @property
    def text(self) -> str:
        code = ["\n".join([*self._code, ""])] if self._code else []
        return "\n\n".join([*self._blocks, *code])

    def live(self) -> tuple[str, str]:
        """(what is not finished, what is going on), the latter without seconds: it would change with every look."""
        state, tail = self._view.live()
        words = re.sub(r"[\d,.]+ ?\S*$", "", state[2:]).strip(" …·")
        return _FILE.sub(_named, tail), f"⏳ {literal(words)}…" if words else ""

    def feed(self, item: Mapping[str, Any]) -> str | None:
        """All that a turn said, when it ends with this item, else None."""
        event = item.get("event") or {}
        if event.get("kind") == "ask":
            return None
        if event.get("kind") == "tool":
            self._hint = hint(event.get("args") or {})
        whole = None
        for piece in self._view.feed(item):
            if piece.kind == "turn":
                whole = self.text
                self._blocks, self._code = [], None
            self.add(piece)
        return whole

    def add(self, piece: Piece) -> None:
        kind, text = piece.kind, piece.text
        if kind == "fence" and self._code is None:
            self._code = [text]
        elif kind in ("fence", "code") and self._code is not None:
            self._code.append(text)
            if kind == "fence":
                self._blocks.append("\n".join(self._code))
                self._code = None
        elif kind == "user":
            self._blocks.append(f"**❯** {literal(text)}")
        elif kind == "summary":
            self._blocks.append(f"> {literal(text)}")
        elif kind == "md":
            self.files = list(dict.fromkeys([*self.files, *_FILE.findall(text)]))
            self._blocks.append(_FILE.sub(_named, text))
        elif kind in ("ok", "fail"):
            about = f" `{self._hint.replace('`', chr(39))}`" if self._hint else ""
            self._blocks.append(f"{'✓' if kind == 'ok' else '✗'} {literal(text)}{about}")
        elif kind in ("notice", "error"):
            self._blocks.append(literal(text.strip()))


def retold_as_markdown(pieces: Iterable[Piece], texts: Mapping[str, str]) -> str:
    """Pieces of a conversation that is gone on with, as one text."""
    turns = Turns(texts)
    for piece in pieces:
        turns.add(piece)
    return turns.text


def _named(found: re.Match[str]) -> str:
    return f"📎 {literal(Path(found[1].strip()).name)}"
