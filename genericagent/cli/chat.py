"""The terminal chat, scrollback-first: what is finished is ordinary terminal text, only the live part is redrawn.

Chat is the conversation: what a typed line means, what runs, what waits. It knows no terminal library; what is typed and shown
goes through one of the two faces in screen.py. A task's display queue is followed by a thread of its own; everything it shows goes through the face's `write`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
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
from ..errors import GAError
from ..llm.usage import Meter
from ..safety.asking import Answer, Scope
from ..safety.term import clean, one_line
from ..store.outbox import Outbox
from . import commands
from .composer import Composer, Shell
from .conversation import progress
from .log import in_one_line
from .render import Painter, Piece, View
from .screen import ARMED, Lines, Screen
from .settings import careful
from .status import Vitals, recount, status_line, vitals

ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
FRAME = 0.03  # seconds between two updates of the screen
LONG = 10.0  # seconds after which the end of a task is worth a sound
MOST_NEWS = 20  # messages that came meanwhile and are shown
SHOWN_NEWS = 200  # characters of a message that came meanwhile
REPLAYED = 10  # things of a conversation that is resumed
STUCK = 8.0  # seconds after a signal in which the program ends by itself
CHOICE_CHARS = 300  # of an answer that the model offers, and that is sent when it is taken
# commands whose arguments are not to come from a paste, or are a message, whose pastes are looked into when it is sent
SLIP = 3  # characters that are no message where a command asks for a choice
AS_TYPED = ("approve", "sandbox", "steer", "plan")
ALONE = {"/": "slash_alone", "!": "bang_alone"}  # begun and not gone on with
MOST_BANNER = 1000  # characters of a line of the first screen
WARM_UP = 0.3  # seconds after the start: the prompt comes first
ECHO_LINES = 12  # lines of a long message that are repeated in the scrollback


def run_chat(agent: Any, *, out: TextIO | None = None, demo: bool = False) -> int:
    """Chat until the user leaves; `agent.run` gets a thread of its own. Returns the exit code. `demo`: its model is the one
    of `--demo`.

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
    return Chat(agent, out, texts, demo).run()


def is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False


def news() -> Iterator[str]:
    """What came for the terminal meanwhile, each once and in one line, of many the newest; what other faces could not
    deliver; and that proposals for the memory wait."""
    from ..memory.inbox import waits

    if line := waits():
        yield one_line(line, 300)
    outbox = Outbox(paths.home() / "outbox")
    waiting = outbox.pending()
    # first: better kept unseen than shown twice
    ours = [message["id"] for message in waiting if message["origin"] == "terminal" and outbox.ack(message["id"])]
    if len(ours) > MOST_NEWS:
        told = prompts.text("watchers", "more_news", n=len(ours) - MOST_NEWS, folder=outbox.folder / "done")
        yield one_line(told, 500)
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
            yield one_line(line, SHOWN_NEWS) + f" {one_line(full, 500)}" * (len(line) > SHOWN_NEWS)


@dataclass
class Menu:
    """Something to choose: `then` gets the index of a row; `other`, if given, what the user typed instead of choosing."""

    rows: list[str]
    then: Callable[[int], None]
    other: Callable[[str], None] | None = None
    marked: int | None = 0  # the row that Enter chooses; None: none before an arrow key was pressed
    first: int = 1  # the number of the first row

    def row(self, text: str) -> int | None:
        """The index of the row with this number."""
        n = int(text) - self.first if text.isdecimal() else -1
        return n if 0 <= n < len(self.rows) else None


class Chat:
    """One conversation at a terminal. Its methods may be called from the face's thread and the followers'."""

    def __init__(self, agent: Any, out: TextIO, texts: dict[str, str], demo: bool = False) -> None:
        self.agent, self.out, self.texts, self._demo = agent, out, texts, demo
        agent.can_ask = True
        plain = os.environ.get("TERM") in ("dumb", "unknown")
        colour = not plain and not os.environ.get("NO_COLOR")
        self.painter = Painter(rich=not plain, colour=colour)
        self.view = View(texts, unfold="" if plain else texts["unfold"], alive=not plain)
        self.running = self.stopping = self._leaving = False
        self._hint, self._hint_until, self._armed_until = "", 0.0, 0.0
        self._waiting: deque[str] = deque()
        self._unheard: list[str] = []  # what `agent.intervene` was made of, as it was typed
        self._began = 0.0
        self._typed_before = False  # the question of permission: what is sent next was begun when it was not there yet
        self._stuck: threading.Timer | None = None
        self.menu: Menu | None = None  # what is to be chosen now
        self._planned = ""  # how far the checklist was when that was shown
        self._asked = False  # the model has asked, and the next message answers it
        self.listed: list[str] = []  # ids of the sessions that were shown last, by their numbers
        self._lock = threading.RLock()
        self._follower: threading.Thread | None = None
        self.composer, self.shell = Composer(texts, lambda: Path(agent.workspace)), Shell(self)
        self.face: Lines | Screen = Lines(self) if plain else Screen(self)

    def run(self) -> int:
        title, *rest = [one_line(line, MOST_BANNER) for line in self.agent.banner_lines()] or [""]
        tips = [self.texts["tip"], *([self.texts["demo_tip"]] if self._demo else [])]
        self.show([Piece("title", title), *(Piece("dim", line) for line in [*rest, *tips])])
        if warning := careful(self.agent.workspace):
            self.error(warning)
        recount(self.agent)
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
                command = f"{paths.this_program()}{' --demo' * self._demo} --resume {self.agent.session_id}"
                self.show([Piece("copy", self.texts["resume_with"].format(command=command))])
        return code

    def _warm_up(self) -> None:
        """Import what the first answer needs while the user is still typing."""
        time.sleep(WARM_UP)
        importlib.import_module("genericagent.llm.transport")
        self.painter.warm_up()

    def _signalled(self, number: int, frame: Any) -> None:
        if not self._leaving:
            self._leaving = True
            self.shell.stop()
            self.agent.close()
            self._stuck = threading.Timer(
                STUCK, self._end_hard, [128 + number]
            )  # the face hangs in a terminal that takes nothing
            self._stuck.daemon = True
            self._stuck.start()
            self.face.close(128 + number)

    def _end_hard(self, code: int) -> None:
        from ..tools.jobs import kill_background

        kill_background()
        self.agent.release()
        os._exit(code)

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
            waits = self.running and not self.view.asking and self.menu is None and text not in ALONE
            later = waits and not text.startswith("!") and commands.parse(text) is None
            if later:
                self._waiting.append(text)
        if later:
            if self.face.echoes:
                self.say("queued", n=len(self._waiting))
            return self.face.refresh()
        if not self.face.echoes:
            self.show([Piece("user", self._echo(text))])
        if text in ALONE:
            return self.error(ALONE[text])
        try:
            if (menu := self.menu) and (row := menu.row(text)) is not None:
                return self.chosen(row)
            if menu and menu.rows and text.isdecimal():  # a slip: as an answer it would be taken for a choice
                return self._no_choice(menu, text)
            if text.startswith("!"):
                return self.shell.run(self.composer.command(text[1:]))
            if parsed := commands.parse(text):  # before any paste is looked into: only what was typed is a command
                word, rest = parsed
                if self.menu and not self.menu.other:  # a command's own question is over when another one is given
                    self.menu = None
                commands.run(self, f"/{word} {rest if word in AS_TYPED else self.composer.command(rest)}")
                return None
            if menu and not menu.other and not self.view.asking:  # who types a word at a command's choice means it
                if text.lower() in self.texts["may_no"].split():
                    return self.dismiss()
                if text.isascii() and len(text) <= SLIP:
                    return self._no_choice(menu, text)
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
            self.error("plain", text=in_one_line(error, "handle a line"))

    def _no_choice(self, menu: Menu, text: str) -> None:
        last = menu.first + len(menu.rows) - 1
        self.error("no_choice", n=one_line(text, 20), first=menu.first, last=last)

    def _decide(self, text: str) -> None:
        """The answer to a question of permission. What is neither yes nor "session" is a no, told to the model."""
        word = text.lower().rstrip(".!。！")
        if word in self.texts["may_whole"].split():
            return self.show(self.view.ask(self.view.whole))
        if self._typed_before:
            self._typed_before = False
            if self.face.give_back(text):
                return self.tell("may_early")
        asked = self.view.answered()
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
        return self.show([Piece("user", self._echo(f"↪ {text}"))]) if self.steered(text) else self.submit(text)

    def steered(self, text: str) -> bool:
        """Give the running task a word; False when none runs."""
        with self._lock:
            if self.running:
                waits = self.agent.intervene  # it may not have taken the one before yet
                self._unheard = [*(self._unheard if waits else []), text]
                self.agent.intervene = "\n".join(filter(None, [waits, self.composer.message(text)[0]]))
            return self.running

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
        elif self.menu and not self.menu.other and not self.running:
            self.dismiss()
        elif not self.stop():
            self.dismiss()
            self._sure("press_again")

    def dismiss(self) -> None:
        """Close the open menu, if there is one. A question of the model stays open: that is said."""
        menu, self.menu = self.menu, None
        if menu and menu.other:
            self.say("question_stays")
        elif menu:
            self.tell("nothing_done")

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
        over = [name for name in ended if name.startswith("/")]
        for name in over:
            self.say("stopped", what=name)
        if not over or over != ended:
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
        """The conversation was replaced: an open question is void, and so is what was counted."""
        self.menu, self._asked = None, False
        recount(self.agent)

    def replay(self) -> None:
        """The end of a conversation that goes on: what was said and done in short, the last answer whole."""
        if not getattr(self.agent, "lines", []):
            return None
        from .transcript import retold, transcript

        try:
            told = transcript(self.agent.records(), clean)
        except GAError as error:  # it goes on all the same
            return self.error("plain", text=in_one_line(error, "look at the conversation"))
        return self.show(retold(told, REPLAYED, self.texts))

    def choose(self, title: str, menu: Menu) -> None:
        """Let the user choose one of the rows, by arrow keys or by its number, or say something else."""
        self.menu = menu  # first: what is seen can be answered
        self.show([Piece("question", title)] if title else [])
        if self.face.echoes:
            self.show([Piece("plain", f"  {n}. {one_line(row, 300)}") for n, row in enumerate(menu.rows, menu.first)])
        self.face.refresh()

    def chosen(self, index: int) -> None:
        """A row of the open menu was taken."""
        menu, self.menu = self.menu, None
        if menu:
            menu.then(index)

    def show(self, pieces: Iterable[Piece]) -> None:
        hide = getattr(self.agent, "redact", str)  # an agent without a model has no keys
        pieces = [p._replace(text=clean(hide(p.text)), note=clean(hide(p.note))) for p in pieces]
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
        state, tail = self.view.live() if self.running else (self.texts["answer_wanted"] if self._asked else "", "")
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

    def _send(self, text: str, chosen: bool = False) -> None:
        """Hand `text` to the agent. `chosen`: the model has written it, so it is no command, and no word of the user's."""
        self.menu, self._asked = None, False
        self.view.start()
        whole, images = (text, list[Path]()) if chosen else self.composer.message(text)
        setting = text.startswith("/session.") and whole == text
        outside = [] if setting else self.shell.taken()
        self.agent.task_meter = Meter()  # what ends before it has used anything has no costs of the task before
        source = "choice" if chosen else "user" if whole == text else "pasted"
        queue = self.agent.put_task(whole, source=source, images=images, outside=outside)
        self.running, self.stopping, self._began = True, False, time.monotonic()
        self.face.announce(f"✻ {one_line(getattr(self.agent, 'redact', str)(text), 40)}")
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
                    if (last.get("event") or {}).get("kind") == "turn":
                        pieces += self._plan_step()
                except Exception:  # a fault in the display must not lose the end of the task
                    logging.getLogger(__name__).exception("cannot show an item")
            if "done" in last:
                return self._end(last, pieces)
            asks = any((item.get("event") or {}).get("kind") == "ask" for item in items)
            if asks:
                self.face.alert(True)
                self._typed_before = bool(self.face.typed())
            if pieces:
                self.show(pieces)
            else:
                self.face.refresh()
            if self.stopping and not items:
                self.agent.abort()  # the first one may have come before the task began
            time.sleep(FRAME)
        return None

    def _plan_step(self) -> list[Piece]:
        """How far the task's checklist is, when that has changed."""
        handler = getattr(self.agent, "handler", None)
        file = handler.working.get("plan") if handler else None
        before, self._planned = self._planned, progress(file, self.texts) if file else ""
        return [Piece("dim", self._planned)] if self._planned not in ("", before) else []

    def _end(self, item: dict[str, Any], pieces: list[Piece]) -> None:
        """Show the last pieces of a task; then comes the next message that waits, if all went well."""
        with self._lock:  # nothing is shown inside of it: that waits for the face's thread, which may wait for this
            unheard, self.agent.intervene = getattr(self.agent, "intervene", None), None
            self._waiting.extendleft(["\n".join(self._unheard)] if unheard else [])
            going_on = item.get("status", "done") == "done" and bool(self._waiting) and not self.stopping
            text = self._waiting.popleft() if going_on else self._all_back()
        self.show(pieces)
        if going_on:
            late = [Piece("dim", self.texts["steer_late"])] if unheard else []
            self.show([*late, Piece("user", self._echo(text))])
            with self._lock:
                if self.stopping:  # meanwhile
                    going_on, text = False, "\n".join(filter(None, [text, self._all_back()]))
                else:
                    self._send(text)
        if not going_on:
            if text and not self.face.give_back(text):
                self.say("not_sent", text=text)
            if (question := item.get("question")) and not self.running:
                self._asked = True
                self._form(question.get("questions") or [question], [])
            self.face.announce("")
            asks = item.get("status") == "needs_input"
            if asks or time.monotonic() - self._began > LONG:
                self.face.alert(asks)
        self.face.refresh()

    def _all_back(self) -> str:
        """Nothing runs any more. What waited was written for another situation: the user decides."""
        text = "\n".join(self._waiting)
        self._waiting.clear()
        self.running = self.stopping = False
        self._hint_until = 0.0
        return text

    def _form(self, questions: list[dict[str, Any]], answers: list[str], offered: bool = False) -> None:
        """Ask what the model asked, one question after the other; the answers go back as one message. `offered`: one of them
        was offered by the model."""
        several, asked = len(questions) > 1, questions[len(answers)]
        choices = [one_line(str(choice), CHOICE_CHARS) for choice in asked.get("candidates") or []]
        if not several and not choices:
            return  # it was shown, and the next message answers it

        def chosen(index: int) -> None:
            self.show([Piece("user", choices[index])])
            answered(choices[index], True)

        def answered(text: str, chosen: bool = offered) -> None:
            told = [*answers, text]
            if len(told) < len(questions):
                return self._form(questions, told, chosen or offered)
            if several:
                text = "\n".join(f"{n}. {answer}" for n, answer in enumerate(told, 1))
            return self._send(text, chosen or offered)

        title = f"{len(answers) + 1}/{len(questions)} {clean(str(asked.get('question')))}" if several else ""
        self.choose(title, Menu(choices, chosen, other=answered, marked=None))


def _batch(queue: Queue[dict[str, Any]]) -> list[dict[str, Any]]:
    """All items that are there, after a short wait for the first."""
    items: list[dict[str, Any]] = []
    with contextlib.suppress(Empty):
        items.append(queue.get(timeout=0.2))
        while "done" not in items[-1] and len(items) < 5000:
            items.append(queue.get_nowait())
    return items
