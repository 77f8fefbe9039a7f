"""The shipped memory: its first copy, and later versions of the files that nobody has changed since.

memory/.seeds.json says what was copied: {"language", "files": {name: {"copied": SHA-256 or "", "offered": SHA-256}}}. Where
`offered` is another one than `copied`, the file is the user's by now, and that version was left aside.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from .. import paths
from ..errors import ToolError
from ..prompts import language, say
from ..store import atomic, lock
from .layers import L0, L1, L2
from .records import SEEDS, Mask, Records, bytes_of


def ensure_seeds(mask: Mask = lambda value: value, told_to_user: bool = True) -> list[str]:
    """Copy what is missing, refresh what nobody changed, note what was changed around the writer.

    Returns lines for the user; about those changes only `told_to_user`, else the next one who is learns of them. A removed file stays away, unless the memory cannot do without it. Raises ToolError.
    """
    for folder in (paths.home(), paths.memory(), paths.temp()):
        atomic.clean_stale(folder)
    for folder in (paths.home() / "locks", paths.sessions()):
        lock.clean(folder)
    with Records(mask) as records:
        told = _update(records)
        untold = records.untold() if told_to_user else []
        changed = [say("memory_outside", file=name, number=number) for number, name in untold]
    return [*told, *changed]


def shipped(chosen: str | None = None) -> dict[str, str]:
    """Name → text of the seeds in a language."""
    folder = paths.shipped("memory", chosen or language())
    return {seed.name: seed.read_text(encoding="utf-8") for seed in sorted(folder.iterdir()) if seed.is_file()}


def _update(records: Records) -> list[str]:
    file = records.folder / SEEDS
    record, told, known = _read(file), list[str](), records.known()
    before, copied = json.dumps(record), record["files"]
    for name, text in shipped(record["language"]).items():
        now, seen, here = _hash(text), copied.get(name), known.get(name)
        if here is None and os.path.lexists(records.folder / name):
            continue  # something else of that name
        if here is None and seen and name not in (L0, L1, L2):
            continue  # somebody has removed it
        if here is None:
            records.add(name, text)
        elif here != text and seen and _hash(here) == seen["copied"]:
            records.put(name, text, by="update")
            told.append(say("seed_refreshed", file=name))
        elif here != text:
            if not seen or seen["offered"] != now:
                told.append(say("seed_left", file=name, shipped=paths.shipped("memory", record["language"], name)))
            copied[name] = {"copied": seen["copied"] if seen else "", "offered": now}
            continue
        copied[name] = {"copied": now, "offered": now}
    if json.dumps(record) != before:
        atomic.write_own(file, json.dumps(record, indent=1))
    return told


def _read(file: Path) -> dict[str, Any]:
    """The record; one that is missing or damaged begins anew, and then every file that differs is the user's."""
    anew: dict[str, Any] = {"language": language(), "files": {}}
    try:
        record = json.loads(atomic.read_own(file)) if file.exists() else anew
        if record["language"] not in ("en", "zh"):
            raise ValueError(f"no language {record['language']!r}")
        if not all({"copied", "offered"} <= seen.keys() for seen in record["files"].values()):
            raise ValueError("no hashes")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logging.getLogger("genericagent.memory").warning("%s is damaged and made anew: %s", file, error)
        return anew
    except OSError as error:
        raise ToolError(f"cannot read {file}: {error.strerror or error}") from error
    return dict(record)


def _hash(text: str) -> str:
    return hashlib.sha256(bytes_of(text)).hexdigest()
