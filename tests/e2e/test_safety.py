"""Sandbox, questions and rules as a user meets them: the real program, its exit codes, its screen."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, ScriptedServer, Tool, call, say

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
from test_chat_pty import CTRL_C, PROGRAM, Terminal  # noqa: E402

NEEDS_BWRAP = pytest.mark.skipif(not shutil.which("bwrap"), reason="NO BUBBLEWRAP: install the package bubblewrap")
Play = Callable[..., tuple[Any, ScriptedServer]]


@pytest.fixture
def play(model_server: Any, run_ga: Any) -> Play:
    """Run the program against a scripted model: `play(replies, "-p", "hi")` → (what came of it, the server)."""

    def run(replies: Any, *args: str, env: dict[str, str] | None = None) -> tuple[Any, ScriptedServer]:
        server = model_server(replies)
        given = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url}
        return run_ga(*args, env=given | (env or {})), server

    return run


def bash(script: str) -> Reply:
    return call("code_run", type="bash", script=script)


def alive(pid: int) -> bool:
    """Whether it still runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def told(server: ScriptedServer, n: int = -1) -> str:
    return json.dumps(server.requests[n].body["messages"], ensure_ascii=False)


@NEEDS_BWRAP
def test_a_sandboxed_command_writes_the_workspace_and_nothing_else(play: Play, tmp_path: Path, ga_home: Path) -> None:
    (tmp_path / "work").mkdir()
    (ga_home / "config.toml").write_text("[ui]\nlanguage = 'en'\n")
    script = (
        f"echo in > here.txt; echo out > /usr/ga-out.txt; echo out > {tmp_path}/out.txt; cat {ga_home}/config.toml; ls {ga_home}/sessions; "
        "env | grep -c KEY; ls /tmp | wc -l"
    )
    done, server = play(
        [bash(script), say("done")], "-p", "go", "--cwd", str(tmp_path / "work"), "--sandbox", "require"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "here.txt").read_text() == "in\n" and not (tmp_path / "out.txt").exists()
    assert "Read-only file system" in told(server) and "language" not in told(server)
    assert "sandbox" in json.dumps(server.requests[0].body["system"])


@NEEDS_BWRAP
@pytest.mark.parametrize(("net", "reached"), [("on", True), ("off", False)])
def test_the_network_of_the_sandbox_can_be_switched_off(play: Play, model_server: Any, net: str, reached: bool) -> None:
    other = model_server([])
    script = f"python3 -c \"import urllib.request as u; u.urlopen('{other.url}/x')\" 2>&1 | tail -1"
    _, server = play([bash(script), say("done")], "-p", f"ask {other.url}", "--sandbox", "require", "--net", net)
    assert bool(other.strays) is reached, told(server)


@pytest.mark.slow
@NEEDS_BWRAP
@pytest.mark.parametrize(
    ("script", "left"),
    [("sleep 600 & echo started", True), ("nohup sleep 600 >/dev/null 2>&1 & echo started", True), ("setsid sleep 600 & echo started", True),
     ("echo started", False), ("sleep 0.01 & wait; echo started", False)],
)  # fmt: skip
def test_servers_in_the_background_end_with_the_call_in_the_sandbox_and_the_result_says_so(
    play: Play, script: str, left: bool
) -> None:
    done, server = play([bash(script), say("done")], "-p", "go", "--sandbox", "require")
    assert done.returncode == 0 and "started" in told(server)
    assert ("nothing outlives its call" in told(server)) is left


def without_bwrap(tmp_path: Path) -> dict[str, str]:
    """A PATH in which everything is found but bubblewrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("bash", "sh", "python3", "cat", "env"):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return {"PATH": str(folder)}


def test_without_bubblewrap_require_refuses_before_any_model_call(play: Play, tmp_path: Path) -> None:
    done, server = play([say("x")], "-p", "go", "--sandbox", "require", env=without_bwrap(tmp_path))
    assert done.returncode == 1 and server.requests == [] and "bubblewrap" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_without_bubblewrap_auto_says_so_loudly_and_runs(play: Play, tmp_path: Path) -> None:
    done, _ = play([bash("echo hi"), say("done")], "-p", "go", "--sandbox", "auto", env=without_bwrap(tmp_path))
    assert done.returncode == 0 and "no sandbox" in done.stderr and "your own rights" in done.stderr


def test_sandbox_required_by_the_configuration_holds_and_the_command_line_can_only_say_otherwise_itself(
    play: Play, tmp_path: Path, ga_home: Path
) -> None:
    (ga_home / "config.toml").write_text("[safety]\nsandbox = 'require'\n")
    env = without_bwrap(tmp_path)
    assert play([say("x")], "-p", "go", env=env)[0].returncode == 1
    assert play([say("x")], "-p", "go", "--sandbox", "off", env=env)[0].returncode == 0


def test_a_denied_script_ends_with_4_and_names_the_rule_that_works(play: Play, tmp_path: Path) -> None:  # C139
    out = tmp_path / "out.txt"
    write = call("file_write", path=str(out), content="x")
    done, _ = play([write, say("I did it")], "-p", "go")
    assert done.returncode == 4 and not out.exists() and f"--allow write:{out}" in done.stderr
    assert done.stdout == "", "what asks for a permission is not an answer"
    done, _ = play([write, say("I did it")], "-p", "go", "--allow", f"write:{out}")
    assert done.returncode == 0 and out.read_text() == "x"


def test_result_json_of_a_denied_task_says_what_was_denied(play: Play, tmp_path: Path, ga_home: Path) -> None:
    done, _ = play([bash(f"rm -rf {tmp_path}"), say("x")], "--task", "t", "--input", "clean")
    result = json.loads((ga_home / "temp" / "t" / "result.json").read_text())
    assert done.returncode == 4 and result["status"] == "needs_input" and str(tmp_path) in result["denied"][0]
    assert tmp_path.is_dir()


@pytest.mark.parametrize("rule", ["wirte:/x", "", "write:", "send:https://x.test/a"])
def test_a_rule_that_means_nothing_is_an_error(play: Play, rule: str) -> None:
    done, server = play([say("x")], "-p", "go", "--allow", rule)
    assert done.returncode == 2 and server.requests == [] and len(done.stderr.strip().splitlines()) == 1


def test_what_still_runs_in_the_background_is_named_and_ended_at_exit(play: Play, tmp_path: Path) -> None:  # C055
    script = f"(while :; do touch {tmp_path}/alive; sleep 0.05; done) & echo $! > {tmp_path}/pid"
    done, _ = play([bash(script), say("done")], "-p", "go")
    assert done.returncode == 0 and "ended" in done.stderr and "while" in done.stderr
    assert not alive(int((tmp_path / "pid").read_text()))


def test_doctor_says_what_holds_and_fails_when_something_is_broken(run_ga: Any, ga_home: Path) -> None:
    (ga_home / "config.toml").write_text(
        "[[llm]]\nmodel = 'm'\nbase_url = 'http://127.0.0.1:9'\n[safety]\nallow = ['write:~/notes/**']\ndeny = ['exec:rm *']\n[telegram]\nallowed_users = [42]\n"
    )
    done = run_ga("doctor", "--offline")
    assert done.returncode == 0 and done.stderr == ""
    for wanted in (
        "sandbox",
        "mode chat",
        "mode watchers",
        "write:~/notes/**",
        "exec:rm *",
        "allowed users: 42",
        "listeners",
        "18765",
    ):
        assert wanted in done.stdout, wanted
    (ga_home / "config.toml").write_text("[safety]\ndeny = ['exce:rm *']\n")
    done = run_ga("doctor")
    assert done.returncode == 1 and "PROBLEM" in done.stdout and "exce" in done.stdout


# the chat


@pytest.fixture
def chat(model_server: Any) -> Iterator[Callable[..., Terminal]]:
    """The real chat in a pty, on a scripted model, in the folder `work`."""
    terminals: list[Terminal] = []

    def begin(replies: Any, work: Path, *args: str) -> Terminal:
        server = model_server(replies)
        env = {
            **os.environ,
            "ANTHROPIC_API_KEY": "key-for-test",
            "ANTHROPIC_BASE_URL": server.url,
            "TERM": "xterm-256color",
        }
        terminal = Terminal([*PROGRAM, str(work), *args], env, columns=100)
        terminals.append(terminal)
        terminal.until(lambda: terminal.lines()[-1:] == ["❯"])
        return terminal

    yield begin
    for terminal in terminals:
        terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("y", True),
        ("yes", True),
        ("s", True),
        ("n", False),
        ("no!", False),
        ("please not there", False),
        ("yesterday", False),
        ("ok", False),
        ("always", False),
    ],
)
def test_the_chat_asks_and_only_a_yes_is_one(
    chat: Callable[..., Terminal], tmp_path: Path, answer: str, written: bool
) -> None:
    (tmp_path / "work").mkdir()
    seen: list[str] = []

    def script(body: dict[str, Any], n: int) -> Reply:
        seen.append(json.dumps(body["messages"], ensure_ascii=False))
        return call("file_write", path=str(tmp_path / "out.txt"), content="x") if n == 0 else say("The end.")

    t = chat(script, tmp_path / "work")
    t.send("write it\r")
    t.until("[y] yes")
    t.until("out.txt")
    assert not (tmp_path / "out.txt").exists()
    t.send(answer + "\r")
    t.until("The end.")
    assert (tmp_path / "out.txt").exists() is written
    assert ("please not there" in seen[1]) is (answer == "please not there")


@pytest.mark.slow
def test_ctrl_c_while_the_chat_asks_stops_the_task_and_not_the_program(
    chat: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    t = chat([bash(f"rm -rf {tmp_path}"), say("Still here.")], tmp_path / "work")
    t.send("clean\r")
    t.until("[y] yes")
    t.send(CTRL_C)
    t.until("interrupted")
    t.send("y\r")  # belongs to no question any more: a message
    t.until("Still here.")
    assert (tmp_path / "work").is_dir()


@pytest.mark.slow
def test_jobs_lists_keeps_and_ends(chat: Callable[..., Terminal], tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    loop = "(while :; do sleep 0.1; done) & echo $! >> pids.txt"
    replies = [
        Reply(tools=[Tool("code_run", {"type": "bash", "script": f"{loop} # {n}"}) for n in ("one", "two", "three")]),
        say("Started."),
    ]
    t = chat(replies, tmp_path / "work")
    t.send("start\r")
    t.until("Started.")
    pids = list(map(int, (tmp_path / "work" / "pids.txt").read_text().split()))
    t.send("/jobs\r")
    t.until("# three")
    t.send("/jobs end 1\r")
    t.until("ended: (while")
    t.send("/jobs keep 1\r")
    t.until("kept when the chat ends")
    t.send("/quit\r")
    t.wait()
    assert "ended what still ran" in t.text() and "three" in t.text().rpartition("ended what still ran")[2]
    assert [alive(pid) for pid in pids] == [False, True, False]
    os.killpg(os.getpgid(pids[1]), 9)
