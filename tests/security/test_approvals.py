"""What is asked, denied and allowed, through the agent with real tools: by who started it, by rule, by answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmain import GenericAgent
from genericagent import paths
from genericagent.errors import ConfigError
from genericagent.safety.asking import Answer, Scope
from genericagent.safety.guard import Guard
from genericagent.safety.policy import parse_rules
from genericagent.scripted import Reply, Tool, call, say

Start = Callable[..., GenericAgent]


@pytest.fixture
def start(model_server: Any, run_agent: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """An agent in the workspace tmp_path/work, on a scripted model."""

    def make(replies: Any, **options: Any) -> GenericAgent:
        server = model_server(replies)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        (tmp_path / "work").mkdir(exist_ok=True)
        agent: GenericAgent = run_agent(workspace=tmp_path / "work", **options)
        return agent

    return make


def do(agent: GenericAgent, text: str, answers: Iterator[Answer] | None = None) -> tuple[dict[str, Any], list[str]]:
    """Run a task and answer its questions in order. Returns (its end, the questions)."""
    agent.can_ask = answers is not None
    questions: list[str] = []
    queue = agent.put_task(text)
    while "done" not in (item := queue.get(timeout=30)):
        event = item.get("event") or {}
        if event.get("kind") == "ask":
            questions.append(event["question"])
            assert answers is not None
            assert agent.answer(event["id"], next(answers))
            assert not agent.answer(event["id"], Answer("once")), "a doubled answer counts for nothing"
    return item, questions


def said(*scopes: Scope) -> Iterator[Answer]:
    return iter([Answer(scope) for scope in scopes])


def write(path: Path, content: str = "x") -> Reply:
    return call("file_write", path=str(path), content=content)


def test_a_write_outside_the_workspace_is_asked_once_and_shows_the_real_path(start: Start, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path)
    agent = start([write(tmp_path / "work" / "link" / "out.txt"), say("done")])
    end, questions = do(agent, "go", said("once"))
    assert (tmp_path / "out.txt").read_text() == "x" and end["status"] == "done"
    assert len(questions) == 1 and str(tmp_path / "out.txt") in questions[0]


def test_once_is_once_and_a_session_answer_holds_for_exactly_the_same_call(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    agent = start([write(out), write(out), write(out), write(out, "other"), say("done")])
    _, questions = do(agent, "go", said("once", "session", "no"))
    assert len(questions) == 3, "asked: the first, the second, not the third, the one with another content"
    assert out.read_text() == "x"


def test_a_session_answer_ends_with_the_conversation(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    agent = start([write(out), say("done"), write(out), say("done"), write(out), say("done")])
    assert len(do(agent, "go", said("session"))[1]) == 1
    assert len(do(agent, "go", said())[1]) == 0
    agent.new_session()
    assert len(do(agent, "go", said("no"))[1]) == 1


def test_a_no_with_words_is_told_to_the_model(start: Start, tmp_path: Path, model_server: Any) -> None:
    out = tmp_path / "out.txt"
    seen: list[str] = []

    def script(body: dict[str, Any], n: int) -> Reply:
        seen.append(str(body["messages"]))
        return write(out) if n == 0 else say("done")

    agent = start(script)
    do(agent, "go", iter([Answer("no", "use the folder notes instead")]))
    assert not out.exists() and "use the folder notes instead" in seen[1]


def test_with_nobody_there_a_question_is_a_no(start: Start, tmp_path: Path) -> None:
    agent = start([write(tmp_path / "out.txt"), say("done")])
    end, _ = do(agent, "go")
    assert not (tmp_path / "out.txt").exists() and len(end["denied"]) == 1


def test_a_stop_while_a_question_is_open_ends_the_task(start: Start, tmp_path: Path) -> None:
    agent = start([write(tmp_path / "out.txt"), say("done")])
    agent.can_ask = True
    queue = agent.put_task("go")
    while (queue.get(timeout=30).get("event") or {}).get("kind") != "ask":
        pass
    agent.abort()
    while "done" not in (item := queue.get(timeout=30)):
        pass
    assert item["status"] == "interrupted" and not (tmp_path / "out.txt").exists()


def test_a_script_that_is_denied_ends_and_needs_input(start: Start, tmp_path: Path) -> None:  # C139
    agent = start([write(tmp_path / "out.txt"), say("I did it")], origin="script")
    end, _ = do(agent, "go")
    assert end["status"] == "needs_input" and "--allow" in end["question"]["question"]
    assert not (tmp_path / "out.txt").exists() and end["denied"]


def test_the_rule_that_a_denial_names_permits_just_that(start: Start, tmp_path: Path) -> None:
    import shlex

    out = tmp_path / "with space [1].txt"
    agent = start([write(out), say("x")], origin="script")
    end, _ = do(agent, "go")
    words = shlex.split(end["question"]["question"].partition("run again with: ")[2])
    assert words[0] == "--allow"
    again = start([write(out), write(tmp_path / "other.txt"), say("x")], origin="script", allow=(words[1],))
    end, _ = do(again, "go")
    assert out.read_text() == "x" and not (tmp_path / "other.txt").exists() and end["status"] == "needs_input"


def test_a_watcher_is_denied_and_goes_on_and_reports(start: Start, tmp_path: Path) -> None:
    agent = start(
        [write(tmp_path / "out.txt"), write(tmp_path / "work" / "in.txt"), say("done")], origin="watcher", sandbox="off"
    )
    end, _ = do(agent, "go")
    assert end["status"] == "done" and len(end["denied"]) == 1 and str(tmp_path / "out.txt") in end["denied"][0]
    assert (tmp_path / "work" / "in.txt").exists() and not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize("origin", ["chat", "script", "remote", "watcher"])
def test_a_deny_rule_wins_over_every_allow(start: Start, tmp_path: Path, ga_home: Path, origin: str) -> None:
    (ga_home / "config.toml").write_text("[safety]\ndeny = ['write:**/secret/**']\nallow = ['*']\nsandbox = 'off'\n")
    (tmp_path / "work" / "secret").mkdir(parents=True)
    agent = start(
        [write(tmp_path / "work" / "secret" / "a.txt"), say("x")], origin=origin, allow=("write", "file_write")
    )
    do(agent, "go", said("once"))
    assert not (tmp_path / "work" / "secret" / "a.txt").exists()


def test_a_mistyped_rule_stops_the_start(ga_home: Path, start: Start) -> None:
    (ga_home / "config.toml").write_text("[safety]\ndeny = ['wirte:~/notes/**']\n")
    with pytest.raises(ConfigError, match="wirte"):
        start([say("x")])


DESTRUCTIVE = [
    ("bash", "rm -rf {out}/tree"),
    ("bash", "cd {out} && rm -r tree"),
    ("bash", "bash -c 'rm -rf {out}/tree'"),
    ("bash", "d={out}; rm -fr \"$d/tree\""),
    ("bash", "find {out}/tree -delete"),
    ("bash", "rm -rf ./build dir/ {out}/tree"),
    ("bash", "rm -rf link/"),
    ("python", "import shutil\nshutil.rmtree('{out}/tree')"),
    ("python", "import subprocess\nsubprocess.run(['rm', '-rf', '{out}/tree'])"),
    ("python", "import os\nos.system('rm -rf {out}/tree')"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "script"), DESTRUCTIVE)
@pytest.mark.parametrize("origin", ["chat", "script"])
def test_a_recursive_delete_outside_is_asked_in_the_freest_mode(
    start: Start, tmp_path: Path, kind: str, script: str, origin: str
) -> None:  # C058
    tree = tmp_path / "precious" / "tree"
    tree.mkdir(parents=True)
    (tree / "file").write_text("kept")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tree)
    ran = call("code_run", type=kind, script=script.format(out=tree.parent))
    agent = start([ran, say("x")], allow=("*", "exec", "code_run"), origin=origin)
    _, questions = do(agent, "clean up", said("no"))
    assert (tree / "file").read_text() == "kept"
    if origin == "chat":
        assert len(questions) == 1 and str(tree) in questions[0], "the resolved target is shown"


@pytest.mark.parametrize("script", ["rm -rf build", "rm -rf ./build/*", "rm -r 'build dir/'", "git clean -fdx build"])
def test_cleaning_up_in_the_workspace_is_not_asked(start: Start, tmp_path: Path, script: str) -> None:
    (tmp_path / "work" / "build").mkdir(parents=True)
    agent = start([call("code_run", type="bash", script=script), say("x")])
    assert do(agent, "clean", said())[1] == []


def test_what_is_asked_is_what_runs_also_when_the_script_stands_in_the_reply(start: Start, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    text = f"I clean up.\n```bash\nrm -rf {tmp_path}/tree\n```\n"
    agent = start([Reply(text=text, tools=[Tool("code_run", {"type": "bash"})]), say("x")])
    _, questions = do(agent, "clean", said("no"))
    assert (tmp_path / "tree").is_dir() and "rm -rf" in questions[0]


@pytest.mark.parametrize("name", ["config.toml", "mykey.py", "plugins/x.py", "reflect/x.py", "sche_tasks/x.json"])
def test_own_keys_and_code_are_never_written_unasked_even_when_home_is_the_workspace(
    start: Start, run_agent: Any, name: str
) -> None:
    agent = start([write(paths.home() / name), say("x")])
    agent.options.workspace = paths.home()
    _, questions = do(agent, "go", said("no"))
    assert len(questions) == 1 and not (paths.home() / name).exists()


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".envrc", ".bashrc", ".GIT/config"])
def test_what_runs_later_by_itself_is_asked_also_inside_the_workspace(start: Start, tmp_path: Path, name: str) -> None:
    agent = start([write(tmp_path / "work" / name), say("x")])
    _, questions = do(agent, "go", said("no"))
    assert len(questions) == 1 and not (tmp_path / "work" / name).exists()


def test_an_edited_safety_section_does_not_loosen_a_running_agent(start: Start, tmp_path: Path, ga_home: Path) -> None:
    (ga_home / "config.toml").write_text("[safety]\n")
    agent = start([write(tmp_path / "a.txt"), say("x"), write(tmp_path / "a.txt"), say("x")])
    do(agent, "go", said("no"))
    (ga_home / "config.toml").write_text("[safety]\nallow = ['*', 'write', 'control', 'destructive']\n")
    _, questions = do(agent, "go", said("no"))
    assert len(questions) == 1 and not (tmp_path / "a.txt").exists()


def test_a_late_answer_from_another_thread_counts_for_nothing(start: Start, tmp_path: Path) -> None:
    agent = start([write(tmp_path / "a.txt"), say("x")])
    agent.can_ask = True
    queue = agent.put_task("go")
    late = threading.Event()
    while "done" not in (item := queue.get(timeout=30)):
        event = item.get("event") or {}
        if event.get("kind") == "ask":
            assert not agent.answer("another id", Answer("once"))
            assert agent.answer(event["id"], Answer("no"))
            late.set()
    assert late.is_set() and not (tmp_path / "a.txt").exists()


# what the question shows


def test_what_a_terminal_would_hide_is_shown_in_the_question(start: Start, tmp_path: Path) -> None:
    hidden = "rm -rf /nowhere; echo \x1b]; echo key >> ~/.ssh/authorized_keys; : \x07; echo \u202egniht"
    agent = start([call("code_run", type="bash", script=hidden), say("x")])
    _, questions = do(agent, "go", said("no"))
    assert "authorized_keys" in questions[0] and "\x1b" not in questions[0] and "\u202e" not in questions[0]


@pytest.mark.parametrize(
    "script", ["rm -rf /nowhere;" + " " * 9000 + "echo hidden", "rm -rf /nowhere\n" + "#\n" * 50 + "echo hidden"]
)
def test_a_question_that_does_not_show_everything_says_so_and_all_of_it_can_be_seen(start: Start, script: str) -> None:
    agent = start([call("code_run", type="bash", script=script), say("x")])
    agent.can_ask = True
    queue = agent.put_task("go")
    while "done" not in (item := queue.get(timeout=30)):
        event = item.get("event") or {}
        if event.get("kind") == "ask":
            assert "hidden" not in event["question"] and "not everything is shown" in event["question"]
            assert "echo hidden" in event["whole"]
            agent.answer(event["id"], Answer("no"))


def test_the_content_that_would_be_written_is_shown(start: Start, tmp_path: Path) -> None:
    agent = start([write(tmp_path / "out.txt", "line one\nline two"), say("x")])
    _, questions = do(agent, "go", said("no"))
    assert "line one" in questions[0] and "line two" in questions[0]


def test_a_session_answer_does_not_outlive_the_script_it_was_given_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "precious").mkdir()
    run = call("code_run", type="bash", script="bash d.sh")
    first, second = "git push --force", f"rm -rf {tmp_path}/precious"
    agent = start([
        call("file_write", path="d.sh", content=first), run, run, call("file_write", path="d.sh", content=second), run, say("x"),
    ])  # fmt: skip
    _, questions = do(agent, "go", said("session", "no"))
    assert len(questions) == 2 and (tmp_path / "precious").is_dir()


def test_a_script_that_the_reader_fails_on_is_asked_about(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    from genericagent.safety import commands

    def broken(*args: object, **kwargs: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr(commands, "analyze", broken)
    agent = start([call("code_run", type="bash", script="echo hi"), say("x")], allow=("*",))
    end, questions = do(agent, "go", said("no"))
    assert len(questions) == 1 and end["status"] == "done"


# what counts as named, read, seen


@pytest.mark.parametrize("text", ["read README.md", "run build.sh and main.py", "what is in notes.is.md?"])
def test_a_file_name_in_the_request_names_no_host(text: str) -> None:
    from genericagent.safety.guard import Guard

    guard = Guard()
    guard.user_said(text)
    assert guard.hosts == set()


def test_a_file_that_is_taken_over_by_reference_is_read_and_taints(start: Start, tmp_path: Path, ga_home: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear you\n")
    content = "{{file:" + str(tmp_path / "letter.txt") + ":1:1}}"
    agent = start([call("file_write", path="copy.txt", content=content), say("x")])
    do(agent, "go", said())
    assert agent.guard.tainted
    (ga_home / "config.toml").write_text(f"[safety]\ndeny = ['read:{tmp_path}/letter.txt']\n")
    agent = start([call("file_write", path="copy2.txt", content=content), say("x")])
    do(agent, "go", said())
    assert not (tmp_path / "work" / "copy2.txt").exists()


@pytest.mark.parametrize("script", ["cat {letter}", "grep you < {letter}", "head -1 '{letter}'"])
def test_a_file_outside_that_a_script_shows_is_fenced_and_taints(start: Start, tmp_path: Path, script: str) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear you </outside>\n")
    seen: list[str] = []

    def model(body: dict[str, Any], n: int) -> Reply:
        seen.append(str(body["messages"]))
        return call("code_run", type="bash", script=script.format(letter=letter)) if n == 0 else say("x")

    agent = start(model)
    do(agent, "go", said())
    assert agent.guard.tainted and "<outside id=" in seen[1]


def test_a_taint_lasts_through_resume_and_ends_with_a_new_conversation(start: Start, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear you\n")
    agent = start([call("file_read", path=str(tmp_path / "letter.txt")), say("x")])
    do(agent, "go", said())
    id = agent.session_id
    agent.new_session()
    assert not agent.guard.tainted
    agent.resume(id)
    assert "letter.txt" in agent.guard.tainted


# rules about what is destroyed


@pytest.mark.parametrize(
    ("script", "gone"),
    [
        ("rm -rf {home}/scratch/a", True),
        ("rm -rf ~/scratch/a", True),
        ("cd ~/scratch && rm -rf a", True),
        ("echo tidy; rm -rf ~/scratch/a", True),
        ("rm -rf ~/scratch/a ~/docs", False),
        ("rm -rf ~/scratch/../docs", False),
        ("rm -rf ~/scratch/a; rm -rf ~/docs", False),
        ("rm -rf ~/scratchy", False),
        ("rm -rf $SOMETHING", False),
    ],
)
def test_a_destructive_rule_is_about_what_is_really_deleted(start: Start, script: str, gone: bool) -> None:  # C058
    for name in ("scratch/a", "docs", "scratchy"):
        (Path.home() / name).mkdir(parents=True)
    ran = call("code_run", type="bash", script=script.replace("{home}", str(Path.home())))
    agent = start([ran, say("x")], origin="script", allow=("destructive:~/scratch/**",))
    end, _ = do(agent, "clean")
    assert (Path.home() / "docs").is_dir() and (Path.home() / "scratchy").is_dir()
    assert (Path.home() / "scratch" / "a").exists() is not gone and (end["status"] == "done") is gone


def test_the_rule_that_is_offered_for_a_delete_names_the_path(start: Start) -> None:
    (Path.home() / "docs").mkdir()
    agent = start([call("code_run", type="bash", script="echo begin\nrm -rf ~/docs"), say("x")], origin="script")
    end, _ = do(agent, "clean")
    assert f"--allow destructive:{Path.home()}/docs" in end["question"]["question"]


@pytest.mark.parametrize(
    "script",
    ["curl -s -d x http://127.0.0.1:9/ -d y http://127.0.0.2:9/", 'curl -s -H "x: $(cat notes)" http://127.0.0.2:9/'],
)
def test_every_address_that_a_command_sends_to_counts(start: Start, script: str) -> None:
    agent = start([call("code_run", type="bash", script=script), say("x")], origin="script", allow=("send:127.0.0.1",))
    end, _ = do(agent, "go")
    assert end["status"] == "needs_input" and "127.0.0.2" in end["question"]["question"]


@pytest.mark.parametrize(
    "script", ["X=$(cat f); rm -rf ~/scratch/$X", "rm -rf ~/scratch/$(head -1 f)", "rm -rf ~/scratch/$UNSET"]
)
def test_a_rule_for_a_folder_says_nothing_about_a_path_that_is_only_known_later(
    start: Start, tmp_path: Path, script: str
) -> None:
    (Path.home() / "scratch").mkdir()
    (Path.home() / "other").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "f").write_text("../other\n")
    agent = start(
        [call("code_run", type="bash", script=script), say("x")], origin="script", allow=("destructive:~/scratch/**",)
    )
    end, _ = do(agent, "clean")
    assert (Path.home() / "other").is_dir() and end["status"] == "needs_input"


@pytest.mark.parametrize("deny", ["destructive:~/scratch", "write:~/scratch", "write:~/scratch/keep", "write:**/keep"])
@pytest.mark.parametrize("script", ["rm -rf ~/scratch", "rm -rf ~/*", "rm -rf ~/"])
def test_a_deny_rule_protects_what_it_names_from_a_delete_of_the_folder_above(
    start: Start, ga_home: Path, deny: str, script: str
) -> None:
    (Path.home() / "scratch" / "keep").mkdir(parents=True)
    (ga_home / "config.toml").write_text(f"[safety]\ndeny = ['{deny}']\nallow = ['destructive', '*']\n")
    agent = start([call("code_run", type="bash", script=script), say("x")])
    do(agent, "clean", said())
    assert (Path.home() / "scratch" / "keep").is_dir()


def test_an_upload_that_was_allowed_once_makes_its_host_no_known_one(start: Start) -> None:
    upload = call("code_run", type="bash", script="curl -s -m1 -d x http://127.0.0.3:9/ || true")
    other = call("code_run", type="bash", script="curl -s -m1 -d y http://127.0.0.3:9/ || true")
    agent = start([upload, other, say("x")])
    assert len(do(agent, "go", said("once", "no"))[1]) == 2


def test_what_a_script_writes_elsewhere_itself_is_nobody_elses_text(start: Start) -> None:
    agent = start([call("code_run", type="bash", script=f"echo {n} > ~/o{n}; cat ~/o{n}") for n in (1, 2)] + [say("x")])
    _, questions = do(agent, "go", said())
    assert questions == [] and not agent.guard.tainted


def test_no_rule_is_offered_where_another_one_denies(start: Start, ga_home: Path) -> None:
    (ga_home / "config.toml").write_text("[safety]\ndeny = ['exec:docker *']\n")
    agent = start([call("code_run", type="bash", script="sudo docker ps"), say("x")], origin="script")
    end, _ = do(agent, "go")
    assert "docker *" in end["question"]["question"] and "--allow" not in end["question"]["question"]


def test_a_tool_that_the_guard_does_not_know_goes_around_what_may_not_be_read() -> None:
    guard = Guard()
    guard.rules = parse_rules((), (), ("read:*secret*",), ())
    assert guard.rule("word_count", {"path": "a/secret.txt"}, guard.zones.workspace).verdict == "deny"
    assert guard.rule("word_count", {"path": "a/plain.txt"}, guard.zones.workspace).verdict == "allow"
