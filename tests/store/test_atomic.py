"""A file is old or new whatever fails on the way, and stays what it was beside its content."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import ToolError
from genericagent.safety.confine import Confinement
from genericagent.safety.runs_later import text_of
from genericagent.safety.zones import Zones
from genericagent.store import atomic
from genericagent.tools import undo

Worker = Callable[..., "subprocess.Popen[str]"]
OLD, NEW = b"old\r\n" * 2000, b"new\n\0\xff" * 5000
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files")


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if p.name.startswith(".ga-")]


def one_line(error: pytest.ExceptionInfo[ToolError]) -> str:
    text = str(error.value)
    assert text and "\n" not in text
    return text


# what stays


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444, 0o2755, 0o4711])
def test_mode_bits_survive(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "f"
    file.write_bytes(OLD)
    file.chmod(mode)
    atomic.write_bytes(file, NEW)
    assert file.read_bytes() == NEW and stat.S_IMODE(file.stat().st_mode) == mode


@posix
@pytest.mark.parametrize(("umask", "mode", "expected"), [(0o022, None, 0o644), (0o077, None, 0o600), (0, 0o640, 0o640)])
def test_a_new_file_obeys_the_umask_or_its_given_mode(
    tmp_path: Path, umask: int, mode: int | None, expected: int
) -> None:
    before = os.umask(umask)
    try:
        atomic.write_bytes(tmp_path / "f", NEW, mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == expected


@posix
def test_the_umask_of_other_threads_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask belongs to the whole process"))
    atomic.write_bytes(tmp_path / "f", NEW)


@posix
def test_a_symlink_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    real, link, far = tmp_path / "d" / "real", tmp_path / "link", tmp_path / "far"
    real.write_bytes(OLD)
    link.symlink_to("d/real")
    far.symlink_to(link)
    atomic.write_bytes(far, NEW)
    assert far.is_symlink() and link.is_symlink() and not real.is_symlink() and real.read_bytes() == NEW


@posix
def test_links_that_lead_nowhere_are_an_error(tmp_path: Path) -> None:
    link, loop = tmp_path / "link", tmp_path / "loop"
    link.symlink_to("missing")
    loop.symlink_to("loop")
    for path in (link, loop, loop / "below"):
        with pytest.raises(ToolError) as error:
            atomic.write_bytes(path, NEW)
        assert path.name in one_line(error)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "loop"]


@posix
@pytest.mark.parametrize("new", [NEW, b"", b"short", OLD])
def test_all_names_of_a_file_show_the_new_content(tmp_path: Path, new: bytes) -> None:
    file, other, third = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    file.write_bytes(OLD)
    os.link(file, other)
    os.link(file, third)
    atomic.write_bytes(other, new)
    assert {p.read_bytes() for p in (file, other, third)} == {new}
    assert file.stat().st_nlink == 3 and leftovers(tmp_path) == []


@pytest.mark.skipif(not ROOT, reason="only root may give files away")
def test_owner_and_group_survive(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(OLD)
    os.chown(file, 12345, 23456)
    file.chmod(0o4750)
    atomic.write_bytes(file, NEW)
    now = file.stat()
    assert (now.st_uid, now.st_gid, stat.S_IMODE(now.st_mode)) == (12345, 23456, 0o4750)


@pytest.mark.skipif(not ROOT, reason="only root may give files away")
def test_the_group_survives_in_a_folder_that_hands_down_its_own(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(OLD)
    os.chown(tmp_path, -1, 23456)
    tmp_path.chmod(0o2755)
    atomic.write_bytes(file, NEW)
    assert file.stat().st_gid == os.getegid()


@posix
def test_an_owner_that_cannot_be_kept_takes_setuid_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(OLD)
    before = file.stat()
    fields = list(before)
    fields[stat.ST_UID], fields[stat.ST_MODE] = before.st_uid + 1, stat.S_IFREG | 0o6755
    temp = tmp_path / "temp"
    temp.write_bytes(NEW)

    def refused(*_: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "chown", refused)
    atomic._take_over(temp, os.stat_result(fields))
    assert stat.S_IMODE(temp.stat().st_mode) == 0o755


@posix
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe", "missing/f", "f\0g", "x" * 300):
        with pytest.raises(ToolError) as error:
            atomic.write_bytes(tmp_path / name, NEW)
        one_line(error)
    assert (tmp_path / "folder").is_dir() and (tmp_path / "pipe").is_fifo() and leftovers(tmp_path) == []


@pytest.mark.skipif(os.name != "posix" or ROOT, reason="permissions bind")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(OLD)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ToolError, match="Permission denied"):
            atomic.write_bytes(file, NEW)
    finally:
        tmp_path.chmod(0o700)
    assert file.read_bytes() == OLD


def test_text_is_utf8_with_its_line_breaks_kept(tmp_path: Path) -> None:
    atomic.write_text(tmp_path / "f", "a\r\nb\nc\r中😀")
    assert (tmp_path / "f").read_bytes() == "a\r\nb\nc\r中😀".encode()


# what fails


class Fault:
    """Calls of os.NAME fail from the nth on: once, or for good; a short write comes half before it."""

    def __init__(self, name: str, nth: int, code: int, forever: bool = False, short: bool = False) -> None:
        self.name, self.nth, self.code, self.forever, self.short = name, nth, code, forever, short
        self.calls = 0
        self.real: Callable[..., Any] = getattr(os, name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        if self.short and self.calls == self.nth - 1:
            return self.real(args[0], args[1][: max(1, len(args[1]) // 2)])
        if self.calls == self.nth or self.forever and self.calls > self.nth:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(*args, **named)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, self.name, self)
            yield


def every_fault() -> Iterator[Fault]:
    for name in ("write", "fsync", "replace", "open", "chmod", "ftruncate", "lseek", "stat"):
        for code in (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EINTR):
            for nth in range(1, 5):
                for forever in (False, True):
                    yield Fault(name, nth, code, forever)
                    if name == "write" and nth > 1:
                        yield Fault(name, nth, code, forever, short=True)


@pytest.mark.slow
@posix
@pytest.mark.parametrize("kind", ["new", "plain", "linked", "symlink"])
@pytest.mark.parametrize("new", [NEW, b"short"], ids=["longer", "shorter"])
def test_a_fault_leaves_the_old_or_the_new_content(tmp_path: Path, kind: str, new: bytes) -> None:
    refused = written = 0
    for number, fault in enumerate(every_fault()):
        folder = tmp_path / str(number)
        folder.mkdir()
        file, old = folder / "f", None if kind == "new" else OLD
        if old is not None:
            file.write_bytes(old)
        if kind == "linked":
            os.link(file, folder / "other")
        if kind == "symlink":
            file = folder / "link"
            file.symlink_to("f")
        names = sorted(p.name for p in folder.iterdir())
        told = ""
        with fault.active():
            try:
                atomic.write_bytes(file, new)
            except ToolError as error:
                told = str(error)
        now = file.read_bytes() if file.exists() else None
        if "is damaged" in told:  # a disk that takes nothing more, not even the old bytes: they are named
            assert kind == "linked" and fault.forever
            assert Path(told.rpartition(" is in ")[2]).read_bytes() == OLD
        else:
            assert now == (old if told else new), (fault.name, fault.nth, told)
            assert sorted(p.name for p in folder.iterdir()) == (names or ([] if told else ["f"]))
        assert "\n" not in told and leftovers(folder) == []
        refused, written = refused + bool(told), written + (not told)
    assert refused > 20 and written > 20


CONFINED = ("write", "fsync", "replace", "open", "stat", "fstat", "lstat", "readlink", "chmod")


@pytest.mark.skipif(sys.platform != "linux", reason="by descriptors")
@pytest.mark.parametrize("kind", ["new", "plain", "symlink", "below"])
@pytest.mark.parametrize("name", CONFINED)
def test_a_fault_at_any_call_of_a_confined_write_leaves_the_old_or_the_new(
    tmp_path: Path, ga_home: Path, kind: str, name: str
) -> None:
    folder, hit = tmp_path / "d", 0
    within = Confinement(Zones(tmp_path, ga_home, ga_home.parent / "user"))
    for code in (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EINTR):
        for forever in (False, True):
            for nth in range(1, 100):
                folder.mkdir()
                file, real = folder / "f", folder / "f"
                if kind != "new":
                    real.write_bytes(OLD)
                if kind == "symlink":
                    file = folder / "link"
                    file.symlink_to("f")
                if kind == "below":
                    (folder / "l").symlink_to(".")
                    file = folder / "l/f"
                fault, told = Fault(name, nth, code, forever), False
                with fault.active():
                    try:
                        atomic.write_bytes(file, NEW, within=within)
                    except ToolError as error:
                        told = True
                        assert "\n" not in str(error)
                now = real.read_bytes() if real.exists() else None
                assert now == (NEW if not told else OLD if kind != "new" else None), (name, nth, code)
                assert leftovers(folder) == []
                shutil.rmtree(folder)
                if fault.calls < nth:
                    break
                hit += 1
    assert hit or (name, kind) == ("chmod", "new")  # the kernel's umask decides there


@pytest.mark.skipif(sys.platform != "linux", reason="by descriptors")
def test_a_confined_write_keeps_mode_owner_and_group(tmp_path: Path, ga_home: Path) -> None:
    within = Confinement(Zones(tmp_path, ga_home, ga_home.parent / "user"))
    file, new = tmp_path / "f", tmp_path / "new"
    file.write_bytes(OLD)
    if ROOT:
        os.chown(file, 12345, 23456)
    before = file.stat()
    for mode in (0o600, 0o755, 0o444, 0o4711):
        file.chmod(mode)
        atomic.write_bytes(file, NEW, within=within)
        now = file.stat()
        assert stat.S_IMODE(now.st_mode) == mode and (now.st_uid, now.st_gid) == (before.st_uid, before.st_gid)
    atomic.write_bytes(new, NEW, mode=0o640, within=within)
    atomic.write_text(tmp_path / "plain", "x", within=within)
    assert stat.S_IMODE(new.stat().st_mode) == 0o640 and leftovers(tmp_path) == []
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o666 & ~umask


@pytest.mark.skipif(sys.platform != "linux", reason="by descriptors")
@pytest.mark.parametrize("read", [atomic.read_own, lambda p: atomic.read_there(p, 99), text_of, undo.content])
def test_a_folder_or_a_pipe_in_the_place_of_a_file_leaves_a_descriptor_open(tmp_path: Path, read: Any) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("folder")
    gc.collect()  # what the tests before have left
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for name in ("folder", "pipe", "link") * 5:
        with contextlib.suppress(OSError):
            assert read(tmp_path / name) == ""
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@pytest.mark.skipif(sys.platform != "linux", reason="by descriptors")
def test_a_confined_write_leaves_no_descriptor_open(tmp_path: Path, ga_home: Path) -> None:
    within = Confinement(Zones(tmp_path, ga_home, ga_home.parent / "user"))
    (tmp_path / "link").symlink_to("f")
    gc.collect()  # what the tests before have left
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for n in range(50):
        atomic.write_bytes(tmp_path / "f", NEW, within=within)
        atomic.write_bytes(tmp_path / "link", NEW, within=within)
        within.open(tmp_path / "link").close()
        within.make_parents(tmp_path / f"a{n}/b/c/d")
        for wrong in (ga_home / "x", tmp_path / "a0", tmp_path / "f/x", tmp_path / "nothing/x"):
            with pytest.raises(ToolError):
                atomic.write_bytes(wrong, NEW, within=within)
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


@posix
def test_a_descriptor_that_cannot_be_closed_well_is_an_error_before_the_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(OLD)
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # NFS tells of a write that failed here

    with monkeypatch.context() as patch:
        patch.setattr(os, "close", close)
        with pytest.raises(ToolError):
            atomic.write_bytes(tmp_path / "f", NEW)
    assert (tmp_path / "f").read_bytes() == OLD and leftovers(tmp_path) == []


@posix
def test_a_full_disk_cannot_break_a_file_with_two_names(tmp_path: Path) -> None:
    for short in (False, True):
        for nth in range(1, 5):
            file, other = tmp_path / f"{nth}{short}", tmp_path / f"{nth}{short}-other"
            file.write_bytes(OLD)
            os.link(file, other)
            fault = Fault("write", nth, errno.ENOSPC, forever=True, short=short)
            told = ""
            with fault.active():
                try:
                    atomic.write_bytes(file, OLD + NEW)  # only what is added needs room, and it goes first
                except ToolError as error:
                    told = str(error)
            if "is damaged" not in told:
                assert file.read_bytes() == other.read_bytes() == (OLD if told else OLD + NEW)


def test_a_write_that_takes_nothing_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(ToolError) as error:
        atomic.write_bytes(tmp_path / "f", NEW)
    one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:777]))
    atomic.write_bytes(tmp_path / "f", NEW)
    (tmp_path / "g").write_bytes(OLD)
    if os.name == "posix":
        os.link(tmp_path / "g", tmp_path / "h")
    atomic.write_bytes(tmp_path / "g", NEW)
    assert {p.read_bytes() for p in tmp_path.iterdir()} == {NEW}


def test_an_interrupt_leaves_no_temp_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    (tmp_path / "f").write_bytes(OLD)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_bytes(tmp_path / "f", NEW)
    assert (tmp_path / "f").read_bytes() == OLD and leftovers(tmp_path) == []


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from genericagent.store import atomic
print("ready", flush=True)
while True:
    for byte in (b"a", b"b"):
        atomic.write_bytes(Path(sys.argv[1]), byte * 300_000)
"""


@posix
def test_kill_in_the_middle_leaves_a_whole_file(tmp_path: Path, worker: Worker) -> None:
    file = tmp_path / "f"
    atomic.write_bytes(file, b"a" * 300_000)
    writer = worker(WRITE_FOR_EVER, file)
    seen = {file.read_bytes() for _ in range(200)}
    writer.kill()
    writer.wait()
    seen.add(file.read_bytes())
    assert {(len(c), len(set(c))) for c in seen} == {(300_000, 1)}
    atomic.clean_stale(tmp_path, now=file.stat().st_mtime + 7200)
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_readers_never_see_a_mix_of_two_writers(tmp_path: Path) -> None:
    file = tmp_path / "f"
    contents = [bytes([65 + n]) * (50_000 + n) for n in range(4)]
    atomic.write_bytes(file, contents[0])
    writers = [threading.Thread(target=lambda c=c: [atomic.write_bytes(file, c) for _ in range(10)]) for c in contents]
    for thread in writers:
        thread.start()
    seen = [file.read_bytes() for _ in range(50)]
    for thread in writers:
        thread.join()
    assert set(seen) <= set(contents) and file.read_bytes() in contents and leftovers(tmp_path) == []


# taking


TAKE = """
import sys
from pathlib import Path
from genericagent.store import atomic
print("ready", flush=True)
sys.stdin.readline()
for n in range(60):
    data = atomic.read_and_delete(Path(sys.argv[1]) / f"reply{n}.txt")
    if data is not None:
        print(data.decode())
"""


def test_a_file_is_taken_by_exactly_one_of_many(tmp_path: Path, worker: Worker) -> None:
    names = [f"reply{n}.txt" for n in range(60)]
    for name in names:
        (tmp_path / name).write_text(name)
    takers = [worker(TAKE, tmp_path) for _ in range(2)]
    mine: list[str] = []

    def take() -> None:
        for name in names:
            data = atomic.read_and_delete(tmp_path / name)
            if data is not None:
                mine.append(data.decode())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        assert taker.stdin is not None
        taker.stdin.write("\n")
        taker.stdin.flush()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    theirs = [name for taker in takers for name in taker.communicate(timeout=30)[0].split()]
    assert sorted(mine + theirs) == sorted(names) and list(tmp_path.iterdir()) == []


@posix
def test_only_files_are_taken(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "dangling", "pipe", "missing", "missing/below"):
        assert atomic.read_and_delete(tmp_path / name) is None
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "pipe"], "a link is taken away unread"


@pytest.mark.parametrize(("place", "name"), [(Path, "rename"), (os, "open"), (Path, "unlink")])
def test_a_file_that_cannot_be_taken_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    def fails(path: Any, *_: Any, **__: Any) -> Any:
        if "reply" in Path(path).name or Path(path).suffix == ".taken" and name != "rename":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return None

    (tmp_path / "reply").write_bytes(OLD)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, fails)
        with pytest.raises(ToolError) as error:
            atomic.read_and_delete(tmp_path / "reply")
    assert re.search(r"reply: Permission denied", one_line(error))
    assert [p.name for p in tmp_path.iterdir()] == ["reply"] and (tmp_path / "reply").read_bytes() == OLD


def test_only_old_temp_files_of_ours_are_cleaned(tmp_path: Path) -> None:
    for name in (".ga-1.tmp", ".ga-2.tmp", "mine.tmp", ".ga-notes", "f"):
        (tmp_path / name).write_bytes(b"")
    now = (tmp_path / ".ga-1.tmp").stat().st_mtime
    os.utime(tmp_path / ".ga-1.tmp", (now - 4000, now - 4000))
    atomic.clean_stale(tmp_path, now)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".ga-2.tmp", ".ga-notes", "f", "mine.tmp"]
    atomic.clean_stale(tmp_path / "missing")
