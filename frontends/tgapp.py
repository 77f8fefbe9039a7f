"""The agent in Telegram, on python-telegram-bot: `ga telegram`, or `python frontends/tgapp.py`.

One long poll (Bot API, getUpdates) in an event loop; everything else is chat_common's, in threads of its own. A message is
in our State before the next poll tells Telegram that it may forget it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from genericagent.cli.args import run_command

    sys.exit(run_command(["telegram", *sys.argv[1:]]))  # before the extra is looked for: that it is missing is one line

from frontends.chat_common import Access, File, Hub, Incoming, Waits, menu_of_commands, safe_ending, say
from genericagent import paths, prompts
from genericagent.cli.log import in_one_line
from genericagent.config import Telegram as Settings
from genericagent.config import resolve_secret
from genericagent.errors import ConfigError, GAError, SessionError
from genericagent.extras import EXTRAS, install_command
from genericagent.faces.markup import Part
from genericagent.faces.outgoing import Buttons, Gone, Later, Lost, Refused, Unknown
from genericagent.faces.state import State
from genericagent.safety.term import one_line
from genericagent.store import atomic
from genericagent.store.lock import FileLock

try:
    from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, LinkPreviewOptions, Message, Update
    from telegram.error import (
        BadRequest,
        ChatMigrated,
        Conflict,
        Forbidden,
        InvalidToken,
        NetworkError,
        RetryAfter,
        TelegramError,
    )
    from telegram.request import HTTPXRequest
except ImportError as missing:  # an optional extra
    raise ConfigError(f"Telegram needs python-telegram-bot: {install_command(*EXTRAS['telegram'])}") from missing

if TYPE_CHECKING:
    from agentmain import GenericAgent

T = TypeVar("T")
PICTURES, LARGEST_PICTURE = (".jpg", ".jpeg", ".png", ".webp"), 10 << 20  # Bot API, sendPhoto
KINDS = ("photo", "document", "voice", "audio", "video", "video_note", "animation")
UPDATES = ["message", "edited_message", "callback_query"]
LONGEST_PAUSE = 15.0  # seconds between two polls that fail
PATIENCE = 20.0  # seconds for a request to be answered
FETCHES = 3  # tries to get a file
FAR = (
    10_000  # a number that much smaller is no old message: after a quiet week numbers begin anywhere (Bot API, Update)
)
AT_ONCE = ("/stop", "/steer", "/btw", "/status", "/help")  # all else is heard in its turn
_log = logging.getLogger("genericagent.telegram")


class Messenger:
    """One bot as chat_common sees it; called by other threads than the loop's."""

    name, limit = "telegram", 4096

    def __init__(self, bot: Bot, loop: asyncio.AbstractEventLoop, access: Access) -> None:
        self._bot, self._loop, self._access = bot, loop, access
        self._drafts = True

    def send(self, chat: str, part: Part, markup: bool, buttons: Buttons = ()) -> str:
        text: dict[str, Any] = {"text": part.html, "parse_mode": "HTML"} if markup else {"text": part.plain}
        # no preview: Telegram's servers would open each address in a message
        made = self._call(
            self._bot.send_message(
                int(chat),
                **text,
                reply_markup=_keyboard(buttons),
                link_preview_options=LinkPreviewOptions(is_disabled=True),
            )
        )
        return str(made.message_id)

    def edit(self, chat: str, message: str, part: Part, markup: bool, buttons: Buttons = ()) -> None:
        text: dict[str, Any] = {"text": part.html, "parse_mode": "HTML"} if markup else {"text": part.plain}
        try:
            self._call(
                self._bot.edit_message_text(
                    chat_id=int(chat),
                    message_id=int(message),
                    **text,
                    reply_markup=_keyboard(buttons),
                    link_preview_options=LinkPreviewOptions(is_disabled=True),
                )
            )
        except Refused as error:
            if "not modified" not in str(error):
                raise

    def delete(self, chat: str, message: str) -> None:
        with contextlib.suppress(Refused):  # the user was faster, or it is too old
            self._call(self._bot.delete_message(int(chat), int(message)))

    def draft(self, chat: str, draft: int, part: Part) -> bool:
        if self._drafts and int(chat) > 0:  # a private chat
            try:
                self._call(self._bot.send_message_draft(int(chat), draft, part.html, parse_mode="HTML"))
                return True
            except (Refused, Unknown) as error:  # unknown: an API server from before there were drafts
                _log.info("messages are edited, drafts are not to be had: %s", error)
                self._drafts = False
        return False

    def send_file(self, chat: str, name: str, data: bytes) -> None:
        if Path(name).suffix.lower() in PICTURES and len(data) <= LARGEST_PICTURE:
            with contextlib.suppress(Refused):  # odd pictures go as documents
                self._call(self._bot.send_photo(int(chat), data, filename=name))
                return
        self._call(self._bot.send_document(int(chat), data, filename=name))

    def knows(self, chat: str) -> bool:
        return bool(re.fullmatch(r"-?[0-9]{1,19}", chat)) and self._access.writes_to(int(chat))

    def _call(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(request, self._loop).result()
        except RetryAfter as error:
            wish = error.retry_after
            raise Later(wish.total_seconds() if isinstance(wish, timedelta) else float(wish)) from None
        except (
            InvalidToken
        ) as error:  # how this library calls each 404; a wrong token ends the polls, and so the program
            raise Unknown(str(error)) from None
        except (Forbidden, ChatMigrated) as error:
            raise Gone(str(error)) from None
        except BadRequest as error:  # a NetworkError to this library
            raise (Gone if "chat not found" in str(error).lower() else Refused)(str(error)) from None
        except (NetworkError, RuntimeError, asyncio.CancelledError) as error:
            raise Lost(f"{type(error).__name__}: {error}") from None
        except TelegramError as error:
            raise Refused(str(error)) from None


def _keyboard(buttons: Buttons) -> InlineKeyboardMarkup | None:
    rows = [[InlineKeyboardButton(label, callback_data=data) for label, data in row] for row in buttons]
    return InlineKeyboardMarkup(rows) if rows else None


class App:
    """The loop's side: polls, decides who is let in, and hands on. Each chat's messages are handled in their order."""

    def __init__(self, settings: Settings, bot: Bot, hub: Hub, access: Access) -> None:
        self._settings, self._bot, self._hub, self._access, self._state = settings, bot, hub, access, hub.state
        self._queues: dict[int, asyncio.Queue[tuple[Message, int]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_turn = defaultdict[str, asyncio.Lock](asyncio.Lock)  # by chat

    async def run(self) -> None:
        """Until cancelled. Raises ConfigError for a token that Telegram does not know."""
        await self._persist(self._greet)  # after it the bot's own name is known
        for waiting in list(self._state.waiting):
            try:
                self._again(waiting.data, waiting.begun)
            except Exception:  # one odd message must not keep the program from starting
                _log.exception("cannot take up message %s", waiting.key)
                self._state.done([waiting.key])
        while True:
            await self._persist(self._poll)

    async def _persist(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do it until it works, as far as waiting helps."""
        failures = 0
        while True:
            pause = min(LONGEST_PAUSE, self._settings.retry * 2 ** min(failures, 10))
            try:
                return await what()
            except InvalidToken:
                raise ConfigError(
                    "Telegram does not know this token: set `token` in [telegram] as @BotFather gave it"
                ) from None
            except RetryAfter as error:
                wish = error.retry_after
                pause = wish.total_seconds() if isinstance(wish, timedelta) else float(wish)
            except Conflict:
                _tell(
                    "another program polls with the same token, or has a webhook: only one can; end it, or make a new token "
                    "(trying again)"
                )
            except TelegramError as error:
                if failures == 0:
                    _tell(
                        f"no connection to Telegram ({type(error).__name__}: {error}); trying again until there is one"
                    )
            failures += 1
            await asyncio.sleep(pause)

    async def _greet(self) -> None:
        await self._bot.initialize()
        self._soon(self._persist(self._register))
        _tell(f"@{self._bot.username} is ready (Ctrl-C ends it)")

    async def _register(self) -> None:
        """The commands in Telegram's menu: a convenience, that keeps nobody waiting."""
        try:
            await self._bot.set_my_commands(menu_of_commands())
        except BadRequest as error:
            _log.warning("the menu of commands was refused: %s", error)

    async def _poll(self) -> None:
        wait = max(1, int(self._settings.poll))
        updates = await self._bot.get_updates(
            offset=self._state.next or None, timeout=wait, allowed_updates=UPDATES, read_timeout=wait + min(5, wait)
        )
        if updates and updates[0].update_id < self._state.next - FAR:
            self._state.set(next=updates[0].update_id)
        for update in updates:
            try:
                self._take(update)
            except SessionError:  # nothing may be taken that could be lost
                raise
            except Exception:  # one odd update must not end all others
                _log.exception("cannot handle update %s", update.update_id)
                self._state.skip(update.update_id)

    def _take(self, update: Update) -> None:
        """Quick: it only decides whose turn it is."""
        key, user, chat = update.update_id, update.effective_user, update.effective_chat
        message, pressed = update.message, update.callback_query
        if key < self._state.next or user is None or chat is None:
            return self._state.skip(key)
        private = chat.type == "private"
        if not self._access.lets_in(user.id, chat.id, private):
            self._state.skip(key)
            if private and message and message.text and self._access.pair(user.id, message.text):
                self._hub.tell(str(chat.id), say("paired"))
            return None
        if message and self._state.take(key, update.to_dict()):
            return self._hand_on(message, key)
        if self._state.take(key, None):
            if pressed and pressed.message:
                self._soon(
                    self._press(
                        pressed.id, str(chat.id), str(user.id), str(pressed.message.message_id), pressed.data or ""
                    )
                )
            elif update.edited_message and (update.edited_message.text or update.edited_message.caption):
                self._hub.tell(str(chat.id), say("edited"))
        return None

    def _again(self, data: dict[str, Any], begun: bool) -> None:
        """A message from before a restart."""
        update = Update.de_json(data, self._bot)
        if not update.message or not update.effective_user or not update.effective_chat:
            return self._state.done([update.update_id])
        chat = update.effective_chat
        if not self._access.lets_in(update.effective_user.id, chat.id, chat.type == "private"):
            return self._state.done([update.update_id])
        if begun:
            return self._hub.interrupted(
                str(chat.id), update.message.text or update.message.caption or "…", [update.update_id]
            )
        return self._hand_on(update.message, update.update_id)

    def _hand_on(self, message: Message, key: int) -> None:
        text = self._addressed(message)
        if text is None:
            return self._state.done([key])
        if text.startswith(AT_ONCE):  # whatever is being fetched
            return self._soon(self._heard(self._incoming([(message, key)], [], text)))
        self._hub.coming(str(message.chat_id), key)
        if message.chat_id not in self._queues:
            self._queues[message.chat_id] = asyncio.Queue()
            self._soon(self._serve(self._queues[message.chat_id]))
        return self._queues[message.chat_id].put_nowait((message, key))

    def _addressed(self, message: Message) -> str | None:
        """The text; a command in a group without the name of the bot that it is for, None when that is another one."""
        text = message.text or ""
        word, space, rest = text.partition(" ")
        word, at, bot = word.partition("@")
        if not (word.startswith("/") and at) or (
            bot.lower() != self._bot.username.lower() and message.chat.type == "private"
        ):
            return text
        return None if bot.lower() != self._bot.username.lower() else f"{word}{space}{rest}"

    async def _serve(self, queue: asyncio.Queue[tuple[Message, int]]) -> None:
        """A chat's messages one after the other; those of an album are one."""
        ahead: tuple[Message, int] | None = None
        while True:
            group = [ahead or await queue.get()]
            ahead = None
            while (album := group[0][0].media_group_id) and ahead is None:
                try:
                    one = await asyncio.wait_for(queue.get(), self._settings.album)
                except TimeoutError:
                    break
                if one[0].media_group_id == album:
                    group.append(one)
                else:
                    ahead = one
            try:
                files = [file for message, _ in group if (file := await self._fetch(message))]
                text = self._addressed(group[0][0]) or ""
                if text or files:
                    await self._heard(self._incoming(group, files, text))
                else:
                    self._done(group)
            except Exception as error:  # one odd message must not end all others
                _log.exception("cannot handle a message")
                self._hub.tell(str(group[0][0].chat_id), in_one_line(error, "take this message"))
                self._done(group)

    def _done(self, group: list[tuple[Message, int]]) -> None:
        keys = [key for _, key in group]
        self._hub.nothing_comes(str(group[0][0].chat_id), keys)
        try:
            self._state.done(keys)
        except SessionError:  # the next message ends the program, if it cannot be kept either
            _log.exception("cannot note that a message is done")

    def _incoming(self, group: list[tuple[Message, int]], files: list[File], text: str) -> Incoming:
        message = group[0][0]
        user = message.from_user
        foreign = message.forward_origin is not None or message.via_bot is not None
        return Incoming(
            str(message.chat_id),
            str(user.id if user else ""),
            text,
            tuple(files),
            foreign,
            tuple(key for _, key in group),
        )

    async def _heard(self, incoming: Incoming) -> None:
        async with self._in_turn[incoming.chat]:
            await asyncio.to_thread(self._hub.receive, incoming)

    async def _fetch(self, message: Message) -> File | None:
        """The file of a message, in a place and under a name of ours; None when there is none, or it was told why not."""
        chat, most = str(message.chat_id), self._settings.max_file_mb
        if message.text:
            return None
        kind = next((kind for kind in KINDS if getattr(message, kind, None)), None)
        if kind is None:
            if message.effective_attachment:  # else it is a note of Telegram's: somebody joined, something was pinned
                self._hub.tell(chat, say("unread"))
            return None
        found = message.photo[-1] if kind == "photo" else getattr(message, kind)
        name = getattr(found, "file_name", None) or ""
        if (found.file_size or 0) > most * (1 << 20):
            self._hub.tell(chat, say("file_large", name=one_line(name, 100) or kind, most=f"{most:g}"))
            return None
        ending = safe_ending(name) or {"photo": ".jpg", "voice": ".ogg", "audio": ".mp3"}.get(
            kind, ".mp4" if kind != "document" else ""
        )
        path = paths.temp() / "received" / f"telegram-{message.chat_id}-{message.message_id}{ending}"
        why = ""
        for attempt in range(FETCHES):
            await asyncio.sleep(self._settings.retry * attempt)
            try:
                data = await (await found.get_file()).download_as_bytearray()
                if len(data) > most * (1 << 20):
                    self._hub.tell(chat, say("file_large", name=one_line(name, 100) or kind, most=f"{most:g}"))
                    return None
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic.write_own(path, bytes(data))
                return File(path, say(f"kind_{kind}"), name, message.caption or "")
            except (TelegramError, GAError, OSError) as error:
                why = f"{type(error).__name__}: {error}"
        self._hub.tell(chat, say("file_lost", name=one_line(name, 100) or kind, why=one_line(why, 200)))
        return None

    async def _press(self, id: str, chat: str, user: str, message: str, data: str) -> None:
        told = await asyncio.to_thread(self._hub.press, chat, user, message, data)
        with contextlib.suppress(TelegramError):  # too late for the sign at the button; what it did is done
            await self._bot.answer_callback_query(id, told or None)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("a message could not be handled", exc_info=error)


def _tell(line: str) -> None:
    _log.info("%s", line)
    sys.stderr.write(f"{line}\n")


def run_telegram(agents: Callable[[], GenericAgent]) -> int:
    """Serve until the program is ended; `agents` makes one for each chat. Raises ConfigError."""
    agent = agents()
    settings = agent.config.telegram
    if not settings.token:
        raise ConfigError(say("no_token"))
    if not agent.config.models:
        raise ConfigError("; ".join(agent.config.problems) or prompts.say("no_key"))
    lock = FileLock(paths.faces() / "telegram.lock")
    if not lock.acquire():
        raise ConfigError(say("second_copy", pid=(lock.holder() or {}).get("pid", "?")))
    try:
        return asyncio.run(_serve(settings, agents))
    finally:
        lock.release()


async def _serve(settings: Settings, agents: Callable[[], GenericAgent]) -> int:
    state = State(paths.faces() / "telegram.json")
    access = Access(settings.allowed_users, settings.allowed_chats, state, lambda code: _tell(say("code", code=code)))
    how: dict[str, Any] = {
        "proxy": settings.proxy,
        "connect_timeout": 10.0,
        "read_timeout": PATIENCE,
        "write_timeout": PATIENCE,
        "pool_timeout": 10.0,
    }
    bot = Bot(
        resolve_secret(settings.token, "[telegram] token"), f"{settings.base_url.rstrip('/')}/bot", f"{settings.base_url.rstrip('/')}/file/bot",
        request=HTTPXRequest(connection_pool_size=16, **how), get_updates_request=HTTPXRequest(**how),
    )  # fmt: skip
    messenger = Messenger(bot, asyncio.get_running_loop(), access)
    waits = Waits(settings.edit, settings.approval, min(5.0, settings.poll), settings.retry)
    hub = Hub(messenger, agents, state, waits)
    work = asyncio.create_task(App(settings, bot, hub, access).run())
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is an exception there
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        with contextlib.suppress(asyncio.CancelledError):  # a signal: the ordinary end
            await work
    finally:
        await asyncio.to_thread(hub.close)
        with contextlib.suppress(TelegramError, RuntimeError):
            await bot.shutdown()
    return 0
