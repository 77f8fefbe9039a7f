"""Configured keys in whatever form a script prints them."""

from __future__ import annotations

import base64
import json
import urllib.parse

import pytest

from genericagent.safety.redact import MARK, Redactor

KEYS = ["sk-ant-api03-AbC_dEf-0123456789", "plain123", 'odd"quote\\and/slash+plus=', "schlüssel-mit-ümlaut"]


@pytest.mark.parametrize("key", KEYS)
def test_every_form_is_found(key: str) -> None:
    redact = Redactor(KEYS)
    data = key.encode()
    for form in (key, json.dumps(key), urllib.parse.quote(key, safe=""), data.hex(), data.hex().upper()):
        assert key not in redact(f"x {form} y") and MARK in redact(f"x {form} y")
    for before in (b"", b"u", b"us", b"use", b"user:"):
        for behind in (b"", b"\n", b"ab", b"abc"):
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                printed = encode(before + data + behind).decode()
                assert MARK in redact(printed), (before, behind)


@pytest.mark.parametrize(
    "text",
    ["", "d41d8cd98f00b204e9800998ecf8427e", "550e8400-e29b-41d4-a716-446655440000", "sk-ant-api03-other", "plain12"],
)
def test_other_long_words_stay(text: str) -> None:  # C151
    assert Redactor(KEYS)(text) == text


def test_without_keys_nothing_changes_and_short_words_are_no_keys() -> None:
    assert Redactor([])("ollama") == "ollama" and Redactor(["ollama", ""])("ollama serve") == "ollama serve"
