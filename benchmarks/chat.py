"""The terminal chat in a real pseudo-terminal: how fast it is there, how fast a key shows, whether the screen keeps up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import statistics
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from harness import ROOT, Row, environment, home

from genericagent.scripted import Reply, ScriptedServer

STARTS = 10
KEYS = 20
LINES = 10_000
RATE, SECONDS = 5_000, 4  # tokens a second; a token is a word of 4 characters and a blank here
PASTED = 2_000
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")


class Terminal:
    """The program in a pty; what it wrote, without escapes, is only kept as long as it is looked for."""

    def __init__(self, env: dict[str, str], columns: int = 100, rows: int = 40) -> None:
        import pty

        self.began = time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            argv = [sys.executable, str(ROOT / "agentmain.py")]
            os.execve(argv[0], argv, env | {"TERM": "xterm-256color", "LANG": "C.UTF-8"})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text: str) -> None:
        data = text.encode()
        while data:  # a pty takes about 4 KB at once; what it answers meanwhile is read, or both would wait
            if select.select([self.fd], [self.fd], [], 5)[1]:
                data = data[os.write(self.fd, data[:1024]) :]

    def until(self, wanted: str, seconds: float = 60) -> float:
        """Seconds until it has been written."""
        began, seen, goal = time.monotonic(), b"", wanted.encode()
        while goal not in ESCAPES.sub(b"", seen):
            if not select.select([self.fd], [], [], seconds)[0] or time.monotonic() > began + seconds:
                raise SystemExit(f"not seen within {seconds} s: {wanted!r} in {seen[-500:]!r}")
            seen = (seen + os.read(self.fd, 1 << 16))[-100_000:]
        return time.monotonic() - began

    def quiet(self, seconds: float = 0.3) -> None:
        while select.select([self.fd], [], [], seconds)[0]:
            os.read(self.fd, 1 << 16)

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@contextlib.contextmanager
def running(*replies: Reply) -> Iterator[Terminal]:
    with home() as folder, ScriptedServer(list(replies)) as server:
        terminal = Terminal(environment(folder, server.url))
        try:
            yield terminal
        finally:
            terminal.close()


def chat() -> list[Row]:
    """All rows."""
    return [_start(), *_keys(), *_stream(), _paste()]


def _start() -> Row:
    with home() as folder, ScriptedServer([]) as server:
        times = []
        for _ in range(STARTS + 2):
            terminal = Terminal(environment(folder, server.url))
            terminal.until("❯")
            times.append(time.monotonic() - terminal.began)
            terminal.close()
    warm = sorted(times[2:])
    note = f"median of {len(warm)}, warm; {warm[0]:.3f} to {warm[-1]:.3f}"
    return Row("process start → the chat's prompt", statistics.median(warm), "s", 0.35, note)


def _keys() -> list[Row]:
    code = "```\n" + "".join(f"line {n} of the output\n" for n in range(LINES)) + "```\nAll is there.\n"
    rows = []
    with running(Reply(text=code, chunk=2_000)) as terminal:
        terminal.until("❯")
        terminal.send("go\r")
        terminal.until("All is there.", 120)
        terminal.quiet(1.0)
        times = []
        for n in range(KEYS):
            terminal.send("QXZJKVWYUB"[n % 10])
            times.append(1000 * terminal.until("QXZJKVWYUB"[n % 10]))
            terminal.quiet(0.05)
        note = f"median of {KEYS} keys; {min(times):.1f} to {max(times):.1f}"
        rows.append(Row(f"a key's echo after {LINES:,} lines of output", statistics.median(times), "ms", 50, note))
    return rows


def _stream() -> list[Row]:
    """An answer at 5,000 tokens a second: how far the screen lags behind at its end, and the CPU of a chunk, early and late."""
    words = "\n\n".join(" ".join(f"w{n:03d}" for n in range(100)) for _ in range(RATE * SECONDS // 100))
    chunk, pace = 5 * 50, 50 / RATE
    ended: list[float] = []

    def answer(body: object, number: int) -> Reply:
        return Reply(text=words + "\n\nThe very end.", chunk=chunk, pace=pace)

    rows = []
    with home() as folder, ScriptedServer(answer) as server:
        terminal = Terminal(environment(folder, server.url))
        try:
            terminal.until("❯")
            costs = []
            for run in range(3):
                before = terminal.cpu()
                terminal.send(f"go {run}\r")
                threading.Thread(target=_answered, args=(server, run + 1, ended), daemon=True).start()
                terminal.until("The very end.", 120)
                seen = time.monotonic()
                terminal.until("tokens in")
                while len(ended) <= run:
                    time.sleep(0.01)
                costs.append((terminal.cpu() - before) / (len(words) / chunk) * 1000)
                lag = 1000 * (seen - ended[run])
                terminal.quiet(0.3)
        finally:
            terminal.close()
    note = f"the end of the answer sent → on the screen; {RATE * SECONDS:,} tokens in pieces of 50"
    rows.append(Row(f"lag of the screen at {RATE:,} tokens a second", lag, "ms", 200, note))
    note = f"of a chunk of {chunk} characters, in the third answer of that length; in the first {costs[0]:.2f}"
    rows.append(Row("CPU of the whole program a chunk, late in a long session", costs[-1], "ms", 1.3 * costs[0], note))
    return rows


def _answered(server: ScriptedServer, number: int, ended: list[float]) -> None:
    """Notes when the whole answer was written."""
    while len(server.requests) < number or (answered := server.requests[number - 1].answered) is None:
        time.sleep(0.002)
    ended.append(answered)


def _paste() -> Row:
    text = "".join(f"line {n} of a paste\n" for n in range(PASTED))
    with running(Reply(text="ok")) as terminal:
        terminal.until("❯")
        terminal.quiet()
        began = time.monotonic()
        terminal.send(f"\x1b[200~{text}\x1b[201~")
        terminal.until("Pasted text #1")
        seconds = time.monotonic() - began
    return Row(f"a paste of {PASTED:,} lines → on the screen", seconds, "s", 1.0)
