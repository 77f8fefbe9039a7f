"""Text that goes to a model or a screen: decoded by best guess, without control sequences, cut with an honest count. Pure."""

from __future__ import annotations

import codecs
import contextlib
import re

# OSC, DCS, APC, PM, SOS up to their terminator or, so that a stray one swallows no more, the end of the line; CSI; any
# other escape; 8-bit forms; other C0 but \b \t \n \r.
_CONTROLS = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)
_SUSPECT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PAIR = re.compile(rb"[\x80-\xff]{2}")
_ASCII = bytes(range(128))


def strip_controls(text: str) -> str:
    """The visible text: no escape sequences or control characters; of a line drawn again with \\r or \\b, its last state."""
    if not _SUSPECT.search(text):
        return text
    text = _CONTROLS.sub("", text.replace("\r\n", "\n"))
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return text


def _last_state(line: str) -> str:
    line = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in line:
        return line
    out: list[str] = []
    for char in line:
        if char != "\b":
            out.append(char)
        elif out:
            out.pop()
    return "".join(out)


def smart_format(text: str, limit: int, note: str = "characters left out") -> str:
    """The text, or its head and tail of together `limit` characters with the count of what is missing between.

    Cuts fall on a line border when one is near.
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    head, tail = text[:half], text[len(text) - half :]
    border = head.rfind("\n", half - half // 8)
    if border > 0:
        head = head[: border + 1]
    border = tail.find("\n", 0, half // 8)
    if border >= 0:
        tail = tail[border + 1 :]
    return f"{head}\n… {len(text) - len(head) - len(tail)} {note} …\n{tail}"


def decode(data: bytes, *, cut_begin: bool = False, cut_end: bool = False) -> str:
    """Bytes of unknown encoding as text: UTF-8, else line by line what fits best.

    `cut_begin`, `cut_end`: the data was cut there, and half a character is left out instead of marked.
    """
    with contextlib.suppress(UnicodeDecodeError):  # then it is looked at closely
        return data.decode("utf-8")
    if cut_end:
        data = data[: len(data) - unfinished(data)]
    if cut_begin:
        data = data[next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) :]
    with contextlib.suppress(UnicodeDecodeError):  # then it isn't UTF-8, or not all of it
        return data.decode("utf-8")
    return "".join(map(_line, data.splitlines(keepends=True)))


def unfinished(data: bytes) -> int:
    """How many bytes at the end are the beginning of a UTF-8 character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])


def _line(line: bytes) -> str:
    """UTF-8; with marks, if that is most of it; GBK; cp1252, if all that isn't ASCII stands alone as accents do; marks."""
    with contextlib.suppress(UnicodeDecodeError):  # then the next one
        return line.decode("utf-8")
    high = len(line.translate(None, _ASCII))
    fits = len(line.decode("utf-8", "ignore").encode().translate(None, _ASCII))
    if 2 * fits <= high:
        if not _PAIR.search(line):
            return line.decode("cp1252", "replace")
        with contextlib.suppress(UnicodeDecodeError):  # then marks
            return line.decode("gbk")
    return line.decode("utf-8", "replace")
