"""What a script prints: shown as it comes, head and tail kept for the model, all of it in a file when it is long."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..safety.redact import Redactor
from .text import decode, smart_format, strip_controls, unfinished

SHOWN = 20_000  # characters of progress that a face gets to see
LINE = 4096  # bytes without a line end that wait for one before they are shown
SPOOLED = 64 << 20  # bytes of output that the file of a call holds at most


class Mask:
    """Takes keys out of bytes that come in pieces; bytes that are no UTF-8 stay as they are."""

    def __init__(self, redact: Redactor | None) -> None:
        self._stream = redact.stream() if redact else None

    def __call__(self, data: bytes, last: bool = False) -> bytes:
        if self._stream is None:
            return data
        text = self._stream.feed(data.decode("utf-8", "surrogateescape"))
        return (text + (self._stream.flush() if last else "")).encode("utf-8", "surrogateescape")


class Output:
    """What was printed: head and tail in memory, all of it (but for keys) in a file once it is more than the limit."""

    def __init__(self, limit: int, spool: Path, redact: Redactor | None = None) -> None:
        self.limit, self.spool, self.mask = limit, spool, Mask(redact)
        self.most = 4 * limit + 4  # bytes, a character having up to four
        self.head, self.tail, self.total, self.chars = b"", b"", 0, 0
        self.held, self.shown = b"", 0
        self.file: BinaryIO | None = None
        self.path: Path | None = None
        self.fault = ""

    def keep(self, data: bytes) -> None:
        self._spool(data)
        self.total += len(data)
        self.chars += len(data.translate(None, _CONTINUED))
        room = self.most - len(self.head)
        if room > 0:
            self.head += data[:room]
        self.tail = (self.tail + data)[-self.most :]

    def _spool(self, data: bytes) -> None:
        if self.fault or self.total + len(data) <= self.limit or self.total >= SPOOLED:
            return
        try:
            if self.file is None:
                self.path = self.spool / f"output-{os.urandom(4).hex()}.txt"
                self.path.touch(0o600, exist_ok=False)
                self.file = self.path.open("wb")
                self.file.write(self.mask(self.head))
            self.file.write(self.mask(data[: SPOOLED - self.total]))
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """A disk that is full is no reason to lose the call's result."""
        self.fault = f"the whole output could not be kept: {error.strerror or error}"
        file, self.file = self.file, None
        with contextlib.suppress(OSError):  # it is the one just reported
            if file:
                file.close()
        self._drop()

    def _drop(self) -> None:
        if self.path:
            with contextlib.suppress(OSError):  # it stays until the spool is cleaned
                self.path.unlink(missing_ok=True)
        self.path = None

    def close(self) -> None:
        try:
            if self.file:
                self.file.write(self.mask(b"", last=True))
                self.file.close()
        except OSError as error:
            self._give_up(error)

    def show(self, data: bytes, last: bool = False) -> str:
        """What of it can be shown now: whole lines, and of a long line whole characters and sequences."""
        if self.shown >= SHOWN:
            return ""
        data = self.held + data
        end = len(data) if last else data.rfind(b"\n") + 1
        if len(data) - end >= LINE:
            end = len(data) - unfinished(data)
            escape = data.rfind(b"\x1b", end - LINE)
            end = escape if escape > 0 else end
        self.held = data[end:]
        piece = strip_controls(decode(data[:end]))[: SHOWN - self.shown]
        self.shown += len(piece)
        if self.shown < SHOWN:
            return piece
        return piece + "\n" * (not piece.endswith("\n")) + "… more output than is shown here …\n"

    def text(self) -> str:
        """At most `limit` characters; the file goes when they are all."""
        if self.total <= len(self.head):
            text = strip_controls(decode(self.head))
            if len(text) <= self.limit:
                self._drop()
            return smart_format(text, self.limit, self._where())
        half = self.limit // 2
        head = strip_controls(decode(self.head, cut_end=True))[:half]
        tail = strip_controls(decode(self.tail, cut_begin=True))
        tail = tail[max(0, len(tail) - half) :]
        return f"{head}\n… about {max(1, self.chars - len(head) - len(tail))} {self._where()} …\n{tail}"

    def _where(self) -> str:
        return f"characters left out, all of it is in {self.path}" if self.path else "characters left out"

    def notes(self) -> Iterator[str]:
        if self.fault:
            yield self.fault
        if self.path and self.total > SPOOLED:
            yield f"the file holds the first {SPOOLED >> 20} MB of {self.total >> 20} MB"


_CONTINUED = bytes(range(0x80, 0xC0))  # the bytes of a UTF-8 character but the first
