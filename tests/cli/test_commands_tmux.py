"""Every command of /help, typed into the real program in a real terminal multiplexer, and what the screen shows then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from genericagent.cli.commands import COMMANDS
from genericagent.scripted import Reply, ScriptedServer, call, say

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0  # seconds; only a hang is that slow
WIDTH, HEIGHT = 200, 60  # wide: the paths of a test are long

Step = tuple[str, str]  # what is typed (a key's name in <>), what the screen shows then
TALK: list[Step] = [("write it", "wrote it")]

# What is typed for each command, one program for each; {work} is the workspace, {other} a folder beside it.
TABLE: dict[str, list[Step]] = {
    "help": [("/help", "/rewind [n]")],
    "new": [*TALK, ("/new", "A new conversation begins.")],
    "cost": [*TALK, ("/cost", "requests")],
    "sessions": [*TALK, ("/sessions", "just now"), ("/sessions zebra", "no conversation has these words")],
    "resume": [*TALK, ("/new", "begins"), ("/resume", "Which conversation?"), ("/resume 99", "there is no conversation 99"), ("/resume 1", "Going on with"), ("go on", "and on")],
    "continue": [*TALK, ("/new", "begins"), ("/continue", "Going on with"), ("go on", "and on")],
    "rename": [*TALK, ("/rename My cats", "now called: My cats"), ("/sessions", "My cats")],
    "rewind": [
        *TALK, ("/rewind", "❯ 1. write it"), ("<Enter>", "2. the conversation and these files (1)"), ("<Down>", "❯ 2. the"),
        ("<Enter>", "Files brought back: 1"), ("", "❯ write it"),
    ],
    "export": [*TALK, ("/export", ".md"), ("/export html page", "page.html")],
    "doctor": [("/doctor offline", "Python")],
    "context": [*TALK, ("/context", "tool results"), ("", "of 30,000 tokens")],
    "compact": [*TALK, ("/compact", "There is nothing to shorten yet")],
    "stop": [("/stop", "nothing is running"), ("sleep", "sleep 77"), ("/stop", "interrupted")],
    "btw": [*TALK, ("/btw what was that?", "aside: and on")],
    "ps": [("serve", "it runs"), ("/ps", "1  (while"), ("/ps read 1", "tick"), ("/ps keep 1", "kept when"), ("/ps end 1", "ended: (while")],
    "steer": [("sleep", "sleep 77"), ("/steer to the left", "reads it at its next turn"), ("/stop", "interrupted"), ("", "❯ to the left")],
    "plan": [("/plan", "Plan: the next message"), ("/plan off", "Plan mode is off.")],
    "llm": [("/llm", "❯ 0. scripted"), ("<Down>", "❯ 1. other"), ("<Enter>", "Model: other"), ("/llm 0", "Model: scripted")],
    "verbose": [("/verbose", "verbose: everything"), ("/verbose", "brief: tools")],
    "tools": [("/tools", "file_patch"), ("", "destroying files or data")],
    "workspace": [("/workspace", "Workspace: {work}"), ("/workspace {other}", "Workspace: {other}"), ("/workspace {home}", "this program itself")],
    "approve": [("/approve", "No rules"), ("/approve write:{other}", "conversation: write:{other}"), ("/approve clear", "not any more")],
    "sandbox": [("/sandbox", "Sandbox: off."), ("/sandbox loose", "/sandbox auto"), ("/sandbox off", "your own rights")],
    "language": [("/language zh", "从现在起使用中文"), ("/help", "继续最近的对话"), ("/language en", "From now on")],
    "memory": [("/memory check", "the memory is in order")],
    "quit": [("/quit", "[ended]")],
}  # fmt: skip


class Screen:
    """A tmux server of its own with the program in it."""

    def __init__(self, tmux: str, program: list[str], env: dict[str, str], folder: Path) -> None:
        self._socket = f"ga-test-{uuid.uuid4().hex[:12]}"
        line = " ".join(f"'{word}'" for word in program) + "; echo '[ended]'; cat"
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        self._sockets = tempfile.mkdtemp(prefix="ga-")  # short: a socket's path has 107 bytes
        self._program, self._env = tmux, env | {"TMUX_TMPDIR": self._sockets}
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "-c", str(folder), "sh", "-c", line)

    def _tmux(self, *args: str) -> str:
        done = subprocess.run(
            [self._program, "-L", self._socket, *args], env=self._env, capture_output=True, encoding="utf-8", check=False, timeout=60
        )  # fmt: skip
        assert not done.returncode, f"tmux {args}: {done.stderr}"
        return done.stdout

    def text(self) -> str:
        """What is on the screen; rows that were only broken at its edge are one."""
        return self._tmux("capture-pane", "-p", "-J").rstrip()

    def type(self, what: str) -> None:
        if what.startswith("<"):
            self._tmux("send-keys", what.strip("<>"))
        elif what:
            self._tmux("send-keys", "-l", what)
            self.until(lambda: f"❯ {what}" in self.text() or "\n> " in self.text(), f"the typed {what}")
            self._tmux("send-keys", "Enter")

    def until(self, there: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE
        while not there():
            assert time.monotonic() < end, f"not seen: {what}\n{self.text()}"
            time.sleep(0.05)

    def close(self) -> None:
        self._tmux("kill-server")
        shutil.rmtree(self._sockets)


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    """A model that does what the newest request says."""

    def answer(body: dict[str, object], n: int) -> Reply:
        messages = body["messages"]
        assert isinstance(messages, list)
        newest = str(messages[-1])
        if "tool_result" in newest:
            return say("it runs" if "begun" in newest else "wrote it")
        steps = {
            "write it": call("file_write", path="made.txt", content="made\n"),
            "sleep": call("code_run", type="bash", script="sleep 77"),
            "serve": call("code_run", type="bash", script="(while sleep 0.05; do echo tick; done) & echo begun"),
        }
        return next((step for word, step in steps.items() if word in newest), say("and on"))

    with ScriptedServer(answer) as server:
        yield server


@pytest.fixture
def screen(tmp_path: Path, model: ScriptedServer, tmux: str) -> Iterator[Screen]:
    home = tmp_path / "home"
    for folder in (home, tmp_path / "work", tmp_path / "other"):
        folder.mkdir()
    models = [
        f'[[llm]]\nname = "{name}"\nmodel = "m"\napi = "anthropic"\nbase_url = "{model.url}"\napi_key = "k-of-a-test"'
        for name in ("scripted", "other")
    ]
    (home / "config.toml").write_text("\n".join(models))
    (home / "config.toml").chmod(0o600)
    kept = {
        k: v for k, v in os.environ.items() if k not in ("TMUX", "TMUX_PANE", "NO_COLOR", "COLUMNS", "LINES", "LC_ALL")
    }
    env = kept | {
        "GA_HOME": str(home),
        "GA_LANG": "en",
        "LANG": "C.UTF-8",
        "LC_CTYPE": "C.UTF-8",
        "TERM": "xterm-256color",
        "SHELL": "/bin/sh",
    }
    terminal = Screen(tmux, [sys.executable, str(ROOT / "agentmain.py"), str(tmp_path / "work")], env, tmp_path)
    try:
        yield terminal
    finally:
        terminal.close()


def test_a_command_is_not_tried() -> None:
    assert {entry.name for entry in COMMANDS.values()} == TABLE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_command_does_not_work_in_a_terminal(screen: Screen, name: str, tmp_path: Path) -> None:
    places = {"work": tmp_path / "work", "other": tmp_path / "other", "home": tmp_path / "home"}
    screen.until(lambda: screen.text().endswith("❯"), "the input")
    for typed, shown in TABLE[name]:
        typed, shown = typed.format(**places), shown.format(**places)
        before = screen.text().count(shown)
        screen.type(typed)
        screen.until(
            lambda shown=shown, before=before, typed=typed: screen.text().count(shown) > (before if typed else 0),
            f"{shown!r} after {typed!r}",
        )  # type: ignore[misc]
        if typed and not typed.startswith(("<", "/")) and typed != "sleep":  # a task: it is over when its usage is told
            screen.until(
                lambda: screen.text().rstrip().endswith("❯") and "tokens in" in screen.text(), "the task's end"
            )
    assert "Traceback" not in screen.text() and "Error:" not in screen.text()
    if name == "rewind":
        assert not (tmp_path / "work" / "made.txt").exists()
