"""The Anthropic Messages API (docs.anthropic.com: "Messages", "Streaming Messages", "Extended thinking")."""

from __future__ import annotations

from typing import Any

from .blocks import Block, Message, Request, Usage
from .convert import endpoint, prepare, safe_id, with_tail
from .decode import BaseDecoder, clean, origin, parse_arguments, string, tool_use
from .faults import find_error

PATH = "messages"
MAX_TOKENS = 8192  # the API demands a limit
BUDGETS = {"low": 4096, "medium": 10240, "high": 32768}  # thinking tokens for an effort without a budget
EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "max", "max": "max"}
_MARK = {"type": "ephemeral"}
_KEYS = {  # what the API knows of our blocks
    "text": ("text", "citations", "cache_control"),
    "tool_use": ("id", "name", "input", "caller", "cache_control"),
    "tool_result": ("tool_use_id", "content", "is_error", "cache_control"),
    "image": ("source", "cache_control"),
}


def url(base: str) -> str:
    return endpoint(base, PATH)


def headers(api_key: str) -> dict[str, str]:
    key = api_key.strip()
    auth = {"x-api-key": key} if key.startswith("sk-ant-") else {"Authorization": f"Bearer {key}"} if key else {}
    return {"anthropic-version": "2023-06-01", **auth}


# request


def encode(request: Request) -> dict[str, Any]:
    """The body of a request. Cache breakpoints: system (covers the tools), the last two messages of the user."""
    options = request.options
    prepared = prepare(request.messages, origin("anthropic", request.model), _keep, safe_id)
    messages = with_tail(_marked(prepared), request.tail)
    tools = [_tool(t.get("function", t)) for t in request.tools]
    system = [{"type": "text", "text": clean(request.system), "cache_control": _MARK}] if request.system.strip() else []
    if tools and not system:
        tools[-1]["cache_control"] = _MARK
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": options.get("max_tokens") or MAX_TOKENS,
        "messages": [{"role": m["role"], "content": [_wire(b) for b in m["content"]]} for m in messages],
        "stream": request.stream,
        **({"system": system} if system else {}),
        **({"tools": tools} if tools else {}),
        **({"temperature": options["temperature"]} if "temperature" in options else {}),
    }
    if options.get("service_tier") in ("auto", "standard_only"):
        body["service_tier"] = options["service_tier"]
    return {**body, **_thinking(options, body["max_tokens"])}


def _thinking(options: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    """thinking_type and its budget, which comes on top of the answer; reasoning_effort as output_config."""
    effort, kind = options.get("reasoning_effort"), options.get("thinking_type")
    budget = options.get("thinking_budget_tokens")
    fields: dict[str, Any] = {}
    if kind == "enabled" or (budget and not kind):
        budget = int(budget or BUDGETS.get(str(effort), BUDGETS["medium"]))
        fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        fields["max_tokens"] = max_tokens if max_tokens > budget else budget + max_tokens
    elif kind:
        fields["thinking"] = {"type": kind}
    if effort in EFFORTS:
        fields["output_config"] = {"effort": EFFORTS[effort]}
    return fields


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function["name"], "description": function.get("description", ""), "input_schema": schema}


def _marked(messages: list[Message]) -> list[Message]:
    """A breakpoint at the end of the newest two messages of the user: one to read up to, one to write."""
    users = [i for i, m in enumerate(messages) if m["role"] == "user"][-2:]
    return [
        {**m, "content": [*m["content"][:-1], {**m["content"][-1], "cache_control": _MARK}]} if i in users else m
        for i, m in enumerate(messages)
    ]


def _keep(block: Block) -> Block | None:
    """Thinking and the API's own blocks, as they came. Claude wants its thinking signed, its imitators don't sign."""
    source = block.pop("origin", None)
    if block["type"] != "thinking":
        return block
    signature = block.get("signature") or ""
    if source is None and "id" in block:
        return None  # a reasoning item of the Responses API
    if not signature and (source is None or "claude" in source):
        return None
    return {"type": "thinking", "thinking": block.get("thinking") or "", "signature": signature}


def _wire(block: Block) -> Block:
    kind = "text" if block["type"] == "refusal" else block["type"]
    if kind not in _KEYS:
        return block
    wire = {"type": kind, **{k: block[k] for k in _KEYS[kind] if k in block}}
    if kind == "tool_result" and isinstance(block["content"], list):
        wire["content"] = [_wire(b) for b in block["content"]]
    return wire


# answer


class _Part:
    """One content block while it comes: what its start said, and the pieces of its text, input and signature."""

    __slots__ = ("block", "kind", "text", "json", "signature")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.kind = str(block.get("type"))
        self.text: list[str] = []
        self.json: list[str] = []
        self.signature: list[str] = []


class Decoder(BaseDecoder):
    """Blocks are keyed by their index; the terminal event is a stop reason or message_stop."""

    api = "anthropic"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parts: list[_Part] = []
        self._at: dict[Any, _Part] = {}

    def take(self, event: dict[str, Any], name: str) -> None:
        kind = event.get("type") or name
        if kind == "content_block_delta":
            self._delta(event.get("index"), event.get("delta") or {})
        elif kind == "content_block_start":
            self._start(event.get("index"), event.get("content_block") or {})
        elif kind == "message_start":
            self._parts, self._at = [], {}  # a second one before the end starts the message again
            self._message(event.get("message") or {})
        elif kind == "message_delta":
            self._usage(event.get("usage") or {})
            self._stop(event.get("delta") or {})
        elif kind == "message_stop":
            self.complete = self.ended = True
        elif (error := find_error(event, certain=name == "error")) is not None:
            self.fail(error)

    def take_whole(self, body: dict[str, Any]) -> bool:
        self._message(body)
        self._stop(body)
        self.complete = self.ended = "content" in body
        return self.complete

    def _message(self, message: dict[str, Any]) -> None:
        self.model = str(message.get("model") or self.model)
        content = message.get("content") or ()
        for index, block in enumerate([{"type": "text", "text": content}] if isinstance(content, str) else content):
            self._start(index, block)
        self._usage(message.get("usage") or {})

    def _stop(self, delta: dict[str, Any]) -> None:
        if reason := delta.get("stop_reason"):
            self.raw_stop, self.complete = str(reason), True

    def _usage(self, raw: dict[str, Any]) -> None:
        """The two reports of a stream: the later one replaces the earlier, unless it lacks the input."""
        n = {k: v for k, v in raw.items() if isinstance(v, int)}
        if not n:
            return
        read, write = n.get("cache_read_input_tokens", 0), n.get("cache_creation_input_tokens", 0)
        usage = self.usage = self.usage or Usage()
        if total := n.get("input_tokens", 0) + read + write:
            usage.input, usage.cache_read, usage.cache_write = total, read, write
        usage.output = n.get("output_tokens", usage.output)

    def _start(self, index: Any, block: Block) -> None:
        part = self._at[index] = _Part(dict(block))
        self._parts.append(part)
        if part.kind in ("text", "thinking") and block.get(part.kind):
            self.say(part.text, part.kind, block[part.kind])
        if part.kind == "thinking":
            part.signature.append(string(block.get("signature")))

    def _delta(self, index: Any, delta: dict[str, Any]) -> None:
        kind = delta.get("type")
        part = self._at.get(index)
        if part is None and index is None and self._parts:
            part = self._parts[-1]
        elif part is None:
            self._start(index, {"type": str(kind).removesuffix("_delta")})  # its start is missing
            part = self._at[index]
        if kind == "text_delta":
            self.say(part.text, "text", delta.get("text"))
        elif kind == "thinking_delta":
            self.say(part.text, "thinking", delta.get("thinking"))
        elif kind == "input_json_delta":
            part.json.append(string(delta.get("partial_json")))
        elif kind == "signature_delta":
            part.signature.append(string(delta.get("signature")))
        elif kind == "citations_delta":
            part.block["citations"] = part.block.get("citations") or []
            part.block["citations"].append(delta.get("citation"))
        else:  # of a block we don't know (compaction_delta, …): strings go on, the rest replaces
            for key in delta.keys() - {"type"}:
                old, new = part.block.get(key), delta[key]
                part.block[key] = old + new if isinstance(old, str) and isinstance(new, str) else new

    def blocks(self) -> list[Block]:
        return [b for part in self._parts for b in self._blocks_of(part, last=part is self._parts[-1])]

    def _blocks_of(self, part: _Part, last: bool) -> list[Block]:
        block, text, mark = part.block, "".join(part.text), {"origin": self.origin}
        if part.kind == "text":
            cited = {"citations": block["citations"], **mark} if block.get("citations") else {}
            return [{"type": "text", "text": text, **cited}] if text or cited else []
        if part.kind == "thinking":
            signature = "".join(part.signature) if text == clean(text) else ""  # it wouldn't fit any more
            return [{"type": "thinking", "thinking": text, "signature": signature, **mark}] if text or signature else []
        given: Any = "".join(part.json)
        given = given if given.strip() else block.get("input")
        if part.kind == "tool_use":
            caller = {"caller": block["caller"], **mark} if block.get("caller") else {}
            call_id, name = str(block.get("id") or ""), str(block.get("name") or "")
            return tool_use(call_id, name, given, self.doubt(last), caller)
        if isinstance(given, str):
            block["input"] = (parse_arguments(given) or [{}])[0]
        return [{**block, "type": part.kind, **mark}]
