"""code_run with real processes: how a script can end, what it can print, and what is left of it."""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.abort import Abort
from genericagent.errors import ToolError
from genericagent.safety import sandbox as recipe
from genericagent.safety.redact import MARK as MASKED
from genericagent.safety.redact import Redactor
from genericagent.safety.sandbox import Sandbox, why_not
from genericagent.safety.zones import Zones
from genericagent.tools import code_run as module
from genericagent.tools import jobs, output
from genericagent.tools.code_run import child_env, clean_spool, code_run
from genericagent.tools.jobs import background, keep, kill_background
from genericagent.tools.limits import Limits

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="bash and process groups"), pytest.mark.timeout(150)]

Run = Generator[str, None, dict[str, Any]]
Result = dict[str, Any]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    kill_background()


def start(script: str, kind: str = "bash", **how: Any) -> Run:
    how.setdefault("spool_dir", Path("spool").absolute())
    return code_run(script, kind, **how)


def finish(run: Run, shown: list[str] | None = None) -> Result:
    while True:
        try:
            piece = next(run)
        except StopIteration as end:
            result: Result = end.value
            return result
        if shown is not None:
            shown.append(piece)


def bash(script: str, **how: Any) -> Result:
    return finish(start(script, **how))


def python(script: str, **how: Any) -> Result:
    return finish(start(script, "python", **how))


def eventually(what: Any, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def living(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def pids(*names: str) -> list[int]:
    assert eventually(lambda: all(Path(n).exists() and Path(n).read_text().strip() for n in names))
    return [int(Path(n).read_text()) for n in names]


linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# how a grandchild can try to outlive its call; each writes its pid to g.pid, and later would write canary.txt
WORK = "echo $$ > g.pid.new; mv g.pid.new g.pid; sleep 300; touch canary.txt"
GRANDCHILDREN = {
    "child": f"sh -c '{WORK}'; true",
    "background": f"sh -c '{WORK}' & wait",
    "ignores TERM": f"trap '' TERM; sh -c 'trap \"\" TERM; {WORK}' & wait",
    "nohup": f"nohup sh -c '{WORK}' >/dev/null 2>&1 & wait",
    "own group": f"set -m; sh -c '{WORK}' & wait",
    "own session": f"setsid sh -c '{WORK}' & wait",
    "daemon": f"(setsid sh -c '{WORK}' >/dev/null 2>&1 &) ; sleep 300",
    "no environment": f"env -i setsid sh -c '{WORK}' >/dev/null 2>&1 & sleep 300",
    "double fork": "python3 - <<'E'\nimport os, time\nif os.fork(): time.sleep(30)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    "os.closerange(0, 100)\nopen('g.new', 'w').write(str(os.getpid()))\nos.rename('g.new', 'g.pid')\n"
    "os.execve('/bin/sh', ['sh', '-c', 'sleep 300; touch canary.txt'], {})\nE",
    "holds the pipe": f"(trap '' TERM HUP INT; setsid sh -c '{WORK}' &); sleep 300",
    "fifty": f"for i in $(seq 49); do (setsid sleep 300 &) ; sleep 300 & done; sh -c '{WORK}'",
}


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    "end, way",
    [(end, way) for end in ("stop", "close") for way in GRANDCHILDREN]
    + [("timeout", way) for way in ("ignores TERM", "daemon")],
)
def test_a_grandchild_goes_on_after_the_end(end: str, way: str) -> None:  # C044
    stop = Abort()
    run = start("echo up; " + GRANDCHILDREN[way], timeout=1 if end == "timeout" else 30, stop=stop)
    assert "up" in next(run)
    (grandchild,) = pids("g.pid")
    if end == "close":
        run.close()
    else:
        if end == "stop":
            stop.set()
        assert finish(run)["status"] == {"timeout": "timeout", "stop": "stopped"}[end]
    assert not living(grandchild)
    assert not Path("canary.txt").exists() and not background()


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setattr(recipe, "SCRATCH", ("/var/tmp",))  # the tests' own folder is below /tmp
    monkeypatch.setattr(recipe, "_sockets", lambda: ())  # those of tests that run beside come and go
    for name in ("ga/temp", "user"):
        (tmp_path / name).mkdir(parents=True)
    made = Sandbox(Zones(tmp_path, tmp_path / "ga", tmp_path / "user"), net=False)
    bare = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    if not shutil.which("bwrap") or subprocess.run(bare, check=False).returncode:
        pytest.skip("NO SANDBOX HERE, nothing of it was tested: bwrap does not run")
    assert why_not(made) == ""
    return made


def running(word: str) -> list[str]:
    """Command lines of the living processes that hold it, whatever their environment or session is."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if word in (line := file.read_bytes().decode("utf-8", "replace")) and int(file.parent.name) != os.getpid():
                found.append(line)
    return found


@pytest.mark.slow
@linux
@pytest.mark.parametrize("way", GRANDCHILDREN)
@pytest.mark.parametrize("end", ["stop", "timeout", "close", "exit"])
def test_something_outlives_the_sandbox(end: str, way: str, box: Sandbox) -> None:  # C044
    nap = f"300.{int.from_bytes(os.urandom(4), 'big')}"  # known by it also when nothing else is left
    stop, script = Abort(), GRANDCHILDREN[way].replace("sleep 300", f"sleep {nap}")
    if end == "exit":
        script = f"({script}\n) & until [ -s g.pid ]; do sleep 0.01; done; echo up; exit 5"
    run = start("echo up; " + script, timeout=1 if end == "timeout" else 30, stop=stop, sandbox=box)
    assert "up" in next(run)
    pids("g.pid")
    if end == "close":
        run.close()
    else:
        if end == "stop":
            stop.set()
        result = finish(run)
        assert result["status"] == {"timeout": "timeout", "stop": "stopped", "exit": "error"}[end]
        if end == "exit":
            assert result["exit_code"] == 5 and "nothing outlives its call" in result["note"]
    assert not running(nap)
    assert not Path("canary.txt").exists() and not background()


@linux
def test_a_child_that_forks_while_it_is_killed_gets_away() -> None:  # C044
    stop = Abort()
    run = start("f() { trap 'f & exit' TERM; sleep 0.05; f & }; f; echo up; sleep 30", stop=stop)
    next(run)
    stop.set()
    assert finish(run)["status"] == "stopped" and not background()


def test_a_command_ends_before_its_shell_which_then_begins_the_next(monkeypatch: pytest.MonkeyPatch) -> None:  # C044
    """A child can have a smaller number than its parent: the numbers start anew at the system's largest."""
    told = list[int]()
    monkeypatch.setattr(jobs.os, "kill", lambda pid, number: told.append(pid))
    job = jobs.Job(7, "", "", own=False)
    family = {301: 32767, 32767: 20, 20: 4, 400: 1}  # child → parent
    jobs._signal([jobs._Member(pid, pid, job, parent) for pid, parent in sorted(family.items())], signal.SIGTERM)
    assert told == [20, 400, 32767, 301]


def test_a_clean_end_is_not_given_time() -> None:  # C044
    stop = Abort()
    run = start("trap 'echo bye; exit' TERM; echo up; sleep 30 & wait", stop=stop)
    next(run)
    stop.set()
    assert finish(run)["stdout"] == "up\nbye\n"


@pytest.mark.parametrize("kind", ["bash", "python"])
def test_the_child_reads_the_users_keys(kind: str) -> None:  # C046
    script = {
        "bash": 'read x; echo "status $? <$x>"; exec 3</dev/tty && echo tty',
        "python": "try: input()\nexcept EOFError: print('status 1 <>')\nopen('/dev/tty')",
    }[kind]
    read, write = os.pipe()
    kept = os.dup(0)
    os.dup2(read, 0)
    try:
        os.write(write, b"typed\n")
        result = finish(start(script, kind, timeout=20))
        assert os.read(0, 100) == b"typed\n"
    finally:
        os.dup2(kept, 0)
        for fd in (kept, read, write):
            os.close(fd)
    assert "status 1 <>" in result["stdout"] and result["status"] == "error"
    assert "No such device" in result["stdout"]


@pytest.mark.parametrize("consumer", [0.05])
def test_fast_output_starves_the_timer(consumer: float) -> None:  # C049
    begin = time.monotonic()
    run = start("yes", timeout=1)
    result: Result = {}
    while not result:
        try:
            assert next(run)
            time.sleep(consumer)
        except StopIteration as last:
            result = last.value
    assert time.monotonic() - begin < 6
    assert result["status"] == "timeout" and result["stdout"].startswith("y\ny\n")
    assert result["stdout"].endswith("y\ny\n") and len(result["stdout"]) < 10_200


@pytest.mark.parametrize(
    "raw, seen",
    [
        (b"\xb2\xe2\xca\xd4\n", "测试\n"),
        (b"\xb2\xe2\xca\xd4", "测试"),
        (b"caf\xe9 na\xefve\n", "café naïve\n"),
        (b"\xe9t\xe9\n", "été\n"),
        (b"\x93quoted\x94 \x96 5 \x80\n", "“quoted” – 5 €\n"),
        (b"ok\n\xff\xfe\nok\n", None),
        (b"\xff\xfe", None),
        (b"\x80", None),
        ("中文\n".encode() + b"\xb2\xe2\xca\xd4\n" + "ünï 🙂\n".encode(), "中文\n测试\nünï 🙂\n"),
        ("中文说明 ".encode() + b"\xb2\xe2\n", None),
    ],
)
def test_output_that_is_not_utf8_ends_the_reader(raw: bytes, seen: str | None) -> None:  # C050
    script = f"import sys\nfor out in (sys.stdout, sys.stderr): out.buffer.write({raw!r}); out.flush()\nsys.exit(5)"
    shown: list[str] = []
    result = finish(start(script, "python"), shown)
    assert result["exit_code"] == 5 and result["stdout"]
    assert "".join(shown).replace("\n", "") == result["stdout"].replace("\n", "")
    if seen is not None:
        assert result["stdout"] == seen * 2
    if raw.startswith(("中文".encode(), b"ok\n")):
        assert result["stdout"].startswith(("中文", "ok\n"))


@pytest.mark.parametrize("text", ["中", "🙂", "é"])
@pytest.mark.parametrize("line", [1, 37, 80_000])
@pytest.mark.parametrize("foreign", [b"", b"\xb2\xe2\xca\xd4\n"])
def test_a_cut_character_is_shown_as_mojibake(text: str, line: int, foreign: bytes) -> None:  # C050
    lines = f"'x' + ({text!r} * {line} + '\\n') * (150_000 // len({text!r}.encode() * {line}) + 1)"
    script = (
        f"import os\ndata = {foreign!r} + ({lines}).encode() + {foreign!r}\n"
        "while data: data = data[os.write(1, data[:9_001]):]\n"
    )
    shown: list[str] = []
    result = finish(start(script, "python", limit=1000), shown)
    for seen in (result["stdout"].split("\n… about")[0], result["stdout"].rpartition(" …\n")[2]):
        assert len(seen) == 500 and set(seen) <= set(f"x{text}\n测试")
    played = "".join(shown).replace("… more output than is shown here …\n", "")
    assert set(played) <= set(f"x{text}\n测试") and "\n\n" not in played


def test_characters_are_lost_where_a_read_ends() -> None:  # C050
    text = "".join(chr(0x4E00 + n) for n in range(5000))
    script = (
        "import os, time\n"
        f"data = {text!r}.encode()\n"
        "while data: data = data[os.write(1, data[:4_900]):]; time.sleep(0.05)\n"
    )
    shown: list[str] = []
    result = finish(start(script, "python"), shown)
    assert "".join(shown) == text == result["stdout"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, script",
    [
        ("bash", "echo step 1; printf 'Continue? [y/N] '; sleep 30"),
        ("python", "import time\nprint('step 1')\nprint('Continue? [y/N] ', end='')\ntime.sleep(30)"),
    ],
)
def test_a_timeout_throws_the_output_away(kind: str, script: str) -> None:  # C053
    shown: list[str] = []
    result = finish(start(script, kind, timeout=1), shown)
    assert result["stdout"] == "step 1\nContinue? [y/N] " == "".join(shown)
    assert result["status"] == "timeout" and result["exit_code"] is None
    assert "timed out after 1 s, killed" in result["note"] and "input" in result["note"]


def test_a_stop_throws_the_output_away() -> None:  # C059
    stop, shown = Abort(), []
    run = start("for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; sleep 30", stop=stop)
    while "".join(shown) != "1\n2\n":
        shown.append(next(run))
    stop.set()
    result = finish(run)
    assert result["status"] == "stopped" and result["note"] == "stopped by user"
    assert result["stdout"].startswith("1\n2\n") and result["exit_code"] is None


def test_a_stop_during_silence_waits_for_the_next_line() -> None:  # C059
    stop = Abort()
    threading.Timer(0.2, stop.set).start()
    begin = time.monotonic()
    assert bash("sleep 30", stop=stop)["status"] == "stopped"
    assert time.monotonic() - begin < 5


def test_a_stop_of_the_last_turn_cancels_later_calls() -> None:  # C013
    stop = Abort()
    threading.Timer(0.1, stop.set).start()
    assert bash("sleep 30", stop=stop)["status"] == "stopped"
    stop.clear()
    for n in range(5):
        assert bash(f"echo {n}", stop=stop) == {"status": "success", "exit_code": 0, "stdout": f"{n}\n"}
    assert not stop._callbacks


def test_a_call_after_the_stop_still_does_something() -> None:  # C013
    stop = Abort()
    stop.set()
    result = bash("touch done; sleep 30", stop=stop)
    assert result["status"] == "stopped" and result["stdout"] == "" and result["note"] == "stopped by user"
    assert not Path("done").exists()


SERVERS = {
    "plain": "sh -c 'echo $$ > s.pid; while :; do echo tick; sleep 0.02; done' &",
    "quiet": "sh -c 'echo $$ > s.pid; exec sleep 30' >/dev/null 2>&1 &",
    "loud": "sh -c 'echo $$ > s.pid; exec yes tick' &",
    "nohup": "nohup sh -c 'echo $$ > s.pid; while :; do echo tick; sleep 0.02; done' 2>&1 &",
    "own session": "setsid sh -c 'echo $$ > s.pid; exec sleep 30' &",
    "daemon": "(setsid sh -c 'echo $$ > s.pid; exec sleep 30' >/dev/null 2>&1 </dev/null &)",
    "no environment": "env -i setsid /bin/sh -c 'echo $$ > s.pid; exec sleep 30' >/dev/null 2>&1 &",
    "ignores TERM": "sh -c 'trap \"\" TERM; echo $$ > s.pid; while :; do sleep 1; done' >/dev/null 2>&1 &",
}


@linux
@pytest.mark.parametrize("way", SERVERS)
def test_a_server_in_the_background_hangs_the_call_or_outlives_the_program(way: str) -> None:  # C055
    begin = time.monotonic()
    run = start(SERVERS[way] + "\nuntil [ -s s.pid ]; do sleep 0.01; done; echo started")
    result = finish(run)
    assert time.monotonic() - begin < 5
    assert result["status"] == "success"
    assert "started" in result["stdout"] or way == "loud"
    (server,) = pids("s.pid")
    assert living(server)
    ((group, title),) = background().items()
    assert title.startswith(SERVERS[way][:40]) and str(group) in result["note"]
    if way in ("plain", "loud", "nohup"):
        log = next(Path("spool").glob("background-*.log"))
        assert str(log.absolute()) in result["note"]
        assert eventually(lambda: b"tick" in log.read_bytes())
        assert living(server)
    assert kill_background() == {group: title}
    assert not living(server) and not background()


@linux
def test_a_kept_server_is_ended_at_exit() -> None:
    bash("sh -c 'echo $$ > s.pid; exec sleep 30' &")
    bash("sleep 30 & echo $! > other.pid")
    server, other = pids("s.pid", "other.pid")
    kept = next(group for group, title in background().items() if "s.pid" in title)
    assert keep(kept) and not keep(1)
    assert kept not in kill_background() and not living(other) and living(server)
    assert list(background()) == [kept]
    assert list(kill_background([kept, 1])) == [kept] and not living(server)


SERVER = "sh -c 'until [ -e go ]; do sleep 0.01; done; echo tick && echo tock && touch printed' &"
PROGRAM = f"""
from pathlib import Path
from genericagent.tools.code_run import code_run
from genericagent.tools.jobs import background, keep, kill_background
list(code_run({SERVER!r}, "bash", spool_dir=Path("spool").absolute()))
assert keep(next(iter(background()))) and kill_background() == {{}}
"""


@linux
def test_a_kept_server_dies_with_the_pipe_of_the_program_that_has_ended() -> None:
    repo = str(Path(module.__file__).parents[2])
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={**os.environ, "PYTHONPATH": repo})
    Path("go").touch()
    assert eventually(Path("printed").exists)


@linux
def test_a_loud_server_fills_the_disk_or_breaks_when_its_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:  # C055
    monkeypatch.setattr(module, "BACKGROUND_LOG", 50_000)
    bash("sh -c 'echo $$ > s.pid; exec yes tick' & sleep 0.1")
    (server,) = pids("s.pid")
    log = next(Path("spool").glob("background-*.log"))
    assert eventually(lambda: log.stat().st_size == 50_000)
    time.sleep(0.1)
    assert living(server) and log.stat().st_size == 50_000


@linux
def test_a_server_dies_when_its_log_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:  # C055
    bash("sh -c 'echo $$ > s.pid; for i in 1 2 3 4 5 6 7 8 9; do echo tick; sleep 0.05; done; sleep 30' &")
    log = next(Path("spool").glob("background-*.log"))
    log.unlink()
    log.mkdir()
    (server,) = pids("s.pid")
    time.sleep(0.3)
    assert living(server)


@linux
def test_a_server_that_has_ended_is_listed() -> None:  # C056
    bash("sleep 0.2 & echo $! > s.pid")
    assert len(background()) == 1
    assert eventually(lambda: not background())
    assert kill_background() == {}


@linux
def test_a_defunct_process_counts_as_running() -> None:  # C056
    # the parent in the background never waits for its child; when the parent is gone too, only init could
    bash("python3 -c 'import os, time; os.fork() or os._exit(0); time.sleep(0.2)' & sleep 0.05")
    assert eventually(lambda: not background())


def _defunct() -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if state == "Z" and int(parent) == os.getpid():
                found.append(stat.parent.name)
    return found


@linux
def test_calls_leave_defunct_children_descriptors_or_threads_behind() -> None:  # C056
    bash("true")
    gc.collect()  # what the tests before have left
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for n in range(100):
        assert bash(f"echo {n}; exit {n % 3}", limit=1)["exit_code"] == n % 3
    assert _defunct() == [] and background() == {}
    assert eventually(lambda: threading.active_count() <= threads)
    assert len(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208
    stop = Abort()
    for _ in range(5):
        run = start("echo up; sleep 30", stop=stop)
        next(run)
        stop.set()
        finish(run)
        stop.clear()
    assert _defunct() == [] and eventually(lambda: threading.active_count() <= threads)
    assert len(os.listdir("/proc/self/fd")) <= files  # noqa: PTH208


def test_the_end_of_a_thread_is_reported_on_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    for _ in range(8):
        run = start("echo up; sleep 30")
        next(run)
        run.close()
        bash("true")
    time.sleep(0.05)
    assert faults == []


def whole(count: int) -> bytes:
    return "".join(f"line {n} – ü\r\n" for n in range(count)).encode() + b"\x00\xff end"


def test_long_output_is_cut_without_a_file_that_has_it_all() -> None:
    script = "import sys\nsys.stdout.buffer.write(''.join(f'line {n} – ü\\r\\n' for n in range(50_000)).encode())\n"
    result = python(script + "sys.stdout.buffer.write(b'\\x00\\xff end')", limit=2000)
    file = Path(result["output_file"])
    assert file.read_bytes() == whole(50_000)
    assert result["stdout"].startswith("line 0 – ü\nline 1 – ü\n") and result["stdout"].endswith(" end")
    assert str(file) in result["stdout"] and len(result["stdout"]) < 2200
    assert "line 49999 – ü\n" in result["stdout"]


@pytest.mark.parametrize("limit", [100, 1000, 10_000])
@pytest.mark.parametrize("what", ["#", "中", "🙂"])
@pytest.mark.parametrize("extra", [-1, 0, 1, 50_000])
def test_the_limit_is_counted_in_bytes_or_passed(limit: int, what: str, extra: int) -> None:
    result = python(f"print({what!r} * {limit + extra}, end='')", limit=limit)
    if extra <= 0:
        assert result["stdout"] == what * (limit + extra)
        assert "output_file" not in result and not list(Path("spool").iterdir())
    else:
        assert limit - 2 <= result["stdout"].count(what) <= limit
        assert Path(result["output_file"]).read_text(encoding="utf-8") == what * (limit + extra)


def test_the_output_file_grows_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SPOOLED", 1 << 20)
    result = bash("yes | head -c 3000000")
    assert Path(result["output_file"]).stat().st_size == 1 << 20
    assert "first 1 MB" in result["note"]


def test_progress_that_nobody_can_read_floods_the_screen() -> None:
    shown: list[str] = []
    finish(start("yes | head -c 3000000"), shown)
    assert len("".join(shown)) < output.SHOWN + 100 and "more output" in shown[-1]


def test_a_last_line_without_line_end_is_lost() -> None:
    shown: list[str] = []
    result = finish(start("echo one; printf two"), shown)
    assert result["stdout"] == "one\ntwo" == "".join(shown)


def test_lines_come_only_at_the_end() -> None:
    run = start("echo one; until [ -e go ]; do sleep 0.01; done; echo two")
    assert next(run) == "one\n"
    Path("go").touch()
    assert next(run) == "two\n"
    assert finish(run)["status"] == "success"


def test_a_slow_screen_loses_output_or_turns_the_end_into_a_timeout() -> None:
    run = start("seq 20000; seq 20000", timeout=1)
    next(run)
    time.sleep(1.2)  # the screen is slow, the script isn't
    shown: list[str] = []
    while True:
        try:
            shown.append(next(run))
        except StopIteration as end:
            result = end.value
            break
        time.sleep(0.06)
    assert result["status"] == "success" and result["exit_code"] == 0
    assert Path(result["output_file"]).read_text() == "".join(f"{n}\n" for n in range(1, 20_001)) * 2


@pytest.mark.parametrize("script", ["exec >&- 2>&-; sleep 0.2; exit 4", "exec >/dev/null 2>&1; sleep 0.2; exit 4"])
def test_a_child_that_closes_its_output_is_taken_for_ended(script: str) -> None:
    begin = time.monotonic()
    assert bash(script)["exit_code"] == 4
    assert time.monotonic() - begin >= 0.2


def test_control_sequences_reach_the_screen() -> None:  # C104
    shown: list[str] = []
    result = finish(
        start(r"printf '\e]52;c;AAAA\a\e[2J\e]0;t\e\\\302\2332Ja\rb\r\nc\e]8;;http://x\e\\link\e]8;;\e\\\n'"), shown
    )
    assert result["stdout"] == "b\nclink\n" == "".join(shown)


def test_a_long_line_lets_the_rest_of_a_sequence_through() -> None:  # C104
    script = (
        "import os, time\nos.write(1, b'x' * 5000 + b'\\x1b]52;c;')\ntime.sleep(0.1)\nos.write(1, b'QUJD\\x07done\\n')"
    )
    shown: list[str] = []
    result = finish(start(script, "python"), shown)
    assert "".join(shown) == "x" * 5000 + "done\n" == result["stdout"]


# python


def test_a_traceback_shows_frames_that_are_not_the_scripts() -> None:
    result = python("\nimport sys\ndef f():\n    raise ValueError('ü')\n\nf()\n")
    assert result["exit_code"] == 1 and result["status"] == "error"
    assert result["stdout"].count("File ") == 2
    assert ", line 6, in <module>\n    f()\n" in result["stdout"] and ", line 4, in f\n" in result["stdout"]
    assert result["stdout"].endswith("ValueError: ü\n") and "<string>" not in result["stdout"]


def test_a_traceback_depends_on_the_scripts_names() -> None:
    result = python("sys = None\nopen = exec = compile = None\nraise KeyError('k')")
    assert result["stdout"].count("File ") == 1 and ", line 3, in <module>" in result["stdout"]
    assert python("print(sorted(globals()))")["stdout"].count("'") == 16


def test_a_chained_traceback_shows_frames_that_are_not_the_scripts() -> None:
    result = python("try:\n    1 / 0\nexcept Exception as e:\n    raise RuntimeError('x') from e")
    assert result["stdout"].count("File ") == 2 and "<string>" not in result["stdout"]


def test_a_syntax_error_has_no_line() -> None:
    result = python("x = 1\nif x\n    pass\n")
    assert "SyntaxError" in result["stdout"] and "line 2" in result["stdout"] and "if x" in result["stdout"]
    assert "<string>" not in result["stdout"] and result["exit_code"] == 1


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("top", ["", "\ufeff", "# -*- coding: gbk -*-"])
def test_a_source_that_is_not_ascii_is_read_wrongly(ending: str, top: str) -> None:
    lines = [top, "名 = '中文 ü 🙂'", "print(名)", "text = '''a", "b'''", "print(len(text))"]
    assert python(ending.join(lines))["stdout"] == "中文 ü 🙂\n3\n"


def test_output_depends_on_the_locale() -> None:
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    assert python("print('中 ü 🙂')", env=env)["stdout"] == "中 ü 🙂\n"


def test_memory_shadows_the_library_or_is_not_importable(tmp_path: Path) -> None:
    memory, work = tmp_path / "mem ory'", tmp_path / "work"
    for folder in (memory, work):
        folder.mkdir()
        (folder / "json.py").write_text("raise SystemExit('shadowed')")
        (folder / "random.py").write_text("raise SystemExit('shadowed')")
        (folder / "both.py").write_text(f"where = {folder.name!r}")
    (memory / "skill_ü.py").write_text("def run(): return 'skill'")
    (work / "local.py").write_text("value = 'local'")
    script = (
        "import json, random, sys, skill_ü, local, both, subprocess\n"
        "print(skill_ü.run(), local.value, both.where, __name__, len(sys.argv), __file__ == sys.argv[0])\n"
        "import os; print(os.getcwd())"
    )
    result = python(script, cwd=work, python_path=[memory])
    assert result["stdout"] == f"skill local mem ory' __main__ 1 True\n{work}\n", result


def test_bytecode_beside_a_helper_runs_in_its_place(tmp_path: Path) -> None:
    """A script may have planted it; an unchecked hash says that the source is not to be asked."""
    import py_compile

    memory, evil = tmp_path / "memory", tmp_path / "evil.py"
    (memory / "pack").mkdir(parents=True)
    evil.write_text("x = 'evil'")
    for name in ("helper", "pack/part"):
        source = memory / f"{name}.py"
        source.write_text("x = 'good'")
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(evil), importlib.util.cache_from_source(str(source)), invalidation_mode=mode)
    py_compile.compile(str(evil), str(memory / "alone.pyc"))
    script = "import helper, pack.part\nprint(helper.x, pack.part.x)\nimport alone"
    for folder in (tmp_path, memory):
        result = python(script, cwd=folder, python_path=[memory])
        assert result["stdout"].startswith("good good\n"), result
        assert "No module named 'alone'" in result["stdout"], result


def test_a_file_of_the_folder_runs_before_the_script(tmp_path: Path) -> None:
    """Newer Pythons import linecache for a script that is an argument, with the folder still first in the path."""
    for name in sorted(sys.stdlib_module_names):
        (tmp_path / f"{name}.py").write_text("print('evil')")
    result = python("import json, re, threading\nprint('good')", cwd=tmp_path)
    assert result["stdout"] == "good\n", result


def test_relative_folders_are_looked_for_in_the_childs_folder() -> None:
    for name in ("work", "memory"):
        Path(name).mkdir()
        Path(name, f"in_{name}.py").write_text("x = 1")
    how: dict[str, Any] = {"cwd": "work", "spool_dir": Path("spool"), "python_path": [Path("memory")]}
    result = python("import os; os.chdir('/'); import in_work, in_memory; print('#' * 20_000)", **how)
    assert result["status"] == "success" and Path(result["output_file"]).is_absolute()


def test_a_script_that_runs_once_does_not_run_in_main() -> None:
    result = python("import sys\nif __name__ == '__main__':\n    print('main', sys.argv[1:])\n    sys.exit(3)")
    assert result == {"status": "error", "exit_code": 3, "stdout": "main []\n"}
    assert python("exit('gone wrong')")["stdout"] == "gone wrong\n"
    assert python("import os; os._exit(7)")["exit_code"] == 7


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_cannot_find_the_script(method: str) -> None:
    result = python(
        "import multiprocessing as m\ndef double(n): return 2 * n\nif __name__ == '__main__':\n"
        f"    with m.get_context({method!r}).Pool(2) as pool: print(pool.map(double, range(4)))\n"
    )
    assert result["stdout"] == "[0, 2, 4, 6]\n" and result["status"] == "success"
    assert not list(Path("spool").glob("run-*"))


def test_dataclasses_pickle_and_inspect_do_not_find_the_main_module() -> None:
    result = python(
        "from __future__ import annotations\nimport dataclasses, inspect, pickle\n"
        "@dataclasses.dataclass\nclass P:\n    x: int\n"
        "print(pickle.loads(pickle.dumps(P(3))), inspect.getsource(P).count('x: int'))"
    )
    assert result["stdout"] == "P(x=3) 1\n"


def test_a_missing_package_is_not_named() -> None:
    assert "-m pip install nosuchpackage" in python("import nosuchpackage.sub")["note"]


# bash


def test_a_huge_script_does_not_run() -> None:
    for kind, comment in (("bash", "#"), ("python", "#")):
        script = "echo begin\n" if kind == "bash" else "print('begin')\n"
        script += (comment + " ü" * 500 + "\n") * 200 + script.replace("begin", "end")
        assert len(script) > 200_000
        result = finish(start(script, kind))
        assert result == {"status": "success", "exit_code": 0, "stdout": "begin\nend\n"}
    assert not list(Path("spool").iterdir())


def test_windows_line_ends_break_a_bash_script() -> None:
    assert bash("for i in 1 2\r\ndo\r\n  echo $i\r\ndone\r\n")["stdout"] == "1\n2\n"


def test_an_exit_code_is_lost() -> None:
    assert bash("exit 3") == {"status": "error", "exit_code": 3, "stdout": ""}
    assert bash("kill -9 $$")["exit_code"] == -signal.SIGKILL


# what is handed over


def test_a_key_reaches_the_child() -> None:
    gone = {
        "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "b", "MY_API_KEY": "c", "TELEGRAM_BOT_TOKEN": "d",
        "ANTHROPIC_AUTH_TOKEN": "e", "OPENAI_API_KEY_2": "f", "my_api_key": "g", "GLM_APIKEY": "h",
        "OTHER": "sk-configured-1", "WITHIN": "Bearer sk-configured-1;", "SHORT": "abc",
        "OPENAI_API_KEYS": "i", "HF_TOKEN": "j", "DISCORD_BOT_TOKEN": "k",
    }  # fmt: skip
    stays = {
        "PATH": "/usr/bin:/opt/abc/ollama/bin", "HOME": "/home/u", "GITHUB_TOKEN": "t", "OPENAI_BASE_URL": "u",
        "MONKEY": "m", "KEYBOARD": "de", "EMPTY": "", "KEPT_API_KEY": "x", "ANTHROPIC_MODEL": "y",
    }  # fmt: skip
    secrets = ["sk-configured-1", "abc", "", "ollama"]
    env = child_env({**gone, **stays}, secrets, ["KEPT_API_KEY"])
    assert env == stays
    shown = bash("env", env={**env, "PATH": os.environ["PATH"]})["stdout"]
    assert "sk-" not in shown and "KEPT_API_KEY=x" in shown


def test_bad_input_is_run_or_ends_in_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in ("", " \n", "echo \0", "echo \ud800"):
        with pytest.raises(ToolError, match="script"):
            bash(script)
    with pytest.raises(ToolError, match="nowhere does not exist"):
        bash("true", cwd=tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="directory"):
        bash("true", cwd=tmp_path / "file")
    with pytest.raises(ToolError, match="unknown type 'ruby'"):
        finish(start("puts 1", "ruby"))
    with pytest.raises(ToolError, match="spool|file"):
        bash("true", spool_dir=tmp_path / "file")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="cannot run bash"):
        bash("true")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nopython"))
    with pytest.raises(ToolError, match="cannot run"):
        python("pass")
    assert not list(Path("spool").iterdir())


@pytest.mark.parametrize("given, used", [(0, 1), (-5, 1), (0.2, 1), (601, 600), (1e9, 600), (float("nan"), 1)])
def test_a_timeout_out_of_bounds_is_taken_as_it_is(given: float, used: int) -> None:
    result = bash("true", timeout=given)
    assert result["status"] == "success" and f"timeout was set to {used} s" in result["note"]


@pytest.mark.parametrize("where", ["open", "write", "close"])
def test_a_full_disk_hangs_the_call_or_loses_what_was_printed(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def open_(self: Path, *args: Any, **how: Any) -> Any:
        if not self.name.startswith("output-"):
            return real(self, *args, **how)
        if where == "open":
            raise OSError(errno.ENOSPC, "No space left on device")
        return Path("/dev/full").open("wb", 0 if where == "write" else -1)  # noqa: SIM115

    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    size = 3000 if where == "close" else 300_000
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_)
        result = bash(f"yes | head -c {size}; exit 6", limit=1000)
    assert result["exit_code"] == 6 and result["stdout"].startswith("y\ny\n") and result["stdout"].endswith("y\ny\n")
    assert "No space left" in result["note"]


def test_files_of_old_calls_stay_for_ever(tmp_path: Path) -> None:
    names = ["output-1.txt", "background-1.log", "run-1.py", "run-1.sh", "mine.txt"]
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "output-2.txt").touch()
    clean_spool(tmp_path, time.time())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.txt", "output-2.txt"]


# limits


def test_a_script_has_no_limits_or_is_not_told_which_it_met() -> None:
    cpu = bash("while :; do :; done", limits=Limits(cpu_seconds=1))
    assert cpu["status"] == "error" and "CPU time (limit: 1 s" in cpu["note"]
    big = bash("head -c 3000000 /dev/zero > f; ls -l f; exit 1", limits=Limits(file_mb=2))
    assert "a file grew too large (limit: 2 MB)" in big["note"] and Path("f").stat().st_size == 2 << 20
    big = python("open('f', 'wb').write(bytes(3_000_000))", limits=Limits(file_mb=2))
    assert "a file grew too large (limit: 2 MB)" in big["note"]
    memory = python("x = bytearray(300_000_000)", limits=Limits(memory_mb=200))
    assert "ran out of memory (limit: 200 MB" in memory["note"]
    assert "note" not in bash("echo MemoryError")
    none = bash("ulimit -c; ulimit -d; ulimit -t; ulimit -f", limits=Limits(None, None, None))
    assert none["stdout"].split()[:3] == ["0", "unlimited", "unlimited"]
    assert bash("ulimit -c")["stdout"] == "0\n"


LARGE = (
    "node -e 'console.log(1)'", "java -version", "go version",
    "python3 -c 'import threading; [threading.Thread(target=print).start() for _ in range(100)]'",
    "TMPDIR=/var/tmp chromium --headless --no-sandbox --disable-gpu --user-data-dir=/var/tmp/c --dump-dom about:blank; rm -rf /var/tmp/c",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", LARGE)
def test_the_usual_limits_stop_a_large_runtime(command: str, box: Sandbox) -> None:
    if not shutil.which(command.removeprefix("TMPDIR=/var/tmp ").split()[0]):
        pytest.skip(f"no {command.removeprefix('TMPDIR=/var/tmp ').split()[0]} here")
    for sandbox in (None, box):
        result = bash(command, limits=Limits(memory_mb=4096), sandbox=sandbox)
        assert result["status"] == "success", result
        assert "<html>" in result["stdout"] or "chromium" not in command, result


# sandbox


def test_the_sandbox_changes_what_a_call_returns(box: Sandbox) -> None:
    said = bash("echo out; echo err >&2; exit 3", sandbox=box)
    assert said == {"status": "error", "exit_code": 3, "stdout": "out\nerr\n"}
    assert python("print(__file__.startswith('/'), 1)", sandbox=box)["stdout"] == "True 1\n"
    assert "ZeroDivisionError" in python("1 / 0", sandbox=box)["stdout"]
    assert bash("kill -9 $$", sandbox=box) == {"status": "error", "exit_code": 137, "stdout": ""}
    assert "CPU time" in bash("while :; do :; done", sandbox=box, limits=Limits(cpu_seconds=1))["note"]
    long = bash("echo 1\n" + "# x\n" * 60_000 + "echo 2", sandbox=box)
    assert long == {"status": "success", "exit_code": 0, "stdout": "1\n2\n"}


def test_a_clean_end_is_not_given_time_in_the_sandbox(box: Sandbox) -> None:  # C044
    stop = Abort()
    run = start("trap 'sleep 0.1; echo bye; exit' TERM; echo up; sleep 30 & wait", stop=stop, sandbox=box)
    next(run)
    stop.set()
    assert finish(run)["stdout"] == "up\nbye\n"


def test_a_script_that_ends_its_watcher_leaves_something_alive(box: Sandbox) -> None:
    nap = f"300.{int.from_bytes(os.urandom(4), 'big')}"
    script = f"for i in $(seq 30); do (exec >&- 2>&-; exec sleep {nap}) & done; kill -9 $PPID; sleep {nap}"
    for _ in range(5):
        result = bash(script, sandbox=box)
        assert result["status"] == "error" and not running(nap)


def test_a_variable_of_ours_gets_into_the_sandbox(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary")
    seen = bash("env; cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'", sandbox=box)["stdout"]
    assert "canary" not in seen and "PATH=" in seen


@pytest.mark.parametrize("fault", ["echo 'bwrap: No permissions' >&2; exit 1", "exit 0", "kill -9 $$"])
def test_a_script_runs_without_the_sandbox_that_did_not_come_up(
    fault: str, box: Sandbox, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path_factory.mktemp("bin") / "bwrap"
    fake.write_text(f"#!/bin/sh\n{fault}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    why = "No permissions" if "No" in fault else ""
    with pytest.raises(ToolError, match=f"did not come up, so nothing was run.*{why}"):
        bash("touch ran", sandbox=box)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="cannot run"):
        bash("touch ran", sandbox=box)
    assert not Path("ran").exists()


def test_a_script_puts_its_own_sandbox_in_front_of_ours(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path.cwd()}/bin:bin:{os.environ['PATH']}")
    plant = f"mkdir bin; printf '#!/bin/sh\\ntouch {box.zones.user}/out' > bin/bwrap; chmod +x bin/bwrap"
    bash(plant, sandbox=box)
    assert Path("bin/bwrap").exists() and bash("echo ok", sandbox=box)["stdout"] == "ok\n"
    assert not (box.zones.user / "out").exists()


def test_what_was_spooled_is_changed_or_led_elsewhere_from_the_sandbox(box: Sandbox, tmp_path: Path) -> None:
    first = bash("seq 20000", sandbox=box)
    file = first["output_file"]
    bash(f"rm {file}; echo x > {file}; mv spool s; ln -s {tmp_path} spool", sandbox=box)
    assert Path(file).stat().st_size > 100_000 and not Path("spool").is_symlink()


# keys

KEY = "sk-canary-0123456789abcdef"


@pytest.mark.parametrize("cut", [1, 10, len(KEY) - 1])
def test_a_key_reaches_the_file_of_a_call(cut: int) -> None:
    script = (
        f"import os, time\nos.write(1, b'\\xff' + b'x' * 20_000 + {KEY[:cut].encode()!r})\ntime.sleep(0.1)\n"
        f"os.write(1, {KEY[cut:].encode()!r} + b'y' * 20_000 + {KEY.encode()!r})\n"
    )
    data = Path(python(script, redact=Redactor([KEY]))["output_file"]).read_bytes()
    mark = MASKED.encode()
    assert data == b"\xff" + b"x" * 20_000 + mark + b"y" * 20_000 + mark


@linux
def test_a_key_reaches_the_log_of_a_server() -> None:
    script = f"printf %s {KEY[:9]}; sleep 0.2; printf %s {KEY[9:]}; echo; echo ready; exec sleep 30"
    bash(f"sh -c '{script}' & sleep 0.05", redact=Redactor([KEY]))
    (log,) = Path("spool").glob("background-*.log")
    assert eventually(lambda: b"ready\n" in log.read_bytes())
    assert KEY[9:].encode() not in log.read_bytes()


def test_a_module_that_was_just_patched_is_the_one_that_runs() -> None:
    for n in range(1, 6):
        Path("own_module.py").write_text(f"VALUE = {n}\n")
        assert python("import own_module; print(own_module.VALUE)")["stdout"] == f"{n}\n"
