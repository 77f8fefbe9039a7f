"""What goes out to one chat, in order, by a thread of its own: nothing that a messenger makes us wait for holds up anybody else.

A running task has one `Streamed` at a time, that is brought to what it says now and then; all else is a job in a queue. What
has to arrive waits as long as the messenger wants; a job that fails is told to the log and never ends the thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..errors import Undelivered
from ..prompts import text as text_of
from .markup import Part, parts, plain_parts

Buttons = Sequence[Sequence[tuple[str, str]]]  # rows of (label, what comes back when it is pressed)

LONGEST_PAUSE = 30.0  # seconds between two tries when there is no network
_log = logging.getLogger(__name__)


class Lost(Undelivered):
    """No connection, or no answer: later it may work."""


class Later(Undelivered):
    """The messenger wants us to wait so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"wait {seconds} s")
        self.seconds = seconds


class Refused(Undelivered):
    """It will not take this message as it is."""


class Unknown(Lost):
    """It does not know the request, or it does not know us."""


class Gone(Undelivered):
    """This chat cannot be written to any more."""


class Messenger(Protocol):
    """What a face does to one chat. Called by the threads of outgoing; all of it may raise those above.

    `limit`: UTF-16 units of a message. `markup`: the part's html is meant, else its plain text.
    """

    name: str
    limit: int

    def send(self, chat: str, part: Part, markup: bool, buttons: Buttons = ()) -> str:
        """Returns the message's id."""

    def edit(self, chat: str, message: str, part: Part, markup: bool, buttons: Buttons = ()) -> None: ...

    def delete(self, chat: str, message: str) -> None: ...

    def draft(self, chat: str, draft: int, part: Part) -> bool:
        """Show what is being written; False where that can't be done: then messages are edited instead."""

    def send_file(self, chat: str, name: str, data: bytes) -> None: ...

    def knows(self, chat: str) -> bool:
        """Whether somebody in this chat is let in: what watchers left for another one is not sent."""


@dataclass(eq=False)
class Streamed:
    """The messages of one turn. `text` is Markdown; `state` says what is going on, "" once it is over."""

    text: str = ""
    state: str = ""
    shown: str = ""  # of the text, in `sent`
    sent: list[tuple[str, Part]] = field(default_factory=list)  # (id, what it shows)
    draft: int = 0
    task: int = 0  # which of the chat's tasks it belongs to


@dataclass(eq=False)
class Job:
    """`work` may raise, and is then tried again as the messenger says. `task`: it goes with the running task. `undone` gets
    why the chat cannot be written to any more. `size`: bytes of a file that it holds."""

    work: Callable[[], object]
    task: bool = False
    undone: Callable[[str], None] | None = None
    size: int = 0


class Outgoing:
    """One chat's. `pace`: seconds between two looks at what is being written; `wait`: of the clock of `now`."""

    def __init__(
        self,
        messenger: Messenger,
        chat: str,
        *,
        pace: float,
        now: Callable[[], float] = time.monotonic,
        first_pause: float = 1.0,
    ) -> None:
        self.messenger, self.chat = messenger, chat
        self._pace, self._now, self._first_pause = pace, now, first_pause
        self._jobs: deque[Job] = deque()
        self._live: Streamed | None = None
        self._drafts, self._task, self._changed, self._ended = 0, 0, False, False
        self._again = self._look = 0.0  # when the next try, and the next look at the live text, may be
        self._failures = 0
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"to {messenger.name} {chat}", daemon=True)
        self._thread.start()

    # what conversations say

    def say(self, text: str, *, task: bool = False) -> None:
        """Text as it is."""
        self.put(lambda: self._all(plain_parts(text, self.messenger.limit)), task)

    def ask(
        self, found: Sequence[Part], buttons: Buttons, then: Callable[[str], None], failed: Callable[[], None]
    ) -> None:
        """A message with buttons; `then` gets its id. A part was refused: `failed`, and no button below half a question."""
        done, task = list[str](), self._task

        def work() -> None:
            while len(done) < len(found) and task == self._task:
                last = len(done) == len(found) - 1
                if not (id := self._put(found[len(done)], buttons if last else ())):
                    return failed()
                done.append(id)
            return then(done[-1]) if len(done) == len(found) else None

        self.put(work, task=True, undone=lambda why: failed())

    def change(self, message: Callable[[], str], part: Part, buttons: Buttons = ()) -> None:
        """Edit a message of ours; "" when it was never sent."""

        def work() -> None:
            if id := message():
                self._edit(id, part, buttons)

        self.put(work)

    def send_file(self, name: str, data: bytes, failed: Callable[[str], None]) -> None:
        def work() -> None:
            try:
                self.messenger.send_file(self.chat, name, data)
            except Refused as error:
                failed(str(error))

        self.put(work, task=True, size=len(data))

    def put(
        self, work: Callable[[], object], task: bool = False, undone: Callable[[str], None] | None = None, size: int = 0
    ) -> None:
        """Do this in its turn."""
        with self._wake:
            self._jobs.append(Job(work, task, undone, size))
            self._wake.notify()

    def held(self) -> int:
        """Bytes of the files that wait to go out."""
        with self._wake:
            return sum(job.size for job in self._jobs)

    def stream(self, live: Streamed, text: str, state: str) -> None:
        """Show this as it grows; call it at each change, and `finish` at the end."""
        with self._wake:
            self._own(live)
            changed = (live.text, live.state) != (text, state)
            live.text, live.state = text, state
            self._live, self._changed = live, self._changed or changed
            self._wake.notify()

    def finish(self, live: Streamed, text: str) -> None:
        """It will not change any more, and has to arrive whole."""
        with self._wake:
            self._own(live)
            self._live = None
            live.text, live.state = text, ""
            self._jobs.append(Job(lambda: self._bring(live, over=True), task=True))
            self._wake.notify()

    def _own(self, live: Streamed) -> None:
        if not live.draft:
            self._drafts += 1
            live.draft, live.task = self._drafts, self._task

    def cancel(self) -> None:
        """The task was stopped: nothing of it goes out any more."""
        with self._wake:
            live, self._live, self._task = self._live, None, self._task + 1
            self._jobs = deque(job for job in self._jobs if not job.task)
            if live:  # what was shown stays, without a sign that there is more to come
                live.text, live.task = live.shown, self._task
                self._jobs.append(Job(lambda: self._bring(live, over=True)))
            self._wake.notify()

    def close(self, patience: float = 0.0) -> None:
        """The end, after at most so many seconds for what waits."""
        end = self._now() + patience
        while not self.idle() and self._now() < end:
            time.sleep(0.02)
        with self._wake:
            self._ended = True
            self._wake.notify()

    def idle(self) -> bool:
        """Whether nothing waits to go out."""
        with self._wake:
            return not self._jobs and not (self._live and self._changed)

    # the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._ended and (pause := self._pause()) is not None:
                    self._wake.wait(pause)
                if self._ended:
                    return
                job = self._jobs[0] if self._jobs else None
                live, self._changed = self._live, False
            self._try(job, live)

    def _pause(self) -> float | None:
        """Seconds until there may be something to do, None: now. Called with the lock held."""
        due = self._again
        if not self._jobs:
            if not (self._live and self._changed):
                return 3600.0
            due = max(due, self._look)
        left = due - self._now()
        return left if left > 0 else None

    def _try(self, job: Job | None, live: Streamed | None) -> None:
        try:
            if job:
                job.work()
            elif live:
                self._bring(live, over=False)
        except Later as wish:
            self._again = self._now() + wish.seconds
            return self._kept(live)
        except Lost as error:
            self._failures += 1
            pause = min(LONGEST_PAUSE, self._first_pause * 2 ** min(self._failures - 1, 10))
            self._again = self._now() + pause
            _log.warning("%s: %s; next try in %.0f s", self.chat, error, pause)
            return self._kept(live)
        except Gone as error:
            _log.warning("%s cannot be written to, what waited for it is dropped: %s", self.chat, error)
            with self._wake:
                dropped, self._jobs, self._live = list(self._jobs), deque(), None
            for one in dropped:
                try:
                    if one.undone:
                        one.undone(str(error))
                except Exception:
                    _log.exception("cannot tell that a message to %s was dropped", self.chat)
            return None
        except Exception:  # one odd message must not end all others
            _log.exception("cannot send a message to %s", self.chat)
        self._failures = 0
        with self._wake:
            if job:
                if self._jobs and self._jobs[0] is job:  # else it was cancelled
                    self._jobs.popleft()
            else:
                self._look = self._now() + self._pace
        return None

    def _kept(self, live: Streamed | None) -> None:
        with self._wake:
            self._changed = self._live is live is not None or self._changed

    # messages

    def _all(self, found: list[Part]) -> None:
        """Each once, also when this is called again after a failure: what was sent leaves `found`."""
        while found:
            self._put(found[0])
            del found[0]

    def _bring(self, live: Streamed, over: bool) -> None:
        """Make the messages say what `live` says."""
        text = live.text
        wanted = parts(text if over else f"{text}\n\n{live.state}", self.messenger.limit)
        if (
            not over
            and wanted
            and not live.sent[len(wanted) - 1 :]
            and self.messenger.draft(self.chat, live.draft, wanted[-1])
        ):
            wanted = wanted[:-1]
        for n, part in enumerate(wanted):
            if live.task != self._task:
                return
            if n == len(live.sent):
                live.sent.append((self._put(part), part))
            elif live.sent[n][1] != part:
                live.sent[n] = (self._edit(live.sent[n][0], part), part)
        live.shown = text
        while over and len(live.sent) > len(wanted):
            self.messenger.delete(self.chat, live.sent[-1][0])
            live.sent.pop()

    def _put(self, part: Part, buttons: Buttons = ()) -> str:
        """Send with markup, or the same words plain once if that is refused."""
        try:
            return self.messenger.send(self.chat, part, True, buttons)
        except Refused as error:
            _log.warning("sent plain, the markup was refused: %s", error)
        try:
            return self.messenger.send(self.chat, part, False, buttons)
        except Refused as error:
            _log.error("a message of %d characters was refused: %s", len(part.plain), error)
            self.messenger.send(
                self.chat, Part("", text_of("faces", "undelivered", n=len(part.plain), why=error)), False
            )
            return ""

    def _edit(self, message: str, part: Part, buttons: Buttons = ()) -> str:
        """Returns the id of the message that says it now."""
        for markup in (True, False):
            try:
                self.messenger.edit(self.chat, message, part, markup, buttons)
                return message
            except Refused as error:
                _log.warning("an edit was refused: %s", error)
        return self._put(part, buttons)  # the user has deleted it
