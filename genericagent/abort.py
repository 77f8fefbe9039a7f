"""The user's wish to stop, as everybody who waits sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .errors import Aborted


class Abort:
    """An event, plus what is to be called when it comes: closing a socket, waking a selector."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.why = ""
        self._lock = threading.RLock()  # set() may come from a signal handler
        self._callbacks: list[Callable[[], None]] = []

    def set(self, why: str = "stopped by user") -> None:
        self.why = why
        self.event.set()
        with self._lock:
            callbacks = list(self._callbacks)
        for wake in callbacks:
            wake()

    def clear(self) -> None:
        self.event.clear()

    def is_set(self) -> bool:
        return self.event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep, but not past an abort. Returns True when there was one."""
        return self.event.wait(seconds)

    def check(self) -> None:
        if self.event.is_set():
            raise Aborted(self.why)

    def on_set(self, wake: Callable[[], None]) -> None:
        with self._lock:
            self._callbacks.append(wake)
        if self.event.is_set():
            wake()

    def forget(self, wake: Callable[[], None]) -> None:
        with self._lock:
            if wake in self._callbacks:
                self._callbacks.remove(wake)
