"""Runs a script as a process group of its own and gives back what it printed, as it prints and at the end.

No polling: a thread reads the pipe, another waits for the child's end, and both, like a stop, wake the caller through
one queue. Output beyond the limit goes to a file; head and tail stay in memory. What the script left in the background
keeps a reader, so that it neither blocks nor breaks when it prints.
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
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

from ..abort import Abort
from ..errors import ToolError
from .text import smart_format, strip_controls

GRACE = 0.4  # seconds between TERM and KILL
DRAIN = (
    0.02  # seconds without output after which a finished child's pipe is held by somebody in the background
)
SHOWN = 20_000  # characters of progress that a face gets to see
READ = 1 << 16
QUEUED = 16  # reads that may wait for the caller
MIN_TIMEOUT, MAX_TIMEOUT = 1, 600
SPOOLED = 64 << 20  # bytes of output that the file of a call holds at most
BACKGROUND_LOG = 10 << 20  # bytes of later output that are kept of what runs in the background
STALE = 7 * 86400  # seconds after which an output file is removed
WINDOWS = os.name == "nt"

# Runs a python script from its file: memory and the working directory become importable, last, so that they can shadow
# nothing, and a traceback begins with the script's own frames.
_PROLOGUE = """import sys
sys.path[:] = [p for p in sys.path if p] + {path!r}
sys.argv = [__file__ := {script!r}]
sys.excepthook = lambda kind, error, trace: sys.__excepthook__(
    kind, error.with_traceback(trace and trace.tb_next), trace and trace.tb_next)
exec(compile(open(__file__, "rb").read(), __file__, "exec"))
"""

_groups: dict[int, str] = {}  # process groups with members that outlived their call → the script's first line
_groups_lock = threading.Lock()


_SECRET_NAME = re.compile(
    r"(?i)(^|_)(API_?KEY|AUTH_TOKEN|BOT_TOKEN)$"
    r"|^(ANTHROPIC|OPENAI|DEEPSEEK|MOONSHOT|KIMI|ZHIPU|ZAI|GLM|DASHSCOPE|QWEN|MINIMAX|GEMINI|OPENROUTER|GROQ|MISTRAL"
    r"|XAI|TOGETHER|FIREWORKS|PERPLEXITY|CEREBRAS|COHERE|HUGGINGFACE|HF|TELEGRAM)_.*(KEY|TOKEN|SECRET)"
)


def child_env(
    environ: Mapping[str, str], secrets: Collection[str] = (), keep: Collection[str] = ()
) -> dict[str, str]:
    """The environment for a child: without provider and bot keys.

    Left out: names that end in API_KEY, AUTH_TOKEN or BOT_TOKEN, key variables of known providers, and every variable
    whose value holds one of `secrets`. `keep` names exceptions by the user. All else (PATH, HOME, GITHUB_TOKEN) stays.
    """
    out = {}
    for name, value in environ.items():
        held = any(secret in value for secret in secrets if secret)
        if name in keep or not (held or _SECRET_NAME.search(name)):
            out[name] = value
    return out


def background() -> dict[int, str]:
    """Process groups that are still running after their call: group id → first line of the script."""
    with _groups_lock:
        for group in [g for g in _groups if not _alive(g)]:
            del _groups[group]
        return dict(_groups)


def kill_background() -> list[int]:
    """End every background group: TERM, then KILL. Returns the groups that were ended."""
    groups = list(background())
    _end_groups(groups)
    with _groups_lock:
        _groups.clear()
    return groups


def clean_spool(folder: Path, now: float) -> None:
    """Remove what earlier calls spooled there more than a week ago."""
    for pattern in ("output-*.txt", "background-*.log", "run-*.py"):
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
    notes = []
    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:
        timeout = min(max(timeout, MIN_TIMEOUT), MAX_TIMEOUT)
        notes.append(f"the timeout was set to {timeout:g} s (allowed: {MIN_TIMEOUT} to {MAX_TIMEOUT})")
    spool = spool_dir or Path.cwd()
    spool.mkdir(parents=True, exist_ok=True)
    command, files = _command(script, code_type, folder, spool, python_path)
    run = _Run(command, folder, env, limit, spool, script)
    try:
        status = yield from run.follow(timeout, stop)
    finally:
        run.close()
        for file in files:
            file.unlink(missing_ok=True)
    return run.result(status, timeout, notes, code_type)


def _command(
    script: str, code_type: str, folder: Path, spool: Path, python_path: Sequence[Path]
) -> tuple[list[str], list[Path]]:
    """(argument vector, files to remove afterwards)."""
    kind = {"sh": "bash", "shell": "bash", "py": "python"}.get(code_type, code_type)
    if kind == "bash" and not WINDOWS:
        return ["bash", "-c", script], []
    if kind == "powershell" and WINDOWS:
        return ["powershell", "-NoProfile", "-NonInteractive", "-Command", script], []
    if kind != "python":
        raise ToolError(f"unknown type {code_type!r}; use python or {'powershell' if WINDOWS else 'bash'}")
    file = spool / f"run-{os.urandom(4).hex()}.py"
    file.write_text(script, encoding="utf-8")
    start = _PROLOGUE.format(path=[str(p) for p in (*python_path, folder)], script=str(file))
    return [sys.executable, "-X", "utf8", "-u", "-c", start], [file]


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
        self.limit, self.spool, self.title = limit, spool, script.strip().splitlines()[0][:80]
        self.head, self.tail, self.total = b"", b"", 0
        self.file: BinaryIO | None = None
        self.path: Path | None = None
        self.events: SimpleQueue[bytes | str] = SimpleQueue()
        self.slots = threading.Semaphore(QUEUED)
        self.closed = False  # nobody holds the writing end of the pipe any more
        self.later: Path | None = None  # where output goes once the call is over
        try:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                cwd=folder,
                env={**(os.environ if env is None else env), "PYTHONIOENCODING": "utf-8"},
                start_new_session=not WINDOWS,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            raise ToolError(f"cannot run {command[0]}: {error.strerror or error}") from error
        for work in (self._read, self._wait):
            threading.Thread(target=work, name="code_run", daemon=True).start()

    # in threads of their own

    def _wait(self) -> None:
        if WINDOWS:
            self.child.wait()
        else:  # not reaped here: the group's id stays ours while it may still be signalled
            os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)
        self.events.put(_ENDED)

    def _read(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as pipe:
            while self.later is None and (data := os.read(pipe.fileno(), READ)):
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
                with path.open("ab") as file:
                    file.write(data[:room])
                room -= len(data)

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
            return (yield from self._follow(time.monotonic() + timeout))
        finally:
            if stop is not None:
                stop.forget(wake)

    def _follow(self, deadline: float) -> Generator[str, None, str]:
        ended, shown, held = False, 0, b""
        while not (ended and self.closed):
            left = deadline - time.monotonic()
            item = self._next(min(left, DRAIN) if ended else left)
            if item == _STOPPED:
                return self.end("stopped")
            if item == _ENDED:
                ended, deadline = True, time.monotonic() + 2 * DRAIN
            elif item is None and ended:
                break  # the pipe is held by somebody in the background, who is not waited for
            elif item is None:
                return self.end("timeout")
            elif isinstance(item, bytes) and shown < SHOWN:
                whole, line_end, rest = (held + item).rpartition(b"\n")
                held = rest if len(rest) < 4096 else b""
                piece = strip_controls(_text(whole + line_end + (b"" if held else rest)))
                shown += len(piece)
                if piece:
                    yield piece
                if shown >= SHOWN:
                    yield "… more output than is shown here …\n"
        if held and shown < SHOWN:
            yield strip_controls(_text(held))
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
            self.keep(item)
        elif item == _CLOSED:
            self.closed = True
        return item

    def keep(self, data: bytes) -> None:
        """Remember head and tail; the whole goes to a file once it is more than the limit."""
        most = 4 * self.limit  # bytes, a character having up to four
        self.total += len(data)
        room = most - len(self.head)
        if self.file is None and self.total > self.limit:
            self.path = self.spool / f"output-{os.urandom(4).hex()}.txt"
            self.file = self.path.open("wb")
            self.file.write(self.head)
        if self.file is not None and self.total <= SPOOLED:
            self.file.write(data)
        if room > 0:
            self.head += data[:room]
        self.tail = (self.tail + data)[-most:] if len(data) < most else data[-most:]

    def end(self, status: str) -> str:
        """TERM to the whole group, KILL to what is left of it; the output so far stays."""
        _end_groups([self.child.pid], self.child)
        self.child.wait()
        while not self.closed and self._next(DRAIN) is not None:
            pass  # what was printed before the end
        return status

    def close(self) -> None:
        if self.child.poll() is None:
            self.end("stopped")
        if not self.closed:
            self.later = self.spool / f"background-{self.child.pid}.log"
            for _ in range(QUEUED):
                self.slots.release()  # the reader may wait for the caller, who is gone
        if self.file:
            self.file.close()

    def result(self, status: str, timeout: float, notes: list[str], code_type: str) -> dict[str, Any]:
        text = self.text()
        out: dict[str, Any] = {"status": status, "exit_code": self.child.returncode, "stdout": text}
        if status == "timeout":
            out["exit_code"] = None
            notes.append(
                f"timed out after {timeout:g} s, killed; a command that asks for input gets none here"
            )
        elif status == "stopped":
            out["exit_code"] = None
            notes.append("stopped by user")
        elif _alive(self.child.pid):
            with _groups_lock:
                _groups[self.child.pid] = self.title
            where = f"; what they print goes to {self.later}" if self.later else ""
            notes.append(
                f"processes of this call still run in the background (group {self.child.pid}){where}"
            )
        missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
        if missing and code_type in ("python", "py"):
            package = missing[1].split(".")[0]
            notes.append(f"{package} is not installed; perhaps: {sys.executable} -m pip install {package}")
        if self.total > SPOOLED:
            notes.append(f"the file holds the first {SPOOLED >> 20} MB of {self.total >> 20} MB")
        if self.path is not None:
            out["output_file"] = str(self.path)
        if notes:
            out["note"] = "; ".join(notes)
        return out

    def text(self) -> str:
        if self.total <= len(self.head):
            return smart_format(strip_controls(_text(self.head)), self.limit, self._where())
        half = self.limit // 2
        head, tail = strip_controls(_text(self.head))[:half], strip_controls(_text(self.tail))[-half:]
        return f"{head}\n… about {self.total - len(head) - len(tail)} {self._where()} …\n{tail}"

    def _where(self) -> str:
        return f"characters left out, all of it is in {self.path}" if self.path else "characters left out"


def _text(data: bytes) -> str:
    """Bytes of unknown encoding as text: UTF-8, else line by line what fits: UTF-8, GBK, or replacement marks.

    A character that was cut at the beginning or the end of `data` is left out.
    """
    begin = next((i for i, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0)
    try:
        return data[begin:].decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start + begin >= len(data) - 3 and error.reason == "unexpected end of data":
            return data[begin:].decode("utf-8", "ignore")
    return "".join(map(_line_text, data.splitlines(keepends=True)))


def _line_text(line: bytes) -> str:
    for encoding in ("utf-8", "gbk"):
        with contextlib.suppress(UnicodeDecodeError):  # then it is the next one
            return line.decode(encoding)
    return line.decode("utf-8", "replace")


def _end_groups(groups: list[int], child: subprocess.Popen[bytes] | None = None) -> None:
    """TERM, a short time for a clean end, then KILL to what is left."""
    for group in groups:
        _signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while any(map(_alive, groups)) and time.monotonic() < deadline:
        if child is not None:
            child.poll()
        time.sleep(0.01)
    if not WINDOWS:
        for group in groups:
            _signal_group(group, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    if WINDOWS:  # there is no TERM for a tree of processes
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(group)], capture_output=True, check=False)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile
        os.killpg(group, number)


def _alive(group: int) -> bool:
    """Whether a living (not defunct) process is left in the group."""
    if WINDOWS:
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    if not Path("/proc/self/stat").exists():
        return True
    return any(found == group and state != "Z" for state, found in _processes())


def _processes() -> Iterator[tuple[str, int]]:
    """(state, process group) of every process, from proc(5)."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                stat = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                yield stat[0].decode(), int(stat[2])
