"""Strangers at the page of this machine, and what its owner relies on, over real HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import select
import signal
import socket
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from webrun import ROOT, form, until

from genericagent.faces.state import State
from genericagent.scripted import Reply, call, say, seq
from genericagent.store.lock import FileLock
from genericagent.store.outbox import Outbox

DATA = ("/events", "/lists", "/file/1", "/send", "/press", "/nothing", "/../app.js", "/texts.json/", "//app.js")
SHELL = ("/", "/app.js", "/style.css", "/texts.json")


def echo(body: dict[str, Any], n: int) -> Reply:
    return say(f"heard: {asked(body)}")


def asked(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else " ".join(b.get("text", "") for b in content)
    return " ".join(text.split("\n\n")[0].split())[:300]


@pytest.mark.slow
def test_without_the_token_there_is_nothing_but_the_empty_page(webapp: Any) -> None:
    page = webapp(echo)
    body, kind = form({"text": "rm everything"}, {})
    wrong = [
        {"Authorization": ""},
        {"Authorization": f"Bearer {'x' * 43}"},
        {"Authorization": f"Basic {page.token}"},
        {"Authorization": f"Bearer {page.token} "[:-2]},
        {"Authorization": "", "Cookie": f"token={page.token}; web={page.token}"},
    ]
    for headers in wrong:
        for path in [*DATA, f"/events?token={page.token}"]:
            for method, sent in (("GET", None), ("POST", body), ("PUT", body), ("OPTIONS", None), ("HEAD", None)):
                code, about, text = page.ask(path, method, sent, {**kind, **headers})
                assert (code, text) == (401, b"" if method == "HEAD" else b"the token is missing or wrong"), (
                    path,
                    method,
                )
                assert "set-cookie" not in about and "access-control-allow-origin" not in about
    for path in SHELL:
        code, _, text = page.ask(path, headers={"Authorization": ""})
        assert code == 200 and page.token.encode() not in text
    assert not page.server.requests and page.messages() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1.evil.example:{port}"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:{port}/"},
        {"authorization": "Bearer another"},
        {"Host ": "evil.example"},
    ],
    ids=str,
)
def test_a_foreign_host_or_page_is_refused_although_it_has_the_token(webapp: Any, headers: dict[str, str]) -> None:
    page = webapp(echo)
    sent = {name: value.format(port=page.port) for name, value in headers.items()}
    body, kind = form({"text": "rm everything"}, {})
    for path in (*DATA, *SHELL):
        code, about, text = page.ask(path, headers=sent)
        assert code in (400, 403) and page.token.encode() not in text and b"<" not in text, (path, code)
        assert "access-control-allow-origin" not in about
    for path in ("/send", "/press"):
        assert page.ask(path, "POST", body, {**kind, **sent})[0] in (400, 403)
    assert not page.server.requests and page.messages() == []


def test_every_answer_forbids_what_the_page_does_not_need(webapp: Any) -> None:
    page = webapp(echo)
    for path, headers in [
        *((p, {}) for p in (*SHELL, "/lists", "/events", "/file/9")),
        ("/lists", {"Authorization": ""}),
    ]:
        _, about, _ = page.ask(path, headers=headers)
        policy = about["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';") and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "data:" not in policy and "*" not in policy
        assert about["x-content-type-options"] == "nosniff" and about["cache-control"] == "no-store"
        assert about["referrer-policy"] == "no-referrer"
    text = "".join(p.read_text("utf-8") for p in (ROOT / "assets/web").iterdir())
    assert not re.findall(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser", text)


@pytest.mark.slow
def test_no_path_leads_to_a_file_that_was_not_handed_over(webapp: Any) -> None:
    page = webapp(seq(say("here: [FILE:out.txt]"), say("and: [FILE:../faces/web.token]"), then=echo))
    (page.temp / "out.txt").write_text("the result")
    page.send("give")
    handed = until(lambda: [m["id"] for m in page.messages() if m.get("file") == "out.txt"])
    code, about, text = page.ask(f"/file/{handed[0]}")
    assert (code, text) == (200, b"the result") and about["content-type"] == "application/octet-stream"
    assert about["content-disposition"] == "attachment; filename*=UTF-8''out.txt"
    page.send("and the secret")
    assert "not sent" in page.wait_text("web.token is not sent")
    up = ("..", "%2e%2e", "..%2f", "%2e%2e%2f", "..\\", "%5c..", "....//", "%00", "%252e%252e%252f")
    for step in up:
        for base in ("/file/", f"/file/{handed[0]}/", "/app.js/", "/", "/assets/"):
            for target in ("faces/web.token", "config.toml", "etc/passwd"):
                code, _, text = page.ask(f"{base}{step}/{step}/{step}/{target}")
                assert code in (400, 404) and page.token.encode() not in text and b"root:" not in text
    (page.temp / "out.txt").unlink()
    (page.temp / "out.txt").symlink_to(page.home / "faces/web.token")  # changed after it was handed over
    assert page.ask(f"/file/{handed[0]}")[2] == b"the result"
    page.end()
    assert not (page.home / "faces/web-files").exists()


@pytest.mark.slow
def test_what_is_too_much_or_malformed_is_refused_and_the_page_lives(webapp: Any) -> None:
    page = webapp(echo)
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    for headers in (kind, {**kind, "Authorization": ""}):
        code, _, _ = page.ask("/send", "POST", None, {**headers, "Content-Length": str(10 << 30)})
        assert code == (413 if headers is kind else 401)  # before any of it has come
    with socket.create_connection(("127.0.0.1", page.port), 20) as endless:
        head = f"POST /send HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\nAuthorization: Bearer {page.token}\r\n"
        head += "Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n"
        part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        endless.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(part), part))
        sent, block = 0, b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        while sent < 200 << 20 and not select.select([endless], [], [], 0)[0]:
            endless.sendall(block)
            sent += 1 << 20
        assert endless.recv(100).startswith(b"HTTP/1.1 413") and sent < 200 << 20
    assert page.send("x" * 200_001) == 413
    assert page.send("many", {f"{n}.txt": b"x" for n in range(21)}) == 413
    assert page.ask("/send", "POST", b"\0\xff garbage", kind)[0] in (204, 400)
    assert (
        page.ask("/send", "POST", b"text=%ff", {"Content-Type": "application/x-www-form-urlencoded; charset=nope"})[0]
        == 400
    )
    assert page.ask("/press", "POST", b"{", {"Content-Type": "application/json"})[0] == 200  # no button has that name
    assert not list(page.home.rglob("received/*"))
    page.send("still there?")
    page.wait_text("heard: still there?")
    assert len(page.server.requests) == 1


def test_names_of_files_are_ours_and_what_was_in_them_is_whole(webapp: Any) -> None:
    page = webapp(echo)
    given = {"../../evil.sh": b"#!\0\xff", "<img src=x onerror=1>.html": b"", "CON": b"c", "a" * 500 + ".txt": b"long"}
    assert page.send("look", given) == 204
    page.wait_text("heard: look")
    kept = sorted((page.temp / "received").iterdir())
    assert all(re.fullmatch(r"web-[0-9a-f]{12}(\.sh|\.html|\.txt)?", path.name) for path in kept)
    assert sorted(path.read_bytes() for path in kept) == sorted(given.values())
    assert not list(page.home.rglob("evil*"))
    assert all(str(path) in json.dumps(page.server.requests[0].body) for path in kept)


def test_messages_that_are_sent_one_right_after_the_other_keep_their_order(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    from multidict import MultiDict

    from frontends.webapp import App, Page

    class Hub:
        def __init__(self) -> None:
            self.state, self.heard = State(tmp_path / "web.json"), list[str]()

        def conversation(self, chat: str) -> Any:
            return SimpleNamespace(out=SimpleNamespace(put=lambda work: work()))

        def receive(self, incoming: Any) -> None:
            time.sleep(0.3 if incoming.text == "1" else 0)  # a thread that the system lets wait
            self.heard.append(incoming.text)

    class Request:
        def __init__(self, text: str) -> None:
            self._text = text

        async def post(self) -> Any:
            return MultiDict({"text": self._text})

    async def both(hub: Any) -> None:
        app = App(Page(asyncio.get_running_loop(), tmp_path), hub, 1, "token")
        await asyncio.gather(*(app._send(Request(text)) for text in "123"))  # type: ignore[arg-type]

    hub = Hub()
    asyncio.run(both(hub))
    assert hub.heard == ["1", "2", "3"]


def test_two_pages_and_a_later_one_show_the_same(webapp: Any) -> None:
    page = webapp(echo)
    page.send("remember <b>me</b>")
    page.wait_text("heard: remember")
    until(lambda: not any("⏳" in text for text in page.texts()))
    assert page.messages() == page.messages()
    first = page.messages()[0]
    assert first["mine"] and first["html"] == "remember &lt;b&gt;me&lt;/b&gt;"
    lists = json.loads(page.ask("/lists")[2])
    assert [session["now"] for session in lists["sessions"]] == [True]
    assert {"stop", "resume", "steer"} <= {name for name, _ in lists["commands"]}


def test_the_oldest_page_gives_way_when_too_many_are_open(webapp: Any) -> None:
    page = webapp(echo)
    sent = {"Host": f"127.0.0.1:{page.port}", "Authorization": f"Bearer {page.token}"}
    opened = []
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
        connection.request("GET", "/events", headers=sent)
        opened.append((connection, connection.getresponse()))
        assert b'"all"' in opened[-1][1].readline()
    assert b'{"over": true}' in opened[0][1].read()  # to its end
    page.send("hello")
    while b"heard: hello" not in opened[1][1].readline():
        pass
    for connection, answer in opened:
        answer.close()
        connection.close()


@pytest.mark.slow
def test_what_waits_is_worked_on_after_kill_9_and_what_ran_is_told(webapp: Any) -> None:
    def script(body: dict[str, Any], n: int) -> Reply:
        return call("code_run", type="bash", script="touch began; sleep 60") if n == 0 else echo(body, n)

    page = webapp(script)
    page.send("the long one")
    until(lambda: list(page.home.rglob("began")))
    page.send("the next one")
    page.wait_text("Queued (1)")
    page.end(signal.SIGKILL)
    page.start()
    page.wait_text("I was restarted while I worked on: the long one")
    page.wait_text("heard: the next one")
    texts = page.texts()
    assert sum("heard:" in text for text in texts) == 1
    assert next(n for n, text in enumerate(texts) if "I was restarted" in text) < texts.index("the next one")
    until(lambda: not json.loads((page.home / "faces/web.json").read_text())["waiting"])


@pytest.mark.slow
def test_results_of_jobs_that_were_ordered_here_come_here_once(webapp: Any) -> None:
    page = webapp(echo)
    box = Outbox(page.home / "outbox")
    for n, origin in enumerate(("web:local", "web:elsewhere")):
        box.put(f"job-{n}", origin, f"job of {origin}", "done")
    page.wait_text("job of web:local: done")
    assert sum("job of" in text for text in page.texts()) == 1


def test_the_token_is_shown_once_and_is_in_nothing_that_is_kept(webapp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GA_LOG", "debug")
    page = webapp(echo)
    page.send("hello")
    page.wait_text("heard: hello")
    page.ask("/nothing")
    page.end()
    file = page.home / "faces/web.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and page.said().count(page.token) == 1
    holders = [p for p in page.home.rglob("*") if p.is_file() and page.token.encode() in p.read_bytes()]
    assert holders == [file]


@pytest.mark.slow
def test_a_held_port_a_second_copy_and_a_missing_library_are_one_line(
    run_ga: Any, ga_home: Path, tmp_path: Path, model_server: Any
) -> None:
    pytest.importorskip("aiohttp")
    env = {"ANTHROPIC_API_KEY": "key-for-test", "ANTHROPIC_BASE_URL": model_server().url}
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        (ga_home / "config.toml").write_text(f"[web]\nport = {port}\n")
        (ga_home / "config.toml").chmod(0o600)
        done = run_ga("web", env=env)
    assert done.returncode == 1 and re.fullmatch(rf"error: cannot listen on port {port} .*\n", done.stderr), done.stderr
    lock = FileLock(ga_home / "faces/web.lock")
    assert lock.acquire()
    done = run_ga("web", env=env)
    lock.release()
    assert done.returncode == 1 and re.fullmatch(r"error: the page is served already \(pid \d+\).*\n", done.stderr)
    (tmp_path / "aiohttp.py").write_text("raise ImportError('not here')\n")
    done = run_ga("web", env={**env, "PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1 and re.fullmatch(r"error: .*pip install 'aiohttp>.* 'markdown-it-py>.*\n", done.stderr)
    (ga_home / "config.toml").write_text("[web]\nport = 70000\n")
    done = run_ga("web", env=env)
    assert done.returncode == 1 and re.fullmatch(r"error: .*port must be 0 to 65535.*\n", done.stderr)


@pytest.mark.slow
def test_a_face_takes_the_demo_and_refuses_what_is_for_one_run(run_ga: Any, webapp: Any) -> None:
    for args, said in (
        (["-p", "hi"], "takes no -p"),
        (["--continue"], "takes no --continue"),
        (["--verbose"], "takes no --verbose"),
    ):
        done = run_ga("web", *args)
        assert done.returncode == 2 and said in done.stderr
    done = run_ga("telegram", "--help")
    assert done.returncode == 0 and "docs/TELEGRAM.md" in done.stdout and len(done.stdout.splitlines()) == 1
    page = webapp(echo, "--demo")
    page.send("hello")
    page.wait_text("hello")
    assert "DEMO" in page.said() and not page.server.requests
