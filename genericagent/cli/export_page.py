"""A transcript as one page: no script, no request, nothing in it that its texts could have put there. Pure but for its CSS."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from html import escape

from .. import paths
from ..prompts import language
from .export_text import about, code_blocks, counted, dollars, lines_in, used
from .transcript import Call, Image, Piece, Said, Transcript, Turn

IMAGE_CHARS = 1 << 20  # of base64; a larger image is only named
OPEN_LINES = 12  # of a result; a longer one is folded
# a heading, code, bold
_MARKS = re.compile(r"^#{1,6} +(.+)$|`([^`\n]+)`|\*\*([^*\n]+)\*\*", re.M)
_RULE = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")  # below a table's head

Texts = Mapping[str, str]


def as_html(told: Transcript, texts: Texts) -> str:
    """The page. Its policy lets nothing in but its own style sheet, by its hash, and the images that are in it."""
    style = paths.shipped("assets", "export", "page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return "".join([
        f'<!DOCTYPE html>\n<html lang="{language()}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(told.title or told.id)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<h1>{escape(told.title or told.id)}</h1>\n<p class="dim">{"<br>".join(map(escape, about(told, texts)))}</p>\n',
        *_chart(told.turns, texts),
        *(piece for item in told.items for piece in _item(item, texts)),
        "</body>\n</html>\n",
    ])  # fmt: skip


def _item(item: Turn | Said, texts: Texts) -> Iterator[str]:
    if isinstance(item, Turn):
        head = escape(item.summary)
        yield f'<article id="t{item.n}">\n<h2><a href="#t{item.n}">{escape(texts["turn"].format(n=item.n))}</a> {head}</h2>\n'
        if item.thinking:
            yield f"<details><summary>{escape(texts['thinking'])}</summary><pre>{escape(item.thinking)}</pre></details>\n"
        yield _prose(item.text)
        for call in item.calls:
            yield from _call(call, texts)
        yield f'<p class="dim">{escape(used(item.used, texts))}</p>\n' if item.used.requests else ""
        yield "</article>\n"
    elif item.kind == "user":
        yield f'<section class="user">\n<h2>{escape(texts["you"])}</h2>\n{_prose(item.text)}{_images(item.images, texts)}</section>\n'
    elif item.kind == "ran":
        yield f'<section class="ran">\n<h2>{escape(texts["ran"])}</h2>\n<pre>{escape(item.text)}</pre></section>\n'
    elif item.kind == "note":
        yield f'<details class="note"><summary>{escape(texts["note"])}</summary><pre>{escape(item.text)}</pre></details>\n'
    else:
        yield f'<p class="bad">{escape(texts["end"].format(status=item.text))}</p>\n'


def _prose(text: str) -> str:
    """Markdown as far as it helps reading: code, tables, headings, bold; all else stays as it was typed."""
    out = []
    for _, body, code in code_blocks(text):
        if code:
            out.append(f"<pre>{escape(body)}</pre>\n")
        else:
            out += _tables(body.split("\n"))
    return "".join(out)


def _tables(lines: list[str]) -> Iterator[str]:
    """Text that is no code, its tables as such."""
    plain, at = list[str](), 0
    while at < len(lines):
        width, end = len(_cells(lines[at])), at + 2
        if not (
            lines[at + 1 : end]
            and "|" in lines[at]
            and _RULE.match(lines[at + 1])
            and len(_cells(lines[at + 1])) == width
        ):
            plain.append(lines[at])
            at += 1
            continue
        while end < len(lines) and "|" in lines[end]:
            end += 1
        yield _text(plain)
        head, *rows = ((_cells(line) + [""] * width)[:width] for line in [lines[at], *lines[at + 2 : end]])
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
        top = "".join(f"<th>{cell}</th>" for cell in head)
        yield f'<table dir="auto">\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n'
        plain, at = [], end
    yield _text(plain)


def _cells(line: str) -> list[str]:
    """Of a table's row, as HTML."""
    line = re.sub(r"(?<!\\)\|$", "", line.strip().removeprefix("|"))
    cells = (cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line))
    return [_MARKS.sub(_marked, escape(cell)) for cell in cells]


def _text(lines: list[str]) -> str:
    text = "\n".join(lines).strip()
    return f'<div class="prose" dir="auto">{_MARKS.sub(_marked, escape(text))}</div>\n' if text else ""


def _marked(match: re.Match[str]) -> str:
    tag = ("strong", "code", "b")[(match.lastindex or 1) - 1]
    return f"<{tag}>{match[match.lastindex or 1]}</{tag}>"


def _call(call: Call, texts: Texts) -> Iterator[str]:
    sign, mood = ("✗", "bad") if call.failed else ("?", "bad") if call.result is None else ("✓", "ok")
    yield f'<details class="call" open><summary><span class="{mood}">{sign}</span> <b>{escape(call.name)}</b>'
    yield f" <code>{escape(call.hint)}</code></summary>\n" if call.hint else "</summary>\n"
    yield from map(_piece, call.pieces)
    if call.result is None:
        yield f'<p class="bad">{escape(texts["unknown"])}</p>\n'
    elif call.result:
        many = lines_in(call.result)
        opened = " open" if many <= OPEN_LINES else ""
        yield f"<details{opened}><summary>{escape(texts['result'].format(n=many))}</summary><pre>{escape(call.result)}</pre></details>\n"
    yield f"{_images(call.images, texts)}</details>\n"


def _piece(piece: Piece) -> str:
    label = f'<div class="dim">{escape(piece.label)}</div>\n' if piece.label else ""
    if piece.language != "diff":
        return f"{label}<pre>{escape(piece.text)}</pre>\n"
    kinds = {"+": ' class="add"', "-": ' class="del"'}
    lines = (f"<i{kinds.get(line[:1], '')}>{escape(line)}</i>" for line in piece.text.split("\n"))
    return f'{label}<pre class="diff">{"".join(lines)}</pre>\n'


def _images(images: list[Image], texts: Texts) -> str:
    return "".join(
        f'<p><img alt="{told}" src="data:{image.media};base64,{image.data}"></p>\n'
        if 0 < len(image.data) <= IMAGE_CHARS
        else f'<p class="dim">{told}</p>\n'
        for image in images
        for told in [escape(texts["image"].format(size=counted(len(image.data) * 3 // 4096)))]
    )


def _chart(turns: list[Turn], texts: Texts) -> Iterator[str]:
    """Bars of tokens and of cost, a column a turn; nothing where nothing was counted."""
    most = max((turn.used.usage.input + turn.used.usage.output for turn in turns), default=0)
    if not most:
        return
    keys = "".join(f'<b class="key {key}"></b>{escape(texts[key])}' for key in ("cached", "input", "output"))
    yield f"<figure>\n{_bars(turns, 'tokens', texts)}<figcaption>{escape(texts['tokens'].format(most=counted(most)))}{keys}</figcaption>\n"
    dearest = max(turn.used.cost or 0.0 for turn in turns)
    if dearest:
        told = escape(texts["cost"].format(most=dollars(dearest, texts)))
        yield f"{_bars(turns, 'cost', texts)}<figcaption>{told}</figcaption>\n"
    yield "</figure>\n"


def _bars(turns: list[Turn], kind: str, texts: Texts) -> str:
    rows = [_parts(turn, kind) for turn in turns]
    most = max(sum(size for _, size in row) for row in rows)
    out = [
        f'<svg class="{kind}" role="img" aria-label="{escape(texts[kind].split(",")[0])}" viewBox="0 0 {max(12, len(rows))} 100" preserveAspectRatio="none">\n'
    ]
    for column, (turn, row) in enumerate(zip(turns, rows, strict=True)):
        told = f"{texts['turn'].format(n=turn.n)}: {used(turn.used, texts)}"
        out.append(f"<g><title>{escape(told)}</title>")
        top = 100.0
        for name, size in row:
            top -= (height := 100 * size / most)
            if size:
                out.append(
                    f'<rect class="{name}" x="{column + 0.1:.1f}" y="{top:.2f}" width=".8" height="{height:.2f}"/>'
                )
        out.append("</g>\n")
    return "".join([*out, "</svg>\n"])


def _parts(turn: Turn, kind: str) -> list[tuple[str, float]]:
    tokens = turn.used.usage
    if kind == "cost":
        return [("cost", turn.used.cost or 0.0)]
    cached = min(tokens.cache_read, tokens.input)
    return [("cached", cached), ("input", tokens.input - cached), ("output", tokens.output)]
