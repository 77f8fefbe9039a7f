"""The real program as a Telegram bot, against a Bot API server on loopback and a scripted model; and as a page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakegram import TOKEN, FakeTelegram
from webrun import WebRun

ROOT = Path(__file__).resolve().parent.parent.parent
SIXTIETH = {
    "poll": 0.5,
    "edit": 0.034,
    "album": 0.25,
    "approval": 5.0,
    "retry": 0.017,
}  # of the seconds of everyday use


class BotRun:
    """`settings` go into [telegram]; `fake` is what Telegram is, `home` is $GA_HOME."""

    def __init__(self, home: Path, fake: FakeTelegram, env: dict[str, str], settings: dict[str, Any]) -> None:
        self.home, self.fake, self._env = home, fake, env
        given = {"token": TOKEN, "allowed_users": [7], "base_url": fake.url, **SIXTIETH, **settings}
        lines = [
            f"{key} = {str(value) if isinstance(value, (int, float, list)) else repr(value)}"
            for key, value in given.items()
        ]
        (home / "config.toml").write_text("\n".join(["[telegram]", *lines, ""]))
        (home / "config.toml").chmod(0o600)
        self._runs: list[subprocess.Popen[bytes]] = []
        self.errors = home.parent / "errors.txt"

    def start(self, *args: str, ready: bool = True) -> subprocess.Popen[bytes]:
        before = self.said().count("is ready")
        with self.errors.open("ab") as errors:
            command = [sys.executable, str(ROOT / "agentmain.py"), "telegram", "--sandbox", "off", *args]
            run = subprocess.Popen(
                command,
                env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )
        self._runs.append(run)
        if ready:
            self.fake.until(lambda: self.said().count("is ready") > before or run.poll() is not None)
            assert run.poll() is None, self.said()
        return run

    def delivered(self) -> bool:
        """Whether all that came so far is answered."""
        state = self.home / "faces/telegram.json"
        return state.exists() and not json.loads(state.read_text())["waiting"]

    def said(self) -> str:
        return self.errors.read_text() if self.errors.exists() else ""

    def end(self, how: int = signal.SIGTERM) -> int:
        run = self._runs[-1]
        run.send_signal(how)
        return run.wait(30)

    def close(self) -> None:
        for run in self._runs:
            if run.poll() is None:
                run.kill()
                run.wait(30)


@pytest.fixture
def telegram(ga_home: Path, model_server: Any) -> Iterator[Callable[..., Any]]:
    """`bot = telegram([call(…), say(…)], allowed_users=[7])`: a bot that runs; with `start=False` it does not yet."""
    pytest.importorskip("telegram")
    made: list[BotRun] = []

    def begin(
        replies: Any = (), *, start: bool = True, drafts: bool = False, args: tuple[str, ...] = (), **settings: Any
    ) -> BotRun:
        server = model_server(replies)
        fake = FakeTelegram(drafts)
        made.append(
            BotRun(ga_home, fake, {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "key-for-test"}, settings)
        )
        made[-1].server = server  # type: ignore[attr-defined]
        if start:
            made[-1].start(*args)
        return made[-1]

    yield begin
    for bot in made:
        bot.close()
        bot.fake.close()


@pytest.fixture
def webapp(ga_home: Path, model_server: Any) -> Iterator[Callable[..., WebRun]]:
    """`page = webapp([call(…), say(…)])`: the page's program, running."""
    pytest.importorskip("aiohttp")
    made: list[WebRun] = []

    def begin(replies: Any = (), *options: str) -> WebRun:
        made.append(WebRun(ga_home, model_server(replies), options))
        return made[-1].start()

    yield begin
    for page in made:
        page.close()
