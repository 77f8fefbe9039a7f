"""Append-only files of JSON lines that several processes add to: whole lines, also after one that a crash cut."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from .lock import held

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def opened(path: Path, how: int) -> int:
    """A descriptor of an ordinary file. Raises OSError, also for a pipe, which would keep us waiting."""
    fd = os.open(path, how | _FLAGS, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is not a regular file")
    return fd


def append(path: Path, *records: dict[str, Any], sync: bool = False) -> None:
    """Add the records; with `sync` they are on the disk when this returns. Raises OSError."""
    rest = "".join(json.dumps(record) + "\n" for record in records).encode()
    fd = opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        with held(fd):  # the size of a file grows in steps while another process writes its line
            size = os.lseek(fd, 0, os.SEEK_END)
            os.lseek(fd, max(0, size - 1), os.SEEK_SET)
            rest = (b"\n" if os.read(fd, 1) not in (b"", b"\n") else b"") + rest
            while rest:
                rest = rest[os.write(fd, rest) :]
            if sync:
                os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> list[dict[str, Any]]:
    """Every whole line that is a JSON object; none when there is no file. Raises OSError."""
    try:
        with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return [record for line in data.split(b"\n") if isinstance(record := _load(line), dict)]


def _load(line: bytes) -> Any:
    try:
        return json.loads(line) if line else None
    except (ValueError, RecursionError):
        return None  # half a line that a crash left: the next one is whole again
