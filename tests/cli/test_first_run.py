"""The chat without a model: from the first question to a saved key, in a real pseudo-terminal."""

from __future__ import annotations

import http.server
import json
import os
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_chat_pty import CTRL_C, CTRL_D, PASTE, PASTED, PROGRAM, Terminal

from genericagent import config
from genericagent.abort import Abort
from genericagent.cli import first_run
from genericagent.cli.first_run import clean_address, clean_key, edited, save
from genericagent.errors import ConfigError, LLMError, ToolError
from genericagent.llm.listing import list_models, names_in
from genericagent.scripted import Reply, ScriptedServer, say

KEY = "Q7-canary-key-Zf83kx90Lm21"  # long enough to be told apart, and of no vendor's form

Start = Callable[..., Terminal]


@pytest.fixture
def begin(ga_home: Path) -> Iterator[Start]:
    """Start the real chat without a model; `base` is the address behind "Anthropic" in the menu."""
    open_: list[Terminal] = []

    def start(base: str = "http://127.0.0.1:9", **env: str) -> Terminal:
        given = {"TERM": "xterm-256color", "ANTHROPIC_BASE_URL": base, "OLLAMA_HOST": "127.0.0.1:9", **env}
        terminal = Terminal(PROGRAM, {**os.environ, **given}, 100, 60)
        open_.append(terminal)
        waiting(terminal)
        return terminal

    yield start
    for terminal in open_:
        terminal.close()


def waiting(t: Terminal) -> None:
    t.until(lambda: t.lines()[-1:] == [">"])


def answer(t: Terminal, text: str, shown: str) -> None:
    """Type a line; wait for what it leads to and the next question."""
    before = t.text().count(shown)
    t.send(text + "\r")
    t.until(lambda: t.text().count(shown) > before)


def everything(home: Path) -> str:
    return "\n".join(p.read_bytes().decode("utf-8", "replace") for p in home.rglob("*") if p.is_file())


@pytest.fixture
def provider() -> Iterator[ScriptedServer]:
    with ScriptedServer([say("ok"), say("Hello from the model.")], strict=True, token=KEY) as server:
        yield server
    assert not server.faults


@pytest.mark.slow
@pytest.mark.parametrize(("term", "mark"), [("xterm-256color", "❯"), ("dumb", ">")])
def test_the_first_run_wants_a_file_written_by_hand(
    begin: Start, provider: ScriptedServer, ga_home: Path, term: str, mark: str
) -> None:
    t = begin(provider.url, TERM=term)
    answer(t, "1", "not shown")
    answer(t, "wrong-key-000000", "The key was refused")
    assert "401" in t.text()
    t.until(lambda: t.text().count("not shown") == 2)
    answer(t, f' export ANTHROPIC_API_KEY="{KEY}" ', "1  scripted")
    waiting(t)
    assert provider.requests == [] and not (ga_home / "config.toml").exists()
    answer(t, "cript", "It works")
    t.until(lambda: t.lines()[-1:] == [mark])
    file = ga_home / "config.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    entry = {"api": "anthropic", "base_url": provider.url, "model": "scripted", "api_key": KEY}
    assert tomllib.loads(file.read_text())["llm"] == [entry]
    assert (
        provider.requests[0].body["max_tokens"] == 16 and "genericagent/" in provider.requests[0].headers["user-agent"]
    )
    t.send("hi\r")
    t.until("Hello from the model.")
    t.until(lambda: "tokens in" in t.text())
    t.send(CTRL_D)
    assert t.wait() == 0
    assert KEY not in t.text() and KEY.encode() not in t.raw
    file.unlink()
    assert KEY not in everything(ga_home)


def test_a_pasted_key_shows_up_on_the_screen(begin: Start, provider: ScriptedServer) -> None:
    t = begin(provider.url)
    answer(t, "1", "not shown")
    t.send(PASTE + f"\n  {KEY}\n\n".encode() + PASTED + b"\r")
    t.until("1  scripted")
    waiting(t)
    assert KEY.encode() not in t.raw


def test_the_second_line_of_a_pasted_key_shows_up_on_the_screen(begin: Start, provider: ScriptedServer) -> None:
    t = begin(provider.url)
    answer(t, "1", "not shown")
    answer(t, f"first-line\n{KEY}", "2 lines were pasted")
    t.until(lambda: t.text().count("not shown") == 2)
    answer(t, KEY, "1  scripted")
    assert KEY.encode() not in t.raw


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(4))
def test_ctrl_c_in_the_middle_leaves_half_a_configuration(
    begin: Start, provider: ScriptedServer, ga_home: Path, steps: int
) -> None:
    t = begin(provider.url)
    for text, shown in [("1", "not shown"), (KEY, "1  scripted"), ("xyz", "No name in the list")][:steps]:
        answer(t, text, shown)
    if steps != 1:
        waiting(t)
    before = {p: p.stat().st_mtime_ns for p in ga_home.rglob("*") if p.is_file()}
    t.send(CTRL_C)
    assert t.wait() == 130
    assert not (ga_home / "config.toml").exists() and provider.requests == []
    assert {p: p.stat().st_mtime_ns for p in ga_home.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_ctrl_c_waits_for_a_model_that_hangs(begin: Start, ga_home: Path) -> None:
    with ScriptedServer([Reply(text="ok", hang_before_headers=50)], token=KEY) as server:
        t = begin(server.url)
        answer(t, "1", "not shown")
        answer(t, KEY, "1  scripted")
        waiting(t)
        t.send("1\r")
        t.until(lambda: len(server.requests) == 1)
        t.send(CTRL_C)
        assert t.wait() == 130 and not (ga_home / "config.toml").exists()


def test_ctrl_c_at_the_key_leaves_the_terminal_without_echo(begin: Start) -> None:
    import termios

    t = begin()
    assert not termios.tcgetattr(t.fd)[3] & termios.ECHO
    answer(t, "1", "not shown")
    assert not termios.tcgetattr(t.fd)[3] & termios.ECHO
    t.send(CTRL_C)
    assert t.wait() == 130
    assert termios.tcgetattr(t.fd)[3] & termios.ECHO and termios.tcgetattr(t.fd)[3] & termios.ICANON


def test_a_wrong_address_cannot_be_corrected(begin: Start, provider: ScriptedServer) -> None:
    t = begin()
    answer(t, "6", "The address")
    waiting(t)
    answer(t, "127.0.0.1:9", "not shown")
    answer(t, KEY, "connection refused")
    assert "Does the server run" in t.text() and "online" not in t.text()  # it is this machine
    waiting(t)
    answer(t, "a", "The address")
    waiting(t)
    answer(t, "ftp://x", "https://")
    waiting(t)
    answer(t, "a", "The address")
    waiting(t)
    answer(t, provider.url, "not shown")
    answer(t, KEY, "1  scripted")
    waiting(t)


@pytest.mark.slow
def test_a_key_goes_to_an_address_that_it_was_not_given_for(begin: Start, provider: ScriptedServer) -> None:
    with ScriptedServer([say("ok")]) as other:
        t = begin(provider.url)
        answer(t, "1", "not shown")
        answer(t, KEY, "1  scripted")
        waiting(t)
        answer(t, "not-in-the-list", "No name in the list")
        waiting(t)
        provider.replies = [Reply(status=404, text="no such model")]
        answer(t, "not-in-the-list", "no such model")
        waiting(t)
        answer(t, "a", "The address")
        waiting(t)
        answer(t, other.url, "not shown")
        answer(t, "two words", "spaces in it")
        answer(t, "", "another key")
        waiting(t)
        answer(t, "m", "Which one")
        waiting(t)
        answer(t, "1", "It works")
        assert len(other.requests) == 1 and KEY not in str(other.requests[0].headers)


@pytest.mark.slow
def test_an_endpoint_without_a_list_cannot_be_used(begin: Start, site: Site, ga_home: Path) -> None:
    site.lists = {}
    t = begin(OPENAI_BASE_URL=site.url)
    answer(t, "5", "The address")
    waiting(t)
    answer(t, site.url, "not shown")
    answer(t, KEY, "There is nothing at this address")
    waiting(t)
    answer(t, "m", "model's name, as the provider")
    waiting(t)
    answer(t, "some-model", "It works")
    t.until(lambda: t.lines()[-1:] == ["❯"])
    assert tomllib.loads((ga_home / "config.toml").read_text())["llm"][0]["model"] == "some-model"


def test_a_model_that_does_not_answer_is_saved(begin: Start, ga_home: Path) -> None:
    error = Reply(status=404, text="no such model")
    with ScriptedServer([error, say("ok")], token=KEY) as server:
        t = begin(server.url)
        answer(t, "1", "not shown")
        answer(t, KEY, "1  scripted")
        waiting(t)
        answer(t, "1", "no such model")
        waiting(t)
        assert not (ga_home / "config.toml").exists()
        answer(t, "r", "It works")
        t.until(lambda: t.lines()[-1:] == ["❯"])


def test_the_first_run_speaks_english_only(begin: Start, provider: ScriptedServer) -> None:
    t = begin(provider.url, GA_LANG="zh")
    answer(t, "1", "不会显示")
    answer(t, KEY, "选哪一个")
    waiting(t)
    answer(t, "1", "可用")
    t.until(lambda: t.lines()[-1:] == ["❯"])


def test_a_key_pasted_into_the_menu_is_taken_for_a_choice(begin: Start) -> None:
    t = begin()
    answer(t, "sk-ant-api03-abcdefghijklmnop", "no answer here")
    waiting(t)
    assert "api03" not in t.text()


OTHER = "second-key-111111"  # what nothing but its place tells to be a key


@pytest.mark.slow
@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("key", [KEY, OTHER, "0123456789abcdef0123456789abcdef.AbCdEfGh12345678"])
def test_a_key_is_seen_that_comes_at_another_question(
    begin: Start, provider: ScriptedServer, ga_home: Path, key: str, one_by_one: bool
) -> None:
    t = begin(provider.url)

    def leak(shown: str) -> None:
        before = t.text().count(shown)
        if one_by_one:
            for sign in key:
                t.send(sign)
                t.read(0.005)
        t.send("\r" if one_by_one else f"{key}\r")
        t.until(lambda: t.text().count(shown) > before)
        waiting(t)

    leak("no answer here")  # the menu
    answer(t, "1", "not shown")
    answer(t, "wrong-key-000000", "The key was refused")
    t.until(lambda: t.text().count("not shown (") == 2)
    answer(t, key if key != KEY else "wrong-key-000001", "The key was refused")  # again, and not at a menu
    t.until(lambda: t.text().count("not shown (") == 3)
    answer(t, "", "another key")
    waiting(t)
    leak("no answer here")  # what now
    answer(t, "a", "The address")
    waiting(t)
    leak("no answer here")
    answer(t, provider.url, "not shown (")
    answer(t, KEY, "1  scripted")
    waiting(t)
    leak("No name in the list" if key == OTHER else "no answer here")
    answer(t, "1", "It works")
    t.until(lambda: t.lines()[-1:] == ["❯"])
    assert not any(piece.encode() in t.raw for piece in (KEY, key, key[8:], KEY[8:]))


@pytest.mark.slow
def test_a_key_is_seen_that_is_typed_while_the_list_is_asked_for(begin: Start) -> None:
    class Slow(Handler):
        def do_GET(self) -> None:
            asked.set()
            go.wait(20)
            super().do_GET()

    asked, go = threading.Event(), threading.Event()
    server = Site()
    server.RequestHandlerClass = Slow
    threading.Thread(target=server.serve_forever, daemon=True).start()
    t = begin(server.url)
    answer(t, "1", "not shown")
    t.send("wrong-key-000000\r")
    t.until("asking for the list")
    assert asked.wait(20)
    t.send(KEY)
    t.read(0.2)
    go.set()
    t.until("nothing at this address")
    waiting_for = t.text().count(">")
    t.send("\r")
    t.until(lambda: t.text().count(">") > waiting_for)
    assert KEY.encode() not in t.raw
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("typed", "line"),
    [(b"ab\x7fc", "ac"), ("中文\x7f".encode(), "中"), (b"one two\x17x", "onex"), (b"a b\x15c", "c"), (b"a\x1b[D\x1bOAb\r\n", "ab")],
)  # fmt: skip
def test_corrections_become_part_of_what_was_typed(typed: bytes, line: str) -> None:
    assert edited(typed) == line


# the key


@pytest.mark.parametrize(
    "pasted",
    [
        KEY,
        f"  {KEY}\r\n",
        f'"{KEY}"',
        f"“{KEY}”,",
        f"export ANTHROPIC_API_KEY={KEY}",
        f"export X='{KEY}'",
        f'$env:OPENAI_API_KEY = "{KEY}"',
        f"setx OPENAI_API_KEY {KEY}",
        f"set KEY={KEY}",
        f'"api_key": "{KEY}",',
        f"apikey={KEY}",
        f"Authorization: Bearer {KEY}",
        f"x-api-key: {KEY}",
        f"\x1b[200~{KEY}\x1b[201~",
        f"\ufeff\u200b{KEY}\u00a0",
    ],
)
def test_what_is_pasted_around_a_key_becomes_part_of_it(pasted: str) -> None:
    assert clean_key(pasted) == KEY


@pytest.mark.parametrize("key", ["abcKEYdef==", "id-123:secret-456", "sk-token=", "env:MY_KEY", "cmd:pass show it", ""])
def test_a_key_loses_what_belongs_to_it(key: str) -> None:
    assert clean_key(key) == key


@pytest.mark.parametrize(
    ("pasted", "why"),
    [
        (f"{KEY} {KEY}", "spaces"),
        (f"{KEY}\n{KEY}", "2 lines"),
        ("sk-ant-…", "…"),
        ("<your key>", "spaces"),
        ("sk-****abcd", "\\*"),
    ],
)
def test_junk_is_sent_as_a_key(pasted: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        clean_key(pasted)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("api.example.com/v1/", "https://api.example.com/v1"),
        ('"https://api.example.com"', "https://api.example.com"),
        ("localhost:8080", "http://localhost:8080"),
        ("http://api.example.com", "http://api.example.com"),
    ],
)
def test_an_address_without_its_scheme_is_refused(typed: str, address: str) -> None:
    assert clean_address(typed) == address


# the file

ENTRY = {"api": "chat", "base_url": "https://api.example.com/v1", "model": 'a"b\\c', "api_key": KEY}


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_saving_a_model_loses_settings_and_comments(ga_home: Path, end: str) -> None:
    file = ga_home / "config.toml"
    old = f"\ufeff# mine, 我的\n[limits]\nmax_turns = 7 # few{end}".encode()
    file.write_bytes(old)
    file.chmod(0o644)
    assert save(ENTRY, file) == []
    assert file.read_bytes().startswith(old) and stat.S_IMODE(file.stat().st_mode) == 0o600
    found = config.load(ga_home, environ={})
    assert [(m.model, m.api_key) for m in found.models] == [('a"b\\c', KEY)]
    assert found.limits.max_turns == 7 and found.problems == []


def test_a_file_that_cannot_take_a_model_is_overwritten(ga_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ga_home / "config.toml"
    file.write_text("llm = []\n")
    with pytest.raises(ConfigError, match="cannot take"):
        save(ENTRY, file)
    assert file.read_text() == "llm = []\n"
    file.unlink()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="No space"):
        save(ENTRY, file)
    assert list(ga_home.iterdir()) == []


# the list


class Site(http.server.ThreadingHTTPServer):
    """Lists by path; every other GET is a 404, a POST a scripted answer."""

    def __init__(self) -> None:
        self.lists: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
        found = self.server.lists.get(self.path)
        self._answer(200 if found is not None else 404, found if found is not None else {"error": "nothing here"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "ok"}
        self._answer(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    def _answer(self, status: int, body: Any) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def listed(site: Site, api: str, path: str = "", key: str = KEY) -> list[str]:
    given = {"api": api, "base_url": site.url + path, "api_key": key, "model": "x"}
    return list_models(config.model_from(given, config.APIS[api], {}), Abort())


def test_the_list_is_asked_with_the_headers_of_another_protocol(site: Site) -> None:
    site.lists = {
        "/v1/models?limit=1000": {"data": [{"id": "claude-b"}, {"id": "claude-a"}], "has_more": False},
        "/api/v1/models": {"data": [{"id": "old", "created": 1}, {"id": "new", "created": 2}]},
    }
    assert listed(site, "anthropic", key="sk-ant-x") == ["claude-b", "claude-a"]
    assert listed(site, "chat", "/api/v1") == ["new", "old"] == listed(site, "responses", "/api/v1/responses")
    (_, first), (_, second), _ = site.asked
    assert first["x-api-key"] == "sk-ant-x" and first["anthropic-version"] == "2023-06-01"
    assert second["authorization"] == f"Bearer {KEY}" and second["user-agent"].startswith("genericagent/")


@pytest.mark.slow
@pytest.mark.parametrize("body", [{}, [], {"data": None}, b"<html>hello</html>", {"data": [{"name": "x"}]}, b"["])
def test_a_web_page_is_taken_for_a_list(site: Site, body: Any) -> None:
    site.lists = {"/v1/models": body}
    with pytest.raises(LLMError, match="no list"):
        listed(site, "chat")


def test_models_that_cannot_talk_are_offered() -> None:
    names = ["gpt-5", "text-embedding-3", "whisper-1", "gpt-image-1", "gpt-5", "bad\x1b[2J", ""]
    assert names_in({"data": [{"id": name} for name in names]}) == ["gpt-5"]


def test_a_thousand_wrong_answers_end_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["zzz"] * 3000 + ["r"])
    monkeypatch.setattr(first_run, "_line", lambda may_show: next(answers))
    monkeypatch.setattr(first_run, "_tell", lambda text: None)
    assert first_run._asked("what_now", lambda typed: typed == "r") == "r"
