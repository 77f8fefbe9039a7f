"""A reply in each wire format: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses; SSE events or one JSON.

Shapes after the APIs' own documentation: Anthropic "Streaming Messages", OpenAI "Chat Completions streaming" and
"Responses streaming events".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..llm.blocks import Usage
from .reply import Event, Reply, Tool

Kind = Literal["anthropic", "chat", "responses"]
Json = dict[str, Any]

_CHAT_STOP = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
_ANTHROPIC_STOP = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}
_ERROR_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass(slots=True)
class Piece:
    """Bytes of one SSE event (or of a whole JSON body) and how many visible characters they carry."""

    data: bytes
    chars: int = 0


def kind_of(path: str) -> Kind | None:
    """Which API an URL path means, under any prefix a compatible provider may use; None: not a model call."""
    path = path.partition("?")[0]
    if "/v1/v1/" in path:
        return None  # a base URL with /v1 joined to /v1/…: the real ones answer 404 too
    endings: dict[str, Kind] = {"/messages": "anthropic", "/chat/completions": "chat", "/responses": "responses"}
    return next((kind for ending, kind in endings.items() if path.endswith(ending)), None)


def render(kind: Kind, reply: Reply, request: Json, n: int) -> tuple[str, list[Piece]]:
    """(content type, body in pieces) of a reply to the n-th request."""
    if reply.events is not None:
        return "text/event-stream", [Piece(encode(event)) for event in reply.events]
    if reply.body is not None:
        return reply.content_type or "application/json", [Piece(reply.body)]
    if reply.status >= 400:
        return "application/json", [Piece(dump(error_object(kind, reply.status, reply.text)))]
    answer = _FORMATS[kind](reply, request, n)
    if request.get("stream"):
        return "text/event-stream", list(answer.stream())
    return "application/json", [Piece(dump(answer.whole()), len(reply.text))]


def error_object(kind: Kind, status: int, message: str) -> Json:
    name = _ERROR_STATUS.get(status, "api_error")
    error: Json = {"type": name, "message": message}
    return {"type": "error", "error": error} if kind == "anthropic" else {"error": {**error, "code": None}}


def encode(event: Event) -> bytes:
    """One SSE event as bytes."""
    if isinstance(event, bytes):
        return event
    name, payload = event if isinstance(event, tuple) else (None, event)
    head = f"event: {name}\n".encode() if name else b""
    data = payload.encode() if isinstance(payload, str) else dump(payload)
    return head + b"data: " + data + b"\n\n"


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _cut(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)] if size and text else [text] * bool(text)


class _Format:
    """A reply to one request, ready to be said in one API's words."""

    prefix = ""

    def __init__(self, reply: Reply, request: Json, n: int) -> None:
        self.reply, self.request, self.n = reply, request, n
        self.model = reply.model or request.get("model") or "scripted"
        self.tools = [(t.id if t.id is not None else f"{self.prefix}_{n}_{i}", t) for i, t in enumerate(reply.tools)]
        self.stop = reply.stop if reply.stop is not None else ("tool_use" if reply.tools else "end_turn")
        self.usage = _usage(reply, request)

    def stream(self) -> Iterator[Piece]:
        raise NotImplementedError

    def whole(self) -> Json:
        raise NotImplementedError


class _Anthropic(_Format):
    prefix = "toolu"

    def stream(self) -> Iterator[Piece]:
        start = {**self._message([], None), "usage": self._usage(0)}
        yield self._event("message_start", message=start)
        for index, (block, deltas) in enumerate(self._blocks()):
            yield self._event("content_block_start", index=index, content_block=block)
            for delta in deltas:
                visible = len(delta.get("text", ""))
                yield self._event("content_block_delta", visible, index=index, delta=delta)
            if not self.reply.error_event or block["type"] != "text":
                yield self._event("content_block_stop", index=index)
        if self.reply.error_event:
            yield self._error(self.reply.error_event)
            return
        stop = {"stop_reason": self._stop(), "stop_sequence": None}
        yield self._event("message_delta", delta=stop, **self._counted())
        yield self._event("message_stop")

    def whole(self) -> Json:
        content: list[Json] = []
        for block, _ in self._blocks():
            if block["type"] == "thinking":
                block = {**block, "thinking": self.reply.thinking, "signature": self.reply.signature}
            elif block["type"] == "text":
                block = {**block, "text": self.reply.text}
            content.append(block)
        for (_, tool), block in zip(self.tools, content[len(content) - len(self.tools) :], strict=True):
            block["input"] = tool.args if isinstance(tool.args, Mapping) else _parsed(tool.args)
        return {**self._message(content, self._stop()), **self._counted()}

    def _message(self, content: list[Json], stop: str | None) -> Json:
        head = {"id": f"msg_{self.n}", "type": "message", "role": "assistant", "model": self.model}
        return {**head, "content": content, "stop_reason": stop, "stop_sequence": None}

    def _blocks(self) -> Iterator[tuple[Json, list[Json]]]:
        r = self.reply
        if r.thinking or r.signature:
            deltas: list[Json] = [{"type": "thinking_delta", "thinking": piece} for piece in _cut(r.thinking, r.chunk)]
            if r.signature:
                deltas.append({"type": "signature_delta", "signature": r.signature})
            yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
        if r.text:
            yield ({"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in _cut(r.text, r.chunk)])
        for id_, tool in self.tools:
            head = {"type": "tool_use", "id": id_, "name": tool.name, "input": {}}
            yield head, [{"type": "input_json_delta", "partial_json": p} for p in _cut(tool.raw, r.chunk)]

    def _stop(self) -> str | None:
        return _ANTHROPIC_STOP.get(self.stop, self.stop) or None

    def _usage(self, output: int) -> Json:
        u = self.usage or Usage()
        return {
            "input_tokens": u.input - u.cache_read - u.cache_write,
            "output_tokens": output,
            "cache_read_input_tokens": u.cache_read,
            "cache_creation_input_tokens": u.cache_write,
        }

    def _counted(self) -> Json:
        return {"usage": self._usage(self.usage.output)} if self.usage else {}

    def _event(self, name: str, chars: int = 0, **fields: Any) -> Piece:
        return Piece(encode((name, {"type": name, **fields})), chars)

    def _error(self, error: str | Mapping[str, Any]) -> Piece:
        if isinstance(error, str):
            error = {"type": "error", "error": {"type": error, "message": f"scripted {error}"}}
        return Piece(encode(("error", error)))


class _Chat(_Format):
    prefix = "call"

    def stream(self) -> Iterator[Piece]:
        r = self.reply
        yield self._delta({"role": "assistant", "content": ""})
        for piece in _cut(r.thinking, r.chunk):
            yield self._delta({"reasoning_content": piece})
        for piece in _cut(r.text, r.chunk):
            yield self._delta({"content": piece}, chars=len(piece))
        for index, (id_, tool) in enumerate(self.tools):
            head = {"index": index, "id": id_, "type": "function"}
            yield self._delta({"tool_calls": [{**head, "function": {"name": tool.name, "arguments": ""}}]})
            for piece in _cut(tool.raw, r.chunk):
                yield self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        if r.error_event:
            yield Piece(encode((None, _openai_error(r.error_event))))
            return
        if self.stop:
            yield self._delta({}, finish=self._stop())
        if self.usage and (self.request.get("stream_options") or {}).get("include_usage"):
            yield Piece(encode((None, {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage()})))
        yield Piece(encode((None, "[DONE]")))

    def whole(self) -> Json:
        message: Json = {"role": "assistant", "content": self.reply.text or (None if self.tools else "")}
        if self.reply.thinking:
            message["reasoning_content"] = self.reply.thinking
        if self.tools:
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": t.name, "arguments": t.raw}}
                for id_, t in self.tools
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._stop()}
        usage = {"usage": self._usage()} if self.usage else {}
        return {**self._head("chat.completion"), "choices": [choice], **usage}

    def _head(self, kind: str) -> Json:
        return {"id": f"chatcmpl-{self.n}", "object": kind, "created": 0, "model": self.model}

    def _delta(self, delta: Json, chars: int = 0, finish: str | None = None) -> Piece:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return Piece(encode((None, {**self._head("chat.completion.chunk"), "choices": [choice]})), chars)

    def _stop(self) -> str | None:
        return _CHAT_STOP.get(self.stop, self.stop) or None

    def _usage(self) -> Json:
        u = self.usage or Usage()
        counts = {"prompt_tokens": u.input, "completion_tokens": u.output, "total_tokens": u.input + u.output}
        return {**counts, "prompt_tokens_details": {"cached_tokens": u.cache_read}}


class _Responses(_Format):
    prefix = "call"

    def stream(self) -> Iterator[Piece]:
        r, self._number = self.reply, 0
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))
        for index, item in enumerate(self._items()):
            where: Json = {"output_index": index}
            if item["type"] == "reasoning":
                yield from self._reasoning(item, where)
            elif item["type"] == "message":
                yield from self._message(item, where)
            else:
                yield from self._call(item, where)
        if r.error_event:
            yield self._error(r.error_event)
            return
        status = self._status()
        if self.stop:
            yield self._event(f"response.{status}", response=self._response(status, self._items()))

    def whole(self) -> Json:
        return self._response(self._status(), self._items())

    def _items(self) -> list[Json]:
        r, items = self.reply, list[Json]()
        if r.thinking or r.signature:
            summary = [{"type": "summary_text", "text": r.thinking}] if r.thinking else []
            item: Json = {"type": "reasoning", "id": f"rs_{self.n}", "summary": summary}
            items.append(item | ({"encrypted_content": r.signature} if r.signature else {}))
        if r.text:
            content = [{"type": "output_text", "text": r.text, "annotations": []}]
            head = {"type": "message", "id": f"msg_{self.n}", "role": "assistant", "status": "completed"}
            items.append({**head, "content": content})
        for i, (id_, tool) in enumerate(self.tools):
            head = {"type": "function_call", "id": f"fc_{self.n}_{i}", "call_id": id_, "status": "completed"}
            items.append({**head, "name": tool.name, "arguments": tool.raw})
        return items

    def _reasoning(self, item: Json, where: Json) -> Iterator[Piece]:
        part: Json = {**where, "item_id": item["id"], "summary_index": 0}
        empty = {k: v for k, v in item.items() if k != "encrypted_content"} | {"summary": []}
        yield self._event("response.output_item.added", **where, item=empty)
        if self.reply.thinking:
            text = {"type": "summary_text", "text": ""}
            yield self._event("response.reasoning_summary_part.added", **part, part=text)
            for piece in _cut(self.reply.thinking, self.reply.chunk):
                yield self._event("response.reasoning_summary_text.delta", **part, delta=piece)
            yield self._event("response.reasoning_summary_text.done", **part, text=self.reply.thinking)
            text = {"type": "summary_text", "text": self.reply.thinking}
            yield self._event("response.reasoning_summary_part.done", **part, part=text)
        yield self._event("response.output_item.done", **where, item=item)

    def _message(self, item: Json, where: Json) -> Iterator[Piece]:
        part: Json = {**where, "item_id": item["id"], "content_index": 0}
        yield self._event("response.output_item.added", **where, item={**item, "content": [], "status": "in_progress"})
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield self._event("response.content_part.added", **part, part=empty)
        for piece in _cut(self.reply.text, self.reply.chunk):
            yield self._event("response.output_text.delta", len(piece), **part, delta=piece)
        if not self.reply.error_event:
            yield self._event("response.output_text.done", **part, text=self.reply.text)
            yield self._event("response.content_part.done", **part, part=item["content"][0])
            yield self._event("response.output_item.done", **where, item=item)

    def _call(self, item: Json, where: Json) -> Iterator[Piece]:
        part: Json = {**where, "item_id": item["id"]}
        started = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", **where, item=started)
        for piece in _cut(item["arguments"], self.reply.chunk):
            yield self._event("response.function_call_arguments.delta", **part, delta=piece)
        yield self._event("response.function_call_arguments.done", **part, arguments=item["arguments"])
        yield self._event("response.output_item.done", **where, item=item)

    def _status(self) -> str:
        return "incomplete" if self._incomplete() else "completed"

    def _incomplete(self) -> Json | None:
        reasons = {"max_tokens": "max_output_tokens", "length": "max_output_tokens", "refusal": "content_filter"}
        return {"reason": reasons[self.stop]} if self.stop in reasons else None

    def _response(self, status: str, output: list[Json]) -> Json:
        head = {"id": f"resp_{self.n}", "object": "response", "created_at": 0, "status": status, "error": None}
        why = self._incomplete() if status == "incomplete" else None
        body: Json = {**head, "model": self.model, "incomplete_details": why, "output": output}
        if status == "in_progress" or not self.usage:
            return {**body, "usage": None}
        u = self.usage
        tokens: Json = {"input_tokens": u.input, "output_tokens": u.output, "total_tokens": u.input + u.output}
        tokens["input_tokens_details"] = {"cached_tokens": u.cache_read}
        return {**body, "usage": {**tokens, "output_tokens_details": {"reasoning_tokens": 0}}}

    def _event(self, name: str, chars: int = 0, **fields: Any) -> Piece:
        numbered = {"type": name, "sequence_number": self._number, **fields}
        self._number += 1
        return Piece(encode((name, numbered)), chars)

    def _error(self, error: str | Mapping[str, Any]) -> Piece:
        if not isinstance(error, str):
            return Piece(encode((error.get("type") or "error", error)))
        failed = self._response("failed", [])
        failed["error"] = {"code": error, "message": f"scripted {error}"}
        return self._event("response.failed", response=failed)


_FORMATS: dict[Kind, type[_Format]] = {"anthropic": _Anthropic, "chat": _Chat, "responses": _Responses}


def _openai_error(error: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(error, str):
        return error
    return {"error": {"type": error, "code": error, "message": f"scripted {error}"}}


def _parsed(raw: str) -> Any:
    """Arguments for a format that has no place for text: parsed if they are JSON, else the text itself."""
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _usage(reply: Reply, request: Json) -> Usage | None:
    if reply.usage is False:
        return None
    if reply.usage is not None:
        return reply.usage
    said = len(reply.text) + len(reply.thinking) + sum(len(_name_and_args(t)) for t in reply.tools)
    return Usage(input=len(dump(request)) // 4, output=said // 4 + 1)


def _name_and_args(tool: Tool) -> str:
    return tool.name + tool.raw
