"""What a long task costs, and what the model still knows in the middle of it: `python benchmarks/context_cost.py`.

The real program runs a scripted task against our own server. Every request is counted in o200k tokens and priced as a
provider with a prefix cache would (input 1.0 a token, read from the cache 0.1, written to it 1.25 for Anthropic; output
5.0), and searched for needles: one at the beginning, one in the middle and one at the end of each tool result.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Row, home, run_task

from genericagent.llm.blocks import Usage
from genericagent.scripted import Reply, Tool
from genericagent.scripted.render import Kind

READ, OUTPUT = 0.1, 5.0
WRITE = {"anthropic": 1.25, "chat": 1.0}
LOOKBACK = 20  # blocks before a breakpoint in which Anthropic looks for something cached (docs: Prompt caching)
WHOLE, SHORTENED, LINES = 4, 4, 30  # results, results, turns: what every request must still show
CHECKPOINT = 5  # the turn that saves the notepad instead of reading
NOTE = "note: the needles are in the parts"


def main() -> int:
    rows = [row for name in (sys.argv[1:] or TASKS) for row in TASKS[name]()]
    for row in rows:
        reach = f"≤ {row.reach:g}" if row.reach else ""
        print(f"| {row.figure} | {row.value:.4g} {row.unit} | {reach} | {row.verdict} | {row.note} |", flush=True)
    return any(row.verdict == "MISSED" for row in rows)


# counting


class Counter:
    """o200k tokens of a JSON value as a model would see it: the texts, names and numbers in it."""

    def __init__(self) -> None:
        import bpe_openai  # type: ignore[import-untyped]

        self._encoding = bpe_openai.get_encoding("o200k_base")
        self._known: dict[str, int] = {}

    def __call__(self, value: Any) -> int:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if text not in self._known:
            self._known[text] = len(self._encoding.encode_ordinary(text))
        return self._known[text]


@dataclass(frozen=True)
class Part:
    """One piece of a request, in the order in which it is cached."""

    text: str
    tokens: int
    breakpoint: bool = False


def parts(body: dict[str, Any], count: Counter) -> list[Part]:
    """A request as the sequence of its pieces: tools, system, then block by block."""
    found = [Part(json.dumps(body.get("tools")), count(body.get("tools") or ""))]
    system = body.get("system") or []
    for block in [*([system] if isinstance(system, str) else system)]:
        found.append(_part(block, count))
    for message in body["messages"]:
        content = message["content"]
        blocks = [content] if not isinstance(content, list) else content
        calls = message.get("tool_calls") or []
        for block in [*blocks, *calls]:
            part = _part(block, count)
            found.append(Part(f"{message['role']}:{part.text}", part.tokens + 4, part.breakpoint))
    return found


def _part(block: Any, count: Counter) -> Part:
    if isinstance(block, dict):
        marked = "cache_control" in block
        block = {k: v for k, v in block.items() if k != "cache_control"}
        text = block.get("text") or block.get("content") or ""
        if not isinstance(text, str) or not text:
            text = json.dumps(block, ensure_ascii=False)
        return Part(json.dumps(block, ensure_ascii=False), count(text), marked)
    return Part(str(block), count(str(block or "")))


@dataclass
class Cache:
    """A provider's prefix cache. `written` are the prefixes that can be read."""

    kind: Kind
    written: set[int] = field(default_factory=set)

    def price(self, sequence: list[Part]) -> tuple[float, int, int]:
        """(price of the input, tokens read from the cache, tokens written to it)."""
        prefixes, seen = [], 0
        for part in sequence:
            seen = hash((seen, part.text))
            prefixes.append(seen)
        if self.kind == "anthropic":
            marks = [i for i, part in enumerate(sequence) if part.breakpoint]
            assert len(marks) <= 4, "Anthropic takes four breakpoints"
            near = [i for mark in marks for i in range(max(0, mark - LOOKBACK), mark + 1)]
            read = max((i + 1 for i in near if prefixes[i] in self.written), default=0)
            end = max(marks, default=-1) + 1
            self.written |= {prefixes[i] for i in marks}
        else:
            read = max((i + 1 for i, prefix in enumerate(prefixes) if prefix in self.written), default=0)
            end = len(sequence)
            self.written |= set(prefixes)
        tokens = [part.tokens for part in sequence]
        cached, written, plain = sum(tokens[:read]), sum(tokens[read:end]), sum(tokens[max(read, end) :])
        return cached * READ + written * WRITE[self.kind] + plain, cached, written


# a task


@dataclass
class Result:
    kind: Kind
    price: float = 0.0
    largest: int = 0
    requests: int = 0
    cuts: int = 0
    missing: list[str] = field(default_factory=list)


def play(
    kind: Kind, turns: int, reply: Callable[[int], Reply], *, needles: Callable[[int], tuple[str, str, str]] | None = None,
    folder: Path | None = None,
) -> Result:  # fmt: skip
    """Run the task; `reply(n)` is the model's n-th answer, `needles(n)` what the result of its call holds."""
    count, cache, result = Counter(), Cache(kind), Result(kind)
    before = 0

    def script(body: dict[str, Any], n: int) -> Reply:
        nonlocal before
        if n == turns:  # the question that follows a long task: what did it teach?
            return Reply(text="Nothing to store.")
        sequence = parts(body, count)
        price, cached, written = cache.price(sequence)
        size = sum(part.tokens for part in sequence)
        answer = reply(n)
        said = count(answer.text) + sum(count(tool.name) + count(tool.raw) + 8 for tool in answer.tools)
        result.price += price + said * OUTPUT
        result.largest, result.requests = max(result.largest, size), n + 1
        result.cuts += len(sequence) < before
        before = len(sequence)
        if needles:
            result.missing += [f"request {n}: {what}" for what in missing(body, n, needles)]
        answer.usage = Usage(size, said, cached, written if kind == "anthropic" else 0)
        return answer

    run_task(script, REQUEST, "--max-turns", str(turns + 5), kind=kind, folder=folder)
    if result.requests != turns:
        raise SystemExit(f"{result.requests} requests instead of {turns}")
    return result


REQUEST = "Read all parts of the data one after another and tell me which needles they hold."


def missing(body: dict[str, Any], n: int, needles: Callable[[int], tuple[str, str, str]]) -> Iterator[str]:
    """What a request should still show and does not; n results have come so far."""
    text = json.dumps(body, ensure_ascii=False)
    if REQUEST not in text:
        yield "the user's request"
    if "memory_management_sop.md" not in text:
        yield "the system prompt"
    if n > CHECKPOINT and NOTE not in text:
        yield "the notepad"
    results = [b for b in _results(body) if "needle-" in b]
    reads = [i for i in range(n) if i != CHECKPOINT]
    for i in reads[-WHOLE:]:
        if not any(all(needle in r for needle in needles(i)) for r in results):
            yield f"result {i} in full"
    for i in reads[-WHOLE - SHORTENED : -WHOLE]:
        first, _, last = needles(i)
        if not any((first in r or last in r) and len(r) >= 800 for r in results):
            yield f"800 characters of result {i}"
    for i in range(max(0, n - LINES), n):
        if not re.search(rf"turn {i}: read part {i}\b", text):
            yield f"the line of turn {i}"


def _results(body: dict[str, Any]) -> Iterator[str]:
    for message in body["messages"]:
        if message["role"] == "tool":
            yield str(message["content"])
        elif isinstance(message["content"], list):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    yield json.dumps(block["content"], ensure_ascii=False)


def reading_task(kind: Kind, turns: int, size: int) -> Result:
    """A task that reads a part of `size` characters in each turn."""

    def needles(n: int) -> tuple[str, str, str]:
        return (f"needle-{n}-first", f"needle-{n}-middle", f"needle-{n}-last")

    with home() as folder:
        data = folder / "data"
        data.mkdir()
        for n in range(turns):
            first, middle, last = needles(n)
            half = _prose(n, size // 2)
            text = f"{first}\n{half}\n{middle}\n{half[::-1]}"
            (data / f"{n}.txt").write_text(f"{text[: size - len(last) - 2]}\n{last}\n", encoding="utf-8")

        def reply(n: int) -> Reply:
            if n == turns - 1:
                return Reply(text="<summary>all parts are read</summary>The needles are all there.")
            said = f"<summary>turn {n}: read part {n} of the data and found three needles in it</summary>"
            if n == 5:
                return Reply(text=said, tools=[Tool("update_working_checkpoint", {"key_info": NOTE}), read(n)])
            return Reply(text=said, tools=[read(n)])

        def read(n: int) -> Tool:
            return Tool("code_run", {"type": "bash", "script": f"cat {data}/{n}.txt"})

        return play(kind, turns, reply, needles=needles, folder=folder)


def _prose(seed: int, size: int) -> str:
    """Lines of words as a log or a text would have them, about four characters a token."""
    rng = random.Random(seed)
    out: list[str] = []
    while sum(map(len, out)) < size:
        words = [rng.choice(WORDS) for _ in range(12)]
        out.append(f"{rng.randrange(10_000)} {' '.join(words)}\n")
    return "".join(out)[:size]


WORDS = [
    "the",
    "a",
    "of",
    "to",
    "and",
    "in",
    "is",
    "was",
    "for",
    "on",
    "with",
    "as",
    "by",
    "that",
    "it",
    "from",
    "at",
    "are",
    "be",
    "this",
    "which",
    "or",
    "an",
    "have",
    "not",
    "were",
    "connection",
    "server",
    "request",
    "file",
    "error",
    "warning",
    "user",
    "time",
    "value",
    "result",
    "process",
    "memory",
    "system",
    "value",
    "update",
    "index",
    "field",
    "table",
    "column",
    "query",
]


def coding_task(kind: Kind) -> Result:
    """Ten turns: write a module and its test, run, look, patch, run again, answer."""
    module = "def slug(text: str) -> str:\n    return '-'.join(text.lower().split())\n"
    test = "from slug import slug\n\n\ndef check() -> None:\n    assert slug('Hello  World') == 'hello-world'\n    assert slug('A/B') == 'a-b', slug('A/B')\n\n\ncheck()\nprint('ok')\n"
    steps: list[Tool] = [
        Tool("code_run", {"type": "bash", "script": "ls -la; python3 --version"}),
        Tool("file_write", {"path": "slug.py", "content": module}),
        Tool("file_write", {"path": "check_slug.py", "content": test}),
        Tool("code_run", {"type": "bash", "script": "python3 check_slug.py"}),
        Tool("file_read", {"path": "slug.py"}),
        Tool("file_patch", {"path": "slug.py", "old_content": "text.lower().split()", "new_content": "re.split(r'[^a-z0-9]+', text.lower())"}),
        Tool("file_patch", {"path": "slug.py", "old_content": "def slug", "new_content": "import re\n\n\ndef slug"}),
        Tool("code_run", {"type": "bash", "script": "python3 check_slug.py"}),
        Tool("file_read", {"path": "slug.py"}),
    ]  # fmt: skip

    def reply(n: int) -> Reply:
        if n == len(steps):
            return Reply(text="<summary>done</summary>slug.py is written and its check passes.")
        return Reply(text=f"<summary>step {n}: go on with the small module</summary>", tools=[steps[n]])

    return play(kind, len(steps) + 1, reply)


# the table


def _reading(name: str, turns: int, size: int, reach: dict[Kind, float]) -> list[Row]:
    rows = []
    for kind, wanted in reach.items():
        result = reading_task(kind, turns, size)
        lost = f"{len(result.missing)} missing, first: {result.missing[0]}" if result.missing else "nothing missing"
        note = f"{result.cuts} cuts, {lost}"
        rows.append(Row(f"{name}, {kind} prices", result.price / 1000, "thousand", wanted, note))
        rows.append(Row(f"{name}, {kind}: largest request", result.largest, "tokens", 30_000))
    return rows


def _coding() -> list[Row]:
    return [Row("10-turn coding task, chat prices", coding_task("chat").price / 1000, "thousand", 9.0)]


TASKS: dict[str, Callable[[], list[Row]]] = {
    "60x6": lambda: _reading("60 × 6 KB", 60, 6000, {"anthropic": 375, "chat": 335}),
    "180x2": lambda: _reading("180 × 2 KB", 180, 2000, {"anthropic": 530, "chat": 480}),
    "coding": _coding,
}

if __name__ == "__main__":
    sys.exit(main())
