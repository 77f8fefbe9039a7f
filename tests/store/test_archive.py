"""A session is in its place, or in the archive, or in both; never in neither, and never changed on the way."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genericagent import paths
from genericagent.errors import NoSuchSession, SessionError
from genericagent.scripted import say
from genericagent.store import archive, atomic, search
from genericagent.store.journal import Journal, encode
from genericagent.store.lock import FileLock

Worker = Callable[..., "subprocess.Popen[str]"]
ID = "20250102-030405-abcdef"
NOW, DAY = 1_800_000_000.0, 86400.0
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files and processes")


def made(id: str = ID, days: float = 20, text: str = "find the zebra 斑马") -> Path:
    """A session last changed so many days before NOW."""
    records = [
        {"type": "session", "v": 1, "id": id, "created": NOW - days * DAY, "cwd": "/tmp", "llm": "m"},
        {"type": "line", "text": f"[USER]: {text}"},
        {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": text}], "request": True}},
    ]
    paths.sessions().mkdir(exist_ok=True)
    path = paths.sessions() / f"{id}.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    os.utime(path, (NOW - days * DAY, NOW - days * DAY))
    return path


def packed(id: str = ID) -> Path:
    return paths.archive() / f"{id}.jsonl.gz"


def tidied(days: float = 14) -> tuple[int, list[str]]:
    count, faults = archive.tidy(NOW - days * DAY)
    return count, list(map(str, faults))


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_an_archived_session_has_every_byte_and_its_time_and_is_for_the_user_only() -> None:
    path = made()
    data, before = path.read_bytes() + b'{"crc":"half a li', path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 7))
    (paths.sessions() / f"{ID}.damaged-12").write_bytes(b"kept")
    assert tidied() == (1, [])
    assert gzip.decompress(packed().read_bytes()) == data and packed().stat().st_mtime_ns == before.st_mtime_ns + 7
    assert names(paths.archive()) == [packed().name] and names(paths.sessions()) == [f"{ID}.damaged-12"]
    if os.name == "posix":
        assert stat.S_IMODE(packed().stat().st_mode) == 0o600 and stat.S_IMODE(paths.archive().stat().st_mode) == 0o700


def test_a_session_in_use_or_touched_lately_is_left(worker: Worker) -> None:
    mine, theirs, fresh = made("a-mine"), made("b-theirs"), made("c-fresh", days=13)
    journal, _, _ = Journal.open(mine)
    os.utime(mine, (NOW - 20 * DAY, NOW - 20 * DAY))
    code = "import sys; from pathlib import Path; from genericagent.store.journal import held; lock = held(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
    worker(code, theirs)
    count, faults = tidied()
    journal.close()
    assert count == 0 and len(faults) == 2 and all("in use" in fault for fault in faults)
    assert all(path.exists() for path in (mine, theirs, fresh)) and names(paths.archive()) == []
    with pytest.raises(SessionError, match="changed just now"):  # it was written to after the look at its age
        archive.pack(fresh, NOW - 14 * DAY)
    assert fresh.exists() and names(paths.archive()) == []


@posix
def test_what_is_no_session_is_left_and_gets_no_lock(tmp_path: Path) -> None:
    elsewhere = made().rename(tmp_path / "mine.jsonl")
    (paths.sessions() / "link.jsonl").symlink_to(elsewhere)
    (paths.sessions() / "notes.jsonl").write_text("no session\n")
    os.utime(paths.sessions() / "notes.jsonl", (1, 1))
    (paths.sessions() / "folder.jsonl").mkdir()
    before = names(paths.sessions())
    count, faults = tidied()
    assert count == 0 and len(faults) == 1 and "notes.jsonl is no session" in faults[0]
    with pytest.raises(SessionError, match="no session"):
        archive.pack(paths.sessions() / "link.jsonl", NOW)
    assert names(paths.sessions()) == before and elsewhere.exists() and names(paths.archive()) == []


def test_no_archive_is_overwritten_by_another_session() -> None:
    first = made(text="the first").read_bytes()
    assert tidied() == (1, [])
    second = made(text="the second").read_bytes()
    made(f"{ID}-2", days=1)  # that name belongs to another one
    assert tidied() == (1, [])
    packed().write_bytes(damaged := packed().read_bytes()[:-9])
    third = made(text="the third").read_bytes()
    assert tidied() == (1, [])
    assert packed().read_bytes() == damaged and first
    assert [archive.content(packed(f"{ID}-{n}")) for n in (3, 4)] == [second, third]
    assert sorted(i.title for i in search.listing()[0]) == ["find the zebra 斑马", "the second", "the third"]


def test_a_session_that_went_on_takes_the_place_of_its_own_archive() -> None:
    path = made()
    data = path.read_bytes()
    tidied()
    for more in (b"", encode({"type": "line", "text": "more"})):  # left by a kill between the two steps, and gone on
        path.write_bytes(data + more)
        os.utime(path, (1, 1))
        assert tidied() == (1, [])
        assert names(paths.archive()) == [packed().name] and archive.content(packed()) == data + more


# faults and kills


STEPS: list[tuple[Any, str]] = [
    (os, "open"), (os, "write"), (os, "fsync"), (os, "replace"), (atomic, "sync_folder"), (Path, "unlink"), (archive, "content"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("move", "place", "name"),
    [(move, *step) for move in ("pack", "unpack") for step in STEPS] + [("pack", Path, "mkdir"), ("pack", os, "utime")],
)
def test_what_fails_on_the_way_leaves_the_session_where_it_was(
    monkeypatch: pytest.MonkeyPatch, move: str, place: Any, name: str
) -> None:
    path = made()
    data = path.read_bytes()
    if move == "unpack":
        tidied()
    old, new = (path, packed()) if move == "pack" else (packed(), path)
    real = getattr(place, name)

    def fails(*args: Any, **kwargs: Any) -> Any:
        about = " ".join(map(str, args))
        if name == "content":
            return b"something else" if args[0] == new else real(*args)
        if ".lock" in about or (name in ("open", "unlink") and ".ga-" not in about and ".jsonl" not in about):
            return real(*args, **kwargs)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(place, name, fails)
        with pytest.raises(SessionError) as error:
            archive.pack(path, NOW) if move == "pack" else archive.unpack(packed())
    assert "\n" not in str(error.value) and archive.content(old) == data
    with FileLock(path.with_suffix(".lock")):  # nobody holds it
        assert not [name for name in names(paths.sessions()) + names(paths.archive()) if name.startswith(".ga-")]
    assert search.find(ID) == path and path.read_bytes() == data


KILLED = """
import os, sys
from pathlib import Path
from genericagent import paths
from genericagent.store import archive

path, packed, data, move = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[1]).read_bytes(), sys.argv[3]
STEPS = {"open", "write", "fsync", "close", "replace", "unlink", "utime", "mkdir", "flock", "ftruncate"}
print("ready", flush=True)
for at in range(1, 400):
    packed.unlink(missing_ok=True)
    path.write_bytes(data)
    os.utime(path, (1, 1))
    if move == "unpack":
        archive.pack(path, 2)
    if not (child := os.fork()):
        seen = 0
        def step(frame, event, arg):
            global seen
            if event in ("c_call", "c_return") and arg.__name__ in STEPS:
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), 9)
        sys.setprofile(step)
        archive.pack(path, 2) if move == "pack" else archive.unpack(packed)
        sys.setprofile(None)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    whole = [p.exists() and archive.content(p) == data for p in (path, packed)]
    torn = [p.exists() and archive.content(p) != data for p in (path, packed)]
    print(code, int(any(whole) and not any(torn)), flush=True)
    if not code:
        break
"""


@posix
@pytest.mark.parametrize("move", ["pack", "unpack"])
def test_kill_9_at_any_step_leaves_it_whole_in_one_of_the_places(worker: Worker, move: str) -> None:
    path = made()
    out, _ = worker(KILLED, path, packed(), move).communicate(timeout=50)
    ends = [line.split() for line in out.splitlines()]
    assert ends[-1] == ["0", "1"] and len(ends) > 20, "it was killed at each step, up to the end"
    assert all(end == ["-9", "1"] for end in ends[:-1])


# going on


def test_an_archived_session_is_listed_found_and_goes_on(
    run_agent: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-this-test")
    data = made().read_bytes()
    made("20250101-000000-bbbbbb", days=30, text="an older one")
    assert tidied() == (2, [])
    agent = run_agent()
    assert [(id, title) for id, _, title in agent.list_sessions()] == [
        (ID, "find the zebra 斑马"),
        ("20250101-000000-bbbbbb", "an older one"),
    ]
    assert agent.resume("20250102").startswith(f"{ID}: find the zebra")
    assert agent.lines == ["[USER]: find the zebra 斑马"] and agent.client.backend.history
    agent.add_line("[USER]: and the other")
    agent.new_session()
    path = paths.sessions() / f"{ID}.jsonl"
    assert path.read_bytes().startswith(data) and not packed().exists() and len(agent.list_sessions()) == 2
    assert archive.tidy(time.time() - 14 * DAY)[0] == 0, "it is as young as what was added"


def test_the_newest_is_found_wherever_it_is(tmp_path: Path) -> None:
    made("old", days=40)
    made("new", days=20)
    assert archive.pack(made("newest", days=15), NOW) and archive.pack(paths.sessions() / "old.jsonl", NOW)
    assert search.find() == paths.sessions() / "newest.jsonl"
    assert search.find(str(packed("old"))) == paths.sessions() / "old.jsonl"
    for name in ("old.jsonl", str(paths.sessions() / "old.jsonl")):  # as it was called before
        archive.pack(paths.sessions() / "old.jsonl", time.time() + DAY)
        assert search.find(name) == paths.sessions() / "old.jsonl"
    with pytest.raises(NoSuchSession, match="no sessions match"):
        search.find("zebra")
    copy = tmp_path / "elsewhere.jsonl.gz"
    copy.write_bytes(gzip.compress(made().read_bytes()))
    with pytest.raises(SessionError, match="not a session"):
        Journal.open(search.find(str(copy)))
    assert copy.exists(), "only what lies in the archive is moved"


def test_a_damaged_archive_is_named_and_stays() -> None:
    made()
    tidied()
    packed().write_bytes(data := packed().read_bytes()[:-4])
    with pytest.raises(SessionError, match=rf"archived session .*{ID}.jsonl.gz is damaged"):
        archive.unpack(packed())
    assert packed().read_bytes() == data and names(paths.sessions()) == [f"{ID}.lock"]


def test_unpacking_takes_nobody_s_place(worker: Worker) -> None:
    path = made()
    tidied()
    other = made(text="another one with the same name").read_bytes()
    with pytest.raises(SessionError, match="is another session"):
        archive.unpack(packed())
    assert path.read_bytes() == other and packed().exists()
    journal, _, _ = Journal.open(path)
    with pytest.raises(SessionError, match="in use"):
        archive.unpack(packed())
    journal.close()


# when


def test_a_round_that_nobody_asked_for_is_short_and_rare() -> None:
    for n in range(5):
        made(f"{n}", days=20 - n)
    ticks = iter(range(100))
    archive.now_and_then(NOW, lambda: next(ticks) * archive.SLICE / 2)
    assert names(paths.archive()) == ["0.jsonl.gz"], "the oldest first, until the time is over"
    lock = paths.home() / "locks" / "archive.lock"
    os.utime(lock, (NOW - archive.PAUSE + 1, NOW - archive.PAUSE + 1))
    archive.now_and_then(NOW, lambda: 0.0)
    assert len(names(paths.archive())) == 1
    os.utime(lock, (NOW - archive.PAUSE, NOW - archive.PAUSE))
    (paths.sessions() / "3.jsonl").open("ab").write(b"\n" * archive.SLICE_BYTES)
    os.utime(paths.sessions() / "3.jsonl", (1, 1))
    archive.now_and_then(NOW, lambda: 0.0)
    assert names(paths.archive()) == [f"{n}.jsonl.gz" for n in (0, 1, 2, 4)], "a huge one takes more than a moment"


def test_without_old_sessions_nothing_is_touched(ga_home: Path) -> None:
    archive.now_and_then(NOW)
    made(days=1)
    archive.now_and_then(NOW)
    assert names(ga_home) == ["sessions"]


def test_one_process_archives_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    with FileLock(paths.home() / "locks" / "archive.lock") as lock:
        os.utime(lock.path, (1, 1))
        archive.now_and_then(NOW)
        count, (fault,) = tidied()
    assert count == 0 and f"by process {os.getpid()}" in fault and not packed().exists()
    os.utime(lock.path, (1, 1))

    def refused(*_: Any) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "acquire", refused)
        archive.now_and_then(NOW)  # it is for the log, not for whoever waits for an answer
    archive.now_and_then(NOW)
    assert packed().exists()


def test_old_sessions_are_archived_after_a_task_and_not_before(
    run_agent: Callable[..., Any], model_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-this-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model_server([say("done")]).url)
    old, called = made(), threading.Event()
    real = archive.now_and_then
    monkeypatch.setattr(archive, "now_and_then", lambda now: (real(NOW), called.set()))
    queue = run_agent().put_task("hello")
    while "done" not in queue.get(timeout=30):
        assert old.exists()
    assert called.wait(30) and packed().exists() and not old.exists()


@pytest.mark.slow
def test_archiving_by_hand(run_ga: Callable[..., Any]) -> None:
    made("old")
    os.utime(paths.sessions() / "old.jsonl", (1e9, 1e9))
    made("new", text="not yet")
    os.utime(paths.sessions() / "new.jsonl")
    assert run_ga("sessions", "--archive", "100000").stdout == "archived: 0\n"
    done = run_ga("sessions", "--archive")
    assert (done.returncode, done.stdout, done.stderr) == (0, "archived: 1\n", "")
    assert names(paths.archive()) == ["old.jsonl.gz"] and (paths.sessions() / "new.jsonl").exists()
    assert [run_ga("sessions", "--archive", wrong).returncode for wrong in ("0", "-1", "nan", "x")] == [2] * 4
    (paths.sessions() / "notes.jsonl").write_text("no session")
    os.utime(paths.sessions() / "notes.jsonl", (1e9, 1e9))
    done = run_ga("sessions", "--archive")
    assert (done.returncode, done.stdout) == (1, "archived: 0\n") and "notes.jsonl is no session" in done.stderr


def test_a_pipe_among_the_archived_holds_whoever_reads_it() -> None:
    paths.archive().mkdir(parents=True)
    os.mkfifo(paths.archive() / "pipe.jsonl.gz")
    with pytest.raises(SessionError, match="no file"):
        archive.content(paths.archive() / "pipe.jsonl.gz")
