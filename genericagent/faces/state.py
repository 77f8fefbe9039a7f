"""What a messenger's face must still know after kill -9: $GA_HOME/faces/NAME.json, replaced whole at every change.

    {"next": the first message that was not taken in yet, "owner": who paired, "chats": {chat: session},
     "waiting": [{"key", "data", "begun"}]}

A message is taken in before its messenger is told that it may forget it, and leaves when it was answered. So after a restart
what waited is worked on, and what had begun is told to its sender and not done again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import SessionError, ToolError
from ..store import atomic


@dataclass
class Waiting:
    """`key` is the messenger's number of the message, `data` the message as JSON."""

    key: int
    data: dict[str, Any]
    begun: bool = False


@dataclass
class State:
    """Raises SessionError when the file cannot be read or written: nothing is taken in that could be lost."""

    path: Path
    next: int = 0
    owner: int | None = None
    chats: dict[str, str] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        if not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_bytes())
            self.next, self.owner = int(found["next"]), found["owner"]
            self.chats = {str(chat): str(session) for chat, session in found["chats"].items()}
            self.waiting = [Waiting(int(one["key"]), dict(one["data"]), bool(one["begun"])) for one in found["waiting"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SessionError(
                f"{self.path} is damaged ({type(error).__name__}: {error}): move it away to begin anew"
            ) from None

    def take(self, key: int, data: dict[str, Any] | None) -> bool:
        """Take a message in; with None it is only counted. False: it was taken in before."""
        with self._lock:
            if key < self.next:
                return False
            waiting = self.waiting if data is None else [*self.waiting, Waiting(key, data)]
            self.set(next=key + 1, waiting=waiting)
            return True

    def skip(self, key: int) -> None:
        """A message that is nobody's business here: after a restart it may come once more, and is skipped again."""
        with self._lock:
            self.next = max(self.next, key + 1)

    def begin(self, keys: Iterable[int]) -> None:
        """They are worked on from now on."""
        self._replace(keys, lambda one: [replace(one, begun=True)])

    def done(self, keys: Iterable[int]) -> None:
        """They are answered, or were taken back."""
        self._replace(keys, lambda one: [])

    def belongs(self, chat: str, session: str) -> None:
        """The conversation of a chat; "" when a new one begins."""
        with self._lock:
            self.set(chats={**self.chats, chat: session})

    def set(self, **values: Any) -> None:
        """Change fields here and in the file, or, when that cannot be written, in neither."""
        with self._lock:
            before = {name: getattr(self, name) for name in values}
            if before == values:
                return
            try:
                self.__dict__.update(values)
                self._save()
            except BaseException:
                self.__dict__.update(before)
                raise

    def _replace(self, keys: Iterable[int], how: Callable[[Waiting], list[Waiting]]) -> None:
        wanted = set(keys)
        with self._lock:
            self.set(waiting=[new for one in self.waiting for new in (how(one) if one.key in wanted else [one])])

    def _save(self) -> None:
        fields = {
            "next": self.next,
            "owner": self.owner,
            "chats": self.chats,
            "waiting": [asdict(one) for one in self.waiting],
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace")
            atomic.write_bytes(self.path, data, mode=0o600)
        except (OSError, ToolError) as error:
            raise SessionError(f"cannot write {self.path}: {error}") from error
