"""What a task wanted to store where it may not without being asked, and nobody was there: kept until the user decides."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import paths
from ..errors import ToolError
from ..prompts import say
from ..safety.redact import MARK as MASK
from ..safety.redact import Redactor
from ..store import lines
from .records import Records, bytes_of, changed_lines, difference, is_name, text_of

if TYPE_CHECKING:
    from .writer import About

MOST, LONGEST = 50, 8_000  # proposals that wait; characters of one
_TEXTS = ("old_content", "new_content", "content")


def _file() -> Path:
    return paths.logs() / "memory_proposals.jsonl"


def propose(path: Path, args: Mapping[str, Any], about: About, clock: Callable[[], float] = time.time) -> bool:
    """Keep a call of file_patch or file_write on the memory file at the real `path`; the same one is kept once. False: it is
    too long, too many wait, or it is no text as it stands (a key's mask, a reference to lines of a file). Raises ToolError for
    what may not be stored or does not fit, OSError."""
    from .writer import name_of

    change = {key: args[key] for key in _TEXTS if isinstance(args.get(key), str)}
    text, waiting = "\n".join(change.values()), pending().values()
    if not change or len(text) > LONGEST or MASK in text or "{{file:" in text:
        return False
    name = name_of(path, paths.memory())
    _applied(paths.memory(), name, change, about.redact)
    if any(one["file"] == name and {key: one[key] for key in _TEXTS if key in one} == change for one in waiting):
        return True
    if len(waiting) >= MOST:
        return False
    when = datetime.fromtimestamp(clock()).astimezone().isoformat(timespec="seconds")
    record = {
        "time": when, "session": about.session or None, "turn": about.turn, "tainted": about.tainted or None,
        "file": name, **change,
    }  # fmt: skip
    _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines.append(_file(), about.redact.json(record))
    return True


def pending() -> dict[int, dict[str, Any]]:
    """Number → proposal of those that nobody has decided on. Raises ToolError when the file can't be read."""
    try:
        records = lines.read(_file())
    except OSError as error:
        raise ToolError(f"cannot read {_file()}: {error.strerror or error}") from error
    decided = {n for one in records for key in ("accepted", "dropped") if type(n := one.get(key)) is int}
    return {n: one for n, one in enumerate(records, 1) if n not in decided and _sound(one)}


def _sound(record: Mapping[str, Any]) -> bool:
    texts = {key: record[key] for key in _TEXTS if key in record}
    try:
        for text in (record["file"], *texts.values()):
            bytes_of(text)
    except (KeyError, AttributeError, UnicodeEncodeError):  # no text, or none that a file can hold
        return False
    return is_name(record["file"]) and bool(texts) and isinstance(record.get("tainted"), str | None)


def waits() -> str:
    """A line that says how many proposals wait, or that their file can't be read; "" when there are none."""
    try:
        return say("memory_waits", count=len(found)) if (found := pending()) else ""
    except ToolError as error:
        return str(error)


def accept(number: int, redact: Redactor, clock: Callable[[], float] = time.time) -> str:
    """Store a proposal, by the user's word; returns the file's name. Raises ToolError, and then nothing has changed."""
    from .writer import name_of

    proposal = _waiting(number)
    with Records(redact.json, clock) as records:
        name = name_of(records.folder.resolve() / proposal["file"], records.folder)
        new = _applied(records.folder, name, proposal, redact)
        records.put(
            name, new, session=proposal.get("session"), turn=proposal.get("turn"), evidence=[{"accepted": number}],
            tainted=proposal.get("tainted"), by="user",
        )  # fmt: skip
    _decide(number, "accepted")
    return name


def drop(number: int | None) -> int:
    """Discard a proposal, or all; returns how many. Raises ToolError."""
    numbers = list(pending()) if number is None else [number]
    for one in numbers:
        _waiting(one)
        _decide(one, "dropped")
    return len(numbers)


def _waiting(number: int) -> dict[str, Any]:
    if (proposal := pending().get(number)) is None:
        raise ToolError(say("memory_no_proposal", number=number))
    return proposal


def _decide(number: int, how: str) -> None:
    try:
        lines.append(_file(), {how: number})
    except OSError as error:
        raise ToolError(f"cannot write {_file()}: {error.strerror or error}") from error


def _applied(folder: Path, name: str, proposal: Mapping[str, Any], redact: Redactor) -> str:
    """The file's text with the proposal in it. Raises ToolError when it does not fit, or may not be stored."""
    from .writer import check_content

    path = folder / name
    try:
        old = text_of(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from error
    before, after = proposal.get("old_content") or "", proposal.get("new_content") or ""
    if (new := proposal.get("content")) is not None:
        if old or (old is None and os.path.lexists(path)):
            raise ToolError(say("memory_patch_only", file=name))
    elif before and (old or "").count(before) == 1:
        new = (old or "").replace(before, after)
    else:
        raise ToolError(say("memory_proposal_stale", file=name))
    check_content(name, old, new, changed_lines(difference(name, old, new), "+"), redact)
    return str(new)
