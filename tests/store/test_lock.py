"""A lock belongs to one holder, ends with it however it ends, and says who that is."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genericagent.store import lock as module
from genericagent.store.lock import FileLock

Worker = Callable[..., "subprocess.Popen[str]"]
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX locks and signals")
HOLD = """
import sys
from pathlib import Path
from genericagent.store.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
assert lock.acquire()
print("ready", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""
ADD = """
import sys
from pathlib import Path
from genericagent.store.lock import FileLock
print("ready", flush=True)
sys.stdin.readline()
counter = Path(sys.argv[1])
for _ in range(100):
    with FileLock(counter.with_suffix(".lock")):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_another_process_is_kept_out_and_the_holder_named(tmp_path: Path, worker: Worker) -> None:
    path = tmp_path / "deep" / "x.lock"
    process = worker(HOLD, path)
    mine = FileLock(path)
    assert mine.acquire() is False and mine.acquire() is False
    found = mine.holder()
    assert found is not None and found["pid"] == process.pid and isinstance(found["started"], float)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "released\n"
    assert mine.holder() is None  # nobody has it: nobody is named
    assert mine.acquire() is True
    assert (mine.holder() or {})["pid"] == os.getpid()
    mine.release()


@posix
def test_kill_9_gives_the_lock_back(tmp_path: Path, worker: Worker) -> None:
    process = worker(HOLD, tmp_path / "x.lock")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    mine = FileLock(tmp_path / "x.lock")
    assert mine.acquire() is True
    assert json.loads((tmp_path / "x.lock").read_text())["pid"] == os.getpid()
    mine.release()


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert first.acquire() and first.acquire()
    assert not second.acquire()
    first.release()
    first.release()
    assert second.acquire()
    second.release()


def test_waiting_for_the_lock_loses_no_update(tmp_path: Path, worker: Worker) -> None:
    counter = tmp_path / "counter.txt"
    counter.write_text("0")
    processes = [worker(ADD, counter) for _ in range(2)]

    def add() -> None:
        for _ in range(100):
            with FileLock(counter.with_suffix(".lock")):
                counter.write_text(str(int(counter.read_text()) + 1))

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for process in processes:
        process.communicate("\n", timeout=30)
    for thread in threads:
        thread.join()
    assert counter.read_text() == "500"


@posix
def test_a_child_that_is_being_started_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x.lock")
    assert lock.acquire()
    assert lock._fd is not None
    copy = os.dup(lock._fd)  # what a fork has until its exec
    lock.release()
    again = FileLock(tmp_path / "x.lock")
    assert again.acquire()
    again.release()
    os.close(copy)


@posix
def test_a_started_program_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock") as lock:
        assert lock._fd is not None and not os.get_inheritable(lock._fd)


@posix
@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_is_an_error_and_not_a_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fails(fd: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    before = len(os.listdir("/dev/fd")) if Path("/dev/fd").exists() else 0  # noqa: PTH208
    monkeypatch.setattr(module.fcntl, "flock", fails)
    lock = FileLock(tmp_path / "x.lock")
    with pytest.raises(OSError, match=os.strerror(code)):
        lock.acquire()
    with pytest.raises(OSError, match=os.strerror(code)), lock:
        pytest.fail("nobody may go on without the lock")
    after = len(os.listdir("/dev/fd")) if Path("/dev/fd").exists() else 0  # noqa: PTH208
    assert after == before


def test_a_full_disk_takes_the_name_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert first.acquire()
        assert not second.acquire() and second.holder() is None
    first.release()
    assert second.acquire()
    second.release()


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"{half", b"[1]", b"\xff\xfe", b"7"])
def test_whatever_stands_in_a_lock_file_it_can_be_taken(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.lock"
    path.write_bytes(content)
    lock = FileLock(path)
    assert lock.holder() is None
    assert lock.acquire() and (lock.holder() or {})["pid"] == os.getpid()
    lock.release()
    assert FileLock(tmp_path / "missing.lock").holder() is None


TAKE = """
import sys
from pathlib import Path
from genericagent.store.lock import FileLock, clean
print("ready", flush=True)
sys.stdin.readline()
counter = Path(sys.argv[1])
for _ in range(150):
    clean(counter.parent, 1e12)
    with FileLock(counter.with_suffix(".lock")):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


@posix
def test_only_lock_files_that_nobody_holds_or_used_for_a_week_are_cleaned(tmp_path: Path) -> None:
    for name in ("old.lock", "new.lock", "held.lock", "old.txt"):
        (tmp_path / name).touch()
        if name != "new.lock":
            os.utime(tmp_path / name, (0, 0))
    os.mkfifo(tmp_path / "pipe.lock")
    (tmp_path / "link.lock").symlink_to("old.txt")
    held = FileLock(tmp_path / "held.lock")
    assert held.acquire()
    os.utime(held.path, (0, 0))
    module.clean(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"new.lock", "held.lock", "old.txt", "pipe.lock", "link.lock"}
    assert not FileLock(held.path).acquire()
    held.release()
    module.clean(tmp_path / "missing")


@posix
def test_cleaning_never_gives_one_lock_to_two(tmp_path: Path, worker: Worker) -> None:
    counter = tmp_path / "counter.txt"
    counter.write_text("0")
    processes = [worker(TAKE, counter) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=30)
    assert counter.read_text() == "600"
