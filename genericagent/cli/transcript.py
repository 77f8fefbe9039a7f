"""A journal's records as a reader wants them: what was said, thought, called and spent, whole although cut since. Pure.

Every text goes through `seen` as it comes in: what a transcript holds shows neither keys nor control codes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .. import tags
from ..llm import textproto
from ..llm.blocks import Block, Usage, text_of, thinking_of
from ..llm.usage import Meter
from ..safety.term import one_line
from ..store.restored import message_from, title_of
from ..tools.reply_content import extract_content
from . import render
from .changes import diff
from .render import hint

SHORT = 72  # characters of an argument that stays among the others
_FAILED = re.compile(r'\{"status": "(?:error|timeout|stopped)"')
_TOOLS = re.compile(r'# \S+\n\{"name": ')  # the list of tools that the text protocol tells
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BLOCK = re.compile(r"\s*(```|~~~|\||<)")  # begins a line that makes no sense alone
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Seen = Callable[[str], str]


class Piece(NamedTuple):
    """Something shown as it is; `language` "diff": lines that begin with "+", "-" or a blank."""

    label: str
    language: str
    text: str


class Image(NamedTuple):
    """`data` is base64, "" when it is no picture that a page may hold."""

    media: str
    data: str


@dataclass(eq=False)
class Call:
    name: str
    hint: str
    pieces: list[Piece]
    id: str
    result: str | None = None  # None: nobody knows
    images: list[Image] = field(default_factory=list)
    failed: bool = False


@dataclass(eq=False)
class Turn:
    """An answer of the model with its calls; `used`: what was spent since the one before."""

    n: int
    summary: str
    thinking: str
    used: Meter
    text: str = ""
    calls: list[Call] = field(default_factory=list)


@dataclass(eq=False)
class Said:
    """The user's words, what the user ran with its output, the program's own words to the model, or how a task ended that
    did not go well."""

    kind: Literal["user", "ran", "note", "end"]
    text: str
    images: list[Image] = field(default_factory=list)


@dataclass(eq=False)
class Transcript:
    id: str = ""
    title: str = ""
    model: str = ""
    folder: str = ""
    created: float = 0.0  # seconds since the epoch, 0: unknown
    items: list[Turn | Said] = field(default_factory=list)
    total: Meter = field(default_factory=Meter)  # with what sub-agents spent

    @property
    def turns(self) -> list[Turn]:
        return [item for item in self.items if isinstance(item, Turn)]


def transcript(records: Iterable[dict[str, Any]], seen: Seen = str) -> Transcript:
    """What the records tell. Never fails on odd ones: what has no sense is left out."""
    reader = _Reader(seen)
    for record in records:
        reader.take(record)
    return reader.finish()


def retold(told: Transcript, most: int, texts: Mapping[str, str]) -> list[render.Piece]:
    """The end of a conversation as the chat shows it to who goes on with it: at most so many things in short, and the last
    answer whole."""
    out, last = list[render.Piece](), told.items[-1] if told.items else None
    for item in told.items:
        if isinstance(item, Said):
            out += [render.Piece("user", one_line(item.text, 200))] if item.kind == "user" and item.text else []
            continue
        out += [render.Piece("summary", one_line(item.summary, 200))] if item.summary else []
        if item.calls and not item.summary:
            out += [render.Piece(_mark(call), call.name, call.hint) for call in item.calls]
        elif not item.calls and not item.summary and item is not last:
            lines = [line for line in item.text.split("\n") if line.strip() and not _BLOCK.match(line)]
            out += [render.Piece("md", one_line(lines[0], 200) + " …" * (len(lines) > 1))] if lines else []
    tail, asked = out[-most:], [piece for piece in out if piece.kind == "user"][-1:]
    begins = [n for n, piece in enumerate(tail) if piece.kind == "user"]
    shown = tail[begins[0] :] if begins else [*asked, *tail]  # a long task: what it is about comes first
    reader = render.Reader(texts)
    whole = last.text if isinstance(last, Turn) and not last.calls else ""
    return [*shown, *reader.feed(whole), *reader.finish()]


def _mark(call: Call) -> str:
    return "tool" if call.result is None else "fail" if call.failed else "ok"


class _Reader:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.out = Transcript()
        self._turn: Turn | None = None
        self._begun: list[int] = []  # how many items there were at the begin of each task
        self._said, self._hidden = "", set[str]()  # the newest answer as it came; the tags that are taken out of it
        self._parsed: Iterator[Block] = iter(())  # its calls, where they stand in its text
        self._ran: list[str] = []  # what the user's next message brings along that the user ran
        self._spent, self._task = Meter(), Meter()  # since the newest answer; since the task began

    def take(self, record: dict[str, Any]) -> None:
        kind = record["type"]
        if kind == "message":
            self._message(record.get("message"))
        elif kind == "cut" and isinstance(turns := record.get("turns"), int):
            self._rewound(max(0, turns))
        elif kind == "title":
            self.out.title = self._line(record.get("title"))
        elif kind == "cut" and not self.out.items and isinstance(record.get("history"), list):
            for message in record["history"]:  # it was given as the beginning, or the beginning is lost
                self._message(message, given=True)
        elif kind == "call" and self._turn:
            self._hide("tool_use")
            self._call(next(self._parsed, {"name": str(record.get("name"))}), str(record.get("tool_use_id")))
        elif kind == "result":
            self._result(str(record.get("tool_use_id")), record.get("content"))
        elif kind == "usage":
            for meter in (self._task,) if record.get("aside") else (self._spent, self._task):
                _add(meter, record, record.get("cost"))
        elif kind == "task":
            self._task_record(record)
        elif kind == "outside" and isinstance(parts := record.get("parts"), list):
            texts = [str(part[1]) for part in parts if isinstance(part, list) and len(part) == 2]
            self._ran = texts if texts and parts[0][:1] == [""] else []
        elif kind == "line":
            self.out.title = self.out.title or self._line(title_of([record.get("text")]))
        elif kind == "session" and not self.out.id:
            self.out.id, self.out.model = self._line(record.get("id")), self._line(record.get("llm"))
            self.out.folder, self.out.created = self._line(record.get("cwd")), _number(record.get("created"), 1e11) or 0

    def finish(self) -> Transcript:
        _join(self.out.total, self._task)
        if self._turn:
            _join(self._turn.used, self._spent)
        return self.out

    def _rewound(self, tasks: int) -> None:
        """The user went back to where so many tasks were left; what was spent stays in the total."""
        if tasks < len(self._begun):
            del self.out.items[self._begun[tasks] :], self._begun[tasks:]
            self._turn = next(reversed(self.out.turns), None)
            self._spent = Meter()

    def _line(self, value: Any) -> str:
        return one_line(self._seen(str(value or "")), 200)

    def _task_record(self, record: dict[str, Any]) -> None:
        used, status = record.get("usage"), str(record.get("status"))
        if record.get("event") == "start":
            self._begun.append(len(self.out.items))
        if record.get("event") == "end" and isinstance(used, dict):  # it counts the sub-agents too
            self._task = Meter()
            _add(self._task, used, record.get("cost"))
        _join(self.out.total, self._task)
        self._task = Meter()
        if record.get("event") == "end" and status != "done":
            self.out.items.append(Said("end", self._line(status)))

    def _message(self, value: Any, given: bool = False) -> None:
        message = message_from(value)
        if message and message["role"] == "assistant":
            self._answer(message["content"])
        elif message:
            self._others(message, given)

    def _others(self, message: dict[str, Any], given: bool) -> None:
        """The user's words and the program's, and results."""
        users, said, images = given or message.get("request"), list[str](), list[Image]()
        for block in message["content"]:
            kind, text = block["type"], block.get("text") or ""
            if kind == "tool_result":
                self._result(str(block.get("tool_use_id")), block["content"])
            elif text.startswith("<tool_result>\n") and text.endswith("</tool_result>"):
                self._result(None, text[14:-15])
            elif kind == "image" and users:  # else a result has it
                images.append(_image(block))
            elif text and not _TOOLS.match(text):
                said.append(self._own(text) if users else tags.drop(text, "working_memory"))
        text = self._seen("\n\n".join(said)).strip()
        if text or images:
            self.out.items.append(Said("user" if users and not message.get("lines") else "note", text, images))

    def _own(self, text: str) -> str:
        """What of a message is the user's own; what the user ran before comes out on its own."""
        ran, self._ran = self._ran, []
        if not ran or (at := text.find(f"\n\n{ran[0]}")) < 0:
            return text
        self.out.items.append(Said("ran", self._seen("\n\n".join(ran)).strip()))
        return text[:at]

    def _answer(self, content: list[Block]) -> None:
        self._said, self._hidden = text_of(content), set()
        inside = (self._said[r.inner : r.close] for r in tags.regions(self._said, "thinking"))
        thinking = self._seen("\n\n".join(filter(None, [thinking_of(content), *inside]))).strip()
        summary = self._line(tags.first(self._said, "summary"))
        self._turn = Turn(self._turn.n + 1 if self._turn else 1, summary, thinking, self._spent)
        self._spent = Meter()
        self.out.items.append(self._turn)
        self._hide("thinking", "summary")
        for block in content:
            if block["type"] == "tool_use":
                self._call(block, block["id"])
            elif block["type"] not in ("text", "thinking", "redacted_thinking", "refusal", "image"):
                self._call({"name": block["type"], "input": {k: v for k, v in block.items() if k != "type"}}, "")
                self._turn.calls[-1].result = ""  # the provider's own
        native = any(block["type"] == "tool_use" for block in content)
        self._parsed = iter(() if native else textproto.parse_calls(self._said, str))

    def _hide(self, *more: str) -> None:
        self._hidden.update(more)
        if self._turn:
            left = tags.drop(self._said, *self._hidden)
            self._turn.text = self._seen(
                left.partition("<tool_use>")[0] if "tool_use" in self._hidden else left
            ).strip()

    def _call(self, block: Block, id: str) -> None:
        name, args = block["name"], block.get("input")
        if name == "file_write" and isinstance(args, dict) and args.get("content") is None:
            args = {**args, "content": extract_content(self._said)}
            self._hide("file_content")
        if isinstance(args, dict):
            args = {self._seen(str(k)): self._seen(v) if isinstance(v, str) else v for k, v in args.items()}
            pieces, about = _pieces(name, args, self._seen), hint({k: _json(v) for k, v in args.items()})
        else:
            pieces, about = [Piece("", "", self._seen(str(block.get("input_raw") or "")))], ""
        if self._turn:
            self._turn.calls.append(Call(self._line(name), self._line(about), pieces, id))

    def _result(self, id: str | None, content: Any) -> None:
        """Of the call `id`, None: of the first that has none."""
        calls = self._turn.calls if self._turn else []
        call = next((c for c in calls if c.result is None and id in (None, c.id)), None)
        if call is None:
            return  # told before
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        parts = [part for part in parts if isinstance(part, dict)]
        call.images = [_image(part) for part in parts if part.get("type") == "image"]
        texts = (part.get("text") for part in parts if part.get("type") == "text")
        text = "\n".join(t if isinstance(t, str) else _json(t) for t in texts if t is not None)
        call.result, call.failed = self._seen(text), bool(_FAILED.match(text))


def _pieces(name: str, args: dict[str, Any], seen: Seen) -> list[Piece]:
    """The arguments: what changes a file as a diff, long texts by themselves, the others together."""
    args, out = dict(args), list[Piece]()
    old, new = args.get("old_content"), args.get("new_content")
    if name == "file_patch" and isinstance(old, str) and isinstance(new, str):
        out.append(Piece("", "diff", diff(args.pop("old_content"), args.pop("new_content"))))
    elif name == "file_write" and isinstance(args.get("content"), str):
        out.append(Piece("", "diff", diff("", args.pop("content").removesuffix("\n"))))
    for key, value in list(args.items()):
        if isinstance(value, str) and ("\n" in value or len(value) > SHORT):
            language = str(args.get("type") or "javascript") if key == "script" else ""
            out.append(Piece(key, language, args.pop(key)))
    if args and args.keys() != {"path"}:  # that is short, and the hint
        out.insert(0, Piece("", "json", seen(_json(args))))
    return out


def _json(value: Any) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "[nested too deep]"


def _image(block: Block) -> Image:
    source = block.get("source")
    media, data = (str(source.get(k) or "") for k in ("media_type", "data")) if isinstance(source, dict) else ("", "")
    known = media in _IMAGES and _BASE64.fullmatch(data)
    return Image(media if media in _IMAGES else "?", data if known else "")


def _number(value: Any, most: float) -> float | None:
    fits = isinstance(value, int | float) and 0 <= value < most and math.isfinite(value)
    return value if fits else None


def _add(meter: Meter, counts: dict[str, Any], cost: Any) -> None:
    tokens = {name: int(_number(counts.get(name), 1e12) or 0) for name in Usage().as_dict()}
    meter.add(Usage(**tokens), _number(cost, 1e9))


def _join(meter: Meter, more: Meter) -> None:
    if more.requests:
        meter.add(more.usage, more.cost, more.requests)
