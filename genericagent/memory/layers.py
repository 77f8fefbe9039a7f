"""The layers by name, and the index (L1) as every prompt carries it."""

from __future__ import annotations

import os
from pathlib import Path

from .. import paths
from ..llm.usage import estimate
from ..prompts import language, say

L0 = "memory_management_sop.md"
L1 = "global_mem_insight.txt"
L2 = "global_mem.txt"
L4 = "L4_raw_sessions"
INSIGHT_LINES = 30
INSIGHT_TOKENS = 1000  # estimated


def layer(name: str) -> str | None:
    """The text of one; None where there is none, or it is a link that leads out of the memory."""
    folder = paths.memory()
    file = Path(os.path.realpath(folder / name))
    inside = file.is_relative_to(os.path.realpath(folder)) and file.is_file()
    return file.read_text(encoding="utf-8", errors="replace") if inside else None


def insight() -> str:
    """The index as it is now: at most 30 lines and 1,000 tokens; of what is over, only that it has to be cleaned up."""
    text = layer(L1)
    if text is None:
        text = paths.shipped("memory", language(), L1).read_text(encoding="utf-8")
    lines = text.strip().splitlines()
    shown = lines[:INSIGHT_LINES]
    while len(shown) > 1 and estimate("\n".join(shown)) > INSIGHT_TOKENS:
        shown.pop()
    text = "\n".join(shown)[: 3 * INSIGHT_TOKENS]
    over = len(lines) - len(shown)
    if over or len(text) == 3 * INSIGHT_TOKENS:
        text += "\n" + say("insight_over", count=over, file=L1, lines=INSIGHT_LINES, tokens=INSIGHT_TOKENS)
    return text
