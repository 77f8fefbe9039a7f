"""Files that are old or new, never a mix: temp file beside the target, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from ..errors import ToolError

_PREFIX = ".ga-"
_STALE = 3600  # seconds after which a temp file of ours belongs to nobody
_BINARY = getattr(os, "O_BINARY", 0)  # without it Windows changes line breaks


def write_bytes(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace the content of `path` in one step. Raises ToolError, and then the old file is as it was.

    A symlink stays a link: what it points to is replaced (a dangling one is an error). Mode bits and, where we may,
    owner and group are kept; a new file gets `mode` (default 0666 less the umask). A file with other hard links is
    written in place, so that all its names keep showing the same content: there a kill at the wrong moment can leave
    a mix, and its old content in a temp file beside it.
    """
    try:
        _replace(path, data, mode)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name; a loop of links (before Python 3.13)
        raise ToolError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    if path.is_symlink() and not path.exists():
        raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}")
    target = path.resolve()
    before = target.stat() if target.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ToolError(f"cannot write {path}: it is not a regular file")
    if before is not None and before.st_nlink > 1:
        _write_in_place(target, data)
        return
    temp = _temp(target.parent)
    try:
        # a new file of no special mode is left to the kernel's umask: asking for it would change it for all threads
        write_new(temp, data, 0o666 if before is None and mode is None else 0o600)
        if before is not None:
            _take_over(temp, before)
        elif mode is not None:
            temp.chmod(mode)
        temp.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):  # the fault that brought us here is the one to report
            temp.unlink()
        raise
    with contextlib.suppress(OSError):  # the new content is in place; a power cut may at worst bring back the old
        sync_folder(target.parent)


def write_text(path: Path, text: str, *, mode: int | None = None) -> None:
    """`write_bytes` with UTF-8; line breaks stay as they are."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"), mode=mode)


def read_and_delete(path: Path) -> bytes | None:
    """Take a file: its bytes, and it is gone; None when there is none. Two takers never get the same file.

    Raises ToolError when it cannot be taken, and then it is still there.
    """
    taken = path.parent / f"{_PREFIX}{os.urandom(8).hex()}.taken"
    try:
        if not path.is_file():
            return None
        try:
            path.rename(taken)
        except FileNotFoundError:
            return None  # somebody else took it
        try:
            data = taken.read_bytes()
            taken.unlink()
        except BaseException:
            if not path.exists():  # a new one came meanwhile: better two files than one lost
                taken.rename(path)
            raise
    except OSError as error:
        raise ToolError(f"cannot take {path}: {error.strerror or error}") from error
    return data


def clean_stale(folder: Path, now: float | None = None) -> None:
    """Remove temp files that a crash left in `folder` more than an hour ago."""
    now = time.time() if now is None else now
    for old in folder.glob(f"{_PREFIX}*.tmp"):
        with contextlib.suppress(OSError):  # another process may be cleaning too
            if now - old.stat().st_mtime > _STALE:
                old.unlink()


def write_new(path: Path, data: bytes, mode: int) -> None:
    """Make a file that must not exist yet, and sync it. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last. Raises OSError."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temp(folder: Path) -> Path:
    return folder / f"{_PREFIX}{os.urandom(8).hex()}.tmp"


def _write_in_place(target: Path, data: bytes) -> None:
    """Change the bytes where they lie. A copy of the old ones stands by, to put them back when that fails."""
    old = target.read_bytes()
    spare = _temp(target.parent)
    keep = False
    try:
        write_new(spare, old, 0o600)
        fd = os.open(target, os.O_WRONLY | _BINARY)
        try:
            _overwrite(fd, data, len(old))
        except BaseException:
            keep = not _put_back(fd, target, old)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        if not keep:
            raise
        saved = spare.rename(target.with_name(f"{target.name}.{os.urandom(4).hex()}.old"))
        raise ToolError(f"{target} is damaged ({error.strerror or error}); its old content is in {saved}") from error
    finally:
        if not keep:
            with contextlib.suppress(OSError):  # it holds nothing that is not elsewhere
                spare.unlink()


def _overwrite(fd: int, data: bytes, size: int) -> None:
    """Write what makes the file longer first: a full disk shows there, before any old byte is lost."""
    for start, end in ((size, len(data)), (0, size)):
        os.lseek(fd, start, os.SEEK_SET)
        _write_all(fd, data[start:end])
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def _put_back(fd: int, target: Path, old: bytes) -> bool:
    """Whether the file holds its old content again."""
    with contextlib.suppress(OSError):  # what counts is what the file holds then
        os.ftruncate(fd, len(old))
        if target.read_bytes() != old:
            os.lseek(fd, 0, os.SEEK_SET)
            _write_all(fd, old)
            os.fsync(fd)
    try:
        return target.read_bytes() == old
    except OSError:
        return False


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = os.write(fd, view)
        if not written:
            raise OSError("nothing more could be written")
        view = view[written:]


def _take_over(temp: Path, before: os.stat_result) -> None:
    """Owner, group and mode of the file that `temp` will replace."""
    now = temp.stat()
    mode = before.st_mode & 0o7777
    if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.chown(temp, before.st_uid, before.st_gid)
        except OSError:  # only root may give a file away, and a group only to those in it
            mode &= 0o1777  # "run as the owner" was meant for the old one
            with contextlib.suppress(OSError):
                os.chown(temp, -1, before.st_gid)
    temp.chmod(mode)
