"""Tokens into money."""

from __future__ import annotations

import pytest

from genericagent.llm.blocks import Usage
from genericagent.llm.usage import Meter, cost_of, price_of


def test_cached_input_is_a_part_of_the_input_and_priced_apart() -> None:
    price = (10.0, 20.0, 1.0, 12.0)
    used = Usage(input=1_000_000, output=100_000, cache_read=500_000, cache_write=200_000)
    assert cost_of(used, price) == pytest.approx(3.0 + 2.0 + 0.5 + 2.4)


def test_the_longest_known_name_wins_and_a_vendor_in_front_does_not_matter() -> None:
    assert price_of("gpt-4o-mini-2024-07-18", {}) == price_of("gpt-4o-mini", {}) != price_of("gpt-4o", {})
    assert price_of("anthropic/claude-haiku-4-5", {}) == price_of("claude-haiku-4-5", {})


def test_config_overrides_and_unknown_stays_unknown() -> None:
    assert price_of("my-model", {"my-model": {"input": 1, "output": 2}}) == (1, 2, 1, 1)
    assert price_of("nobody-knows", {}, "https://api.example.com") is None
    assert cost_of(Usage(input=5), None) is None


def test_models_on_this_machine_cost_nothing() -> None:
    assert price_of("llama", {}, "http://localhost:11434/v1") == (0, 0, 0, 0)


def test_one_unknown_price_makes_the_total_unknown() -> None:
    meter = Meter()
    meter.add(Usage(input=1, output=2), 0.5)
    meter.add(Usage(input=1, output=2), None)
    assert meter.cost is None and meter.usage.output == 4 and meter.requests == 2
