"""Events out of bytes, however they are cut and whatever ends their lines."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genericagent.llm.sse import Event, Reader


def read(*chunks: bytes) -> list[Event]:
    reader = Reader()
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.close()


def by_the_book(body: bytes) -> list[Event]:
    """The WHATWG algorithm, line by line, as slow as it likes."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    events, name, data = [], "", []
    for line in [*text.split("\n"), ""]:  # the last event counts without its blank line
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if "\n".join(data):
                events.append((name or "message", "\n".join(data)))
            name, data = "", []
        elif field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return events


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_line_ending(end: str) -> None:
    body = f"event: a{end}data: 1{end}{end}data: 2{end}{end}".encode()
    assert read(body) == [("a", "1"), ("message", "2")]
    assert read(*(body[i : i + 1] for i in range(len(body)))) == [("a", "1"), ("message", "2")]


def test_an_event_is_out_as_soon_as_its_blank_line_is_there_also_with_bare_cr() -> None:
    for blank in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        assert Reader().feed(b"data: x" + blank) == [("message", "x")]


def test_byte_order_mark_comments_unknown_fields_and_heartbeats() -> None:
    body = b'\xef\xbb\xbf: hello\n\ndata: 1\nid: 7\nretry: 10\n: ping\nnonsense\n\n:\n\ndata\n\ndata:\n\ndata: ""\n\n'
    assert read(body) == [("message", "1"), ("message", '""')]


def test_one_space_behind_the_colon_belongs_to_the_field() -> None:
    assert read(b"data:x\n\ndata:  y\n\nevent:n\ndata:{}\n\n") == [("message", "x"), ("message", " y"), ("n", "{}")]


def test_data_of_several_lines_is_one_event() -> None:
    assert read(b"data: {\ndata: \ndata: }\n\n") == [("message", "{\n\n}")]


def test_last_event_without_blank_line_or_newline() -> None:
    assert read(b"data: 1\n\ndata: 2") == read(b"data: 1\n\ndata: 2\n") == [("message", "1"), ("message", "2")]


def test_unicode_line_separators_do_not_end_a_line() -> None:
    assert read("data: a\u2028b\u0085c\u2029d\x0be\x1cf\n\n".encode()) == [
        ("message", "a\u2028b\u0085c\u2029d\x0be\x1cf")
    ]


def test_a_byte_that_is_not_utf8_costs_one_character() -> None:
    assert read(b"data: bad\xeebyte\n\n") == [("message", "bad\ufffdbyte")]


LINES = st.sampled_from(
    [
        b"data: 1",
        b"data:2",
        b"data",
        b"event: e",
        b"event",
        b": c",
        b"id: 3",
        b"x",
        "data: é\U0001f600".encode(),
        b"data: \xff",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
BODIES = st.lists(st.tuples(LINES, ENDS), max_size=14).map(lambda parts: b"".join(line + end for line, end in parts))


@given(BODIES | st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1), st.booleans())
@example(b"data: 1\r", [1], False)
@example(b"\xef\xbb\xbfdata: 1\n\n", [1], False)
def test_the_events_do_not_depend_on_where_the_reads_end(body: bytes, steps: list[int], mark: bool) -> None:
    body = b"\xef\xbb\xbf" * mark + body
    chunks, at, i = [], 0, 0
    while at < len(body):
        chunks.append(body[at : at + steps[i % len(steps)]])
        at, i = at + steps[i % len(steps)], i + 1
    assert read(*chunks) == read(body) == by_the_book(body)


def test_a_huge_event_in_small_reads_is_looked_at_once() -> None:
    reader, piece = Reader(), b"x" * 500
    reader.feed(b"data: ")
    for _ in range(20_000):  # 10 MB; a reader that looks at all of it again each time would need minutes
        assert reader.feed(piece) == []
    assert [len(data) for _, data in reader.feed(b"\n\n")] == [10_000_000]
