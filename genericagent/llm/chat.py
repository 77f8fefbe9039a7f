"""The OpenAI Chat Completions API (platform.openai.com, "Chat Completions") and the dialects of its imitators."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .blocks import Block, Message, Request
from .convert import endpoint, image_url, prepare, result_images, result_text
from .decode import BaseDecoder, clean, merge_usage, origin, parse_arguments, tool_use
from .faults import find_error

PATH = "chat/completions"
# DeepSeek, Kimi, Qwen, GLM, vLLM; OpenRouter, Groq, Cerebras, Ollama; Copilot
REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_text")
# What has to go back unread: OpenRouter, Gemini (two places), Copilot
OPAQUE_KEYS = ("reasoning_details", "extra_content", "thought_signature", "reasoning_opaque")
# These want their reasoning back within a task, also from a history that doesn't say where it came from
WANT_REASONING = ("chat:deepseek", "chat:kimi", "chat:moonshot", "chat:glm", "chat:mimo", "chat:minimax")
_MISTRAL = re.compile(r"mistral|mixtral|ministral|magistral|codestral|devstral|pixtral|voxtral", re.I)


def url(base: str) -> str:
    return endpoint(base, PATH)


def headers(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key.strip()}"} if api_key.strip() else {}


def limit_key(model: str) -> str:
    """The name of the output limit: OpenAI's own models take only the new one, many others only the old one."""
    name = model.rsplit("/", 1)[-1].lower()
    return "max_completion_tokens" if re.match(r"gpt-(?!oss)|chatgpt|o\d", name) else "max_tokens"


# request


def encode(request: Request) -> dict[str, Any]:
    """The body of a request."""
    model, options = request.model, request.options
    own, mistral = origin("chat", model), bool(_MISTRAL.search(model))

    def keep(block: Block) -> Block | None:
        """Reasoning goes back under the name it came by, and never as text."""
        if block["type"] != "thinking" or "origin" in block:
            return block if block["type"] == "thinking" else None
        unsigned = not block.get("signature") and "id" not in block
        return {**block, "key": "reasoning_content"} if unsigned and own in WANT_REASONING else None

    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": clean(request.system)})
    for message in prepare(request.messages, own, keep, _mistral_id if mistral else _chat_id, request.tail):
        messages += _assistant(message["content"]) if message["role"] == "assistant" else _user(message)
    body: dict[str, Any] = {"model": model, "messages": messages, "stream": request.stream}
    if request.tools:
        body["tools"] = request.tools
    if request.stream and not mistral:  # which sends the usage unasked and refuses unknown fields
        body["stream_options"] = {"include_usage": True}
    if options.get("max_tokens"):
        body[limit_key(model)] = options["max_tokens"]
    if options.get("thinking_type"):  # DeepSeek, GLM, Kimi, Doubao
        body["thinking"] = {"type": options["thinking_type"]}
    return body | {k: options[k] for k in ("temperature", "reasoning_effort", "service_tier") if k in options}


def _chat_id(raw: str) -> str:
    return raw[:40]  # OpenAI: "string too long. Expected a string with maximum length 40"


def _mistral_id(raw: str) -> str:
    """Mistral: "must be a-z, A-Z, 0-9, with a length of 9"."""
    if re.fullmatch("[a-zA-Z0-9]{9}", raw):
        return raw
    from hashlib import sha256

    return sha256(raw.encode()).hexdigest()[:9]


def _assistant(content: Sequence[Block]) -> list[dict[str, Any]]:
    words = "\n\n".join(b["text"] for b in content if b["type"] in ("text", "refusal"))
    chunks: list[dict[str, Any]] = []  # Mistral: thinking is a part of the content
    message: dict[str, Any] = {"role": "assistant", "content": words or None}
    for block in content:
        thought, key = block.get("thinking"), block.get("key")
        if thought and key == "content":
            chunks.append({"type": "thinking", "thinking": [{"type": "text", "text": thought}]})
        elif thought and key:
            message[key] = f"{message[key]}\n\n{thought}" if key in message else thought
        for name, value in (block.get("extra") or {}).items():
            message[name] = message[name] + value if isinstance(message.get(name), list) else value
    if chunks:
        message["content"] = [*chunks, {"type": "text", "text": words}] if words else chunks
    if calls := [_call(b) for b in content if b["type"] == "tool_use"]:
        message["tool_calls"] = calls
    return [message] if calls or message["content"] else []


def _call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}
    extra = {"extra_content": block["extra_content"]} if "extra_content" in block else {}
    return {"id": block["id"], "type": "function", "function": function, **extra}


def _user(message: Message) -> list[dict[str, Any]]:
    """Results as `tool` messages; then, in one message, their images (which a tool message can't hold) and the rest."""
    found: list[dict[str, Any]] = []
    rest: list[Block] = []
    images: list[Block] = []
    for block in message["content"]:
        if block["type"] == "tool_result":
            images += result_images(block)
            words = result_text(block) or "(see the image below)"
            found.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": words})
        else:
            rest.append(block)
    if images:
        rest = [{"type": "text", "text": "[images of the tool results above]"}, *images, *rest]
    if any(b["type"] == "image" for b in rest):
        found.append({"role": "user", "content": [_part(b) for b in rest]})
    elif rest:
        found.append({"role": "user", "content": "\n\n".join(b["text"] for b in rest)})
    return found


def _part(block: Block) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": image_url(block)}}
    return {"type": "text", "text": block["text"]}


# answer


class _Call:
    """One tool call while it comes."""

    __slots__ = ("index", "id", "name", "args", "extra")

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.args: list[str] = []
        self.extra: Block = {}

    def is_open(self) -> bool:
        """Whether arguments have begun and are not whole yet."""
        if not self.args:
            return False
        return not self.args[-1].rstrip().endswith("}") or parse_arguments("".join(self.args)) is None


class Decoder(BaseDecoder):
    """The terminal event is a finish_reason or [DONE]; usage may still come behind the former."""

    api = "chat"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._own: list[Block] = []  # calls of other types than functions
        self._key = ""  # where the reasoning came
        self._details: list[Any] = []  # OpenRouter's reasoning_details
        self._extra: Block = {}  # other opaque things of the whole message

    def take(self, chunk: dict[str, Any], name: str) -> None:
        choices = chunk.get("choices") or ()
        usage = chunk.get("usage")
        if not usage and "x_groq" in chunk:
            usage = (chunk["x_groq"] or {}).get("usage")
        if usage:
            self.usage = merge_usage(self.usage, usage)
        if not choices or "error" in chunk or name == "error":
            error = find_error(chunk, certain=name == "error")
            if error is not None:
                self.fail(error)
                return
        if not self.model:
            self.model = str(chunk.get("model") or "")
        for choice in choices:
            if choice.get("index"):
                continue  # we never ask for a second choice
            if delta := choice.get("delta"):
                self._delta(delta)
            if len(choice) != 3 or "index" not in choice or choice.get("finish_reason", True):
                self._choice(choice)  # there is more than index, delta and a null

    def take_whole(self, body: dict[str, Any]) -> bool:
        self.take(body, "")
        self.complete = self.ended = bool(body.get("choices"))
        return self.complete

    def _choice(self, choice: dict[str, Any]) -> None:
        if message := choice.get("message"):
            self._message(message)
        if usage := choice.get("usage"):
            self.usage = merge_usage(self.usage, usage)
        if reason := choice.get("finish_reason"):
            self.raw_stop, self.complete = str(reason), True
        if error := choice.get("error"):
            self.fail(error)

    def _message(self, message: dict[str, Any]) -> None:
        """A whole message. At the end of a stream it repeats what the deltas said: only what they lacked is taken."""
        have = {"content"} if self._text else set()
        have |= set(REASONING_KEYS) if self._thinking else set()
        have |= {"refusal"} if self._refusal else set()
        have |= {"tool_calls", "function_call"} if self._calls else set()
        have |= {"reasoning_details"} if self._details else set()
        calls = [{**call, "index": i} for i, call in enumerate(message.get("tool_calls") or ())]
        self._delta({k: v for k, v in {**message, "tool_calls": calls}.items() if k not in have})

    def _delta(self, delta: dict[str, Any]) -> None:
        if content := delta.get("content"):
            if isinstance(content, str):
                self.say(self._text, "text", content)
            else:
                self._chunks(content)
            if len(delta) == 1:
                return
        for key in REASONING_KEYS:
            if isinstance(thought := delta.get(key), str) and thought:
                self._think(key, thought)
                break  # the others have the same words
        if refusal := delta.get("refusal"):
            self.say(self._refusal, "text", refusal)
        for position, part in enumerate(delta.get("tool_calls") or ()):
            self._fragment(part, position)
        if function := delta.get("function_call"):
            self._fragment({"index": 0, "function": function}, 0)
        for key in OPAQUE_KEYS:
            if value := delta.get(key):
                if key == "reasoning_details":
                    self._details += value
                else:
                    self._extra[key] = value

    def _think(self, key: str, thought: str) -> None:
        self._key = self._key or key
        self.say(self._thinking, "thinking", thought)

    def _chunks(self, content: list[Any]) -> None:
        """Mistral: [{"type": "thinking", "thinking": [{"type": "text", "text": …}]}, {"type": "text", "text": …}]."""
        for chunk in content:
            if thought := chunk.get("thinking"):
                self._think("content", thought if isinstance(thought, str) else "".join(t["text"] for t in thought))
            elif chunk.get("text"):
                self.say(self._text, "text", chunk["text"])

    def _fragment(self, part: dict[str, Any], position: int) -> None:
        """A piece of a tool call, or a whole one."""
        if part.get("type") == "custom":
            self._own.append(part)
            return
        function = part.get("function") or {}
        index, call_id = part.get("index"), str(part.get("id") or "")
        name, args = str(function.get("name") or ""), function.get("arguments")
        call = None if position and index is None and name else self._target(index, call_id, name, bool(args))
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or name
        if args is not None:
            call.args.append(args if isinstance(args, str) else json.dumps(args, ensure_ascii=False))
        if extra := part.get("extra_content"):
            call.extra = {"extra_content": extra, "origin": self.origin}

    def _target(self, index: Any, call_id: str, name: str, has_args: bool) -> _Call | None:
        """The call that a fragment continues; None when it begins a new one.

        Servers leave the index out, keep it constant, mint a new id for every fragment, repeat name and id, or send
        them late. A fragment without a name always continues; a new id together with a name begins a new call.
        """
        last = self._calls[-1] if self._calls else None
        if last is not None and last.index == index and not name and call_id in ("", last.id):
            return last
        same = next((c for c in reversed(self._calls) if call_id and c.id == call_id), None)
        at = next((c for c in reversed(self._calls) if index is None or c.index == index), None)
        if same is not None and same is not at and not name:
            return same
        if at is None:
            return same if same is not None and same.is_open() else None
        if not name or not at.name or (call_id and call_id == at.id):
            return at
        if at.is_open():
            return at if name == at.name else None
        repeated = name == at.name and not (has_args and any(at.args))
        return at if repeated and not (call_id and at.id) else None

    def blocks(self) -> list[Block]:
        found: list[Block] = []
        thinking, mark = "".join(self._thinking), {"origin": self.origin}
        extra = {**self._extra, **({"reasoning_details": _joined(self._details)} if self._details else {})}
        if thinking or extra:
            block = {"type": "thinking", "thinking": thinking, "signature": "", "key": self._key, **mark}
            found.append({**block, "extra": extra} if extra else block)
        for kind, pieces in (("text", self._text), ("refusal", self._refusal)):
            if pieces:
                found.append({"type": kind, "text": "".join(pieces)})
        found += [{**own, **mark} for own in self._own]
        for call in self._calls:
            args = "".join(call.args)
            if call.name or args:
                found += tool_use(call.id, call.name, args, self.doubt(call is self._calls[-1]), call.extra)
        return found


def _joined(details: list[Any]) -> list[Any]:
    """Streamed reasoning_details with the pieces of an entry put together; encrypted entries come whole."""
    if not all(isinstance(d, dict) for d in details):
        return details
    runs: list[list[dict[str, Any]]] = []
    for detail in details:
        first = runs[-1][0] if runs else {"data": ""}
        whole = "data" in first or "data" in detail
        if whole or any(detail.get(k) not in (None, first.get(k)) for k in ("type", "index", "id")):
            runs.append([detail])
        else:
            runs[-1].append(detail)
    return [_entry(run) for run in runs]


def _entry(run: list[dict[str, Any]]) -> dict[str, Any]:
    entry = {k: v for piece in run for k, v in piece.items() if v is not None or k not in run[0]}
    for key in entry.keys() & {"text", "summary", "signature"}:
        entry[key] = "".join(piece[key] for piece in run if isinstance(piece.get(key), str))
    return entry
