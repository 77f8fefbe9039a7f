"""The layered memory as files: first copy of the shipped seeds, and what of it every prompt carries."""

from __future__ import annotations

from . import paths
from .prompts import language
from .store import atomic, lock

L0 = "memory_management_sop.md"
L1 = "global_mem_insight.txt"
L2 = "global_mem.txt"
INSIGHT_LINES = 30


def ensure_seeds() -> None:
    """Copy the shipped memory files that the home has none of. Nothing that exists is touched."""
    for folder in (paths.home(), paths.memory(), paths.temp()):
        atomic.clean_stale(folder)
    for folder in (paths.home() / "locks", paths.sessions()):
        lock.clean(folder)
    target = paths.memory()
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for seed in sorted(paths.shipped("memory", language()).iterdir()):
        copy = target / seed.name
        if not copy.exists():
            copy.write_bytes(seed.read_bytes())


def insight() -> str:
    """The L1 index as the prompt shows it: at most 30 lines; what is over is named, not shown."""
    file = paths.memory() / L1
    if not file.is_file():
        file = paths.shipped("memory", language(), L1)
    lines = file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    if len(lines) > INSIGHT_LINES:
        over = len(lines) - INSIGHT_LINES
        lines = [*lines[:INSIGHT_LINES], f"[{over} more lines in {L1}: over the limit, clean it up]"]
    return "\n".join(lines)
