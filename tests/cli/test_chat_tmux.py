"""The chat in tmux, which wraps lines anew when a pane gets narrower."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genericagent.cli.render import SPINNER
from genericagent.scripted import Reply, ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0  # seconds; only a hang is that slow


class Tmux:
    """One pane of a server of its own."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], columns: int) -> None:
        self._name, self._env = name, env
        self("new-session", "-d", "-x", str(columns), "-y", "30", *command)

    def __call__(self, *words: str) -> str:
        command = ["tmux", "-f", "/dev/null", "-L", self._name, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=self._env, timeout=30).stdout

    def send(self, text: str, *keys: str) -> None:
        self("send-keys", "-l", text)
        self("send-keys", *keys)

    def lines(self) -> list[str]:
        """Scrollback and screen."""
        return [line.rstrip() for line in self("capture-pane", "-p", "-S", "-2000").rstrip("\n").split("\n")]

    def until(self, holds: Callable[[list[str]], bool]) -> None:
        end = time.monotonic() + DEADLINE
        while not holds(lines := self.lines()):
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(0.05)


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Callable[..., Tmux]]:
    if not shutil.which("tmux"):
        pytest.skip("NO TMUX HERE: how the chat looks in it was not tested")
    opened: list[Tmux] = []
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "LC_ALL", "TMUX")}
    env = kept | {"GA_HOME": str(tmp_path / "home"), "GA_LANG": "en", "LANG": "C.UTF-8", "TMUX_TMPDIR": str(tmp_path)}

    def begin(server: ScriptedServer, columns: int) -> Tmux:
        command = [sys.executable, str(ROOT / "agentmain.py")]
        address = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url}
        opened.append(Tmux("chat", command, env | address, columns))
        opened[-1].until(lambda lines: lines[-1] == "❯")
        return opened[-1]

    yield begin
    for tmux in opened:
        tmux("kill-server")


def status_lines(lines: list[str]) -> list[str]:
    return [line for line in lines if line[:1] in set(SPINNER) or line.startswith("ready")]


@pytest.mark.slow
def test_the_status_line_multiplies_in_a_narrower_pane(pane: Callable[..., Tmux]) -> None:  # C107
    text = " ".join(f"word{n}" for n in range(400))
    with ScriptedServer([Reply(text=text, chunk=20, pace=0.02)]) as server:
        tmux = pane(server, 120)
        tmux.send("go", "Enter")
        tmux.until(lambda lines: "word" in lines[-3])
        for columns in (60, 100, 45, 120):
            tmux("resize-window", "-x", str(columns), "-y", "30")
            tmux.until(lambda lines: len(status_lines(lines)) == 1 and lines[-1] == "❯")
        tmux.until(lambda lines: any("tokens in" in line for line in lines))
        tmux.until(lambda lines: len(status_lines(lines)) == 1 and lines[-1] == "❯")
        assert "word399" in tmux.lines()[-5] or "word399" in tmux.lines()[-4]
