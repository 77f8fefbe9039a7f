"""When jobs are due, on a simulated clock: nothing is lost, nothing runs twice, and what is missed is written down."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from genericagent.errors import ConfigError, ToolError
from genericagent.schedule import Job, Mark, Record, Runs, add_job, load_jobs, marks_of, next_run, parse, tick

BERLIN = ZoneInfo("Europe/Berlin")


class World:
    """A scheduler on a clock of its own; what it writes down, and what the runs of each job were: job → local times."""

    def __init__(self, start: str, zone: Any = UTC) -> None:
        self.zone, self.jobs, self.records = zone, list[Job](), list[Record]()
        self.now = datetime.fromisoformat(start).replace(tzinfo=zone).timestamp()
        self.runs: dict[str, list[str]] = {}
        self._ids = map(str, itertools.count())

    def local(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, self.zone).replace(tzinfo=None)

    def add(self, id: str, schedule: str, repeat: str = "daily", **more: Any) -> None:
        self.jobs.append(parse(id, {"schedule": schedule, "repeat": repeat, "prompt": "do it", **more}))

    def tick(self, takes: Callable[[str], float] = lambda id: 0.0, crash: bool = False) -> str | None:
        """One check; a run takes so many seconds and ends, unless the process is killed in it. Returns the job."""
        marks = marks_of(json.loads(json.dumps(self.records)))
        self.records += tick(self.jobs, marks, self.now, lambda: next(self._ids), self.local)
        last = self.records[-1] if self.records else {}
        if last.get("event") != "begun" or last["at"] != round(self.now, 3):
            return None
        self.runs.setdefault(last["job"], []).append(f"{self.local(self.now):%m-%d %H:%M}")
        self.now += takes(last["job"])
        if not crash:
            self.records.append({"event": "ended", "job": last["job"], "run": last["run"], "at": self.now})
        return str(last["job"])

    def until(self, end: str, step: float = 60, **how: Any) -> None:
        stop = datetime.fromisoformat(end).replace(tzinfo=self.zone).timestamp()
        while self.now < stop:
            self.tick(**how)
            self.now += step

    def events(self, kind: str) -> Iterator[Record]:
        return (record for record in self.records if record["event"] == kind)

    def missed(self, job: str) -> int:
        return sum(record["count"] for record in self.events("missed") if record["job"] == job)


@pytest.mark.slow
def test_48_hours_with_midnight_sleep_overlap_and_kill_lose_nothing_and_double_nothing() -> None:  # C137
    world = World("2026-03-02T00:00:00")  # a Monday
    world.add("morning", "08:00", "weekday")
    world.add("night", "23:55")
    world.add("often", "00:00", "every_5m")
    world.add("once", "09:30", "once")
    world.add("short", "12:00", max_delay_hours=1)
    world.tick()
    slow = {"often": 300.0}  # as long as its period: the others have to come in between
    world.until("2026-03-02T11:00:00", takes=lambda id: slow.get(id, 0.0))
    world.now += 4 * 3600  # asleep from 11 to 15, over the slot of `short`
    world.until("2026-03-02T23:54:00")
    world.now += 4 * 60  # `night` comes late, over midnight nothing is
    world.until("2026-03-03T07:59:30")
    world.until("2026-03-03T08:01:00", crash=True)  # kill -9 in whatever runs at 8
    world.until("2026-03-04T00:00:00")
    assert [run[:10] for run in world.runs["morning"]] == ["03-02 08:0", "03-03 08:0"]
    assert world.runs["night"] == ["03-02 23:58", "03-03 23:55"]
    assert len(world.runs["once"]) == 1 and world.runs["once"][0].startswith("03-02 09:3")
    assert [run[:10] for run in world.runs["short"]] == ["03-03 12:0"] and world.missed("short") == 1
    slots = 2 * 24 * 12
    assert len(world.runs["often"]) + world.missed("often") == slots, "each slot has run or is written down as missed"
    assert world.missed("often") >= 4 * 12 - 1
    cut = [record["run"] for record in world.events("unknown")]
    assert cut and len(set(cut)) == len(cut), "each run that was cut off is told once"
    begun = [(r["job"], r["slot"]) for r in world.events("begun")]
    assert len(set(begun)) == len(begun), "no slot has begun twice"


def test_a_long_job_lets_the_one_due_inside_it_run_next() -> None:  # C137
    world = World("2026-03-02T10:00:00")
    world.add("a", "00:00", "every_5m")
    world.add("b", "10:12")
    world.records.append(
        {"event": "seen", "job": "b", "slot": "2026-03-02T10:00:00", "epoch": world.now, "at": world.now}
    )
    order = []
    while world.now < datetime(2026, 3, 2, 10, 40, tzinfo=UTC).timestamp():
        order.append(world.tick(takes=lambda id: 300.0))
        world.now += 1
    assert world.runs["b"] == ["03-02 10:15"]
    assert order.count("b") == 1 and order.count("a") >= 5


@pytest.mark.parametrize("asleep", [2, 5])
def test_what_was_slept_over_runs_late_or_is_written_down_as_missed(asleep: int) -> None:  # C137
    world = World("2026-03-02T22:00:00")
    world.add("job", "23:00", max_delay_hours=3)
    world.tick()
    world.now += (asleep + 1) * 3600
    world.tick()
    late = asleep <= 3
    assert (len(world.runs.get("job", [])), world.missed("job")) == ((1, 0) if late else (0, 1))
    world.until("2026-03-03T23:30:00")
    assert world.runs["job"][-1] == "03-03 23:00" and world.missed("job") == (0 if late else 1)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_a_skipped_or_repeated_hour_neither_loses_a_run_nor_doubles_it(day: str, hours: int) -> None:
    world = World(f"{day}T00:00:00", BERLIN)
    for minute in range(0, 60, 15):
        world.add(f"at{minute:02}", f"02:{minute:02}")
    world.add("hourly", "00:00", "every_1h")
    world.until(f"{day}T23:59:30")
    for minute in range(0, 60, 15):
        assert len(world.runs[f"at{minute:02}"]) == 1
    assert len(world.runs["hourly"]) == hours and not list(world.events("missed"))


@pytest.mark.slow
def test_a_clock_set_back_an_hour_runs_nothing_again_and_one_set_back_a_year_starts_anew() -> None:
    world = World("2026-03-02T08:30:00")
    world.add("daily", "08:30")
    world.add("often", "00:00", "every_10m")
    world.until("2026-03-02T08:31:00")
    world.now -= 3600
    world.until("2026-03-02T08:45:00")
    assert world.runs["daily"] == ["03-02 08:30"]
    world.now += 365 * 86400  # a battery that is empty
    world.tick()
    world.tick()
    world.now -= 364 * 86400
    world.until("2026-03-03T12:00:00")
    assert {record["job"] for record in world.events("reset")} == {"daily", "often"}
    before = len(world.runs["often"])
    world.until("2026-03-04T12:00:00")
    assert "03-04 08:30" in world.runs["daily"] and len(world.runs["often"]) - before == 24 * 6


@pytest.mark.parametrize(
    ("repeat", "expected"),
    [
        ("weekly", ["01-31", "02-07", "02-14", "02-21", "02-28", "03-07", "03-14", "03-21", "03-28"]),
        ("monthly", ["01-31", "02-28", "03-31"]),
        ("every_30d", ["01-31", "03-02"]),
        ("once", ["01-31"]),
    ],
)
def test_weeks_months_and_days_are_counted_from_the_first_run(repeat: str, expected: list[str]) -> None:
    world = World("2026-01-31T07:00:00")
    world.add("job", "08:00", repeat)
    world.records.append({"event": "seen", "job": "job", "slot": "2026-01-31T07:00:00", "epoch": world.now, "at": 0})
    world.until("2026-04-01T00:00:00", step=1800)
    assert [run[:5] for run in world.runs["job"]] == expected and not list(world.events("missed"))


def test_working_days_are_no_weekend() -> None:
    world = World("2026-03-02T00:00:00")
    world.add("job", "08:00", "weekday")
    world.until("2026-03-16T00:00:00", step=1800)
    assert [run[:5] for run in world.runs["job"]] == [f"03-{d:02}" for d in (2, 3, 4, 5, 6, 9, 10, 11, 12, 13)]


def test_a_job_that_is_new_runs_at_once_only_within_its_delay() -> None:
    for hour, runs in ((10, 1), (20, 0)):
        world = World(f"2026-03-02T{hour}:00:00")
        world.add("job", "08:00")
        world.tick()
        assert len(world.runs.get("job", [])) == runs and not list(world.events("missed"))


def test_a_disabled_job_runs_only_when_it_is_told_to_and_misses_nothing() -> None:
    world = World("2026-03-02T00:00:00")
    world.add("job", "08:00", enabled=False)
    world.until("2026-03-04T12:00:00", step=1800)
    assert not world.runs
    world.records.append({"event": "wanted", "job": "job", "at": world.now})
    world.until("2026-03-04T13:00:00")
    assert world.runs["job"] == ["03-04 12:00"]
    world.jobs = [replace(world.jobs[0], enabled=True)]
    world.until("2026-03-05T09:00:00")
    assert world.runs["job"] == ["03-04 12:00", "03-05 08:00"] and not list(world.events("missed"))


def test_a_run_that_is_wanted_is_beside_the_slots() -> None:
    world = World("2026-03-02T07:00:00")
    world.add("job", "08:00", "once")
    world.tick()
    world.records.append({"event": "seen", "job": "job", "slot": "2026-03-02T07:00:00", "epoch": world.now, "at": 0})
    world.records.append({"event": "wanted", "job": "job", "at": world.now})
    world.until("2026-03-03T12:00:00")
    assert world.runs["job"][-2:] == ["03-02 07:00", "03-02 08:00"]


BROKEN: list[Any] = [
    [], 3, None, {}, {"prompt": "x"}, {"schedule": "8", "prompt": "x"}, {"schedule": "24:00", "prompt": "x"},
    {"schedule": "08:00"}, {"schedule": "08:00", "prompt": " "}, {"schedule": "08:00", "prompt": "x", "repeat": "hourly"},
    {"schedule": "08:00", "prompt": "x", "repeat": "every_0h"}, {"schedule": "08:00", "prompt": "x", "enabled": "yes"},
    {"schedule": "08:00", "prompt": "x", "max_delay_hours": -1}, {"schedule": "08:00", "prompt": "x", "max_delay_hours": True},
    {"schedule": "08:00", "prompt": "x", "origin": 3}, {"schedule": "08:00", "prompt": "x", "repaet": "daily"},
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN)
def test_a_wrong_field_is_named(data: Any) -> None:
    with pytest.raises(ConfigError):
        parse("job", data)


def test_a_broken_file_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    good = {"schedule": "08:00", "prompt": "x"}
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "half.json").write_text('{"schedule": "08')
    (tmp_path / "latin.json").write_bytes(b'{"prompt": "\xff"}')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "wrong.json").write_text(json.dumps({**good, "repeat": "never"}))
    (tmp_path / "folder.json").mkdir()
    jobs, problems = load_jobs(tmp_path)
    assert [job.id for job in jobs] == ["good"] and len(problems) == 5
    assert all(
        sum(name in problem for problem in problems) == 1 for name in ("half", "latin", "deep", "wrong", "folder")
    )
    assert load_jobs(tmp_path / "missing") == ([], [])


def test_records_that_make_no_sense_are_left_out_and_half_a_line_hides_no_other(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.append({"event": "begun", "job": "a", "slot": "2026-03-02T08:00:00", "epoch": 1.0, "run": "r1", "at": 1})
    with runs.file.open("ab") as file:
        file.write(b'{"event": "ended", "jo')
    runs.append(
        {"event": "begun", "job": "b", "slot": "nonsense", "epoch": 1.0, "run": "r2", "at": 1}, {"event": "seen"}
    )
    marks = marks_of(runs.read())
    assert marks.keys() == {"a"} and marks["a"].open == "r1"


def test_a_long_record_is_begun_anew_and_nothing_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genericagent.schedule.LARGEST", 2000)
    world = World("2026-01-31T08:00:00")
    world.add("monthly", "08:00", "monthly")
    world.add("often", "00:00", "every_1h")
    runs = Runs(tmp_path)
    for _ in range(60):
        runs.append(
            *tick(world.jobs, marks_of(runs.read()), world.now, lambda: "r", world.local) or [{"event": "-", "at": 0}]
        )
        world.now += 3600
    assert runs.file.stat().st_size < 4000 and len(list(tmp_path.glob("runs-*.jsonl"))) >= 2
    marks = marks_of(runs.read())
    assert marks["monthly"].first and marks["monthly"].first.day == 31 and marks["often"].open == "r"


def test_one_odd_file_or_record_stops_no_other_job(tmp_path: Path) -> None:
    good = '{"schedule": "08:00", "repeat": "daily", "prompt": "x"}'
    for name in (".hidden", "x" * 115, "好" * 61, "good", "a b", "-x"):
        (tmp_path / f"{name}.json").write_text(good)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    jobs, problems = load_jobs(tmp_path)
    assert [job.id for job in jobs] == ["good"] and len(problems) == 7
    slot = {"event": "begun", "run": "r", "job": "good", "at": 1.0, "epoch": 1.0, "slot": "2026-01-01T08:00:00"}
    odd = [
        {**slot, "slot": "2026-01-01T08:00:00+02:00"},
        {**slot, "epoch": float("nan")},
        {**slot, "epoch": float("inf")},
        {**slot, "epoch": -1e300},
        {**slot, "epoch": 10**400},
        {**slot, "event": "sum", "first": 5},
    ]
    assert marks_of([*odd]).get("good", Mark()).slot is None


def wanted(runs: Runs, job: str, run: str, at: float) -> None:
    slot = {"slot": "2026-03-02T08:00:00", "epoch": 1.0}
    runs.append({"event": "wanted", "job": job, "at": at})
    runs.append({"event": "begun", "job": job, **slot, "wanted": True, "run": run, "at": at})


def test_records_that_are_begun_anew_twice_within_a_second_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genericagent.schedule.LARGEST", 2000)
    runs, written = Runs(tmp_path), list[Record]()
    for n in range(200):
        written.append(
            {"event": "begun", "job": "a", "slot": "2026-03-02T08:00:00", "epoch": 1.0, "run": str(n), "at": 7.0}
        )
        runs.append(written[-1])
    old = [json.loads(line) for path in tmp_path.glob("runs-*.jsonl") for line in path.read_text().splitlines()]
    kept = {record["run"] for record in [*old, *runs.read()] if record["event"] == "begun"}
    assert kept == {record["run"] for record in written}
    sizes = [path.stat().st_size for path in tmp_path.glob("runs-*.jsonl")]
    assert len(sizes) >= 5 and min(sizes) > 2000


def test_records_of_many_jobs_are_not_copied_at_each_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genericagent.schedule.LARGEST", 2000)
    runs = Runs(tmp_path)
    seen = [
        {"event": "seen", "job": f"job{n}", "slot": "2026-03-02T08:00:00", "epoch": 1.0, "at": 1.0} for n in range(100)
    ]
    runs.append(*seen)
    for n in range(100):
        wanted(runs, "job1", str(n), 2.0)
    copies = [path.stat().st_size for path in tmp_path.glob("runs-*.jsonl")]
    assert len(copies) <= 2 and marks_of(runs.read()).keys() == {f"job{n}" for n in range(100)}


def test_what_is_known_of_a_job_stands_in_the_new_record_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path)
    wanted(runs, "open", "r1", 1.0)
    wanted(runs, "both", "r2", 2.0)
    runs.append({"event": "wanted", "job": "both", "at": 3.0}, {"event": "off", "job": "off", "at": 3.0})
    slot = {"slot": "2026-01-31T08:00:00", "epoch": 5.0}
    runs.append({"event": "begun", "job": "monthly", **slot, "run": "r3", "at": 4.0})
    runs.append({"event": "ended", "job": "monthly", "run": "r3", "status": "done", "at": 5.0})
    before = marks_of(runs.read())
    monkeypatch.setattr("genericagent.schedule.LARGEST", 2000)
    while not list(tmp_path.glob("runs-*.jsonl")):
        runs.append({"event": "seen", "job": "x", **slot, "at": 6.0})
    after = marks_of(runs.read())
    assert {id: after[id] for id in before} == before
    assert before["open"].open == "r1" and before["both"].wanted and before["off"].off
    assert before["monthly"].last["status"] == "done" and before["monthly"].first


def test_records_stay_where_they_are_when_they_cannot_be_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise ToolError("No space left on device")

    monkeypatch.setattr("genericagent.schedule.LARGEST", 100)
    monkeypatch.setattr("genericagent.store.atomic.write_bytes", full)
    runs = Runs(tmp_path)
    for n in range(10):
        wanted(runs, "a", str(n), 1.0)
    assert len(runs.read()) == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "zone"), [("2026-01-30T07:10:00", UTC), ("2026-03-27T12:00:00", BERLIN), ("2026-10-24T12:00:00", BERLIN)]
)
def test_the_next_run_that_is_told_is_when_it_runs(start: str, zone: Any) -> None:
    world = World(start, zone)
    for repeat in ("daily", "weekday", "weekly", "monthly", "once", "every_90m", "every_5h", "every_3d"):
        world.add(repeat, "08:30", repeat)
        slot = {"slot": f"{world.local(world.now):%Y-%m-%dT%H:%M:%S}", "epoch": world.now, "at": world.now}
        world.records.append({"event": "seen", "job": repeat, **slot})
    promised, kept = dict[str, Any](), 0
    for _ in range(12 * 24 * 5):
        marks = marks_of(world.records)
        promised = {job.id: next_run(job, marks[job.id], world.now, world.local) for job in world.jobs}
        world.now += 300
        while id := world.tick():
            slot = next(r["slot"] for r in reversed(world.records) if r["event"] == "begun")
            assert promised[id] and slot == promised[id].isoformat(), id
            kept += 1
    assert kept > 100
    assert next_run(world.jobs[4], marks_of(world.records)["once"], world.now, world.local) is None


def test_what_runs_every_few_hours_keeps_to_its_time_of_day(tmp_path: Path) -> None:
    now = datetime(2026, 3, 2, 9, 28, 13).timestamp()
    fields = {"schedule": "09:00", "repeat": "every_2h", "prompt": "x"}
    job, _ = add_job(tmp_path, "often", fields, now)
    assert next_run(job, marks_of(Runs(tmp_path).read())["often"], now) == datetime(2026, 3, 2, 11)
    off = Mark(slot=datetime(2026, 3, 1, 9), epoch=now - 86_400, off=True)
    (seen,) = tick([job], {"often": off}, now, lambda: "r")
    assert seen["event"] == "seen" and next_run(job, marks_of([seen])["often"], now) == datetime(2026, 3, 2, 11)


def test_a_job_of_bytes_that_are_no_text_leaves_half_a_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no text"):
        add_job(tmp_path, "j", {"schedule": "09:00", "prompt": "caf\udce9"}, 1e9)
    assert not list(tmp_path.iterdir())


def test_a_disabled_job_has_no_next_run_but_one_that_is_wanted() -> None:
    job = parse("job", {"schedule": "08:00", "prompt": "x", "enabled": False})
    assert next_run(job, Mark(), 1e9) is None and next_run(job, Mark(wanted=True), 1e9)
    far = parse("job", {"schedule": "08:00", "prompt": "x", "repeat": "every_9999d"})
    first = datetime(2026, 3, 2, 8)
    mark = Mark(slot=first, epoch=first.timestamp(), first=first.date())
    assert next_run(far, mark, first.timestamp() + 60) == first + timedelta(days=9999)
