"""`-p` and `--func`, and every bad input a command can be given: one clear line, the right exit code, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from genericagent.scripted import Reply, Tool, call, fail, say

ROOT = Path(__file__).parents[2]


@pytest.fixture
def play(model_server: Any, run_ga: Any) -> Any:
    """Start a server with the replies and run the program against it: (finished process, server)."""

    def start(replies: Any, *args: str, **kwargs: Any) -> Any:
        server = model_server(replies)
        env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": server.url, **kwargs.pop("env", {})}
        return run_ga(*args, env=env, **kwargs), server

    return start


def one_line(done: Any) -> str:
    lines: list[str] = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and "Traceback" not in done.stderr, done.stderr
    return lines[0]


def test_the_answer_alone_is_on_stdout(play: Any) -> None:
    done, _ = play(
        [call("code_run", type="bash", script="echo noise"), say("<summary>s</summary>It is **42**.")],
        "-p",
        "how much?",
    )
    assert (done.returncode, done.stdout) == (0, "It is **42**.\n")


def test_the_text_may_come_from_stdin(play: Any) -> None:
    done, server = play([say("ok")], "-p", "-", input="from a pipe\n")
    assert done.returncode == 0 and "from a pipe" in json.dumps(server.requests[0].body)


def test_json_is_one_object_with_the_fields_of_result_json(play: Any) -> None:
    done, _ = play(
        [call("file_write", path="a.txt", content="x"), say("fine")], "-p", "write", "--output-format", "json"
    )
    end = json.loads(done.stdout)
    assert set(end) == {
        "status", "result", "answer", "question", "turns", "usage", "cost", "session", "files_changed", "denied", "tainted", "error",
    }  # fmt: skip
    assert (end["status"], end["answer"], end["turns"]) == ("done", "fine", 2) and len(end["files_changed"]) == 1


def test_stream_json_is_one_object_a_line_as_it_happens(play: Any) -> None:
    done, _ = play(
        [call("code_run", type="bash", script="echo hi"), say("fine")], "-p", "go", "--output-format", "stream-json"
    )
    items = [json.loads(line) for line in done.stdout.splitlines()]
    assert items[-1]["status"] == "done" and "next" in items[0]
    kinds = [i["event"]["kind"] for i in items if "event" in i]
    assert kinds == ["turn", "tool", "tool_done", "turn"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replies", "args", "code"),
    [([say("fine")], [], 0), ([fail(401, "no")], [], 1), ([call("ask_user", question="Which one?")], [], 4),
     (lambda body, n: call("code_run", type="bash", script="true"), ["--max-turns", "1"], 3), (lambda body, n: say(""), [], 1)],
)  # fmt: skip
def test_exit_codes(play: Any, replies: Any, args: list[str], code: int) -> None:  # C139 C142
    done, _ = play(replies, "-p", "go", *args)
    assert done.returncode == code, done.stderr
    if code == 4:
        assert "Which one?" in done.stdout
    assert (" -p ANSWER goes on" in done.stderr) == (code == 4)


def test_func_writes_beside_its_file(play: Any, tmp_path: Path) -> None:
    file = tmp_path / "prompt.md"
    file.write_text("do it", encoding="utf-8")
    done, server = play([say("did it")], "--func", str(file))
    out = (tmp_path / "prompt.md.out.txt").read_text(encoding="utf-8")
    assert done.returncode == 0 and "did it" in out and out.rstrip().endswith("[ROUND END]")
    assert "ask_user" not in json.dumps(server.requests[0].body["tools"])


@pytest.mark.slow
def test_continue_and_resume_go_on_with_the_conversation(play: Any, ga_home: Path) -> None:
    play([say("the word is zebra")], "-p", "a word?")
    done, server = play([say("again")], "-p", "which?", "--continue")
    assert done.returncode == 0 and "zebra" in json.dumps(server.requests[0].body)
    (journal,) = (ga_home / "sessions").glob("*.jsonl")
    done, server = play([say("again")], "-p", "which?", "--resume", journal.stem[:13])
    assert done.returncode == 0 and "zebra" in json.dumps(server.requests[0].body)


# bad input


def test_no_key_names_the_ways_to_give_one(run_ga: Any) -> None:
    done = run_ga("-p", "hi")
    line = one_line(done)
    assert done.returncode == 1 and "ANTHROPIC_API_KEY" in line and "config.toml" in line and "--demo" in line


def test_a_wrong_key_an_unknown_model_and_an_unreachable_host(play: Any, run_ga: Any) -> None:
    done, _ = play([fail(401, "invalid x-api-key")], "-p", "hi")
    assert done.returncode == 1 and "invalid x-api-key" in one_line(done) and "401" in one_line(done)
    done, _ = play([fail(404, "model: nonsense-9 not found")], "-p", "hi", env={"ANTHROPIC_MODEL": "nonsense-9"})
    assert done.returncode == 1 and "nonsense-9" in one_line(done)
    (config := Path(os.environ["GA_HOME"]) / "config.toml").write_text(
        '[[llm]]\napi = "chat"\nmodel = "m"\napi_key = "k"\nbase_url = "http://127.0.0.1:9/v1"\nmax_retries = 0\n'
    )
    done = run_ga("-p", "hi")
    assert done.returncode == 1 and "127.0.0.1:9" in one_line(done)
    config.unlink()


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [("config.toml", "[[llm]]\nname = \n", "line 2"), ("mykey.py", "x = 1\ny = (\n", "mykey.py:2")],
)
def test_a_syntax_error_in_the_configuration_names_file_and_line(
    run_ga: Any, ga_home: Path, name: str, text: str, line: str
) -> None:
    (ga_home / name).write_text(text, encoding="utf-8")
    done = run_ga("-p", "hi")
    assert done.returncode == 1 and name in one_line(done) and line in one_line(done)
    assert (ga_home / name).read_text(encoding="utf-8") == text


def test_the_good_entry_works_beside_a_broken_one(model_server: Any, run_ga: Any, ga_home: Path) -> None:  # C155
    server = model_server([say("fine")])
    broken = '[[llm]]\nname = "bad"\napi = "soap"\napi_key = "k"\n'
    good = f'[[llm]]\nname = "good"\napi = "anthropic"\napi_key = "k"\nmodel = "m"\nbase_url = "{server.url}"\n'
    (ga_home / "config.toml").write_text(broken + good, encoding="utf-8")
    done = run_ga("-p", "hi")
    assert done.returncode == 0 and done.stdout == "fine\n"
    assert "config.toml:1" in done.stderr, "the broken one is named"


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_request_is_refused(play: Any, text: str, tmp_path: Path) -> None:  # C140
    for args in (["-p", text], ["-p", "-"]):
        done, server = play([say("how can I help?")], *args, input=text)
        assert done.returncode == 2 and "empty" in one_line(done) and server.requests == []
    (tmp_path / "empty").write_text(text)
    done, server = play([say("x")], "--func", str(tmp_path / "empty"))
    assert done.returncode == 2 and server.requests == []
    done, server = play([say("x")], "--func", str(tmp_path / "missing"))
    assert done.returncode == 2 and "missing" in one_line(done) and server.requests == []


def test_a_home_that_cannot_be_written_is_one_line(play: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done, server = play([say("x")], "-p", "hi", env={"GA_HOME": str(tmp_path / "file" / "home")})
    assert done.returncode == 1 and "GA_HOME" in one_line(done) and server.requests == []
    done, server = play([say("x")], "--task", "job", "--input", "hi", env={"GA_HOME": "/proc/nothing-here"})
    assert done.returncode == 1 and "/proc" in one_line(done) and server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_and_the_session_stays_whole(play: Any, ga_home: Path) -> None:
    done, _ = play([say("a" * 3000)], "-p", "hi")
    (journal,) = (ga_home / "sessions").glob("*.jsonl")
    before = journal.read_bytes()
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 200}, {len(before) + 200}))\n"
        f"sys.path.insert(0, {str(ROOT)!r}); import agentmain\n"
        "sys.exit(agentmain.main(['-p', 'and more', '--continue']))"
    )  # the kernel refuses to let any file grow: EFBIG, like ENOSPC in the middle of a record
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL, timeout=60
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cannot write the session file" in done.stderr.splitlines()[-1]
    assert journal.read_bytes().startswith(before)
    assert journal.read_bytes().endswith(b"\n"), "no half line"


def test_a_missing_folder_to_work_in_is_refused(play: Any, tmp_path: Path) -> None:
    done, server = play([say("x")], "-p", "hi", "--cwd", str(tmp_path / "gone"))
    assert done.returncode == 2 and "gone" in one_line(done) and server.requests == []


def test_a_current_folder_that_was_deleted_does_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    command = f"cd '{folder}' && rmdir '{folder}' && exec '{sys.executable}' '{ROOT / 'agentmain.py'}' --version"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "genericagent" in done.stdout, done.stderr


@pytest.mark.slow
def test_half_a_line_at_the_end_of_a_session_is_set_aside(play: Any, ga_home: Path) -> None:  # C040
    play([say("the word is zebra")], "-p", "a word?")
    (journal,) = (ga_home / "sessions").glob("*.jsonl")
    whole = journal.read_bytes()
    for tail in (b'{"crc":"00000000","rec":{"type":"mess', b"\0" * 1000, '{"crc":"é'.encode()[:-1]):
        journal.write_bytes(whole + tail)
        done, server = play([say("again")], "-p", "which?", "--continue")
        assert done.returncode == 0 and "set aside" in done.stderr, done.stderr
        assert "zebra" in json.dumps(server.requests[0].body)
        assert tail in [f.read_bytes() for f in (ga_home / "sessions").glob("*.damaged-*")]
        assert journal.read_bytes().startswith(whole)
        journal.write_bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [b"just a log line\n" * 200_000, b"", b"{}\n", b'{"crc":"0","rec":{"type":"message"}}\n']
)
def test_resuming_what_is_no_session_refuses_and_leaves_it(play: Any, tmp_path: Path, content: bytes) -> None:  # C041
    file = tmp_path / "some.jsonl"
    file.write_bytes(content)
    done, server = play([say("x")], "-p", "hi", "--resume", str(file))
    assert done.returncode == 1 and "not a session" in one_line(done)
    assert file.read_bytes() == content and server.requests == [] and list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_a_hand_edited_call_with_null_arguments_is_listed_and_resumed(
    play: Any, run_ga: Any, ga_home: Path
) -> None:  # C026
    play([call("code_run", type="bash", script="echo hi"), say("ok")], "-p", "run it")
    (journal,) = (ga_home / "sessions").glob("*.jsonl")
    text = journal.read_text(encoding="utf-8")
    edited = text.replace('"input":{"type":"bash","script":"echo hi"}', '"input":null')
    assert edited != text
    journal.write_text(edited, encoding="utf-8")
    assert "run it" in run_ga("sessions").stdout
    done, server = play([say("fine")], "-p", "again", "--continue")
    assert done.returncode == 0 and server.requests[0].body["messages"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [["--nonsense"], ["-p", "x", "--task", "y"], ["--input", "x"], ["--max-turns", "0"], ["--max-turns", "many"], ["-p"],
             ["no/such/folder"], ["--sandbox", "on", "-p", "x"], ["--net", "no", "-p", "x"], ["--llm_no", "x", "-p", "hi"]],
)  # fmt: skip
def test_wrong_usage_is_exit_2_with_one_line(play: Any, args: list[str]) -> None:
    done, server = play([say("x")], *args)
    assert done.returncode == 2 and one_line(done) and server.requests == []


def test_a_model_number_that_is_not_there(play: Any) -> None:
    done, server = play([say("x")], "-p", "hi", "--llm_no", "9")
    assert done.returncode == 2 and "9" in one_line(done) and server.requests == []


# surroundings


@pytest.mark.slow
@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp936"},
    ],
)
def test_a_console_without_the_characters_gets_marks_and_files_get_utf8(
    model_server: Any, ga_home: Path, env: dict[str, str]
) -> None:  # C052 C154
    said = "block \u2588 emoji 😀 中文 é"
    server = model_server([call("file_write", path="out.txt", content=said), say(said), say(said)])
    everything = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url, **env}
    for args in (["--task", "job", "--input", "write é 中文", "--verbose"], ["-p", "say é 中文"]):
        command = [sys.executable, str(ROOT / "agentmain.py"), *args]
        done = subprocess.run(command, capture_output=True, timeout=60, env=everything, stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert b"block" in done.stdout
    assert (ga_home / "temp" / "out.txt").read_bytes() == said.encode()
    assert said in (ga_home / "temp" / "job" / "output.txt").read_bytes().decode("utf-8")


def test_a_socks_proxy_without_its_package_is_named_and_not_tried_again(run_ga: Any, ga_home: Path) -> None:  # C152
    env = {"ALL_PROXY": "socks5://127.0.0.1:9", "all_proxy": "socks5://127.0.0.1:9"}
    for args in (["--help"], ["--version"]):
        done = run_ga(*args, env=env)
        assert done.returncode == 0 and not done.stderr
    blocker = ga_home / "no_socks"
    (blocker).mkdir()
    (blocker / "socks.py").write_text("raise ImportError('not installed')\n")
    env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://provider.invalid", "PYTHONPATH": str(blocker)}
    done = run_ga("--task", "job", "--input", "hi", env=env)
    assert done.returncode == 1 and "socks" in one_line(done).lower() and "pip install" in one_line(done)
    assert "trying again" not in (ga_home / "temp" / "job" / "output.txt").read_text()


def test_a_proxy_in_the_environment_is_not_asked_for_this_machine(play: Any) -> None:  # C152
    env = {"ALL_PROXY": "socks5://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    done, _ = play([say("fine")], "-p", "hi", env=env)
    assert done.returncode == 0 and done.stdout == "fine\n"


def test_a_netrc_entry_does_not_replace_the_key(model_server: Any, run_ga: Any, ga_home: Path) -> None:
    server = model_server([say("fine")])
    (Path(os.environ["HOME"]) / ".netrc").write_text("machine 127.0.0.1 login a password b\n")
    env = {"OPENAI_API_KEY": "key-for-test", "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_MODEL": "m"}
    assert run_ga("-p", "hi", env=env).returncode == 0
    assert server.requests[0].headers["authorization"] == "Bearer key-for-test"


def test_without_a_terminal_the_chat_says_so_and_ends(play: Any) -> None:  # C163
    done, server = play([say("x")])
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1 and "terminal" in done.stderr
    assert server.requests == []


@pytest.mark.skipif(os.name != "posix", reason="closes file descriptors")
@pytest.mark.parametrize("args", [["--help"], ["--version"], ["--task", "job", "--input", "hi"]])
def test_closed_streams_do_no_harm(model_server: Any, ga_home: Path, args: list[str]) -> None:  # C163
    server = model_server([say("fine")])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, str(ROOT / "agentmain.py"), *args]
    assert subprocess.run(command, env=env, timeout=60, check=False).returncode == 0
    if args[0] == "--task":
        assert "fine" in (ga_home / "temp" / "job" / "output.txt").read_text()


def test_a_reader_that_goes_away_does_no_harm(play: Any, ga_home: Path) -> None:
    env = {**os.environ}
    command = f"'{sys.executable}' '{ROOT / 'agentmain.py'}' --help | true"
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_demo_works_without_a_key_beside_any_configuration(run_ga: Any, ga_home: Path) -> None:
    (ga_home / "config.toml").write_text(
        '[[llm]]\napi = "chat"\nmodel = "real"\napi_key = "k"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    done = run_ga("--demo", "-p", "show me", "--output-format", "json")
    end = json.loads(done.stdout)
    assert done.returncode == 0 and "25 primes" in end["answer"] and "script" in done.stderr
    program = next(Path(p) for p in end["files_changed"])
    assert subprocess.run([sys.executable, program], capture_output=True, text=True).stdout.startswith("25 primes")
    assert end["turns"] >= 5


def test_control_codes_of_a_model_reach_files_but_no_terminal(play: Any) -> None:  # C104
    done, _ = play([say("a\x1b]52;c;ZXZpbA==\x07b")], "-p", "hi")
    assert done.stdout == "a\x1b]52;c;ZXZpbA==\x07b\n", "a pipe gets what was said"


def test_the_reply_with_an_unknown_status_is_an_error(play: Any) -> None:
    done, _ = play([Reply(status=200, body=b"<html>login</html>", content_type="text/html")] * 4, "-p", "hi")
    assert done.returncode == 1 and "web page" in one_line(done)


@pytest.mark.slow
def test_a_key_that_the_provider_repeats_is_written_nowhere(play: Any, run_ga: Any, ga_home: Path) -> None:  # C149
    reply = fail(401, "Incorrect API key provided: key-for-test. Mind the dash.")
    for args in (["--task", "job", "--input", "hi"], ["-p", "hi"], ["-p", "hi", "--output-format", "json"]):
        done, _ = play([reply], *args)
        assert done.returncode == 1 and "Incorrect API key" in done.stdout + done.stderr
        assert "key-for-test" not in done.stdout + done.stderr
    files = [f for f in ga_home.rglob("*") if f.is_file()]
    assert "ga.log" in [f.name for f in files]
    assert [f for f in files if b"key-for-test" in f.read_bytes()] == []
    assert [f for f in files if f.suffix in (".jsonl", ".log") and f.stat().st_mode & 0o077] == []


def test_a_stop_while_the_model_writes_is_called_a_stop(model_server: Any, tmp_path: Path) -> None:
    import signal
    import time

    server = model_server([say("word " * 2000, chunk=5, pace=0.02)])
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    command = [sys.executable, str(ROOT / "agentmain.py"), "-p", "hi", "--output-format", "json"]
    program = subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    while not server.requests:
        time.sleep(0.05)
    time.sleep(0.5)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=60)
    end = json.loads(out)
    assert program.returncode == 130 and end["status"] == "interrupted" and "stopped" in end["error"]
    assert end["usage"]["requests"] == 1 and end["usage"]["input"] > 0, "what was generated is paid for"


def test_a_task_that_cannot_start_says_so_in_its_files_and_at_once(run_ga: Any, ga_home: Path) -> None:
    done = run_ga("--task", "job", "--input", "hi")
    folder = ga_home / "temp" / "job"
    assert done.returncode == 1 and json.loads((folder / "result.json").read_text())["status"] == "failed"
    assert (folder / "output.txt").read_text().rstrip().endswith("[ROUND END]")
    done = run_ga("--task", "job", "--input", "hi", "--bg")
    assert done.returncode == 1 and "PID" not in done.stdout and "no model" in one_line(done)
    done = run_ga("--task", "job", "--input", "hi", "--bg", "--config", "/nope.toml")
    assert done.returncode == 1 and "/nope.toml" in one_line(done)


def test_a_resumed_conversation_works_where_it_worked(play: Any, tmp_path: Path) -> None:
    (folder := tmp_path / "project").mkdir()
    play([say("hi")], "-p", "hi", "--cwd", str(folder))
    done, server = play([call("code_run", type="bash", script="pwd"), say("ok")], "-p", "where?", "--continue")
    assert done.returncode == 0 and str(folder) in json.dumps(server.requests[1].body["messages"])


def test_verbose_shows_the_work_on_stderr_and_the_answer_alone_on_stdout(play: Any) -> None:
    done, _ = play([call("code_run", type="bash", script="echo noise"), say("fine")], "-p", "go", "--verbose")
    assert done.stdout == "fine\n" and "noise" in done.stderr


def test_a_ledger_that_cannot_be_read_ends_the_task_with_one_line(play: Any, ga_home: Path) -> None:
    (ga_home / "spend").write_text("not a folder")
    done, _ = play([say("ok")], "-p", "hi", timeout=60)
    assert done.returncode == 1 and "spend" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("end", ["import sys; sys.exit(0)", "raise KeyboardInterrupt"])
def test_a_plugin_that_exits_is_reported_and_skipped(play: Any, ga_home: Path, end: str) -> None:
    folder = ga_home / "plugins"
    folder.mkdir()
    (folder / "a_import.py").write_text(f"print('NOISE')\n{end}\n")
    (folder / "b_hook.py").write_text(
        f"from plugins import hooks\n@hooks.register('llm_before')\ndef f(ctx):\n    {end}\n"
    )
    done, _ = play([say("fine")], "-p", "hi", timeout=60)
    assert (done.returncode, done.stdout) == (0, "fine\n") and "a_import" in done.stderr
    (ga_home / "mykey.py").write_text(end)
    done, server = play([say("fine")], "-p", "hi", timeout=60)
    assert done.returncode == 1 and "mykey.py" in one_line(done) and server.requests == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "env"), [(["--cwd", "~nouser-here"], {}), (["--config", "~nouser-here/x"], {}), ([], {"GA_HOME": "~nouser-here"}),
                      (["--cwd", ""], {}), (["--resume", ""], {}), (["--config", ""], {}), (["--max-time", "nan"], {}), (["--llm_no", "-1"], {})],
)  # fmt: skip
def test_odd_values_are_one_line(play: Any, args: list[str], env: dict[str, str]) -> None:
    done, server = play([say("x")], "-p", "hi", *args, env=env)
    assert done.returncode in (1, 2) and one_line(done) and server.requests == []


def test_a_very_long_time_limit_is_fine(play: Any) -> None:
    done, _ = play([say("fine")], "-p", "hi", "--max-time", "1e11")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_bytes_on_stdin_that_are_no_text_are_no_traceback(play: Any) -> None:
    server_env = {"PYTHONIOENCODING": "utf-8:strict"}
    command = f"printf 'hi \\377' | '{sys.executable}' '{ROOT / 'agentmain.py'}' -p -"
    done = subprocess.run(
        ["bash", "-c", command], env={**os.environ, **server_env}, capture_output=True, text=True, timeout=30
    )
    assert "Traceback" not in done.stderr and "no model" in done.stderr


@pytest.mark.parametrize("flag", ["-P", "-I"])
def test_pythons_safe_modes_find_the_program(flag: str) -> None:
    done = subprocess.run(
        [sys.executable, flag, str(ROOT / "agentmain.py"), "--version"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "genericagent" in done.stdout, done.stderr


def test_result_json_is_valid_whatever_the_model_says(model_server: Any, run_ga: Any, ga_home: Path) -> None:
    block = '<tool_use>{"name":"ask_user","arguments":{"question":"q\\ud800","candidates":["a"]}}</tool_use>'
    server = model_server([say(block)])
    (ga_home / "config.toml").write_text(
        f'[[llm]]\ntype = "claude"\nmodel = "m"\napi_key = "k"\nbase_url = "{server.url}"\n'
    )
    done = run_ga("--task", "job", "--input", "hi")
    assert done.returncode == 4
    json.loads((ga_home / "temp" / "job" / "result.json").read_bytes().decode("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "history",
    ['[{"role":"user","content":["hi"]}]', '[{"role":"user","content":[{"type":"text"}]}]', "[5]", "[" * 100_000, "{}"],
)
def test_a_history_of_nonsense_is_refused(play: Any, tmp_path: Path, history: str) -> None:
    (tmp_path / "h.json").write_text(history)
    done, server = play([say("x")], "--task", "job", "--input", "hi", "--history", str(tmp_path / "h.json"))
    assert done.returncode in (1, 2) and one_line(done) and server.requests == []


def test_arguments_nested_beyond_all_measure_are_told_to_the_model(play: Any) -> None:  # C020
    # a process of its own: at the limit of recursion pytest's own hooks fail
    nested = '{"path":"d.txt","content":' + "[" * 3000 + "]" * 3000 + "}"
    reply = Reply(tools=[Tool("file_write", nested), Tool("code_run", {"type": "bash", "script": "echo ran"})])
    done, server = play([reply, say("done")], "-p", "go")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "NOT run" in json.dumps(server.requests[1].body) and "ran" in json.dumps(server.requests[1].body)


@pytest.mark.parametrize(
    "args",
    [
        ["schedule", "remove", "x" * 5000],
        ["import", "x" * 5000],
        ["x" * 300],
        ["web", "--demo", "--once"],
        ["web", "--demo", "--wait", "0"],
        ["web", "--demo", "--approve="],
        ["", "-p", "hi"],
        ["--func", ""],
    ],
)
def test_words_that_mean_nothing_are_taken_or_fill_the_screen(run_ga: Any, args: list[str]) -> None:
    done = run_ga(*args)
    assert done.returncode in (1, 2) and done.stdout == "" and len(done.stderr) < 2_100, done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: "), done.stderr
