"""What a scripted model says, and how it misbehaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..llm.blocks import Usage

Event = tuple[str | None, Any] | Mapping[str, Any] | bytes


@dataclass(slots=True)
class Tool:
    """One tool call. A string as `args` is sent as it is: broken or cut JSON. `id` None: the server makes one."""

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def raw(self) -> str:
        return self.args if isinstance(self.args, str) else json.dumps(self.args, ensure_ascii=False)


@dataclass(slots=True)
class Reply:
    """One answer. Sent as SSE or JSON in the format of the endpoint that was asked; times are in seconds.

    What it says
        text, thinking, signature, tools
        stop      end_turn, tool_use, max_tokens (also "length"), refusal, …: put into the API's word, an unknown one
                  is sent as it is; None: what fits; "": no stop reason at all
        usage     None: estimated from the sizes; False: not reported
        model     None: the model that was asked for
        error_event   an error inside the 200 stream, after the text and instead of the end: the kind
                  ("overloaded_error", "invalid_request_error", …) or the event's own payload
    Instead of that
        status, headers, body, content_type   an HTTP answer as it is; a status of 400 or more without a body gets the
                  API's error object with `text` as message
        events    SSE events as they are: bytes, a payload, or (event name or None, payload or text)
        raw       the whole HTTP answer as it is, status line included
    How it comes
        framing   "chunked", "length" or "close" (no length, the end of the connection ends the body);
                  None: chunked for SSE, length for JSON
        chunk     characters in a text, thinking or argument delta; 0: one delta
        packet    bytes in one socket write and HTTP chunk, wherever events end; 0: one of each an event
        pace      before each event
        delay     between the headers and the first event
        hang_before_headers; hang_mid, which comes after `hang_after` events (None: in the middle)
        pings     interval of `: ping` comment lines while it hangs or delays; None: silence
        drop_after, drop_bytes, drop_text   break the connection after so many events, body bytes (in the middle of
                  a chunk), or visible characters; `drop_how` says whether by RST or by an ordinary close
    """

    text: str = ""
    thinking: str = ""
    signature: str = ""
    tools: Sequence[Tool] = ()
    stop: str | None = None
    usage: Usage | Literal[False] | None = None
    model: str | None = None
    error_event: str | Mapping[str, Any] | None = None

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str | None = None
    events: Sequence[Event] | None = None
    raw: bytes | None = None

    framing: Literal["chunked", "length", "close"] | None = None
    chunk: int = 0
    packet: int = 0
    pace: float = 0.0
    delay: float = 0.0
    hang_before_headers: float = 0.0
    hang_mid: float = 0.0
    hang_after: int | None = None
    pings: float | None = None
    drop_after: int | None = None
    drop_bytes: int | None = None
    drop_text: int | None = None
    drop_how: Literal["reset", "close"] = "reset"


Step = Reply | str
Script = Sequence[Step] | Callable[[dict[str, Any], int], Step]
"""Replies in order, or a function of (request body, number of the request from 0). A str is Reply(text=…)."""


def say(text: str, **how: Any) -> Reply:
    """An answer in words."""
    return Reply(text=text, **how)


def call(name: str, /, **args: Any) -> Reply:
    """One native tool call. For several, or with text: Reply(text=…, tools=[Tool(…), Tool(…)])."""
    return Reply(tools=[Tool(name, args)])


def text_call(name: str, /, **args: Any) -> Reply:
    """One tool call of the text protocol."""
    block = json.dumps({"name": name, "arguments": args}, ensure_ascii=False)
    return Reply(text=f"<tool_use>{block}</tool_use>")


def fail(status: int, message: str = "scripted failure", /, **headers: str) -> Reply:
    """An HTTP error in the API's own shape; `fail(429, retry_after="1")` sets the header Retry-After."""
    return Reply(text=message, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


def seq(*replies: Step, then: Step | Callable[[dict[str, Any], int], Step]) -> Script:
    """The replies in order, and `then` for every request after them."""

    def script(body: dict[str, Any], n: int) -> Step:
        if n < len(replies):
            return replies[n]
        return then(body, n) if callable(then) else then

    return script
