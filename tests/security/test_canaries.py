"""Twelve keys of different shapes and places, every fault that repeats one, and then a look for them everywhere.

The scripted provider, tools, plugins and the model itself repeat all twelve in each fault, in many encodings. What the
user asked for stays exact: files, arguments, and what the model is told of them.  # C149 C151
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from terminal import PROGRAM, Terminal

from genericagent.scripted import Reply, ScriptedServer, Tool, call, fail, say

CANARIES = {
    "config.toml": "sk-ant-api03-Canary_toml-0a1B2c3D4e5F6g7H8i9J",
    "mykey.py": "sk-proj-Canary/py+0a1B2c3D4e5F==",
    "mykey.json": 'canary"json\\0a1B2c3D/&x=y',
    "env:": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "cmd:": "c0ffee00c0ffee11c0ffee22c0ffee33",
    "environment": "gsk_CanaryEnvironment0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P",
    "telegram": "123456789:AACanaryTelegram-0a1B2c3D4e5F6g7H8i",
    "member of a mixin": "xai-CanaryMember0a1B2c3D",
    "mistyped name": "kyeCanary0a1B2c3D",
    "mistyped section": "987654321:AACanarySection-0a1B2c3D4e5F6g7H8i",
    "broken entry": "eyJhbGciOiJIUzI1NiJ9.CanaryBroken0a1B2c3D4e5F." + "Zm9vYmFy0a1B" * 8,
    "proxy": "Canary%2Fproxy%400a1B2c3D",
}
ALL = " ".join(CANARIES.values())
KNOWN = ALL.replace(
    CANARIES["cmd:"], ""
)  # what a command gives is known once it was asked: before the first model call
KEPT = ("config.toml", "mykey.py", "mykey.json", "key.txt", "leaky.py", "exact.ini", "exact.txt")  # the user's own
PRINTS = """
import base64, json, sys, urllib.parse as u
for key in {keys!r}:
    data = key.encode()
    print(key, json.dumps(key), u.quote(key, safe=""), u.quote_plus(key), data.hex(), data.hex().upper(), repr(key))
    for n in range(4):
        print(base64.b64encode(b"x" * n + data + b"tail").decode(), base64.urlsafe_b64encode(b"x" * n + data).decode())
    print(base64.encodebytes(b"HOME=/home/someone\\nKEY=" + data + b"\\n" + b"PATH=/usr/bin\\n" * 20).decode())
    print(key, file=sys.stderr)
"""


def forms(key: str) -> dict[str, str]:
    """What may not be found, by name; base64 without the characters that depend on the surroundings."""
    data, escaped = key.encode(), json.dumps(key)[1:-1]
    found = {
        "plain": key, "json": escaped, "json twice": json.dumps(escaped)[1:-1], "url": quote(key, safe=""), "path": quote(key),
        "form": quote_plus(key), "url, lower": re.sub("%..", lambda m: m[0].lower(), quote(key, safe="")), "python": repr(key)[1:-1],
        "hex": data.hex(), "HEX": data.hex().upper(),
    }  # fmt: skip
    for n in range(3):
        for name, encode in (("base64", base64.b64encode), ("base64 for URLs", base64.urlsafe_b64encode)):
            whole = encode(b"x" * n + data).decode().rstrip("=")
            found[f"{name}, {n} before"] = whole[(0, 2, 3)[n] : len(whole) - 1]
    return found


FORMS = {(place, form): text for place, key in CANARIES.items() for form, text in forms(key).items()}


def leaks(data: bytes) -> list[tuple[str, str]]:
    text = data.decode("utf-8", "replace")
    unwrapped = re.sub(r"\r?\n", "", text)
    return [
        name for name, form in FORMS.items() if form in text or (name[1].startswith("base64") and form in unwrapped)
    ]


def leaking_files(*roots: Path) -> list[Any]:
    files = [f for root in roots for f in root.rglob("*") if f.is_file() and f.name not in KEPT]
    return [(str(f), found) for f in files if (found := leaks(f.read_bytes()))]


@pytest.fixture
def world(ga_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedServer]:
    """Write the configuration that holds the canaries, for a server with these replies."""
    servers: list[ScriptedServer] = []
    monkeypatch.setenv("CANARY_VARIABLE", CANARIES["env:"])
    monkeypatch.setenv("OPENAI_API_KEY", CANARIES["environment"])
    (tmp_path / "key.txt").write_text(CANARIES["cmd:"] + "\n")

    def build(replies: Any, api: str = "anthropic", **extra: Any) -> ScriptedServer:
        servers.append(ScriptedServer(replies))
        url = servers[-1].url + ("" if api == "anthropic" else "/v1")
        entry = f'[[llm]]\napi = "{api}"\nmodel = "m"\nmax_retries = 0\nbase_url = "{url}"\n'
        more = "".join(f"{k} = {json.dumps(v)}\n" for k, v in extra.items())
        other = '[[llm]]\napi = "chat"\nmodel = "m"\nbase_url = "https://other.invalid/v1"\n'
        (ga_home / "config.toml").write_text(
            f'{entry}name = "main"\napi_key = "cmd:cat {tmp_path}/key.txt"\n{more}'
            f'{other}name = "toml"\napi_key = "{CANARIES["config.toml"]}"\n'
            f'{other}name = "env"\napi_key = "env:CANARY_VARIABLE"\n'
            f'{other}name = "member"\napi_key = "{CANARIES["member of a mixin"]}"\n'
            f'[[llm]]\nname = "both"\nmembers = ["main", "member"]\n'
            f'{other}name = "typo"\napikye = "{CANARIES["mistyped name"]}"\n'
            f'{other}name = "proxied"\napi_key = "k-other"\nproxy = "http://someone:{CANARIES["proxy"]}@127.0.0.1:9"\n'
            f'[[llm]]\nname = "broken"\napi = "soap"\napi_key = "{CANARIES["broken entry"]}"\n'
            f'[telegram]\ntoken = "{CANARIES["telegram"]}"\n'
            f'[telegarm]\ntoken = "{CANARIES["mistyped section"]}"\n'
        )  # fmt: skip
        (ga_home / "mykey.py").write_text(f"native_oai_config = {{'apikey': {CANARIES['mykey.py']!r}}}\n")
        (ga_home / "mykey.json").write_text(json.dumps({"oai": {"apikey": CANARIES["mykey.json"]}}))
        return servers[-1]

    yield build
    for server in servers:
        server.close()


def check(done: subprocess.CompletedProcess[str], *roots: Path) -> None:
    assert done.returncode >= 0
    assert leaks(done.stdout.encode()) == [] and leaks(done.stderr.encode()) == [], done.stdout + done.stderr
    assert leaking_files(*roots) == []


def everywhere(ga_home: Path, tmp_path: Path) -> tuple[Path, ...]:
    return ga_home, Path(os.environ["HOME"]), tmp_path


def conversation(api_text: bool = False) -> list[Reply]:
    """A task in which everything repeats the keys."""
    script, long = (
        PRINTS.format(keys=list(CANARIES.values())),
        "for n in range(20):" + PRINTS.format(keys=list(CANARIES.values())).replace("\n", "\n "),
    )
    behind = (
        f"import os, sys, time\nif os.fork() == 0:\n os.setsid(); time.sleep(0.3); print({ALL!r}); sys.stdout.flush()\n"
    )
    return [
        Reply(text=f"<summary>I read {ALL}</summary>I see {ALL}", tools=[Tool("code_run", {"type": "python", "script": script})]),
        Reply(text=ALL, chunk=3, thinking="" if api_text else f"the keys are {ALL}", tools=[Tool("code_run", {"type": "python", "script": long})]),
        call("code_run", type="python", script=f"raise ValueError({ALL!r})"),
        call("code_run", type="bash", script="env; env | base64; env | od -c | head -5; cat $GA_HOME/config.toml $GA_HOME/mykey.*"),
        call("code_run", type="python", script=behind),
        call("file_read", path=f"/nowhere/{ALL.replace('/', '_')}"),
        call("file_read", path=f"missing-{CANARIES['config.toml']}.txt"),
        call("file_write", path="exact.ini", content=f"token = {ALL}\n"),
        call("file_patch", path="exact.ini", old_content=CANARIES["env:"] + " not there", new_content=ALL),
        call("code_run", type="python", script=f"import sys; open('exact.txt', 'w').write({ALL!r})"),
        call("file_read", path="exact.ini"),
        call("update_working_checkpoint", key_info=f"remember {ALL}"),
        call(f"unknown_{CANARIES['cmd:']}", argument=ALL),
        Reply(tools=[Tool("code_run", '{"script": "' + CANARIES["config.toml"])]),
        call("web_scan", text_only=True, switch_tab_id=CANARIES["telegram"]),
        call("code_run", type="bash", script="true", timeout=ALL),
        call("ask_user", question=f"Is it {ALL}?", candidates=[CANARIES["config.toml"], f"or {CANARIES['mykey.json']}", ALL]),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ("-p", "go {}", "--verbose"), ("-p", "go {}", "--output-format", "json"), ("-p", "go", "--output-format", "stream-json", "--verbose"),
        ("--task", "job", "--input", "go", "--verbose"), ("--func", "prompt.md"), ("-p", "{}" * 40),
    ],
    ids=lambda args: " ".join(args)[:40],
)  # fmt: skip
def test_a_run_in_which_everything_repeats_the_keys(
    world: Any, run_ga: Any, ga_home: Path, tmp_path: Path, args: tuple[str, ...]
) -> None:
    server = world(conversation())
    workspace = tmp_path / "work"
    workspace.mkdir()
    (tmp_path / "prompt.md").write_text("go")
    done = run_ga(*(a.replace("{}", KNOWN + " ") for a in args), "--cwd", str(workspace), cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert len(server.requests) == len(conversation()), done.stderr
    for request in server.requests[0].raw, *(r.raw for r in server.requests[-1:]):
        assert request  # the provider gets what it needs; its own words come back to it as they were
    said = [b for m in server.requests[-1].body["messages"] for b in m["content"] if b["type"] == "tool_use"]
    assert any(b["input"].get("content") == f"token = {ALL}\n" for b in said), "arguments in memory stay exact"
    assert (workspace / "exact.ini").read_text() == f"token = {ALL}\n"  # C151
    assert (workspace / "exact.txt").read_text() == ALL
    mine = [f for f in (ga_home / "temp").glob("_requests/*")]
    for file in mine:
        assert CANARIES["telegram"] in file.read_text(), "a long request is kept as it was, for the model to read"
        file.unlink()
    check(done, *everywhere(ga_home, tmp_path))
    private(ga_home)
    if "stream-json" in args:
        deltas = "".join(json.loads(line).get("next", "") for line in done.stdout.splitlines())
        assert "[a key]" in deltas and leaks(deltas.encode()) == [], "cut over two deltas"


def private(home: Path) -> None:
    """Nothing that holds conversation or keys can be read by others."""
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    inside = [
        f
        for f in home.rglob("*")
        if f.is_file() and not f.is_relative_to(home / "memory") and f.name not in ("leaky.py",)
    ]
    assert len(inside) > 4
    assert [(str(f), oct(f.stat().st_mode)) for f in inside if f.stat().st_mode & 0o077] == []


FAULTS: dict[str, Reply] = {
    "401 that repeats the key": fail(401, f"invalid x-api-key: {ALL}"),
    "error body in JSON of another shape": Reply(status=403, body=json.dumps({"detail": {"received": ALL}}).encode()),
    "error body cut in the middle of a key": fail(401, "x" * 360 + CANARIES["cmd:"] + CANARIES["broken entry"] * 9),
    "error page": Reply(status=502, body=f"<html><title>{ALL}</title>{ALL}</html>".encode(), content_type="text/html"),
    "plain error": Reply(status=500, body=ALL.encode(), content_type="text/plain"),
    "error event in the stream": Reply(text=f"I say {ALL}", error_event={"type": "error", "error": {"type": "x", "message": ALL}}),
    "redirect with the key": Reply(status=302, headers={"Location": f"http://127.0.0.1:9/?key={quote(CANARIES['cmd:'])}&{quote(ALL)}"}),
    "no answer but a page": Reply(status=200, body=f"<title>{ALL}</title>".encode(), content_type="text/html"),
    "no answer but JSON": Reply(status=200, body=json.dumps({"message": ALL}).encode(), content_type="application/json"),
    "stop reason and model name": Reply(text="fine", stop=ALL[:60], model=CANARIES["cmd:"]),
    "header": Reply(text="fine", headers={"x-request-id": ALL.replace('"', "")}),
    "broken off": Reply(text=ALL, drop_text=40),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "api"),
    [*((fault, "anthropic") for fault in FAULTS), *((fault, api) for fault in list(FAULTS)[:1] + list(FAULTS)[5:6] for api in ("chat", "responses"))],
)  # fmt: skip
def test_a_provider_that_repeats_the_keys(
    world: Any, run_ga: Any, ga_home: Path, tmp_path: Path, fault: str, api: str
) -> None:
    world([FAULTS[fault]] * 4, api)
    done = run_ga("-p", "go", "--verbose")
    check(done, *everywhere(ga_home, tmp_path))
    assert "[a key]" in done.stderr or "fine" in done.stdout or done.returncode == 1


def test_a_plugin_and_a_tool_that_raise_with_the_keys(
    world: Any, run_ga: Any, ga_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # a compiled plugin holds what its author wrote into it
    world([call("file_read", path="x"), say("fine")])
    folder = ga_home / "plugins"
    folder.mkdir()
    hook = (
        f"from plugins import hooks\n@hooks.register('tool_before')\ndef fails(ctx):\n    raise ValueError({ALL!r})\n"
    )
    (folder / "leaky.py").write_text(f"import sys\nprint({ALL!r}, file=sys.stderr) if 0 else None\n{hook}")
    done = run_ga("-p", "go")
    assert done.returncode == 0 and "ValueError" in (ga_home / "logs" / "ga.log").read_text()
    check(done, *everywhere(ga_home, tmp_path))
    (folder / "leaky.py").write_text(f"raise RuntimeError({KNOWN!r})\n")
    done = run_ga("-p", "go")
    assert "RuntimeError" in done.stderr
    check(done, *everywhere(ga_home, tmp_path))
    (folder / "leaky.py").write_text(
        f"from plugins import hooks\n@hooks.register('turn_before')\ndef bug(ctx):\n    ctx['client'].chat = {ALL!r}\n"
    )
    done = run_ga("-p", "go")
    assert done.returncode == 1
    check(done, *everywhere(ga_home, tmp_path))


def test_a_bug_in_the_program_with_a_key_in_its_traceback(world: Any, ga_home: Path, tmp_path: Path) -> None:
    world([say("fine")])
    code = (
        f"import sys, threading; sys.path.insert(0, {str(Path(PROGRAM).parent)!r}); import agentmain\n"
        "from genericagent.cli import one_shot\n"
        "def broken(*a, **k):\n"
        "    agent = a[1](); agent.client.backend.model.resolve_key()\n"
        f"    key = {ALL!r}\n"
        "    t = threading.Thread(target=lambda: {}[key]); t.start(); t.join()\n"
        "    print('one line', key, file=sys.stderr); sys.stderr.writelines([key, '\\n'])\n"
        "    raise KeyError(key)\n"
        "one_shot.run_prompt = broken\n"
        "sys.exit(agentmain.main(['-p', 'hi']))\n"
    )
    file = tmp_path / "leaky.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stderr.count("KeyError: ") == 2 and "one line [a key]" in done.stderr
    check(done, *everywhere(ga_home, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mykey.py", "config = {{'apikey': '{k}'}}\nraise ValueError(config)\n"), ("mykey.py", "native_oai = {{'apikey': '{k}'\n"),
        ("mykey.py", "api_key = '{k}'\nnative_oai = {{'apikey': api_key}}\n{{}}[api_key]\n"), ("mykey.py", "api_key = '{k}\n"),
        ("mykey.py", "native_oai = {{'apikey': sk_{w}}}\n"), ("mykey.json", '{{"oai": {{"apikey": "{k}"}}, }}'),
        ("config.toml", '[[llm]]\napi_key = "{k}\nname = 1\n'), ("config.toml", '[[llm]]\napi_key = {k}\n'),
        ("config.toml", '[[llm]]\nmodel = "m"\napi_key = "{k}"\nbase_url = "{k}"\n'), ("config.toml", 'api_key = "{k}"\n'),
        ("config.toml", '[[llm]]\napi = "{k}"\napi_key = "{k}"\n'), ("config.toml", '[prices."m"]\ninput = "{k}"\n'),
        ("config.toml", '[[llm]]\nmodel = "m"\napi_key = "{k}"\ntemperature = "{k}"\n'), ("config.toml", '[limits]\nmax_cost = "{k}"\n'),
        ("config.toml", '[[llm]]\nmodel = "m"\napi_key = "x {k}"\n'), ("config.toml", '[ui]\nlanguage = 3\n[telegarm]\ntoken = "{k}"\n'),
        ("config.toml", '[[llm]]\nmodel = "m"\napi_key = ["{k}"]\n'), ("config.toml", '[[llm]]\nmodel = "m"\nbase_url = "http://u:{k}@x.test"\n'),
        ("config.toml", '[[llm]]\nmodel = "m"\napi_key = "{k}"\nbase_url = "https://x.test/?key={k}"\nproxy = "nonsense://u:{k}@127.0.0.1:9"\n'),
    ],
)  # fmt: skip
def test_a_configuration_file_that_is_broken(run_ga: Any, ga_home: Path, tmp_path: Path, name: str, text: str) -> None:
    key = CANARIES[("config.toml", "env:", "broken entry")[len(text) % 3]]
    (ga_home / name).write_text(text.format(k=key, w=re.sub(r"\W", "_", key)))
    done = run_ga("-p", "hi")
    assert done.returncode == 1 and re.search(r"error: \S", done.stderr)
    assert re.sub(r"\W", "_", key) not in done.stderr
    check(done, *everywhere(ga_home, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        'api_key = "{c[config.toml]}"\nbase_url = "https://127.0.0.1:9"', 'api_key = "{c[config.toml]}"\nbase_url = "https://u:{c[proxy]}@127.0.0.1:9/"',
        'api_key = "{c[config.toml]}"\nbase_url = "https://x.invalid"\nproxy = "http://u:{c[proxy]}@127.0.0.1:9"',
        'api_key = "{c[config.toml]}"\nbase_url = "https://x.invalid"\nproxy = "socks5h://u:{c[proxy]}@127.0.0.1:9"',
        'api_key = "env:BAD"\nbase_url = "http://127.0.0.1:9"', 'api_key = "cmd:echo {c[config.toml]}; exit 3"\nbase_url = "http://127.0.0.1:9"',
        'api_key = "{c[config.toml]}"\nbase_url = "http://example.test/{c[config.toml]}"',
    ],
)  # fmt: skip
def test_a_provider_that_cannot_be_reached(run_ga: Any, ga_home: Path, tmp_path: Path, settings: str) -> None:
    entry = f'[[llm]]\napi = "anthropic"\nmodel = "m"\nmax_retries = 0\n{settings.format(c=CANARIES)}\n'
    (ga_home / "config.toml").write_text(entry)
    env = {"BAD": f"{CANARIES['environment']}\x01\n{CANARIES['cmd:']}"}
    done = run_ga("-p", "hi", "--verbose", env=env)
    assert done.returncode == 1 and "error:" in done.stderr
    check(done, *everywhere(ga_home, tmp_path))


def test_a_kill_in_the_middle_leaves_the_keys_behind(world: Any, ga_home: Path, tmp_path: Path) -> None:
    slow = Reply(text=f"<summary>{ALL}</summary>{ALL}", chunk=7, hang_mid=20)
    forever = f"print({ALL!r} * 400, flush=True)\nimport time; time.sleep(30)"
    for replies in ([slow], [call("code_run", type="python", script=forever), say("x")]):
        server = world(replies)
        with subprocess.Popen(
            [sys.executable, PROGRAM, "--task", "job", "--input", "go", "--verbose"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path, start_new_session=True,
        ) as program:  # fmt: skip
            output, end = ga_home / "temp" / "job" / "output.txt", time.monotonic() + 60
            while "[a key]" not in (output.read_text() if output.exists() else "") and time.monotonic() < end:
                time.sleep(0.02)
            os.killpg(program.pid, signal.SIGKILL)
            shown, _ = program.communicate()
        assert server.requests and "[a key]" in output.read_text()
        for line in subprocess.run(["pgrep", "-f", "time.sleep(30)"], capture_output=True, text=True).stdout.split():
            if f"GA_HOME={ga_home}".encode() in (Path("/proc") / line / "environ").read_bytes():
                os.kill(int(line), signal.SIGKILL)
        for script in (ga_home / "temp" / "_output").glob("run-*"):
            script.unlink()  # what was running; it goes when it has ended, or at the next start
        assert leaks(shown) == [] and leaking_files(*everywhere(ga_home, tmp_path)) == []
        output.unlink()


@pytest.mark.slow
def test_the_chat_shows_the_keys(world: Any, ga_home: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    world([*conversation(), fail(401, f"bad {ALL}"), say(f"again {ALL}"), say("x")])
    env = {**os.environ, "TERM": "xterm-256color"}
    with Terminal([str(workspace)], env, tmp_path) as t:
        t.until("❯")
        t.send("/verbose\r")
        for request, sign in (("go", "tokens in"), ("and this", "31mfailed"), ("once more", "again")):
            t.send(f"{request}\r")
            t.until(sign)
        t.until("tokens in", 2)
        t.send("/resume\r")
        t.until("just now")
        t.send("/llm\r")
        t.until("▸")
        t.send("/session.temperature=" + CANARIES["config.toml"][:12] + "\r")
        t.until("must be a number")
        t.send("\x04")
        t.wait()
    shown = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", t.raw)
    assert b"[a key]" in shown and leaks(shown) == []
    assert (workspace / "exact.ini").read_text() == f"token = {ALL}\n"
    assert leaking_files(*everywhere(ga_home, tmp_path)) == []
    private(ga_home)


@pytest.mark.slow
def test_what_is_typed_into_the_chat_stays_in_its_history(world: Any, ga_home: Path, tmp_path: Path) -> None:
    world([say("thanks")])
    with Terminal([], {**os.environ, "TERM": "dumb"}, tmp_path) as t:
        t.until(">")
    with Terminal([], {**os.environ, "TERM": "xterm-256color"}, tmp_path) as t:
        t.until("❯")
        t.send(f"my key is {CANARIES['config.toml']} and {CANARIES['env:']}\r")
        t.until("thanks")
        t.send("\x04")
        t.wait()
    assert "my key is" in (ga_home / "chat_history").read_text()
    assert leaking_files(*everywhere(ga_home, tmp_path)) == []


def test_a_key_that_was_replaced_while_the_program_runs(
    world: Any, run_agent: Any, ga_home: Path, tmp_path: Path
) -> None:
    old, new = "old-Canary-0a1B2c3D4e5F", "new-Canary-5F4e3D2c1B0a"
    server = ScriptedServer([say(f"it is {old}"), say(f"{old} became {new}")])
    config = ga_home / "config.toml"
    entry = f'[[llm]]\napi = "anthropic"\nmodel = "m"\nbase_url = "{server.url}"\n'
    with server:
        config.write_text(f'{entry}api_key = "{old}"\n')
        agent = run_agent()
        config.write_text(f'{entry}api_key = "{new}"\n')
        shown = []
        for text in ("first", f"and {new}"):
            queue = agent.put_task(text)
            while "done" not in (item := queue.get(timeout=60)):
                shown.append(item)
            shown.append(item)
        told = json.dumps(shown, default=str)
        assert old not in told and new not in told and told.count("[a key]") > 3
        assert new in str(server.requests[1].headers) and new in server.requests[1].raw.decode()
    sessions = "".join(f.read_text() for f in (ga_home / "sessions").glob("*.jsonl"))
    assert old not in sessions and new not in sessions and "[a key]" in sessions


# credentials and redirects


@pytest.mark.slow
@pytest.mark.parametrize("status", [302, 307, 308])
@pytest.mark.parametrize(("api", "stream"), [("anthropic", True), ("chat", True), ("chat", False), ("responses", True)])
def test_a_redirect_carries_the_key_to_another_host(
    run_ga: Any, ga_home: Path, model_server: Any, status: int, api: str, stream: bool
) -> None:
    second = model_server([say("got it")] * 4)
    key = CANARIES["config.toml"]
    with ScriptedServer([Reply(status=status, headers={"Location": f"{second.url}/v1/messages"})] * 4) as first:
        (ga_home / "config.toml").write_text(
            f'[[llm]]\napi = "{api}"\nmodel = "m"\napi_key = "{key}"\nstream = {str(stream).lower()}\n'
            f'base_url = "{first.url}{"" if api == "anthropic" else "/v1"}"\nmax_retries = 1\n'
        )  # fmt: skip
        done = run_ga("-p", "hi")
        assert done.returncode == 1 and "redirect" in done.stderr and key in json.dumps(first.requests[0].headers)
    assert second.requests == [] and second.strays == []


def test_the_search_for_local_servers_follows_a_redirect() -> None:
    import http.server
    import threading

    from genericagent.llm.local import find_local

    asked: list[str] = []

    class There(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if self.path.endswith("/models") else 200)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), There) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            assert [
                s for s in find_local({"OLLAMA_HOST": f"127.0.0.1:{server.server_address[1]}"}) if s.name == "Ollama"
            ] == []
        finally:
            server.shutdown()
            thread.join()
    assert asked == ["/v1/models"]


def test_the_check_itself_finds_nothing_in_any_case() -> None:
    printed: Iterator[str] = iter(FORMS.values())
    assert all(leaks(f"x{form}y".encode()) for form in printed)
