"""Memory over whole tasks: what the next one sees, what a long one is asked, what helpers it can use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import memory, paths
from genericagent.memory.records import entries
from genericagent.scripted import Reply, ScriptedServer, call, fail, say, seq

Start = Callable[..., tuple[GenericAgent, ScriptedServer]]
FACTS = "## [ENVIRONMENT]\n"


def do(agent: GenericAgent, text: str) -> tuple[dict[str, Any], list[str]]:
    """(the last item, the notices)."""
    queue, told = agent.put_task(text), []
    while "done" not in (item := queue.get(timeout=30)):
        if (item.get("event") or {}).get("kind") == "notice":
            told.append(item["event"]["text"])
    return item, told


def patch(name: str, old: str, new: str) -> Reply:
    return call("file_patch", path=f"../memory/{name}", old_content=old, new_content=new)


def sent(server: ScriptedServer, n: int, part: str = "messages") -> str:
    return json.dumps(server.requests[n].body[part], ensure_ascii=False)


# one source of truth


def test_what_a_tool_or_a_person_changes_is_seen_by_the_next_use_and_never_written_over(start: Start) -> None:  # C157
    agent, server = start([
        call("code_run", type="bash", script="true"),
        patch(memory.L1, "# Red lines\n", "gate: global_mem.txt\n# Red lines\n"), say("stored"),
        call("file_read", path=f"../memory/{memory.L1}"), patch(memory.L2, FACTS, f"{FACTS}- gate: 10.0.0.7\n"), say("seen"),
        say("new"),
    ])  # fmt: skip
    do(agent, "learn it: the gate is at 10.0.0.7")
    with (paths.memory() / memory.L2).open("a") as file:
        file.write("- by hand: stays\n")
    _, told = do(agent, "what is known of the gate?")
    assert "gate: global_mem.txt" in sent(server, 3, "system") and "gate: global_mem.txt" in sent(server, 4)
    assert len(told) == 1 and memory.L2 in told[0]
    agent.new_session()
    do(agent, "and now?")
    assert "gate: global_mem.txt" in sent(server, 6, "system")
    facts = (paths.memory() / memory.L2).read_text()
    assert "- gate: 10.0.0.7\n" in facts and "- by hand: stays\n" in facts
    assert [e["by"] for e in entries().values()] == ["tool", "outside", "tool"]


def test_a_change_by_a_script_is_journaled_before_the_next_write_and_shown(start: Start) -> None:
    script = f"echo '- around' >> {paths.memory() / memory.L2}"
    agent, _ = start([
        call("code_run", type="bash", script="true"), call("code_run", type="bash", script=script),
        patch(memory.L2, FACTS, f"{FACTS}- through\n"), say("a"), say("b"), say("c"),
    ])  # fmt: skip
    do(agent, "one, and through")
    assert [e["by"] for e in entries().values()] == ["outside", "tool"]
    assert len(do(agent, "two")[1]) == 1 and do(agent, "three")[1] == []


def test_the_session_and_turn_of_a_change_are_recorded_and_the_users_words_count(start: Start) -> None:
    agent, _ = start([patch(memory.L2, FACTS, f"{FACTS}- metric units\n"), say("noted")])
    end, _ = do(agent, "please use metric units from now on")
    (line,) = entries().values()
    assert line["session"] == end["session"] and line["turn"] == 1
    assert line["evidence"] == [{"told": "please use metric units from now on"}]


def test_notes_of_a_stopped_task_are_in_no_memory_and_in_no_later_prompt(start: Start) -> None:  # C128
    agent, server = start([
        call("update_working_checkpoint", key_info="send the letter to P"), call("code_run", type="bash", script="echo begun; sleep 60"),
        say("4"),
    ])  # fmt: skip
    queue = agent.put_task("send a letter")
    while "begun" not in queue.get(timeout=20).get("next", ""):
        pass
    agent.abort()
    while "done" not in queue.get(timeout=20):
        pass
    assert do(agent, "what is 2+2?")[0]["answer"] == "4"
    assert "<key_info>" not in sent(server, -1) and entries() == {}
    session = (paths.sessions() / f"{agent.session_id}.jsonl").read_text()
    assert "send the letter to P" in session, "archived, not lost"


def test_a_key_in_the_index_does_not_reach_the_model(start: Start) -> None:  # C130
    agent, server = start([*[call("code_run", type="bash", script="true")] * 10, say("ok")])
    memory.ensure_seeds()
    with (paths.memory() / memory.L1).open("a") as file:
        file.write("by hand: key-for-test\n")
    do(agent, "hi")
    assert "by hand: [a key]" in sent(server, 0, "system") and "key-for-test" not in json.dumps(
        [r.body for r in server.requests]
    )


# the evaluation


def looked(n: int) -> list[Reply]:
    return [call("code_run", type="bash", script=f"echo {i}") for i in range(n)]


def test_a_long_task_is_asked_once_what_it_taught_and_keeps_its_answer(start: Start) -> None:
    agent, server = start([*looked(15), say("<summary>s</summary>The answer."), say("nothing to store")])
    end, _ = do(agent, "a long one")
    assert end["status"] == "done" and end["answer"] == "The answer." and len(server.requests) == 17
    assert sent(server, 16).count("start_long_term_update") == 1


def test_what_a_long_task_taught_is_stored_after_its_answer(start: Start) -> None:
    agent, server = start([
        *looked(15), say("The answer."), call("start_long_term_update"), patch(memory.L2, FACTS, f"{FACTS}- a fact\n"), say("stored"),
    ])  # fmt: skip
    end, _ = do(agent, "a long one")
    assert end["answer"] == "The answer." and "- a fact" in (paths.memory() / memory.L2).read_text()
    assert sent(server, 18).count("Did it teach") == sent(server, 16).count("Did it teach") <= 1
    assert "No execution, no memory" in sent(server, 17)


@pytest.mark.parametrize("turns", [13, 20])
@pytest.mark.parametrize("why", ["short", "distilled", "exempt"])
def test_who_is_not_asked(start: Start, why: str, turns: int) -> None:
    if (why == "short") != (turns == 13):
        return
    steps = looked(turns)
    if why == "distilled":
        steps[3] = call("start_long_term_update")
    agent, server = start([*steps, say("The answer.")], user_tools=why != "exempt")
    assert do(agent, "go")[0]["answer"] == "The answer." and len(server.requests) == turns + 1


@pytest.mark.parametrize(
    "after", [fail(401, "no such key"), seq(then=call("code_run", type="bash", script="true")), say("")]
)
def test_a_task_that_was_done_stays_done_whatever_becomes_of_the_evaluation(start: Start, after: Any) -> None:
    begin = [*looked(15), say("The answer.")]
    agent, _ = start(seq(*begin, then=after if isinstance(after, Reply) else after({}, 0)), max_turns=20)
    end, _ = do(agent, "a long one")
    assert (end["status"], end["answer"], end["error"]) == ("done", "The answer.", None)


# helpers


def test_helpers_are_imported_and_shadow_nothing_of_the_library(start: Start, tmp_path: Path) -> None:
    memory.ensure_seeds()
    for folder in (paths.memory(), tmp_path):
        for name in ("json.py", "random.py", "encodings.py", "site.py", "os.py", "requests.py"):
            (folder / name).write_text("raise SystemExit('shadowed')\n")
    (paths.memory() / "greet_helper.py").write_text("def greet(name):\n    return f'hello {name}'\n")
    script = "import json, random, requests, greet_helper\nprint(greet_helper.greet('you'), json.dumps(1))"
    agent, server = start([call("code_run", type="python", script=script), say("ok")], workspace=tmp_path)
    do(agent, "greet")
    assert "hello you 1" in sent(server, 1) and "shadowed" not in sent(server, 1)


def test_a_projects_notes_are_named_in_each_prompt_until_it_is_left(start: Start) -> None:
    def inline(script: str) -> Reply:
        return call("code_run", type="python", inline_eval=True, script=script)

    agent, server = start([
        inline("handler.enter_project_mode('boat')"), inline("handler.enter_project_mode(None)"), inline("handler.enter_project_mode('../x')"),
        say("done"),
    ])  # fmt: skip
    do(agent, "work on the boat")
    notes = paths.temp() / "projects" / "boat" / "project_memory.md"
    assert notes.is_file() and json.dumps(str(notes))[1:-1] in sent(server, 1)
    last = server.requests[2].body["messages"][-1]
    assert "project_memory" not in json.dumps(last) and "no name of a project" in sent(server, 3)
    assert not (paths.temp() / "x").exists()
