"""Sub-agents: scripted tasks (`--task`) in processes of their own that end with the one that started them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from .. import paths
from ..abort import Abort
from ..errors import ToolError
from ..prompts import say
from ..safety.term import one_line
from ..store import atomic
from .jobs import MARK, Job, end, exists, started

AT_ONCE, AT_MOST = 8, 32  # the latter of one task
ABOUT = 60  # characters of a prompt by which a person knows the sub-agent
GRACE = 5.0  # seconds that a child has to end by itself
TICK = 0.05
RESULT = b"\n[RESULT] "  # what stands, with a word that only the child was told, before its result on its stdout
TOLD = ("status", "answer", "error", "turns", "cost", "files_changed")  # of result.json


@dataclass
class Child:
    name: str
    about: str  # the name and the beginning of the prompt, for a person
    process: subprocess.Popen[bytes]
    said: IO[bytes]  # its stdout, a file without a name: its result
    word: str  # stands before the result: without a sandbox a script could write into that file too
    job: Job  # it and all that it starts

    def let_go(self) -> None:
        """The end of its stdin: it stops its task and ends."""
        with contextlib.suppress(OSError):  # it has gone already
            if self.process.stdin:
                self.process.stdin.close()


def requests(prompts: Any, before: int) -> list[str]:
    """The prompts of a call in a task that has begun so many sub-agents before. Raises ToolError."""
    wanted = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(wanted, (list, tuple)) or not wanted or not all(isinstance(p, str) and p.strip() for p in wanted):
        raise ToolError(say("subagent_prompts"))
    if len(wanted) > AT_MOST - before:
        raise ToolError(say("subagent_most", most=AT_MOST, left=AT_MOST - before))
    return list(wanted)


def run_subagents(
    prompts: Sequence[str],
    command: Sequence[str],
    inherited: Mapping[str, Any],
    *,
    stop: Abort,
    id: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[str, None, list[dict[str, Any]]]:
    """Run one task for each prompt, eight at a time; yields a line when one begins or ends, returns what result.json says.

    `command`: the program with the options that all have; `inherited` goes to each on stdin (cli/task_mode.py reads it);
    `timeout`: seconds for all together. A stop ends them all, and so does the end of this process.
    """
    waiting = [(f"sub-{id}-{n}", prompt) for n, prompt in enumerate(prompts, 1)]
    running, done, deadline = list[Child](), dict[str, dict[str, Any]](), clock() + timeout
    names = [name for name, _ in waiting]
    try:
        while (waiting or running) and not stop.is_set() and clock() < deadline:
            while waiting and len(running) < AT_ONCE:
                running.append(_started(*waiting.pop(0), command, inherited))
                yield f"{running[-1].about}: {say('subagent_begun')}\n"
            for child in [c for c in running if c.process.poll() is not None]:
                running.remove(child)
                _end([child])
                done[child.name] = _result(child)
                yield f"{child.about}: {done[child.name]['status']}\n"
            if running:
                stop.wait(TICK)
    finally:
        _end(running)
    done |= {child.name: _result(child) for child in running}
    not_begun = {"status": "interrupted", "full": {"tainted": "", "cost": 0.0}}
    return [{"name": name, **done.get(name, not_begun)} for name in names]


def _started(name: str, prompt: str, command: Sequence[str], inherited: Mapping[str, Any]) -> Child:
    folder = paths.task_dir(name)
    folder.mkdir(mode=0o700, parents=True)
    atomic.write_own(folder / "input.txt", prompt)
    said = tempfile.TemporaryFile()  # noqa: SIM115  # the child's
    mark, word = os.urandom(6).hex(), os.urandom(16).hex()
    with atomic.open_own(folder / "stderr.log") as log:
        process = subprocess.Popen(
            [*command, "--task", name, "--inherit"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=log,
            env={**os.environ, MARK: ":".join(filter(None, [os.environ.get(MARK), mark]))},
            start_new_session=os.name == "posix",  # a Ctrl-C at the terminal is the parent's to pass on
        )
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):  # it ended at once; its result says why
        process.stdin.write(json.dumps({**inherited, "word": word}).encode() + b"\n")
        process.stdin.flush()
    about = f"{name} ({one_line(prompt, ABOUT)})"
    return Child(name, about, process, said, word, Job(process.pid, mark, name, born=started(process.pid)))


def _end(children: Sequence[Child]) -> None:
    """Let them end by themselves; then nothing of them lives, and nothing that they have started."""
    for child in children:
        child.let_go()
    deadline = time.monotonic() + GRACE
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
            child.job.own = exists(child.process.pid)  # else that number may be somebody else's by now
    end([child.job for child in children])
    for child in children:
        child.process.wait()


def _result(child: Child) -> dict[str, Any]:
    """What the model is told of a child that has ended, and under "full" all that it said; why there is nothing, where it is."""
    child.said.seek(0)
    try:
        found = json.loads(child.said.read().rpartition(RESULT + child.word.encode() + b" ")[2].partition(b"\n")[0])
        return {**{key: found[key] for key in TOLD if found.get(key)}, "status": found["status"], "full": found}
    except (ValueError, KeyError, TypeError):
        log = paths.task_dir(child.name) / "stderr.log"
        said = atomic.read_own(log).decode("utf-8", "replace").strip()[-500:] if log.is_file() else ""
        return {"status": "failed", "error": said or say("subagent_lost"), "full": {}}
    finally:
        child.said.close()
