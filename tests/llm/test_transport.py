"""Framing and stopping, without a provider."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genericagent.abort import Abort
from genericagent.errors import Aborted, LLMError
from genericagent.llm.transport import Dechunker


def frame(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_chunked_framing_comes_off_wherever_the_reads_end(pieces: list[bytes], steps: list[int]) -> None:
    data, frames, out, at, i = frame(pieces), Dechunker(), b"", 0, 0
    while at < len(data):
        step = steps[i % len(steps)]
        out += frames.feed(data[at : at + step])
        at, i = at + step, i + 1
    assert out == b"".join(pieces) and frames.ended


def test_chunk_extensions_are_ignored_and_nonsense_is_an_error() -> None:
    assert Dechunker().feed(b"3;a=b\r\nabc\r\n") == b"abc"
    with pytest.raises(LLMError):
        Dechunker().feed(b"zz\r\nabc\r\n")


def test_an_abort_wakes_who_waits_and_closes_what_is_open() -> None:
    abort, closed = Abort(), []
    abort.on_set(lambda: closed.append(1))
    threading.Timer(0.05, abort.set).start()
    assert abort.wait(20)
    with pytest.raises(Aborted):
        abort.check()
    assert closed == [1]
    abort.clear()
    abort.check()


def test_what_is_registered_after_the_abort_is_closed_at_once() -> None:
    abort, closed = Abort(), []
    abort.set()
    abort.on_set(lambda: closed.append(1))
    assert closed == [1]
