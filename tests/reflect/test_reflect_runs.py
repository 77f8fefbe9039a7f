"""`--reflect` as a real process: shipped scripts, signals, two instances, kill -9."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from genericagent.schedule import Runs, remove
from genericagent.scripted import Reply, Tool, call, say
from genericagent.store.journal import Journal
from genericagent.store.outbox import Outbox

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "agentmain.py")]
Start = Callable[..., "subprocess.Popen[str]"]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
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
    return [(r["event"], r["job"]) for r in map(json.loads, lines) if r["event"] != "told"]


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_once_tells_by_its_exit_code_what_became_of_the_task(
    serve: Any, run_ga: Any, tmp_path: Path
) -> None:  # C139 C142
    script = tmp_path / "w.py"
    script.write_text("ONCE = True\ndef check():\n    return 'go'\n")
    server = serve(lambda body, n: [say("ok"), call("ask_user", question="Which?")][n])
    assert [run_ga("--reflect", str(script)).returncode for _ in range(2)] == [0, 4]
    server = serve(lambda body, n: call("file_read", path="x"))
    assert run_ga("--reflect", str(script), "--max-turns", "2").returncode == 3 and len(server.requests) == 2


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("dies_in", ["Runs.append", "Outbox.put", "put, later", "told"])
def test_many_missed_runs_are_one_message_and_a_check_that_is_killed_doubles_none(
    ga_home: Path, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:  # C137 C160
    for n in range(30):
        job(ga_home, f"j{n:02}", repeat="daily", schedule="08:00", max_delay_hours=1, origin=f"telegram:{n % 2}")
    job(ga_home, "late", repeat="daily", schedule="11:59", max_delay_hours=24.1)
    noon = datetime(2026, 3, 2, 7).timestamp()
    script = loaded("scheduler")
    script.clock = lambda: noon
    assert script.check() is None
    script = loaded("scheduler")
    now = noon + 3 * 86_400 + 5 * 3600
    script.clock = lambda: now
    runs, outbox = script.schedule.Runs, script.Outbox
    append, put, puts = runs.append, outbox.put, 0

    def dying_append(self: Any, *records: Any) -> None:
        if dies_in == "Runs.append" or (dies_in == "told" and records[0]["event"] == "told"):
            raise KeyboardInterrupt
        append(self, *records)

    def dying_put(self: Any, *args: Any) -> bool:
        nonlocal puts
        puts += 1
        if dies_in == "Outbox.put" or (dies_in == "put, later" and puts == 2):
            raise KeyboardInterrupt
        return bool(put(self, *args))

    monkeypatch.setattr(runs, "append", dying_append)
    monkeypatch.setattr(outbox, "put", dying_put)
    with pytest.raises(KeyboardInterrupt):
        script.check()
    monkeypatch.setattr(runs, "append", append)
    monkeypatch.setattr(outbox, "put", put)
    now += 86_400  # and meanwhile more is missed
    script = loaded("scheduler")
    script.clock = lambda: now
    assert "late" in script.check()
    messages = Outbox(ga_home / "outbox").pending()
    again = 1 if dies_in == "Runs.append" else 2  # what was written down before is told as it was, the rest for itself
    assert (
        sorted(m["origin"] for m in messages if m["title"] == "scheduler")
        == ["telegram:0"] * again + ["telegram:1"] * again
    )
    assert all("10 more" in m["text"] for m in messages if m["title"] == "scheduler")
    told = [m["text"] for m in messages if m["title"] == "late"]
    assert len(told) == len(messages) - 2 * again
    assert script.schedule.untold(runs(ga_home / "sche_tasks").read()) == []


def test_many_files_that_are_no_jobs_are_one_message(ga_home: Path) -> None:
    (ga_home / "sche_tasks").mkdir()
    for n in range(30):
        (ga_home / "sche_tasks" / f"j{n}.json").write_text("{")
    for _ in range(2):
        assert loaded("scheduler").check() is None
    (message,) = Outbox(ga_home / "outbox").pending()
    assert "j0.json" in message["text"] and "25 more" in message["text"]


def test_a_result_goes_where_its_run_was_to_go_though_the_job_is_removed_meanwhile(
    ga_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C160
    from genericagent.cli.script_host import Result

    folder = ga_home / "sche_tasks"
    for ended in (True, False):
        job(ga_home, "news", origin="telegram:42")
        script = loaded("scheduler")
        assert script.check()
        remove(folder, "news", time.time())
        job(ga_home, "other", enabled=False)
        monkeypatch.setattr("genericagent.schedule.LARGEST", 10)
        Runs(folder).append(*[{"event": "off", "job": "x", "at": 1.0}] * 100)
        Runs(folder).append({"event": "off", "job": "x", "at": 1.0})
        assert ("sum", "news") in events(ga_home), "its file is begun anew meanwhile"
        monkeypatch.setattr("genericagent.schedule.LARGEST", 1 << 20)
        result = Result("the answer")
        result.record = {"status": "done", "session": "s", "cost": 0.0}
        if ended:
            script.on_done(result)
        else:
            assert loaded("scheduler").check() is None
    words = [m["text"] for m in Outbox(ga_home / "outbox").pending("telegram:42")]
    assert len(words) == 2 and words[0] == "the answer" and "outcome is unknown" in words[1]


@pytest.mark.slow
def test_jobs_are_added_listed_run_and_disabled_from_the_command_line(serve: Any, run_ga: Any, ga_home: Path) -> None:
    server = serve(lambda body, n: say("the answer"))
    assert "no jobs" in run_ga("schedule", "list").stderr
    done = run_ga(
        "schedule", "add", "news", "read the news", "--at", "00:00", "--repeat", "weekday", "--origin", "terminal"
    )
    assert done.returncode == 0 and "agentmain.py --reflect scheduler" in done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("news: weekday 00:00, first 20") and line.endswith("news.json")
    assert run_ga("schedule", "add", "news", "x", "--at", "08:00").returncode == 1
    for wrong in (["a/b", "x", "--at", "08:00"], ["x", "x", "--at", "8"], ["x", " ", "--at", "08:00"], ["x", "x"]):
        done = run_ga("schedule", "add", *wrong)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    done = run_ga("schedule", "run", "news")
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == 1 and "read the news" in json.dumps(server.requests[0].body)
    assert pending(ga_home) == {"news": "the answer"}
    assert run_ga("schedule", "run", "other").returncode == 2
    assert run_ga("schedule", "disable", "news").returncode == 0
    head, line = run_ga("schedule", "list").stdout.splitlines()
    assert head.split() == ["NAME", "WHEN", "NEXT", "LAST", "PROMPT"]
    name, repeat, at, off, _, _, status, *prompt = line.split()
    assert [name, repeat, at, off, status] == ["news", "weekday", "00:00", "disabled", "done"]
    assert prompt == ["read", "the", "news"]
    assert run_ga("schedule", "disable", "other").returncode == 1 and run_ga("schedule", "--help").returncode == 0
    Outbox(ga_home / "outbox").put("lost", "telegram:7", "news", "x")
    Outbox(ga_home / "outbox").fail("lost", "chat not found")
    assert "telegram:7 (chat not found)" in run_ga("schedule", "list").stderr  # C160


def test_the_columns_of_the_jobs_stand_below_each_other_also_with_wide_names(run_ga: Any, ga_home: Path) -> None:
    from prompt_toolkit.utils import get_cwidth

    job(ga_home, "每日新闻摘要", prompt="MARK", enabled=False)
    job(ga_home, "news", prompt="MARK", repeat="weekday", enabled=False)
    _, *lines = run_ga("schedule", "list").stdout.splitlines()
    assert len(lines) == 2 and len({get_cwidth(line.partition("MARK")[0]) for line in lines}) == 1


@pytest.mark.slow
def test_a_job_that_is_removed_is_kept_and_one_of_its_name_begins_anew(run_ga: Any, ga_home: Path) -> None:
    folder = ga_home / "sche_tasks"
    assert run_ga("schedule", "add", "news", "first", "--at", "00:00", "--repeat", "once").returncode == 0
    Runs(folder).append(
        {"event": "missed", "job": "news", "slot": "2026-03-02T00:00:00", "epoch": 1e9, "count": 1, "at": 1.0}
    )
    assert "never again" in run_ga("schedule", "list").stdout
    done = run_ga("schedule", "remove", "news")
    assert done.returncode == 0 and "trash" in done.stdout and "no jobs" in run_ga("schedule", "list").stderr
    (kept,) = (folder / "trash").iterdir()
    assert json.loads(kept.read_text())["prompt"] == "first"
    for wrong, code in (("news", 1), ("../config", 2), ("", 2)):
        assert run_ga("schedule", "remove", wrong).returncode == code
    assert run_ga("schedule", "add", "news", "second", "--at", "00:00", "--repeat", "once").returncode == 0
    assert "never again" not in run_ga("schedule", "list").stdout
    os.mkfifo(folder / "pipe.json")
    assert run_ga("schedule", "disable", "pipe").returncode == 1
    assert run_ga("schedule", "remove", "pipe").returncode == 0 and len(list((folder / "trash").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("word", ["", "list", "add", "run", "remove", "disable", "enable"])
def test_the_help_of_schedule_shows_no_insides(run_ga: Any, word: str) -> None:
    done = run_ga("schedule", *word.split(), "--help")
    assert done.returncode == 0 and done.stderr == ""
    assert not re.search(r"``|__|None|<|_DELAY|REPEAT", done.stdout) and "agentmain.py schedule" in done.stdout
    wrong = run_ga("schedule", word or "frob", "--frob")
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_copy_of_the_scheduler_beside_it_runs_no_job_a_second_time(
    serve: Any, start: Start, run_ga: Any, ga_home: Path, tmp_path: Path
) -> None:  # C137
    copy = tmp_path / "mine.py"
    shipped = (ROOT / "reflect" / "scheduler.py").read_text()
    copy.write_text(
        shipped.replace("    runs.claim()", "    pass").replace("    schedule.Runs(folder()).claim()", "    pass")
    )
    serve(SLEEPS)
    program, pid = start("--reflect", "scheduler"), ga_home / "temp" / "pid"
    job(ga_home, "one")
    until(lambda: pid.exists() and pid.read_text().strip())
    done = run_ga("--reflect", str(ROOT / "tests" / "none.py"))
    other = start("--reflect", str(copy))
    until(lambda: "mine" in pending(ga_home))
    assert "run by another scheduler already" in pending(ga_home)["mine"] and done.returncode == 2
    copy.write_text(shipped + "# mine\n")
    end(other)
    done = run_ga("--reflect", str(copy), "--approve", hashlib.sha256(copy.read_bytes()).hexdigest()[:12])
    assert done.returncode == 2 and "run by another scheduler already" in done.stderr
    assert run_ga("schedule", "run", "one").stdout == "the running scheduler does one next\n"
    end(program)
    assert [e for e, _ in events(ga_home)].count("begun") == 1 and ("unknown", "one") not in events(ga_home)


def test_a_job_file_whose_name_cannot_be_written_stops_no_other(serve: Any, run_ga: Any, ga_home: Path) -> None:
    job(ga_home, "good")
    odd = ga_home / "sche_tasks" / os.fsdecode(b"\xff\x1b[31m.json")
    odd.write_text("{}")
    os.mkfifo(ga_home / "sche_tasks" / "pipe.json")
    script = loaded("scheduler")
    assert "do good" in script.check() and len(Outbox(ga_home / "outbox").pending()) == 2
    serve([])
    done = run_ga("schedule", "list")
    assert done.returncode == 0 and done.stderr.count("PROBLEM") == 2 and "\x1b" not in done.stderr


def test_a_job_that_is_not_wanted_is_not_silently_left(serve: Any, run_ga: Any, ga_home: Path) -> None:
    job(ga_home, "one")
    server = serve([])
    done = run_ga("--reflect", "scheduler", "--job", "one")
    assert done.returncode == 2 and "agentmain.py schedule run one" in done.stderr and server.requests == []


@pytest.mark.slow
def test_a_changed_script_is_refused_at_the_start_and_run_with_the_word_that_is_named(
    serve: Any, run_ga: Any, tmp_path: Path
) -> None:
    script = tmp_path / "w.py"
    script.write_text("def check():\n    return '/exit'\n")
    serve([])
    assert run_ga("--reflect", str(script)).returncode == 0
    script.write_text("def check():\n    return '/exit'  # changed\n")
    done = run_ga("--reflect", str(script))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    word = done.stderr.split()[-1]
    assert run_ga("--reflect", str(script), "--approve", word).returncode == 0
    assert run_ga("--reflect", str(script)).returncode == 0
    assert run_ga("-p", "x", "--approve", word).returncode == 2


def test_an_edited_script_is_approved_beside_the_watcher_that_runs(
    serve: Any, start: Start, run_ga: Any, tmp_path: Path
) -> None:
    script, old, new = tmp_path / "w.py", tmp_path / "old", tmp_path / "new"
    source = "INTERVAL = 1\ndef check():\n    open({!r}, 'w').close()\n"
    script.write_text(source.format(str(old)))
    serve([])
    program = start("--reflect", str(script))
    until(old.exists)
    script.write_text(source.format(str(new)))
    done = run_ga("--reflect", str(script), "--approve", "0" * 12)
    assert done.returncode == 2 and not new.exists()
    done = run_ga("--reflect", str(script), "--approve", done.stderr.split()[-1])
    assert done.returncode == 0 and "approved" in done.stderr
    until(new.exists)
    assert end(program)[0] == 130


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


def test_a_night_of_results_floods_the_first_screen(ga_home: Path) -> None:
    from genericagent.cli.chat import news

    outbox = Outbox(ga_home / "outbox", clock=iter(range(10**6)).__next__)
    for n in range(50):
        outbox.put(f"m{n}", "terminal", f"job {n}", "done")
    lines = list(news())
    assert len(lines) == 21 and "30 older messages" in lines[0] and "job 30" in lines[1] and "job 49" in lines[-1]
    assert list(news()) == []


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


@pytest.mark.slow
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
    assert "All done" in pending(ga_home)["goal_mode"] and "verse 4" in pending(ga_home)["goal_mode"]
    assert "round 4 done: All done" in done.stderr and len(pending(ga_home)) == 1
    assert run_ga("--reflect", "goal_mode").returncode == 0 and len(server.requests) == 5


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "state", "said"),
    [
        ([], None, "begin one with --objective"),
        (["--objective", "x", "--wrong", "1"], None, "not --wrong 1"),
        (["--objective", "x", "--max_turns", "many"], None, "not --max_turns many"),
        ([], "{", "holds no goal"),
        ([], "[1]", "holds no goal"),
        ([], '{"objective": "x", "turns_used": "3"}', "turns_used is not what it should be"),
        ([], '{"objective": " "}', "objective is not what it should be"),
    ],
)
def test_a_goal_that_cannot_be_ends_the_start_with_one_line(
    serve: Any, run_ga: Any, ga_home: Path, args: list[str], state: str | None, said: str
) -> None:
    server, file = serve([]), ga_home / "goals" / "goal.json"
    if state:
        file.parent.mkdir()
        file.write_text(state)
    done = run_ga("--reflect", "goal_mode", *args)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert "line " not in done.stderr.replace("line 1 column", "") and server.requests == []
    assert state is None or file.read_text() == state


def test_a_clock_that_jumps_gives_a_goal_no_more_time_than_it_had(ga_home: Path) -> None:
    script, now = loaded("goal_mode"), 1e9
    script.clock = lambda: now
    script.init({"objective": "x", "budget_seconds": "1000"})
    for step in (400, -86_400, 500):
        now += step
        assert script.check()
    assert goal(ga_home)["seconds_used"] == 900 and goal(ga_home)["status"] == "running"
    now += 200
    assert script.check() and goal(ga_home)["status"] == "closing"
