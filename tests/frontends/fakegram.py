"""A Bot API server over real HTTP: what a bot is told, what it says, and what goes wrong on the way."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from email.parser import BytesParser
from email.policy import HTTP
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote

TOKEN = "123456789:AAFakeTokenForTests-0123456789abcdef"
BOT = {"id": 123456789, "is_bot": True, "first_name": "GA", "username": "ga_test_bot", "can_join_groups": True}
TAGS = {"b", "i", "u", "s", "code", "pre", "a", "blockquote"}

Fault = Callable[[str, dict[str, Any]], "tuple[int, dict[str, Any]] | str | None"]


def flood(seconds: float) -> tuple[int, dict[str, Any]]:
    text = f"Too Many Requests: retry after {seconds}"
    return 429, {"ok": False, "error_code": 429, "description": text, "parameters": {"retry_after": seconds}}


def bad(text: str, code: int = 400) -> tuple[int, dict[str, Any]]:
    return code, {"ok": False, "error_code": code, "description": text}


class FakeTelegram:
    """`chats[chat]` is what its user sees: messages by id, in order; `log` is every call but getUpdates."""

    def __init__(self, drafts: bool = False) -> None:
        self.drafts, self.token = drafts, TOKEN
        self.chats: dict[int, dict[int, dict[str, Any]]] = {}
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[str] = []  # markup that was not understood
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.polls = 0
        self.hanging = threading.Event()  # no answer while it is set
        self.slow_files = threading.Event()  # the same for what is in files alone
        self.wake = threading.Condition()
        self._updates: list[dict[str, Any]] = []
        self._update, self._message = 1000, 10
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self.hanging.clear()
        self.slow_files.clear()
        with self.wake:
            self.wake.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    # what users do

    def update(self, **content: Any) -> int:
        with self.wake:
            self._update += 1
            self._updates.append({"update_id": self._update, **content})
            self.wake.notify_all()
            return self._update

    def message(self, text: str | None = None, user: int = 7, chat: int | None = None, **more: Any) -> int:
        """A message of a user, in their private chat unless told otherwise; returns the update's id."""
        where = user if chat is None else chat
        self._message += 1
        made: dict[str, Any] = {
            "message_id": self._message, "date": int(time.time()), "from": person(user),
            "chat": {"id": where, "type": "private", "first_name": "U"} if where > 0 else {"id": where, "type": "group", "title": "G"},
            **more,
        }  # fmt: skip
        if text is not None:
            made["text"] = text
            if text.startswith("/"):
                made["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
        return self.update(message=made)

    def press(self, label: str, user: int = 7, chat: int | None = None, **forged: Any) -> None:
        """Press the newest button with this label (`forged`: another message or data)."""
        where = user if chat is None else chat
        id, message = self.until(
            lambda: next(
                ((i, m) for i, m in reversed(list(self.chats.get(where, {}).items())) if label in labels(m)), None
            )
        )
        data = next(b["callback_data"] for row in message["buttons"] for b in row if b["text"] == label)
        self.press_data(forged.get("data", data), forged.get("message", id), user, where)

    def press_data(self, data: str, message: int, user: int = 7, chat: int | None = None) -> None:
        where = user if chat is None else chat
        shown = {
            "message_id": message,
            "date": 1,
            "chat": {"id": where, "type": "private" if where > 0 else "group"},
            "from": BOT,
            "text": "?",
        }
        self.update(
            callback_query={
                "id": str(self._update),
                "from": person(user),
                "chat_instance": "1",
                "message": shown,
                "data": data,
            }
        )

    # what is seen

    def texts(self, chat: int = 7) -> list[str]:
        return [message["plain"] for message in list(self.chats.get(chat, {}).values())]

    def calls(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in list(self.log) if name == method]

    def until(self, what: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Wait until `what()` is true and return it."""
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, f"it did not come: {self.chats}\n{self.log[-20:]}"
            time.sleep(0.01)
        return found

    def wait_text(self, part: str, chat: int = 7, seconds: float = 30.0) -> str:
        return str(self.until(lambda: next((t for t in self.texts(chat) if part in t), ""), seconds))

    # the methods

    def answer(self, method: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]] | str:
        while self.hanging.is_set():
            time.sleep(0.01)
        if self.closed:
            return "drop"
        if method == "getupdates":
            return self._get_updates(params)
        with self.wake:
            fault = next((found for fault in self.faults if (found := fault(method, params)) is not None), None)
            self.log.append((method, params))
            if fault is not None:
                return fault
            found = getattr(self, f"do_{method}", lambda params: bad("Not Found", 404))(params)
            return found if isinstance(found, tuple) else (200, {"ok": True, "result": found})

    def _get_updates(self, params: dict[str, Any]) -> tuple[int, dict[str, Any]] | str:
        self.polls += 1
        fault = next((found for fault in self.faults if (found := fault("getupdates", params)) is not None), None)
        if fault is not None:
            return fault
        offset, end = int(params.get("offset") or 0), time.monotonic() + float(params.get("timeout") or 0)
        if offset > self._update + 1:  # what Telegram does with a number of before a quiet week
            offset = 0
        with self.wake:
            self._updates = [u for u in self._updates if u["update_id"] >= offset]
            while not self._updates and time.monotonic() < end and not self.closed:
                self.wake.wait(min(0.2, max(0.0, end - time.monotonic())))
            return 200, {"ok": True, "result": self._updates[:100]}

    def do_getme(self, params: dict[str, Any]) -> Any:
        return BOT

    def do_setmycommands(self, params: dict[str, Any]) -> Any:
        return True

    do_answercallbackquery = do_setmycommands

    def do_sendmessage(self, params: dict[str, Any]) -> Any:
        return self._shown(params, None)

    def do_editmessagetext(self, params: dict[str, Any]) -> Any:
        chat, id = int(params["chat_id"]), int(params["message_id"])
        if id not in self.chats.get(chat, {}):
            return bad("Bad Request: message to edit not found")
        return self._shown(params, id)

    def do_sendmessagedraft(self, params: dict[str, Any]) -> Any:
        if not self.drafts:
            return bad("Bad Request: method is available only for some bots")
        found = plain_of(params)
        return True if isinstance(found, str) else found

    def do_deletemessage(self, params: dict[str, Any]) -> Any:
        return self.chats[int(params["chat_id"])].pop(int(params["message_id"]), None) is not None or bad(
            "Bad Request: message to delete not found"
        )

    def do_sendphoto(self, params: dict[str, Any]) -> Any:
        return self._shown({**params, "text": f"<photo {params['photo'][0]}>"}, None, file=params["photo"])

    def do_senddocument(self, params: dict[str, Any]) -> Any:
        return self._shown({**params, "text": f"<document {params['document'][0]}>"}, None, file=params["document"])

    def do_getfile(self, params: dict[str, Any]) -> Any:
        id = params["file_id"]
        if id not in self.files:
            return bad("Bad Request: invalid file_id")
        return {
            "file_id": id,
            "file_unique_id": f"u{id}",
            "file_size": len(self.files[id]),
            "file_path": f"things/{id}",
        }

    def _shown(self, params: dict[str, Any], id: int | None, file: Any = None) -> Any:
        chat = int(params["chat_id"])
        found = plain_of(params) if file is None else params["text"]
        if not isinstance(found, str):
            self.refused.append(params["text"])
            return found
        buttons = json.loads(params.get("reply_markup") or "{}").get("inline_keyboard", [])
        if any(len(b["callback_data"].encode()) > 64 for row in buttons for b in row):
            return bad("Bad Request: BUTTON_DATA_INVALID")
        messages = self.chats.setdefault(chat, {})
        if id is None:
            self._message += 1
            id = self._message
        elif (messages[id]["text"], messages[id]["buttons"]) == (params["text"], buttons):
            return bad("Bad Request: message is not modified: specified new message content is the same")
        messages[id] = {"text": params["text"], "plain": found, "buttons": buttons, "file": file}
        return {
            "message_id": id,
            "date": 1,
            "chat": {"id": chat, "type": "private" if chat > 0 else "group"},
            "from": BOT,
            "text": found,
        }


def labels(message: dict[str, Any]) -> list[str]:
    return [b["text"] for row in message["buttons"] for b in row]


def person(user: int) -> dict[str, Any]:
    return {"id": user, "is_bot": False, "first_name": f"U{user}"}


def plain_of(params: dict[str, Any]) -> Any:
    """The text as it is read, or the refusal of the real thing: entities that do not parse, too long, empty."""
    text = str(params.get("text") or "")
    if params.get("parse_mode") == "HTML":
        open_: list[str] = []
        for slash, name in re.findall(r"<(/?)([a-z]+)[^<>]*>", text):
            if name not in TAGS:
                return bad(f'Bad Request: can\'t parse entities: Unsupported start tag "{name}"')
            if not slash:
                if open_ and open_[-1] == "code" or name == "blockquote" and name in open_:
                    return bad("Bad Request: can't parse entities: nested")
                open_.append(name)
            elif not open_ or open_.pop() != name:
                return bad("Bad Request: can't parse entities: Unmatched end tag")
        rest = re.sub(r"</?[a-z]+[^<>]*>", "", text)
        if open_ or "<" in rest or ">" in rest or re.search(r"&(?!amp;|lt;|gt;|quot;|#\d+;)", rest):
            return bad("Bad Request: can't parse entities")
        text = unescape(rest)
    if not text.strip():
        return bad("Bad Request: message text is empty")
    if len(text.encode("utf-16-le")) // 2 > 4096 or len(str(params["text"]).encode("utf-16-le")) // 2 > 4096:
        return bad("Bad Request: message is too long")
    return text


class _Handler(BaseHTTPRequestHandler):
    fake: FakeTelegram
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, bot, method = self.path.split("/", 2)
        if bot != f"bot{self.fake.token}":
            return self._give(401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
        found = self.fake.answer(method.lower(), _params(self.headers.get("Content-Type") or "", body))
        return self._give(*found) if isinstance(found, tuple) else self._drop()

    def do_GET(self) -> None:
        while self.fake.hanging.is_set() or self.fake.slow_files.is_set():
            time.sleep(0.01)
        data = self.fake.files.get(self.path.rsplit("/", 1)[-1])
        if data is None or f"/file/bot{self.fake.token}/" not in unquote(self.path):
            return self._give(404, {"ok": False, "error_code": 404, "description": "Not Found"})
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def _give(self, status: int, answer: dict[str, Any]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:  # the bot was ended
            self.close_connection = True

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *args: Any) -> None:
        pass


def _params(kind: str, body: bytes) -> dict[str, Any]:
    if kind.startswith("multipart/"):
        parsed = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body)
        found: dict[str, Any] = {}
        files: dict[str, Any] = {}
        for part in parsed.iter_parts():  # type: ignore[attr-defined]
            name, data = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
            if part.get_filename():
                files[name] = (part.get_filename(), data)
            else:
                found[name] = data.decode()
        for name, value in list(found.items()):
            if value.startswith("attach://"):
                found[name] = files[value.removeprefix("attach://")]
        return {**found, **files}
    return dict(parse_qsl(body.decode(), keep_blank_values=True))
