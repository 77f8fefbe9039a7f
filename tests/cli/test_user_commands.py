"""Slash commands with a real agent: what they change, and what they must not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_commands import Said

from agentmain import GenericAgent
from genericagent import control, paths, prompts
from genericagent.scripted import Reply, ScriptedServer, Tool, call, say
from genericagent.store.journal import Journal, read
from genericagent.tools import undo

Start = Callable[..., tuple[GenericAgent, ScriptedServer]]


def do(agent: GenericAgent, text: str) -> dict[str, Any]:
    queue = agent.put_task(text)
    while "done" not in (item := queue.get(timeout=30)):
        pass
    return dict(item)


def write(path: Path | str, content: str, **more: Any) -> Reply:
    return call("file_write", path=str(path), content=content, **more)


@pytest.fixture
def language() -> Iterator[None]:
    yield
    prompts.set_language(None)


def test_the_meter_of_the_context_falls_when_the_model_is_chosen_anew(start: Start) -> None:
    agent, _ = start([say("hi")])
    assert do(agent, "word " * 2000)["status"] == "done"
    before, chat = agent.client.backend.used, Said(agent)
    chat.run("/llm 0")
    assert agent.client.backend.used > 0.9 * before > 1500
    assert agent.task_meter.usage.input  # what the last task has cost stays


# rewind


@pytest.fixture
def worked(start: Start, tmp_path: Path) -> tuple[Said, ScriptedServer, Path]:
    """Three turns: the first writes a.txt, the second changes it, makes new.txt and saves a note, the third only talks."""
    work = tmp_path / "work"
    work.mkdir()
    agent, server = start([
        write("a.txt", "one\n"), say("wrote one"),
        Reply(tools=[
            Tool("file_patch", {"path": "a.txt", "old_content": "one", "new_content": "two"}),
            Tool("file_write", {"path": "new.txt", "content": "new\n"}),
            Tool("update_working_checkpoint", {"key_info": "note of the second"}),
        ]), say("wrote two"), say("talked"), say("afterwards"), say("later"),
    ], workspace=work)  # fmt: skip
    for text in ("first task", "second task", "third task"):
        assert do(agent, text)["status"] == "done"
    return Said(agent), server, work


def test_rewind_leaves_a_trace_of_what_it_took_back(worked: tuple[Said, ScriptedServer, Path]) -> None:
    chat, server, work = worked
    assert chat.run("/rewind").split("\n")[1:] == ["third task", "second task", "first task"]
    assert chat.pick("second").startswith("Changed by file tools since then:") and str(work / "a.txt") in chat[0]
    assert "Files brought back: 2" in chat.pick("the conversation and these files (2)")
    assert (work / "a.txt").read_text() == "one\n" and not (work / "new.txt").exists()
    assert chat.input == "second task"
    assert [line for line in chat.agent.lines if "USER" in line] == ["[USER]: first task"]
    assert do(chat.agent, "another")["status"] == "done"
    told = json.dumps(server.requests[-1].body)
    assert "first task" in told and "wrote one" in told
    assert not any(gone in told for gone in ("second task", "wrote two", "third task", "talked", "note of the second"))


def test_rewound_conversation_comes_back_after_resume(
    worked: tuple[Said, ScriptedServer, Path], run_agent: Any
) -> None:
    chat, server, _ = worked
    chat.run("/rewind 2")
    chat.pick("the conversation only")
    id, lines, history = chat.agent.session_id, list(chat.agent.lines), list(chat.agent.client.backend.history)
    chat.agent.new_session()
    other = run_agent()
    other.resume(id)
    assert other.lines == lines and other.client.backend.history == history
    assert [turn.text for turn, *_ in control.turns(other)] == ["first task"]
    assert do(other, "go on")["status"] == "done"
    assert "second task" not in json.dumps(server.requests[-1].body)
    assert [turn.text for turn, *_ in control.turns(other)] == ["first task", "go on"]


def test_rewind_twice_over_a_rewound_turn(worked: tuple[Said, ScriptedServer, Path]) -> None:
    chat, _, work = worked
    chat.run("/rewind 2")
    chat.pick("the conversation and")
    chat.run("/rewind 1")
    chat.pick("the conversation and")
    assert not list(work.iterdir()) and chat.agent.client.backend.history == [] and chat.agent.lines == []
    assert chat.run("/rewind") == "there is nothing to go back to yet"
    assert chat.run("/rewind 1").startswith("there is no message 1")


def test_rewind_overwrites_what_somebody_else_did(worked: tuple[Said, ScriptedServer, Path]) -> None:
    chat, _, work = worked
    (work / "a.txt").write_text("the user's own\n")
    chat.run("/rewind 2")
    assert f"{work}/a.txt: stays, something else has changed it meanwhile" in chat
    assert "Files brought back: 1" in chat.pick("the conversation and these files (1)")
    assert (work / "a.txt").read_text() == "the user's own\n" and not (work / "new.txt").exists()


def test_rewind_loses_a_change_between_two_of_the_tools(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old\n")
    agent, _ = start([
        write(file, "one\n"), call("code_run", type="bash", script=f"echo of a script >> {file}"),
        call("file_patch", path=str(file), old_content="one", new_content="two"), say("done"),
    ], workspace=tmp_path)  # fmt: skip
    do(agent, "work")
    chat = Said(agent)
    chat.run("/rewind 1")
    assert f"{file}: stays, something else has changed it meanwhile" in chat and chat.menu is None
    assert file.read_text() == "two\nof a script\n" and chat.agent.lines == []


def test_rewind_changes_other_bytes_or_bits(start: Start, tmp_path: Path) -> None:
    file, data = tmp_path / "a.txt", "caf\xe9\r\nline\n".encode("latin-1")
    file.write_bytes(data)
    file.chmod(0o750)
    agent, _ = start([write(file, "new\n"), say("done")], workspace=tmp_path)
    do(agent, "work")
    chat = Said(agent)
    chat.run("/rewind 1")
    chat.pick("the conversation and")
    assert file.read_bytes() == data and file.stat().st_mode & 0o777 == 0o750


def test_rewind_washes_the_taint_away(start: Start, tmp_path: Path, run_agent: Any) -> None:
    outside = tmp_path / "elsewhere" / "mail.txt"
    outside.parent.mkdir()
    outside.write_text("do as I say\n")
    work = tmp_path / "work"
    work.mkdir()
    agent, _ = start([call("file_read", path=str(outside)), say("read it")], workspace=work)
    do(agent, "read the mail")
    source = agent.guard.tainted
    assert source
    Said(agent).run("/rewind 1")
    assert agent.client.backend.history == [] and agent.guard.tainted == source
    id = agent.session_id
    agent.new_session()
    other = run_agent()
    other.resume(id)
    assert other.guard.tainted == source


def test_a_secret_or_a_huge_file_is_copied(start: Start, tmp_path: Path) -> None:
    names = {
        ".env": "PORT=1\n",
        "server.pem": "x\n",
        "mine.txt": "holds key-for-test\n",
        "big.txt": "x" * (undo.LARGEST + 1),
    }
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    agent, _ = start([*(write(name, "new\n") for name in names), say("done")], workspace=tmp_path)
    do(agent, "work")
    chat = Said(agent)
    chat.run("/rewind 1")
    assert [f"{tmp_path}/{name}: stays, there is no copy of what it held" in chat for name in names] == [True] * 4
    assert not (paths.home() / "undo").exists() or not list((paths.home() / "undo").iterdir())
    assert {(tmp_path / name).read_text() for name in names} == {"new\n"}


def test_copies_can_be_read_by_others_or_stay_for_ever(worked: tuple[Said, ScriptedServer, Path]) -> None:
    folder = paths.home() / "undo"
    files = list(folder.iterdir())
    assert files and folder.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    now = files[0].stat().st_mtime
    undo.clean(now)
    assert list(folder.iterdir())
    undo.clean(now + undo.KEPT + 60)
    assert not list(folder.iterdir())
    chat = worked[0]
    chat.run("/rewind 2")
    assert f"{worked[2]}/a.txt: stays, there is no copy of what it held" in chat


def test_a_damaged_copy_is_put_back(worked: tuple[Said, ScriptedServer, Path]) -> None:
    chat, _, work = worked
    for copy in (paths.home() / "undo").iterdir():
        copy.write_text("forged\n")
    chat.run("/rewind 2")
    assert f"{work}/a.txt: stays, there is no copy of what it held" in chat
    chat.pick("the conversation and")
    assert (work / "a.txt").read_text() == "two\n"


def test_copies_together_are_limited(ga_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo, "KEPT_BYTES", 25)
    for n in range(4):
        file = ga_home / f"{n}.txt"
        file.write_text(f"content {n}\n")
        undo.change(file, b"", lambda path, data: False)
        copy = ga_home / "undo" / str(undo.change(file, b"", lambda path, data: False)["before"])
        os.utime(copy, (1000 + n, 1000 + n))
    undo.clean(1010)
    left = sorted(file.read_text() for file in (ga_home / "undo").iterdir())
    assert left == ["content 2\n", "content 3\n"]


def test_a_memory_file_is_rewound(start: Start, ga_home: Path) -> None:
    agent, _ = start([
        call("code_run", type="bash", script="echo 3.11"),
        write(ga_home / "memory" / "python_env.md", "Python here is 3.11\n"), say("stored"),
    ])  # fmt: skip
    do(agent, "what Python is here? 3.11")
    assert control.turns(agent)[0][1] == []
    chat = Said(agent)
    chat.run("/rewind 1")
    assert ("The memory stays as it is: python_env.md (/memory shows each change and takes it back)") in "\n".join(chat)


def test_a_link_that_was_put_there_meanwhile_is_followed(
    worked: tuple[Said, ScriptedServer, Path], tmp_path: Path
) -> None:
    chat, _, work = worked
    victim = tmp_path / "victim.txt"
    victim.write_text("two\n")
    (work / "a.txt").unlink()
    (work / "a.txt").symlink_to(victim)
    chat.run("/rewind 2")
    assert f"{work}/a.txt: stays, something else has changed it meanwhile" in chat
    assert victim.read_text() == "two\n"


def test_a_file_that_is_secret_by_now_is_copied_or_brought_back(
    start: Start, tmp_path: Path, run_agent: Any, ga_home: Path
) -> None:
    names = ("denied.txt", "keyed.txt", "plain.txt")
    for name in names:
        (tmp_path / name).write_text(f"{name} holds s3cr3t-of-the-user\n")
    agent, _ = start([*(write(name, "new\n") for name in names), say("done")], workspace=tmp_path)
    do(agent, "work")
    id, kept = agent.session_id, set((ga_home / "undo").iterdir())
    assert len(kept) == 3
    agent.new_session()
    (ga_home / "config.toml").write_text(f'[safety]\ndeny = ["read:{tmp_path}/denied.*"]\n')
    other = run_agent(workspace=tmp_path)
    other.resume(id)
    (tmp_path / "plain.txt").write_text("new\n")
    changes = control.turns(other)[0][1]
    assert [undo.look(change, control.secrecy(other)) for change in changes] == ["lost", "", ""]
    secret = undo.secrecy(other.guard, ["s3cr3t-of-the-user"])
    assert [undo.look(change, secret) for change in changes] == ["lost"] * 3
    assert undo.bring_back(changes, other.record, secret) == []
    assert {(tmp_path / name).read_text() for name in names} == {"new\n"}
    chat = Said(other)
    chat.run("/rewind 1")
    assert f"{tmp_path}/denied.txt: stays, there is no copy of what it held" in chat
    chat.pick("the conversation and these files (2)")
    assert "holds" in (tmp_path / "plain.txt").read_text() and (tmp_path / "denied.txt").read_text() == "new\n"


def test_what_a_new_secret_file_holds_is_copied_when_it_is_taken_back(
    start: Start, tmp_path: Path, ga_home: Path
) -> None:
    agent, _ = start([write(".env", "TOKEN=abcdefgh\n"), say("done")], workspace=tmp_path / "work")
    do(agent, "work")
    chat = Said(agent)
    chat.run("/rewind 1")
    assert "Files brought back: 1" in chat.pick("the conversation and these files (1)")
    assert not (tmp_path / "work" / ".env").exists()
    assert not (ga_home / "undo").exists() or not list((ga_home / "undo").iterdir())


def test_a_forged_copy_of_the_same_size_is_kept_for_the_real_one(start: Start, tmp_path: Path, ga_home: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old\n")
    agent, _ = start([write(file, "new\n"), say("one"), write(file, "other\n"), say("two")], workspace=tmp_path)
    do(agent, "first")
    (copy,) = (ga_home / "undo").iterdir()
    copy.write_text("bad\n")
    file.write_text("old\n")
    do(agent, "second")
    assert copy.read_text() == "old\n"


def test_folders_of_an_undone_task_stay_or_others_go(start: Start, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "mine").mkdir(parents=True)
    agent, _ = start([
        write("mine/a.txt", "a\n"), write("new/deep/er/b.txt", "b\n"), write("new/deep/c.txt", "c\n"), write("kept/d.txt", "d\n"), say("done"),
    ], workspace=work)  # fmt: skip
    do(agent, "work")
    (work / "kept" / "user.txt").write_text("the user's\n")
    chat = Said(agent)
    chat.run("/rewind 1")
    assert "Files brought back: 4" in chat.pick("the conversation and these files (4)")
    assert sorted(str(p.relative_to(work)) for p in work.rglob("*")) == ["kept", "kept/user.txt", "mine"]


def test_going_back_in_the_conversation_only_removes_folders(start: Start, tmp_path: Path) -> None:
    agent, _ = start([write("new/b.txt", "b\n"), say("done")], workspace=tmp_path)
    do(agent, "work")
    (tmp_path / "new" / "b.txt").unlink()
    chat = Said(agent)
    chat.run("/rewind 1")
    if chat.menu:
        chat.pick("the conversation only")
    assert (tmp_path / "new").is_dir()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_conversation_that_begins_anew_keeps_the_old_title(start: Start, run_ga: Any, renamed: bool) -> None:
    from genericagent.cli.transcript import transcript
    from genericagent.store import search
    from genericagent.store.journal import list_sessions

    agent, _ = start([say("one"), say("two"), say("three")])
    do(agent, "the old subject")
    chat = Said(agent)
    if renamed:
        chat.run("/rename old name")
    chat.run("/rewind 1")
    assert [info.title for info in list_sessions(paths.sessions())] == [""]
    do(agent, "a new subject")
    do(agent, "more")
    assert [info.title for info in (*list_sessions(paths.sessions()), *search.listing()[0])] == ["a new subject"] * 2
    assert "a new subject" in run_ga("sessions").stdout and transcript(agent.records()).title == "a new subject"
    id = agent.session_id
    agent.new_session()
    assert agent.resume(id) == f"{id}: a new subject"
    chat.run("/rename a name")
    assert [info.title for info in list_sessions(paths.sessions())] == ["a name"]


# the title


def test_a_title_is_forgotten(worked: tuple[Said, ScriptedServer, Path], run_ga: Any) -> None:
    from genericagent.store import archive, search

    chat = worked[0]
    assert chat.run("/rename   Bread\x1b[2J and butter ") == "This conversation is now called: Bread and butter"
    assert do(chat.agent, "more")["status"] == "done"
    assert "Bread and butter" in chat.run("/sessions") and "Bread and butter" in run_ga("sessions").stdout
    assert "Bread and butter" in chat.run("/sessions butter")
    id = chat.agent.session_id
    chat.agent.new_session()
    packed = archive.pack(paths.sessions() / f"{id}.jsonl", 1e12)
    for _ in range(2):
        assert [info.title for info in search.listing()[0]] == ["Bread and butter"]
        (paths.sessions() / "index.db").unlink()
    assert packed.exists() and chat.agent.resume(id) == f"{id}: Bread and butter"


def test_a_title_that_a_message_contains_counts(ga_home: Path) -> None:
    journal = Journal.create(paths.sessions(), "s", {})
    forged = {"crc": "00000000", "rec": {"type": "title", "title": "forged"}}
    journal.append({"type": "line", "text": "[USER]: honest"})
    for record in (
        {"type": "message", "message": {"content": [{"input": forged}]}},
        {"type": "line", "text": "\n" + json.dumps(forged)},
    ):
        journal.append(record)
    journal.close()
    from genericagent.store.journal import list_sessions

    assert [info.title for info in list_sessions(paths.sessions())] == ["honest"]


def test_a_name_for_nothing(start: Start) -> None:
    chat = Said(start([])[0])
    assert chat.run("/rename x") == "there is no conversation yet: send a message first"
    assert chat.run("/rename") == "/rename TITLE" and not paths.sessions().exists()


# context


def test_context_leaves_something_out(worked: tuple[Said, ScriptedServer, Path]) -> None:
    chat = worked[0]
    parts = control.context(chat.agent)
    assert all(parts[name] > 0 for name in ("system", "memory", "tools", "user", "assistant", "results", "notes")), (
        parts
    )
    shown = chat.run("/context").split("\n")
    assert sum("%" in line and "█" in line for line in shown) == sum(tokens > 0 for tokens in parts.values())
    assert f"{sum(parts.values()):,} of 30,000 tokens" in shown[-1] and max(map(len, shown)) < 80


def test_compact_is_lost_after_resume(start: Start, run_agent: Any) -> None:
    reads = [call("code_run", type="bash", script=f"seq {n} {n + 900}") for n in range(12)]
    agent, server = start([*reads, say("counted"), say("later")])
    do(agent, "count")
    chat = Said(agent)
    before = sum(control.context(agent).values())
    assert chat.run("/compact").startswith(f"Context: about {before:,} tokens before, ")
    assert sum(control.context(agent).values()) < before * 0.7
    assert chat.run("/compact").startswith("There is nothing to shorten yet")
    history, id = list(agent.client.backend.history), agent.session_id
    agent.new_session()
    other = run_agent()
    other.resume(id)
    assert other.client.backend.history == history
    assert do(other, "and now?")["status"] == "done" and "count" in json.dumps(server.requests[-1].body)


# the task


def test_a_word_to_the_running_task_is_lost(start: Start) -> None:
    agent, server = start([call("code_run", type="bash", script="true"), say("done")])
    chat = Said(agent)
    assert chat.run("/steer look at b.txt") == "" and chat.sent == ["look at b.txt"]
    chat.running = True
    assert chat.run("/steer look at b.txt") == chat.run("/steer and c.txt") == "The task reads it at its next turn."
    do(agent, "work")
    told = json.dumps(server.requests[1].body)
    assert "look at b.txt" in told and "and c.txt" in told and agent.intervene is None
    assert chat.run("/steer") == "/steer TEXT"


@pytest.mark.parametrize("way", ["message", "/steer", "key"])
def test_a_host_that_is_named_in_a_word_to_the_running_task_is_a_strangers(
    start: Start, run_agent: Any, way: str
) -> None:
    agent, _ = start([call("code_run", type="bash", script="true"), say("done")])
    chat, typed = Said(agent), "ask [Pasted text #1 +1 lines]"
    chat.composer._pastes = {"[Pasted text #1 +1 lines]": "x" * 1000 + " wiki.example.org"}
    if way == "message":
        typed = chat.composer.message(typed)[0]
    else:
        chat.running = True
        if way == "key":
            assert chat.steered(typed)
        else:
            chat.run(f"/steer {typed}")
    assert "wiki.example.org" not in agent.guard.hosts
    do(agent, typed if way == "message" else "work")
    assert "wiki.example.org" in agent.guard.hosts
    id = agent.session_id
    agent.new_session()
    other = run_agent()
    other.resume(id)
    assert ("wiki.example.org" in other.guard.hosts) == (way != "message")  # of a long message its beginning is kept


def test_a_plan_of_the_users_ends_early(start: Start) -> None:
    answers = [say("all done, I think"), say("done. VERDICT: PASS, it is there"), say("hello")]
    agent, server = start(answers)
    chat = Said(agent)
    assert chat.run("/plan").startswith("Plan: the next message") and chat.run("/plan").startswith("Plan: the next")
    assert do(agent, "build it")["answer"].startswith("done. VERDICT")
    first, second, *_ = [json.dumps(request.body) for request in server.requests]
    assert "Markdown checklist" in first and "no verification" in second and agent.plan is None
    do(agent, "hi")
    assert json.dumps(server.requests[-1].body["messages"][-1]).count("checklist") == 0


def test_a_plan_is_shown_kept_while_it_lasts_and_taken_back(start: Start) -> None:
    agent, _ = start([call("ask_user", question="which?"), say("VERDICT: PASS")])
    chat = Said(agent)
    assert chat.run("/plan build it").startswith("Plan: this task is") and chat.sent == ["build it"]
    assert do(agent, "build it")["status"] == "needs_input"
    assert agent.plan and chat.run("/plan") == "Plan mode is on; the checklist is not written yet."
    Path(agent.plan).parent.mkdir(parents=True, exist_ok=True)
    Path(agent.plan).write_text("- [x] one\x1b[2J\n")
    assert chat.run("/plan").startswith("- [x] one") and "\x1b" not in "".join(chat)  # C104
    assert do(agent, "the blue one")["status"] == "done" and agent.plan is None
    chat.run("/plan")
    assert chat.run("/plan off") == "Plan mode is off." and agent.plan is None


@pytest.mark.skipif(os.name != "posix", reason="a shell's background")
def test_output_of_a_background_process_cannot_be_seen(start: Start) -> None:
    from genericagent.tools import jobs

    script = "(while true; do printf 'tick\\033[2J\\n'; sleep 0.05; done) & echo begun"
    agent, _ = start([call("code_run", type="bash", script=script), say("runs")])
    chat = Said(agent)
    try:
        do(agent, "serve")
        assert "(while true" in chat.run("/ps") and chat.run("/jobs") == chat.run("/ps")
        for _ in range(200):
            if "tick" in chat.run("/ps read 1"):
                break
            jobs.time.sleep(0.02)
        assert "tick" in chat[0] and "\x1b" not in chat[0] and chat[0].count("\n") < 20  # C104
        assert chat.run("/ps read 7").startswith("there is no job 7")
        assert chat.run("/ps end 1").startswith("ended: ")
        assert chat.run("/ps") == "nothing runs in the background"
    finally:
        jobs.kill_background()


# permissions


def test_tools_says_what_rules_say(start: Start) -> None:
    chat = Said(start([])[0])
    rows = {line.split()[0]: line.split()[-1] for line in chat.run("/tools").split("\n")}
    assert rows["code_run"] == rows["file_write"] == "allowed" and rows["writing"] == "asked"
    chat.run("/approve write:/**")
    rows = {line.split()[0]: line.split()[-1] for line in chat.run("/tools").split("\n")}
    assert rows["writing"] == "allowed" and rows["destroying"] == "asked"


def test_what_was_approved_outlives_the_conversation(start: Start, tmp_path: Path) -> None:
    place, work = tmp_path / "notes", tmp_path / "work"
    place.mkdir()
    work.mkdir()
    agent, _ = start(
        [write(place / "a", "1"), say("ok"), write(place / "b", "1"), say("ok"), write(place / "c", "1"), say("ok")],
        workspace=work,
    )
    chat = Said(agent)
    assert chat.run("/approve").startswith("No rules")
    assert "neither a risk" in chat.run("/approve nonsense:x")
    assert chat.run(f"/approve write:{place}") == f"Allowed for this conversation: write:{place}"
    do(agent, "write a")
    assert (place / "a").exists() and f"  write:{place}" in chat.run("/approve").split("\n")
    chat.run("/approve clear")
    do(agent, "write b")
    assert not (place / "b").exists() and control.allowed_here(agent) == []
    chat.run(f"/approve write:{place}")
    agent.new_session()
    do(agent, "write c")
    assert not (place / "c").exists()


def test_an_answer_for_the_conversation_cannot_be_taken_back(start: Start, tmp_path: Path) -> None:
    from genericagent.safety.asking import Answer

    work, file = tmp_path / "work", tmp_path / "x.txt"
    work.mkdir()
    agent, _ = start([write(file, "1"), say("ok"), write(file, "1"), say("ok")], workspace=work)
    agent.can_ask = True
    asked: list[str] = []

    def work_on() -> None:
        queue = agent.put_task("write")
        while "done" not in (item := queue.get(timeout=30)):
            if (event := item.get("event", {})).get("kind") == "ask":
                asked.append(event["question"])
                agent.answer(event["id"], Answer("session"))

    work_on()
    chat = Said(agent)
    assert str(file) in chat.run("/approve") and len(asked) == 1
    assert "not any more" in chat.run("/approve clear")
    work_on()
    assert len(asked) == 2


def test_the_workspace_is_ours(start: Start, ga_home: Path, tmp_path: Path) -> None:
    agent, _ = start([write("a.txt", "1"), say("ok"), say("there")], sandbox="off")
    chat = Said(agent)
    assert chat.run("/workspace") == f"Workspace: {ga_home / 'temp'}"
    for protected in (ga_home, ga_home / "memory", ga_home / "sessions"):
        protected.mkdir(exist_ok=True)
        assert "belongs to this program itself" in chat.run(f"/workspace {protected}")
    assert chat.run("/workspace /no/such").endswith("is not a folder")
    assert agent.workspace == ga_home / "temp"
    assert chat.run(f"/workspace {tmp_path}") == f"Workspace: {tmp_path}"
    do(agent, "write")
    assert (tmp_path / "a.txt").exists()
    (tmp_path / "sub").mkdir()
    assert chat.run("/workspace sub") == f"Workspace: {tmp_path / 'sub'}"
    assert read(paths.sessions() / f"{agent.session_id}.jsonl").records[-1] == {
        "type": "folder",
        "cwd": str(tmp_path / "sub"),
    }


@pytest.mark.skipif(os.name != "posix", reason="its folders")
def test_the_system_and_the_home_become_the_workspace_in_silence(start: Start, tmp_path: Path) -> None:
    chat = Said(start([])[0])
    for folder in ("/etc", "/", "/usr/share"):
        assert "a folder of the system" in chat.run(f"/workspace {folder}"), folder
    assert "your whole home" in chat.run("/workspace ~")
    for folder in (str(tmp_path), "/tmp"):
        assert "Careful" not in chat.run(f"/workspace {folder}"), folder


def test_a_word_that_makes_no_sense_is_taken_for_a_file_or_told_like_a_program(start: Start, tmp_path: Path) -> None:
    agent, _ = start([say("hi")], workspace=tmp_path)
    do(agent, "hi")
    chat = Said(agent)
    for wish in ("pdf", "PDF", "a b.pdf", "html a.pdf"):
        assert chat.run(f"/export {wish}").startswith("/export, then md, html or clip") and not list(tmp_path.iterdir())
    assert chat.run("/export notes.txt").startswith("written: ")
    assert chat.run("/memory nonsense").startswith("usage: /memory log [N] | ")


def test_a_resumed_conversation_goes_back_to_its_first_workspace(start: Start, run_agent: Any, tmp_path: Path) -> None:
    agent, _ = start([say("hi")])
    do(agent, "hi")
    Said(agent).run(f"/workspace {tmp_path}")
    id = agent.session_id
    agent.new_session()
    other = run_agent()
    other.resume(id)
    assert other.workspace == tmp_path


def test_a_sandbox_is_loosened_by_one_word(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genericagent.safety import sandbox

    monkeypatch.setattr(sandbox, "why_not", lambda box: "")
    agent, _ = start([], workspace=tmp_path)
    chat = Said(agent)
    assert chat.run("/sandbox").startswith("Sandbox: off. Commands run with your own rights")
    assert chat.run("/sandbox require").startswith("Sandbox: require.") and agent.containment().sandbox
    assert "Sure?" in chat.run("/sandbox off") and agent.options.sandbox == "require"
    assert chat.pick("no") == "Nothing was changed." and agent.options.sandbox == "require"
    chat.run("/sandbox auto")
    assert chat.pick("yes").startswith("Sandbox: auto.") and agent.options.sandbox == "auto"
    assert chat.run("/sandbox loose") == "/sandbox auto, /sandbox require, /sandbox off"
    monkeypatch.setattr(sandbox, "why_not", lambda box: "no bwrap here")
    assert "no bwrap here" in chat.run("/sandbox require") and agent.options.sandbox == "auto"


def test_a_language_that_is_half_switched(start: Start, language: None) -> None:
    chat = Said(start([])[0])
    assert chat.run("/language de") == "/language en, /language zh"
    assert chat.run("/language zh").startswith("从现在起") and "对话" in chat.run("/help")
    assert chat.view.texts["queued"].startswith("已排队") and prompts.language() == "zh"
    assert chat.run("/language en").startswith("From now on")


def test_a_session_of_an_earlier_version_has_no_turns() -> None:
    from genericagent.store.restored import turns_of

    started = {"type": "task", "event": "start", "source": "user"}
    records = [started, {"type": "line", "text": "[USER]: one"}, started, {"type": "line", "text": "[USER]: two"}]
    assert [(turn.number, turn.at, turn.text) for turn in turns_of(records)] == [(0, 0, "one"), (1, 2, "two")]
    odd = [{"type": "cut", "turns": -3}, {"type": "cut", "turns": "x"}, {"type": "task"}, {"type": "line", "text": 5}]
    assert turns_of([*records, *odd]) == []


# sessions


@pytest.mark.slow
@pytest.mark.parametrize(("by", "options"), [("sub-agent", {"depth": 1}), ("watcher", {"origin": "watcher"})])
def test_a_run_that_the_user_did_not_begin_is_listed_as_theirs(
    start: Start, run_agent: Any, run_ga: Any, by: str, options: dict[str, Any]
) -> None:
    other, _ = start([say("looked"), say("told")], **options)
    assert do(other, "look at the zebra")["status"] == "done"
    mine = run_agent()
    assert do(mine, "tell of the zebra")["status"] == "done"
    other.new_session()
    chat = Said(mine)
    for words in ("", "zebra"):
        assert by not in chat.run(f"/sessions {words}") and len(chat[0].split("zebra")) > 1
        assert f"[{by}] look at the zebra" in chat.run(f"/sessions all {words}")
        assert by not in run_ga("sessions", *words.split()).stdout
        assert f"[{by}] look at the zebra" in run_ga("sessions", "--all", *words.split()).stdout
    assert f"[{by}]" in chat.run("/resume all") and chat.pick(f"[{by}]").split("\n")[1].startswith("Going on with")


def test_another_folder_is_worked_in_unsaid(start: Start, run_agent: Any, tmp_path: Path) -> None:
    work, temp = tmp_path / "work", paths.temp()
    work.mkdir()
    other, _ = start([say("here")], workspace=work)
    do(other, "begin there")
    id = other.session_id
    other.new_session()
    chat = Said(run_agent())
    assert chat.run(f"/resume {id}").endswith(f"Workspace: {work}") and "gone" not in chat[1]
    assert chat.run("/new").endswith(f"begins.\nWorkspace: {temp}")
    assert "Workspace" not in chat.run("/new")
    work.rmdir()
    assert f"its folder {paths.shown(work)} is gone: it goes on in {paths.shown(temp)}" in chat.run(f"/resume {id}")
    assert len(chat) == 2 and chat.agent.workspace == temp
    chat.agent.new_session()
    stays = Said(run_agent(workspace=tmp_path))
    assert "gone" not in stays.run(f"/resume {id}") and "Workspace" not in stays.run("/new")


def test_a_server_that_counts_nothing_leaves_the_meter_at_nothing(start: Start) -> None:
    agent, _ = start([Reply(text="hi", usage=False)])
    assert do(agent, "word " * 2000)["status"] == "done"
    assert agent.client.backend.used > 1500
