"""`ga memory …`, `/memory`, and `ga import PATH`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genericagent import memory, paths
from genericagent.cli import commands
from genericagent.cli.args import run_command
from genericagent.cli.memory import run_memory
from genericagent.memory.records import entries
from genericagent.memory.writer import About, write
from genericagent.store import atomic
from genericagent.tools.files import file_patch

FACTS = "## [ENVIRONMENT]\n"


@pytest.fixture
def stored() -> None:
    memory.ensure_seeds()
    about = About(session="s1", turn=4, tainted="the page \x1b[31mexample.com")
    about.evidence.user_said("the gate is at 10.0.0.7 \x1b[2J")
    path = paths.memory() / memory.L2
    write(
        path, about, lambda check: file_patch(path, FACTS, f"{FACTS}- gate: 10.0.0.7\n", check=check), whole=False,
        clock=lambda: 1_700_000_000.0,
    )  # fmt: skip


def ga(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    code = run_command(args)
    out = capsys.readouterr()
    return code, out.out + out.err


def test_the_log_says_when_what_and_why(stored: None, capsys: pytest.CaptureFixture[str]) -> None:  # C127
    code, text = ga(capsys, "memory", "log")
    assert code == 0 and len(text.splitlines()) == 1
    for piece in ("   1  2023-11-1", "tool", "global_mem.txt", "+1/-0", "told: the gate is at 10.0.0.7", "!the page"):
        assert piece in text
    code, text = ga(capsys, "memory", "show", "1")
    assert code == 0 and "+- gate: 10.0.0.7" in text and "session: s1" in text and "\x1b" not in text
    assert "evidence: told: the gate is at 10.0.0.7" in text and "{" not in text and "None" not in text


@pytest.mark.parametrize("word", ["log", "show", "check", "revert"])
def test_every_word_notes_first_what_was_changed_by_hand(
    stored: None, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = paths.memory() / memory.L2
    file.write_text(file.read_text() + "- by hand\n")
    code, text = ga(capsys, "memory", word, *(["2"] if word in ("show", "revert") else []))
    assert [e["by"] for e in entries().values()] == ["tool", "outside"] and "- by hand" in file.read_text()
    if word == "show":
        assert code == 0 and "+- by hand" in text
    if word == "revert":
        assert code == 1 and "noticed only now" in text
        assert ga(capsys, "memory", "revert", "2")[0] == 0 and "- by hand" not in file.read_text()
        assert "already, by change 3" in ga(capsys, "memory", "revert", "2")[1]


def test_on_a_terminal_lines_break_between_words(
    stored: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ga(capsys, "memory", "log")[1]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    text = run_memory(["log"])[0]
    assert max(map(len, text.splitlines())) <= 40 < len(whole) and text.split() == whole.split()


def test_where_nothing_can_be_noted_the_log_is_shown_all_the_same(
    stored: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths.memory() / memory.L1).unlink()
    monkeypatch.setattr(atomic, "open_own", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left")))
    code, text = ga(capsys, "memory", "log")
    assert code == 0 and "No space left" in text and "told: the gate" in text


def test_a_change_is_taken_back_and_can_be_again(stored: None, capsys: pytest.CaptureFixture[str]) -> None:  # C127
    assert ga(capsys, "memory", "revert", "1")[0] == 0
    assert "gate" not in (paths.memory() / memory.L2).read_text()
    assert ga(capsys, "memory", "revert", "2")[0] == 0 and "gate" in (paths.memory() / memory.L2).read_text()
    code, text = ga(capsys, "memory", "revert", "77")
    assert code == 1 and text.startswith("error: ") and len(text.splitlines()) == 1


def test_check_says_by_its_exit_code_whether_all_is_well(stored: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert ga(capsys, "memory", "check")[0] == 0
    (paths.memory() / "plan_sop.md").unlink()
    code, text = ga(capsys, "memory", "check")
    assert code == 1 and "plan_sop.md" in text


@pytest.mark.parametrize("args", [["show"], ["show", "x"], ["revert"], ["nonsense"], ["log", "1", "2"], ["check", "3"]])
def test_wrong_words_are_bad_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ga(capsys, "memory", *args)[0] == 2


def test_the_chat_has_the_same_words(stored: None) -> None:
    said: list[str] = []
    chat: Any = SimpleNamespace(
        say=lambda key, **v: said.append(v["text"]), error=lambda key, **v: said.append(v["text"]), running=False
    )
    for text in ("/memory", "/memory log 5", "/memory show 1", "/memory nonsense"):
        assert commands.run(chat, text)
    assert "told: the gate" in said[0] and said[0] == said[1] and "+- gate" in said[2] and "usage" in said[3]


def test_without_a_home_there_is_nothing_to_list(capsys: pytest.CaptureFixture[str], ga_home: Path) -> None:
    ga_home.rmdir()
    assert ga(capsys, "memory", "log")[0] == ga(capsys, "memory", "check")[0] == 0
    assert not ga_home.exists(), "looking makes nothing"


# import


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    other = tmp_path / "other"
    (other / "memory" / "L4_raw_sessions").mkdir(parents=True)
    (other / "memory" / "__pycache__").mkdir()
    (other / "memory" / "sub").mkdir()
    (other / "mykey.py").write_text("native_claude_config = {'apikey': 'sk-test-1', 'model': 'm'}\n")
    (other / "mykey.py").chmod(0o644)
    for name, text in {
        "global_mem.txt": "theirs\n", "global_mem_insight.txt": "index of theirs\n", "own_sop.md": "how\n", "sub/tool.py": "x = 1\n",
        "L4_raw_sessions/a.txt": "old talk\n", "__pycache__/x.pyc": "c", ".hidden": "h", "keys.txt": "ghp_abcdefghijklmnopqrstuvwxyz0123456789\n",
    }.items():  # fmt: skip
        (other / "memory" / name).write_text(text)
    (other / "memory" / "pic.bin").write_bytes(b"\0\1")
    (other / "memory" / "link.md").symlink_to("nowhere")
    return other


def test_a_checkout_is_taken_over_into_a_new_home(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = ga(capsys, "import", str(checkout))
    assert code == 1 and "link.md: a link" in text and "looks like a key" in text and "ghp_abcdefghijkl" not in text
    assert (paths.home() / "mykey.py").stat().st_mode & 0o777 == 0o600
    folder = paths.memory()
    assert (folder / "global_mem.txt").read_text() == "theirs\n" and (folder / "sub" / "tool.py").exists()
    assert (folder / "L4_raw_sessions" / "a.txt").exists() and (folder / "pic.bin").exists()
    assert (
        not (folder / "link.md").exists()
        and not (folder / ".hidden").exists()
        and not (folder / "__pycache__").exists()
    )
    assert {e["by"] for e in entries().values()} == {"import"} and len(entries()) == 5
    assert {p.stat().st_mode & 0o077 for p in folder.rglob("*") if p.is_file()} == {0}
    told = memory.ensure_seeds()
    assert (folder / "global_mem.txt").read_text() == "theirs\n" and (folder / memory.L0).exists()
    assert all("changed by hand" not in line for line in told)


def test_nothing_of_mine_is_overwritten_and_conflicts_are_listed(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.ensure_seeds()
    (paths.memory() / "own_sop.md").write_text("mine\n")
    (paths.home() / "mykey.py").write_text("mine = 1\n")
    before = {p: p.read_bytes() for p in paths.memory().iterdir() if p.is_file() and not p.name.startswith(".")}
    code, text = ga(capsys, "import", str(checkout))
    assert code == 1 and all(p.read_bytes() == data for p, data in before.items())
    assert (paths.home() / "mykey.py").read_text() == "mine = 1\n"
    for name in ("mykey.py", "own_sop.md", "global_mem.txt", "global_mem_insight.txt"):
        assert f"{name}: yours is kept" in text
    assert (paths.memory() / "sub" / "tool.py").exists()
    again = ga(capsys, "import", str(checkout))[1]
    assert "yours is kept" in again and again.rstrip().splitlines()[-1].startswith("0 files")


@pytest.mark.parametrize("path", ["", "nowhere", "empty", "."])
def test_what_is_no_checkout_is_refused(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    given = str(paths.home()) if path == "." else str(tmp_path / path) if path else "--help"
    memory.ensure_seeds()
    before = json.dumps(sorted(str(p) for p in paths.home().rglob("*")))
    code, text = ga(capsys, "import", given)
    assert code == 2 and len(text.splitlines()) == 1
    assert json.dumps(sorted(str(p) for p in paths.home().rglob("*"))) == before
