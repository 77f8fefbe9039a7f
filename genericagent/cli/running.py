"""Running a task from a command: the agent in its thread, signals that stop it, the outcome as a record."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import TYPE_CHECKING, Any

from ..prompts import say
from ..safety.term import one_line

if TYPE_CHECKING:
    from agentmain import GenericAgent

ROUND_END = "[ROUND END]"
TICK = 0.25  # seconds between two looks at the task's files


def exit_code(end: dict[str, Any]) -> int:
    from agentmain import EXIT_CODES

    return EXIT_CODES[end["status"]]


def outcome(end: dict[str, Any]) -> dict[str, Any]:
    """The last item of a display queue as result.json has it."""
    return {
        "status": end["status"],
        "result": end["result"],
        "answer": end["answer"],
        "question": end["question"],
        "turns": end["turn"],
        "usage": end["usage"],
        "cost": end["cost"],
        "session": end["session"],
        "files_changed": end.get("files_changed", {}),
        "denied": end.get("denied", []),
        "tainted": end.get("tainted", ""),
        "error": end["error"],
    }


@contextlib.contextmanager
def working(agent: GenericAgent, stopped: Callable[[], None] = lambda: None) -> Iterator[None]:
    """The agent's thread runs, and SIGINT, SIGTERM and SIGHUP stop its task (and call `stopped`); at the end nothing is
    left running."""
    from ..tools.jobs import kill_background

    def end(*_: object) -> None:
        stopped()
        agent.close()

    thread = threading.Thread(target=agent.run, name="agent", daemon=True)
    before = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and threading.current_thread() is threading.main_thread():
            before[number] = signal.signal(number, end)
    thread.start()
    try:
        yield
    finally:
        agent.close()
        thread.join(timeout=5)
        if ended := kill_background():
            sys.stderr.write(f"note: {say('ended_at_exit', titles=', '.join(map(one_line, ended.values())))}\n")
        agent.release()
        for number, handler in before.items():
            signal.signal(number, handler)


def items(
    agent: GenericAgent, text: str, every_tick: Callable[[], None] | None = None, source: str = "user"
) -> Iterator[dict[str, Any]]:
    """Queue a task and yield its display items up to the last; `every_tick` is called a few times a second."""
    queue = agent.put_task(text, source)
    looked = time.monotonic()
    while True:
        try:
            item = queue.get(timeout=TICK)
        except Empty:
            item = None
        if every_tick and time.monotonic() - looked >= TICK:
            every_tick()
            looked = time.monotonic()
        if item is None:
            continue
        if (event := item.get("event") or {}).get("kind") == "notice":
            sys.stderr.write(f"note: {one_line(event['text'], 300)}\n")
        yield item
        if "done" in item:
            return


def run_one(agent: GenericAgent, text: str, show: Callable[[dict[str, Any]], None] | None) -> dict[str, Any]:
    """Run one task; returns its last item."""
    last: dict[str, Any] = {}
    with working(agent):
        for item in items(agent, text):
            if show:
                show(item)
            last = item
    return last
