"""A watcher's script in a process of its own, so that one that hangs, exits or crashes can be given up.

The watcher (see `Host`) writes a JSON line for each call; `serve` in the child answers with one:

    {"call": "load", "path", "source", "args"}, {"call": "check"}, {"call": "done", "result": {…}}
    {"value": what check() returned, "error": "" or one line, "where": what tells the error from others,
     "settings": {…}, "looked": paths that it has listed or read}
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any

from ..errors import GAError, UsageError
from ..paths import program

LEAST_INTERVAL = 1.0  # seconds
MOST_LOOKED = 1000  # paths
_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from genericagent.cli.script_host import serve; serve()"


@dataclass(frozen=True)
class Settings:
    """What the script's module says now. INTERVAL, CHECK_TIMEOUT and MAX_TIME in seconds; KEEP_SESSION: a wake goes on
    with the conversation of the one before; MAX_TURNS, MAX_TIME: of the next wake; TAINTED: where text of somebody else
    in its prompt comes from, "" for nowhere; DELIVERS: it shows what came of a task itself."""

    interval: float = 60.0
    once: bool = False
    keep_session: bool = False
    check_timeout: float = 60.0
    max_turns: int | None = None
    max_time: float | None = None
    tainted: str = ""
    delivers: bool = False
    has_done: bool = False


class ScriptError(Exception):
    """The script raised, or answered what is no answer. `where` tells the fault from others."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(message)
        self.where = where


class Result(str):
    """What on_done gets: the answer (or the question, or the error) as text; `record`, also by key, as in result.json."""

    record: dict[str, Any]

    def __getitem__(self, key: Any) -> Any:
        return self.record[key] if isinstance(key, str) else super().__getitem__(key)


class Host:
    """The child that holds a script. `tell` gets each line that the script prints."""

    def __init__(self, path: Path, source: str, args: Mapping[str, str], tell: Callable[[str], None]) -> None:
        self._load = {"call": "load", "path": str(path), "source": source, "args": dict(args)}
        self._tell = tell
        self._child: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self.settings = Settings()
        self.looked: list[str] = []

    def check(self, stopped: Callable[[], bool]) -> Any:
        """What check() says. Raises ScriptError, also when it takes too long: then the child is ended."""
        value = self._call({"call": "check"}, stopped)
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        said = "an empty prompt" if isinstance(value, str) else value["not"]
        raise ScriptError(f"check() must return None, a prompt or /exit, not {said}", f"returned {said}")

    def done(self, record: dict[str, Any], stopped: Callable[[], bool]) -> None:
        """Call on_done(), if there is one. Raises ScriptError."""
        if self.settings.has_done:
            self._call({"call": "done", "result": record}, stopped)

    def load(self, stopped: Callable[[], bool]) -> None:
        """Start the child with the script in it. Raises ScriptError, and then there is none."""
        self._begin()
        self._ask(self._load, stopped)

    def _call(self, call: dict[str, Any], stopped: Callable[[], bool]) -> Any:
        if self._child is None:
            self.load(stopped)
        return self._ask(call, stopped)

    def _begin(self) -> None:
        answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._answers = answers
        pipe = subprocess.PIPE
        command = [sys.executable, "-P", "-c", _START, str(program().parent)]
        child = self._child = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace",
            start_new_session=os.name == "posix",
        )  # fmt: skip

        def answered() -> None:
            for line in child.stdout or ():
                answers.put(json.loads(line))
            answers.put(None)

        def printed() -> None:
            for line in child.stderr or ():
                self._tell(line.rstrip())

        self._readers = [threading.Thread(target=reader, daemon=True) for reader in (answered, printed)]
        for reader in self._readers:
            reader.start()

    def _ask(self, call: dict[str, Any], stopped: Callable[[], bool]) -> Any:
        assert self._child and self._child.stdin
        name = {"load": "the script", "check": "check()", "done": "on_done()"}[call["call"]]
        limit = Settings.check_timeout if call["call"] == "load" else self.settings.check_timeout
        try:
            self._child.stdin.write(json.dumps(call) + "\n")
            self._child.stdin.flush()
            answer = self._answer(limit, stopped)
        except (Empty, BrokenPipeError) as error:
            self.close()
            if isinstance(error, Empty):
                raise ScriptError(
                    f"{name} did not return within {limit:g} s and was given up", f"{name} hangs"
                ) from None
            answer = None
        if answer is None:
            self.close()
            raise ScriptError(f"{name} ended its process", f"{name} exits")
        self.looked = answer["looked"]
        if answer["settings"]:
            self.settings = Settings(**answer["settings"])
        if answer["error"]:
            if call["call"] == "load":
                self.close()
            said = f"{name}: " if call["call"] != "load" else ""
            raise ScriptError(f"{said}{answer['error']}", answer["where"])
        return answer["value"]

    def _answer(self, limit: float, stopped: Callable[[], bool]) -> dict[str, Any] | None:
        """The child's answer, None when it has ended. Raises Empty when it takes too long, or all is to end."""
        deadline = time.monotonic() + limit
        while True:
            try:
                return self._answers.get(timeout=0.1)
            except Empty:
                if stopped() or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """End the child with all it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            if os.name == "posix":
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
        child.wait()
        for reader in self._readers:
            reader.join(1)  # what it has started outside of its group may hold the pipes: those are left to it
        if any(reader.is_alive() for reader in self._readers):
            return
        for stream in (child.stdin, child.stdout, child.stderr):
            with contextlib.suppress(OSError, ValueError):  # what it was not told any more is lost anyway
                stream and stream.close()


# the child


def serve() -> None:
    """Answer calls until the watcher is gone: then end at once, whatever the script does."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the script prints is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the watcher's
    calls: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            calls.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    looked: dict[str, None] = {}
    sys.addaudithook(lambda event, args: _look(event, args, looked))
    module, path = None, ""
    while True:
        call = json.loads(calls.get())
        looked.clear()
        answer: dict[str, Any] = {"value": None, "error": "", "where": ""}
        try:
            if call["call"] == "load":
                path = call["path"]
                module = _loaded(call)
            elif call["call"] == "check":
                answer["value"] = _plain(module.check())  # type: ignore[union-attr]  # loaded before
            else:
                result = Result(text_of(call["result"]))
                result.record = call["result"]
                module.on_done(result)  # type: ignore[union-attr]
            answer["settings"] = _settings(module)
        except (Exception, SystemExit) as error:
            answer["error"], answer["where"] = _told(error, path)
        answer.setdefault("settings", {})
        answer["looked"] = list(looked)
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _told(error: BaseException, path: str) -> tuple[str, str]:
    """(the fault in one line, what tells it from others): by the line of the script, not of what that has called."""
    if isinstance(error, GAError):  # its words are for the user
        return str(error), str(error)
    lines: list[Any] = [n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == path]
    words: object = error
    if isinstance(error, SyntaxError) and error.filename == path:
        lines, words = [error.lineno], error.msg
    line = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {words}{line}", f"{type(error).__name__}{line}"


def _loaded(call: dict[str, Any]) -> ModuleType:
    module = ModuleType("watcher")
    module.__file__ = call["path"]
    sys.modules["watcher"] = module
    exec(compile(call["source"], call["path"], "exec"), module.__dict__)
    if not callable(getattr(module, "check", None)):
        raise UsageError("it has no check()")
    if hasattr(module, "init"):
        module.init(call["args"])
    elif call["args"]:
        raise UsageError(f"it has no init(args) and takes no --{next(iter(call['args']))}")
    return module


def _settings(module: Any) -> dict[str, Any]:
    """Raises UsageError for a value that is none. A script that does not say what its prompts hold is taken to read what
    somebody else has written."""
    get = vars(module).get

    def number(name: str, default: float | None) -> Any:
        value = get(name, default)
        if isinstance(value, int | float) and math.isfinite(value) and value >= 0 or value is default:
            return value
        raise UsageError(f"{name} must be a number, not {value!r}")

    tainted, turns = get("TAINTED", True), number("MAX_TURNS", None)
    if not isinstance(tainted, bool | str):
        raise UsageError(f"TAINTED must be True, False or a text, not {tainted!r}")
    return {
        "interval": max(LEAST_INTERVAL, number("INTERVAL", 60)), "check_timeout": number("CHECK_TIMEOUT", 60),
        "max_turns": turns and int(turns), "max_time": number("MAX_TIME", None),
        "tainted": f"what {module.__file__} has found" if tainted is True else tainted or "",
        "has_done": callable(get("on_done")),
        **{name.lower(): bool(get(name, False)) for name in ("ONCE", "KEEP_SESSION", "DELIVERS")},
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return None if value is None else {"not": type(value).__name__}


def text_of(record: Mapping[str, Any]) -> str:
    """The answer of a task, or its question, or its error."""
    question = record.get("question")
    return str(record.get("answer") or (question and question["question"]) or record.get("error") or "")


def _look(event: str, args: tuple[Any, ...], looked: dict[str, None]) -> None:
    """Which places a script watches shows in what it lists and reads."""
    if event not in ("os.listdir", "os.scandir", "open") or len(looked) >= MOST_LOOKED:
        return
    if event != "open" or args[1] in ("r", "rb"):
        with contextlib.suppress(TypeError, ValueError):  # a descriptor
            looked[os.path.abspath(os.fsdecode(args[0] or "."))] = None  # noqa: PTH100
