"""The guarded writer: what the agent may store, on what ground, and what is kept of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_loop import StepOutcome, exhaust
from ga import GenericAgentHandler
from genericagent import memory, paths
from genericagent.cli.memory import run_memory
from genericagent.errors import ToolError
from genericagent.llm.usage import estimate
from genericagent.memory.layers import INSIGHT_TOKENS
from genericagent.memory.records import JOURNAL, KNOWN, Records, difference, entries
from genericagent.memory.writer import inverse, revert
from genericagent.safety.redact import Redactor
from genericagent.store import atomic

ROOT = Path(__file__).parents[2]
FACTS = "## [ENVIRONMENT]\n"


@pytest.fixture
def handler(tmp_path: Path) -> GenericAgentHandler:
    memory.ensure_seeds()
    return GenericAgentHandler(parent=None, cwd=tmp_path)


def do(handler: GenericAgentHandler, name: str, /, **args: Any) -> StepOutcome:
    reply = SimpleNamespace(content="", stop_reason="end_turn")
    outcome: StepOutcome = exhaust(handler.dispatch(name, args, reply))
    return outcome


def run(handler: GenericAgentHandler, script: str = "echo seen") -> None:
    assert do(handler, "code_run", type="bash", script=script).data["status"] == "success"


def seen(handler: GenericAgentHandler, text: str) -> None:
    """A call has shown it."""
    handler.evidence.saw("code_run", 1, "look", text)


def store(handler: GenericAgentHandler, fact: str, name: str = memory.L2, after: str = FACTS) -> dict[str, Any]:
    data: dict[str, Any] = do(
        handler, "file_patch", path=str(paths.memory() / name), old_content=after, new_content=f"{after}{fact}\n"
    ).data
    return data


def text(name: str = memory.L2) -> str:
    return (paths.memory() / name).read_text(encoding="utf-8")


def journal() -> list[dict[str, Any]]:
    return list(entries().values())


# no execution, no memory


def test_without_evidence_nothing_is_stored_and_the_axiom_is_the_reason(handler: GenericAgentHandler) -> None:
    before = text()
    data = store(handler, "- build server: 10.0.0.9")
    assert data["status"] == "error" and "no execution, no memory" in data["msg"] and "10.0.0.9" in data["msg"]
    made = do(handler, "file_write", path=str(paths.memory() / "deploy_sop.md"), content="run it\n").data
    assert made["status"] == "error" and not (paths.memory() / "deploy_sop.md").exists()
    assert text() == before and journal() == []


def test_a_successful_call_is_evidence_and_the_journal_names_it(handler: GenericAgentHandler, tmp_path: Path) -> None:
    handler.current_turn = 3
    (tmp_path / "printers.txt").write_text("the printer is at 10.0.0.7\n")
    run(handler, "echo it is at 10.0.0.7")
    assert store(handler, "- printer: 10.0.0.7")["status"] == "error", "it has only said so itself"
    run(handler, "cat printers.txt")
    run(handler, "true")
    assert store(handler, "- printer: 10.0.0.7")["status"] == "success"
    (line,) = journal()
    assert line["file"] == memory.L2 and line["by"] == "tool" and line["turn"] == 3 and line["tainted"] is None
    assert line["evidence"][0]["tool"] == "code_run" and line["evidence"][0]["what"] == "cat printers.txt"
    assert len(line["evidence"][0]["digest"]) == 12 and line["before"] != line["after"] and line["time"]
    assert "+- printer: 10.0.0.7" in line["diff"].splitlines()


@pytest.mark.parametrize(
    "script",
    ["cat {memory}/global_mem.txt", "cd {memory} && ls", "ls ../memory", "cat ../ga/memory/plan_sop.md", "ga memory check || true"],
)  # fmt: skip
def test_looking_into_the_memory_proves_nothing(handler: GenericAgentHandler, script: str, tmp_path: Path) -> None:
    (tmp_path.parent / "memory").mkdir(exist_ok=True)
    do(handler, "file_read", path=str(paths.memory() / memory.L2))
    do(handler, "code_run", type="bash", script=script.format(memory=paths.memory()))
    do(handler, "code_run", type="python", script="print(1)", cwd=str(paths.memory()))
    do(handler, "code_run", type="python", script="{'a': 1}", inline_eval=True)
    do(handler, "update_working_checkpoint", key_info="the printer is at 10.0.0.7")
    assert store(handler, "- printer: 10.0.0.7")["status"] == "error"


def test_reading_what_the_task_has_written_proves_nothing(handler: GenericAgentHandler, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("the lock is at 10.0.0.8\nthe gate is somewhere\n")
    do(handler, "file_write", path="a.txt", content="the printer is at 10.0.0.7\n")
    do(handler, "file_patch", path="b.txt", old_content="somewhere", new_content="at 10.0.0.9")
    for name in ("a.txt", "b.txt"):
        assert "10.0.0" in do(handler, "file_read", path=name).data
        run(handler, f"cat ./{name}")
    assert store(handler, "- printer: 10.0.0.7")["status"] == "error"
    assert store(handler, "- gate: 10.0.0.9")["status"] == "error"
    assert store(handler, "- lock: 10.0.0.8")["status"] == "success"


def test_failed_calls_prove_nothing(handler: GenericAgentHandler) -> None:
    do(handler, "code_run", type="bash", script="exit 3")
    do(handler, "file_read", path="nowhere.txt")
    do(handler, "code_run", type="bash", script="sleep 5", timeout=1)
    assert store(handler, "- printer: 10.0.0.7")["status"] == "error"


@pytest.mark.parametrize(
    ("said", "fact", "stored"),
    [
        ("my printer is at 10.0.0.7, remember that", "- printer: 10.0.0.7", True),
        ("please always use metric units", "- The user prefers metric units.", True),
        ("我的打印机地址是 10.0.0.7，请记住", "- 打印机地址：10.0.0.7", True),
        ("find out where my printer is and remember it", "- printer: 10.0.0.7", False),  # a number nobody said
        ("which database does the staging server use?", "- staging server uses Postgres", False),
        ("what is the weather like", "- deploy only from the release branch", False),
    ],
)
def test_the_users_words_count_for_what_they_say(
    handler: GenericAgentHandler, said: str, fact: str, stored: bool
) -> None:
    handler.evidence.user_said(said)
    assert (store(handler, fact)["status"] == "success") is stored
    assert [e["evidence"] for e in journal()] == ([[{"told": said[:80]}]] if stored else [])


def test_what_only_moves_rests_on_what_it_rested_on(handler: GenericAgentHandler) -> None:
    seen(handler, "deploy: make ship from main")
    store(handler, "- deploy: make ship from main")
    fresh = GenericAgentHandler(parent=None, cwd=handler.cwd)
    made = do(
        fresh, "file_write", path=str(paths.memory() / "deploy_sop.md"), content="- deploy: make ship from main\n"
    )
    assert made.data["status"] == "success" and journal()[-1]["evidence"] == [{"moved": True}]
    gone = do(
        fresh, "file_patch", path=str(paths.memory() / memory.L2), old_content="- deploy: make ship from main\n", new_content=""
    )  # fmt: skip
    assert gone.data["status"] == "success"
    lost = do(
        fresh,
        "file_patch",
        path=str(paths.memory() / "deploy_sop.md"),
        old_content="deploy: make ship",
        new_content="x",
    )
    assert lost.data["status"] == "error", "the last copy goes only on some ground"


def test_a_call_of_an_earlier_task_counts_for_what_it_showed(handler: GenericAgentHandler) -> None:
    seen(handler, "printer answers at 10.0.0.7")
    handler.evidence.begin()
    assert store(handler, "- scanner: 10.0.0.8")["status"] == "error"
    assert store(handler, "- printer: 10.0.0.7")["status"] == "success"


# what is refused whatever it rests on


@pytest.mark.parametrize("mode", ["overwrite", "append", "prepend"])
def test_an_existing_file_is_only_patched(handler: GenericAgentHandler, mode: str) -> None:
    run(handler)
    before = text()
    data = do(handler, "file_write", path=str(paths.memory() / memory.L2), content="all new\n", mode=mode).data
    assert data["status"] == "error" and "file_patch" in data["msg"] and text() == before


@pytest.mark.slow
def test_three_hundred_notes_do_not_grow_the_index_beyond_its_limit(handler: GenericAgentHandler) -> None:  # C127
    seen(handler, "topic " + " ".join(map(str, range(300))))
    stored = [store(handler, f"topic {n}: global_mem.txt", memory.L1, "# Red lines\n")["status"] for n in range(300)]
    assert len(text(memory.L1).splitlines()) <= memory.INSIGHT_LINES and "error" in stored and "success" in stored
    assert len(memory.insight().splitlines()) <= memory.INSIGHT_LINES


def test_few_but_long_lines_do_not_grow_the_index_beyond_its_limit(handler: GenericAgentHandler) -> None:  # C127
    line = "topic " * 80
    seen(handler, "topic short")
    stored = [store(handler, f"{line}{'x' * n}", memory.L1, "# Red lines\n") for n in range(25)]
    assert stored[0]["status"] == "success" and "tokens" in stored[-1]["msg"]
    assert estimate(text(memory.L1).strip()) <= INSIGHT_TOKENS and len(text(memory.L1).splitlines()) < 25
    with (paths.memory() / memory.L1).open("a") as file:
        file.write(line * 20 + "\n")
    assert store(handler, "topic", memory.L1, "# Red lines\n")["status"] == "error"
    index = str(paths.memory() / memory.L1)
    cut = do(handler, "file_patch", path=index, old_content=line * 20, new_content="topic").data
    assert cut["status"] == "success", "what makes it smaller is let through"


def test_a_newer_fact_takes_the_place_of_the_old_one_with_date_and_source(handler: GenericAgentHandler) -> None:  # C127
    seen(handler, "server is alpha")
    store(handler, "- server: alpha")
    handler.evidence.user_said("the server is beta now")
    do(
        handler,
        "file_patch",
        path=str(paths.memory() / memory.L2),
        old_content="server: alpha",
        new_content="server: beta",
    )
    assert "alpha" not in text() and "server: beta" in text()
    newest = journal()[-1]
    assert (
        newest["time"].startswith("20")
        and "beta" in newest["evidence"][0]["told"]
        and "-- server: alpha" in newest["diff"]
    )


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-AbCdEfGhIjKlMnOp0123", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "AKIAIOSFODNN7EXAMPLE", "password: hunter2-Summer",
        "the API token is 8fQ2mZ7xK9vL3nB5tR1w", "postgres://admin:s3cretpw@db.local/app", "-----BEGIN OPENSSH PRIVATE KEY-----",
        "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc", "密码：Xk29dkslq", "api_key = da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    ],
)  # fmt: skip
def test_keys_are_not_stored(handler: GenericAgentHandler, secret: str) -> None:  # C130
    run(handler)
    data = store(handler, f"- access: {secret}")
    assert data["status"] == "error" and "secret" in data["msg"] and secret not in text() + json.dumps(journal())
    assert secret not in data["msg"]


def test_a_configured_key_is_in_no_layer_however_it_came_there(handler: GenericAgentHandler) -> None:  # C130
    key = "plain-word-as-a-key"
    handler.parent = SimpleNamespace(redact=Redactor([key]), options=None)
    handler.evidence.saw("code_run", 1, "cat config", "it works")
    assert store(handler, f"- the word is {key}")["status"] == "error"
    with (paths.memory() / memory.L2).open("a") as file:
        file.write(f"by hand: {key}\n")
    memory.ensure_seeds(Redactor([key]).json)
    assert len(journal()) == 1
    for name in (".journal.jsonl", KNOWN):
        assert key not in text(name), name


@pytest.mark.parametrize(
    "fact",
    [
        "fixed in commit 3f786850e387550fdab836ed7e6dc881de23001b", "row id 550e8400-e29b-41d4-a716-446655440000", "token count: 120000",
        "the API key is in ~/.config/app/key.toml", "password: see the keyring entry", "key: env:OPENAI_API_KEY", "api_key = $OPENAI_API_KEY",
        "primary key: 550e8400-e29b-41d4-a716-446655440000", "press the key combination Ctrl-Shift", "Tokenizer: o200k_base",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "https://example.com/a/b?page=2",
        "secret store: vault kv get secret/data/app", "密码在钥匙串里",
    ],
)  # fmt: skip
def test_what_only_looks_a_little_like_a_key_is_stored(handler: GenericAgentHandler, fact: str) -> None:
    seen(handler, fact)
    data = store(handler, f"- {fact}")
    assert data["status"] == "success", data


@pytest.mark.parametrize(
    ("fact", "volatile"),
    [
        ("the server runs as pid 4711", True), ("last seen 2024-05-01 12:30", True), ("output lies in /tmp/build-1/x", True),
        ("it listens on localhost:49213", False), ("session 20240501-101112-a1b2c3", True), ("started at 1714564212", True),
        ("it listens on localhost:8080", False), ("released 2024-05-01", False), ("tmp files go to ~/tmp/x", False),
        ("currently the queue is empty", True), ("the build is broken today", True), ("目前服务器在维护", True), ("进程号 4711", True),
        ("the log is app-2024-05-01T12:30.log", False), ("archive: shop/20240501-101112-a1b2c3.tar", False), ("port 55432", False),
        ("dump_1714564212.sql is the good one", False), ("needs version 2024.5.1", False), ("the process: 3 steps", False),
        ("端口 40123", False), ("show the current directory", False),
    ],
)  # fmt: skip
def test_what_will_not_last_is_stored_with_a_warning(handler: GenericAgentHandler, fact: str, volatile: bool) -> None:
    seen(handler, fact)
    data = store(handler, f"- {fact}")
    assert data["status"] == "success" and ("volatile" in data["msg"]) is volatile, data


@pytest.mark.parametrize(
    "name",
    [".journal.jsonl", ".known.json", ".seeds.json", "L4_raw_sessions/a.jsonl", memory.L0, "json.py", ".hidden/x.md"],
)
def test_records_archives_rules_and_names_of_the_library_are_not_written(
    handler: GenericAgentHandler, name: str
) -> None:
    run(handler)
    path = paths.memory() / name
    before = path.read_bytes() if path.exists() else None
    assert do(handler, "file_write", path=str(path), content="x\n").data["status"] == "error"
    if before is not None:
        first = before.decode().splitlines()[0]
        assert do(handler, "file_patch", path=str(path), old_content=first, new_content="x").data["status"] == "error"
    assert (path.read_bytes() if path.exists() else None) == before


def test_no_way_leads_around_the_writer_or_out_of_the_memory(handler: GenericAgentHandler, tmp_path: Path) -> None:
    victim = tmp_path.parent / "victim.txt"
    victim.write_text("mine\n")
    (paths.memory() / "link.md").symlink_to(victim)
    os.link(victim, paths.memory() / "hard.md")
    (tmp_path / "inside.md").symlink_to(paths.memory() / memory.L2)
    for name in ("link.md", "hard.md"):
        do(handler, "file_patch", path=str(paths.memory() / name), old_content="mine", new_content="yours")
    run(handler)
    data = do(handler, "file_patch", path=str(paths.memory() / "hard.md"), old_content="mine", new_content="yours").data
    assert data["status"] == "error" and victim.read_text() == "mine\n"
    fresh = GenericAgentHandler(parent=None, cwd=tmp_path)
    through = do(fresh, "file_patch", path="inside.md", old_content=FACTS, new_content=f"{FACTS}- x\n").data
    roundabout = do(fresh, "file_write", path=f"{paths.temp()}/../memory/new_sop.md", content="- y\n").data
    assert through["status"] == roundabout["status"] == "error" and "no memory" in through["msg"] + roundabout["msg"]


def test_a_note_that_says_the_opposite_is_stored_with_a_warning_and_marked(handler: GenericAgentHandler) -> None:
    handler.evidence.user_said("do not use port 8080")
    data = store(handler, "- use port 8080")
    assert data["status"] == "success" and "opposite" in data["msg"] and "do not use port 8080" in data["msg"]
    assert journal()[0]["evidence"] == [{"told": "do not use port 8080", "doubt": "not"}]


@pytest.mark.parametrize(("made", "name", "warned"), [
    ("tools.py", "tools.py", True), ("shop/x.py", "shop.py", True), ("tools.py", "other.py", False), ("tools.md", "tools.md", False),
])  # fmt: skip
def test_a_helper_that_hides_a_module_of_the_workspace_is_told(
    handler: GenericAgentHandler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, name: str, warned: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / made).parent.mkdir(exist_ok=True)
    (tmp_path / made).touch()
    seen(handler, "x = 1")
    data = do(handler, "file_write", path=str(paths.memory() / name), content="x = 1\n").data
    assert data["status"] == "success" and ("hides" in data["msg"]) is warned


def test_after_failed_patches_no_hint_sends_the_model_to_write_the_memory_anew(handler: GenericAgentHandler) -> None:
    said = [store(handler, "- x", after="nowhere\n")["msg"] for _ in range(4)]
    assert "never in memory/" in said[-1] and "file_read" in said[-1]


# tainted


def test_in_a_tainted_task_storing_is_denied_where_nobody_can_be_asked(handler: GenericAgentHandler) -> None:
    run(handler)
    handler.outside("text of a page", "a page")
    assert store(handler, "- do what the page says")["status"] == "error" and journal() == []


def test_what_a_person_lets_a_tainted_task_store_is_marked(handler: GenericAgentHandler) -> None:
    from genericagent.safety.asking import Answer

    agent = SimpleNamespace(ask=lambda *_: Answer("once"), guard=handler.guard, task_dir=None, options=None)
    asked = GenericAgentHandler(parent=None, cwd=handler.cwd)
    asked.parent = agent
    asked.evidence.saw("web_scan", 1, "page", "opening hours 9 to 5")
    asked.guard.outside("the page example.com")
    assert store(asked, "- opening hours: 9 to 5")["status"] == "success"
    assert journal()[0]["tainted"] == "the page example.com"


# two at once, and sudden ends

WRITER = """
import sys
from pathlib import Path
from types import SimpleNamespace
from agent_loop import exhaust
from ga import GenericAgentHandler
from genericagent import paths
handler = GenericAgentHandler(parent=None, cwd=Path(sys.argv[1]))
handler.evidence.saw("code_run", 1, "x", "fact a b k1 k4 k9 " + " ".join(map(str, range(20))))
for n in range(20):
    args = {"path": str(paths.memory() / "global_mem.txt"), "old_content": "## [ENVIRONMENT]\\n",
            "new_content": f"## [ENVIRONMENT]\\n- fact {sys.argv[2]} {n}\\n"}
    data = exhaust(handler.dispatch("file_patch", args, SimpleNamespace(content=""))).data
    assert data["status"] == "success", data
    print(n, flush=True)
"""


def start_writer(folder: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), name]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_at_once_lose_no_fact_and_no_line_of_the_journal(tmp_path: Path) -> None:
    memory.ensure_seeds()
    both = [start_writer(tmp_path, name) for name in "ab"]
    for process in both:
        process.communicate(timeout=60)
    assert [p.returncode for p in both] == [0, 0]
    lines = text().splitlines()
    assert {f"- fact {p} {n}" for p in "ab" for n in range(20)} <= set(lines)
    assert len(journal()) == 40 and {e["by"] for e in journal()} == {"tool"}
    assert memory.ensure_seeds() == [], "nothing looks as if it had been changed around the writer"


@pytest.mark.slow
def test_kill_9_in_the_middle_leaves_file_and_journal_in_step(tmp_path: Path) -> None:
    memory.ensure_seeds()
    for after in (1, 4, 9):
        process = start_writer(tmp_path, f"k{after}")
        assert process.stdout
        for _ in range(after):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        assert memory.ensure_seeds() == []
    facts = [line for line in text().splitlines() if line.startswith("- fact")]
    added = [line[1:] for e in journal() for line in e["diff"].splitlines() if line.startswith("+- fact")]
    assert sorted(facts) == sorted(added) and len(facts) >= 14


@pytest.mark.parametrize("step", ["before the file", "before the line", "after the line"])
def test_each_point_where_a_write_can_be_cut_off_is_mended(
    handler: GenericAgentHandler, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: Any, **kwargs: Any) -> Any:
        raise Killed

    seen(handler, "a fact")
    write, before = atomic.write_bytes, text()
    with monkeypatch.context() as cut:
        if step == "after the line":
            cut.setattr(Records, "_note", killed)
        else:
            cut.setattr(Records, "__exit__", lambda self, *_: self._lock.release())
            cut.setattr(atomic, "write_bytes", lambda *a, **k: (step == "before the line" and write(*a, **k), killed()))
        with pytest.raises(Killed):
            store(handler, "- fact")
    assert memory.ensure_seeds() == []
    happened = step != "before the file"
    assert ("- fact" in text()) is happened and len(journal()) == int(happened) and (text() == before) is not happened


def test_a_full_disk_is_told_as_it_is_and_the_line_follows(
    handler: GenericAgentHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *args: Any, **kwargs: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    seen(handler, "one two three")
    with monkeypatch.context() as disk:
        disk.setattr(atomic, "open_own", full)
        data = store(handler, "- one")
        assert data["status"] == "success" and "stored" in data["msg"] and "No space left" in data["msg"]
        assert "- one" in text() and journal() == []
        data = store(handler, "- two")
        assert data["status"] == "error" and "No space left" in data["msg"] and "- two" not in text()
    with monkeypatch.context() as disk:
        disk.setattr(atomic, "write_new", full)
        assert store(handler, "- two")["status"] == "error" and "- two" not in text()
    assert store(handler, "- three")["status"] == "success" and memory.ensure_seeds() == []
    assert [(e["by"], "+- one" in e["diff"], "+- three" in e["diff"]) for e in journal()] == [
        ("tool", True, False), ("tool", False, True)
    ]  # fmt: skip


# taking back


def test_what_nobody_has_seen_is_not_taken_back_and_nothing_twice(handler: GenericAgentHandler) -> None:
    seen(handler, "one")
    store(handler, "- one")
    with (paths.memory() / memory.L2).open("a") as file:
        file.write("by hand\n")
    with pytest.raises(ToolError, match="noticed only now"):
        revert(2)
    assert "by hand" in text()
    revert(2)
    assert "by hand" not in text()
    with pytest.raises(ToolError, match="already, by change 3"):
        revert(2)
    revert(3)
    assert "by hand" in text()
    revert(2)
    assert "by hand" not in text()


def test_a_change_is_taken_back_also_when_later_ones_stand_beside_it(handler: GenericAgentHandler) -> None:
    seen(handler, "one two three")
    original = text()
    for fact in ("- one", "- two", "- three"):
        store(handler, fact)
    assert revert(2) == memory.L2
    assert "- two" not in text() and "- one" in text() and "- three" in text()
    assert journal()[-1]["by"] == "revert" and journal()[-1]["evidence"] == [{"revert": 2}]
    revert(4)
    assert "- two" in text()
    for number in (5, 4, 3, 2, 1):
        revert(number)
    assert text() == original


def test_a_new_file_goes_and_a_removed_one_comes_back(handler: GenericAgentHandler) -> None:
    seen(handler, "deploy: make ship")
    path = paths.memory() / "deploy_sop.md"
    do(handler, "file_write", path=str(path), content="# Deploy\nmake ship")
    revert(1)
    assert not path.exists()
    revert(2)
    assert path.read_text() == "# Deploy\nmake ship"
    path.unlink()
    assert any("deploy_sop.md" in line for line in memory.ensure_seeds())
    revert(4)
    assert path.read_text() == "# Deploy\nmake ship"


def test_a_conflict_is_told_and_nothing_is_changed(handler: GenericAgentHandler) -> None:
    seen(handler, "servers alpha, beta")
    store(handler, "- server: alpha")
    do(handler, "file_patch", path=str(paths.memory() / memory.L2), old_content="alpha", new_content="beta")
    before = text()
    with pytest.raises(ToolError, match="server: alpha"):
        revert(1)
    with pytest.raises(ToolError, match="99"):
        revert(99)
    assert text() == before and len(journal()) == 2


def test_a_journal_that_somebody_edited_leads_nowhere(handler: GenericAgentHandler, tmp_path: Path) -> None:
    victim = paths.home() / "config.toml"
    line = {
        "file": "../config.toml",
        "diff": "--- /dev/null\n+++ x\n@@ -0,0 +1 @@\n+a\n",
        "before": "0",
        "after": None,
        "by": "tool",
    }
    for name in ("../config.toml", ".known.json", str(tmp_path / "x.md")):
        (paths.memory() / ".journal.jsonl").write_text(json.dumps({**line, "file": name}) + "\n")
        with pytest.raises(ToolError):
            revert(1)
        with Records() as records, pytest.raises(ToolError, match="leads out"):
            records.put(name, "x\n", by="tool")
    assert not victim.exists() and not (tmp_path / "x.md").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [("", "a\n"), ("a", "a\n"), ("a\n", ""), ("a\nb\nc", "a\nx\nc"), ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n\n4\n5\n6\n7\n8\nnine"),
     ("same\nsame\n", "same\nx\nsame\n"), ("--- a\n", "+++ b\n"), ("@@ x\n", "\\ y\n"), ("a\x0cb\u2028c\n", "a\x0cb\u2028d\n")],
)  # fmt: skip
def test_the_inverse_of_a_diff_gives_back_every_byte(old: str, new: str) -> None:
    assert inverse(new, difference("f", old, new)) == old


def test_taking_the_records_away_hides_no_change(handler: GenericAgentHandler) -> None:
    seen(handler, "a fact")
    assert store(handler, "- a fact")["status"] == "success"
    (paths.memory() / KNOWN).unlink()
    with (paths.memory() / memory.L1).open("a", encoding="utf-8") as file:
        file.write("poison\n")
    told = memory.ensure_seeds()
    assert any(memory.L1 in line for line in told) and not any(memory.L2 in line for line in told), told
    assert journal()[-1]["by"] == "outside"


def test_another_name_of_a_memory_file_is_no_way_in(handler: GenericAgentHandler, tmp_path: Path) -> None:
    run(handler)
    (tmp_path / "other.txt").hardlink_to(paths.memory() / memory.L1)
    data = do(handler, "file_write", path="other.txt", content="poison").data
    assert data["status"] == "error" and "poison" not in text(memory.L1)


@pytest.mark.parametrize("odd", [
    "[]", '{"files": []}', '{"files": {"x": 3}}', '{"files": {"x": {"hash": 3, "text": null}}}', '{"files": {}, "pending": {"file": 3}}',
    '{"files": {}, "untold": [3]}', '{"files": {}, "untold": {"a": 1}}', "[" * 100_000, "half {",
    '{"files": {"a.md": {"hash": "x", "text": "\\ud800"}}}', '{"files": {}, "untold": [[true, "x"]]}',
])  # fmt: skip
def test_odd_records_stop_no_task(handler: GenericAgentHandler, odd: str) -> None:
    for name in (KNOWN, ".seeds.json"):
        (paths.memory() / name).write_text(odd)
        memory.ensure_seeds()
    with (paths.memory() / ".journal.jsonl").open("a") as file:
        file.write(odd.replace("\n", " ") + "\n" + '{"file": 3, "diff": null, "by": []}\n')
    assert all(isinstance(entry["file"], str) for entry in journal())
    seen(handler, "a fact")
    assert store(handler, "- a fact")["status"] == "success" and "a fact" in text()


@pytest.mark.parametrize("change", ["a file", "a link out", "a loop"])
def test_a_folder_that_became_something_else_stops_no_task_and_is_told_once(
    handler: GenericAgentHandler, tmp_path: Path, change: str
) -> None:
    notes = paths.memory() / "notes"
    notes.mkdir()
    (notes / "a.md").write_text("a\n")
    memory.ensure_seeds()
    (notes / "a.md").unlink()
    notes.rmdir()
    (tmp_path / "a.md").write_text("not of the memory\n")
    notes.write_text("now a file\n") if change == "a file" else notes.symlink_to(
        tmp_path if change == "a link out" else notes
    )
    told = memory.ensure_seeds()
    assert any("notes/a.md" in line for line in told) and memory.ensure_seeds() == []
    gone = [e for e in journal() if e["file"] == "notes/a.md"]
    assert len(gone) == 2 and gone[-1]["after"] is None
    assert "not of the memory" not in (paths.memory() / KNOWN).read_text()


@pytest.mark.parametrize(
    "name", ["a\0", "\ud800", "x" * 400, "/etc/hostname", "../../../../etc/hostname", "a/../../b", "", "."]
)
@pytest.mark.parametrize("where", ["files", "pending"])
def test_a_name_that_no_file_of_the_memory_has_leads_nowhere(
    handler: GenericAgentHandler, name: str, where: str
) -> None:
    known = json.loads((paths.memory() / KNOWN).read_text())
    if where == "files":
        known["files"][name] = {"hash": "x", "text": "y"}
    else:
        known["pending"] = {"file": name, "diff": "", "by": "tool", "before": "x", "after": None}
    (paths.memory() / KNOWN).write_text(json.dumps(known))
    assert memory.ensure_seeds() == [] == journal()
    assert name not in json.loads((paths.memory() / KNOWN).read_text())["files"]


def test_a_file_that_cannot_be_read_adds_no_line_at_each_start(
    handler: GenericAgentHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    (paths.memory() / "a.md").write_text("new\n")
    (paths.memory() / "b.md").write_text("new\n")
    read = Records._read

    def broken(self: Records, name: str) -> bytes | None:
        if name == "b.md":
            raise ToolError("cannot read b.md: Input/output error")
        return read(self, name)

    monkeypatch.setattr(Records, "_read", broken)
    for _ in range(3):
        with pytest.raises(ToolError, match=r"b\.md"):
            memory.ensure_seeds()
    assert [e["file"] for e in journal()] == ["a.md"]


@pytest.mark.parametrize("odd", [
    {"evidence": ["x"]}, {"evidence": 5}, {"evidence": [{"revert": [1]}], "by": "revert"}, {"before": 1}, {"before": ...}, {"after": []},
    {"diff": "q"}, {"diff": "--- a\n+++ b\nzz"}, {"diff": "--- a\n+++ b\n+x"}, {"diff": "--- a\n+++ b\n@@\n\\x"}, {"diff": "--- a\n+++ b\n@@\n x\n"},
    {"diff": "--- a\n+++ b\n@@\n"}, {"time": 5, "tainted": {"a": 1}, "evidence": [{}], "diff": "--- a\n+++ b\n@@\n?x\n"}, {"file": "a\0"},
], ids=str)  # fmt: skip
def test_an_odd_line_of_the_journal_is_told_or_refused_in_one_line(
    handler: GenericAgentHandler, odd: dict[str, Any]
) -> None:
    good = {"file": "plan_sop.md", "diff": "--- a\n+++ b\n@@\n+x\n", "by": "tool", "before": None, "after": None}
    line = {key: value for key, value in {**good, **odd}.items() if value is not ...}
    (paths.memory() / JOURNAL).write_text("".join(json.dumps(one) + "\n" for one in (line, good)))
    before = text("plan_sop.md")
    assert "\n   2 " in "\n" + run_memory(["log"])[0]
    for word in ("show", "revert"):
        with suppress(ToolError):
            run_memory([word, "1"])
            assert word == "show"
    assert text("plan_sop.md") == before and memory.ensure_seeds() == []
