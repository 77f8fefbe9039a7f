"""The history as every API will accept it: the part of a request's preparation that is common to all three. Pure.

Total: any history can be sent, also one that was cut, edited by hand, interrupted or made by another model. Stable: the
same history gives the same messages, and what is appended to it later doesn't change them, because the providers'
caches compare beginnings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .blocks import Block, Message, text
from .decode import clean, clean_all

INTERRUPTED = "interrupted: this call was not finished, or its result was lost"
# No message may end with these or hold nothing else (Anthropic "Extended thinking"; OpenAI: a reasoning item "without
# its required following item").
_THINKING = ("thinking", "redacted_thinking", "reasoning")
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")  # Anthropic runs these itself
# What is left of a block that another provider made: its own extras (citations, signatures of calls, …) are taken off.
_NEUTRAL = frozenset(
    ("type", "text", "id", "name", "input", "incomplete", "input_raw", "tool_use_id", "content", "is_error", "source")
)

Keep = Callable[[Block], Block | None]


def endpoint(base: str, path: str) -> str:
    """The address to post to: a bare host gets `/v1/PATH`, one with a version in it `/PATH`; a full one is kept."""
    place, mark, query = base.strip().partition("?")
    place = place.rstrip("/")
    full = re.search(r"/(?:chat/completions|responses|messages)$", place)
    rooted = re.search(r"/v\d+[a-z]*\d*(?:/|$)|/deployments/", place.partition("://")[2])
    prefix = "" if full or rooted else "/v1"
    return f"{place[: full.start()] if full else place}{prefix}/{path}{mark}{query}"


def prepare(
    messages: Iterable[Mapping[str, Any]], own: str, keep: Keep, legal_id: Callable[[str], str], tail: str = ""
) -> list[Message]:
    """Messages that hold every rule the APIs share.

    Roles alternate and the user begins; no text is empty; each call has a legal, unique id and exactly one result, and
    results come first in the message behind the calls. `own` is the origin whose opaque parts may be sent; `keep` turns
    thinking and blocks of unknown types into what is sent, or None. `tail` goes to the end of the last message.
    """
    turns = _merged(messages, own, keep)
    ids = _Ids(legal_id)
    out: list[Message] = []
    calls: list[tuple[str, str]] = []  # the last message's: id in the history, id that is sent
    for turn in turns:
        content = turn["content"]
        if turn["role"] == "user":
            content, calls = _answered(calls, content), []
        elif turn is not turns[-1]:
            content = _without_open_server_calls(content)
        if turn["role"] == "assistant" and content:
            if not out:
                out.append({"role": "user", "content": [text("(the beginning was left out)")]})
            used = [b["id"] for b in content if b["type"] == "tool_use"]
            content = [_sent_call(b, ids) if b["type"] == "tool_use" else b for b in content]
            calls = list(zip(used, (b["id"] for b in content if b["type"] == "tool_use"), strict=True))
        if out and out[-1]["role"] == turn["role"]:
            out[-1]["content"] += content  # nothing was left of the message between them
        elif content:
            out.append({"role": turn["role"], "content": content})
    if calls:
        out.append({"role": "user", "content": _answered(calls, [])})
    elif out and out[-1]["role"] == "assistant" and not _open_server_calls(out[-1]["content"]):
        out.append({"role": "user", "content": [text("Continue.")]})
    return with_tail(out, tail)


def with_tail(prepared: list[Message], tail: str) -> list[Message]:
    """`tail` behind everything else of the last message, if that is the user's. Never without any message."""
    extra = [text(clean(tail))] if tail.strip() else []
    if not prepared:
        return [{"role": "user", "content": extra or [text("(no message)")]}]
    last = prepared[-1]
    if last["role"] != "user":
        return prepared
    return [*prepared[:-1], {"role": "user", "content": [*last["content"], *extra]}]


def result_text(result: Block) -> str:
    """The text parts of a prepared tool_result, joined."""
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(b["text"] for b in content if b["type"] == "text")


def result_images(result: Block) -> list[Block]:
    content = result["content"]
    return [] if isinstance(content, str) else [b for b in content if b["type"] == "image"]


def image_url(image: Block) -> str:
    source = image["source"]
    return source.get("url") or f"data:{source.get('media_type') or 'image/png'};base64,{source.get('data')}"


def safe_id(raw: str) -> str:
    """An id (or name) of the characters and the length that every API takes."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", raw)[:64]


def _merged(messages: Iterable[Mapping[str, Any]], own: str, keep: Keep) -> list[Message]:
    """Clean blocks, nothing empty, neighbours of one role put together."""
    turns: list[Message] = []
    for message in messages:
        by_model = message.get("role") == "assistant"
        raw = message.get("content")
        parts = raw if isinstance(raw, list) else [raw]
        content = [b for b in (_block(p, by_model, own, keep) for p in parts) if b is not None]
        if by_model:
            _drop_last_thinking(content)
        if content and turns and (turns[-1]["role"] == "assistant") == by_model:
            turns[-1]["content"] += content
        elif content:
            turns.append({"role": "assistant" if by_model else "user", "content": content})
    return turns


def _drop_last_thinking(content: list[Block]) -> list[Block]:
    while content and content[-1]["type"] in _THINKING:
        content.pop()
    return content


def _block(raw: Any, by_model: bool, own: str, keep: Keep) -> Block | None:
    """One block as it may be sent, None when it may not."""
    try:
        block = clean_all({"type": "text", "text": raw} if isinstance(raw, str) else raw)
    except ValueError:
        return None  # nested too deep for any API
    if not isinstance(block, dict):
        return None
    kind = block["type"] = str(block.get("type"))
    foreign = block.get("origin") not in (None, own)
    if kind in _THINKING:
        edited = block != raw and (raw.get("signature") or kind != "thinking")
        return keep(block) if by_model and not foreign and not edited else None  # signed thinking is never edited
    if foreign:
        block = {k: v for k, v in block.items() if k in _NEUTRAL}
    if kind in ("text", "refusal"):
        return block if isinstance(block.get("text"), str) and block["text"].strip() else None
    if kind == "tool_use":
        return {**block, "id": str(block.get("id") or "")} if by_model else None
    if kind == "tool_result":
        result = _result(block)
        return text(f"[result of a tool call]\n{result_text(result)}") if by_model else result
    if kind == "image":
        source = block.get("source")
        usable = isinstance(source, dict) and (source.get("data") or source.get("url"))
        return block if usable and not by_model else None
    return None if foreign else keep(block)


def _result(block: Block) -> Block:
    content = block.get("content")
    if isinstance(content, list):
        parts = (_block(p, False, "", lambda b: text(json.dumps(b, ensure_ascii=False))) for p in content)
        content = [p for p in parts if p is not None and p["type"] in ("text", "image")]
    elif not isinstance(content, str):
        content = "" if content is None else json.dumps(content, ensure_ascii=False)
    if not content or not (isinstance(content, list) or content.strip()):
        content = "(no output)"
    found: Block = {"type": "tool_result", "tool_use_id": str(block.get("tool_use_id") or ""), "content": content}
    return {**found, "is_error": True} if block.get("is_error") else found


def _sent_call(call: Block, ids: _Ids) -> Block:
    """A call with a legal id and name and an object as input; what could not be parsed is shown as what it was."""
    given = call.get("input")
    if not isinstance(given, dict):
        given = {"_invalid_json": str(call.get("input_raw") or given or "")[:400]}
    return {
        **call,
        "id": ids.new(call["id"]),
        "name": safe_id(str(call.get("name") or "")) or "unknown",
        "input": given,
    }


def _answered(calls: Sequence[tuple[str, str]], content: Sequence[Block]) -> list[Block]:
    """A message of the user that answers each of `calls` once, in their order and before anything else.

    Ids pair within the turn, those that recur in it by order; a result without an id answers the next open call. A
    second result for a call is dropped, one for a call that is not there becomes text.
    """
    left = [b for b in content if b["type"] == "tool_result"]
    answers: dict[str, Block] = {}
    for wanted in ("its own", "any without an id"):
        for old, new in calls:
            match = next((r for r in left if r["tool_use_id"] == (old if wanted == "its own" else "")), None)
            if match is not None and new not in answers:
                left.remove(match)
                answers[new] = {**match, "tool_use_id": new}
    lost = {"type": "tool_result", "content": INTERRUPTED, "is_error": True}
    out = [answers.get(new) or {**lost, "tool_use_id": new} for _, new in calls]
    for result in left:
        if result["tool_use_id"] not in [old for old, _ in calls]:
            out += [text(f"[result of an earlier tool call]\n{result_text(result)}"), *result_images(result)]
    return out + [b for b in content if b["type"] != "tool_result"]


def _open_server_calls(content: Sequence[Block]) -> set[str]:
    """Ids of calls that the provider runs itself and whose results are not in the message: the turn was paused."""
    calls = {str(b.get("id")) for b in content if b["type"] in _SERVER_CALLS}
    return calls - {str(b.get("tool_use_id")) for b in content}


def _without_open_server_calls(content: list[Block]) -> list[Block]:
    """A pause that was never resumed: the API refuses such a call without its result."""
    gone = _open_server_calls(content)
    if not gone or any(b["type"] == "tool_use" for b in content):
        return content
    return _drop_last_thinking([b for b in content if str(b.get("id")) not in gone])


class _Ids:
    """Legal ids, no one twice in a request. Each depends only on the calls before it."""

    def __init__(self, legal: Callable[[str], str]) -> None:
        self._legal = legal
        self._used: set[str] = set()
        self._times: dict[str, int] = {}

    def new(self, raw: str) -> str:
        base = raw or f"call_{len(self._used) + 1}"
        found = self._legal(base)
        while found in self._used:
            self._times[base] = times = self._times.get(base, 1) + 1
            found = self._legal(f"{base[:30]}_{times}")
        self._used.add(found)
        return found
