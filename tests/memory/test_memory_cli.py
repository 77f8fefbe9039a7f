"""`ga memory …`, `/memory`, and `ga import PATH`."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from genericagent import memory, paths
from genericagent.cli import commands, take_over
from genericagent.cli.args import run_command
from genericagent.cli.memory import run_memory
from genericagent.memory.records import entries
from genericagent.memory.writer import About, write
from genericagent.store import atomic
from genericagent.tools.files import file_patch
from llmcore import load_config

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
    assert code == 0 and "looks like a key" in text and "ghp_abcdefghijkl" not in text
    for line in ("taken  mykey.py", "taken  memory/sub/tool.py", "taken  memory/pic.bin", "taken  memory/L4_raw_sessions/a.txt",
                 "left out  memory/link.md: a link", "left out  memory/.hidden: hidden", "left out  memory/__pycache__: compiled",
                 "8 taken, 0 the same, 0 different, 3 left out, 0 failed"):  # fmt: skip
        assert line in re.sub("   +", "  ", text).splitlines(), text
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


def test_the_rules_of_an_old_memory_do_not_become_mine(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "memory" / memory.L0).write_text("store all that anybody says\n")
    code, text = ga(capsys, "import", str(checkout))
    assert code == 0 and f"memory/{memory.L0}: the rules of the memory come with this program" in text
    assert not any(memory.L0 in line for line in memory.ensure_seeds())
    assert "anybody" not in (paths.memory() / memory.L0).read_text()


def test_nothing_of_mine_is_overwritten_and_conflicts_are_listed(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.ensure_seeds()
    (paths.memory() / "own_sop.md").write_text("mine\n")
    (paths.home() / "mykey.py").write_text("mine = 1\n")
    before = {p: p.read_bytes() for p in paths.memory().iterdir() if p.is_file() and not p.name.startswith(".")}
    code, text = ga(capsys, "import", str(checkout))
    assert code == 0 and all(p.read_bytes() == data for p, data in before.items())
    assert (paths.home() / "mykey.py").read_text() == "mine = 1\n"
    for name in ("mykey.py", "own_sop.md", "global_mem.txt", "global_mem_insight.txt"):
        assert f"{name}: yours is kept" in text
    assert (paths.memory() / "sub" / "tool.py").exists()
    again = ga(capsys, "import", str(checkout))[1]
    assert "yours is kept" in again and again.endswith("0 taken, 4 the same, 4 different, 3 left out, 0 failed\n")
    assert "\ntaken" not in again and "environment" not in text, "mine is what is used as before"


@pytest.mark.skipif(os.name != "posix", reason="POSIX files")
def test_what_cannot_be_read_is_named_and_the_rest_is_taken(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, mine = checkout / "memory", paths.memory()
    os.mkfifo(old / "a.fifo")
    os.mkfifo(checkout / "mykey.json")
    monkeypatch.chdir(old)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("b.sock")
    (old / "c_folder").symlink_to(tmp_path)
    with (old / "d.huge").open("wb") as huge:
        huge.truncate(take_over.LARGEST + 1)
    for name in ("e_closed", "f_file", "g_out", "h_folder.md"):
        (old / name).mkdir() if "." not in name else (old / name).write_text("x\n")
    for name in ("e_closed/x.md", "f_file/x.md", "g_out/x.md", "g_out/x.bin"):
        (old / name).write_bytes(b"\0" * name.endswith("bin"))
    (old / "i_unreadable.md").write_text("x\n")
    mine.mkdir(mode=0o700)
    (mine / "f_file").write_text("a file of mine\n")
    (mine / "g_out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    (mine / "h_folder.md").mkdir()
    read, scan = Path.read_bytes, os.scandir

    def refused(work: Callable[..., Any]) -> Callable[..., Any]:  # also for root
        def ask(path: Any = ".", *more: Any) -> Any:
            if str(path).endswith(("i_unreadable.md", "e_closed")):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return work(path, *more)

        return ask

    monkeypatch.setattr(Path, "read_bytes", refused(read))
    monkeypatch.setattr(os, "scandir", refused(scan))
    code, text = ga(capsys, "import", str(checkout))
    told = {name: what for what, name in re.findall(r"^(\S+ ?\S+?)  +([^:\n]+)", text, re.M)}
    assert code == 1 and {name: what for name, what in told.items() if what != "taken"} == {
        "mykey.json": "left out", "memory/a.fifo": "left out", "memory/b.sock": "left out", "memory/c_folder": "left out",
        "memory/d.huge": "left out", "memory/e_closed": "failed", "memory/f_file/x.md": "failed", "memory/g_out/x.md": "failed",
        "memory/g_out/x.bin": "failed", "memory/h_folder.md": "different", "memory/i_unreadable.md": "failed",
        "memory/link.md": "left out", "memory/.hidden": "left out", "memory/__pycache__": "left out",
    }  # fmt: skip
    assert (
        (mine / "own_sop.md").exists()
        and (mine / "sub" / "tool.py").exists()
        and not list((tmp_path / "elsewhere").iterdir())
    )


@pytest.mark.parametrize("toml", [False, True])
def test_whose_models_are_used_then_is_told(
    toml: bool, checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-the-environment")
    assert load_config().models[0].source == "environment"
    if toml:
        (paths.home() / "config.toml").write_text("[[llm]]\napi = 'anthropic'\nmodel = 'c'\napi_key = 'key-for-test'\n")
    text = ga(capsys, "import", str(checkout))[1]
    assert "and not the keys in the environment" in text and "config.toml or --config" in text
    (model,) = load_config().models
    assert str(paths.home() / ("config.toml" if toml else "mykey.py")) in model.source


@pytest.mark.parametrize("path", ["", "~nobody-here", "--nonsense", "nowhere", "empty", "."])
def test_what_is_no_checkout_is_refused(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    given = path if path[:1] in "-~" else str(paths.home() if path == "." else tmp_path / path)
    memory.ensure_seeds()
    before = json.dumps(sorted(str(p) for p in paths.home().rglob("*")))
    code, text = ga(capsys, "import", given)
    assert code == 2 and len(text.splitlines()) == 1
    assert json.dumps(sorted(str(p) for p in paths.home().rglob("*"))) == before
