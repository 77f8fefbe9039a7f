"""Strangers at the two ports: whatever they say, nothing is done and nothing is told."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bridged import until
from ports import free_ports
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

from genericagent.abort import Abort
from genericagent.browser import server, wire
from genericagent.cli import browser
from genericagent.cli.browser import run_browser, write_extension
from genericagent.errors import Aborted, ConfigError, ToolError, UsageError
from genericagent.paths import home
from TMWebDriver import TMWebDriver


@pytest.fixture
def bridge() -> Iterator[server.Bridge]:
    made = server.join(home(), *free_ports())
    assert isinstance(made, server.Bridge)
    yield made
    made.close()


def secret() -> str:
    return (home() / "browser" / "secret").read_text().strip()


def knock(port: int, key: str, **changes: Any) -> str:
    about = {"nonce": os.urandom(32).hex(), "time": int(time.time() * 1000)} | changes
    return wire.encode({"knock": {**about, "proof": wire.proof(key, "knock", port, about["nonce"], about["time"])}})


@contextlib.contextmanager
def extension(port: int, key: str, profile: str = "abcd") -> Iterator[ClientConnection]:
    """A stand-in for the extension, paired."""
    with connect(f"ws://127.0.0.1:{port}/", origin=wire.ORIGIN) as ws:
        frame = knock(port, key)
        ws.send(frame)
        welcome = json.loads(ws.recv(timeout=5))["welcome"]
        nonce = json.loads(frame)["knock"]["nonce"]
        assert welcome["proof"] == wire.proof(key, "server", port, nonce, welcome["nonce"])
        proof = wire.proof(key, "extension", port, nonce, welcome["nonce"])
        ws.send(wire.encode({"hello": {"proof": proof, "browser": {"id": profile, "version": "1"}}}))
        yield ws


def raw_handshake(port: int, *headers: str, path: str = "/") -> bytes:
    """What comes back for a WebSocket handshake with these headers, then a knock."""
    lines = [
        f"GET {path} HTTP/1.1", *headers, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {base64.b64encode(b'0' * 16).decode()}",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        found = b""
        while data := sock.recv(65536):
            found += data
            if b" 101 " in found:
                return found
    return found


ID = wire.EXTENSION_ID
HOST = "Host: 127.0.0.1:{port}"


@pytest.mark.parametrize(
    "headers",
    [
        [HOST, "Origin: https://evil.example"], [HOST, "Origin: null"], [HOST, "Origin: http://localhost:3000"], [HOST],
        [HOST, "Origin: http://127.0.0.1:{port}"], [HOST, f"Origin: chrome-extension://{ID}x"], [HOST, f"Origin: chrome-extension://{ID}.evil.test"],
        [HOST, f"Origin: chrome-extension://{'a' * 32}"], [HOST, f"Origin: CHROME-EXTENSION://{ID}"], [HOST, f"Origin: moz-extension://{ID}"],
        [HOST, "Origin: https://evil.example", f"Origin: {wire.ORIGIN}"], [HOST, "Origin: "], [HOST, f"Origin: {wire.ORIGIN}/"],
        ["Host: attacker.test", f"Origin: {wire.ORIGIN}"], ["Host: attacker.test:{port}", f"Origin: {wire.ORIGIN}"],
        ["Host: 127.0.0.1", f"Origin: {wire.ORIGIN}"], ["Host: 127.0.0.1:1", f"Origin: {wire.ORIGIN}"],
        ["Host: 127.0.0.1:{port}.evil.test", f"Origin: {wire.ORIGIN}"], ["Host: 0.0.0.0:{port}", f"Origin: {wire.ORIGIN}"],
        ["Host: localhost.evil.test:{port}", f"Origin: {wire.ORIGIN}"], [f"Origin: {wire.ORIGIN}"],
        [HOST, "Host: attacker.test", f"Origin: {wire.ORIGIN}"],
    ],
)  # fmt: skip
def test_a_handshake_of_a_stranger_is_refused(bridge: server.Bridge, headers: list[str]) -> None:  # C145 C146
    answer = raw_handshake(bridge.port, *(h.format(port=bridge.port) for h in headers))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.partition(b"\r\n\r\n")[2] == b""
    assert bridge.browsers() == []


@pytest.mark.parametrize("path", ["/x", "/?token=1", "http://evil.test/"])
def test_there_is_one_path(bridge: server.Bridge, path: str) -> None:
    assert b" 403 " in raw_handshake(bridge.port, f"Host: 127.0.0.1:{bridge.port}", f"Origin: {wire.ORIGIN}", path=path)


def frames_after(port: int, *frames: str | bytes) -> list[Any]:
    """What a connection with the right Origin gets for these frames, until it is ended."""
    got = []
    with connect(f"ws://127.0.0.1:{port}/", origin=wire.ORIGIN) as ws:
        try:
            for frame in frames:
                ws.send(frame)
            while True:
                got.append(ws.recv(timeout=20))
        except ConnectionClosed:
            return got


@pytest.mark.parametrize(
    "frame",
    [
        "wrong secret", "wrong port", "old", "no knock", "empty", "binary junk", "a call", "hello first", "long",
    ],
)  # fmt: skip
def test_who_cannot_prove_himself_gets_no_byte(bridge: server.Bridge, frame: str) -> None:  # C146
    port, key = bridge.port, secret()
    text: str | bytes = {
        "wrong secret": knock(port, "x" * 43), "wrong port": knock(port + 1, key), "old": knock(port, key, time=1), "no knock": "{}",
        "empty": "", "binary junk": b"\xff\xfe", "a call": '{"id":1,"do":"tabs"}',
        "hello first": wire.encode({"hello": {"proof": wire.proof(key, "extension", port, "", ""), "browser": {"id": "a"}}}),
        "long": "x" * (wire.MAX_UNPAIRED + 1),
    }[frame]  # fmt: skip
    assert frames_after(port, text) == []
    assert bridge.browsers() == []


def test_a_recorded_knock_opens_nothing(bridge: server.Bridge) -> None:
    frame = knock(bridge.port, secret())
    assert len(frames_after(bridge.port, frame, "{}")) == 1  # the welcome, then a hello that is none
    assert frames_after(bridge.port, frame) == []


def test_a_hello_without_the_secret_opens_nothing(bridge: server.Bridge) -> None:
    for proof in ("", "0" * 64):
        hello = wire.encode({"hello": {"proof": proof, "browser": {"id": "abcd"}}})
        assert len(frames_after(bridge.port, knock(bridge.port, secret()), hello)) == 1
        assert bridge.browsers() == []


def test_silence_is_ended_and_cannot_fill_the_room(bridge: server.Bridge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PAIRING_TIME", 0.5)
    silent = [socket.create_connection(("127.0.0.1", bridge.port)) for _ in range(server.MAX_UNPAIRED + 5)]
    for sock in silent:
        sock.settimeout(10)
        assert sock.recv(1) == b""
        sock.close()
    with extension(bridge.port, secret()):
        until(bridge.browsers)


def test_only_the_paired_one_is_asked_and_its_late_answers_are_dropped(bridge: server.Bridge) -> None:  # C097
    with extension(bridge.port, secret()) as ws:
        until(bridge.browsers)
        threading.Thread(target=answer_calls, args=(ws,), daemon=True).start()
        with pytest.raises(ToolError, match="did not answer"):
            bridge.call("abcd", {"do": "silent"}, 0.01 - server.GRACE)
        assert bridge.call("abcd", {"do": "late"}, 5)["was"] == "late"
        assert bridge.call("abcd", {"do": "x"}, 5)["was"] == "x"
        stop = Abort()
        threading.Timer(0.1, stop.set).start()
        with pytest.raises(Aborted):
            bridge.call("abcd", {"do": "silent"}, 30, stop)


def answer_calls(ws: ClientConnection) -> None:
    with ws:
        for text in ws:
            call = json.loads(text)
            if call["do"] == "late":  # an answer of the call before comes now
                ws.send(wire.encode({"id": call["id"] - 1, "was": "silent"}))
            if call["do"] != "silent":
                ws.send(wire.encode({"id": call["id"], "was": call["do"]}))


def test_a_lost_connection_ends_its_calls_at_once(bridge: server.Bridge) -> None:
    with extension(bridge.port, secret()) as ws:
        until(bridge.browsers)
        threading.Timer(0.2, ws.close).start()
        assert bridge.call("abcd", {"do": "x"}, 60)["error"] == "lost"
    until(lambda: not bridge.browsers())
    with pytest.raises(ToolError, match="not connected"):
        bridge.call("abcd", {"do": "x"}, 60)


def test_the_same_profile_replaces_itself_and_another_joins(bridge: server.Bridge) -> None:  # C088
    key = secret()
    with extension(bridge.port, key) as first:
        until(bridge.browsers)
        with extension(bridge.port, key) as again, extension(bridge.port, key, "efgh"):
            until(lambda: len(bridge.browsers()) == 2)
            with pytest.raises(ConnectionClosed):
                first.recv(timeout=10)
            threading.Thread(target=answer_calls, args=(again,), daemon=True).start()
            assert bridge.call("abcd", {"do": "x"}, 5)["was"] == "x"


# the link

SPELLINGS = [
    "attacker.test", "attacker.test:{port}", "127.0.0.1", "localhost", "127.0.0.1:1", "localhost:{port}.evil.test", "127.0.0.1.evil.test:{port}",
    "evil.test@127.0.0.1:{port}", "127.0.0.1:{port}@evil.test", "127.1:{port}", "2130706433:{port}", "0x7f000001:{port}", "0.0.0.0:{port}", "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}", "127.0.0.1:{port}/", "127.0.0.1:0{port}", "localhost.:{port}", "127.0.0.1 :{port}", "", "127.0.0.2:{port}", "LOCALHOST",
    "127.0.0.1:{port}, evil.test", "localhost:{port}#",
]  # fmt: skip


def ask(port: int, path: str, *headers: str, method: str = "POST", body: str = "{}") -> tuple[int, bytes]:
    head = [f"{method} {path} HTTP/1.1", *headers, f"Content-Length: {len(body)}", "Connection: close"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(("\r\n".join(head) + "\r\n\r\n" + body).encode())
        found = b""
        while data := sock.recv(65536):
            found += data
    return int(found.split()[1]), found.partition(b"\r\n\r\n")[2]


def link_of() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home() / "browser" / "link.json").read_text())
    return found


ROUTES = ["/call", "/browsers", "/status", "/", "/link"]
JSON = "Content-Type: application/json"


@pytest.mark.parametrize("route", ROUTES)
def test_no_spelling_of_a_foreign_host_is_answered(bridge: server.Bridge, route: str) -> None:  # C146
    link = link_of()
    for method in ("POST", "GET", "OPTIONS"):
        for spelling in SPELLINGS:
            host = f"Host: {spelling.format(port=link['port'])}"
            status, body = ask(
                link["port"], route, host, JSON, f"{server.TOKEN_HEADER}: {link['token']}", method=method
            )
            assert (status in (400, 403, 501), body) == (True, b""), spelling


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, [HOST, JSON, "X-GA-Token: {token}"]), (401, [HOST, JSON]), (401, [HOST, JSON, "X-GA-Token: x"]),
        (401, [HOST, JSON, "X-GA-Token: "]), (403, [HOST, JSON, "X-GA-Token: {token}", "X-GA-Token: {token}"]),
        (403, [HOST, JSON, "X-GA-Token: {token}", "Origin: http://127.0.0.1:{port}"]), (403, [HOST, JSON, "X-GA-Token: {token}", "Origin: null"]),
        (403, [HOST, JSON, "X-GA-Token: {token}", f"Origin: {wire.ORIGIN}"]), (415, [HOST, "Content-Type: text/plain", "X-GA-Token: {token}"]),
        (415, [HOST, "X-GA-Token: {token}"]), (413, [HOST, JSON, "X-GA-Token: {token}", "Transfer-Encoding: chunked"]),
    ],
)  # fmt: skip
def test_the_link_wants_token_and_json_and_no_page(
    bridge: server.Bridge, status: int, headers: list[str]
) -> None:  # C145
    link = link_of()
    got, body = ask(link["port"], "/status", *(h.format(**link) for h in headers))
    assert got == status and (status == 200) == bool(body)


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "HEAD", "DELETE", "X"])
def test_the_link_answers_post_only(bridge: server.Bridge, method: str) -> None:
    link = link_of()
    status, body = ask(
        link["port"], "/status", HOST.format(**link), JSON, f"X-GA-Token: {link['token']}", method=method
    )
    assert (status, body) == (501, b"")


@pytest.mark.parametrize(
    "body", ["", "[]", "x", '{"browser": 1}', '{"browser": "a", "request": 5, "timeout": 1}', "[" * 9000]
)
def test_a_malformed_call_is_answered_and_the_link_lives_on(bridge: server.Bridge, body: str) -> None:
    link = link_of()
    headers = [HOST.format(**link), JSON, f"X-GA-Token: {link['token']}"]
    assert ask(link["port"], "/call", *headers, body=body)[0] == 400
    assert ask(link["port"], "/status", *headers)[0] == 200


def test_a_second_process_of_ours_shares_and_takes_over(bridge: server.Bridge) -> None:  # C088
    second = server.join(home())
    assert isinstance(second, server.Link)
    with extension(bridge.port, secret()) as ws:
        until(second.browsers)
        threading.Thread(target=answer_calls, args=(ws,), daemon=True).start()
        assert second.call("abcd", {"do": "x"}, 5)["was"] == "x"
        stop = Abort()
        threading.Timer(0.1, stop.set).start()
        with pytest.raises(Aborted):
            second.call("abcd", {"do": "silent"}, 30, stop)
    port, token = bridge.port, link_of()["token"]
    bridge.close()
    with pytest.raises(ConnectionError):
        second.browsers()
    third = server.join(home(), port, free_ports()[0])
    assert isinstance(third, server.Bridge) and third.port == port and link_of()["token"] != token
    third.close()


def test_a_port_of_somebody_else_is_named_and_not_talked_to() -> None:  # C094
    port, other = free_ports()
    heard: list[bytes] = []
    stranger = subprocess.Popen(
        [sys.executable, "-c", f"import socket; s=socket.create_server(('127.0.0.1',{port})); print('up', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert stranger.stdout and stranger.stdin
    stranger.stdout.readline()
    write_extension(home())
    for ports in ((port, other), (other, port)):
        with pytest.raises(ConfigError, match=f"port {port} .*process {stranger.pid}.*--port") as caught:
            TMWebDriver(*ports).status()
        assert "\n" not in str(caught.value)
    stranger.communicate(b"\n")
    assert not heard
    TMWebDriver(port, other).close()


def test_nobody_else_can_read_the_secrets(bridge: server.Bridge) -> None:
    folder = write_extension(home())
    private = [home() / "browser" / "secret", home() / "browser" / "link.json", folder / "pairing.json"]
    assert [stat.S_IMODE(p.stat().st_mode) for p in private] == [0o600] * 3
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads(private[2].read_text())["secret"] == secret()
    write_extension(home(), new_secret=True)
    assert json.loads(private[2].read_text())["secret"] == secret()


def test_without_a_browser_the_wait_is_bounded_and_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # C089
    monkeypatch.setattr(server, "FIND_US", 0.3)
    port, link_port = free_ports()
    write_extension(home())
    with TMWebDriver(port, link_port) as driver:
        begin = time.monotonic()
        with pytest.raises(ToolError, match=f"port {port}.*agentmain.py browser setup"):
            driver.execute_js("1")
        assert time.monotonic() - begin < 30
        stop = driver.stop = Abort()
        stop.set()
        with pytest.raises(Aborted):
            driver.execute_js("1")


def test_status_without_a_browser_names_likely_causes_soon(monkeypatch: pytest.MonkeyPatch) -> None:  # C086 C089
    monkeypatch.setattr(browser, "WAIT", 0.3)
    monkeypatch.setattr(server, "FIND_US", 600)
    ports = free_ports()
    write_extension(home(), *ports)
    with pytest.raises(
        ToolError, match=f"port {ports[0]}: it is closed, or .* profile .*popup.*agentmain.py browser setup"
    ) as error:
        run_browser(["status"])
    assert "\n" not in str(error.value)
    with TMWebDriver(), pytest.raises(ToolError, match="it is closed"):
        run_browser(["status"])  # the same when another holds the bridge


def test_before_setup_nothing_is_opened_and_the_command_is_named() -> None:  # C089 C095
    for call in (TMWebDriver, lambda: run_browser(["status"])):
        with pytest.raises(ToolError, match="not set up: .*agentmain.py browser setup$"):
            call()
    assert not (home() / "browser").exists()


def test_a_missing_package_is_named() -> None:  # C095
    code = "import sys; sys.modules['websockets'] = None; from TMWebDriver import TMWebDriver; TMWebDriver()"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=root)
    assert "ConfigError" in done.stderr and "pip install websockets" in done.stderr


def test_setup_copies_the_extension_and_says_the_one_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_browser(["setup", "--port", "20001", "--link-port", "20002"]) == 0
    folder = home() / "extension"
    assert str(folder) in (said := capsys.readouterr().out) and "chrome://extensions" in said
    assert server.ports(home()) == (20001, 20002)
    assert json.loads((folder / "pairing.json").read_text()) == {"secret": secret(), "port": 20001}
    assert json.loads((folder / "manifest.json").read_text())["manifest_version"] == 3
    before = secret()
    assert run_browser(["setup"]) == 0 and (secret(), server.ports(home())) == (before, (20001, 20002))
    assert run_browser(["setup", "--new-secret"]) == 0 and secret() != before
    wrong = (["--port", "0x"], ["--port", "70000"], ["--port", "5", "--link-port", "5"], ["--nonsense"])
    for words in (["nonsense"], *(["setup", *w] for w in wrong)):
        with pytest.raises(UsageError):
            run_browser(words)


def test_handshake_libraries_are_refused_too(bridge: server.Bridge) -> None:
    for origin in (None, "https://evil.example", "null"):
        with pytest.raises(InvalidHandshake), connect(f"ws://127.0.0.1:{bridge.port}", origin=origin):
            pass
