"""Smaller editions of benchmarks/durability.py: what a kill, a damaged file, a full disk leave is whole."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import durability  # noqa: E402
from durability import Row  # noqa: E402

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc shows when a killed run's tools ended")


def missed(rows: Iterator[Row]) -> list[str]:
    return [f"{row.figure}: {row.value:g} {row.unit}, {row.note}" for row in rows if row.value]


@pytest.mark.slow
@linux
def test_a_run_killed_at_random_goes_on_to_its_end_and_nothing_is_lost_or_done_twice() -> None:  # C040
    assert missed(durability.kills(seed=3, count=8)) == []


def test_mutated_journals_open_with_every_intact_record() -> None:  # C040
    assert missed(durability.mutations(seed=2, count=60)) == []


@pytest.mark.parametrize("damage", durability.DAMAGE)
def test_a_journal_with_one_kind_of_damage_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes, bytes, random.Random], bytes]
) -> None:  # C040
    monkeypatch.setattr(durability, "DAMAGE", [damage])
    rng = random.Random(5)
    whole = durability.samples(tmp_path, rng)
    assert [found for _ in range(4) if (found := durability.open_mutated(tmp_path, whole, rng))] == []


def test_lines_that_processes_append_at_once_stay_whole_and_a_session_has_one_writer() -> None:  # C043
    assert missed(durability.appends(seed=1, processes=4, each=50)) == []


def test_a_fault_at_any_call_leaves_the_old_or_the_new_state() -> None:
    count, wrong = durability.every_fault()
    assert wrong == [] and count > 100
