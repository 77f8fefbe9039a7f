"""What is known of the files below memory/, and the journal of their changes. Both are written under one kernel lock.

    .journal.jsonl   append-only, one change a line: {"time", "session", "turn", "file", "diff", "before", "after",
                     "evidence", "tainted", "by"}; before and after are SHA-256, null where there is no file; by is tool,
                     outside, revert, update, import, user (an accepted proposal) or guard (taken back, see watch.py); a change is called by the number of its line, from 1
    .known.json      {"files": {name: {"hash", "text"}}, "pending": a line that may not be in the journal yet,
                     "untold": [[number, name]] of changes from outside that the user has not been told}

A change is noted as pending, made, put into the journal, and then known: a kill in between loses none of it and invents
none. A file that is not as it is known was changed around the writer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import paths
from ..errors import ToolError
from ..store import atomic
from ..store.lock import FileLock
from .layers import L4

OURS = JOURNAL, KNOWN, SEEDS = ".journal.jsonl", ".known.json", ".seeds.json"
KEPT = 256 << 10  # bytes of a file whose text is kept, so that a change of it can be told and taken back
HASHED = 4 << 20  # bytes of a file that is read to see whether it has changed; of a larger one size and time tell
_log = logging.getLogger("genericagent.memory")
NOT_OURS = (L4, "__pycache__")

Mask = Callable[[Any], Any]


def files(folder: Path) -> Iterator[str]:
    """The names of the memory's files, relative to it; no links, nothing hidden, no archive."""
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in NOT_OURS and not f.startswith("."))
        for name in sorted(names):
            path = Path(top, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix()


def text_of(data: bytes | None) -> str | None:
    """The text of a file that is kept; bytes that are no UTF-8 survive the way back. None for what is not kept."""
    if data is None or len(data) > KEPT or b"\0" in data:
        return None
    return data.decode("utf-8", "surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def lines_of(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def difference(name: str, old: str | None, new: str | None) -> str:
    """A unified diff; /dev/null stands for no file."""
    from difflib import unified_diff

    before, after = ("/dev/null" if side is None else name for side in (old, new))
    lines = unified_diff(lines_of(old or ""), lines_of(new or ""), before, after)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def changed_lines(diff: str, sign: str) -> list[str]:
    """The lines that a diff adds ("+") or takes away ("-"), without line ends."""
    return [line[1:] for line in diff.split("\n")[2:] if line.startswith(sign)]


def entries(folder: Path | None = None) -> dict[int, dict[str, Any]]:
    """Number → change. A line that is no record (a crash left half of it) is told to the log, and counts."""
    file = (folder or paths.memory()) / JOURNAL
    found: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(file.read_bytes().split(b"\n") if file.is_file() else (), 1):
        try:
            entry = json.loads(line or b"{}")
            if line and not _is_entry(entry):
                raise TypeError("not a record")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("line %d of %s is left out: %s", number, file, error)
            continue
        if line:
            found[number] = entry
    return found


def _is_entry(entry: Any) -> bool:
    evidence = entry.get("evidence", [])
    return (
        all(isinstance(entry[key], str) for key in ("file", "diff", "by"))
        and all(isinstance(entry[key], str | None) for key in ("before", "after"))
        and isinstance(evidence, list)
        and all(isinstance(one, dict) and type(one.get("revert", 0)) is int for one in evidence)
    )


def _sound(known: Any) -> bool:
    """Whether .known.json holds what it should; else it counts as taken away."""

    def fits(value: Any, **kinds: Any) -> bool:
        return isinstance(value, dict) and all(isinstance(value.get(key), kind) for key, kind in kinds.items())

    if not fits(known, files=dict, pending=dict | None, untold=list | None):
        return False
    texts = str | None
    pending, untold = known.get("pending"), known.get("untold") or []
    try:
        for seen in known["files"].values():
            bytes_of(seen["text"] or "")
        return (
            all(fits(seen, hash=texts, text=texts) for seen in known["files"].values())
            and all(map(is_name, known["files"]))
            and (pending is None or fits(pending, file=str, diff=str, by=str, before=texts, after=texts))
            and (pending is None or is_name(pending["file"]))
            and all(type(number) is int and isinstance(name, str) for number, name in untold)
        )
    except (TypeError, ValueError, KeyError, AttributeError):  # a text that no file can hold, a pair that is none
        return False


def is_name(name: str) -> bool:
    """Whether a file of the memory can have it."""
    return "\0" not in name and all(p and p[0] != "." and len(bytes_of(p)) < 256 for p in name.split("/"))


def hash_of(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


class Records:
    """Inside of `with`, no other process of ours changes the memory. `mask` keeps known keys out of what is noted."""

    def __init__(self, mask: Mask = lambda value: value, clock: Callable[[], float] = time.time) -> None:
        self.folder = paths.memory()
        self._mask, self._clock = mask, clock
        self._lock = FileLock(paths.home() / "locks" / "memory.lock")
        self._known: dict[str, Any] = {}
        self._before = ""
        self.waiting = ""  # why the journal could not be written after the last change; that is kept as pending

    def __enter__(self) -> Records:
        """Waits for the lock. Raises ToolError where the records cannot be read or written."""
        self._acquire()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._load()
            self._settle()
            self._look()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._settle()
            self._save()
        except ToolError as fault:  # what was done is done, and noted as pending
            _log.warning("the journal has to wait: %s", fault)
            self.waiting = str(fault)
        finally:
            self._lock.release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Records]:
        """The lock and nothing else: what lies there is neither read nor noted. Raises ToolError."""
        self._acquire()
        try:
            yield self
        finally:
            self._lock.release()

    def _acquire(self) -> None:
        try:
            self._lock.acquire(blocking=True)
        except OSError as error:
            raise ToolError(f"cannot lock the memory: {error.strerror or error}") from error

    # what others did

    def _load(self) -> None:
        file = self.folder / KNOWN
        try:
            known = json.loads(atomic.read_own(file)) if file.exists() else None
        except (ValueError, RecursionError) as error:
            _log.warning("%s is damaged and made anew: %s", file, error)
            known = None
        except OSError as error:
            raise ToolError(f"cannot read {file}: {error.strerror or error}") from error
        if known is None or not _sound(known):
            left = self._as_left()
            there = {n: self.seen(self._read(n)) for n in files(self.folder)}
            known = {"files": {n: seen for n, seen in there.items() if left.get(n, seen["hash"]) == seen["hash"]}}
        self._known = {"pending": None, "untold": [], **known}
        self._before = json.dumps(known) if file.exists() else ""

    def _as_left(self) -> dict[str, Any]:
        """Name → hash of each file as seeds and journal left it: what differs was changed by somebody who also took the
        records away."""
        try:
            copied = json.loads(atomic.read_own(self.folder / SEEDS))["files"]
            left = {str(name): file["copied"] for name, file in copied.items() if file["copied"]}
        except FileNotFoundError:
            left = {}  # the first start
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("%s is damaged: %s", self.folder / SEEDS, error)
            left = {}
        return left | {str(entry["file"]): entry.get("after") for entry in entries(self.folder).values()}

    def _look(self) -> None:
        """Note what was changed around the writer since the last time."""
        try:
            for name in sorted({*self._known["files"], *files(self.folder)}):
                data, old = self._read(name), self._known["files"].get(name) or {}
                if hash_of(data) != old.get("hash"):
                    text = text_of(data)
                    kept = (old.get("text") is not None or not old) and (text is not None or data is None)
                    diff = difference(name, old.get("text"), text) if kept else ""
                    number = self.append(self.entry(name, diff, old.get("hash"), hash_of(data), by="outside"))
                    self._note(name, data)
                    self._known["untold"].append([number, name])
        finally:  # what is in the journal is known, also when the next file can't be read
            self._save()

    def untold(self) -> list[tuple[int, str]]:
        """(number, file) of each change from outside that was not asked for yet."""
        told, self._known["untold"] = self._known["untold"], []
        self._save()
        return [(number, name) for number, name in told]

    def known(self) -> dict[str, str]:
        """Name → text of every file as it is now."""
        return {name: file["text"] for name, file in self._known["files"].items() if file["text"] is not None}

    # what we do

    def entry(self, name: str, diff: str, before: str | None, after: str | None, **more: Any) -> dict[str, Any]:
        when = datetime.fromtimestamp(self._clock()).astimezone().isoformat(timespec="seconds")
        line = {
            "time": when,
            "session": None,
            "turn": None,
            "file": name,
            "diff": diff,
            "before": before,
            "after": after,
        }
        return self._mask({**line, "evidence": [], "tainted": None, **more})  # type: ignore[no-any-return]

    def intend(self, name: str, new: str | None, **more: Any) -> str:
        """Announce a change that is about to be made: `new` is the whole text, None for no file. Returns the diff. Raises
        ToolError where it cannot be noted, and then it must not be made."""
        self._settle()
        data = self._read(name)
        diff = difference(name, text_of(data), new)
        after = None if new is None else hash_of(bytes_of(new))
        self._known["pending"] = self.entry(name, diff, hash_of(data), after, **more)
        self._save()
        return diff

    def put(self, name: str, new: str | None, **more: Any) -> None:
        """Make a change: write the file, or remove it. Raises ToolError."""
        path = self.folder / name
        if not self._inside(name):
            raise ToolError(f"{path} leads out of the memory")
        self.intend(name, new, **more)
        try:
            if new is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                atomic.write_bytes(path, bytes_of(new), mode=0o600)
        except OSError as error:
            raise ToolError(f"cannot write {path}: {error.strerror or error}") from error

    def add(self, name: str, text: str) -> None:
        """Make a file that comes with the program: known, but no change. Raises ToolError."""
        atomic.write_bytes(self.folder / name, bytes_of(text), mode=0o600)
        self.learn(name)

    def learn(self, name: str) -> None:
        """A file is there that was put there by us, without a line in the journal."""
        if name.split("/")[0] not in NOT_OURS:
            self._note(name, self._read(name))

    def _settle(self) -> None:
        """The pending change has happened, and goes into the journal unless it is there; or it has not."""
        pending = self._known["pending"]
        if pending is None:
            return
        data = self._read(pending["file"])
        if hash_of(data) == pending["after"] and pending["before"] != pending["after"]:
            if next(reversed(entries(self.folder).values()), None) != pending:
                self.append(pending)
            self._note(pending["file"], data)
        self._known["pending"] = None
        self._save()

    # files

    def _inside(self, name: str) -> bool:
        """Whether the name leads to a file of the memory, and through no link."""
        real = os.path.realpath(self.folder / name)
        return "/." not in f"/{name}" and real == f"{os.path.realpath(self.folder)}/{name}"

    def _read(self, name: str) -> bytes | None:
        """The bytes; of a large file a few words that change when it does. None where there is none, or cannot be one."""
        path = self.folder / name
        try:
            info = path.lstat()
            if not stat.S_ISREG(info.st_mode) or not self._inside(name):
                return None
            return path.read_bytes() if info.st_size <= HASHED else f"\0{info.st_size} {info.st_mtime_ns}".encode()
        except PermissionError:
            return b"\0unreadable"
        except ValueError:  # a NUL
            return None
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP):
                return None
            raise ToolError(f"cannot read {path}: {error.strerror or error}") from error

    def seen(self, data: bytes | None) -> dict[str, Any]:
        return {"hash": hash_of(data), "text": self._mask(text_of(data))}

    def _note(self, name: str, data: bytes | None) -> None:
        if data is None:
            self._known["files"].pop(name, None)
        else:
            self._known["files"][name] = self.seen(data)

    def append(self, entry: dict[str, Any]) -> int:
        """Put a line into the journal; returns its number."""
        file = self.folder / JOURNAL
        try:
            old = atomic.read_own(file) if file.exists() else b""
            line = json.dumps(entry).encode() + b"\n"
            with atomic.open_own(file, append=True) as out:
                out.write(b"\n" + line if old and not old.endswith(b"\n") else line)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise ToolError(f"cannot write {file}: {error.strerror or error}") from error
        return old.count(b"\n") + (1 if old.endswith(b"\n") or not old else 2)

    def _save(self) -> None:
        text = json.dumps(self._known)
        if text != self._before:
            atomic.write_own(self.folder / KNOWN, text)
            self._before = text
