"""Files that are old or new, never a mix: temp file beside the target, fsync, rename, fsync of the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from ..errors import ToolError

_PREFIX = ".ga-"
_STALE = 3600  # seconds after which a temp file of ours belongs to nobody
_BINARY = getattr(os, "O_BINARY", 0)  # without it Windows changes line breaks
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)  # O_PATH: leave to search it is enough
_BY_DESCRIPTOR = os.chmod in os.supports_fd


@dataclass(frozen=True)
class Place:
    """Where a file is to be: `name` in the open folder `folder`; without a folder `name` is the whole path."""

    path: Path  # real
    before: os.stat_result | None  # what is there now; never a symbolic link
    name: str
    folder: int | None = None
    recheck: Callable[[], object] | None = None  # confined: raises ToolError when the folder may no longer be written

    def beside(self, name: str) -> str:
        return name if self.folder is not None else str(self.path.with_name(name))

    def sync(self) -> None:
        """Make the names in its folder last. Raises OSError."""
        sync_folder(self.path.parent if self.folder is None else ".", self.folder)


class Within(Protocol):
    """Who decides where a confined write may go: safety/confine.py."""

    def place(self, path: Path) -> AbstractContextManager[Place]:
        """The place behind a path, good as long as it is open. Raises ToolError where nothing may be written."""


def write_bytes(path: Path, data: bytes, *, mode: int | None = None, within: Within | None = None) -> None:
    """Replace the content of `path` in one step. Raises ToolError, and then the old file is as it was.

    A symlink stays a link: what it points to is replaced (a dangling one is an error). Mode bits and, where we may,
    owner and group are kept; a new file gets `mode` (default 0666 less the umask). A file with other hard links is
    written in place, so that all its names keep showing the same content: there a kill at the wrong moment can leave
    a mix, and its old content in a temp file beside it. With `within` it is refused, like every other way out.
    """
    try:
        if within is None:
            _replace(_place(path), data, mode)
        else:
            with within.place(path) as place:
                _replace(place, data, mode)
    except (OSError, ValueError, RuntimeError) as error:  # a NUL in the name; a loop of links (before Python 3.13)
        raise ToolError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from error


def _place(path: Path) -> Place:
    if path.is_symlink() and not path.exists():
        raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}")
    target = path.resolve()
    return Place(target, target.stat() if target.exists() else None, str(target))


def _replace(place: Place, data: bytes, mode: int | None) -> None:
    before = place.before
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise ToolError(f"cannot write {place.path}: it is not a regular file")
    if before is not None and before.st_nlink > 1:
        if place.recheck is not None:
            raise ToolError(f"{place.path} has other names (hard links), maybe outside: it is not written in this run")
        _write_in_place(place.path, data)
        return
    temp = place.beside(_temp_name())
    try:
        _fill(temp, place, data, mode)
        if place.recheck is not None:
            place.recheck()
        os.replace(temp, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(OSError):  # the fault that brought us here is the one to report
            os.unlink(temp, dir_fd=place.folder)  # noqa: PTH108
        raise
    with contextlib.suppress(OSError):  # the new content is in place; a power cut may at worst bring back the old
        place.sync()


def _fill(temp: str, place: Place, data: bytes, mode: int | None) -> None:
    """Make the temp file. Owner and mode go by its descriptor: its name may be somebody else's by then."""

    def finish(fd: int) -> None:
        file = fd if _BY_DESCRIPTOR else temp
        if place.before is not None:
            _take_over(file, place.before)
        elif mode is not None:
            os.chmod(file, mode)  # noqa: PTH101

    # a new file of no special mode is left to the kernel's umask: asking for it would change it for all threads
    write_new(temp, data, 0o666 if place.before is None and mode is None else 0o600, place.folder, finish)


def write_text(path: Path, text: str, *, mode: int | None = None, within: Within | None = None) -> None:
    """`write_bytes` with UTF-8; line breaks stay as they are."""
    write_bytes(path, text.encode("utf-8", "surrogatepass"), mode=mode, within=within)


# Our own files in folders where scripts can write as well: a link that somebody put there is never followed.


def write_own(path: Path, text: str | bytes, mode: int = 0o600) -> None:
    """Replace whatever is at that name (no folder), for the user's eyes only. Raises ToolError."""
    temp = path.with_name(_temp_name())
    try:
        data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        write_new(temp, data, 0o600, finish=lambda fd: os.chmod(fd if _BY_DESCRIPTOR else temp, mode))  # noqa: PTH101
        temp.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the fault that brought us here is the one to report
            temp.unlink(missing_ok=True)
        raise ToolError(f"cannot write {path}: {error.strerror or error}") from error


def open_own(path: Path, append: bool = False) -> BinaryIO:
    """A new file in the place of whatever is at that name, or, to append, the ordinary file there. Raises OSError."""
    if not append:
        path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | _NO_LINK | _BINARY | (os.O_APPEND if append else os.O_EXCL)
    return os.fdopen(os.open(path, flags, 0o600), "ab" if append else "wb")


def no_link(path: str | os.PathLike[str], flags: int) -> int:
    """An `opener` for `open` that follows no link at the end of the path and waits for no pipe. (`os.fdopen` would leave
    the descriptor of a folder open.) Raises OSError."""
    return os.open(path, flags | _NO_LINK)


def read_own(path: Path, alone: bool = True) -> bytes:
    """The bytes of an ordinary file, `alone`: that has no other name. Raises OSError."""
    with open(path, "rb", opener=no_link) as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode) or (alone and info.st_nlink > 1):
            raise OSError(errno.EMLINK, "it is a link or no ordinary file, and is not read")
        return file.read()


def read_there(path: Path, most: int) -> bytes:
    """The bytes of an ordinary file of at most `most` bytes at a real path: a link that somebody has put anywhere into it
    meanwhile is not followed. Raises OSError."""
    with open(path, "rb", opener=_step_by_step) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no ordinary file, and is not read")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MB")
    return data


def _step_by_step(file: str, flags: int) -> int:
    """An `opener` too. Each folder is opened in the one before: looked up as a whole, a path may lead elsewhere
    at each look. Where folders cannot be opened (Windows) making links needs rights that scripts don't have."""
    path = Path(file)
    if os.open not in os.supports_dir_fd:
        return no_link(path, flags)
    folder = os.open(path.anchor, _FOLDER)
    try:
        for name in path.parts[1:-1]:
            above, folder = folder, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(above)
        return os.open(path.name, flags | _NO_LINK, dir_fd=folder)
    finally:
        os.close(folder)


def read_and_delete(path: Path) -> bytes | None:
    """Take a file: its bytes, and it is gone; None when there is none. Two takers never get the same file.

    A link, or what is no ordinary file, is taken away unread. Raises ToolError when it cannot be taken, and then it is
    still there.
    """
    taken = path.parent / f"{_PREFIX}{os.urandom(8).hex()}.taken"
    try:
        if not path.is_symlink() and not path.is_file():
            return None
        try:
            path.rename(taken)
        except FileNotFoundError:
            return None  # somebody else took it
        try:
            info = taken.lstat()
            plain = stat.S_ISREG(info.st_mode) and info.st_nlink == 1
            data = read_own(taken) if plain else None
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


def write_new(
    path: Path | str, data: bytes, mode: int, folder: int | None = None, finish: Callable[[int], None] | None = None
) -> None:
    """Make a file that must not exist yet (in the open `folder`), `finish` its descriptor, and sync it. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode, dir_fd=folder)
    try:
        _write_all(fd, data)
        if finish is not None:
            finish(fd)
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(folder: Path | str, within: int | None = None) -> None:
    """Make the names in a folder last. Raises OSError."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY, dir_fd=within)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temp_name() -> str:
    return f"{_PREFIX}{os.urandom(8).hex()}.tmp"


def _write_in_place(target: Path, data: bytes) -> None:
    """Change the bytes where they lie. A copy of the old ones stands by, to put them back when that fails."""
    old = target.read_bytes()
    spare = target.with_name(_temp_name())
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


def _take_over(temp: Path | str | int, before: os.stat_result) -> None:
    """Owner, group and mode of the file that `temp` (a name or a descriptor) will replace."""
    now = os.stat(temp)  # noqa: PTH116
    mode = before.st_mode & 0o7777
    if hasattr(os, "chown") and (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.chown(temp, before.st_uid, before.st_gid)
        except OSError:  # only root may give a file away, and a group only to those in it
            mode &= 0o1777  # "run as the owner" was meant for the old one
            with contextlib.suppress(OSError):
                os.chown(temp, -1, before.st_gid)
    os.chmod(temp, mode)  # noqa: PTH101
