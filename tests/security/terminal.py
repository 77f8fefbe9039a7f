"""The program in a real pseudo-terminal: every byte that it writes."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

PROGRAM = str(Path(__file__).resolve().parents[2] / "agentmain.py")
DEADLINE = 60.0  # seconds; only a hang is that slow


class Terminal:
    """`with Terminal(["-p", "hi"], env) as t:`; `raw` is what came so far. Killed at the end if it still runs."""

    def __init__(self, args: list[str], env: Mapping[str, str], cwd: Path, rows: int = 50, columns: int = 200) -> None:
        import pty

        self.raw, self.code = b"", None
        command = [sys.executable, PROGRAM, *args]
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(command[0], command, dict(env))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def until(self, wanted: str | Callable[[], bool], count: int = 1) -> None:
        """Wait until `wanted` has been written `count` times, or is so."""
        end = time.monotonic() + DEADLINE
        while not (self.raw.count(wanted.encode()) >= count if isinstance(wanted, str) else wanted()):
            assert time.monotonic() < end and self._read(), f"not seen: {wanted}\n{self.raw[-3000:]!r}"

    def until_idle(self, quiet: float = 0.3) -> None:
        """Wait until nothing more is written for `quiet` seconds."""
        last, seen = time.monotonic(), -1
        while time.monotonic() - last < quiet and self._read():
            if len(self.raw) != seen:
                last, seen = time.monotonic(), len(self.raw)

    def wait(self) -> int:
        end = time.monotonic() + DEADLINE
        while self._read():
            assert time.monotonic() < end, f"still running\n{self.raw[-3000:]!r}"
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def _read(self) -> bool:
        """False at the end of the output."""
        if select.select([self._fd], [], [], 0.1)[0]:
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # the other side is closed
                return False
            self.raw += data
            return bool(data)
        return True
