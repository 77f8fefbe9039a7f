"""Files that are old or new, never a mix: temp file beside the target, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..errors import ToolError

_PREFIX = ".ga-"
_STALE = 3600  # seconds after which a temp file of ours belongs to nobody


def write_bytes(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of `path` in one step. Raises ToolError, and then the old file is as it was.

    A symlink stays a link: what it points to is replaced (a dangling one is an error). Mode bits and, where we may,
    the owner are kept; a new file gets `mode` (default 0666 less the umask). A file with other hard links is written
    in place, so that all its names keep showing the same content.
    """
    if path.is_symlink() and not path.exists():
        raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}")
    target = path.resolve()
    try:
        before = target.stat() if target.exists() else None
        if before is not None and before.st_nlink > 1:
            _write_in_place(target, data)
            return
        temp = target.parent / f"{_PREFIX}{os.urandom(8).hex()}.tmp"
        try:
            _write_new(temp, data)
            _take_over(temp, before, mode)
            temp.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):  # the fault that brought us here is the one to report
                temp.unlink()
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise ToolError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """`write_bytes` with UTF-8; line breaks stay as they are."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"), mode=mode)


def read_and_delete(path: Path) -> bytes | None:
    """Take a file: its bytes, and it is gone; None when there is none. Two takers never get the same file."""
    if not path.exists():
        return None
    taken = path.parent / f"{_PREFIX}{os.urandom(8).hex()}.taken"
    try:
        path.rename(taken)
    except FileNotFoundError:
        return None  # somebody else took it
    data = taken.read_bytes()
    taken.unlink()
    return data


def clean_stale(folder: Path, now: float | None = None) -> None:
    """Remove temp files that a crash left in `folder` more than an hour ago."""
    now = time.time() if now is None else now
    for old in folder.glob(f"{_PREFIX}*.tmp"):
        with contextlib.suppress(OSError):  # another process may be cleaning too
            if now - old.stat().st_mtime > _STALE:
                old.unlink()


def _write_new(temp: Path, data: bytes) -> None:
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_in_place(target: Path, data: bytes) -> None:
    fd = os.open(target, os.O_WRONLY)
    try:
        _write_all(fd, data)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _take_over(temp: Path, before: os.stat_result | None, mode: int | None) -> None:
    if before is None:
        if mode is None:
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        temp.chmod(mode)
        return
    if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(OSError):  # only root may give a file away
            os.chown(temp, before.st_uid, before.st_gid)
    temp.chmod(before.st_mode & 0o7777)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
