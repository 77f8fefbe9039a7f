"""Runs a script as a process group of its own and gives back what it printed, as it prints and at the end.

No polling: a thread reads the pipe, another waits for the child's end, and both, like a stop, wake the caller through
one queue. Output beyond the limit goes to a file; head and tail stay in memory. What the script left in the background
keeps a reader, so that it neither blocks nor breaks when it prints. A mark in the environment finds what left the group.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from ..abort import Abort
from ..errors import ToolError
from ..safety.redact import Redactor
from .jobs import MARK, WINDOWS, Job, end, living, remember, started
from .limits import Limits as Limits
from .limits import limited, size_mark
from .output import Mask, Output

if TYPE_CHECKING:  # imported when there is one: a task without a sandbox does not pay for it
    from ..safety.sandbox import Box, Sandbox

DRAIN = 0.02  # seconds of silence after which a finished child's pipe is held by somebody in the background
READ = 1 << 16
QUEUED = 256  # reads that may wait for the caller, so that a slow screen does not hold up the script
MIN_TIMEOUT, MAX_TIMEOUT = 1, 600
ARGUMENT = 100_000  # bytes of script that are handed over as an argument; Linux takes 128 KiB
BACKGROUND_LOG = 10 << 20  # bytes of later output that are kept of what runs in the background
STALE = 7 * 86400  # seconds after which an output file is removed
SHORT = 8  # characters; a shorter key is a word that may stand in any variable, like "ollama" in PATH

# Runs a python script from its file: memory and the working directory become importable, last, so that they can shadow
# nothing, memory from its source alone, since bytecode there could have been planted, and a traceback begins with the
# script's own frames. Nothing of this is left in the script's names.
_PROLOGUE = """__file__ = {script!r}
def _start(script, path):
    import sys
    sys.path[:] = [p for p in sys.path if p]
    from importlib.machinery import FileFinder, SourceFileLoader
    class Source(SourceFileLoader):
        def get_code(self, name):
            file = self.get_filename(name)
            return self.source_to_code(self.get_data(file), file)
    find = FileFinder.path_hook((Source, [".py"]))
    def own(folder):
        if any(folder == p or folder.startswith((p + "/", p + "\\\\")) for p in path[:-1]):
            return find(folder)
        raise ImportError(folder)
    sys.path_hooks.insert(0, own)
    sys.path += path
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


def child_env(environ: Mapping[str, str], secrets: Collection[str] = (), keep: Collection[str] = ()) -> dict[str, str]:
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


def clean_spool(folder: Path, now: float) -> None:
    """Remove what earlier calls spooled there more than a week ago."""
    for pattern in ("output-*.txt", "result-*.txt", "background-*.log", "run-*.py", "run-*.sh"):
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
    sandbox: Sandbox | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    redact: Redactor | None = None,
) -> Generator[str, None, dict[str, Any]]:
    """Run `script`; yields its output as it comes, several lines of one read together.

    Returns {"status": "success"|"error"|"timeout"|"stopped", "exit_code": int|None, "stdout": at most `limit`
    characters, "output_file": where the whole text is, if it was longer, "note": what else is to know}.
    `timeout` in seconds, 1 to 600. Raises ToolError when nothing could be started. In a `sandbox` nothing outlives the
    call; without `env` it gets the allow-list then. `redact`: what keeps keys out of the files with output.
    """
    if not script.strip():
        raise ToolError("the script is empty")
    if "\0" in script or any("\ud800" <= c <= "\udfff" for c in script):
        raise ToolError("the script holds a NUL or half a surrogate pair and cannot be run")
    folder = Path(cwd or "").absolute()
    if not folder.is_dir():
        raise ToolError(f"the working directory {folder} does not exist")
    if stop is not None and stop.is_set():
        return {"status": "stopped", "exit_code": None, "stdout": "", "note": stop.why}
    notes = []
    if not MIN_TIMEOUT <= timeout <= MAX_TIMEOUT:
        timeout = min(max(MIN_TIMEOUT, timeout), MAX_TIMEOUT)  # in this order NaN becomes the smallest
        notes.append(f"the timeout was set to {timeout:g} s (allowed: {MIN_TIMEOUT} to {MAX_TIMEOUT})")
    spool = (spool_dir or Path()).absolute()  # the child is in another folder
    variables = dict(env if env is not None else _allowed(os.environ) if sandbox else os.environ)
    with _script_file(script, code_type, spool) as file:
        command = _found(_command(script, code_type, file, [*python_path, folder]), variables, folder)
        size = size_mark()
        command = limited(command, limits, size, inside=sandbox is not None)
        with sandbox.around(command, folder, [spool]) if sandbox else contextlib.nullcontext(_Unboxed(command)) as box:
            run = _Run(box, folder, variables, Output(limit, spool, redact), script, Mask(redact))
            run.job.size, run.job.boxed = size, sandbox is not None
            try:
                status = yield from run.follow(timeout, stop)
            finally:
                run.close()
    if status == "stopped":
        notes.append(stop.why if stop else "stopped")
    return run.result(status, timeout, [*notes, *box.notes], code_type, limits)


class _Unboxed(NamedTuple):
    """What runs with no sandbox around it; see Box."""

    argv: list[str]
    fds: tuple[int, ...] = ()
    inside: bool = False
    notes: Sequence[str] = ()


def _allowed(environ: Mapping[str, str]) -> dict[str, str]:
    from ..safety.sandbox import sandbox_env

    return sandbox_env(environ)


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
    file = spool / f"run-{os.urandom(4).hex()}{'.py' if kind == 'python' else '.sh'}"
    try:
        spool.mkdir(parents=True, exist_ok=True)
        if kind == "python" or (kind == "bash" and len(data) > ARGUMENT):
            file.touch(0o600)
            file.write_bytes(data)
    except OSError as error:
        with contextlib.suppress(OSError):  # it is the one reported here
            file.unlink(missing_ok=True)
        raise ToolError(f"cannot write to {spool}: {error.strerror or error}") from error
    try:
        yield file if file.exists() else None
    finally:
        file.unlink(missing_ok=True)


def _command(script: str, code_type: str, file: Path | None, path: Sequence[Path]) -> list[str]:
    kind = _kind(code_type)
    if kind == "python":
        start = _PROLOGUE.format(path=[str(p.absolute()) for p in path], script=str(file))
        # -B: by size and second alone, a module that was just patched would be taken for the compiled one
        return [sys.executable, "-P", "-B", "-X", "utf8", "-u", "-c", start]
    if kind == "powershell":
        return ["powershell", "-NoProfile", "-NonInteractive", "-Command", script]
    return ["bash", str(file)] if file else ["bash", "-c", "--", script.replace("\r\n", "\n")]


def _found(command: list[str], variables: Mapping[str, str], folder: Path) -> list[str]:
    """The command, its program being there: the shell around it would tell that in the script's output."""
    import shutil

    if not shutil.which(command[0], path=variables.get("PATH", os.defpath)):
        raise ToolError(f"cannot run {command[0]} in {folder}: it is not installed, or not in PATH")
    return command


_ENDED, _CLOSED, _STOPPED = "ended", "closed", "stopped"  # events beside the bytes that were read


class _Run:
    """One running child, its output so far, and the ways it can end."""

    def __init__(
        self, box: Box | _Unboxed, folder: Path, variables: Mapping[str, str], output: Output, script: str, mask: Mask
    ) -> None:
        self.output = output
        self.events: SimpleQueue[bytes | str] = SimpleQueue()
        self.slots = threading.Semaphore(QUEUED)
        self.closed = False  # nobody holds the writing end of the pipe any more
        self.read = 0  # bytes
        self.mask = mask  # for what comes later
        self.later: Path | None = None  # where output goes once the call is over
        self.told: int | None = None  # where the sandbox speaks, apart from the script's output
        self.heard = ""
        mark = os.urandom(6).hex()
        variables = {**variables, "PYTHONIOENCODING": "utf-8"}
        variables[MARK] = f"{variables[MARK]}:{mark}" if variables.get(MARK) else mark
        self.child = self._start(box, folder, variables)
        assert self.child.stdout is not None
        self.pipe = self.child.stdout
        self.job = Job(self.child.pid, mark, script.strip().splitlines()[0][:80], born=started(self.child.pid))
        self.job.release = self._release
        for work in (self._read, self._wait):
            threading.Thread(target=work, name="code_run", daemon=True).start()

    def _start(self, box: Box | _Unboxed, folder: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        telling = subprocess.STDOUT
        if box.inside:
            self.told, telling = os.pipe()
        try:
            return subprocess.Popen(
                box.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=telling,
                bufsize=0,
                cwd=folder,
                env=variables,
                pass_fds=box.fds,
                start_new_session=not WINDOWS,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            self._hear()
            raise ToolError(f"cannot run {box.argv[0]} in {folder}: {error.strerror or error}") from error
        finally:
            if box.inside:
                os.close(telling)

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
        room, data = BACKGROUND_LOG, b"-"
        with contextlib.suppress(OSError):  # then it has no log, but runs
            path.touch(0o600)
        self.mask(self.output.tail)  # a key may have begun there; what comes out is in the result already
        while data:
            data = b"".join(self._left_over()) or os.read(pipe, READ)
            if room > 0 and (masked := self.mask(data, last=not data)):
                try:
                    with path.open("ab") as file:
                        file.write(masked[:room])
                    room -= len(masked)
                except OSError:  # disk full: what runs there shall go on all the same
                    room = 0

    def _release(self) -> None:
        """This program ends, what runs there goes on: what it prints must still find a reader."""
        with contextlib.suppress(OSError, ValueError):  # no cat here, or it has closed its output
            subprocess.Popen(["cat"], stdin=self.pipe, stdout=subprocess.DEVNULL, start_new_session=True)

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
        end([self.job], self.child)
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
        if self.job.boxed:
            self._hear()
            if not self.heard.endswith("alone\n"):
                self._see_it_end()
        if not self.closed:
            self.later = self.job.log = self.output.spool / f"background-{self.child.pid}-{os.urandom(3).hex()}.log"
            self.slots.release(QUEUED)  # the reader may wait for the caller, who is gone
        self.output.close()
        if not self.job.boxed:
            remember(self.job)

    def _see_it_end(self) -> None:
        """The kernel ends what is left in the sandbox, but bwrap does not wait for that."""
        deadline = time.monotonic() + 1
        while next(living([self.job]), None) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _hear(self) -> None:
        """What the sandbox has said; called when nobody is left who could say more."""
        if self.told is None:
            return
        os.set_blocking(self.told, False)
        with contextlib.suppress(BlockingIOError):  # somebody could not be ended, and holds the other end
            self.heard = os.read(self.told, READ).decode("utf-8", "replace")
        os.close(self.told)
        self.told = None

    def result(self, status: str, timeout: float, notes: list[str], code_type: str, limits: Limits) -> dict[str, Any]:
        """Raises ToolError where the sandbox did not come up."""
        text = self.output.text()
        if self.job.boxed and status in ("success", "error") and not self.heard.startswith("up\n"):
            raise ToolError(f"the sandbox did not come up, so nothing was run: {' '.join(self.heard.split())[:300]}")
        out: dict[str, Any] = {"status": status, "exit_code": self.child.returncode, "stdout": text}
        if status in ("timeout", "stopped"):
            out["exit_code"] = None
        if status == "timeout":
            notes.append(f"timed out after {timeout:g} s, killed; a command that asks for input gets none here")
        if self.job.boxed and self.heard.endswith("left\n") and status in ("success", "error"):
            notes.append("processes were left running and were ended: in the sandbox nothing outlives its call")
        elif not self.job.boxed and next(living([self.job], self.child.pid), None):
            notes.append(self._background_note())
        notes += limits.notes(out["exit_code"], text)
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
                self.later.touch(0o600)
        return f"processes of this call still run in the background (group {self.job.group}){where}"
