"""One conversation, one append-only file: a JSON line a record, each with its checksum, each synced when it matters.

A line is `{"crc":"<crc32 of the record's bytes, 8 hex digits>","rec":{…}}`. The first record is the version header.

    session   {"v": 1, "id", "created", "cwd", "llm"}
    message   {"message": {"role", "content", …}}     joined the history
    call      {"tool_use_id", "name"}                 a tool is about to run
    result    {"tool_use_id", "content"}              a tool has run; the message that carries it may still be missing
    cut       {"history": […]}                        the history was replaced by this
    line      {"text"}                                a line of the working memory
    note      {"key_info"}                            the notepad
    task      {"event": "start"|"end", …}
    clear     {}                                      the history was emptied
"""

from __future__ import annotations

import json
import os
import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SessionError
from .lock import FileLock

VERSION = 1
_HEAD = len('{"crc":"00000000","rec":')
_HEADER_BYTES = 65536  # the header and the first request are looked for in this much of a file


def new_id(now: float, rng: Callable[[int], str] = secrets.token_hex) -> str:
    """An id that sorts by time: YYYYMMDD-HHMMSS-xxxx."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{rng(2)}"


def encode(record: dict[str, Any]) -> bytes:
    rec = json.dumps(record, ensure_ascii=False, separators=(",", ":"), default=str).encode(
        "utf-8", "backslashreplace"
    )
    return b'{"crc":"%08x","rec":%s}\n' % (zlib.crc32(rec), rec)


def decode(line: bytes) -> tuple[dict[str, Any], bool] | None:
    """(record, whether its checksum fits); None when the line is no record."""
    try:
        value = json.loads(line)
        record = value["rec"]
        fits = int(value["crc"], 16) == zlib.crc32(line.rstrip()[_HEAD:-1])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (record, fits) if isinstance(record, dict) and isinstance(record.get("type"), str) else None


@dataclass(eq=False)
class Loaded:
    """What a file holds: its records, how many lines were unreadable or edited, and where the whole lines end."""

    records: list[dict[str, Any]]
    damaged: int = 0
    altered: int = 0
    good_end: int = 0
    size: int = 0


def read(path: Path) -> Loaded:
    """Read a session file. Raises SessionError when it is not one (or of a newer version); damaged lines are skipped."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}") from error
    loaded = Loaded([], size=len(data))
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line, nxt = (data[at:], len(data)) if end < 0 else (data[at:end], end + 1)
        found = decode(line) if end >= 0 else None
        if found is None:
            loaded.damaged += bool(line.strip())
            if not loaded.records:
                break  # the first line has to be the header
        else:
            loaded.records.append(found[0])
            loaded.altered += not found[1]
            loaded.good_end = nxt
        at = nxt
    header = loaded.records[0] if loaded.records else {}
    if header.get("type") != "session" or not isinstance(header.get("v"), int):
        raise SessionError(f"{path} is not a session of this program; it was left as it is")
    if header["v"] > VERSION:
        raise SessionError(f"{path} was written by a newer version of this program (format {header['v']})")
    return loaded


class Journal:
    """A session file open for writing, held by this process alone."""

    def __init__(self, path: Path, header: dict[str, Any], lock: FileLock, fd: int) -> None:
        self.path, self.header = path, header
        self.id = str(header["id"])
        self._lock, self._fd = lock, fd

    @classmethod
    def create(
        cls, folder: Path, id: str, header: dict[str, Any], clock: Callable[[], float] = time.time
    ) -> Journal:
        """Begin a new session. Raises SessionError."""
        full = {"type": "session", "v": VERSION, "id": id, "created": clock(), **header}
        path = folder / f"{id}.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _held(path)
            fd = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600
            )
        except OSError as error:
            raise SessionError(f"cannot create the session file {path}: {error.strerror or error}") from error
        journal = cls(path, full, lock, fd)
        journal.append(full)
        return journal

    @classmethod
    def open(cls, path: Path) -> tuple[Journal, list[dict[str, Any]], str]:
        """(journal, its records, what was repaired in one line or ""). Raises SessionError.

        A torn tail (half a line, zeros) is set aside in a file beside it before anything is appended.
        """
        read(path)  # refuse before a lock file is made beside something that is no session
        lock = _held(path)
        try:
            loaded = read(path)
            report = _repair(path, loaded)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            lock.release()
            raise SessionError(f"cannot open {path}: {error.strerror or error}") from error
        except SessionError:
            lock.release()
            raise
        return cls(path, loaded.records[0], lock, fd), loaded.records, report

    def append(self, record: dict[str, Any], sync: bool = True) -> None:
        """Add one record in one write; with `sync` it is on the disk when this returns. Raises SessionError, and then
        the file is as it was before."""
        data = encode(record)
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
                raise SessionError(
                    f"the session file {self.path} may end in half a line: {second}"
                ) from error
            raise SessionError(
                f"cannot write the session file {self.path}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        os.close(self._fd)
        self._lock.release()


def _held(path: Path) -> FileLock:
    lock = FileLock(path.with_suffix(".lock"))
    if not lock.acquire():
        who = (lock.holder() or {}).get("pid", "unknown")
        raise SessionError(f"the session {path.stem} is in use by process {who}")
    return lock


def _repair(path: Path, loaded: Loaded) -> str:
    parts = []
    if loaded.good_end < loaded.size:
        aside = path.with_suffix(f".damaged-{loaded.good_end}")
        with path.open("rb+") as file:
            file.seek(loaded.good_end)
            aside.write_bytes(file.read())
            file.truncate(loaded.good_end)
            os.fsync(file.fileno())
        parts.append(f"a damaged end was set aside in {aside.name}")
        loaded.damaged -= 1
    if loaded.damaged > 0:
        parts.append(f"{loaded.damaged} unreadable lines were skipped")
    if loaded.altered:
        parts.append(f"{loaded.altered} lines were edited by hand")
    return "; ".join(parts)


@dataclass(eq=False)
class SessionInfo:
    id: str
    path: Path
    created: float
    updated: float
    title: str


def list_sessions(folder: Path) -> list[SessionInfo]:
    """The sessions of a folder, newest first. Reads only the head of each file; what is no session is left out."""
    found = []
    for path in folder.glob("*.jsonl"):
        info = _info(path)
        if info:
            found.append(info)
    return sorted(found, key=lambda s: s.updated, reverse=True)


def _info(path: Path) -> SessionInfo | None:
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
            updated = os.fstat(file.fileno()).st_mtime
    except OSError:
        return None  # gone or unreadable: then it cannot be resumed either
    header: dict[str, Any] = {}
    title = ""
    for line in head.split(b"\n"):
        record = (decode(line) or ({}, False))[0]
        if not header:
            header = record
            if header.get("type") != "session":
                return None
        if record.get("type") == "line" and str(record.get("text")).startswith("[USER]"):
            title = str(record["text"]).removeprefix("[USER]:").strip()[:80]
            break
    created = header.get("created")
    return SessionInfo(
        str(header.get("id")), path, created if isinstance(created, float) else updated, updated, title
    )


def find(folder: Path, wanted: str = "") -> Path:
    """The file of a session: an id, its beginning, or a path; empty: the newest. Raises SessionError."""
    if wanted and (os.sep in wanted or wanted.endswith(".jsonl")):
        return Path(wanted).expanduser()
    sessions = list_sessions(folder)
    if not wanted:
        if not sessions:
            raise SessionError(f"there is no session in {folder} yet")
        return sessions[0].path
    hits = [s for s in sessions if s.id == wanted] or [s for s in sessions if s.id.startswith(wanted)]
    if len(hits) == 1:
        return hits[0].path
    which = ", ".join(s.id for s in (hits or sessions)[:5])
    raise SessionError(f"{len(hits) or 'no'} sessions match {wanted!r}; there are: {which or 'none'}")


@dataclass(eq=False)
class Restored:
    """A conversation as its records tell it. `unknown` are the calls whose outcome nobody knows."""

    history: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    key_info: str = ""
    title: str = ""
    unknown: list[str] = field(default_factory=list)


UNKNOWN = "interrupted, outcome unknown: the program ended while this ran; look before you do it again"


def history_from(records: Sequence[dict[str, Any]]) -> Restored:
    """Build the conversation again. Never fails on odd records: what has no sense is left out. No tool runs again."""
    out = Restored()
    calls: list[str] = []  # of the newest reply
    results: dict[str, Any] = {}
    for record in records:
        kind = record.get("type")
        if kind == "message":
            message = _message(record.get("message"))
            if message:
                out.history.append(message)
                calls, results = [], {} if message["role"] == "assistant" else results
        elif kind == "call":
            calls.append(str(record.get("tool_use_id")))
        elif kind == "result":
            results[str(record.get("tool_use_id"))] = record.get("content")
        elif kind in ("cut", "clear"):
            given = record.get("history")
            out.history = [m for m in map(_message, given if isinstance(given, list) else []) if m]
        elif kind == "line":
            out.lines.append(str(record.get("text")))
        elif kind == "note":
            out.key_info = str(record.get("key_info") or "")
    first = next((line for line in out.lines if line.startswith("[USER]")), "")
    out.title = first.removeprefix("[USER]:").strip()[:80]
    _answer_open_calls(out, calls, results)
    return out


def _message(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict) or value.get("role") not in ("user", "assistant"):
        return None
    content = value.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = (
        [_block(b) for b in content if isinstance(b, dict) and b.get("type")]
        if isinstance(content, list)
        else []
    )
    return {**value, "content": blocks} if blocks else None


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "tool_use" and not isinstance(block.get("input"), dict):
        return {**block, "input": None, "incomplete": True, "input_raw": str(block.get("input_raw") or "")}
    return block


def _answer_open_calls(out: Restored, calls: list[str], results: dict[str, Any]) -> None:
    """Give every call of the newest reply its result, or the news that nobody knows it. `calls` are those that the
    reply made in its text."""
    last = out.history[-1] if out.history else None
    if not last or last["role"] != "assistant":
        return
    answers: list[dict[str, Any]] = []
    native = [str(b.get("id")) for b in last["content"] if b["type"] == "tool_use"]
    for id in native or calls:
        content = results.get(id, UNKNOWN)
        if id not in results:
            out.unknown.append(id)
        if native:
            answer = {"type": "tool_result", "tool_use_id": id, "content": content}
            answers.append(answer if id in results else {**answer, "is_error": True})
        else:
            answers.append({"type": "text", "text": f"<tool_result>\n{content}\n</tool_result>"})
    if answers:
        out.history.append({"role": "user", "content": answers})
