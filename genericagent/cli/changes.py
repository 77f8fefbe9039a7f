"""What a patch changes, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

DIFFED = 200  # lines of each side that are compared; of more, all the old and all the new ones are shown


def diff(old: str, new: str) -> str:
    """Lines with "-", "+" or a blank before them."""
    a, b = old.split("\n") if old else [], new.split("\n") if new else []
    ops: Iterable[tuple[str, int, int, int, int]] = [("replace", 0, len(a), 0, len(b))]
    if max(len(a), len(b)) <= DIFFED:
        ops = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    out: list[str] = []
    for op, i, j, k, m in ops:
        out += (
            [f" {line}" for line in a[i:j]] if op == "equal" else [f"-{x}" for x in a[i:j]] + [f"+{x}" for x in b[k:m]]
        )
    return "\n".join(out)
