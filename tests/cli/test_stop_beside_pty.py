"""Commands that take their time, in the real program: Ctrl-C ends them and nothing else, a bug in one ends it alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import test_chat_pty
from test_chat_pty import CTRL_C, Terminal

from genericagent.scripted import Reply, ScriptedServer, say

environment, start, served = test_chat_pty.environment, test_chat_pty.start, test_chat_pty.served
Served = Callable[..., tuple[Terminal, ScriptedServer]]
HANGS = Reply(text="I think so, but", hang_mid=600)
BROKEN = """
import agentmain, genericagent.control as control, genericagent.cli.doctor as doctor, genericagent.cli.export as export

def broken(*args, **how):
    raise ValueError("the shelf\\nis \\x1b[2Jempty")

agentmain.GenericAgent.aside = control.compact = control.turns = export.export = broken
doctor._home = doctor._browser = broken
"""


@pytest.mark.slow
@pytest.mark.parametrize(("term", "mark"), [("xterm-256color", "❯"), ("dumb", ">")])
@pytest.mark.parametrize("typed", ["/btw is it so?", "/doctor", "!echo begun; sleep 600"])
def test_a_command_that_waits_cannot_be_stopped(served: Served, typed: str, term: str, mark: str) -> None:
    replies = [HANGS] if typed[0] == "/" else []
    t, model = served(*replies, say("Still here."), TERM=term, mark=mark)
    t.send(f"{typed}\r")
    t.until((lambda: len(model.requests) == 1) if typed[0] == "/" else "  begun")
    t.send(CTRL_C)
    t.until(f"stopped: {typed}" if typed[0] == "/" else "✗ !echo")
    t.until(lambda: t.lines()[-1] == mark)
    t.send("are you there?\r")
    t.until("Still here.")
    assert "I think so" not in t.text() and "Error" not in t.text()


def test_stopping_an_aside_stops_the_task(served: Served) -> None:
    t, model = served(HANGS, HANGS)
    t.send("work\r")
    t.until("I think so, but")
    t.send("/btw is it so?\r")
    t.until(lambda: len(model.requests) == 2)
    t.send(CTRL_C)
    t.until("stopped: /btw is it so?")
    assert "interrupted" not in t.text()
    t.send(CTRL_C)
    t.until("interrupted")


def test_a_clipboard_that_hangs_holds_the_input(served: Served, tmp_path: Path) -> None:
    (tools := tmp_path / "tools").mkdir()
    (tools / "xclip").write_text(f"#!/bin/sh\ntouch {shlex.quote(str(tmp_path))}/asked\nexec sleep 600\n")
    (tools / "xclip").chmod(0o755)
    t, _ = served(say("Hello."), say("Still here."), PATH=f"{tools}:/usr/bin:/bin")
    t.ask("hi")
    t.send("/export clip\r")
    t.until(lambda: (tmp_path / "asked").exists())
    t.send(CTRL_C)
    t.until("stopped: /export clip")
    t.ask("are you there?")
    assert "Still here." in t.text()


@pytest.mark.parametrize(("term", "mark"), [("xterm-256color", "❯"), ("dumb", ">")])
def test_a_bug_in_a_command_ends_the_chat_or_is_swallowed(served: Served, tmp_path: Path, term: str, mark: str) -> None:
    (plugins := tmp_path / "home" / "plugins").mkdir(parents=True)
    (plugins / "broken.py").write_text(BROKEN)
    t, _ = served(say("Still here."), TERM=term, mark=mark)
    log = tmp_path / "home" / "logs" / "ga.log"
    for n, (command, times) in enumerate(
        [("/btw why?", 1), ("/compact", 1), ("/rewind", 1), ("/export", 1), ("/doctor offline", 2)]
    ):
        t.send(f"{command}\r")
        told = "a bug: ValueError: the shelf is empty (its traceback"
        t.until(lambda n=n, times=times, told=told: t.text().replace("\n", " ").count(told) == n + times)
        t.until(lambda: t.lines()[-1] == mark)
    assert log.read_text().count("Traceback (most recent call last)") == 6
    assert "Traceback" not in t.text()
    t.send("are you there?\r")
    t.until("Still here.")
