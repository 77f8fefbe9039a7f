"""Keeping a conversation inside the context window at the lowest price: one rare, deep cut, nothing in between. Pure.

A provider's prefix cache makes an unchanged old message ten times cheaper than a new one, and a rewritten message
throws away the cache from that place on. So a conversation only grows, until a mark; then everything is done at once:
old turns go down to one line each, the turns before the newest are shortened, the newest stay whole.

Where the mark is best follows from the prices. With F tokens fixed in front (system, tools), K kept by a cut, g added a
turn, w the price of writing to the cache and r = 0.1 of reading from it, a cycle of x = mark - F - K tokens costs about
w·K + x/g · r·(F + K + x/2); per turn that is smallest at x = sqrt(2·w/r · K·g).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from .. import tags
from .blocks import Block, Message
from .usage import estimate_message

KEEP = 400  # characters kept at each end of a shortened piece
WINDOW = 30_000  # tokens; in a larger context window proportionally more is kept
FULL_RESULTS = 4  # newest tool results that a cut leaves whole
SHORT_RESULTS = 4  # before those: shortened, not dropped
RECENT = 8  # messages at the end that stay when there are no tool results to count
LINES = 30  # one-line summaries of dropped turns that stay
LINE_CHARS = 100
FITS = 0.9  # of the window: what a cut may leave without shortening the newest results
SQUEEZED = 0.75  # of the room: what is left once they have to be shortened
READ_PRICE = 0.1  # of an uncached token, for one read from the cache (Anthropic and OpenAI alike)

Save = Callable[[str], str]  # stores a text and returns its path, "" where nothing is stored

_WHOLE_IN = re.compile(r"characters left out, all of it is in (\S+)")
_FOLDED = re.compile(r"\[… (\d+) earlier lines\]")


def shorten(text: str, keep: int = KEEP, save: Save | None = None) -> str:
    """First and last `keep` characters, with an honest count of what lay between, and where the whole text is: where it
    says so itself, else where `save` puts it."""
    if len(text) <= 2 * keep + 60:
        return text
    told = _WHOLE_IN.search(text)
    path = told[1] if told else save(text) if save else ""
    where = f", all of it is in {path}" if path else ""
    return f"{text[:keep]}\n… {len(text) - 2 * keep} characters left out{where} …\n{text[-keep:]}"


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """White space folded, cut to `limit` characters."""
    head = text[: 20 * limit]  # a novel isn't folded whole for its first line
    line = " ".join(head.split())
    return line if len(line) <= limit and len(head) == len(text) else line[: limit - 1] + "…"


def summary_of(reply: str) -> str:
    """The model's own `<summary>` of a reply as one line, "" when there is none."""
    return one_line(tags.first(reply, "summary") or "")


def agent_line(message: Message) -> str:
    """A reply of the model as a line of the working memory: its summary, else its first call, else its text."""
    text = "".join(b.get("text") or "" for b in message["content"] if b.get("type") == "text")
    line = summary_of(text)
    if not line:
        call = next((b for b in message["content"] if b.get("type") == "tool_use"), None)
        line = one_line(f"{call.get('name')} {call.get('input')}" if call else text)
    return f"[Agent] {line}"


def user_line(text: str) -> str:
    return f"[USER]: {one_line(text, 2 * LINE_CHARS)}"


def known_lines(messages: list[Message]) -> set[str]:
    """The lines of working memory that the conversation itself already shows, word for word or as whole turns."""
    known: set[str] = set()
    for message in messages:
        if message.get("lines"):
            known.update(message["content"][0]["text"].split("\n"))
        elif message["role"] == "assistant":
            known.add(agent_line(message))
        elif message.get("request"):
            known.add(user_line(message["content"][0].get("text") or ""))
    return known


def compress_history_tags(messages: list[Message], keep_recent: int = RECENT, keep: int = KEEP) -> list[Message]:
    """A copy in which all but the newest messages have their long pieces shortened and working memory dropped.

    Never touched: thinking blocks (they may be signed) and the user's request.
    """
    border = max(0, len(messages) - keep_recent)
    return [_short_message(m, keep) if i < border else m for i, m in enumerate(messages)]


def cut(
    messages: list[Message],
    window: int,
    *,
    fixed: int = 0,
    keep_prefix: int = 0,
    checkpoint: int = 0,
    write_price: float = 1.25,
    size: Callable[[Message], int] = estimate_message,
    save: Save | None = None,
    now: bool = False,
) -> list[Message] | None:
    """The conversation after a cut, or None when none is due.

    `window` is the most that a request may hold, in tokens, `fixed` what stands beside the messages in it (system,
    tools, tail). A cut is due at the cheapest mark, at the latest at the window; a checkpoint that was set just now
    (`checkpoint` == len(messages)) makes it due earlier, since the notepad then holds what matters.
    Kept: the first `keep_prefix` messages, the newest request, the newest results (whole, then shortened), and a line
    for each dropped turn. What is shortened of results is stored with `save`. `now`: it is due.
    """
    sizes = [size(m) for m in messages]
    total = fixed + sum(sizes)
    full, short = _borders(messages, max(1.0, window / WINDOW))
    kept = _keep(messages, full, short, keep_prefix, None)
    kept_size = sum(map(size, kept))
    growth = max(1.0, sum(sizes[short:]) / max(1, (len(messages) - short) / 2))
    span = math.sqrt(2 * write_price / READ_PRICE * kept_size * growth)
    if checkpoint and checkpoint >= len(messages) - 1:
        span *= 0.6
    if not now and total <= min(window, fixed + kept_size + span):
        return None
    kept = _keep(messages, full, short, keep_prefix, save)
    if kept_size < sum(sizes) and fixed + kept_size <= FITS * window:
        return kept
    least = _squeeze(kept, window - fixed, keep_prefix, size, save)
    return least if sum(map(size, least)) < sum(sizes) else None  # as small as it gets: nothing is gained


def _borders(messages: list[Message], scale: float) -> tuple[int, int]:
    """(index from which all is kept whole, index from which it is kept shortened), both at the start of a turn."""
    whole, more = int(FULL_RESULTS * scale), int(SHORT_RESULTS * scale)
    found: list[int] = []  # the index of the message of each result, newest first
    for i in range(len(messages) - 1, -1, -1):
        found += [i] * _results_in(messages[i])
        if len(found) >= whole + more:
            break
    recent = max(0, len(messages) - int(RECENT * scale))

    def turn_start(n: int) -> int:
        if not found:
            return recent
        at = found[min(n, len(found)) - 1]
        return at - 1 if at and messages[at - 1]["role"] == "assistant" else at

    return turn_start(whole), min(turn_start(whole + more), recent)


def _results_in(message: Message) -> int:
    if message["role"] != "user":
        return 0
    native: int = sum(b.get("type") == "tool_result" for b in message["content"])
    return native or sum(b["text"].count("<tool_result>") for b in message["content"] if b.get("type") == "text")


def _keep(messages: list[Message], full: int, short: int, keep_prefix: int, save: Save | None) -> list[Message]:
    """The messages that a cut leaves, with one message of lines for the turns that go."""
    request = max((i for i, m in enumerate(messages) if m.get("request")), default=-1)
    head: list[Message] = []
    lines: list[str] = []
    for i, message in enumerate(messages[:short]):
        if i < keep_prefix or i == request:
            head.append(message)
        elif message.get("lines"):
            lines += message["content"][0]["text"].split("\n")[1:-1]
        elif message["role"] == "assistant":
            lines.append(agent_line(message))
        elif message.get("request"):
            lines.append(user_line(message["content"][0].get("text") or ""))
    if lines:
        head.append({"role": "user", "content": [{"type": "text", "text": _lines_text(lines)}], "lines": True})
    return [*head, *(_short_message(m, KEEP, save) for m in messages[short:full]), *messages[full:]]


def _lines_text(lines: list[str]) -> str:
    """The lines of dropped turns as one block: the newest ones, older ones only counted."""
    folded = 0
    if lines and (counted := _FOLDED.fullmatch(lines[0])):
        folded, lines = int(counted[1]), lines[1:]
    folded += max(0, len(lines) - LINES)
    count = [f"[… {folded} earlier lines]"] if folded else []
    return "\n".join(["<earlier_turns>", *count, *lines[-LINES:], "</earlier_turns>"])


def _squeeze(
    messages: list[Message], room: float, keep_prefix: int, size: Callable[[Message], int], save: Save | None
) -> list[Message]:
    """Make what a cut left fit into `room` with space for what comes next: first drop the oldest messages that carry no
    result, then shorten, the oldest first and the newest only to a third of the room. Where even that is too much, the
    oldest turns go; their lines stay in the working memory."""
    out, goal = list(messages), SQUEEZED * room
    for i in range(len(out) - RECENT - 1, keep_prefix - 1, -1):
        if sum(map(size, out)) <= goal:
            return out
        if not _is_special(out[i]) and not _results_in(out[i]) and not _is_answered(out, i):
            del out[i]
    for i in range(keep_prefix, len(out)):
        if sum(map(size, out)) <= goal:
            return out
        newest = i == len(out) - 1
        out[i] = _short_message(out[i], max(KEEP, int(room / 2)) if newest else KEEP, save)  # room / 3 at 3 characters
    turns = [i for i in range(keep_prefix, len(out) - 3) if _is_answered(out, i)]
    while turns and sum(map(size, out)) > room:
        del out[turns[0] : turns[0] + 2]
        turns = [i - 2 for i in turns[1:]]
    return out


def _is_special(message: Message) -> bool:
    return bool(message.get("request") or message.get("lines"))


def _is_answered(messages: list[Message], i: int) -> bool:
    """Whether this is a reply whose calls have their results in the next message."""
    return messages[i]["role"] == "assistant" and i + 1 < len(messages) and _results_in(messages[i + 1]) > 0


def _short_message(message: Message, keep: int, save: Save | None = None) -> Message:
    if _is_special(message):
        return message
    return {**message, "content": [_short_block(b, keep, save) for b in message["content"]]}


def _short_block(block: Block, keep: int, save: Save | None) -> Block:
    kind = block.get("type")
    if kind == "text":

        def short_region(tag: str, inner: str) -> str:
            return f"<{tag}>{shorten(inner, keep, save if tag == 'tool_result' else None)}</{tag}>"

        text = tags.drop(block["text"], "working_memory")
        return {
            **block,
            "text": tags.replace(text, short_region, "thinking", "tool_use", "tool_result", "file_content"),
        }
    if kind == "tool_result":
        return {**block, "content": _short_content(block.get("content"), keep, save)}
    if kind == "tool_use" and isinstance(block.get("input"), dict):
        short = {k: shorten(v, keep) if isinstance(v, str) else v for k, v in block["input"].items()}
        return {**block, "input": short}
    if kind == "image":
        return {"type": "text", "text": "[an image was here]"}
    return block


def _short_content(content: Any, keep: int, save: Save | None) -> Any:
    if isinstance(content, list):
        return [
            {**b, "text": shorten(b["text"], keep, save)} if b.get("type") == "text" else _short_block(b, keep, save)
            for b in content
        ]
    return shorten(str(content), keep, save)


def without_newest_results(messages: Sequence[Message], mark: str) -> tuple[list[Message], str]:
    """(the messages with `mark` in place of the newest tool results that are still there, the text of those); the same
    messages and "" when there are none."""
    taken: list[str] = []

    def swap(text: str) -> str:
        if text.strip() == mark:
            return text
        taken.append(text)
        return mark

    def masked(block: Block) -> Block:
        if block.get("type") == "tool_result":
            content = block["content"]
            texts = content if isinstance(content, str) else "\n".join(b.get("text", "") for b in content)
            return {**block, "content": swap(texts)}
        if block.get("type") == "text":
            return {
                **block,
                "text": tags.replace(
                    block["text"], lambda tag, inner: f"<{tag}>\n{swap(inner)}\n</{tag}>", "tool_result"
                ),
            }
        return block

    for at in reversed(range(len(messages))):
        if messages[at]["role"] == "user" and not messages[at].get("request"):
            changed: Message = {**messages[at], "content": [masked(b) for b in messages[at]["content"]]}
            if taken:
                return [*messages[:at], changed, *messages[at + 1 :]], "\n".join(taken)
    return list(messages), ""
