"""Localhost is not trusted: nothing we ship listens beyond loopback, and none of it answers who lacks its token."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ports import free_ports

from genericagent.errors import ConfigError
from genericagent.safety import listener
from genericagent.safety.listener import loopback_socket, new_token, refusal, token_file
from genericagent.scripted import ScriptedServer, say

ROOT = Path(__file__).parents[2]
TOKEN, PORT, ORIGIN = "t" * 43, 4711, "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
Headers = list[tuple[str, str]]
HOST, AUTH = ("Host", f"127.0.0.1:{PORT}"), ("Authorization", f"Bearer {TOKEN}")
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/net says who listens")


def why_not(headers: Headers, **how: Any) -> str:
    return refusal(headers, **{"port": PORT, "token": TOKEN, "origins": [ORIGIN], **how})


# who is let in

FRIENDLY: list[Headers] = [
    [HOST, AUTH],
    [("host", f"LocalHost:{PORT}"), ("AUTHORIZATION", f"bearer {TOKEN}")],
    [("HOST", f"[::1]:{PORT}"), ("X-Api-Key", TOKEN)],
    [HOST, ("Origin", ORIGIN), ("x-api-key", TOKEN), AUTH],
    [HOST, ("X-Bridge", TOKEN), ("Accept", "a"), ("Accept", "b")],
    [("Host", f" 127.0.0.1:{PORT}\t"), ("x-api-key", f" {TOKEN} ")],
]


@pytest.mark.parametrize("headers", FRIENDLY)
def test_who_has_the_token_and_comes_from_here_is_let_in(headers: Headers) -> None:
    assert why_not(headers, token_header="X-Bridge") == ""


BAD_HOSTS = [
    "", "attacker.test", f"attacker.test:{PORT}", "127.0.0.1", "localhost", f"127.0.0.1:{PORT + 1}", f"127.0.0.1:0{PORT}",
    f"127.0.0.1.attacker.test:{PORT}", f"localhost.attacker.test:{PORT}", f"attacker.test:{PORT}@127.0.0.1:{PORT}",
    f"user@127.0.0.1:{PORT}", f"127.0.0.1:{PORT},attacker.test", f"127.0.0.1:{PORT} attacker.test", f"localhost.:{PORT}",
    f"0.0.0.0:{PORT}", f"127.1:{PORT}", f"2130706433:{PORT}", f"127.0.0.2:{PORT}", f"192.0.2.1:{PORT}", f"::1:{PORT}",
    f"[::]:{PORT}", f"[::ffff:127.0.0.1]:{PORT}", f"http://127.0.0.1:{PORT}", f"127.0.0.1:{PORT}/", "*", f":{PORT}",
    f"localhoſt:{PORT}", f"127.0.0.1:{PORT}\0", f"127.0.0.1:{PORT}\r\nX: y",
]  # fmt: skip
BAD_ORIGINS = [
    "", "null", "NULL", "*", "http://evil.test", "https://evil.test", f"http://127.0.0.1:{PORT}", f"http://localhost:{PORT}",
    "file://", "chrome-extension://", f"{ORIGIN}x", f"{ORIGIN}/", f"{ORIGIN}.evil.test", ORIGIN[:-1], ORIGIN.upper(),
    f"{ORIGIN} http://evil.test", f"{ORIGIN}, http://evil.test", "chrome-extension://ponmlkjihgfedcbaponmlkjihgfedcba",
    ORIGIN.replace("chrome", "moz"), f"http://evil.test/{ORIGIN}",
]  # fmt: skip
BAD_TOKENS: list[Headers] = [
    [],
    [("Authorization", "")],
    [("Authorization", TOKEN)],
    [("Authorization", "Bearer")],
    [("Authorization", "Bearer ")],
    [("Authorization", f"Basic {TOKEN}")],
    [("Authorization", f"Bearer {TOKEN}x")],
    [("Authorization", f"Bearer {TOKEN[:-1]}")],
    [("Authorization", f"Bearer {TOKEN.upper()}")],
    [("Authorization", f"Bearer {TOKEN}, Bearer x")],
    [("Authorization", f"Bearer x {TOKEN}")],
    [("Authorization", "Bearer \ud800é")],
    [("x-api-key", "")],
    [("x-api-key", "wrong")],
    [("x-api-key", f"Bearer {TOKEN}")],
    [("x-api-key", "wrong"), AUTH],
    [("x-api-key", TOKEN), ("Authorization", "Bearer wrong")],
    [("X-Other", TOKEN)],
    [("Cookie", f"x-api-key={TOKEN}")],
]
MALFORMED: list[Headers] = [
    [HOST, HOST, AUTH],
    [HOST, ("host", "attacker.test"), AUTH],
    [("host", "attacker.test"), HOST, AUTH],
    [HOST, AUTH, AUTH],
    [HOST, AUTH, ("authorization", "Bearer wrong")],
    [HOST, AUTH, ("Origin", ORIGIN), ("origin", "http://evil.test")],
    [HOST, AUTH, ("x-api-key", TOKEN), ("X-API-Key", TOKEN)],
    [HOST, AUTH, ("Content-Length", "1"), ("content-length", "2")],
    [HOST, AUTH, ("Transfer-Encoding", "chunked"), ("transfer-encoding", "identity")],
    [("Host ", HOST[1]), AUTH],
    [(" Host", HOST[1]), AUTH],
    [HOST, AUTH, ("", "x")],
    [HOST, AUTH, ("X:Y", "x")],
    [HOST, AUTH, ("X\r\nOrigin", "x")],
    [HOST, AUTH, ("X-Ünı", "x")],
    [HOST, AUTH, ("X", "a\nb")],
    [AUTH],
    [],
]


@pytest.mark.parametrize("host", BAD_HOSTS)
def test_another_name_for_this_machine_is_refused_with_the_right_token(host: str) -> None:  # C146
    assert why_not([("Host", host), AUTH])


@pytest.mark.parametrize("origin", BAD_ORIGINS)
def test_a_page_or_an_extension_that_is_not_allowed_is_refused_with_the_right_token(origin: str) -> None:  # C145 C146
    assert "Origin" in why_not([HOST, ("Origin", origin), AUTH])
    if origin.lower() in ("", "null"):
        assert "Origin" in why_not([HOST, ("Origin", origin), AUTH], origins=[origin])
    assert "Origin" in why_not([HOST, ("Origin", ORIGIN), AUTH], origins=())


@pytest.mark.parametrize("headers", BAD_TOKENS)
def test_without_the_token_nobody_is_let_in(headers: Headers) -> None:  # C145
    why = why_not([HOST, *headers])
    assert why == listener.NO_TOKEN and listener.status(why) == 401
    assert TOKEN not in why


@pytest.mark.parametrize("headers", MALFORMED)
def test_doubled_and_malformed_headers_are_refused(headers: Headers) -> None:
    why = why_not(headers)
    assert why and listener.status(why) == 403


def test_a_listener_without_a_token_lets_nobody_in() -> None:
    for value in ("", "Bearer", "Bearer "):
        assert why_not([HOST, ("Authorization", value), ("x-api-key", "")], token="")


# where it listens


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_only_loopback_is_bound_and_a_taken_port_is_told(family: socket.AddressFamily, address: str) -> None:
    try:
        first = loopback_socket(family=family)
    except ConfigError:
        if family == socket.AF_INET6:
            pytest.skip("no IPv6 here")
        raise
    with first:
        host, port = first.getsockname()[:2]
        assert host == address and not first.get_inheritable()
        with pytest.raises(ConfigError, match=f"port {port}"):
            loopback_socket(port, family)


# the token


def test_the_token_is_made_once_for_the_users_eyes_only(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "token"
    token = token_file(file)
    assert len(token) >= 43 and token == token_file(file) == file.read_text() and token != new_token()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert sorted(p.name for p in file.parent.iterdir()) == ["token", "token.lock"]


def _spoiled(file: Path, how: str) -> None:
    token = file.read_text()
    if how == "open to all":
        file.chmod(0o644)
    elif how == "open to the group":
        file.chmod(0o660)
    elif how == "a link":
        other = file.with_name("other")
        file.rename(other)
        file.symlink_to(other)
    elif how == "two names":
        os.link(file, file.with_name("other"))
    elif how == "a pipe":
        file.unlink()
        os.mkfifo(file, 0o600)
    else:
        file.write_text({"empty": "", "cut": token[:20], "zeros": "\0" * 43, "not ASCII": "é" * 43}[how])


@pytest.mark.skipif(os.name != "posix", reason="mode bits and pipes")
@pytest.mark.parametrize(
    "how", ["open to all", "open to the group", "a link", "two names", "a pipe", "empty", "cut", "zeros", "not ASCII"]
)
def test_a_token_that_others_may_know_or_that_is_none_is_made_anew(tmp_path: Path, how: str) -> None:
    file = tmp_path / "token"
    before = token_file(file)
    _spoiled(file, how)
    after = token_file(file)
    assert after != before and len(after) >= 43 and after == token_file(file)
    assert stat.S_ISREG(file.lstat().st_mode) and stat.S_IMODE(file.lstat().st_mode) == 0o600


MAKE = """
import sys
from pathlib import Path
from genericagent.safety.listener import token_file
sys.stdin.readline()
print(token_file(Path(sys.argv[1])))
"""


def test_processes_that_race_for_the_token_get_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(tmp_path / "token")]
    pipe = subprocess.PIPE
    running = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(4)]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    tokens = {process.communicate(timeout=30)[0] for process in running}
    assert len(tokens) == 1 and tokens != {""}


def test_a_token_that_cannot_be_kept_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "token", tmp_path / "file" / "token"):
        with pytest.raises(ConfigError, match="cannot keep a token"):
            token_file(path)


# everything that we ship


@dataclass(frozen=True)
class Face:
    """Something of ours that runs. `token` finds the token of its listener below the temp folder; None: it has none."""

    args: tuple[str, ...]
    terminal: bool = False
    token: Callable[[Path], str] | None = None


def _demo_token(temp: Path) -> str:
    (file,) = temp.glob("ga-model-*/config.toml")
    return str(tomllib.loads(file.read_text(encoding="utf-8"))["llm"][0]["api_key"])


FACES = {
    "the chat": Face((), terminal=True),
    "the demo": Face(("--demo",), terminal=True, token=_demo_token),
    "one request": Face(("-p", "hi")),
    "a task": Face(("--task", "t", "--input", "hi")),
}


@dataclass
class Running:
    pid: int
    temp: Path
    shown: bytearray
    asked: Callable[[], bool]


@contextlib.contextmanager
def running(face: Face, tmp_path: Path) -> Iterator[Running]:
    """Start it, with a model that keeps it waiting; it and all it started are killed at the end."""
    import pty

    temp = tmp_path / "tmp"
    temp.mkdir()
    with ScriptedServer([say("late", hang_before_headers=60)]) as server:
        env = {**os.environ, "TMPDIR": str(temp), "TERM": "xterm"}
        env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        command = [sys.executable, str(ROOT / "agentmain.py"), *face.args]
        ours, theirs = pty.openpty()
        stdin = theirs if face.terminal else subprocess.DEVNULL
        program = subprocess.Popen(
            command, stdin=stdin, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path, start_new_session=True
        )
        os.close(theirs)
        shown = bytearray()
        reader = threading.Thread(target=_drain, args=(ours, shown), daemon=True)
        reader.start()
        try:
            yield Running(program.pid, temp, shown, lambda: bool(server.requests))
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            reader.join(10)
            os.close(ours)


def _drain(fd: int, shown: bytearray) -> None:
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while data := os.read(fd, 65536):
            shown += data


def until(condition: Callable[[], Any], what: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.02)


def tree(pid: int) -> set[int]:
    """The process and all that descend from it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listeners(pid: int) -> set[tuple[str, int]]:
    """(address, port) of each TCP or UDP socket of the process tree that takes what comes; ("unix:name", 0)."""
    found: set[tuple[str, int]] = set()
    for process in tree(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            inodes = set()
            for fd in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):  # closed meanwhile
                    inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))  # noqa: PTH115
            found.update(_listening(Path(f"/proc/{process}/net"), inodes))
    return found


def _listening(net: Path, inodes: set[str]) -> Iterator[tuple[str, int]]:
    """States of /proc/net/tcp, udp (proc_net_tcp.txt): 0A listens, 07 is a UDP socket that is not connected."""
    for name, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in (net / name).read_text().splitlines()[1:] if (net / name).exists() else []:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                address, port = fields[1].split(":")
                words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
                yield str(ipaddress.ip_address(b"".join(words))), int(port, 16)
    for line in (net / "unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & 0x10000 and fields[6] in inodes:  # __SO_ACCEPTCON
            yield f"unix:{fields[7] if len(fields) > 7 else ''}", 0


def hostile(port: int, token: str) -> dict[str, Headers]:
    """What a page, another program of this machine, a rebound name would send. The token is right unless told."""
    host, key = ("Host", f"127.0.0.1:{port}"), ("Authorization", f"Bearer {token}")
    return {
        "no token": [host],
        "no token from a page": [host, ("Origin", "http://evil.test")],
        "wrong token": [host, ("Authorization", "Bearer wrong")],
        "wrong key": [host, ("x-api-key", "no-key-needed")],
        "evil Origin": [host, key, ("Origin", "http://evil.test")],
        "Origin null": [host, key, ("Origin", "null")],
        "another extension": [host, key, ("Origin", "chrome-extension://ponmlkjihgfedcbaponmlkjihgfedcba")],
        "Host of another name": [("Host", f"attacker.test:{port}"), key],
        "evil Host and page": [("Host", f"attacker.test:{port}"), key, ("Origin", f"http://attacker.test:{port}")],
        "Host missing": [key],
        "two Hosts": [host, ("Host", "attacker.test"), key],
        "Host without port": [("Host", "127.0.0.1"), key],
    }


REQUESTS = ["POST /v1/messages", "POST /v1/chat/completions", "GET /v1/models", "GET /", "OPTIONS /v1/messages"]


def ask(address: str, port: int, request: str, headers: Headers) -> bytes:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})
    lines = [f"{request} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    lines += ["Content-Type: application/json", "anthropic-version: 2023-06-01", f"Content-Length: {len(body)}"]
    with socket.create_connection((address, port), timeout=10) as conn:
        conn.sendall("\r\n".join([*lines, "Connection: close", "", body]).encode())
        answer = b""
        with contextlib.suppress(ConnectionError):  # it does not wait for the body of who is refused
            while data := conn.recv(65536):
                answer += data
        return answer


@linux
@pytest.mark.parametrize("name", FACES)
def test_all_that_listens_is_on_loopback_and_refuses_strangers(tmp_path: Path, name: str) -> None:  # C145 C146
    face = FACES[name]
    with running(face, tmp_path) as program:
        if face.token:
            until(lambda: listeners(program.pid), lambda: bytes(program.shown))
        else:
            until(lambda: bool(program.shown) if face.terminal else program.asked(), lambda: bytes(program.shown))
        found = listeners(program.pid)
        assert bool(found) == bool(face.token), found
        for address, port in found:
            assert port and ipaddress.ip_address(address).is_loopback, (address, port)
            assert face.token is not None
            token = face.token(program.temp)
            for how, headers in hostile(port, token).items():
                for request in REQUESTS:
                    answer = ask(address, port, request, headers)
                    assert answer.split(b" ")[1:2] in ([b"401"], [b"403"]), (how, request, answer)
                    assert token.encode() not in answer and b"access-control" not in answer.lower()
            for junk in (b"\0" * 100, b"GET / HTTP/1.1\r\n" + b"x" * 200_000, b"\x16\x03\x01\x02\0\x01\0\x01\xfc"):
                with socket.create_connection((address, port), timeout=10) as conn, contextlib.suppress(OSError):
                    conn.sendall(junk)
                    conn.shutdown(socket.SHUT_WR)
                    assert conn.recv(100) == b""
            friend = [("Host", f"127.0.0.1:{port}"), ("Authorization", f"Bearer {token}")]
            assert ask(address, port, "GET /v1/models", friend).startswith(b"HTTP/1.1 200 ")


@linux
def test_the_scan_sees_what_listens(tmp_path: Path) -> None:
    code = (
        "import socket, sys; a = socket.create_server(('0.0.0.0', 0)); b = socket.socket(socket.AF_UNIX);"
        "b.bind('\\0ga-test'); b.listen(); c = socket.socket(type=socket.SOCK_DGRAM); c.bind(('127.0.0.1', 0));"
        "print(a.getsockname()[1], c.getsockname()[1], flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as program:
        assert program.stdout is not None
        tcp, udp = map(int, program.stdout.readline().split())
        assert listeners(program.pid) == {("0.0.0.0", tcp), ("127.0.0.1", udp), ("unix:@ga-test", 0)}


def test_the_bridge_to_the_browser_is_on_loopback_and_refuses_strangers(
    tmp_path: Path, run_ga: Any, ga_home: Path
) -> None:  # C145 C146
    port, link_port = map(str, free_ports())
    assert run_ga("browser", "setup", "--port", port, "--link-port", link_port).returncode == 0
    secret = (ga_home / "browser" / "secret").read_text(encoding="utf-8").strip()
    with running(Face(("browser", "status")), tmp_path) as program:
        until(lambda: len(listeners(program.pid)) == 2, lambda: bytes(program.shown))
        found = listeners(program.pid)
        assert all(port and ipaddress.ip_address(address).is_loopback for address, port in found), found
        for address, number in found:
            for how, headers in hostile(number, secret).items():
                for request in [*REQUESTS, "POST /call", "GET /link"]:
                    answer = ask(address, number, request, headers)
                    assert not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 101")), (how, request, answer)
                    assert secret.encode() not in answer and b"access-control" not in answer.lower()
