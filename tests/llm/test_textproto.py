"""Tool calls written as text, as models really write them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from genericagent.llm.textproto import parse_calls, result_text


def calls(reply: str) -> list[dict[str, Any]]:
    serial = itertools.count()
    return parse_calls(reply, lambda: f"c{next(serial)}")


def runnable(reply: str) -> list[tuple[str, Any]]:
    return [(c["name"], c["input"]) for c in calls(reply) if c["input"] is not None]


ONE = '<tool_use>{"name": "f", "arguments": {"x": 1}}</tool_use>'


@pytest.mark.parametrize(
    "reply",
    [
        ONE,
        f"words before {ONE} words behind",
        '```xml\n<tool_use>\n{"name": "f", "arguments": {"x": 1}}\n</tool_use>\n```',
        '<tool_use>```json\n{"name": "f", "arguments": {"x": 1}}\n```</tool_use>',
        '<tool_use>{"name": "f", "arguments": {"x": 1}} trailing junk }}</tool_use>',
        '<tool_use>{"name": "f", "arguments": {"x": 1}}',
        '<tool_use>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_use>',
    ],
)
def test_one_call_in_the_shapes_models_write(reply: str) -> None:
    assert runnable(reply) == [("f", {"x": 1})]


def test_several_calls_in_one_reply_keep_their_order_and_get_ids_of_their_own() -> None:
    found = calls(ONE + "then" + ONE.replace("1", "2"))
    assert [c["input"] for c in found] == [{"x": 1}, {"x": 2}]
    assert len({c["id"] for c in found}) == 2


def test_a_call_inside_thinking_is_not_run() -> None:
    assert runnable(f"<thinking>I could {ONE}</thinking>no") == []
    assert runnable(f"<thinking>never closed {ONE}") == []


def test_a_call_inside_file_content_is_content() -> None:
    inner = f"<file_content>\n{ONE}\n</file_content>\n"
    outer = '<tool_use>{"name": "file_write", "arguments": {"path": "a"}}</tool_use>'
    assert runnable(inner + outer) == [("file_write", {"path": "a"})]


def test_a_closing_tag_inside_a_string_does_not_end_the_call() -> None:
    reply = '<tool_use>{"name": "f", "arguments": {"x": "a</tool_use>b"}}</tool_use>'
    assert runnable(reply) == [("f", {"x": "a</tool_use>b"})]


def test_line_breaks_inside_strings_are_read() -> None:
    assert runnable('<tool_use>{"name": "f", "arguments": {"x": "a\nb"}}</tool_use>') == [("f", {"x": "a\nb"})]


@pytest.mark.parametrize(
    "reply",
    [
        '<tool_use>{"name": "f", "arguments": {"path": "a.txt", </tool_use>',
        '<tool_use>{"name": "f", "arguments": {"x": 1,}}</tool_use>',
        '<tool_use>{"name": "f", "arguments": [1]}</tool_use>',
        '<tool_use>{"name": "f", "arguments": "not json"}</tool_use>',
        '<tool_use>{"arguments": {}}</tool_use>',
        "<tool_use>f(x=1)</tool_use>",
        '<tool_use>{"name": "f", "arguments": {"content": "half a fi',
    ],
)
def test_broken_json_is_kept_as_broken_and_never_becomes_an_empty_call(reply: str) -> None:  # C020 C022
    found = calls(reply)
    assert len(found) == 1 and found[0]["input"] is None and found[0]["incomplete"] and found[0]["why"]


def test_a_good_call_after_a_broken_one_is_found() -> None:
    found = calls('<tool_use>{"name": "f", "arguments": {</tool_use>' + ONE)
    assert [c["input"] for c in found] == [None, {"x": 1}]


def test_missing_and_null_arguments_are_an_empty_object() -> None:
    assert runnable('<tool_use>{"name": "f"}</tool_use>') == [("f", {})]
    assert runnable('<tool_use>{"name": "f", "arguments": null}</tool_use>') == [("f", {})]


def test_results_become_text() -> None:
    assert result_text({"content": "out"}) == "<tool_result>\nout\n</tool_result>"
    mixed = [{"type": "text", "text": "a"}, {"type": "image"}]
    assert result_text({"content": mixed}) == "<tool_result>\na\n[image]\n</tool_result>"
