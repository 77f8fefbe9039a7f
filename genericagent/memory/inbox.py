"""What a task wanted to store where it may not without being asked, and nobody was there: kept until the user decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from .. import paths
from ..errors import ToolError
from ..prompts import say
from ..safety.redact import Redactor
from ..store import lines
from .records import Records, changed_lines, difference, text_of
from .writer import About, check_content, name_of

MOST, LONGEST = 50, 8_000  # proposals that wait; characters of one


def _file() -> Path:
    return paths.logs() / "memory_proposals.jsonl"


def propose(path: Path, args: Mapping[str, Any], about: About, clock: Callable[[], float] = time.time) -> bool:
    """Keep a call of file_patch or file_write on the memory file at the real `path`. False: it is too long, or too many wait."""
    change = {key: args[key] for key in ("old_content", "new_content", "content") if isinstance(args.get(key), str)}
    if sum(map(len, change.values())) > LONGEST or len(pending()) >= MOST:
        return False
    when = datetime.fromtimestamp(clock()).astimezone().isoformat(timespec="seconds")
    record = {
        "time": when, "session": about.session or None, "turn": about.turn, "tainted": about.tainted or None,
        "file": name_of(path, paths.memory()), **change,
    }  # fmt: skip
    _file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines.append(_file(), about.redact.json(record))
    return True


def pending() -> dict[int, dict[str, Any]]:
    """Number → proposal of those that were not accepted yet. Raises ToolError when the file can't be read."""
    try:
        records = lines.read(_file())
    except OSError as error:
        raise ToolError(f"cannot read {_file()}: {error.strerror or error}") from error
    accepted = {record.get("accepted") for record in records}
    return {n: one for n, one in enumerate(records, 1) if isinstance(one.get("file"), str) and n not in accepted}


def accept(number: int, redact: Redactor, clock: Callable[[], float] = time.time) -> str:
    """Store a proposal, by the user's word; returns the file's name. Raises ToolError, and then nothing has changed."""
    proposal = pending().get(number)
    if proposal is None:
        raise ToolError(say("memory_no_proposal", number=number))
    with Records(redact.json, clock) as records:
        name = name_of(records.folder.resolve() / proposal["file"], records.folder)
        path = records.folder / name
        old = text_of(path.read_bytes()) if path.is_file() else None
        new: str = _applied(old, proposal, name)
        check_content(name, old, new, changed_lines(difference(name, old, new), "+"), redact)
        records.put(
            name, new, session=proposal.get("session"), turn=proposal.get("turn"), evidence=[{"accepted": number}],
            tainted=proposal.get("tainted"), by="user",
        )  # fmt: skip
    lines.append(_file(), {"accepted": number})
    return name


def _applied(old: str | None, proposal: Mapping[str, Any], name: str) -> str:
    """The file's text with the proposal in it. Raises ToolError when it no longer fits."""
    if (content := proposal.get("content")) is not None:
        if old:
            raise ToolError(say("memory_patch_only", file=name))
        return str(content)
    before, after = str(proposal.get("old_content") or ""), str(proposal.get("new_content") or "")
    if not before or (old or "").count(before) != 1:
        raise ToolError(say("memory_proposal_stale", file=name))
    return (old or "").replace(before, after)
