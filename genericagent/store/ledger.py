"""What was spent on which day, by all processes of this home: append-only lines, one file a day.

    {"at": seconds, "pid", "reserve": token, "amount": dollars}      counted ahead of a call
    {"at", "pid", "settle": token or null, "cost": dollars or null, "input", "output", "cache_read", "cache_write"}

Who adds a line holds the file's lock for it, who counts ahead against a cap that of the folder. Half a line that a full
disk left is ended by the next one.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import SessionError
from . import lines
from .lock import FileLock

FORGOTTEN = 3600  # seconds after which a reservation that was never settled counts no more


@dataclass
class Day:
    """The sums of one day. `unpriced` calls had no known price and are not in `cost`, dollars."""

    cost: float = 0.0
    requests: int = 0
    unpriced: int = 0
    tokens: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, tuple[float, float, int]] = field(default_factory=dict)  # token → dollars, when, pid


class Ledger:
    """`folder` holds the day files. Raises SessionError when it cannot be written: no spending without a record."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._name, self._offset, self._day = "", 0, Day()

    def today(self) -> Day:
        """The sums so far, what other processes have added included."""
        name = time.strftime("%Y-%m-%d", time.localtime(self._clock()))
        if name != self._name:
            self._name, self._offset, self._day = name, 0, Day()
        try:
            with os.fdopen(lines.opened(self._file(), os.O_RDONLY), "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self._day
        except OSError as error:
            raise SessionError(f"cannot read {self._file()}: {error.strerror or error}") from error
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._count(line)
        return self._day

    def reserve(self, amount: float, cap: float) -> str | None:
        """Count `amount` dollars ahead; a token for settle(), or None when that would cross `cap` for the day."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self._folder / ".lock"):
                if self.committed() + amount > cap:
                    return None
                token = os.urandom(6).hex()
                self._append({"reserve": token, "amount": amount})
        except OSError as error:
            raise SessionError(f"cannot write below {self._folder}: {error.strerror or error}") from error
        return token

    def committed(self) -> float:
        """Dollars spent today and counted ahead by calls that still run."""
        day, now = self.today(), self._clock()
        running = (a for a, at, pid in day.reserved.values() if now - at < FORGOTTEN and _lives(pid))
        return day.cost + sum(running)

    def settle(self, token: str | None, cost: float | None, tokens: Mapping[str, int]) -> None:
        """What a call did cost; its reservation is void."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError(f"cannot write below {self._folder}: {error.strerror or error}") from error
        self._append({"settle": token, "cost": cost, **tokens})

    def _append(self, record: dict[str, Any]) -> None:
        self.today()  # the right file, also past midnight
        try:
            lines.append(self._file(), {"at": round(self._clock(), 3), "pid": os.getpid(), **record})
        except OSError as error:
            raise SessionError(f"cannot write {self._file()}: {error.strerror or error}") from error

    def _file(self) -> Path:
        return self._folder / f"{self._name}.jsonl"

    def _count(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            at, pid = float(record["at"]), int(record["pid"])
            if "reserve" in record:
                self._day.reserved[str(record["reserve"])] = (float(record["amount"]), at, pid)
                return
            cost = record["cost"]
            counts = {k: int(record[k]) for k in ("input", "output", "cache_read", "cache_write")}
            if not math.isfinite(float(cost or 0.0)):
                return
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return  # half a line that a crash left: the next one is whole again
        day = self._day
        day.reserved.pop(str(record.get("settle")), None)
        day.requests += any(counts.values())  # a call that failed before anything came is none
        day.cost += float(cost or 0.0)
        day.unpriced += cost is None
        for key, count in counts.items():
            day.tokens[key] = day.tokens.get(key, 0) + count


def _lives(pid: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
