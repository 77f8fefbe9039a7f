"""What a person types with, in a real pseudo-terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import test_chat_pty
from test_chat_pty import CTRL_C, CTRL_D, DEADLINE, PASTE, PASTED, Terminal
from test_composer import png

from genericagent.scripted import ScriptedServer, say

environment, start, served = test_chat_pty.environment, test_chat_pty.start, test_chat_pty.served
CTRL_G, CTRL_R, CTRL_S, CTRL_V, CTRL_W, CTRL_X, UNDO = b"\x07", b"\x12", b"\x13", b"\x16", b"\x17", b"\x18", b"\x1f"
UP, BACKSPACE, TAB = b"\x1b[A", b"\x7f", b"\t"
Start = Callable[..., Terminal]


@pytest.fixture
def workspace(tmp_path: Path, environment: dict[str, str]) -> Path:
    folder = tmp_path / "work"
    for name in ("src/main.py", "src/my notes.txt", "世界/文件.md", ".git/main"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    environment["WORKSPACE"] = str(folder)
    return folder


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# pastes


@pytest.mark.slow
def test_a_long_paste_fills_the_input(start: Start) -> None:
    t = start(columns=40)
    text = "\n".join(f"line {n}" for n in range(2000))
    t.send("count ")
    t.send(PASTE + text.encode() + PASTED)
    t.until(lambda: t.input() == "count [Pasted text #1 +2000 lines]")
    t.send(" " + "x" * 5)
    t.send(PASTE + b"y" * 1001 + PASTED + b"\r")
    told = f"{len(text) + 6 + 6 + 1001} characters, 1999 line feeds, ends '{'y' * 20}'"
    t.until(lambda: told in " ".join(t.text().split()))
    assert "❯ count [Pasted text #1 +2000 lines]\n  xxxxx[Pasted text #2 +1 lines]" in t.text()
    t.until(lambda: t.input() == "")
    t.send(UP)  # the mark still holds
    t.until(lambda: t.input().startswith("count [Pasted text #1"))
    t.send(CTRL_C + CTRL_D)
    assert t.wait() == 0
    again = start(rows=20)
    again.send(UP)  # another chat: it knows no marks
    again.until(lambda: "line 1999 xxxxxyyyy" in again.input())
    again.send("\r")
    again.until(told)


def test_a_mark_is_deleted_letter_by_letter(start: Start) -> None:
    t = start()
    t.send(b"a " + PASTE + b"\n" * 20 + b"x" + PASTED)
    t.until(lambda: t.input() == "a [Pasted text #1 +21 lines]")
    t.send(BACKSPACE + b"b")
    t.until(lambda: t.input() == "a b")
    t.send(BACKSPACE + UNDO + UNDO + UNDO)
    t.until(lambda: t.input() == "a [Pasted text #1 +21 lines]")
    t.send(b"\x1b[D" + BACKSPACE + b"\r")  # edited, it is only text
    t.until("got 'a [Pasted text #1 +21 line]'")


def test_a_paste_reaches_the_terminal_raw(start: Start) -> None:
    t = start()
    t.send(PASTE + b"a\x1b]0;title\x07b\x1b[2J" + b"c\n" * 20 + PASTED + b"\x01see \x05\r")
    t.until("tokens in")
    assert r"got 'see abc\nc\nc" in t.text() and "GenericAgent" in t.screen.title and b"\x1b]0" not in t.raw


# pictures


def test_a_dropped_picture_is_only_a_path(start: Start, tmp_path: Path) -> None:
    one, two, text = png(tmp_path / "a b.png"), png(tmp_path / "c.png"), tmp_path / "d.txt"
    text.touch()
    t = start()
    t.send(b"show " + PASTE + f"{str(one).replace(' ', chr(92) + ' ')} 'file://{two}'".encode() + PASTED)
    t.until(lambda: t.input() == "show [Image #1] [Image #2]")
    t.send(b" " + PASTE + str(text).encode() + PASTED + b"\r")
    t.until("images ['a b.png', 'c.png']")
    (broken := tmp_path / "e.png").write_bytes(one.read_bytes()[:-9])
    t.send(PASTE + str(broken).encode() + PASTED)
    t.until("damaged")
    t.until(lambda: t.input() == str(broken))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wl-paste", "xclip", "pngpaste"])
def test_the_clipboards_picture_cannot_be_pasted(start: Start, tmp_path: Path, name: str) -> None:
    picture, programs = png(tmp_path / "a.png"), tmp_path / "bin"
    program(programs, name, f"cat {picture}")
    t = start(PATH=f"{programs}:/bin:/usr/bin")
    t.send(b"show " + CTRL_V)
    t.until(lambda: t.input() == "show [Image #1]")
    t.send("\r")
    t.until("images ['clipboard-")
    [kept] = (tmp_path / "home" / "temp").rglob("clipboard-*.png")
    assert kept.read_bytes() == picture.read_bytes() and kept.stat().st_mode & 0o777 == 0o600
    program(programs, name, "exit 1")
    t.send(CTRL_V)
    t.until(lambda: "there is no picture in the clipboard" in t.text() and t.input() == "")


# completion


def test_the_menu_leaves_rows_behind(start: Start, workspace: Path) -> None:
    t = start(rows=12, columns=40)
    t.send("lines 100\r")
    t.until("tokens in")
    t.until(lambda: t.lines()[-1] == "❯")
    before = t.lines()
    t.send("see @mai")
    t.until(lambda: t.text().count("@src/main.py") == 1)
    t.send(TAB)
    t.until(lambda: t.text().count("@src/main.py") >= 1 and "see @src/main.py" in t.text())
    t.send(b"\r @notes")
    t.until('@"src/my notes.txt"')
    t.send(TAB)
    t.until(lambda: t.lines()[-2:] != before[-2:] and 'see @src/main.py @"src/my notes.txt"' in t.text())
    t.send(b"\r\r")  # the first takes the file, the second sends
    t.until(lambda: t.text().count("tokens in") == 2 and t.lines()[-1] == "❯")
    assert t.lines() == [
        *before[:-2], "", '❯ see @src/main.py @"src/my notes.txt"', "", "── Turn 1 ──", "",
        "got 'see @src/main.py @\"src/my", "notes.txt\"'", *t.lines()[-4:],
    ]  # fmt: skip
    assert t.lines()[-4].startswith("1.2k tokens in")


def test_wide_names_and_addresses(start: Start, workspace: Path) -> None:
    t = start(columns=40)
    t.send(f"{'世' * 40} @m")
    t.until(lambda: "@src/main.py" in t.text() and '@"src/my notes.txt"' in t.text())
    t.send(CTRL_C + "me@main 世界 @文".encode())
    t.until(lambda: "@世界/文件.md" in t.text() and "@src/main.py" not in t.text())
    t.send(TAB + b"\r")
    t.until(lambda: t.input() == "me@main 世界 @世界/文件.md")
    t.send("\r")
    t.until("got 'me@main 世界 @世界/文件.md'")


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["see @mai", "see @src/MA", "see @./src/main", 'see @"src/ma'])
def test_half_a_files_name_is_sent(start: Start, workspace: Path, typed: str) -> None:
    t = start()
    t.send(f"{typed}\r")  # also before the menu is there
    t.until(lambda: t.input() == "see @src/main.py" and "Turn" not in t.text())
    t.send("\r")
    t.until("got 'see @src/main.py'")


def test_a_name_that_no_single_file_begins_with_is_changed(start: Start, workspace: Path) -> None:
    t = start(columns=60)
    for said in ("tell @ann", "see @m", "see @src", "see @src/main.py", "see @sain", "me@main"):
        t.send(f"{said}\r")
        t.until(f"got '{said}'")


def test_a_command_is_not_completed(start: Start) -> None:
    t = start(columns=40)
    t.send("/cos")
    t.until("tokens and money")
    t.send(TAB)
    t.until(lambda: "❯ /cost" in t.lines())
    t.send("\r")
    t.until("3 requests")
    t.send("/llm g")
    t.until(lambda: any(line.split() == ["gpt", "1"] for line in t.lines()))
    t.send(TAB + b"\r")
    t.until("Model: ")
    t.until(lambda: t.lines()[-1] == "❯")


def test_the_menu_fills_a_low_window(start: Start, workspace: Path) -> None:
    t = start(rows=5, columns=40)
    t.send("slow\r")
    t.until("first line")
    t.send("@main")
    t.until("@src/main.py")
    assert "too small" not in t.text()


# editing


def test_text_put_aside_is_lost(start: Start) -> None:
    t = start()
    t.send(b"a draft" + CTRL_S)
    t.until(lambda: t.input() == "")
    t.send(CTRL_S)
    t.until(lambda: t.input() == "a draft")
    t.send(CTRL_S)
    t.until(lambda: t.input() == "")
    t.send("first this\r")
    t.until(lambda: "got 'first this'" in t.text() and t.input() == "a draft")
    t.send(CTRL_S + b"other" + CTRL_S)  # changes places
    t.until(lambda: t.input() == "a draft")
    t.send("\r")
    t.until(lambda: "got 'a draft'" in t.text() and t.input() == "other")


def test_what_was_undone_cannot_be_done_again(start: Start) -> None:
    t = start()
    t.send(b"one two" + CTRL_W)
    t.until(lambda: t.input() == "one")
    t.send(UNDO)
    t.until(lambda: t.input() == "one two")
    t.send(CTRL_X + CTRL_R)
    t.until(lambda: t.input() == "one")


@pytest.mark.parametrize("keys", [CTRL_G, CTRL_X + b"\x05"])
@pytest.mark.slow
def test_the_editor_ends_the_chat_or_breaks_the_live_part(start: Start, tmp_path: Path, keys: bytes) -> None:
    script = f"""printf '\\033[?1049h'; cat "$1" > {tmp_path}/seen; until [ -e {tmp_path}/go ]; do sleep 0.02; done
printf 'from the editor\\nline two\\n' > "$1"; printf '\\033[?1049l'"""
    t = start(VISUAL=str(program(tmp_path, "edit", script)))
    t.send("slow\r")
    t.until("first line")
    t.send(b"a draft" + keys)
    end = time.monotonic() + DEADLINE
    while not ((tmp_path / "seen").exists() and (tmp_path / "seen").read_text().strip() == "a draft"):
        assert time.monotonic() < end and t.read(0.02)
    (tmp_path / "go").touch()
    t.until(lambda: t.lines()[-2:] == ["❯ from the editor", "  line two"])
    t.send("\r")
    t.until("queued (1)")
    t.send(CTRL_C)
    t.until(lambda: "interrupted" in t.text() and t.lines()[-2:] == ["❯ from the editor", "  line two"])
    assert t.text().count("── Turn 1 ──") == 1 and t.text().count("first line") == 1


@pytest.mark.slow
def test_the_search_in_the_history_cannot_be_read(start: Start) -> None:
    t = start(columns=40)
    for line in ("alpha one", "beta two", "beta two"):
        t.ask(line)
    t.send(CTRL_R + b"alp")
    t.until(lambda: t.lines()[-2:] == ["❯ alpha one", "I-search backward: alp"])
    t.send(b"\r")
    t.until(lambda: t.lines()[-1] == "❯ alpha one")
    t.send(CTRL_C + CTRL_D)
    assert t.wait() == 0
    again = start()
    again.send(UP)
    again.until(lambda: again.input() == "beta two")
    again.send(UP)
    again.until(lambda: again.input() == "alpha one")


# the user's own commands


@pytest.mark.parametrize(("term", "mark"), [("xterm-256color", "❯"), ("dumb", ">")])
@pytest.mark.slow
def test_a_command_of_ones_own(start: Start, workspace: Path, term: str, mark: str) -> None:
    t = start(TERM=term, mark=mark)
    t.send("!seq 30; pwd; echo $((40+2)) >&2\r")
    t.until("this goes to the model with your next message")
    assert "\n  1\n  2\n" in t.text() and "… 20 more lines" in t.text() and "✓ !seq 30" in t.text()
    t.send("show\r")
    t.until("tokens in")
    assert f"from '': The user ran this command in {workspace} (exit code 0)" in t.text().replace("\n", "")
    assert "$ seq 30; pwd; echo $((40+2)) >&2\n1\n2\n" in t.text() and "\n42\n" in t.text()
    t.send("show\r")
    t.until(lambda: t.text().count("tokens in") == 2)
    assert t.text().count("The user ran") == 1  # once is enough
    assert term != "dumb" or b"\x1b" not in t.raw


@pytest.mark.parametrize(("term", "mark"), [("xterm-256color", "❯"), ("dumb", ">")])
@pytest.mark.slow
def test_ctrl_c_leaves_the_users_command_running(
    start: Start, workspace: Path, tmp_path: Path, term: str, mark: str
) -> None:
    t = start(TERM=term, mark=mark)
    t.send("slow\r")
    t.until("first line")
    t.send(f"!echo $$ > {tmp_path}/pid; echo started; sleep 600\r")  # beside the task
    t.until(lambda: "  started" in t.lines() and (tmp_path / "pid").exists())
    process = Path("/proc") / (tmp_path / "pid").read_text().strip()
    assert process.exists()
    t.send(CTRL_C)
    t.until("✗ !echo")
    assert not process.exists() and "interrupted" not in t.text()
    t.send(CTRL_C)
    t.until("interrupted")
    t.send(f"!echo $$ > {tmp_path}/pid; echo again; sleep 600\r")
    t.until("  again")
    process = Path("/proc") / (tmp_path / "pid").read_text().strip()
    os.kill(t.pid, 15)
    assert t.wait() == 128 + 15
    assert not process.exists()


@pytest.mark.slow
def test_pictures_and_output_do_not_reach_the_model(
    served: Callable[..., tuple[Terminal, ScriptedServer]], tmp_path: Path
) -> None:
    t, model = served(say("Seen."), say("Again."))
    t.send("!echo from my shell\r")
    t.until("✓ !echo from my shell")
    t.send(b"what is this? " + PASTE + str(png(tmp_path / "a.png")).encode() + PASTED + b"\r")
    t.until("Seen.")
    asked = model.requests[0].body["messages"][-1]["content"]
    text, images = asked[0]["text"], [block for block in asked if block["type"] == "image"]
    assert f"what is this? [Image #1] ({tmp_path}/a.png)" in text and "$ echo from my shell\nfrom my shell" in text
    assert len(images) == 1 and "<outside" not in text
    (tmp_path / "other.txt").write_text("somebody's words")
    t.send(f"!cat {tmp_path}/other.txt\r")
    t.until("✓ !cat")
    t.send("and this?\r")
    t.until("Again.")
    assert "somebody's words\n</outside id=" in str(model.requests[1].body["messages"][-1]["content"][0]["text"])
