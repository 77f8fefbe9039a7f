"""What the three wire formats share when they read an answer: the frame of a decoder, tool arguments, usage. No I/O.

A decoder takes events and gives pieces to show; what came of them all is an Answer. How it ended is never written into
the text: that is the Answer's `outcome`, `stop_reason` and `error`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from ..errors import LLMError
from .blocks import Answer, Block, Outcome, Usage
from .faults import find_error, in_band, not_an_answer
from .sse import Event, Reader

Piece = tuple[str, str]  # "text" or "thinking", and what to show

# The providers' words for why an answer ended; a word that is not here is canonical itself or unknown.
CANONICAL = {
    **dict.fromkeys(("stop", "eos", "eos_token", "completed", "complete", "end"), "end_turn"),
    **dict.fromkeys(("tool_calls", "tool_call", "function_call"), "tool_use"),
    **dict.fromkeys(("length", "max_output_tokens", "incomplete", "model_length"), "max_tokens"),
    **dict.fromkeys(("content_filter", "sensitive", "safety", "recitation"), "refusal"),
    **dict.fromkeys(("model_context_window_exceeded", "context_length_exceeded"), "context_window"),
    **dict.fromkeys(("insufficient_system_resource", "failed", "network_error", "abort", "cancelled"), "error"),
}
_EARLY = ("max_tokens", "context_window", "refusal", "error")  # what was generated last may be unfinished
_MAX_DEPTH = 100  # levels of a JSON value; no API and no tool takes deeper ones
_JSON = json.JSONDecoder(strict=False)  # a raw line break inside a string doesn't make an answer unreadable
# What reading an object of an unheard-of shape may raise
_STRANGE = (ValueError, TypeError, AttributeError, KeyError, RecursionError)
_SURROGATE = re.compile("[\ud800-\udfff]")


def mint_id() -> str:
    """An id for a tool call whose provider gave none."""
    return "call_" + os.urandom(12).hex()


def origin(api: str, model: str) -> str:
    """Marks blocks with opaque parts: these go back only to the same API and the kin of the same model."""
    name = model.rsplit("/", 1)[-1].lower()
    kin = re.match("[a-z]+", name)
    return f"{api}:{'claude' if 'claude' in name else kin[0] if kin else ''}"


def string(value: Any) -> str:
    """A piece of text, "" for null. Raises TypeError when it is something else."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise TypeError("text that is no string")


def clean(text: str) -> str:
    """Text that can be encoded: halves of a surrogate pair joined, lone ones replaced by U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_all(value: Any, depth: int = 0) -> Any:
    """`clean` for every string in a JSON value. Raises ValueError when it is nested too deep."""
    if isinstance(value, str):
        return clean(value)
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        return {clean(str(k)): clean_all(v, depth + 1) for k, v in value.items()}
    return [clean_all(v, depth + 1) for v in value] if isinstance(value, list) else value


# usage


def _count(*values: Any) -> int:
    """The largest number among `values`: one count under the names of several providers."""
    return max((int(v) for v in values if isinstance(v, (int, float)) and v > 0), default=0)


def merge_usage(before: Usage | None, raw: Any) -> Usage | None:
    """Usage as OpenAI's two APIs and their imitators report it; running totals replace one another.

    A report without the main counts is none; zeros don't take back what was reported before.
    """
    if not isinstance(raw, dict) or raw.keys().isdisjoint(
        ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
    ):
        return before
    details = raw.get("prompt_tokens_details") or raw.get("input_tokens_details") or {}
    hits = raw.get("prompt_cache_hit_tokens")  # DeepSeek; the top-level cached_tokens is Moonshot's
    counts = {
        "input": _count(raw.get("prompt_tokens"), raw.get("input_tokens")),
        "output": _count(raw.get("completion_tokens"), raw.get("output_tokens")),
        "cache_read": _count(
            details.get("cached_tokens"), raw.get("cached_tokens"), hits, raw.get("cache_read_input_tokens")
        ),
        "cache_write": _count(details.get("cache_write_tokens"), raw.get("cache_creation_input_tokens")),
    }
    usage = before or Usage()
    for field, count in counts.items():
        setattr(usage, field, count or getattr(usage, field))
    return usage


# tool calls


def parse_arguments(raw: Any) -> list[dict[str, Any]] | None:
    """The argument objects in what a provider sent as arguments; None when they are cut or no object.

    Nothing at all and `null` mean no arguments. Several objects glued together are several calls; an empty or repeated
    one among them is an artefact.
    """
    text = "{}" if raw is None else raw.strip() if isinstance(raw, str) else json.dumps(raw)
    if text in ("", "null"):
        return [{}]
    found: list[dict[str, Any]] = []
    at = 0
    try:
        while at < len(text):
            value, at = _JSON.raw_decode(text, at)
            if isinstance(value, str) and value.lstrip()[:1] == "{" and at == len(text):
                return parse_arguments(value)  # encoded twice
            if not isinstance(value, dict):
                return None
            if value not in found:
                found.append(clean_all(value, 10))  # there are ten levels left for the blocks around it
            while text[at : at + 1].isspace():
                at += 1
    except (ValueError, RecursionError):
        return None
    return [v for v in found if v or len(found) == 1]


def tool_use(call_id: str, name: str, raw: Any, doubt: str = "", extra: Block | None = None) -> list[Block]:
    """The tool_use block of a call, or the blocks of several that came glued together.

    `doubt`: the answer ended early, so that missing arguments may be ones that did not come any more. Such a call is
    "incomplete"; in a body that was not streamed, where the provider itself wrote the call down as finished, it has
    `input` {} and "unsure". Neither may run.
    """
    empty = not (raw.strip() if isinstance(raw, str) else raw)
    found = None if empty and doubt == "incomplete" else parse_arguments(raw)
    block: Block = {"type": "tool_use", "id": call_id, "name": name, **(extra or {})}
    if found is None:
        text = raw if isinstance(raw, str) else json.dumps(raw or "", default=str)
        return [{**block, "input": None, "incomplete": True, "input_raw": text}]
    if empty and doubt:
        return [{**block, "input": {}, "unsure": True}]
    return [{**block, "id": "" if i else call_id, "input": each} for i, each in enumerate(found)]


def _parse_together(events: Sequence[Event]) -> list[dict[str, Any]] | None:
    """The objects of many events, parsed in one go, which takes half the time; None when they have to be looked at one
    by one: something else than whole objects is among them."""
    if not all(data[:1] == "{" and data[-1:] == "}" for _, data in events):
        return None
    try:
        values: list[dict[str, Any]] = _JSON.decode(f"[{','.join([data for _, data in events])}]")
    except (ValueError, RecursionError):
        return None
    return values if len(values) == len(events) and all(type(v) is dict for v in values) else None


# the frame


class BaseDecoder:
    """Events of one answer → pieces to show, and in the end the Answer.

    `model` is the one that was asked; `new_id` mints ids for calls that came without a unique one. A wire format adds
    `take`, `take_whole` and `blocks`; what these raise over an event of an unheard-of shape makes the answer broken.
    """

    api = ""

    def __init__(self, model: str = "", new_id: Callable[[], str] = mint_id) -> None:
        self.ended = False  # nothing that matters can come any more
        self.complete = False  # the provider said that the answer is whole; usage may still come
        self.error: LLMError | None = None
        self.usage: Usage | None = None
        self.model = ""
        self.raw_stop: str | None = None
        self._asked, self._new_id = model, new_id
        self._streamed, self._early, self._broken = True, False, False
        self._kind = "text"
        self._run: list[str] = []  # what is to be shown next, all of one kind
        self._pieces: list[Piece] = []

    def take(self, event: dict[str, Any], name: str) -> None:
        """One event of a stream."""
        raise NotImplementedError

    def take_whole(self, body: dict[str, Any]) -> bool:
        """The body of an answer that is not streamed; False when it is none."""
        raise NotImplementedError

    def blocks(self) -> list[Block]:
        """What came, as content blocks; their strings may hold lone surrogates, their ids be missing or repeated."""
        raise NotImplementedError

    def feed(self, events: Sequence[Event]) -> list[Piece]:
        """What the events of one read give to show; adjacent pieces of a kind are joined."""
        at_once = _parse_together(events)
        for i, (name, data) in enumerate(events):
            if self.ended:
                break
            try:
                if at_once:
                    self.take(at_once[i], name)
                elif data.lstrip()[:1] == "{":
                    self.take(_JSON.decode(data), name)
                else:
                    self._other(name, data.strip())
            except _STRANGE:
                self._broken = self._broken or not self.complete
        return self._drain()

    def feed_json(self, body: bytes | dict[str, Any]) -> list[Piece]:
        """What a whole body gives to show. One that is no answer becomes the Answer's error."""
        self._streamed = False
        value: Any = body
        if isinstance(body, bytes):
            text = body.decode("utf-8-sig", "replace").strip()
            try:
                value = _JSON.decode(text)
            except (ValueError, RecursionError):
                if text[:1] not in ("{", "["):
                    self.error = not_an_answer(text)
                return []  # else JSON that was cut: the answer is not complete
        if isinstance(value, list) and len(value) == 1:
            value = value[0]  # Google wraps errors in a list
        error = find_error(value) if isinstance(value, dict) else None
        if error is not None:
            self.fail(error)
            return []
        try:
            if isinstance(value, dict) and self.take_whole(value):
                return self._drain()
        except _STRANGE:
            self._broken = True
        self.error = not_an_answer(json.dumps(value, ensure_ascii=False))
        return []

    def finish(self) -> Answer:
        """The answer as far as it came. To be called once, after the last `feed`."""
        stop = (self.raw_stop or "").lower() or None
        stop = CANONICAL.get(stop, stop) if stop else None
        self._early = not self.complete or stop in _EARLY
        try:
            blocks = self._with_ids(clean_all(self.blocks()))
        except _STRANGE:
            blocks, self._broken = [], True
        why = f"the provider gave up ({self.raw_stop})" if stop == "error" else ""
        why = "a part of the answer was not readable" if self._broken else why
        why = why if self.complete else "the answer broke off before its end"
        error = self.error or (LLMError(why, retryable=True) if why else None)
        outcome: Outcome = "ok"
        if error is not None:
            outcome = "error" if self.error or self.complete else "truncated"
            stop = "error" if outcome == "error" else None
        elif stop in (None, "end_turn"):
            kinds = {b["type"] for b in blocks}
            stop = "tool_use" if "tool_use" in kinds else "refusal" if "refusal" in kinds else "end_turn"
        return Answer(blocks, outcome, stop, self.raw_stop, self.usage, error, self.model)

    # for the wire formats

    def say(self, kept: list[str], kind: str, text: Any) -> None:
        """Text that came: keep it and show it."""
        if not isinstance(text, str):
            text = string(text)
        kept.append(text)
        if kind != self._kind:
            self._flush()
            self._kind = kind
        self._run.append(text)

    def fail(self, error: Any) -> None:
        """The provider reports an error: the end, whatever came before."""
        self.error = in_band(error)
        self.ended = True

    def doubt(self, last: bool) -> str:
        """What to think of a call without arguments (see `tool_use`); `last`: nothing was generated after it."""
        in_doubt = self._early and (last or not self.complete)
        return ("incomplete" if self._streamed else "unsure") if in_doubt else ""

    @property
    def origin(self) -> str:
        return origin(self.api, self._asked or self.model)

    def _other(self, name: str, data: str) -> None:
        """Data that is not an object: an end mark, an error in words, or a heartbeat."""
        if data == "[DONE]":
            self.complete = self.ended = True
        elif name == "error" and data:
            self.fail(data)

    def _flush(self) -> None:
        text, self._run = "".join(self._run), []
        if not text.isascii() and _SURROGATE.search(text):
            if "\ud800" <= text[-1] <= "\udbff":
                self._run = [text[-1]]  # its other half may come with the next event
                text = text[:-1]
            text = clean(text)
        if text:
            self._pieces.append((self._kind, text))

    def _drain(self) -> list[Piece]:
        if self._run:
            self._flush()
        pieces, self._pieces = self._pieces, []
        return pieces

    def _with_ids(self, blocks: list[Block]) -> list[Block]:
        seen: set[str] = set()
        for block in blocks:
            if block["type"] == "tool_use":
                if not block["id"] or block["id"] in seen:
                    block["id"] = self._new_id()
                seen.add(block["id"])
        return blocks


class Body:
    """Reads an answer in whatever form it comes: events, a JSON document, a web page. No I/O.

    `feed` gives what can be shown after each read, `close` what is left at the end, `finish` the Answer. The form is
    taken from the first bytes, since servers label bodies wrongly and stream (or don't) whatever was asked for.
    """

    def __init__(self, decoder: BaseDecoder) -> None:
        self.decoder = decoder
        self.events = 0  # so far; comments don't count
        self.shown = 0  # characters, so far
        self.progress = 0  # grows with every event, or with every byte of a whole body
        self._reader = Reader()
        self._start = b""
        self._whole: list[bytes] | None = None
        self._known = False

    def feed(self, data: bytes) -> list[Piece]:
        if not self._known:
            self._start += data
            start = self._start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if not start:
                return []
            self._known, data = True, self._start
            self._whole = [] if start in (b"{", b"[", b"<") else None
        if self._whole is not None:
            self._whole.append(data)
            self.progress += len(data)
            return []
        return self._events(self._reader.feed(data))

    def close(self) -> list[Piece]:
        if self._whole is not None:
            pieces = self.decoder.feed_json(b"".join(self._whole))
            self.shown += sum(len(text) for _, text in pieces)
            return pieces
        pieces = self._events(self._reader.close())
        if not self._known:
            self.decoder.error = LLMError("the provider sent an empty answer", retryable=True)
        elif not self.events and not re.match(rb"\s*(?::|data|event|id|retry)", self._start):
            self.decoder.error = not_an_answer(self._start)
        return pieces

    def finish(self) -> Answer:
        return self.decoder.finish()

    def _events(self, events: list[Event]) -> list[Piece]:
        self.events += len(events)
        self.progress += len(events)
        pieces = self.decoder.feed(events)
        self.shown += sum([len(text) for _, text in pieces])
        return pieces


def decode_body(wire: ModuleType, chunks: Iterable[bytes], model: str = "") -> Answer:
    """The answer in a body that comes in pieces, streamed or not, whatever its content type says."""
    body = Body(wire.Decoder(model))
    for chunk in chunks:
        body.feed(chunk)
    body.close()
    return body.finish()
