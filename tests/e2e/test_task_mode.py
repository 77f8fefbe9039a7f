"""`--task` as a script uses it: real process, real files, real HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, Tool, call, say

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(ga_home: Path) -> Path:
    return ga_home / "temp" / "job"


@pytest.fixture
def play(model_server: Any, run_ga: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a server with the replies and run the program against it: (finished process, server)."""

    def start(replies: Any, *args: str, **kwargs: Any) -> Any:
        server = model_server(replies)
        env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url, **kwargs.pop("env", {})}
        return run_ga(*args, env=env, **kwargs), server

    return start


def until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def result(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return loaded


def test_a_task_runs_writes_its_files_and_exits_with_0(play: Any, folder: Path) -> None:
    replies = [
        call("file_write", path="a.txt", content="hello\n"),
        call("code_run", type="bash", script="cat a.txt"),
        say("<summary>done</summary>It says hello."),
    ]
    done, server = play(replies, "--task", "job", "--input", "write and read")
    assert done.returncode == 0, done.stderr
    output = (folder / "output.txt").read_text(encoding="utf-8")
    assert output.rstrip().endswith("[ROUND END]") and "It says hello." in output
    end = result(folder)
    assert end["status"] == "done" and end["result"] == "CURRENT_TASK_DONE" and end["answer"] == "It says hello."
    assert end["turns"] == 3 and end["usage"]["requests"] == 3 and end["session"]
    assert [Path(p).name for p in end["files_changed"]] == ["a.txt"]
    assert (folder / "input.txt").read_text(encoding="utf-8") == "write and read"
    assert len(server.requests) == 3
    assert server.requests[0].headers["user-agent"].startswith("genericagent/")


def test_input_may_come_from_the_file(play: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "input.txt").write_text("from the file", encoding="utf-8")
    done, server = play([say("ok")], "--task", "job")
    assert done.returncode == 0 and "from the file" in json.dumps(server.requests[0].body)


@pytest.mark.parametrize("text", ["", "   \n\t "])
def test_an_empty_request_is_refused_before_any_model_call(play: Any, folder: Path, text: str) -> None:  # C140
    done, server = play([say("how can I help?")], "--task", "job", "--input", text)
    assert done.returncode == 2 and "empty" in done.stderr and server.requests == []
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_or_empty_input_file_is_refused(play: Any, folder: Path) -> None:  # C140
    done, server = play([say("x")], "--task", "job")
    assert done.returncode == 2 and "input.txt" in done.stderr and server.requests == []
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input.txt").write_text(" \n", encoding="utf-8")
    done, server = play([say("x")], "--task", "job")
    assert done.returncode == 2 and server.requests == []


@pytest.mark.parametrize("name", ["a/b", "..", "", ".hidden", "_output", "a\\b", "/etc"])
def test_a_task_name_is_one_file_name(play: Any, name: str) -> None:
    done, server = play([say("x")], "--task", name, "--input", "hi")
    assert done.returncode == 2 and server.requests == [] and "task name" in done.stderr


@pytest.mark.slow
def test_the_exit_code_says_why_it_ended(play: Any, folder: Path) -> None:  # C139 C037
    loop = lambda body, n: call("code_run", type="bash", script=f"echo {n}")  # noqa: E731
    cases: list[tuple[Any, list[str], int, str]] = [
        (loop, ["--max-turns", "2"], 3, "limit"),
        ([Reply(status=401, body=b'{"type":"error","error":{"type":"authentication_error","message":"bad key"}}')], [], 1, "failed"),
        ([call("ask_user", question="Which one?", candidates=["a", "b"])], [], 4, "needs_input"),
        (lambda body, n: say(""), [], 1, "failed"),
    ]  # fmt: skip
    for replies, args, code, status in cases:
        done, server = play(replies, "--task", "job", "--input", "go", *args)
        assert (done.returncode, result(folder)["status"]) == (code, status), done.stderr
        assert (folder / "output.txt").read_text(encoding="utf-8").rstrip().endswith("[ROUND END]")
    assert len(server.requests) == 3, "a third empty reply in a row ends the task"  # C007


def test_a_question_with_nobody_there_ends_and_can_be_answered_later(play: Any, folder: Path) -> None:  # C142
    done, _ = play(
        [call("ask_user", question="Which colour?", candidates=["red", "blue"])], "--task", "job", "--input", "paint"
    )
    assert done.returncode == 4
    end = result(folder)
    assert end["question"] == {"question": "Which colour?", "candidates": ["red", "blue"]}
    assert "Which colour?" in (folder / "output.txt").read_text(encoding="utf-8")
    done, server = play([say("painted blue")], "--task", "job", "--input", "blue", "--resume", end["session"])
    assert done.returncode == 0, done.stderr
    sent = json.dumps(server.requests[0].body)
    assert "paint" in sent and "Which colour?" in sent and '"blue"' in sent


def test_a_reply_continues_the_conversation_in_the_next_output_file(
    model_server: Any, ga_home: Path, folder: Path
) -> None:
    server = model_server([say("first answer"), say("second answer")])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    program = subprocess.Popen(
        [sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--input", "one", "--wait", "60"], env=env
    )
    until(lambda: (folder / "result.json").exists())
    (folder / "reply.tmp").write_text("two", encoding="utf-8")
    (folder / "reply.tmp").rename(folder / "reply.txt")
    until(lambda: (folder / "output1.txt").exists() and "[ROUND END]" in (folder / "output1.txt").read_text())
    assert not (folder / "reply.txt").exists()
    (folder / "_stop").touch()
    assert program.wait(timeout=60) == 0
    assert (
        "second answer" in (folder / "output1.txt").read_text()
        and "first answer" in (folder / "output.txt").read_text()
    )
    assert "first answer" in json.dumps(server.requests[1].body), "the history goes along"


def test_files_of_an_earlier_run_are_cleared_and_the_rest_stays(play: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in (
        "output.txt",
        "output7.txt",
        "reply.txt",
        "_stop",
        "_intervene",
        "result.json",
        "outputs.txt",
        "data.csv",
    ):
        (folder / name).write_text("STALE", encoding="utf-8")
    done, server = play([say("new")], "--task", "job", "--input", "x")
    assert done.returncode == 0, done.stderr
    left = {p.name for p in folder.iterdir()}
    assert left >= {"outputs.txt", "data.csv", "output.txt", "result.json"}
    assert not left & {"output7.txt", "reply.txt", "_stop", "_intervene"}
    assert "STALE" not in json.dumps(server.requests[0].body)


@pytest.mark.slow
def test_the_stop_file_ends_a_running_tool_with_all_its_processes(
    model_server: Any, ga_home: Path, folder: Path, tmp_path: Path
) -> None:  # C044
    canary = tmp_path / "canary.txt"
    script = f"(sleep 2; echo x > {canary}) & sleep 30"
    server = model_server([call("code_run", type="bash", script=script, timeout=100), say("never")])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    program = subprocess.Popen([sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--input", "x"], env=env)
    until(lambda: "code_run" in ((folder / "output.txt").read_text() if (folder / "output.txt").exists() else ""))
    (folder / "_stop").touch()
    assert program.wait(timeout=60) == 130
    assert result(folder)["status"] == "interrupted"
    time.sleep(2.2)
    assert not canary.exists()


def test_a_signal_stops_the_task_and_its_files_are_complete(model_server: Any, ga_home: Path, folder: Path) -> None:
    server = model_server([Reply(text="never", hang_before_headers=60)])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    program = subprocess.Popen([sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--input", "x"], env=env)
    until(lambda: server.requests)
    program.send_signal(signal.SIGTERM)
    assert program.wait(timeout=50) == 130
    assert "[ROUND END]" in (folder / "output.txt").read_text()


def test_steering_files_reach_the_next_prompt(model_server: Any, ga_home: Path, folder: Path, run_ga: Any) -> None:
    def script(body: Any, n: int) -> Any:
        if n == 0:
            (folder / "_intervene").write_text("use the other file", encoding="utf-8")
            (folder / "_keyinfo").write_text("port is 8080", encoding="utf-8")
            return call("code_run", type="bash", script="true")
        return say("ok")

    server = model_server(script)
    done = run_ga("--task", "job", "--input", "x", env={"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url})
    assert done.returncode == 0, done.stderr
    sent = json.dumps(server.requests[1].body)
    assert "[MASTER] use the other file" in sent and "[MASTER] port is 8080" in sent
    assert not (folder / "_intervene").exists() and not (folder / "_keyinfo").exists()


def test_a_history_file_seeds_the_conversation(play: Any, folder: Path, tmp_path: Path) -> None:
    seed = tmp_path / "h.json"
    seed.write_text(
        json.dumps([{"role": "user", "content": "my name is Ada"}, {"role": "assistant", "content": "hello"}])
    )
    done, server = play([say("Ada")], "--task", "job", "--input", "who am I?", "--history", str(seed))
    assert done.returncode == 0, done.stderr
    assert "my name is Ada" in json.dumps(server.requests[0].body)
    seed.write_text("{not json")
    done, _ = play([say("x")], "--task", "job", "--input", "y", "--history", str(seed))
    assert done.returncode == 2 and str(seed) in done.stderr


def test_a_task_name_in_use_is_refused(model_server: Any, ga_home: Path, folder: Path, run_ga: Any) -> None:
    server = model_server([Reply(text="slow", hang_before_headers=60)])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    program = subprocess.Popen([sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--input", "x"], env=env)
    try:
        until(lambda: server.requests)
        done = run_ga("--task", "job", "--input", "y", env=env)
        assert done.returncode == 2 and str(program.pid) in done.stderr
        assert (folder / "input.txt").read_text() == "x", "the running task's files are untouched"
    finally:
        program.terminate()
        program.wait(timeout=60)


def test_bg_prints_the_pid_and_the_task_goes_on(model_server: Any, ga_home: Path, folder: Path, run_ga: Any) -> None:
    server = model_server([say("answer in the background")])
    env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    done = run_ga("--task", "job", "--input", "x", "--bg", env=env)
    assert done.returncode == 0 and done.stdout.startswith("PID: ")
    pid = int(done.stdout.split()[1])
    until(lambda: (folder / "result.json").exists())
    assert "answer in the background" in (folder / "output.txt").read_text()
    (folder / "_stop").touch()
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())


def test_bg_says_at_once_what_is_wrong(play: Any) -> None:
    done, _ = play([say("x")], "--task", "job", "--input", " ", "--bg")
    assert done.returncode == 2 and "empty" in done.stderr and "PID" not in done.stdout


def test_a_request_of_a_megabyte_goes_into_a_file(play: Any, folder: Path, ga_home: Path) -> None:
    folder.mkdir(parents=True)
    text = "START " + "word " * 210_000 + "END"
    (folder / "input.txt").write_text(text, encoding="utf-8")
    done, server = play([say("ok")], "--task", "job")
    assert done.returncode == 0, done.stderr
    sent = json.dumps(server.requests[0].body)
    assert len(sent) < 30_000 and "START word" in sent
    stored = next((ga_home / "temp" / "_requests").iterdir())
    assert str(stored) in sent and stored.read_text(encoding="utf-8") == text.strip() or stored.read_text() == text


@pytest.mark.parametrize("cut", [True, False])
def test_arguments_that_are_cut_or_no_json_never_run(
    play: Any, folder: Path, ga_home: Path, cut: bool
) -> None:  # C020 C022 C023
    target = ga_home / "temp" / "big.txt"
    target.parent.mkdir(parents=True)
    target.write_text("before", encoding="utf-8")
    raw = '{"path": "big.txt", "content": "half a fi' if cut else '{"path": "big.txt", "content": "x",}'
    broken = Reply(tools=[Tool("file_write", raw)], stop="max_tokens" if cut else "tool_use")
    done, server = play([broken, say("I will write smaller parts")], "--task", "job", "--input", "x")
    assert done.returncode == 0, done.stderr
    assert target.read_text(encoding="utf-8") == "before"
    told = json.dumps(server.requests[1].body["messages"][-1])
    assert "file_write" in told and "NOT run" in told
    assert ("parts" in told) == cut


def test_calls_that_are_always_cut_end_the_task_with_the_reason(play: Any, folder: Path) -> None:  # C023 C008
    def broken(body: Any, n: int) -> Reply:
        return Reply(tools=[Tool("file_write", '{"path": "a", "content": "xx')], stop="max_tokens")

    done, server = play(broken, "--task", "job", "--input", "x")
    assert done.returncode == 1 and "output limit" in done.stderr and len(server.requests) == 3


def test_text_cut_by_the_limit_again_and_again_is_bounded(play: Any, folder: Path) -> None:  # C008
    done, server = play(
        lambda body, n: Reply(text="twenty characters..", stop="max_tokens"), "--task", "job", "--input", "x"
    )
    assert done.returncode == 1 and "output limit" in done.stderr and len(server.requests) == 3


def test_arguments_of_a_wrong_type_never_run(play: Any, ga_home: Path) -> None:
    done, server = play(
        [call("code_run", type="bash", script="touch ran", timeout="soon"), say("ok")], "--task", "job", "--input", "x"
    )
    assert done.returncode == 0 and "timeout must be" in json.dumps(server.requests[1].body)
    assert not (ga_home / "temp" / "ran").exists()


def test_children_never_see_the_key(play: Any, folder: Path) -> None:
    done, server = play(
        [call("code_run", type="bash", script="env"), call("code_run", type="python", script="import os; print(dict(os.environ))"), say("ok")],
        "--task", "job", "--input", "x", env={"MY_COPY": "key-for-test", "HARMLESS": "kept"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for request in server.requests[1:]:
        sent = json.dumps(request.body)
        assert "key-for-test" not in sent and "HARMLESS" in sent


def test_stdin_that_never_closes_is_not_waited_for(model_server: Any, ga_home: Path, folder: Path) -> None:  # C047
    server = model_server([say("hi")])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    program = subprocess.Popen(
        [sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--input", "say hi"],
        env=env,
        stdin=subprocess.PIPE,
    )
    try:
        assert program.wait(timeout=60) == 0
    finally:
        program.kill()
        program.stdin.close()  # type: ignore[union-attr]


def test_of_two_detached_tasks_with_one_name_only_one_says_it_runs(
    model_server: Any, ga_home: Path, folder: Path
) -> None:
    server = model_server(lambda body, n: call("code_run", type="bash", script="sleep 5"))
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    command = [sys.executable, str(ROOT / "agentmain.py"), "--task", "job", "--bg", "--max-turns", "1", "--wait=0"]
    both = [
        subprocess.Popen(
            [*command, "--input", text], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for text in ("one", "two")
    ]
    said = [program.communicate(timeout=30) for program in both]
    assert sorted(program.returncode for program in both) == [0, 2], said
    assert sum("PID" in out for out, _ in said) == 1 and any("running already" in err for _, err in said)
    (folder / "_stop").touch()
    until(lambda: (folder / "result.json").exists())
