"""No escape sequence from a model, a tool, a name, a page or a configuration reaches the terminal: the real program in
a real pseudo-terminal, every byte that it writes looked at. tests/safety/test_term.py has the filter alone.  # C104 C107"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal

from genericagent.scripted import Reply, ScriptedServer, Tool, call, fail, say

E, ST, BEL = "\x1b", "\x1b\\", "\x07"
# Each with parameters that the program itself never writes, so that it can be told from the program's own.
SEQUENCES = [
    f"{E}]52;c;cm0gLXJmIH4K{BEL}", f"{E}]52;p;cm0gLXJmIH4K{ST}", f"{E}]52;c;?{BEL}", "\x9d52;c;cm0g\x9c", f"{E}]50;font{BEL}",
    f"{E}]0;title-77{BEL}", f"{E}]1;icon-77{BEL}", f"{E}]2;title-77{ST}", f"{E}[22;77t", f"{E}[21;77t", f"{E}[8;77;77t",
    f"{E}]4;77;rgb:ff/00/00{BEL}", f"{E}]10;?{BEL}", f"{E}]11;#777777{ST}", f"{E}]104;77{BEL}", f"{E}]7;file://evil/77{ST}",
    f"{E}]8;;http://evil.test/77{ST}", f"{E}]8;id=77;http://evil.test{BEL}", f"{E}]8;;{ST}", f"{E}]9;4;1;77{BEL}", f"{E}]9;note-77{ST}",
    f"{E}]99;i=77;kitty{ST}", f"{E}]777;notify;a;77{BEL}", f"{E}]133;A;77{BEL}", f"{E}]633;E;rm 77{BEL}", f"{E}]1337;File=inline=1:Nzc={BEL}",
    f"{E}]1337;SetUserVar=a=Nzc={BEL}", f"{E}]1337;CursorShape=1;77{ST}", f"{E}]5522;type=read;77{ST}", f"{E}]66;s=7;big-77{ST}",
    f"{E}P1;77|17/17{ST}", f"{E}P+q77{ST}", f"{E}P$q77m{ST}", f"{E}Pq#0;2;0;0;0#0~~@@77{ST}", f"{E}Ptmux;{E}{E}]52;c;77{BEL}{ST}", "\x9077$qm\x9c",
    f"{E}_Gf=100,a=T,i=77;AAAA{ST}", f"{E}_77{ST}", "\x9f77\x9c", f"{E}^77{ST}", "\x9e77\x9c", f"{E}X77{ST}", "\x9877\x9c", f"{E}k77{ST}",
    f"{E}[77A", f"{E}[7;77H", f"{E}[77;7f", f"{E}[77J", f"{E}[3J", f"{E}[77K", f"{E}[77S", f"{E}[7;77r", f"{E}[77L", f"{E}[77P", f"{E}[77b",
    f"{E}[?1049h", f"{E}[?47h", f"{E}[?1000;1006h", f"{E}[?1004h", f"{E}[?2026h", f"{E}[?69h", f"{E}[?5h", f"{E}[20h", f"{E}[200~", f"{E}[201~",
    f"{E}[77c", f"{E}[>77c", f"{E}[=77c", f"{E}[6;77n", f"{E}[>77q", f"{E}[77;1x", f"{E}[>77u", f"{E}[?77u", f"{E}[=77u", f"{E}[>4;77m", f"{E}[77 q",
    f"{E}[77i", f"{E}[!p", f"{E}[77'z", f"{E}[77*y", f"{E}[77;77m", f"{E}[8;77m", f"{E}[38:2::77:0:0m", "\x9b77;7H", "\x9b7;31m",
    f"{E}c", f"{E}7", f"{E}8", f"{E}D", f"{E}M", f"{E}Z", f"{E}=", f"{E}>", f"{E}n", f"{E}|", f"{E}(0", f"{E})B", f"{E}#8", f"{E}%G", f"{E} G", f"{E}~",
    "\x05", "\x07", "\x0e", "\x0f", "\x11", "\x13", "\x18", "\x1a", "\x7f", "\x84", "\x85", "\x8d", "\x8e", "\x8f", "\x96", "\x9a", "\x9c",
    "\u202e", "\u202d", "\u2066", "\u2067", "\u2068", "\u2069", "\u202a", "\u202c", "\u2028", "\ufff9", "\ufffb",
    f"{E}[7{E}[77m", f"{E}{E}]0;77{BEL}", f"{E}]0;77{E}]52;c;77{BEL}", f"{E}P77{E}]52;c;77{BEL}{ST}", f"{E}[7;\x9b77m", f"{E}[77\n;7H", f"{E}]2;77\n{BEL}",
]  # fmt: skip
MARKS = [f"<{n}>" for n in range(len(SEQUENCES))]
EVIL = "".join(map("".join, zip(MARKS, SEQUENCES, strict=True))) + "end"
NAME = EVIL.replace("/", "_").encode()[:200].decode("utf-8", "ignore")  # as a file may be called
SHORT = f"{E}]52;c;cm0g{BEL}{E}[7;77H\x9b77;7H\u202e{E}]0;77{BEL}{E}[201~{E}c"

# What prompt_toolkit and rich write: colours, cursor moves, erasing, and modes that are switched back
OWN = re.compile(
    rb"\x1b\[[0-9;]*m|\x1b\[\?(?:2004|25|7|12|1)[hl]|\x1b\[[0-2]?[JK]|\x1b\[\d*[ABCD]|\x1b\[>4;?\d?m|\x1b\[H|\r|\n|\t|\x08"
)


TITLE = re.compile(rb"\x1b\]2;(?:[^\x00-\x1f\x7f]*GenericAgent)?\x07")  # ours, of the task that runs


def reached(raw: bytes, own: re.Pattern[bytes] = OWN) -> list[str]:
    """What no program of ours writes, and each sequence that came through as it was."""
    raw = TITLE.sub(b"", raw)
    text = own.sub(b"", raw).decode("utf-8", "backslashreplace")
    found = [
        s for s in SEQUENCES
        if s.encode() in raw and not re.fullmatch(r"\x1b\[\d+;?\d*m|\x1b[DM78=>]", s)
    ]  # fmt: skip
    return found + re.findall("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\ufff9-\ufffb].{0,12}", text)


def ended(raw: bytes) -> bool:
    return b"tokens in" in raw or b"failed" in raw


PLAIN = re.compile(rb"\r|\n|\t")  # all that may be written where there is no cursor to move


@pytest.fixture
def serve(ga_home: Path) -> Any:
    """Configure a model with that name and these replies."""
    servers: list[ScriptedServer] = []

    def build(replies: Any, name: str = "model", more: str = "", retries: int = 0) -> ScriptedServer:
        servers.append(ScriptedServer(replies))
        (ga_home / "config.toml").write_text(
            f'[[llm]]\napi = "anthropic"\nname = {json.dumps(name)}\nmodel = {json.dumps("m " + name)}\napi_key = "key-for-test"\n'
            f'base_url = "{servers[-1].url}"\nmax_retries = {retries}\n{more}'
        )
        return servers[-1]

    yield build
    for server in servers:
        server.close()


def environment(term: str = "xterm-256color") -> dict[str, str]:
    return {**os.environ, "TERM": term, "PYTHONIOENCODING": "utf-8", "LANG": "C.UTF-8"}


def task() -> list[Reply]:
    """Every source in one task."""
    prints = f"import sys; sys.stdout.write({EVIL!r} + '\\n'); sys.stderr.write({EVIL!r}); sys.stdout.buffer.write({SHORT.encode('latin-1', 'ignore')!r})"
    return [
        Reply(text=f"<summary>{SHORT}{EVIL}</summary># {EVIL}\n\n```py\n{EVIL}\n```\n| a | b |\n|---|---|\n| {SHORT} | `{SHORT}` |\n",
              thinking=EVIL, tools=[Tool("code_run", {"type": "python", "script": prints})]),
        Reply(text=EVIL, chunk=1, tools=[Tool("code_run", {"type": "bash", "script": f"# {EVIL}\nfalse"})]),
        Reply(text="&#x202e;&#27;]0;77&#7; &#x9b;77m [link](http://x/\x1b]52;c;77\x07) <b>\x1b[77m</b> ![i](\x1bc)", chunk=2,
              tools=[Tool("code_run", {"type": "python", "script": f"raise ValueError({EVIL!r})"})]),
        call("file_write", path=NAME.replace("\x00", ""), content=EVIL),
        call("file_patch", path=NAME, old_content="no such text", new_content=EVIL),
        call("file_read", path=NAME),
        call("file_read", path=f"missing{NAME}"),
        call("file_read", path=".", keyword=EVIL),
        call(f"tool_{SHORT}", argument=EVIL, **{SHORT: 1}),
        Reply(tools=[Tool("code_run", json.dumps({"script": EVIL})[:-9])]),
        call("code_run", type=EVIL, script="x"),
        call("code_run", type="python", script="x", timeout=EVIL),
        call("code_run", type="python", script="print(1)", cwd=f"/nowhere{NAME}"),
        call("web_scan", text_only=True, switch_tab_id=EVIL),
        call("web_execute_js", script=EVIL),
        call("update_working_checkpoint", key_info=EVIL),
        call("ask_user", question=EVIL, candidates=[EVIL, SHORT, f"x{SHORT}"]),
    ]  # fmt: skip


def test_the_list_is_long_enough_and_the_check_sees_each() -> None:
    assert len(SEQUENCES) > 120
    silent = [s for s in SEQUENCES if not reached(f"a{s}b".encode()) and not OWN.fullmatch(s.encode())]
    assert silent == []


@pytest.mark.slow
@pytest.mark.parametrize(("term", "own"), [("xterm-256color", OWN), ("dumb", PLAIN)])
@pytest.mark.parametrize("verbose", [False, True])
def test_a_sequence_in_a_chat(
    serve: Callable[..., ScriptedServer], tmp_path: Path, term: str, own: re.Pattern[bytes], verbose: bool
) -> None:
    folder = tmp_path / f"work{SHORT}"
    folder.mkdir()
    turns = task()
    replies = [*turns, Reply(text=EVIL, error_event={"type": "error", "error": {"type": "x", "message": EVIL}}),
               fail(401, EVIL), Reply(status=302, headers={"Location": f"http://127.0.0.1:9/{EVIL.encode('ascii', 'ignore').decode()}".replace("\n", "")}),
               Reply(status=200, body=f"<title>{EVIL}</title>".encode(), content_type="text/html"),
               Reply(text="fine <tool_use>", stop=SHORT, model=SHORT), say("the last one")]  # fmt: skip
    more = (
        '[ui]\nbell = "off"\n'  # each sound is somebody else's
        f"[{json.dumps('section' + SHORT)}]\nx = 1\n[prices.{json.dumps('m' + SHORT)}]\ninput = {json.dumps(SHORT)}\n"
    )
    server = serve(replies, f"name{EVIL}", more)
    with Terminal([str(folder)], environment(term), tmp_path) as t:
        t.until("❯" if term != "dumb" else "> ")
        if verbose:
            t.send("/verbose\r")
            t.until("/verbose")
        for n in range(len(replies) - len(turns) + 1):
            t.send(f"question {n}\r")
            # of the two words that may tell an end the second may come late: look behind this question alone
            asked = f"question {n}".encode()
            t.until(
                lambda asked=asked: ended(t.raw.rpartition(asked)[2]) > 0 and (term != "dumb" or t.raw.endswith(b"> "))
            )  # type: ignore[misc]
        for command in ("/llm", "/resume", "/session.temperature=x", "/cost", "/nonsense", "/llm no-such"):
            t.send(f"{command}\r")
            t.until_idle()
        t.send("\x04")
        t.wait()
    assert b"<0>" in t.raw and b"<50>" in t.raw and len(server.requests) > len(turns)
    assert reached(t.raw, own) == []


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "args"), [("-p", []), ("-p", ["--verbose"]), ("--task", ["--verbose"])])
def test_a_sequence_in_one_task_at_a_terminal(
    serve: Callable[..., ScriptedServer], tmp_path: Path, ga_home: Path, mode: str, args: list[str]
) -> None:
    start = ["-p", "go"] if mode == "-p" else ["--task", "job", "--input", "go"]
    more = f"[{json.dumps('section' + SHORT)}]\nx = 1\n"
    (ga_home / "plugins").mkdir()
    (ga_home / "plugins" / "evil.py").write_text(f"raise ValueError({SHORT!r})\n", encoding="utf-8")
    for replies in (
        task(), [say(EVIL)], [fail(401, EVIL)], [fail(429, EVIL, retry_after="0"), say(SHORT)], [say(f"<summary>{SHORT}</summary>fine")],
        [Reply(status=302, headers={"Location": "http://127.0.0.1:9/" + re.sub("[^\x20-\x7e\x1b\x07]", "", EVIL)})],
    ):  # fmt: skip
        server = serve(replies, f"name{SHORT}", more, retries=1)
        with Terminal([*start, *args, "--cwd", str(tmp_path)], environment(), tmp_path) as t:
            t.wait()
        assert server.requests and t.raw
        assert reached(t.raw, PLAIN) == [], t.raw[-500:]


@pytest.mark.slow
def test_a_sequence_in_the_command_line_or_in_saved_sessions(
    serve: Callable[..., ScriptedServer], tmp_path: Path, run_ga: Any
) -> None:
    serve([say(f"<summary>{SHORT}{EVIL}</summary>fine")])
    assert run_ga("-p", f"first {EVIL}".replace("\x00", "")).returncode == 0
    for last in (["-p", "again", "--continue"], ["sessions"], ["sessions", "nothing"], ["-p", "x", "--resume", f"no{NAME}".replace("\x00", "")],
                 ["--cwd", f"/no{NAME}".replace("\x00", "")], [f"--no{SHORT}"], ["--config", f"/no{NAME}".replace("\x00", ""), "-p", "x"],
                 ["--func", f"/no{NAME}".replace("\x00", "")], ["--task", f"no{SHORT}", "--input", "x"]):  # fmt: skip
        serve([say(EVIL)], f"name{SHORT}")
        with Terminal(last, environment(), tmp_path) as t:
            t.wait()
        assert reached(t.raw, PLAIN) == [], (last, t.raw[-500:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", "[[llm]]\napi = " + json.dumps(SHORT) + "\n"), ("config.toml", json.dumps("k" + SHORT) + " = 1\n"),
        ("config.toml", "[[llm]]\nbase_url = " + json.dumps(SHORT) + "\n"), ("config.toml", "[limits]\nmax_turns = " + json.dumps(SHORT) + "\n"),
        ("mykey.py", f"raise ValueError({SHORT!r})\n"), ("mykey.json", "[" + json.dumps(SHORT) + "]"), ("mykey.json", json.dumps({f"x{SHORT}": {"apikey": "k"}})),
        ("config.toml", f"[[llm]]\nname = {SHORT}\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("args", [["-p", "x"], []])
def test_a_sequence_in_a_configuration(ga_home: Path, tmp_path: Path, name: str, text: str, args: list[str]) -> None:
    (ga_home / name).write_text(text, encoding="utf-8")
    with Terminal(args, environment(), tmp_path) as t:
        t.until("error" if args else "\n")
        if not args:
            t.send("\x04")
        t.wait()
    assert reached(t.raw, PLAIN if args else OWN) == []


def test_a_pipe_gets_the_answer_as_it_is(serve: Callable[..., ScriptedServer], run_ga: Any) -> None:  # C107 C151
    serve([say(f"a{E}[77mb\u202ec")])
    done = run_ga("-p", "go")
    assert done.stdout == f"a{E}[77mb\u202ec\n" and E not in done.stderr
