"""Caps on money and time: the run stops before it crosses one, says what was spent, and can go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import paths
from genericagent.llm.blocks import Usage
from genericagent.llm.budget import Budget, TaskCap
from genericagent.scripted import Reply, ScriptedServer, Tool, call, say, seq

PRICE = '[prices."scripted"]\ninput = 4.0\noutput = 20.0\n'
DEAR = Usage(1000, 100)
COST = 0.006
Start = Callable[..., tuple[GenericAgent, ScriptedServer]]


@pytest.fixture
def start(model_server: Any, run_agent: Any) -> Start:
    """An agent on a scripted model that has a price and is not on a loopback address as far as prices go."""

    def make(replies: Any, config: str = PRICE, **options: Any) -> tuple[GenericAgent, ScriptedServer]:
        server = model_server(replies)
        entry = f'[[llm]]\napi = "anthropic"\nmodel = "scripted"\napi_key = "k-12345"\nbase_url = "{server.url}"\n'
        (paths.home() / "config.toml").write_text(entry + config, encoding="utf-8")
        return run_agent(**options), server

    return make


def do(agent: GenericAgent, text: str) -> dict[str, Any]:
    queue = agent.put_task(text)
    while "done" not in (item := queue.get(timeout=30)):
        pass
    return item


def loop(body: dict[str, Any], n: int) -> Reply:
    return Reply(tools=[Tool("code_run", {"type": "bash", "script": "true"})], usage=DEAR)


def test_a_looping_model_stops_before_the_limit_and_says_what_was_spent(start: Start) -> None:  # C143
    agent, server = start(loop, max_cost=0.1, max_turns=100)
    end = do(agent, "loop")
    assert (end["status"], end["result"]) == ("limit", "BUDGET_EXCEEDED")
    assert 0 < end["cost"] <= 0.1 and f"{end['cost']:.4f}" in end["error"]
    assert end["cost"] == pytest.approx(COST * len(server.requests))
    assert len(server.requests) >= 3, "most of it may be used"


def test_a_stopped_run_can_be_continued(start: Start) -> None:  # C143
    agent, server = start(seq(*[loop({}, n) for n in range(6)], then=say("finished", usage=DEAR)), max_cost=0.035)
    end = do(agent, "work")
    assert end["status"] == "limit", end
    assert do(agent, "continue")["answer"] == "finished"
    assert "work" in json.dumps(server.requests[-1].body)


def test_the_answer_may_be_as_long_as_what_is_left(start: Start) -> None:
    agent, server = start(lambda body, n: say("ok", usage=DEAR), max_cost=0.1)
    do(agent, "hi")
    do(agent, "hi")
    limits = [r.body["max_tokens"] for r in server.requests]
    assert limits[0] < 5000 and 20 * limits[0] / 1e6 < 0.1, "what is left after the input, at 20 dollars a million"
    assert limits[1] == pytest.approx(limits[0], rel=0.1), "each task has its own limit"


def test_without_a_cap_the_answer_is_not_limited(start: Start) -> None:
    agent, server = start([say("ok")])
    do(agent, "hi")
    assert server.requests[0].body["max_tokens"] == 8192


def test_an_answer_that_came_out_longer_is_what_the_next_one_is_taken_for(start: Start) -> None:
    long = Reply(tools=[Tool("code_run", {"type": "bash", "script": "true"})], usage=Usage(1000, 3000))
    agent, server = start(lambda body, n: long, max_cost=0.1)
    end = do(agent, "loop")
    assert end["status"] == "limit" and len(server.requests) == 1, (
        "0.064 are spent, another such answer would cross 0.1"
    )


@pytest.mark.parametrize("limit", ["", "[limits]\ndaily_cost = 1.0\n"])
def test_an_unknown_price_refuses_a_cap_and_says_what_to_configure(
    start: Start, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genericagent.llm.usage.is_loopback", lambda url: False)
    agent, server = start([say("never asked")], config=limit, max_cost=None if limit else 1.0)
    end = do(agent, "hi")
    assert end["status"] == "failed" and "[prices" in end["error"] and "scripted" in end["error"]
    assert server.requests == []


def test_an_unknown_price_without_a_cap_counts_tokens_and_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genericagent.llm.usage.is_loopback", lambda url: False)
    agent, _ = start([say("ok", usage=DEAR)], config="")
    end = do(agent, "hi")
    assert end["cost"] is None and end["usage"]["input"] == 1000
    assert "price unknown" in agent.usage_text() and agent.ledger.today().unpriced == 1


def test_a_model_on_this_machine_is_free_under_any_cap(start: Start) -> None:
    agent, _ = start([say("ok", usage=DEAR)], config="[limits]\ndaily_cost = 0.01\n", max_cost=0.0001)
    end = do(agent, "hi")
    assert end["status"] == "done" and end["cost"] == 0


def test_the_daily_cap_binds_all_runs_together(start: Start) -> None:  # C143
    daily = f"{PRICE}[limits]\ndaily_cost = 0.05\n"
    agent, server = start(loop, config=daily, max_turns=2)
    assert do(agent, "one")["status"] == "limit" and len(server.requests) == 2
    other, server = start(loop, config=daily, max_turns=100)
    end = do(other, "two")
    assert end["result"] == "BUDGET_EXCEEDED" and "daily" in end["error"]
    assert other.ledger.today().cost <= 0.05 and end["usage"]["day"]["cost"] == other.ledger.today().cost
    third, server = start(loop, config=daily)
    assert do(third, "three")["status"] == "limit" and server.requests == []
    assert "of $0.05" in third.usage_text()


@pytest.mark.slow
def test_a_call_that_is_stopped_or_drops_is_counted_all_the_same(start: Start) -> None:
    agent, _ = start([say("x" * 3000, chunk=100, drop_text=2000), say("whole", usage=DEAR)])
    end = do(agent, "hi")
    assert end["answer"] == "whole" and end["usage"]["requests"] == 2
    assert end["cost"] > COST + 0.01, "the 600 tokens that were shown before the drop, too"


def test_a_provider_without_usage_is_estimated(start: Start) -> None:
    agent, _ = start([Reply(text="y" * 3000, usage=False)])
    end = do(agent, "hi")
    assert end["usage"]["output"] >= 1000 and end["usage"]["input"] > 500 and end["cost"] > 0


def test_usage_stands_in_the_journal_and_by_turn_task_session_and_day(start: Start) -> None:
    agent, _ = start([call("code_run", type="bash", script="true"), say("a", usage=DEAR), say("b", usage=DEAR)])
    do(agent, "one")
    end = do(agent, "two")
    used = end["usage"]
    assert [t["turn"] for t in used["turns"]] == [1] and used["input"] == 1000
    assert used["session"]["requests"] == used["day"]["requests"] == 3
    assert used["session"]["cost"] == pytest.approx(used["day"]["cost"])
    agent.release()
    (journal,) = paths.sessions().glob("*.jsonl")
    records = [json.loads(line)["rec"] for line in journal.read_text(encoding="utf-8").splitlines()]
    assert [r["input"] for r in records if r["type"] == "usage"][1:] == [1000, 1000]


@pytest.mark.slow
def test_time_ends_a_tool_and_a_silent_model(start: Start) -> None:
    agent, _ = start([call("code_run", type="bash", script="echo begun; sleep 60")], max_time=1.0)
    end = do(agent, "work")
    assert (end["status"], end["result"]) == ("limit", "BUDGET_EXCEEDED") and "time limit" in end["error"]
    other, _ = start([say("never", hang_before_headers=60)], max_time=0.5)
    end = do(other, "work")
    assert (end["status"], end["result"]) == ("limit", "BUDGET_EXCEEDED")


def test_a_command_stops_with_exit_code_3_and_goes_on_with_continue(
    model_server: Any, run_ga: Any, ga_home: Path
) -> None:  # C143
    server = model_server(loop)
    entry = f'[[llm]]\napi = "anthropic"\nmodel = "scripted"\napi_key = "k-12345"\nbase_url = "{server.url}"\n{PRICE}'
    (ga_home / "config.toml").write_text(entry, encoding="utf-8")
    done = run_ga("--task", "job", "--input", "loop", "--max-cost", "0.05")
    end = json.loads((ga_home / "temp" / "job" / "result.json").read_text())
    assert done.returncode == 3 and end["status"] == "limit" and end["cost"] <= 0.05 and "$" in done.stderr
    before = len(server.requests)
    done = run_ga("-p", "go on", "--continue", "--max-cost", "0.05")
    assert done.returncode == 3 and len(server.requests) > before


def test_a_call_that_fits_is_made_whatever_the_rounding() -> None:
    for tokens in range(500, 700):
        cap = TaskCap(0.1)
        cap.settle(0.006, Usage())
        assert Budget([cap]).before("m", (4.0, 20.0, 4.0, 4.0), tokens, None) == int(4700 - tokens / 5 - 1e-6)
