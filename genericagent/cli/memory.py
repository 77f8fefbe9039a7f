"""`ga memory log|show|revert|check`, and `/memory` in the chat: what the agent has stored, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, ToolError, UsageError
from ..prompts import say
from ..safety.redact import Redactor
from ..safety.term import clean, one_line

USAGE = "ga memory log [N] | show N | revert N | check"
SHOWN = 20  # changes


def run_memory(argv: Sequence[str]) -> tuple[str, int]:
    """(text, exit code) of the words behind `ga memory` or `/memory`. Raises UsageError, ToolError."""
    word, *rest = argv or ["log"]
    if word in ("-h", "--help"):
        return USAGE, 0
    if len(rest) > 1 or (rest and not rest[0].isdecimal()) or (word in ("show", "revert")) > len(rest):
        raise UsageError(f"usage: {USAGE}")
    number = int(rest[0]) if rest else SHOWN
    if word == "log":
        return _log(number), 0
    if word == "show":
        return _show(number), 0
    if word == "revert":
        from ..memory.writer import revert

        return say("memory_reverted", number=number, file=one_line(revert(number, redactor()))), 0
    if word == "check" and not rest:
        from ..memory.check import check

        faults = [one_line(fault, 300) for fault in check()]
        return "\n".join(faults) or say("memory_well"), int(bool(faults))
    raise UsageError(f"usage: {USAGE}")


def redactor() -> Redactor:
    """What masks the configured keys. Without a readable configuration none is known."""
    from llmcore import load_config

    try:
        return Redactor(load_config().hidden())
    except ConfigError:
        return Redactor(())


def _log(most: int) -> str:
    from ..memory.records import changed_lines, entries

    lines = []
    for number, entry in list(entries().items())[-most:]:
        counts = "/".join(f"{sign}{len(changed_lines(entry['diff'], sign))}" for sign in "+-")
        when, by, file, why = (
            one_line(str(t), 100) for t in (entry.get("time"), entry["by"], entry["file"], _why(entry))
        )
        lines.append(f"{number:>4}  {when[:16].replace('T', ' ')}  {by:<7}  {file}  {counts}  {why}")
    return "\n".join(lines) or say("memory_no_log")


def _why(entry: dict[str, Any]) -> str:
    """What the change rests on, in a few words."""
    ground = (entry.get("evidence") or [{}])[0]
    source = (
        f"told: {ground['told']}" if "told" in ground else " ".join(str(v) for k, v in ground.items() if k != "digest")
    )
    return source + (f"  !{entry['tainted']}" if entry.get("tainted") else "")


def _show(number: int) -> str:
    from ..memory.records import entries

    entry = entries().get(number)
    if entry is None:
        raise ToolError(say("memory_no_entry", number=number))
    facts = [f"{key}: {value}" for key, value in entry.items() if key not in ("diff", "evidence")]
    ground = [f"evidence: {item}" for item in entry.get("evidence") or []]
    return clean("\n".join([*facts, *ground, "", entry["diff"]]))
