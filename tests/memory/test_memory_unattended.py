"""What a task that has read text from outside may do to the memory while nobody is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import memory, paths
from genericagent.cli.memory import run_memory
from genericagent.errors import ToolError
from genericagent.memory import inbox
from genericagent.memory.records import entries
from genericagent.safety.asking import Answer
from genericagent.scripted import Reply, ScriptedServer, call, say

Start = Callable[..., tuple[GenericAgent, ScriptedServer]]
FACTS = "## [ENVIRONMENT]\n"


def do(agent: GenericAgent, text: str) -> tuple[dict[str, Any], list[str]]:
    queue, told = agent.put_task(text), []
    while "done" not in (item := queue.get(timeout=30)):
        if (item.get("event") or {}).get("kind") == "notice":
            told.append(item["event"]["text"])
    return item, told


def patch(fact: str) -> Reply:
    return call("file_patch", path=f"../memory/{memory.L2}", old_content=FACTS, new_content=f"{FACTS}- {fact}\n")


def facts() -> str:
    return (paths.memory() / memory.L2).read_text()


def test_what_nobody_could_allow_is_lost(start: Start) -> None:
    """It waits in the inbox, and the user's word stores it."""
    agent, _ = start([patch("the gate is at 10.0.0.7")], origin="script", tainted="https://example.com")
    end, _ = do(agent, "learn it: the gate is at 10.0.0.7")
    assert end["status"] == "needs_input" and end["denied"] and "10.0.0.7" not in facts()
    listed, code = run_memory(["inbox"])
    assert code == 0 and "the gate is at 10.0.0.7" in listed and "!https://example.com" in listed
    assert "+- the gate is at 10.0.0.7" in run_memory(["inbox", "1"])[0]
    assert run_memory(["accept", "1"])[1] == 0 and "- the gate is at 10.0.0.7\n" in facts()
    entry = list(entries().values())[-1]
    assert (entry["by"], entry["evidence"], entry["tainted"]) == ("user", [{"accepted": 1}], "https://example.com")
    assert "nothing waits" in run_memory(["inbox"])[0]
    with pytest.raises(ToolError, match="no proposal 1"):
        run_memory(["accept", "1"])


def test_a_proposal_is_accepted_where_it_no_longer_fits_or_holds_a_key(start: Start) -> None:
    agent, _ = start([patch("one")], origin="script", tainted="a page")
    do(agent, "one")
    (paths.memory() / memory.L2).write_text("rewritten\n")
    with pytest.raises(ToolError, match="no longer holds"):
        run_memory(["accept", "1"])
    key = "sk-ant-api03-" + "Ab3dEf6hIj9kLm2n" * 3
    assert inbox.propose(paths.memory() / "key.md", {"content": f"the key is {key}\n"}, agent.handler._about())
    with pytest.raises(ToolError):
        run_memory(["accept", "2"])
    assert facts() == "rewritten\n" and not (paths.memory() / "key.md").exists()


def test_the_inbox_grows_without_end(start: Start) -> None:
    agent, _ = start([say("ok")], origin="script", tainted="a page")
    do(agent, "hi")
    assert agent.handler is not None
    about = agent.handler._about()
    kept = [inbox.propose(paths.memory() / f"{n}.md", {"content": "x"}, about) for n in range(inbox.MOST + 5)]
    assert kept.count(True) == inbox.MOST == len(inbox.pending())
    assert not inbox.propose(paths.memory() / "long.md", {"content": "x" * 10_000}, about)


WAYS = {
    "a path made of pieces": "open('..' + '/mem' + 'ory/global_' + 'mem.txt', 'a').write('- poison\\n')",
    "a link": "import os\nos.symlink('../mem' + 'ory', 'm')\nopen('m/global_' + 'mem.txt', 'a').write('- poison\\n')",
    "a hard link": "import os\nos.link('../mem' + 'ory/global_' + 'mem.txt', 'h')\nopen('h', 'a').write('- poison\\n')",
    "a new helper": "open('..' + '/mem' + 'ory/help' + 'er.py', 'w').write('print(1)\\n')",
    "a removal": "import os\nos.unlink('..' + '/mem' + 'ory/global_' + 'mem.txt')",
    "a renamed one": "import os\nopen('n', 'w').write('poison')\nos.replace('n', '..' + '/mem' + 'ory/global_' + 'mem.txt')",
    "an old date": "import os\np = '..' + '/mem' + 'ory/global_' + 'mem.txt'\nopen(p, 'a').write('- poison\\n')\nos.utime(p, (1, 1))",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_script_changes_the_memory_around_the_writer(start: Start, way: str) -> None:
    agent, _ = start(
        [call("code_run", type="python", script=WAYS[way]), say("done")],
        origin="script", tainted="https://example.com", allow=("*",),
    )  # fmt: skip
    memory.ensure_seeds(lambda value: value)
    before = {f.name: f.read_bytes() for f in paths.memory().glob("*") if f.is_file() and not f.name.startswith(".")}
    end, told = do(agent, "go")
    after = {f.name: f.read_bytes() for f in paths.memory().glob("*") if f.is_file() and not f.name.startswith(".")}
    assert after == before, end
    if not end["denied"]:
        assert any("taken back" in line for line in told), told
        assert [e["by"] for e in entries().values()][-2:] == ["outside", "revert"]


def test_a_change_by_the_user_is_taken_back_with_the_scripts(start: Start) -> None:
    memory.ensure_seeds(lambda value: value)
    agent, _ = start(
        [call("code_run", type="bash", script="sleep 0.2"), say("done")],
        origin="script",
        tainted="a page",
        allow=("*",),
    )
    with (paths.memory() / memory.L2).open("a") as file:
        file.write("- by hand\n")
    _, told = do(agent, "go")
    assert "- by hand\n" in facts() and not any("taken back" in line for line in told)


def test_with_somebody_there_a_change_is_told_and_stays(start: Start) -> None:
    agent, _ = start(
        [call("code_run", type="python", script=WAYS["an old date"]), say("done"), say("next")], tainted="x"
    )
    memory.ensure_seeds(lambda value: value)
    agent.can_ask, agent.ask = True, lambda question, whole: Answer("once")  # type: ignore[method-assign]
    do(agent, "go")
    _, told = do(agent, "and")
    assert "- poison" in facts() and any(memory.L2 in line for line in told)
