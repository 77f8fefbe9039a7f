"""`ga schedule list|add|run|disable|enable|remove`: the jobs that `ga --reflect scheduler` runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from .. import paths
from ..errors import ConfigError, UsageError
from ..prompts import text
from ..safety.term import one_line
from ..schedule import Job, Mark, Runs, add_job, load_jobs, marks_of, next_run, remove, switch
from ..store.outbox import Outbox
from .args import Parser
from .cells import cells, fitted

EXAMPLE = 'example: {ga} schedule add news "what is new in the world" --at 08:00 --repeat weekday'
WORDS = {
    "run": "do a job now",
    "disable": "stop doing it",
    "enable": "do it again",
    "remove": "take it away; its file is kept in sche_tasks/trash",
}


def run_schedule(argv: Sequence[str], reflect: Callable[[Sequence[str]], int]) -> int:
    """The subcommand; `reflect` runs the program with these arguments. Returns the exit code."""
    args = _parser().parse_args(list(argv) or ["--help"])
    if args.word == "list":
        return _list()
    paths.ensure_home()
    folder = paths.home() / "sche_tasks"
    runs, now = Runs(folder), time.time()
    try:
        if args.word == "add":
            return _add(runs, args, now)
        if args.word == "remove":
            _say("removed", job=args.name, path=remove(folder, args.name, now))
            return 0
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if args.word != "run":
        switch(folder, args.name, args.word == "enable")
        _say(f"{args.word}d", job=args.name)
        return 0
    if args.name not in {job.id for job in load_jobs(folder)[0]}:
        raise UsageError(f"there is no job {args.name} in {folder}")
    runs.append({"event": "wanted", "job": args.name, "at": round(now, 3)})
    if not runs.claimed():
        return reflect(["--reflect", "scheduler", "--job", args.name])
    _say("runs_next", job=args.name)
    return 0


def _parser() -> Parser:
    ga = paths.this_program()
    about = f"Jobs that are done at set times, as long as `{ga} --reflect scheduler` runs."
    parser = Parser(prog=f"{ga} schedule", description=about, epilog=EXAMPLE.format(ga=ga), allow_abbrev=False)
    sub = parser.add_subparsers(dest="word", metavar="WORD", title="words")
    sub.add_parser("list", help="the jobs, their next and last runs, and what could not be delivered")
    add = sub.add_parser("add", help="a new job, done from its next time on", epilog=EXAMPLE.format(ga=ga))
    add.add_argument("name", metavar="NAME", help="letters, digits, - and _")
    add.add_argument("prompt", metavar="PROMPT", help="what is to be done")
    add.add_argument(
        "--at", required=True, metavar="HH:MM", help="the time of day, local; of every_Nm and every_Nh one of the times"
    )
    add.add_argument(
        "--repeat", default="daily", metavar="HOW OFTEN",
        help="daily (default), weekday, weekly, monthly, once; or every_30m, every_2h, every_3d, with any number",
    )  # fmt: skip
    add.add_argument(
        "--max-delay-hours", type=float, default=6, metavar="N", help="later than that it counts as missed (default: 6)"
    )
    add.add_argument(
        "--origin", default="terminal", metavar="WHERE",
        help="where its result is shown: terminal (default, when the next chat starts), or a face's chat",
    )  # fmt: skip
    for word, about in WORDS.items():
        sub.add_parser(word, help=about).add_argument("name", metavar="NAME", help="as `list` shows it")
    return parser


def _add(runs: Runs, args: Any, now: float) -> int:
    folder = runs.file.parent
    fields = {
        "schedule": args.at,
        "repeat": args.repeat,
        "prompt": args.prompt,
        "max_delay_hours": args.max_delay_hours,
    }
    job, path = add_job(folder, args.name, {**fields, "origin": args.origin, "enabled": True}, now)
    when = next_run(job, marks_of(runs.read())[job.id], now)
    _say("added", job=job.id, often=_often(job), first=_minute(when), path=path)
    _warn_without_scheduler(runs)
    return 0


def _list() -> int:
    folder = paths.home() / "sche_tasks"
    runs, now = Runs(folder), time.time()
    jobs, problems = load_jobs(folder)
    marks = marks_of(runs.read())
    rows = [text("watchers", "list_head").split("|")] if jobs else []
    for job in jobs:
        mark = marks.get(job.id, Mark())
        when = next_run(job, mark, now)
        soon = _minute(when) or text("watchers", "never" if job.enabled else "off")
        rows.append([job.id, _often(job), soon, _last(mark.last), one_line(job.prompt, 100)])
    widths = [max(cells(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        padded = [cell + " " * (width - cells(cell)) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write(fitted("  ".join([*padded, row[4]]) + "\n", sys.stdout, "  "))
    sys.stderr.writelines(f"PROBLEM: {one_line(problem, 500)}\n" for problem in problems)
    for message in Outbox(paths.home() / "outbox").pending():
        if message["failures"]:
            why = message["failures"][-1].get("why")
            told = text("watchers", "not_delivered", origin=message["origin"], why=why, line=message["title"])
            sys.stderr.write(f"{one_line(told, 500)}\n")
    if not jobs and not problems:
        sys.stderr.write(text("watchers", "no_jobs") + "\n")
    _warn_without_scheduler(runs)
    return 0


def _often(job: Job) -> str:
    return f"{job.repeat} {job.hour:02}:{job.minute:02}"


def _minute(when: datetime | None) -> str:
    return f"{when:%Y-%m-%d %H:%M}" if when else ""


def _last(last: Mapping[str, Any]) -> str:
    """What became of its last run, and when."""
    if not last:
        return "-"
    try:
        when = time.strftime("%Y-%m-%d %H:%M ", time.localtime(last["at"]))
    except (KeyError, TypeError, ValueError, OverflowError, OSError):  # edited by hand
        when = ""
    return when + one_line(str(last.get("status") or last.get("event")), 20)


def _warn_without_scheduler(runs: Runs) -> None:
    if not runs.claimed():
        sys.stderr.write(text("watchers", "no_scheduler") + "\n")


def _say(key: str, **values: object) -> None:
    sys.stdout.write(fitted(one_line(text("watchers", key, **values), 1000) + "\n", sys.stdout))
