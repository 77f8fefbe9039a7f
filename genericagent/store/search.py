"""Sessions found again: listed by age, searched by their words, the archived ones too.

The full-text index (SQLite FTS5) in the sessions' folder holds what the user and the model wrote, and the calls in short.
It is made from the files, brought up to date at each use, and made anew where it is missing, damaged, or not as it was
left: its time of change is set to one that nobody else's writing leaves. Characters of scripts that have no blanks between words are words of their own there: one of them is found as well as a phrase of many.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import paths, tags
from ..errors import SessionError
from . import journal
from .archive import PACKED, content, opened, unpack
from .journal import SessionInfo, info_of, newest_first
from .lock import FileLock
from .restored import NOT_THE_USER, message_from

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
VERSION = 3  # of the index
SEAL = 10**9  # when an index that is as it was left was changed, in seconds; even, as some file systems want it
WAIT = 10.0  # seconds for another process that works on it
MOST_WORDS, MOST_CHARS = 32, 1000  # of a query
LOOKED_AT, LOOKED_INTO = 50, 1 << 16  # sessions, and bytes of each, that are looked at for the user's newest
CALL_CHARS = 200  # of a call that can be found
HALF = 90 * 86400  # seconds in which a hit loses half of its weight
BATCH = 64  # files that go into the index at once
_SPLIT = "\x1f"  # a blank to FTS5
_UNSEEN = re.compile("[\0-\x1f\x7f-\x9f\ud800-\udfff]")  # what no terminal is to get, and UTF-8 hasn't
# Thai to Burmese, Khmer, and from the radicals over kana, Chinese and Hangul to their half-width forms
_APART = re.compile(
    "[\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]+"
)
_SCHEMA = """
CREATE TABLE files(n INTEGER PRIMARY KEY, name BLOB UNIQUE, packed INT, size INT, mtime INT, whole INT,
                   id TEXT, created REAL, title TEXT, ran TEXT, tainted TEXT, damaged INT);
CREATE VIRTUAL TABLE texts USING fts5(title, said, calls, tokenize="unicode61 remove_diacritics 2");
"""


class _File(NamedTuple):
    path: str
    packed: bool
    size: int
    mtime: int  # nanoseconds


@dataclass(eq=False)
class Hit:
    """A session that was found; `around`: the text around the first hit; `tainted`: where text from outside came from."""

    session: SessionInfo
    around: str
    tainted: str


def listing(since: float = 0.0) -> tuple[list[SessionInfo], list[str]]:
    """(the sessions changed since then, archived or not, newest first; the names of archives that cannot be read)."""
    files = _files()

    def work(index: sqlite3.Connection) -> tuple[list[SessionInfo], list[str]]:
        damaged = _refresh(index, files, whole=False)
        known = "SELECT name, id, created, title, ran FROM files WHERE id IS NOT NULL AND mtime >= ?"
        rows = index.execute(known, (_ns(since),))
        return newest_first(_info(files[name], *about) for name, *about in rows), damaged

    try:
        return _on_index(work, wait=1.0) if files else ([], [])
    except SessionError:  # no SQLite here
        return [info for info in journal.list_sessions(paths.sessions()) if info.updated >= since], []


def find(wanted: str = "") -> Path:
    """As journal.find, among all sessions; an archived one is unpacked. Raises SessionError, NoSuchSession."""
    path = journal.find(paths.sessions(), wanted, lambda: listing()[0])
    if path.parent in (Path(), paths.sessions()) and not path.exists():  # it is called by its old name
        packed = paths.archive() / f"{path.name}.gz"
        return unpack(packed) if packed.exists() else path
    archived = path.name.endswith(PACKED) and path.parent.resolve() == paths.archive().resolve()
    return unpack(path) if archived else path


def newest() -> str:
    """The path of the newest session with a request of the user's own, not a watcher's or a sub-agent's; "" when the last
    LOOKED_AT have none."""
    for session in listing()[0][:LOOKED_AT]:
        with contextlib.suppress(SessionError, OSError), opened(session.path) as file:
            records = journal.load(file.read(LOOKED_INTO)).records
            source = next((str(r.get("source")) for r in records if r.get("event") == "start"), "user")
            if not source.startswith(NOT_THE_USER):
                return str(session.path)
    return ""


def search(
    query: str,
    since: float,
    now: float,
    most: int = 20,
    redact: Callable[[str], str] = str,
    width: int = 160,
    everything: bool = True,
) -> tuple[list[Hit], list[str]]:
    """(the sessions changed since then that hold all words of the query, the best and newest first; the names of
    archives that cannot be read). "Words in quotes" stand together; a word finds longer ones that begin with it.
    `redact` is used on what is shown, `width`: characters of it; without `everything` only the user's own. Raises SessionError where there can be no index."""
    words, files = _words(query), _files()

    def work(index: sqlite3.Connection) -> tuple[list[Hit], list[str]]:
        damaged = _refresh(index, files, whole=True)
        found = index.execute(
            "SELECT name, id, created, files.title, ran, tainted, n FROM texts JOIN files ON n = texts.rowid"
            " WHERE texts MATCH ? AND mtime >= ? AND (? OR ran = '') ORDER BY bm25(texts, 8, 1, 0.5) / (1 + max(0, ? - mtime / 1e9) / ?), mtime DESC LIMIT ?",
            (" AND ".join(map(_phrase, words)), _ns(since), everything, now, HALF, most),
        )
        return [hit(index, *row) for row in found.fetchall()], damaged

    def hit(
        index: sqlite3.Connection, name: bytes, id: str, created: float, title: str, by: str, tainted: str, n: int
    ) -> Hit:
        texts = index.execute("SELECT said, calls FROM texts WHERE rowid = ?", (n,)).fetchone()
        around = (_around(redact(text.replace(_SPLIT, "")), words, width) for text in texts)
        return Hit(_info(files[name], id, created, redact(title), by), next(filter(None, around), ""), tainted)

    return _on_index(work, WAIT) if words and files else ([], [])


def _info(file: _File, id: str, created: float, title: str, by: str) -> SessionInfo:
    return SessionInfo(id, Path(file.path), created, file.mtime / 1e9, title, by)


def _ns(since: float) -> int:
    """Nanoseconds, of a time that any arithmetic may have made."""
    return int(min(max(since, 0.0), 9e9) * 1e9)


def _clean(text: str) -> str:
    return _UNSEEN.sub(" ", text)


def _words(query: str) -> list[str]:
    found = re.findall(r'"([^"]*)"|([^\s"]+)', _clean(query[:MOST_CHARS]))
    return [word for pair in found if any(map(str.isalnum, word := "".join(pair)))][:MOST_WORDS]


def _phrase(word: str) -> str:
    """As FTS5 reads it: a string, in which nothing has a meaning, and which longer words may begin with."""
    return f'"{_apart(word)}"' + ("*" if len(word) > 1 and word[-1].isalnum() else "")


def _apart(text: str) -> str:
    return _APART.sub(lambda run: f"{_SPLIT}{_SPLIT.join(run[0])}{_SPLIT}", text)


def _around(body: str, words: Sequence[str], width: int) -> str:
    """The text around the first hit; "" when only the title has one."""
    found = re.search("|".join(map(_pattern, words)), body, re.I)
    if not found:
        return ""
    start = max(0, found.start() - width // 3)
    piece = " ".join(body[start : start + width].split())
    return "…" * (start > 0) + piece + "…" * (start + width < len(body))


def _pattern(word: str) -> str:
    parts = re.findall(r"[^\W_]+", word)
    return (r"\b" if parts[0].isascii() else "") + r"[\W_]+".join(map(re.escape, parts))


# the index


def _on_index(work: Callable[[sqlite3.Connection], T], wait: float) -> T:
    """What `work` makes of the index, which is ours alone meanwhile. A damaged one is thrown away, and where none can be
    kept, or another process has it for longer than `wait` seconds, one is made in memory. Raises SessionError."""
    try:
        import sqlite3
    except ImportError as error:
        raise SessionError(f"this Python cannot search sessions: {error}") from None
    file, fault = paths.sessions() / "index.db", None
    lock, end = FileLock(file.with_suffix(".lock")), time.monotonic() + wait
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            while not (ours := lock.acquire()) and time.monotonic() < end:
                time.sleep(0.02)
        except OSError:  # no leave to write there
            ours = False
        for place in [file, file, None] if ours else [None]:
            try:
                with contextlib.closing(_opened(place)) as index, index:
                    found = work(index)
                if place:
                    os.utime(place, (SEAL, SEAL))
                return found
            except Exception as error:  # damage has many faces; what one in memory shows too is a bug
                if not place and not isinstance(error, sqlite3.Error):
                    raise
                fault = error
                logging.getLogger(__name__).info("the index of the sessions is made anew: %s", error)
                for old in (f"{file}-journal", file) if place else ():
                    with contextlib.suppress(OSError):
                        Path(old).unlink(missing_ok=True)
    raise SessionError(f"the sessions cannot be searched: {fault}") from fault


def _opened(place: Path | None) -> sqlite3.Connection:
    import sqlite3

    if place:
        os.close(os.open(place, os.O_RDWR | os.O_CREAT, 0o600))  # for the user's eyes only
        left = place.stat()
        if Path(f"{place}-journal").exists() or (left.st_size and left.st_mtime_ns != SEAL * 10**9):
            raise sqlite3.DatabaseError("it is not as it was left")
    index = sqlite3.connect(place or ":memory:")
    try:
        (version,) = index.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"it has version {version}")
        if not version:
            index.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
    except BaseException:
        index.close()
        raise
    return index


def _files() -> dict[bytes, _File]:
    """Every session file by name. One that lies in both places is the one that is not packed."""
    found = {}
    for folder, ending in ((paths.archive(), PACKED), (paths.sessions(), ".jsonl")):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    if entry.name.endswith(ending) and entry.is_file():
                        info, name = entry.stat(), os.fsencode(entry.name.removesuffix(ending))
                        found[name] = _File(entry.path, ending == PACKED, info.st_size, info.st_mtime_ns)
    return found


def _refresh(index: sqlite3.Connection, files: dict[bytes, _File], whole: bool) -> list[str]:
    """Make the index say what the files say, or (not `whole`) their heads; the names of archives that are damaged."""
    known = {row[0]: row[1:] for row in index.execute("SELECT name, n, whole, packed, size, mtime FROM files")}
    _forget(index, (known[name][0] for name in known.keys() - files.keys()))
    added = 0
    for name, file in files.items():
        n, read, *was = known.get(name, (None, False))
        if n and (read or not whole) and file.packed > was[0] and file.mtime == was[2]:  # it was only moved
            index.execute("UPDATE files SET packed = 1, size = ? WHERE n = ?", (file.size, n))
        elif not n or read < whole or tuple(was) != file[1:]:
            _forget(index, [n])
            _add(index, name, file, whole)
            added += 1
            if added % BATCH == 0:
                index.commit()
    return [
        Path(files[name].path).name for (name,) in index.execute("SELECT name FROM files WHERE damaged ORDER BY name")
    ]


def _forget(index: sqlite3.Connection, numbers: Iterable[int | None]) -> None:
    for n in filter(None, numbers):
        index.execute("DELETE FROM files WHERE n = ?", (n,))
        index.execute("DELETE FROM texts WHERE rowid = ?", (n,))


def _add(index: sqlite3.Connection, name: bytes, file: _File, whole: bool) -> None:
    path, info, said, calls, tainted = Path(file.path), None, "", "", ""
    try:
        with opened(path) as head:
            info = info_of(path, head, file.mtime / 1e9)
        if whole and info:
            said, calls, tainted = _text_of(journal.load(content(path)).records)
    except SessionError:  # or gone meanwhile, or not to be read: then it cannot be resumed either
        info = None
    about = (_clean(info.id), info.created, _clean(info.title), _clean(info.by)) if info else (None,) * 4
    row = (name, *file[1:], whole, *about, _clean(tainted), file.packed and not info and path.exists())
    n = index.execute(f"INSERT INTO files VALUES (NULL{', ?' * len(row)})", row).lastrowid
    if whole and info:
        text = (n, _apart(f"{about[2]} {about[0]}"), _apart(said), _apart(calls))
        index.execute("INSERT INTO texts(rowid, title, said, calls) VALUES (?, ?, ?, ?)", text)


def _text_of(records: Iterable[dict[str, Any]]) -> tuple[str, str, str]:
    """(what the user and the model wrote; the calls in short; where the first text from outside came from)."""
    said, calls, tainted = list[str](), list[str](), ""
    for record in records:
        messages = record.get("history") if record["type"] == "cut" and not said else [record.get("message")]
        for message in filter(None, map(message_from, messages if isinstance(messages, list) else ())):
            _take(message, said, calls)
        if record["type"] == "taint":
            tainted = tainted or str(record.get("source") or "?")
    return _clean("\n".join(said)), _clean("\n".join(calls)), tainted


def _take(message: dict[str, Any], said: list[str], calls: list[str]) -> None:
    def short(tag: str, inside: str) -> str:
        if tag == "tool_use":
            calls.append(inside[:CALL_CHARS])
        return f"{inside}\n" if tag == "summary" else ""

    mine = message["role"] == "assistant" or message.get("request")
    for block in message["content"]:
        if block["type"] == "tool_use":
            calls.append(" ".join([block["name"], *map(str, (block["input"] or {}).values())])[:CALL_CHARS])
        elif block["type"] == "text" and (mine or len(message["content"]) == 1):  # else it is this program that speaks
            text = tags.replace(
                block["text"], short, "working_memory", "tool_result", "tool_use", "thinking", "summary"
            )
            said += [text] if text.strip() else []
