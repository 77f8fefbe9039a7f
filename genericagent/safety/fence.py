"""Marks text that comes from outside (a web page, a command that asked the net, somebody else's message) as data. Pure.

The mark's id is random, so the text cannot end it; what could pass for this program's own marks or for a model's chat
template is disarmed by one visible character. A seat belt: a model may still be talked into something, which is why
what it may do afterwards is limited elsewhere (policy, sandbox).
"""

from __future__ import annotations

import re

from .term import one_line

# Ours, and those of tool-call dialects that models were trained on.
_TAGS = (
    "tool_use|tool_call|tool_calls|tool_result|tool_results|function_calls|function_results|function|invoke|parameter|parameters|thinking"
    "|think|summary|working_memory|history|key_info|file_content|outside|system|assistant|user|human|s|bos|eos|instructions?"
    "|start_of_turn|end_of_turn|tools|result|antml:[a-z_]+"
)  # fmt: skip
_ARMED = re.compile(
    rf"(?P<tag>[<＜])(?=\s{{0,9}}/?\s{{0,9}}(?:{_TAGS})\b[^<>＜＞]{{0,200}}[>＞])"
    r"|(?P<special><(?=\||｜)|(?<=[|｜])>|<<(?=/?SYS>>))"
    r"|(?P<word>\[(?=/?(?:INST|MASTER|USER|Agent|SYSTEM|ROUND END|TOOL_CALLS|AVAILABLE_TOOLS)))"
    r"|(?P<ref>\{(?=\{file:))"
    r"|(?P<turn>(?<=\n\n)(?:Human|Assistant|System)(?=:))",
    re.I,
)
_INSTEAD = {"tag": "‹", "special": "‹", "word": "⟦", "ref": "{ "}


def disarm(text: str) -> str:
    """The text with each control tag, chat-template token and file reference broken by one visible character."""
    return _ARMED.sub(_broken, text)


def _broken(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind == "special":
        return "›" if match[0] == ">" else "‹" * len(match[0])
    return _INSTEAD.get(kind) or f"{match[0]} "


def fence(text: str, source: str, boundary: str) -> str:
    """`text` between two marks that carry the random `boundary`; `source` says in a few words where it came from."""
    label = disarm(one_line(source, 200)).replace('"', "'")
    return f'<outside id="{boundary}" from="{label}">\n{disarm(text)}\n</outside id="{boundary}">'
