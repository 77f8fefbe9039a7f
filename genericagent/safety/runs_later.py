"""Names that run by themselves later, in what a script may write: hooks, start files, what a git directory's files name.

They are looked for before a call, to be read-only in it, and after it, to set aside what is new. A look is bounded, nearest
first, and remembers what it has listed: no script can set the ctime of a folder (inode(7)). Nothing here opens a FIFO or a
device to wait for it. Not looked into: SKIPPED, and links, other than those that have such a name.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..store.atomic import no_link
from .zones import GIT, PROTECTED

ENTRIES, FOLDERS = 50_000, 2_500  # read and gone through in one look: at most 25 ms, and 10 when most are as they were
NAMED_ONLY = 200  # folders that are no longer listed, but where the names are asked for
SETTLED = 50_000_000  # ns; one that changed less before it was listed may change again within the same ctime
SETTINGS = 1000  # of git configs that are followed in one look
LARGEST = 256 << 10  # bytes of a git config that is read
SKIPPED = {"node_modules", "__pycache__", "site-packages", ".venv", "venv", "target"}
ASIDE = ".from-sandbox"
_HEADS: dict[str, list[str]] = {".git": []}
for _head, _, _rest in (name.partition("/") for name in PROTECTED):
    _HEADS.setdefault(_head.lower(), []).append(_rest) if _head != ".git" else None
_MARKS = {"HEAD", "objects", "commondir"}
_MORE = ("modules", "worktrees")
_FOLDERS = ("hooks", "fish", "autostart", "systemd", "nvim", "LaunchAgents")
_LEADS = (
    r"(?im)(?:^|\])[ \t]*(path|hookspath|worktree)[ \t]*=[ \t]*\"?([^\"\n#;\0]+)"  # git-config(1); path is an include's
)

Mark = tuple[int, str, int]  # inode, where it leads if it is a link, inode of what it leads to in the end


@dataclass(frozen=True)
class Listed:
    inode: int
    ctime: int  # ns
    heads: list[str]  # entries that a protected name or a git directory may begin with
    folders: list[str]


@dataclass
class Memory:
    """What earlier looks have seen, so that who makes many names later does not crowd out what was there."""

    listed: dict[str, Listed] = field(default_factory=dict)
    names: dict[Path, None] = field(default_factory=dict)


@dataclass
class Look:
    """Name → real path, longest known and nearest first; the git directories; whether there was more than is looked at."""

    names: dict[Path, Path] = field(default_factory=dict)
    gits: dict[Path, None] = field(default_factory=dict)
    cut: bool = False
    settings: int = 0  # of git configs that have been followed

    def add(self, *paths: Path) -> None:
        self.names |= {path: Path(os.path.realpath(path)) for path in paths if os.path.lexists(path)}


def look(roots: Collection[Path], skip: Collection[str], user: Path, memory: Memory) -> Look:
    """The protected names that exist there, at a bounded cost; `user`: the home folder, which git's ~ means."""
    seen, room = Look(), ENTRIES
    top = list(dict.fromkeys(map(str, roots)))
    folders, queue = dict.fromkeys(top), list(top)
    for folder in queue:  # grows while it is walked: nearest first
        with contextlib.suppress(OSError):  # not ours to read, or gone
            listed, read = _list(folder, memory, room)
            room -= read + 1
            below = listed.folders if folder in top or folder.rpartition("/")[2] not in SKIPPED else []
            for at in (Path(folder, head) for head in listed.heads):
                seen.add(*(at / rest for rest in _HEADS.get(at.name.lower(), ())))
                if at.name.lower() == ".git":
                    below = [*below, *(f"{at.name}/{name}" for name in _MORE)]
                    _see_git(at, seen, roots, user)
            whole = "HEAD" in listed.heads and not {"objects", "commondir"}.isdisjoint(listed.heads)
            if whole or re.search(r"/\.git/(modules|worktrees)/", folder, re.I):
                below = [name for name in below if name in _MORE] if whole else below
                _see_git(Path(folder), seen, roots, user)
            new = [p for p in (f"{folder.rstrip('/')}/{n}" for n in below) if p not in skip and p not in folders]
            queue += new[: FOLDERS - len(queue)]
            folders.update(dict.fromkeys(new))
            seen.cut |= room <= 0 or len(queue) < len(folders)
        if room < -NAMED_ONLY:
            break
    memory.listed = {folder: listed for folder, listed in memory.listed.items() if folder in folders}
    memory.names = {path: None for path in (*memory.names, *seen.names) if path in seen.names}
    seen.names = {path: seen.names[path] for path in memory.names}
    return seen


def _list(folder: str, memory: Memory, room: int) -> tuple[Listed, int]:
    """What is in it, and how many entries were read for that. Raises OSError."""
    now, info, known = time.time_ns(), os.lstat(folder), memory.listed.get(folder)
    if not stat.S_ISDIR(info.st_mode):
        raise NotADirectoryError(folder)
    if known and (known.inode, known.ctime) == (info.st_ino, info.st_ctime_ns):
        return known, 0
    listed, read = Listed(info.st_ino, info.st_ctime_ns, [], []), 0
    with os.scandir(folder) as entries:
        for entry in itertools.islice(entries, max(room, 0)):
            read += 1
            if entry.name in _MARKS or entry.name.lower() in _HEADS:
                listed.heads.append(entry.name)
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                listed.folders.append(entry.name)
        whole = next(entries, None) is None
    if not whole:  # however many there are, the names that count are asked for
        listed.heads.extend(n for n in (*_HEADS, "Library", *_MARKS) if os.path.lexists(f"{folder}/{n}"))
    elif now - info.st_ctime_ns > SETTLED:
        memory.listed[folder] = listed
    return listed, read


def _see_git(git: Path, seen: Look, roots: Collection[Path], user: Path) -> None:
    """A git directory, or what leads to one: what of it, and of what its config names, makes git run something."""
    names = [git / name for name in GIT]
    tree = git.parent if git.name.lower() == ".git" else git
    if git.is_dir():
        seen.gits[git] = None
        seen.add(*([git] if git.is_symlink() else []), *names)
        _follow(git, tree, seen, roots, user)
    else:
        seen.add(git)
        if pointer := re.match(r"gitdir:[ ]*([^\0\n]+)", text_of(git)):
            _follow(tree / pointer[1], tree, seen, roots, user)


def text_of(path: Path) -> str:
    """A file's text; "" where there is none or it is no ordinary file that is small enough."""
    try:
        with open(os.path.realpath(path), "rb", opener=no_link) as file:
            info = os.fstat(file.fileno())
            ordinary = stat.S_ISREG(info.st_mode) and info.st_size <= LARGEST
            return file.read(LARGEST).decode("utf-8", "surrogateescape") if ordinary else ""
    except OSError:
        return ""


def _follow(git: Path, tree: Path, seen: Look, roots: Collection[Path], user: Path) -> None:
    """To where its config says that hooks are, and to what it includes, as far as a script may write there."""
    files = [git / "config", git / "config.worktree"]
    if common := text_of(git / "commondir").strip("\n"):
        files.append(git / common.replace("\0", "") / "config")
    for file in files:  # grows
        for key, value in re.findall(_LEADS, text_of(file)):
            seen.settings += 1
            if seen.settings > SETTINGS:
                seen.cut = True
                return
            base = {"path": file.parent, "worktree": git}.get(key.lower(), tree)
            value = value.strip()
            path = Path(os.path.realpath(user / value[2:] if value.startswith("~/") else base / value))
            if key.lower() == "worktree":
                tree = path
            elif any(path.is_relative_to(root) for root in roots) and not any(r.is_relative_to(path) for r in roots):
                seen.add(path)
                if key.lower() == "path" and len(files) < 10:
                    files.append(path)


def marks(names: Collection[Path]) -> dict[Path, Mark]:
    return {path: mark for path in names if (mark := _mark(path))}


def _mark(path: Path) -> Mark | None:
    try:
        inode, link = path.lstat().st_ino, str(path.readlink()) if path.is_symlink() else ""
    except OSError:
        return None  # gone meanwhile
    with contextlib.suppress(OSError):
        return inode, link, path.stat().st_ino
    return inode, link, 0  # a link that leads nowhere


# a name that must not come to be: an empty file or folder of 1970 stands there during the call, held by a lock


def missing(seen: Look, roots: Collection[Path], user: Path) -> list[Path]:
    """Protected names that do not exist where they would run by themselves: repositories' hooks, the home `user`."""
    found = []
    for git in (path.parent for path in seen.names if path.name == "config" and path.parent in seen.gits):
        found.append(git / "hooks")
        if "worktreeconfig" in text_of(git / "config").lower():
            found.append(git / "config.worktree")
    if any(user.is_relative_to(root) for root in roots):
        found += [user / name for name in PROTECTED if not name.startswith((".git/", "Library"))]
    return [path for path in found if path.parent.is_dir() and (not os.path.lexists(path) or _placeholder(path))]


def hold(path: Path) -> int:
    """Make it, or share it with another call. Raises OSError where that cannot be: what it becomes is looked at later."""
    for _ in range(20):
        with contextlib.suppress(FileExistsError):  # of another call, or left by one that was killed
            path.mkdir() if path.name in _FOLDERS else os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o444))
            os.utime(path, (0, 0), follow_symlinks=False)
        with contextlib.suppress(FileNotFoundError):  # the other call has ended meanwhile, and taken it away
            held = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            if _shared(held, path):
                return held
            os.close(held)
    raise FileExistsError(path)


def _shared(held: int, path: Path) -> bool:
    import fcntl

    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a script can hold it, and would hold us up
        return _placeholder(path) and os.path.samestat(os.fstat(held), os.lstat(path))
    except OSError:
        return False


def let_go(path: Path, held: int) -> None:
    import fcntl

    with contextlib.suppress(OSError):  # another call needs it still, or somebody has used it
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _placeholder(path):
            path.rmdir() if path.is_dir() else path.unlink()
    os.close(held)


def _placeholder(path: Path) -> bool:
    """Whether it is one of ours: empty, and of the first second of 1970."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_mtime == 0 and (stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and not found.st_size))


# after the call


def put_back(
    before: Mapping[Path, Mark], gits: Collection[Path], guarded: Collection[Path], now: Look
) -> Iterator[str]:
    """Set aside what was not there before under a protected name, make links again that were; a line about each.

    `guarded`: what could not be changed in the call, so that whoever has done so may.
    """
    known, told = set(before.values()), set()
    for path in dict.fromkeys([*(path for path, mark in before.items() if mark[1]), *now.names]):
        was, mark = before.get(path), _mark(path)
        same = was and mark and was[1] and was[1:] == mark[1:]
        if same or path in guarded or mark in known or _placeholder(path) or (mark is None and not (was and was[1])):
            continue
        git = path.parent if path.name in GIT and path.parent in now.gits else path
        try:
            if (git != path or path.name == ".git") and git not in gits and path not in before and path.name != "hooks":
                told.add(git)
            elif path.name != "hooks" or path in before or not _samples(path):
                yield from _undo(path, was, mark)
        except OSError as error:
            yield f"{path} was made by the script, runs by itself later, and could not be set aside: {error.strerror}"
    yield from (f"a git repository was made ({git}): its config comes from the script" for git in sorted(told))


def _undo(path: Path, was: Mark | None, mark: Mark | None) -> Iterator[str]:
    """Raises OSError."""
    if was and was[1] and (mark is None or mark[1] != was[1]):
        if mark:
            yield _move(path)
        with contextlib.suppress(FileNotFoundError):  # its folder is gone too
            path.symlink_to(was[1])
        mark = _mark(path)
        if mark is None or mark[2] == was[2]:
            return
    yield _move(path)


def _move(path: Path) -> str:
    aside = path.with_name(f"{path.name}{ASIDE}-{os.urandom(3).hex()}")
    path.rename(aside)
    return f"{path} would run by itself later and is protected: set aside as {aside.name}"


def _samples(hooks: Path) -> bool:
    """Whether the folder holds nothing but what git puts there."""
    if hooks.is_symlink() or not hooks.is_dir():
        return False
    with os.scandir(hooks) as entries:
        return all(entry.name.endswith(".sample") for entry in itertools.islice(entries, 1000)) and not next(
            entries, None
        )
