"""Work of its own choice, once nobody has said anything for half an hour; see docs/WATCHERS.md.

What it may do without asking is not up to these words: the policy denies a watcher whatever would have to be asked.
"""

import re
import time
from pathlib import Path
from typing import Any

from genericagent import paths
from genericagent.prompts import text
from genericagent.store import atomic
from genericagent.store.activity import tasks_since
from genericagent.store.journal import new_id
from genericagent.store.outbox import Outbox

INTERVAL = 60
TAINTED = "temp/TODO.txt, which any task may write"
DELIVERS = True
AWAY = 30 * 60  # seconds without a message, and between two tasks of its own
SELF = "reflect:autonomous"
clock = time.time


def check() -> str | None:
    """Other watchers don't count as a person; their tasks are only not run into."""
    for task in tasks_since(paths.sessions(), clock() - AWAY):
        if task.written > clock() + 86_400:
            continue  # the clock was wrong then
        if task.running or task.source == SELF or not task.source.startswith("reflect"):
            return None
    todo = paths.temp() / "TODO.txt"
    if not todo.exists():
        todo.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_own(todo, text("watchers", "auto_todo"))
    return text("watchers", "auto", todo=todo, report=next_report())


def on_done(result: Any) -> None:
    """A report there is in any case, and it names what was not allowed."""
    path = next_report()
    denied = "".join(f"- {line}\n" for line in result["denied"])
    words = [text("watchers", "auto_denied", denied=denied)] if denied else []
    written = [p for p in map(Path, result["files_changed"]) if p.parent == path.parent and p.is_file()]
    if not written:
        atomic.write_own(path, "\n\n".join([f"{result['status']}: {result}", *words]) + "\n")
    elif words:
        with atomic.open_own(written[-1], append=True) as file:
            file.write(f"\n\n{words[0]}\n".encode())
    told = text("watchers", "auto_report", report=written[-1] if written else path, answer=result)
    Outbox(paths.home() / "outbox", clock).put(f"report-{new_id(clock())}", "terminal", "autonomous", told)


def next_report() -> Path:
    folder = paths.temp() / "autonomous_reports"
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():  # scripts can write there too
        raise OSError(f"{folder} is a link: nothing is written there")
    found = (re.match(r"R(\d+)(?=[_.])", path.name) for path in folder.iterdir())
    return folder / f"R{max((int(m[1]) for m in found if m), default=0) + 1}.md"
