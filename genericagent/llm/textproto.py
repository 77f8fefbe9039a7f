"""Tool calls in plain text, for models without native tools (or for which they don't work well).

The model writes `<tool_use>{"name": …, "arguments": {…}}</tool_use>`; results go back in `<tool_result>` blocks. Pure.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from typing import Any

from .blocks import Block
from .decode import clean_all

_DECODER = json.JSONDecoder(strict=False)  # a line break inside a string is what weaker models write
_OPEN = "<tool_use>"
# Regions whose content is never a call. A closing file tag counts where the reply goes on with a call or ends, so that
# a file which itself contains the tag stays whole.
_QUIET = re.compile(r"<(thinking|file_content)>")
_FILE_END = re.compile(r"</file_content>(?=\s*(?:<tool_use>|<summary>|\Z))")
_BODY_START = re.compile(r"\s*(?:`{3,}[\w-]*\s*)?(?=\{)")


def parse_calls(reply: str, new_id: Any) -> list[Block]:
    """The tool calls of a reply as tool_use blocks, in order; broken ones with `input` None and `input_raw`.

    Tolerates code fences around a block or its JSON, text behind the JSON, and a missing closing tag. Calls inside
    `<thinking>` or `<file_content>` are no calls. `new_id()` gives the id of each.
    """
    text = _loud(reply)
    calls: list[Block] = []
    at = 0
    while (found := text.find(_OPEN, at)) >= 0:
        start = found + len(_OPEN)
        call, at = _parse_one(reply, start)
        calls.append({"type": "tool_use", "id": new_id(), **call})
    return calls


def _loud(reply: str) -> str:
    """The reply with blanks where it thinks or writes a file."""
    ends = [found.end() for found in _FILE_END.finditer(reply)]
    out, at, begin = [], 0, 0
    while found := _QUIET.search(reply, at):
        at = found.end()
        if found[1] == "thinking":
            close = reply.find("</thinking>", at)
            end = close + len("</thinking>") if close >= 0 else len(reply)
        else:
            i = bisect(ends, at)
            if i == len(ends):
                continue  # its end cannot be told: text like any other
            end = ends[i]
        out += [reply[begin : found.start()], " " * (end - found.start())]
        at = begin = end
    return "".join([*out, reply[begin:]])


def _parse_one(reply: str, start: int) -> tuple[dict[str, Any], int]:
    """One call whose tag ends at `start`: its fields and where to look for the next one."""
    close = reply.find("</tool_use>", start)
    end = close if close >= 0 else len(reply)
    begin = _BODY_START.match(reply, start)
    if begin is None:
        return _broken(reply[start:end], "no JSON object in the block"), end
    try:
        value, end = _DECODER.raw_decode(reply, begin.end())
        value = clean_all(value)
    except (ValueError, RecursionError) as error:
        return _broken(reply[start:end], _why(error)), max(end, start)
    name, arguments = value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = clean_all(json.loads(arguments or "{}"))
        except (ValueError, RecursionError) as error:
            return _broken(arguments, f"arguments: {_why(error)}"), end
    if not isinstance(name, str) or not name:
        return _broken(reply[begin.end() : end], 'no "name"'), end
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return _broken(reply[begin.end() : end], '"arguments" is not an object'), end
    return {"name": name, "input": arguments}, end


def _why(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def _broken(raw: str, why: str) -> dict[str, Any]:
    raw = raw.strip()
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
