"""Configured keys in whatever form a script or a protocol prints them, whole or in pieces; and nothing else."""

from __future__ import annotations

import base64
import html
import json
import textwrap
import time
import urllib.parse
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genericagent.safety.redact import MARK, SHORTEST, Redactor

KEYS = [
    "sk-ant-api03-AbC_dEf-0123456789",
    "plain123",
    "odd\"quote\\and/slash+plus=&<'",
    "schlüssel-mit-ümlaut 🔑",
    "0123456789abcdef0123456789abcdef",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." * 8,
]


def encoded(data: bytes) -> list[str]:
    return [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]


def forms(key: str) -> list[str]:
    data, quoted = key.encode(), urllib.parse.quote(key, safe="")
    strict, loose = json.dumps(key)[1:-1], json.dumps(key, ensure_ascii=False)[1:-1]
    return [
        key, strict, loose, json.dumps(strict)[1:-1], json.dumps(loose, ensure_ascii=False)[1:-1], strict.replace("/", "\\/"),
        quoted, urllib.parse.quote(quoted) if "%" not in quoted else quoted, urllib.parse.quote(key),
        urllib.parse.quote_plus(key), "".join(f"%{b:02x}" for b in data), repr(key)[1:-1], repr(data)[2:-1],
        html.escape(key), html.escape(key, quote=False), data.hex(), data.hex().upper(),
    ]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_form_of_a_key_is_left(key: str) -> None:  # C149
    redact = Redactor(KEYS)
    for form in forms(key):
        assert redact(f"x {form} y") == f"x {MARK} y", form
        assert len(form) <= redact.longest


@pytest.mark.parametrize("key", KEYS)
def test_a_key_inside_of_base64_is_left(key: str) -> None:  # C149
    redact, data = Redactor(KEYS), key.encode()
    for before in (b"", b"u", b"us", b"use", b"user:"):
        for behind in (b"", b"\n", b"ab", b"abc"):
            for printed in encoded(before + data + behind):
                assert MARK in redact(printed), (before, behind)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("columns", [64, 76])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_base64_breaks_over_two_lines_is_left(key: str, columns: int, end: str) -> None:  # C149
    redact = Redactor(KEYS)
    for before in range(90):
        printed = end.join(textwrap.wrap(encoded(b"x" * before + key.encode() + b"\nHOME=/root\n" * 9)[0], columns))
        assert MARK in redact(printed), before
        assert redact(printed).replace(end, "") == redact(printed.replace(end, ""))


@pytest.mark.parametrize("kept", range(16, 31))
def test_most_of_a_key_is_left_where_a_line_was_cut(kept: int) -> None:  # C149
    key, redact = KEYS[0], Redactor(KEYS)
    for form in (key, key.encode().hex()):
        assert redact(f"curl -H 'x: {form[:kept]}…)") == f"curl -H 'x: {MARK})"
    stream = redact.stream()
    assert stream.feed(f"key {key[:kept]}") + stream.feed("… and more") + stream.flush() == f"key {MARK} and more"
    assert redact("sk-ant-api03-…") == "sk-ant-api03-…", "what all keys of a provider begin with says nothing"


@pytest.mark.parametrize(
    "text",
    [
        "", "d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000", "sk-ant-api03-other", "plain12",
        "0123456789abcdef0123456789abcde", "0123456789abcdef", "890b4d8f3c1e5a7092b4c6d8e0f1a3b5c7d9e1f2",
        "sk-proj-AbC_dEf-0123456789", "ghp_0123456789abcdefghijABCDEFGHIJ", "eyJhbGciOiJIUzI1NiJ9.e30.x", "cGxhaW4xMg==",
        "AKIAIOSFODNN7EXAMPLE", "password = hunter2-and-more", "Authorization: Bearer abc.def.ghi",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_key_is_changed(text: str) -> None:  # C151
    redact = Redactor(KEYS)
    stream = redact.stream()
    assert redact(text) == text == stream.feed(text) + stream.flush()


def test_without_keys_something_changes_or_a_short_word_is_a_key() -> None:  # C151
    assert (
        Redactor([])("ollama") == "ollama" and Redactor(["ollama", "", "x" * (SHORTEST - 1)])("ollama x") == "ollama x"
    )
    assert Redactor([]).longest == Redactor(["short"]).longest == 0
    text = "not even waits"
    assert Redactor([]).stream().feed(text) is text


@pytest.mark.parametrize("key", KEYS)
def test_a_key_cut_over_two_deltas_is_shown(key: str) -> None:  # C149
    redact = Redactor(KEYS)
    for form in [*forms(key), *encoded(b"ab" + key.encode())]:
        whole = f"the key is {form}, keep it"
        for cut in range(len(whole) + 1):
            stream = redact.stream()
            assert stream.feed(whole[:cut]) + stream.feed(whole[cut:]) + stream.flush() == redact(whole)
        one_by_one = redact.stream()
        assert "".join(map(one_by_one.feed, whole)) + one_by_one.flush() == redact(whole)


ALPHABET = [
    "plain123",
    "plain12",
    "plain123456",
    "plai",
    "cGxhaW4x",
    "MjM",
    "\n",
    "\r\n",
    "\r",
    " ",
    "x",
    "3",
    "p",
    "cGxh",
]


@given(st.lists(st.lists(st.sampled_from(ALPHABET), max_size=4).map("".join), max_size=8))
def test_pieces_come_out_as_something_else_than_the_whole(pieces: list[str]) -> None:
    redact = Redactor(["plain123", "plain123456", "123plain9"])
    stream = redact.stream()
    assert "".join(map(stream.feed, pieces)) + stream.flush() == redact("".join(pieces))


def test_ordinary_text_waits_for_the_next_piece() -> None:
    stream = Redactor(["sk-ant-api03-AbC_dEf-0123456789"]).stream()
    assert stream.feed("An ordinary line.\n") == "An ordinary line.\n"
    assert stream.feed("and sk-ant") == "and " and stream.feed("ics.") == "sk-antics."


def test_a_record_is_masked_in_place_or_a_key_in_it_stays() -> None:
    key = KEYS[2]
    record = {"a": [key, {"b": f"x{key}", key: 1}], "n": 3, "none": None, "t": (key,), "f": 1.5, "yes": True}
    masked = Redactor(KEYS).json(record)
    assert masked == {"a": [MARK, {"b": f"x{MARK}", MARK: 1}], "n": 3, "none": None, "t": [MARK], "f": 1.5, "yes": True}
    assert record["a"][0] == key, "the tool's own arguments stay exact"
    deep: Any = key
    for _ in range(5000):
        deep = [deep]
    masked = Redactor(KEYS).json(deep)
    while isinstance(masked, list):
        masked, deep = masked[0], deep[0]
    assert masked == MARK and deep == key


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["a line of ordinary output\n" * 400_000, "sk-ant-api03-" * 800_000, "plain12" * 1_400_000, "cGxhaW4x\n" * 1_000_000, "\n" * 9_000_000],
)  # fmt: skip
def test_twelve_keys_and_ten_megabytes_take_for_ever(text: str) -> None:
    redact = Redactor([f"sk-ant-api03-{n}-AbC_dEf-0123456789" for n in range(11)] + ["plain123"])
    stream, start = redact.stream(), time.perf_counter()
    assert (
        redact(text) == "".join(stream.feed(text[i : i + 65536]) for i in range(0, len(text), 65536)) + stream.flush()
    )
    assert time.perf_counter() - start < 20  # some 0.5 s; the bound is for hangs
