"""Whether a note says what was seen, word by word, however it is put. Pure; loaded when something is stored.

What has to be there: names (a capital within a sentence, Latin letters within Chinese), numbers, paths; and the other
words. What does not count: inflection, "I" or "the user", the words around a fact (_FRAME), the way a number is written.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass

EXACT = 6  # the weight of a name or number; of a word 2, of a CJK character 1

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_FRAME = frozenset(
    re.findall(
        r"\w+",
        """a about address always am an and any are as at be been before but by call called can could default do does doesn don each
    every fact file folder for from get given goes had has have he her here his how i if in installed into is it its itself kind
    like likes live lives living located location machine may me must my name named need needs never no not note of on only or our
    out path please prefer preference preferred prefers remember run running runs said say says see set she should so some than
    that the their them then there these they this to too url use used user users uses using version want wants was we were what
    when where which who whose will with without would www you your http https""",
    )
)
_FRAME_CJK = re.compile(
    "绝不|不得|不|别|切?勿|禁止|没有|内容|东西|用户|记住|记得|记下|喜欢|偏好|习惯|名称|名字|姓名|名叫|叫做|地址|位置|位于|时间|居住地?|住在|希望|需要|应该|应当|总是|始终|一律|使用|采用|版本"
    "|默认|安装|本机|机器|运行|以后|今后|我们|请|我|你|您|他|她|它|的|了|是|在|为|有|叫|用|要|会|应|都|也|把|被|将|已|号|日|点|月|年"
)
_CJK_WORD = re.compile(f"[{_CJK}]")
_TOKEN = re.compile(rf"[{_CJK}]+|\d+(?:\.\d+)*|[^\W\d_{_CJK}]+")
_CHUNK = re.compile(rf"[^\s{_CJK}]+")
_PATH = re.compile(r"[A-Za-z0-9~][/_.@\\]+[A-Za-z0-9]")  # what makes a chunk one
_BEGIN = re.compile(r"[.!?。！？]\s")  # between two words: the second begins a sentence, and its capital makes no name
_KEY = re.compile(r"^\W*[^:：\n]{1,40}[:：](?=\s|[^\x00-\x7f])")
_SUFFIX = re.compile(r"(?<=\w{3})(?:ing|ed|er|ies|es|s|e|y|ly)$")
_MONTHS = re.findall(r"\w+", "january february march april may june july august september october november december")
_COUNTS = re.findall(
    r"\w+",
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen""",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_TENS_OF = re.compile(rf"\b({'|'.join(_TENS)})(?:[- ]({'|'.join(_COUNTS[1:10])}))?\b", re.I)
_HYPHENED = re.compile(rf"[^\W\d_{_CJK}]+(?:-[^\W\d_{_CJK}]+)+")
_NUMBERS = {w: str(n) for n, m in enumerate(_MONTHS, 1) for w in (m, m[:3])} | {
    w: str(n) for n, w in enumerate(_COUNTS)
}
_HAN, _SCALE = "零一二三四五六七八九", {"十": 10, "百": 100, "k": 1000, "千": 1000, "万": 10_000}
_NOT = re.compile(
    r"\b(?:not|never|no|without|avoid|except|stop)\b|n['’]t\b|不(?!错|过|同)|别(?!的|人|名)|勿|没|禁止|避免", re.I
)
_CLAUSE = re.compile(r"[,.!?;](?:\s|$)|[，。！？；（）()\n]|\b(?:but|and)\b", re.I)


@dataclass(frozen=True)
class Word:
    """A word of a note; it is there when one of its forms is."""

    text: str
    forms: tuple[str, ...]
    weight: int

    def among(self, said: Collection[str]) -> bool:
        return any(form in said for form in self.forms)


def missing(wanted: Sequence[Word], said: Collection[str], procedure: bool = False) -> list[str]:
    """What is not there, when that is too much: any name or number, or more than a quarter of the weight; of a procedure
    more than half of it."""
    lacks = [word for word in wanted if not word.among(said)]
    part = sum(word.weight for word in lacks) / (sum(word.weight for word in wanted) or 1)
    enough = part <= 0.5 if procedure else part <= 0.25 and all(word.weight < EXACT for word in lacks)
    return [] if enough else list(dict.fromkeys(word.text for word in lacks))


def inverted(line: str, text: str) -> bool:
    """Whether what in `text` comes nearest to a clause of the line says "not" where that does not, or the other way around."""
    said = [(words(clause), bool(_NOT.search(clause))) for clause in _CLAUSE.split(text)]
    for clause in _CLAUSE.split(line):
        here, wants = bool(_NOT.search(clause)), wanted(clause)
        most, same = max((sum(w.weight for w in wants if w.among(found)), here == there) for found, there in said)
        if wants and not same and 2 * most >= sum(w.weight for w in wants):
            return True
    return False


def words(text: str) -> set[str]:
    """What a text says: words, their stems, numbers and what they begin with (3.11.4: 3 and 3.11 too), CJK characters, pairs."""
    text, found = _unified(text).lower(), set[str]()
    for word in _TOKEN.findall(text):
        if word[0].isdigit():
            parts = _number(word).split(".")
            found |= {".".join(parts), *(".".join(parts[: n + 1]) for n in range(min(len(parts), 8)))}
        elif _CJK_WORD.match(word):
            for piece in _FRAME_CJK.split(word):
                found |= {*piece, *map("".join, zip(piece, piece[1:], strict=False))}
        else:
            found |= {word, _stem(word), _stem(word)[:5], _NUMBERS.get(word, word)}
    found |= {word.replace("-", "") for word in _HYPHENED.findall(text)}
    hours = [int(word) for word in found if len(word) < 3 and word.isdecimal() and 0 < int(word) < 24]
    evening = re.search(r"\d ?p\.?m\b|下午|晚", text)
    return found | {str((hour + 12) % 24) for hour in hours if hour > 12 or evening}


def wanted(line: str) -> list[Word]:
    """The words of a line that must be there. What stands before a colon only names the place of what comes behind."""
    line = re.sub(r"^\s*\d+[.)]\s", "", _unified(line))
    paths = {at for chunk in _CHUNK.finditer(line) if _PATH.search(chunk[0]) for at in range(*chunk.span())}
    key, chinese = _KEY.match(line), bool(_CJK_WORD.search(line))
    glued = {at: m[0].replace("-", "").lower() for m in _HYPHENED.finditer(line) for at in range(*m.span())}
    found, end = list[Word](), 0
    for token in _TOKEN.finditer(line):
        raw, at, word = token[0], token.start(), token[0].lower()
        begins, end = not end or _BEGIN.search(line, end, at), token.end()
        if _CJK_WORD.match(raw):
            new = [Word(p, tuple(_pairs(p, i)), 1) for p in _FRAME_CJK.split(raw) for i in range(len(p))]
        elif raw[0].isdigit():
            new = [Word(raw, (_number(raw),), EXACT)] if raw.strip("0.") else []
        elif word in _FRAME:
            continue
        else:
            name = (chinese or raw.istitle() and not begins) and not raw[1:].isupper()
            exact = name or at in paths
            forms = (word, _stem(word)) if exact else (_stem(word)[:5],)
            new = (
                [Word(raw, (*forms, _NUMBERS.get(word, word), glued.get(at, word)), EXACT if exact else 2)]
                if len(raw) > 2 or name
                else []
            )
        found += [one for one in new if not key or at >= key.end() or one.weight == EXACT]
    return found or [Word(word, (word.lower(),), 2) for word in _TOKEN.findall(line)]


def _pairs(piece: str, i: int) -> list[str]:
    return [pair for pair in (piece[max(0, i - 1) : i + 1], piece[i : i + 2]) if len(pair) == 2] or [piece]


def _number(word: str) -> str:
    return ".".join(part.lstrip("0") or "0" for part in word.split("."))


def _stem(word: str) -> str:
    return _SUFFIX.sub("", word)


def _unified(text: str) -> str:
    """Numbers in one form: 1,000 and 1k and 一千 are 1000; 3.5.2024 falls apart as 2024-05-03 does."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = re.sub("点半", "点30分", text)
        text = re.sub(rf"[{_HAN}两十百]{{1,7}}(?=[月日号点时分岁楼万千])", _han, text)
    text = re.sub(r"\bhalf past (\w{1,9})", r"\1 30", text, flags=re.I)
    text = _TENS_OF.sub(
        lambda m: str(10 * _TENS.index(m[1].lower()) + 20 + _COUNTS.index((m[2] or "zero").lower())), text
    )
    text = re.sub(r"\b(\d{1,3}(?:\.\d{3})+),(\d\d)\b", lambda m: f"{m[1].replace('.', '')}.{m[2]}", text)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b", r"\1 \2 \3", text)
    return re.sub(
        r"(?<![\d.])(\d{1,15}(?:\.\d{1,9})?) ?(k\b|千|万)", lambda m: str(round(float(m[1]) * _SCALE[m[2]])), text
    )


def _han(found: re.Match[str]) -> str:
    whole, digits = 0, ""
    for char in found[0].replace("两", "二"):
        if char in _SCALE:
            whole, digits = whole + _SCALE[char] * int(digits or 1), ""
        else:
            digits += str(_HAN.find(char))
    return str(whole + int(digits or 0))
