"""The bot with the waits of everyday use, against a Bot API server on loopback: a long answer through waits, a dead network.

In tests the same runs with a sixtieth of these waits (tests/frontends).
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness import ROOT, Row, environment, home

from genericagent.scripted import Reply, ScriptedServer

sys.path.insert(0, str(ROOT / "tests" / "frontends"))
from fakegram import TOKEN, FakeTelegram, flood  # noqa: E402

WAITS, WISH = 20, 2  # how often Telegram wants us to wait, and how many seconds
DEAD = 180  # seconds without an answer
LONG = "".join(
    f"## Part {n}\n\nSome **words** of part {n}: {'lorem ipsum ' * 14}\n\n```python\nprint({n})\n```\n\n"
    for n in range(250)
)


@contextmanager
def bot(script: Any) -> Iterator[FakeTelegram]:
    with home() as folder, ScriptedServer(script) as server:
        fake = FakeTelegram()
        text = f'[telegram]\ntoken = "{TOKEN}"\nallowed_users = [7]\nbase_url = "{fake.url}"\n'
        (folder / "config.toml").write_text(text)
        (folder / "config.toml").chmod(0o600)
        command = [sys.executable, str(ROOT / "agentmain.py"), "telegram", "--sandbox", "off"]
        env = environment(folder, server.url)
        run = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            fake.until(lambda: fake.calls("setmycommands"))
            yield fake
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(30)
            fake.close()


def telegram() -> list[Row]:
    return [*_long_answer(), *_dead_network()]


def _long_answer() -> list[Row]:
    with bot([Reply(text=LONG, chunk=200, pace=0.01)]) as fake:
        left, seen = [WAITS], [0]

        def faults(method: str, params: dict[str, Any]) -> Any:
            seen[0] += method in ("sendmessage", "editmessagetext")
            if left[0] and method in ("sendmessage", "editmessagetext") and seen[0] % 2 == 0:
                left[0] -= 1
                return flood(WISH)
            return None

        fake.faults.append(faults)
        began = time.monotonic()
        fake.message("long, please")
        fake.wait_text("print(249)", seconds=300)
        seconds = time.monotonic() - began
        time.sleep(1)
        arrived = re.sub(r"\s", "", "".join(fake.texts()))
        wanted = re.sub(r"\s", "", re.sub(r"```python\n|```|\*\*|## ", "", LONG))
        lost = 0 if arrived == wanted else max(1, abs(len(wanted) - len(arrived)))
    about = f"{len(LONG):,} characters, {WAITS - left[0]} waits of {WISH} s each"
    return [
        Row("telegram, long answer: characters lost, doubled or out of order", lost, "characters", 0, about),
        Row("telegram, long answer: until all of it is there", seconds, "s", None, about),
    ]


def _dead_network() -> list[Row]:
    with bot(lambda body, n: Reply(text="I am here.")) as fake:
        fake.hanging.set()
        time.sleep(DEAD - 10)
        fake.message("are you there?")
        time.sleep(10)
        fake.hanging.clear()
        began = time.monotonic()
        fake.wait_text("I am here.", seconds=300)
        return [
            Row(
                "telegram, first answer after a dead network",
                time.monotonic() - began,
                "s",
                60,
                f"no answer for {DEAD} s",
            )
        ]
