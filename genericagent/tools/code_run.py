"""Runs a script as a process group of its own and gives back what it printed, as it prints and at the end.

No polling: a thread reads the pipe, another waits for the child's end, and both, like a stop, wake the caller through
one queue. Output beyond the limit goes to a file; head and tail stay in memory. What the script left in the background
keeps a reader, so that it neither blocks nor breaks when it prints. A mark in the environment finds what left the group.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from ..abort import Abort
from ..errors import ToolError
from .text import decode, smart_format, strip_controls, unfinished

GRACE = 0.4  # seconds between TERM and KILL
DRAIN = 0.02  # seconds of silence after which a finished child's pipe is held by somebody in the background
SHOWN = 20_000  # characters of progress that a face gets to see
LINE = 4096  # bytes without a line end that wait for one before they are shown
READ = 1 << 16
QUEUED = 256  # reads that may wait for the caller, so that a slow screen does not hold up the script
MIN_TIMEOUT, MAX_TIMEOUT = 1, 600
ARGUMENT = 100_000  # bytes of script that are handed over as an argument; Linux takes 128 KiB
SPOOLED = 64 << 20  # bytes of output that the file of a call holds at most
BACKGROUND_LOG = 10 << 20  # bytes of later output that are kept of what runs in the background
STALE = 7 * 86400  # seconds after which an output file is removed
SHORT = 8  # characters; a shorter key is a word that may stand in any variable, like "ollama" in PATH
MARK = "GA_CALL"  # in the environment of all that a call starts: the marks of that call and those around it
WINDOWS = os.name == "nt"
LINUX = sys.platform == "linux"

# Runs a python script from its file: memory and the working directory become importable, last, so that they can shadow
# nothing, and a traceback begins with the script's own frames. Nothing of this is left in the script's names.
_PROLOGUE = """__file__ = {script!r}
def _start(script, path):
    import sys
    sys.path[:] = [p for p in sys.path if p] + path
    sys.argv = [script]
    def hook(kind, error, trace, show=sys.__excepthook__):
        while trace and trace.tb_frame.f_code.co_filename == "<string>":
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)
    sys.excepthook = hook
    del globals()["_start"]
    with open(script, encoding="utf-8-sig") as file:
        return compile(file.read(), script, "exec", dont_inherit=True)
exec(_start(__file__, {path!r}))
"""

_SECRET_NAME = re.compile(
    r"(?i)(^|_)(API_?KEYS?|AUTH_TOKEN|BOT_TOKEN)(_?\d+)?$"
    r"|^(ANTHROPIC|OPENAI|DEEPSEEK|MOONSHOT|KIMI|ZHIPU|ZAI|GLM|DASHSCOPE|QWEN|MINIMAX|GEMINI|OPENROUTER|GROQ|MISTRAL"
    r"|XAI|TOGETHER|FIREWORKS|PERPLEXITY|CEREBRAS|COHERE|HUGGINGFACE|HF|TELEGRAM)_(.*_)?(API)?(KEYS?|TOKEN|SECRET)(_.*|\d+)?$"
)


def child_env(
    environ: Mapping[str, str], secrets: Collection[str] = (), keep: Collection[str] = ()
) -> dict[str, str]:
    """The environment for a child: without provider and bot keys.

    Left out: names that end in API_KEY, AUTH_TOKEN or BOT_TOKEN, key variables of known providers, and every variable
    whose value holds one of `secrets` (is one, if that is shorter than SHORT). `keep` names exceptions by the user. All
    else (PATH, HOME, GITHUB_TOKEN) stays.
    """

    def secret(value: str) -> bool:
        return any(s and (s == value or (len(s) >= SHORT and s in value)) for s in secrets)

    return {
        name: value
        for name, value in environ.items()
        if name in keep or not (_SECRET_NAME.search(name) or secret(value))
    }


@dataclass
class _Job:
    """What a call started: the group's id, the mark in the environment, the script's first line."""

    group: int
    mark: str
    title: str
    own: bool = (
        True  # the group's id is ours; false once the group has ended, since the id may be somebody's then
    )


_jobs: dict[int, _Job] = {}  # of calls that are over, by group
_jobs_lock = threading.Lock()


def background() -> dict[int, str]:
    """What is still running after its call: process group → first line of the script."""
    return {job.group: job.title for job in _background()}


def _background() -> list[_Job]:
    with _jobs_lock:
        known = list(_jobs.values())
    found = {member.job.group for member in _living(known)}
    with _jobs_lock:
        for job in known:
            if job.group not in found and _jobs.get(job.group) is job:
                del _jobs[job.group]
    return [job for job in known if job.group in found]


def kill_background() -> list[int]:
    """End all that runs in the background: TERM, then KILL. Returns the groups that were ended."""
    jobs = _background()
    _end(jobs)
    return [job.group for job in jobs]


def clean_spool(folder: Path, now: float) -> None:
    """Remove what earlier calls spooled there more than a week ago."""
    for pattern in ("output-*.txt", "background-*.log", "run-*.py", "run-*.sh"):
        for file in folder.glob(pattern):
            with contextlib.suppress(OSError):  # another process may be cleaning too
                if now - file.stat().st_mtime > STALE:
                    file.unlink()


def code_run(
    script: str,
    code_type: str = "python",
    timeout: float = 60,
    cwd: Path | str | None = None,
    *,
    stop: Abort | None = None,
    env: Mapping[str, str] | None = None,
    limit: int = 10_000,
    spool_dir: Path | None = None,
    python_path: Sequence[Path] = (),
) -> Generator[str, None, dict[str, Any]]:
    """Run `script`; yields its output as it comes, several lines of one read together.

    Returns {"status": "success"|"error"|"timeout"|"stopped", "exit_code": int|None, "stdout": at most `limit`
    characters, "output_file": where the whole text is, if it was longer, "note": what else is to know}.
    `timeout` in seconds, 1 to 600. Raises ToolError when nothing could be started.
    """
    if not script.strip():
        raise ToolError("the script is empty")
    if "\0" in script or any("\ud800" <= c <= "\udfff" for c in script):
        raise ToolError("the script holds a NUL or half a surrogate pair and cannot be run")
    folder = Path(cwd) if cwd is not None else Path.cwd()
    if not folder.is_dir():
        raise ToolError(f"the working directory {folder} does not exist")
    if stop is not None and stop.is_set():
        return {"status": "stopped", "exit_code": None, "stdout": "", "note": "stopped by user"}
    notes = []
    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:
        timeout = min(max(MIN_TIMEOUT, timeout), MAX_TIMEOUT)  # in this order NaN becomes the smallest
        notes.append(f"the timeout was set to {timeout:g} s (allowed: {MIN_TIMEOUT} to {MAX_TIMEOUT})")
    spool = spool_dir or Path.cwd()
    with _script_file(script, code_type, spool) as file:
        run = _Run(
            _command(script, code_type, file, [*python_path, folder]), folder, env, limit, spool, script
        )
        try:
            status = yield from run.follow(timeout, stop)
        finally:
            run.close()
    return run.result(status, timeout, notes, code_type)


def _kind(code_type: str) -> str:
    kind = {"sh": "bash", "shell": "bash", "py": "python"}.get(code_type, code_type)
    shell = "powershell" if WINDOWS else "bash"
    if kind not in ("python", shell):
        raise ToolError(f"unknown type {code_type!r}; use python or {shell}")
    return kind


@contextlib.contextmanager
def _script_file(script: str, code_type: str, spool: Path) -> Iterator[Path | None]:
    """A file with the script, where one is needed: for python, and for what is too long for an argument."""
    kind, data = _kind(code_type), script.encode()
    if kind == "bash":
        data = data.replace(b"\r\n", b"\n")  # bash takes the \r for a part of the last word
    file = spool / f"run-{uuid.uuid4().hex[:8]}{'.py' if kind == 'python' else '.sh'}"
    try:
        spool.mkdir(parents=True, exist_ok=True)
        if kind == "python" or (kind == "bash" and len(data) > ARGUMENT):
            file.write_bytes(data)
    except OSError as error:
        file.unlink(missing_ok=True) if spool.is_dir() else None
        raise ToolError(f"cannot write to {spool}: {error.strerror or error}") from error
    try:
        yield file if file.exists() else None
    finally:
        file.unlink(missing_ok=True)


def _command(script: str, code_type: str, file: Path | None, path: Sequence[Path]) -> list[str]:
    kind = _kind(code_type)
    if kind == "python":
        start = _PROLOGUE.format(path=[str(p) for p in path], script=str(file))
        return [sys.executable, "-X", "utf8", "-u", "-c", start]
    if kind == "powershell":
        return ["powershell", "-NoProfile", "-NonInteractive", "-Command", script]
    return ["bash", str(file)] if file else ["bash", "-c", "--", script.replace("\r\n", "\n")]


_ENDED, _CLOSED, _STOPPED = "ended", "closed", "stopped"  # events beside the bytes that were read


class _Run:
    """One running child, its output so far, and the ways it can end."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        env: Mapping[str, str] | None,
        limit: int,
        spool: Path,
        script: str,
    ) -> None:
        self.output = _Output(limit, spool)
        self.events: SimpleQueue[bytes | str] = SimpleQueue()
        self.slots = threading.Semaphore(QUEUED)
        self.closed = False  # nobody holds the writing end of the pipe any more
        self.read = 0  # bytes
        self.spool = spool
        self.later: Path | None = None  # where output goes once the call is over
        mark = uuid.uuid4().hex[:12]
        variables = dict(os.environ if env is None else env)
        variables["PYTHONIOENCODING"] = "utf-8"
        variables[MARK] = f"{variables[MARK]}:{mark}" if variables.get(MARK) else mark
        try:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd=folder,
                env=variables,
                start_new_session=not WINDOWS,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise ToolError(f"cannot run {command[0]} in {folder}: {error.strerror or error}") from error
        assert self.child.stdout is not None
        self.pipe = self.child.stdout
        self.job = _Job(self.child.pid, mark, script.strip().splitlines()[0][:80])
        for work in (self._read, self._wait):
            threading.Thread(target=work, name="code_run", daemon=True).start()

    # in threads of their own

    def _wait(self) -> None:
        if WINDOWS:
            self.child.wait()
        else:  # not reaped here: the group's id stays ours while it may still be signalled
            with contextlib.suppress(ChildProcessError):  # the caller was faster
                os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
        self.events.put(_ENDED)

    def _read(self) -> None:
        with self.pipe as pipe:
            while self.later is None and (data := os.read(pipe.fileno(), READ)):
                self.read += len(data)
                self.slots.acquire()
                self.events.put(data)
            if self.later is not None:
                self._read_on(pipe.fileno(), self.later)
        self.events.put(_CLOSED)

    def _read_on(self, pipe: int, path: Path) -> None:
        """The call is over, somebody in the background still prints: into a file, up to a limit."""
        room = BACKGROUND_LOG
        while data := b"".join(self._left_over()) or os.read(pipe, READ):
            if room > 0:
                try:
                    with path.open("ab") as file:
                        file.write(data[:room])
                    room -= len(data)
                except OSError:  # disk full: what runs there shall go on all the same
                    room = 0

    def _left_over(self) -> Iterator[bytes]:
        with contextlib.suppress(Empty):
            while True:
                item = self.events.get_nowait()
                if isinstance(item, bytes):
                    yield item

    # in the caller's

    def follow(self, timeout: float, stop: Abort | None) -> Generator[str, None, str]:
        """Yields the output, returns the status."""

        def wake() -> None:
            self.events.put(_STOPPED)

        if stop is not None:
            stop.on_set(wake)
        try:
            status = yield from self._follow(time.monotonic() + timeout)
        finally:
            if stop is not None:
                stop.forget(wake)
        if rest := self.output.show(b"", last=True):
            yield rest
        return status

    def _follow(self, deadline: float) -> Generator[str, None, str]:
        before_end: int | None = None  # bytes that were printed before the child's end, once it has ended
        while before_end is None or not self.closed:
            item = self._next(DRAIN if before_end is not None else deadline - time.monotonic())
            if item == _STOPPED:
                return self.end("stopped")
            if isinstance(item, bytes):
                if piece := self.output.show(item):
                    yield piece
                if before_end is not None and self.output.total >= before_end and time.monotonic() > deadline:
                    break  # what comes now is from somebody in the background
            elif before_end is None and (item == _ENDED or (item is None and self._has_ended())):
                before_end, deadline = self._printed(), time.monotonic() + 2 * DRAIN
            elif item is None and before_end is None:
                return self.end("timeout")
            elif item is None and self.output.total >= self._printed():
                break  # the pipe is held by somebody in the background, who is not waited for
        self.child.wait()
        return "success" if self.child.returncode == 0 else "error"

    def _next(self, seconds: float) -> bytes | str | None:
        """The next event, bytes being remembered; None when there is none in time."""
        if seconds <= 0:
            return None
        try:
            item = self.events.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(item, bytes):
            self.slots.release()
            self.output.keep(item)
        elif item == _CLOSED:
            self.closed = True
        return item

    def _has_ended(self) -> bool:
        if WINDOWS or self.child.returncode is not None:
            return self.child.poll() is not None
        try:
            how = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self.child.pid, how) is not None
        except ChildProcessError:  # SIGCHLD is ignored, and the system has reaped it
            return True

    def _printed(self) -> int:
        """Bytes that were printed up to now, including those that are still in the pipe."""
        waiting = bytearray(4)
        if not WINDOWS:
            import fcntl
            import termios

            with contextlib.suppress(OSError, ValueError):  # the reader has closed it: nothing is in it
                fcntl.ioctl(self.pipe.fileno(), termios.FIONREAD, waiting)
        return int.from_bytes(waiting, sys.byteorder) + self.read

    def end(self, status: str) -> str:
        """TERM to all that the call started, KILL to what is left of it; the output so far stays."""
        _end([self.job], self.child)
        with contextlib.suppress(subprocess.TimeoutExpired):  # the system cannot end it; it is not waited for
            self.child.wait(1)
        deadline = time.monotonic() + 1
        while not self.closed and time.monotonic() < deadline:
            if self._next(DRAIN) is None and self.output.total >= self._printed():
                break
        return status

    def close(self) -> None:
        if not self._has_ended():
            self.end("stopped")
        self.child.poll()
        if not self.closed:
            self.later = self.spool / f"background-{self.child.pid}.log"
            self.slots.release(QUEUED)  # the reader may wait for the caller, who is gone
        self.output.close()
        self.job.own = _exists(self.job.group)
        with _jobs_lock:
            _jobs[self.job.group] = self.job
            many = len(_jobs) > 100
        if many:
            background()  # forgets what has ended

    def result(self, status: str, timeout: float, notes: list[str], code_type: str) -> dict[str, Any]:
        text = self.output.text()
        out: dict[str, Any] = {"status": status, "exit_code": self.child.returncode, "stdout": text}
        if status in ("timeout", "stopped"):
            out["exit_code"] = None
        if status == "timeout":
            notes.append(
                f"timed out after {timeout:g} s, killed; a command that asks for input gets none here"
            )
        elif status == "stopped":
            notes.append("stopped by user")
        if next(_living([self.job], self.child.pid), None):
            notes.append(self._background_note())
        missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
        if missing and code_type in ("python", "py"):
            package = missing[1].split(".")[0]
            notes.append(f"{package} is not installed; perhaps: {sys.executable} -m pip install {package}")
        notes += self.output.notes()
        if self.output.path is not None:
            out["output_file"] = str(self.output.path)
        if notes:
            out["note"] = "; ".join(notes)
        return out

    def _background_note(self) -> str:
        where = ""
        if self.later:
            where = f"; what they print goes to {self.later}"
            with contextlib.suppress(OSError):  # then it has no log, but runs
                self.later.touch()
        return f"processes of this call still run in the background (group {self.job.group}){where}"


class _Output:
    """What was printed: head and tail in memory, all of it in a file once it is more than the limit."""

    def __init__(self, limit: int, spool: Path) -> None:
        self.limit, self.spool = limit, spool
        self.most = 4 * limit + 4  # bytes, a character having up to four
        self.head, self.tail, self.total, self.chars = b"", b"", 0, 0
        self.held, self.shown = b"", 0
        self.file: BinaryIO | None = None
        self.path: Path | None = None
        self.fault = ""

    def keep(self, data: bytes) -> None:
        self._spool(data)
        self.total += len(data)
        self.chars += len(data.translate(None, _CONTINUED))
        room = self.most - len(self.head)
        if room > 0:
            self.head += data[:room]
        self.tail = (self.tail + data)[-self.most :]

    def _spool(self, data: bytes) -> None:
        if self.fault or self.total + len(data) <= self.limit or self.total >= SPOOLED:
            return
        try:
            if self.file is None:
                self.path = self.spool / f"output-{uuid.uuid4().hex[:8]}.txt"
                self.file = self.path.open("wb")
                self.file.write(self.head)
            self.file.write(data[: SPOOLED - self.total])
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """A disk that is full is no reason to lose the call's result."""
        self.fault = f"the whole output could not be kept: {error.strerror or error}"
        file, self.file = self.file, None
        with contextlib.suppress(OSError):  # it is the one just reported
            if file:
                file.close()
        self._drop()

    def _drop(self) -> None:
        if self.path:
            with contextlib.suppress(OSError):  # it stays until the spool is cleaned
                self.path.unlink(missing_ok=True)
        self.path = None

    def close(self) -> None:
        try:
            if self.file:
                self.file.close()
        except OSError as error:
            self._give_up(error)

    def show(self, data: bytes, last: bool = False) -> str:
        """What of it can be shown now: whole lines, and of a long line whole characters and sequences."""
        if self.shown >= SHOWN:
            return ""
        data = self.held + data
        end = len(data) if last else data.rfind(b"\n") + 1
        if len(data) - end >= LINE:
            end = len(data) - unfinished(data)
            escape = data.rfind(b"\x1b", end - LINE)
            end = escape if escape > 0 else end
        self.held = data[end:]
        piece = strip_controls(decode(data[:end]))[: SHOWN - self.shown]
        self.shown += len(piece)
        if self.shown < SHOWN:
            return piece
        return piece + "\n" * (not piece.endswith("\n")) + "… more output than is shown here …\n"

    def text(self) -> str:
        """At most `limit` characters; the file goes when they are all."""
        if self.total <= len(self.head):
            text = strip_controls(decode(self.head))
            if len(text) <= self.limit:
                self._drop()
            return smart_format(text, self.limit, self._where())
        half = self.limit // 2
        head = strip_controls(decode(self.head, cut_end=True))[:half]
        tail = strip_controls(decode(self.tail, cut_begin=True))
        tail = tail[max(0, len(tail) - half) :]
        return f"{head}\n… about {max(1, self.chars - len(head) - len(tail))} {self._where()} …\n{tail}"

    def _where(self) -> str:
        return f"characters left out, all of it is in {self.path}" if self.path else "characters left out"

    def notes(self) -> Iterator[str]:
        if self.fault:
            yield self.fault
        if self.path and self.total > SPOOLED:
            yield f"the file holds the first {SPOOLED >> 20} MB of {self.total >> 20} MB"


_CONTINUED = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character but the first


@dataclass(frozen=True)
class _Member:
    """A living process of a job."""

    pid: int
    group: int
    job: _Job


def _end(jobs: list[_Job], child: subprocess.Popen[bytes] | None = None) -> None:
    """TERM, a short time for a clean end, then KILL to what is left and to what is born meanwhile."""
    if WINDOWS:  # there is no TERM for a tree of processes
        for job in jobs:
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(job.group)], capture_output=True, check=False)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, sent = time.monotonic() + GRACE, False
        while (members := _surely(jobs)) and time.monotonic() < deadline:
            if not sent or number == signal.SIGKILL:
                _signal(members, number)
            sent = True
            time.sleep(0.01)
            if child is not None and not LINUX:
                child.poll()  # without /proc a defunct child counts as living
        if not members:
            break
    for job in jobs:  # who forks on and on can be missed by a look at /proc, not by this
        if job.own:
            _signal([_Member(job.group, job.group, job)], signal.SIGKILL)


def _surely(jobs: list[_Job]) -> list[_Member]:
    """The living ones; one who was born during the first look is seen by the second."""
    return list(_living(jobs)) or list(_living(jobs))


def _signal(members: list[_Member], number: int) -> None:
    groups = {m.job.group for m in members if m.group == m.job.group}
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile
            os.killpg(group, number)
    for member in members:
        if member.group not in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the same
                os.kill(member.pid, number)


def _exists(group: int) -> bool:
    if WINDOWS:
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # there is one, of another user
        return True
    return True


def _living(jobs: Sequence[_Job], since: int = 0) -> Iterator[_Member]:
    """The living (not defunct) processes of the jobs, on Linux also those that left the group.

    `since`: only those with a higher id, where a quick look is enough.
    """
    if not jobs:
        return
    if not LINUX:
        yield from (_Member(job.group, job.group, job) for job in jobs if job.own and _exists(job.group))
        return
    groups = {job.group: job for job in jobs if job.own}
    marks = {job.mark.encode(): job for job in jobs}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (pid := int(entry.name)) > since and pid != os.getpid():
            with contextlib.suppress(OSError):  # it has ended meanwhile, or belongs to somebody else
                if found := _member(pid, groups, marks):
                    yield found


def _member(pid: int, groups: Mapping[int, _Job], marks: Mapping[bytes, _Job]) -> _Member | None:
    """See proc(5): after the name come state, parent, process group, session."""
    state, _, group, session = _proc(pid, "stat").rpartition(b")")[2].split()[:4]
    if state in b"ZX":
        return None
    job = groups.get(int(group)) or groups.get(int(session))
    if job is None:
        for mark in re.findall(rb"(?:^|\0)%s=([^\0]*)" % MARK.encode(), _proc(pid, "environ")):
            job = next((marks[m] for m in mark.split(b":") if m in marks), None)
    return _Member(pid, int(group), job) if job else None


def _proc(pid: int, what: str) -> bytes:
    """A file of proc(5), without the cost of a Path: there may be thousands."""
    file = os.open(f"/proc/{pid}/{what}", os.O_RDONLY)
    try:
        return os.read(file, 1 << 17)
    finally:
        os.close(file)
