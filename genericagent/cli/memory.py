"""`ga memory log|show|revert|inbox|accept|drop|check`, and `/memory` in the chat: what the agent has stored, and why."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .. import paths
from ..errors import ConfigError, ToolError, UsageError
from ..prompts import say
from ..safety.redact import Redactor
from ..safety.term import clean, one_line
from .cells import fitted

USAGE = "memory log [N] | show N | revert N | inbox [N] | accept N | drop N|all | check"
SHOWN = 20  # changes


def run_memory(argv: Sequence[str], begin: str = "") -> tuple[str, int]:
    """(text, exit code) of the words behind `ga memory` or `/memory`. `begin`: what stands before "memory", else how this
    program is called. Raises UsageError, ToolError."""
    word, *rest = argv or ["log"]
    usage = f"{begin or f'{paths.this_program()} '}{USAGE}"
    if word in ("-h", "--help"):
        return usage, 0
    every, wants = [word, *rest] == ["drop", "all"], word in ("show", "revert", "accept", "drop")
    if len(rest) > 1 or wants > len(rest) or (rest and not every and not (rest[0].isdecimal() and len(rest[0]) < 10)):
        raise UsageError(f"usage: {usage}")
    number, note = int(rest[0]) if rest and not every else SHOWN, "" if word == "revert" else _look()
    if word == "log":
        return note + _log(number), 0
    if word == "show":
        return note + _show(number), 0
    if word == "revert":
        from ..memory.writer import revert

        return say("memory_reverted", number=number, file=one_line(revert(number, redactor()))), 0
    if word == "inbox":
        return note + (_proposal(number) if rest else _inbox()), 0
    if word == "accept":
        from ..memory.inbox import accept

        return note + say("memory_accepted", number=number, file=one_line(accept(number, redactor()))), 0
    if word == "drop":
        from ..memory.inbox import drop

        return note + say("memory_dropped", count=drop(None if every else number)), 0
    if word == "check" and not rest:
        from ..memory.check import check

        faults = [_wrapped(one_line(fault, 300)) for fault in check()]
        return note + ("\n".join(faults) or say("memory_well")), int(bool(faults))
    raise UsageError(f"usage: {usage}")


def redactor() -> Redactor:
    """What masks the configured keys. Without a readable configuration none is known."""
    from llmcore import load_config

    try:
        return Redactor(load_config().hidden())
    except ConfigError:
        return Redactor(())


def _look() -> str:
    """Note what was changed around the writer since the last time; a line to show where that cannot be done."""
    from .. import paths
    from ..memory.records import Records

    try:
        if paths.memory().is_dir():
            with Records(redactor().json):
                pass
    except ToolError as error:
        return f"{one_line(str(error), 300)}\n"
    return ""


def _wrapped(line: str) -> str:
    return fitted(line, sys.stdout, " " * 6)


def _log(most: int) -> str:
    from ..memory.records import changed_lines, entries

    lines = []
    for number, entry in list(entries().items())[-most:]:
        counts = "/".join(f"{sign}{len(changed_lines(entry['diff'], sign))}" for sign in "+-")
        when, by, file, why = (
            one_line(str(t), 100) for t in (entry.get("time"), entry["by"], entry["file"], _why(entry))
        )
        lines.append(_wrapped(f"{number:>4}  {when[:16].replace('T', ' ')}  {by:<7}  {file}  {counts}  {why}"))
    return "\n".join(lines) or say("memory_no_log")


def _why(entry: dict[str, Any]) -> str:
    """What the change rests on, in a few words."""
    grounds = [_ground(item) for item in entry.get("evidence") or ()]
    return "".join([*grounds[:1], f"  !{entry['tainted']}" if entry.get("tainted") else ""])


def _ground(item: dict[str, Any]) -> str:
    if "tool" in item:
        text = f"{item['tool']} in turn {item.get('turn')}: {item.get('what')}"
    else:
        text = ", ".join(k if v is True else f"{k}: {v}" for k, v in item.items() if k != "doubt")
    return text + ("  !says the opposite?" if "doubt" in item else "")


def _show(number: int) -> str:
    from ..memory.records import entries

    entry = entries().get(number)
    if entry is None:
        raise ToolError(say("memory_no_entry", number=number))
    facts = [f"{k}: {v}" for k, v in entry.items() if k not in ("diff", "evidence") and v is not None]
    ground = [f"evidence: {_ground(item)}" for item in entry.get("evidence") or ()]
    return clean("\n".join([*(_wrapped(one_line(fact, 400)) for fact in [*facts, *ground]), "", entry["diff"]]))


def _inbox() -> str:
    """What tasks wanted to store where nobody could be asked, and that was not accepted yet."""
    from ..memory.inbox import pending

    listed = [
        f"{number:>4}  {str(one.get('time'))[:16].replace('T', ' ')}  {one_line(one['file'], 60)}  "
        + one_line(str(one.get("new_content") or one.get("content") or ""), 80)
        + f"  !{one_line(str(one.get('tainted')), 60)}" * bool(one.get("tainted"))
        for number, one in list(pending().items())[-SHOWN:]
    ]
    return "\n".join([*listed, say("memory_inbox_how")]) if listed else say("memory_inbox_empty")


def _proposal(number: int) -> str:
    from ..memory.inbox import pending

    if (one := pending().get(number)) is None:
        raise ToolError(say("memory_no_proposal", number=number))
    signs = {"old_content": "-", "new_content": "+", "content": "+"}
    head = [
        f"{key}: {one_line(str(value), 200)}" for key, value in one.items() if key not in signs and value is not None
    ]
    lines = [f"{sign}{line}" for key, sign in signs.items() for line in clean(str(one.get(key) or "")).splitlines()]
    return "\n".join([*head, *lines])
