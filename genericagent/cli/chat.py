"""The terminal chat, scrollback-first: what is finished is ordinary terminal text, only the live part is redrawn.

    Chat    the conversation: what a typed line means, what runs, what waits. Knows no terminal library
    Screen  prompt_toolkit: the input stays alive while a task runs
    Lines   plain lines for terminals that can't move their cursor (TERM=dumb)

A task's display queue is followed by a thread of its own; everything it shows goes through the face's `write`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TextIO

from .. import paths, prompts
from ..display import untagged
from ..llm.blocks import text_of
from ..safety.asking import Answer, Scope
from ..safety.term import clean, one_line
from ..store.outbox import Outbox
from . import commands
from .composer import Composer, Shell, Typing
from .render import Painter, Piece, View
from .status import Vitals, cut, status_line, vitals

ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
FRAME = 0.03  # seconds between two updates of the screen
ARMED = 2.0  # seconds in which a second Ctrl-C quits
LIVE_ROWS = 8  # rows of unfinished text above the input
QUEUE_ROWS = 3  # waiting messages that are shown
LONG = 10.0  # seconds after which the end of a task is worth a sound
MOST_NEWS = 20  # messages that came meanwhile and are shown
SHOWN_NEWS = 200  # characters of a message that came meanwhile
REPLAYED = 10  # lines of a conversation that is resumed
WARM_UP = 0.3  # seconds after the start: the prompt comes first
BETWEEN_BELLS = 0.25  # seconds; shorter and they are heard as one
ECHO_LINES = 12  # lines of a long message that are repeated in the scrollback


def run_chat(agent: Any, *, out: TextIO | None = None) -> int:
    """Chat until the user leaves; `agent.run` gets a thread of its own. Returns the exit code.

    Without a terminal on both sides nothing is done but one line on stderr, and 2 is returned.
    """
    out = out or sys.stdout
    texts = dict(prompts.catalog("chat"))  # changed in place by /language
    if not (is_terminal(sys.stdin) and is_terminal(out)):
        if sys.stderr:
            sys.stderr.write(texts["no_terminal"] + "\n")
        return 2
    for stream in (sys.stdin, out, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a sign the terminal can't show must not end the program
            stream.reconfigure(errors="replace")
    return Chat(agent, out, texts).run()


def _this_program() -> str:
    """How to call this program again from here."""
    import shlex
    import shutil

    if Path(sys.argv[0]).stem == "ga":
        return "ga"
    python, program, here = Path(sys.executable), paths.program(), Path.cwd()
    called = str(python.relative_to(here)) if python.is_relative_to(here) else str(python)
    if shutil.which("python") == str(python):
        called = "python"
    return f"{shlex.quote(called)} {shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))}"


def is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False


def news() -> Iterator[str]:
    """What came for the terminal meanwhile, each once and in one line, of many the newest; and what other faces could not
    deliver."""
    outbox = Outbox(paths.home() / "outbox")
    waiting = outbox.pending()
    # first: better kept unseen than shown twice
    ours = [message["id"] for message in waiting if message["origin"] == "terminal" and outbox.ack(message["id"])]
    if len(ours) > MOST_NEWS:
        yield prompts.text("watchers", "more_news", n=len(ours) - MOST_NEWS, folder=outbox.folder / "done")
    for message in waiting:
        line = (
            f"{time.strftime('%m-%d %H:%M', time.localtime(message['created']))} {message['title']}: {message['text']}"
        )
        if message["origin"] != "terminal":
            if message["failures"]:
                why = message["failures"][-1].get("why", "")
                yield one_line(
                    prompts.text("watchers", "not_delivered", origin=message["origin"], why=why, line=line), 300
                )
        elif message["id"] in ours[-MOST_NEWS:]:
            full = prompts.text("watchers", "in_full", path=outbox.folder / "done" / f"{message['id']}.json")
            yield one_line(line, SHOWN_NEWS) if len(line) <= SHOWN_NEWS else f"{one_line(line, SHOWN_NEWS)} {full}"


@dataclass
class Menu:
    """Something to choose: `then` gets the index of a row; `other`, if given, what the user typed instead of choosing."""

    rows: list[str]
    then: Callable[[int], None]
    other: Callable[[str], None] | None = None
    marked: int | None = 0  # the row that Enter chooses; None: none before an arrow key was pressed


class Chat:
    """One conversation at a terminal. Its methods may be called from the face's thread and the followers'."""

    def __init__(self, agent: Any, out: TextIO, texts: dict[str, str]) -> None:
        self.agent, self.out, self.texts = agent, out, texts
        agent.can_ask = True
        plain = os.environ.get("TERM") in ("dumb", "unknown")
        colour = not plain and not os.environ.get("NO_COLOR")
        self.painter = Painter(rich=not plain, colour=colour)
        self.view = View(texts, unfold="" if plain else texts["unfold"], alive=not plain)
        self.running = self.stopping = self._leaving = False
        self._hint, self._hint_until, self._armed_until = "", 0.0, 0.0
        self._waiting: deque[str] = deque()
        self._began = 0.0
        self.menu: Menu | None = None  # what is to be chosen now
        self.listed: list[str] = []  # ids of the sessions that were shown last, by their numbers
        self._lock = threading.RLock()
        self._follower: threading.Thread | None = None
        self.composer, self.shell = Composer(texts, lambda: Path(agent.workspace)), Shell(self)
        self.face: Lines | Screen = Lines(self) if plain else Screen(self)

    def run(self) -> int:
        title, *rest = [clean(line) for line in self.agent.banner_lines()] or [""]
        self.show([Piece("title", title), *(Piece("dim", line) for line in [*rest, self.texts["tip"]])])
        self.replay()
        self.show([Piece("plain", line) for line in news()])
        worker = threading.Thread(target=self.agent.run, name="agent", daemon=True)
        worker.start()
        threading.Thread(target=self._warm_up, daemon=True).start()
        before = {number: signal.signal(number, self._signalled) for number in ENDINGS}
        try:
            code = self.face.run()
        finally:
            self._leaving = True  # from here on no signal disturbs the cleaning up
            before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._clean_up(worker)
            for number, handler in before.items():
                signal.signal(number, handler or signal.SIG_DFL)
        if self.agent.session_id:
            with contextlib.suppress(OSError):  # the terminal may be gone, or the folder
                command = f"{_this_program()} --resume {self.agent.session_id}"
                self.show([Piece("plain", self.texts["resume_with"].format(command=command))])
        return code

    def _warm_up(self) -> None:
        """Import what the first answer needs while the user is still typing."""
        time.sleep(WARM_UP)
        importlib.import_module("genericagent.llm.transport")
        self.painter.warm_up()

    def _signalled(self, number: int, frame: Any) -> None:
        if not self._leaving:
            self._leaving = True
            self.face.close(128 + number)

    def _clean_up(self, worker: threading.Thread) -> None:
        """Stop what runs, with all its processes, and let go of the session."""
        from ..tools.jobs import kill_background

        self.shell.stop()
        self.agent.close()
        for thread in (worker, self._follower, *self.shell.running):  # the end of a stopped task is worth seeing
            if thread:
                thread.join(5)
        if ended := kill_background():
            with contextlib.suppress(OSError):  # the terminal may be gone
                self.say("plain", text=prompts.say("ended_at_exit", titles=", ".join(map(one_line, ended.values()))))
        self.agent.release()

    def submit(self, text: str) -> None:
        """A line the user sent: a command, a message, or one that waits for the running task's end."""
        text = clean(text).strip()
        if not text:
            return None
        with self._lock:
            waits = self.running and not self.view.asking and self.menu is None
            later = waits and not text.startswith("!") and commands.parse(text) is None
            if later:
                self._waiting.append(text)
        if later:
            if self.face.echoes:
                self.say("queued", n=len(self._waiting))
            return self.face.refresh()
        if not self.face.echoes:
            self.show([Piece("user", self._echo(text))])
        try:
            if self.menu and text.isdecimal() and 1 <= int(text) <= len(self.menu.rows):
                return self.chosen(int(text) - 1)
            if text.startswith("!"):
                return self.shell.run(self.composer.command(text[1:]))
            if text.startswith("/") and commands.run(self, self.composer.command(text)):
                return None
            menu, self.menu = self.menu, None  # who types something else has seen it
            if menu and menu.other:
                return menu.other(text)
            if self.view.asking:
                return self._decide(self.composer.message(text)[0])
            with self._lock:
                if not self.running:
                    return self._send(text)
                self._waiting.append(text)
        except Exception as error:  # a bug ends this line, not the conversation
            logging.getLogger(__name__).exception("cannot handle a line")
            self.error("plain", text=one_line(f"{type(error).__name__}: {error}", 500))

    def _decide(self, text: str) -> None:
        """The answer to a question of permission. What is neither yes nor "session" is a no, told to the model."""
        word = text.lower().rstrip(".!。！")
        if word in self.texts["may_whole"].split():
            return self.show(self.view.ask(self.view.whole))
        asked, self.view.asking = self.view.asking, ""
        scopes: dict[str, Scope] = dict.fromkeys(self.texts["may_once"].split(), "once")
        scopes |= dict.fromkeys(self.texts["may_session"].split(), "session")
        plain_no = word in self.texts["may_no"].split()
        answer = Answer(scopes.get(word, "no"), "" if plain_no or word in scopes else text)
        if not self.agent.answer(asked, answer):
            self.say("may_late")
        elif not self.face.echoes:
            self.say(f"may_said_{answer.scope}")
        return None

    def steer(self, text: str) -> None:
        """Give the running task a word at its next turn; without one it is a message like any other."""
        if not (text := clean(text).strip()):
            return None
        if not self.running:
            return self.submit(text)
        self.show([Piece("user", self._echo(f"↪ {text}"))])
        with self._lock:  # it may not have taken the one before yet
            whole, _ = self.composer.message(text)
            self.agent.intervene = "\n".join(filter(None, [self.agent.intervene, whole]))
        return None

    def waiting(self) -> list[str]:
        """The messages that wait for the end of the running task."""
        return list(self._waiting)

    def take_back(self) -> str:
        """The newest message that waits, which then waits no more; "" when there is none."""
        with self._lock:
            return self._waiting.pop() if self._waiting else ""

    def unfold(self) -> None:
        """Show the newest folded thing in full."""
        if pieces := self.view.unfold():
            self.show(pieces)
        else:
            self.tell("nothing_folded")

    def interrupt(self, cleared: bool = False) -> None:
        """Ctrl-C: it has cleared text, or else stops the run, or else asks before it quits."""
        if cleared:
            self._armed_until = 0.0
        elif not self.stop():
            self.menu = None
            self._sure("press_again")

    def leave(self) -> None:
        """Ctrl-D without text: quit, but ask first while a task runs."""
        if self.running or self.shell.running:
            self._sure("leave_running")
        else:
            self.close()

    def stop(self) -> bool:
        """Stop the user's own commands, else the running task; False when there is neither."""
        if not (ended := self.shell.stop()) and not self.running:
            return False
        self._armed_until = 0.0
        if not ended:
            self.stopping = True
            self.agent.abort()
        self.tell("stopping")
        return True

    def _sure(self, key: str) -> None:
        """Quit when this comes twice within ARMED seconds; the first time, say so."""
        if time.monotonic() < self._armed_until:
            return self.close()
        self._armed_until = time.monotonic() + ARMED
        return self.tell(key)

    def close(self) -> None:
        self.face.close()

    def forget(self) -> None:
        """The conversation was replaced: an open question is void."""
        self.menu = None

    def replay(self) -> None:
        """The end of a conversation that goes on: what was said and done in short, the last answer whole."""
        lines = [line for line in getattr(self.agent, "lines", []) if line.startswith(("[USER]", "[Agent]"))]
        if not lines:
            return
        kinds = {"[USER]": "user", "[Agent]": "summary"}
        told = [(kinds[mark.removesuffix(":")], text) for mark, _, text in (line.partition(" ") for line in lines)]
        history = self.agent.client.backend.history if self.agent.config.models else []
        answer = untagged(text_of(history[-1]["content"])) if history and history[-1]["role"] == "assistant" else ""
        self.show([*(Piece(kind, one_line(text, 200)) for kind, text in told[-REPLAYED:]), Piece("md", clean(answer))])

    def choose(self, title: str, menu: Menu) -> None:
        """Let the user choose one of the rows, by arrow keys or by its number, or say something else."""
        self.show([Piece("question", title)] if title else [])
        if self.face.echoes:
            self.show([Piece("plain", f"  {n}. {one_line(row, 300)}") for n, row in enumerate(menu.rows, 1)])
        self.menu = menu
        self.face.refresh()

    def chosen(self, index: int) -> None:
        """A row of the open menu was taken."""
        menu, self.menu = self.menu, None
        if menu:
            menu.then(index)

    def show(self, pieces: Iterable[Piece]) -> None:
        hide = getattr(self.agent, "redact", str)  # an agent without a model has no keys
        pieces = [p._replace(text=hide(p.text), note=hide(p.note)) for p in pieces]
        with self._lock:
            text = self.painter.paint(pieces, self.face.width())
        self.face.write(text)

    def say(self, key: str, **values: object) -> None:
        self.show([Piece("plain" if key == "plain" else "dim", self.texts[key].format(**values))])

    def error(self, key: str, **values: object) -> None:
        self.show([Piece("error", self.texts[key].format(**values))])

    def tell(self, key: str) -> None:
        """Something of the moment, beside the input; not kept in the scrollback."""
        self._hint, self._hint_until = self.texts[key], time.monotonic() + ARMED
        self.face.hint(self._hint)

    def live(self, width: int) -> tuple[str, str]:
        """(status line of at most `width` cells, unfinished text)"""
        state, tail = self.view.live() if self.running else ("", "")
        hint = self._hint if time.monotonic() < self._hint_until else ""
        seen = vitals(self.agent, self.texts) if hasattr(self.agent, "config") else Vitals()
        return status_line(
            self.texts, seen, hint or state or self.shell.status(), self.view.turn if self.running else 0, width
        ), tail

    def _echo(self, text: str) -> str:
        lines = text.split("\n")
        if len(lines) <= ECHO_LINES:
            return text
        more = self.texts["more_lines"].format(n=len(lines) - ECHO_LINES)
        return "\n".join([*lines[:ECHO_LINES], more])

    def _send(self, text: str) -> None:
        """Hand `text` to the agent."""
        self.menu = None
        self.view.start()
        whole, images = self.composer.message(text)
        outside = [] if text.startswith("/session.") else self.shell.taken()
        queue = self.agent.put_task(whole, source="user", images=images, outside=outside)
        self.running, self.stopping, self._began = True, False, time.monotonic()
        self.face.announce(f"✻ {one_line(text, 40)}")
        self._follower = threading.Thread(target=self._follow, args=(queue,), daemon=True)
        self._follower.start()

    def _follow(self, queue: Queue[dict[str, Any]]) -> None:
        """Show a task's items until the last one. The frame pause lets items gather: one redraw for many."""
        self.painter.warm_up()
        last: dict[str, Any] = {}
        while "done" not in last:
            items = _batch(queue)
            pieces: list[Piece] = []
            for last in items:
                try:
                    pieces += self.view.feed(last)
                except Exception:  # a fault in the display must not lose the end of the task
                    logging.getLogger(__name__).exception("cannot show an item")
            if "done" in last:
                return self._end(last, pieces)
            if any((item.get("event") or {}).get("kind") == "ask" for item in items):
                self.face.alert(True)
            if pieces:
                self.show(pieces)
            else:
                self.face.refresh()
            if self.stopping and not items:
                self.agent.abort()  # the first one may have come before the task began
            time.sleep(FRAME)
        return None

    def _end(self, item: dict[str, Any], pieces: list[Piece]) -> None:
        """Show the last pieces of a task; then comes the next message that waits, if all went well."""
        unheard, self.agent.intervene = getattr(self.agent, "intervene", None), None
        with self._lock:
            self._waiting.extendleft([unheard] if unheard else [])
            going_on = item.get("status", "done") == "done" and bool(self._waiting)
            if going_on:
                text = self._waiting.popleft()
            else:  # what waits was written for another situation: the user decides
                text = "\n".join(self._waiting)
                self._waiting.clear()
                self.running = self.stopping = False
                self._hint_until = 0.0
        self.show(pieces)
        if going_on:
            self.show([Piece("user", self._echo(text))])
            with self._lock:
                self._send(text)
        elif text and not self.face.give_back(text):
            self.say("not_sent", text=text)
        if not going_on and (question := item.get("question")):
            self._form(question.get("questions") or [question], [])
        if not going_on:
            self.face.announce("")
            asks = item.get("status") == "needs_input"
            if asks or time.monotonic() - self._began > LONG:
                self.face.alert(asks)
        self.face.refresh()

    def _form(self, questions: list[dict[str, Any]], answers: list[str]) -> None:
        """Ask what the model asked, one question after the other; the answers go back as one message."""
        several, asked = len(questions) > 1, questions[len(answers)]
        choices = [str(choice) for choice in asked.get("candidates") or []]
        if not several and not choices:
            return  # it was shown, and the next message answers it

        def chosen(index: int) -> None:
            self.show([Piece("user", choices[index])])
            answered(choices[index])

        def answered(text: str) -> None:
            told = [*answers, text]
            if len(told) < len(questions):
                return self._form(questions, told)
            if several:
                text = "\n".join(f"{n}. {answer}" for n, answer in enumerate(told, 1))
            return self._send(text)

        title = f"{len(answers) + 1}/{len(questions)} {clean(str(asked.get('question')))}" if several else ""
        self.choose(title, Menu(choices, chosen, other=answered))


def _batch(queue: Queue[dict[str, Any]]) -> list[dict[str, Any]]:
    """All items that are there, after a short wait for the first."""
    items: list[dict[str, Any]] = []
    with contextlib.suppress(Empty):
        items.append(queue.get(timeout=0.2))
        while "done" not in items[-1] and len(items) < 5000:
            items.append(queue.get_nowait())
    return items


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
        self._app.ttimeoutlen = 2.0  # a paste's marker may come in two pieces over a slow line

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
        size = self._app.output.get_size()
        width, height = max(size.columns - 1, 10), max(min(LIVE_ROWS, size.rows // 3), 1)
        status, tail = self._chat.live(width)
        rows = _fold(tail, width, height) if tail else []
        lines = [("", row) for row in rows]
        lines += [("fg:ansicyan", row) for row in self._queue(width)]
        lines += [*self._menu(width, height), ("fg:ansibrightblack", status)]
        return [(style, line + "\n") for style, line in lines] + [("bold", "❯ ")]

    def _queue(self, width: int) -> list[str]:
        """The waiting messages, the next one first, and how to take the last one back."""
        waiting = self._chat.waiting()
        rows = [f"⏳ {one_line(text, 200)}" for text in waiting[:QUEUE_ROWS]]
        if waiting:
            rows.append(f"   {self._chat.texts['queued'].format(n=len(waiting))} · {self._chat.texts['take_back']}")
        return [cut(row, width) for row in rows]

    def _menu(self, width: int, height: int) -> list[tuple[str, str]]:
        """The rows of the open menu that fit, around the marked one."""
        if not (menu := self._chat.menu):
            return []
        first = max(0, min((menu.marked or 0) - height + 1, len(menu.rows) - height))
        return [
            ("bold" if n == menu.marked else "", cut(f"{'❯' if n == menu.marked else ' '} {n + 1}. {row}", width))
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
    """The last `rows` screen rows of `text`, wide characters counted as two cells."""
    from prompt_toolkit.utils import get_cwidth

    folded: list[str] = []
    for line in text.split("\n")[-rows:]:
        row, used = "", 0
        for char in line.expandtabs(4)[-width * rows :]:
            cells = get_cwidth(char)
            if used + cells > width:
                folded.append(row)
                row, used = "", 0
            row, used = row + char, used + cells
        folded.append(row)
    return folded[-rows:]
