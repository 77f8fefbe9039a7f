"""What has gone on in the conversations of this home, read from the session files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..errors import SessionError
from .journal import read


class Activity(NamedTuple):
    """The last task of a conversation: who started it ("user", "reflect:NAME", …), when something was last written of it
    (seconds), whether it has no end yet."""

    source: str
    written: float
    running: bool


def tasks_since(sessions: Path, since: float) -> Iterator[Activity]:
    """The last task of each session file that was written to after that moment."""
    for path in sessions.glob("*.jsonl"):
        try:
            written = path.stat().st_mtime
            if written <= since:
                continue
            tasks = [record for record in read(path).records if record["type"] == "task"]
        except (OSError, SessionError):
            continue  # gone meanwhile, or no session
        starts = [str(task.get("source")) for task in tasks if task.get("event") == "start"]
        if starts:
            yield Activity(starts[-1], written, tasks[-1].get("event") == "start")
