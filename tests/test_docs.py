"""The pages say what the program does, and lead where they say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from genericagent import prompts

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


@pytest.fixture(scope="module")
def generate() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["TOOLS.md", "COMMANDS.md"])
def test_a_page_made_from_the_code_is_up_to_date(generate: Any, name: str) -> None:
    assert prompts.language() == "en"
    made = "\n".join(generate.FILES[name]()) + "\n"
    assert (ROOT / "docs" / name).read_text("utf-8") == made, "run: python docs/generate.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_into_a_page_find_their_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text("utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`([\w./-]+\.(?:py|js|json|md|toml))`", text)
    assert len(named) > 20
    for name in named:
        assert any((ROOT / base / name).exists() for base in ("", "genericagent", "docs")), name


def test_the_chinese_readme_tells_the_same() -> None:
    """The same sections, commands, links, screens and figures."""
    english, chinese = ((ROOT / name).read_text("utf-8") for name in ("README.md", "README.zh.md"))
    for what in (
        r"^(#+) ",
        r"\]\((?!README)([^)]+)\)",
        r"^````text\n(.*?)^````$",
        r"^\| ([a-z]+_[a-z_, ]+) \|",
        r"^    ((?:ga|make|export) \S+)",
    ):
        found = [re.findall(what, text, re.M | re.S if "````" in what else re.M) for text in (english, chinese)]
        assert found[0] == found[1], what
    numbers = [set(re.findall(r"\d[\d,.]*\d", text)) for text in (english, chinese)]
    assert numbers[0] == numbers[1]
