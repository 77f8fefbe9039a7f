"""The shipped memory: what it is, how it comes into the home, and what an update does with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from genericagent import memory, paths, prompts
from genericagent.llm.usage import estimate
from genericagent.memory import check, seeds
from genericagent.memory.records import entries
from genericagent.memory.writer import revert

LANGUAGES = ("en", "zh")


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped seeds that a test can edit, as a new version would."""
    folder = tmp_path / "release"
    for lang in LANGUAGES:
        (folder / lang).mkdir(parents=True)
        for name, text in seeds.shipped(lang).items():
            (folder / lang / name).write_text(text, encoding="utf-8")
    shipped = paths.shipped
    monkeypatch.setattr(paths, "shipped", lambda *p: folder.joinpath(*p[1:]) if p[0] == "memory" else shipped(*p))
    return folder


def home() -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in paths.memory().iterdir() if not p.name.startswith(".")}


def test_both_languages_ship_the_same_files_and_no_mixed_text() -> None:
    english, chinese = seeds.shipped("en"), seeds.shipped("zh")
    assert english.keys() == chinese.keys() and len(english) == 13
    for name, text in english.items():
        assert not re.search("[\u4e00-\u9fff]", text), name
        assert re.search("[\u4e00-\u9fff]", chinese[name]) and text != chinese[name], name
        assert len(text.splitlines()) <= 80 and len(chinese[name].splitlines()) <= 80, name


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_shipped_memory_is_in_order_and_its_index_small(lang: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GA_LANG", lang)
    memory.ensure_seeds()
    assert check.check() == []
    assert memory.insight() == seeds.shipped(lang)[memory.L1].strip() and estimate(memory.insight()) <= 600


@pytest.mark.parametrize("lang", LANGUAGES)
def test_what_the_shipped_procedures_name_exists(lang: str) -> None:
    from ga import INLINE_METHODS, load_tool_schema
    from genericagent.cli.args import SUBCOMMANDS

    tools = {t["function"]["name"] for t in load_tool_schema()}
    for name, text in seeds.shipped(lang).items():
        assert set(re.findall(r"handler\.(\w+)", text)) <= set(INLINE_METHODS), name
        assert {w for w in re.findall(r"`ga (\w+)", text)} <= set(SUBCOMMANDS), name
        called = set(re.findall(r"\b(?:code|file|web|ask|update|start)_\w+", text)) - {"web_setup_sop"}
        assert called <= tools, name


def test_the_first_start_copies_them_for_the_user_alone() -> None:
    assert memory.ensure_seeds() == [] and home() == seeds.shipped("en") and entries() == {}
    assert {p.stat().st_mode & 0o777 for p in paths.memory().iterdir()} == {0o600}
    before = {p: p.stat().st_mtime_ns for p in paths.memory().iterdir()}
    assert memory.ensure_seeds() == []
    assert {p: p.stat().st_mtime_ns for p in paths.memory().iterdir()} == before


def test_an_update_refreshes_what_nobody_changed_and_says_what_it_left(release: Path) -> None:  # C131
    memory.ensure_seeds()
    (paths.memory() / "plan_sop.md").write_text("my own way to plan\n")
    memory.ensure_seeds()
    for name in ("plan_sop.md", "verify_sop.md"):
        (release / "en" / name).write_text(f"new {name}\n")
    (release / "en" / "brand_new_sop.md").write_text("new\n")
    told = memory.ensure_seeds()
    assert home()["plan_sop.md"] == "my own way to plan\n" and home()["verify_sop.md"] == "new verify_sop.md\n"
    assert home()["brand_new_sop.md"] == "new\n"
    assert len(told) == 2 and "plan_sop.md is yours" in told[0] and "verify_sop.md was brought up to date" in told[1]
    assert memory.ensure_seeds() == [], "said once"
    (number,) = [n for n, e in entries().items() if e["by"] == "update"]
    revert(number)
    assert memory.ensure_seeds() == [] and "Is it really done" in home()["verify_sop.md"], "what was undone stays so"


def test_what_the_user_removed_stays_away_but_for_what_memory_needs(release: Path) -> None:  # C131
    memory.ensure_seeds()
    for name in ("plan_sop.md", memory.L0, memory.L1):
        (paths.memory() / name).unlink()
    told = memory.ensure_seeds()
    assert "plan_sop.md" not in home() and {memory.L0, memory.L1} <= home().keys() and len(told) == 3
    (release / "en" / "plan_sop.md").write_text("newer\n")
    memory.ensure_seeds()
    assert "plan_sop.md" not in home()


def test_files_of_a_home_without_a_record_are_the_users(release: Path) -> None:  # C131
    paths.memory().mkdir(parents=True)
    (paths.memory() / memory.L2).write_text("mine\n")
    (paths.memory() / memory.L1).write_text("L1 of mine\n")
    (paths.memory() / "verify_sop.md").symlink_to("nowhere")
    told = memory.ensure_seeds()
    assert (paths.memory() / memory.L2).read_text() == "mine\n"
    assert len(told) == 2 and (paths.memory() / "verify_sop.md").is_symlink()
    assert memory.ensure_seeds() == []


def test_another_language_later_changes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.ensure_seeds()
    monkeypatch.setenv("GA_LANG", "zh")
    assert memory.ensure_seeds() == [] and home() == seeds.shipped("en")
    assert prompts.language() == "zh"


def test_a_damaged_record_overwrites_nothing(release: Path) -> None:  # C131
    memory.ensure_seeds()
    (paths.memory() / memory.L2).write_text("mine\n")
    for file in (".seeds.json", ".known.json"):
        (paths.memory() / file).write_text('{"files": 3')
    (release / "en" / "plan_sop.md").write_text("newer\n")
    old = home()
    told = memory.ensure_seeds()
    assert home() == old and old[memory.L2] == "mine\n" and len(told) == 2


# the index in the prompt


def test_an_index_over_its_limit_is_trimmed_and_the_model_told_to_clean_up() -> None:  # C127
    memory.ensure_seeds()
    index = paths.memory() / memory.L1
    index.write_text("\n".join(f"topic {n}: global_mem.txt" for n in range(50)))
    shown = memory.insight().splitlines()
    assert len(shown) == 31 and "20 more lines" in shown[-1] and "Clean it up" in shown[-1]
    index.write_text("\n".join("word " * 80 for _ in range(20)))
    assert estimate(memory.insight()) < 1100 and "Clean it up" in memory.insight()
    index.write_text("x" * 100_000)
    assert estimate(memory.insight()) < 1100 and "Clean it up" in memory.insight()
    index.write_bytes(b"\xff\xfe broken\n")
    assert "broken" in memory.insight()
    index.unlink()
    assert memory.insight() == seeds.shipped("en")[memory.L1].strip()


# around the writer


def test_a_change_by_hand_is_noted_with_its_diff_and_told_once() -> None:
    memory.ensure_seeds()
    with (paths.memory() / memory.L2).open("a") as file:
        file.write("- by hand\n")
    (paths.memory() / "sub").mkdir()
    (paths.memory() / "sub" / "own_sop.md").write_text("mine\n")
    (paths.memory() / "big.bin").write_bytes(b"\0" * 100)
    (paths.memory() / "L4_raw_sessions").mkdir()
    (paths.memory() / "L4_raw_sessions" / "a.gz").write_bytes(b"x")
    told = memory.ensure_seeds()
    assert len(told) == 3 and any("global_mem.txt" in t and "agentmain.py memory show" in t for t in told)
    found = {e["file"]: e for e in entries().values()}
    assert found.keys() == {memory.L2, "sub/own_sop.md", "big.bin"} and {e["by"] for e in found.values()} == {"outside"}
    assert "+- by hand" in found[memory.L2]["diff"] and found["big.bin"]["diff"] == ""
    assert memory.ensure_seeds() == []
    (number,) = [n for n, e in entries().items() if e["file"] == memory.L2]
    revert(number)
    assert (paths.memory() / memory.L2).read_text() == seeds.shipped("en")[memory.L2]


def test_large_files_are_told_apart_without_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.ensure_seeds()
    big = paths.memory() / "model.bin"
    with big.open("wb") as file:
        file.truncate(3 << 30)
    assert len(memory.ensure_seeds()) == 1 and memory.ensure_seeds() == []
    os.utime(big, (1, 1))
    assert len(memory.ensure_seeds()) == 1


# check


def test_check_finds_each_kind_of_fault() -> None:
    memory.ensure_seeds()
    folder = paths.memory()
    with (folder / memory.L1).open("a") as file:
        file.write("gone: gone_sop.md\nprinters: global_mem.txt [PRINTERS]\n")
    (folder / "lost_sop.md").write_text("nobody points to this procedure of mine\n")
    (folder / "tool_helper.py").write_text("x = 1\n")
    (folder / "plan_sop.md").write_text(
        "uses tool_helper.py and reads ~/nowhere/at/all.txt, not https://example.com/a/b\n"
        "other: /api/v1/users, /srv/shop/data, nas:~/media/x, /home/somebody/else.txt, /dev/sdb9\n"
    )
    (folder / memory.L2).write_text(
        "- nobody points to this procedure of mine\n- token: abcdef0123456789abcdef0123456789\n"
    )
    (folder / "verify_sop.md").write_text("line\n" * 500)
    faults = "\n".join(check.check())
    for piece in ("gone_sop.md", "[PRINTERS]", "lost_sop.md: nothing", "~/nowhere/at/all.txt", "verify_sop.md: 500 lines",
                  "repeats a line", "looks like a key"):  # fmt: skip
        assert piece in faults, piece
    assert "tool_helper.py" not in faults and "example.com" not in faults and "abcdef0123456789" not in faults
    assert len(faults.splitlines()) == 7


def test_a_link_in_the_memory_leads_the_prompt_elsewhere(tmp_path: Path) -> None:
    """The index that it hides is the shipped one; what is linked is no file of the memory's."""
    from genericagent.memory.records import files

    memory.ensure_seeds(lambda value: value)
    (tmp_path / "poison.md").write_text("poison")
    index, shown = paths.memory() / memory.L1, memory.insight()
    index.unlink()
    index.symlink_to(tmp_path / "poison.md")
    (paths.memory() / "folder").symlink_to(tmp_path)
    assert memory.insight() == shown and memory.layer(memory.L1) is None
    assert not {memory.L1, "folder/poison.md"} & set(files(paths.memory()))
    index.unlink()
    index.symlink_to(memory.L2)  # one that stays inside is the user's
    assert memory.insight() == memory.layer(memory.L2).strip()
