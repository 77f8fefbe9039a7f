"""The one way into the memory for the agent: what it may store, and on what ground. Every change goes into the journal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ToolError
from ..llm.usage import estimate
from ..prompts import say
from ..safety.keylike import key_in
from ..safety.redact import MARK as MASK
from ..safety.redact import Redactor
from .evidence import Evidence
from .layers import INSIGHT_LINES, INSIGHT_TOKENS, L0, L1
from .records import NOT_OURS, Records, changed_lines, difference, entries, lines_of, text_of

_VOLATILE = re.compile(
    r"\bpids?\b\W{0,3}\d+|\bprocess(?: id)?\W{1,2}\d{3,}|进程号?\W{0,2}\d{3,}|(?<![\w.~])/tmp/\S+|/var/folders/\S+"
    r"|(?<![\w/.-])(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|\d{8}-\d{6}-[0-9a-f]{6}|1[6-9]\d{8}(?:\d{3})?)(?![\w/-]|\.\w)"
    r"|\bsession(?:[ _-]?id)?\W{1,2}(?=\w*\d)\w{6,}|会话号?\W{0,2}(?=\w*\d)\w{6,}"
    r"|\b(?:today|yesterday|tomorrow|currently|right now|at the moment)\b|今天|昨天|明天|目前|现在|刚才",
    re.I,
)


@dataclass(frozen=True)
class About:
    """Who writes: the conversation, its turn, what it has seen, where text from outside came from ("" for nowhere), and
    the folder it works in."""

    session: str = ""
    turn: int = 0
    tainted: str = ""
    evidence: Evidence = field(default_factory=Evidence)
    redact: Redactor = field(default_factory=lambda: Redactor(()))
    workspace: Path = field(default_factory=Path.cwd)


def write(
    path: Path,
    about: About,
    change: Callable[..., dict[str, Any]],
    *,
    whole: bool,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """Let a file tool change the memory file at the real `path`: `change` calls its argument `check` with the new bytes, right
    before it writes them. `whole`: it replaces what is there, which only a new or empty file allows.

    Returns the tool's result, with a warning in `msg` where something volatile is stored, the user has said the opposite, a
    helper hides a module of the workspace, or the journal has to wait. Raises ToolError, and then nothing has changed.
    """
    with Records(about.redact.json, clock) as records:
        name = name_of(path, records.folder)
        warnings = list[str]()

        def check(data: bytes) -> None:
            old, new, known = _present(records, name), text_of(data), records.known()
            if new is None or old is None and os.path.lexists(records.folder / name):
                raise ToolError(say("memory_text_only", file=name))
            if whole and old:
                raise ToolError(say("memory_patch_only", file=name))
            diff = difference(name, old, new)
            added, removed = changed_lines(diff, "+"), changed_lines(diff, "-")
            check_content(name, old, new, added, about.redact)
            ground, lacks = about.evidence.of(name, added, removed, known)
            if not ground:
                raise ToolError(say("memory_no_evidence", what=", ".join(lacks[:20]) or "-"))
            if volatile := [found[0] for found in map(_VOLATILE.search, added) if found]:
                warnings.append(say("memory_volatile", what=", ".join(volatile[:5])))
            if doubt := next((one.get("told") or one["what"] for one in ground if "doubt" in one), None):
                warnings.append(say("memory_doubt", what=doubt))
            module = about.workspace / name.split("/")[0].removesuffix(".py")
            if old is None and name.endswith(".py") and (module.is_dir() or module.with_suffix(".py").is_file()):
                warnings.append(say("memory_hides", file=name, module=module))
            records.intend(
                name, new, session=about.session or None, turn=about.turn, evidence=ground, tainted=about.tainted or None, by="tool"
            )  # fmt: skip

        result = change(check=check)
    if records.waiting:
        warnings.append(say("memory_waiting", why=records.waiting))
    return {**result, "msg": " ".join([result.get("msg", ""), *warnings])} if warnings else result


def name_of(path: Path, folder: Path) -> str:
    """The file's name in the memory. Raises ToolError for what the writer leaves alone."""
    name = path.relative_to(folder.resolve())
    if name.as_posix() == L0:
        raise ToolError(say("memory_fixed", file=L0))
    if any(part.startswith(".") or part in NOT_OURS for part in name.parts):
        raise ToolError(say("memory_not_yours", file=name))
    if name.suffix == ".py" and name.parts[0].removesuffix(".py") in sys.stdlib_module_names:
        raise ToolError(say("memory_shadows", file=name))
    return name.as_posix()


def _present(records: Records, name: str) -> str | None:
    path = records.folder / name
    return text_of(path.read_bytes()) if path.is_file() else None


def check_content(name: str, old: str | None, new: str, added: list[str], redact: Redactor) -> None:
    text = "\n".join(added)
    if redact.pattern(text):
        raise ToolError(say("memory_key"))
    if found := key_in(text):
        raise ToolError(say("memory_keylike", what=found))
    if name == L1:
        sizes = [(len(text.splitlines()), estimate(text)) for text in ((old or "").strip(), new.strip())]
        over = [
            (was, now) for was, now, most in zip(*sizes, (INSIGHT_LINES, INSIGHT_TOKENS), strict=True) if now > most
        ]
        if over and (any(now > was for was, now in over) or all(now == was for was, now in over)):
            raise ToolError(
                say("memory_l1_full", lines=sizes[1][0], tokens=sizes[1][1], most=f"{INSIGHT_LINES} / {INSIGHT_TOKENS}")
            )


def revert(number: int, redact: Redactor | None = None, clock: Callable[[], float] = time.time) -> str:
    """Take back a change by the inverse of its diff; returns the file's name. Raises ToolError: for a conflict, for what is
    taken back already, for a change that nobody can have looked at yet."""
    listed = entries()
    with Records((redact or Redactor(())).json, clock) as records:
        entry = entries(records.folder).get(number)
        if entry is None or number not in listed:
            raise ToolError(say("memory_no_entry" if entry is None else "memory_unseen", number=number))
        if by := _taken_back(listed).get(number):
            raise ToolError(say("memory_twice", number=number, by=by))
        name = str(entry["file"])
        if not entry["diff"] or MASK in entry["diff"]:
            raise ToolError(say("memory_no_diff", number=number))
        now = _present(records, name)
        try:
            before = inverse(now or "", str(entry["diff"]))
        except ValueError as error:
            raise ToolError(say("memory_conflict", number=number, file=name, what=error)) from None
        records.put(name, before if before or entry["before"] else None, evidence=[{"revert": number}], by="revert")
    return name


def _taken_back(listed: Mapping[int, dict[str, Any]]) -> dict[int, int]:
    """Change → the one that has taken it back, where that one stands."""
    found = dict[int, int]()
    for number, entry in sorted(listed.items(), reverse=True):
        if entry["by"] == "revert" and number not in found:
            found |= {g["revert"]: number for g in entry.get("evidence") or () if isinstance(g, dict) and "revert" in g}
    return found


def inverse(text: str, diff: str) -> str:
    """`text` with what a diff has done undone: each piece must stand there exactly once, with as many of the lines around
    it as are still there. Raises ValueError with the first line of a piece that doesn't."""
    lines = lines_of(text)
    for hunk in _hunks(diff):
        signs = "".join(sign for sign, _ in hunk)
        lead, tail = (len(s) - len(s.lstrip(" ")) for s in (signs, signs[::-1]))
        for around in range(max(lead, tail), -1, -1):
            piece = hunk[max(0, lead - around) : len(hunk) - max(0, tail - around)]
            old, new = ([line for sign, line in piece if sign != skip] for skip in "+-")
            at = [i for i in range(len(lines) - len(new) + 1) if lines[i : i + len(new)] == new]
            if len(at) == 1 and (new or not lines):
                break
        else:
            raise ValueError(next((line.strip() for sign, line in hunk if sign != " "), "@@"))
        lines[at[0] : at[0] + len(new)] = old
    return "".join(lines)


def _hunks(diff: str) -> list[list[tuple[str, str]]]:
    """The pieces of a unified diff, as (sign, line with its end). Raises ValueError with a line that belongs in none."""
    hunks = list[list[tuple[str, str]]]()
    for line in lines_of(diff)[2:] or [""]:
        if line.startswith("@@"):
            hunks.append([])
        elif not hunks or not (line[0] in " +-" or line[0] == "\\" and hunks[-1]):
            raise ValueError(line.strip())
        elif line[0] == "\\":
            sign, text = hunks[-1].pop()
            hunks[-1].append((sign, text[:-1]))
        else:
            hunks[-1].append((line[0], line[1:]))
    return hunks
