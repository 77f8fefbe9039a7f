"""Where a running task waits for a person's yes or no; the face that shows the question answers it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal

from ..abort import Abort

Scope = Literal["once", "session", "no"]


@dataclass(frozen=True)
class Answer:
    """`note`: what the person said beside a no, for the model to read."""

    scope: Scope
    note: str = ""


NO = Answer("no")


class Desk:
    """One question at a time. `ask` blocks the task's thread; `answer` comes from another one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[str, SimpleQueue[Answer]] | None = None

    def ask(self, id: str, show: Callable[[], None], stop: Abort) -> Answer:
        """Show the question and wait; a stop of the task counts as a no."""
        queue: SimpleQueue[Answer] = SimpleQueue()

        def wake() -> None:
            queue.put(NO)

        with self._lock:
            self._open = (id, queue)
        stop.on_set(wake)
        try:
            show()
            return queue.get()
        finally:
            stop.forget(wake)
            with self._lock:
                self._open = None

    def answer(self, id: str, answer: Answer) -> bool:
        """False when this question is not (any more) the open one: a late or doubled answer counts for nothing."""
        with self._lock:
            if self._open is None or self._open[0] != id:
                return False
            queue, self._open = self._open[1], None
        queue.put(answer)
        return True
