"""What the real APIs refuse in a request, checked here so that a test fails where a user's task would.

`violations(kind, body)` returns one line a fault, empty when the request is fine. The rules are those that the APIs
(or the strictest of the compatible servers) answer with a 400: pairing of calls and results, order of roles, empty
text, illegal ids, unknown fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .render import Kind

Json = Mapping[str, Any]

_ID = re.compile(r"[A-Za-z0-9_-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CACHE_BREAKPOINTS = 4  # Anthropic, "Prompt caching"
_ANTHROPIC_FIELDS = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "temperature", "top_p"),
    *("top_k", "stop_sequences", "thinking", "metadata", "service_tier", "container", "context_management"),
    *("mcp_servers", "output_config", "cache_control"),
}
_ANTHROPIC_BLOCKS = {
    "text": {"text", "citations"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    "tool_use": {"id", "name", "input", "caller"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "image": {"source"},
}
_CHAT_FIELDS = {
    *("role", "content", "name", "tool_calls", "tool_call_id", "refusal"),
    *("reasoning_content", "reasoning", "reasoning_details"),
}


def violations(kind: Kind, body: Json) -> list[str]:
    """Every rule of the API that this request breaks, one line each."""
    common = _common(body, "input" if kind == "responses" else "messages")
    if common:
        return common
    check = {"anthropic": _anthropic, "chat": _chat, "responses": _responses}[kind]
    return list(check(body))


def _common(body: Json, field: str) -> list[str]:
    faults = []
    if not isinstance(body.get("model"), str) or not body["model"]:
        faults.append("model: a name is required")
    if not body.get(field) or not isinstance(body[field], (list, str) if field == "input" else list):
        faults.append(f"{field}: at least one message is required")
    elif isinstance(body[field], list) and not all(isinstance(m, Mapping) for m in body[field]):
        faults.append(f"{field}: each entry must be an object")
    if not isinstance(body.get("stream", False), bool):
        faults.append("stream: must be a boolean")
    return faults


# Anthropic Messages


def _anthropic(body: Json) -> Iterator[str]:
    for field in sorted(set(body) - _ANTHROPIC_FIELDS):
        yield f"{field}: extra inputs are not permitted"
    yield from _anthropic_settings(body)
    yield from _tools((t, t.get("input_schema")) for t in body.get("tools") or [])
    if isinstance(body.get("system"), list):
        yield from _blocks("system", body["system"], {"text"})
    marks = json.dumps([body.get("tools"), body.get("system"), body["messages"]]).count('"cache_control": {')
    if marks > _CACHE_BREAKPOINTS:
        yield f"cache_control: at most {_CACHE_BREAKPOINTS} blocks, found {marks}"
    yield from _anthropic_messages(body["messages"])


def _anthropic_settings(body: Json) -> Iterator[str]:
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: a positive integer is required"
        return
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.budget_tokens: must be at least 1024"
        elif budget >= limit:
            yield "max_tokens: must be greater than thinking.budget_tokens"
        if body.get("temperature", 1) != 1:
            yield "temperature: may only be 1 when thinking is enabled"
    if not 0 <= body.get("temperature", 1) <= 1:
        yield "temperature: must be between 0 and 1"


def _anthropic_messages(messages: list[Json]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    expected = "user"
    for i, message in enumerate(messages):
        where, role, content = f"messages.{i}", message.get("role"), message.get("content")
        if role != expected:
            yield f"{where}: roles must alternate, expected {expected!r}, found {role!r}"
        expected = "assistant" if role == "user" else "user"
        for field in sorted(set(message) - {"role", "content"}):
            yield f"{where}.{field}: extra inputs are not permitted"
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content:
            yield f"{where}: content must not be empty"
            content = []
        allowed = {"text", "image", "tool_result"} if role == "user" else set(_ANTHROPIC_BLOCKS) - {"tool_result"}
        yield from _blocks(where, content, allowed)
        content = [b for b in content if isinstance(b, Mapping)]
        yield from _answers(where, content, open_calls)
        open_calls = [str(b.get("id")) for b in content if b.get("type") == "tool_use"]
        for id_ in open_calls:
            if id_ in seen:
                yield f"{where}: tool_use ids must be unique, {id_!r} comes again"
            seen.add(id_)
    if expected == "user":
        yield "messages: the last one must be the user's (prefilling is not supported)"


def _answers(where: str, content: list[Json], open_calls: list[str]) -> Iterator[str]:
    """Every call of the message before is answered exactly once, first thing in this message, and nothing else is."""
    results = [str(b.get("tool_use_id")) for b in content if b.get("type") == "tool_result"]
    for id_ in open_calls:
        if results.count(id_) != 1:
            yield f"{where}: tool_use {id_!r} of the previous message has {results.count(id_)} tool_result blocks, needs 1"
    for id_ in results:
        if id_ not in open_calls:
            yield f"{where}: unexpected tool_result {id_!r}, the previous message has no such tool_use"
    if any(b.get("type") != "tool_result" for b in content[: len(results)]):
        yield f"{where}: tool_result blocks must come first in the content"


def _blocks(where: str, blocks: list[Any], allowed: set[str]) -> Iterator[str]:
    for i, block in enumerate(blocks):
        at = f"{where}.content.{i}"
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind not in allowed:
            if kind in _ANTHROPIC_BLOCKS or kind is None or where == "system":
                yield f"{at}: {kind} is not allowed here"
            continue  # a provider's own block (server tools): nothing known about it
        for field in sorted(set(block) - _ANTHROPIC_BLOCKS[kind] - {"type", "cache_control"}):
            yield f"{at}.{kind}.{field}: extra inputs are not permitted"
        yield from _block(at, kind, block)


def _block(at: str, kind: str, block: Json) -> Iterator[str]:
    if kind == "text" and not str(block.get("text") or "").strip():
        yield f"{at}: text content blocks must contain non-whitespace text"
    elif kind == "thinking" and not (block.get("signature") and isinstance(block.get("thinking"), str)):
        yield f"{at}: thinking needs its text and its signature"
    elif kind == "redacted_thinking" and not block.get("data"):
        yield f"{at}: redacted_thinking needs its data"
    elif kind == "tool_use":
        if not _ID.fullmatch(str(block.get("id") or "")):
            yield f"{at}: tool_use.id {block.get('id')!r} must match {_ID.pattern}"
        if not _NAME.fullmatch(str(block.get("name") or "")):
            yield f"{at}: tool_use.name {block.get('name')!r} must match {_NAME.pattern}"
        if not isinstance(block.get("input"), Mapping):
            yield f"{at}: tool_use.input must be an object"
    elif kind == "tool_result":
        content = block.get("content", "")
        if isinstance(content, list):
            yield from _blocks(at, content, {"text", "image"})
        elif not isinstance(content, str):
            yield f"{at}: tool_result.content must be text or blocks"
    elif kind == "image":
        source = block.get("source") or {}
        if source.get("type") == "base64" and (source.get("media_type") not in _IMAGES or not source.get("data")):
            yield f"{at}: image needs data and one of {', '.join(_IMAGES)}"


# OpenAI Chat Completions


def _chat(body: Json) -> Iterator[str]:
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens and max_completion_tokens exclude each other"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options: only allowed when stream is true"
    yield from _tools(
        (t.get("function") or {}, (t.get("function") or {}).get("parameters")) for t in body.get("tools") or []
    )
    open_calls: list[str] = []
    seen: set[str] = set()
    before = ""
    for i, message in enumerate(body["messages"]):
        where, role = f"messages.{i}", message.get("role")
        for field in sorted(set(message) - _CHAT_FIELDS):
            yield f"{where}.{field}: unknown field"
        if role == "tool":
            id_ = message.get("tool_call_id")
            if id_ not in open_calls:
                yield f"{where}: tool message for {id_!r} must follow an assistant message with that call, once"
            else:
                open_calls.remove(id_)
        elif open_calls:
            yield f"{where}: tool calls {open_calls} must be answered by tool messages first"
            open_calls = []
        yield from _chat_role(where, role, before)
        yield from _chat_content(where, role, message)
        if role == "assistant":
            calls = message.get("tool_calls") or []
            yield from _chat_calls(where, calls, seen)
            open_calls = [str(c.get("id")) for c in calls]
        before = str(role)
    if open_calls:
        yield f"messages: tool calls {open_calls} have no tool message"
    if before not in ("user", "tool"):
        yield "messages: the last one must be the user's or a tool's"


def _chat_role(where: str, role: Any, before: str) -> Iterator[str]:
    if role in ("system", "developer"):
        if before:
            yield f"{where}: the {role} message must be the first"
    elif role not in ("user", "assistant", "tool"):
        yield f"{where}: unknown role {role!r}"
    elif role == before and role != "tool":
        yield f"{where}: roles must alternate, two {role} messages in a row"
    elif role == "assistant" and before not in ("user", "tool"):
        yield f"{where}: the first message must be the user's"


def _chat_content(where: str, role: Any, message: Json) -> Iterator[str]:
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        return
    if isinstance(content, list):
        if not content:
            yield f"{where}: content must not be empty"
        for part in content:
            if part.get("type") == "text" and not str(part.get("text") or "").strip():
                yield f"{where}: text parts must not be empty"
    elif not isinstance(content, str):
        yield f"{where}: content must be text or parts, not {type(content).__name__}"
    elif role != "tool" and not content.strip():
        yield f"{where}: content must not be empty"


def _chat_calls(where: str, calls: list[Json], seen: set[str]) -> Iterator[str]:
    if isinstance(calls, list) and all(isinstance(c.get("function"), Mapping) for c in calls):
        for call in calls:
            function = call["function"]
            if call.get("type") != "function":
                yield f"{where}: tool_calls.type must be 'function'"
            yield from _openai_call(where, call.get("id"), function, seen)
    else:
        yield f"{where}: tool_calls must be a list of function calls"


def _openai_call(where: str, id_: Any, function: Json, seen: set[str]) -> Iterator[str]:
    if not isinstance(id_, str) or not id_.strip():
        yield f"{where}: the call's id must not be empty"
    elif id_ in seen:
        yield f"{where}: call ids must be unique, {id_!r} comes again"
    else:
        seen.add(id_)
    if not _NAME.fullmatch(str(function.get("name") or "")):
        yield f"{where}: function name {function.get('name')!r} must match {_NAME.pattern}"
    try:
        parsed = json.loads(function.get("arguments") or "")
    except (TypeError, ValueError):
        parsed = None
    if not isinstance(parsed, dict):
        yield f"{where}: arguments of {function.get('name')} must be a JSON object as text"


# OpenAI Responses


def _responses(body: Json) -> Iterator[str]:
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 16):
        yield "max_output_tokens: must be at least 16"
    for tool in body.get("tools") or []:
        if tool.get("type") == "function" and "function" in tool:
            yield "tools: the Responses API takes name and parameters beside type"
    yield from _tools((t, t.get("parameters")) for t in body.get("tools") or [] if t.get("type") == "function")
    if isinstance(body["input"], str):
        return
    open_calls: list[str] = []
    seen: set[str] = set()
    for i, item in enumerate(body["input"]):
        where, kind = f"input.{i}", item.get("type") or ("message" if "role" in item else None)
        if kind == "function_call":
            yield from _openai_call(where, item.get("call_id"), item, seen)
            open_calls.append(str(item.get("call_id")))
        elif kind == "function_call_output":
            if item.get("call_id") in open_calls:
                open_calls.remove(item["call_id"])
            else:
                yield f"{where}: no function call found for output {item.get('call_id')!r}"
            if not isinstance(item.get("output"), (str, list)):
                yield f"{where}: output must be text or parts"
        elif kind == "message":
            yield from _response_message(where, item)
            if open_calls and item.get("role") == "user":
                yield f"{where}: no tool output found for function calls {open_calls}"
                open_calls = []
        elif kind == "reasoning":
            if not isinstance(item.get("summary"), list):
                yield f"{where}: reasoning needs a summary list"
            if body.get("store") is False and not item.get("encrypted_content"):
                yield f"{where}: without store a reasoning item needs encrypted_content"
        elif kind is None:
            yield f"{where}: neither a message nor a known item"
    if open_calls:
        yield f"input: no tool output found for function calls {open_calls}"


def _response_message(where: str, item: Json) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        yield f"{where}: unknown role {role!r}"
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    if not isinstance(content, list) or not content:
        yield f"{where}: content must not be empty"
        return
    allowed = ("output_text", "refusal") if role == "assistant" else ("input_text", "input_image", "input_file")
    for part in content:
        if part.get("type") not in allowed:
            yield f"{where}: a part of type {part.get('type')!r} is not allowed for {role}"
        elif part["type"] in ("input_text", "output_text") and not str(part.get("text") or "").strip():
            yield f"{where}: text parts must not be empty"


def _tools(tools: Iterable[tuple[Json, Any]]) -> Iterator[str]:
    names: set[str] = set()
    for tool, schema in tools:
        name = str(tool.get("name") or "")
        if not _NAME.fullmatch(name):
            yield f"tools: name {name!r} must match {_NAME.pattern}"
        if name in names:
            yield f"tools: {name!r} comes twice"
        names.add(name)
        if schema is not None and (not isinstance(schema, Mapping) or schema.get("type") != "object"):
            yield f"tools: the schema of {name!r} must be of type object"
