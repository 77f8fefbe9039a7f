"""`--reflect` as a real process: shipped scripts, signals, two instances, kill -9."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, Tool, call, say
from genericagent.store.journal import Journal
from genericagent.store.outbox import Outbox

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "agentmain.py")]
Start = Callable[..., "subprocess.Popen[str]"]


def until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def serve(model_server: Any, monkeypatch: pytest.MonkeyPatch, ga_home: Path) -> Callable[..., Any]:
    """A scripted model that is configured for all that is started; watchers go without a sandbox unless told."""

    def make(replies: Any, safety: str = "[safety]\nsandbox = 'off'\n") -> Any:
        server = model_server(replies)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        (ga_home / "config.toml").write_text(safety)
        return server

    return make


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def begin(*args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        running.append(
            subprocess.Popen(
                [*PROGRAM, *args], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
        )
        return running[-1]

    yield begin
    for program in running:
        if program.poll() is None:
            program.kill()
        program.communicate()


def end(program: subprocess.Popen[str], number: int = signal.SIGTERM) -> tuple[int, str]:
    program.send_signal(number)
    _, err = program.communicate(timeout=15)
    return program.returncode, err


def job(home: Path, name: str, **fields: Any) -> Path:
    now = datetime.now()
    path = home / "sche_tasks" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schedule": f"{now:%H:%M}", "repeat": "every_1h", "prompt": f"do {name}", **fields}))
    return path


def events(home: Path) -> list[tuple[str, str]]:
    file = home / "sche_tasks" / "runs.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(r["event"], r["job"]) for r in map(json.loads, lines)]


def pending(home: Path, origin: str | None = None) -> dict[str, str]:
    return {m["title"]: m["text"] for m in Outbox(home / "outbox").pending(origin)}


WAKES_ONCE = "INTERVAL = 1\nn = 0\ndef check():\n    global n\n    n += 1\n    return 'go' if n == 1 else None\n"
SLEEPS = lambda body, n: call("code_run", type="bash", script="echo $$ > pid; sleep 300")  # noqa: E731


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_watcher_and_its_task(
    serve: Any, start: Start, ga_home: Path, tmp_path: Path, number: int
) -> None:
    script, done = tmp_path / "w.py", tmp_path / "done"
    script.write_text(WAKES_ONCE + f"def on_done(result):\n    open({str(done)!r}, 'w').write(result['status'])\n")
    serve(SLEEPS)
    program, pid = start("--reflect", str(script)), ga_home / "temp" / "pid"
    until(lambda: pid.exists() and pid.read_text().strip())
    code, _ = end(program, number)
    assert code == 130 and done.read_text() == "interrupted"
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def test_a_signal_ends_a_watcher_whose_check_hangs(serve: Any, start: Start, tmp_path: Path) -> None:
    script, flag = tmp_path / "w.py", tmp_path / "flag"
    script.write_text(f"def check():\n    open({str(flag)!r}, 'w').close()\n    while True: pass\n")
    serve([])
    program = start("--reflect", str(script))
    until(flag.exists)
    code, err = end(program)
    assert code == 130 and "at fault" not in err


def test_the_script_ends_with_a_watcher_that_is_killed(serve: Any, start: Start, tmp_path: Path) -> None:
    script, pid = tmp_path / "w.py", tmp_path / "pid"
    script.write_text(
        f"import os, time\ndef check():\n    open({str(pid)!r}, 'w').write(str(os.getpid()))\n    time.sleep(300)\n"
    )
    serve([])
    program = start("--reflect", str(script))
    until(lambda: pid.exists() and pid.read_text())
    program.kill()
    until(lambda: not Path(f"/proc/{pid.read_text()}").exists())


def test_a_second_instance_of_a_script_is_refused_and_another_script_is_not(
    serve: Any, start: Start, tmp_path: Path, run_ga: Any
) -> None:
    script, link, other, flag = tmp_path / "w.py", tmp_path / "link.py", tmp_path / "o.py", tmp_path / "flag"
    script.write_text(f"def check():\n    open({str(flag)!r}, 'w').close()\n")
    link.symlink_to(script)
    other.write_text("def check():\n    return '/exit'\n")
    server = serve([])
    program = start("--reflect", str(script))
    until(flag.exists)
    for name in (script, link):
        done = run_ga("--reflect", str(name))
        assert done.returncode == 2 and f"process {program.pid}" in done.stderr
    assert run_ga("--reflect", str(other)).returncode == 0
    program.kill()
    program.wait()
    until(lambda: run_ga("--reflect", str(script.with_name("none.py"))).returncode == 2)
    again = start("--reflect", str(script))
    flag.unlink()
    until(flag.exists)
    assert end(again)[0] == 130 and server.requests == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--reflect", "no_such"], "scheduler"),
        (["--reflect", "scheduler", "-p", "x"], "exclude"),
        (["--reflect", ""], "no script"),
    ],
)
def test_what_cannot_be_watched_is_refused(run_ga: Any, args: list[str], said: str) -> None:
    done = run_ga(*args)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_watcher_without_a_model_is_refused_at_once(run_ga: Any, ga_home: Path) -> None:  # C139
    (ga_home / "config.toml").write_text("[safety]\nsandbox = 'off'\n")
    done = run_ga("--reflect", "autonomous")
    assert done.returncode == 1 and "no model" in done.stderr


def test_once_tells_by_its_exit_code_what_became_of_the_task(
    serve: Any, run_ga: Any, tmp_path: Path
) -> None:  # C139 C142
    script = tmp_path / "w.py"
    script.write_text("ONCE = True\ndef check():\n    return 'go'\n")
    server = serve(lambda body, n: [say("ok"), call("ask_user", question="Which?")][n])
    assert [run_ga("--reflect", str(script)).returncode for _ in range(2)] == [0, 4]
    server = serve(lambda body, n: call("file_read", path="x"))
    assert run_ga("--reflect", str(script), "--max-turns", "2").returncode == 3 and len(server.requests) == 2


def test_what_would_be_asked_is_denied_in_the_sandbox_and_named(
    serve: Any, run_ga: Any, ga_home: Path, tmp_path: Path
) -> None:
    script = tmp_path / "w.py"
    script.write_text("ONCE = True\ndef check():\n    return 'go'\ndef on_done(r):\n    print('denied', r['denied'])\n")
    out = Path.home() / "x.txt"
    steps = [
        call("file_write", path=str(out), content="x"),
        call("code_run", type="bash", script=f"echo evil > {script}; true"),
        say("done"),
    ]
    server = serve(lambda body, n: steps[n], safety="")
    done = run_ga("--reflect", str(script), "--cwd", str(tmp_path))
    if "no sandbox" in done.stderr and done.returncode == 1:
        pytest.skip("no sandbox here")
    assert done.returncode == 0, done.stderr
    assert script.read_text().startswith("ONCE"), "its own script is read-only in the sandbox"
    assert not out.exists() and "denied ['file_write: writes outside" in done.stderr
    assert json.dumps(server.requests[-1].body).count("Read-only file system") == 1


# the scheduler


def test_due_jobs_run_once_and_their_results_go_to_their_origins(
    serve: Any, start: Start, ga_home: Path, run_ga: Any
) -> None:
    # C160
    job(ga_home, "for_chat", origin="telegram:42")
    job(ga_home, "for_terminal")
    (ga_home / "sche_tasks" / "broken.json").write_text("{")
    server = serve(lambda body, n: say(f"result of {'for_chat' if 'for_chat' in json.dumps(body) else 'for_terminal'}"))
    program = start("--reflect", "scheduler")
    until(lambda: [e for e, _ in events(ga_home)].count("ended") == 1)
    assert end(program)[0] == 130
    program = start("--reflect", "scheduler")
    until(lambda: [e for e, _ in events(ga_home)].count("ended") == 2)
    code, err = end(program)
    assert code == 130 and err.count("broken.json") == 1
    assert pending(ga_home, "telegram:42") == {"for_chat": "result of for_chat"}
    terminal = pending(ga_home, "terminal")
    assert terminal["for_terminal"] == "result of for_terminal" and "broken.json" in terminal["problem"]
    assert len(server.requests) == 2 and len(events(ga_home)) == 4
    firsts = [json.dumps(r.body["messages"][0]) for r in server.requests]
    assert all("do for_" in first for first in firsts)


def test_a_run_that_was_cut_off_is_told_and_not_repeated(serve: Any, start: Start, ga_home: Path) -> None:  # C137
    job(ga_home, "cut", origin="telegram:1")
    serve(SLEEPS)
    program, pid = start("--reflect", "scheduler"), ga_home / "temp" / "pid"
    until(lambda: pid.exists() and pid.read_text().strip())
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    os.killpg(int(pid.read_text()), signal.SIGKILL)
    server = serve([])
    program = start("--reflect", "scheduler")
    until(lambda: ("unknown", "cut") in events(ga_home))
    end(program)
    assert server.requests == [] and "outcome is unknown" in pending(ga_home, "telegram:1")["cut"]
    assert [e for e, _ in events(ga_home)] == ["begun", "unknown"]


def test_a_scheduler_that_dies_while_it_writes_tells_a_missed_run_once(
    ga_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C137 C160
    job(ga_home, "daily", repeat="daily", schedule="08:00", max_delay_hours=1, origin="telegram:1")
    script, noon = loaded("scheduler"), datetime(2026, 3, 2, 12).timestamp()
    script.clock = lambda: noon
    assert script.check() is None
    append, later = script.schedule.Runs.append, noon + 86_400

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    for broken in (True, False, False):
        script = loaded("scheduler")
        script.clock = lambda: later
        monkeypatch.setattr(script.schedule.Runs, "append", dies if broken else append)
        if broken:
            with pytest.raises(KeyboardInterrupt):
                script.check()
        else:
            assert script.check() is None
    (message,) = Outbox(ga_home / "outbox").pending()
    assert message["origin"] == "telegram:1" and "1 runs missed" in message["text"]
    assert events(ga_home) == [("seen", "daily"), ("missed", "daily")]


def test_jobs_are_added_listed_run_and_disabled_from_the_command_line(serve: Any, run_ga: Any, ga_home: Path) -> None:
    server = serve(lambda body, n: say("the answer"))
    assert "no jobs" in run_ga("schedule", "list").stderr
    done = run_ga(
        "schedule", "add", "news", "read the news", "--at", "00:00", "--repeat", "weekday", "--origin", "terminal"
    )
    assert done.returncode == 0 and "no scheduler" in done.stderr
    assert run_ga("schedule", "add", "news", "x", "--at", "08:00").returncode == 1
    for wrong in (["a/b", "x", "--at", "08:00"], ["x", "x", "--at", "8"], ["x", " ", "--at", "08:00"], ["x", "x"]):
        assert run_ga("schedule", "add", *wrong).returncode == 2
    done = run_ga("schedule", "run", "news")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 1 and "read the news" in json.dumps(server.requests[0].body)
    assert pending(ga_home) == {"news": "the answer"}
    assert run_ga("schedule", "run", "other").returncode == 2
    assert run_ga("schedule", "disable", "news").returncode == 0
    (line,) = run_ga("schedule", "list").stdout.splitlines()
    assert "disabled" in line and "ended done" in line and "weekday 00:00" in line
    assert run_ga("schedule", "disable", "other").returncode == 1 and run_ga("schedule", "--help").returncode == 0
    Outbox(ga_home / "outbox").put("lost", "telegram:7", "news", "x")
    Outbox(ga_home / "outbox").fail("lost", "chat not found")
    assert "telegram:7 (chat not found)" in run_ga("schedule", "list").stderr  # C160


def test_what_came_for_the_terminal_is_shown_once_at_the_next_chat(ga_home: Path) -> None:  # C160
    from genericagent.cli.chat import news

    outbox = Outbox(ga_home / "outbox")
    assert list(news()) == []
    outbox.put("a", "terminal", "job", "first line\nsecond \x1b[31mline")
    outbox.put("b", "terminal", "job", "long " * 100)
    outbox.put("c", "telegram:1", "job", "for a chat")
    outbox.put("d", "telegram:2", "job", "lost")
    outbox.fail("d", "no such chat")
    lines = list(news())
    assert len(lines) == 3 and "first line second line" in lines[0] and "\x1b" not in "".join(lines)
    assert "b.json" in lines[1] and "no such chat" in lines[2]
    assert len(list(news())) == 1 and len(outbox.pending()) == 2


# autonomous and goal mode


def loaded(name: str) -> Any:
    """A shipped script as the watcher's child has it, begun anew."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "reflect" / f"{name}.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_autonomous_work_waits_for_half_an_hour_without_a_person(ga_home: Path) -> None:
    script = loaded("autonomous")
    now = time.time()
    script.clock = lambda: now

    def session(name: str, source: str, minutes: float, ended: bool = True) -> None:
        journal = Journal.create(ga_home / "sessions", name, {})
        journal.append({"type": "task", "event": "start", "source": source})
        if ended:
            journal.append({"type": "task", "event": "end", "status": "done"})
        journal.close()
        os.utime(journal.path, (now - minutes * 60,) * 2)

    session("20260101-000000-aaaaaa", "user", 31)
    session("20260101-000000-bbbbbb", "reflect:scheduler", 5)
    prompt = script.check()
    assert prompt and "R1.md" in prompt and (ga_home / "temp" / "TODO.txt").is_file()
    (ga_home / "temp" / "autonomous_reports" / "R7_x.md").write_text("")
    assert "R8.md" in script.check()
    for name, source, minutes, ended in (
        ("20260101-000000-cccccc", "user", 29, True),
        ("20260101-000000-dddddd", "telegram", 1, True),
        ("20260101-000000-eeeeee", "reflect:autonomous", 10, True),
        ("20260101-000000-ffffff", "reflect:scheduler", 10, False),
    ):
        session(name, source, minutes, ended)
        assert script.check() is None, source
        (ga_home / "sessions" / f"{name}.jsonl").unlink()
    assert script.check()


def test_autonomous_work_leaves_a_numbered_report_and_is_held_by_the_policy(
    serve: Any, start: Start, ga_home: Path
) -> None:
    target = ga_home / "reflect" / "new.py"
    steps = [call("file_write", path=str(target), content="x"), say("looked around")]
    serve(lambda body, n: steps[n])
    program = start("--reflect", "autonomous")
    report = ga_home / "temp" / "autonomous_reports" / "R1.md"
    until(report.exists)
    until(lambda: "autonomous" in pending(ga_home))
    end(program)
    text = report.read_text()
    assert "looked around" in text and "file_write" in text and not target.exists()


def goal(home: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((home / "goals" / "goal.json").read_text())
    return loaded


GOAL = ["--reflect", "goal_mode", "--objective", "write a poem", "--max_turns", "4"]


def test_a_goal_alternates_from_its_open_items_and_closes(serve: Any, run_ga: Any, ga_home: Path) -> None:  # C038
    server = serve(lambda body, n: say(f"All done, everything is finished!\nOPEN: verse {n}\n- OPEN: title {n}"))
    done = run_ga(*GOAL)
    assert done.returncode == 0, done.stderr
    firsts = [json.dumps(r.body["messages"][0]) for r in server.requests]
    assert [next(w for w in ("create", "inspect", "improve", "last round") if w in first) for first in firsts] == [
        "create", "inspect", "improve", "inspect", "last round",
    ]  # fmt: skip
    assert all(len(r.body["messages"]) == 1 and "All done" not in json.dumps(r.body) for r in server.requests)
    assert "verse 2" in firsts[3] and "verse 1" not in firsts[3]
    state = goal(ga_home)
    assert state["status"] == "done" and state["turns_used"] == 5 and state["open"] == ["verse 4", "title 4"]
    assert run_ga("--reflect", "goal_mode").returncode == 0 and len(server.requests) == 5


def test_a_goal_closes_also_after_a_crash_in_its_last_round(
    serve: Any, start: Start, run_ga: Any, ga_home: Path
) -> None:
    serve(
        lambda body, n: (
            Reply(tools=[Tool("code_run", {"type": "bash", "script": "echo $$ > pid; sleep 300"})]) if n else say("x")
        )
    )
    program, pid = start(*GOAL[:4], "--max_turns", "1"), ga_home / "temp" / "pid"
    until(lambda: pid.exists() and pid.read_text().strip())
    assert goal(ga_home)["status"] == "closing"
    os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    os.killpg(int(pid.read_text()), signal.SIGKILL)
    server = serve(lambda body, n: say("closed well"))
    done = run_ga("--reflect", "goal_mode")
    assert done.returncode == 0 and len(server.requests) == 1 and "last round" in json.dumps(server.requests[0].body)
    assert goal(ga_home)["status"] == "done" and goal(ga_home)["summary"] == "closed well"


def test_a_goal_that_cannot_be_is_told(serve: Any, start: Start, ga_home: Path) -> None:
    server = serve([])
    program = start("--reflect", "goal_mode")
    until(lambda: "goal-mode" in pending(ga_home) or pending(ga_home))
    end(program)
    assert "begin one with --objective" in pending(ga_home)["goal_mode"] and server.requests == []
