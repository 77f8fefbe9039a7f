"""Somebody else listens where our extension looks: it proves itself to nobody who hasn't, and does nothing for him."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bridged import CHROMIUM, NO_CHROMIUM, Chromium, Site, serving, until
from ports import free_ports
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve

from genericagent.browser import server, wire
from genericagent.cli.browser import write_extension

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"/stolen": "x"}) as found:
        yield found


class Impostor:
    """Talks to whoever connects as `script(ws)` says; keeps what it hears."""

    def __init__(self, port: int, script: Callable[[ServerConnection, Impostor], None]) -> None:
        self.heard: list[Any] = []
        self.ended = threading.Event()
        self._script = script
        self.server = serve(self._talk, "127.0.0.1", port)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _talk(self, ws: ServerConnection) -> None:
        try:
            self._script(ws, self)
            while True:
                self.hear(ws)
        except (ConnectionClosed, TimeoutError):
            self.ended.set()

    def hear(self, ws: ServerConnection) -> Any:
        self.heard.append(json.loads(ws.recv(timeout=15)))
        return self.heard[-1]


def commands(site: Site) -> list[str]:
    """What an impostor would like to have done."""
    js = f"fetch('{site.url}/stolen?js')"
    wishes = [{"do": "tabs"}, {"do": "create", "url": f"{site.url}/stolen?create"}, {"do": "js", "tab": 1, "code": js}]
    return [wire.encode({"id": n, "timeout": 5000, **wish}) for n, wish in enumerate(wishes, 1)]


def send(ws: ServerConnection, frames: list[str]) -> None:
    for frame in frames:
        ws.send(frame)
        time.sleep(0.1)  # or they come as one heap, which is reason enough to hang up


def welcome(nonce: str, proof: str) -> str:
    return wire.encode({"welcome": {"nonce": nonce, "proof": proof, "about": {"name": "GenericAgent", "pid": 1}}})


KINDS = [
    "says nothing",
    "commands at once",
    "commands after the knock",
    "wrong proof",
    "recorded welcome",
    "the knock sent back",
    "welcome with a command behind",
    "junk",
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_extension_does_nothing_for_an_impostor(kind: str, site: Site, tmp_path: Path) -> None:  # C094 C145
    port, link_port = free_ports()
    extension = write_extension(tmp_path, port, link_port)
    recorded = welcome(
        "ab" * 32,
        wire.proof((tmp_path / "browser" / "secret").read_text().strip(), "server", port, "cd" * 32, "ab" * 32),
    )

    def script(ws: ServerConnection, me: Impostor) -> None:
        if kind == "commands at once":
            send(ws, commands(site))
        knock = me.hear(ws)["knock"]
        own = os.urandom(32).hex()
        answers = {
            "commands after the knock": commands(site), "wrong proof": [welcome(own, wire.proof("x" * 43, "server", port, knock["nonce"], own))],
            "recorded welcome": [recorded, *commands(site)], "the knock sent back": [welcome(knock["nonce"], knock["proof"]), *commands(site)],
            "welcome with a command behind": [welcome(own, "0" * 64), *commands(site)], "junk": ["[[[", "null", '{"welcome":1}', *commands(site)],
        }  # fmt: skip
        send(ws, answers.get(kind, []))

    impostor = Impostor(port, script)
    chromium = Chromium(extension, tmp_path / "profile")
    try:
        assert impostor.ended.wait(60)
        assert all(set(frame) == {"knock"} for frame in impostor.heard), impostor.heard
        assert chromium.worker("chrome.tabs.query({}).then(tabs => tabs.length)") == 1
        assert site.seen == []
    finally:
        chromium.close()
        impostor.server.shutdown()


def test_who_passes_the_proofs_on_to_our_server_gets_nowhere(site: Site, tmp_path: Path) -> None:
    """The real bridge listens at another port, as when the impostor was there first."""
    port, link_port = free_ports()
    extension = write_extension(tmp_path, port, link_port)
    real = server.join(tmp_path, *free_ports())
    assert isinstance(real, server.Bridge)
    answered: list[str] = []

    def script(ws: ServerConnection, me: Impostor) -> None:
        knock = wire.encode(me.hear(ws))
        with (
            contextlib.suppress(ConnectionClosed),
            connect(f"ws://127.0.0.1:{real.port}/", origin=wire.ORIGIN) as there,
        ):
            there.send(knock)
            answered.append(str(there.recv(timeout=10)))
        send(ws, [*answered, *commands(site)])

    impostor = Impostor(port, script)
    chromium = Chromium(extension, tmp_path / "profile")
    try:
        assert impostor.ended.wait(60)
        assert answered == [] and real.browsers() == [] and site.seen == []
        assert all(set(frame) == {"knock"} for frame in impostor.heard)
    finally:
        chromium.close()
        impostor.server.shutdown()
        real.close()


@pytest.mark.slow
def test_after_an_impostor_the_real_one_is_found(site: Site, tmp_path: Path) -> None:
    port, link_port = free_ports()
    extension = write_extension(tmp_path, port, link_port)
    impostor = Impostor(port, lambda ws, me: send(ws, commands(site)))
    chromium = Chromium(extension, tmp_path / "profile")
    try:
        assert impostor.ended.wait(60)
        impostor.server.shutdown()
        real = server.join(tmp_path)
        try:
            until(real.browsers)
        finally:
            real.close()
        assert site.seen == []
    finally:
        chromium.close()
