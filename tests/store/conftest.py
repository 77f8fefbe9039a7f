"""Real processes for the store's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Worker = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def worker() -> Iterator[Worker]:
    """Start Python with a piece of code: `worker(code, *argv)`; it has written "ready" when this returns. Killed and
    waited for at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(code: str, *args: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", code, *map(str, args)]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8", cwd=ROOT)
        running.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()
