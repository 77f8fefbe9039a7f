"""The conversation as a journal's records tell it (the forms stand in journal.py). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNKNOWN = "interrupted, outcome unknown: the program ended while this ran; look before you do it again"
NOT_THE_USER = ("file", "reflect", "choice")  # beginnings of sources of tasks whose request may be somebody else's text
NOTES_LAST = ("done", "needs_input", "limit")  # ends of a task whose notes the next one is shown
_TEXT = {"text": "text", "thinking": "thinking", "redacted_thinking": "data", "refusal": "text"}


@dataclass(eq=False)
class Restored:
    """A conversation as its records tell it. `unknown` are the calls whose outcome nobody knows."""

    history: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    said: list[str] = field(
        default_factory=list
    )  # those of them that are the user's own words, and what was said in between
    key_info: str = ""
    title: str = ""  # what the user called it, else the first request
    folder: str = ""  # where it went on, when the user chose another one
    unknown: list[str] = field(default_factory=list)
    tainted: str = ""  # where the first text from outside came from


def history_from(records: Sequence[dict[str, Any]]) -> Restored:
    """Build the conversation again. Never fails on odd records: what has no sense is left out. No tool runs again.

    Each call of a reply is answered: by the message behind it, by the result that was recorded when the tool had run,
    or by the news that nobody knows its outcome.
    """
    out = Restored()
    calls: list[str] = []  # that the newest reply made in its text
    results: dict[str, Any] = {}  # since the newest reply
    by_user = False  # the task that runs
    for record in records:
        kind = record.get("type")
        if kind == "message":
            message = message_from(record.get("message"))
            if message:
                answers, _ = _answers(out.history, calls, results, message)
                _join(out.history, message, answers)
                calls, results = [], {} if message["role"] == "assistant" else results
        elif kind == "call":
            calls.append(str(record.get("tool_use_id")))
        elif kind == "result":
            results[str(record.get("tool_use_id"))] = _result_content(record.get("content"))
        elif kind == "clear":
            out.history = []
        elif kind == "cut" and isinstance(record.get("history"), list):
            out.history = [m for m in map(message_from, record["history"]) if m]
            if isinstance(record.get("lines"), list):  # the user went back
                out.lines = [line for line in record["lines"] if isinstance(line, str)]
                out.key_info, calls, results = str(record.get("key_info") or ""), [], {}
                out.said = [line for line in out.said if line in out.lines]
        elif kind == "line" and isinstance(record.get("text"), str):
            out.lines.append(record["text"])
            if by_user and record["text"].startswith("[USER]"):
                out.said.append(record["text"])
        elif kind == "said" and isinstance(record.get("text"), str):  # to a task that ran
            out.said.append(record["text"])
        elif kind == "note":
            out.key_info = str(record.get("key_info") or "")
        elif kind == "task" and record.get("event") == "start":
            by_user = not str(record.get("source") or "file").startswith(NOT_THE_USER)
        elif kind == "task" and record.get("event") == "end" and record.get("status") not in NOTES_LAST:
            out.key_info = ""
        elif kind == "title":
            out.title = str(record.get("title") or "")
        elif kind == "folder":
            out.folder = str(record.get("cwd") or "")
        elif kind == "taint":
            out.tainted = out.tainted or str(record.get("source") or "?")
    out.title = out.title or title_of(out.lines)
    answers, out.unknown = _answers(out.history, calls, results, None)
    if answers:
        out.history.append({"role": "user", "content": answers})
    return out


def message_from(value: Any) -> Any:
    """A message as blocks.py describes it, however it was edited; None when nothing can be made of it."""
    if not isinstance(value, dict) or value.get("role") not in ("user", "assistant"):
        return None
    content = value.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [b for b in map(_block, content) if b] if isinstance(content, list) else []
    return {**value, "content": blocks} if blocks else None


def _block(value: Any) -> dict[str, Any] | None:
    """A block as blocks.py describes it, however it was edited; None when nothing can be made of it."""
    if not isinstance(value, dict):
        return None
    block: dict[str, Any] = value
    kind = block.get("type")
    if not isinstance(kind, str) or not isinstance(block.get(_TEXT.get(kind, "type")), str):
        return None
    if kind == "tool_use" and not isinstance(block.get("input"), dict):
        block = {**block, "input": None, "incomplete": True, "input_raw": str(block.get("input_raw") or "")}
    if kind == "tool_use":
        block = {**block, "id": str(block.get("id") or ""), "name": str(block.get("name") or "")}
    if kind == "thinking" and not isinstance(block.get("signature", ""), str):
        block = {**block, "signature": ""}
    if kind == "tool_result":
        block = {**block, "content": _result_content(block.get("content"))}
    return block


def _result_content(content: Any) -> Any:
    if isinstance(content, list):
        return [b for b in map(_block, content) if b]
    if isinstance(content, str):
        return content
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _join(history: list[dict[str, Any]], message: dict[str, Any], answers: list[dict[str, Any]]) -> None:
    if answers and message["role"] == "user":
        message = {**message, "content": [*answers, *message["content"]]}
    elif answers:
        history.append({"role": "user", "content": answers})
    history.append(message)


def _answers(
    history: list[dict[str, Any]], calls: list[str], results: dict[str, Any], coming: dict[str, Any] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """(answers to the calls of the newest reply that `coming`, the message behind it, does not carry; the ids of those
    whose outcome nobody knows)."""
    last = history[-1] if history else None
    if last is None or last["role"] != "assistant":
        return [], []
    behind = coming["content"] if coming and coming["role"] == "user" else []
    native = [b["id"] for b in last["content"] if b["type"] == "tool_use"]
    if native:
        carried = {str(b.get("tool_use_id")) for b in behind if b["type"] == "tool_result"}
        # one without a fitting id belongs to one of these calls: which, the request's preparation finds out
        ids = [id for id in native if id not in carried] if carried <= set(native) else []
    else:
        carried_as_text = any(b["type"] == "text" and "<tool_result>" in b["text"] for b in behind)
        ids = [] if carried_as_text else calls
    answers: list[dict[str, Any]] = []
    for id in ids:
        answers += _answer(id, results.get(id, UNKNOWN), bool(native), id in results)
    return answers, [id for id in ids if id not in results]


def _answer(id: str, content: Any, native: bool, known: bool) -> list[dict[str, Any]]:
    content = _result_content(content)
    if native:
        answer = {"type": "tool_result", "tool_use_id": id, "content": content}
        return [answer if known else {**answer, "is_error": True}]
    parts = [b for b in map(_block, content) if b] if isinstance(content, list) else []
    if parts:
        content = "\n".join(b["text"] for b in parts if b["type"] == "text")
    images = [b for b in parts if b["type"] == "image"]
    return [{"type": "text", "text": f"<tool_result>\n{content}\n</tool_result>"}, *images]


def title_of(lines: Iterable[Any]) -> str:
    """The first request, in at most 80 characters."""
    first = next((line for line in lines if isinstance(line, str) and line.startswith("[USER]")), "")
    return first.removeprefix("[USER]:").strip()[:80]


class Turn(NamedTuple):
    """A request of the user's that the conversation can be cut back to: how many are before it, the index of its first
    record, its text."""

    number: int
    at: int
    text: str


def turns_of(records: Sequence[dict[str, Any]]) -> list[Turn]:
    """The user's turns that are still in the conversation, oldest first."""
    found: list[Turn] = []
    for at, record in enumerate(records):
        kind, line = record.get("type"), record.get("text")
        if kind == "task" and record.get("event") == "start":
            found.append(Turn(len(found), at, str(line or "")))
        elif kind == "line" and found and not found[-1].text and str(line).startswith("[USER]"):
            found[-1] = found[-1]._replace(text=title_of([line]))  # written before the text was
        elif kind == "cut" and isinstance(record.get("turns"), int):
            del found[max(0, record["turns"]) :]
    return found


class Change(NamedTuple):
    """What tools made of a file: digests of what it held before and after, "" where there was none, None: unknown.
    `mixed`: somebody else changed it in between; `made`: how many of the folders above it are new with it."""

    path: str
    before: str | None
    after: str | None
    mixed: bool = False
    made: int = 0


def changes_of(records: Sequence[dict[str, Any]]) -> list[Change]:
    """The files that were changed in these records, in order."""
    found: dict[str, Change] = {}
    for record in records:
        if record.get("type") == "change" and isinstance(path := record.get("path"), str):
            new = Change(path, record.get("before"), record.get("after"))
            was = found.get(path, Change(path, new.before, new.before))
            mixed = was.mixed or was.after != new.before or None in (new.before, new.after)
            made = record.get("made")
            found[path] = Change(
                path, was.before, new.after, mixed, max(was.made, made if isinstance(made, int) else 0)
            )
    return list(found.values())
