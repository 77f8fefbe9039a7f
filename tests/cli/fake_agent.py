"""A stand-in for GenericAgent that plays display items, and a program that chats with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

from genericagent.errors import NoSuchSession
from genericagent.safety.guard import Guard
from genericagent.safety.redact import Redactor
from genericagent.store.journal import SessionInfo
from genericagent.store.search import Hit

Item = dict[str, Any]
DONE: Item = {
    "done": "", "status": "done", "result": "CURRENT_TASK_DONE", "answer": "", "question": None, "error": None,
    "usage": {"input": 1234, "output": 56, "cache_read": 617}, "cost": 0.0123, "turn": 1,
}  # fmt: skip
EVIL = "\x1b]52;c;cm0=\x07\x1b]0;title\x07\x1b[2J\x1b[1;1H\x9b2J\x1b]8;;http://evil\x1b\\link\x08\x07\x1bc"


def event(kind: str, **values: Any) -> Item:
    return {"next": "", "turn": 1, "event": {"kind": kind, **values}}


def text(value: str) -> Item:
    return {"next": value, "turn": 1}


def turn(*deltas: str) -> list[Item]:
    return [event("turn"), text("\n**LLM Running (Turn 1) ...**\n\n"), *map(text, deltas)]


def tool(name: str, args: dict[str, Any], output: list[str], ok: bool = True, result: str = "") -> list[Item]:
    """A tool call as the loop tells it: announced, its output in a fence."""
    told = [text(f"\nTool: `{name}`\n````text\n{args}\n````\n")]
    fenced = [text("`````\n" + output[0]), *map(text, output[1:]), text("\n`````\n")] if output else []
    done = event("tool_done", name=name, ok=ok, result=result)
    return [event("tool", name=name, args=args, index=0, count=1), *told, *fenced, done]


class FakeAgent:
    verbose = True
    intervene: str | None = None
    answers: ClassVar[list[str]] = []

    def answer(self, id: str, answer: Any) -> bool:
        self.answers.append(answer.scope)
        return True

    def __init__(self) -> None:
        self.got: list[str] = []
        self.session_id = ""
        self.workspace = Path(os.environ.get("WORKSPACE", "/tmp"))
        self.guard, self.redact = Guard(), Redactor(["sk-a-key-of-the-provider"])
        self.busy = False
        self.stop = threading.Event()
        self.model = 0
        self.sandbox_wish: str | None = None
        self._tasks: SimpleQueue[tuple[str, SimpleQueue[Item]] | None] = SimpleQueue()
        self.images: list[Any] = []
        self.outside: list[tuple[str, str]] = []

    def put_task(self, query: str, source: str = "user", images: Any = None, *, outside: Any = ()) -> SimpleQueue[Item]:
        queue: SimpleQueue[Item] = SimpleQueue()
        self.images, self.outside = list(images or []), list(outside)
        self._tasks.put((query, queue))
        return queue

    def run(self) -> None:
        while task := self._tasks.get():
            query, queue = task
            self.got.append(query)
            self.session_id = "20250101-abcd"
            self.stop.clear()
            self.busy = True
            for item in self.play(query):
                queue.put(item)
            self.busy = False

    def abort(self) -> None:
        if self.busy:
            self.stop.set()

    def close(self) -> None:
        self.abort()
        self._tasks.put(None)

    def release(self) -> None:
        pass

    def new_session(self) -> None:
        self.session_id = ""

    def next_llm(self, n: int = -1) -> str:
        self.model = n
        return str(n)

    def list_llms(self) -> list[tuple[int, str, bool]]:
        return [(i, name, i == self.model) for i, name in enumerate(["claude", "gpt"])]

    def list_sessions(self, everything: bool = False) -> list[tuple[str, float, str]]:
        others = [("s-watch", 6.0, "[watcher] looked")] if everything else []
        return [("s-new", 5.0, "newest\x1b[2J"), ("s-old", 7300.0, "older"), *others]

    def search_sessions(self, query: str, everything: bool = True) -> tuple[list[Hit], list[str]]:
        info = SessionInfo("s-old", Path("s-old.jsonl.gz"), 0.0, time.time() - 7300, "older\x1b[2J")
        hits = [Hit(info, f"…the {EVIL} zebra…", "")] if "zebra" in query else []
        return hits, ["broken\x1b[2J.jsonl.gz"] if query == "broken zebra" else []

    def resume(self, wanted: str = "") -> str:
        if not wanted.startswith("s-"):
            raise NoSuchSession(f"no sessions match {wanted}")
        self.session_id = wanted
        return f"{wanted}: older"

    def usage_text(self) -> str:
        return "3 requests\n$0.01"

    def banner_lines(self) -> list[str]:
        return ["scripted demo", "fake-model · /tmp"]

    def play(self, query: str) -> Iterator[Item]:
        word, _, rest = query.partition(" ")
        if word == "tool":
            yield from turn("I **run** it.\n<tool_use>{", '"name"', ": 1}</tool_use>")
            yield from tool("code_run", {"type": "bash", "script": "seq 40"}, [f"{n}\n" for n in range(40)])
            yield from turn("All 40 are there.")
        elif word == "slow":
            yield event("turn")
            yield event("tool", name="code_run", args={"type": "bash", "script": "sleep 99"}, index=0, count=1)
            yield text("first line\n")
            stopped = self.stop.wait(140)
            yield DONE | {"status": "interrupted" if stopped else "done", "error": "stopped by the user"}
            return
        elif word == "ask":
            yield from turn("I have to know.")
            yield from tool("ask_user", {"question": "Which colour?"}, ["Waiting for your answer ...\n"])
            question = {"question": "Which colour?", "candidates": ["red", "blue"]}
            yield DONE | {"status": "needs_input", "question": question}
            return
        elif word == "permit":  # asks as soon as the file is there
            yield from turn("")
            while not Path(rest).exists():
                time.sleep(0.005)
            yield event("ask", id="q1", question="May code_run do this?", whole="all of it")
            while not self.answers:
                time.sleep(0.005)
            yield text(f"answered {self.answers.pop()}")
        elif word == "form":
            yield from turn("I have to know.")
            questions = [
                {"question": "Which colour?", "candidates": ["red", "blue"]},
                {"question": "What name?", "candidates": []},
            ]
            question = {"question": "1. Which colour?\n2. What name?", "candidates": [], "questions": questions}
            yield DONE | {"status": "needs_input", "question": question}
            return
        elif word in ("failed", "limit"):
            yield from turn("")
            yield DONE | {"status": word, "error": "HTTP 401: wrong key"}
            return
        elif word == "evil":
            yield from turn(f"model {EVIL}&#27;[2J end")
            yield from tool("file_read", {"path": f"name{EVIL}"}, [*f"tool {EVIL} end\n"])
        elif word == "flood":
            yield from turn("")
            yield from (text(f"word{n} " + "\n\n" * (n % 12 == 11)) for n in range(int(rest)))
        elif word == "lines":
            yield from turn("```\n", *["x\n" * 100] * (int(rest) // 100), "```\n")
        elif word == "until":  # streams until the file is there
            yield from turn("")
            while not Path(rest).exists():
                yield text("word ")
                time.sleep(0.005)
        elif word == "signs":
            yield from turn("█ 🎉 世界 ✓\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
        elif word == "show":  # what came with the message
            yield from turn(f"images {[Path(i).name for i in self.images]}\n\n")
            yield text("```\n" + "".join(f"from {source!r}: {t}\n" for source, t in self.outside) + "```\n")
        elif word == "count":
            yield from turn(f"{len(query)} characters, {query.count(chr(10))} line feeds, ends {query[-20:]!r}")
        else:
            yield from turn("got ", repr(query))
        yield DONE


if __name__ == "__main__":
    from genericagent.cli.chat import run_chat

    sys.exit(run_chat(FakeAgent()))
