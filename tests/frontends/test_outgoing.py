"""What goes out to one chat, against a messenger that refuses, loses and ends as it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import SessionError
from genericagent.faces.markup import Part, plain_parts
from genericagent.faces.outgoing import Buttons, Gone, Outgoing, Refused, Streamed
from genericagent.faces.state import State
from genericagent.store import atomic


class Messenger:
    name, limit = "fake", 100

    def __init__(self) -> None:
        self.shown: dict[str, tuple[str, Buttons]] = {}
        self.fault: Callable[[str], Exception | None] = lambda text: None
        self.lost: set[str] = set()  # messages that the user has deleted

    def send(self, chat: str, part: Part, markup: bool, buttons: Buttons = ()) -> str:
        if error := self.fault(part.plain):
            raise error
        id = str(len(self.shown) + 1)
        self.shown[id] = (part.plain, buttons)
        return id

    def edit(self, chat: str, message: str, part: Part, markup: bool, buttons: Buttons = ()) -> None:
        if message in self.lost:
            raise Refused("message to edit not found")
        self.shown[message] = (part.plain, buttons)

    def delete(self, chat: str, message: str) -> None: ...

    def draft(self, chat: str, draft: int, part: Part) -> bool:
        return False

    def send_file(self, chat: str, name: str, data: bytes) -> None: ...

    def knows(self, chat: str) -> bool:
        return True


@pytest.fixture
def out() -> Iterator[Any]:
    made = Outgoing(Messenger(), "7", pace=0.01, first_pause=0.01)
    yield made
    made.close()


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_no_button_stands_below_a_question_that_was_not_shown_whole(out: Any) -> None:
    failed, ids = list[int](), list[str]()
    out.messenger.fault = lambda text: Refused("no") if "worst" in text else None
    question = [
        *plain_parts("May I do this,", 100),
        *plain_parts("the worst of it,", 100),
        *plain_parts("and that?", 100),
    ]
    out.ask(question, [[("Yes", "x:0")]], ids.append, lambda: failed.append(1))
    until(lambda: failed)
    assert not ids and not any(buttons for _, buttons in out.messenger.shown.values())
    out.messenger.fault = lambda text: None
    out.ask(question, [[("Yes", "x:0")]], ids.append, lambda: failed.append(2))
    until(lambda: ids)
    assert failed == [1] and out.messenger.shown[ids[0]] == ("and that?", [[("Yes", "x:0")]])


def test_what_was_dropped_with_a_chat_that_is_gone_is_told_to_who_waits_for_it(out: Any) -> None:
    undone, worked = list[str](), list[int]()
    out.messenger.fault = lambda text: Gone("blocked by the user")

    def broken(why: str) -> None:
        raise SessionError("cannot write")

    out.put(lambda: time.sleep(0.1), undone=broken)  # so that all are in the queue
    out.say("hello")
    out.put(lambda: worked.append(1), undone=undone.append)
    out.ask(plain_parts("May I?", 100), [], lambda id: worked.append(2), lambda: undone.append("no"))
    until(lambda: len(undone) == 2)
    assert undone == ["blocked by the user", "no"] and not worked and out.idle()


def test_files_that_wait_are_counted_until_they_are_sent(out: Any) -> None:
    gate = threading.Event()
    out.put(gate.wait)
    out.send_file("a", b"1234", lambda why: None)
    out.send_file("b", b"56", lambda why: None)
    assert out.held() == 6
    gate.set()
    until(out.idle)
    assert out.held() == 0


def test_a_streamed_message_that_the_user_deleted_is_sent_once_more_not_at_each_edit(out: Any) -> None:
    live = Streamed()
    out.stream(live, "one", "…")
    until(lambda: len(out.messenger.shown) == 1)
    out.messenger.lost.add("1")
    for words in ("one two", "one two three", "one two three four"):
        out.stream(live, words, "…")
        until(lambda words=words: any(words in text for text, _ in out.messenger.shown.values()))
    out.finish(live, "the end")
    until(out.idle)
    assert len(out.messenger.shown) == 2 and out.messenger.shown["2"][0] == "the end"


def test_chats_that_begin_at_once_are_all_kept(tmp_path: Path) -> None:
    state, together = State(tmp_path / "x.json"), threading.Barrier(8)

    def begin(chat: str) -> None:
        together.wait()
        state.belongs(chat, f"session of {chat}")

    threads = [threading.Thread(target=begin, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(State(tmp_path / "x.json").chats) == 8


def test_what_could_not_be_kept_was_not_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path / "faces/x.json")
    assert state.take(4, {"text": "first"})
    state.begin([4])
    with monkeypatch.context() as full:
        full.setattr(atomic, "write_bytes", lambda *a, **k: (_ for _ in ()).throw(OSError(28, "No space left")))
        for change in (lambda: state.take(5, {"text": "second"}), lambda: state.done([4]), lambda: state.set(owner=1)):
            with pytest.raises(SessionError):
                change()
    kept = State(tmp_path / "faces/x.json")
    for one in (state, kept):
        assert (one.next, one.owner, [(w.key, w.begun) for w in one.waiting]) == (5, None, [(4, True)])
    assert state.take(5, {"text": "second"}) and not state.take(5, {"text": "second"})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_file_that_was_changed_for_a_link_after_it_was_judged_is_not_read(tmp_path: Path) -> None:
    secret, work = tmp_path / "secret", tmp_path / "work"
    (secret / "in").mkdir(parents=True)
    work.mkdir()
    (secret / "in/a.txt").write_text("private")
    (work / "in").mkdir()
    (work / "in/a.txt").write_text("mine")
    assert atomic.read_there(work / "in/a.txt", 10) == b"mine"
    with pytest.raises(OSError, match="larger than"):
        atomic.read_there(work / "in/a.txt", 3)
    (work / "in/a.txt").unlink()
    (work / "in/a.txt").symlink_to(secret / "in/a.txt")
    (work / "fifo").symlink_to(work / "pipe")
    os.mkfifo(work / "pipe")
    (work / "in2").symlink_to(secret / "in")  # a folder on the way
    for path in (work / "in/a.txt", work / "in2/a.txt", work / "pipe", work, work / "gone"):
        with pytest.raises(OSError):
            atomic.read_there(path, 10)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="exchanges two names in one step, as Linux can")
def test_a_folder_that_is_ever_exchanged_for_a_link_gives_nothing_away(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "d").mkdir(parents=True)
    outside.mkdir()
    (work / "d/f").write_text("mine")
    (outside / "f").write_text("private")
    (work / "e").symlink_to(outside)
    flip = "import ctypes, sys; c = ctypes.CDLL(None); a, b = map(str.encode, sys.argv[1:])\nwhile True: c.renameat2(-100, a, -100, b, 2)"
    flipping = subprocess.Popen([sys.executable, "-c", flip, str(work / "d"), str(work / "e")])
    found, end = set(), time.monotonic() + 2
    try:
        while time.monotonic() < end:
            try:
                found.add(atomic.read_there(work / "d/f", 100))
            except OSError:
                found.add(b"")
    finally:
        flipping.kill()
        flipping.wait()
    assert found == {b"mine", b""}
