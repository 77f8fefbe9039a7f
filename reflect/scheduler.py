"""Runs the jobs in $GA_HOME/sche_tasks/*.json when they are due; see docs/WATCHERS.md.

`--job NAME`: that one alone, which `ga schedule run` has asked for.
"""

import re
import time
import zlib
from datetime import datetime
from pathlib import Path
from typing import Any

from genericagent import paths, schedule
from genericagent.errors import UsageError
from genericagent.prompts import text
from genericagent.store.journal import new_id
from genericagent.store.outbox import Outbox

INTERVAL = 20
ONCE = False
TAINTED = False  # the prompts are the user's
DELIVERS = True
MANY = 5  # messages for one place at once; of more there is one
clock = time.time
local = datetime.fromtimestamp
told: set[str] = set()
only = ""


def init(args: dict[str, str]) -> None:
    global only, ONCE
    only = args.pop("job", "")
    ONCE = bool(only)
    if args:
        raise UsageError(f"it takes --job NAME and no --{next(iter(args))}")
    schedule.Runs(folder()).claim()
    mark = schedule.marks_of(schedule.Runs(folder()).read()).get(only, schedule.Mark())
    if only and not (mark.wanted or mark.open):
        raise UsageError(f"use {paths.this_program()} schedule run {only}")


def check() -> str | None:
    runs, now = schedule.Runs(folder()), clock()
    runs.claim()  # before it looks at what there is
    jobs, problems = schedule.load_jobs(folder())
    new = [problem for problem in problems if problem not in told]
    tell([("terminal", "problem", problem, f"problem-{crc(problem)}") for problem in new])
    told.update(new)
    before = runs.read()
    tell_of(runs, schedule.untold(before), now)  # a check that was cut off has written it down
    marks = schedule.marks_of(before)
    if only:
        jobs = [job for job in jobs if job.id == only and marks.get(only, schedule.Mark()).wanted]
    records = schedule.tick(jobs, marks, now, lambda: new_id(now), local)
    begun = records.pop() if records and records[-1]["event"] == "begun" else None
    if records:
        runs.append(*records)
        tell_of(runs, schedule.untold(records), now)
    if begun:
        runs.append(begun)
        prompt = next(job.prompt for job in jobs if job.id == begun["job"])
        return text("watchers", "job", **{**begun, "prompt": prompt})
    return "/exit" if only else None


def on_done(result: Any) -> None:
    runs = schedule.Runs(folder())
    for id, mark in schedule.marks_of(runs.read()).items():
        if not mark.open:
            continue
        words = str(result)
        if result["status"] != "done":
            words = text("watchers", "job_not_done", **{**result.record, "result": words})
        deliver(id, mark.origin or "terminal", words, mark.open)
        about = {key: result[key] for key in ("status", "session", "cost")}
        runs.append({"event": "ended", "job": id, "run": mark.open, "at": round(clock(), 3), **about})


def tell_of(runs: schedule.Runs, records: list[dict[str, Any]], now: float) -> None:
    """What was written down is told once: never lost, and when this is cut off, again with the same ids."""
    messages = []
    for record in records:
        event, job = record["event"], record["job"]
        id = record.get("run") or re.sub(r"[^\w.@-]", "-", f"{job}-{event}-{record['slot']}")
        messages.append((str(record["origin"]), job, text("watchers", f"job_{event}", **record), id))
    tell(messages)
    if messages:
        runs.append({"event": "told", "at": round(now, 3)})


def tell(messages: list[tuple[str, str, str, str]]) -> None:
    """Each is (origin, title, words, id)."""
    for origin in dict.fromkeys(message[0] for message in messages):
        ours = [message[1:] for message in messages if message[0] == origin]
        if (more := len(ours) - MANY) > 0:
            lines = [f"{title}: {words}" for title, words, _ in ours[:MANY]]
            lines.append(text("watchers", "job_more", count=more))
            ours = [("scheduler", "\n".join(lines), f"{ours[0][2]}-{crc(' '.join(id for *_, id in ours))}")]
        for title, words, id in ours:
            deliver(title, origin, words, id)


def crc(words: str) -> str:
    return f"{zlib.crc32(words.encode('utf-8', 'replace')):08x}"


def deliver(title: str, origin: str, words: str, id: str) -> None:
    """For the face that owns the origin. One run is delivered once, also when this is called again for it."""
    print(f"{title}: {words[:300]}".encode("utf-8", "replace").decode())
    Outbox(paths.home() / "outbox", clock).put(id, origin, title, words)


def folder() -> Path:
    return paths.home() / "sche_tasks"
