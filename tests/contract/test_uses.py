"""The uses that must run as users of the original write them, against a model server on loopback."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from agent_loop import StepOutcome, agent_runner_loop
from agentmain import GeneraticAgent
from ga import GenericAgentHandler
from genericagent.scripted import call, say
from llmcore import ClaudeSession, ToolClient

TOOLS_SCHEMA = json.loads((Path(__file__).parents[2] / "assets" / "tools_schema.json").read_text(encoding="utf-8"))


def as_text(name: str, **arguments: Any) -> Any:
    block = json.dumps({"name": name, "arguments": arguments})
    return say(f"<summary>call {name}</summary>\n<tool_use>{block}</tool_use>")


@pytest.fixture
def anthropic_env(model_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def start(*replies: Any) -> Any:
        server = model_server(list(replies))
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return server

    return start


def test_bare_client_and_handler_need_no_global_state(anthropic_env: Any) -> None:
    server = anthropic_env(as_text("code_run", type="bash", script="echo from-the-tool"), say("it said from-the-tool"))
    client = ToolClient(ClaudeSession(cfg={"api_key": "YOUR_KEY"}))
    handler = GenericAgentHandler(parent=None)
    chunks = []
    loop = agent_runner_loop(client, "You are helpful.", "run echo", handler, TOOLS_SCHEMA, max_turns=5, verbose=True)
    for chunk in loop:
        chunks.append(chunk)
    text = "".join(chunks)
    assert "LLM Running (Turn 1) ..." in text and "from-the-tool" in text and "it said" in text
    first, second = server.requests
    assert "YOUR_KEY" in str(first.headers)
    assert "code_run" in json.dumps(first.body) and "tools" not in first.body
    assert "<tool_result>" in json.dumps(second.body["messages"][-1])
    assert json.dumps(second.body).count("file_patch") <= 2, "the tool list is sent once and then referred to"


def test_a_subclass_adds_a_tool_with_a_plain_method(anthropic_env: Any) -> None:
    server = anthropic_env(as_text("git_branch"), say("on main"))

    class WithGit(GenericAgentHandler):
        def do_git_branch(self, args: dict[str, Any], response: Any) -> StepOutcome:
            return StepOutcome({"branch": "trunk-42"}, next_prompt=self._get_anchor_prompt())

    client = ToolClient(ClaudeSession(cfg={"api_key": "YOUR_KEY"}))
    loop = agent_runner_loop(client, "s", "which branch?", WithGit(parent=None), TOOLS_SCHEMA, max_turns=5)
    assert "on main" in "".join(loop)
    assert "trunk-42" in json.dumps(server.requests[1].body)


def test_bot_in_a_thread_with_its_queue(anthropic_env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    anthropic_env(call("code_run", type="bash", script="echo hi"), say("first"), say("second"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    bot = GeneraticAgent()
    bot.next_llm(0)
    bot.verbose = False
    thread = threading.Thread(target=bot.run, daemon=True)
    thread.start()
    for expected in ("first", "second"):
        queue = bot.put_task("do it")
        shown = ""
        while "done" not in (item := queue.get(timeout=30)):
            shown += item["next"]
            assert item["turn"] >= 1 or not item["next"]
        assert item["status"] == "done" and item["answer"] == expected
        assert item["done"] == shown, "the deltas add up to the whole, nothing is sent twice"
    bot.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    bot.release()
