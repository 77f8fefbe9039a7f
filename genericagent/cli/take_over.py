"""`ga import PATH`: mykey.py and memory/ of an existing checkout. Nothing of yours is overwritten."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .. import paths
from ..errors import ToolError, UsageError
from ..memory.layers import L0, L4
from ..memory.records import Records, text_of
from ..safety.keylike import key_in
from ..safety.term import one_line
from ..store import atomic
from .memory import redactor

KEYS = ("mykey.py", "mykey.json")
LARGEST = 64 << 20  # bytes of a file that is taken
TAKEN, SAME, DIFFERENT, LEFT, FAILED = "taken", "the same", "different", "left out", "failed"
ORDER = (
    "From here on the models in mykey.py or mykey.json are used, and not the keys in the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY),"
    " unless config.toml or --config names models: those come first.\n"
)


def run_import(argv: Sequence[str]) -> int:
    """The subcommand: says of each file what became of it. Its exit code is 1 when something could not be done.
    Raises UsageError, ToolError."""
    from .args import Parser, named

    about = "Take over mykey.py and memory/ of an existing checkout. Nothing of yours is overwritten."
    parser = Parser(prog=f"{paths.this_program()} import", description=about, allow_abbrev=False)
    parser.add_argument("path", type=named, metavar="PATH", help="the folder of the checkout, with memory/ or mykey.py")
    source = paths.expand(parser.parse_args(argv).path)
    memory = source / "memory"
    if not source.is_dir() or not (memory.is_dir() or any((source / name).is_file() for name in KEYS)):
        raise UsageError(f"{source} is no checkout: it has neither memory/ nor mykey.py")
    if paths.home() in (source.resolve(), *source.resolve().parents):
        raise UsageError(f"{source} lies in {paths.home()} itself")
    paths.ensure_home()
    told = _Told(source)
    for name in KEYS:
        if os.path.lexists(source / name):
            told(source / name, *_take(source / name, paths.home(), name))
    if told.count[TAKEN]:
        sys.stdout.write(ORDER)
    with Records(redactor().json) as records:
        for path in _files(memory, told):
            name = path.relative_to(memory).as_posix()
            if name == L0:
                told(path, LEFT, "the rules of the memory come with this program")
            else:
                told(path, *_take(path, records.folder, name, records))
    sys.stdout.write(", ".join(f"{told.count[what]} {what}" for what in (TAKEN, SAME, DIFFERENT, LEFT, FAILED)) + "\n")
    return int(bool(told.count[FAILED]))


class _Told:
    """Tells what became of a file, at once, and counts."""

    def __init__(self, source: Path) -> None:
        self.source, self.count = source, Counter[str]()

    def __call__(self, path: Path, what: str, why: str = "") -> None:
        self.count[what] += 1
        line = f"{path.relative_to(self.source)}{why and ': '}{why}"
        sys.stdout.write(f"{what:9}  {one_line(line, 400)}\n")


def _take(old: Path, folder: Path, name: str, records: Records | None = None) -> tuple[str, str]:
    """Copy a file, for the user's eyes only, into that folder: (what became of it, why)."""
    new = folder / name
    try:
        info = old.lstat()
        if not stat.S_ISREG(info.st_mode):
            return LEFT, "a link" if stat.S_ISLNK(info.st_mode) else "no ordinary file"
        if info.st_size > LARGEST:
            return LEFT, f"larger than {LARGEST >> 20} MB; copy it yourself if it is needed"
        data = old.read_bytes()
        if os.path.lexists(new):
            if new.is_file() and new.stat().st_size == len(data) and new.read_bytes() == data:
                return SAME, ""
            return DIFFERENT, f"yours is kept (move {new} away and import again to take this one)"
        if new.parent.resolve() != (folder.resolve() / name).parent:
            return FAILED, f"{new.parent} leads out of {folder}"
        text = None if records is None or name.startswith(L4) else text_of(data)
        if records and text is not None:
            records.put(name, text, evidence=[{"import": str(old)}], by="import")
            found = key_in(text)
            return TAKEN, f"holds what looks like a key ({found}); what the agent reads goes to the model" * bool(found)
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write_bytes(new, data, mode=0o600)
        if records:
            records.learn(name)
        return TAKEN, ""
    except (OSError, ToolError) as error:
        return FAILED, getattr(error, "strerror", None) or str(error)


def _files(memory: Path, told: _Told) -> Iterator[Path]:
    """Every file below the other memory, archive included; tells what is not looked at."""

    def failed(error: OSError) -> None:
        told(Path(error.filename), FAILED, str(error.strerror))

    for top, folders, names in os.walk(memory, onerror=failed) if os.path.lexists(memory) else ():
        for name in [*sorted(folders), *sorted(names)]:
            path, is_folder = Path(top, name), name in folders
            if name.startswith(".") or name == "__pycache__":
                told(path, LEFT, "hidden" if name.startswith(".") else "compiled")
                folders[:] = [other for other in folders if other != name]
            elif not is_folder:
                yield path
            elif path.is_symlink():
                told(path, LEFT, "a link")
        folders.sort()
