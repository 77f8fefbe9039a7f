"""Text from outside, made safe to show: nothing but visible characters, line feeds and tabs is left.

A model's reply, a tool's output, a file name can carry escape sequences that write the clipboard, change the title,
answer as if the user had typed, or repaint what was shown before (ECMA-48, xterm's ctlseqs). Sequences are removed;
characters that reorder text (bidi controls) are shown by their code point. Never throws text away that no sequence
covers: a string sequence that isn't ended within its line is shown as text.
"""

from __future__ import annotations

import re

LONGEST_STRING = 4096  # characters of an OSC, DCS, APC, PM, SOS or title string that may be held back

_SUSPICIOUS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]"
)
_SEQUENCE = re.compile(
    # a control string: introducer, body, terminator (BEL, ST, or CAN and SUB, which cancel it)
    "(?:\x1b[\\]P_^Xk]|[\x9d\x90\x9f\x9e\x98])"
    f"(?P<body>[^\x00-\x1f\x7f-\x9f]{{0,{LONGEST_STRING}}})(?P<end>\x07|\x1b\\\\|\x9c|\x18|\x1a|\x1b\\Z|)"
    # a control sequence: parameters, intermediates, final byte
    "|(?:\x1b\\[|\x9b)[0-?]{0,256}[ -/]{0,16}(?P<final>[@-~]?)"
    # charset and similar: intermediates, final byte; or ESC and one character
    "|\x1b(?:[ -/]{1,16}(?P<nf>[0-~]?)|[0-~]|(?P<bare>))"
    "|\r"
)
_COLOUR = re.compile("(\x1b\\[[0-9;:]*m)")
_LINES = dict.fromkeys((0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029), "\n")
_GONE = dict.fromkeys((*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0)))
_SHOWN = {c: f"[U+{c:04X}]" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xFFF9, 0xFFFC))}
_MARKS = {c: f"[U+{c:04X}]" for c in (0x061C, 0x200E, 0x200F)}  # whole texts need them, in a name they only deceive
_TABLE: dict[int, str | None] = {**dict.fromkeys(range(0xD800, 0xE000), "\ufffd"), **_GONE, **_SHOWN, **_LINES}


class Stripper:
    """Cleans text that arrives in pieces; a sequence cut by the end of a piece is held back until the next one."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        return self._clean(text, final=False)

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        return self._clean("", final=True)

    def _clean(self, text: str, final: bool) -> str:
        if self._held:
            text, self._held = self._held + text, ""
        text = text.replace("\r\n", "\n")
        if not _SUSPICIOUS.search(text):
            return text
        end = len(text)

        def replace(match: re.Match[str]) -> str:
            if match.end() == end and not final and _unfinished(match):
                self._held = match[0]
                return ""
            if match[0][0] == "\r":
                return "\n"
            ended = match["body"] is None or match["end"] in ("\x07", "\x1b\\", "\x9c", "\x18", "\x1a")
            return "" if ended else str(match["body"])

        left = _SEQUENCE.sub(replace, text)
        return left.translate(_TABLE) if _SUSPICIOUS.search(left) else left


def clean(text: str) -> str:
    """The visible part of a whole text: line feeds and tabs stay, a carriage return becomes a line feed."""
    if not _SUSPICIOUS.search(text):
        return text
    stripper = Stripper()
    return stripper.feed(text) + stripper.flush()


def visible(text: str) -> str:
    """The text with every character that a terminal would act on, or that cannot be seen, shown as a sign of its own."""
    shown = {
        **_SHOWN,
        **{c: f"[U+{c:04X}]" for c in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xAD, *range(0x200B, 0x2010))},
    }
    return text.translate({**shown, **{c: chr(0x2400 + c) for c in range(0x20) if c not in (0x09, 0x0A)}})


def one_line(text: str, limit: int = 80) -> str:
    """A name or hint for one line: cleaned, marks of a direction shown, white space collapsed, at most `limit` characters."""
    # Cut first, so that a megabyte costs nothing; what is cut off could not have been shown anyway.
    short = " ".join(clean(text[: limit * 40]).translate(_MARKS).split())
    return short if len(short) <= limit else short[: limit - 1] + "…"


def only_colours(painted: str) -> str:
    """Our renderer's output with its colours and nothing else: the last gate before the terminal.

    A renderer may decode what looked harmless (`&#x202e;` in Markdown), so cleaning its input is not enough.
    """
    parts = _COLOUR.split(painted)
    return "".join(part if n % 2 else clean(part) for n, part in enumerate(parts))


def _unfinished(match: re.Match[str]) -> bool:
    """Whether more text could still change what this match at the end of a piece is."""
    if match[0] == "\r":
        return True
    if match["body"] is not None:
        return match["end"] in ("", "\x1b") and len(match["body"]) < LONGEST_STRING
    return "" in (match["final"], match["nf"], match["bare"])
