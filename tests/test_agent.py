"""The agent in this process: its queue, its sessions, its settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent, get_system_prompt
from genericagent import memory, paths
from genericagent.errors import ConfigError, SessionError
from genericagent.scripted import Reply, ScriptedServer, Tool, call, fail, say, seq

Start = Callable[..., tuple[GenericAgent, ScriptedServer]]


def finish(queue: Any) -> dict[str, Any]:
    while "done" not in (item := queue.get(timeout=30)):
        pass
    ended: dict[str, Any] = item
    return ended


def do(agent: GenericAgent, text: str) -> dict[str, Any]:
    return finish(agent.put_task(text))


def sent(server: ScriptedServer, n: int = -1) -> str:
    return json.dumps(server.requests[n].body, ensure_ascii=False)


# the queue


def test_tasks_run_one_after_another_and_keep_the_conversation(start: Start) -> None:
    agent, server = start([say("first answer"), say("second answer")])
    queues = [agent.put_task("one"), agent.put_task("two")]
    assert [finish(q)["answer"] for q in queues] == ["first answer", "second answer"]
    assert "first answer" in sent(server, 1) and '"two"' in sent(server, 1)


def test_a_failed_task_says_why_and_the_next_one_works(start: Start) -> None:  # C139
    agent, _ = start([fail(401, "no such key"), say("fine")])
    end = do(agent, "hi")
    assert (end["status"], end["result"]) == ("failed", "LLM_FAILED") and "no such key" in end["error"]
    assert do(agent, "again")["answer"] == "fine"


def test_an_abort_ends_the_tool_and_not_the_next_task(start: Start) -> None:  # C013 C059
    agent, server = start([
        Reply(tools=[Tool("code_run", {"type": "bash", "script": "echo begun; sleep 60"}), Tool("file_read", {"path": "x"})]),
        *[call("code_run", type="bash", script=f"echo quick {n}") for n in range(5)], say("all ran"),
    ])  # fmt: skip
    queue = agent.put_task("work")
    while "begun" not in queue.get(timeout=20).get("next", ""):
        pass
    agent.abort()
    assert finish(queue)["status"] == "interrupted"
    assert do(agent, "go on")["answer"] == "all ran"
    told = sent(server, 1)
    assert "begun" in told and "stopped by user" in told and "not run" in told  # C014
    results = [b for m in server.requests[-1].body["messages"] for b in m["content"] if b["type"] == "tool_result"]
    assert [f"quick {n}" in str(r) for n, r in enumerate(results[2:])] == [True] * 5


@pytest.mark.parametrize("how", ["new", "resume", "switch"])
def test_the_result_of_a_stopped_call_stays_in_its_conversation(start: Start, how: str) -> None:
    agent, server = start([
        say("the first"), call("code_run", type="bash", script="echo MY DIARY; sleep 60"), say("one"), say("two"),
    ])  # fmt: skip
    do(agent, "begin")
    first = agent.session_id
    if how == "resume":
        agent.new_session()
    queue = agent.put_task("work")
    while "MY DIARY" not in queue.get(timeout=20).get("next", ""):
        pass
    agent.abort()
    finish(queue)
    if how == "switch":  # to a model that is configured beside it; then the result goes along
        agent.next_llm(0)
        assert do(agent, "innocent")["answer"] == "one" and "MY DIARY" in sent(server)
        return
    agent.new_session() if how == "new" else agent.resume(first)
    assert do(agent, "innocent")["answer"] == "one"
    assert "MY DIARY" not in sent(server)


def test_an_abort_while_the_model_is_silent(start: Start) -> None:
    agent, _ = start([say("never", hang_before_headers=30), say("ok")])
    queue = agent.put_task("hi")
    queue.get(timeout=10)
    time.sleep(0.2)
    began = time.monotonic()
    agent.abort()
    assert finish(queue)["status"] == "interrupted" and time.monotonic() - began < 5
    assert do(agent, "again")["status"] == "done"


def test_close_ends_what_is_queued_too(start: Start) -> None:
    agent, server = start([say("never", hang_before_headers=30)])
    first, second = agent.put_task("one"), agent.put_task("two")
    first.get(timeout=10)
    agent.close()
    assert finish(first)["status"] == "interrupted" and finish(second)["status"] == "interrupted"
    assert len(server.requests) <= 1


def test_an_empty_request_never_reaches_the_model(start: Start) -> None:  # C140
    agent, server = start([])
    end = do(agent, "  \n")
    assert end["status"] == "failed" and "empty" in end["error"] and server.requests == []


def test_a_question_is_handed_out_and_the_answer_goes_on(start: Start) -> None:
    agent, server = start([call("ask_user", question="Which?", candidates=["a", "b"]), say("took b")])
    end = do(agent, "choose")
    assert end["status"] == "needs_input" and end["question"] == {"question": "Which?", "candidates": ["a", "b"]}
    assert do(agent, "b")["answer"] == "took b"
    assert "HUMAN_INTERVENTION" in sent(server) and '"b"' in sent(server)


def test_of_several_questions_in_one_reply_only_the_first_is_asked(start: Start) -> None:
    questions = [
        Tool("ask_user", {"question": "Which?", "candidates": ["a", "b"]}),
        Tool("code_run", {"type": "bash", "script": "true"}),
        Tool("ask_user", {"question": "How many?"}),
        Tool("ask_user", {"candidates": ["no question"]}),
    ]
    agent, server = start([Reply(tools=questions), say("took both")])
    end = do(agent, "choose")
    assert end["status"] == "needs_input" and end["question"] == {
        "question": "1. Which?\n2. How many?",
        "candidates": [],
        "questions": [{"question": "Which?", "candidates": ["a", "b"]}, {"question": "How many?", "candidates": []}],
    }
    assert do(agent, "1. a\n2. three")["answer"] == "took both"
    assert sent(server).count("not run: the turn ended before this call") == 3


def test_the_turn_limit_is_no_success_and_can_be_continued(start: Start) -> None:  # C037
    agent, _ = start(seq(*[call("code_run", type="bash", script="true")] * 2, then=say("finished now")), max_turns=2)
    end = do(agent, "work")
    assert (end["status"], end["result"], end["turn"]) == ("limit", "MAX_TURNS_EXCEEDED", 2) and "2" in end["error"]
    assert do(agent, "continue")["answer"] == "finished now"


def test_a_looping_model_stops_at_the_cost_limit(start: Start) -> None:  # C143
    from genericagent.llm.blocks import Usage

    (paths.home() / "config.toml").write_text('[prices."scripted"]\ninput = 10.0\noutput = 50.0\n', encoding="utf-8")
    reply = Reply(tools=[Tool("code_run", {"type": "bash", "script": "true"})], usage=Usage(1000, 100))
    agent, server = start(lambda body, n: reply, max_cost=0.05, max_turns=100)
    agent.config.models[0].model = "scripted"
    end = do(agent, "loop")
    assert end["status"] == "limit" and end["result"] == "BUDGET_EXCEEDED"
    assert end["cost"] == pytest.approx(0.015 * len(server.requests)) and len(server.requests) <= 4


def test_a_task_stops_at_the_time_limit(start: Start) -> None:
    agent, _ = start(lambda body, n: call("code_run", type="bash", script="sleep 0.2"), max_time=0.5)
    end = do(agent, "loop")
    assert (end["status"], end["result"]) == ("limit", "BUDGET_EXCEEDED")


def test_tools_that_need_a_person_can_be_left_out(start: Start) -> None:
    agent, server = start([say("ok")], user_tools=False)
    do(agent, "hi")
    assert "ask_user" not in json.dumps(server.requests[0].body["tools"])


# prompts


def test_the_system_prompt_is_made_anew_for_every_task(start: Start) -> None:
    agent, server = start([say("a"), say("b")])
    do(agent, "one")
    with (paths.memory() / memory.L1).open("a") as file:
        file.write("printer: printer_sop.md\n")
    do(agent, "two")
    assert "printer_sop.md" not in json.dumps(server.requests[0].body["system"])
    assert "printer_sop.md" in json.dumps(server.requests[1].body["system"])
    assert time.strftime("%Y-%m-%d") in get_system_prompt()


def test_seeds_are_copied_once_and_never_overwrite(start: Start) -> None:  # C131
    agent, _ = start([say("a"), say("b")])
    do(agent, "one")
    (paths.memory() / memory.L2).write_text("mine")
    (paths.memory() / memory.L0).unlink()
    do(agent, "two")
    assert (paths.memory() / memory.L2).read_text() == "mine" and (paths.memory() / memory.L0).exists()


def test_notes_of_a_stopped_task_are_not_handed_to_the_next(start: Start) -> None:  # C128
    agent, server = start([
        call("update_working_checkpoint", key_info="send a message to P"), call("code_run", type="bash", script="echo begun; sleep 60"),
        say("4"), say("6"),
    ])  # fmt: skip
    queue = agent.put_task("send a message")
    while "begun" not in queue.get(timeout=20).get("next", ""):
        pass
    agent.abort()
    finish(queue)
    assert do(agent, "what is 2+2?")["answer"] == "4"
    newest = json.dumps(server.requests[-1].body["messages"][-1])
    assert "<key_info>" not in newest
    id = agent.session_id
    agent.new_session()
    agent.resume(id)
    do(agent, "and 3+3?")
    assert "<key_info>" not in json.dumps(server.requests[-1].body["messages"][-1]), "nor after a resume"
    assert "send a message to P" in (paths.sessions() / f"{id}.jsonl").read_text(), "the journal has them"


def test_a_long_request_goes_into_a_file(start: Start) -> None:
    agent, server = start([say("ok")])
    text = "begin " + "word " * 4000 + "end-of-it"
    do(agent, text)
    first = json.dumps(server.requests[0].body["messages"])
    assert "begin" in first and "end-of-it" not in first and len(first) < 3000
    (file,) = (paths.temp() / "_requests").iterdir()
    assert file.read_text(encoding="utf-8") == text and str(file) in first


def test_pictures_go_along(start: Start) -> None:
    agent, server = start([say("a dot")])
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    assert finish(agent.put_task("what is it?", images=[block]))["answer"] == "a dot"
    assert "iVBORw0KGgo=" in sent(server)


# models and settings


def two_models(server: ScriptedServer) -> None:
    entry = '[[llm]]\nname = "{}"\napi = "{}"\nmodel = "m-{}"\napi_key = "k-12345"\nbase_url = "{}"\n'
    text = entry.format("one", "anthropic", 1, server.url) + entry.format("two", "chat", 2, f"{server.url}/v1")
    (paths.home() / "config.toml").write_text(text, encoding="utf-8")


def test_switching_the_model_takes_the_conversation_along(start: Start, model_server: Any) -> None:
    server = model_server([call("code_run", type="bash", script="echo 42"), say("it is 42"), say("yes, 42")])
    two_models(server)
    agent, _ = start([])
    assert [name for _, name, _ in agent.list_llms()] == ["one (m-1)", "two (m-2)"]
    do(agent, "run it")
    assert agent.next_llm() == "two" and agent.list_llms()[1][2]
    assert do(agent, "sure?")["answer"] == "yes, 42"
    assert "it is 42" in sent(server) and server.requests[-1].path.endswith("/chat/completions")
    with pytest.raises(ConfigError, match="no model 7"):
        agent.next_llm(7)


def test_an_edited_key_is_picked_up_between_tasks(start: Start, model_server: Any) -> None:  # C155
    server = model_server([say("a"), say("b")])
    two_models(server)
    agent, _ = start([])
    do(agent, "one")
    file = paths.home() / "config.toml"
    file.write_text(file.read_text().replace("k-12345", "k-changed"), encoding="utf-8")
    assert do(agent, "two")["answer"] == "b"
    assert "k-changed" in str(server.requests[1].headers) and '"a"' in sent(server).replace("'", '"')


def test_a_file_broken_while_running_is_told_and_the_old_one_goes_on(start: Start, model_server: Any) -> None:  # C155
    server = model_server([say("a"), say("b")])
    two_models(server)
    agent, _ = start([])
    do(agent, "one")
    (paths.home() / "config.toml").write_text("[[llm]\n", encoding="utf-8")
    queue = agent.put_task("two")
    events = []
    while "done" not in (item := queue.get(timeout=20)):
        events.append(item.get("event") or {})
    assert item["answer"] == "b"
    assert any("config.toml" in e.get("text", "") and "line 1" in e.get("text", "") for e in events)


def test_session_settings_are_a_short_list(start: Start) -> None:
    agent, server = start([say("a")])
    assert do(agent, "/session.temperature=0.25")["answer"] == "temperature = 0.25"
    assert do(agent, "/session.temperature")["answer"] == "temperature = 0.25"
    do(agent, "hi")
    assert server.requests[0].body["temperature"] == 0.25
    for wrong in ("/session.api_key=x", "/session.base_url=http://evil.test", "/session.__class__=1"):
        assert "cannot be set" in do(agent, wrong)["error"]
    assert "must be a number" in do(agent, "/session.temperature=[1]")["error"]
    assert len(server.requests) == 1


def test_plugins_of_the_home_are_loaded_and_a_broken_one_is_named(start: Start) -> None:
    folder = paths.home() / "plugins"
    folder.mkdir()
    (folder / "good.py").write_text(
        "from plugins import hooks\nfrom pathlib import Path\n"
        f"@hooks.register('turn_after')\ndef after(ctx): Path({str(paths.home() / 'seen')!r}).write_text('x')\n"
    )
    (folder / "bad.py").write_text("raise ValueError('no luck')\n")
    (folder / "_hidden.py").write_text("raise SystemExit\n")
    agent, _ = start([say("a")])
    assert any("bad.py" in p and "no luck" in p for p in agent.problems)
    assert do(agent, "hi")["status"] == "done" and (paths.home() / "seen").exists()


# sessions


def test_a_session_is_listed_resumed_and_goes_on(start: Start) -> None:
    agent, _ = start([call("code_run", type="bash", script="echo 42"), say("it is 42")])
    first = do(agent, "run it for me")["session"]
    agent.close()
    agent.release()
    again, server = start([say("still 42")])
    ((id, age, title),) = again.list_sessions()
    assert id == first and age < 60 and title == "run it for me"
    again.resume()
    assert do(again, "what was it?")["session"] == first
    assert "it is 42" in sent(server) and "run it for me" in sent(server)
    assert len(again.list_sessions()) == 1


def test_a_new_session_forgets_and_gets_its_own_file(start: Start) -> None:  # C035
    agent, server = start([call("ask_user", question="q?"), say("b")])
    first = do(agent, "secret word: zebra")["session"]
    agent.new_session()
    second = do(agent, "hi")["session"]
    assert first != second and "zebra" not in sent(server) and len(agent.list_sessions()) == 2


def test_a_session_in_use_is_refused_with_its_holder(start: Start) -> None:  # C043
    agent, _ = start([say("a")])
    id = do(agent, "hi")["session"]
    other, _ = start([say("b")])
    with pytest.raises(SessionError, match="in use by process"):
        other.resume(id)


def test_the_journal_is_private_and_holds_no_key(start: Start, ga_home: Path) -> None:  # C149
    agent, _ = start([fail(401, "invalid x-api-key: key-for-test"), say("ok")])
    do(agent, "hi")
    do(agent, "hi")
    agent.release()
    for file in ga_home.rglob("*"):
        if file.is_file() and "memory" not in file.parts:
            assert b"key-for-test" not in file.read_bytes(), file
    (journal,) = paths.sessions().glob("*.jsonl")
    assert journal.stat().st_mode & 0o077 == 0 and paths.sessions().stat().st_mode & 0o077 == 0


def test_a_small_window_with_long_results_makes_progress_without_extra_calls(start: Start) -> None:  # C031 C034
    turns = 12
    script = [call("code_run", type="bash", script=f"seq {n} 4000") for n in range(turns)]
    agent, server = start([*script, say("all done")])
    agent.config.models[0].context_win = 4000
    end = do(agent, "count")
    assert end["answer"] == "all done" and len(server.requests) == turns + 1
    for request in server.requests:
        assert len(json.dumps(request.body)) < 4000 * 4.2 and "count" in json.dumps(request.body["messages"])


@pytest.mark.parametrize("arguments", [
    '{"path":"d.txt","content":' + "[" * 900 + "]" * 900 + "}",
    '{"path":"d.txt","content":"x","mode":' + "9" * 400 + "}", '{"path":"d.txt","content":"x"' + ',"a":1' * 5000 + "}",
])  # fmt: skip
def test_arguments_of_any_shape_are_answered_and_the_next_call_runs(start: Start, arguments: str) -> None:  # C020
    reply = Reply(tools=[Tool("file_write", arguments), Tool("code_run", {"type": "bash", "script": "echo ran"})])
    agent, server = start([reply, say("done")])
    end = do(agent, "go")
    assert end["answer"] == "done", end
    results = [b for b in server.requests[1].body["messages"][-1]["content"] if b["type"] == "tool_result"]
    assert len(results) == 2 and "ran" in str(results[1])


def test_a_timeout_of_400_digits_is_an_argument_error(start: Start) -> None:
    agent, server = start(
        [
            Reply(tools=[Tool("code_run", '{"type":"bash","script":"echo ran","timeout":' + "9" * 400 + "}")]),
            say("done"),
        ]
    )
    assert do(agent, "go")["answer"] == "done" and "timeout must be" in sent(server)


@pytest.mark.parametrize("name", ["no_tool", "bad_json", "no_tool()", "__init__", "", "日本"])
def test_the_engines_own_tools_are_not_the_models(start: Start, name: str) -> None:
    reply = Reply(text="Let me look.", tools=[Tool(name, {}), Tool("code_run", {"type": "bash", "script": "echo ran"})])
    agent, server = start([reply, say("done")])
    assert do(agent, "go")["answer"] == "done"
    assert "unknown tool" in sent(server) and "ran" in sent(server)


@pytest.mark.parametrize(("given", "turns"), [(3, 3), (None, 100)])
def test_a_plan_raises_the_users_limit_of_turns(start: Start, ga_home: Path, given: int | None, turns: int) -> None:
    if given:
        (ga_home / "config.toml").write_text(f"[limits]\nmax_turns = {given}\n")
    script = "handler.enter_plan_mode('plan.md')"
    enter = call("code_run", type="python", inline_eval=True, script=script)
    agent, server = start(
        [enter, *[call("code_run", type="bash", script=f"echo {n}") for n in range(2)], say("done. VERDICT: PASS")]
    )
    assert do(agent, "go")["status"] == ("limit" if given else "done") and f"up to {turns} turns" in sent(server, 1)


def test_a_folder_is_no_plan(start: Start) -> None:
    script = "handler.enter_plan_mode('/tmp')"
    agent, server = start([call("code_run", type="python", inline_eval=True, script=script), say("done")])
    assert do(agent, "go")["answer"] == "done" and "no file" in sent(server)


def test_a_notepad_stays_inside_its_tags(start: Start) -> None:
    agent, server = start([call("update_working_checkpoint", key_info="a</working_memory>b</key_info>c"), say("done")])
    do(agent, "go")
    assert json.dumps(server.requests[1].body["messages"][-1]).count("</working_memory>") == 1


def test_a_key_that_a_script_prints_reaches_nobody(start: Start, ga_home: Path, model_server: Any) -> None:  # C149 C130
    key = "sk-canary-0123456789abcdef"
    server = model_server(lambda body, n: scripts[n] if n < len(scripts) else say("read"))
    text = f'[[llm]]\napi = "anthropic"\nmodel = "m"\napi_key = "{key}"\nbase_url = "{server.url}"\n'
    (ga_home / "config.toml").write_text(text, encoding="utf-8")
    scripts = [
        call("code_run", type="bash", script=f"cat {ga_home}/config.toml; base64 -w0 {ga_home}/config.toml"),
        call("file_read", path=str(ga_home / "config.toml")),
        call("code_run", type="python", script=f"import json; print(json.dumps(open('{ga_home}/config.toml').read()))"),
        call("file_patch", path=str(ga_home / "config.toml"), old_content="nothing like it", new_content="x"),
    ]
    agent, _ = start([])
    end = do(agent, "show me your configuration")
    assert end["answer"] == "read" and key not in json.dumps(end)
    for request in server.requests:
        assert key not in json.dumps(request.body) and "[a key]" in json.dumps(server.requests[-1].body)
    agent.release()
    left = [f for f in ga_home.rglob("*") if f.is_file() and f.name != "config.toml" and key.encode() in f.read_bytes()]
    assert left == []


def test_a_token_that_the_user_gives_is_written_exactly(start: Start) -> None:  # C151
    token = "ghp_0123456789abcdefABCDEF"
    agent, server = start([call("file_write", path="config.ini", content=f"token = {token}\n"), say("done")])
    do(agent, f"put {token} into config.ini")
    assert (paths.temp() / "config.ini").read_text() == f"token = {token}\n"


@pytest.mark.parametrize("source", ["user", "file", "reflect:mail"])
def test_somebody_elses_text_becomes_the_users_words_after_a_resume(start: Start, source: str) -> None:
    agent, _ = start([say("seen")])
    queue = agent.put_task("the gate is at gate.example.com", source=source)
    while "done" not in queue.get(timeout=30):
        pass
    id = agent.session_id
    agent.new_session()
    assert "gate.example.com" not in agent.guard.hosts
    agent.resume(id)
    known = (
        "gate.example.com" in agent.guard.hosts,
        bool(agent.evidence.of("x.md", ["gate at gate.example.com"], [], {})[0]),
    )
    assert known == ((True, True) if source == "user" else (False, False))


def test_what_a_model_offers_is_taken_as_a_command_or_as_the_users_words(start: Start) -> None:
    agent, server = start([say("one"), say("two")])
    for text, source in (("/session.max_tokens=5", "choice"), ("see https://evil.example.com", "choice")):
        queue = agent.put_task(text, source=source)
        while "done" not in queue.get(timeout=30):
            pass
    assert len(server.requests) == 2 and agent.client.backend.model.max_tokens != 5
    assert "evil.example.com" not in agent.guard.hosts


def test_each_resumed_conversation_works_in_its_own_folder(start: Start, tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        agent, _ = start([say("ok")], workspace=tmp_path / name)
        ids.append(do(agent, "hi")["session"])
        agent.release()
    agent, _ = start([])
    for id, name in zip(ids, ("one", "two"), strict=True):
        agent.resume(id)
        assert agent.workspace == tmp_path / name
    agent.new_session()
    assert agent.workspace == paths.temp()


def test_a_watchers_own_script_is_not_rewritten_by_its_tasks(start: Start) -> None:
    script = paths.temp() / "watch.py"
    script.parent.mkdir(parents=True)
    script.write_text("INTERVAL = 60\n")
    replies = [call("file_write", path="watch.py", content="evil"), say("ok")]
    agent, _ = start(replies, origin="watcher", sandbox="off", fixed=(script.resolve(),))
    item = finish(agent.put_task("go", "reflect:watch"))
    assert item["denied"] and script.read_text() == "INTERVAL = 60\n"
