"""A smaller edition of benchmarks/evolution.py: what one run has stored shortens the next, and nothing else does."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import evolution  # noqa: E402

from genericagent.memory.records import entries  # noqa: E402


@pytest.fixture
def play(model_server: Any, run_ga: Any, tmp_path: Path) -> Any:
    def once() -> evolution.Bodies:
        server = model_server(evolution.model)
        env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url}
        done = run_ga("--task", "shop", "--input", evolution.REQUEST, "--cwd", str(tmp_path), env=env)
        assert done.returncode == 0, done.stderr
        return [request.body for request in server.requests]

    return lambda: evolution.again(tmp_path, once)


@pytest.mark.slow
def test_a_second_run_takes_half_the_turns_and_without_its_memory_all_of_them(
    play: Any, run_ga: Any, ga_home: Path
) -> None:
    first, second = play(), play()
    assert 2 * len(second) <= len(evolution.work_of(first)) < len(first)
    assert run_ga("memory", "check").returncode == 0
    assert len(entries()) == 4 and all(entry["by"] == "tool" and entry["evidence"] for entry in entries().values())
    shutil.rmtree(ga_home / "memory")
    assert len(play()) == len(first)


@pytest.mark.slow
def test_a_procedure_that_fails_is_left_for_looking_and_trying_and_mended(play: Any, ga_home: Path) -> None:
    first, second = play(), play()
    (ga_home / "memory" / evolution.SCRIPT).unlink()
    assert len(play()) == len(first) + 2, "read, and tried in vain"
    assert len(play()) == len(second)


@pytest.mark.slow
def test_a_procedure_without_its_pointer_is_not_found(play: Any, ga_home: Path) -> None:
    first, index = play(), ga_home / "memory" / "global_mem_insight.txt"
    (ga_home / "memory" / evolution.SCRIPT).unlink()  # its name alone would make it importable
    index.write_text("".join(line for line in index.read_text().splitlines(True) if "close_month" not in line))
    assert len(play()) == len(first)
