"""Server-sent events: bytes in, events out. No I/O.

Follows the WHATWG HTML standard, "Server-sent events", with one leniency: the last event counts even when the blank
line behind it is missing (see `close`). Every byte is looked at a fixed number of times, however small the reads are.
"""

from __future__ import annotations

Event = tuple[str, str]  # name ("message" when none was given), data


class Reader:
    """Feed it what the socket gave; the events it returns don't depend on where the reads were cut."""

    def __init__(self) -> None:
        self._held: list[bytes] = []  # the beginning of an event whose end has not come yet
        self._after_cr = False  # the last byte was CR: a LF that follows belongs to it
        self._started = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that are complete now."""
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if not data:
            return []
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            if not (data.startswith(b"\n") and self._held and self._held[-1].endswith(b"\n")):
                self._held.append(data)
                return []
            end = 1  # the blank line lies across two reads
        self._held.append(data[:end])
        whole = b"".join(self._held)
        self._held = [data[end:]] if end < len(data) else []
        return self._parse(whole)

    def close(self) -> list[Event]:
        """The last event, when the body ended without a blank line behind it."""
        rest, self._held = b"".join(self._held), []
        return self._parse(rest) if rest else []

    def _parse(self, data: bytes) -> list[Event]:
        # Whole events only, so no character is cut here; a byte that is not UTF-8 becomes U+FFFD.
        text = data.decode("utf-8", "replace")
        if not self._started:
            self._started = True
            text = text.removeprefix("\ufeff")
        events: list[Event] = []
        for block in text.split("\n\n"):
            head, line_end, rest = block.partition("\n")
            if not line_end and head.startswith("data: ") and len(head) > 6:
                events.append(("message", head[6:]))
            elif rest.startswith("data: ") and head.startswith("event: ") and "\n" not in rest and len(rest) > 6:
                events.append((head[7:], rest[6:]))
            elif block:
                events += _parse_block(block)
        return events


def _parse_block(block: str) -> list[Event]:
    """Any block of lines: the general rules behind the two shapes that `_parse` knows by sight."""
    name, data = "message", []
    for line in block.split("\n"):
        field, _, value = line.partition(":")  # a comment is a line with an empty field name
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value or "message"
    joined = "\n".join(data)
    return [(name, joined)] if joined else []
