"""Hostile programs in a real sandbox without network: none gets through, and each would, outside of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from genericagent.safety import sandbox as module
from genericagent.safety.sandbox import Sandbox, why_not
from genericagent.safety.zones import Zones
from genericagent.tools.code_run import code_run

NO_SANDBOX = "NO SANDBOX HERE, nothing of it was tested: "
CANARY = "canary-5b1e77"
linux = sys.platform == "linux"
pytestmark = [pytest.mark.skipif(not linux, reason=NO_SANDBOX + "not Linux"), pytest.mark.timeout(150)]
root = pytest.mark.skipif(not linux or os.geteuid() != 0, reason="the control needs root")


@dataclass
class World:
    """A workspace, what lies outside of it, a home with keys, and a host process with a secret."""

    base: Path
    got: list[str] = field(default_factory=list)  # what came to the host's sockets
    names: dict[str, Any] = field(default_factory=dict)  # what the probes find as variables

    def __post_init__(self) -> None:
        self.ws, self.out, self.home = (self.base / name for name in ("ws", "out", "ga"))
        self.user = self.base / "user"
        for name in ("ws/.git/hooks", "ws/nested/deep/.git/hooks", "ws/githooks", "ws/linked/.git", "out", "user/.ssh", "ga/temp/_output",
                     "ga/memory/L4_raw_sessions", "ga/sessions", "ga/plugins"):  # fmt: skip
            (self.base / name).mkdir(parents=True)
        for name in ("ws/.git/config", "ws/nested/deep/.git/config", "ws/linked/.git/config", "ws/.envrc", "ws/githooks/pre-push", "out/file",
                     "user/.netrc", "user/.ssh/id", "ga/config.toml", "ga/sessions/s.jsonl", "ga/memory/global_mem.txt", "ga/plugins/p.py",
                     "ga/memory/L4_raw_sessions/s.jsonl.gz"):  # fmt: skip
            (self.base / name).write_text(f"{CANARY}\n")
        (self.ws / "linked/.git/hooks").symlink_to("../../githooks")

    def box(self, net: bool = False) -> Sandbox:
        return Sandbox(Zones(self.ws, self.home, self.user), net=net)

    def run(self, script: str, boxed: bool, kind: str = "python", **how: Any) -> dict[str, Any]:
        if kind == "python":
            script = f"import os, socket, ctypes\nglobals().update({self.names!r})\n{script}"
        run = code_run(
            script,
            kind,
            30,
            self.ws,
            spool_dir=self.home / "temp/_output",
            sandbox=self.box() if boxed else None,
            **how,
        )
        while True:
            try:
                next(run)
            except StopIteration as end:
                result: dict[str, Any] = end.value
                return result


VICTIM = f"import sys, time\ns = '{CANARY}' * 2\nprint(id(s), flush=True)\ntime.sleep(60)"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(module, "SCRATCH", ("/var/tmp",))  # the tests' own folder is below /tmp and must be seen
    found = module._sockets  # those of tests that run beside come and go
    monkeypatch.setattr(module, "_sockets", lambda: (path for path in found() if path.is_relative_to(tmp_path)))
    world = World(tmp_path)
    bare = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    if not shutil.which("bwrap") or subprocess.run(bare, check=False).returncode:
        pytest.skip(NO_SANDBOX + "bwrap does not run")
    assert why_not(world.box()) == ""
    env = {**os.environ, "VICTIM_KEY": CANARY}
    victim = subprocess.Popen([sys.executable, "-c", VICTIM], env=env, stdout=subprocess.PIPE, text=True)
    assert victim.stdout
    world.names = {"pid": victim.pid, "address": int(victim.stdout.readline()), "CANARY": CANARY, "user": str(world.user),
                   "out": str(world.out), "ws": str(world.ws), "ga": str(world.home), "abstract": f"\0ga-{os.urandom(6).hex()}"}  # fmt: skip
    with contextlib.ExitStack() as stack:
        for family, kind, address, name in (
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), "tcp"),
            (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), "udp"),
            (socket.AF_UNIX, socket.SOCK_STREAM, world.names["abstract"], "abstract"),
            (socket.AF_UNIX, socket.SOCK_STREAM, str(world.out / "host.sock"), "path"),
        ):
            server = stack.enter_context(socket.socket(family, kind))
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen()
            if family == socket.AF_INET:
                world.names[name] = server.getsockname()
            threading.Thread(target=_serve, args=(server, kind, world.got), daemon=True).start()
            stack.callback(server.shutdown, socket.SHUT_RDWR) if kind == socket.SOCK_STREAM else None
        yield world
    victim.kill()
    victim.communicate()


def _serve(server: socket.socket, kind: int, got: list[str]) -> None:
    with contextlib.suppress(OSError):  # closed at the end of the test
        while True:
            if kind == socket.SOCK_DGRAM:
                got.append(server.recv(100).decode())
            else:
                server.accept()[0].close()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def won(world: World, result: dict[str, Any]) -> bool:
    """Whether a probe got through: it says so (only after an effect), or the effect is seen from outside."""
    assert result["status"] in ("success", "error"), result
    seen = any(CANARY not in _text(world.base / f) for f in ("out/file", "ga/config.toml", "ga/memory/global_mem.txt", "ga/plugins/p.py",
               "ws/.envrc", "ws/.git/config", "ws/nested/deep/.git/config", "ws/githooks/pre-push"))  # fmt: skip
    made = [f for f in ("out/new", "ws/.git/hooks/pre-commit", "ws/nested/deep/.git/hooks/pre-commit", "ws/linked/.git/hooks/evil",
                        "ga/plugins/new.py", "ws/githooks/evil", "ws/.bashrc", "ws/.git/hooks/evil") if os.path.lexists(world.base / f)]  # fmt: skip
    return "ESCAPED" in result["stdout"].splitlines() or seen or bool(made) or bool(world.got)


# the eleven of the contract
PROBES = {
    "writes outside": "open(f'{out}/new', 'w').write('x')",
    "writes through a symlink": "os.symlink(out, 'link'); open('link/new', 'w').write('x')",
    "writes a git hook": "open('.git/hooks/pre-commit', 'w').write('x')",
    "reads the key file": "if CANARY in open(f'{ga}/config.toml').read(): print('ESCAPED')",
    "reads a process's environment": """
for name in os.listdir('/proc'):
    try:
        if name.isdecimal() and int(name) != os.getpid() and f'VICTIM_KEY={CANARY}'.encode() in open(f'/proc/{name}/environ', 'rb').read(): print('ESCAPED')
    except OSError: pass""",
    "reads a process's memory": """
with open(f'/proc/{pid}/mem', 'rb') as memory:
    memory.seek(address)
    if CANARY.encode() in memory.read(200): print('ESCAPED')""",
    "TCP to the host": "socket.create_connection(tcp, 5); print('ESCAPED')",
    "UDP to the host": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', tuple(udp)); import time; time.sleep(.2)",
    "abstract socket to the host": "socket.socket(socket.AF_UNIX).connect(abstract); print('ESCAPED')",
    "signals a host process": "os.kill(pid, 0); print('ESCAPED')",
    "remounts": """
libc = ctypes.CDLL(None, use_errno=True)
for where in ('/', out, os.path.dirname(out)):
    libc.mount(None, where.encode(), None, 32 | 4096, None)  # MS_REMOUNT, MS_BIND
open(f'{out}/new', 'w').write('x')""",
}
# more kinds
MORE = {
    "moves .git away": "os.rename('.git', 'old'); os.makedirs('.git/hooks'); open('.git/hooks/pre-commit', 'w').write('x')",
    "moves the hooks away": "os.rename('.git/hooks', '.git/old'); os.mkdir('.git/hooks'); open('.git/hooks/pre-commit', 'w').write('x')",
    "writes a nested repository's hook": "open('nested/deep/.git/hooks/pre-commit', 'w').write('x')",
    "moves a nested repository's parent": "os.rename('nested/deep', 'n'); os.makedirs('nested/deep/.git/hooks'); open('nested/deep/.git/config', 'w').write(CANARY); open('nested/deep/.git/hooks/pre-commit', 'w').write('x')",
    "writes git's config": "open('.git/config', 'w').write('[core] fsmonitor = evil')",
    "replaces git's config": "open('c', 'w').write('evil'); os.replace('c', '.git/config')",
    "writes where linked hooks lie": "open('githooks/evil', 'w').write('x')",
    "changes a linked hook": "open('githooks/pre-push', 'w').write('x')",
    "swaps linked hooks": "os.unlink('linked/.git/hooks'); os.mkdir('mine'); open('mine/evil', 'w').write('x'); os.symlink('../../mine', 'linked/.git/hooks')",
    "changes .envrc": "open('.envrc', 'w').write('x')",
    "replaces .envrc": "open('e', 'w').write('x'); os.replace('e', '.envrc')",
    "makes .bashrc": "open('.bashrc', 'w').write('x')",
    "links an outside file here": "os.link(f'{out}/file', 'mine'); open('mine', 'w').write('x')",
    "through the first process's root": "open(f'/proc/1/root{out}/new', 'w').write('x')",
    "through its parent's root": "open(f'/proc/{os.getppid()}/root{out}/new', 'w').write('x')",
    "through a host process's root": "open(f'/proc/{pid}/root{out}/new', 'w').write('x')",
    "opens the interpreter's library to write": "os.open(os.__file__, os.O_RDWR | os.O_APPEND); print('ESCAPED')",
    "traces a host process": "libc = ctypes.CDLL(None); print('ESCAPED' if libc.ptrace(16, pid, 0, 0) == 0 else ''); os.waitpid(pid, 0); libc.ptrace(17, pid, 0, 0)",
    "unshares for capabilities": "import subprocess; print('ESCAPED' if subprocess.run(['unshare', '-U', 'true']).returncode == 0 else '')",
    "bwrap in bwrap": "import subprocess; subprocess.run(['bwrap', '--bind', '/', '/', 'sh', '-c', f': >{out}/new'])",
    "gains privileges by setuid": "if 'NoNewPrivs:\\t0' in open('/proc/self/status').read(): print('ESCAPED')",
    "connects to a socket with a path": "socket.socket(socket.AF_UNIX).connect(f'{out}/host.sock'); print('ESCAPED')",
    "writes our plugins": "open(f'{ga}/plugins/new.py', 'w').write('x')",
    "changes our plugins": "open(f'{ga}/plugins/p.py', 'w').write('x')",
    "writes our memory": "open(f'{ga}/memory/global_mem.txt', 'w').write('x')",
    "writes our config": "open(f'{ga}/config.toml', 'w').write('x'); print('ESCAPED')",
    "reads other conversations": "if CANARY in open(f'{ga}/sessions/s.jsonl').read(): print('ESCAPED')",
    "reads archived conversations": "if CANARY in open(f'{ga}/memory/L4_raw_sessions/s.jsonl.gz').read(): print('ESCAPED')",
    "reads the user's ssh key": "if CANARY in open(f'{user}/.ssh/id').read(): print('ESCAPED')",
    "reads .netrc": "if CANARY in open(f'{user}/.netrc').read(): print('ESCAPED')",
    "swaps the folder of outputs": "os.rename(f'{ga}/temp/_output', f'{ga}/temp/o'); os.symlink(out, f'{ga}/temp/_output'); os.unlink(f'{ga}/temp/_output'); os.rename(f'{ga}/temp/o', f'{ga}/temp/_output'); print('ESCAPED')",
    "swaps temp": "os.rename(f'{ga}/temp', f'{ga}/t'); os.rename(f'{ga}/t', f'{ga}/temp'); print('ESCAPED')",
    "asks the kernel for keys": "libc = ctypes.CDLL(None); print('ESCAPED' if libc.syscall({'x86_64': 250, 'aarch64': 219}[os.uname().machine], 0, -3, 1) > 0 else '')",
    "makes an io_uring": "libc = ctypes.CDLL(None, use_errno=True); libc.syscall(425, 1, None); print('ESCAPED' if ctypes.get_errno() == 14 else '')",
    "watches the host's files": "open(f'{ga}/sessions').close() if not os.path.isdir(f'{ga}/sessions') else print('ESCAPED')",
    "reads the host's shared memory": "if CANARY in open(shm).read(): print('ESCAPED')",
    "attaches the host's System V memory": "libc = ctypes.CDLL(None); print('ESCAPED' if libc.shmget(sysv, 0, 0) >= 0 else '')",
    "reads the starter's environment": "if 'HOST_VARIABLE' in ''.join(open(f'/proc/{p}/environ').read() for p in (os.getppid(), 'self')): print('ESCAPED')",
    "is known to the host by its name": "socket.sethostname(socket.gethostname()); print('ESCAPED')",
}  # fmt: skip
AS_ROOT = {
    "sets the core pattern": "f = open('/proc/sys/kernel/core_pattern', 'r+'); text = f.read(); f.seek(0); f.write(text); f.flush(); print('ESCAPED')",
    "makes a device": "os.mknod('device', 0o020600, os.makedev(1, 5)); print('ESCAPED')",
    "mounts": "libc = ctypes.CDLL(None); os.mkdir('m'); print('ESCAPED' if libc.mount(b'none', b'm', b'tmpfs', 0, None) == 0 else ''); libc.umount(b'm')",
    "raises its priority": "os.nice(-5); print('ESCAPED')",
    "enters a host namespace": "print('ESCAPED' if ctypes.CDLL(None).setns(os.open(f'/proc/{pid}/ns/uts', os.O_RDONLY), 0) == 0 else '')",
}  # fmt: skip
NEEDS_ROOT = {"reads a process's memory", "through a host process's root", "traces a host process", "opens the interpreter's library to write", "is known to the host by its name"}  # fmt: skip
NO_CONTROL = {"through the first process's root", "gains privileges by setuid", "asks the kernel for keys", "makes an io_uring", "unshares for capabilities", "bwrap in bwrap"}  # fmt: skip
ALL = PROBES | MORE | AS_ROOT


@pytest.fixture
def shared(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Memory of the host that others could find, and a variable of its environment."""
    libc, key = ctypes.CDLL(None), int.from_bytes(os.urandom(3), "big") + 1
    block = libc.shmget(key, 4096, 0o1666)
    file = Path(f"/dev/shm/ga-probe-{key}")
    world.names |= {"shm": str(file), "sysv": key}
    file.write_text(CANARY)
    monkeypatch.setenv("HOST_VARIABLE", "x")
    yield world
    libc.shmctl(block, 0, None)
    file.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_a_hostile_program_gets_out_of_the_sandbox(name: str, shared: World) -> None:
    result = shared.run(ALL[name], boxed=True)
    assert not won(shared, result), result


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_the_probe_proves_nothing_because_it_fails_everywhere(name: str, shared: World) -> None:
    if (name in NEEDS_ROOT or name in AS_ROOT) and os.geteuid() != 0:
        pytest.skip("needs root outside of the sandbox")
    result = shared.run(ALL[name], boxed=False)
    if name in NO_CONTROL and not won(shared, result):
        pytest.skip("this machine forbids it to everybody")
    assert won(shared, result), result


def test_the_network_is_closed_only_where_it_was_asked_for(world: World) -> None:
    run = code_run(f"import socket; socket.create_connection({world.names['tcp']!r}, 5); print('connected')", "python", 30, world.ws,
                   spool_dir=world.home / "temp/_output", sandbox=world.box(net=True))  # fmt: skip
    with pytest.raises(StopIteration) as end:
        while True:
            next(run)
    assert end.value.value["stdout"] == "connected\n"


# what must still work

WORKS = {
    "a write": "echo x > new && cat new && mkdir d && rm -r d new",
    "temp": "echo x > ../ga/temp/t && cat ../ga/temp/t",
    "memory": "cat ../ga/memory/*.txt",
    "ssl and sqlite": 'python3 -c \'import ssl, sqlite3; ssl.create_default_context(); sqlite3.connect("db").execute("create table t (x)"); print(1)\'',
    "pip": f"{sys.executable} -m pip --version",
    "scratch": 'export TMPDIR=/var/tmp; echo x > /var/tmp/x && f=$(mktemp) && echo y > "$f" && cat "$f"',
    "pipes and jobs": "seq 1000 | sort -rn | head -1; sleep 0.01 & wait; cat <(echo sub)",
    "threads": "python3 -c 'import concurrent.futures as c; print(sum(c.ThreadPoolExecutor(50).map(int, range(100))))'",
    "processes": "python3 -c 'import multiprocessing as m; print(m.Pool(2).map(abs, [-1]))'",
    "devices": "head -c 4 /dev/urandom | wc -c; echo > /dev/null",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_honest_work_fails_in_the_sandbox(name: str, world: World) -> None:
    result = world.run(f"set -e -o pipefail\n{WORKS[name]}", boxed=True, kind="bash")
    assert result["status"] == "success" and result["stdout"].strip(), result
    assert "note" not in result


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_does_not_work_in_the_sandbox(world: World) -> None:
    shutil.rmtree(world.ws / ".git")
    git = "git -c user.name=a -c user.email=a@b -c safe.directory='*'"
    first = world.run(
        f"set -e; git init -q .; echo x > f; {git} add f; {git} commit -qm one; {git} log --oneline | wc -l",
        True,
        "bash",
    )
    assert first["stdout"] == "1\n" and "git repository was made" in first["note"], first
    assert not (world.ws / ".git/hooks/pre-commit").exists()
    second = world.run(f"set -e; echo y >> f; {git} commit -qam two; {git} checkout -qb b; {git} gc -q; {git} stash list; {git} status --short; {git} log --oneline | wc -l",
                       True, "bash")  # fmt: skip
    assert second["status"] == "success" and second["stdout"].endswith("2\n") and "note" not in second, second
    assert ".bashrc" not in second["stdout"]


def test_twenty_megabytes_do_not_come_through(world: World) -> None:
    result = world.run("yes 0123456789abcde | head -c 20000000", True, "bash")
    assert result["status"] == "success" and Path(result["output_file"]).stat().st_size == 20_000_000
