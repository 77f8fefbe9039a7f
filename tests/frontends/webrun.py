"""The real `ga web` on a free port, and a client that says exactly what it is told to."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
T = TypeVar("T")


def until(found: Callable[[], T], seconds: float = 30) -> T:
    """What `found` gives as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.03)
    return value


class WebRun:
    def __init__(self, home: Path, server: Any, options: Sequence[str] = ()) -> None:
        self.home, self.server, self.port, self.token = home, server, 0, ""
        self._options = options
        self.temp, self._errors = home / "temp", home.parent / "errors.txt"
        self._runs: list[subprocess.Popen[bytes]] = []
        self.temp.mkdir()
        (home / "config.toml").write_text("[web]\nport = 0\n")
        (home / "config.toml").chmod(0o600)

    def start(self) -> WebRun:
        env = {**os.environ, "ANTHROPIC_BASE_URL": self.server.url, "ANTHROPIC_API_KEY": "key-for-test"}
        command = [sys.executable, str(ROOT / "agentmain.py"), "web", "--sandbox", "off", *self._options]
        with self._errors.open("wb") as errors:
            run = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
        self._runs.append(run)
        found = until(lambda: re.search(r":(\d+)/#token=(\S+)", self.said()) or run.poll() is not None)
        assert isinstance(found, re.Match), self.said()
        self.port, self.token = int(found[1]), found[2]
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/#token={self.token}"

    def said(self) -> str:
        return self._errors.read_text()

    def end(self, how: int = signal.SIGTERM) -> int:
        self._runs[-1].send_signal(how)
        return self._runs[-1].wait(30)

    def close(self) -> None:
        for run in self._runs:
            if run.poll() is None:
                self.end()

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """(status, headers with small letters, body); with the token unless `headers` say otherwise ("" leaves one out)."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Authorization": f"Bearer {self.token}", **(headers or {})}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None and "Content-Length" not in sent:
                sent["Content-Length"] = str(len(body))
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            known = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, known, answer.readline() if "event-stream" in str(known) else answer.read()
        finally:
            connection.close()

    def send(self, text: str = "", files: Mapping[str, bytes] | None = None, path: str = "/send", **fields: str) -> int:
        status, _, _ = self.ask(path, "POST", *form({"text": text, **fields}, files or {}))
        return status

    def messages(self) -> list[dict[str, Any]]:
        """What a page that is opened now shows."""
        status, _, body = self.ask("/events")
        assert status == 200
        found: list[dict[str, Any]] = json.loads(body.removeprefix(b"data: "))["all"]
        return found

    def texts(self) -> list[str]:
        return [unescape(re.sub("<[^>]*>", "", m.get("html", ""))) for m in self.messages()]

    def wait_text(self, text: str) -> str:
        return until(lambda: next((one for one in self.texts() if text in one), ""))


def form(fields: Mapping[str, str], files: Mapping[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """(body, headers) of a form as browsers send it. RFC 7578."""
    mark = uuid.uuid4().hex
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in fields.items()
    ]
    for name, data in files.items():
        about = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        parts.append(f"{about}Content-Type: application/octet-stream\r\n\r\n".encode() + data + b"\r\n")
    return b"".join([*parts, f"--{mark}--\r\n".encode()]), {"Content-Type": f"multipart/form-data; boundary={mark}"}
