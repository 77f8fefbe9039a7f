"""How the program is called again, and names that users write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from genericagent import paths
from genericagent.safety.policy import parse_rules, unreadable


def test_a_name_of_nobody_is_a_name_like_any_other() -> None:
    assert paths.expand("~nobody-here/x") == Path("~nobody-here/x") and paths.expand("~/x") == Path.home() / "x"
    assert unreadable(parse_rules((), (), ("read:~nobody-here/**",), ())) == (Path.cwd() / "~nobody-here",)


def test_a_relative_name_of_the_program_is_told_to_somebody_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ga = tmp_path / "bin" / "ga"
    ga.parent.mkdir()
    ga.write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(sys, "argv", ["bin/ga"])
    assert paths.this_program() == "bin/ga" and paths.this_program(anywhere=True) == str(ga)


def test_another_ga_in_the_path_is_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("mine", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ga").write_text("")
        (tmp_path / folder / "ga").chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "mine" / "ga")])
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert paths.this_program() == str(tmp_path / "mine" / "ga")
    monkeypatch.setenv("PATH", str(tmp_path / "mine"))
    assert paths.this_program() == "ga"
