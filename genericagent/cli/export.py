"""`/export` in the chat: the conversation, whole from its journal, as Markdown or a page in a file, or to the clipboard."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

from .. import paths
from ..abort import Abort
from ..errors import SessionError, ToolError, UsageError
from ..prompts import catalog
from ..safety.term import clean, one_line
from ..store import archive, atomic, journal, search
from ..tools.code_run import child_env
from .export_page import as_html
from .export_text import as_markdown, counted, turns_in
from .transcript import Transcript, transcript

TERMINAL = Path("/dev/tty")
OSC52_BYTES = 74_994  # of base64; xterm and those who follow it drop more
DOCUMENTS = ("pdf", "doc", "docx", "odt", "rtf", "epub")  # what the conversation cannot be saved as
OTHERS = (*DOCUMENTS, "json", "txt", "text", "markdown", "htm")  # words that are meant as a form, not as a file
WAIT = 5.0  # seconds for a clipboard program
PROGRAMS = (
    ("wl-copy",), ("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input"), ("pbcopy",), ("clip.exe",)
)  # fmt: skip


def export(
    agent: Any,
    wish: str = "",
    session: str = "",
    terminal: Path = TERMINAL,
    *,
    overwrite: bool = False,
    stop: Abort | None = None,
) -> str:
    """Export the agent's conversation, or a saved one (as journal.find names it); returns what was done, in one line.

    `wish` is `[md|html] [file]` or `clip [osc52]`; without a form the file's ending tells, else it is md. A file is
    relative to the agent's workspace and replaces none unless it may `overwrite`. Raises UsageError, SessionError, ToolError,
    and Aborted by `stop`.
    """
    texts = catalog("export")
    form, target = _parsed(wish, texts)
    told, damaged = _told(agent, session, texts)
    data = (as_html if form == "html" else as_markdown)(told, texts).encode()
    facts = {"turns": turns_in(told, texts), "size": counted(-(-len(data) // 1024))}
    if form == "clip":
        done = _copied(agent, data, bool(target), facts, terminal, texts, stop or Abort())
    else:
        slugs = (re.sub(r"[^\w.]+", "-", text)[:60].strip("-.") for text in (told.title, told.id, "session"))
        path = _place(agent.workspace, target, next(filter(None, slugs)), form, texts)
        path = _written(path, data, texts, overwrite and bool(target))
        done = texts["written"].format(path=one_line(str(path), 1000), **facts)
    return done + (texts["damaged"].format(n=damaged) if damaged else "")


def in_the_way(agent: Any, wish: str) -> Path | None:
    """The file that `wish` names, where there is one already; only that may be overwritten. Raises as export does."""
    texts = catalog("export")
    form, target = _parsed(wish, texts)
    if form == "clip" or not target:
        return None
    path = _place(agent.workspace, target, "", form, texts)
    return path if path.is_file() and not path.is_symlink() else None


def _parsed(wish: str, texts: Mapping[str, str]) -> tuple[str, str]:
    """(md, html or clip; what stands behind it)"""
    wish = re.sub(r"[\r\n\v\f]+", " ", wish)
    word, *rest = wish.split(maxsplit=1) or [""]
    if wish.strip().lower() in OTHERS or Path(wish.strip()).suffix.lower()[1:] in DOCUMENTS:
        raise UsageError(texts["usage"])
    if word.lower() not in ("md", "html", "clip"):
        return ("html" if wish.lower().endswith((".html", ".htm")) else "md"), wish.strip()
    target = rest[0].strip() if rest else ""
    if word.lower() == "clip" and target.lower() not in ("", "osc52"):
        raise UsageError(texts["usage"])
    return word.lower(), target


def _told(agent: Any, session: str, texts: Mapping[str, str]) -> tuple[Transcript, int]:
    """(the conversation, how many of its lines cannot be read). An archived one stays archived."""
    file = agent.session_file
    if session:
        file = journal.find(paths.sessions(), session, lambda: search.listing()[0])
    if file is None:
        raise SessionError(texts["nothing"])
    packed = file.name.endswith(archive.PACKED)
    loaded = journal.load(archive.content(file)) if packed else journal.read(file)
    redact = agent.redact
    told = transcript(loaded.records, lambda text: redact(clean(text)))
    if not told.items:
        raise SessionError(texts["nothing"])
    return told, loaded.damaged


# files


def _place(workspace: Path, target: str, name: str, form: str, texts: Mapping[str, str]) -> Path:
    try:
        path = workspace / paths.expand(target) if target else workspace / f"{name}.{form}"
        if not target:
            workspace.mkdir(parents=True, exist_ok=True)
        if path.is_dir() or target.endswith(("/", os.sep)):
            raise UsageError(texts["folder"].format(path=one_line(str(path), 300)))
        if not path.parent.is_dir():
            raise UsageError(texts["no_folder"].format(path=one_line(str(path.parent), 300)))
    except (OSError, ValueError, RuntimeError) as error:  # too long; ~nobody
        raise ToolError(texts["no_file"].format(path=one_line(target or name), why=_why(error))) from error
    return path if path.suffix else path.with_name(f"{path.name}.{form}")


def _written(path: Path, data: bytes, texts: Mapping[str, str], overwrite: bool) -> Path:
    """Write a new file of that name, or of one with a number if there is one, for the user's eyes only."""
    if overwrite:
        atomic.write_own(path, data)
        return path
    for n in count(1):
        free = path if n == 1 else path.with_stem(f"{path.stem}-{n}")
        if os.path.lexists(free):
            continue
        try:
            atomic.write_new(free, data, 0o600)
            return free
        except FileExistsError:
            continue  # just now
        except (OSError, ValueError) as error:  # a NUL in the name
            with contextlib.suppress(OSError, ValueError):  # half a file, or none
                free.unlink(missing_ok=True)
            raise ToolError(texts["no_file"].format(path=one_line(str(free), 300), why=_why(error))) from error
    raise AssertionError("there are no more numbers")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


# the clipboard


def _copied(
    agent: Any,
    data: bytes,
    by_terminal: bool,
    facts: dict[str, Any],
    terminal: Path,
    texts: Mapping[str, str],
    stop: Abort,
) -> str:
    if by_terminal:
        _to_terminal(data, terminal, texts)
        return texts["sent"].format(**facts)
    why = ""
    for program, *args in PROGRAMS:
        if found := shutil.which(program):
            given = data.decode().encode("utf-16") if program == "clip.exe" else data  # its code page has not all signs
            failed = _run([found, *args], given, child_env(os.environ, *agent.secrets()), stop)
            stop.check()
            if not failed:
                return texts["copied"].format(name=program, **facts)
            why = why or f"{program}: {failed}"
    raise ToolError(texts["clipboard_failed"].format(why=why) if why else texts["no_clipboard"])


def _run(command: list[str], data: bytes, env: dict[str, str], stop: Abort) -> str:
    """Give a program its input; "" or why it failed. What stays behind to serve the clipboard holds no pipe of ours."""
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, env=env, start_new_session=True
            )  # fmt: skip
        except OSError as error:
            return _why(error)
        with done:
            stop.on_set(done.kill)
            try:
                done.communicate(data, WAIT)
            except subprocess.TimeoutExpired:
                done.kill()
                return f"no end within {WAIT:.0f} s"
        said.seek(0)
        told = one_line(said.read(4096).decode("utf-8", "replace"), 200)
    return (told or f"exit code {done.returncode}") if done.returncode else ""


def _to_terminal(data: bytes, terminal: Path, texts: Mapping[str, str]) -> None:
    """Ask the terminal to copy (OSC 52, xterm's ctlseqs). Nobody knows whether it does."""
    text = base64.b64encode(data)
    if len(text) > OSC52_BYTES:
        most = counted(OSC52_BYTES * 3 // 4096)
        raise ToolError(texts["too_long"].format(size=counted(-(-len(data) // 1024)), most=most))
    try:
        with terminal.open("wb", buffering=0) as file:
            file.write(b"\x1b]52;c;" + text + b"\x07")
    except OSError as error:
        raise ToolError(texts["no_terminal"].format(why=_why(error))) from error
