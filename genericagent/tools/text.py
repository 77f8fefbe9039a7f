"""Text that goes to a model or a screen: cut in the middle with an honest count, without control sequences. Pure."""

from __future__ import annotations

import re

# OSC, DCS, APC, PM, SOS up to their terminator; CSI; any other escape; 8-bit forms; other C0 but \n and \t.
_CONTROLS = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_SUSPECT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def strip_controls(text: str) -> str:
    """The visible text: no escape sequences or control characters; of a line drawn again with \\r, its last state."""
    if not _SUSPECT.search(text):
        return text
    text = _CONTROLS.sub("", text.replace("\r\n", "\n"))
    if "\r" in text:
        text = re.sub(r"[^\n]*\r(?=[^\n\r])", "", text).replace("\r", "")
    return text


def smart_format(text: str, limit: int, note: str = "characters left out") -> str:
    """The text, or its head and tail of together `limit` characters with the count of what is missing between.

    Cuts fall on a line border when one is near.
    """
    if len(text) <= limit:
        return text
    half = max(1, limit // 2)
    head, tail = text[:half], text[-half:]
    border = head.rfind("\n", half - half // 8)
    if border > 0:
        head = head[: border + 1]
    border = tail.find("\n", 0, half // 8)
    if border >= 0:
        tail = tail[border + 1 :]
    return f"{head}\n… {len(text) - len(head) - len(tail)} {note} …\n{tail}"
