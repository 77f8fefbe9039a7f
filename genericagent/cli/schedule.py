"""`ga schedule list|add|run|disable|enable`: the jobs that `ga --reflect scheduler` runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from .. import paths
from ..errors import ConfigError, UsageError
from ..safety.term import clean, one_line
from ..schedule import Mark, Runs, add_job, load_jobs, marks_of, now_slot, switch
from ..store.outbox import Outbox
from .reflect_mode import find_script, lock_of


def run_schedule(argv: Sequence[str], reflect: Callable[[Sequence[str]], int]) -> int:
    """The subcommand; `reflect` runs the program with these arguments. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="ga schedule", description=__doc__, allow_abbrev=False)
    sub = parser.add_subparsers(dest="word", metavar="list|add|run|disable|enable")
    sub.add_parser("list", help="the jobs, what became of their last runs, what could not be delivered")
    add = sub.add_parser("add", help="a new job; it runs from the next time on")
    add.add_argument("name")
    add.add_argument("prompt", help="what is to be done")
    add.add_argument("--at", required=True, metavar="HH:MM", help="the time of day, local")
    add.add_argument(
        "--repeat", default="daily", help="daily, weekday, weekly, monthly, once, every_Nm, every_Nh, every_Nd"
    )
    add.add_argument(
        "--max-delay-hours", type=float, default=6, metavar="N", help="later than that it counts as missed"
    )
    add.add_argument("--origin", default="terminal", help="who gets the result (default: terminal)")
    for word, about in (("run", "run a job now"), ("disable", "stop running it"), ("enable", "run it again")):
        sub.add_parser(word, help=about).add_argument("name")
    try:
        args = parser.parse_args(list(argv) or ["--help"])
    except SystemExit as end:
        if end.code:
            raise UsageError("see ga schedule --help") from None
        return 0
    if args.word == "list":
        return _list()
    paths.ensure_home()
    folder = paths.home() / "sche_tasks"
    if args.word == "add":
        fields = {
            "schedule": args.at,
            "repeat": args.repeat,
            "prompt": args.prompt,
            "max_delay_hours": args.max_delay_hours,
        }
        try:
            path = add_job(folder, args.name, {**fields, "origin": args.origin, "enabled": True})
        except ConfigError as error:
            raise UsageError(str(error)) from None
        Runs(folder).append({"event": "seen", "job": args.name, **now_slot(time.time())})
        sys.stdout.write(f"{path}\n")
        _warn_without_scheduler()
        return 0
    if args.word != "run":
        switch(folder, args.name, args.word == "enable")
        return 0
    if args.name not in {job.id for job in load_jobs(folder)[0]}:
        raise UsageError(f"there is no job {args.name} in {folder}")
    Runs(folder).append({"event": "wanted", "job": args.name, "at": round(time.time(), 3)})
    if not _running():
        return reflect(["--reflect", "scheduler", "--job", args.name])
    sys.stdout.write("the running scheduler runs it next\n")
    return 0


def _running() -> bool:
    lock = lock_of(find_script("scheduler"))
    if free := lock.acquire():
        lock.release()
    return not free


def _list() -> int:
    folder = paths.home() / "sche_tasks"
    jobs, problems = load_jobs(folder)
    marks = marks_of(Runs(folder).read())
    for job in jobs:
        mark = marks.get(job.id, Mark())
        last = mark.last and f"last: {mark.last['event']} {mark.last.get('status', '')} {_when(mark.last.get('at'))}"
        state = "" if job.enabled else "disabled  "
        when = f"{job.repeat} {job.hour:02}:{job.minute:02}"
        sys.stdout.write(one_line(f"{job.id}  {when}  {state}{last or 'not run yet'}  {job.prompt}", 300) + "\n")
    sys.stderr.writelines(f"PROBLEM: {one_line(problem, 500)}\n" for problem in problems)
    for message in Outbox(paths.home() / "outbox").pending():
        if message["failures"]:
            why = message["failures"][-1].get("why")
            sys.stderr.write(
                clean(one_line(f"not delivered to {message['origin']} ({why}): {message['title']}", 500)) + "\n"
            )
    if not jobs and not problems:
        sys.stderr.write("no jobs\n")
    _warn_without_scheduler()
    return 0


def _warn_without_scheduler() -> None:
    if not _running():
        sys.stderr.write("no scheduler is running; start one: ga --reflect scheduler\n")


def _when(at: object) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if isinstance(at, int | float) else ""
