"""The chat in a real pseudo-terminal, its screen read by a terminal emulator."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest

from genericagent.cli.render import SPINNER
from genericagent.scripted import Reply, ScriptedServer, call, say

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, str(ROOT / "agentmain.py")]
FAKE = [sys.executable, str(ROOT / "tests" / "cli" / "fake_agent.py")]
DEADLINE = 60.0  # seconds; only a hang is that slow
PASTE, PASTED = b"\x1b[200~", b"\x1b[201~"
CTRL_C, CTRL_D, CTRL_J, ESC = b"\x03", b"\x04", b"\n", b"\x1b"
TITLE = re.compile(rb"\x1b\]2;[^\x07\x1b]*GenericAgent\x07|\x1b\]2;\x07")


class Terminal:
    """A program in a pty and what its screen shows."""

    def __init__(self, argv: list[str], env: dict[str, str], columns: int = 80, rows: int = 30) -> None:
        import pty

        self.screen = pyte.HistoryScreen(columns, rows, history=20_000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._above: list[str] = []  # the scrollback, as text
        self.code: int | None = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # as a terminal has it, however the tests were started
            os.execve(argv[0], argv, env)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys: bytes | str) -> None:
        os.write(self.fd, keys.encode() if isinstance(keys, str) else keys)

    def read(self, wait: float = 0.1) -> bool:
        """Take all that the program wrote; False at its end."""
        while select.select([self.fd], [], [], wait)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the other side is closed
                return False
            self.raw += data
            self._stream.feed(data)
            wait = 0
        return True

    def lines(self) -> list[str]:
        """Scrollback and screen, without the empty lines at the end."""
        width, top = self.screen.columns, self.screen.history.top
        self._above += ["".join(row[x].data for x in range(width)).rstrip() for row in top]
        top.clear()
        lines = self._above + [line.rstrip() for line in self.screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def text(self) -> str:
        return "\n".join(self.lines())

    def until(self, wanted: str | Callable[[], bool]) -> None:
        """Wait until the screen shows `wanted`, or the condition holds."""
        end = time.monotonic() + DEADLINE
        while not (wanted in self.text() if isinstance(wanted, str) else wanted()):
            assert time.monotonic() < end, f"not seen: {wanted}\n{self.text()}"
            assert self.read() or (isinstance(wanted, str) and wanted in self.text()), self.text()

    def input(self) -> str:
        """The text after the newest input mark, wrapped lines joined."""
        at = self.text().rpartition("❯")[2]
        return "".join(line.removeprefix("  ") for line in at.split("\n")).strip()

    def ask(self, text: str) -> None:
        """Type a message, send it, wait until its task is over."""
        before = self.text().count("tokens in")
        self.send(text + "\r")
        self.until(lambda: self.text().count("tokens in") > before and not self.input())

    def wait(self) -> int:
        end = time.monotonic() + DEADLINE
        while self.code is None:
            assert time.monotonic() < end, f"still running\n{self.text()}"
            self.read(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                while self.read(0.05) and select.select([self.fd], [], [], 0.05)[0]:
                    pass  # its last words
        return self.code

    def close(self) -> None:
        """As a closed window does it: first there is time to clean up."""
        for number, seconds in ((signal.SIGHUP, 3.0), (signal.SIGKILL, 60.0)):
            end = time.monotonic() + seconds
            if self.code is None:
                with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                    os.kill(self.pid, number)
            while self.code is None and time.monotonic() < end:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.code = os.waitstatus_to_exitcode(status) if pid else None
                time.sleep(0 if pid else 0.02)
        os.close(self.fd)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES", "LC_ALL", "GA_LANG")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return kept | {
        "GA_HOME": str(tmp_path / "home"), "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": path,
    }  # fmt: skip


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., Terminal]]:
    """Start the chat with the fake agent and wait for its input."""
    open_: list[Terminal] = []

    def begin(argv: list[str] = FAKE, *, columns: int = 80, rows: int = 30, mark: str = "❯", **env: str) -> Terminal:
        terminal = Terminal(argv, environment | env, columns, rows)
        open_.append(terminal)
        terminal.until(lambda: terminal.lines()[-1:] == [mark])
        return terminal

    yield begin
    for terminal in open_:
        terminal.close()


def test_first_screen_and_an_answer(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("hello")
    assert t.lines() == [
        "scripted demo",
        "fake-model · /tmp",
        "Enter sends · Alt+Enter or Ctrl+J new line · Ctrl-C stops · /help",
        "",
        "❯ hello",
        "",
        "── Turn 1 ──",
        "",
        "got 'hello'",
        "1.2k tokens in · 56 out · 50 % from cache · $0.0123",
        "ready",
        "❯",
    ]


def test_chinese_screen(start: Callable[..., Terminal]) -> None:
    t = start(GA_LANG="zh")
    t.send("/help\r")
    t.until("开始新的对话")
    t.send("你好\r")
    t.until("got '你好'")


def test_a_message_takes_several_lines(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send(b"one\x1b\rtwo" + CTRL_J + b"three")
    t.until(lambda: t.lines()[-3:] == ["❯ one", "  two", "  three"])
    t.send("\r")
    t.until("got 'one\\ntwo\\nthree'")


def test_tool_output_scrolls_and_its_rest_is_counted(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("tool")
    lines = t.lines()
    at = lines.index("✓ code_run  bash: seq 40")
    assert lines[at - 2] == "I run it."
    assert lines[at + 1 : at + 8] == "  0,  1,  2,  3,  … 34 more lines · Ctrl+O shows them,  38,  39".split(",")  # noqa: SIM905
    assert "tool_use" not in t.text() and "All 40 are there." in lines


# input


def test_wide_characters_are_mismeasured(start: Callable[..., Terminal]) -> None:  # C100
    t = start()
    t.send("世" * 60)
    t.until(lambda: t.input().count("世") == 60)
    assert [line.count("世") for line in t.lines()[-2:]] == [39, 21]
    assert (t.screen.cursor.y, t.screen.cursor.x) == (5, 44)  # two cells a character, after the indentation
    t.send(b"\x7f" * 22)
    t.until(lambda: t.input().count("世") == 38)
    assert (t.screen.cursor.y, t.screen.cursor.x) == (4, 78)
    t.send(b"\x1b[D\x1b[D" + "界".encode())
    t.until(lambda: t.input() == "世" * 36 + "界" + "世" * 2)
    t.send(PASTE + ("🎉" * 50 + "\n" + "👍" * 50).encode() + PASTED + b"\r")
    t.until(lambda: "got" in t.text() and not t.input())
    answer = t.text().rpartition("got")[2]
    assert answer.count("世") == 38 and answer.count("🎉") == answer.count("👍") == 50


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 2, 5])
def test_a_paste_marker_split_in_two_leaks(start: Callable[..., Terminal], cut: int) -> None:  # C101
    t = start()
    t.send(PASTE[:cut])
    time.sleep(0.7)  # a slow line: longer than prompt_toolkit's own patience, 0.5 s
    t.send(PASTE[cut:] + b"first\nsecond" + PASTED[:cut])
    time.sleep(0.7)
    t.send(PASTED[cut:] + b" end\r")
    t.until("got 'first\\nsecond end'")


def test_a_paste_while_text_streams_is_typed_in(start: Callable[..., Terminal], tmp_path: Path) -> None:  # C101
    t = start()
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    for n in range(10):
        t.send(PASTE + b"line one\nline two %d\n" % n + PASTED)
        t.read()
    t.until(lambda: "line two 9" in t.input())
    (tmp_path / "go").touch()
    t.until("tokens in")
    t.send("\r")
    t.until(lambda: "\ngot" in t.text() and t.text().count("tokens in") == 2)
    pasted = "".join(f"line one\\nline two {n}\\n" for n in range(10)).removesuffix("\\n")
    answer = t.text().rpartition("got")[2]
    assert pasted.replace(" ", "") in "".join(answer.split())  # wrapped where a space was
    assert "200~" not in t.text()


def test_a_long_message_floods_the_screen_or_is_cut(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send(CTRL_J.join(b"line %d" % n for n in range(200)))
    t.until("line 199")
    t.send("\r")
    t.until(lambda: "tokens in" in t.text() and not t.input())
    assert "… 188 more lines" in t.text()
    assert "line 199'" in t.text()  # the answer repeats the message: all of it arrived


def test_history_is_kept_across_restarts_and_private(start: Callable[..., Terminal], tmp_path: Path) -> None:
    t = start()
    t.ask("remember me")
    t.send(CTRL_D)
    assert t.wait() == 0
    assert (tmp_path / "home" / "chat_history").stat().st_mode & 0o777 == 0o600
    again = start()
    again.send(b"\x1b[A")
    again.until(lambda: again.input() == "remember me")
    again.send(CTRL_C + b"\x12rememb")  # Ctrl-R searches
    again.until(lambda: "remember me" in again.input())


def test_an_unwritable_home_ends_the_chat(start: Callable[..., Terminal], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder should be")
    t = start()
    t.ask("hello")
    assert "got 'hello'" in t.text()


# running and stopping


def test_typing_during_a_run_is_lost(start: Callable[..., Terminal], tmp_path: Path) -> None:
    t = start()
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    t.send("next one")
    t.until(lambda: "next one" in t.input())
    t.send("\r")
    t.until("queued (1)")
    (tmp_path / "go").touch()
    t.until("got 'next one'")
    assert t.text().count("❯ next one") == 1 and "queued" not in t.text()


def test_a_waiting_message_cannot_be_taken_back(start: Callable[..., Terminal], tmp_path: Path) -> None:
    t = start()
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    t.send("first\rsecond\r")
    t.until("queued (2)")
    t.send(b"\x1b[A")
    t.until(lambda: t.input() == "second")
    t.until("queued (1)")
    t.send(CTRL_C)  # clears it, and the task goes on
    t.until(lambda: t.input() == "")
    (tmp_path / "go").touch()
    t.until("got 'first'")
    t.ask("third")
    assert "got 'third'" in t.text() and "got 'second'" not in t.text()


def test_a_word_for_the_running_task_waits_for_its_end(start: Callable[..., Terminal], tmp_path: Path) -> None:
    """Ctrl+T steers; what came too late for a further turn is the next message."""
    t = start()
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    t.send(b"left instead\x14")
    t.until("❯ ↪ left instead")
    t.until("↪ read at the next turn, else sent at the end: left instead")
    (tmp_path / "go").touch()
    t.until("got 'left instead'")
    late = t.lines().index("The task ended before it could read this: it is the next message.")
    assert t.lines()[late + 1 : late + 3] == ["", "❯ left instead"] and "else sent" not in t.text()


@pytest.mark.parametrize(("before", "after"), [("", "\x14"), ("/steer ", "\r")])
def test_a_paste_for_the_running_task_is_a_command_when_it_is_over(
    start: Callable[..., Terminal], tmp_path: Path, before: str, after: str
) -> None:
    t = start()
    for pasted in ("/session.max_tokens=5", "!touch owned"):
        t.send(before.encode() + PASTE + pasted.encode() + PASTED)
        t.until("Pasted text")
        t.send(after)
        t.until(f"got {pasted!r}")  # nothing runs: it is a message
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    t.send(before.encode() + PASTE + b"!touch later" + PASTED)
    t.until("Pasted text #3")
    t.send(after)
    t.until("❯ ↪ [Pasted" if after == "\x14" else "reads it at its next turn")
    (tmp_path / "go").touch()
    t.until("got '!touch later'")
    assert "❯ [Pasted text #3 +1 lines]" in t.lines()


def test_what_is_folded_cannot_be_read(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("tool")
    assert "  20" not in t.lines()
    t.send(b"\x0f")
    t.until("▾ code_run  bash: seq 40")
    assert "  20" in t.lines()
    t.send(b"\x0f")
    t.until("nothing is folded")


@pytest.mark.slow
def test_the_status_line_doubles_when_the_width_changes(start: Callable[..., Terminal], tmp_path: Path) -> None:
    t = start(columns=120)
    t.send(f"until {tmp_path}/go\r")
    t.until("word word")
    for columns in (60, 100):
        t.resize(columns, 30)
        seen = time.monotonic() + 1
        t.until(lambda seen=seen: time.monotonic() > seen)
    (tmp_path / "go").touch()
    t.until("tokens in")
    t.until(lambda: t.lines()[-2:] == ["ready", "❯"])
    assert [line for line in t.lines() if line[:1] in set(SPINNER)] == []


def test_the_end_and_a_question_sound_alike(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("hello")
    assert b"\x07" not in TITLE.sub(b"", t.raw)  # short: the user is still there
    t.ask("ask")
    t.until(lambda: TITLE.sub(b"", t.raw).count(b"\x07") == 2)


def test_ctrl_c_clears_then_stops_then_asks(start: Callable[..., Terminal]) -> None:  # C103, C059
    t = start()
    t.send("some text")
    t.until(lambda: t.input() == "some text")
    t.send(CTRL_C)
    t.until(lambda: t.input() == "")
    t.send("slow\r")
    t.until("first line")
    t.send("a draft")
    t.until(lambda: t.input() == "a draft")
    t.send(CTRL_C)
    t.until(lambda: t.input() == "")
    assert "interrupted" not in t.text()
    t.send(CTRL_C)
    t.until("interrupted")
    t.ask("still there?")
    assert "got 'still there?'" in t.text()
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.send("x")
    t.until(lambda: t.input() == "x")
    t.send(CTRL_C)  # clears, and takes the question back
    t.until(lambda: t.input() == "")
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.send(CTRL_C)
    assert t.wait() == 0
    assert t.text().replace("\n", "").endswith("python agentmain.py --resume 20250101-abcd")


def test_a_second_reflex_press_quits_the_program(start: Callable[..., Terminal]) -> None:  # C103
    t = start()
    t.send("slow\r")
    t.until("first line")
    t.send(CTRL_C + CTRL_C)
    t.until("interrupted")
    t.ask("alive")


@pytest.mark.slow
def test_the_question_before_quitting_stays_armed_for_ever(start: Callable[..., Terminal]) -> None:  # C103
    t = start()
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.until(lambda: "press Ctrl-C" not in t.text())
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")


def test_ctrl_d_kills_running_work(start: Callable[..., Terminal]) -> None:  # C103
    t = start()
    t.send("slow\r")
    t.until("first line")
    t.send(CTRL_D)
    t.until("press Ctrl-D again")
    t.send(CTRL_D)
    assert t.wait() == 0
    assert t.lines()[-3].startswith("interrupted") and "--resume" in t.lines()[-1]


def test_a_queued_message_runs_after_a_stop(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("slow\r")
    t.until("first line")
    t.send("and then this\r")
    t.until("queued (1)")
    t.send(CTRL_C)
    t.until(lambda: "interrupted" in t.text() and t.input() == "and then this")
    t.send("\r")
    t.until("got 'and then this'")


def test_stop_command_and_quit_command(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("slow\r")
    t.until("first line")
    t.send("/new\r")
    t.until("has to wait")
    t.send("/stop\r")
    t.until("interrupted")
    t.send("/quit\r")
    assert t.wait() == 0


def test_a_question_is_answered_by_a_number_or_text(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("ask")
    assert "Which colour?" in t.lines() and "Waiting for" not in t.text()
    t.until("  1. red\n  2. blue\nwaiting for your answer\n❯")
    t.ask("2")
    assert "got 'blue'" in t.text() and "1. red" not in t.text()
    t.ask("2")
    assert "got '2'" in t.text()  # the question is answered: a number is a number again


def test_the_arrow_keys_do_not_choose_or_text_of_ones_own_is_refused(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("ask")
    t.until("  1. red")
    t.send(b"\r\x1b[B")  # Enter alone takes nothing that the model offers
    t.until("❯ 1. red")
    t.send(b"\x1b[B")
    t.until("❯ 2. blue")
    t.send(b"\x1b[B\x1b[A\r")
    t.until("got 'blue'")
    t.ask("ask")
    t.until("  1. red")
    t.ask("green")
    assert "got 'green'" in t.text() and "1. red" not in t.text()


def test_what_was_typed_before_a_question_answers_it(start: Callable[..., Terminal], tmp_path: Path) -> None:  # C103
    t = start()
    t.send(f"permit {tmp_path}/go\r")
    t.until("waiting for the model")
    t.send("y")
    t.until(lambda: t.input() == "y")
    (tmp_path / "go").touch()
    t.until("May code_run do this?")
    t.send("\r")
    t.until("begun before the question was there")
    assert "answered" not in t.text() and t.input() == "y"
    t.send("\r")
    t.until("answered once")


def test_a_pasted_text_is_a_command(start: Callable[..., Terminal]) -> None:
    t = start()
    for typed, pasted in (("", "/approve exec"), ("", "!touch owned"), ("", "/session.max_tokens=5")):
        t.send(typed.encode() + PASTE + pasted.encode() + PASTED)
        t.until("Pasted text")
        t.ask("")
        t.until(f"got {pasted!r}")
    t.send(b"/approve " + PASTE + b"x" * 2000 + PASTED + b"\r")
    t.until("Pasted text #4")
    assert "xxxx" not in t.text() and "Allowed for this conversation" not in t.text()


@pytest.mark.slow
def test_a_signal_waits_for_a_terminal_that_takes_nothing(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("flood 100000\r")
    t.until("word5")
    time.sleep(0.5)  # nobody reads: its output fills the pipe
    os.kill(t.pid, signal.SIGTERM)
    end = time.monotonic() + DEADLINE
    while not (ended := os.waitpid(t.pid, os.WNOHANG))[0]:
        assert time.monotonic() < end
        time.sleep(0.05)
    t.code = os.waitstatus_to_exitcode(ended[1])
    assert t.code == 128 + signal.SIGTERM


def test_several_questions_are_asked_as_one(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("form")
    t.until("1/2 Which colour?")
    assert t.text().count("Which colour?") == 1 and "What name?" not in t.text() and "Choose with" in t.text()
    t.send(b"\x1b[B\x1b[B\r")
    t.until("2/2 What name?")
    t.ask("Ada")
    assert "got '1. blue\\n2. Ada'" in t.text()
    t.ask("form")
    t.until("  1. red\n  2. blue\nwaiting for your answer\n❯")  # the question alone is there from before
    t.send(CTRL_C)
    t.ask("something else")
    assert "got 'something else'" in t.text()


def test_ctrl_c_at_a_question_breaks_the_input(start: Callable[..., Terminal]) -> None:  # C166
    t = start()
    t.ask("ask")
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.send(b"two" + CTRL_J + b"lines\r")
    t.until("got 'two\\nlines'")


def test_ctrl_c_at_a_question_leaves_open_what_holds(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("ask")
    t.until("2. blue")
    t.send(CTRL_C)
    t.until("The question stays open: your next message answers it.")
    assert "2. blue" not in t.text()


def test_esc_stays_in_a_menu_and_eats_the_next_slash(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("/llm\r")
    t.until("1. gpt")
    t.send(ESC)
    t.until(lambda: "1. gpt" not in t.text())
    t.until("Nothing was changed.")
    t.send(ESC + b"/cost\r")
    t.until("3 requests")
    t.ask("ask")
    t.until("2. blue")
    t.send(ESC + b"/cost\r")  # in one piece, as over a slow line
    t.until(lambda: t.text().count("3 requests") == 2)
    assert "The question stays open" in t.text()


@pytest.mark.slow
def test_a_number_without_a_choice_is_an_answer(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("ask")
    t.until("  2. blue\nwaiting for your answer\n❯")  # and not "ready"
    t.send("9\r")
    t.until("there is no choice 9: take one of 1 to 2")
    t.until("  2. blue\nwaiting for your answer\n❯")
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.until(lambda: t.lines()[-2:] == ["waiting for your answer", "❯"])
    t.ask("9")
    t.until(lambda: "got '9'" in t.text() and t.lines()[-2:] == ["ready", "❯"])


def test_a_slip_at_a_commands_choice_goes_to_the_model(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("/llm\r")
    t.until("1. gpt")
    t.send("ok\r")
    t.until("there is no choice ok: take one of")
    t.send("n\r")
    t.until("Nothing was changed.")
    t.send("/llm\r")
    t.until("1. gpt")
    t.send("/ps\r")  # short, and no slip
    t.until("nothing runs in the background")
    assert "got '" not in t.text()


def test_a_lone_slash_goes_to_the_model(start: Callable[..., Terminal]) -> None:
    t = start()
    t.send("/\r")
    t.until("a command is wanted behind the /: see /help")
    t.send("!\r")
    t.until("such as !ls")
    t.send("slow\r")
    t.until("first line")
    t.send("/\r")  # is no message that waits either
    t.until(lambda: t.text().count("a command is wanted") == 2)
    assert "got" not in t.text() and "queued" not in t.text()


def test_esc_beside_a_menu_breaks_new_lines(start: Callable[..., Terminal]) -> None:
    t = start()
    t.ask("ask")
    t.until("2. blue")
    t.send(b"one" + ESC)
    time.sleep(0.7)  # a slow line, while the choices are there
    t.send(b"\rtwo\r")
    t.until("got 'one\\ntwo'")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_killed_chat_leaves_the_terminal_raw(start: Callable[..., Terminal], number: signal.Signals) -> None:
    t = start()
    raw = termios.tcgetattr(t.fd)[3]
    assert not raw & termios.ICANON
    t.send("slow\r")
    t.until("first line")
    os.kill(t.pid, number)
    assert t.wait() == 128 + number
    assert t.raw.rindex(b"\x1b[?2004l") > t.raw.rindex(b"\x1b[?2004h")  # bracketed paste is off again


# what reaches the terminal


def test_escape_sequences_of_model_and_tools_reach_the_terminal(start: Callable[..., Terminal]) -> None:  # C104
    t = start()
    t.ask("evil")
    assert "model link" in t.text() and "tool link end" in t.text()
    left = TITLE.sub(b"", t.raw)  # our own
    assert b"\x1b]" not in left and b"\x1b[2J" not in left and b"\x1bc" not in left
    assert b"52;c" not in t.raw and b"http://evil" not in t.raw
    assert "\x9b" not in t.raw.decode() and b"\x07" not in left
    assert t.screen.title in ("GenericAgent", "✻ evil — GenericAgent")


@pytest.mark.slow
def test_a_key_press_costs_more_after_much_output(start: Callable[..., Terminal]) -> None:  # C106
    t = start()

    def cost() -> int:
        before = len(t.raw)
        t.send("k")
        t.until(lambda: t.input() == "k")
        written = len(t.raw) - before
        t.send(b"\x7f")
        t.until(lambda: t.input() == "")
        return written

    fresh = cost()
    t.ask("lines 10000")
    assert len(t.lines()) > 10_000
    assert cost() < fresh + 100  # bytes: the input line is drawn, nothing of what was shown before


def test_the_width_is_read_from_the_wrong_place(start: Callable[..., Terminal]) -> None:  # C107
    t = start(columns=60, COLUMNS="20", LINES="5")
    t.ask("flood 12")
    assert max(map(len, t.lines())) > 50
    t.resize(40, 30)
    t.ask("flood 12")
    at = max(n for n, line in enumerate(t.lines()) if line.startswith("word0"))
    assert 30 < len(t.lines()[at]) <= 40
    assert t.text().count("\n❯") == 3  # two messages and one input line: no copies of it


@pytest.mark.slow
def test_a_low_window_hides_the_input(start: Callable[..., Terminal], tmp_path: Path) -> None:
    t = start(rows=5, columns=30)
    t.send(f"until {tmp_path}/go\r")
    t.until(lambda: t.text().count("word") > 3)
    t.send("typed")
    t.until(lambda: t.input() == "typed")


def test_no_color_is_ignored(start: Callable[..., Terminal]) -> None:
    t = start(NO_COLOR="1")
    t.ask("tool")
    assert not re.search(rb"\x1b\[[0-9;]*(3[0-8]|9[0-7]|4[0-8])[;m]", t.raw)


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_sign_the_terminal_cannot_show_ends_the_program(
    start: Callable[..., Terminal], encoding: str
) -> None:  # C052
    t = start(PYTHONIOENCODING=encoding, mark="?")
    t.send("signs\r")
    t.until("tokens in")
    assert "? ? ?? ?" in t.text()
    t.send("/quit\r")
    assert t.wait() == 0


def test_locale_c_ends_the_program(start: Callable[..., Terminal]) -> None:  # C052
    t = start(LANG="C", LC_ALL="C")
    t.send("signs\r")
    t.until("tokens in")


def test_dumb_terminal_breaks_input_from_another_thread(start: Callable[..., Terminal]) -> None:  # C164
    t = start(TERM="dumb", mark=">")
    t.send("tool\r")
    t.until(lambda: "tokens in" in t.text() and t.lines()[-1] == ">")
    t.send("ask\r")
    t.until(lambda: "  2. blue" in t.text() and t.lines()[-1] == ">")
    t.send("1\r")
    t.until("got 'red'")
    t.send("slow\r")
    t.until("first line")  # shown while the program waits for input
    t.send("typed meanwhile\r")
    t.until("queued (1)")
    t.send(CTRL_C)
    t.until("not sent: typed meanwhile")
    t.until(lambda: t.lines()[-1] == ">")
    t.send(CTRL_C)
    t.until("press Ctrl-C again to quit")
    t.send(CTRL_C)
    assert t.wait() == 0
    assert "--resume" in t.lines()[-1]
    assert b"\x1b" not in t.raw


def test_a_killed_chat_on_a_dumb_terminal(start: Callable[..., Terminal]) -> None:
    t = start(TERM="dumb", mark=">")
    os.kill(t.pid, signal.SIGTERM)
    assert t.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_without_a_terminal_the_prompt_library_crashes(environment: dict[str, str], term: str) -> None:  # C163
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'cli')!r})\n" + (
        "from fake_agent import FakeAgent\n"
        "from genericagent.cli.chat import run_chat\n"
        "code = run_chat(FakeAgent())\n"
        "assert not {'prompt_toolkit', 'rich'} & set(sys.modules), 'imported for nothing'\n"
        "sys.exit(code)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"TERM": term}, input="", capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "the chat needs a terminal; use -p or --task\n"


# the real program


@pytest.fixture
def served(
    start: Callable[..., Terminal], model_server: Callable[..., ScriptedServer]
) -> Callable[..., tuple[Terminal, ScriptedServer]]:
    """The real program, talking to a scripted model."""

    def begin(*replies: object, **how: str) -> tuple[Terminal, ScriptedServer]:
        server = model_server(list(replies))
        keys = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test", "ANTHROPIC_MODEL": "scripted"}
        return start(PROGRAM, **keys, **how), server

    return begin


@pytest.mark.slow
def test_the_demo_runs_and_can_be_resumed(start: Callable[..., Terminal]) -> None:
    t = start([*PROGRAM, "--demo"], rows=50)
    assert "scripted" in t.text()
    t.ask("show me")
    answer = t.text()
    assert "✓ code_run" in answer and "25 primes below 100" in answer and "LLM Running" not in answer
    assert "Tool: `" not in answer and "`````" not in answer
    t.send(CTRL_D)
    assert t.wait() == 0
    before, _, session = t.text().replace("\n", "").rpartition(" --resume ")
    assert before.endswith(" --demo")  # without it there is no model
    again = start([*PROGRAM, "--demo", "--resume", session])
    assert session in again.text()


def test_a_resumed_conversation_begins_with_an_empty_screen(
    served: Callable[..., tuple[Terminal, ScriptedServer]], start: Callable[..., Terminal]
) -> None:
    t, server = served(say("<summary>greeted</summary>Hello **you**."))
    t.ask("hi there")
    t.send(CTRL_D)
    assert t.wait() == 0
    t = start([*PROGRAM, "--continue"], ANTHROPIC_API_KEY="key-for-test", ANTHROPIC_BASE_URL=server.url)
    assert "❯ hi there\n▸ greeted\n\nHello you." in t.text()


@pytest.mark.slow
def test_a_resumed_conversation_shows_raw_calls_and_its_answer_twice(
    served: Callable[..., tuple[Terminal, ScriptedServer]], start: Callable[..., Terminal]
) -> None:
    first = call("code_run", type="bash", script="echo out; false")
    t, server = served(first, say("Done **it**.\n\n- a\n- b"), say("All **good**.\n\n- c\n- d"))
    t.ask("go")
    t.ask("and then?")
    t.send(CTRL_D)
    assert t.wait() == 0
    t = start([*PROGRAM, "--continue"], ANTHROPIC_API_KEY="key-for-test", ANTHROPIC_BASE_URL=server.url)
    told = t.text().partition("/help\n")[2].rpartition("\nready")[0]
    assert told == ("\n❯ go\n✗ code_run  bash: echo out; false\n\nDone it. …\n\n❯ and then?\n\nAll good.\n\n • c\n • d")


@pytest.mark.slow
def test_a_child_swallows_the_users_keys(served: Callable[..., tuple[Terminal, ScriptedServer]]) -> None:  # C046
    script = "echo started; read x; echo \"read=[$x]\"; python3 -c 'input()' || echo no input; sleep 1"
    t, _ = served(call("code_run", type="bash", script=script), say("Both saw the end of their input."))
    mode = termios.tcgetattr(t.fd)
    t.send("run it\r")
    t.until("started")
    t.send("typed while it runs")
    t.until(lambda: "tokens in" in t.text() and t.input() == "typed while it runs")
    assert "  read=[]" in t.lines() and "  no input" in t.lines()
    assert termios.tcgetattr(t.fd) == mode


@pytest.mark.slow
def test_ctrl_c_ends_more_than_the_command(served: Callable[..., tuple[Terminal, ScriptedServer]]) -> None:  # C059
    loop = "for i in 1 2 3 4 5; do echo line $i; sleep 1; done"
    t, server = served(call("code_run", type="bash", script=loop), say("It was stopped."))
    t.send("count\r")
    t.until("line 2")
    t.send(CTRL_C)
    t.until("interrupted")
    t.ask("what happened?")
    assert "It was stopped." in t.text()
    asked = str(server.requests[-1].body)
    assert "line 1" in asked and "line 2" in asked and "line 5" not in asked and "stopped" in asked


def test_escapes_of_a_real_command(served: Callable[..., tuple[Terminal, ScriptedServer]]) -> None:  # C104
    evil = r"printf '\033]52;c;cm0=\007\033]0;owned\007\033[2J\302\2332Jplain \n'"
    t, _ = served(call("code_run", type="bash", script=evil), say("\x1b]0;owned\x07Done."))
    t.ask("go")
    assert "  plain" in t.lines() and t.screen.title in ("GenericAgent", "✻ go — GenericAgent")
    assert b"\x1b]" not in TITLE.sub(b"", t.raw) and b"cm0=\x07" not in t.raw and b"\x1b[2J" not in t.raw


@pytest.mark.slow
def test_a_folders_name_passes_for_lines_of_ours(  # C104
    start: Callable[..., Terminal], model_server: Callable[..., ScriptedServer], tmp_path: Path
) -> None:
    (folder := tmp_path / "w\nready\n❯ ok\u202e\u200f\x1b[2J").mkdir()
    server = model_server([call("file_write", path="a\n❯ b\u200f.txt", content="x"), say("Done.")])
    names = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "test", "ANTHROPIC_MODEL": "m\nready\u2067"}
    t = start([*PROGRAM, str(folder)], columns=400, **names)
    t.ask("go")
    for command in ("/workspace", "/llm", "/sessions", "/export"):
        t.send(f"{command}\r")
        t.until(
            {"/workspace": "Workspace: ", "/llm": "❯ 0. m ready", "/sessions": "just now", "/export": "written"}[
                command
            ]
        )
    assert "m ready[U+2067] · " in t.text() and "/w ready ❯ ok[U+202E][U+200F]" in t.text()
    assert "a ❯ b[U+200F].txt" in t.text()
    typed = {"❯ go", "❯ /workspace", "❯ /llm", "❯ /sessions", "❯ /export"}
    assert {line for line in t.lines() if line[:1] == "❯"} - typed <= {"❯", "❯ 0. m ready[U+2067]"}, t.text()


def test_two_messages_in_one_conversation(served: Callable[..., tuple[Terminal, ScriptedServer]]) -> None:
    t, server = served(say("First."), say("Second."))
    t.ask("one")
    t.ask("two")
    assert "First." in t.text() and "Second." in t.text()
    assert "First." in str(server.requests[-1].body)


def test_nobody_sees_how_far_a_plan_is(
    start: Callable[..., Terminal], model_server: Callable[..., ScriptedServer]
) -> None:
    seen = [threading.Event() for _ in range(3)]

    def work(body: dict[str, Any], n: int) -> Reply:
        assert not n or seen[n - 1].wait(DEADLINE)
        if n == 3:
            return say("VERDICT: PASS")
        lines = "".join(f"- [{'x' if at <= n else ' '}] step {at}\n" for at in (1, 2))
        return call("file_write", path=re.findall(r"checklist to (\S+) with", str(body))[0], content=lines)

    t = start(PROGRAM, ANTHROPIC_BASE_URL=model_server(work).url, ANTHROPIC_API_KEY="test")
    t.send("/plan build it\r")
    told = ["plan: 0 of 2 done · next: step 1", "plan: 1 of 2 done · next: step 2", "plan: all 2 done"]
    for line, event in zip(told, seen, strict=True):
        t.until(line)
        event.set()
    t.until("tokens in")
    assert [line for line in t.lines() if line.startswith("plan:")] == told


def test_a_setting_costs_what_the_task_before_did(served: Callable[..., tuple[Terminal, ScriptedServer]]) -> None:
    t, _ = served(say("First."))
    t.ask("one")
    t.send("/session.nonsense=4\r")
    t.until("idle_timeout\nready")
    t.send("/session.temperature=0.4\r")
    t.until("temperature = 0.4\nready")
    assert t.text().count("tokens in") == 1


@pytest.mark.slow
def test_the_token_meter_forgets_what_every_request_has(
    served: Callable[..., tuple[Terminal, ScriptedServer]], start: Callable[..., Terminal]
) -> None:
    t, server = served(say("First."), say("Second."))

    def met() -> float:  # thousands of tokens
        t.until(lambda: bool(re.search(r"▱ \S+/\S+ · no sandbox", t.text())))  # and no share of a cache
        return float(re.findall(r"▱ (\S+)k/", t.text())[-1])

    t.ask("one")
    once = float(re.findall(r"(\S+)k tokens in", t.text())[-1])
    t.ask("two")
    t.send("/rewind 1\r")
    t.until("Back to before: two")
    assert abs(met() - once) < 0.3
    t.send(b"\x15/quit\r")
    assert t.wait() == 0
    t = start([*PROGRAM, "--continue"], ANTHROPIC_API_KEY="key-for-test", ANTHROPIC_BASE_URL=server.url)
    assert abs(met() - once) < 1


@pytest.mark.slow
def test_a_chat_without_a_key_explains_the_ways_to_give_one_and_starts_the_demo(start: Callable[..., Terminal]) -> None:
    t = start(PROGRAM, rows=50, mark=">", OLLAMA_HOST="127.0.0.1:9")
    for way in ("ANTHROPIC_API_KEY", "config.toml", "mykey.py", "demo"):
        assert way in t.text().replace("\n", "")
    t.send("what?\r")
    t.until(lambda: t.text().count("Enter alone leaves") == 2)
    t.send("d\r")
    t.until("scripted")
    t.until(lambda: t.lines()[-1:] == ["❯"])
    t.ask("show me")
    assert "25 primes" in t.text()


def test_a_chat_without_a_key_is_left_with_enter(start: Callable[..., Terminal]) -> None:
    t = start(PROGRAM, mark=">", OLLAMA_HOST="127.0.0.1:9")
    t.send("\r")
    assert t.wait() == 0


def test_a_model_server_on_this_machine_is_offered_and_never_used_unasked(
    start: Callable[..., Terminal], model_server: Callable[..., ScriptedServer]
) -> None:
    import http.server

    asked: list[str] = []
    model = model_server([say("ok"), say("I am local.")])

    class Ollama(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self._send(b'{"data": [{"id": "qwen3:14b"}, {"id": "nomic-embed-text"}]}')

        def do_POST(self) -> None:
            asked.append(self.path)
            size = int(self.headers["content-length"])
            request = urllib.request.Request(f"{model.url}{self.path}", self.rfile.read(size), dict(self.headers))
            with urllib.request.urlopen(request) as answer:
                self._send(answer.read(), "text/event-stream")

        def _send(self, body: bytes, kind: str = "application/json") -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        t = start(PROGRAM, rows=50, mark=">", OLLAMA_HOST=f"http://127.0.0.1:{server.server_port}")
        assert "7  Ollama on this machine (1: qwen3:14b)" in t.text() and "embed" not in t.text()
        assert asked == ["/v1/models"]
        t.send("7\r")  # its one model need not be chosen once more
        t.until("It works")
        t.until(lambda: t.lines()[-1:] == ["❯"])
        t.ask("who are you?")
        assert "I am local." in t.text() and model.requests[1].body["model"] == "qwen3:14b"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("term", "mark"), [("xterm", "❯"), ("dumb", ">")])
def test_closing_the_terminal_leaves_the_command_running(
    served: Callable[..., tuple[Terminal, ScriptedServer]], tmp_path: Path, term: str, mark: str
) -> None:
    script = f"echo $$ > {tmp_path}/pid; echo started; exec sleep 600"
    t, _ = served(call("code_run", type="bash", script=script), say("Never."), TERM=term, mark=mark)
    t.send("go\r")
    t.until("started")
    child = int((tmp_path / "pid").read_text())
    assert (Path("/proc") / str(child)).exists()
    os.dup2(os.open(os.devnull, os.O_RDWR), t.fd)  # hangs up; a second signal, as shells send one
    with contextlib.suppress(ProcessLookupError):
        os.kill(t.pid, signal.SIGHUP)
    end = time.monotonic() + DEADLINE
    while (Path("/proc") / str(child)).exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    pid, _ = os.waitpid(t.pid, 0)
    t.code = -1 if pid else None
