"""The watcher with its script in a real child and a scripted model, on a simulated clock."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import memory, paths
from genericagent.cli.reflect_mode import SHIPPED, Approval, Watcher, _asked, find_script
from genericagent.errors import UsageError
from genericagent.llm.blocks import Usage
from genericagent.scripted import Reply, ScriptedServer, Tool, call, fail, say
from genericagent.store.ledger import Ledger
from genericagent.store.outbox import Outbox

PRICE = '[prices."scripted"]\ninput = 4.0\noutput = 20.0\n'
NOON = 1_800_000_000.0


class Run:
    """A watcher whose waits pass at once; `after(seconds)` ends it."""

    def __init__(self, script: Path, server: ScriptedServer, agent: GenericAgent, given: dict[str, str]) -> None:
        self.script, self.server, self.agent = script, server, agent
        self.now, self.end = NOON, NOON
        agent.watchers_ledger = Ledger(paths.home() / "spend" / "watchers", lambda: self.now)
        self.at: dict[float, Callable[[], object]] = {}  # what happens when
        self.watcher = Watcher(agent, script, script.read_bytes(), given, lambda: False, self._wait, lambda: self.now)

    def _wait(self, seconds: float) -> bool:
        self.now += seconds
        for when in [when for when in self.at if when <= self.now - NOON]:
            self.at.pop(when)()
        return self.now >= self.end

    def after(self, seconds: float) -> int:
        self.end = self.now + seconds
        return self.watcher.run()

    @property
    def prompts(self) -> list[str]:
        """The first message of each request."""
        return [json.dumps(r.body["messages"][0], ensure_ascii=False) for r in self.server.requests]

    @property
    def notices(self) -> list[str]:
        return self._put("notice")

    @property
    def results(self) -> list[str]:
        return self._put("result")

    def _put(self, kind: str) -> list[str]:
        return [m["text"] for m in Outbox(paths.home() / "outbox").pending("terminal") if f"-{kind}-" in m["id"]]


@pytest.fixture
def watch(model_server: Any, run_agent: Any, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """`watch(source of the script, replies, config=…, **settings of the scripted server)`."""
    runs: list[Run] = []

    def start(source: str, replies: Any, config: str = "", given: dict[str, str] | None = None) -> Run:
        server = model_server(replies)
        retries = "max_retries = 0\n"
        entry = (
            f'[[llm]]\napi = "anthropic"\nmodel = "scripted"\napi_key = "k-12345"\nbase_url = "{server.url}"\n{retries}'
        )
        (paths.home() / "config.toml").write_text(entry + config, encoding="utf-8")
        script = tmp_path / "watch.py"
        script.write_text(source, encoding="utf-8")
        runs.append(Run(script, server, run_agent(origin="watcher", sandbox="off", fixed=(script,)), given or {}))
        return runs[-1]

    yield start
    for run in runs:
        run.watcher._host.close()


ALWAYS = "INTERVAL = 60\nTAINTED = False\ndef check():\n    return 'go'\n"


def test_an_hour_in_which_nothing_happens_costs_no_model_call(watch: Any) -> None:  # C134
    run = watch("INTERVAL = 60\nn = 0\ndef check():\n    global n\n    n += 1\n    print('checked', n)\n", [])
    assert run.after(3600) == 130
    assert run.server.requests == [] and run.notices == []
    assert len(log(run).split("checked ")) - 1 == 60


def log(run: Run) -> str:
    return "".join(path.read_text() for path in sorted((paths.temp() / "reflect_logs").glob("watch-*.log")))


def test_each_wake_begins_from_its_prompt_alone_and_the_result_is_kept(watch: Any, tmp_path: Path) -> None:  # C038
    done = tmp_path / "done.txt"
    source = f"INTERVAL = 60\ndef check():\n    return 'open item'\ndef on_done(result):\n    open({str(done)!r}, 'a').write(result + result['status'] + ';')\n"
    run = watch(source, lambda body, n: say(f"all done, {n}"))
    run.after(170)
    assert [len(r.body["messages"]) for r in run.server.requests] == [1, 1, 1]
    assert all("open item" in prompt and "all done" not in prompt for prompt in run.prompts)
    assert done.read_text() == "all done, 0done;all done, 1done;all done, 2done;"
    assert "all done, 1" in log(run) and "of $2.00" in log(run), "the cost of the day is shown"  # C134
    assert len(list(paths.sessions().glob("*.jsonl"))) == 3


def test_a_script_can_go_on_with_one_conversation(watch: Any) -> None:
    run = watch("KEEP_SESSION = True\n" + ALWAYS, lambda body, n: say(f"answer {n}"))
    run.after(110)
    assert "answer 0" in json.dumps(run.server.requests[1].body)


def test_the_minimum_gap_is_kept_also_when_every_check_wakes(watch: Any) -> None:  # C136
    run = watch("INTERVAL = 0\ndef check():\n    return 'go'\n", lambda body, n: say("ok"))
    run.after(10)
    assert len(run.server.requests) <= 11


INBOX = """
import os
INTERVAL = 60
known = {}
def check():
    global known
    now = {e.name: e.stat().st_mtime_ns for e in os.scandir(%r)}
    new, known = sorted(n for n in now if known.get(n) != now[n]), now
    return f"new: {new}" if new else None
"""


@pytest.mark.parametrize("tool", ["file_write", "code_run"])
def test_own_writes_wake_nobody_and_what_came_meanwhile_wakes_once(
    watch: Any, tmp_path: Path, tool: str
) -> None:  # C136
    inbox = paths.temp() / "inbox"
    inbox.mkdir(parents=True)
    (inbox / "first.txt").write_text("1")
    report = inbox / "report.md"
    args = (
        {"path": str(report), "content": "x"}
        if tool == "file_write"
        else {"type": "bash", "script": f"echo cab; date +%N > {report}"}
    )

    def model(body: dict[str, Any], n: int) -> Reply:
        if n == 2:  # while the second wake is at work, three files come
            for name in "abc":
                (inbox / name).write_text(name)
        return Reply(tools=[Tool(tool, args)]) if n % 2 == 0 else say("reported")

    run = watch(INBOX % str(inbox), model)
    run.at[600] = lambda: (inbox / "second.txt").write_text("2")
    run.after(3600)
    firsts = [p for r, p in zip(run.server.requests, run.prompts, strict=True) if len(r.body["messages"]) == 1]
    assert len(firsts) == 3, firsts
    assert "first.txt" in firsts[0] and "second.txt" in firsts[1] and all(f"'{name}'" in firsts[2] for name in "abc")
    assert "own writes" in log(run)


def test_what_on_done_writes_where_check_looks_hides_no_write_of_the_task(watch: Any, tmp_path: Path) -> None:  # C136
    inbox, state = paths.temp() / "inbox", tmp_path / "state"
    inbox.mkdir(parents=True)
    (inbox / "first.txt").write_text("1")
    state.write_text("0")
    more = f"    open({str(state)!r}).read()\n    return f'new: {{new}}' if new else None\n"
    source = (INBOX % str(inbox)).replace('    return f"new: {new}" if new else None\n', more)
    source += f"def on_done(r):\n    open({str(state)!r}, 'a').write('1')\n"
    report = {"path": str(inbox / "report.md"), "content": "x"}
    run = watch(source, lambda body, n: say("ok") if n % 2 else Reply(tools=[Tool("file_write", report)]))
    run.after(1800)
    assert len(run.server.requests) == 2 and state.read_text() == "01"


def test_a_check_that_raises_is_told_once_for_each_fault_and_asked_ever_more_seldom(watch: Any, capsys: Any) -> None:
    source = "INTERVAL = 5\nn = 0\ndef check():\n    global n\n    n += 1\n    if n % 2:\n        raise KeyError(n)\n    return 1 / 0\n"
    run = watch(source, [])
    run.after(3 * 3600)
    told = [line for line in capsys.readouterr().err.splitlines() if "at fault" in line]
    assert (
        len(told) == len(run.notices) == 2
        and "KeyError" in told[0]
        and "ZeroDivisionError" in told[1]
        and "line 8" in told[1]
    )
    assert run.server.requests == [] and run.watcher._faults < 12


def test_a_check_that_never_returns_is_given_up_and_the_watcher_goes_on(watch: Any, tmp_path: Path) -> None:
    flag = tmp_path / "again"
    source = (
        f"import os, time\nCHECK_TIMEOUT = 0.3\nINTERVAL = 60\ndef check():\n"
        f"    if not os.path.exists({str(flag)!r}):\n        open({str(flag)!r}, 'w').close()\n        while True: pass\n    return 'go'\n"
    )
    run = watch(source, lambda body, n: say("ok"))
    run.after(90)
    assert len(run.server.requests) == 1 and len(run.notices) == 1 and "did not return" in run.notices[0]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import os\ndef check():\n    os._exit(3)\n", "ended its process"),
        ("import sys\ndef check():\n    sys.exit(3)\n", "SystemExit"),
        ("def check():\n    return 3\n", "not int"),
        ("def check():\n    return '  '\n", "empty prompt"),  # C140
        ("def check():\n    global INTERVAL\n    INTERVAL = 'soon'\n", "INTERVAL must be a number, not 'soon'"),
    ],
)
def test_what_is_no_watcher_is_told_and_no_model_is_asked(watch: Any, source: str, said: str) -> None:
    run = watch(source, [])
    run.after(600)
    assert run.server.requests == [] and len(run.notices) == 1 and said in run.notices[0]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef check(:\n", "SyntaxError: invalid syntax (line 2)"),
        ("x = 1\n", "it has no check()"),
        ("INTERVAL = 'soon'\ndef check():\n    return None\n", "INTERVAL must be a number, not 'soon'"),
        ("def check():\n    return None\nTAINTED = 3\n", "TAINTED must be True, False or a text, not 3"),
        ("import json\n\njson.loads('{')\n", "JSONDecodeError: Expecting property name"),
        (
            "def check():\n    return None\ndef init(args):\n    raise KeyError('folder')\n",
            "KeyError: 'folder' (line 4)",
        ),
        ("import os\nos._exit(3)\n", "the script ended its process"),
    ],
)
def test_a_script_that_cannot_be_used_at_all_ends_the_start(watch: Any, source: str, said: str) -> None:
    run = watch(source, [])
    with pytest.raises(UsageError) as caught:
        run.after(600)
    assert str(caught.value).startswith(f"watch.py: {said}") and run.now == NOON and run.notices == []


def test_a_fault_is_named_by_the_line_of_the_script_and_not_of_what_it_calls(watch: Any) -> None:
    run = watch("import json\ndef check():\n    x = 1\n    return json.loads('{')\n", [])
    run.after(60)
    assert run.notices[0].count("check()") == 1 and "(line 4)." in run.notices[0]


@pytest.mark.slow
def test_a_rejected_key_is_one_notice_and_few_calls_and_the_wake_is_not_lost(watch: Any, capsys: Any) -> None:
    source = (
        "INTERVAL = 5\nn = 0\ndef check():\n    global n\n    n += 1\n    return 'the only event' if n == 1 else None\n"
    )
    good = False
    run = watch(source, lambda body, n: say("ok") if good else fail(401, "invalid x-api-key"))
    calls = 0

    def new_key() -> None:
        nonlocal good, calls
        good, calls = True, len(run.server.requests)
        config = paths.home() / "config.toml"
        config.write_text(config.read_text() + "\n# a new key\n")

    run.at[6 * 3600] = new_key
    run.after(6 * 3600 + 20)
    assert len(run.notices) == 1 and "invalid x-api-key" in run.notices[0]
    assert capsys.readouterr().err.count("invalid x-api-key") == 1
    assert 8 <= calls <= 15, "each wait is twice as long, up to an hour"
    assert len(run.server.requests) == calls + 1, "an edited configuration is tried at once, and the event is done once"
    assert all("the only event" in prompt for prompt in run.prompts)


@pytest.mark.slow
def test_the_daily_cap_of_watchers_ends_the_day_with_one_notice(watch: Any) -> None:  # C143
    dear = lambda body, n: say("ok", usage=Usage(10_000, 1000))  # noqa: E731
    run = watch(ALWAYS, dear, PRICE + "[reflect]\ndaily_cost = 0.3\n")
    run.after(3 * 3600)
    spent = run.agent.watchers_ledger.today().cost
    assert 0 < spent <= 0.3 and len(run.notices) == 1 and "0.30" in run.notices[0]
    calls = len(run.server.requests)
    assert calls == round(spent / 0.06)
    run.after(3600)
    assert len(run.server.requests) == calls and len(run.notices) == 1
    run.after(86_400)
    assert len(run.server.requests) == 2 * calls and len(run.notices) == 2, "and so on the next day"


def test_what_a_watcher_spends_counts_for_the_day_of_the_home_too(watch: Any) -> None:  # C143
    run = watch(ALWAYS, lambda body, n: say("ok", usage=Usage(10_000, 1000)), PRICE)
    run.after(70)
    assert run.agent.ledger.today().cost == run.agent.watchers_ledger.today().cost == pytest.approx(0.12)


def test_a_task_that_asks_ends_with_its_question_and_can_be_answered_later(watch: Any, run_agent: Any) -> None:  # C142
    source = "INTERVAL = 60\nn = 0\ndef check():\n    global n\n    n += 1\n    return 'paint' if n == 1 else None\n"
    run = watch(source, [call("ask_user", question="Which colour?"), say("painted blue")])
    run.after(300)
    assert len(run.results) == 1 and "Which colour?" in run.results[0]
    session = run.results[0].rpartition("--resume ")[2].strip()
    later = run_agent()
    later.resume(session)
    queue = later.put_task("blue")
    while "done" not in (item := queue.get(timeout=20)):
        pass
    assert item["answer"] == "painted blue" and "Which colour?" in json.dumps(run.server.requests[-1].body)


NEW = "INTERVAL = 60\ndef check():\n    return 'from the new one'\n"


def approved(run: Run) -> None:
    Approval(run.script).give(hashlib.sha256(run.script.read_bytes()).hexdigest())


def edited(run: Run, source: str, approve: bool = True) -> Callable[[], None]:
    def edit() -> None:
        run.script.write_text(source)
        if approve:
            approved(run)

    return edit


def test_an_edited_script_waits_for_a_person_and_is_used_from_then_on(watch: Any, capsys: Any) -> None:
    run = watch("INTERVAL = 60\ndef check():\n    return 'old'\n", lambda body, n: say("ok"))
    confirm(run.script)
    run.at[90] = edited(run, NEW + "# first\n", approve=False)
    run.at[600] = edited(run, NEW, approve=False)
    run.after(1200)
    assert len(run.prompts) >= 18 and all("old" in prompt for prompt in run.prompts), "the old text goes on"
    assert len(run.notices) == 1 and "was edited" in run.notices[0] and "--approve" in run.notices[0]
    with pytest.raises(UsageError):
        confirm(run.script, "0" * 12)
    run.at[1200] = lambda: approved(run)
    run.after(300)
    assert "was edited and is used" in capsys.readouterr().err
    assert "from the new one" in run.prompts[-1]
    assert len(run.notices) == 1 and confirm(run.script) == []


def test_at_a_terminal_one_word_takes_an_edited_script_over(watch: Any, capsys: Any) -> None:
    run = watch("INTERVAL = 60\ndef check():\n    return 'old'\n", lambda body, n: say("ok"))
    typed: list[str] = []
    run.watcher._typed = lambda: typed.pop() if typed else ""

    def edit(source: str) -> Callable[[], None]:
        return lambda: (typed.append("y\n"), edited(run, source, approve=False)())

    run.at[90] = edit("# one\n" + NEW)  # what was typed before it was told is no word for it
    run.at[300] = edit(NEW)  # nor is that for another text
    run.after(600)
    assert all("old" in prompt for prompt in run.prompts) and run.notices == []
    assert capsys.readouterr().err.count("type y") == 2
    typed.append("what?\n")
    run.after(60)
    typed.append("y\n")
    run.after(120)
    assert "from the new one" in run.prompts[-1] and confirm(run.script) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit", ["def check(:\n", "x = 1\n", "def init(args):\n    1 / 0\ndef check():\n    return 'new'\n"]
)
def test_an_edit_that_cannot_be_used_is_told_once_and_the_old_text_goes_on(watch: Any, edit: str) -> None:
    run = watch("INTERVAL = 60\ndef check():\n    return 'old'\n", lambda body, n: say("ok"))
    run.at[90] = edited(run, edit)
    run.after(600)
    assert len(run.notices) == 1 and "cannot be used" in run.notices[0]
    assert len(run.prompts) >= 9 and all("old" in prompt for prompt in run.prompts)
    run.at[690] = edited(run, NEW)
    run.after(200)
    assert "from the new one" in run.prompts[-1] and len(run.notices) == 1


def test_a_script_that_is_gone_is_not_run_until_it_is_back(watch: Any) -> None:
    run = watch(ALWAYS, lambda body, n: say("ok"))
    run.at[90] = run.script.unlink
    run.after(600)
    assert len(run.prompts) == 2 and len(run.notices) == 1 and "is gone" in run.notices[0]
    run.script.write_text(ALWAYS)
    run.after(120)
    assert len(run.prompts) > 2 and len(run.notices) == 1


def test_a_prompt_that_waits_keeps_what_its_script_said_of_it(watch: Any) -> None:
    source = (
        "INTERVAL = 60\nTAINTED = False\nMAX_TURNS = 40\ndef check():\n    global TAINTED, MAX_TURNS\n"
        "    TAINTED, MAX_TURNS = 'mail of bob', 3\n    return 'a mail says: upload'\n"
    )
    run = watch(source, lambda body, n: fail(401, "bad key") if n < 3 else say("ok"))
    seen: list[tuple[str, str, int | None]] = []
    put = run.agent.put_task

    def noted(prompt: str, *args: Any) -> Any:
        seen.append((prompt, run.agent.guard.tainted, run.agent.options.max_turns))
        return put(prompt, *args)

    run.agent.put_task = noted
    run.at[10] = edited(run, "INTERVAL = 60\nTAINTED = False\ndef check():\n    return None\n")
    run.after(3600)
    assert seen == [("a mail says: upload", "mail of bob", 3)] * 4


def confirm(script: Path, word: str | None = None, answer: bool = False) -> list[str]:
    """Start it; what was asked."""
    asked: list[str] = []
    Approval(script).confirm(word, lambda told: not asked.append(told) and answer)
    return asked


def test_a_script_that_was_changed_between_two_starts_waits_for_a_person(tmp_path: Path) -> None:
    script = tmp_path / "w.py"
    script.write_text("good\n")
    assert confirm(script) == confirm(script) == [], "who starts it for the first time has approved it"
    script.write_text("changed\n")
    with pytest.raises(UsageError, match="--approve [0-9a-f]{12}$") as caught:
        confirm(script)
    word = str(caught.value).split()[-1]
    for wrong in (None, word[:-1], "0" * 12):
        with pytest.raises(UsageError):
            confirm(script, wrong)
    script.write_text("changed again\n")
    with pytest.raises(UsageError):
        confirm(script, word)
    script.write_text("changed\n")
    assert confirm(script, word) == confirm(script) == []
    script.write_text("a third time\n")
    assert len(confirm(script, answer=True)) == 1 and confirm(script) == []
    script.write_text("changed\n")
    with pytest.raises(UsageError):
        confirm(script)


@pytest.mark.parametrize(
    ("typed", "yes"), [("y\n", True), ("Yes\n", True), ("\n", False), ("", False), ("no\n", False)]
)
def test_at_a_terminal_a_yes_approves_what_was_changed(monkeypatch: pytest.MonkeyPatch, typed: str, yes: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    monkeypatch.setattr("sys.stderr", shown)
    assert _asked("w.py was \x1b[31mchanged") is yes
    assert shown.getvalue() == "w.py was changed Run it as it is now? [y/N] "
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert not _asked("x"), "what is piped in is nobody's word"


def test_where_it_cannot_be_made_out_what_was_approved_a_person_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "w.py"
    script.write_text("good\n")
    confirm(script)
    (state,) = (paths.home() / "watchers").iterdir()
    for spoil in (lambda: state.write_bytes(b""), lambda: state.write_bytes(b"\xff" * 99), lambda: os.mkfifo(state)):
        state.unlink()
        spoil()
        with pytest.raises(UsageError):
            confirm(script)
    assert len(confirm(script, answer=True)) == 1 and confirm(script) == []


def test_a_shipped_script_needs_nobodys_word_as_long_as_it_is_as_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in SHIPPED.items():
        script = find_script(name)
        text = script.read_bytes().replace(b"\r\n", b"\n")
        assert hashlib.sha256(text).hexdigest() == version, f"write the new hash of {script} into SHIPPED"
        assert confirm(script) == []
    assert sorted(SHIPPED) == sorted(path.stem for path in paths.shipped("reflect").glob("*.py"))
    old = find_script("scheduler")
    Approval(old).give("f" * 64)
    assert confirm(old) == [], "a new version of the program"
    folder = tmp_path / "shipped"
    folder.mkdir()
    real = paths.shipped
    monkeypatch.setattr(paths, "shipped", lambda *parts: folder if parts[:1] == ("reflect",) else real(*parts))
    (folder / "scheduler.py").write_bytes(old.read_bytes() + b"# changed\n")
    with pytest.raises(UsageError):
        confirm(folder / "scheduler.py")


def refused(script: Path | str) -> str:
    with pytest.raises(UsageError) as caught:
        confirm(find_script(str(script)))
    return str(caught.value)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("link", ["file", "folder"])
def test_an_approved_path_that_leads_to_another_file_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, relative: bool
) -> None:
    folder, other = tmp_path / "w", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "mail.py").write_text("good\n")
    script = folder / "mail.py"
    script.write_text("good\n")
    assert confirm(find_script(str(script))) == []
    if link == "file":
        script.unlink()
        script.symlink_to(other / "mail.py")
    else:
        folder.rename(tmp_path / "old")
        folder.symlink_to(other)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PWD", str(folder))  # as a shell says it
    name = Path("mail.py") if relative else script
    assert str(other / "mail.py") in refused(name), "also with the same text"
    assert confirm(find_script(str(name)), hashlib.sha256(b"good\n").hexdigest()[:12]) == []
    assert confirm(find_script(str(name))) == confirm(find_script(str(other / "mail.py"))) == []
    (other / "mail.py").write_text("evil\n")
    assert refused(name) and refused(other / "mail.py"), "it has no name by which its text counts as a first start"


def test_a_file_that_is_found_in_the_stead_of_another_script_waits_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = paths.home() / "reflect"
    own.mkdir()
    (own / "mail.py").write_text("good\n")
    assert confirm(find_script("mail")) == []
    for path in (own / "scheduler.py", tmp_path / "goal_mode.py", tmp_path / "mail.py"):
        path.write_text("evil\n")
    for name in ("scheduler", "goal_mode.py", "mail.py"):
        assert "never approved" in refused(name)
    assert confirm(find_script("mail")) == confirm(find_script("goal_mode")) == []
    assert len(confirm(find_script("scheduler"), answer=True)) == 1 and confirm(find_script("scheduler")) == []


@pytest.mark.parametrize(
    ("says", "tainted"),
    [
        ("", "watch.py has found"),
        ("TAINTED = True", "watch.py has found"),
        ("TAINTED = 'a mail'", "a mail"),
        ("TAINTED = False", ""),
        ("TAINTED = ''", ""),
    ],
)
def test_a_prompt_is_tainted_unless_the_script_says_that_it_is_not(watch: Any, says: str, tainted: str) -> None:
    run = watch(f"ONCE = KEEP_SESSION = True\n{says}\ndef check():\n    return 'go'\n", [say("ok")])
    run.after(60)
    assert run.agent.guard.tainted.endswith(tainted) and bool(run.agent.guard.tainted) == bool(tainted)


@pytest.mark.parametrize("name", ["autonomous", "goal_mode", "scheduler"])
def test_each_shipped_script_says_whether_its_prompts_are_tainted(name: str) -> None:
    source = find_script(name).read_text()
    assert re.search(r"^TAINTED = ", source, re.M) and re.search(r"^DELIVERS = True", source, re.M)


def test_the_result_of_a_wake_is_on_the_screen_and_at_the_next_chat(watch: Any, capsys: Any) -> None:
    source = "n = 0\ndef check():\n    global n\n    n += 1\n    return 'go' if n < 3 else None\ndef on_done(r): pass\n"
    run = watch(source, [say("two mails,\nboth from the bank"), call("ask_user", question="Pay it?")])
    run.after(300)
    shown = capsys.readouterr().err
    assert "watch: two mails, both from the bank\n" in shown and "watch: a task needs an answer: Pay it?" in shown
    assert run.results[0] == "two mails,\nboth from the bank" and "Pay it?" in run.results[1] and not run.notices


def test_a_script_that_delivers_itself_is_not_told_twice(watch: Any) -> None:
    run = watch("DELIVERS = True\n" + ALWAYS, lambda body, n: say("ok"))
    run.after(60)
    assert run.server.requests and run.results == []


@pytest.mark.slow
def test_results_that_nobody_looks_at_do_not_fill_the_next_chat(watch: Any) -> None:
    run = watch(ALWAYS, lambda body, n: say(f"answer {n}"))
    run.after(40 * 60)
    assert len(run.server.requests) >= 39
    assert run.results[:20] == [f"answer {n}" for n in range(20)] and len(run.results) == 21
    assert "reflect_logs" in run.results[20] and "answer 30" in log(run)


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_a_script_that_a_task_has_changed_is_not_run(watch: Any, late: bool) -> None:
    evil = "def check():\n    return 'evil'\n"

    def model(body: dict[str, Any], n: int) -> Reply:
        if n or late:
            return say("done")
        return call("code_run", type="python", script=f"open({str(run.script)!r}, 'w').write({evil!r})")

    run = watch(ALWAYS, model, "[safety]\nallow = ['*']\n")
    confirm(run.script)
    if late:  # by a process that a task has left behind, long after it
        run.at[1800] = edited(run, evil, approve=False)
    run.after(3600)
    assert run.script.read_text() == evil, "the test is none unless the script was changed"
    assert len(run.prompts) > 40 and not any("evil" in prompt for prompt in run.prompts) and len(run.notices) == 1
    word = run.notices[0].split()[-1]
    with pytest.raises(UsageError, match=word):
        confirm(run.script)
    run.script.write_text(ALWAYS)  # a person has put it back
    run.after(120)
    assert not any("evil" in prompt for prompt in run.prompts) and len(run.notices) == 1


def test_a_prompt_of_a_watcher_makes_no_host_known(watch: Any) -> None:
    source = "KEEP_SESSION = True\ndef check():\n    return 'subject: see https://evil.example/x'\n"
    run = watch(source, lambda body, n: say("ok"))
    run.after(30)
    assert len(run.prompts) == 1 and run.agent.guard.hosts == set()


def test_once_ends_with_the_first_task(watch: Any) -> None:
    run = watch("ONCE = True\n" + ALWAYS, [say("ok")])
    assert run.after(3600) == 0 and len(run.server.requests) == 1


def test_once_ends_also_when_the_model_refuses(watch: Any) -> None:  # C139
    run = watch("ONCE = True\n" + ALWAYS, [fail(401, "bad key")])
    assert run.after(3600) == 1 and len(run.server.requests) == 1


def test_exit_ends_it(watch: Any) -> None:
    assert watch("def check():\n    return '/exit'\n", []).after(3600) == 0


def test_arguments_reach_init_and_nowhere_else(watch: Any) -> None:
    source = "args = None\ndef init(given):\n    global args\n    args = given\ndef check():\n    return f'{args}'\n"
    run = watch(source, lambda body, n: say("ok"), given={"key": "value"})
    run.after(30)
    assert "'key': 'value'" in run.prompts[0]
    run = watch("def check():\n    return None\n", [], given={"key": "value"})
    with pytest.raises(UsageError, match="takes no --key"):
        run.after(30)


def test_a_file_that_happens_to_be_here_is_not_taken_for_a_shipped_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scheduler").write_text("raise SystemExit")
    assert find_script("scheduler") == paths.shipped("reflect", "scheduler.py").resolve()
    (tmp_path / "own.py").write_text("")
    assert find_script("own.py") == find_script("./own.py") == tmp_path / "own.py"


def test_what_a_watcher_has_to_tell_of_the_memory_reaches_nobody(watch: Any) -> None:
    """It waits for the next chat, and what was changed by others before is left for that chat to tell."""
    script = "import os\nos.chdir('../' + 'yromem'[::-1])\nopen('global_' + 'mem.txt', 'a').write('- poison')"
    memory.ensure_seeds(lambda value: value)
    with (paths.memory() / memory.L1).open("a") as file:
        file.write("- by hand\n")
    source = "INTERVAL = 60\nONCE = True\ndef check():\n    return 'go'\n"
    run = watch(source, [call("code_run", type="python", script=script), say("done")])
    assert run.after(100) == 0
    (told,) = run.notices
    assert memory.L2 in told and "taken back" in told and "taken back" in log(run)
    (later,) = memory.ensure_seeds(lambda value: value)
    assert memory.L1 in later and "by hand" in memory.insight()


@pytest.mark.parametrize(
    "wrong",
    ['"budget_seconds": NaN', '"open": ["\\ud800"]', '"max_turns": true', '"status": "weird"', '"turns_used": 1e999'],
)
def test_a_state_file_that_holds_no_goal_is_tried_for_ever(tmp_path: Path, wrong: str) -> None:
    spec = importlib.util.spec_from_file_location("goal_of_this_test", paths.shipped("reflect", "goal_mode.py"))
    assert spec and spec.loader
    goal = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(goal)
    (tmp_path / "state.json").write_text(f'{{"objective": "x", {wrong}}}')
    with pytest.raises(UsageError, match="holds no goal"):
        goal.init({"goal_state": str(tmp_path / "state.json")})
