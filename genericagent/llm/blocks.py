"""The one message type of the program: a role and a list of content blocks.

Blocks are plain JSON objects, so that a journal line, a history and a wire body are made of the same stuff:

    text               {"type": "text", "text": str}
    thinking           {"type": "thinking", "thinking": str, "signature": str, ...}   signature "" = unsigned
    redacted_thinking  {"type": "redacted_thinking", "data": str}
    tool_use           {"type": "tool_use", "id": str, "name": str, "input": dict, ...}
                       cut or unparsable arguments: "input": None, "incomplete": True, "input_raw": str;
                       "unsure": True where the answer was cut and no arguments came: neither may run
    tool_result        {"type": "tool_result", "tool_use_id": str, "content": str | list[block], "is_error"?: bool}
    image              {"type": "image", "source": {"type": "base64", "media_type": str, "data": str}}
    refusal            {"type": "refusal", "text": str}

Any other type is a provider's own block (server tools, …): kept and sent back to the same API unchanged. Extra keys
of a block (a reasoning item's "id", Gemini's "extra_content", "reasoning_details") are kept for the same reason. Such
blocks carry "origin", "api:kin of the model" (see decode.origin): what is opaque in them goes nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from ..errors import LLMError

Block = dict[str, Any]
Outcome = Literal["ok", "truncated", "error"]


class Message(TypedDict):
    role: Literal["user", "assistant"]
    content: list[Block]
    request: NotRequired[bool]  # the user's own words that began a task: never cut
    lines: NotRequired[bool]  # one-line summaries of turns that a cut dropped


@dataclass(slots=True)
class Usage:
    """Tokens of one or more calls. `input` is all input; `cache_read` and `cache_write` are parts of it."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def add(self, other: Usage) -> None:
        self.input += other.input
        self.output += other.output
        self.cache_read += other.cache_read
        self.cache_write += other.cache_write

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("input", "output", "cache_read", "cache_write")}


@dataclass(slots=True)
class Answer:
    """One decoded reply of a model.

    outcome      "ok": a terminal event came; "truncated": the stream ended early (not the output limit);
                 "error": the provider reported an error, see `error`
    stop_reason  canonical: end_turn, tool_use, max_tokens, stop_sequence, pause_turn, refusal, context_window,
                 error or None; `raw_stop_reason` is the provider's word
    error        set whenever the outcome is not "ok"; says whether the same call may succeed later
    model        the model that says it answered, "" when it does not say
    """

    blocks: list[Block] = field(default_factory=list)
    outcome: Outcome = "ok"
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    error: LLMError | None = None
    model: str = ""


@dataclass(slots=True)
class Request:
    """What a wire module encodes. `tools` are OpenAI function schemas; `options` are the settings the user set:
    max_tokens, temperature, reasoning_effort, thinking_type, thinking_budget_tokens, service_tier (absent = not sent).
    `tail` is text put last into the last user message of this one request: it changes every turn, so it lies behind
    the cache breakpoints and is never part of the history."""

    model: str
    system: str
    messages: list[Message]
    tools: list[dict[str, Any]]
    stream: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    tail: str = ""


def text(value: str) -> Block:
    return {"type": "text", "text": value}


def text_of(blocks: list[Block]) -> str:
    """The visible text of a message: text and refusal blocks, joined."""
    return "".join(b.get("text") or "" for b in blocks if b.get("type") in ("text", "refusal"))


def thinking_of(blocks: list[Block]) -> str:
    return "".join(b.get("thinking") or "" for b in blocks if b.get("type") == "thinking")
