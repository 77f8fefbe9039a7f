"""A process that is killed loses nothing that was acknowledged, and repeats nothing that may have been done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, Tool, call, say, text_call

ROOT = Path(__file__).parents[2]
Started = "subprocess.Popen[str]"


@pytest.fixture
def launch(ga_home: Path, tmp_path: Path) -> Iterator[Any]:
    """Start the program against a server and leave it running; it is killed at the end."""
    running: list[subprocess.Popen[str]] = []

    def start(server: Any, *args: str, protocol: str = "native") -> subprocess.Popen[str]:
        kind = "native_claude" if protocol == "native" else "claude"
        entry = f'[[llm]]\ntype = "{kind}"\nmodel = "m"\napi_key = "k"\nbase_url = "{server.url}"\n'
        (ga_home / "config.toml").write_text(entry, encoding="utf-8")
        command = [sys.executable, str(ROOT / "agentmain.py"), *args]
        pipe = subprocess.PIPE
        program = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=dict(os.environ)
        )
        running.append(program)
        return program

    yield start
    for program in running:
        program.kill()
        program.communicate()


def until(condition: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def kill_group_of(mark: Path) -> None:
    """The tool's own process survives its killed parent; its pid stands in the file."""
    os.killpg(int(mark.read_text()), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["native", "text"])
def test_a_kill_during_a_tool_leaves_a_session_that_goes_on(
    model_server: Any, launch: Any, ga_home: Path, protocol: str
) -> None:  # C040
    mark = ga_home / "temp" / "ran"
    script = f"echo $$ >> {mark}; sleep 60"
    make = call if protocol == "native" else text_call
    server = model_server(
        [make("code_run", type="bash", script="echo 42"), make("code_run", type="bash", script=script)]
    )
    program = launch(server, "-p", "count the beans", protocol=protocol)
    until(mark.exists)
    program.kill()
    program.wait()
    kill_group_of(mark)
    server = model_server([say("<summary>s</summary>I looked first.")])
    program = launch(server, "-p", "go on", "--continue", protocol=protocol)
    out, err = program.communicate(timeout=30)
    assert program.returncode == 0, err
    told = json.dumps(server.requests[0].body["messages"])
    assert "count the beans" in told and "42" in told and "outcome unknown" in told
    assert mark.read_text().count("\n") == 1, "the tool did not run again"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["native", "text"])
def test_results_of_calls_that_had_run_are_kept(
    model_server: Any, launch: Any, ga_home: Path, protocol: str
) -> None:  # C040 C014
    mark = ga_home / "temp" / "ran"
    args = [{"type": "bash", "script": "echo first-result"}, {"type": "bash", "script": f"echo $$ > {mark}; sleep 60"}]
    if protocol == "native":
        reply = Reply(tools=[Tool("code_run", a) for a in args])
    else:
        reply = Reply(text="\n".join(text_call("code_run", **a).text for a in args))
    program = launch(model_server([reply]), "-p", "two calls", protocol=protocol)
    until(mark.exists)
    program.kill()
    program.wait()
    kill_group_of(mark)
    server = model_server([say("fine")])
    program = launch(server, "-p", "go on", "--continue", protocol=protocol)
    _, err = program.communicate(timeout=30)
    assert program.returncode == 0, err
    told = json.dumps(server.requests[0].body["messages"])
    assert told.count("first-result") >= 2 and told.count("outcome unknown") == 1


@pytest.mark.slow
def test_kills_at_random_moments_never_lose_an_acknowledged_request(
    model_server: Any, launch: Any, ga_home: Path
) -> None:  # C040
    words = []
    for n in range(6):
        server = model_server(lambda body, n: call("code_run", type="bash", script="true"))
        before = len(list((ga_home / "sessions").glob("*.jsonl")))
        program = launch(server, "-p", f"request number {n} please", *(["--continue"] if n else []))
        until(lambda server=server, n=n: len(server.requests) > n % 3)
        program.kill()
        program.wait()
        words.append(f"request number {n} please")
        assert len(list((ga_home / "sessions").glob("*.jsonl"))) == max(1, before)
    server = model_server([say("fine")])
    program = launch(server, "-p", "the end", "--continue")
    _, err = program.communicate(timeout=30)
    assert program.returncode == 0, err
    told = json.dumps(server.requests[0].body["messages"])
    assert [w for w in words if w not in told] == []


@pytest.mark.slow
def test_two_processes_never_write_one_session(model_server: Any, launch: Any, ga_home: Path) -> None:  # C043
    server = model_server([say("the word is zebra")])
    program = launch(server, "-p", "a word?")
    program.communicate(timeout=30)
    slow = model_server([say("late", hang_before_headers=20)])
    first = launch(slow, "-p", "one more", "--continue")
    until(lambda: slow.requests)
    server = model_server([say("x")])
    second = launch(server, "-p", "me too", "--continue")
    _, err = second.communicate(timeout=30)
    assert second.returncode == 1 and f"process {first.pid}" in err and server.requests == []
    first.kill()
    first.wait()
    third = launch(server, "-p", "now me", "--continue")
    _, err = third.communicate(timeout=30)
    assert third.returncode == 0, err
    told = json.dumps(server.requests[0].body["messages"])
    assert "zebra" in told and "one more" in told
