"""Kernel locks on files: gone with the process that holds them, however it ends, so they are never stale."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

if os.name == "nt":
    import msvcrt
else:
    import fcntl


class FileLock:
    """One lock file. The holder's pid and start time stand in it, for messages only: the kernel decides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, blocking: bool = False) -> bool:
        """Take the lock; False when somebody else (or another FileLock of this process) has it."""
        if self._fd is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if not _lock(fd, blocking):
            os.close(fd)
            return False
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps({"pid": os.getpid(), "started": time.time()}).encode(), 0)
        self._fd = fd
        return True

    def holder(self) -> dict[str, Any] | None:
        """{"pid", "started"} as the holder wrote it, or None when that cannot be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # closing gives the lock back
            self._fd = None

    def __enter__(self) -> FileLock:
        self.acquire(blocking=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()


def _lock(fd: int, blocking: bool) -> bool:
    try:
        if os.name == "nt":
            msvcrt.locking(fd, msvcrt.LK_LOCK if blocking else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
