"""Finished sessions, packed: NAME.jsonl of the sessions' folder becomes NAME.jsonl.gz of the archive, with its time.

At each moment the session is in one of the two places, or whole in both: a new file is on the disk and read back before
the old one goes. A session that somebody holds, or that was touched lately, stays where it is. No name is taken twice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO

from .. import paths
from ..errors import SessionError, ToolError
from . import atomic
from .journal import held, info_of
from .lock import FileLock

PACKED = ".jsonl.gz"
OLD = 14 * 86400  # seconds without a change after which a session is packed
PAUSE = 600  # seconds between two rounds that nobody asked for
SLICE, SLICE_BYTES = 0.05, 2 << 20  # seconds of such a round, and the largest session it packs
_LEVEL = 6


def name_of(path: Path) -> str:
    """The session's name without its endings, the same in both places."""
    return path.name.partition(".jsonl")[0]


def content(path: Path) -> bytes:
    """The bytes of a session, packed or not. Raises SessionError."""
    with opened(path) as file:
        return file.read()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A session to be read, packed or not. Raises SessionError."""
    import gzip

    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait
            raise SessionError(f"cannot read {path}: it is no file")
        with path.open("rb") as plain:
            yield gzip.GzipFile(fileobj=plain) if path.name.endswith(PACKED) else plain  # type: ignore[misc]
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SessionError(f"the archived session {path} is damaged: {error}") from error
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}") from error


def pack(path: Path, before: float) -> Path:
    """Archive a session last changed before then; returns its archive. Raises SessionError, and then it is where it was."""
    import gzip

    with opened(path) as file:
        if path.is_symlink() or not info_of(path, file, 0.0):
            raise SessionError(f"{path} is no session; it was left as it is")
    with _alone(path) as lock:
        found = path.stat()
        if found.st_mtime >= before:
            raise SessionError(f"{path} was changed just now; it was left as it is")
        data = path.read_bytes()
        target = _target(path, data)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write_bytes(target, gzip.compress(data, _LEVEL, mtime=0), mode=0o600)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        _replaced_by(target, path, data)
        with contextlib.suppress(OSError):  # an empty file is harmless
            lock.path.unlink()
    return target


def unpack(packed: Path) -> Path:
    """Put an archived session back among the others; returns its file. Raises SessionError, and then it is archived."""
    path = paths.sessions() / f"{name_of(packed)}.jsonl"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with _alone(path):
        data = content(packed)
        if not path.exists():
            atomic.write_bytes(path, data, mode=0o600)
        elif not content(path).startswith(data):
            raise SessionError(f"{packed} cannot be unpacked: {path} is another session")
        _replaced_by(path, packed, data)
    return path


def tidy(
    before: float, stop: Callable[[], bool] = lambda: False, largest: int | None = None
) -> tuple[int, list[SessionError]]:
    """Archive the sessions last changed before then, the oldest first, until `stop`; (how many, what went wrong).
    Nothing is done while another process does it. Raises OSError where there can be no lock."""
    packed, faults, lock = 0, list[SessionError](), FileLock(_lock())
    if not lock.acquire():
        return 0, [SessionError(f"sessions are being archived by process {(lock.holder() or {}).get('pid')}")]
    with lock:
        for path in _finished(before, largest):
            if stop():
                break
            try:
                pack(path, before)
                packed += 1
            except SessionError as error:
                faults.append(error)
    return packed, faults


def _lock() -> Path:
    """Held by the one process that archives; its age tells when the last round was."""
    return paths.home() / "locks" / "archive.lock"


def now_and_then(now: float, clock: Callable[[], float] = time.monotonic) -> None:
    """A short round of `tidy`, when the last one was a while ago. Never fails."""
    lock, end = _lock(), clock() + SLICE
    try:
        if lock.exists() and 0 <= now - lock.stat().st_mtime < PAUSE:
            return
        if next(_finished(now - OLD, SLICE_BYTES), None):
            _, faults = tidy(now - OLD, lambda: clock() >= end, SLICE_BYTES)
            for fault in faults:
                logging.getLogger(__name__).info("not archived: %s", fault)
    except OSError:  # no leave to write there: another time
        logging.getLogger(__name__).warning("sessions cannot be archived", exc_info=True)


def _finished(before: float, largest: int | None) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError), os.scandir(paths.sessions()) as entries:
        files = [
            (info.st_mtime, entry.path)
            for entry in entries
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
            if (info := entry.stat()).st_mtime < before and (largest is None or info.st_size <= largest)
        ]
        yield from (Path(path) for _, path in sorted(files))


def _target(path: Path, data: bytes) -> Path:
    """Its place in the archive: a new name, or that of an earlier state of it, which it holds whole."""
    names = (name_of(path) + (f"-{n}" if n > 1 else "") for n in count(1))
    others = (name for name in names if name == name_of(path) or not (path.parent / f"{name}.jsonl").exists())
    return next(target for name in others if _is_for(target := paths.archive() / f"{name}{PACKED}", data))


def _is_for(target: Path, data: bytes) -> bool:
    if not target.is_symlink() and not target.exists():
        return True
    try:
        return data.startswith(content(target))
    except SessionError:  # damaged: it stays, for whoever can repair it
        return False


def _replaced_by(new: Path, old: Path, data: bytes) -> None:
    """Remove `old`, now that `new` holds the same for good. Raises SessionError, OSError."""
    if not content(new).startswith(data):
        raise SessionError(f"{new} does not hold what was written; {old} was kept")
    atomic.sync_folder(new.parent)
    old.unlink()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[FileLock]:
    """The session is held, and what fails is a SessionError."""
    lock = held(path)
    try:
        yield lock
    except (OSError, ToolError) as error:
        raise SessionError(
            f"cannot move the session {path.name}: {getattr(error, 'strerror', None) or error}"
        ) from error
    finally:
        lock.release()
