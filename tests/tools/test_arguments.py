"""Arguments of a wrong type never reach a tool."""

from __future__ import annotations

from typing import Any

import pytest

from genericagent.errors import ToolError
from genericagent.tools.arguments import check_arguments

SCHEMA: dict[str, Any] = {
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer"},
        "deep": {"type": "boolean"},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "list": {"type": "array"},
    },
    "required": ["path"],
}


def test_obvious_spellings_are_put_right_and_null_counts_as_absent() -> None:
    given = {"path": "x", "count": "60", "deep": "true", "mode": None, "extra": 1}
    assert check_arguments(SCHEMA, given) == {"path": "x", "count": 60, "deep": True, "extra": 1}
    assert check_arguments(SCHEMA, {"path": "x", "count": 3.0})["count"] == 3


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"path": 1}, "path"),
        ({}, "path is missing"),
        ({"path": None}, "path is missing"),
        ({"path": "x", "count": "many"}, "count"),
        ({"path": "x", "count": 1.5}, "whole"),
        ({"path": "x", "count": True}, "count"),
        ({"path": "x", "count": float("inf")}, "count"),
        ({"path": "x", "count": [1]}, "count"),
        ({"path": "x", "deep": "maybe"}, "deep"),
        ({"path": "x", "mode": "c"}, "a, b"),
        ({"path": "x", "list": "a"}, "list"),
        ({"path": {"a": 1}}, "path"),
    ],
)
def test_wrong_types_are_named_and_refused(args: dict[str, Any], word: str) -> None:
    with pytest.raises(ToolError, match=word):
        check_arguments(SCHEMA, args)
