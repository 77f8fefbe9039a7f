"""Reading, writing and patching files without harm: exact matches only, everything else in the file stays as it is."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ToolError
from ..paths import home
from ..store import atomic
from ..store.lock import FileLock

SNIFF = 8192  # bytes looked at to tell text from binary
COUNT_AT_MOST = 256 << 20  # bytes of a file whose lines are counted; beyond that the header says "at least"
AROUND = 20  # lines of context before a keyword
NEAREST = 3  # how many near lines an error shows

_MAGIC = (
    (b"\x89PNG", "PNG image"), (b"\xff\xd8\xff", "JPEG image"), (b"GIF8", "GIF image"), (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip archive"), (b"%PDF", "PDF document"), (b"\x7fELF", "ELF program"), (b"MZ", "Windows program"),
    (b"BZh", "bzip2 archive"), (b"\xfd7zXZ", "xz archive"), (b"7z\xbc\xaf", "7-zip archive"), (b"SQLite", "SQLite database"),
)  # fmt: skip
_LOOKALIKE = str.maketrans({
    "\u00a0": " ", "\u2007": " ", "\u202f": " ", "\u3000": " ", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"',
    "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u2212": "-", "\t": " ",
})  # fmt: skip


# what kind of file


@dataclass
class Text:
    """A file as text: its encoding, its byte order mark, and the text with the line endings it has."""

    raw: bytes
    encoding: str
    bom: bytes
    text: str

    def encode(self, text: str, path: Path) -> bytes:
        try:
            return self.bom + text.encode(
                self.encoding, "surrogateescape" if self.encoding == "utf-8" else "strict"
            )
        except UnicodeEncodeError as error:
            char = text[error.start]
            raise ToolError(
                f"{path} is in {self.encoding}, which has no {char!r} (U+{ord(char):04X}); nothing was changed"
            ) from None

    @property
    def newline(self) -> str:
        return "\r\n" if self.text.count("\r\n") * 2 > self.text.count("\n") else "\n"


def detect(raw: bytes) -> tuple[str, bytes]:
    """(encoding, byte order mark) of a text: UTF-8, UTF-16 with its mark, GBK, Shift-JIS, else Latin-1."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if raw.startswith(mark):
            return name, mark
    with contextlib.suppress(UnicodeDecodeError):  # then it is something else
        raw.decode("utf-8")
        return "utf-8", b""
    best = ("latin-1", 0.0)
    for name in ("gbk", "shift_jis"):
        with contextlib.suppress(UnicodeDecodeError):  # then it is not this one
            best = max(best, (name, _east_asian(raw.decode(name))), key=lambda pair: pair[1])
    return (best[0] if best[1] >= 0.6 else "latin-1"), b""


def _east_asian(text: str) -> float:
    """How much of the non-ASCII text is common East Asian writing, 0 to 1."""
    foreign = [c for c in text if c > "\x7f"]
    likely = sum(
        "\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u30ff" or "\uff00" <= c <= "\uff60" for c in foreign
    )
    kana = sum("\u3040" <= c <= "\u30ff" for c in foreign)
    pairs = sum(a > "\x7f" and b > "\x7f" for a, b in zip(text, text[1:], strict=False))
    return (likely + 0.2 * kana) / len(foreign) if foreign and pairs else 0.0


def load(path: Path) -> Text:
    """Read a text file whole. Raises ToolError for what is none."""
    _regular(path)
    raw = _read(path)
    if kind := binary_kind(raw[:SNIFF]):
        raise ToolError(f"{path} is a binary file: {kind}, {len(raw)} bytes")
    encoding, bom = detect(raw)
    errors = "surrogateescape" if encoding == "utf-8" else "strict"
    try:
        text = raw[len(bom) :].decode(encoding, errors)
    except UnicodeDecodeError:
        encoding, text = "latin-1", raw[len(bom) :].decode("latin-1")
    return Text(raw, encoding, bom, text)


def binary_kind(start: bytes) -> str | None:
    """What kind of binary file begins like this, or None for text."""
    for magic, name in _MAGIC:
        if start.startswith(magic):
            return name
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "WebP image"
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    odd = sum(b < 9 or 13 < b < 27 or 27 < b < 32 for b in start)
    return "unknown type" if b"\0" in start or odd > len(start) * 0.1 else None


def _regular(path: Path) -> os.stat_result:
    """Refuse what is no ordinary file, at once and without opening it."""
    try:
        info = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise ToolError(f"{path} is a symbolic link to nothing: {path.readlink()}") from None
        raise ToolError(f"{path} does not exist{_close_names(path)}") from None
    except (OSError, ValueError) as error:
        raise ToolError(f"cannot read {path!s}: {error}") from None
    if stat.S_ISDIR(info.st_mode):
        names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir())
        shown = ", ".join(names[:50]) + (f" … {len(names) - 50} more" if len(names) > 50 else "")
        raise ToolError(f"{path} is a folder with {len(names)} entries: {shown}")
    if not stat.S_ISREG(info.st_mode):
        raise ToolError(f"{path} is no ordinary file (a device, pipe or socket) and is not opened")
    return info


def _close_names(path: Path) -> str:
    from difflib import get_close_matches

    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return f"; the folder {path.parent} does not exist either"
    close = get_close_matches(path.name, names, 5, 0.5)
    return f"; there are: {', '.join(close)}" if close else ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None


# reading


def file_read(
    path: Path | str,
    start: int = 1,
    count: int = 200,
    keyword: str | None = None,
    show_linenos: bool = True,
    limit: int = 20_000,
) -> str:
    """Lines of a text file behind a header `[FILE] N lines`, at most `limit` characters.

    With `keyword`: the lines around its first hit at or after `start` (case is ignored). Streams: the size of the file
    costs no memory. Raises ToolError.
    """
    path = Path(path)
    _regular(path)
    try:
        with path.open("rb") as file:
            sniff = file.read(SNIFF)
            if kind := binary_kind(sniff):
                return f"[FILE] binary file: {kind}, {path.stat().st_size} bytes"
            sample = sniff + file.read(1 << 20)
            encoding, bom = detect(sample[: sample.rfind(b"\n") + 1] or sample)
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    start, count = max(1, start), max(1, count)
    lines, total, exact, hit = _select(path, encoding, start, count, keyword)
    header = f"[FILE] {total}{'' if exact else '+'} lines"
    if encoding != "utf-8" or bom:
        header += f", {encoding}{' with BOM' if bom and encoding == 'utf-8' else ''}"
    if keyword and hit is None:
        return f"{header}\n{keyword!r} is not in it from line {start} on"
    if not lines:
        return f"{header}\n" + ("(empty)" if not total else f"(there is no line {start})")
    widest = min(max(100, 256_000 // max(1, len(lines))), 8000)
    out, used = [header], len(header)
    for number, line in lines:
        if len(line) > widest:
            line = f"{line[:widest]}… [{len(line) - widest} more characters in this line]"
        shown = f"{number}|{line}" if show_linenos else line
        if used + len(shown) > limit and len(out) > 1:
            out.append(f"[cut at {limit} characters: go on with start={number}]")
            break
        if used + len(shown) > limit:
            shown = f"{shown[: limit - used]}… [line cut at {limit} characters]"
        out.append(shown)
        used += len(shown) + 1
    return "\n".join(out)


def _select(
    path: Path, encoding: str, start: int, count: int, keyword: str | None
) -> tuple[list[tuple[int, str]], int, bool, int | None]:
    """(numbered lines wanted, lines in the file, whether that count is exact, line of the hit)."""
    wanted: list[tuple[int, str]] = []
    before: list[tuple[int, str]] = []
    hit: int | None = None
    low = keyword.lower() if keyword else None
    number = 0
    with path.open(
        encoding=encoding if encoding != "utf-8" else "utf-8-sig", errors="replace", newline=None
    ) as file:
        for number, line in _bounded_lines(file):
            if number < start:
                continue
            if low and hit is None:
                if low in line.lower():
                    hit = number
                    wanted = [*before[-AROUND:], (number, line)]
                else:
                    before = [*before[-AROUND:], (number, line)]
                continue
            if len(wanted) < count:
                wanted.append((number, line))
            else:
                break
        else:
            return wanted[:count], number, True, hit
    rest, exact = _count_lines(path)
    return wanted[:count], max(rest, number), exact, hit


def _bounded_lines(file: Any) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; a line of more than a million characters is cut, so memory stays flat."""
    number, cap = 0, 1_000_000
    while piece := file.readline(cap):
        number += 1
        line = piece
        while not piece.endswith("\n") and len(piece) == cap:
            piece = file.readline(cap)
        yield number, line.rstrip("\n")


def _count_lines(path: Path) -> tuple[int, bool]:
    """(lines of the file, whether all of it was counted)."""
    lines, seen, last = 0, 0, b""
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            lines += data.count(b"\n")
            seen, last = seen + len(data), data
            if seen >= COUNT_AT_MOST:
                return lines, False
    return lines + (bool(last) and not last.endswith(b"\n")), True


# writing


def file_write(path: Path | str, content: str, mode: str = "overwrite") -> dict[str, Any]:
    """Write atomically. An existing file keeps its encoding, byte order mark, line endings, mode bits and links.

    Returns {"status", "msg"}. Raises ToolError, and then nothing has changed.
    """
    path = Path(path)
    _plain_text(content)
    with editing(path):
        old = None
        if path.exists() or path.is_symlink():
            _regular(path)
            old = _old_text(path, mode)
        if old is None:
            data, lines = content.encode("utf-8"), content.count("\n")
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ToolError(
                    f"cannot create the folder {path.parent}: {error.strerror or error}"
                ) from None
        else:
            added = content
            if old.newline == "\r\n":
                added = re.sub(r"(?<!\r)\n", "\r\n", content)
            text = {"overwrite": added, "append": old.text + added, "prepend": added + old.text}[mode]
            data, lines = old.encode(text, path), text.count("\n")
        atomic.write_bytes(path, data)
    return {"status": "success", "msg": f"{path}: {len(data)} bytes, {lines} lines ({mode})"}


def _old_text(path: Path, mode: str) -> Text | None:
    """The existing text that decides encoding and endings; a binary file may only be replaced whole."""
    raw = _read(path)
    if not raw:
        return None
    if binary_kind(raw[:SNIFF]):
        if mode == "overwrite":
            return None
        raise ToolError(f"{path} is a binary file: text cannot be added to it")
    return load(path)


def _plain_text(content: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in content):
        raise ToolError("the content holds half a surrogate pair and cannot be written; nothing was changed")


def file_patch(path: Path | str, old_content: str, new_content: str) -> dict[str, Any]:
    """Replace the one place where `old_content` stands, to the character; all other bytes stay identical.

    The only freedom: `\\n` in `old_content` also matches `\\r\\n`, and the new text takes that ending.
    Returns {"status", "msg"}. Raises ToolError that says where the candidates or the nearest lines are.
    """
    path = Path(path)
    if not old_content:
        raise ToolError("old_content is empty; to write a new file or add to one use file_write")
    if old_content == new_content:
        raise ToolError("old_content and new_content are the same: nothing to change")
    _plain_text(new_content)
    with editing(path):
        file = load(path)
        spans = _exact(file.text, old_content)
        if len(spans) != 1:
            raise ToolError(f"{path}: nothing was changed: {_why_not(file.text, old_content, spans)}")
        begin, end = spans[0]
        found = file.text[begin:end]
        if "\r\n" in found and "\r\n" not in new_content or "\n" not in found and file.newline == "\r\n":
            new_content = re.sub(r"(?<!\r)\n", "\r\n", new_content)
        # only the replaced piece is encoded anew: bytes that are no valid text elsewhere stay what they are
        head, tail = file.text[:begin], file.text[end:]
        if file.encode(file.text, path) != file.raw:
            raise ToolError(f"{path}: its encoding could not be told for certain; nothing was changed")
        data = (
            file.encode(head, path)
            + file.encode(new_content, path)[len(file.bom) :]
            + file.encode(tail, path)[len(file.bom) :]
        )
        atomic.write_bytes(path, data)
    line = head.count("\n") + 1
    return {"status": "success", "msg": f"{path}: replaced at line {line}"}


def _exact(text: str, old: str) -> list[tuple[int, int]]:
    """Every place, overlapping ones too, where `old` stands with either line ending."""
    pattern = re.escape(old.replace("\r\n", "\n")).replace("\\\n", "\r?\n")
    return [(m.start(1), m.end(1)) for m in re.finditer(f"(?=({pattern}))", text)]


def _why_not(text: str, old: str, spans: list[tuple[int, int]]) -> str:
    if spans:
        lines = ", ".join(str(text.count("\n", 0, begin) + 1) for begin, _ in spans[:10])
        return f"old_content occurs {len(spans)} times, at lines {lines}; give more of its surroundings"
    plain = _exact(text.translate(_LOOKALIKE), old.translate(_LOOKALIKE))
    if plain:
        begin = plain[0][0]
        differing = next((i for i, c in enumerate(old) if begin + i < len(text) and text[begin + i] != c), 0)
        there, given = text[begin + differing], old[differing]
        line = text.count("\n", 0, begin + differing) + 1
        return (
            f"old_content is not in the file, but looks like line {line}: the file has {there!r} (U+{ord(there):04X}) "
            f"where you gave {given!r} (U+{ord(given):04X})"
        )
    return f"old_content is not in the file. {_nearest_lines(text, old)}"


def _nearest_lines(text: str, old: str) -> str:
    from difflib import SequenceMatcher

    lines = text.splitlines()
    first = next((line for line in old.splitlines() if line.strip()), old).strip()
    scored = []
    matcher = SequenceMatcher(b=first, autojunk=False)
    for number, line in enumerate(lines[:20_000], 1):
        matcher.set_seq1(line.strip()[:500])
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5:
            scored.append((matcher.ratio(), -number, line))
    best = sorted(scored, reverse=True)[:NEAREST]
    if not best:
        return "No line is similar; read the file again"
    near = "\n".join(f"{-number}|{line[:300]}" for _, number, line in best)
    return f"Nearest lines (white space counts):\n{near}"


_edit_locks: dict[str, threading.Lock] = {}
_edit_guard = threading.Lock()


@contextlib.contextmanager
def editing(path: Path) -> Iterator[None]:
    """Between reading and writing back nobody else of this program, in this or another process, writes the file."""
    import hashlib

    real = str(path.resolve())
    with _edit_guard:
        lock = _edit_locks.setdefault(real, threading.Lock())
    name = hashlib.blake2b(real.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    with lock, FileLock(home() / "locks" / f"{name}.lock"):
        yield


# content that comes with the reply


def expand_file_refs(content: str, base: Path) -> str:
    """`{{file:path:start:end}}` replaced by those lines (1-based, inclusive). Raises ToolError."""

    def lines(match: re.Match[str]) -> str:
        path = base / Path(match[1]).expanduser()
        start, end = int(match[2]), int(match[3])
        found = load(path).text.splitlines(keepends=True)
        if not 1 <= start <= end <= len(found):
            raise ToolError(f"{match[0]}: {path} has {len(found)} lines")
        return "".join(found[start - 1 : end]).removesuffix("\n").removesuffix("\r")

    return re.sub(r"\{\{file:([^{}\n]+?):(\d+):(\d+)\}\}", lines, content)


_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*([^\n`]*)$")


def extract_content(reply: str) -> str | None:
    """The content for file_write in a reply: between the first `<file_content>` and the last `</file_content>`, else
    the last fenced block. None when there is none or its end cannot be told."""
    begin = reply.find("<file_content>")
    if begin >= 0:
        end = reply.rfind("</file_content>")
        if end < begin:
            return None
        body = reply[begin + len("<file_content>") : end]
        return body.removeprefix("\r\n").removeprefix("\n")
    found = _blocks(reply)
    return found[-1][1] if found else None


def last_code_block(reply: str, kinds: Sequence[str]) -> str | None:
    """The last fenced block of one of these languages, else None."""
    for language, body in reversed(_blocks(reply)):
        if language.lower() in kinds:
            return body
    return None


def _blocks(reply: str) -> list[tuple[str, str]]:
    """(language, body) of the outermost fenced blocks. A longer fence, or an inner one with a language, nests."""
    out: list[tuple[str, str]] = []
    fence, language, depth = "", "", 0
    body: list[str] = []
    for line in reply.split("\n"):
        mark = _FENCE.match(line.rstrip("\r"))
        if not fence:
            if mark:
                fence, language, body, depth = mark[2], mark[3].strip(), [], 0
            continue
        if mark and mark[2][0] == fence[0] and len(mark[2]) >= len(fence):
            if mark[3].strip() and len(mark[2]) == len(fence):
                depth += 1
            elif not mark[3].strip() and depth:
                depth -= 1
            elif not mark[3].strip():
                out.append((language, "".join(f"{b}\n" for b in body)))
                fence = ""
                continue
        body.append(line)
    return out
