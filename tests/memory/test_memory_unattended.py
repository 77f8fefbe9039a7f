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
from genericagent.memory.records import Records, entries
from genericagent.memory.watch import Watch
from genericagent.memory.writer import About
from genericagent.safety.asking import Answer
from genericagent.safety.redact import Redactor
from genericagent.scripted import Reply, ScriptedServer, call, say
from genericagent.store import atomic, lines
from genericagent.store.outbox import Outbox
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


@pytest.mark.slow
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
    assert len(inbox.pending()) == 3 and "3 proposal(s)" in line and "agentmain.py memory inbox" in line
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


IN = "import os\nT = os.getcwd()\nos.chdir('../' + 'yromem'[::-1])\n"  # into the memory, by a name that no reader sees
L1, L2 = "'global_' + 'mem_insight.txt'", "'global_' + 'mem.txt'"
LEFT = """import signal, time
def write(*_): open('global_' + 'mem.txt', 'a').write('- poison')
signal.signal(signal.SIGTERM, write)
open('../temp/ready', 'w').close()
time.sleep(60)
"""
WAYS = {
    "a path made of pieces": f"{IN}open({L2}, 'a').write('- poison\\n')",
    "a link to the folder": f"import os\nos.symlink('../mem' + 'ory', 'm')\nopen('m/' + {L2}, 'a').write('- poison\\n')",
    "a hard link": f"{IN}os.link({L2}, T + '/h')\nopen(T + '/h', 'a').write('- poison\\n')",
    "a hard link for later": f"{IN}os.link({L2}, T + '/h')",
    "a new helper": f"{IN}open('help' + 'er.py', 'w').write('print(1)\\n')",
    "a removal": f"{IN}os.unlink({L2})",
    "a renamed one": f"{IN}open('n', 'w').write('poison')\nos.replace('n', {L2})",
    "an old date": f"{IN}open({L2}, 'a').write('- poison\\n')\nos.utime({L2}, (1, 1))",
    "a masked word": f"{IN}open({L2}, 'a').write('- poison [a ' + 'key]\\n')",
    "a link for a file": f"{IN}open(T + '/p', 'w').write('poison')\nos.unlink({L1})\nos.symlink(T + '/p', {L1})",
    "a link for a helper": f"{IN}open(T + '/p.py', 'w').write('1')\nos.symlink(T + '/p.py', 'help' + 'er.py')",
    "a linked package": f"{IN}os.mkdir(T + '/pk')\nopen(T + '/pk/__init__.py', 'w').write('1')\nos.symlink(T + '/pk', 'pk')",
    "a folder of files": f"{IN}os.makedirs('a/b')\nopen('a/b/c.md', 'w').write('poison')",
    "a folder for a file": f"{IN}os.unlink({L1})\nos.mkdir({L1})\nopen({L1} + '/x', 'w').write('x')",
    "a large helper": f"{IN}open('help' + 'er.py', 'w').write('print(1)\\n' + '#' * 300_000)",
    "a large index": f"{IN}open({L1}, 'w').write('poison\\n' + '#' * 300_000)",
    "no text": f"{IN}open({L1}, 'w').write('poison\\n' + chr(0))",
    "bytecode": f"{IN}os.makedirs('__pyc' + 'ache__')\nopen('__pyc' + 'ache__/x.pyc', 'w').write('x')",
    "bytecode beside": f"{IN}open('mod.' + 'pyc', 'wb').write(b'x')",
    "an archived conversation": f"{IN}os.makedirs('L4_' + 'raw_sessions', exist_ok=True)\nopen('L4_' + 'raw_sessions/x.jsonl.gz', 'w').write('x')",
    "a hidden file": f"{IN}open('.hid' + 'den', 'w').write('x')",
    "the records": f"{IN}import json, hashlib\nK = '.kno' + 'wn.json'\nk = json.load(open(K))\nt = 'poison'\nopen({L1}, 'w').write(t)\n"
    f"k['files'][{L1}] = {{'hash': hashlib.sha256(t.encode()).hexdigest(), 'text': t}}\njson.dump(k, open(K, 'w'))",
    "the journal emptied": f"{IN}open('.jour' + 'nal.jsonl', 'w').close()\nopen({L2}, 'a').write('- poison\\n')",
    "the journal a link": f"{IN}os.path.exists('.jour' + 'nal.jsonl') and os.unlink('.jour' + 'nal.jsonl')\nos.symlink(T + '/j', '.jour' + 'nal.jsonl')\n"
    f"open({L2}, 'a').write('- poison\\n')",
    "the records a folder": f"{IN}os.unlink('.kno' + 'wn.json')\nos.mkdir('.kno' + 'wn.json')\nopen({L2}, 'a').write('- poison\\n')",
    "a closed folder": f"{IN}open({L1}, 'w').write('poison')\nos.chmod({L1}, 0)\nos.chmod('.', 0o100)",
    "the folder itself": f"{IN}open({L2}, 'a').write('- poison\\n')\nM = os.getcwd()\nos.chdir('..')\nos.rename(M, 'm2')\nos.symlink('m2', M)",
    "one left behind": f"{IN}import subprocess, sys\n"
    f"subprocess.Popen([sys.executable, '-c', {LEFT!r}], start_new_session=True, stdout=subprocess.DEVNULL)\n"
    "while not os.path.exists(T + '/ready'): pass",
}  # fmt: skip


def whole() -> dict[str, Any]:
    """All that lies in the memory: where a link leads, what a file holds; not the records."""
    return {
        str(path.relative_to(paths.memory())): str(path.readlink()) if path.is_symlink() else path.is_file() and path.read_bytes()
        for path in paths.memory().rglob("*")
        if path.name not in (".journal.jsonl", ".known.json")
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_script_changes_the_memory_around_the_writer(start: Start, way: str) -> None:
    """It is as before, each file has its notice, the journal its line, and nothing outside is noted later."""
    agent, _ = start(
        [call("code_run", type="python", script=WAYS[way]), say("done"), say("next")],
        origin="script", tainted="https://example.com", allow=("*",),
    )  # fmt: skip
    memory.ensure_seeds(lambda value: value)
    before, index = whole(), memory.insight()
    end, told = do(agent, "go")
    assert not end["denied"] and end["status"] == "done", end
    assert whole() == before and memory.insight() == index
    assert any("taken back" in line for line in told), told
    assert {e["by"] for e in entries().values()} <= {"guard"}
    assert (paths.memory() / memory.L2).stat().st_nlink == 1
    end, told = do(agent, "next")
    assert end["status"] == "done" and not told, (end, told)


def test_what_was_taken_back_is_lost(start: Start) -> None:
    """The user wrote in that moment, and can have it again."""
    agent, _ = start(
        [call("code_run", type="python", script=f"{IN}open({L2}, 'a').write('- by hand\\n')"), say("done")],
        origin="script", tainted="a page",
    )  # fmt: skip
    memory.ensure_seeds(lambda value: value)
    _, told = do(agent, "go")
    assert "- by hand" not in facts() and "agentmain.py memory revert 1" in told[-1]
    assert "guard" in run_memory(["log"])[0] and "-- by hand" in run_memory(["show", "1"])[0]
    run_memory(["revert", "1"])
    assert facts().endswith("- by hand\n")


def test_a_file_that_has_no_diff_is_lost_when_it_is_taken_back(start: Start) -> None:
    agent, _ = start(
        [call("code_run", type="python", script=WAYS["no text"]), say("done")], origin="script", tainted="a page"
    )
    memory.ensure_seeds(lambda value: value)
    do(agent, "go")
    (aside,) = (paths.home() / "aside").iterdir()
    assert aside.read_bytes() == b"poison\n\0" and str(aside) in run_memory(["show", "1"])[0]


def watch() -> Watch:
    memory.ensure_seeds(lambda value: value)
    return Watch(paths.temp(), About(tainted="a page"), walled=False)


def test_what_another_chat_stores_meanwhile_is_taken_back() -> None:
    looked = watch()
    with Records() as records:
        records.put("new_sop.md", "theirs\n", by="tool")
        records.put(memory.L2, "theirs too\n", by="tool")
    (paths.memory() / memory.L1).write_text("poison")
    told = list(looked.back())
    assert facts() == "theirs too\n" and (paths.memory() / "new_sop.md").read_text() == "theirs\n"
    assert (
        "poison" not in memory.insight()
        and len(told) == 3
        and sum("through the agent's writer" in t for t in told) == 2
    )
    assert not list(looked.back()) and memory.ensure_seeds(lambda value: value) == []


def test_a_script_hides_behind_what_another_chat_stores() -> None:
    """What was written around the writer does not become the writer's by a patch that follows it."""
    looked, before = watch(), facts()
    (paths.memory() / memory.L2).write_text(f"{before}- poison\n")
    with Records() as records:
        records.put(memory.L2, f"{before}- poison\n- theirs\n", by="tool")
    told = list(looked.back())
    assert facts() == before and "taken back" in told[0]
    assert "- theirs" in run_memory(["show", str(max(entries()))])[0]


def test_one_file_that_cannot_be_put_back_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, before = watch(), facts()
    write = atomic.write_own

    def broken(path: Path, text: Any, mode: int = 0o600) -> None:
        if path.name == memory.L1:
            raise ToolError("the disk is full")
        write(path, text, mode)

    monkeypatch.setattr(atomic, "write_own", broken)
    for name in (memory.L1, memory.L2):
        (paths.memory() / name).write_text("poison")
    told = list(looked.back())
    assert facts() == before and any(
        memory.L1 in line and "could not be taken back: the disk is full" in line for line in told
    )


def test_a_session_that_is_archived_meanwhile_is_taken_back() -> None:
    paths.sessions().mkdir()
    session = paths.sessions() / "20200101-000000-abcdef.jsonl"
    session.write_text("{}\n")
    looked = watch()
    paths.archive().mkdir(exist_ok=True)
    (paths.archive() / f"{session.name}.gz").write_bytes(b"packed")
    session.unlink()
    assert list(looked.back()) == [] and (paths.archive() / f"{session.name}.gz").exists()


def test_what_is_too_large_to_be_kept_is_changed_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genericagent.memory.watch.LARGEST", 10_000)
    (paths.memory()).mkdir()
    (paths.memory() / "big.bin").write_bytes(b"x" * 20_000)
    looked = watch()
    (paths.memory() / "big.bin").write_bytes(b"y" * 20_000)
    (told,) = looked.back()
    assert "too large" in told


@pytest.mark.slow
def test_hundreds_of_files_are_told_one_by_one() -> None:
    looked, before = watch(), whole()
    for n in range(300):
        (paths.memory() / f"{n}.md").write_text("x")
    told = list(looked.back())
    assert whole() == before and len(told) == 21 and "280 more" in told[-1]


def test_what_was_changed_before_the_task_is_taken_back(start: Start) -> None:
    memory.ensure_seeds(lambda value: value)
    agent, _ = start(
        [call("code_run", type="bash", script="sleep 0.2"), say("done")], origin="script", tainted="a page", allow=("*",)
    )  # fmt: skip
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


@pytest.mark.parametrize("who", [{"depth": 1, "origin": "script"}, {"origin": "watcher", "sandbox": "off"}], ids=str)
def test_a_task_that_nobody_reads_takes_the_notice_of_a_change(start: Start, who: dict[str, Any]) -> None:
    memory.ensure_seeds(lambda value: value)
    with (paths.memory() / memory.L2).open("a") as file:
        file.write("- by hand\n")
    agent, _ = start([say("ok"), say("ok")], **who)
    assert do(agent, "go")[1] == []
    agent.options.origin, agent.options.depth = "chat", 0
    (told,) = do(agent, "go")[1]
    assert memory.L2 in told


def test_what_a_sub_agent_has_taken_back_reaches_nobody(start: Start) -> None:
    agent, _ = start(
        [call("code_run", type="python", script=WAYS["a removal"]), say("ok")], depth=1, origin="script", tainted="x"
    )
    memory.ensure_seeds(lambda value: value)
    do(agent, "go")
    (waits,) = Outbox(paths.home() / "outbox").pending("terminal")
    assert memory.L2 in waits["text"] and "taken back" in waits["text"]
