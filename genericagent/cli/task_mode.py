"""`--task NAME`: a scripted task that talks through files in $GA_HOME/temp/NAME.

input.txt → output.txt (growing, ended by `[ROUND END]`), result.json; with --wait: reply.txt → output1.txt, …
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, GAError, UsageError
from ..paths import ensure_home, program, task_dir
from ..store import atomic
from ..store.lock import FileLock
from .running import ROUND_END, TICK, exit_code, items, outcome, working

if TYPE_CHECKING:
    from agentmain import GenericAgent

BEGIN_WITHIN = 5  # seconds in which a detached task is expected to begin
BG_WAIT = 600  # seconds a detached task waits for a reply
_CLEARED = ("result.json", "reply.txt", "_stop", "_intervene")


def run_task_mode(args: Namespace, make_agent: Callable[[], GenericAgent]) -> int:
    """Run the task and its replies; the exit code is that of the last round."""
    folder = _made(args.task)
    lock = _locked(folder, args.task)
    try:
        return _rounds(args, folder, make_agent)
    finally:
        lock.release()


def _locked(folder: Path, name: str) -> FileLock:
    lock = FileLock(folder / ".lock")
    if not lock.acquire():
        holder = lock.holder() or {}
        raise UsageError(f"the task {name} is running already (process {holder.get('pid', 'unknown')})")
    return lock


def _rounds(args: Namespace, folder: Path, make_agent: Callable[[], GenericAgent]) -> int:
    text, given = _request(args, folder), args.input is not None
    _clear(folder)
    if args.inherit:
        args.inherited = json.loads(sys.stdin.buffer.readline())
        args.cwd = args.cwd or str(folder)
    try:
        agent = make_agent()
    except GAError as error:  # whoever waits for the files learns it from them
        _could_not_start(folder, error)
        raise
    agent.task_dir = folder
    _seed(agent, args.history, folder)
    if args.inherit:
        threading.Thread(target=_until_alone, args=(agent,), daemon=True).start()
    code, number = 0, 0
    with working(agent):
        while True:
            # a script can write reply.txt and input.txt too, and a model the request of a sub-agent: such text gives no
            # orders to the program and makes no host known
            end = _round(agent, text, folder, number, "user" if given and not number and not args.inherit else "file")
            code = exit_code(end)
            if args.inherit:
                from ..tools.subagents import RESULT

                sys.stdout.write(f"{RESULT.decode()}{args.inherited['word']} {json.dumps(outcome(end))}")
                sys.stdout.flush()
            reply = None if end["status"] == "interrupted" else _await_reply(folder, args.wait or 0)
            if reply is None:
                return code
            text, number = reply, number + 1


def _could_not_start(folder: Path, error: GAError) -> None:
    record: dict[str, Any] = {
        "status": "failed", "result": "LLM_FAILED", "answer": "", "question": None, "turns": 0, "usage": {}, "cost": None,
        "session": "", "files_changed": {}, "error": str(error),
    }  # fmt: skip
    atomic.write_own(folder / "output.txt", f"[failed] {error}\n\n{ROUND_END}\n")
    atomic.write_own(folder / "result.json", json.dumps(record, indent=1) + "\n")


def _made(name: str) -> Path:
    folder = _folder(name)
    ensure_home()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link: a task has a folder of its own")
    return folder


def _folder(name: str) -> Path:
    if (
        not re.fullmatch(r"[^\s/\\:\x00-\x1f][^/\\:\x00-\x1f]*", name)
        or name.startswith((".", "_"))
        or len(name.encode("utf-8", "replace")) > 200
    ):
        raise UsageError(f"{name!r} is not a task name: one file name, not beginning with . or _")
    return task_dir(name)


def _request(args: Namespace, folder: Path, keep: bool = True) -> str:
    """The first request; refused before anything is cleared or any model is called when there is none."""
    source = folder / "input.txt"
    if args.input is not None:
        text = str(args.input)
        if text.strip() and keep:
            atomic.write_own(source, text)
    elif source.is_file():
        text = _own(source).decode("utf-8-sig", "replace")
    else:
        raise UsageError(f"nothing to do: give --input TEXT or write {source}")
    if not text.strip():
        raise UsageError("the request is empty")
    return text


def _own(file: Path) -> bytes:
    try:
        return atomic.read_own(file)
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror or error}") from None


def _clear(folder: Path) -> None:
    """Take away what an earlier run left: output*.txt and the files that would steer this one."""
    for old in [*folder.glob("output*.txt"), *(folder / name for name in _CLEARED)]:
        if re.fullmatch(r"output\d*\.txt", old.name) or old.name in _CLEARED:
            old.unlink(missing_ok=True)


def _seed(agent: GenericAgent, given: str | None, folder: Path) -> None:
    file = Path(given) if given else folder / "_history.json"
    if not given and not file.is_file():
        return
    try:
        messages = json.loads((file.read_bytes() if given else atomic.read_own(file)).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the history in {file} cannot be read: {error}") from None
    if not isinstance(messages, list):
        raise UsageError(f"the history in {file} is not a JSON list of messages")
    agent.seed_history(messages)


def _until_alone(agent: GenericAgent) -> None:
    """Whoever started this holds the other end of stdin for as long as it wants the task, and lives."""
    while os.read(0, 1 << 12):  # not through a buffer, whose lock would be held at the end of the program
        pass
    agent.close()


def _round(agent: GenericAgent, text: str, folder: Path, number: int, source: str) -> dict[str, Any]:
    """One request and its output file; returns the last item."""
    stop_file = folder / "_stop"

    def look() -> None:
        if atomic.read_and_delete(stop_file) is not None:
            agent.abort()

    name = f"output{number or ''}.txt"
    last: dict[str, Any] = {}
    with TextIOWrapper(atomic.open_own(folder / name), "utf-8", "replace", newline="\n") as out:
        for item in items(agent, text, look, source):
            if item.get("next"):
                out.write(item["next"])
                out.flush()
            last = item
        if last["status"] == "needs_input" and not last["error"]:
            question = last["question"]
            out.write("\n" + "\n".join([question["question"], *(f"- {c}" for c in question["candidates"])]) + "\n")
        if last["error"]:
            out.write(f"\n[{last['status']}] {last['error']}\n")
        if last.get("files_changed"):
            out.write("\n" + "\n".join(f"{how}: {path}" for path, how in last["files_changed"].items()) + "\n")
        atomic.write_own(folder / "result.json", json.dumps(outcome(last), indent=1) + "\n")
        out.write(f"\n{ROUND_END}\n")
    if last["error"]:
        sys.stderr.write(f"error: {last['error']}\n")
    return last


def _await_reply(folder: Path, seconds: float) -> str | None:
    """The next reply.txt within the time, or None; `_stop` ends the waiting."""
    deadline = time.monotonic() + seconds
    while True:
        data = atomic.read_and_delete(folder / "reply.txt") if seconds else None
        text = (data or b"").decode("utf-8-sig", "replace").strip()
        if text:
            return text
        if time.monotonic() >= deadline or atomic.read_and_delete(folder / "_stop") is not None:
            return None
        time.sleep(TICK)


def _check_model(args: Namespace) -> None:
    """What can be known beforehand is said at once, not into a log."""
    from llmcore import load_config

    from ..prompts import say

    config = load_config(args.config)
    if args.demo:
        return
    if not config.models:
        raise ConfigError("; ".join(config.problems) or say("no_key"))
    if args.llm_no >= len(config.models):
        raise UsageError(f"there is no model {args.llm_no}: {len(config.models)} are configured")


def detach(args: Namespace, argv: Sequence[str]) -> int:
    """`--bg`: start the same command in a session of its own, print its PID. What is wrong is said here, at once."""
    folder = _made(args.task)
    _request(args, folder, keep=False)
    _check_model(args)
    again = [a for a in argv if a != "--bg"]
    if args.wait is None:
        again = ["--wait", str(BG_WAIT), *again]
    for name in ("stdout.log", "stderr.log"):
        (folder / name).touch(mode=0o600)
    with atomic.open_own(folder / "stdout.log", True) as out, atomic.open_own(folder / "stderr.log", True) as err:
        child = subprocess.Popen(
            [sys.executable, str(program()), *again],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=os.name == "posix",
        )
        said_before = err.tell()
    if not _began(child, FileLock(folder / ".lock")):
        said = (folder / "stderr.log").read_bytes()[said_before:].decode("utf-8", "replace")
        sys.stderr.write(said or f"error: the task ended at once with exit code {child.returncode}\n")
        return child.returncode
    sys.stdout.write(f"PID: {child.pid}\n")
    return 0


def _began(child: subprocess.Popen[bytes], lock: FileLock) -> bool:
    """Whether the detached task is at work: it holds the lock, or has already ended well."""
    deadline = time.monotonic() + BEGIN_WITHIN
    while time.monotonic() < deadline:
        if child.poll() is not None:
            return child.returncode != 2 and child.returncode != 1
        if (lock.holder() or {}).get("pid") == child.pid:
            return True
        time.sleep(0.02)
    return True  # slow, but alive
