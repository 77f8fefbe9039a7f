"""Reading, writing and patching files without harm: exact matches only, everything else in the file stays as it is."""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from ..errors import ToolError
from ..paths import home
from ..store import atomic
from ..store.lock import FileLock

SNIFF = 8192  # bytes looked at to tell text from binary
SAMPLE = 256 << 10  # bytes looked at to tell the encoding
COUNT_AT_MOST = 256 << 20  # bytes of a file whose lines are counted; beyond that the header says "at least"
LOAD_AT_MOST = 256 << 20  # bytes of a file that is patched or added to: it is held in memory
LINE_AT_MOST = 16 << 20  # characters of one line that are read through to learn its length
PIECE = 1 << 20  # characters read at once
AROUND = 20  # lines of context before a keyword
NEAREST = 3  # how many near lines an error shows
PLACES = 100  # how many line numbers an error lists
FUZZY = 20_000  # how many lines are compared to find the nearest ones

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"), (b"\xff\xd8\xff", "JPEG image"), (b"GIF87a", "GIF image"), (b"GIF89a", "GIF image"),
    (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b", "gzip archive"), (b"%PDF-", "PDF document"), (b"\x7fELF", "ELF program"),
    (b"MZ", "Windows program"), (b"BZh", "bzip2 archive"), (b"\xfd7zXZ", "xz archive"), (b"7z\xbc\xaf", "7-zip archive"),
    (b"SQLite format 3\0", "SQLite database"), (b"\x28\xb5\x2f\xfd", "Zstandard archive"), (b"Rar!\x1a\x07", "RAR archive"),
    (b"ID3", "MP3 audio"), (b"OggS", "Ogg audio"), (b"\xd0\xcf\x11\xe0", "old Office document"), (b"\xca\xfe\xba\xbe", "Java class"),
)  # fmt: skip
_LINE_BREAK = re.compile(r"\r\n|\r|\n")  # what ends a line: for reading, patching, inserting alike
_BREAK = r"(?:\r\n|(?<!\r)\n|\r(?!\n))"  # the same, but never half of a \r\n


# what kind of file


class Encoding(NamedTuple):
    """`sure` is False for a guess that is good enough to show a file and to copy its bytes, not to add letters to it."""

    name: str
    bom: bytes = b""
    sure: bool = True


@dataclass
class Text:
    """A file as text: its encoding, and the text after the byte order mark with the line endings it has."""

    path: Path
    raw: bytes
    encoding: Encoding
    text: str

    def encode(self, text: str) -> bytes:
        """Bytes of the file's own text. Raises UnicodeEncodeError."""
        return text.encode(self.encoding.name, _errors(self.encoding.name))

    def encode_new(self, text: str, replaced: str = "") -> bytes:
        """Bytes of what is added to it, in the place of `replaced`.

        Raises ToolError when the encoding lacks a character, or is not certain and the character was not there before.
        """
        name = self.encoding.name
        try:
            data = self.encode(text)
            lost = (
                next((c for c in set(text) if self.encode(c).decode(name) != c), None)
                if name != "utf-8"
                else None
            )
        except UnicodeEncodeError as error:
            lost = text[error.start]
        if (
            lost is not None
        ):  # some codecs put a similar character in its place: a yen sign becomes a backslash
            raise ToolError(
                f"{self.path} is in {name}, which has no {lost!r} (U+{ord(lost):04X}); nothing was changed"
            )
        if not self.encoding.sure and any(c > "\x7f" for c in set(text) - set(replaced)):
            raise ToolError(
                f"the encoding of {self.path} could not be told for certain ({name}?), so only ASCII can be added to it; "
                f"nothing was changed"
            )
        return data

    @cached_property
    def newline(self) -> str:
        lines, pairs = self.text.count("\n"), self.text.count("\r\n")
        if not lines and "\r" in self.text:
            return "\r"
        return "\r\n" if pairs * 2 > lines else "\n"


def _errors(encoding: str) -> str:
    """The error handler with which bytes that are no valid text survive decoding and encoding."""
    return "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"


# which encoding

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"), (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)  # fmt: skip
_HAN = (
    "的一是不了在人有我他中上大和地到以出生能而子自之年可下道行所然家种方多法去如都同面小部其些主心她本前只想日者意无力它使用第"
    "公此已工情明性知全三又正外高很最重物手向文政美相名二水信加表化先位次度果回特代内世月合必平反真受目太通教及元位文件目行列"
    "本文字入完成定地址安全包含存在失信息名字字段文本目的" "天地中文字符用本行"
)  # fmt: skip
_SIMPLIFIED = (
    "这个们来为国说时要就会对那得于着过发后作里经么学当没动起看还进样理现开但因从实无与长机关点业两间问题应战头体见产给门将东声"
    "认几条气变总电数报结务计设测试输错误删户务类览删请处选项码参数据库称类级连线转请帐单确标签执网络页调试运读写单双号引"
    "码译释注启动缓显进程志标题间访问异权限密张李王刘陈你好再见添加配置修改服务器默认查找替换创建保存文档说明版本更新函数变量值型"
    "找没有到重试刚色角前后如果或由并且根据系统程序开发"
)  # fmt: skip
_TRADITIONAL = (
    "這個們來為國說時要就會對那得於著過發後作裡經麼學當沒動起看還進樣理現開但因從實無與長機關點業兩間問題應戰頭體見產給門將東聲"
    "認幾條氣變總電數報結務計設測試輸錯誤刪戶類覽請處選項碼參據庫稱級連線轉帳單確標籤執網絡路頁調運讀寫雙號引譯釋註啟緩顯程誌"
    "訪異權限密張劉陳你好再見添加配置修改服務器預查找替換創建保存檔案資料料明版本更新函數變量值型使者名我可以式碼定"
)  # fmt: skip
_JAPANESE = (
    "日一国人年大十二本中長出三時行見月後前生五間上東四今金九入学高円子外八六下来気小七山話女北午書先名川千水男西電校語土木聞食"
    "車何南万毎白天母火右読友左休父雨会同事自社発者地業方新場員立開手力問代明動京目通言理体田主題意不作用度強公持野以思家世多正安"
    "院心界教文元重近画海知道集別物品計死特私始終台広無真有口少町料工建空急止送切転研究設定追加変更処理実行結果確認必要合部表示能"
    "機種存字型数値入力起動終了保存削除検索選択接続失敗成功都府県大阪当最初全取次使用方法"
)  # fmt: skip
_HANGUL = (
    "이다는의가을에하고지로기한를사어자아인은대리도시나서그수보해전일부정제스원만있주과라없게들안장여동면성구조세상마생각오우유것경계"
    "국민글내니습입력설파두번째줄요름용주석녕실행오류확저삭추변비밀호"
)  # fmt: skip


class _Script(NamedTuple):
    codecs: tuple[str, ...]  # the first that can say all of the text is taken
    common: frozenset[str]
    level1: tuple[int, int]  # lead bytes of the characters in everyday use


_SCRIPTS = (
    _Script(("gbk", "gb18030"), frozenset(_HAN + _SIMPLIFIED), (0xB0, 0xD7)),
    _Script(("big5", "cp950", "big5hkscs"), frozenset(_HAN + _TRADITIONAL), (0xA4, 0xC6)),
    _Script(("shift_jis", "cp932"), frozenset(_JAPANESE), (0x82, 0x98)),
    _Script(("euc_jp",), frozenset(_JAPANESE), (0xA4, 0xCF)),
    _Script(("euc_kr", "cp949"), frozenset(_HANGUL), (0xB0, 0xC8)),
)


def detect(raw: bytes) -> Encoding:
    """UTF-8 (a few broken bytes do not change that), UTF-16/32 with a mark, an East Asian encoding, else a Western one."""
    for mark, name in _MARKS:
        if raw.startswith(mark):
            return Encoding(name, mark)
    if raw.isascii():
        return Encoding("utf-8")
    text = raw.decode("utf-8", "surrogateescape")
    broken = sum(len(run) for run in re.findall("[\udc80-\udcff]+", text))
    whole = sum(len(run) for run in re.findall("[\x80-\ud7ff\ue000-\U0010ffff]+", text)) if broken else 0
    if whole >= broken * 4:
        return Encoding("utf-8")
    sample = _foreign_part(raw)
    if whole >= broken:  # some short texts in other encodings look like this too
        return _east_asian(sample, 0.8) or Encoding("utf-8")
    western = _western(sample)
    return _east_asian(sample, 0.8 if western.sure else 0.4) or western


def _foreign_part(raw: bytes) -> bytes:
    """Whole lines from the first byte beyond ASCII on."""
    first = re.search(rb"[\x80-\xff]", raw)
    begin = raw.rfind(b"\n", 0, first.start()) + 1 if first else 0
    part = raw[begin : begin + SAMPLE]
    return part if begin + SAMPLE >= len(raw) else part[: part.rfind(b"\n") + 1] or part


def _east_asian(raw: bytes, least: float) -> Encoding | None:
    """The encoding in which the text reads like everyday writing, with at least this score. Not sure when a second one does nearly as well."""
    high = len(re.findall(rb"[\x80-\xff]", raw))
    beside = sum(len(run) for run in re.findall(rb"[\x80-\xff]{2,}", raw))
    if beside < high * 0.4:
        return None  # single letters among ASCII: Western
    if beside > high * 0.9:
        least = min(least, 0.45)
    elif high >= 16:
        least = min(least, 0.6)  # a Western text of some length never comes near
    scored = sorted(((_everyday(raw, script), i) for i, script in enumerate(_SCRIPTS)), reverse=True)
    (best, index), (second, _) = scored[:2]
    if best < least:
        return None
    names = _SCRIPTS[index].codecs
    exact = [name for name in names if "\ufffd" not in raw.decode(name, "replace")]
    return Encoding(exact[0] if exact else names[0], sure=best - second > max(0.08, 0.6 / high))


def _everyday(raw: bytes, script: _Script) -> float:
    """How everyday the text beyond ASCII is when read so: 1 is a text of common characters, below 0 nonsense."""
    chars = Counter(c for c in raw.decode(script.codecs[-1], "surrogateescape") if c > "\x7f")
    return sum(_weight(c, script) * n for c, n in chars.items()) / max(1, chars.total())


def _weight(char: str, script: _Script) -> float:
    if "\udc80" <= char <= "\udcff":
        return -2.0
    if char in script.common:
        return 1.0
    if "\u3041" <= char <= "\u30fe":  # all these encodings have kana, few but Japanese texts
        return 1.0 if "日" in script.common and "気" in script.common else 0.2
    if "\u3000" <= char <= "\u303f" or "\uff00" <= char <= "\uff60" or char in "“”‘’—…·、。「」":
        return 0.6
    if not ("\u4e00" <= char <= "\u9fff" or "\uac00" <= char <= "\ud7a3" or char > "\uffff"):
        return -0.3  # other alphabets, frames, half-width kana: possible, but more often a wrong guess
    lead = char.encode(script.codecs[-1], "replace")
    everyday = script.level1[0] <= lead[0] <= script.level1[1] and (
        script.codecs[0] != "gbk" or lead[1] > 0xA0
    )
    return 0.5 if everyday else 0.0


_WESTERN = frozenset("€„…‘’“”•–—™šœžŸŠŒŽ\xa0¡¢£§©ª«¬®°±²³´µ·¹º»¼½¾¿") | {chr(c) for c in range(0xC0, 0x100)}


def _western(raw: bytes) -> Encoding:
    """cp1252 when it uses what that has beyond Latin-1. Not sure when it does not look like a Western language."""
    name = "cp1252" if re.search(rb"[\x80-\x9f]", raw) else "latin-1"
    text = raw.decode(name, "surrogateescape")
    foreign = [c for c in text if c > "\x7f"]
    odd = sum(c not in _WESTERN for c in foreign)
    runs = sum(len(run) for run in re.findall("[\xc0-\xff]{3,}|[^\x00-\x7f]{4,}", text))
    return Encoding(name, sure=odd + runs < len(foreign) * 0.3)


# reading whole


def load(path: Path) -> Text:
    """Read a text file whole. Raises ToolError for what is none, or is too large for it."""
    info = _regular(path)
    if info.st_size > LOAD_AT_MOST:
        raise ToolError(
            f"{path} is too large to be edited in one piece ({info.st_size} bytes): do it with a script"
        )
    raw = _read(path)
    if kind := binary_kind(raw[:SNIFF]):
        raise ToolError(f"{path} is a binary file: {kind}, {len(raw)} bytes")
    encoding = detect(raw)
    try:
        text = raw[len(encoding.bom) :].decode(encoding.name, _errors(encoding.name))
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{path} is damaged {encoding.name} text: {error.reason} at byte {error.start}"
        ) from None
    return Text(path, raw, encoding, text)


def binary_kind(start: bytes) -> str | None:
    """What kind of binary file begins like this, or None for text."""
    if start.startswith(tuple(mark for mark, _ in _MARKS[1:])):
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


def _regular(path: Path) -> os.stat_result:
    """Refuse what is no ordinary file, at once and without opening it."""
    try:
        info = path.stat()
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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
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
) -> str:
    """Lines of a text file behind a header `[FILE] N lines`, at most `limit` characters.

    With `keyword`: the lines around its first hit at or after `start` (case is ignored). Streams: the size of the file
    costs no memory. Raises ToolError.
    """
    path = Path(path)
    size = _regular(path).st_size
    start, count = max(1, start), max(1, count)
    try:
        with path.open("rb") as file:
            sniff = file.read(SNIFF)
            if kind := binary_kind(sniff):
                return f"[FILE] binary file: {kind}, {size} bytes"
            encoding = _detect_part(sniff, file)
            file.seek(len(encoding.bom))
            text = io.TextIOWrapper(file, encoding.name, "replace", newline=None)
            found = _select(text, start, count, keyword, limit)
            total, exact = found.last, found.ended
            if not found.ended:
                total, exact = _count_lines(path, encoding)
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


def _count_lines(path: Path, encoding: Encoding) -> tuple[int, bool]:
    """(lines of the file, whether all of it was counted)."""
    lines, seen, last = 0, 0, b"\n"
    if encoding.name.startswith(("utf-16", "utf-32")):
        return _count_wide_lines(path, encoding)
    with path.open("rb") as file:
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


def _count_wide_lines(path: Path, encoding: Encoding) -> tuple[int, bool]:
    lines, seen, last = 0, 0, "\n"
    with path.open(encoding=encoding.name, errors="replace", newline=None) as file:
        file.read(1)  # the mark
        while text := file.read(PIECE):
            lines += text.count("\n")
            seen, last = seen + len(text), text[-1]
            if seen >= COUNT_AT_MOST // 2:
                return lines, False
    return lines + (last != "\n"), True


# writing


def file_write(path: Path | str, content: str, mode: str = "overwrite") -> dict[str, Any]:
    """Write atomically. An existing file keeps its encoding, byte order mark, line endings, mode bits and links.

    Returns {"status", "msg"}. Raises ToolError, and then nothing has changed.
    """
    path = Path(path)
    if mode not in ("overwrite", "append", "prepend"):
        raise ToolError(f"mode must be overwrite, append or prepend, not {mode!r}")
    _plain_text(content)
    with editing(path):
        old = _old_text(path, mode)
        data = content.encode("utf-8") if old is None else _joined(old, content, mode)
        if old is None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ToolError(
                    f"cannot create the folder {path.parent}: {error.strerror or error}"
                ) from None
        atomic.write_bytes(path, data)
    return {"status": "success", "msg": f"{path}: {len(data)} bytes ({mode})"}


def _joined(old: Text, content: str, mode: str) -> bytes:
    bom = old.encoding.bom
    if bom:
        content = content.removeprefix("\ufeff")
    if old.newline != "\n":
        content = re.sub(r"(?<!\r)\n", old.newline, content)
    added, rest = old.encode_new(content), old.raw[len(bom) :]
    return bom + {"overwrite": added, "append": rest + added, "prepend": added + rest}[mode]


def _old_text(path: Path, mode: str) -> Text | None:
    """The existing text that decides encoding and endings; a binary file may only be replaced whole."""
    try:
        if not path.exists() and not path.is_symlink():
            return None
    except OSError as error:
        raise ToolError(f"cannot write {_short(path)}: {error.strerror or error}") from None
    size = _regular(path).st_size
    if size > LOAD_AT_MOST and mode == "overwrite":
        return None
    if not size and not _read(path):
        return None
    try:
        with path.open("rb") as file:
            kind = binary_kind(file.read(SNIFF))
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    if kind and mode == "overwrite":
        return None
    if kind:
        raise ToolError(f"{path} is a binary file ({kind}): text cannot be added to it")
    return load(path)


def _plain_text(content: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in content):
        raise ToolError("the content holds half a surrogate pair and cannot be written; nothing was changed")


def file_patch(path: Path | str, old_content: str, new_content: str) -> dict[str, Any]:
    """Replace the one place where `old_content` stands, to the character; all other bytes stay identical.

    The only freedom: a line break in `old_content` matches any kind of line break, and those of the new text become
    what they were in the file, unless `\r\n` is asked for where the old text has none.
    Returns {"status", "msg"}. Raises ToolError that says where the candidates or the nearest lines are.
    """
    path = Path(path)
    if not old_content:
        raise ToolError("old_content is empty; to write a new file or add to one use file_write")
    if old_content == new_content:
        raise ToolError("old_content and new_content are the same: nothing to change")
    _plain_text(new_content)
    with editing(path):
        for _ in range(3):
            file = load(path)
            data, line = _patched(file, old_content, new_content)
            if _read(path) == file.raw:  # else an editor saved it meanwhile
                atomic.write_bytes(path, data)
                return {"status": "success", "msg": f"{path}: replaced at line {line}"}
    raise ToolError(f"{path} is being changed by somebody else all the time; nothing was changed")


def _patched(file: Text, old: str, new: str) -> tuple[bytes, int]:
    """(the bytes of the patched file, line of the change)."""
    spans = _exact(file.text, old)
    if len(spans) != 1:
        raise ToolError(f"{file.path}: nothing was changed: {_why_not(file.text, old, spans)}")
    begin, end = spans[0]
    text, bom = file.text, len(file.encoding.bom)
    head, found = len(file.encode(text[:begin])) + bom, len(file.encode(text[begin:end]))
    if bom + len(file.encode(text)) != len(file.raw) or file.raw[head : head + found] != file.encode(
        text[begin:end]
    ):
        raise ToolError(f"{file.path}: its encoding could not be told for certain; nothing was changed")
    wanted = _with_breaks(file, text[begin:end], old, new)
    line = len(_LINE_BREAK.findall(text, 0, begin)) + 1
    return file.raw[:head] + file.encode_new(wanted, text[begin:end]) + file.raw[head + found :], line


def _with_breaks(file: Text, found: str, old: str, new: str) -> str:
    """`new` with the line breaks of the place it goes to."""
    breaks = _LINE_BREAK.findall(found)
    if "\r\n" in new and not breaks:
        return new if file.newline == "\n" else re.sub(r"(?<!\r)\n", file.newline, new)
    if "\r\n" in new and "\r\n" not in old and set(breaks) == {"\n"}:
        return new
    if len(set(breaks)) < 2:
        return re.sub(r"\r\n|\n", breaks[0] if breaks else file.newline, new)
    return _line_by_line(found, breaks, new)


def _line_by_line(found: str, breaks: list[str], new: str) -> str:
    """Where endings are mixed: the lines that stay at the begin and the end of the piece keep their own."""
    before, after = _LINE_BREAK.split(found), re.split(r"\r\n|\n", new)
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


# why a patch found no place


def _why_not(text: str, old: str, spans: list[tuple[int, int]]) -> str:
    if spans:
        numbers = _lines_at(text, [begin for begin, _ in spans[:PLACES]])
        more = f" and {len(spans) - PLACES} more" if len(spans) > PLACES else ""
        lines = ", ".join(map(str, numbers))
        return f"old_content occurs {len(spans)} times, at lines {lines}{more}; give more of its surroundings"
    return _look_alike(text, old) or f"old_content is not in the file. {_nearest_lines(text, old)}"


def _lines_at(text: str, places: list[int]) -> list[int]:
    """Line numbers of ascending places."""
    out, line, at = [], 1, 0
    for place in places:
        line += len(_LINE_BREAK.findall(text, at, place))
        at = place
        out.append(line)
    return out


_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_NOTHING = "\u200b\u200c\u200d\u2060\ufeff\xad"
_TWINS = dict(zip(
    "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧο", "aeopcyxijshdqwABEKMHOPCTXIJSABEZHIKMNOPTYXo", strict=True
)) | dict.fromkeys("\u2018\u2019\u201a\u2032`\xb4", "'") | dict.fromkeys("\u201c\u201d\u201e\u2033\xab\xbb", '"') | dict.fromkeys(
    _DASHES, "-") | dict.fromkeys(_NOTHING, "") | {"\t": " ", "\r": "\n"}  # fmt: skip


@cache
def _fold(char: str) -> str:
    """What the character looks like, in plain characters."""
    if char in _TWINS:
        return _TWINS[char]
    if char < "\x80":
        return char
    import unicodedata

    return "".join(_TWINS.get(c, c) for c in unicodedata.normalize("NFKD", char))


_ODD = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-_a-\x7f\n]|\r")  # all that _fold may change


def _look_alike(text: str, old: str) -> str | None:
    """Where the file has something that only looks like `old`, and which characters differ; None when it has not."""
    text, old = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    folded = _ODD.sub(lambda m: _fold(m[0]), text)
    wanted = _ODD.sub(lambda m: _fold(m[0]), old)
    at = folded.find(wanted) if wanted else -1
    if at < 0:
        return None
    begin = _unfolded(text, at)
    differ, line = [], text.count("\n", 0, begin) + 1
    for place, there, given in _differences(text, begin, old):
        where = text.count("\n", begin, place) + line
        saying = f"line {where} has {_named(there)} where you gave {_named(given)}"
        if saying not in differ:
            differ.append(saying)
    more = f"; and {len(differ) - 10} more" if len(differ) > 10 else ""
    return f"old_content is not in the file, but this looks like it: {'; '.join(differ[:10])}{more}"


def _unfolded(text: str, at: int) -> int:
    """The place in `text` of place `at` in its folded form."""
    shift = 0
    for odd in _ODD.finditer(text):
        width = len(_fold(odd[0]))
        if odd.start() + shift >= at:
            break
        if odd.start() + shift + width > at:
            return odd.start()  # in the middle of what the character looks like
        shift += width - 1
    return at - shift


def _differences(text: str, at: int, old: str) -> Iterator[tuple[int, str, str]]:
    """(place, what the file has, what was given) of each difference; both look the same from `at` on."""
    i = 0
    while i < len(old) and at < len(text):
        if text[at] == old[i]:
            at, i = at + 1, i + 1
            continue
        place, there, given = at, text[at], old[i]
        a, b = _fold(there), _fold(given)
        if not a or not b:  # it cannot be seen: there is one too many on its side
            yield place, "" if a else there, "" if b else given
            at, i = at + (not a), i + (not b)
            continue
        while a != b and len(there) + len(given) < 20:
            longer = len(a) > len(b)
            if longer and i + len(given) < len(old):
                given += old[i + len(given)]
            elif not longer and at + len(there) < len(text):
                there += text[at + len(there)]
            else:
                break
            a, b = "".join(map(_fold, there)), "".join(map(_fold, given))
        yield place, there, given
        at, i = at + len(there), i + len(given)
    if i < len(old):
        yield at, "", old[i:]


def _named(chars: str) -> str:
    if not chars:
        return "nothing"
    return f"{chars!r} ({' '.join(f'U+{ord(c):04X}' for c in chars)})"


def _nearest_lines(text: str, old: str) -> str:
    lines, wanted = _LINE_BREAK.split(text), _LINE_BREAK.split(old)
    skipped = next((i for i, line in enumerate(wanted) if line.strip()), 0)
    best = _similar(lines, wanted[skipped])
    if not best:
        return "No line is similar; read the file again"
    near = "\n".join(f"{n + 1}|{lines[n][:300]}" for n in best)
    return f"Nearest lines (white space counts):\n{near}{_first_difference(lines, best, wanted[skipped:])}"


def _similar(lines: list[str], line: str) -> list[int]:
    """Indexes of the lines most like this one: the same, the same but for white space or case, or similar letters."""
    from difflib import SequenceMatcher

    first = line.strip()[:500]
    plain = "".join(first.lower().split())
    word = max(re.findall(r"\w+", first), key=len, default="")
    matcher = SequenceMatcher(b=first, autojunk=False)
    scored: list[tuple[float, int]] = []
    likely = [n for n, text in enumerate(lines) if word in text] if word else []
    for n in islice(dict.fromkeys([*likely[:FUZZY], *range(min(FUZZY, len(lines)))]), FUZZY * 2):
        text = lines[n].strip()[:500]
        if lines[n] == line or plain and "".join(text.lower().split()) == plain:
            scored.append((2.0 + (lines[n] == line), -n))
            continue
        matcher.set_seq1(text)
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5 and len(scored) < 500:
            scored.append((matcher.ratio(), -n))
    return [-n for _, n in sorted(scored, reverse=True)[:NEAREST]]


def _first_difference(lines: list[str], starts: list[int], wanted: list[str]) -> str:
    """Which line of several does not fit, at the place where the most of them do."""

    def fitting(start: int) -> int:
        pairs = zip(lines[start:], wanted, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(wanted))

    start = max(starts, key=fitting)
    at = fitting(start)
    if at == 0 or at >= len(wanted):
        return ""
    if start + at >= len(lines):
        return f"\nFrom line {start + 1} on {at} lines fit, then the file ends"
    return (
        f"\nFrom line {start + 1} on the first that differs is\n{start + at + 1}|{lines[start + at][:300]}\n"
        f"where you gave\n{wanted[at][:300]}"
    )


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
    with lock, FileLock(home() / "locks" / f"{name}.lock"):
        yield


# content that comes with the reply


def expand_file_refs(content: str, base: Path) -> str:
    """`{{file:path:start:end}}` replaced by those lines (1-based, inclusive). Raises ToolError."""

    def lines(match: re.Match[str]) -> str:
        try:
            path = base / Path(match[1]).expanduser()
        except RuntimeError as error:
            raise ToolError(f"{match[0]}: {error}") from None
        start, end = int(match[2]), int(match[3])
        text = load(path).text
        found = _LINE_BREAK.split(text)
        if not found[-1]:
            found.pop()
        if not 1 <= start <= end <= len(found):
            raise ToolError(f"{match[0]}: {path} has {len(found)} lines")
        taken = "\n".join(found[start - 1 : end])
        if any("\ud800" <= c <= "\udfff" for c in taken):
            raise ToolError(f"{match[0]}: those lines hold bytes that are no valid text")
        return taken

    return re.sub(r"\{\{file:([^{}\n]+?):(\d+):(\d+)\}\}", lines, content)


_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_DOCUMENTS = ("markdown", "md", "mdx", "rst")  # languages whose text may itself hold bare fences


def extract_content(reply: str) -> str | None:
    """The content for file_write in a reply: between `<file_content>` and the last `</file_content>`, else the last
    fenced block. None when there is none, it is empty, or where it ends cannot be told for certain."""
    blocks, cut = _blocks(reply)
    opening = re.search(r"^[ \t]*<file_content>", reply, re.M) or re.search("<file_content>", reply)
    if opening and not any(
        b.begin < opening.start() < b.end for b in blocks if not b.body.startswith(opening[0])
    ):
        return _tagged(reply, opening) or None
    if cut or not blocks:
        return None
    if not blocks[-1].language and any(b.language.lower() in _DOCUMENTS for b in blocks[:-1]):
        return None  # this may be a piece of that document
    return blocks[-1].body or None


def _tagged(reply: str, opening: re.Match[str]) -> str | None:
    tags = re.compile(r"^[ \t]*<file_content>|</file_content>(?=[ \t\r]*$)", re.M)
    depth, end = 1, -1
    for tag in tags.finditer(reply, opening.end()):
        if tag[0].startswith("</"):
            depth, end = depth - 1, tag.start()
        elif depth < 1:
            return None  # a second one begins: which is meant?
        else:
            depth += 1
    if end < 0:
        end = reply.rfind("</file_content>")
    if end < opening.end():
        return None
    return reply[opening.end() : end].removeprefix("\r\n").removeprefix("\n")


def last_code_block(reply: str, kinds: Sequence[str]) -> str | None:
    """The last fenced block of one of these languages; None when there is none, it is empty, or the reply breaks off."""
    blocks, cut = _blocks(reply)
    found = [b.body for b in blocks if b.language.lower() in kinds]
    return found[-1] or None if found and not cut else None


class _Block(NamedTuple):
    language: str
    body: str
    begin: int  # of the fence before it, in the reply
    end: int  # of the fence after it


def _blocks(reply: str) -> tuple[list[_Block], bool]:
    """(the outermost fenced blocks, whether the last is not closed). A longer fence, or an inner one with a language,
    nests."""
    out: list[_Block] = []
    fence, language, depth, begin, at = "", "", 0, 0, 0
    body: list[str] = []
    for line in reply.split("\n"):
        mark = _FENCE.match(line.rstrip("\r"))
        start, at = at, at + len(line) + 1
        if not fence:
            if mark:
                fence, body, depth, begin = mark[2], [], 0, start
                language = next(iter(mark[3].split()), "")
            continue
        if mark and mark[2][0] == fence[0] and len(mark[2]) >= len(fence):
            if mark[3].strip() and len(mark[2]) == len(fence):
                depth += 1
            elif not mark[3].strip() and depth:
                depth -= 1
            elif not mark[3].strip():
                out.append(_Block(language, "".join(f"{b}\n" for b in body), begin, at))
                fence = ""
                continue
        body.append(line)
    return out, bool(fence)
