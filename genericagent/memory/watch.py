"""What a script may not leave behind that nobody could allow: the memory, and the project's notes, are looked at before it
and put back after it. What they were stands in this process alone; what a script has made of them is never lost: its diff
is in the journal, or it lies in $GA_HOME/aside.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import paths
from ..errors import ToolError
from ..llm.history import one_line
from ..prompts import say
from ..safety.redact import MARK
from ..safety.zones import NOTES
from ..store import atomic
from ..store.archive import PACKED
from .layers import L4
from .records import JOURNAL, KNOWN, NOT_OURS, OURS, Records, difference, entries, hash_of, text_of
from .seeds import shipped
from .writer import About

LARGEST, MOST = 4 << 20, 64 << 20  # bytes of a file, and of all, that can be put back; of others a change is only told
ANY = 1 << 30  # bytes of our own records
SETTLED = 50_000_000  # ns; a file that changed less before it was read may change again within the same ctime
TOLD = 20  # files, each of which has its line
DIFFS = 200  # files whose diffs join the journal in one look


@dataclass(frozen=True)
class Seen:
    """Something as it was. `data`: the bytes of a file, None for what is too large; `link`: where a link leads."""

    kind: int  # stat.S_IFMT
    mode: int
    links: int
    stamp: tuple[int, ...]  # size, mtime, ctime (which no program can set), inode
    data: bytes | None = None
    link: str = ""

    def same(self, other: Seen | None) -> bool:
        """Whether `other` is as this was; a file that has got another name can be changed by it later, and is not."""
        if other is None or (self.kind, self.mode, self.link) != (other.kind, other.mode, other.link):
            return False
        if self.kind != stat.S_IFREG:
            return True
        if self.data is None or other.data is None:
            return self.stamp[:3] == other.stamp[:3]
        return self.data == other.data and other.links <= max(1, self.links)


def look(path: Path, room: int = LARGEST, was: Seen | None = None, settled: int = 0) -> Seen | None:
    """What is there; None for nothing. A file that is as it `was`, and was so before `settled` (ns), is not read again."""
    try:
        info = path.lstat()
        kind, stamp = stat.S_IFMT(info.st_mode), (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
        facts = kind, stat.S_IMODE(info.st_mode), info.st_nlink, stamp
        if was and facts == (was.kind, was.mode, was.links, was.stamp) and info.st_ctime_ns < settled:
            return was
        if kind == stat.S_IFLNK:
            return Seen(*facts, link=str(path.readlink()))
        if kind == stat.S_IFREG and info.st_size <= room:
            with contextlib.suppress(OSError):  # closed to us: its stamp tells
                return Seen(*facts, data=atomic.read_own(path, alone=False))
        return Seen(*facts)
    except (FileNotFoundError, NotADirectoryError):
        return None


def scan(folder: Path, was: dict[str, Seen], settled: int = 0) -> dict[str, Seen]:
    """Name → what is there, of all below the folder, parents first. Links are not followed."""
    found, room, queue = dict[str, Seen](), MOST, [""]
    for name in queue:  # grows
        try:
            names = sorted(os.listdir(folder / name))  # noqa: PTH208  # names, many of them
        except OSError:  # closed, or gone meanwhile
            continue
        for one in (f"{name}/{n}" if name else n for n in names):
            if name == L4 and one.endswith(".tmp") and "/.ga-" in one:
                continue  # of an agent that archives just now
            if seen := look(folder / one, ANY if one in OURS else min(room, LARGEST), was.get(one), settled):
                found[one] = seen
                room -= len(seen.data or b"")
                queue += [one] if seen.kind == stat.S_IFDIR else []
    return found


class Watch:
    """Begins with the first script of a task that is tainted and that nobody watches; `back` is asked after each, and
    when the task ends. In a sandbox (`walled`) only the notes need it, and of them what can't be mounted read-only."""

    def __init__(self, workspace: Path, about: About, walled: bool, clock: Callable[[], float] = time.time) -> None:
        """Raises ToolError where the memory can't be looked at: then nothing may run."""
        self.folder, self.walled = paths.memory(), walled
        self._clock, self._about = clock, about
        self._since = time.time_ns() - SETTLED
        self.notes = {workspace / name: look(workspace / name) for name in NOTES}
        self._was, self._root, self._last, self._said = dict[str, Seen](), (0, "", 0), 0, set[str]()
        self._sessions = set[str]()  # that the archive may take meanwhile
        if not walled:
            self._sessions = {file.stem for file in paths.sessions().glob("*.jsonl")}
            with Records(about.redact.json, clock):  # what was changed before is noted, and stays
                self._was, self._root = scan(self.folder, {}), _root(self.folder)
                self._last = max(entries(self.folder), default=0)
        self._mode = stat.S_IMODE(self.folder.stat().st_mode) if not walled else 0

    def back(self, ours: Collection[Path] = ()) -> Iterator[str]:
        """Put back what was changed, but for what our own writers did, and the notes in `ours` that the file tools have
        written. A line for the user about each file; one that fails does not stop the others."""
        said = [line for line in [*self._notes_back(ours), *self._memory_back()] if line not in self._said]
        self._said |= set(said)
        yield from said[:TOLD]
        if len(said) > TOLD:
            yield say("memory_more", count=len(said) - TOLD)

    def _notes_back(self, ours: Collection[Path]) -> Iterator[str]:
        for path, was in self.notes.items():
            if path in ours or (self.walled and was and was.kind == stat.S_IFREG):  # read-only in the sandbox
                continue
            try:
                now = look(path)
                if was != now and not (was and was.same(now)):
                    yield say(
                        "notes_taken_back", file=path, what=_what(was, now), aside=_put_back(path, was, now, True)
                    )
            except (ToolError, OSError) as error:
                yield say("memory_not_back", file=path, why=_why(error))

    def _memory_back(self) -> Iterator[str]:
        if self.walled:
            return
        try:
            with Records(self._about.redact.json, self._clock).alone() as records:
                yield from self._reopen()
                yield from self._compare(records)
        except (ToolError, OSError) as error:
            yield say("memory_not_back", file=self.folder, why=_why(error))

    def _reopen(self) -> Iterator[str]:
        """The folders are there, are folders, and can be listed."""
        if _root(self.folder) != self._root:
            moved = [p for p in self.folder.parent.iterdir() if p != self.folder and _root(p)[0] == self._root[0]]
            aside = _aside(self.folder) if os.path.lexists(self.folder) else ""
            moved[0].rename(self.folder) if moved else self.folder.mkdir(mode=0o700)
            yield say("memory_aside", file=self.folder, what=say("did_changed"), aside=aside)
        folders = {self.folder / name: was.mode for name, was in self._was.items() if was.kind == stat.S_IFDIR}
        for path, mode in {self.folder: self._mode, **folders}.items():  # parents first
            now = os.stat(path) if path == self.folder else path.lstat() if os.path.lexists(path) else None  # noqa: PTH116
            if now and stat.S_ISDIR(now.st_mode) and stat.S_IMODE(now.st_mode) != mode:
                path.chmod(mode)

    def _compare(self, records: Records) -> Iterator[str]:
        now = scan(self.folder, self._was, self._since)
        journal, old = now.get(JOURNAL), self._was.get(JOURNAL)
        sound = journal.kind == stat.S_IFREG and journal.links == 1 if journal else not old
        if not sound or (journal and old and not (journal.data or b"").startswith(old.data or b"")):
            yield self._one(records, JOURNAL, old, journal, keep=True)
        kept = dict[str, bytes | None]()  # what other writers have made of a file meanwhile
        for name, number in self._written(now).items():
            self._keep(name, now.get(name))
            kept[name] = now[name].data if name in now else None
            yield say("memory_meanwhile", file=one_line(name), number=number)
        names = [n for n in {**self._was, **now} if n not in (JOURNAL, KNOWN) and n not in kept]
        changed = [n for n in names if not self._stands(n, now.get(n))]
        gone, folders = list[str](), list[str]()
        for count, name in enumerate(sorted(changed, key=lambda n: n.count("/"))):
            was, there = self._was.get(name), now.get(name)
            if any(name.startswith(f"{top}/") for top in gone):
                there = None  # it was set aside with its folder
                if was is None:
                    continue
            if was is None and there and there.kind == stat.S_IFDIR and (name == L4 or not _left_out(name)):
                folders.append(name)  # once it is empty
                continue
            yield self._one(records, name, was, there, keep=count >= DIFFS)
            if there and there.kind == stat.S_IFDIR or (was and was.kind == stat.S_IFDIR):
                gone.append(name)
        for name in reversed(folders):
            with contextlib.suppress(OSError):  # what is in it could not be taken back, and was told
                (self.folder / name).rmdir()
        self._know(records, kept)
        self._keep(JOURNAL, look(self.folder / JOURNAL, ANY))
        self._last = max(entries(self.folder), default=0)

    def _one(self, records: Records, name: str, was: Seen | None, now: Seen | None, keep: bool) -> str:
        """Put one file back; a line about it."""
        path, what, shown = self.folder / name, _what(was, now), one_line(name)
        try:
            if was and was.kind == stat.S_IFREG and was.data is None:
                self._keep(name, now)
                return say("memory_too_large", file=shown, what=what)
            old, new = (None if one is None else text_of(one.data) for one in (was, now))
            plain = not _left_out(name) and (old is None) == (was is None) and (new is None) == (now is None)
            diff = difference(name, new, old) if plain else ""
            if keep or not plain or MARK in self._about.redact(diff):
                aside = _put_back(path, was, now, True)
                if name not in OURS:
                    self._note(records, name, "", was, now, aside)
                return say("memory_aside", file=shown, what=what, aside=aside or "-")
            number = self._note(records, name, diff, was, now, "")  # first: it is the way back
            _put_back(path, was, now, False)
            return say("memory_taken_back", file=shown, what=what, number=number)
        except (ToolError, OSError) as error:
            return say("memory_not_back", file=shown, why=_why(error))

    def _note(self, records: Records, name: str, diff: str, was: Seen | None, now: Seen | None, aside: str) -> int:
        what = {"set aside": aside} if aside else {"taken back": _what(was, now)}
        return records.append(records.entry(
            name, diff, hash_of(now.data if now else None), hash_of(was.data if was else None), session=self._about.session or None,
            turn=self._about.turn, evidence=[what], tainted=self._about.tainted or None, by="guard",
        ))  # fmt: skip

    def _stands(self, name: str, now: Seen | None) -> bool:
        """Whether it is as it was, or the archive has moved a session that was there before."""
        was = self._was.get(name)
        if was is not None and was.same(now):
            return True
        if name.startswith(f"{L4}/") and now and (now.kind, now.links) == (stat.S_IFREG, 1):
            session = name.removeprefix(f"{L4}/").removesuffix(PACKED)
            return session in self._sessions or session.rpartition("-")[0] in self._sessions
        if was is None and now and now.data is not None and now.links == 1:  # a new seed of a new version
            text = text_of(now.data)
            return text is not None and any(shipped(one).get(name) == text for one in ("en", "zh"))
        return False

    def _written(self, now: dict[str, Seen]) -> dict[str, int]:
        """Name → the last line of the journal, of the files that are as our own writers left them, step by step from what
        they were; who writes around them ends that."""
        at, numbers = dict[str, str | None](), dict[str, int]()
        for number, entry in entries(self.folder).items():
            name = str(entry["file"])
            was = self._was.get(name)
            ours = number > self._last and entry["by"] not in ("outside", "guard") and not _left_out(name)
            if ours and at.get(name, hash_of(was.data if was else None)) == entry.get("before"):
                at[name], numbers[name] = entry.get("after"), number
        for name in at:
            seen = now.get(name)
            ordinary = seen is None or (seen.kind == stat.S_IFREG and seen.links == 1 and seen.data is not None)
            if not ordinary or hash_of(seen.data if seen else None) != at[name]:
                del numbers[name]
        return numbers

    def _keep(self, name: str, now: Seen | None) -> None:
        """It may be as it is now."""
        if now is None:
            self._was.pop(name, None)
        else:
            self._was[name] = now

    def _know(self, records: Records, kept: dict[str, bytes | None]) -> None:
        """What is known of the files is what it was, and what our own writers have added."""
        was, now = self._was.get(KNOWN), look(self.folder / KNOWN, ANY)
        if was is None or was.data is None or (was.same(now) and not kept):
            return
        known: dict[str, Any] = json.loads(was.data)
        for name, data in kept.items():
            known["files"].pop(name, None)
            if data is not None:
                known["files"][name] = records.seen(data)
        if now and now.kind != stat.S_IFREG:
            _aside(self.folder / KNOWN)
        atomic.write_own(self.folder / KNOWN, json.dumps({**known, "pending": None}))
        self._keep(KNOWN, look(self.folder / KNOWN, ANY))


def _left_out(name: str) -> bool:
    return any(part.startswith(".") or part in NOT_OURS for part in name.split("/"))


def _root(folder: Path) -> tuple[int, str, int]:
    """(inode, where it leads if it is a link, inode of what it leads to in the end)."""
    try:
        inode, link = folder.lstat().st_ino, str(folder.readlink()) if folder.is_symlink() else ""
        return inode, link, folder.stat().st_ino
    except OSError:
        return 0, "", 0


def _what(was: Seen | None, now: Seen | None) -> str:
    return say("did_new" if was is None else "did_removed" if now is None else "did_changed")


def _why(error: Exception) -> str:
    return one_line(str(getattr(error, "strerror", None) or error), 300)


def _aside(path: Path) -> str:
    """Move what is there out of the way, for whoever may want it; returns where to. Raises OSError."""
    folder = paths.home() / "aside"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{path.name}-{os.urandom(4).hex()}"
    path.rename(target)
    return str(target)


def _put_back(path: Path, was: Seen | None, now: Seen | None, keep: bool) -> str:
    """Make it what it was, in one step for a file; `keep`: what is there now is set aside. Returns where to. Raises OSError."""
    aside = ""
    if now and (keep or now.kind != stat.S_IFREG):
        aside = _aside(path)
    elif now and was is None:
        path.unlink()
    if was is None:
        return aside
    if was.kind == stat.S_IFDIR:
        path.mkdir(exist_ok=True)
    elif was.kind == stat.S_IFLNK:
        path.symlink_to(was.link)
    elif was.data is not None:
        atomic.write_own(path, was.data, was.mode)
    if was.kind == stat.S_IFDIR:
        path.chmod(was.mode)
    return aside
