"""A session survives what happens to its process, its disk and its file."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericagent.errors import SessionError
from genericagent.store.journal import UNKNOWN, Journal, decode, encode, find, history_from, list_sessions, new_id, read

Worker = Callable[..., "subprocess.Popen[str]"]
Record = dict[str, Any]
ID = "20250102-030405-abcd"
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX files and signals")


def user(text: str) -> Record:
    return {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}


def said(text: str) -> Record:
    return {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}


def called(*ids: str) -> Record:
    blocks = [{"type": "tool_use", "id": id, "name": "file_read", "input": {"path": id}} for id in ids]
    return {"type": "message", "message": {"role": "assistant", "content": blocks}}


def result(id: str, content: Any = "ok") -> Record:
    return {"type": "result", "tool_use_id": id, "content": content}


RECORDS: list[Record] = [
    {"type": "line", "text": "[USER]: find the zebra 斑马"},
    user("find the zebra 斑马"),
    called("t1", "t2"),
    result("t1"),
    {"type": "note", "key_info": "the zebra is striped"},
    said("done"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


def make(folder: Path, records: list[Record] = RECORDS, id: str = ID, **header: Any) -> Path:
    journal = Journal.create(folder, id, header, lambda: 1.5)
    for record in records:
        journal.append(record)
    journal.close()
    return journal.path


def opened(path: Path) -> tuple[list[Record], str]:
    """The records behind the header, and the report."""
    journal, records, report = Journal.open(path)
    journal.close()
    assert records[0]["type"] == "session"
    assert "\n" not in report
    return records[1:], report


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(SessionError) as error:
        call()
    text = str(error.value)
    assert text and "\n" not in text
    return text


def beside(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.damaged-*"))


# round trips

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
@settings(max_examples=100, deadline=None)
def test_every_json_value_comes_back(value: Any) -> None:
    line = encode({"type": "x", "value": value})
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    found = decode(line)
    assert found is not None and found[1] is True
    # as text, because two halves of one character that meet are that character then
    assert json.dumps(found[0]["value"]) == json.dumps(value)


def test_what_was_added_is_there_after_opening(folder: Path) -> None:
    odd = ["\ud800", "\udcff\\ud800", "a\u2028b\x00\x85\r\n", "😀", 1 << 80, -0.0, {"": [[], {}]}, None]
    records = [*RECORDS, *({"type": "x", "value": v} for v in odd)]
    path = make(folder, records, cwd="/a", llm="m")
    got, report = opened(path)
    assert got == records and report == ""
    assert read(path).records[0] == {
        "type": "session", "v": 1, "id": ID, "created": 1.5, "cwd": "/a", "llm": "m"
    }  # fmt: skip
    journal, _, _ = Journal.open(path)
    journal.append(said("more"))
    journal.close()
    assert opened(path) == ([*records, said("more")], "")
    assert list(folder.glob("*.damaged*")) == []


@pytest.mark.parametrize("value", [{(1, 2): 3}, "deep", "circle"])
def test_what_json_cannot_say_is_an_error_and_adds_nothing(folder: Path, value: Any) -> None:
    if value == "deep":
        value = []
        for _ in range(100_000):
            value = [value]
    if value == "circle":
        value = []
        value.append(value)
    path = make(folder)
    journal, _, _ = Journal.open(path)
    before = path.read_bytes()
    assert "cannot be saved" in refused(lambda: journal.append({"type": "x", "value": value}))
    journal.append(said("still"))
    journal.close()
    assert path.read_bytes() == before + encode(said("still"))


@posix
def test_nobody_else_can_read_a_session(folder: Path) -> None:
    path = make(folder)
    path.write_bytes(path.read_bytes() + b"secret")
    opened(path)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in [folder, *folder.iterdir()]}
    assert modes.pop("sessions") == 0o700 and set(modes.values()) == {0o600} and len(modes) == 3


def test_threads_share_a_journal(folder: Path) -> None:
    journal = Journal.create(folder, ID, {})

    def add(name: str) -> None:
        for n in range(50):
            journal.append({"type": "x", "who": name, "n": n}, sync=False)

    threads = [threading.Thread(target=add, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    got, report = opened(journal.path)
    assert report == "" and sorted((r["who"], r["n"]) for r in got) == [(w, n) for w in "abc" for n in range(50)]


def test_a_closed_journal_writes_nowhere(folder: Path) -> None:
    path = make(folder)
    journal, _, _ = Journal.open(path)
    journal.close()
    journal.close()
    before = path.read_bytes()
    with (folder / "other").open("wb") as other:  # it gets the number that the journal's file had
        assert "closed" in refused(lambda: journal.append(said("late")))
        assert other.tell() == 0
    assert path.read_bytes() == before and (folder / "other").read_bytes() == b""


def test_ids_sort_by_time() -> None:
    ids = [new_id(1_700_000_000 + n * 3600 * 24 * 20, lambda n: b"\xff" * n) for n in range(20)]
    assert ids == sorted(ids) and all(re.fullmatch(r"\d{8}-\d{6}-ffffff", id) for id in ids)


# kill and power cut

APPEND = """
import sys
from pathlib import Path
from genericagent.store.journal import Journal
journal = Journal.create(Path(sys.argv[1]), sys.argv[2], {})
print("ready", flush=True)
n = 0
while True:
    journal.append({"type": "x", "n": n, "text": "x" * (n % 5000)})
    print(n, flush=True)
    n += 1
"""


@posix
def test_kill_9_loses_no_acknowledged_record(folder: Path, worker: Worker) -> None:  # C040
    process = worker(APPEND, folder, ID)
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(50)]
    os.kill(process.pid, signal.SIGKILL)
    told += process.stdout.read().split("\n")[:-1]  # whole lines only
    process.wait()
    last = int(told[-1])
    got, report = opened(folder / f"{ID}.jsonl")
    assert [r["n"] for r in got[: last + 1]] == list(range(last + 1)) and last >= 49
    assert len(got) <= last + 2 and (report == "" or "set aside" in report)


HALF = encode(said("half of this"))
TAILS = [
    HALF[:20],
    HALF[:-2],
    b"\0" * 1000,
    '{"crc":"00000000","rec":{"type":"line","text":"中'.encode()[:-1],
    b"\0" * 10 + b"\n" + HALF[:30] + b"\nmore\n",
    b"Traceback (most recent call last):\n  File\n",
    b"{}\n",
    b"[" * 5000,
]


@pytest.mark.parametrize("tail", TAILS)
def test_a_torn_tail_is_set_aside_and_told(folder: Path, tail: bytes) -> None:  # C040
    path = make(folder)
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    got, report = opened(path)
    assert got == RECORDS and path.read_bytes() == whole
    (aside,) = beside(path)
    assert aside.read_bytes() == tail and report == f"a damaged end was set aside in {aside.name}"
    journal, _, report = Journal.open(path)
    journal.append(said("goes on"))
    journal.close()
    assert report == "" and opened(path) == ([*RECORDS, said("goes on")], "")


def test_a_second_torn_tail_at_the_same_place_keeps_the_first(folder: Path) -> None:  # C040
    path = make(folder)
    whole = path.read_bytes()
    for tail in (b"one", b"two", b"three"):
        path.write_bytes(whole + tail)
        opened(path)
    assert sorted(p.read_bytes() for p in beside(path)) == [b"one", b"three", b"two"]


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_cut_anywhere_in_the_last_record_the_others_are_there(folder: Path, cut: int) -> None:  # C040
    path = make(folder)
    data = path.read_bytes()
    last = len(encode(RECORDS[-1]))
    path.write_bytes(data[: -min(cut, last)])
    got, _ = opened(path)
    # where only the line break is gone, the record is whole
    assert got == (RECORDS if cut == 1 else RECORDS[:-1])
    journal, _, _ = Journal.open(path)
    journal.append(user("next"))
    journal.close()
    assert opened(path) == ([*got, user("next")], "")


def test_a_header_without_its_line_break_is_a_session(folder: Path) -> None:  # C040
    path = make(folder, [])
    path.write_bytes(path.read_bytes()[:-1])
    journal, records, report = Journal.open(path)
    journal.append(user("x"))
    journal.close()
    assert report == "" and len(records) == 1 and opened(path) == ([user("x")], "")


@pytest.mark.parametrize("junk", [b"\0" * 1000, HALF[:25], b"\xff\xfe", "中".encode()[:2]])
def test_a_record_behind_junk_without_a_line_break_is_kept(folder: Path, junk: bytes) -> None:  # C040
    path = make(folder)
    path.write_bytes(path.read_bytes() + junk + encode(user("after")) + junk + encode(user("last")))
    got, report = opened(path)
    assert got == [*RECORDS, user("after"), user("last")] and report == "2 unreadable lines were skipped"


@pytest.mark.parametrize("junk", [b"}", b"\0" * 50, b"\xff half a record", b'"rec":{"type":"x"}}', b"[[["])
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_record_before_junk_without_a_line_break_is_kept(folder: Path, junk: bytes, ending: bytes) -> None:  # C040
    path = make(folder)
    path.write_bytes(path.read_bytes() + encode(said("é")).rstrip() + junk + ending)
    assert opened(path)[0] == [*RECORDS, said("é")]
    assert opened(path)[0] == [*RECORDS, said("é")]


def test_damaged_lines_in_the_middle_are_skipped_and_counted(folder: Path) -> None:  # C040
    path = make(folder)
    lines = path.read_bytes().split(b"\n")
    lines[2:3] = [b"\0" * 50, b"", b'{"crc":"1","rec":[]}', lines[2][:-9]]
    path.write_bytes(b"\n".join(lines))
    got, report = opened(path)
    assert got == [RECORDS[0], *RECORDS[2:]] and report == "3 unreadable lines were skipped"
    assert beside(path) == [] and path.read_bytes() == b"\n".join(lines)


def test_a_full_disk_at_the_repair_cuts_nothing_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(folder)
    torn = path.read_bytes() + b"\0" * 100
    path.write_bytes(torn)
    real = os.write

    def full(fd: int, data: Any) -> int:
        if bytes(data) == b"\0" * 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        assert "No space left" in refused(lambda: Journal.open(path))
    assert path.read_bytes() == torn and beside(path) == []
    assert opened(path)[0] == RECORDS  # the lock was given back


# edited by hand

BROKEN_CALLS: list[Record] = [
    {"input": None},
    {"arguments": None},
    {"input": "{"},
    {"input": []},
    {"input": None, "name": None},
    {"input": None, "input_raw": None},
    {"input": 7, "id": None},
    {"input": {}, "name": 3},
]


@pytest.mark.parametrize("edit", BROKEN_CALLS)
@pytest.mark.parametrize("tool_result", [True, False])
def test_a_call_edited_to_null_loads_and_lists(folder: Path, edit: Record, tool_result: bool) -> None:  # C026
    call = {"type": "tool_use", "id": "t1", "name": "file_read", **edit}
    reply = {"type": "message", "message": {"role": "assistant", "content": [call]}}
    path = make(folder, [RECORDS[0], user("go"), reply, *([result("t1")] if tool_result else [])])
    path.write_bytes(path.read_bytes().replace(b'"crc":"', b'"crc": "'))  # as an editor's reformatting
    got, report = opened(path)
    assert report == f"{len(got) + 1} lines were edited by hand"
    assert [s.title for s in list_sessions(folder)] == ["find the zebra 斑马"]
    out = history_from(got)
    call = out.history[1]["content"][0]
    assert isinstance(call["id"], str) and isinstance(call["name"], str)
    assert isinstance(call["input"], dict) or (call["incomplete"] is True and isinstance(call["input_raw"], str))
    assert [b["tool_use_id"] for b in out.history[2]["content"]] == [call["id"]]


@pytest.mark.parametrize("ending", [b"\r\n", b"\n\n", b"  \n"])
def test_an_editor_that_changes_line_endings_loses_nothing(folder: Path, ending: bytes) -> None:
    path = make(folder)
    path.write_bytes(path.read_bytes().replace(b"\n", ending))
    assert opened(path) == (RECORDS, "")


def test_an_editor_that_adds_a_byte_order_mark_loses_nothing(folder: Path) -> None:
    path = make(folder)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    got, report = opened(path)
    assert got == RECORDS and report == "1 lines were edited by hand"


def test_a_header_without_an_id_takes_the_name_of_the_file(folder: Path) -> None:
    path = make(folder)
    lines = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b'{"crc":"0","rec":{"type":"session","v":1,"created":7}}\n' + lines[1])
    journal, _, _ = Journal.open(path)
    journal.close()
    assert journal.id == ID
    assert [(s.id, s.created) for s in list_sessions(folder)] == [(ID, 7.0)]


# what is no session

NO_SESSIONS = {
    "log": b"2025-01-01 INFO all is well {}\n" * 100_000,
    "one long line": b"x" * 3_000_000,
    "empty": b"",
    "blank": b"\n\n\n",
    "binary": bytes(range(256)) * 1000,
    "zeros": b"\0" * 4096,
    "json": b'{"a": 1}\n',
    "json list": b"[1, 2]\n",
    "foreign jsonl": b'{"type": "session", "v": 1, "id": "x"}\n',
    "no version": encode({"type": "session", "id": "x"}),
    "odd version": encode({"type": "session", "v": "1", "id": "x"}),
    "true version": encode({"type": "session", "v": True, "id": "x"}),
    "zeroth version": encode({"type": "session", "v": 0, "id": "x"}),
    "deep": b"[" * 100_000 + b"\n",
    "long number": b'{"crc":"' + b"1" * 10_000 + b'","rec":' + b"1" * 10_000 + b"}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_SESSIONS)
@pytest.mark.parametrize("suffix", [".jsonl", ".log", ""])
def test_what_is_no_session_is_refused_and_left(tmp_path: Path, name: str, suffix: str) -> None:  # C041
    path = tmp_path / f"file{suffix}"
    path.write_bytes(NO_SESSIONS[name])
    before = path.stat().st_mtime_ns
    assert "not a session" in refused(lambda: Journal.open(path))
    assert path.read_bytes() == NO_SESSIONS[name] and path.stat().st_mtime_ns == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert list_sessions(tmp_path) == []


@posix
def test_folders_pipes_devices_and_nothing_are_refused(tmp_path: Path) -> None:  # C041
    (tmp_path / "d.jsonl").mkdir()
    os.mkfifo(tmp_path / "p.jsonl")
    (tmp_path / "l.jsonl").symlink_to("nowhere")
    names = sorted(p.name for p in tmp_path.iterdir())
    for path in [*(tmp_path / n for n in names), tmp_path / "missing", tmp_path / "m" / "n.jsonl",
                 Path("/dev/zero"), tmp_path / "a\0b", tmp_path / ("x" * 300)]:  # fmt: skip
        refused(lambda path=path: Journal.open(path))
    assert sorted(p.name for p in tmp_path.iterdir()) == names and list_sessions(tmp_path) == []


LOST_HEADERS = {
    "none": b"",
    "not first": encode(said("yes")) + encode({"type": "session", "v": 1, "id": ID}),
    "a byte changed": encode({"type": "session", "v": 1, "id": ID}).replace(b"session", b"sessiom"),
    "another version by a changed byte": encode({"type": "session", "v": 1, "id": ID}).replace(b'"v":1', b'"v":3'),
    "zeros": b"\0" * 512 + b"\n",
    "a huge line": b"x" * 1_000_000 + b"\n",
}


@pytest.mark.parametrize("name", LOST_HEADERS)
def test_a_session_whose_header_is_damaged_opens_with_its_records(folder: Path, name: str) -> None:  # C040
    folder.mkdir(exist_ok=True)
    path = folder / f"{ID}.jsonl"
    path.write_bytes(LOST_HEADERS[name] + encode(user("hello")))
    assert find(folder, ID) == path
    journal, records, _ = Journal.open(path)
    journal.append(said("on we go"))
    journal.close()
    assert journal.id == ID and user("hello") in records
    again, found, _ = Journal.open(path)
    again.close()
    assert found == [*records, said("on we go")]


def test_a_newer_version_is_refused_and_left(folder: Path) -> None:
    path = make(folder)
    later = encode({"type": "session", "v": 2, "id": ID}) + b'{"something": "new"}\n'
    path.write_bytes(later)
    assert "newer version" in refused(lambda: Journal.open(path))
    assert path.read_bytes() == later


# two at a time

HOLD = """
import sys
from pathlib import Path
from genericagent.store.journal import Journal
journal, records, report = Journal.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
journal.append({"type": "x", "from": "the other"})
journal.close()
"""


def test_a_second_process_is_refused_with_the_first_one_named(folder: Path, worker: Worker) -> None:  # C043
    path = make(folder)
    process = worker(HOLD, path)
    before = path.read_bytes()
    told = refused(lambda: Journal.open(path))
    assert ID in told and f"in use by process {process.pid}" in told
    assert path.read_bytes() == before
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    journal, records, _ = Journal.open(path)  # restart and resume again: all is there
    assert records[1:] == [*RECORDS, {"type": "x", "from": "the other"}]
    journal.append({"type": "x", "from": "me"})
    journal.close()
    assert opened(path)[0] == [*RECORDS, {"type": "x", "from": "the other"}, {"type": "x", "from": "me"}]


@posix
def test_another_name_of_the_file_is_the_same_session(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C043
    path = make(folder)
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "other").symlink_to(folder)
    monkeypatch.chdir(folder)
    journal, _, _ = Journal.open(path)
    for name in (tmp_path / "link.jsonl", tmp_path / "other" / path.name, Path(path.name)):
        assert f"process {os.getpid()}" in refused(lambda name=name: Journal.open(name))
    journal.close()
    assert opened(tmp_path / "link.jsonl") == (RECORDS, "")


def test_a_new_session_does_not_take_over_an_old_file(folder: Path) -> None:
    path = make(folder)
    before = path.read_bytes()
    refused(lambda: Journal.create(folder, ID, {}))
    assert path.read_bytes() == before
    assert opened(path)[0] == RECORDS  # and its lock was given back


def test_a_session_that_cannot_be_locked_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(folder)
    (folder / f"{ID}.lock").unlink()
    (folder / f"{ID}.lock").mkdir()
    before = path.read_bytes()
    assert "cannot lock" in refused(lambda: Journal.open(path))
    assert "cannot create" in refused(lambda: Journal.create(path / "below", ID, {}))
    assert path.read_bytes() == before


# writing that fails


def _fails(name: str, code: int, keep: int = 0) -> Iterator[Callable[..., Any]]:
    """Stand-ins for os.NAME: one that fails at once, and for a write one that leaves `keep` bytes."""
    real = getattr(os, name)

    def at_once(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    def short(fd: int, data: bytes) -> int:
        return int(real(fd, data[:keep]))

    yield at_once
    if keep:
        yield short


@posix
@pytest.mark.parametrize("name", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_record_that_cannot_be_written_leaves_the_file_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    path = make(folder)
    journal, _, _ = Journal.open(path)
    before = path.read_bytes()
    for stand_in in _fails(name, code, keep=10 if name == "write" else 0):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, stand_in)
            assert str(path) in refused(lambda: journal.append(said("lost")))
        assert path.read_bytes() == before
    journal.append(said("later"))
    journal.close()
    assert opened(path) == ([*RECORDS, said("later")], "")


def test_half_a_line_that_stays_does_not_take_the_next_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(folder)
    journal, _, _ = Journal.open(path)
    real = os.write

    def fails(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        patch.setattr(os, "ftruncate", fails)
        assert "half a line" in refused(lambda: journal.append(said("lost")))
    journal.append(said("one"))
    journal.append(said("two"))
    journal.close()
    got, report = opened(path)
    assert got == [*RECORDS, said("one"), said("two")] and report == "1 unreadable lines were skipped"


@posix
@pytest.mark.parametrize("name", ["write", "fsync", "open"])
def test_a_session_that_cannot_be_begun_leaves_no_file_and_no_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for stand_in in _fails(name, errno.ENOSPC, keep=10 if name == "write" else 0):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, stand_in)
            refused(lambda: Journal.create(folder, ID, {}))
        assert list(folder.iterdir()) == []
    make(folder)


# finding


def test_listing_and_finding(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_sessions(folder) == []
    assert "no session" in refused(lambda: find(folder))
    ids = ["20250101-000000-aaaa", "20250101-000000-bbbb", "20250202-000000-cccc"]
    paths = {id: make(folder, [{"type": "line", "text": f"[USER]: {id}" + "x" * 200}], id) for id in ids}
    for age, id in enumerate(["20250202-000000-cccc", "20250101-000000-aaaa", "20250101-000000-bbbb"]):
        os.utime(paths[id], (1000 - age, 1000 - age))
    (folder / "notes.jsonl").write_text("no session\n")
    listed = list_sessions(folder)
    assert [s.id[-4:] for s in listed] == ["cccc", "aaaa", "bbbb"]
    assert all(len(s.title) == 80 and s.title.startswith(s.id) and s.created == 1.5 for s in listed)
    assert find(folder) == paths[ids[2]]
    assert find(folder, ids[0]) == paths[ids[0]]
    assert find(folder, "202502") == paths[ids[2]]
    assert find(folder, str(paths[ids[1]])) == paths[ids[1]]
    assert find(folder, f"{ids[1]}.jsonl") == paths[ids[1]]
    told = refused(lambda: find(folder, "20250101"))
    assert told.startswith("2 sessions") and ids[0] in told and ids[1] in told
    told = refused(lambda: find(folder, "nothing"))
    assert told.startswith("no sessions") and ids[2] in told
    assert find(folder, "~nobody-of-this-name/x.jsonl") == Path("~nobody-of-this-name/x.jsonl")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find(folder, "~/x.jsonl") == tmp_path / "x.jsonl"
    (folder / "copy.jsonl").write_bytes(paths[ids[0]].read_bytes())
    assert find(folder, ids[0]) == paths[ids[0]] and find(folder, "copy") == folder / "copy.jsonl"
    told = refused(lambda: find(folder, ids[0][:-1]))
    assert "there are: " in told and set(told.split("there are: ")[1].split(", ")) == {"copy", ids[0]}, "names to type"


def test_a_huge_first_message_does_not_hide_the_session(folder: Path) -> None:
    path = make(folder, [RECORDS[0], user("x" * 200_000)])
    make(folder, [user("中" * 100_000), RECORDS[0]], "20250102-030405-ffff")
    assert {s.id: s.title for s in list_sessions(folder)} == {ID: "find the zebra 斑马", "20250102-030405-ffff": ""}
    assert len(opened(path)[0]) == 2


# the conversation again


def answers(history: list[Any]) -> list[tuple[str, Any, bool]]:
    return [
        (b["tool_use_id"], b["content"], b.get("is_error", False))
        for m in history
        for b in m["content"]
        if b["type"] == "tool_result"
    ]


def test_open_calls_get_their_result_or_the_news_that_nobody_knows_it() -> None:  # C040
    out = history_from(
        [user("go"), called("a", "b", "c"), result("b", "B"), result("c", [{"type": "text", "text": "C"}])]
    )
    assert answers(out.history) == [
        ("a", UNKNOWN, True),
        ("b", "B", False),
        ("c", [{"type": "text", "text": "C"}], False),
    ]
    assert [m["role"] for m in out.history] == ["user", "assistant", "user"] and out.unknown == ["a"]


@pytest.mark.parametrize("content", [None, 7, True, {"a": "ä"}, 1.5])
def test_an_odd_result_is_text(content: Any) -> None:
    for open_call in ([called("a")], [said("<tool_use>"), {"type": "call", "tool_use_id": "a", "name": "x"}]):
        out = history_from([user("go"), *open_call, result("a", content)])
        block = out.history[-1]["content"][0]
        assert isinstance(block.get("content", block.get("text")), str) and out.unknown == []


def test_results_that_a_message_carries_are_not_given_twice() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": "A"}]
    carrier = {"type": "message", "message": {"role": "user", "content": blocks}}
    out = history_from([user("go"), called("a"), result("a", "A"), carrier])
    assert answers(out.history) == [("a", "A", False)] and out.unknown == [] and len(out.history) == 3
    out = history_from([user("go"), called("a", "b"), result("a", "A"), result("b", "B"), carrier, said("x")])
    assert answers(out.history) == [("b", "B", False), ("a", "A", False)]


def test_calls_in_text_get_their_results_in_text() -> None:  # C040
    reply = said('<tool_use>{"name": "x"}</tool_use> twice')
    calls = [{"type": "call", "tool_use_id": f"call_{n}", "name": "x"} for n in (1, 2)]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    out = history_from([user("go"), reply, *calls, result("call_1", [{"type": "text", "text": "one"}, image])])
    assert out.history[-1] == {
        "role": "user",
        "content": [
            {"type": "text", "text": "<tool_result>\none\n</tool_result>"},
            image,
            {"type": "text", "text": f"<tool_result>\n{UNKNOWN}\n</tool_result>"},
        ],
    }
    assert out.unknown == ["call_2"]
    carried = user("<tool_result>\none\n</tool_result>")
    out = history_from([user("go"), reply, *calls, result("call_1"), carried, said("done")])
    assert len(out.history) == 4 and out.unknown == []
    # the numbers begin again after a restart: an old result is not the new call's
    out = history_from([user("go"), reply, calls[0], result("call_1", "old"), carried, reply, calls[0]])
    assert out.unknown == ["call_1"] and "old" not in json.dumps(out.history[-1])


def test_resumed_twice_a_recorded_result_is_still_there() -> None:  # C043
    # the answers that the first resume gave stand in no record
    records = [user("go"), called("a", "b"), result("a", "A"), user("go on"), said("well")]
    out = history_from(records)
    assert [m["role"] for m in out.history] == ["user", "assistant", "user", "assistant"]
    assert answers(out.history) == [("a", "A", False), ("b", UNKNOWN, True)]
    assert out.history[2]["content"][-1] == {"type": "text", "text": "go on"}
    call = {"type": "call", "tool_use_id": "call_1", "name": "x"}
    out = history_from([user("go"), said("<tool_use>…"), call, result("call_1", "A"), user("go on")])
    assert [b["text"] for b in out.history[2]["content"]] == ["<tool_result>\nA\n</tool_result>", "go on"]


def test_a_lost_carrier_between_two_replies_is_made_good() -> None:  # C040
    out = history_from([user("go"), called("a"), result("a", "A"), called("b"), result("b", "B")])
    assert [m["role"] for m in out.history] == ["user", "assistant", "user", "assistant", "user"]
    assert answers(out.history) == [("a", "A", False), ("b", "B", False)]


def test_cut_and_clear_replace_the_history() -> None:
    kept = [user("kept")["message"], called("t")["message"]]
    cut = {"type": "cut", "history": kept}
    out = history_from([user("1"), said("2"), cut, result("t", "T")])
    assert out.history[:2] == kept and answers(out.history) == [("t", "T", False)]
    assert history_from([user("1"), cut, {"type": "clear"}]).history == []
    assert history_from([user("1"), {"type": "clear"}, user("2")]).history == [user("2")["message"]]
    for broken in (None, "x", 7, {}):  # what nobody can read replaces nothing
        assert history_from([user("1"), {"type": "cut", "history": broken}]).history == [user("1")["message"]]


def test_lines_notes_and_title() -> None:
    lines = ["[Agent] x", "[USER]: the first\n", "[USER]: the second"]
    records = [{"type": "line", "text": t} for t in (lines[0], None, *lines[1:], 7)]
    out = history_from([*records, {"type": "note", "key_info": "a"}, {"type": "note", "key_info": "b"}])
    assert (out.lines, out.key_info, out.title) == (lines, "b", "the first")


def test_text_as_a_bare_string_is_taken() -> None:
    message = {"role": "user", "content": "hi", "request": True}
    out = history_from([{"type": "message", "message": message}])
    assert out.history == [{"role": "user", "content": [{"type": "text", "text": "hi"}], "request": True}]


odd = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2) | st.just({"x": []})
odd_block = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "other"]) | odd,
        "text": odd, "id": odd, "name": odd, "input": odd, "tool_use_id": odd, "content": odd, "thinking": odd,
    },
)  # fmt: skip
odd_message = odd | st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]) | odd},
    optional={"content": odd | st.lists(odd_block | odd, max_size=4)},
)
odd_record = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "call", "result", "cut", "clear", "line", "note", "task", "session", "?"])},
    optional={
        "message": odd_message, "history": odd | st.lists(odd_message, max_size=3), "text": odd, "key_info": odd,
        "tool_use_id": odd, "content": odd, "name": odd,
    },
)  # fmt: skip


@given(st.lists(odd_record, max_size=8))
@settings(max_examples=150, deadline=None)
def test_odd_records_never_break_the_history(records: list[Record]) -> None:  # C026
    out = history_from(records)
    calls: list[str] = []
    for message in out.history:
        assert message["role"] in ("user", "assistant") and message["content"]
        given_back = [b.get("tool_use_id") for b in message["content"] if b["type"] == "tool_result"]
        if set(given_back) <= set(calls):
            assert set(calls) <= set(given_back)
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use" and message["role"] == "assistant"]
    assert not calls
    json.dumps(out.history)


# anything at all


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: bytes flipped, cut out, put in, doubled, zeroed, lines swapped, the end cut off."""
    for _ in range(rng.randint(1, 3)):
        a = rng.randrange(len(data) + 1)
        b = min(len(data), a + rng.choice([1, 1, 2, 10, 200]))
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:a] + bytes(x ^ rng.randrange(1, 256) for x in data[a:b]) + data[b:]
        elif kind == 1:
            data = data[:a] + data[b:]
        elif kind == 2:
            piece = rng.choice([b"\n", b"\0" * 50, b"null", b"\xff\xfe", b'{"crc":"', b"[" * 3000, rng.randbytes(20)])
            data = data[:a] + piece + data[a:]
        elif kind == 3:
            data = data[:b] + data[a:b] + data[b:]
        elif kind == 4:
            data = data[:a] + b"\0" * (b - a) + data[b:]
        elif kind == 5:
            lines = data.splitlines(keepends=True)
            tail = lines[1:]
            rng.shuffle(tail)
            data = b"".join(lines[:1] + tail)
        else:
            data = data[:a]
    return data


@pytest.mark.slow
def test_whatever_happens_to_a_file_it_opens_or_is_refused_and_whole_lines_are_kept(folder: Path) -> None:  # C040
    rng = random.Random(41)
    calls = [{"type": "call", "tool_use_id": "c", "name": "x"}, {"type": "cut", "history": [user("é")["message"]]}]
    path = make(folder, [*RECORDS, *calls, *(user(f"问题 {n}") for n in range(5))], cwd="/tmp")
    original = path.read_bytes()
    header, *lines = original.splitlines(keepends=True)
    count = {"opened": 0, "refused": 0}
    for _ in range(400):
        data = mutated(original, rng)
        path.write_bytes(data)
        list_sessions(folder)
        try:
            journal, records, report = Journal.open(path)
        except SessionError as error:
            assert "\n" not in str(error) and path.read_bytes() == data
            assert not any(line.strip() in data for line in [header, *lines])
            count["refused"] += 1
            continue
        count["opened"] += 1
        intact = [line for line in data.splitlines(keepends=True) if line in lines]
        assert "\n" not in report
        kept = [line for line in map(encode, records) if line in lines]
        for line in set(intact):
            assert kept.count(line) >= intact.count(line)
        history_from(records)
        journal.append(said("afterwards"))
        journal.close()
        after = path.read_bytes() + b"".join(p.read_bytes() for p in beside(path))
        assert len(after) >= len(data)  # nothing was thrown away
        journal, again, report = Journal.open(path)
        journal.close()
        assert again == [*records, said("afterwards")] and "set aside" not in report
        for file in beside(path):
            file.unlink()
    assert count["opened"] > 350 and count["refused"] > 5
