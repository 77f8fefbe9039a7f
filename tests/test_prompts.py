"""Languages: the folders hold the same texts, and the right one is chosen."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
import sys
from pathlib import Path

import pytest

from genericagent import paths, prompts
from genericagent.errors import ConfigError

ROOT = paths.shipped("assets", "prompts")
NAMES = sorted({p.stem for p in ROOT.glob("*/*.json")})


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GA_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(prompts, "_chosen", None)


def load(lang: str, name: str) -> dict[str, str]:
    texts: dict[str, str] = json.loads((ROOT / lang / f"{name}.json").read_text(encoding="utf-8"))
    return texts


def placeholders(template: str) -> set[str]:
    return {field for _, field, _, _ in string.Formatter().parse(template) if field is not None}


@pytest.mark.parametrize("name", NAMES)
def test_a_message_exists_in_one_language_only(name: str) -> None:
    english, chinese = load("en", name), load("zh", name)
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert isinstance(text, str) and isinstance(chinese[key], str), key
        assert placeholders(text) == placeholders(chinese[key]), key


def test_a_prompt_exists_in_one_language_only() -> None:
    def files(lang: str) -> set[Path]:
        return {p.relative_to(ROOT / lang) for p in (ROOT / lang).rglob("*") if p.is_file()}

    assert files("en") == files("zh")


@pytest.mark.parametrize(
    ("environment_", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "en_US.UTF-8"}, "en"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW", "LANG": "de_DE"}, "zh"),
        ({"GA_LANG": "en", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"GA_LANG": "zh", "LANG": "C"}, "zh"),
    ],
)
def test_language_of_the_locale_is_missed(
    monkeypatch: pytest.MonkeyPatch, environment_: dict[str, str], expected: str
) -> None:
    for name, value in environment_.items():
        monkeypatch.setenv(name, value)
    assert prompts.language() == expected


def test_language_can_be_set_and_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts.set_language("zh")
    assert prompts.language() == "zh"
    prompts.set_language(None)
    assert prompts.language() == "en"
    with pytest.raises(ConfigError, match="'fr'"):
        prompts.set_language("fr")


def test_say_fills_in_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "catalog", lambda name: {"hello": "hello {who}"} if name == "messages" else {})
    assert prompts.say("hello", who="you") == "hello you"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_text_names_a_command_that_may_not_be_there(lang: str) -> None:
    for file in paths.shipped("assets", "prompts", lang).glob("*.json"):
        for key, text in json.loads(file.read_text("utf-8")).items():
            assert not re.search(r"(?<![\w{])ga (?:--|[a-z])", text), f"{file.name}: {key}: {text}"


@pytest.mark.parametrize("name", ["ga", "python"])
def test_what_the_program_calls_itself_does_not_work(tmp_path: Path, ga_home: Path, name: str) -> None:
    """From a checkout, and from a folder with `ga` that is in PATH or is not."""
    bin, work = tmp_path / "with blank" / "bin", tmp_path / "work"
    bin.mkdir(parents=True)
    work.mkdir()
    ga = bin / "ga"
    ga.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(paths.program().parent)!r})\nimport agentmain\nagentmain.cli_entry()\n"
    )
    ga.chmod(0o755)
    start = {"ga": [str(ga)], "python": [sys.executable, str(paths.program())]}[name]
    found = os.pathsep.join([str(bin), os.environ["PATH"]])
    for path in (os.environ["PATH"], found):
        env = {**os.environ, "PATH": path}
        first = subprocess.run([*start, "memory", "--help"], env=env, cwd=work, capture_output=True, text=True)
        command = first.stdout.partition(" memory log")[0]
        assert (command == "ga") == (name == "ga" and path == found)
        done = subprocess.run(
            f"{command} memory show 99", shell=True, env=env, cwd=work, capture_output=True, text=True
        )
        assert "there is no change 99" in done.stderr and f"{command} memory log" in done.stderr


def test_the_agent_has_two_names_in_chinese() -> None:
    """It is 智能体; 代理服务器 is a proxy."""
    files = [*(ROOT / "zh").iterdir(), *paths.shipped("memory", "zh").iterdir()]
    assert len(files) > 10
    for file in files:
        assert not re.findall(r".{0,12}(?:代理(?!服务器)|助手|助理).{0,12}", file.read_text("utf-8")), file.name
