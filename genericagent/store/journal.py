"""One conversation, one append-only file: a JSON line a record, each with its checksum, each synced when it matters.

A line is `{"crc":"<crc32 of the record's bytes, 8 hex digits>","rec":{…}}`. The first record is the version header.

    session   {"v": 1, "id", "created", "cwd", "llm"}
    message   {"message": {"role", "content", …}}     joined the history
    call      {"tool_use_id", "name"}                 a tool is about to run
    result    {"tool_use_id", "content"}              a tool has run; the message that carries it may still be missing
    cut       {"history": […]}                        the history was replaced by this; by the user, who went back to an
                                                      earlier turn, with "lines", "key_info" and how many "turns" stay
    line      {"text"}                                a line of the working memory
    note      {"key_info"}                            the notepad
    task      {"event": "start"|"end", …}             with the "text" of the request
    change    {"path", "before", "after"}             a file tool is about to change it; digests, see tools/undo.py; with
                                                      "made": how many of the folders above it are new with it
    outside   {"parts": [[source, text], …]}          goes with the user's next message; "" as the source: of the user's own command
    usage     {"input", …, "cost"}                    of a call; with "aside": of a question beside the task
    memory    {"file"}                                a file tool has changed the memory
    title     {"title"}                               what the user calls the conversation; "": it begins anew
    folder    {"cwd"}                                 it goes on in another folder
    taint     {"source"}                              text from outside came into the conversation
    clear     {}                                      the history was emptied
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from ..errors import NoSuchSession, SessionError
from ..paths import expand
from . import atomic
from .lock import FileLock
from .restored import UNKNOWN, Restored, history_from, title_of

__all__ = [
    "UNKNOWN",
    "Journal",
    "Loaded",
    "Restored",
    "SessionInfo",
    "find",
    "history_from",
    "list_sessions",
    "new_id",
    "read",
]

VERSION = 1
_HEAD = len('{"crc":"00000000","rec":')
_TITLE, _LINE = b'{"type":"title"', b'{"type":"line"'
_BEGIN = re.compile(rb'\{"crc":"')  # never inside a record's text: there the quotes are escaped
_OPEN = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
HEAD_BYTES = 65536  # the header and the first request are looked for in this much of a file
_SEARCHED = 1 << 26  # bytes; in a file up to this size a lost header is made good


def new_id(now: float, rng: Callable[[int], bytes] = os.urandom) -> str:
    """An id that sorts by time: YYYYMMDD-HHMMSS-xxxxxx."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{rng(3).hex()}"


def encode(record: dict[str, Any]) -> bytes:
    rec = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "backslashreplace")
    return b'{"crc":"%08x","rec":%s}\n' % (zlib.crc32(rec), rec)


def decode(line: bytes) -> tuple[dict[str, Any], bool] | None:
    """(record, whether its checksum fits); None when the line is no record."""
    try:
        value = json.loads(line)
        record = value["rec"]
        fits = int(value["crc"], 16) == zlib.crc32(line.strip()[_HEAD:-1])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (record, fits) if isinstance(record, dict) and isinstance(record.get("type"), str) else None


@dataclass(eq=False)
class Loaded:
    """What a file holds: its records, how many lines were skipped as unreadable, how many were edited. Behind
    `good_end` (bytes) nothing is readable; `unended`: the last record lacks its line break. `header`: the version
    header, an empty one where damage took it from records that are ours by their checksum, None: no session."""

    records: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    altered: int = 0
    good_end: int = 0
    size: int = 0
    unended: bool = False
    header: dict[str, Any] | None = None


def read(path: Path) -> Loaded:
    """Read a session file. Raises SessionError when it is not one (or of a newer version); damaged lines are skipped."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SessionError(f"{path} is not a file; it was left as it is")
        with path.open("rb") as file:
            data = file.read(HEAD_BYTES)
            # a huge file that begins like something else is not read whole
            if load(data).header is not None or os.fstat(file.fileno()).st_size <= _SEARCHED:
                data += file.read()
    except (OSError, ValueError) as error:  # a NUL in the name
        raise SessionError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    loaded = load(data)
    if loaded.header is None:
        raise SessionError(f"{path} is not a session of this program; it was left as it is")
    if loaded.header["v"] > VERSION:
        raise SessionError(f"{path} was written by a newer version of this program (format {loaded.header['v']})")
    return loaded


def _header(records: list[tuple[dict[str, Any], bool]]) -> dict[str, Any] | None:
    """The first whole header; else an edited first line that is one; else an empty one, if a record is surely ours."""
    whole = [record for record, fits in records if fits and _version(record)]
    edited = [record for record, _ in records[:1] if 1 <= _version(record) <= VERSION]
    if whole or edited:
        return (whole or edited)[0]
    ours = any(fits and record["type"] != "session" for record, fits in records)
    return {"type": "session", "v": VERSION} if ours else None


def _version(record: dict[str, Any]) -> int:
    """The format that a header names; 0: it is none."""
    version = record.get("v")
    return version if record["type"] == "session" and type(version) is int and version > 0 else 0


def load(data: bytes) -> Loaded:
    """What the bytes of a file hold. Pure."""
    loaded, every = Loaded(size=len(data)), list[tuple[dict[str, Any], bool]]()
    bad = at = 0  # `bad`: unreadable lines since the last readable one
    while at < len(data):
        end = data.find(b"\n", at)
        line, at = (data[at:], len(data)) if end < 0 else (data[at:end], end + 1)
        found = decode(line)
        records = [found] if found else _intact_in(line)
        bad += found is None and bool(line.strip())
        every += records
        if records or not bad:
            loaded.damaged, bad, loaded.good_end = loaded.damaged + bad, 0, at
    loaded.records = [record for record, _ in every]
    loaded.altered = sum(not fits for _, fits in every)
    loaded.unended = loaded.good_end == len(data) and not data.endswith(b"\n")
    loaded.header = _header(every)
    return loaded


def _intact_in(line: bytes) -> list[tuple[dict[str, Any], bool]]:
    """The whole records of a damaged line: half a record or zeros before one took only its line break away."""
    cuts = [*(m.start() for m in _BEGIN.finditer(line)), len(line)]
    pieces = (decode(_value(line[a:b])) for a, b in pairwise(cuts) if b - a > _HEAD)
    return [piece for piece in pieces if piece and piece[1]]


def _value(piece: bytes) -> bytes:
    """The JSON value that it begins with, without what damage put behind it."""
    text = piece.decode("utf-8", "surrogateescape")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return piece
    return text[:end].encode("utf-8", "surrogateescape")


class Journal:
    """A session file open for writing, held by this process alone."""

    def __init__(self, path: Path, header: dict[str, Any], lock: FileLock, fd: int) -> None:
        self.path, self.header = path, header
        self.id = str(header.get("id") or path.stem)
        self._lock, self._fd = lock, fd
        self._one_at_a_time = threading.Lock()
        self._ragged = False  # the file may end in half a line

    @classmethod
    def create(cls, folder: Path, id: str, header: dict[str, Any], clock: Callable[[], float] = time.time) -> Journal:
        """Begin a new session. Raises SessionError, and then there is no such file."""
        full = {"type": "session", "v": VERSION, "id": id, "created": clock(), **header}
        path = folder / f"{id}.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError(f"cannot create the folder {folder}: {error.strerror or error}") from error
        lock = held(path)
        try:
            fd = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            lock.release()
            raise SessionError(f"cannot create the session file {path}: {error.strerror or error}") from error
        journal = cls(path, full, lock, fd)
        try:
            journal.append(full)
        except SessionError:
            with contextlib.suppress(OSError):  # an empty file is harmless
                path.unlink()
                lock.path.unlink()
            journal.close()
            raise
        with contextlib.suppress(OSError):  # some file systems can't; then a power cut may take the new name
            atomic.sync_folder(folder)
        return journal

    @classmethod
    def open(cls, path: Path) -> tuple[Journal, list[dict[str, Any]], str]:
        """(journal, its records, what was repaired in one line or ""). Raises SessionError.

        A torn tail (half a line, zeros) is set aside in a file beside it before anything is appended.
        """
        read(path)  # refuse before a lock file is made beside something that is no session
        path = path.resolve()  # two names of one file have to meet at one lock
        lock = held(path)
        try:
            loaded = read(path)
            report = _repair(path, loaded)
            fd = os.open(path, _OPEN)
        except OSError as error:
            lock.release()
            raise SessionError(f"cannot open {path}: {error.strerror or error}") from error
        except BaseException:
            lock.release()
            raise
        return cls(path, loaded.header or {}, lock, fd), loaded.records, report

    def append(self, record: dict[str, Any], sync: bool = True) -> None:
        """Add one record in one write; with `sync` it is on the disk when this returns. Raises SessionError, and then
        the file is as it was before. Threads may share a journal."""
        try:
            data = encode(record)
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"this cannot be saved in the session {self.id}: {error}") from error
        with self._one_at_a_time:
            if self._fd < 0:
                raise SessionError(f"the session {self.id} is closed")
            try:
                self._write(data, sync)
            except OSError as error:
                raise SessionError(f"cannot write the session file {self.path}: {error.strerror or error}") from error

    def _write(self, data: bytes, sync: bool) -> None:
        if self._ragged:
            data = b"\n" + data
        before = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(f"only {written} of {len(data)} bytes were written")
            if sync:
                os.fsync(self._fd)
        except OSError as error:
            try:
                os.ftruncate(self._fd, before)
            except OSError as second:
                self._ragged = True
                raise OSError(f"{error.strerror or error}; it may end in half a line: {second}") from error
            raise
        self._ragged = False

    def close(self) -> None:
        """Give the session back. A second time does nothing."""
        with self._one_at_a_time:
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                os.close(fd)
                self._lock.release()


def held(path: Path) -> FileLock:
    """The lock of a session, taken. Raises SessionError, naming who has it."""
    lock = FileLock(path.with_suffix(".lock"))
    try:
        taken = lock.acquire()
    except OSError as error:
        raise SessionError(f"cannot lock the session {path}: {error.strerror or error}") from error
    if not taken:
        who = (lock.holder() or {}).get("pid", "unknown")
        raise SessionError(f"the session {path.stem} is in use by process {who}")
    return lock


def _repair(path: Path, loaded: Loaded) -> str:
    """Make the file end in a whole line. Raises OSError, and then nothing was cut off."""
    parts = []
    with path.open("rb+") as file:
        if loaded.good_end < loaded.size:
            file.seek(loaded.good_end)
            aside = _set_aside(path, loaded.good_end, file.read())
            file.truncate(loaded.good_end)
            parts.append(f"a damaged end was set aside in {aside.name}")
        elif loaded.unended:
            file.seek(loaded.size)
            file.write(b"\n")
            file.flush()
        if parts or loaded.unended:
            os.fsync(file.fileno())
    if loaded.damaged:
        parts.append(f"{loaded.damaged} unreadable lines were skipped")
    if loaded.altered:
        parts.append(f"{loaded.altered} lines were edited by hand")
    return "; ".join(parts)


def _set_aside(path: Path, at: int, data: bytes) -> Path:
    """On the disk before it is cut off, and for the user's eyes only like the session."""
    aside, n = path.with_suffix(f".damaged-{at}"), 1
    while aside.exists():
        aside, n = path.with_suffix(f".damaged-{at}-{n}"), n + 1
    try:
        atomic.write_new(aside, data, 0o600)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return aside


@dataclass(eq=False)
class SessionInfo:
    id: str
    path: Path
    created: float
    updated: float
    title: str
    by: str = ""  # "watcher" or "subagent"; "": the user


def list_sessions(folder: Path) -> list[SessionInfo]:
    """The sessions of a folder, newest first. What is no session is left out."""
    return newest_first(info for path in folder.glob("*.jsonl") if (info := _info(path)))


def newest_first(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(sessions, key=lambda s: (s.updated, s.id), reverse=True)


def _info(path: Path) -> SessionInfo | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return info_of(path, file, os.fstat(file.fileno()).st_mtime)
    except OSError:
        return None  # gone or unreadable: then it cannot be resumed either


def info_of(path: Path, file: IO[bytes], updated: float) -> SessionInfo | None:
    """What the beginning of an open file, and a title further on, tell of its session; None: it is none."""
    loaded = load(head := file.read(HEAD_BYTES // 16))
    if loaded.header is None or not any(r["type"] == "line" for r in loaded.records):
        loaded = load(head + file.read(HEAD_BYTES))
    if (header := loaded.header) is None:
        return None
    lines = (r.get("text") for r in loaded.records if r["type"] == "line")
    created = header.get("created")
    created = float(created) if isinstance(created, int | float) and abs(created) < 1e12 else updated
    title = _named(file)
    title = title_of(lines) if title is None else title
    source = next((str(r.get("source")) for r in loaded.records if r.get("event") == "start"), "")
    by = str(header.get("by") or "watcher" * source.startswith("reflect"))
    return SessionInfo(str(header.get("id") or path.stem), path, created, updated, title, by)


def _named(file: IO[bytes]) -> str | None:
    """The newest title that the user gave, wherever in the file, or the first request since it began anew; None for none."""
    title: str | None = None
    with contextlib.suppress(EOFError, OSError, zlib.error):  # a damaged archive: who opens it is told
        file.seek(0)
        for line in file:
            kind = _LINE if title == "" else _TITLE
            if line.startswith((kind, _TITLE), _HEAD) and (found := decode(line)) and found[1]:
                title = str(found[0].get("title") or "") or title_of([found[0].get("text")])
    return title


def find(folder: Path, wanted: str = "", listed: Callable[[], list[SessionInfo]] | None = None) -> Path:
    """The file of a session: an id, its beginning, or a path; empty: the newest. `listed` gives the sessions there are,
    if more than those of the folder. Raises SessionError, NoSuchSession."""
    if wanted and (os.sep in wanted or "/" in wanted or wanted.endswith(".jsonl")):
        try:
            path = expand(wanted)
            here = folder / wanted
            return here if not path.exists() and here.exists() else path
        except OSError as error:  # a name that is too long
            raise SessionError(f"cannot open {wanted}: {error}") from error
    sessions = listed() if listed else list_sessions(folder)
    if not wanted:
        if not sessions:
            raise SessionError(f"there is no session in {folder} yet")
        return sessions[0].path
    name = {s.path: s.path.name.partition(".jsonl")[0] for s in sessions}  # a copy has the id of its original
    hits = (
        [s for s in sessions if name[s.path] == wanted]
        or [s for s in sessions if s.id == wanted]
        or [s for s in sessions if s.id.startswith(wanted)]
    )
    if len(hits) == 1:
        return hits[0].path
    named = folder / f"{wanted}.jsonl"
    if not hits and named in folder.glob("*.jsonl"):  # its beginning is too damaged to be listed
        return named
    which = ", ".join(name[s.path] for s in (hits or sessions)[:5])
    kind = SessionError if hits else NoSuchSession
    raise kind(f"{len(hits) or 'no'} sessions match {wanted!r}; there are: {which or 'none'}")
