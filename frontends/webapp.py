"""The agent on a page of this machine, on aiohttp: `ga web`, or `python frontends/webapp.py`.

The page (assets/web) holds no data. All that it shows comes over /events, and every request but those for its own files
needs the token, in a header: a cookie would also go to what listens on other ports of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from genericagent.cli.args import run_command

    sys.exit(run_command(["web", *sys.argv[1:]]))  # before the extra is looked for: that it is missing is one line

from frontends.chat_common import File, Hub, Incoming, Waits, menu_of_commands, safe_ending, say
from genericagent import paths, prompts
from genericagent.cli.commands import age
from genericagent.errors import ConfigError, GAError, ToolError
from genericagent.extras import EXTRAS, install_command
from genericagent.faces.markup import Part
from genericagent.faces.outgoing import Buttons, Refused
from genericagent.faces.state import State
from genericagent.safety.listener import NO_TOKEN, loopback_socket, refusal, status, token_file
from genericagent.safety.term import one_line
from genericagent.store import atomic
from genericagent.store.lock import FileLock

try:
    import markdown_it  # noqa: F401  # what Markdown is read with
    from aiohttp import web
except ImportError as missing:  # an optional extra
    raise ConfigError(f"the page needs aiohttp and markdown-it-py: {install_command(*EXTRAS['web'])}") from missing

if TYPE_CHECKING:
    from agentmain import GenericAgent

CHAT, USER = "local", "owner"
MOST_MESSAGES, MOST_SESSIONS = 1_000, 50
MOST_TABS = 4  # a browser has six connections to a host, and each open page keeps one
LARGEST, LONGEST, MOST_FILES = 50 << 20, 200_000, 20  # bytes of a request and of a file; characters; files at once
PING = 15.0  # seconds
PICTURES = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".gif": "gif", ".webp": "webp"}
SHELL = {"/": ("index.html", "html"), "/app.js": ("app.js", "javascript"), "/style.css": ("style.css", "css")}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_log = logging.getLogger("genericagent.web")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(eq=False)
class Tab:
    """An open page: the messages that it has not been told of yet."""

    ids: dict[str, None]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False  # others were opened after it


class Page:
    """What all open pages show, as chat_common's Messenger; called by other threads than the loop's."""

    name, limit = "web", 16_000

    def __init__(self, loop: asyncio.AbstractEventLoop, folder: Path) -> None:
        self._loop, self._folder, self._lock, self._last = loop, folder, threading.Lock(), 0
        self._messages, self._tabs = dict[str, dict[str, Any]](), dict[Tab, None]()
        self.files: dict[str, tuple[str, Path]] = {}  # by the ids of their messages: (name, a copy in `folder`)

    def send(self, chat: str, part: Part, markup: bool, buttons: Buttons = ()) -> str:
        return self._show(None, {"html": part.html if markup else escape(part.plain), "buttons": buttons})

    def edit(self, chat: str, message: str, part: Part, markup: bool, buttons: Buttons = ()) -> None:
        self._show(message, {"html": part.html if markup else escape(part.plain), "buttons": buttons})

    def delete(self, chat: str, message: str) -> None:
        self._show(message, None)

    def draft(self, chat: str, draft: int, part: Part) -> bool:
        return False

    def send_file(self, chat: str, name: str, data: bytes) -> None:
        copy = self._folder / uuid.uuid4().hex
        try:
            atomic.write_own(copy, data)
        except ToolError as error:
            raise Refused(str(error)) from error
        self._show(None, {"file": name, "image": Path(name).suffix.lower() in PICTURES}, (name, copy))

    def knows(self, chat: str) -> bool:
        return chat == CHAT

    def heard(self, incoming: Incoming) -> None:
        """Show what the user has sent."""
        lines = [incoming.text, *(f"📎 {one_line(file.name or file.path.name, 200)}" for file in incoming.files)]
        self._show(None, {"html": escape("\n".join(filter(None, lines))), "mine": True})

    def open(self) -> Tab:
        with self._lock:
            tab = Tab(dict.fromkeys(self._messages))
        self._tabs[tab] = None
        if len(self._tabs) > MOST_TABS:
            first = next(iter(self._tabs))
            del self._tabs[first]
            first.over = True
            first.wake.set()
        return tab

    def close(self, tab: Tab) -> None:
        self._tabs.pop(tab, None)

    def news(self, tab: Tab) -> list[dict[str, Any]]:
        """What a tab has not been told of, each message as it is by now."""
        ids, tab.ids = tab.ids, {}
        tab.wake.clear()
        with self._lock:
            return [{"id": id, **self._messages.get(id, {"gone": True})} for id in ids]

    def _show(self, id: str | None, message: dict[str, Any] | None, file: tuple[str, Path] | None = None) -> str:
        with self._lock:
            self._last += id is None
            id = id or str(self._last)
            changed = [id]
            if file:
                self.files[id] = file
            if message is None:
                self._messages.pop(id, None)
            else:
                self._messages[id] = message
            while len(self._messages) > MOST_MESSAGES:
                changed.append(next(iter(self._messages)))
                del self._messages[changed[-1]]
                if old := self.files.pop(changed[-1], None):
                    old[1].unlink(missing_ok=True)
        self._loop.call_soon_threadsafe(self._tell, changed)
        return id

    def _tell(self, ids: list[str]) -> None:
        for tab in self._tabs:
            tab.ids.update(dict.fromkeys(ids))
            tab.wake.set()


class App:
    """The loop's side: lets in, and hands on."""

    def __init__(self, page: Page, hub: Hub, port: int, token: str) -> None:
        self._page, self._hub, self._port, self._token = page, hub, port, token
        self._in_turn = asyncio.Lock()
        self._origins = [f"http://{host}:{port}" for host in ("127.0.0.1", "localhost")]
        self.web = web.Application(middlewares=[self._guard], client_max_size=LARGEST)
        self.web.on_response_prepare.append(self._protect)
        routes = [web.get(path, self._shell) for path in (*SHELL, "/texts.json")]
        routes += [web.get("/events", self._events), web.get("/lists", self._lists), web.get("/file/{id}", self._file)]
        self.web.add_routes([*routes, web.post("/send", self._send), web.post("/press", self._press)])

    async def _protect(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(HEADERS)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        why = refusal(headers, port=self._port, token=self._token, origins=self._origins)
        if why and not (why == NO_TOKEN and request.path in (*SHELL, "/texts.json")):
            return web.Response(status=status(why), text=why)
        if (request.content_length or 0) > LARGEST:
            raise web.HTTPRequestEntityTooLarge(LARGEST, request.content_length or 0)
        try:
            return await handler(request)
        except GAError as error:
            return web.Response(status=500, text=str(error))

    async def _shell(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/texts.json":
            return web.json_response({**prompts.catalog("web"), "lang": prompts.language()})
        name, kind = SHELL[request.path]
        data = paths.shipped("assets", "web", name).read_bytes()
        return web.Response(body=data, content_type=f"text/{kind}", charset="utf-8")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events, each a list of messages; the first one all of them."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        tab = self._page.open()
        try:
            news: Any = {"all": self._page.news(tab)}
            while not tab.over:
                await response.write(f"data: {json.dumps(news)}\n\n".encode() if news else b": still here\n\n")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(tab.wake.wait(), PING)
                news = {"news": found} if (found := self._page.news(tab)) else None
            await response.write(b'data: {"over": true}\n\n')
            return response
        except ConnectionError:
            return response  # the page was closed
        finally:
            self._page.close(tab)

    async def _lists(self, request: web.Request) -> web.Response:
        def look() -> dict[str, Any]:
            agent, texts = self._hub.conversation(CHAT).agent, prompts.catalog("chat")
            found = [
                {"id": id, "age": age(texts, seconds), "title": one_line(title, 200), "now": id == agent.session_id}
                for id, seconds, title in agent.list_sessions()[:MOST_SESSIONS]
            ]
            return {"sessions": found, "commands": menu_of_commands()}

        return web.json_response(await asyncio.to_thread(look))

    async def _file(self, request: web.Request) -> web.Response:
        """A file that was handed over. Its number is looked up: no path ever comes from a request."""
        if (found := self._page.files.get(request.match_info["id"])) is None:
            raise web.HTTPNotFound
        try:
            data = await asyncio.to_thread(atomic.read_own, found[1])
        except OSError as error:
            raise web.HTTPNotFound from error
        kind = PICTURES.get(Path(found[0]).suffix.lower())
        name = quote(found[0].encode("utf-8", "replace"))
        about = {
            "Content-Type": f"image/{kind}" if kind else "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        }
        return web.Response(body=data, headers=about)

    async def _send(self, request: web.Request) -> web.Response:
        form = await _form(request)
        text, given = form.get("text", ""), form.getall("file", [])
        if not isinstance(text, str) or len(text) > LONGEST or len(given) > MOST_FILES:
            raise web.HTTPRequestEntityTooLarge(LONGEST, len(str(text)))
        files = [await asyncio.to_thread(_kept, one) for one in given if isinstance(one, web.FileField)]
        text = text.replace("\r\n", "\n").strip()  # forms end lines so
        if text or files:
            key, data = (
                self._hub.state.next,
                {"text": text, "files": [{**asdict(f), "path": str(f.path)} for f in files]},
            )
            self._hub.state.take(key, data)
            async with self._in_turn:  # two messages keep their order
                await asyncio.to_thread(self.receive, key, data)
        return web.Response(status=204)

    def receive(self, key: int, data: dict[str, Any]) -> None:
        """Something that the user has sent, maybe before a restart."""
        files = tuple(File(Path(one["path"]), one["kind"], one["name"]) for one in data["files"])
        incoming = Incoming(CHAT, USER, data["text"], files, keys=(key,))
        self._hub.conversation(CHAT).out.put(lambda: self._page.heard(incoming))  # in its place among the answers
        self._hub.receive(incoming)

    def again(self) -> None:
        """What came before a restart, and the conversation that it belonged to."""
        self._hub.conversation(CHAT)
        for one in list(self._hub.state.waiting):
            try:
                if one.begun:
                    self._hub.interrupted(CHAT, one.data["text"] or "…", [one.key])
                else:
                    self.receive(one.key, one.data)
            except (KeyError, TypeError, AttributeError):  # one odd message must not keep the program from starting
                _log.exception("cannot take up message %s", one.key)
                self._hub.state.done([one.key])

    async def _press(self, request: web.Request) -> web.Response:
        form = await _form(request)
        message, data = str(form.get("message", "")), str(form.get("data", ""))
        return web.Response(text=await asyncio.to_thread(self._hub.press, CHAT, USER, message, data))


async def _form(request: web.Request) -> Any:
    try:
        return await request.post()
    except (ValueError, AssertionError, RuntimeError, LookupError) as error:  # as aiohttp says that it is malformed
        raise web.HTTPBadRequest from error


def _kept(given: web.FileField) -> File:
    """A file that was sent, in a place and under a name of ours. Raises ToolError."""
    ending = safe_ending(given.filename)
    path = paths.temp() / "received" / f"web-{uuid.uuid4().hex[:12]}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_own(path, given.file.read())
    return File(path, say("kind_photo" if ending.lower() in PICTURES else "kind_document"), given.filename)


def run_web(agents: Callable[[], GenericAgent]) -> int:
    """Serve until the program is ended; `agents` makes the agent. Raises ConfigError."""
    agent = agents()
    if not agent.config.models:
        raise ConfigError("; ".join(agent.config.problems) or prompts.say("no_key"))
    lock = FileLock(paths.faces() / "web.lock")
    if not lock.acquire():
        raise ConfigError(prompts.text("web", "second_copy", pid=(lock.holder() or {}).get("pid", "?")))
    try:
        try:
            listener = loopback_socket(agent.config.web.port)
        except ConfigError as error:
            raise ConfigError(f"{error}; `[web] port` in config.toml takes another") from None
        with listener:
            return asyncio.run(_serve(listener, agents))
    finally:
        lock.release()


async def _serve(listener: socket.socket, agents: Callable[[], GenericAgent]) -> int:
    port, token, ended = listener.getsockname()[1], token_file(paths.faces() / "web.token"), asyncio.Event()
    files = paths.faces() / "web-files"  # what was handed over, as long as the page shows it
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir(mode=0o700)
    page = Page(asyncio.get_running_loop(), files)
    hub = Hub(page, agents, State(paths.faces() / "web.json"), Waits(pace=0.1))
    app = App(page, hub, port, token)
    runner = web.AppRunner(app.web, access_log=None, shutdown_timeout=0.5, auto_decompress=False)
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is an exception there
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await asyncio.to_thread(app.again)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        sys.stderr.write(prompts.text("web", "ready", url=f"http://127.0.0.1:{port}/#token={token}") + "\n")
        await ended.wait()
    finally:
        await asyncio.to_thread(hub.close)
        await runner.cleanup()
        shutil.rmtree(files, ignore_errors=True)
    return 0
