"""The OpenAI Responses API (platform.openai.com, "Responses", "Streaming events", "Reasoning"), used without storage."""

from __future__ import annotations

import json
import re
from typing import Any

from .blocks import Block, Message, Request
from .chat import headers as headers
from .convert import endpoint, image_url, prepare, result_images, result_text, safe_id
from .decode import BaseDecoder, clean, merge_usage, origin, string, tool_use
from .faults import find_error

PATH = "responses"
# What the events of a text are called (with `.delta` and `.done`): the part type in items, and the field of its words
_TEXTS = {
    "output_text": ("output_text", "text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_summary_text": ("summary_text", "text"),
    "reasoning_text": ("reasoning_text", "text"),
    "function_call_arguments": ("arguments", "arguments"),
}
_SHOWN = {"output_text": "text", "refusal": "text", "summary_text": "thinking", "reasoning_text": "thinking"}
_ITEM_OF = {"output_text": "message", "refusal": "message", "arguments": "function_call"}  # else reasoning
_TERMINAL = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def url(base: str) -> str:
    return endpoint(base, PATH)


# request


def encode(request: Request) -> dict[str, Any]:
    """The body of a request. Nothing is stored at the provider: reasoning travels encrypted with the history."""
    model, options = request.model, request.options
    items: list[dict[str, Any]] = []
    for message in prepare(request.messages, origin("responses", model), _keep, safe_id, request.tail):
        items += _assistant(message) if message["role"] == "assistant" else _user(message)
    body: dict[str, Any] = {"model": model, "input": items, "stream": request.stream, "store": False}
    if request.system.strip():
        body["instructions"] = clean(request.system)
    if request.tools:
        body["tools"] = [_tool(t.get("function", t)) for t in request.tools]
    if is_reasoning(model) or options.get("reasoning_effort"):
        body["include"] = ["reasoning.encrypted_content"]  # other models refuse the wish
    if options.get("reasoning_effort"):
        body["reasoning"] = {"effort": options["reasoning_effort"]}
    if options.get("max_tokens"):
        body["max_output_tokens"] = options["max_tokens"]
    return body | {k: options[k] for k in ("temperature", "service_tier") if k in options}


def is_reasoning(model: str) -> bool:
    """OpenAI's reasoning models, by name."""
    return bool(re.match(r"o\d|gpt-[5-9](?!.*chat)|codex", model.rsplit("/", 1)[-1].lower()))


def _tool(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    about = {"name": function["name"], "description": function.get("description", "")}
    return {"type": "function", **about, "parameters": schema, "strict": False}


def _keep(block: Block) -> Block | None:
    """Reasoning as the item it was, this API's own items as they came."""
    if block["type"] != "thinking":
        return block if block.pop("origin", None) else None
    if "id" not in block:
        return None  # signed by another API, or not at all
    thought, secret = block.get("thinking") or "", block.get("signature") or ""
    item: Block = {"type": "reasoning", "id": block["id"], "summary": []}
    if block.get("plain"):
        item["content"] = [{"type": "reasoning_text", "text": thought}]
    elif thought:
        item["summary"] = [{"type": "summary_text", "text": t} for t in block.get("summary") or [thought]]
    if secret:
        item["encrypted_content"] = secret
    return item if secret or block.get("plain") else None  # without storage the id alone leads nowhere


def _assistant(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for block in message["content"]:
        kind = block["type"]
        if kind in ("text", "refusal"):
            phase = {"phase": block["phase"]} if "phase" in block else {}
            items.append({"role": "assistant", "content": [{"type": "output_text", "text": block["text"]}], **phase})
        elif kind == "tool_use":
            call = {"call_id": block["id"], "name": block["name"]}
            arguments = json.dumps(block["input"], ensure_ascii=False)
            items.append({"type": "function_call", **call, "arguments": arguments})
        else:
            items.append(block)
    return items


def _user(message: Message) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    for block in message["content"]:
        if block["type"] == "tool_result":
            words, images = result_text(block), [_part(i) for i in result_images(block)]
            output: Any = [*([{"type": "input_text", "text": words}] if words else []), *images] if images else words
            items.append({"type": "function_call_output", "call_id": block["tool_use_id"], "output": output})
        else:
            rest.append(_part(block))
    return [*items, {"role": "user", "content": rest}] if rest else items


def _part(block: Block) -> dict[str, Any]:
    if block["type"] == "image":
        return {"type": "input_image", "image_url": image_url(block)}
    return {"type": "input_text", "text": block["text"]}


# answer


class _Item:
    """One output item while it comes: the fullest form of it so far, and its texts by part type and index."""

    __slots__ = ("raw", "texts")

    def __init__(self) -> None:
        self.raw: dict[str, Any] = {}
        self.texts: dict[str, dict[Any, list[str]]] = {}

    @property
    def type(self) -> str:
        return str(self.raw.get("type") or next((_ITEM_OF.get(t, "reasoning") for t in self.texts), ""))

    def parts(self, part_type: str) -> list[str]:
        return [words for pieces in self.texts.get(part_type, {}).values() if (words := "".join(pieces))]


class Decoder(BaseDecoder):
    """Items are put together from the added, delta, done and terminal events, whichever of them a server sends."""

    api = "responses"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._items: dict[Any, _Item] = {}

    def take(self, event: dict[str, Any], name: str) -> None:
        kind = str(event.get("type") or name)
        what, _, step = kind.removeprefix("response.").rpartition(".")
        if what in _TEXTS:
            part_type, field = _TEXTS[what]
            index = event.get("content_index", event.get("summary_index"))
            if step == "delta":
                self._add(self._item(event), part_type, index, event.get("delta"))
            else:
                self._settle(self._item(event), part_type, {index: string(event.get(field))}, every=False)
        elif what == "output_item":
            self._take_item(self._item(event), event.get("item") or {})
        elif kind in _TERMINAL:
            self._terminal(event.get("response") or {})
        elif event.get("response"):
            self.model = str(event["response"].get("model") or self.model)
        elif (error := find_error(event, certain=name == "error")) is not None:
            self.fail(error)

    def take_whole(self, body: dict[str, Any]) -> bool:
        self._terminal(body)
        return "output" in body

    def _item(self, event: dict[str, Any]) -> _Item:
        key = event.get("output_index")
        key = event.get("item_id") if key is None else key
        item = self._items.get(key)
        if item is None:
            item = self._items[key] = _Item()
        return item

    def _add(self, item: _Item, part_type: str, index: Any, words: Any) -> None:
        parts = item.texts.get(part_type)
        if parts is None:
            parts = item.texts[part_type] = {}
        pieces = parts.get(index)
        if pieces is None:
            if parts and part_type == "summary_text":
                self.say([], "thinking", "\n\n")
            pieces = parts[index] = []
        if part_type in _SHOWN:
            self.say(pieces, _SHOWN[part_type], words)
        else:
            pieces.append(string(words))

    def _settle(self, item: _Item, part_type: str, whole: dict[Any, str], every: bool) -> None:
        """Whole parts, or `every` part of a type: they replace the pieces; what those lacked at the end is shown.

        Servers number the parts differently in deltas and in items, so an item's are compared all together.
        """
        have = item.texts.get(part_type, {})
        before = "".join(piece for i in (have if every else whole) for piece in have.get(i, ()))
        full = "".join(whole.values())
        if full and not before:
            for index, words in whole.items():
                self._add(item, part_type, index, words)
        elif full:
            if full.startswith(before) and part_type in _SHOWN:
                self.say([], _SHOWN[part_type], full[len(before) :])
            item.texts[part_type] = {**({} if every else have), **{i: [words] for i, words in whole.items()}}

    def _take_item(self, item: _Item, raw: dict[str, Any]) -> None:
        """A form of the item as a whole; the last one is the fullest, but may lack what an earlier one had."""
        item.raw = {**item.raw, **{k: v for k, v in raw.items() if v not in (None, "", []) or k not in item.raw}}
        content = raw.get("content") or ()
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else [*content]
        parts += raw.get("summary") or ()
        if arguments := raw.get("arguments"):
            parts.append({"type": "arguments", "arguments": arguments})
        for part_type, field in _TEXTS.values():
            found = [p.get(field) or "" for p in parts if p.get("type") == part_type]
            words = [w if isinstance(w, str) else json.dumps(w) for w in found]
            self._settle(item, part_type, dict(enumerate(words)), every=True)

    def _terminal(self, response: dict[str, Any]) -> None:
        """The whole response, or as much of it as the server repeats at the end."""
        self.model = str(response.get("model") or self.model)
        self.usage = merge_usage(self.usage, response.get("usage"))
        left = list(self._items.values())
        for raw in response.get("output") or ():
            kin = [i for i in left if i.type == raw.get("type")]
            same = (i for i in kin for k in ("id", "call_id") if raw.get(k) and i.raw.get(k) == raw[k])
            item = next(same, kin[0] if kin else None)  # some servers change the ids
            if item is None:
                item = self._items["terminal", len(self._items)] = _Item()
            else:
                left.remove(item)
            self._take_item(item, raw)
        status = str(response.get("status") or "completed")
        self.raw_stop = str((response.get("incomplete_details") or {}).get("reason") or status)
        if status in ("failed", "cancelled") or response.get("error"):
            self.fail(response.get("error") or f"the response was {status}")
        self.complete = self.ended = status not in ("queued", "in_progress")

    def blocks(self) -> list[Block]:
        keys = list(self._items)
        if all(isinstance(k, int) for k in keys):
            keys.sort()
        return [b for k in keys for b in self._blocks_of(self._items[k], last=k == keys[-1])]

    def _blocks_of(self, item: _Item, last: bool) -> list[Block]:
        raw, mark = item.raw, {"origin": self.origin}
        if item.type == "message":
            phase = {"phase": raw["phase"], **mark} if raw.get("phase") else {}
            texts = [("text", "".join(item.parts("output_text"))), ("refusal", "".join(item.parts("refusal")))]
            return [{"type": kind, "text": words, **phase} for kind, words in texts if words]
        if item.type == "function_call":
            doubt = "incomplete" if raw.get("status") == "incomplete" else self.doubt(last)
            call_id = str(raw.get("call_id") or raw.get("id") or "")
            return tool_use(call_id, str(raw.get("name") or ""), "".join(item.parts("arguments")), doubt)
        if item.type != "reasoning":
            return [{**raw, "type": item.type, **mark}] if item.type else []
        summary, plain = item.parts("summary_text"), "".join(item.parts("reasoning_text"))
        secret = str(raw.get("encrypted_content") or "")
        block: Block = {"type": "thinking", "thinking": "\n\n".join(summary) or plain, "signature": secret}
        if len(summary) > 1:
            block["summary"] = summary
        elif plain and not summary:
            block["plain"] = True
        return [{**block, "id": str(raw.get("id") or ""), **mark}] if summary or plain or secret else []
