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
        raise UsageError(f"use ga schedule run {only}")


def check() -> str | None:
    runs, now = schedule.Runs(folder()), clock()
    runs.claim()  # before it looks at what there is
    jobs, problems = schedule.load_jobs(folder())
    for problem in problems:
        if problem not in told:
            told.add(problem)
            deliver("problem", "terminal", problem, f"problem-{zlib.crc32(problem.encode('utf-8', 'replace')):08x}")
    marks = schedule.marks_of(runs.read())
    if only:
        jobs = [job for job in jobs if job.id == only and marks.get(only, schedule.Mark()).wanted]
    records = schedule.tick(jobs, marks, now, lambda: new_id(now), local)
    named = {job.id: job for job in jobs}
    for record in records:
        event, id = record["event"], record["job"]
        if event in ("missed", "unknown", "reset"):  # told before it is written down: never lost, and once by its id
            origin = named[id].origin if id in named else "terminal"
            about = record.get("run") or re.sub(r"[^\w.@-]", "-", f"{id}-{event}-{record['slot']}")
            deliver(id, origin, text("watchers", f"job_{event}", **record), about)
    if records:
        runs.append(*records)
    begun = records[-1] if records and records[-1]["event"] == "begun" else None
    if begun:
        return text("watchers", "job", prompt=named[begun["job"]].prompt, **begun)
    return "/exit" if only else None


def on_done(result: Any) -> None:
    runs = schedule.Runs(folder())
    open_ = {mark.open: job for job, mark in schedule.marks_of(runs.read()).items() if mark.open}
    jobs = {job.id: job for job in schedule.load_jobs(folder())[0]}
    for run, id in open_.items():
        origin = jobs[id].origin if id in jobs else "terminal"
        words = str(result)
        if result["status"] != "done":
            words = text("watchers", "job_not_done", **{**result.record, "result": words})
        deliver(id, origin, words, run)
        about = {key: result[key] for key in ("status", "session", "cost")}
        runs.append({"event": "ended", "job": id, "run": run, "at": round(clock(), 3), **about})


def deliver(title: str, origin: str, words: str, id: str) -> None:
    """For the face that owns the origin. One run is delivered once, also when this is called again for it."""
    print(f"{title}: {words[:300]}".encode("utf-8", "replace").decode())
    Outbox(paths.home() / "outbox", clock).put(id, origin, title, words)


def folder() -> Path:
    return paths.home() / "sche_tasks"
