"""`ga doctor` and `/doctor`: each fault is found, named with what mends it, and none makes the doctor hang."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_chat_pty import CTRL_D, PROGRAM, Terminal
from test_first_run import Site

from genericagent import prompts
from genericagent.cli import doctor
from genericagent.cli.args import run_command
from genericagent.cli.doctor import Line, report, together
from genericagent.config import Config
from genericagent.extras import EXTRAS, NEEDED, install_command
from genericagent.scripted import Reply, ScriptedServer, say
from llmcore import load_config

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "Q7-canary-key-Zf83kx90Lm21"
BOT = "1234567890:canary-bot-token-abcdefghijklmnopqr"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer([say("ok")] * 3, token=KEY) as server:
        yield server


@pytest.fixture
def site() -> Iterator[Site]:
    """Where Telegram is."""
    site = Site()
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield site
    site.shutdown()
    site.server_close()


def configured(home: Path, server: ScriptedServer, key: str = KEY, more: str = "") -> Config:
    entry = f'[[llm]]\napi = "anthropic"\nmodel = "some-model"\nbase_url = "{server.url}"\napi_key = "{key}"\n'
    (home / "config.toml").write_text(entry + more)
    return load_config()


def problems(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line.state == "problem"]


def test_a_working_installation_costs_one_small_call(run_ga: Any, ga_home: Path, server: ScriptedServer) -> None:
    configured(ga_home, server)
    done = run_ga("doctor")
    assert done.returncode == 0 and done.stderr == "" and "PROBLEM" not in done.stdout
    assert "answered in" in done.stdout and "$0.000000" in done.stdout and KEY not in done.stdout
    assert [request.body["max_tokens"] for request in server.requests] == [16]
    assert "spent today" in run_ga("doctor", "--offline").stdout and len(server.requests) == 1
    assert (
        sum(1 for line in next((ga_home / "spend").glob("*.jsonl")).read_text().splitlines() if "settle" in line) == 1
    )


def test_no_model_is_no_problem(run_ga: Any) -> None:
    done = run_ga("doctor")
    assert done.returncode == 1 and "PROBLEM no model" in done.stdout and "→" in done.stdout
    assert run_ga("doctor", "everything").returncode == 2


def test_a_refused_key_is_told_without_where_it_stands(ga_home: Path, server: ScriptedServer) -> None:
    (line,) = problems(report(configured(ga_home, server, "another-canary-key-000")))
    assert "401" in line.text and f"{ga_home}/config.toml:1" in line.mend and "canary" not in str(line)


@pytest.mark.parametrize(
    ("reply", "said", "mend"),
    [
        (Reply(status=404, text="no such model"), "no such model", "correct model or base_url"),
        (Reply(status=529, text="overloaded"), "overloaded", "curl -I http"),
        (Reply(status=401, text=f"bad key {KEY}"), "bad key [a key]", "valid key"),
    ],
)
def test_a_fault_of_the_model_is_told_without_what_mends_it(
    ga_home: Path, server: ScriptedServer, reply: Reply, said: str, mend: str
) -> None:
    server.replies = [reply]
    (line,) = problems(report(configured(ga_home, server)))
    assert said in line.text and mend in line.mend and len(server.requests) == 1  # no retries


def test_a_model_that_hangs_holds_the_doctor(
    ga_home: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.3)
    server.replies = [Reply(text="ok", hang_before_headers=50)]
    (line,) = problems(report(configured(ga_home, server)))
    assert "no answer within" in line.text


def test_a_check_that_hangs_holds_the_others() -> None:
    end = threading.Event()

    def hangs() -> Iterator[Line]:
        yield Line("ok", "begun")
        end.wait(50)

    try:
        lines = together([hangs, lambda: iter([Line("ok", "the other")])], limit=0.3)
    finally:
        end.set()
    assert [line.state for line in lines] == ["ok", "problem", "ok"] and "did not end" in lines[1].text


def test_a_configuration_that_cannot_be_read_ends_the_doctor(run_ga: Any, ga_home: Path) -> None:
    (ga_home / "config.toml").write_text("[[llm]\n")
    done = run_ga("doctor", "--offline")
    assert done.returncode == 1 and "config.toml" in done.stdout and "clock" in done.stdout
    (ga_home / "config.toml").write_text("[limits]\nmax_trun = 3\n")
    done = run_ga("doctor", "--offline")
    assert done.returncode == 1 and "max_trun" in done.stdout and "→ correct it there" in done.stdout


def test_the_daily_limit_does_not_hold_the_doctor(ga_home: Path, server: ScriptedServer) -> None:
    more = '[limits]\ndaily_cost = 0.000001\n[prices."some-model"]\ninput = 10.0\noutput = 10.0\n'
    (line,) = problems(report(configured(ga_home, server, more=more)))
    assert "daily limit" in line.text and "daily_cost" in line.mend and server.requests == []


def test_two_entries_with_one_key_and_model_are_asked_twice(ga_home: Path, server: ScriptedServer) -> None:
    twice = configured(ga_home, server)
    twice.models.append(replace(twice.models[0], name="again"))
    lines = report(twice)
    assert problems(lines) == [] and len(server.requests) == 1


def test_telegram_lets_in_nobody_and_nobody_is_told(ga_home: Path, server: ScriptedServer, site: Site) -> None:
    site.lists = {f"/bot{BOT}/getMe": {"ok": True, "result": {"username": "my_bot"}}}
    (line,) = problems(
        report(configured(ga_home, server, more=f'[telegram]\ntoken = "{BOT}"\nbase_url = "{site.url}"\n'))
    )
    assert "nobody" in line.text and "allowed_users" in line.mend
    good = configured(
        ga_home, server, more=f'[telegram]\ntoken = "{BOT}"\nbase_url = "{site.url}"\nallowed_users = [42]\n'
    )
    lines = report(good)
    assert problems(lines) == [] and "42; @my_bot" in "\n".join(map(str, lines))
    asked = len(site.asked)
    report(good, offline=True)
    assert len(site.asked) == asked


def test_a_refused_bot_token_is_shown(ga_home: Path, server: ScriptedServer, site: Site) -> None:
    given = configured(
        ga_home, server, more=f'[telegram]\ntoken = "{BOT}"\nbase_url = "{site.url}"\nallowed_users = [42]\n'
    )
    (line,) = problems(report(given))
    assert "404" in line.text and "@BotFather" in line.mend and "canary" not in str(line)


def test_a_full_disk_or_a_home_that_cannot_be_written_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**where: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    unwritable, full, _ = problems(report(Config(), offline=True))
    assert "Read-only" in unwritable.text and "chmod" in unwritable.mend
    assert "0.0 GB" in full.text and "du -ah" in full.mend


def test_a_missing_package_is_a_riddle(monkeypatch: pytest.MonkeyPatch) -> None:  # C095
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "websockets" else real(name))
    line = problems(report(Config(), offline=True))[0]
    assert "websockets" in line.text and line.mend.endswith("-m pip install websockets")


def test_the_doctor_says_that_there_is_no_telegram_and_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    there, token = True, Config()
    token.telegram.token = "env:NO_SUCH_TOKEN"
    real = importlib.util.find_spec
    faces = ("telegram", "aiohttp", "markdown_it")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: there if name in faces else real(name))
    text = "\n".join(map(str, report(Config(), offline=True)))
    assert "not in this version" not in text and " telegram starts it" in text and " web starts it" in text
    there = None  # type: ignore[assignment]
    telegram, page = [line for line in report(token, offline=True) if "not installed" in line.text]
    assert (telegram.state, page.state) == ("problem", "note")
    assert "pip install 'python-telegram-bot>" in telegram.mend and "pip install 'aiohttp>" in page.mend


def test_a_python_without_the_packages_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else real(name))
    assert run_command(["-p", "hi"]) == 1
    said = capsys.readouterr().err
    assert (
        said.startswith(f"error: {sys.executable} lacks rich: ")
        and "-m pip install rich" in said
        and said.count("\n") == 1
    )


def test_what_is_told_to_be_installed_is_what_the_package_asks_for_and_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    there = project["optional-dependencies"]
    assert [re.split("[<>=]", package)[0] for package in project["dependencies"]] == list(NEEDED)
    assert {name: list(packages) for name, packages in EXTRAS.items()} | {"dev": there["dev"]} == there
    assert install_command("a>=1").endswith("-m pip install 'a>=1'")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert install_command("a>=1").startswith("uv pip install --python ")


def test_the_doctor_finds_no_workspace_before_the_first_task(start: Any) -> None:
    agent, _ = start([])
    assert problems(report(agent.config, agent, offline=True)) == []


@pytest.mark.parametrize(("off", "state"), [(0, "ok"), (-100, "ok"), (4000, "problem"), (-4000, "problem")])
def test_a_wrong_clock_is_not_seen(off: int, state: str) -> None:
    now = 1_900_000_000.0
    line = doctor._clock([("nonsense", now), (formatdate(now - off, usegmt=True), now)], lambda: now)
    assert line.state == state and bool(line.mend) == (state == "problem")


def test_a_clock_before_the_program_was_made_is_not_seen() -> None:
    assert doctor._clock([], lambda: 1000.0).state == "problem"


def test_the_doctor_speaks_english_only(ga_home: Path, server: ScriptedServer) -> None:
    prompts.set_language("zh")
    try:
        text = "\n".join(map(str, report(configured(ga_home, server, "wrong-canary-key-000"))))
    finally:
        prompts.set_language(None)
    assert "问题" in text and "请在此处填入有效的密钥" in text and "PROBLEM" not in text


def test_the_doctor_in_the_chat_holds_the_input(ga_home: Path, server: ScriptedServer) -> None:
    configured(ga_home, server)
    t = Terminal(PROGRAM, {**os.environ, "TERM": "xterm-256color"}, 100, 60)
    try:
        ready: Callable[[], bool] = lambda: t.lines()[-1:] == ["❯"]  # noqa: E731
        t.until(ready)
        t.send("/doctor\r")
        t.until("clock:")
        assert "answered in" in " ".join(t.text().split()) and KEY not in t.text()
        t.until(ready)
        t.send("/doctor offline\r")
        t.until(lambda: t.text().count("clock:") == 2)
        assert len(server.requests) == 1
        t.send(CTRL_D)
        assert t.wait() == 0
    finally:
        t.close()


def test_the_doctor_knows_the_configuration_and_not_this_chat(
    ga_home: Path, server: ScriptedServer, run_agent: Callable[..., Any], tmp_path: Path
) -> None:
    from genericagent import control
    from genericagent.cli.doctor import report

    configured(ga_home, server)
    agent = run_agent(workspace=tmp_path / "here")

    def here() -> str:
        return "\n".join(map(str, report(agent.config, agent, offline=True))).partition("genericagent:")[0]

    assert "no conversation yet" in here() and f"{tmp_path}/here cannot be written" in here()
    assert "→ /workspace PATH takes another folder" in here()
    (tmp_path / "here").mkdir()
    queue = agent.put_task("hi")
    while "done" not in queue.get(timeout=30):
        pass
    control.allow(agent, "write:~/notes")
    agent.guard.outside("mail.txt")
    for told in (
        "this chat: model", f"conversation {agent.session_id}, 1 message(s)", f"works in {tmp_path}/here",
        "allowed for it: write:~/notes", "(mail.txt)", "language en", "commands: no sandbox",
    ):  # fmt: skip
        assert told in here(), told
    agent.options = replace(agent.options, sandbox="require")
    assert "sandboxed" in here() or "REFUSES" in here()
    agent.client.backend.model = replace(agent.client.backend.model, model="changed-here")
    lines = report(agent.config, agent)
    assert not problems(lines) and sum("answered in" in line.text for line in lines) == 2
    assert {request.body["model"] for request in server.requests[1:]} == {"some-model", "changed-here"}


def test_a_bug_in_a_check_hides_the_others(
    ga_home: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(ga_home, server)

    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError("odd\nthing")

    monkeypatch.setattr(doctor, "_limits", broken)
    lines = report(config, offline=True)
    (line,) = problems(lines)
    assert "a bug: RuntimeError: odd thing (its traceback is in" in str(line) and "odd" in caplog.text
    assert any("clock" in str(line) for line in lines)
