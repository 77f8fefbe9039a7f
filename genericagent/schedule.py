"""When a job is due: pure, but for the small part at the end that reads and writes files.

A slot is a moment at which a job should run. Days are counted on the local calendar, without zones: an hour that the
clocks skip or repeat neither loses a slot nor doubles it. Minutes and hours are counted in seconds since 1970.

    $GA_HOME/sche_tasks/NAME.json    {"schedule": "HH:MM", "repeat", "prompt", "enabled", "max_delay_hours", "origin"}
    $GA_HOME/sche_tasks/runs.jsonl   what became of each slot, append-only:
        {"event", "job", "at", "slot", "epoch", …}   `slot`: local time, `epoch`: seconds; the last one handled counts
        seen      the job is known from here on        begun, ended   a run ("run" is its id), `status` as in result.json
        missed    too late or overtaken, `count` slots unknown        begun by a process that has ended since
        reset     the clock was set back               off            the job is disabled
        wanted    `ga schedule run`                    sum            what an older file held
        told      of what stands before it there is a message; begun, missed, unknown and reset name the `origin`
        anew      added, or removed: what was before of a job of that name is forgotten
"""

from __future__ import annotations

import calendar
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .errors import ConfigError, SessionError, ToolError
from .store import atomic, lines
from .store.journal import new_id
from .store.lock import FileLock

Record = dict[str, Any]
Local = Callable[[float], datetime]  # seconds since 1970 → local time without a zone
REPEATS = ("daily", "weekday", "weekly", "monthly", "once")
FIELDS = ("schedule", "repeat", "prompt", "enabled", "max_delay_hours", "origin")
SET_BACK = timedelta(hours=25)  # further ahead than that no handled slot can lie, but for a clock that was wrong
MOST = 1000  # missed slots that are counted
LARGEST = 1 << 20  # bytes of runs.jsonl; then a new one is begun
NEWS = {"missed": ("slot", "count", "since"), "unknown": ("run",), "reset": ("slot",)}  # what is told, and its fields
FARTHEST = 1e11  # seconds since 1970
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Job:
    """`every`: seconds between two runs, for minutes and hours; `days`: days between them. `max_delay`: seconds."""

    id: str
    prompt: str
    hour: int
    minute: int
    repeat: str
    every: int = 0
    days: int = 0
    enabled: bool = True
    max_delay: float = 6 * 3600.0
    origin: str = "terminal"


class Mark(NamedTuple):
    """What is known of a job: its last handled slot, the day of its first run, the run that has no end, whether the
    user wants one now, whether it was seen disabled."""

    slot: datetime | None = None
    epoch: float = 0.0
    first: date | None = None
    open: str = ""
    wanted: bool = False
    off: bool = False
    last: Mapping[str, Any] = {}  # what became of its last slot, for lists
    origin: str = ""  # where the result of the open run goes, whatever becomes of the job


def parse(id: str, data: Any) -> Job:
    """The job in a file's JSON. Raises ConfigError that says what is wrong with it."""
    if not isinstance(data, Mapping):
        raise ConfigError("it is no JSON object")
    if unknown := [key for key in data if key not in FIELDS]:
        raise ConfigError(f"unknown field {unknown[0]!r} (there are {', '.join(FIELDS)})")
    prompt, enabled, delay = data.get("prompt"), data.get("enabled", True), data.get("max_delay_hours", 6)
    if not isinstance(prompt, str) or not prompt.strip():
        raise ConfigError("prompt must be a text")
    if not isinstance(enabled, bool):
        raise ConfigError("enabled must be true or false")
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 < delay <= 8784:
        raise ConfigError("max_delay_hours must be a number of hours, more than 0")
    origin = data.get("origin", "terminal")
    if not isinstance(origin, str) or not origin.strip():
        raise ConfigError("origin must be a text")
    at = re.fullmatch(r"(\d{1,2}):(\d\d)", str(data.get("schedule")))
    if not at or int(at[1]) > 23 or int(at[2]) > 59:
        raise ConfigError('schedule (--at) must be a time of day, "HH:MM"')
    job = Job(id, prompt, int(at[1]), int(at[2]), "", 0, 0, enabled, delay * 3600.0, origin)
    repeat = data.get("repeat", "daily")
    every = re.fullmatch(r"every_(\d{1,4})([mhd])", str(repeat))
    if repeat in REPEATS:
        return replace(job, repeat=repeat)
    if not every or not int(every[1]):
        raise ConfigError(f"repeat must be {', '.join(REPEATS)}, every_Nm, every_Nh or every_Nd")
    count = int(every[1])
    return replace(job, repeat=repeat, every={"m": 60, "h": 3600, "d": 0}[every[2]] * count, days=count)


def marks_of(records: Iterable[Record]) -> dict[str, Mark]:
    """What is known of each job, from runs.jsonl. Records that make no sense are left out, and told to the log."""
    marks: dict[str, Mark] = {}
    for record in records:
        if record.get("event") == "told":
            continue
        try:
            job, event = str(record["job"]), str(record["event"])
            mark = _after(marks.get(job, Mark()), event, record)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            _left_out(str(record)[:200], repr(error))
            continue
        marks[job] = mark._replace(last=record) if event in ("begun", "ended", "missed", "unknown") else mark
    return marks


@lru_cache(1000)  # said once: the records are read at each look
def _left_out(record: str, why: str) -> None:
    logging.getLogger("genericagent.schedule").warning("a record of runs.jsonl is left out (%s): %s", why, record)


def _after(mark: Mark, event: str, record: Record) -> Mark:
    if event in ("ended", "unknown"):
        return mark._replace(open="")
    if event in ("off", "wanted"):
        return mark._replace(off=True) if event == "off" else mark._replace(wanted=True)
    if event == "anew":
        return Mark(open=mark.open, origin=mark.origin)
    if event == "sum":
        first, last = record.get("first"), record.get("last")
        mark = Mark(
            first=date.fromisoformat(first) if first else None, open=str(record.get("open") or ""),
            off=record.get("off") is True, wanted=record.get("wanted") is True,
            origin=str(record.get("origin") or ""), last=last if isinstance(last, dict) else {},
        )  # fmt: skip
        if not record.get("slot"):
            return mark
    if event == "begun":
        mark = mark._replace(origin=str(record.get("origin") or ""))
    if event == "begun" and record.get("wanted"):  # beside its slots
        return mark._replace(open=str(record["run"]), wanted=False)
    slot, since = datetime.fromisoformat(record["slot"]), str(record.get("since") or record["slot"])
    epoch = float(record["epoch"])
    if slot.tzinfo or not abs(epoch) < FARTHEST:
        raise ValueError(record)
    mark = mark._replace(slot=slot, epoch=epoch, off=event == "sum" and mark.off)
    if event in ("begun", "missed"):
        mark = mark._replace(first=mark.first or datetime.fromisoformat(since).date())
    return mark._replace(open=str(record["run"])) if event == "begun" else mark


def tick(
    jobs: Sequence[Job], marks: Mapping[str, Mark], now: float, new_id: Callable[[], str], local: Local = datetime.fromtimestamp
) -> list[Record]:  # fmt: skip
    """What is to be written down now; a last record "begun" names the run to start: of the due ones the oldest.

    No run may be under way: one that has no end was cut off, and is not repeated by itself.
    """
    origins = {job.id: job.origin for job in jobs}
    cut_off = ((id, mark) for id, mark in marks.items() if mark.open)
    records: list[Record] = [
        {"event": "unknown", "job": id, "run": mark.open, "origin": mark.origin or origins.get(id, "terminal")}
        for id, mark in cut_off
    ]
    due = list[tuple[float, str, Record]]()
    for job in jobs:
        mark = marks.get(job.id, Mark())
        if mark.wanted:
            due.append((0.0, job.id, {"job": job.id, **_slot(local(now), now), "wanted": True}))
        elif not job.enabled:
            records += [] if mark.off else [{"event": "off", "job": job.id}]
        elif mark.off:
            records.append({"event": "seen", "job": job.id, **_handled(job, now, local)})
        else:
            more, slot = _look(job, mark, now, local)
            records += [{**record, "origin": job.origin} for record in more]
            due += [(slot["epoch"], job.id, {"job": job.id, **slot})] if slot else []
    if due:
        _, id, slot = min(due)
        records.append({"event": "begun", **slot, "run": new_id(), "origin": origins[id]})
    return [{**record, "at": round(now, 3)} for record in records]


def untold(records: Sequence[Record]) -> list[Record]:
    """What the user has not been told of yet. Records that make no sense are left out."""
    found = list[Record]()
    for record in records:
        if (event := str(record.get("event"))) == "told":
            found.clear()
        elif event in NEWS and all(key in record for key in ("job", "origin", *NEWS[event])):
            found.append(record)
    return found


def _look(job: Job, mark: Mark, now: float, local: Local) -> tuple[list[Record], Record | None]:
    """(what is to be written down of a job, the slot that is due)."""
    if mark.slot and (mark.epoch > now + job.every if job.every else mark.slot > local(now) + SET_BACK):
        return [{"event": "reset", "job": job.id, **_handled(job, now, local)}], None
    slots = _by_seconds(job, mark, now, local) if job.every else _by_days(job, mark, now, local)
    if not slots:
        return [] if mark.slot else [{"event": "seen", "job": job.id, **_slot(local(now), now)}], None
    oldest, before, newest = slots[0], slots[-2:][0], slots[-1]
    on_time = now - newest[1] <= job.max_delay
    if mark.slot is None:  # what was before is nothing that it has missed
        return ([], _slot(*newest)) if on_time else ([{"event": "seen", "job": job.id, **_slot(*newest)}], None)
    count = len(slots) - on_time
    last = before if on_time else newest
    told = {"event": "missed", "job": job.id, **_slot(*last), "count": count, "since": oldest[0].isoformat()}
    return [told] if count else [], _slot(*newest) if on_time else None


def next_run(job: Job, mark: Mark, now: float, local: Local = datetime.fromtimestamp) -> datetime | None:
    """When it runs next: now at the earliest; None: not by itself any more."""
    here = local(now).replace(microsecond=0)
    if mark.wanted:
        return here
    if not job.enabled:
        return None
    if _look(job, mark, now, local)[1]:
        return here
    if job.every:
        past = int((now - mark.epoch) // job.every) if mark.slot else 0
        base = mark.epoch if mark.slot else _by_seconds(job, mark, now, local)[-1][1]
        return local(base + max(1, past + 1) * job.every)
    if job.repeat == "once" and mark.first:
        return None
    days = (here.date() + ahead * _DAY for ahead in range(max(job.days, 32) + 1))
    ats = (
        datetime(day.year, day.month, day.day, job.hour, job.minute) for day in days if _falls_on(job, day, mark.first)
    )
    return next((at for at in ats if at > here and (mark.slot is None or at > mark.slot)), None)


Slots = Sequence[tuple[datetime, float]]  # the open ones, oldest first, as local time and as seconds


def _by_seconds(job: Job, mark: Mark, now: float, local: Local) -> Slots:
    base, first = mark.epoch, 1
    if mark.slot is None:  # the phase is that of the time of day
        today = local(now)
        start = today.replace(hour=job.hour, minute=job.minute, second=0, microsecond=0)
        base = now - (today - start).total_seconds() % 86400
        first = int((now - base) // job.every)
    newest = int((now - base) // job.every)
    times = range(max(first, newest - MOST), newest + 1)
    return [(local(base + step * job.every), base + step * job.every) for step in times]


def _by_days(job: Job, mark: Mark, now: float, local: Local) -> Slots:
    """Weeks, months and days are counted from the first run. A job that is new has at most the slot of today."""
    here, first, found = local(now), mark.first, list[datetime]()
    if job.repeat == "once" and first:
        return []
    day = max(mark.slot.date() if mark.slot else here.date(), here.date() - MOST * _DAY)
    while day <= here.date():
        at = datetime(day.year, day.month, day.day, job.hour, job.minute)
        if at <= here and (mark.slot is None or at > mark.slot) and _falls_on(job, day, first):
            found.append(at)
            first = first or day
            if job.repeat == "once":
                break
        day += _DAY
    return [(at, now - (here - at).total_seconds()) for at in found]


def _falls_on(job: Job, day: date, first: date | None) -> bool:
    if job.repeat == "weekday":
        return day.weekday() < 5
    if first is None or not (job.days or job.repeat in ("weekly", "monthly")):
        return True
    if job.repeat == "monthly":
        return day.day == min(first.day, calendar.monthrange(day.year, day.month)[1])
    return (day - first).days % (job.days or 7) == 0


def _slot(at: datetime, epoch: float) -> Record:
    return {"slot": at.isoformat(timespec="seconds"), "epoch": round(epoch, 3)}


def _handled(job: Job, now: float, local: Local) -> Record:
    """The fields that say: what was up to now is handled. Minutes and hours keep the phase of the time of day."""
    return _slot(*_by_seconds(job, Mark(), now, local)[-1]) if job.every else _slot(local(now), now)


# files


def load_jobs(folder: Path) -> tuple[list[Job], list[str]]:
    """(the jobs, a line for each file that is none); both empty when there is no folder."""
    jobs, problems = list[Job](), list[str]()
    for path in sorted(folder.glob("*.json")):
        try:
            _check_name(path.stem)
            jobs.append(parse(path.stem, _read(path)))
        except (ConfigError, ValueError, RecursionError) as error:
            problems.append(f"{path}: {error}")
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
    return jobs, problems


def _read(path: Path) -> Any:
    """Raises OSError, also for a pipe; ValueError; RecursionError."""
    with os.fdopen(lines.opened(path, os.O_RDONLY), encoding="utf-8-sig") as file:
        return json.load(file)


@cache  # of this process, however many schedulers it has
def _claim_of(folder: Path) -> FileLock:
    return FileLock(folder / ".scheduler.lock")


class Runs:
    """runs.jsonl, under a lock that `ga schedule` and the scheduler share. Raises SessionError."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "runs.jsonl"

    def claim(self) -> None:
        """From here until it ends this process alone begins runs, whatever its script is called. Raises SessionError
        when another one does: what it has begun would be taken for cut off, and what is due would run twice."""
        lock = _claim_of(self.file.parent)
        try:
            taken = lock.acquire()
        except OSError as error:
            raise SessionError(f"cannot lock {lock.path}: {error.strerror or error}") from error
        if not taken:
            pid = (lock.holder() or {}).get("pid", "unknown")
            raise SessionError(f"the jobs in {lock.path.parent} are run by another scheduler already (process {pid})")

    def claimed(self) -> bool:
        """Whether some process begins runs."""
        lock = FileLock(_claim_of(self.file.parent).path)
        if free := not lock.path.exists() or lock.acquire():
            lock.release()
        return not free

    def read(self) -> list[Record]:
        try:
            return lines.read(self.file)
        except OSError as error:
            raise SessionError(f"cannot read {self.file}: {error.strerror or error}") from error

    def append(self, *records: Record) -> None:
        if any(record.get("event") in ("begun", "unknown") for record in records):
            self.claim()
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.file.parent / ".lock"):
                if self.file.exists() and self.file.stat().st_size > LARGEST:  # of that all is told
                    self._begin_anew(records[-1]["at"])
                lines.append(self.file, *records, sync=True)
        except OSError as error:
            raise SessionError(f"cannot write {self.file}: {error.strerror or error}") from error

    def _begin_anew(self, now: float) -> None:
        """The old file is copied aside, and what it comes to stands in the new one; unless that is not much shorter."""
        old, sums = self.file.read_bytes(), list[Record]()
        for job, mark in marks_of(self.read()).items():
            known = {
                "first": mark.first and mark.first.isoformat(),
                "open": mark.open,
                "last": mark.last,
                "origin": mark.open and mark.origin,
            }
            slot = _slot(mark.slot, mark.epoch) if mark.slot else {}
            sums.append(
                {"event": "sum", "job": job, "at": now, **slot, **known, "off": mark.off, "wanted": mark.wanted}
            )
        text = "".join(json.dumps({k: v for k, v in record.items() if v}) + "\n" for record in sums).encode()
        if len(text) > len(old) / 2:
            return
        try:
            atomic.write_bytes(self.file.with_name(f"runs-{new_id(now)}.jsonl"), old, mode=0o600)
            atomic.write_bytes(self.file, text, mode=0o600)
        except ToolError as error:  # what was to be written down is: tried again with the next
            logging.getLogger("genericagent.schedule").warning("runs.jsonl is not begun anew: %s", error)


def add_job(folder: Path, id: str, fields: Mapping[str, Any], now: float) -> tuple[Job, Path]:
    """Write a new job, which runs from its next time on: (the job, its file). Raises ConfigError when it is none,
    SessionError when there is one of that name."""
    _check_name(id)
    job, path = parse(id, fields), folder / f"{id}.json"
    if os.path.lexists(path):
        raise SessionError(f"there is a job {id} already: {path}")
    try:
        data = (json.dumps(fields, ensure_ascii=False, indent=1) + "\n").encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the job {id} holds what is no text (UTF-8)") from None
    at = round(now, 3)
    seen = {"event": "seen", "job": id, "at": at, **_handled(job, now, datetime.fromtimestamp)}
    Runs(folder).append({"event": "anew", "job": id, "at": at}, seen)  # there may have been one of that name
    try:
        atomic.write_new(path, data, 0o600)
    except FileExistsError:
        raise SessionError(f"there is a job {id} already: {path}") from None
    except OSError:
        path.unlink(missing_ok=True)  # half of it would be no job
        raise
    return job, path


def remove(folder: Path, id: str, now: float) -> Path:
    """Move a job's file into the folder trash, and return where it is. Raises SessionError, ConfigError."""
    _check_name(id)
    path, aside = folder / f"{id}.json", folder / "trash" / f"{id}-{new_id(now)}.json"
    if not os.path.lexists(path):
        raise SessionError(f"there is no job {id} in {folder}")
    aside.parent.mkdir(mode=0o700, exist_ok=True)
    path.rename(aside)
    Runs(folder).append({"event": "anew", "job": id, "at": round(now, 3)})
    return aside


def _check_name(id: str) -> None:
    """It becomes a part of file names. Raises ConfigError."""
    if not re.fullmatch(r"[^\W_][\w.-]{0,60}", id) or len(os.fsencode(id)) > 100:
        raise ConfigError(f"{id!r} is not a name for a job: at most 60 letters, digits, - and _")


def switch(folder: Path, id: str, enabled: bool) -> None:
    """Turn a job on or off; the rest of its file stays. Raises SessionError."""
    path = folder / f"{id}.json"
    try:
        _check_name(id)
        data = _read(path)
        parse(id, data)
        atomic.write_text(path, json.dumps({**data, "enabled": enabled}, ensure_ascii=False, indent=1) + "\n")
    except FileNotFoundError:
        raise SessionError(f"there is no job {id} in {folder}") from None
    except (OSError, ValueError, RecursionError, ConfigError, ToolError) as error:
        raise SessionError(f"{path}: {error}") from None
