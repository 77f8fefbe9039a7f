"""Tool calls in plain text, for models without native tools (or for which they don't work well).

The model writes `<tool_use>{"name": …, "arguments": {…}}</tool_use>`; results go back in `<tool_result>` blocks. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .blocks import Block

_DECODER = json.JSONDecoder(strict=False)  # a line break inside a string is what weaker models write
_OPEN = "<tool_use>"
# Regions whose content is never a call. A closing file tag counts where the reply goes on with a call or ends, so that
# a file which itself contains the tag stays whole.
_QUIET = re.compile(
    r"<thinking>.*?(?:</thinking>|\Z)|<file_content>.*?</file_content>(?=\s*(?:<tool_use>|<summary>|\Z))", re.S
)
_BODY_START = re.compile(r"\s*(?:`{3,}[\w-]*\s*)?(?=\{)")


def parse_calls(reply: str, new_id: Any) -> list[Block]:
    """The tool calls of a reply as tool_use blocks, in order; broken ones with `input` None and `input_raw`.

    Tolerates code fences around a block or its JSON, text behind the JSON, and a missing closing tag. Calls inside
    `<thinking>` or `<file_content>` are no calls. `new_id()` gives the id of each.
    """
    text = _QUIET.sub(lambda m: " " * len(m[0]), reply)
    calls: list[Block] = []
    at = 0
    while (found := text.find(_OPEN, at)) >= 0:
        start = found + len(_OPEN)
        call, at = _parse_one(reply, start)
        calls.append({"type": "tool_use", "id": new_id(), **call})
    return calls


def _parse_one(reply: str, start: int) -> tuple[dict[str, Any], int]:
    """One call whose tag ends at `start`: its fields and where to look for the next one."""
    close = reply.find("</tool_use>", start)
    end = close if close >= 0 else len(reply)
    raw = reply[start:end].strip()
    begin = _BODY_START.match(reply, start)
    if begin is None:
        return _broken(raw, "no JSON object in the block"), end
    try:
        value, end = _DECODER.raw_decode(reply, begin.end())
    except ValueError as error:
        return _broken(raw, str(error)), max(end, start)
    name, arguments = value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as error:
            return _broken(raw, f"arguments: {error}"), end
    if not isinstance(name, str) or not name:
        return _broken(raw, 'no "name"'), end
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return _broken(raw, '"arguments" is not an object'), end
    return {"name": name, "input": arguments}, end


def _broken(raw: str, why: str) -> dict[str, Any]:
    name = re.search(r'"name"\s*:\s*"(\w+)"', raw)
    return {"name": name[1] if name else "", "input": None, "incomplete": True, "input_raw": raw, "why": why}


def tool_list(tools: list[dict[str, Any]]) -> str:
    """The tools as text for the prompt: one line of JSON each."""
    return "\n".join(json.dumps(t.get("function", t), ensure_ascii=False) for t in tools)


def result_text(result: Block) -> str:
    """A tool_result block as text."""
    content = result.get("content")
    if isinstance(content, list):
        content = "\n".join(b.get("text", f"[{b.get('type')}]") for b in content)
    return f"<tool_result>\n{content}\n</tool_result>"
