"""The layer below every messenger: who may talk, what waits, what a task shows, questions, permissions, files.

    face (tgapp.py, webapp.py)   messages and pressed buttons in  →  Hub.receive, Hub.press
    Hub                          who is let in; one Conversation for each chat; what watchers left in the outbox
    Conversation                 a queue, an agent, and what the commands of the terminal chat see of both
    Messenger                    how a text, a file, a button gets there: all that a face has to supply

Nothing here waits for a messenger or a model in the thread of a face: /stop is heard at any time.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from genericagent import paths, prompts
from genericagent.abort import Abort
from genericagent.cli import commands
from genericagent.cli.chat import Menu
from genericagent.cli.log import in_one_line
from genericagent.cli.render import Piece
from genericagent.cli.transcript import retold, transcript
from genericagent.errors import GAError, SessionError
from genericagent.faces.markup import Part, fenced, literal, parts, plain_parts
from genericagent.faces.outgoing import Messenger, Outgoing, Streamed
from genericagent.faces.state import State
from genericagent.faces.turns import Turns, retold_as_markdown
from genericagent.safety.asking import NO, Answer, Scope
from genericagent.safety.term import clean, one_line
from genericagent.store import atomic
from genericagent.store.outbox import Outbox

if TYPE_CHECKING:
    from agentmain import GenericAgent

# those of the terminal chat that make sense here; three more are methods of Conversation
COMMANDS = (
    "new",
    "resume",
    "continue",
    "sessions",
    "llm",
    "btw",
    "cost",
    "memory",
    "approve",
    "steer",
    "plan",
    "context",
    "compact",
)
CODE_DIGITS, MOST_WRONG, MOST_WRONG_OF_ALL = 8, 5, 1_000
CODE = re.compile(r"\d{8}")
SHOWN = 5.0  # seconds
LAST_WORDS = 3.0  # seconds that the end waits for what is on its way to a chat
REPLAYED = 4  # things of a conversation that is gone on with
LABEL = 60  # characters of a button
LONGEST_QUESTION = 20_000  # characters of what is asked permission for
LONGEST_REPORT = 100_000  # characters of what a watcher left
LARGEST_FILE = 50 << 20  # bytes of one that is handed over (Bot API, sendDocument)
MOST_HANDED = 100 << 20  # bytes of all files that wait to be sent to a chat: they are in memory
_SEVERAL = re.compile(r"[\[(（【]?(multi-?\s?select|select all|choose all|多选|可多选)", re.I)
_log = logging.getLogger("genericagent.faces")


def say(key: str, /, **values: object) -> str:
    return prompts.text("faces", key, **values)


@dataclass(frozen=True)
class Waits:
    """Seconds, and their scale in tests."""

    pace: float = 2.0  # between two edits of a message
    approval: float = 300.0  # until no answer is a no
    outbox: float = 5.0  # between two looks into it
    retry: float = 1.0  # after the first failure of the network


@dataclass(frozen=True)
class File:
    """One that came; `path` is ours. `kind` in words, `name` as its sender called it."""

    path: Path
    kind: str
    name: str = ""
    caption: str = ""

    @property
    def picture(self) -> bool:
        return self.path.suffix.lower() in (".jpg", ".jpeg", ".png", ".gif", ".webp")


@dataclass(frozen=True)
class Incoming:
    """A message as every messenger has it. `keys`: its numbers in State; `forwarded`: it is not the user's own words."""

    chat: str
    user: str
    text: str = ""
    files: tuple[File, ...] = ()
    forwarded: bool = False
    keys: tuple[int, ...] = ()
    source: str = "user"  # "choice": the model has offered it


@dataclass
class OpenMenu:
    """Buttons that wait to be pressed: by `user` alone, on `message` alone, once."""

    rows: list[str]
    then: Callable[[int], str]  # the index of a row → what the message says from then on
    user: str
    told: str = ""
    message: str = ""
    several: set[int] | None = None  # the rows that are ticked, when it may be more than one
    chosen: Callable[[list[int]], str] | None = None
    timer: threading.Timer | None = None


class Conversation:
    """One chat's. What commands use of it is what they use of the terminal chat."""

    def __init__(self, hub: Hub, chat: str, agent: GenericAgent) -> None:
        self.hub, self.chat, self.agent = hub, chat, agent
        self.texts: Mapping[str, str] = prompts.catalog("chat")
        self.out = Outgoing(hub.messenger, chat, pace=hub.waits.pace, first_pause=hub.waits.retry)
        self.listed: list[str] = []
        self.running = self.stopping = False
        self.user = self._owner = self._steerer = ""  # who spoke last; who ordered what runs, and who steered it
        self._began, self._heard = 0.0, -1  # _heard: the number of the last message
        self._waiting: deque[Incoming] = deque()
        self._menus: dict[str, OpenMenu] = {}
        self._asides: list[Abort] = []  # of commands that run beside
        self._question: Callable[[Incoming], None] | None = None  # takes what is typed instead of a choice
        self._wake = threading.Condition(threading.RLock())
        self._closed = False
        agent.verbose, agent.can_ask = True, True
        self._threads = [
            threading.Thread(target=target, name=f"{name} {chat}", daemon=True)
            for target, name in ((agent.run, "agent"), (self._work, "chat"))
        ]
        for thread in self._threads:
            thread.start()

    # what comes in

    def receive(self, incoming: Incoming) -> None:
        """A message of somebody who is let in."""
        self.user, self._heard = incoming.user, max(incoming.keys, default=self._heard)
        word, args = commands.parse(incoming.text, lambda path: False) or ("", "")
        if not incoming.files and not incoming.forwarded and (word or incoming.text.startswith("/session.")):
            self.hub.state.done(incoming.keys)
            return self._command(word, args) if word else self.reply(say("no_settings"))
        question = self._question if incoming.user == self._owner else None  # another one of a group was not asked
        self._question = None if question else self._question
        if question and not incoming.files and not incoming.forwarded:
            return question(incoming)
        if question:
            self._close_menus()
        return self._enqueue(incoming)

    def submit(self, text: str) -> None:
        self._enqueue(Incoming(self.chat, self.user, text))

    def _enqueue(self, incoming: Incoming) -> None:
        with self._wake:
            busy = self.running or bool(self._waiting)
            self._waiting.append(incoming)
            n = len(self._waiting)
            self._wake.notify_all()
            asked = any(menu.timer for menu in self._menus.values())
        if busy:
            self.reply(say("queued", n=n) + (f"\n{say('press_one')}" if asked else ""))

    def _command(self, word: str, args: str) -> None:
        own = {"start": self._start, "help": self._help, "status": self._status, "stop": self._stop}
        try:
            if word in own:
                own[word]()
            elif word in COMMANDS:
                commands.run(self, f"/{word} {args}")  # type: ignore[arg-type]  # it is what commands use of a chat
            else:
                self.reply(say("unknown_command", word=word))
                self._help()
        except Exception as error:  # a bug ends this command, not the chat
            _log.exception("/%s failed", word)
            self.reply(f"{type(error).__name__}: {one_line(str(error), 300)}")

    def _start(self) -> None:
        self.reply(say("hello"))

    def _help(self) -> None:
        self.reply("\n".join([f"/{name} – {about}" for name, about in menu_of_commands()] + ["", say("commands")]))

    def _status(self) -> None:
        agent, running = self.agent, self.running
        turn = agent.handler.current_turn if running and agent.handler else 0
        state = (
            say("status_runs", seconds=int(time.monotonic() - self._began), turn=turn)
            if running
            else say("status_idle")
        )
        model = one_line(agent.client.name) if agent.config.models else self.texts["no_models"]
        self.reply(
            say(
                "status",
                state=state,
                model=model,
                workspace=paths.shown(agent.workspace),
                queued=len(self._waiting),
                session=agent.session_id or "–",
            )
        )

    def _stop(self) -> None:
        if not self.stop():
            self.reply(self.texts["nothing_runs"])

    def press(self, user: str, message: str, data: str) -> str:
        """A button was pressed; returns what is shown to the one who did."""
        id, _, row = data.partition(":")
        with self._wake:
            menu = self._menus.get(id)
            if menu:  # the press may be faster than the answer that tells which message it is
                self._wake.wait_for(lambda: menu.message, SHOWN)
            if menu is None or self._menus.get(id) is not menu or not row.isdecimal() or menu.message != message:
                return say("expired")
            if menu.user != user:
                return say("not_yours")
            index = int(row)
            if menu.several is not None and index < len(menu.rows):
                menu.several ^= {index}
                self.out.change(
                    lambda: message, plain_parts(menu.told, self.out.messenger.limit)[-1], self._buttons(id, menu)
                )
                return ""
            if index >= len(menu.rows) + 2 * (menu.several is not None):
                return say("expired")
            if menu.several is not None and index == len(menu.rows) and not menu.several:
                return say("choose_one")
            del self._menus[id]
        if menu.timer:
            menu.timer.cancel()
        try:
            if menu.several is not None and index == len(menu.rows) and menu.chosen:
                told = menu.chosen(sorted(menu.several))
            else:
                told = menu.then(index)
        except GAError as error:
            told = str(error)
        self._settle(menu, told)
        return ""

    # what commands use

    def say(self, key: str, **values: object) -> None:
        self.reply(self.texts[key].format(**values))

    error = say

    def reply(self, text: str) -> None:
        self.out.say(clean(self.agent.redact(text)))

    def choose(self, title: str, menu: Menu) -> None:
        rows = [one_line(row, LABEL) for row in menu.rows]

        def then(index: int) -> str:
            menu.then(index)
            return rows[index]

        self._offer(OpenMenu(rows, then, self.user, title))

    def forget(self) -> None:
        """The conversation was replaced: open questions are void, and the next start goes on with this one."""
        self._question = None
        self._close_menus()
        self.hub.state.belongs(self.chat, self.agent.session_id)

    def replay(self) -> None:
        """What the conversation was about and ended with: it may not be the one that the messenger shows above."""
        try:
            told = retold(transcript(self.agent.records(), clean), REPLAYED, self.texts)
        except GAError as error:
            return self.reply(in_one_line(error, "look at the conversation"))
        if text := retold_as_markdown(told, self.texts):
            self.out.finish(Streamed(), clean(self.agent.redact(text)))
        return None

    @property
    def shell(self) -> Conversation:
        """Where commands that wait are run beside the conversation."""
        return self

    def beside(self, name: str, work: Callable[[Abort], list[Piece]]) -> None:
        """Do what /stop stops, and show what it returns."""
        stop = Abort()

        def run() -> None:
            try:
                text = "\n".join(piece.text for piece in work(stop))
            except Exception as error:
                text = in_one_line(error, f"run {name}")
            with self._wake:
                if stop in self._asides:  # else it was stopped, and that was told
                    self._asides.remove(stop)
                    self.reply(text)

        self._asides.append(stop)
        threading.Thread(target=run, name="beside", daemon=True).start()

    def steered(self, text: str) -> bool:
        """Give the running task a word at its next turn; False when none runs."""
        with self._wake:
            if not self.running or self.stopping:
                return False
            self.agent.intervene = "\n".join(filter(None, [self.agent.intervene, text]))
            self._steerer = self.user
            return True

    def stop(self) -> bool:
        """End what runs and drop what waits, at once; False when there is neither."""
        with self._wake:
            coming = self.hub.drop_coming(self.chat, self._heard)
            dropped = [key for one in self._waiting for key in one.keys]
            n = len(self._waiting) + len(coming)
            self._waiting.clear()
            question, self._question = self._question, None
            asides, self._asides = self._asides, []
            self.agent.intervene = None  # a word for the task that ends
            for stop in asides:
                stop.set()
            if not self.running and not n and not asides and not question and self.out.idle():
                return False
            self.stopping = self.running
            self.agent.abort()
            self.out.cancel()
        self.hub.state.done([*dropped, *coming])
        self._close_menus()
        self.reply(say("stopped_more", n=n) if n else say("stopped"))
        return True

    # menus

    def _offer(self, menu: OpenMenu, found: Sequence[Part] = (), failed: Callable[[], object] = lambda: None) -> str:
        """Show buttons below a text; returns the menu's id. `failed`: it could not be shown whole."""
        id = uuid.uuid4().hex[:12]
        with self._wake:
            self._menus[id] = menu

        def shown(message: str) -> None:
            with self._wake:
                menu.message = message
                self._wake.notify_all()

        def refused() -> None:
            with self._wake:
                self._menus.pop(id, None)
            if menu.timer:
                menu.timer.cancel()
            failed()

        text = found or plain_parts(menu.told or "?", self.out.messenger.limit)
        self.out.ask(text, self._buttons(id, menu), shown, refused)
        return id

    def _buttons(self, id: str, menu: OpenMenu) -> list[list[tuple[str, str]]]:
        ticked = menu.several
        rows = [f"{'✓ ' if ticked is not None and n in ticked else ''}{row}" for n, row in enumerate(menu.rows)]
        if ticked is not None:
            rows += [say("done"), say("other")]
        return [[(row, f"{id}:{n}")] for n, row in enumerate(rows)]

    def _settle(self, menu: OpenMenu, told: str) -> None:
        """The message of a menu says what came of it, without its buttons; it may be on its way still."""
        text = "\n".join(filter(None, [menu.told[: self.out.messenger.limit // 2], told]))
        part = plain_parts(clean(self.agent.redact(text)), self.out.messenger.limit)[-1]
        self.out.change(lambda: menu.message, part)

    def _close_menus(self, told: str = "") -> None:
        with self._wake:
            menus = list(self._menus.values())
            self._menus.clear()
        for menu in menus:
            if menu.timer:
                menu.timer.cancel()
            self._settle(menu, told or say("closed"))

    # tasks

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if self._closed:
                    return
                incoming = self._waiting.popleft()
                self.running, self.stopping, self._began = True, False, time.monotonic()
                self._owner, self.agent.intervene = incoming.user, None
            try:
                self._task(incoming)
            except Exception as error:  # a bug ends this task's display, not the chat
                self.reply(in_one_line(error, "show a task"))
            finally:
                with self._wake:
                    self.running = self.stopping = False

    def _task(self, incoming: Incoming, source: str = "user") -> None:
        self.hub.state.begin(incoming.keys)
        queue = self.agent.put_task(**self._request(incoming))
        turns, live, last = Turns(self.texts), Streamed(), dict[str, Any]()
        self.out.stream(live, "", f"⏳ {literal(say('begun'))}")
        while "done" not in last:
            items = _batch(queue)
            last = items[-1] if items else last
            with self._wake:  # nothing goes out after a stop
                if self.stopping:
                    self.agent.abort()  # the first one may have come before the task had begun
                    continue
                for item in items:
                    if (event := item.get("event") or {}).get("kind") == "ask":
                        self._may(event)
                    elif (whole := turns.feed(item)) is not None:
                        self.out.finish(live, whole)
                        live = Streamed()
                if items and "done" not in last:
                    tail, state = turns.live()
                    self.out.stream(live, "\n\n".join(filter(None, [turns.text, tail])), state)
        with self._wake:
            if self.stopping:
                self._goes_on()
                return self.hub.state.done(incoming.keys)
            self.out.finish(live, turns.text)
            for name in turns.files:
                self._hand_over(name)
            unheard, self.agent.intervene = self.agent.intervene, None
            if unheard:  # there was no next turn
                self._waiting.appendleft(Incoming(self.chat, self._steerer, unheard))
            if question := last.get("question"):
                self._form(question.get("questions") or [question], [])
            self._goes_on()
            self.out.put(
                lambda: self.hub.state.done(incoming.keys), undone=lambda why: self.hub.state.done(incoming.keys)
            )
        return None

    def _goes_on(self) -> None:
        """The next start goes on with this conversation; if that cannot be noted, what was said is shown all the same."""
        try:
            self.hub.state.belongs(self.chat, self.agent.session_id)
        except SessionError as error:
            self.reply(str(error))

    def _request(self, incoming: Incoming) -> dict[str, Any]:
        """What put_task gets: the user's words, what came with them and is not theirs, pictures."""
        outside, told = list[tuple[str, str]](), list[str]()
        for file in incoming.files:
            told.append(say("got_file", kind=file.kind, path=file.path))
            if file.name:  # not said by the user: a host in it is none that they have named
                outside.append(("", say("got_called", path=file.path, name=safe_name(file.name))))
            if file.caption and not incoming.forwarded:
                told.append(say("got_caption", text=file.caption))
            elif file.caption:
                outside.append((say("forwarded"), file.caption))
        text = incoming.text
        if incoming.forwarded and text:
            outside.append((say("forwarded"), text))
            text = say("forwarded")
        if incoming.files and not text and not any(file.caption for file in incoming.files):
            told.append(say("no_words"))
        origin = f"{self.hub.messenger.name}:{self.chat}"
        if incoming.forwarded and not any(where for where, _ in outside):
            outside.append((say("forwarded"), "…"))  # a file's content is not the user's either
        outside.append(("", say("reads_in", face=self.hub.messenger.name, origin=origin)))
        return {
            "query": "\n".join(filter(None, [text, *told])),
            "source": incoming.source,
            "images": self._pictures(incoming.files),
            "outside": outside,
        }

    def _pictures(self, files: Sequence[File]) -> list[Any]:
        """Those that the model can look at, as content blocks; a damaged one is a file like any other."""
        from genericagent.tools.images import image_block

        found = list[Any]()
        if self.agent.config.models and self.agent.takes_images():
            for file in files:
                with contextlib.suppress(GAError):
                    found += [image_block(file.path)] if file.picture else []
        return found

    def _hand_over(self, name: str) -> None:
        """Send a file that the answer names, as it is now."""
        shown = one_line(name, 200)
        try:
            data = self._file(name, min(MOST_HANDED - self.out.held(), LARGEST_FILE))
        except (OSError, ValueError, RuntimeError) as error:  # an odd name, a loop of links, no rights
            return self.reply(say("file_failed", path=shown, why=one_line(str(error), 200)))
        if isinstance(data, str):
            return self.reply(say(data, path=shown))
        return self.out.send_file(
            Path(name.strip()).name, data, lambda why: self.reply(say("file_failed", path=shown, why=why))
        )

    def _file(self, name: str, most: int) -> bytes | str:
        """What is in a file of the workspace or the agent's folder, or the key of why it is not sent. Raises OSError."""
        bases, zones = (self.agent.workspace, paths.temp()), self.agent.guard.zones
        places = [base / paths.expand(name.strip()) for base in bases]
        if (path := next((place for place in places if place.is_file()), None)) is None:
            return "file_missing"
        real = path.resolve()
        if not any(real.is_relative_to(base.resolve()) for base in bases) or zones.secret(real) or zones.secret(path):
            return "file_outside"
        return atomic.read_there(real, most)

    # questions

    def _may(self, event: Mapping[str, Any]) -> None:
        """Ask whether a call may run: only who ordered the task can say yes, to exactly this, in time."""
        id, question, whole = (clean(str(event.get(key) or "")) for key in ("id", "question", "whole"))
        shown = whole if len(whole) <= LONGEST_QUESTION else question
        minutes = round(self.hub.waits.approval / 60)
        about = f"**{literal(say('ask_head'))}**\n\n{fenced(shown)}\n\n{literal(say('ask_until', minutes=minutes))}"
        found = parts(about, self.out.messenger.limit)
        rows, scopes = [say("ask_once"), say("ask_session"), say("ask_no")], list[Scope](["once", "session", "no"])
        if shown is not whole:
            found += plain_parts(say("ask_long", n=len(whole)), self.out.messenger.limit)
            rows, scopes = rows[2:], scopes[2:]

        def then(index: int) -> str:
            scope = scopes[index]
            return say(f"asked_{scope}") if self.agent.answer(id, Answer(scope)) else say("expired")

        menu = OpenMenu(rows, then, self._owner, question)
        menu_id = self._offer(menu, found, lambda: self.agent.answer(id, NO))

        def late() -> None:
            with self._wake:
                if self._menus.pop(menu_id, None) is None:
                    return
            self.agent.answer(id, NO)
            self._settle(menu, say("asked_late", minutes=minutes))

        menu.timer = threading.Timer(self.hub.waits.approval, late)
        menu.timer.daemon = True
        menu.timer.start()

    def _form(self, questions: list[dict[str, Any]], answers: list[str], chosen: bool = False) -> None:
        """Ask what the model asked, one question after the other; the answers go back as one message."""
        asked = questions[len(answers)]
        text = clean(str(asked.get("question") or "?"))
        rows = [one_line(str(choice), 300) for choice in asked.get("candidates") or []]

        def answered(answer: Incoming) -> None:
            self._question = None
            self._close_menus(f"→ {one_line(answer.text, 200)}" if answer.text else "")
            told, picked = [*answers, answer.text], chosen or answer.source == "choice"
            if len(told) < len(questions):
                self.hub.state.done(answer.keys)
                return self._form(questions, told, picked)
            whole = "\n".join(f"{n}. {one}" for n, one in enumerate(told, 1)) if len(told) > 1 else told[0]
            return self._enqueue(replace(answer, text=whole, source="choice" if picked else "user"))

        def pick(indexes: list[int]) -> str:
            answer = "; ".join(rows[n] for n in indexes)
            answered(Incoming(self.chat, self._owner, answer, source="choice"))
            return f"→ {answer}"

        def then(index: int) -> str:
            if index < len(rows):
                return pick([index])
            self._question = answered
            return say("type_it")

        self._question = answered
        if not rows:
            return self.reply(text)
        menu = OpenMenu([one_line(row, LABEL) for row in rows], then, self._owner, text)
        if _SEVERAL.search(text):
            menu.several, menu.chosen = set(), pick
        self._offer(menu, plain_parts(f"{text}\n{say('or_type')}", self.out.messenger.limit))
        return None

    def close(self) -> None:
        """Stop what runs, and let go of the session."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self.agent.close()
        for thread in self._threads:
            thread.join(5)
        self._close_menus(say("ended"))
        self.out.close(LAST_WORDS)
        self.agent.release()


class Access:
    """Who may talk: users by their numbers, in private or in listed chats. Nobody listed: who sends the code becomes the owner."""

    def __init__(self, users: Iterable[int], chats: Iterable[int], state: State, show: Callable[[str], None]) -> None:
        self.users, self._chats = frozenset(users), frozenset(chats)
        self._state, self._show, self._wrong = state, show, Counter[int]()
        self._code = ""
        if not self.users and state.owner is None:
            self._new_code()

    def lets_in(self, user: int | None, chat: int, private: bool) -> bool:
        known = user is not None and (user in self.users or (not self.users and user == self._state.owner))
        return known and (private or chat in self._chats)

    def writes_to(self, chat: int) -> bool:
        """Whether somebody in this chat is let in. A private chat has the number of its user."""
        return chat in self._chats or self.lets_in(chat, chat, True)

    def pair(self, user: int, text: str) -> bool:
        """Whether this private message is the code: then its sender is the owner from now on, and the code is used up."""
        if not self._code or not CODE.fullmatch(text.strip()):
            return False
        if self._wrong[user] >= MOST_WRONG:  # nor does anybody else get another code for it
            return False
        if not secrets.compare_digest(text.strip(), self._code):
            self._wrong[user] += 1
            if self._wrong.total() >= MOST_WRONG_OF_ALL:
                self._new_code()
            return False
        self._code = ""
        self._state.set(owner=user)
        return True

    def _new_code(self) -> None:
        self._code = "".join(secrets.choice("0123456789") for _ in range(CODE_DIGITS))
        self._wrong = Counter[int]()  # by user
        self._show(self._code)


class Hub:
    """All chats of one messenger. `make_agent` gives each a GenericAgent of its own."""

    def __init__(
        self, messenger: Messenger, make_agent: Callable[[], GenericAgent], state: State, waits: Waits | None = None
    ) -> None:
        self.messenger, self.state, self.waits = messenger, state, waits or Waits()
        self._make_agent, self._conversations = make_agent, dict[str, Conversation]()
        self._lock, self._fetching, self._ended = threading.Lock(), threading.Lock(), threading.Event()
        self._delivering: set[str] = set()
        self._coming, self._dropped = dict[str, set[int]](), set[int]()
        threading.Thread(target=self._look_into_outbox, name="outbox", daemon=True).start()

    def conversation(self, chat: str) -> Conversation:
        with self._lock:
            if chat not in self._conversations:
                agent, faults = self._make_agent(), list[str]()
                if session := self.state.chats.get(chat):
                    try:
                        agent.resume(session)
                    except GAError as error:
                        faults.append(say("begins_anew", why=error))
                self._conversations[chat] = Conversation(self, chat, agent)
                for fault in faults:
                    self._conversations[chat].reply(fault)
            return self._conversations[chat]

    def coming(self, chat: str, key: int) -> None:
        """A message is on its way to `receive`: what belongs to it is being fetched. /stop drops it as well."""
        with self._fetching:
            self._coming.setdefault(chat, set()).add(key)

    def drop_coming(self, chat: str, before: int) -> set[int]:
        """The keys of those that came before that one."""
        with self._fetching:
            found = {key for key in self._coming.get(chat, ()) if key < before}
            self._coming.get(chat, set()).difference_update(found)
            self._dropped |= found
            return found

    def nothing_comes(self, chat: str, keys: Iterable[int]) -> bool:
        """They are not on their way any more; whether /stop has dropped them."""
        with self._fetching:
            self._coming.get(chat, set()).difference_update(keys)
            return bool(self._dropped.intersection(keys))

    def receive(self, incoming: Incoming) -> None:
        conversation = self.conversation(incoming.chat)
        if self.nothing_comes(incoming.chat, incoming.keys):
            return self.state.done(incoming.keys)  # with /stop went all that belonged to it
        return conversation.receive(incoming)

    def press(self, chat: str, user: str, message: str, data: str) -> str:
        """A button of somebody who is let in; returns what is shown to them, "" for nothing."""
        return self.conversation(chat).press(user, message, data)

    def interrupted(self, chat: str, text: str, keys: Sequence[int]) -> None:
        """Tell that a message was being worked on when the program ended."""
        out = self.conversation(chat).out
        out.say(say("interrupted", text=one_line(text, 200)))
        out.put(lambda: self.state.done(keys), undone=lambda why: self.state.done(keys))

    def tell(self, chat: str, text: str) -> None:
        self.conversation(chat).reply(text)

    def _look_into_outbox(self) -> None:
        """What watchers and jobs left for the chats that ordered it, each once."""
        outbox = Outbox(paths.home() / "outbox")
        while not self._ended.wait(self.waits.outbox):
            try:
                for message in outbox.pending():
                    face, _, chat = message["origin"].partition(":")
                    if face == self.messenger.name and message["id"] not in self._delivering:
                        self._delivering.add(message["id"])
                        self._deliver(outbox, message, chat)
            except Exception:  # a fault in one message must not end all deliveries
                _log.exception("cannot deliver from the outbox")

    def _deliver(self, outbox: Outbox, message: dict[str, Any], chat: str) -> None:
        if not self.messenger.knows(chat):
            return outbox.fail(message["id"], say("unknown_chat"))
        conversation, id = self.conversation(chat), message["id"]
        text = f"{message['title']}: {message['text']}"
        if (more := len(text) - LONGEST_REPORT) > 0:
            text = f"{text[:LONGEST_REPORT]}\n{say('report_cut', n=more)}"
        conversation.out.say(clean(conversation.agent.redact(text)))
        return conversation.out.put(lambda: outbox.ack(id), undone=lambda why: outbox.fail(id, why))

    def close(self) -> None:
        """Stop what runs, with all its processes."""
        from genericagent.tools.jobs import kill_background

        self._ended.set()
        for conversation in list(self._conversations.values()):
            conversation.close()
        kill_background()


def menu_of_commands() -> list[tuple[str, str]]:
    """(name, what it does) of every command of a messenger."""
    texts, ours = prompts.catalog("chat"), prompts.catalog("faces")
    names = ["start", "help", "status", "stop", *COMMANDS]
    return [(name, ours.get(f"help_{name}") or texts[f"help_{name}"]) for name in names]


def safe_name(name: str) -> str:
    """A file's name as somebody else has chosen it, without anything that could pass for an address or a path."""
    ending = safe_ending(name)
    return re.sub(r"[^\w-]", "_", name.removesuffix(ending)[:60]) + ending


def safe_ending(name: str) -> str:
    """How such a name ends, as in ".pdf"; "" when that is odd."""
    found = re.search(r"\.[A-Za-z0-9]{1,8}$", name)
    return found[0] if found else ""


def _batch(queue: SimpleQueue[dict[str, Any]]) -> list[dict[str, Any]]:
    """All items that are there, after a short wait for the first."""
    items = list[dict[str, Any]]()
    with contextlib.suppress(Empty):  # that is the end of what is there
        items.append(queue.get(timeout=0.2))
        while "done" not in items[-1] and len(items) < 5_000:
            items.append(queue.get_nowait())
    return items
