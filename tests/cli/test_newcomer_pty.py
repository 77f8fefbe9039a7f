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


@pytest.mark.slow
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


def test_the_numbers_in_a_menu_are_not_those_that_the_command_takes(start: Callable[..., Terminal]) -> None:  # noqa: F811
    t = start()
    for typed, named in (("1", "gpt"), ("0", "claude")):
        t.send("/llm\r")
        t.until(lambda named=named, typed=typed: re.search(rf"(?m)^. {typed}\. {named}$", t.text()))  # type: ignore[misc]
        for said in (f"{typed}\r", f"/llm {typed}\r"):  # the menu's row, and the command's
            before = t.text().count(f"Model: {typed}")
            t.send(said)
            t.until(lambda typed=typed, before=before: t.text().count(f"Model: {typed}") > before)  # type: ignore[misc]


def test_resume_without_a_word_lists_instead_of_asking(start: Callable[..., Terminal]) -> None:  # noqa: F811
    t = start()
    t.send("/resume\r")
    t.until("❯ 1. newest · just now")
    t.send(b"\x1b[B\r")
    t.until("Going on with s-old: older")


def test_columns_collapse_in_a_narrow_window(start: Callable[..., Terminal]) -> None:  # noqa: F811
    t = start([*PROGRAM, "--demo"], columns=40, rows=60, GA_LANG="en")
    t.send("/tools\r")
    t.until(" settings\nready")
    assert "  allowed  code_run · runs Python or\n    shell scripts\n" in t.text()
    t.send("/doctor offline\r")
    t.until("clock:")
    assert "ok      this chat: asks before writes\n        outside the workspace, what\n        destroys, " in t.text()
