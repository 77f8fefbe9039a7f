"""Running the program the way a user's script does, and reading its clock, CPU and memory.

The model server runs in this process, the program in its own; CPU is the program's alone, from wait4(2):
user + system time of the process and of the children it waited for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from genericagent.scripted import Recorded, Script, ScriptedServer  # noqa: E402
from genericagent.scripted.render import Kind  # noqa: E402

KINDS: tuple[Kind, ...] = ("anthropic", "chat", "responses")
# without PYTHONDONTWRITEBYTECODE: a user's second start finds compiled files
_REMOVED = ("PYTHONDONTWRITEBYTECODE", "ANTHROPIC_", "OPENAI_", "GA_", "PYTHONPROFILE", "PYTHONTRACEMALLOC")


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, its value, and what to reach: the value may not be above it, or below if `least`."""

    figure: str
    value: float
    unit: str
    reach: float | None = None
    note: str = ""
    least: bool = False

    @property
    def verdict(self) -> str:
        if self.reach is None:
            return ""
        return "ok" if (self.value >= self.reach if self.least else self.value <= self.reach) else "MISSED"


@dataclass(frozen=True)
class Run:
    """One finished run of the program. Times in seconds."""

    began: float  # time.monotonic() just before the process was started
    seconds: float
    cpu: float
    requests: list[Recorded]


@contextmanager
def home() -> Iterator[Path]:
    """A fresh $GA_HOME."""
    folder = Path(tempfile.mkdtemp(prefix="ga-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def environment(folder: Path, url: str, kind: Kind = "anthropic") -> dict[str, str]:
    """The environment of a run: no other model, no other settings than the one on `url`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_REMOVED)}
    env |= {"GA_HOME": str(folder), "GA_LANG": "en"}
    if kind == "anthropic":
        return env | {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": url}
    if kind == "chat":
        return env | {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "gpt-5"}
    entry = f'[[llm]]\napi = "responses"\nmodel = "gpt-5"\napi_key = "k"\nbase_url = "{url}/v1"\n'
    (folder / "config.toml").write_text(entry, encoding="utf-8")
    return env


def run_task(
    replies: Script,
    text: str = "Say hello.",
    *args: str,
    kind: Kind = "anthropic",
    folder: Path | None = None,
    expect: int = 0,
    started: Callable[[int], None] = lambda pid: None,
) -> Run:
    """`python agentmain.py --task bench --input TEXT …` against a scripted model, once. Raises if it went wrong."""
    with ScriptedServer(replies) as server:
        if folder is None:
            with home() as fresh:
                return _run(server, text, args, environment(fresh, server.url, kind), expect, started)
        return _run(server, text, args, environment(folder, server.url, kind), expect, started)


def _run(
    server: ScriptedServer, text: str, args: Sequence[str], env: Mapping[str, str], expect: int, started: Callable[[int], None]
) -> Run:  # fmt: skip
    command = [sys.executable, str(ROOT / "agentmain.py"), "--task", "bench", "--input", text, *args]
    with tempfile.TemporaryFile() as errors:
        began = time.monotonic()
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=env, cwd=env["GA_HOME"]
        )
        started(program.pid)
        _, status, used = os.wait4(program.pid, 0)
        seconds = time.monotonic() - began
        program.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace").strip()
    if program.returncode != expect:
        raise SystemExit(f"the program ended with {program.returncode} instead of {expect}: {said}")
    cpu = used.ru_utime + used.ru_stime
    return Run(began, seconds, cpu, server.requests)
