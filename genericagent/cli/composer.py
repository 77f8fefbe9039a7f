"""What a person types with: long pastes and pictures as marks in the text, `@file`, `!command`, the keys of the input.

    Composer  what was typed → what is sent; knows no terminal library
    Shell     the user's own commands, whose output goes to the model with the next message
    Typing    prompt_toolkit: keys, completion, history

A mark stands for its paste or picture as long as it is whole. It stays in the text until that is sent, so the echo, what
waits in the queue and what a key brings back all show the mark.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .. import paths
from ..abort import Abort
from ..errors import ToolError
from ..safety.term import clean, one_line
from ..store import atomic
from ..tools.images import image_block, is_image, media_type
from .completion import Files, expected, offers, only, quoted
from .log import in_one_line
from .render import Piece, ToolOutput

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings

    from .chat import Chat

PASTED_LINES, PASTED_CHARS = 10, 1000  # a longer paste is shown as a mark
LONG_INPUT = 20_000  # characters in the input from which keys become slow
RECALLED = 20_000  # characters of a message that the history keeps whole; a longer one keeps its marks
DROPPED = 8000  # characters of a paste that may be paths
SECONDS = 600  # that a `!command` may run
LIMIT = 10_000  # characters of its output that go to the model
SHOWN = 12  # lines of it on the screen; /verbose shows all
MENU_ROWS = 8
_WORD = re.compile(r"""'[^']*'|"[^"]*"|(?:\\.|[^\s\\'"])+""")
_FILE = r'(?:(?<=\s)|^)@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"]+))'
_CLIPBOARD = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
    ("osascript", "-e", "the clipboard as «class PNGf»"),
)


def is_order(text: str) -> bool:
    """Whether the chat or the agent would do something at once with it."""
    from .commands import parse

    return text.lstrip().startswith(("!", "/session.")) or parse(text) is not None


class Composer:
    """The marks of this chat and what they stand for. `texts` are those of the chat, `folder` gives the workspace."""

    def __init__(self, texts: dict[str, str], folder: Callable[[], Path]) -> None:
        self._texts, self._folder = texts, folder
        self._pastes: dict[str, str] = {}
        self._images: dict[str, Path] = {}
        marks = (re.sub(r"\\{\w+\\}", r"\\d+", re.escape(texts[key])) for key in ("pasted", "image"))
        self._mark = re.compile("|".join(marks))
        self._special = re.compile(f"{self._mark.pattern}|{_FILE}", re.M)

    # what goes in

    def pasted(self, raw: str, tell: Callable[[str], None]) -> str:
        """What a paste puts into the input; `tell` gets what is wrong with a picture, which then stays a path."""
        text = clean(raw)
        if files := dropped(text):
            written = [self._attached(word, path, tell) for word, path in files]
            if any(map(self._images.get, written)):
                return " ".join(written)
        lines = text.rstrip("\n").count("\n") + 1
        # what looks like a mark is no mark when it was pasted: as a paste of its own it isn't looked into; neither is a command
        short = lines <= PASTED_LINES and len(text) <= PASTED_CHARS
        if short and not self._mark.search(text) and not is_order(text):
            return text
        return self._as_mark(text, lines)

    def marked(self, text: str) -> str:
        """A text that goes back into the input: a long one as a mark, since each key would take its time with it."""
        return text if len(text) <= LONG_INPUT else self._as_mark(text, text.count("\n") + 1)

    def _as_mark(self, text: str, lines: int) -> str:
        mark = self._texts["pasted"].format(n=len(self._pastes) + 1, lines=lines)
        self._pastes[mark] = text
        return mark

    def attach(self, path: Path) -> str:
        """The mark of a picture. Raises ToolError where it could not be sent."""
        image_block(path)
        mark = self._texts["image"].format(n=len(self._images) + 1)
        self._images[mark] = path
        return mark

    def _attached(self, word: str, path: Path, tell: Callable[[str], None]) -> str:
        try:
            return self.attach(path) if is_image(path) else word
        except ToolError as error:
            tell(str(error))
            return word

    def mark_before(self, text: str) -> str:
        """The mark that `text` ends with, or ""."""
        return next((mark for mark in (*self._pastes, *self._images) if text.endswith(mark)), "")

    # what comes out

    def message(self, text: str) -> tuple[str, list[Path]]:
        """(what the model reads, the pictures that go with it)."""
        images: list[Path] = []
        whole = self._whole(text, "{mark} ({path})".format, images)
        return whole, list(dict.fromkeys(images))

    def command(self, text: str) -> str:
        """The same for a shell, or a command of the chat: a picture is its path."""
        return self._whole(text, lambda mark, path: shlex.quote(str(path)))

    def kept(self, text: str) -> str:
        """What a later chat, which knows no marks of this one, can send again."""
        whole = self._whole(text, lambda mark, path: f"@{quoted(str(path))}")
        return whole if len(whole) <= RECALLED else text

    def _whole(self, text: str, picture: Callable[..., str], images: list[Path] | None = None) -> str:
        """The text with what its marks stand for, looked at once: what comes in by that is no mark. Fills `images`."""

        def put(match: re.Match[str]) -> str:
            mark, name = match[0], match["quoted"] or match["bare"]
            if path := self._images.get(mark):
                if images is not None:
                    images.append(path)
                return picture(mark=mark, path=path)
            if name and images is not None:
                forms = map(self._path, (name, name.rstrip(".,;:!?)，。；：！？）")))
                images.extend([path for path in forms if is_image(path)][:1])
            return self._pastes.get(mark, mark)

        return self._special.sub(put, text)

    def _path(self, name: str) -> Path:
        return self._folder() / paths.expand(name)


def dropped(text: str) -> list[tuple[str, Path]]:
    """(as written, path) of each file when `text` is nothing but absolute paths of files: as terminals write what is
    dropped on them (quoted, with backslashes, as an address), one or several. Empty for anything else."""
    found: list[tuple[str, Path]] = []
    for line in map(str.strip, text.strip().split("\n") if len(text) <= DROPPED else ()):
        for word in [line] if _file(line) else _WORD.findall(line) or [line]:
            path = _file(word)
            if path is None:
                return []
            found.append((word, path))
    return found


def _file(word: str) -> Path | None:
    if word[:1] in "'\"" and word[:1] == word[-1:]:
        word = word[1:-1]
    address = word.startswith("file://")
    forms = [unquote(urlsplit(word).path)] if address else [word, re.sub(r"\\(.)", r"\1", word)]
    for form in forms:
        with contextlib.suppress(OSError, ValueError):  # no name of a file
            path = paths.expand(form)
            if path.is_absolute() and path.is_file():
                return path
    return None


def clipboard_image(texts: dict[str, str]) -> Path:
    """The picture in the clipboard as a file of its own. Raises ToolError when there is none, and OSError."""
    there = [command for command in _CLIPBOARD if shutil.which(command[0])]
    for command in there:
        try:
            data = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=3
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            logging.getLogger(__name__).info("%s does not answer: %s", command[0], error)
            continue
        if coded := re.match(rb"[^\w]{,4}data PNGf([0-9A-F]+)", data):
            data = bytes.fromhex(coded[1].decode())  # as AppleScript writes it
        if kind := media_type(data[:16]):
            path = paths.temp() / "_images" / f"clipboard-{os.urandom(4).hex()}.{kind.partition('/')[2]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_new(path, data, 0o600)
            return path
    raise ToolError(texts["clipboard_no_image" if there else "clipboard_nothing_reads"])


class Shell:
    """Runs what the user typed behind a `!`, and commands of the chat that take their time, each in a thread of its own."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._said: list[list[tuple[str, str]]] = []  # what each command adds
        self.running: dict[threading.Thread, tuple[str, Abort]] = {}

    def run(self, command: str) -> None:
        if command := command.strip():
            self.beside(f"!{command}", lambda stop: self._run(command, stop))

    def beside(self, name: str, work: Callable[[Abort], list[Piece]]) -> None:
        """Do what Ctrl-C stops; `work` returns what is to be shown at its end."""
        stop = Abort()
        thread = threading.Thread(target=self._work, args=(name, work, stop), name="beside", daemon=True)
        self.running[thread] = one_line(self._chat.agent.redact(name), 41), stop
        thread.start()

    def stop(self) -> list[str]:
        """End what runs; the names of that. A command of the chat is not waited for: not all it waits for can be woken."""
        stopped = list[str]()
        for thread, (name, stop) in list(self.running.items()):
            if not name.startswith("/") or self.running.pop(thread, None) is not None:
                stopped.append(name)
            stop.set()
        return stopped

    def status(self) -> str:
        names = ", ".join(name for name, _ in list(self.running.values()))
        return self._chat.texts["shell_running"].format(what=names) if names else ""

    def taken(self) -> list[tuple[str, str]]:
        """What the next message carries, as (where from, text), see put_task."""
        said, self._said = self._said, []
        kept, size = list[list[tuple[str, str]]](), 0
        for parts in reversed(said):
            size += sum(len(text) for _, text in parts)
            if size > 3 * LIMIT:
                kept.append([("", self._chat.texts["shell_left_out"].format(n=len(said) - len(kept)))])
                break
            kept.append(parts)
        return [part for parts in reversed(kept) for part in parts]

    def _work(self, name: str, work: Callable[[Abort], list[Piece]], stop: Abort) -> None:
        try:
            ending = work(stop)
        except Exception as error:
            ending = [Piece("error", in_one_line(error, f"run {name}"))]
        # first: from what is shown next on, Ctrl-C means something else
        if not self.running.pop(threading.current_thread(), None):
            return  # it was stopped, and that was told
        with contextlib.suppress(OSError):  # the terminal may be gone
            self._chat.show(ending)
            self._chat.face.refresh()

    def _run(self, command: str, stop: Abort) -> list[Piece]:
        """Show and remember what it prints; returns what is to be shown at its end."""
        from ..safety.guard import Containment, zones_of
        from ..tools.code_run import code_run

        chat, agent = self._chat, self._chat.agent
        folder, kind = Path(agent.workspace), "powershell" if os.name == "nt" else "bash"
        folder.mkdir(parents=True, exist_ok=True)
        # Nobody is asked and no sandbox holds it, but where the output comes from is judged as for the model's own calls.
        guard = replace(agent.guard, zones=zones_of(folder), containment=Containment())
        ruling, since = guard.rule("code_run", {"script": command, "type": kind}, folder), guard.clock()
        output = ToolOutput(
            Piece("tool", f"!{one_line(agent.redact(command), 60)}"), 10**9 if chat.view.verbose else SHOWN
        )
        output.feed("`````\n")  # all of it is output
        mask = agent.redact.stream()
        run = code_run(
            _for_shell(command), kind, SECONDS, folder, stop=stop, limit=LIMIT, spool_dir=paths.outputs(), redact=agent.redact
        )  # fmt: skip
        while True:
            try:
                if pieces := output.feed(clean(mask.feed(next(run)))):
                    chat.show(pieces)
            except StopIteration as end:
                result: dict[str, Any] = end.value
                break
        ok, code, note = result["status"] == "success", result["exit_code"], str(result.get("note", ""))
        exited = "" if code is None else chat.texts["shell_exit"].format(code=code)
        how = ", ".join(filter(None, [exited, note]))
        head = agent.redact(chat.texts["shell_told"].format(command=command, folder=folder, how=how))
        text = agent.redact(result["stdout"])
        source = guard.source_of_output(ruling, command, folder, since)
        self._said.append([("", head), (source, text)] if source else [("", f"{head}\n{text}".rstrip())])
        last = output.feed(clean(mask.flush())) + output.finish()
        return [
            *last,
            *chat.view.preview(output),
            Piece("ok" if ok else "fail", output.line.text, "" if ok else exited),
            *([Piece("dim", one_line(note, 300))] if note else []),
            Piece("dim", chat.texts["shell_joins"]),
        ]


def _for_shell(command: str) -> str:
    """The command for the runner, which calls bash: handed on where the user's shell is another one."""
    shell = os.environ.get("SHELL", "")
    if os.name == "nt" or Path(shell).name in ("", "bash", "sh") or not shutil.which(shell):
        return command
    return f"exec {shlex.quote(shell)} -c {shlex.quote(command)}"


class Typing:
    """The input line's keys, completion and history."""

    def __init__(self, chat: Chat) -> None:
        self._chat, self._composer, self._files = chat, chat.composer, Files()
        self._stash = ""
        self.session: Any = None

    def options(self) -> dict[str, Any]:
        """Arguments of a PromptSession."""
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.filters import Condition

        chat, files = self._chat, self._files

        class Completing(Completer):
            def get_completions(self, document: Any, complete_event: Any) -> Iterator[Completion]:
                try:
                    for text, over, about in offers(document.text_before_cursor, chat.agent, chat.texts, files):
                        yield Completion(text, -over, display_meta=about)
                except Exception:  # a fault here costs the menu, not the input
                    logging.getLogger(__name__).exception("cannot complete")

        def wanted() -> bool:
            return expected(self.session.default_buffer.document.text_before_cursor)

        return {
            "completer": Completing(), "complete_in_thread": True, "complete_while_typing": Condition(wanted),
            "history": history(lambda text: getattr(chat.agent, "redact", str)(self._composer.kept(text))),
            "tempfile_suffix": ".md", "reserve_space_for_menu": 0,
        }  # fmt: skip

    def attach(self, session: Any) -> None:
        """The PromptSession that was made with these options and keys."""
        self.session = session
        session.default_buffer.on_completions_changed += self._make_room

    def _make_room(self, buffer: Any) -> None:
        """As many rows as the menu needs, and none where there is no menu: they would push up what is on the screen."""
        offered = len(buffer.complete_state.completions) if buffer.complete_state else 0
        drawn = self.session.layout.current_window.render_info  # a long line takes several rows
        rows = (drawn.cursor_position.y if drawn else 0) + 1 + min(offered, MENU_ROWS)
        self.session.reserve_space_for_menu = min(rows, self.session.output.get_size().rows // 2) if offered else 0

    def enter(self, buffer: Any) -> None:
        """Send what is typed; a file that is marked in the menu, or the only one that begins so, is only taken."""
        marked = buffer.complete_state and buffer.complete_state.current_completion
        if marked and marked.text.startswith("@"):
            buffer.complete_state = None
            return
        around, folder = buffer.document, self._chat.agent.workspace
        half = not around.current_char.strip() and only(around.text_before_cursor, lambda: self._files(folder))
        if half:
            buffer.delete_before_cursor(half.over)
            buffer.insert_text(half.text)
            return
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
        buffer.reset()
        self.session.reserve_space_for_menu = 0
        self._chat.submit(text)
        if text.strip() and self._stash:
            self._swap(buffer)

    def _swap(self, buffer: Any) -> None:
        buffer.text, self._stash = self._stash, buffer.text
        buffer.cursor_position = len(buffer.text)

    def _tell(self, text: str) -> None:
        self._chat.error("plain", text=one_line(text, 500))

    def bind(self, keys: KeyBindings, here: Any) -> None:
        """Our keys; `here` is the filter for them: the input has the focus."""
        from prompt_toolkit.filters import Condition, has_selection
        from prompt_toolkit.keys import Keys

        def mark() -> str:
            return self._composer.mark_before(self.session.default_buffer.document.text_before_cursor)

        @keys.add(Keys.BracketedPaste, filter=here)
        def _paste(event: Any) -> None:
            event.current_buffer.insert_text(self._composer.pasted(event.data, self._tell))

        @keys.add("c-v", filter=here)
        def _picture(event: Any) -> None:
            try:
                mark = self._composer.attach(clipboard_image(self._chat.texts))
            except (ToolError, OSError) as error:
                return self._tell(str(error))
            return event.current_buffer.insert_text(mark)  # type: ignore[no-any-return]

        @keys.add("backspace", filter=here & ~has_selection & Condition(lambda: bool(mark())))
        def _drop(event: Any) -> None:
            event.current_buffer.delete_before_cursor(len(mark()))

        @keys.add("c-s", filter=here)
        def _stash(event: Any) -> None:
            self._swap(event.current_buffer)
            if self._stash:
                self._chat.tell("stashed")

        @keys.add("c-x", "c-r", filter=here, save_before=lambda event: False)
        def _redo(event: Any) -> None:
            event.current_buffer.redo()

        @keys.add("c-x", "c-e", filter=here)
        @keys.add("c-g", filter=here & ~has_selection)
        def _edit(event: Any) -> None:
            event.current_buffer.open_in_editor()


def history(stored: Callable[[str], str]) -> Any:
    """Messages of all chats in one private file, each as `stored` makes it; without a place to write, in memory only."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Kept(FileHistory):
        def store_string(self, string: str) -> None:
            try:
                super().store_string(stored(string))
            except OSError as error:
                logging.getLogger(__name__).warning("chat history not written: %s", error)

        def load_history_strings(self) -> Iterator[str]:
            last = None
            for string in super().load_history_strings():
                if string != last:
                    yield string
                last = string

    path = paths.home() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)
    except OSError as error:
        logging.getLogger(__name__).warning("no chat history: %s", error)
        return InMemoryHistory()
    return Kept(str(path))
