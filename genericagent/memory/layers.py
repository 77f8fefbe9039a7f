"""The layers by name, and the index (L1) as every prompt carries it."""

from __future__ import annotations

from .. import paths
from ..llm.usage import estimate
from ..prompts import language, say

L0 = "memory_management_sop.md"
L1 = "global_mem_insight.txt"
L2 = "global_mem.txt"
L4 = "L4_raw_sessions"
INSIGHT_LINES = 30
INSIGHT_TOKENS = 1000  # estimated


def insight() -> str:
    """The index as it is now: at most 30 lines and 1,000 tokens; of what is over, only that it has to be cleaned up."""
    file = paths.memory() / L1
    if not file.is_file():
        file = paths.shipped("memory", language(), L1)
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    shown = lines[:INSIGHT_LINES]
    while len(shown) > 1 and estimate("\n".join(shown)) > INSIGHT_TOKENS:
        shown.pop()
    text = "\n".join(shown)[: 3 * INSIGHT_TOKENS]
    over = len(lines) - len(shown)
    if over or len(text) == 3 * INSIGHT_TOKENS:
        text += "\n" + say("insight_over", count=over, file=L1, lines=INSIGHT_LINES, tokens=INSIGHT_TOKENS)
    return text
