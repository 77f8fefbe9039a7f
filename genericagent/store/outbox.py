"""Messages that wait for the face that owns their origin: one file each, moved to done/ by who delivers it.

    $GA_HOME/outbox/ID.json        {"id", "origin", "title", "text", "created", "failures": [{"at", "why"}]}
    $GA_HOME/outbox/done/ID.json   acknowledged

An origin is "terminal", or a face and its chat, as in "telegram:42".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import SessionError, ToolError
from . import atomic
from .lock import FileLock

Message = dict[str, Any]


class Outbox:
    """`folder` is $GA_HOME/outbox. Raises SessionError when it cannot be written."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock

    def put(self, id: str, origin: str, title: str, text: str) -> bool:
        """Keep a message until it is acknowledged. False: there has been one of that id, and nothing is changed."""
        if not re.fullmatch(r"[\w.@-]{1,150}", id) or id.startswith("."):
            raise SessionError(f"{id!r} is no id of a message")
        with self._locked():
            if any((place / f"{id}.json").exists() for place in (self.folder, self.folder / "done")):
                return False
            fields = {"id": id, "origin": origin, "title": title, "text": text}
            self._write({**fields, "created": round(self._clock(), 3), "failures": []})
        return True

    def pending(self, origin: str | None = None) -> list[Message]:
        """What is not acknowledged yet, of one origin or of all, oldest first. A damaged file is left where it is."""
        found = (self._read(path) for path in self.folder.glob("*.json"))
        return sorted((m for m in found if m and origin in (None, m["origin"])), key=lambda m: (m["created"], m["id"]))

    def ack(self, id: str) -> bool:
        """It is delivered. Of several that say so, one gets True: who has to be sure asks before it shows anything."""
        with self._locked():
            path = self.folder / f"{id}.json"
            if not path.is_file():
                return False
            (self.folder / "done").mkdir(mode=0o700, exist_ok=True)
            path.replace(self.folder / "done" / path.name)
            return True

    def fail(self, id: str, why: str) -> None:
        """It could not be delivered: it stays, with the reason, and is shown at the terminal."""
        with self._locked():
            if message := self._read(self.folder / f"{id}.json"):
                failures = [*message["failures"], {"at": round(self._clock(), 3), "why": why}]
                self._write({**message, "failures": failures[-20:]})

    def _locked(self) -> FileLock:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError(f"cannot create {self.folder}: {error.strerror or error}") from error
        return FileLock(self.folder / ".lock")

    def _write(self, message: Message) -> None:
        data = json.dumps(message, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")
        try:
            atomic.write_bytes(self.folder / f"{message['id']}.json", data, mode=0o600)
        except ToolError as error:
            raise SessionError(str(error)) from error

    def _read(self, path: Path) -> Message | None:
        try:
            message: dict[str, Any] = json.loads(path.read_bytes() if path.is_file() else b"{}")
            created, failures = float(message["created"]), message.get("failures") or []
            whole = 0 <= created < 1e11 and all(isinstance(one, dict) for one in failures)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if not whole:
            return None
        texts = {key: str(message.get(key, "")) for key in ("origin", "title", "text")}
        return {"id": path.stem, **texts, "created": created, "failures": list(failures)}
