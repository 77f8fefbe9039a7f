"""What every test gets: a home of its own, no keys, a model on loopback, and a look at what it left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from genericagent.scripted import Script, ScriptedServer

settings.register_profile("same every time", derandomize=True, database=None, deadline=None)
settings.load_profile("same every time")

ROOT = Path(__file__).resolve().parent.parent
MARK = "GA_TEST_RUN"  # in the environment of every process that a test starts, and of what that starts
PROVIDERS = (
    "ANTHROPIC_",
    "OPENAI_",
    "AZURE_",
    "DEEPSEEK_",
    "GEMINI_",
    "GOOGLE_API",
    "GROQ_",
    "MISTRAL_",
    "OPENROUTER_",
)
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NO_TESTDATA = "NO TEST DATA: set GA_TESTDATA to the folder with cases/, wire/ and pages/"
NO_TMUX = "NO TMUX: install tmux, and the commands of the chat are tried in a terminal"

RunGa = Callable[..., "subprocess.CompletedProcess[str]"]
ModelServer = Callable[..., ScriptedServer]


@pytest.fixture(autouse=True)
def ga_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty $GA_HOME (and $HOME beside it), English, and no provider's key or proxy in the environment."""
    base = tmp_path_factory.mktemp("home")
    home = base / "ga"
    home.mkdir()
    (base / "user").mkdir()
    for name in set(os.environ) - {MARK, "GA_TESTDATA"}:
        if name.upper().startswith(PROVIDERS) or name.lower() in PROXIES or name.startswith(("GA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GA_HOME", str(home))
    monkeypatch.setenv("HOME", str(base / "user"))
    monkeypatch.setenv("GA_LANG", "en")
    yield home
    shutil.rmtree(base, ignore_errors=True)  # a program that a test has ended may still be writing


@pytest.fixture(autouse=True)
def clean_heap_for_deep_recursion(request: pytest.FixtureRequest) -> None:
    """Garbage with finalizers that is collected at the limit of recursion would make pytest's own hooks fail."""
    if any(word in request.node.name for word in ("nonsense", "any_shape", "damaged", "mutated", "deep")):
        gc.collect()


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """Start a scripted model: `server = model_server([call(…), say(…)])`, see ScriptedServer.

    It is strict unless told otherwise, and a request that the real APIs would refuse fails the test, also when the
    program got over it. A test that wants such a request empties `server.faults`.
    """
    servers: list[ScriptedServer] = []

    def start(replies: Script = (), *, strict: bool = True, **how: Any) -> ScriptedServer:
        servers.append(ScriptedServer(replies, strict=strict, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
    faults = [fault for server in servers for fault in server.faults]
    assert not faults, "\n".join(faults)


@pytest.fixture
def run_agent() -> Iterator[Callable[..., Any]]:
    """Start an agent in a thread of its own: `agent = run_agent(max_turns=3)`; the arguments are its Options."""
    from agentmain import GenericAgent, Options

    running: list[tuple[GenericAgent, threading.Thread]] = []

    def start(**options: Any) -> GenericAgent:
        agent = GenericAgent(Options(**options))
        thread = threading.Thread(target=agent.run, daemon=True)
        thread.start()
        running.append((agent, thread))
        return agent

    yield start
    for agent, thread in running:
        agent.close()
        thread.join(timeout=60)
        agent.release()
        assert not thread.is_alive()


@pytest.fixture
def start(model_server: Any, run_agent: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """An agent that works in a thread, on a scripted model: `agent, server = start([call(…), say(…)], max_turns=3)`."""

    def make(replies: Script, **options: Any) -> tuple[Any, ScriptedServer]:
        server = model_server(replies)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-for-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        return run_agent(**options), server

    return make


@pytest.fixture
def run_ga(tmp_path: Path) -> RunGa:
    """Run the program and wait: `run_ga("-p", "hi", env={…}, input="…", timeout=60, cwd=…)` → CompletedProcess (text).

    stdin is empty unless `input` is given. A program that outlives the timeout (seconds) is killed with all it started.
    """

    def run(
        *args: str,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
        timeout: float = 60,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "agentmain.py"), *args]
        pipe = subprocess.PIPE
        program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if input is None else pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, **(env or {})},
            cwd=cwd or tmp_path,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            out, err = program.communicate(input, timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            out, err = program.communicate()
            pytest.fail(f"{args} did not end within {timeout} s\n--- stdout\n{out}\n--- stderr\n{err}")
        return subprocess.CompletedProcess(command, program.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def testdata() -> Path:
    """The external sets: $GA_TESTDATA, else ../shared beside the repo. Skips the test where they are missing."""
    folder = Path(os.environ.get("GA_TESTDATA") or ROOT.parent / "shared")
    if not (folder / "cases").is_dir():
        pytest.skip(NO_TESTDATA)
    return folder


@pytest.fixture(scope="session")
def tmux() -> str:
    """The program. Skips the test where it is missing."""
    path = shutil.which("tmux")
    if not path:
        pytest.skip(NO_TMUX)
    return path


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for why in (NO_TESTDATA, NO_TMUX):
        if skipped := sum(why in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
            terminalreporter.write_line(f"{skipped} tests skipped. {why}", red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """At the end no process that a test started is still there, however far it has detached itself (Linux)."""
    os.environ[MARK] = uuid.uuid4().hex
    yield
    deadline = time.monotonic() + 30
    while (left := _started_here()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            os.kill(pid, signal.SIGKILL)
    assert not left, "tests left processes behind (killed now):\n" + "\n".join(f"{p}: {c}" for p, c in left.items())


def _started_here() -> dict[int, str]:
    """pid → command line of the living processes that carry our mark or are our children."""
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            ours = parent == os.getpid() or mark in (folder / "environ").read_bytes()
            if ours and int(folder.name) != os.getpid():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found[int(folder.name)] = command or "(defunct, not waited for)"
        except OSError:
            continue  # it ended meanwhile, or belongs to somebody else
    return found
