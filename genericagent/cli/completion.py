"""What can be completed in the input: `@` and a file of the workspace, `/` and a command, a command's argument.

Listing the files never holds up typing: a thread does it, and what it has found in time is what is offered.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ..safety.term import one_line
from ..store.lines import opened
from .commands import COMMANDS

MOST_FILES, PATIENCE = 20_000, 0.3  # files that are listed, seconds that takes at most
LOOKS = 64  # folders between two looks at the clock
MOST_IGNORED = 1 << 18  # bytes of .gitignore
FRESH = 3.0  # seconds a list is good for
OFFERED = 50
UNLISTED = frozenset((".git", "node_modules", "__pycache__", ".venv", "venv", "dist", "build", "target", ".cache"))
FILE = re.compile(r'(?:(?<=\s)|^)@(?:"(?P<quoted>[^"\n]*)"?|(?P<bare>[^\s"]*))$')  # at the end of what is typed


class Offer(NamedTuple):
    text: str  # what is put in
    over: int  # characters before the cursor that it replaces
    about: str = ""


def offers(before: str, agent: Any, texts: dict[str, str], files: Callable[[Path], list[str]]) -> Iterator[Offer]:
    """What could follow, best first; `before` is the text up to the cursor."""
    if found := FILE.search(before.rpartition("\n")[2]):
        names = rank((found["quoted"] or found["bare"] or "").removeprefix("./"), files(agent.workspace))
        yield from (Offer(f"@{quoted(name)}", len(found[0])) for name in names)
    elif not before.startswith("/") or "\n" in before:
        return
    elif " " not in before:
        for word in rank(before[1:], dict.fromkeys(entry.name for entry in COMMANDS.values())):
            entry = COMMANDS[word]
            about = texts.get(f"help_{entry.name}") or entry.function.__doc__ or ""
            yield Offer(f"/{word}", len(before), f"{entry.usage}  {about}".strip())
    else:
        word, _, typed = before.partition(" ")
        known = dict(_arguments(word[1:], agent))
        yield from (Offer(value, len(typed), known[value]) for value in rank(typed, known))


def only(before: str, names: Callable[[], list[str]]) -> Offer | None:
    """The whole of a file's name that is half typed; None where none or several begin so, or a file or folder is called so."""
    found = FILE.search(before.rpartition("\n")[2])
    typed = (found["quoted"] or found["bare"] or "").removeprefix("./") if found else ""
    if not found or not typed:
        return None
    low, listed = typed.lower(), names()
    fit = [name for name in listed if low in (name[: len(low)].lower(), name.rpartition("/")[2][: len(low)].lower())]
    whole = any(name == typed or name.startswith(f"{typed}/") for name in listed)
    return Offer(f"@{quoted(fit[0])}", len(found[0])) if len(fit) == 1 and not whole else None


def _arguments(word: str, agent: Any) -> Iterator[tuple[str, str]]:
    if word == "llm":
        yield from ((one_line(str(name)), str(number)) for number, name, _ in agent.list_llms())
    elif word == "resume":
        yield from ((id, one_line(title, 60)) for id, _, title in agent.list_sessions())


def expected(before: str) -> bool:
    """Whether there may be something to offer after this text."""
    return bool(FILE.search(before.rpartition("\n")[2])) or (before.startswith("/") and "\n" not in before)


def quoted(name: str) -> str:
    return f'"{name}"' if re.search(r"\s", name) else name


def rank(typed: str, names: Iterable[str], most: int = OFFERED) -> list[str]:
    """The names that hold the letters of `typed` in this order, best first: those whose last part begins with it, then has
    it, then the rest of the path, then with as little as possible between the letters; shorter before longer. Without a letter, as they come."""
    if not typed:
        return list(islice(names, most))
    wanted, scored = typed.lower(), list[tuple[int, int, str]]()
    for name in names:
        low = name.lower()
        base = low.rpartition("/")[2]
        if wanted in low:
            worth = 0 if base.startswith(wanted) else 1 if wanted in base else 2
        elif not (worth := _span(wanted, base) or _span(wanted, low)):
            continue
        scored.append((worth, len(name), name))
    return [name for *_, name in heapq.nsmallest(most, scored)]


def _span(wanted: str, text: str) -> int:
    """How far the letters are apart, more than 2; 0 when they are not all there."""
    first = at = text.find(wanted[:1])
    for letter in wanted[1:]:
        if at < 0:
            break
        at = text.find(letter, at + 1)
    return 0 if at < 0 else at - first + 3


class Files:
    """The names of the files below a folder, as many as a thread finds in PATIENCE seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._folder: Path | None = None
        self._names: list[str] = []
        self._done, self._since = threading.Event(), 0.0

    def __call__(self, folder: Path) -> list[str]:
        with self._lock:
            old = self._done.is_set() and self._clock() - self._since > FRESH
            if folder != self._folder or old:
                self._folder, self._names, self._done = folder, [], threading.Event()
                self._since = self._clock()
                work = (folder, self._names, self._done, self._since + PATIENCE)
                threading.Thread(target=self._list, args=work, name="files", daemon=True).start()
            names, done = self._names, self._done
        done.wait(PATIENCE)
        return list(names)

    def _list(self, folder: Path, names: list[str], done: threading.Event, until: float) -> None:
        for name in islice(walk(folder, lambda: self._clock() > until), MOST_FILES):
            names.append(name)
            if self._clock() > until:
                break
        done.set()


def walk(root: Path, over: Callable[[], bool] = lambda: False) -> Iterator[str]:
    """Files below `root`, upper ones first, without UNLISTED folders and what the .gitignore there lists, until it is `over`."""
    hidden, todo, seen = _gitignore(root), deque([""]), 0
    while todo and not (seen % LOOKS == LOOKS - 1 and over()):
        seen += 1
        inside = todo.popleft()
        try:
            with os.scandir(root / inside) as found:
                entries = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in islice(found, MOST_FILES))
        except OSError:
            continue  # not for us, or gone meanwhile: it is not offered
        for name, folder in entries:
            if not name.isprintable() or '"' in name or hidden(inside + name, folder):
                continue
            if not folder:
                yield inside + name
            elif name not in UNLISTED:
                todo.append(f"{inside}{name}/")


def _gitignore(root: Path) -> Callable[[str, bool], bool]:
    """gitignore(5), but only the file in the root, `*` also goes over a slash, and `!` always wins."""
    try:
        with os.fdopen(opened(root / ".gitignore", os.O_RDONLY), "rb") as file:
            lines = file.read(MOST_IGNORED).decode("utf-8", "replace").splitlines()[:1000]
    except OSError:
        lines = []
    kinds: dict[str, list[str]] = {"all": [], "folders": [], "kept": []}
    for line in filter(None, map(str.strip, lines)):
        body = line.removeprefix("!").removeprefix("**/")
        name = body.strip("/")
        if name and not line.startswith("#"):
            kind = "kept" if line.startswith("!") else "folders" if body.endswith("/") else "all"
            anywhere = "" if "/" in body.rstrip("/") else "(?:.*/)?"
            kinds[kind].append(anywhere + fnmatch.translate(name))
    everything, folders, kept = (re.compile("|".join(parts) or "(?!)") for parts in kinds.values())

    def hidden(name: str, folder: bool) -> bool:
        return bool(everything.match(name) or (folder and folders.match(name))) and not kept.match(name)

    return hidden
