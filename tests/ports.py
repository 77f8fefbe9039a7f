"""Ports for a test's own servers."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_RANGE = range(20_000, 32_000)  # below those that the system gives to connections of its own choice


def free_ports() -> tuple[int, int]:
    """Two loopback ports that nobody has; tests that run side by side look in different places."""
    found = _free()
    return next(found), next(found)


def _free() -> Iterator[int]:
    start = (os.getpid() * 37 + int.from_bytes(os.urandom(1)) * 16) % len(_RANGE)
    for step in range(len(_RANGE)):
        port = _RANGE[(start + step) % len(_RANGE)]
        with socket.socket() as probe, contextlib.suppress(OSError):  # somebody has it
            probe.bind(("127.0.0.1", port))
            yield port
