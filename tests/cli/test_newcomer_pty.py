"""What somebody who sees the chat for the first time stumbles over, looked at on its screen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest
from test_chat_pty import PROGRAM, Terminal, environment, start  # noqa: F401  # fixtures

from genericagent import prompts


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]{4,}", text)


@pytest.mark.parametrize("columns", [44, 61])
def test_lines_break_inside_of_words(start: Callable[..., Terminal], columns: int) -> None:  # noqa: F811
    t = start([*PROGRAM, "--demo"], columns=columns, GA_LANG="en")
    for command, told in (("/approve", "approve_how"), ("/help", "keys"), ("/nosuchcommand", "unknown")):
        t.send(f"{command}\r")
        wanted = set(words(prompts.catalog("chat")[told].replace("{word}", "nosuchcommand")))
        t.until(lambda wanted=wanted: wanted <= set(words(t.text())))  # type: ignore[misc]
    message = "please compare the specification with everything underneath of documentation"
    t.ask(message)
    assert set(words(message)) <= set(words(t.text().partition("❯ please")[2].partition("Turn")[0]) + ["please"])


def test_a_commands_output_breaks_inside_of_words(
    environment: dict[str, str],  # noqa: F811
) -> None:
    error = "--resume needs the id of a conversation that exists, see ga sessions"
    program = [*PROGRAM, "--demo", "-p", "hello", "--resume", error]
    plain = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False).stderr
    t = Terminal(program, environment, 40)
    try:
        t.wait()
        said = [line for line in t.lines() if line]
        assert len(said) > 2 and set(words(plain)) <= set(words("\n".join(said))), said
    finally:
        t.close()
