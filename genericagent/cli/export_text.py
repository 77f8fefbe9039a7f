"""A transcript as Markdown. Texts of others stand in fences and escapes that they cannot end. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from html import escape

from ..llm.usage import Meter
from .transcript import Call, Said, Transcript, Turn

_FENCE = re.compile(r"[ \t]*(`{3,}(?!.*`)|~{3,})[ \t]*(.*)$")
_WORD = re.compile(r"[\w+#.-]{1,20}")
_LIVE = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)")  # begins a tag, or an image that would be fetched
_SPECIAL = re.compile(r"[\\`*{}\[\]<>#|~&!]|(?<![^\W_])_|_(?![^\W_])")
_RULE = re.compile(r"^( {0,3})(?=(?:=+|-+)[ \t]*$)", re.M)

Texts = Mapping[str, str]


def as_markdown(told: Transcript, texts: Texts) -> str:
    """Headings of this program are of the levels 1 and 2, those of the model are put below."""
    out = [f"# {_inline(told.title or told.id)}", "  \n".join(map(_inline, about(told, texts)))]
    for item in told.items:
        out += _turn(item, texts) if isinstance(item, Turn) else _said(item, texts)
    return "\n\n".join(filter(None, out)) + "\n"


def _said(item: Said, texts: Texts) -> Iterator[str]:
    if item.kind == "user":
        yield f"## {texts['you']}"
        yield _prose(item.text)
        yield from (_image(image.data, texts) for image in item.images)
    elif item.kind == "ran":
        yield f"## {texts['ran']}"
        yield fenced(item.text, "text")
    elif item.kind == "note":
        yield _folded(texts["note"], item.text)
    else:
        yield f"*{_inline(texts['end'].format(status=item.text))}*"


def _turn(turn: Turn, texts: Texts) -> Iterator[str]:
    yield f"## {texts['turn'].format(n=turn.n)}" + (f": {_inline(turn.summary)}" if turn.summary else "")
    yield _folded(texts["thinking"], turn.thinking) if turn.thinking else ""
    yield _prose(turn.text)
    for call in turn.calls:
        yield from _call(call, texts)
    yield f"*{_inline(used(turn.used, texts))}*" if turn.used.requests else ""


def _call(call: Call, texts: Texts) -> Iterator[str]:
    sign = "✗" if call.failed else "?" if call.result is None else "✓"
    yield f"{sign} **{_inline(call.name)}** {_inline(call.hint)}".rstrip()
    for piece in call.pieces:
        yield _inline(piece.label)
        yield fenced(piece.text, piece.language)
    if call.result is None:
        yield f"*{texts['unknown']}*"
    elif call.result:
        yield _folded(texts["result"].format(n=lines_in(call.result)), call.result)
    yield from (_image(image.data, texts) for image in call.images)


def _image(data: str, texts: Texts) -> str:
    return _inline(texts["image"].format(size=counted(len(data) * 3 // 4096)))


def _folded(head: str, text: str) -> str:
    return f"<details>\n<summary>{escape(head)}</summary>\n\n{fenced(text, 'text')}\n\n</details>"


def fenced(text: str, language: str = "") -> str:
    """A code block, in a fence that is longer than any in the text."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    word = _WORD.match(language)
    return f"{ticks}{word[0] if word else ''}\n{text}\n{ticks}"


def _prose(text: str) -> str:
    """Markdown as it was written, but for what could end or imitate our own (tags, headings above the third level, a
    fence that is not closed) or be fetched (images). Fences begin at the margin, where no list or quotation can end before them."""
    pieces = (fenced(body, language) if code else _inert(body) for language, body, code in code_blocks(text))
    return "\n\n".join(piece for piece in pieces if piece)


def _inert(text: str) -> str:
    text = re.sub(r"^( {0,3})(#{1,4})(?=[ \t])", r"\1##\2", text.strip("\n"), flags=re.M)
    paragraphs = re.split(r"(\n[ \t]*\n)", text)
    return "".join(map(_inert_paragraph, paragraphs))


def _inert_paragraph(text: str) -> str:
    """Without tags and images, but in code. What is code is only certain where each line pairs single backticks."""
    head, _, rest = text.partition("\n")
    text = f"{head}\n" + _RULE.sub(r"\1\\", rest) if rest else text
    plain = not re.search(r"``|\\`|\|", text) and all(line.count("`") % 2 == 0 for line in text.split("\n"))
    parts = re.split(r"(`[^`\n]*`)", text) if plain else [text]
    return "".join(part if n % 2 else _LIVE.sub(_dead, part) for n, part in enumerate(parts))


def _dead(match: re.Match[str]) -> str:
    return "&lt;" if match[0] == "<" else "!\\"


def _inline(text: str) -> str:
    """One line in which nothing has a meaning."""
    return _SPECIAL.sub(lambda sign: f"\\{sign[0]}", text)


# what both forms say


def code_blocks(text: str) -> Iterator[tuple[str, str, bool]]:
    """(language, text, whether it is a fenced block), in order; a fence that is not closed goes to the end."""
    fence, language, body = "", "", list[str]()
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence and mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not mark[2].strip():
            yield language, "\n".join(body), True
            fence, body = "", []
        elif mark and not fence:
            yield "", "\n".join(body), False
            fence, language, body = mark[1], mark[2].strip(), []
        else:
            body.append(line)
    yield language if fence else "", "\n".join(body), bool(fence)


def about(told: Transcript, texts: Texts) -> list[str]:
    """Two lines on the whole: where it comes from, what it took."""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(told.created)) if told.created else "?"
    first = texts["about"].format(model=told.model, date=date, folder=told.folder)
    return [first, f"{turns_in(told, texts)} · {used(told.total, texts)}"]


def turns_in(told: Transcript, texts: Texts) -> str:
    return texts["one_turn" if len(told.turns) == 1 else "turns"].format(n=counted(len(told.turns)))


def used(meter: Meter, texts: Texts) -> str:
    tokens = meter.usage
    return texts["used"].format(
        input=counted(tokens.input), cached=counted(tokens.cache_read), output=counted(tokens.output), money=dollars(meter.cost, texts)
    )  # fmt: skip


def dollars(cost: float | None, texts: Texts) -> str:
    return texts["unpriced"] if cost is None else f"${cost:.4f}"


def counted(number: int) -> str:
    return f"{number:,}"


def lines_in(text: str) -> int:
    return text.count("\n") + 1
