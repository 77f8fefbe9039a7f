"""What files held before tools changed them, so that the user can go back: small copies below $GA_HOME/undo, each named
by the digest of its content, which is checked before it is used. Which copy belongs to what stands in the journal.

Not kept: secrets, what is larger than LARGEST, links and what is no ordinary file. Copies go after a week or two, or when
there are too many. They aren't synced: one that a power cut damaged is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import paths
from ..errors import GAError, ToolError
from ..safety.policy import Action, Rules, ruled_out
from ..safety.redact import SHORTEST
from ..store import atomic
from ..store.restored import Change
from .files import editing

if TYPE_CHECKING:
    from ..safety.guard import Guard

LARGEST = 512 << 10  # bytes of a file that is kept
KEPT, KEPT_BYTES = 14 * 86400, 64 << 20  # seconds, bytes of all copies together
Why = Literal[
    "", "same", "lost", "other"
]  # it can be brought back; it is as it was; there is no copy; somebody changed it
Secret = Callable[[Path, bytes], bool]  # of a real path and what it holds: no copy may be made of it or brought back


def secrecy(guard: Guard, keys: Iterable[str]) -> Secret:
    """What the policy calls secret: by zone and name, by a rule that denies reading it, by a known key that is in it."""
    known = [key.encode("utf-8", "surrogatepass") for key in keys if len(key) >= SHORTEST]
    denied = Rules(deny=guard.rules.deny)

    def secret(path: Path, data: bytes) -> bool:
        unread = ruled_out(Action("file_read", "read", (str(path),)), denied)
        return guard.zones.secret(path) or unread or any(key in data for key in known)

    return secret


def _folder() -> Path:
    return paths.home() / "undo"


def _digest(data: bytes | None) -> str | None:
    """ "" for no file, None for one that is too large."""
    if data is None:
        return ""
    return hashlib.blake2b(data, digest_size=20).hexdigest() if len(data) <= LARGEST else None


def content(path: Path) -> bytes | None:
    """At most one byte more than LARGEST; None: there is no file. Raises OSError, also for a link and a device."""
    try:
        with open(path, "rb", opener=atomic.no_link) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(f"{path} is no ordinary file")
            return file.read(LARGEST + 1)
    except FileNotFoundError:
        return None


def change(path: Path, new: bytes | None, secret: Secret, made: int = 0) -> dict[str, Any]:
    """The journal's record of a change that is about to be made to the file at a real path, what it holds now being kept.
    `new`: its bytes then, None: it goes; `made`: folders above it that are new with it. Never fails: what cannot be kept is
    recorded as that."""
    before = None
    with contextlib.suppress(OSError, ToolError):  # a full disk must not stop the work
        old = content(path)
        if not (old and secret(path, old)):
            digest = _digest(old)
            _keep(digest, old)
            before = digest
    return {
        "type": "change",
        "path": str(path),
        "before": before,
        "after": _digest(new),
        **({"made": made} if made else {}),
    }


def _keep(digest: str | None, data: bytes | None) -> None:
    if not digest or data is None:
        return
    copy = _folder() / digest
    if _copy(digest) == data:
        os.utime(copy)  # it is needed longer
        return
    copy.parent.mkdir(mode=0o700, exist_ok=True)
    temp = copy.with_suffix(f".{os.urandom(4).hex()}")
    with atomic.open_own(temp) as file:
        file.write(data)
    temp.replace(copy)


def _copy(digest: str) -> bytes | None:
    with contextlib.suppress(OSError):
        data = atomic.read_own(_folder() / digest)
        return data if _digest(data) == digest else None
    return None


def look(change: Change, secret: Secret) -> Why:
    """Whether the file can be brought back to what it held before."""
    path = Path(change.path)
    try:
        now = _digest(content(path))
    except OSError:
        return "other"
    if change.before is not None and now == change.before:
        return "same"
    old = _copy(change.before) if change.before else b""
    if change.before is None or change.after is None or old is None or (change.before and secret(path, old)):
        return "lost"
    return "other" if change.mixed or now != change.after or os.path.realpath(path) != str(path) else ""


def bring_back(
    changes: Iterable[Change], record: Callable[[dict[str, Any]], None], secret: Secret, made: Iterable[Path] = ()
) -> list[str]:
    """Give the files what they held before, `record` getting a record of each; what somebody else has changed meanwhile
    stays, and what is secret now. `made`: folders that go after that, those that are empty then. Returns a line for each
    file that could not be written."""
    faults = []
    for one in changes:
        path = Path(one.path)
        try:
            with editing(path):
                if look(one, secret):
                    continue
                old = _copy(one.before) if one.before else None
                record(change(path, old, secret))
                if old is None:
                    path.unlink()
                else:
                    atomic.write_bytes(path, old)
        except (OSError, GAError) as error:
            faults.append(f"{path}: {error}")
    for folder in sorted(made, key=lambda folder: -len(folder.parts)):
        with contextlib.suppress(OSError):  # it holds something, or is gone
            folder.rmdir()
    return faults


def clean(now: float) -> None:
    """Remove the copies that are too old, then the oldest until the others are few enough. Never fails."""
    with contextlib.suppress(OSError):
        files = [(file.stat(), Path(file)) for file in os.scandir(_folder())]
        room = KEPT_BYTES
        for info, file in sorted(files, key=lambda pair: pair[0].st_mtime, reverse=True):
            room -= info.st_size
            if room < 0 or now - info.st_mtime > KEPT:
                file.unlink(missing_ok=True)
