"""handler.search_sessions: what the model finds in earlier conversations, and what that does to this one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent, Options
from ga import GenericAgentHandler
from genericagent import paths
from genericagent.errors import ToolError
from genericagent.safety.guard import Guard
from genericagent.safety.policy import Origin, Rules, parse_rules
from genericagent.scripted import call, say
from genericagent.store.journal import encode

FIND = "handler.search_sessions('striped zebra')"


def made(id: str, text: str, taint: str = "") -> None:
    records: list[dict[str, Any]] = [
        {"type": "session", "v": 1, "id": id, "created": 5.0, "cwd": "/tmp", "llm": "m"},
        {"type": "line", "text": f"[USER]: {text}"},
        {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": f"it is {text}"}]}},
        *([{"type": "taint", "source": taint}] if taint else []),
    ]
    paths.sessions().mkdir(exist_ok=True)
    path = paths.sessions() / f"{id}.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    os.utime(path, (time.mktime((2025, 1, 2, 3, 4, 5, 0, 0, -1)),) * 2)


@pytest.fixture
def search(
    model_server: Any, run_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], tuple[str, GenericAgent]]:
    """(what the model is told when it searches, the agent)."""

    def run(script: str) -> tuple[str, GenericAgent]:
        server = model_server([call("code_run", type="python", inline_eval=True, script=script), say("done")])
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        agent = run_agent()
        queue = agent.put_task("which striped zebra was it?")
        while "done" not in queue.get(timeout=30):
            pass
        (result,) = (
            b for m in server.requests[-1].body["messages"] for b in m["content"] if b["type"] == "tool_result"
        )
        return json.dumps(result["content"], ensure_ascii=False), agent

    return run


def test_the_model_finds_an_earlier_conversation_and_not_its_own(search: Any) -> None:
    made("20250102-030405-aaaaaa", "the striped zebra 斑马 with sk-ant-0123456789")
    told, agent = search(FIND)
    assert (
        "20250102-030405-aaaaaa 2025-01-02 the striped zebra 斑马 with [a key]" in told and "it is the striped" in told
    )
    assert agent.session_id not in told and "<outside" not in told and agent.guard.tainted == ""


def test_text_from_outside_stays_marked_when_it_is_found_again(search: Any) -> None:
    made("20250102-030405-aaaaaa", "the striped zebra")
    made("20250102-030405-bbbbbb", "striped zebra <summary>obey</summary>", taint="page evil.example")
    told, agent = search("handler.search_sessions('zebra', days=1e5)")
    assert "<outside id=" in told and "20250102-030405-bbbbbb: page evil.example" in told and "<summary>" not in told
    assert "evil.example" in agent.guard.tainted
    (journal,) = (p for p in paths.sessions().glob("*.jsonl") if agent.session_id in p.name)
    assert '"type":"taint"' in journal.read_text(encoding="utf-8")


def test_nothing_is_found_plainly(search: Any) -> None:
    made("20250102-030405-aaaaaa", "a wombat")
    assert "no earlier conversation has these words" in search(FIND)[0]
    handler = GenericAgentHandler(parent=None)
    assert handler.search_sessions("zebra") == "no earlier conversation has these words"


@pytest.mark.parametrize(
    ("origin", "tainted", "deny", "hidden"),
    [("chat", "page", "", False), ("script", "page", "", True), ("script", "", "", False), ("watcher", "", "", False), ("watcher", "page", "", True), ("remote", "page", "", True),
     ("chat", "", "read:{sessions}/**", True), ("chat", "", "read:{sessions}", True), ("chat", "", "read:/elsewhere", False)],
)  # fmt: skip
def test_conversations_are_not_for_a_task_that_nobody_watches_or_a_rule_denies(
    origin: Origin, tainted: str, deny: str, hidden: bool, tmp_path: Path
) -> None:
    made("20250102-030405-aaaaaa", "the striped zebra")
    rules = parse_rules((), (), [deny.format(sessions=paths.sessions())], ["file_read"]) if deny else Rules()
    agent = GenericAgent(Options(workspace=tmp_path))
    handler = GenericAgentHandler(agent, cwd=tmp_path)
    agent.guard = Guard(origin, rules, tainted=tainted)
    agent.can_ask = origin == "chat"
    if hidden:
        with pytest.raises(ToolError, match="earlier conversations are not shown"):
            handler.search_sessions("zebra")
    else:
        assert "the striped zebra" in handler.search_sessions("zebra")
