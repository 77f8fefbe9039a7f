"""What the user is told to do about a model call that has failed for good."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import LLMError
from genericagent.llm.faults import http_error, in_band, remedy
from genericagent.scripted import Reply, ScriptedServer, say

RunGa = Callable[..., Any]
CASES = {  # status, words of the provider → what the line must name in -p, in the chat
    "key": (401, "invalid x-api-key", "check the key (", "check the key ("),
    "money": (402, "Insufficient Balance", "top it up", "top it up"),
    "wait": (429, "rate limit reached", "wait a little", "wait a little"),
    "trouble": (503, "overloaded", "wait a little", "wait a little"),
    "model": (404, "model: nonsense-1", "the model's name", "the model's name"),
    "model400": (400, "The model `nonsense` does not exist", "the model's name", "the model's name"),
    "long": (400, "prompt is too long: 250000 tokens > 200000 maximum", "less text", "/compact"),
    "other": (400, "temperature: must be below 1", "agentmain.py doctor", "/doctor"),
}


def configured(home: Path, url: str) -> None:
    entry = f'[[llm]]\napi = "anthropic"\nbase_url = "{url}"\napi_key = "key-for-test"\nmax_retries = 0\nmodel = '
    (home / "config.toml").write_text(f'{entry}"one"\n{entry}"two"\n')
    (home / "config.toml").chmod(0o600)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_error_leaves_the_user_without_a_way_on(
    ga_home: Path, run_ga: RunGa, run_agent: Callable[..., Any], case: str
) -> None:
    status, words, script, chat = CASES[case]
    with ScriptedServer([Reply(status=status, text=words)] * 4) as server:
        configured(ga_home, server.url)
        done = run_ga("-p", "hi")
        (line,) = done.stderr.splitlines()
        assert done.returncode == 1 and words in line and script in line and "--llm_no N takes another model" in line
        assert "key-for-test" not in line
        queue = run_agent().put_task("hi")
        while "done" not in (item := queue.get(timeout=30)):
            pass
        assert words in item["error"] and chat in item["error"] and "/llm takes another model" in item["error"]
        assert "\n" not in item["error"] and item["error"] in item["done"]


def test_a_dead_network_leaves_the_user_without_a_way_on(ga_home: Path, run_ga: RunGa) -> None:
    configured(ga_home, "http://127.0.0.1:9")
    (line,) = run_ga("-p", "hi").stderr.splitlines()
    assert "connection refused" in line and "check the network" in line and "agentmain.py doctor" in line


def test_a_question_aside_fails_without_a_way_on(ga_home: Path, run_agent: Callable[..., Any]) -> None:
    with ScriptedServer([Reply(status=401, text="no"), say("unused")]) as server:
        configured(ga_home, server.url)
        with pytest.raises(LLMError, match="check the key .*/llm takes another model"):
            list(run_agent().aside("well?"))


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (in_band({"type": "overloaded_error", "message": "Overloaded"}), "wait"),
        (in_band({"code": "context_length_exceeded", "message": "maximum context length"}), "shorter"),
        (in_band({"message": "insufficient balance"}), "money"),
        (http_error(429, {}, json.dumps({"error": {"code": "insufficient_quota", "message": "exceeded your current quota"}}).encode(), 0), "money"),
        (http_error(529, {}, b"", 0), "wait"),
        (http_error(501, {}, b"", 0), "wait"),
        (http_error(413, {}, b"", 0), "shorter"),
        (LLMError("timed out reading", retryable=True), "address"),
    ],
)  # fmt: skip
def test_an_error_leads_the_wrong_way(error: LLMError, way: str) -> None:
    assert remedy(error) == way
