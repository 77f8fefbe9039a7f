"""What calls have started and what of it still lives: found by process group, by session, and, on Linux, by two marks that
children inherit, so that it is found also when it has left both: a variable, and a number that only `env -i` and the like
leave alone, the hard limit of the size of files (no program minds how much larger than any disk it is)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ToolError
from ..store import atomic

GRACE = 0.4  # seconds between TERM and KILL
MARK = "GA_CALL"  # in the environment of all that a call starts: the marks of that call and those around it
WINDOWS = os.name == "nt"
LINUX = sys.platform == "linux"


@dataclass
class Job:
    """What a call started: the group's id, the mark in the environment, the script's first line.

    `own`: the group's id is ours. Once the group has ended the id may be somebody else's. `size`: the mark among the
    limits in bytes, 0 for none. `born`: clock ticks from the system's start to the child's. `boxed`: the group is the
    sandbox around the script, which ends all at once and so gets no TERM. `keep`: it may outlive this program.
    """

    group: int
    mark: str
    title: str
    own: bool = True
    size: int = 0
    born: int = 0
    boxed: bool = False
    kept: bool = False
    log: Path | None = None  # where what it prints goes
    release: Callable[[], None] = lambda: None  # what it prints is read by somebody else from here on


_jobs: dict[int, Job] = {}  # of calls that are over, by group
_lock = threading.Lock()


def background() -> dict[int, str]:
    """What is still running after its call: process group → first line of the script."""
    return {job.group: job.title for job in _background()}


def _background() -> list[Job]:
    with _lock:
        known = list(_jobs.values())
    found = {member.job.group for member in living(known)}
    with _lock:
        for job in known:
            if job.group not in found and _jobs.get(job.group) is job:
                del _jobs[job.group]
    return [job for job in known if job.group in found]


def output(group: int, lines: int = 20) -> str:
    """The last lines of what it has printed since its call was over, as they are. Raises ToolError."""
    with _lock:
        log = _jobs[group].log if group in _jobs else None
    try:
        text = atomic.read_own(log).decode("utf-8", "replace") if log else ""
    except FileNotFoundError:  # nothing was printed
        text = ""
    except OSError as error:
        raise ToolError(f"cannot read {log}: {error.strerror or error}") from None
    return "\n".join(text.splitlines()[-lines:])


def is_kept(group: int) -> bool:
    return group in _jobs and _jobs[group].kept


def keep(group: int) -> bool:
    """What runs in the background as that group is not ended at exit. Returns whether there is such a group."""
    jobs = [job for job in _background() if job.group == group]
    for job in jobs:
        job.kept = True
    return bool(jobs)


def kill_background(groups: Collection[int] | None = None) -> dict[int, str]:
    """End those groups, or, at exit, all that is not kept: TERM, then KILL. Returns what was ended, group → title."""
    jobs, kept = list[Job](), list[Job]()
    for job in _background():
        (kept if groups is None and job.kept else jobs).append(job)
    if groups is None:
        for job in kept:
            job.release()
    else:
        jobs = [job for job in jobs if job.group in groups]
    end(jobs)
    return {job.group: job.title for job in jobs}


def remember(job: Job) -> None:
    """The call is over; what it left behind is in the background from here on."""
    job.own = exists(job.group)
    with _lock:
        _jobs[job.group] = job
        many = len(_jobs) > 100
    if many:
        background()  # forgets what has ended


@dataclass(frozen=True)
class _Member:
    """A living process of a job."""

    pid: int
    group: int
    job: Job
    parent: int = 0


def end(jobs: list[Job], child: subprocess.Popen[bytes] | None = None) -> None:
    """TERM, a short time for a clean end, then KILL to what is left and to what is born meanwhile."""
    if WINDOWS:  # there is no TERM for a tree of processes
        for job in jobs:
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(job.group)], capture_output=True, check=False)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, sent = time.monotonic() + GRACE, False
        while (members := _surely(jobs)) and time.monotonic() < deadline:
            if not sent or number == signal.SIGKILL:
                _signal(
                    [m for m in members if number == signal.SIGKILL or not (m.job.boxed and m.group == m.job.group)],
                    number,
                )
            sent = True
            time.sleep(0.01)
            if child is not None and not LINUX:
                child.poll()  # without /proc a defunct child counts as living
        if not members:
            break
    for job in jobs:  # who forks on and on can be missed by a look at /proc, not by this
        if job.own:
            _signal([_Member(job.group, job.group, job)], signal.SIGKILL)


def _surely(jobs: list[Job]) -> list[_Member]:
    """The living ones; one who was born during the first look is seen by the second."""
    return list(living(jobs)) or list(living(jobs))


def _signal(members: list[_Member], number: int) -> None:
    groups = {m.job.group for m in members if m.group == m.job.group}
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile
            os.killpg(group, number)
    for member in _parents_first(members):
        if member.group not in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the same
                os.kill(member.pid, number)


def _parents_first(members: list[_Member]) -> list[_Member]:
    """A shell whose command ends before itself would go on with the next one. (Numbers start anew at 32,768.)"""
    parent_of = {member.pid: member.parent for member in members}

    def depth(pid: int) -> int:
        above = 0
        while (pid := parent_of.get(pid, 0)) and above < len(parent_of):
            above += 1
        return above

    return sorted(members, key=lambda member: depth(member.pid))


def exists(group: int) -> bool:
    if WINDOWS:
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # there is one, of another user
        return True
    return True


def living(jobs: Sequence[Job], since: int = 0) -> Iterator[_Member]:
    """The living (not defunct) processes of the jobs, on Linux also those that left the group.

    `since`: only those with a higher id, where a quick look is enough.
    """
    if not jobs:
        return
    if not LINUX:
        yield from (_Member(job.group, job.group, job) for job in jobs if job.own and exists(job.group))
        return
    groups = {job.group: job for job in jobs if job.own}
    marks: dict[bytes | int, Job] = {job.mark.encode(): job for job in jobs}
    marks |= {job.size: job for job in jobs if job.size}
    born = min(job.born for job in jobs)
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (pid := int(entry.name)) > since and pid != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
                if found := _member(pid, groups, marks, born):
                    yield found


def _member(pid: int, groups: Mapping[int, Job], marks: Mapping[bytes | int, Job], born: int) -> _Member | None:
    """See proc(5): after the name come state, parent, process group, session, and as the 20th the start in clock ticks."""
    fields = _proc(pid, "stat").rpartition(b")")[2].split()
    if fields[0] in b"ZX" or int(fields[19]) < born:
        return None
    group, session = int(fields[2]), int(fields[3])
    job = groups.get(group) or groups.get(session)
    if job is None:
        with contextlib.suppress(PermissionError):  # a set-uid program, or one of somebody else
            for mark in re.findall(rb"(?:^|\0)%s=([^\0]*)" % MARK.encode(), _proc(pid, "environ")):
                job = job or next((marks[m] for m in mark.split(b":") if m in marks), None)
    if job is None and (size := re.search(rb"Max file size +\w+ +(\d+)", _proc(pid, "limits"))):
        job = marks.get(int(size[1]))
    return _Member(pid, group, job, parent=int(fields[1])) if job else None


def started(pid: int) -> int:
    """When a process was started, in clock ticks since the system was; 0 where that is not known."""
    try:
        return int(_proc(pid, "stat").rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _proc(pid: int, what: str) -> bytes:
    """A file of proc(5), without the cost of a Path: there may be thousands."""
    file = os.open(f"/proc/{pid}/{what}", os.O_RDONLY)
    try:
        return os.read(file, 1 << 17)
    finally:
        os.close(file)
