"""Reading, writing and patching files without harm: exact matches only, everything else in the file stays as it is."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TextIO

from ..errors import ToolError
from ..paths import expand, home
from ..store import atomic
from ..store.lock import FileLock
from .encodings import MARKS, SAMPLE, Encoding, Text, detect, error_handler
from .mismatch import LINE_BREAK, why_not

if TYPE_CHECKING:
    from ..safety.confine import Confinement

SNIFF = 8192  # bytes looked at to tell text from binary
COUNT_AT_MOST = 256 << 20  # bytes of a file whose lines are counted; beyond that the header says "at least"
LOAD_AT_MOST = 256 << 20  # bytes of a file that is patched or added to: it is held in memory
LINE_AT_MOST = 16 << 20  # characters of one line that are read through to learn its length
PIECE = 1 << 20  # characters read at once
AROUND = 20  # lines of context before a keyword

Check = Callable[[bytes], None]

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"), (b"\xff\xd8\xff", "JPEG image"), (b"GIF87a", "GIF image"), (b"GIF89a", "GIF image"),
    (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b", "gzip archive"), (b"%PDF-", "PDF document"), (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"), (b"BZh", "bzip2 archive"), (b"\xfd7zXZ", "xz archive"), (b"7z\xbc\xaf", "7-zip archive"),
    (b"SQLite format 3\0", "SQLite database"), (b"\x28\xb5\x2f\xfd", "Zstandard archive"), (b"Rar!\x1a\x07", "RAR archive"),
    (b"ID3", "MP3 audio"), (b"OggS", "Ogg audio"), (b"\xd0\xcf\x11\xe0", "old Office document"), (b"\xca\xfe\xba\xbe", "Java class"),
)  # fmt: skip
_BREAK = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"  # the same, but never half of a \r\n


# reading whole


def load(path: Path, within: Confinement | None = None) -> Text:
    """Read a text file whole. Raises ToolError for what is none, or is too large for it, or is not to be read."""
    info = _regular(path, within)
    if info.st_size > LOAD_AT_MOST:
        raise ToolError(f"{path} is too large to be edited in one piece ({info.st_size} bytes): do it with a script")
    raw = _content(path, within)
    if kind := binary_kind(raw[:SNIFF]):
        raise ToolError(f"{path} is a binary file: {kind}, {len(raw)} bytes")
    encoding = detect(raw)
    try:
        text = raw[len(encoding.bom) :].decode(encoding.name, error_handler(encoding.name))
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is damaged {encoding.name} text: {error.reason} at byte {error.start}") from None
    return Text(path, raw, encoding, text)


def binary_kind(start: bytes) -> str | None:
    """What kind of binary file begins like this, or None for text."""
    if start.startswith(tuple(mark for mark, _ in MARKS[1:])):
        return None
    odd = sum(b < 9 or 13 < b < 27 or 27 < b < 32 for b in start)
    try:
        plain = b"\0" not in start and odd * 10 <= len(start) and bool(start[:512].decode("ascii"))
    except UnicodeDecodeError:
        plain = False
    for magic, name in _MAGIC:
        # some of these are words too: a text may begin with them
        if start.startswith(magic) and (not plain or len(magic) > 4 and not magic.isalnum()):
            return name
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP" and not plain:
        return "WebP image"
    if start[257:262] == b"ustar":
        return "tar archive"
    return "unknown type" if b"\0" in start or odd > len(start) * 0.1 else None


def _regular(path: Path, within: Confinement | None = None) -> os.stat_result:
    """Refuse what is no ordinary file, at once and without opening it."""
    try:
        info = path.stat() if within is None else within.stat(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}") from None
        raise ToolError(f"{path} does not exist{_close_names(path)}") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot read {_short(path)}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(info.st_mode):
        raise ToolError(f"{path} is a folder{_entries(path)}")
    if not stat.S_ISREG(info.st_mode):
        raise ToolError(f"{path} is no ordinary file (a device, pipe or socket) and is not opened")
    return info


def _short(path: Path) -> str:
    name = str(path).replace("\0", "\\0")
    return name if len(name) < 500 else f"{name[:400]}…"


def _entries(folder: Path) -> str:
    try:
        names = sorted(p.name for p in folder.iterdir())
    except OSError as error:
        return f" that cannot be listed: {error.strerror}"
    shown = ", ".join(name + "/" * (folder / name).is_dir() for name in names[:50])
    return f" with {len(names)} entries: {shown}" + (f" … {len(names) - 50} more" if len(names) > 50 else "")


def _close_names(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = {p.name.lower(): p.name for p in islice(path.parent.iterdir(), 10_000)}
    except FileNotFoundError:
        return f"; the folder {path.parent} does not exist either"
    except OSError:
        return ""
    close = get_close_matches(path.name.lower(), names, 5, 0.5)
    return f"; there are: {', '.join(names[name] for name in close)}" if close else ""


def _open(path: Path, within: Confinement | None) -> IO[bytes]:
    return path.open("rb") if within is None else within.open(path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None


def _content(path: Path, within: Confinement | None) -> bytes:
    if within is None:
        return _read(path)
    try:
        with within.open(path) as file:
            return file.read()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None


# reading


class _Line(NamedTuple):
    number: int
    shown: str  # at most as wide as wanted, with a note when that is not all


@dataclass
class _Found:
    lines: list[_Line]
    last: int  # number of the last line read
    ended: bool  # nothing comes after it
    hit: bool


def file_read(
    path: Path | str,
    start: int = 1,
    count: int = 200,
    keyword: str | None = None,
    show_linenos: bool = True,
    limit: int = 20_000,
    *,
    within: Confinement | None = None,
) -> str:
    """Lines of a text file behind a header `[FILE] N lines`, at most `limit` characters.

    With `keyword`: the lines around its first hit at or after `start` (case is ignored). Streams: the size of the file
    costs no memory. Raises ToolError.
    """
    path = Path(path)
    size = _regular(path, within).st_size
    start, count = max(1, start), max(1, count)
    try:
        with _open(path, within) as file:
            sniff = file.read(SNIFF)
            if kind := binary_kind(sniff):
                return f"[FILE] binary file: {kind}, {size} bytes"
            encoding = _detect_part(sniff, file)
            file.seek(len(encoding.bom))
            text = io.TextIOWrapper(file, encoding.name, "replace", newline=None)
            found = _select(text, start, count, keyword, limit)
            total, exact = found.last, found.ended
            if not found.ended:
                total, exact = _count_lines(path, encoding, within)
                total = max(total, found.last)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    header = f"[FILE] {total}{'' if exact else '+'} lines"
    if encoding.name != "utf-8" or encoding.bom:
        header += f", {encoding.name}{' with BOM' if encoding.bom else ''}"
    if keyword and not found.hit:
        return f"{header}\n{keyword!r} is not in it from line {start} on"
    if not found.lines:
        return f"{header}\n" + ("(empty)" if not total else f"(there is no line {start})")
    return _fitted(header, found.lines, show_linenos, limit)


def _detect_part(sniff: bytes, file: IO[bytes]) -> Encoding:
    """The encoding of a file by its first part that is not ASCII (looked for in a bounded part of it)."""
    part = sniff + file.read(PIECE)
    seen, first = len(part), True
    while part.isascii() and seen < COUNT_AT_MOST // 4 and (more := file.read(PIECE)):
        part = part[part.rfind(b"\n") + 1 :][-SNIFF:] + more
        seen, first = seen + len(more), False
    if not part.isascii() and len(part) >= PIECE:
        part += file.read(SAMPLE)
        part = part[: part.rfind(b"\n") + 1] or part
    return detect(part if first else b"\n" + part)  # no mark but at the begin of the file


def _fitted(header: str, lines: Sequence[_Line], numbers: bool, limit: int) -> str:
    out, used = [header], len(header) + 1
    note = "[cut at {} characters: go on with start={}]"
    for i, (number, line) in enumerate(lines):
        shown = f"{number}|{line}" if numbers else line
        spare = len(note.format(limit, number)) + 1 if i + 1 < len(lines) else 0
        if used + len(shown) + spare > limit:
            if i == 0:
                cut = "… [line cut]"
                out.append(shown[: max(0, limit - used - spare - len(cut))] + cut)
                number += 1
            if i or len(lines) > 1:
                out.append(note.format(limit, number))
            break
        out.append(shown)
        used += len(shown) + 1
    return "\n".join(out)


def _select(file: TextIO, start: int, count: int, keyword: str | None, limit: int) -> _Found:
    """The lines wanted; collects no more than `limit` characters of them."""
    widest = max(200, min(8000, limit // 10))
    low = keyword.lower() if keyword else ""
    before: deque[_Line] = deque(maxlen=min(AROUND, (count - 1) // 2))
    wanted: list[_Line] = []
    number, used, hit = 0, 0, False
    while True:
        taking = number + 1 >= start and (hit or not low)
        if taking and (len(wanted) >= count or used > limit):
            return _Found(wanted, number, False, hit)
        line, found, whole = _read_line(file, low if number + 1 >= start and not hit else "", widest, taking)
        if line is None:
            return _Found(wanted, number, True, hit)
        number += 1
        if low and not hit:
            if not found:
                before.append(_Line(number, line))
                continue
            hit, wanted = True, _near_enough(before, limit // 2)
            taking = True
            used = sum(len(shown) for _, shown in wanted)
        if taking:
            wanted.append(_Line(number, line))
            used += len(line) + 1
        if not whole:
            return _Found(wanted, number, False, hit)


def _near_enough(before: Sequence[_Line], room: int) -> list[_Line]:
    """The last lines that fit into `room` characters, so that the hit after them is never cut off."""
    out: list[_Line] = []
    for line in reversed(before):
        room -= len(line.shown) + 12
        if room < 0:
            break
        out.insert(0, line)
    return out


def _read_line(file: TextIO, low: str, widest: int, may_stop: bool) -> tuple[str | None, bool, bool]:
    """(the next line clipped to `widest`, or None at the end; whether `low` is in it; whether it was read to its end).

    Reads piece by piece: a line of any length costs no memory. With a hit the clip is taken around it.
    """
    piece = file.readline(PIECE)
    if not piece:
        return None, False, True
    found = piece.lower().find(low) if low else -1
    begin = max(0, found - widest // 2) if found >= widest - len(low) else 0
    clip, length, tail = piece[begin : begin + widest], len(piece), piece[-len(low) :] if low else ""
    whole = True
    while not piece.endswith("\n") and (more := file.readline(PIECE)):
        piece = more
        if low and found < 0 and (at := (tail + piece).lower().find(low)) >= 0:
            found = length - len(tail) + at
            joined, offset = tail + piece, length - len(tail)
            begin = offset + max(0, at - widest // 2)
            clip = joined[begin - offset : begin - offset + widest]
        elif len(clip) < widest:
            clip += piece[: widest - len(clip)]
        length += len(piece)
        tail = (tail + piece)[-len(low) :] if low else ""
        if may_stop and length > LINE_AT_MOST:
            whole = False
            break
    clip, length = clip.rstrip("\n"), length - piece.endswith("\n")
    left = length - begin - len(clip)
    if begin:
        clip = f"[{begin} characters before] …{clip}"
    if left > 0:
        clip += f"… [{left}{'' if whole else '+'} more characters in this line]"
    return clip, found >= 0, whole


def _count_lines(path: Path, encoding: Encoding, within: Confinement | None) -> tuple[int, bool]:
    """(lines of the file, whether all of it was counted)."""
    lines, seen, last = 0, 0, b"\n"
    if encoding.name.startswith(("utf-16", "utf-32")):
        return _count_wide_lines(path, encoding, within)
    with _open(path, within) as file:
        file.seek(len(encoding.bom))
        while data := file.read(PIECE):
            lines += data.count(b"\n")
            if b"\r" in data:
                lines += data.count(b"\r") - data.count(b"\r\n")
            lines -= last == b"\r" and data[:1] == b"\n"
            seen, last = seen + len(data), data[-1:]
            if seen >= COUNT_AT_MOST:
                return lines, False
    return lines + (last not in (b"\n", b"\r")), True


def _count_wide_lines(path: Path, encoding: Encoding, within: Confinement | None) -> tuple[int, bool]:
    lines, seen, last = 0, 0, "\n"
    with io.TextIOWrapper(_open(path, within), encoding.name, "replace", newline=None) as file:
        file.read(1)  # the mark
        while text := file.read(PIECE):
            lines += text.count("\n")
            seen, last = seen + len(text), text[-1]
            if seen >= COUNT_AT_MOST // 2:
                return lines, False
    return lines + (last != "\n"), True


# writing


def file_write(
    path: Path | str,
    content: str,
    mode: str = "overwrite",
    *,
    within: Confinement | None = None,
    check: Check = lambda data: None,
) -> dict[str, Any]:
    """Write atomically. An existing file keeps its encoding, byte order mark, line endings, mode bits and links.
    With `within` it must lie where a confined run may write, wherever links lead, and have no other hard links. `check` is
    called with the new bytes right before they are written, and may raise ToolError.

    Returns {"status", "msg"}. Raises ToolError, and then nothing has changed.
    """
    path = Path(path)
    if mode not in ("overwrite", "append", "prepend"):
        raise ToolError(f"mode must be overwrite, append or prepend, not {mode!r}")
    _plain_text(content)
    _may_write(path, within)
    with editing(path):
        old = _old_text(path, mode, within)
        data = content.encode("utf-8") if old is None else _joined(old, content, mode)
        if old is None:
            _make_parents(path, within)
        check(data)
        atomic.write_bytes(path, data, within=within)
    return {"status": "success", "msg": f"{path}: {len(data)} bytes ({mode})"}


def save_bytes(path: Path, data: bytes, *, within: Confinement | None = None) -> None:
    """Write a file that is no text, atomically. `within` as for file_write; raises ToolError."""
    _may_write(path, within)
    with editing(path):
        _make_parents(path, within)
        atomic.write_bytes(path, data, within=within)


def _make_parents(path: Path, within: Confinement | None) -> None:
    try:
        if within is None:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            within.make_parents(path)
    except OSError as error:
        raise ToolError(f"cannot create the folder {path.parent}: {error.strerror or error}") from None


def missing_folders(path: Path) -> int:
    """How many of the folders above a file are not there."""
    return next((n for n, folder in enumerate(path.parents) if os.path.lexists(folder)), 0)


def _may_write(path: Path, within: Confinement | None) -> None:
    """Refuse early, before anything of it is read or said; what counts is the check at the write itself."""
    if within is None:
        return
    try:
        within.check_write(path)
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot write {_short(path)}: {getattr(error, 'strerror', None) or error}") from None


def _joined(old: Text, content: str, mode: str) -> bytes:
    bom = old.encoding.bom
    if bom:
        content = content.removeprefix("\ufeff")
    if old.newline != "\n":
        content = re.sub(r"(?<!\r)\n", old.newline, content)
    added, rest = old.encode_new(content), old.raw[len(bom) :]
    return bom + {"overwrite": added, "append": rest + added, "prepend": added + rest}[mode]


def _old_text(path: Path, mode: str, within: Confinement | None) -> Text | None:
    """The existing text that decides encoding and endings; a binary file may only be replaced whole."""
    try:
        if within is None and not path.exists() and not path.is_symlink():
            return None
        if within is not None and not within.exists(path):
            return None
    except OSError as error:
        raise ToolError(f"cannot write {_short(path)}: {error.strerror or error}") from None
    size = _regular(path, within).st_size
    if size > LOAD_AT_MOST and mode == "overwrite":
        return None
    if not size and not _content(path, within):
        return None
    try:
        with _open(path, within) as file:
            kind = binary_kind(file.read(SNIFF))
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    if kind and mode == "overwrite":
        return None
    if kind:
        raise ToolError(f"{path} is a binary file ({kind}): text cannot be added to it")
    return load(path, within)


def _plain_text(content: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in content):
        raise ToolError("the content holds half a surrogate pair and cannot be written; nothing was changed")


def file_patch(
    path: Path | str,
    old_content: str,
    new_content: str,
    *,
    within: Confinement | None = None,
    check: Check = lambda data: None,
) -> dict[str, Any]:
    """Replace the one place where `old_content` stands, to the character; all other bytes stay identical.

    The only freedom: a line break in `old_content` matches any kind of line break, and those of the new text become
    what they were in the file, unless `\r\n` is asked for where the old text has none.
    `check` as in file_write. Returns {"status", "msg"}. Raises ToolError that says where the candidates or the nearest lines are.
    """
    path = Path(path)
    if not old_content:
        raise ToolError("old_content is empty; to write a new file or add to one use file_write")
    if old_content == new_content:
        raise ToolError("old_content and new_content are the same: nothing to change")
    _plain_text(new_content)
    _may_write(path, within)
    with editing(path):
        for _ in range(3):
            file = load(path, within)
            data, line = _patched(file, old_content, new_content)
            if _content(path, within) == file.raw:  # else an editor saved it meanwhile
                check(data)
                atomic.write_bytes(path, data, within=within)
                return {"status": "success", "msg": f"{path}: replaced at line {line}"}
    raise ToolError(f"{path} is being changed by somebody else all the time; nothing was changed")


def _patched(file: Text, old: str, new: str) -> tuple[bytes, int]:
    """(the bytes of the patched file, line of the change)."""
    spans = _exact(file.text, old)
    if len(spans) != 1:
        raise ToolError(f"{file.path}: nothing was changed: {why_not(file.text, old, spans)}")
    begin, end = spans[0]
    text, bom = file.text, len(file.encoding.bom)
    head, found = len(file.encode(text[:begin])) + bom, len(file.encode(text[begin:end]))
    if bom + len(file.encode(text)) != len(file.raw) or file.raw[head : head + found] != file.encode(text[begin:end]):
        raise ToolError(f"{file.path}: its encoding could not be told for certain; nothing was changed")
    wanted = _with_breaks(file, text[begin:end], old, new)
    line = len(LINE_BREAK.findall(text, 0, begin)) + 1
    return file.raw[:head] + file.encode_new(wanted, text[begin:end]) + file.raw[head + found :], line


def _with_breaks(file: Text, found: str, old: str, new: str) -> str:
    """`new` with the line breaks of the place it goes to."""
    breaks = LINE_BREAK.findall(found)
    if "\r\n" in new and not breaks:
        return new if file.newline == "\n" else re.sub(r"(?<!\r)\n", file.newline, new)
    if "\r\n" in new and "\r\n" not in old and set(breaks) == {"\n"}:
        return new
    if len(set(breaks)) < 2:
        return re.sub(r"\r\n|\n", breaks[0] if breaks else file.newline, new)
    return _line_by_line(found, breaks, new)


def _line_by_line(found: str, breaks: list[str], new: str) -> str:
    """Where endings are mixed: the lines that stay at the begin and the end of the piece keep their own."""
    before, after = LINE_BREAK.split(found), re.split(r"\r\n|\n", new)
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    shift = len(after) - len(before)
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    out = ""
    for i, line in enumerate(after[:-1]):
        kept = i - shift if i >= len(after) - tail else i
        out += line + breaks[min(max(kept, 0), len(breaks) - 1)]
    return out + after[-1]


def _exact(text: str, old: str) -> list[tuple[int, int]]:
    """Every place, overlapping ones too, where `old` stands with any kind of line break."""
    plain = old.replace("\r\n", "\n")
    if "\n" not in plain or "\r" not in text:
        out, at = [], text.find(plain)
        while at >= 0:
            out.append((at, at + len(plain)))
            at = text.find(plain, at + 1)
        return out
    pattern = _BREAK.join(re.escape(part) for part in plain.split("\n"))
    return [(m.start(1), m.end(1)) for m in re.finditer(f"(?=({pattern}))", text)]


_edit_locks: dict[str, threading.Lock] = {}
_edit_guard = threading.Lock()


@contextlib.contextmanager
def editing(path: Path) -> Iterator[None]:
    """Between reading and writing back nobody else of this program, in this or another process, writes the file."""
    import hashlib

    try:
        real = os.path.realpath(path)
        info = os.stat(real) if os.path.isfile(real) else None  # noqa: PTH116, PTH113
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot write {_short(path)}: {getattr(error, 'strerror', None) or error}") from None
    if info is not None and info.st_nlink > 1:
        real = f"{info.st_dev}:{info.st_ino}"  # one file under several names
    with _edit_guard:
        lock = _edit_locks.setdefault(real, threading.Lock())
    name = hashlib.blake2b(real.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    file_lock = FileLock(home() / "locks" / f"{name}.lock")
    with lock:
        try:
            file_lock.acquire(blocking=True)
        except OSError as error:
            raise ToolError(f"cannot lock {_short(path)} for writing: {error.strerror or error}") from None
        try:
            yield
        finally:
            file_lock.release()


# content that comes with the reply


def expand_file_refs(content: str, base: Path, *, within: Confinement | None = None) -> str:
    """`{{file:path:start:end}}` replaced by those lines (1-based, inclusive). Raises ToolError."""

    def lines(match: re.Match[str]) -> str:
        path = base / expand(match[1])
        start, end = int(match[2]), int(match[3])
        text = load(path, within).text
        found = LINE_BREAK.split(text)
        if not found[-1]:
            found.pop()
        if not 1 <= start <= end <= len(found):
            raise ToolError(f"{match[0]}: {path} has {len(found)} lines")
        taken = "\n".join(found[start - 1 : end])
        if any("\ud800" <= c <= "\udfff" for c in taken):
            raise ToolError(f"{match[0]}: those lines hold bytes that are no valid text")
        return taken

    return re.sub(r"\{\{file:([^{}\n]+?):(\d+):(\d+)\}\}", lines, content)
