"""The bridge's words without a socket: proofs, commands, references."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genericagent.browser import wire
from genericagent.errors import ToolError

SECRET, PORT, NOW = "s" * 43, 18765, 1_700_000_000.0
ROOT = Path(__file__).parents[2]


def knock(**changes: Any) -> str:
    nonce, time = changes.pop("nonce", "ab" * 32), changes.pop("time", int(NOW * 1000))
    secret, port = changes.pop("secret", SECRET), changes.pop("port", PORT)
    return wire.encode(
        {"knock": {"nonce": nonce, "time": time, "proof": wire.proof(secret, "knock", port, nonce, time)} | changes}
    )


def pairing(nonces: wire.Nonces | None = None) -> wire.Pairing:
    return wire.Pairing(SECRET, PORT, nonces or wire.Nonces(), "cd" * 32, {"name": "ga"})


def hello(proof: str, **browser: str) -> str:
    return wire.encode({"hello": {"proof": proof, "browser": {"id": "abcd", "version": "1", **browser}}})


def test_both_sides_prove_that_they_know_the_secret() -> None:
    ours = pairing()
    welcome = json.loads(ours.take(knock(), NOW) or "")["welcome"]
    assert welcome["proof"] == wire.proof(SECRET, "server", PORT, "ab" * 32, welcome["nonce"])
    assert ours.browser is None
    assert ours.take(hello(wire.proof(SECRET, "extension", PORT, "ab" * 32, welcome["nonce"])), NOW) is None
    assert ours.browser and ours.browser["id"] == "abcd"


@pytest.mark.parametrize(
    "frame",
    [
        knock(secret="t" * 43), knock(port=PORT + 1), knock(proof=""), knock(proof=None), knock(proof="é"), knock(nonce="ab"),
        knock(nonce="AB" * 32), knock(time=int((NOW - 61) * 1000)), knock(time=int((NOW + 61) * 1000)), knock(time=True),
        "", "null", "[]", "{}", '{"knock": 1}', '{"knock": {}}', b"\xff", "[" * 5000, '{"id":1,"do":"tabs"}',
        hello(wire.proof(SECRET, "extension", PORT, "", "cd" * 32)),
    ],
)  # fmt: skip
def test_who_does_not_knock_rightly_gets_no_answer(frame: str | bytes) -> None:  # C146
    with pytest.raises(PermissionError):
        pairing().take(frame, NOW)


def test_a_knock_counts_once() -> None:
    nonces = wire.Nonces()
    assert pairing(nonces).take(knock(), NOW)
    with pytest.raises(PermissionError):
        pairing(nonces).take(knock(), NOW + 1)
    assert pairing(nonces).take(knock(nonce="cd" * 32), NOW + 1)


@pytest.mark.parametrize("role", ["server", "knock", "extension"])
def test_a_proof_of_another_role_or_pairing_is_no_hello(role: str) -> None:
    ours = pairing()
    ours.take(knock(), NOW)
    stale = wire.proof(SECRET, role, PORT, "ab" * 32, "ee" * 32 if role == "extension" else "cd" * 32)
    with pytest.raises(PermissionError):
        ours.take(hello(stale), NOW)
    assert ours.browser is None


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_nothing_but_a_proof_opens_the_door(frame: str | bytes) -> None:
    with pytest.raises(PermissionError):
        pairing().take(frame, NOW)


def test_the_id_of_the_extension_follows_from_its_key() -> None:
    manifest = json.loads((ROOT / "assets/tmwd_cdp_bridge/manifest.json").read_text("utf-8"))
    digest = hashlib.sha256(b64decode(manifest["key"])).hexdigest()[:32]
    assert "".join(chr(ord("a") + int(c, 16)) for c in digest) == wire.EXTENSION_ID


def test_the_extension_asks_for_little_and_exposes_nothing() -> None:
    manifest = json.loads((ROOT / "assets/tmwd_cdp_bridge/manifest.json").read_text("utf-8"))
    assert set(manifest["permissions"]) == {"alarms", "debugger", "scripting", "storage", "tabs"}
    assert manifest["host_permissions"] == ["<all_urls>"]
    asked = {"content_scripts", "web_accessible_resources", "externally_connectable", "declarative_net_request"}
    assert asked.isdisjoint(manifest)
    docs = (ROOT / "docs/BROWSER.md").read_text("utf-8")
    assert all(f"`{p}`" in docs for p in [*manifest["permissions"], "<all_urls>"])
    everything = [p.read_text("utf-8", "replace") for p in (ROOT / "assets").rglob("*") if p.is_file()]
    assert not any("PRIVATE KEY" in text for text in everything)
    code = "".join(p.read_text("utf-8") for p in (ROOT / "assets/tmwd_cdp_bridge").glob("*.js"))
    assert not re.search(r"https?://(?!\$)|declarativeNetRequest|onHeadersReceived|navigator\.webdriver", code)


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ('{"cmd": "tabs"}', "tabs"), ('  {"cmd":"cdp","method":"X"}\n', "cdp"), ({"cmd": "cookies"}, "cookies"), ("{a: 1}", None),
        ('{"a": 1}', None), ('{"cmd": 1}', None), ("return {cmd: 'tabs'}", None), ('{"cmd": "tabs"', None), ({"a": 1}, None), ("", None),
    ],
)  # fmt: skip
def test_a_command_is_an_object_with_cmd(code: Any, command: str | None) -> None:
    assert (wire.command_of(code) or {}).get("cmd") == command


def test_steps_refer_to_what_earlier_ones_gave() -> None:
    done = [{"value": {"id": 7, "names": ["Ann", "Bo"]}}, {"value": None}]
    step = {
        "code": "f({{0.value.id}}, {{0.value.names}})",
        "tab": "{{0.value.id}}",
        "more": ["{{0.value.names.1}}", 3, "{{1.value}}"],
    }
    assert wire.resolve(step, done) == {"code": 'f(7, ["Ann", "Bo"])', "tab": 7, "more": ["Bo", 3, None]}
    assert wire.resolve({"code": "{{ x }} {{a.b}} $0"}, done) == {"code": "{{ x }} {{a.b}} $0"}
    for nowhere in ("{{2}}", "{{0.value.names.9}}", "{{1.value.x}}", "a {{0.no}}"):
        with pytest.raises(ToolError, match="leads nowhere"):
            wire.resolve(nowhere, done)
