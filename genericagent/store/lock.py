"""Kernel locks on files: gone with the process that holds them, however it ends, so they are never stale."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

if os.name == "nt":
    import msvcrt
else:
    import fcntl


_OLD = 7 * 86400  # seconds
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)  # a link in its place would empty another file
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
        while self._fd is None:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            try:
                taken = _lock(fd, blocking)
                if taken and _is_at(fd, self.path):
                    self._fd = fd
            finally:
                if self._fd is None:
                    os.close(fd)
            if not taken:
                return False
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same, it only has no name
            os.ftruncate(self._fd, 0)
            os.write(self._fd, json.dumps({"pid": os.getpid(), "started": time.time()}).encode())
        return True

    def holder(self) -> dict[str, Any] | None:
        """{"pid", "started"} as the holder wrote it, or None when that cannot be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else None
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


@contextlib.contextmanager
def held(fd: int) -> Iterator[None]:
    """Wait for the lock on an open file itself. Raises OSError on a file system without locks."""
    _lock(fd, True)
    try:
        yield
    finally:
        _unlock(fd)


def clean(folder: Path, now: float | None = None) -> None:
    """Remove lock files below `folder` that nobody holds and nobody has taken for a week. Windows keeps open files."""
    now = time.time() if now is None else now
    for path in folder.glob("*.lock"):
        with contextlib.suppress(OSError):  # another process may be cleaning too
            if not stat.S_ISREG(path.lstat().st_mode) or now - path.stat().st_mtime < _OLD:
                continue
            fd = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
            try:
                if _lock(fd, False) and _is_at(fd, path) and now - os.fstat(fd).st_mtime >= _OLD:
                    path.unlink()
            finally:
                os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    """Whether the file we have locked is still the one that others find: clean() may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


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
