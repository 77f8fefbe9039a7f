"""Which encoding a file is in, and its text in it, so that every byte that is not meant to change survives."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ..errors import ToolError

SAMPLE = 256 << 10  # bytes looked at to tell the encoding


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
        return text.encode(self.encoding.name, error_handler(self.encoding.name))

    def encode_new(self, text: str, replaced: str = "") -> bytes:
        """Bytes of what is added to it, in the place of `replaced`.

        Raises ToolError when the encoding lacks a character, or is not certain and the character was not there before.
        """
        name = self.encoding.name
        try:
            data = self.encode(text)
            lost = next((c for c in set(text) if self.encode(c).decode(name) != c), None) if name != "utf-8" else None
        except UnicodeEncodeError as error:
            lost = text[error.start]
        if lost is not None:  # some codecs put a similar character in its place: a yen sign becomes a backslash
            raise ToolError(f"{self.path} is in {name}, which has no {lost!r} (U+{ord(lost):04X}); nothing was changed")
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


def error_handler(encoding: str) -> str:
    """The error handler with which bytes that are no valid text survive decoding and encoding."""
    return "surrogatepass" if encoding.startswith("utf-16") else "surrogateescape"


MARKS = (
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
    for mark, name in MARKS:
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
    everyday = script.level1[0] <= lead[0] <= script.level1[1] and (script.codecs[0] != "gbk" or lead[1] > 0xA0)
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
