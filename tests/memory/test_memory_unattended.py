"""What a task that has read text from outside may do to the memory while nobody is there."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import memory, paths
from genericagent.cli.chat import news
from genericagent.cli.memory import run_memory
from genericagent.cli.one_shot import run_prompt
from genericagent.errors import ToolError, UsageError
from genericagent.memory import inbox, writer
from genericagent.memory.records import entries
from genericagent.safety.asking import Answer
from genericagent.safety.redact import Redactor
from genericagent.scripted import Reply, ScriptedServer, call, say
from genericagent.store import lines
from genericagent.tools.files import file_write

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


def test_a_proposal_is_accepted_where_it_no_longer_fits(start: Start) -> None:
    agent, _ = start([patch("one")], origin="script", tainted="a page")
    do(agent, "one")
    (paths.memory() / memory.L2).write_text("rewritten\n")
    with pytest.raises(ToolError, match="no longer holds"):
        run_memory(["accept", "1"])
    assert facts() == "rewritten\n"


def test_a_proposal_destroys_a_file_that_is_no_text() -> None:
    memory.ensure_seeds()
    (paths.memory() / "a.bin").write_bytes(b"\0data")
    lines.append(proposals(), {"file": "a.bin", "content": "x\n"})
    with pytest.raises(ToolError, match=r"a\.bin exists"):
        run_memory(["accept", "1"])
    with pytest.raises(ToolError, match="no text"):
        writer.write(
            paths.memory() / "a.bin", told("x"), partial(file_write, paths.memory() / "a.bin", "x\n", "overwrite"), whole=True
        )  # fmt: skip
    assert (paths.memory() / "a.bin").read_bytes() == b"\0data"


def proposals() -> Path:
    paths.logs().mkdir(parents=True, exist_ok=True)
    return paths.logs() / "memory_proposals.jsonl"


def told(text: str) -> writer.About:
    about = writer.About()
    about.evidence.user_said(text)
    return about


@pytest.mark.parametrize("text", [
    "the key is sk-ant-api03-" + "Ab3dEf6hIj9kLm2n" * 3, "the configured one is key-that-is-known", "use {{file:/etc/hostname:1:1}} here",
    "the key is [a key]",
])  # fmt: skip
def test_a_key_or_what_is_no_text_as_it_stands_lies_in_the_inbox(text: str) -> None:
    memory.ensure_seeds()
    about = writer.About(redact=Redactor(["key-that-is-known"]))
    with suppress(ToolError):
        assert not inbox.propose(paths.memory() / "note.md", {"content": text}, about)
    assert inbox.pending() == {} and not proposals().exists()


def test_proposals_are_kept_once_told_and_discarded(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    memory.ensure_seeds()
    assert list(news()) == []
    agent, _ = start([patch("gate")], origin="script", tainted="a page")
    run_prompt(Namespace(prompt="learn it", output_format="text", verbose=False), lambda: agent)
    assert "1 proposal(s)" in capsys.readouterr().err
    for _ in range(2):
        for name in ("a.md", "b.md"):
            assert inbox.propose(paths.memory() / name, {"content": "x"}, writer.About())
    (line,) = news()
    assert len(inbox.pending()) == 3 and "3 proposal(s)" in line and "ga memory inbox" in line
    assert "dropped: 1" in run_memory(["drop", "2"])[0] and list(inbox.pending()) == [1, 3]
    with pytest.raises(ToolError, match="no proposal 2"):
        run_memory(["drop", "2"])
    assert "dropped: 2" in run_memory(["drop", "all"])[0] and list(news()) == []
    assert not (paths.memory() / "a.md").exists() and "gate" not in facts()
    for words in (["drop"], ["drop", "any"], ["accept", "all"], ["show", "1" * 5000]):
        with pytest.raises(UsageError):
            run_memory(words)


@pytest.mark.parametrize("line", [
    '{"accepted": []}', '{"accepted": {}}', '{"accepted": true}', '{"dropped": "1"}', '{"file": "/etc/x", "content": "a"}',
    '{"file": "a\\u0000b.md", "content": "a"}', '{"file": "../plugins/x.py", "content": "a"}', '{"file": "a.md", "content": 5}',
    '{"file": "a.md"}', '{"file": ["a.md"], "content": "a"}', '{"file": "a.md", "old_content": "x", "new_content": null}',
    '{"file": "\\ud800.md", "content": "a"}', '{"file": "a.md", "content": "\\ud800"}', '{"file": "L4_raw_sessions", "content": "a"}',
    '{"file": "global_mem.txt/x.md", "content": "a"}', '{"file": "a.md", "content": "a", "tainted": {"a": 1}}', "[]", "half {",
])  # fmt: skip
def test_an_odd_line_of_the_inbox_raises_nothing_and_hides_no_other(line: str) -> None:
    memory.ensure_seeds()
    proposals().write_text(line + "\n")
    lines.append(proposals(), {"file": "note.md", "content": "x\n", "tainted": None})
    assert "note.md" in run_memory(["inbox"])[0] and len(list(news())) == 1
    for word in ("inbox", "accept", "drop"):
        with suppress(ToolError):
            run_memory([word, "1"])
    last = max(inbox.pending(), default=0)
    assert not last or run_memory(["accept", str(last)])[1] == 0
    assert (paths.memory() / "note.md").read_text() == "x\n" and not (paths.memory() / "a.md").exists()


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
