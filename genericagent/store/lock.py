"""Kernel locks on files: gone with the process that holds them, however it ends, so they are never stale."""

from __future__ import annotations

import contextlib
import errno
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


_FAR = 1 << 30  # the byte that Windows locks: what it locks nobody else can read, so not where the holder stands


class FileLock:
    """One lock file. The holder's pid and start time stand in it, for messages only: the kernel decides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, blocking: bool = False) -> bool:
        """Take the lock; False when somebody else (or another FileLock of this process) has it.

        Raises OSError when there can be no lock: no permission, or a file system without them.
        """
        if self._fd is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if not _lock(fd, blocking):
                os.close(fd)
                return False
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, it only has no name
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps({"pid": os.getpid(), "started": time.time()}).encode())
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
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):  # nobody holds it any more: nobody is named
                os.ftruncate(fd, 0)
            _unlock(fd)
            os.close(fd)

    def __enter__(self) -> FileLock:
        self.acquire(blocking=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def _lock(fd: int, blocking: bool) -> bool:
    """Whether the lock was taken; False only when somebody else has it. Raises OSError."""
    if os.name == "nt":
        return _lock_windows(fd, blocking)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES) and not blocking:
            return False
        raise
    return True


def _lock_windows(fd: int, blocking: bool) -> bool:
    while True:
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            if not blocking:
                return False
            time.sleep(0.05)  # its own way to wait gives up after ten seconds
            continue
        os.lseek(fd, 0, os.SEEK_SET)
        return True


def _unlock(fd: int) -> None:
    """Closing does it too, but not while a child that is just being started has a copy of the descriptor."""
    with contextlib.suppress(OSError):  # closing follows
        if os.name == "nt":
            os.lseek(fd, _FAR, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(fd, fcntl.LOCK_UN)
