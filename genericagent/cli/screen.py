"""The two faces of the chat: Screen, where the terminal can move its cursor, and Lines, where it can't (TERM=dumb)."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..safety.term import one_line
from .cells import broken, cut, wrapped
from .composer import Typing

if TYPE_CHECKING:
    from .chat import Chat

ARMED = 2.0  # seconds that a hint is shown, and in which a second Ctrl-C quits
LIVE_ROWS = 8  # rows of unfinished text above the input
QUEUE_ROWS = 3  # waiting messages that are shown
# seconds that the rest of an escape sequence is waited for: a paste's marker may come in two pieces over a slow line; where
# something is to be chosen, a lone Esc leaves it
PATIENT, PROMPT = 2.0, 0.3
BETWEEN_BELLS = 0.25  # seconds; shorter and they are heard as one


class Lines:
    """Plain lines in, plain lines out, and not a single control code."""

    echoes = True

    def __init__(self, chat: Chat) -> None:
        self._chat, self._open, self._closed = chat, False, False
        self._lock = threading.Lock()

    def run(self) -> int:
        while not self._closed:
            try:
                try:
                    self._read()
                except KeyboardInterrupt:
                    self._chat.interrupt()
            except KeyboardInterrupt:  # a second one came while the first was being handled
                self._chat.interrupt()
        return 0

    def _read(self) -> None:
        try:
            self._prompt()
            self._wait()
            text = input()
        except EOFError:
            self._closed = True
        else:
            self._open = False
            self._chat.submit(text)

    def _wait(self) -> None:
        """Until a line is there. A signal that comes just before input() begins to wait would not be seen in there."""
        if os.name == "posix":
            while not select.select([sys.stdin], [], [], 0.25)[0]:
                pass

    def close(self, code: int = 0) -> None:
        self._closed = True
        if code:  # a signal, while input() waits
            raise SystemExit(code)

    def width(self) -> int:
        return 80

    def write(self, text: str) -> None:
        with self._lock:
            self._chat.out.write("\n" * self._open + text)
            self._chat.out.flush()
            self._open = False

    def hint(self, text: str) -> None:
        self.write(text + "\n")

    def refresh(self) -> None:
        if not self._chat.running:
            self._prompt()

    def give_back(self, text: str) -> bool:
        return False

    def typed(self) -> str:
        return ""

    def announce(self, title: str) -> None:
        """A plain terminal has no title and makes no sound."""

    def alert(self, needs_you: bool) -> None:
        pass

    def _prompt(self) -> None:
        with self._lock:
            if not self._open:
                self._chat.out.write("> ")
                self._chat.out.flush()
            self._open = True


class Screen:
    """An input line at the bottom, the live part above it, everything else in the terminal's own scrollback."""

    echoes = False

    def __init__(self, chat: Chat) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import create_output

        self._chat, self._typing = chat, Typing(chat)
        self._loop: Any = None
        self._code = 0
        output = create_output(stdout=chat.out)
        if hasattr(output, "enable_cpr"):
            output.enable_cpr = False  # late answers of a slow terminal would be typed into the message
        self._session: PromptSession[str] = PromptSession(
            self._message, multiline=True, prompt_continuation="  ", key_bindings=self._keys(), enable_suspend=True,
            output=output, **self._typing.options(),
        )  # fmt: skip
        self._typing.attach(self._session)
        self._app = self._session.app
        self._app.erase_when_done = True
        self._app.ttimeoutlen = PATIENT

    def run(self) -> int:
        from prompt_toolkit.patch_stdout import patch_stdout

        with patch_stdout():  # what a library prints goes above the input, escapes made harmless
            with contextlib.suppress(EOFError, KeyboardInterrupt, OSError):  # the terminal went away
                self._session.prompt(pre_run=self._started)
            self._loop = None
            with contextlib.suppress(OSError):
                if self._ui("title", True):
                    self._app.output.clear_title()
                self._app.output.disable_bracketed_paste()  # see _above
                self._app.output.flush()
        return self._code

    def close(self, code: int = 0) -> None:
        def leave() -> None:
            if self._app.is_running and not self._app.is_done:
                self._app.exit()

        self._code = code
        if self._loop is not None:
            self._loop.call_soon_threadsafe(leave)
        elif code:  # a signal before the input is there
            raise SystemExit(code)

    def width(self) -> int:
        return self._app.output.get_size().columns

    def write(self, text: str) -> None:
        """Print above the live part. From another thread: returns when it is on the screen."""
        loop, shown = self._loop, threading.Event()
        if loop is None:
            self._put(text)
        elif threading.get_ident() == self._thread:
            self._above(text, shown)
        else:
            try:
                loop.call_soon_threadsafe(self._above, text, shown)
            except RuntimeError:  # the loop ended in between
                return self._put(text)
            while not shown.wait(0.5) and self._loop is loop:
                pass  # a slow terminal: wait, so that no backlog grows
            if not shown.is_set():
                self._put(text)
        return None

    def typed(self) -> str:
        """What stands in the input and was not sent yet."""
        return str(self._session.default_buffer.text)

    def announce(self, title: str) -> None:
        """What the terminal's title says: what runs, or nothing."""
        if self._ui("title", True):
            self._at_once(lambda: self._app.output.set_title(f"{title} — GenericAgent" if title else "GenericAgent"))

    def alert(self, needs_you: bool) -> None:
        """A sound: one for an end, two when the user has to do something."""
        wanted = self._ui("bell", "all")
        if wanted == "off" or (wanted == "needs" and not needs_you):
            return
        self._at_once(self._app.output.bell)
        if needs_you and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.call_later, BETWEEN_BELLS, self._ring)

    def _ui(self, key: str, default: Any) -> Any:
        return getattr(getattr(getattr(self._chat.agent, "config", None), "ui", None), key, default)

    def _ring(self) -> None:
        self._app.output.bell()
        self._app.output.flush()

    def _at_once(self, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._app.output.flush()

        if self._loop is not None:
            self._loop.call_soon_threadsafe(run)

    def hint(self, text: str) -> None:
        self.refresh()
        if self._loop is not None:
            self._loop.call_later(ARMED + 0.1, self._app.invalidate)

    def refresh(self) -> None:
        if self._loop is not None:
            self._app.invalidate()

    def give_back(self, text: str) -> bool:
        """Put text into the input, before what is there; False when there is no input any more."""

        text = self._chat.composer.marked(text)

        def insert() -> None:
            buffer = self._session.default_buffer
            buffer.text = text + ("\n" + buffer.text if buffer.text else "")
            buffer.cursor_position = len(buffer.text)

        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(insert)
        return loop is not None

    def _started(self) -> None:
        import asyncio

        self._thread, self._loop = threading.get_ident(), asyncio.get_running_loop()

    def _above(self, text: str, shown: threading.Event) -> None:
        if getattr(self._app, "_running_in_terminal", False):  # an editor has the screen
            self._loop.call_later(0.1, self._above, text, shown)
            return
        # erase() would switch bracketed paste off until the redraw: a paste in that moment would be typed lines
        output: Any = self._app.output
        output.disable_bracketed_paste = lambda: None
        self._app.renderer.erase()
        del output.disable_bracketed_paste
        self._put(text)
        shown.set()
        self._app.invalidate()

    def _put(self, text: str) -> None:
        output = self._app.output
        output.write_raw(text)
        output.flush()

    def _message(self) -> Any:
        """The live part and the input's mark, as prompt_toolkit wants them."""
        choosing = self._chat.menu and not self._session.default_buffer.text
        self._app.ttimeoutlen = PROMPT if choosing else PATIENT
        size = self._app.output.get_size()
        width, height = max(size.columns - 1, 10), max(min(LIVE_ROWS, size.rows // 3), 1)
        status, tail = self._chat.live(width)
        rows = _fold(tail, width, height) if tail else []
        lines = [("", row) for row in rows]
        lines += [("fg:ansicyan", row) for row in self._queue(width)]
        lines += [*self._menu(width, height), ("fg:ansibrightblack", status)]
        return [(style, line + "\n") for style, line in lines] + [("bold", "❯ ")]

    def _queue(self, width: int) -> list[str]:
        """What the task has not read yet; the waiting messages, the next one first, and how to take the last one back."""
        hide = getattr(self._chat.agent, "redact", str)
        waiting = list(map(hide, self._chat.waiting()))
        rows = [f"⏳ {one_line(text, 200)}" for text in waiting[:QUEUE_ROWS]]
        if waiting:
            rows.append(f"   {self._chat.texts['queued'].format(n=len(waiting))} · {self._chat.texts['take_back']}")
        if steer := getattr(self._chat.agent, "intervene", None):
            # the end of a narrow row is lost: what becomes of it comes first
            rows.insert(0, f"↪ {self._chat.texts['steer_waits']}: {one_line(hide(steer), 200)}")
        return [cut(row, width) for row in rows]

    def _menu(self, width: int, height: int) -> list[tuple[str, str]]:
        """The rows of the open menu that fit, around the marked one."""
        if not (menu := self._chat.menu):
            return []
        first = max(0, min((menu.marked or 0) - height + 1, len(menu.rows) - height))
        return [
            (
                "bold" if n == menu.marked else "",
                cut(f"{'❯' if n == menu.marked else ' '} {n + menu.first}. {row}", width),
            )
            for n, row in enumerate(map(one_line, menu.rows[first : first + height]), first)
        ]

    def _move(self, by: int) -> None:
        menu = self._chat.menu
        if menu and menu.rows:
            menu.marked = (-1 if by > 0 else 0) + by if menu.marked is None else menu.marked + by
            menu.marked %= len(menu.rows)

    def _keys(self) -> Any:
        from prompt_toolkit.enums import DEFAULT_BUFFER
        from prompt_toolkit.filters import Condition, has_focus
        from prompt_toolkit.key_binding import KeyBindings

        keys, chat = KeyBindings(), self._chat
        here = has_focus(DEFAULT_BUFFER)
        empty = Condition(lambda: not self._session.default_buffer.text)

        menu = Condition(lambda: chat.menu is not None) & empty
        self._typing.bind(keys, here)

        @keys.add("up", filter=here & menu)
        @keys.add("down", filter=here & menu)
        def _mark(event: Any) -> None:
            self._move(1 if event.key_sequence[0].key == "down" else -1)

        @keys.add("enter", filter=here & menu)
        def _choose(event: Any) -> None:
            if chat.menu and chat.menu.marked is not None:
                chat.chosen(chat.menu.marked)

        @keys.add("escape", filter=here & menu, eager=True)
        def _dismiss(event: Any) -> None:
            chat.dismiss()

        @keys.add("escape", "/", filter=here & empty)  # Esc by habit, then a command: no Alt+/
        def _slash(event: Any) -> None:
            event.current_buffer.insert_text("/")

        waits = Condition(lambda: bool(chat.waiting())) & empty & ~menu

        @keys.add("up", filter=here & waits)
        def _take_back(event: Any) -> None:
            event.current_buffer.insert_text(chat.take_back())

        @keys.add("c-t", filter=here)
        def _steer(event: Any) -> None:
            text = event.current_buffer.text
            event.current_buffer.reset()
            chat.steer(text)

        @keys.add("c-o", filter=here)
        def _unfold(event: Any) -> None:
            chat.unfold()

        @keys.add("enter", filter=here & ~menu)
        def _send(event: Any) -> None:
            self._typing.enter(event.current_buffer)

        @keys.add("escape", "enter", filter=here)
        @keys.add("c-j", filter=here)
        def _newline(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=here)
        @keys.add("<sigint>")
        def _interrupt(event: Any) -> None:
            buffer = self._session.default_buffer
            chat.interrupt(cleared=bool(buffer.text))
            buffer.reset()

        @keys.add("c-d", filter=here & empty)
        def _leave(event: Any) -> None:
            chat.leave()

        return keys


def _fold(text: str, width: int, rows: int) -> list[str]:
    """The last `rows` screen rows of `text`."""
    lines = (line.expandtabs(4)[-width * rows :] for line in text.split("\n")[-rows:])
    return [row for line in lines for part in wrapped(line, width) for row in broken(part, width)][-rows:]
