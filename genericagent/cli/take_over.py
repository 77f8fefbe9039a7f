"""`ga import PATH`: mykey.py and memory/ of an existing checkout. Nothing of yours is overwritten."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import paths
from ..errors import UsageError
from ..memory.layers import L4
from ..memory.records import KEPT, Records, text_of
from ..safety.keylike import key_in
from ..safety.term import one_line
from ..store import atomic
from .memory import redactor

KEYS = ("mykey.py", "mykey.json")
TAKEN = "taken"


def run_import(argv: Sequence[str]) -> int:
    """The subcommand; its exit code is 1 when something was left out. Raises UsageError, ToolError."""
    if len(argv) != 1 or argv[0].startswith("-"):
        raise UsageError("usage: ga import PATH (the folder of an existing checkout, with memory/ or mykey.py)")
    source = Path(argv[0]).expanduser()
    memory = source / "memory"
    if not source.is_dir() or not (memory.is_dir() or any((source / name).is_file() for name in KEYS)):
        raise UsageError(f"{source} is no checkout: it has neither memory/ nor mykey.py")
    if paths.home() in (source.resolve(), *source.resolve().parents):
        raise UsageError(f"{source} lies in {paths.home()} itself")
    paths.ensure_home()
    told = [_copy(source / name, paths.home() / name) for name in KEYS]
    with Records(redactor().json) as records:
        told += [_take(records, memory / name, name) for name in _files(memory)]
    left = [line for line in told if line not in (TAKEN, "")]
    sys.stdout.writelines(f"{one_line(line, 400)}\n" for line in left)
    sys.stdout.write(f"{told.count(TAKEN)} files taken over{', see above for the others' if left else ''}\n")
    return int(bool(left))


def _take(records: Records, old: Path, name: str) -> str:
    """One file of the memory; what is to be said of it."""
    new = records.folder / name
    text = None if old.is_symlink() or old.stat().st_size > KEPT else text_of(old.read_bytes())
    if text is None or name.startswith(L4) or os.path.lexists(new):
        said = _copy(old, new)
        records.learn(name)
        return said
    records.put(name, text, evidence=[{"import": str(old)}], by="import")
    if found := key_in(text):
        sys.stdout.write(
            f"{one_line(str(new), 300)}: holds what looks like a key ({found}); what the agent reads goes to the model\n"
        )
    return TAKEN


def _copy(old: Path, new: Path) -> str:
    """Copy a file, for the user's eyes only. TAKEN, "" when there is nothing to do, or why it was not."""
    if old.is_symlink():
        return f"{old}: a link, left out"
    if not old.is_file():
        return ""
    if os.path.lexists(new):
        same = new.is_file() and new.read_bytes() == old.read_bytes()
        return "" if same else f"{new}: yours is kept, {old} differs (move yours away and import again to take it)"
    new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write_bytes(new, old.read_bytes(), mode=0o600)
    return TAKEN


def _files(memory: Path) -> Iterator[str]:
    """Everything below the other memory, archive included, but for hidden and compiled files."""
    for top, folders, names in os.walk(memory):
        folders[:] = sorted(f for f in folders if f != "__pycache__" and not f.startswith("."))
        yield from (Path(top, n).relative_to(memory).as_posix() for n in sorted(names) if not n.startswith("."))
