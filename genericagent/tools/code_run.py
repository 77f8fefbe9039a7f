"""Runs a script as a process group of its own and gives back what it printed, as it prints and at the end.

No polling: one selector waits for the pipe, for the child's end (a pidfd where there is one, else a waiting thread)
and for a stop. Output beyond the limit goes to a file; head and tail stay in memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ToolError
from .text import smart_format, strip_controls

GRACE = 0.4  # seconds between TERM and KILL
DRAIN = 0.05  # seconds in which a finished child's last output may still arrive
SHOWN = 20_000  # characters of progress that a face gets to see
READ = 1 << 18
MIN_TIMEOUT, MAX_TIMEOUT = 1, 600

# Put before a python script: memory becomes importable, last, so that it can shadow nothing; the script's folder and
# the working directory are not on the path first. Runs the script under its own name, so line numbers are right.
_PROLOGUE = """import sys, runpy
sys.path[:] = [p for p in sys.path if p not in ("", {here!r})] + {extra!r} + {cwd!r}
sys.argv = [{script!r}]
runpy.run_path({script!r}, run_name="__main__")
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


def kill_background(grace: float = GRACE) -> list[int]:
    """End every background group: TERM, then KILL. Returns the groups that were ended."""
    groups = list(background())
    for group in groups:
        _signal_group(group, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while any(map(_alive, groups)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for group in groups:
        if os.name == "posix":
            _signal_group(group, signal.SIGKILL)
    with _groups_lock:
        _groups.clear()
    return groups


def code_run(
    script: str,
    code_type: str = "python",
    timeout: float = 60,
    cwd: Path | str | None = None,
    *,
    stop: threading.Event | None = None,
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
    if kind == "bash" and os.name == "posix":
        return ["bash", "-c", script], []
    if kind == "powershell" and os.name == "nt":
        return ["powershell", "-NoProfile", "-NonInteractive", "-Command", script], []
    if kind != "python":
        raise ToolError(
            f"unknown type {code_type!r}; use python or {'powershell' if os.name == 'nt' else 'bash'}"
        )
    file = spool / f"run-{uuid.uuid4().hex[:8]}.py"
    file.write_text(script, encoding="utf-8")
    extra = [str(p) for p in python_path]
    start = _PROLOGUE.format(here=str(spool), extra=extra, cwd=[str(folder)], script=str(file))
    return [sys.executable, "-X", "utf8", "-u", "-c", start], [file]


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
        full_env = {**(os.environ if env is None else env), "PYTHONIOENCODING": "utf-8"}
        read, write = os.pipe()
        try:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                cwd=folder,
                env=full_env,
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            os.close(read)
            raise ToolError(f"cannot run {command[0]}: {error.strerror or error}") from error
        finally:
            os.close(write)
        self.pipe = read
        os.set_blocking(read, False)

    # following the output

    def follow(self, timeout: float, stop: threading.Event | None) -> Generator[str, None, str]:
        deadline = time.monotonic() + timeout
        shown, held = 0, b""
        with selectors.DefaultSelector() as selector, _wakers(self.child.pid, stop) as (ended, stopped):
            selector.register(self.pipe, selectors.EVENT_READ)
            for waker in (ended, stopped):
                if waker is not None:
                    selector.register(waker, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return self.end("timeout")
                ready = {key.fd for key, _ in selector.select(left)}
                if stopped in ready:
                    return self.end("stopped")
                data = self.read(selector) if self.pipe in ready else b""
                if data and shown < SHOWN:
                    whole, line_end, rest = (held + data).rpartition(b"\n")
                    held = rest if len(rest) < 4096 else b""
                    piece = strip_controls(_text(whole + line_end + (b"" if held else rest)))
                    shown += len(piece)
                    if piece:
                        yield piece
                    if shown >= SHOWN:
                        yield "… more output than is shown here …\n"
                if ended in ready:
                    break
        last = self.drain()
        if (held or last) and shown < SHOWN:
            yield strip_controls(_text(held + last))
        self.child.wait()
        return "success" if self.child.returncode == 0 else "error"

    def read(self, selector: selectors.BaseSelector | None = None) -> bytes:
        try:
            data = os.read(self.pipe, READ)
        except BlockingIOError:
            return b""
        if not data and selector is not None:
            selector.unregister(self.pipe)  # nobody holds the other end any more
        self.keep(data)
        return data

    def drain(self) -> bytes:
        """What is still in the pipe of a finished child. Somebody in the background may hold it open: not waited for."""
        out = b""
        while len(out) < 64 * READ and (data := self.read()):
            out += data
        return out

    def keep(self, data: bytes) -> None:
        """Remember head and tail; the whole goes to a file once it is more than that."""
        self.total += len(data)
        room = 4 * self.limit - len(self.head)
        if room > 0:
            self.head += data[:room]
        self.tail = (
            (self.tail + data)[-4 * self.limit :] if len(data) < 4 * self.limit else data[-4 * self.limit :]
        )
        if self.file is None and self.total > self.limit:
            self.path = self.spool / f"output-{uuid.uuid4().hex[:8]}.txt"
            self.file = self.path.open("wb")
            self.file.write(self.head if self.total <= len(self.head) else self.head + data[max(0, room) :])
        elif self.file is not None:
            self.file.write(data)

    # ending

    def end(self, status: str) -> str:
        """TERM to the whole group, KILL to what is left of it; the output so far stays."""
        group = self.child.pid
        _signal_group(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while _alive(group) and time.monotonic() < deadline:
            self.child.poll()
            self.read()
            time.sleep(0.01)
        if os.name == "posix":
            _signal_group(group, signal.SIGKILL)
        else:
            self.child.kill()
        self.child.wait()
        self.drain()
        return status

    def close(self) -> None:
        if self.child.poll() is None:
            self.end("stopped")
        os.close(self.pipe)
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
            notes.append(f"processes of this call still run in the background (group {self.child.pid})")
        missing = re.search(r"ModuleNotFoundError: No module named '([\w.]+)'", text)
        if missing and code_type in ("python", "py"):
            notes.append(
                f"{missing[1]} is not installed; perhaps: {sys.executable} -m pip install {missing[1].split('.')[0]}"
            )
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
    """Bytes of unknown encoding as text: UTF-8, else GBK where that fits, else with replacement marks."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start >= len(data) - 3 or data[:4] == b"\xef\xbf":
            return data.decode("utf-8", "replace")  # a character cut at the end of a read
    try:
        return data.decode("gbk")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


@contextlib.contextmanager
def _wakers(pid: int, stop: threading.Event | None) -> Generator[tuple[Any, Any], None, None]:
    """(readable when the child has ended, readable when `stop` is set or None)."""
    with contextlib.ExitStack() as stack:
        if hasattr(os, "pidfd_open"):
            ended = os.pidfd_open(pid)
            stack.callback(os.close, ended)
        else:
            ended = _signalled_by(stack, lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT))
        stopped = None
        if stop is not None:
            done = threading.Event()
            stopped = _signalled_by(stack, lambda: _wait_for(stop, done))
            stack.callback(done.set)
        yield ended, stopped


def _wait_for(stop: threading.Event, done: threading.Event) -> bool:
    while not stop.wait(0.1):
        if done.is_set():
            return False
    return True


def _signalled_by(stack: contextlib.ExitStack, wait: Any) -> int:
    """A file descriptor that becomes readable when `wait` returns something true in a thread of its own."""
    read, write = os.pipe()

    def run() -> None:
        if wait():
            os.write(write, b"x")
        os.close(write)

    threading.Thread(target=run, daemon=True).start()
    stack.callback(os.close, read)
    return read


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended meanwhile
        if os.name == "posix":
            os.killpg(group, number)
        else:
            os.kill(group, number)


def _alive(group: int) -> bool:
    """Whether a living (not defunct) process is left in the group."""
    if os.name != "posix":
        return False
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
