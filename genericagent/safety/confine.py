"""The file tools of a confined run: where a path really leads is found on an open folder, and nothing is swapped after.

The folder of the file is opened once; the kernel says where that descriptor is (Linux: /proc/self/fd, proc_pid_fd(5);
macOS: F_GETPATH, fcntl(2)); the zones decide on that place; everything further is done relative to the descriptor
(openat(2)). Where there are no such calls (Windows) the resolved path is checked, and once more before a write counts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO

from ..errors import ToolError
from ..store.atomic import Place
from .zones import OWN_SECRET, PROTECTED, SECRET, Zones

_HOPS = 40  # symbolic links followed at the end of a path, as many as the kernel does: path_resolution(7)
_BY_DESCRIPTOR = sys.platform in ("linux", "darwin")
_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)  # O_PATH: leave to search it is enough
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_OWN_CODE = ("plugins", "reflect", "sche_tasks", "extension")


@dataclass(frozen=True)
class Confinement:
    """What a confined run may read and write with the file tools. All raise ToolError, OSError, ValueError (a NUL)."""

    zones: Zones
    allowed: tuple[str, ...] = ()  # real paths elsewhere that may be written all the same: somebody has said so

    @contextlib.contextmanager
    def place(self, path: Path) -> Iterator[Place]:
        """The place behind `path`, for a write; good as long as this is open."""
        with self._reached(path, writing=True) as place:
            if place.before is None and path.is_symlink():
                raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}")
            yield replace(place, recheck=lambda: self._may_write(path, _folder_now(place) / place.path.name))

    def check_write(self, path: Path) -> None:
        """Refuse at once what a write would refuse; makes nothing."""
        with _first_there(path.parent) as (_, real, missing):
            if missing:
                self._may_write(path, real.joinpath(*missing, path.name))
        if not missing:
            with self._reached(path, writing=True):
                pass

    def make_parents(self, path: Path) -> None:
        """Make what is missing of the folder a file will be in, one by one below the first that is there."""
        with _first_there(path.parent) as (first, real, missing):
            self._may_write(path, real.joinpath(*missing, path.name))
            if first is None:
                real.joinpath(*missing).mkdir(parents=True, exist_ok=True)
                return
            fd = os.dup(first)
            try:
                for name in missing:
                    with contextlib.suppress(FileExistsError):  # somebody else was quicker; opening it shows what it is
                        os.mkdir(name, dir_fd=fd)  # noqa: PTH102
                    above, fd = fd, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
                    os.close(above)
            finally:
                os.close(fd)

    def exists(self, path: Path) -> bool:
        """Whether there is something, be it a link to nothing."""
        try:
            with self._reached(path) as place:
                return place.before is not None or path.is_symlink()
        except FileNotFoundError:
            return False

    def stat(self, path: Path) -> os.stat_result:
        """Of what the path leads to."""
        with self._reached(path) as place:
            if place.before is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return place.before

    def open(self, path: Path) -> IO[bytes]:
        """An ordinary file, for reading."""
        with self._reached(path) as place:
            _ordinary(path, place.before)
            fd = os.open(place.name, _FILE, dir_fd=place.folder)
            try:
                _ordinary(path, os.fstat(fd))
                self._may_read(path, _folder_now(place) / place.path.name, os.fstat(fd))
                return os.fdopen(fd, "rb")
            except BaseException:
                os.close(fd)
                raise

    @contextlib.contextmanager
    def _reached(self, path: Path, writing: bool = False) -> Iterator[Place]:
        """Go to the end of the path, link by link; what is refused by name or by place is so on the way too."""
        at, way = path, []
        for _ in range(_HOPS):
            way.append(Path(os.path.abspath(at)))  # noqa: PTH100
            self._may_read(path, way[-1])
            if at.name in ("", ".."):  # a folder, and not by its name
                with _opened(at) as (_, at):
                    pass
            with _opened(at.parent) as (fd, real):
                end, name = real / at.name, (at.name or ".") if fd is not None else str(real / at.name)
                try:
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)  # noqa: PTH116
                except FileNotFoundError:
                    info = None
                self._may_read(path, end, info)
                if info is None or not stat.S_ISLNK(info.st_mode):
                    if writing:
                        self._may_write(path, end, way)
                    yield Place(end, info, name, fd)
                    return
                way.append(end)
                at = real / os.readlink(name, dir_fd=fd)  # noqa: PTH115
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _may_read(self, path: Path, at: Path, info: os.stat_result | None = None) -> None:
        linked = info is not None and stat.S_ISREG(info.st_mode) and info.st_nlink != 1
        if self.zones.hidden(at) or _in_any(at, self._secret) or (linked and info and _one_of(info, self._secrets())):
            raise ToolError(f"{path} holds credentials and is not read or written in this run")

    def _may_write(self, path: Path, real: Path, way: Sequence[Path] = ()) -> None:
        self._may_read(path, real)
        zone = self.zones.of(real)
        if zone in ("outside", "protected") and str(real) in self.allowed:
            return
        if zone == "outside":
            where = f"{self.zones.workspace}, {self.zones.home / 'temp'} and {self.zones.home / 'memory'}"
            raise ToolError(f"{path}: outside the workspace: this run may only write in {where}")
        if zone == "protected" or any(self.zones.protected(at) or _in_any(at, self._protected) for at in (real, *way)):
            raise ToolError(f"{path} is protected: this run may not write it")

    def _secrets(self) -> list[Path]:
        return _led_to(self.zones.user, SECRET) + _led_to(self.zones.home, OWN_SECRET)

    @cached_property
    def _secret(self) -> list[Path]:
        return self._secrets()

    @cached_property
    def _protected(self) -> list[Path]:
        dotfiles = _led_to(self.zones.user, PROTECTED) + _led_to(self.zones.workspace, PROTECTED)
        return dotfiles + _led_to(self.zones.home, _OWN_CODE)


def _ordinary(path: Path, info: os.stat_result | None) -> None:
    if info is not None and not stat.S_ISREG(info.st_mode):
        raise ToolError(f"{path} is no ordinary file and is not opened")


def _in_any(path: Path, places: list[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _led_to(folder: Path, names: tuple[str, ...]) -> list[Path]:
    """Where those that are there really are: dotfiles are often links to another folder."""
    found = (folder / name for name in names)
    return [Path(os.path.realpath(path)) for path in found if os.path.lexists(path)]


def _one_of(info: os.stat_result, places: list[Path]) -> bool:
    """Whether it is another name (hard link) of a file that is, or is in, one of the places."""
    for place in places:
        names = [str(place), *(os.path.join(top, n) for top, _, files in os.walk(place) for n in files)]  # noqa: PTH118
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it is gone meanwhile
                if os.path.samestat(info, os.lstat(name)):
                    return True
    return False


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[tuple[int | None, Path]]:
    """(descriptor of the folder, where it really is); no descriptor where such can't be used."""
    if not _BY_DESCRIPTOR:
        yield None, folder.resolve(strict=True)
        return
    fd = os.open(folder, _FOLDER)
    try:
        yield fd, _where(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _first_there(folder: Path) -> Iterator[tuple[int | None, Path, list[str]]]:
    """The folder, or the first above it that is there, opened; and what is missing then."""
    missing: list[str] = []
    with contextlib.ExitStack() as stack:
        while True:
            try:
                fd, real = stack.enter_context(_opened(folder))
                break
            except FileNotFoundError:
                if folder.name in ("", ".."):
                    raise
                missing.insert(0, folder.name)
                folder = folder.parent
        yield fd, real, missing


def _folder_now(place: Place) -> Path:
    return _where(place.folder) if place.folder is not None else place.path.parent.resolve()


def _where(fd: int) -> Path:
    if sys.platform == "darwin":
        import fcntl

        real = os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).partition(b"\0")[0])
    else:
        real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    if not os.path.samestat(os.fstat(fd), os.lstat(real)):  # another mount namespace, or it is being moved
        raise OSError(errno.ESTALE, "its folder is not where it seems to be")
    return Path(real)
