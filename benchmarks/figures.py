"""One function a figure; each returns the rows of the table it fills."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import KINDS, ROOT, Row, home, run_task

from genericagent.scripted import Reply, call, say
from genericagent.scripted.render import Kind, render

START_RUNS = 20
TURNS = 20
EVENTS, EVENT_CHARS = 40_000, 50  # 2 MB of text
STREAM_RUNS = 3
OUTPUTS, OUTPUT_RUNS = 10, 5
MEMORY_TURNS = 60
LONG_TURNS, LONG_FROM = 500, 50


def start() -> list[Row]:
    """Process start → first bytes of the first model request."""
    times = []
    with home() as folder:
        for _ in range(START_RUNS + 3):
            run = run_task([say("ok")], folder=folder)
            times.append(run.requests[0].arrived - run.began)
    warm = sorted(times[3:])
    note = f"median of {len(warm)}, warm; {warm[0]:.3f} to {warm[-1]:.3f}"
    return [Row("process start → first model request", statistics.median(warm), "s", 0.18, note)]


_COUNT = """import bpe_openai, json, sys
encoding = bpe_openai.get_encoding("o200k_base")
print(json.dumps({k: len(encoding.encode_ordinary(v)) for k, v in json.load(sys.stdin).items()}))"""


def tokens() -> list[Row]:
    """Size of the first request in o200k tokens."""
    body: dict[str, Any] = run_task([say("ok")]).requests[0].body
    texts = {
        "system": _texts(body.get("system")),
        "tools": json.dumps(body["tools"], ensure_ascii=False),
        "user": "\n".join(_texts(m["content"]) for m in body["messages"]),
        "body": json.dumps(body, ensure_ascii=False),
        "memory": _texts(body.get("system")).partition("# Memory")[2],
    }
    command = [sys.executable, "-c", _COUNT]
    counted = subprocess.run(command, input=json.dumps(texts), text=True, capture_output=True, check=True)
    parts: dict[str, int] = json.loads(counted.stdout)
    whole, memory = parts.pop("body"), parts.pop("memory")
    how = ", ".join(f"{k} {v}" for k, v in parts.items())
    note = f"system text + json.dumps(tools) + user text: {how}; the whole body as JSON is {whole}"
    figure = f"first request, {len(body['tools'])} tools, no history"
    layers = Row("of it memory: what lies where, and the shipped index", memory, "tokens", 600)
    return [Row(figure, sum(parts.values()), "tokens", 1800, note), layers]


def _texts(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content)
    return str(content or "")


def turn() -> list[Row]:
    """Last byte of an answer sent → first bytes of the next request, the tool being `echo hi`."""

    def script(body: dict[str, Any], n: int) -> Reply:
        return call("code_run", type="bash", script="echo hi") if n < TURNS else say("done")

    run = run_task(script, "Say hi twenty times.", "--max-turns", str(TURNS + 5))
    gaps = sorted(r.gap * 1000 for r in run.requests if r.gap is not None)
    note = f"median of {len(gaps)} turns of `echo hi` through bash; {gaps[0]:.1f} to {gaps[-1]:.1f}"
    return [Row("time the client adds per turn", statistics.median(gaps), "ms", 12, note)]


def stream() -> list[Row]:
    """CPU of a whole task that is one answer of 2 MB in 40,000 events."""
    words = "The quick brown fox jumps over the lazy dog, once. "[:EVENT_CHARS]
    text = "".join(words if i % 12 else words[:-1] + "\n" for i in range(EVENTS))
    rows = []
    for kind in KINDS:
        for how, packet in (("one chunk an event", 0), ("chunks of 64 KB", 65536)):
            for flag in ("", "--verbose"):
                reply = _rendered(kind, text, packet)
                used = [
                    run_task([reply], "Tell me everything.", *flag.split(), kind=kind).cpu for _ in range(STREAM_RUNS)
                ]
                figure = f"2 MB answer, {kind}{' ' + flag if flag else ''}, {how}"
                reach = 0.55 if kind == "responses" else 0.45
                rows.append(Row(figure, statistics.median(used), "s CPU", reach, f"median of {STREAM_RUNS}"))
    return rows


def _rendered(kind: Kind, text: str, packet: int) -> Reply:
    """The answer as bytes, made before the clock runs."""
    _, pieces = render(kind, Reply(text=text, chunk=EVENT_CHARS), {"model": "m", "stream": True}, 0)
    return Reply(events=[piece.data for piece in pieces], packet=packet)


def output() -> list[Row]:
    """What a tool output of 1 MB costs: the CPU of a task with ten of them over one with ten tiny ones."""
    with home() as folder:
        line = "a line of output as a compiler or a log would write it, eighty bytes with its end\n"[-80:]
        (folder / "big.txt").write_text(line * (1_000_000 // len(line)), encoding="ascii")
        (folder / "tiny.txt").write_text("hi\n", encoding="ascii")
        used: dict[str, list[float]] = {"big": [], "tiny": []}
        for _ in range(OUTPUT_RUNS):
            for size, seconds in used.items():
                command = f"cat {folder}/{size}.txt"
                script = [call("code_run", type="bash", script=command) for _ in range(OUTPUTS)]
                seconds.append(run_task([*script, say("done")], folder=folder).cpu)
    cost = (statistics.median(used["big"]) - statistics.median(used["tiny"])) / OUTPUTS * 1000
    note = (
        f"one of {OUTPUTS} in a task, against a tiny output; the CPU of `cat` itself included; median of {OUTPUT_RUNS}"
    )
    return [Row("CPU of a 1 MB tool output", cost, "ms CPU", 15, note)]


class Watched:
    """The memory of the running program, from proc(5). (A child's ru_maxrss begins with the size of its parent.)"""

    pid = 0

    def started(self, pid: int) -> None:
        self.pid = pid

    def megabytes(self, field: str) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) * 1024 / 1e6


def memory() -> list[Row]:
    """Peak resident size of a task of 60 turns, each with a paragraph, a tool call and 5 KB of output."""
    said = "<summary>turn {n}: looked at the next part</summary>\n" + "I look at the next part of it. " * 10

    process, peak = Watched(), 0.0

    def script(body: dict[str, Any], n: int) -> Reply:
        nonlocal peak
        if n == MEMORY_TURNS:
            return say("nothing to store")
        if n == MEMORY_TURNS - 1:
            peak = process.megabytes("VmHWM")
            return say("done")
        reply = call("code_run", type="bash", script=f"seq {n * 1000} {n * 1000 + 999}")
        reply.text = said.format(n=n)
        return reply

    run = run_task(script, "Go through all of it.", "--max-turns", str(MEMORY_TURNS + 5), started=process.started)
    if len(run.requests) != MEMORY_TURNS + 1:  # and the question what it taught
        raise SystemExit(f"{len(run.requests) - 1} turns instead of {MEMORY_TURNS}")
    note = "VmHWM of the process at its last request"
    return [Row(f"peak memory of a {MEMORY_TURNS}-turn task", peak, "MB", 45, note)]


def long() -> list[Row]:
    """How much a task of 500 turns grows after its 50th."""
    process, sizes = Watched(), dict[int, float]()

    def script(body: dict[str, Any], n: int) -> Reply:
        if n in (LONG_FROM, LONG_TURNS - 1):
            sizes[n] = process.megabytes("VmRSS")
        if n >= LONG_TURNS - 1:
            return say("done")
        reply = call("code_run", type="bash", script=f"seq {n * 1000} {n * 1000 + 999}")
        reply.text = f"<summary>turn {n}: looked at the next part</summary>\nI look at it."
        return reply

    run = run_task(script, "Go through all of it.", "--max-turns", str(LONG_TURNS + 5), started=process.started)
    if len(run.requests) != LONG_TURNS + 1:  # and the question what it taught
        raise SystemExit(f"{len(run.requests) - 1} turns instead of {LONG_TURNS}")
    grown = sizes[LONG_TURNS - 1] - sizes[LONG_FROM]
    note = f"resident size {sizes[LONG_FROM]:.1f} MB at turn {LONG_FROM}, {sizes[LONG_TURNS - 1]:.1f} at the end"
    return [
        Row(
            f"growth of a {LONG_TURNS}-turn task",
            grown,
            "MB",
            10,
            f"{note}; {run.seconds / LONG_TURNS * 1000:.0f} ms a turn",
        )
    ]


def install() -> list[Row]:
    """What an installation adds to an empty venv."""
    folder = Path(tempfile.mkdtemp(prefix="ga-bench-"))
    try:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = str(folder / "venv" / "bin" / "python")
        size, packages = _size(folder / "venv"), _packages(folder / "venv")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", str(ROOT)]
        subprocess.run(pip, check=True, stderr=subprocess.PIPE)
        added = _packages(folder / "venv") - packages
        grown = (_size(folder / "venv") - size) / 1e6
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    names = ", ".join(sorted(added))
    return [
        Row("installed over an empty venv", grown, "MB", 32, "sum of the file sizes, compiled files included"),
        Row("packages", len(added), "packages", 13, names),
    ]


def _size(folder: Path) -> int:
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def _packages(folder: Path) -> set[str]:
    return {f.name.split("-")[0] for f in folder.rglob("*.dist-info")}


def context() -> list[Row]:
    """See context_cost.py."""
    from context_cost import TASKS

    return [row for task in TASKS.values() for row in task()]


def in_file(module: str, function: str) -> Callable[[], list[Row]]:
    """Figures of a file of their own, loaded when they are wanted."""
    return lambda: list(getattr(import_module(module), function)())


FIGURES: dict[str, Callable[[], list[Row]]] = {
    "start": start,
    "tokens": tokens,
    "turn": turn,
    "stream": stream,
    "output": output,
    "memory": memory,
    "long": long,
    "context": context,
    "install": install,
    "evolution": in_file("evolution", "evolution"),
    "browser": in_file("browser", "browser"),
    "chat": in_file("chat", "chat"),
    "telegram": in_file("telegram_bot", "telegram"),
    "sandbox": in_file("sandbox_cost", "sandbox"),
    "sessions": in_file("sessions", "sessions"),
    "durability": in_file("durability", "durability"),
}
