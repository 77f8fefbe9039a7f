"""The agent: a queue of tasks run one after another in a thread, and the program around it.

    agent = GenericAgent()
    threading.Thread(target=agent.run, daemon=True).start()
    queue = agent.put_task("…")          # {"next": delta, "turn": n} …, at last {"done": full text, "status": …}

Results, statuses and exit codes stand in RESULTS. `main()` is the command line; what a command does is in
genericagent/cli/.
"""

from __future__ import annotations

if __name__ == "__main__":  # run as a script: one copy of this module, the one that everybody else imports
    import os
    import signal
    import sys

    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # until the program is there to be stopped
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib takes time
    if here not in sys.path:  # python -P and -I leave it out
        sys.path.insert(0, here)
    import agentmain

    agentmain.cli_entry()

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from agent_loop import agent_runner_loop, as_content
from ga import GenericAgentHandler, load_tool_schema
from genericagent import memory, paths
from genericagent.abort import Abort
from genericagent.config import check_numbers, known_keys, typed
from genericagent.display import Masked, untagged
from genericagent.errors import ConfigError, GAError, LLMError, SessionError, ToolError
from genericagent.llm import blocks, usage
from genericagent.llm.budget import Budget, Cap, DailyCap, TaskCap
from genericagent.llm.history import user_line
from genericagent.memory.evidence import Evidence
from genericagent.project_notes import Notes, read_notes
from genericagent.prompts import prompt, say, set_language
from genericagent.safety.asking import NO, Answer, Desk
from genericagent.safety.guard import TERMINAL, Containment, Guard, contain, zones_of
from genericagent.safety.policy import Origin, Rules, parse_rules, unreadable
from genericagent.safety.redact import Redactor
from genericagent.store import atomic
from genericagent.store.journal import Journal, history_from, new_id, read
from genericagent.store.ledger import Ledger
from genericagent.store.restored import NOT_THE_USER, NOTES_LAST, Restored, message_from
from genericagent.tools.code_run import Limits
from llmcore import SETTABLE, BaseClient, load_config, make_client, make_session, reload_mykeys
from plugins import hooks

if TYPE_CHECKING:
    from genericagent.safety.sandbox import Sandbox
    from genericagent.store.search import Hit
    from TMWebDriver import TMWebDriver

# result of the loop → (status, exit code); EXITED with a question is ("needs_input", 4)
RESULTS = {
    "CURRENT_TASK_DONE": ("done", 0),
    "EXITED": ("done", 0),
    "MAX_TURNS_EXCEEDED": ("limit", 3),
    "BUDGET_EXCEEDED": ("limit", 3),
    "LLM_FAILED": ("failed", 1),
    "ABORTED": ("interrupted", 130),
}
EXIT_CODES = {"done": 0, "failed": 1, "limit": 3, "needs_input": 4, "interrupted": 130}
LONG_REQUEST = 2000  # tokens; a longer one goes into a file
USER_TOOLS = ("ask_user", "start_long_term_update")  # left out with --no-user-tools


@dataclass
class Options:
    """What a run may do: caps (dollars, seconds), where it works, what it offers."""

    config_file: str | None = None
    workspace: Path | None = None
    max_turns: int | None = None
    max_cost: float | None = None
    max_time: float | None = None
    user_tools: bool = True
    label: str = ""  # said on the first screen, e.g. that a demo is scripted
    origin: Origin = "chat"  # who started it: decides what is allowed, asked, denied
    sandbox: str | None = None  # off, auto, require; None: as configured
    net: str | None = None  # on, off: inside the sandbox
    allow: tuple[str, ...] = ()  # rules beside the configured ones
    tainted: str = ""  # where text from outside came from that whoever started this had read
    hosts: tuple[str, ...] = ()  # that were known there
    depth: int = 0  # how many agents are above this one
    fixed: tuple[Path, ...] = ()  # real paths that commands in the sandbox must not change


@dataclass
class Task:
    query: str
    source: str
    images: list[Any]
    outside: Sequence[tuple[str, str]] = ()
    queue: SimpleQueue[dict[str, Any]] = field(default_factory=SimpleQueue)
    put: Callable[[dict[str, Any]], None] = lambda item: None  # into the queue, without keys


def get_system_prompt(cwd: Path | None = None, sandbox: Sandbox | None = None, notes: str = "") -> str:
    """The system prompt of a task that starts now: role, date, working directory, what commands can reach, memory index, and
    the project's notes."""
    walls = ""
    if sandbox:
        walls = say("walls", temp=paths.temp()) + ("" if sandbox.net else say("walls_net"))
    return prompt("system").format(
        memory=paths.memory(), date=time.strftime("%Y-%m-%d"), cwd=cwd or paths.temp(), walls=walls,
        insight=memory.insight(),
    ) + notes  # fmt: skip


class GenericAgent:
    """Tasks in, text out. One conversation at a time; `run()` works the queue until `close()`."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.verbose = True
        self.inc_out = True  # accepted for users of the original: output is always deltas
        self.stop = Abort()
        self.intervene: str | None = None
        self.extrakeyinfo: str | None = None
        self.task_dir: Path | None = None
        self.busy = False
        self.plan: str | None = None  # the checklist that the next tasks work along; "": one that the model is to write
        self.session_id = ""
        self.lines: list[str] = []  # the summary lines of the conversation
        self.handler: GenericAgentHandler | None = None
        told = paths.ensure_home()
        self.config = load_config(self.options.config_file)
        self.told = [*told, *self.config.told]
        self._redactor, self._known = Redactor(()), set[str]()
        self._masks: tuple[Any, int] = (None, 0)  # what the redactor was made from
        if self.config.ui.language and not os.environ.get("GA_LANG"):
            set_language(self.config.ui.language)
        plugins = hooks.discover([paths.shipped("plugins"), paths.home() / "plugins"])
        self.problems = [*self.config.problems, *map(self.redact, plugins)]
        self.session_meter, self.task_meter = usage.Meter(), usage.Meter()
        self._turn_meters: dict[int, usage.Meter] = {}
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._clients: dict[int, BaseClient] = {}
        self._chosen = 0
        self._journal: Journal | None = None
        self._project: dict[Path, Notes] = {}  # by workspace, as they were when the conversation first saw them
        self._notes: tuple[str, int] | None = None  # the last task's notepad and how many tasks ago it was
        self._session_folder: Path | None = None  # where a resumed conversation worked
        self._budget = Budget()
        self.ledger = Ledger(paths.home() / "spend")
        self.watchers_ledger = Ledger(paths.home() / "spend" / "watchers")  # what watchers spent of that
        self._out_of_time = False
        self._deadline: float | None = None
        self._asides: list[Abort] = []  # of questions that are being answered beside the task
        self._emit: Callable[[dict[str, Any]], None] = lambda event: None
        self._closing = False
        self.can_ask = False  # a face that shows questions of permission and calls answer() sets it
        self._desk = Desk()
        self._safety = self.config.safety  # as it was at the start: nothing that runs can loosen it
        self._rules = self.parsed_rules()
        self.guard, self.evidence = self._new_guard(), Evidence()

    # safety

    def parsed_rules(self, more: Sequence[str] = ()) -> Rules:
        """The rules of this program, and more of the user's. Raises ConfigError."""
        tools = [t["function"]["name"] for t in load_tool_schema()]
        safety = self._safety
        return parse_rules((*safety.allow, *self.options.allow, *more), safety.ask, safety.deny, tools)

    def _new_guard(self, tainted: str = "") -> Guard:
        guard = Guard(
            self.options.origin, self._rules, tainted=self.options.tainted or tainted, fixed=self.options.fixed
        )
        guard.hosts.update(self.options.hosts)
        return guard

    @property
    def sandbox_wish(self) -> str | None:
        return self.options.sandbox or self._safety.sandbox

    def containment(self) -> Containment:
        """What holds this agent's commands. Raises ConfigError where none may run without a sandbox and there is none."""
        net = (self.options.net or self._safety.net) != "off"
        file = self.options.config_file
        hide = (*unreadable(self._rules), *([Path(file).resolve()] if file else []))
        return contain(self.sandbox_wish, self.options.origin, zones_of(self.workspace), net, hide, self.options.fixed)

    def run_limits(self) -> Limits:
        """Memory, file size and CPU time of each command."""
        given = {name: getattr(self._safety, name) for name in ("memory_mb", "file_mb", "cpu_seconds")}
        return Limits(**{name: value for name, value in given.items() if value is not None})

    def ask(self, question: str, whole: str) -> Answer:
        """Put a question of permission to whoever is there; nobody is a no. Blocks until it is answered or stopped."""
        if not self.can_ask:
            return NO
        id = os.urandom(6).hex()
        return self._desk.ask(
            id, lambda: self._emit({"kind": "ask", "id": id, "question": question, "whole": whole}), self.stop
        )

    def answer(self, id: str, answer: Answer) -> bool:
        """A face's answer to the event `ask`. False when that question is not open any more."""
        return self._desk.answer(id, answer)

    def tainted(self, source: str) -> None:
        """Text from outside has come into the conversation; that is remembered with it."""
        self._record({"type": "taint", "source": source})

    @cached_property
    def browser(self) -> TMWebDriver:
        """The way to the user's browser, opened when it is first needed."""
        if not paths.pairing().exists():
            raise ToolError(say("browser_missing"))
        from TMWebDriver import TMWebDriver

        return TMWebDriver(stop=self.stop)

    def _pairing(self) -> set[str]:
        """The secret between the browser and us, where there is one."""
        if not paths.pairing().exists():
            return set()
        from genericagent.safety.listener import read_token

        return {read_token(paths.pairing())} - {""}

    # models

    @property
    def client(self) -> BaseClient:
        """The client of the chosen model. Raises ConfigError when none is configured."""
        if self._chosen not in self._clients:
            if not self.config.models:
                raise ConfigError("; ".join(self.config.problems) or say("no_key"))
            client = make_client(make_session(self.config.models[self._chosen], self.config.models))
            self._wire_up(client)
            self._clients[self._chosen] = client
        return self._clients[self._chosen]

    @property
    def llmclient(self) -> BaseClient:
        return self.client

    @property
    def workspace(self) -> Path:
        return self.options.workspace or self._session_folder or paths.temp()

    @property
    def context_win(self) -> int:
        return self.client.backend.context_win

    def takes_images(self) -> bool:
        return self.client.backend.takes_images()

    def list_llms(self) -> list[tuple[int, str, bool]]:
        """(index, name, whether it is the chosen one) of every configured model."""
        return [(i, m.label, i == self._chosen) for i, m in enumerate(self.config.models)]

    def next_llm(self, n: int = -1) -> str:
        """Switch to model `n`, or to the next one; the conversation goes along. Returns its name."""
        count = len(self.config.models)
        if not count:
            raise ConfigError(say("no_key"))
        wanted = (self._chosen + 1) % count if n < 0 else n
        if wanted >= count:
            raise ConfigError(f"there is no model {n}: {count} are configured, 0 to {count - 1}")
        going_on = self._conversation()
        self._chosen = wanted
        self.client.reset(*going_on)
        return self.client.name

    def _conversation(self) -> tuple[list[blocks.Message], dict[str, Any]]:
        """What another client goes on with: the messages, and the results that wait for the next request."""
        return (self.client.backend.history, self.client.unsent) if self._clients else ([], {})

    def secrets(self) -> tuple[set[str], list[str]]:
        """(values that children must not see in their environment, names of variables they may keep)."""
        return self.config.secrets(), list(self.config.safety.env_keep)

    @property
    def redact(self) -> Redactor:
        """Masks every key known so far, also one that a reload of the configuration took away."""
        masks = (self.config, known_keys())
        if masks != self._masks:
            self._known |= self.config.hidden() | self._pairing()
            self._masks, self._redactor = masks, Redactor(self._known)
        return self._redactor

    def _wire_up(self, client: BaseClient) -> None:
        for session in (client.backend, *getattr(client.backend, "members", ())):
            session.abort = self.stop
            session.prices = self.config.prices
            session.budget = self._budget
            session.spent = self._spent
        client.backend.record = self._record
        client.backend.notice = self._notice
        client.backend.save = self._save
        client.advice = self._advice

    def _advice(self, error: GAError) -> str:
        """What the user may do about a model call that has failed for good, as the end of the error's line."""
        if not isinstance(error, LLMError):
            return ""
        from genericagent.llm.faults import remedy

        kind, chat, model = remedy(error), self.options.origin == "chat", self.client.backend.model
        about = "environment" if model.source == "environment" else paths.shown(model.source)
        ways = [say("advice_shorter_chat" if chat and kind == "shorter" else f"advice_{kind}", source=about)]
        if len(self.config.models) > 1:
            ways.append(say("advice_other_chat" if chat else "advice_other"))
        if kind in ("address", "check"):
            ways.append(say("advice_doctor_chat" if chat else "advice_doctor"))
        return say("advice", ways="; ".join(ways))

    def _save(self, text: str) -> str:
        """Keep a tool result that a cut shortens, for the model to read again; returns its path."""
        import hashlib

        name = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()
        path = paths.outputs() / f"result-{name}.txt"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_own(path, self.redact(text))
        return str(path)

    def tell(self, text: str) -> None:
        """One line for the user, now. A sub-agent has nobody there: it waits for the next chat."""
        if self.options.depth:
            from genericagent.store.outbox import Outbox

            Outbox(paths.home() / "outbox").put(
                f"task-{new_id(time.time())}", "terminal", "sub-agent", self.redact(text)
            )
        self._emit({"kind": "notice", "text": text})

    def _notice(self, text: str, seconds: float = 0.0) -> None:
        """One line for the user; `seconds`: how long it takes until the next try."""
        self._emit({"kind": "retry", "text": text, "seconds": seconds})

    def _spent(self, used: blocks.Usage, cost: float | None, aside: bool = False) -> None:
        turn = self._turn_meters.setdefault(self.handler.current_turn if self.handler else 0, usage.Meter())
        for meter in (self.task_meter, self.session_meter) if aside else (turn, self.task_meter, self.session_meter):
            meter.add(used, cost)
        tokens = used.as_dict()
        if not any(
            isinstance(cap, DailyCap) and cap.ledger is self.ledger for cap in self._budget.caps
        ):  # it does it itself
            self.ledger.settle(None, cost, tokens)
        self._record({"type": "usage", **tokens, "cost": cost, **({"aside": True} if aside else {})}, sync=False)

    def _caps(self) -> list[Cap]:
        """The caps of a task that starts now."""
        limits, caps = self.config.limits, list[Cap]()
        max_cost = limits.max_cost if self.options.max_cost is None else self.options.max_cost
        if max_cost is not None:
            caps.append(TaskCap(max_cost))
        if limits.daily_cost is not None:
            caps.append(DailyCap(self.ledger, limits.daily_cost))
        if self.options.origin == "watcher":
            caps.append(DailyCap(self.watchers_ledger, self.config.reflect.daily_cost, "limit_watchers"))
        return caps

    def day_is_spent(self) -> bool:
        """Whether a daily cap on money has ended the last task."""
        return any(isinstance(cap, DailyCap) and cap.refused for cap in self._budget.caps)

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Stops the task, also in the middle of a call or a tool, when its time is over."""
        limit = self.config.limits.max_time if self.options.max_time is None else self.options.max_time
        self._out_of_time, self._deadline = False, None
        if limit is None:
            yield
            return
        self._deadline = time.monotonic() + limit

        def over() -> None:
            self._out_of_time = True
            self.stop.set(say("limit_time", limit=limit))

        timer = threading.Timer(min(limit, threading.TIMEOUT_MAX), over)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _time_left(self) -> float | None:
        return None if self._deadline is None else max(0.1, self._deadline - time.monotonic())

    # the conversation

    def new_session(self) -> None:
        """Forget the conversation; the next task begins a new session file."""
        self._close_journal()
        self.lines, self._notes, self.session_id, self._session_folder, self.plan = [], None, "", None, None
        self.guard, self.evidence = self._new_guard(), Evidence()
        self._project.clear()
        self.session_meter = usage.Meter()
        for client in self._clients.values():
            client.reset()

    @property
    def session_file(self) -> Path | None:
        """The journal of the conversation; None before its first task."""
        return self._journal.path if self._journal else None

    def list_sessions(self, everything: bool = False) -> list[tuple[str, float, str]]:
        """(id, age in seconds, title) of the user's saved sessions, newest first; with `everything` also of those of
        watchers and sub-agents, which are marked."""
        from genericagent.control import titled
        from genericagent.store.search import listing

        now = time.time()
        return [(s.id, now - s.updated, self.redact(titled(s))) for s in listing()[0] if everything or not s.by]

    def search_sessions(
        self, query: str, days: float | None = None, most: int = 20, width: int = 160, everything: bool = True
    ) -> tuple[list[Hit], list[str]]:
        """(the sessions of the last `days` that hold these words, best first; names of damaged archives). Without
        `everything`: of the user's own. SessionError."""
        from genericagent.store.search import search

        now = time.time()
        return search(query, now - days * 86400 if days else 0, now, most, self.redact, width, everything)

    def resume(self, wanted: str = "") -> str:
        """Go on with a saved session (an id, its beginning, or a path; empty: the newest). Raises SessionError.

        Returns what the user should know about it, in one line.
        """
        from genericagent.store.search import find, newest

        path = find(wanted or newest())
        journal, records, report = Journal.open(path)
        self.new_session()
        restored = history_from(records)
        self._journal, self.session_id = journal, journal.id
        self.guard = self._new_guard(restored.tainted)
        for line in restored.said:
            self.guard.user_said(line)
            self.evidence.user_said(line)
        folder = Path(restored.folder or str(journal.header.get("cwd") or ""))
        self._session_folder = folder if folder.is_absolute() and folder.is_dir() else None
        if restored.unknown:
            report = "; ".join(filter(None, [report, say("was_cut_off")]))
        if folder.is_absolute() and not self.options.workspace and self.workspace != folder:
            gone = say("folder_gone", folder=paths.shown(folder), now=paths.shown(self.workspace))
            report = "; ".join(filter(None, [report, gone]))
        self.take_up(restored)
        return f"{journal.id}: {restored.title}" + (f" ({report})" if report else "")

    def take_up(self, restored: Restored) -> None:
        """Go on with this conversation; what was read and allowed in ours stays."""
        self.lines = list(restored.lines)
        self._notes = (restored.key_info, 0) if restored.key_info else None
        self.client.reset(restored.history)

    def seed_history(self, messages: Sequence[Any]) -> None:
        """Begin with the given messages: our blocks, or `{"role", "content": text}`."""
        history = [message_from(m) for m in messages]
        if None in history:
            raise SessionError(
                'the history must be a JSON list of {"role": "user"|"assistant", "content": text or blocks}'
            )
        self.client.reset(history)
        self._record({"type": "cut", "history": history})

    def add_line(self, line: str) -> None:
        self.lines.append(line)
        self._record({"type": "line", "text": line}, sync=False)

    def checkpoint(self, key_info: str) -> None:
        """The notepad was replaced: remember it, and where the context may be cut."""
        self.client.backend.mark_checkpoint()
        self._record({"type": "note", "key_info": key_info}, sync=False)

    def _record(self, record: dict[str, Any], sync: bool = True) -> None:
        if self._journal is None:
            self.session_id = new_id(time.time())
            by = "subagent" if self.options.depth else "watcher" if self.options.origin == "watcher" else ""
            header = self.redact.json(
                {"cwd": str(self.workspace), "llm": self.client.name, **({"by": by} if by else {})}
            )
            self._journal = Journal.create(paths.sessions(), self.session_id, header, time.time)
            if self.guard.tainted and record["type"] != "taint":  # before the conversation had anything to remember
                self._journal.append(self.redact.json({"type": "taint", "source": self.guard.tainted}))
        self._journal.append(self.redact.json(record), sync=sync)

    def record(self, record: dict[str, Any], sync: bool = True) -> None:
        """Add to the journal of the conversation, which is made if there is none. Raises SessionError."""
        self._record(record, sync)

    def records(self) -> list[dict[str, Any]]:
        """What the journal holds. Raises SessionError."""
        return read(self._journal.path).records if self._journal else []

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    # tasks

    def put_task(
        self,
        query: str,
        source: str = "user",
        images: list[Any] | None = None,
        *,
        outside: Sequence[tuple[str, str]] = (),
    ) -> SimpleQueue[dict[str, Any]]:
        """Queue a task; returns the queue that its output comes in, ended by the item with `done`.

        `source`: who says it; "user" is a person at this terminal, "pasted" the same with text that is no command, "choice" one
        that took what the model offered, "file" a file that a script could have written, "reflect:NAME" a watcher's script.
        `outside`: text that comes with it and is not the user's words, such as a forwarded message, as (where from, text);
        one without a source is trusted, as the output of a command in the workspace.
        """
        task = Task(query, source, list(images or []), outside)
        self._tasks.put(task)
        return task.queue

    def abort(self) -> None:
        """Stop the running task: the model call, the tool with all its processes, and what would follow."""
        if self.busy:
            self.stop.set()

    def run(self) -> None:
        """Work the queue until close(). Meant for a thread of its own."""
        while (task := self._tasks.get()) is not None:
            self.run_task(task)
            if self._tasks.empty():
                from genericagent.store import archive
                from genericagent.tools import undo

                archive.now_and_then(time.time())
                undo.clean(time.time())

    def close(self) -> None:
        """Stop the running task and end run() after it."""
        self._closing = True
        self.abort()
        for abort in list(self._asides):
            abort.set()
        self._tasks.put(None)

    def release(self) -> None:
        """Let go of the session file and the browser, once nothing runs any more."""
        self._close_journal()
        if (driver := self.__dict__.pop("browser", None)) is not None:
            driver.close()

    def run_task(self, task: Task) -> None:
        """Run one task here; its queue gets everything, also an error."""
        self.busy = True
        self.stop.clear()
        if self._closing:  # what is still queued then ends at once
            self.stop.set()
        full: list[str] = []
        task.put = Masked(task.queue.put, lambda: self.redact)
        end: dict[str, Any] = {
            "status": "failed",
            "result": "LLM_FAILED",
            "answer": "",
            "question": None,
            "error": None,
        }
        try:
            local = task.source == "user" and self.options.origin in TERMINAL  # no settings from afar
            end.update((self._command(task.query) if local else None) or self._work(task, full))
        except GAError as error:
            end["error"] = str(error)
        except OSError as error:
            end["error"] = f"{error.filename or 'the disk'}: {error.strerror or error}"
        except BaseException as error:  # also a plugin that exits: the one who waits gets an answer in any case
            end["error"] = f"bug: {type(error).__name__}: {error} (traceback in {paths.logs() / 'ga.log'})"
            import logging

            logging.getLogger("genericagent").exception("a task failed with a bug")
        finally:
            self.busy = False
            turn = self.handler.current_turn if self.handler else 0
            try:
                used = self.usage_report()
            except GAError as error:
                used = self.task_meter.as_dict()
                end["error"] = end["error"] or str(error)
            task.put({
                "done": "".join(full), "turn": turn, "usage": used, "cost": self.task_meter.cost,
                "session": self.session_id, **end,
            })  # fmt: skip

    def _command(self, query: str) -> dict[str, Any] | None:
        """The slash commands that belong to the agent: their outcome, or None when `query` is a task."""
        word, _, rest = query.strip().partition(" ")
        if word.startswith("/session."):
            answer = self._set(query.strip()[len("/session.") :])
        elif word == "/resume":
            if rest.strip():
                answer = self.resume(rest.strip())
            else:
                listed = [f"{i}  {title}" for i, _, title in self.list_sessions()[:20]]
                answer = "\n".join(listed) or say("no_sessions")
        else:
            return None
        return {"status": "done", "result": "CURRENT_TASK_DONE", "answer": answer}

    def _set(self, wish: str) -> str:
        import json
        from dataclasses import replace

        key, given, value = wish.partition("=")
        if key not in SETTABLE:
            raise ConfigError(f"/session.{key} cannot be set; settable: {', '.join(SETTABLE)}")
        try:
            parsed = json.loads(value)
        except ValueError:
            parsed = value
        backend = self.client.backend
        if not given:
            return f"{key} = {getattr(backend.model, key)}"
        kind = next(str(f.type) for f in fields(backend.model) if f.name == key)
        wants_none = parsed in (None, "") and kind.endswith("None")
        change: dict[str, Any] = {key: None if wants_none else typed(parsed, kind, f"/session.{key}")}
        changed = replace(backend.model, **change)
        check_numbers(changed, "/session")
        backend.model = changed
        return f"{key} = {change[key]}"

    def _work(self, task: Task, full: list[str]) -> dict[str, Any]:
        if not task.query.strip():
            raise GAError(say("empty_request"))
        put, turn = task.put, 0

        def emit(event: dict[str, Any]) -> None:
            put({"next": "", "turn": turn, "event": event})

        self._emit = emit
        self._fresh_config()
        unread = self.workspace not in self._project
        watched = self.options.origin in TERMINAL and not self.options.depth and self.task_dir is None
        for line in memory.ensure_seeds(self.redact.json, watched):
            self.tell(line)
        if unread and (line := self.project_notes().line):
            emit({"kind": "notice", "text": line, "passing": True})
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.task_meter, self._turn_meters = usage.Meter(), {}
        self._budget.caps = self._caps()
        self.guard.enter(self.workspace, self.containment())
        self.evidence.begin()
        if not task.source.startswith(NOT_THE_USER):
            self.guard.user_said(task.query)
            self.evidence.user_said(task.query)
        handler = self.handler = GenericAgentHandler(self, self.lines, self.workspace)
        if self._notes:
            handler.working = {"key_info": self._notes[0], "key_info_age": self._notes[1] + 1}
        self._record({"type": "task", "event": "start", "source": task.source, "text": task.query})
        handler._add_line(user_line(task.query))
        loop = agent_runner_loop(
            self.client, self._system_prompt(), self._request(task, handler), handler, self._tools(),
            max_turns=self.options.max_turns or self.config.limits.max_turns, verbose=self.verbose, yield_info=True,
        )  # fmt: skip
        try:
            with self._time_limit():
                while True:
                    try:
                        chunk = next(loop)
                    except StopIteration as stop:
                        reason = stop.value
                        break
                    if isinstance(chunk, str):
                        full.append(chunk)
                        put({"next": chunk, "turn": turn})
                    elif "turn" in chunk:
                        turn = handler.current_turn = chunk["turn"]
                        emit({"kind": "turn"})
                    elif "tool" in chunk:
                        emit({"kind": "tool", "name": chunk.pop("tool"), **chunk})
                    else:
                        emit({"kind": "tool_done", "name": chunk["tool_done"], **_brief(chunk["data"], handler.redact)})
        finally:
            handler.look_again(last=True)
        if self._out_of_time and reason["result"] == "ABORTED":
            reason = {"result": "BUDGET_EXCEEDED", "data": self.stop.why}
        return self._conclude(handler, reason)

    def _system_prompt(self) -> str:
        notes = self.project_notes().section
        return self.redact(get_system_prompt(self.workspace, self.guard.containment.sandbox, notes))

    def project_notes(self) -> Notes:
        """Those of the workspace, read once in a conversation; a sub-agent's folder was not chosen by the user."""
        where = self.workspace
        if where not in self._project:
            self._project[where] = Notes() if self.options.depth else read_notes(where, self._rules)
        return self._project[where]

    def surroundings(self) -> tuple[str, list[dict[str, Any]], str]:
        """(system prompt, tools, notepad) that a request has beside the messages."""
        return self._system_prompt(), self._tools(), self._notes[0] if self._notes else ""

    def _conclude(self, handler: GenericAgentHandler, reason: dict[str, Any]) -> dict[str, Any]:
        """What a finished loop means: status, answer, question, error; and what the next task is told of this one."""
        result, data = reason["result"], reason["data"]
        if handler.answer is not None and result != "ABORTED":  # it was done before it was asked what to store
            result, data = "CURRENT_TASK_DONE", handler.answer
        status = RESULTS[result][0]
        question = None
        if result == "EXITED" and isinstance(data, dict) and data.get("status") == "INTERRUPT":
            status, question = "needs_input", data["data"]
        if status == "done" and self.plan == handler.working.get("plan"):
            self.plan = None
        notes = handler.working.get("key_info")
        age = handler.working.get("key_info_age", 0)
        # the notes of a stopped or failed task stay in the journal, but the next task is not to resume it by itself
        self._notes = (notes, age) if notes and status in NOTES_LAST else None
        error = None
        if status in ("failed", "limit", "interrupted"):
            unsaid = (
                say("limit_turns", turns=handler.max_turns) if status == "limit" else self.stop.why or say("stopped")
            )
            error = str(data).removeprefix("Error: ") if data else unsaid
        elif question and data.get("denied"):
            error = question["question"]
        end = {
            "status": status, "result": result, "question": question, "error": error,
            "answer": untagged(data) if result == "CURRENT_TASK_DONE" and isinstance(data, str) else "",
            "files_changed": handler.files_changed, "denied": handler.denied, "tainted": self.guard.tainted,
            "answered_by": self.client.backend.answered_by if hasattr(self.client.backend, "members") else None,
        }  # fmt: skip
        self._record({
            "type": "task", "event": "end", "status": status, "usage": self.task_meter.as_dict(),
            "cost": self.task_meter.cost,
        })  # fmt: skip
        return end

    def _request(self, task: Task, handler: GenericAgentHandler) -> Any:
        """The user's request as the first message: long text through a file, images as blocks."""
        query = task.query
        if usage.estimate(query) > LONG_REQUEST:
            path = paths.temp() / "_requests" / f"{self.session_id}-{len(self.lines)}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_own(path, query)
            query = say("request_in_file", head=query[:400], length=len(query), path=path)
        query += self._planned(handler)
        if task.outside:
            self._record({"type": "outside", "parts": [list(part) for part in task.outside]}, sync=False)
        for source, text in task.outside:
            query += f"\n\n{handler.outside(text, source) if source else text}"
        if not task.images:
            return query
        from genericagent.tools.images import image_block

        shown = [i if isinstance(i, dict) else image_block(Path(i), self.takes_images()) for i in task.images]
        return [blocks.text(query), *shown]

    def _planned(self, handler: GenericAgentHandler) -> str:
        """What is said behind the request when the user wants a plan."""
        if self.plan is None:
            return ""
        self.plan = self.plan or str(paths.temp() / "plans" / f"{self.session_id}-{len(self.lines)}.md")
        handler.enter_plan_mode(self.plan)
        return "\n\n" + say("plan_wanted", plan=self.plan)

    def _tools(self) -> list[dict[str, Any]]:
        tools = load_tool_schema()
        if self.options.user_tools:
            return tools
        return [t for t in tools if t["function"]["name"] not in USER_TOOLS]

    def _fresh_config(self) -> None:
        """Pick up edited configuration files between tasks; the conversation stays. Broken ones are told and wait."""
        try:
            config, changed = reload_mykeys(self.config)
        except ConfigError as error:
            self._emit({"kind": "retry", "text": say("config_kept", why=error)})
            return
        if changed and vars(config.safety) != vars(self._safety):
            self._emit({"kind": "notice", "text": say("safety_at_start")})
        if changed and config.models:
            going_on = self._conversation()
            self.config, self._clients = config, {}
            self._chosen = min(self._chosen, len(config.models) - 1)
            self.client.reset(*going_on)

    # beside the task

    def subagents(
        self, prompts: list[str], folder: Path | None, timeout: float
    ) -> Generator[str, None, list[dict[str, Any]]]:
        """Run tasks in processes of their own with what this one has: model, keys, rules, and what is left of turns, time and,
        divided among them, money. See tools/subagents.py."""
        from genericagent.tools.subagents import run_subagents

        if self.options.depth:
            raise ToolError(say("subagent_deep"))
        turns = self.handler.max_turns - self.handler.current_turn if self.handler else 1
        money = [cap.left() for cap in self._budget.caps if isinstance(cap, TaskCap)]
        given = {
            "llm_no": self._chosen, "max-turns": max(1, turns), "max-cost": max(1e-6, min(money) / len(prompts)) if money and prompts else None,
            "max-time": self._time_left(), "sandbox": self.options.sandbox or self._safety.sandbox, "net": self.options.net or self._safety.net,
            "cwd": folder, "config": self.options.config_file,
        }  # fmt: skip
        command = [
            sys.executable,
            str(paths.program()),
            "--no-user-tools",
            *(f"--allow={rule}" for rule in self.options.allow),
        ]
        command += [f"--{name}={value}" for name, value in given.items() if value is not None]
        inherited = {
            "tainted": self.guard.tainted, "hosts": sorted(self.guard.hosts), "depth": self.options.depth + 1,
            "origin": "script" if self.options.origin in TERMINAL else "watcher", "fixed": list(map(str, self.options.fixed)),
        }  # fmt: skip
        results = yield from run_subagents(
            prompts, command, inherited, stop=self.stop, id=os.urandom(3).hex(), timeout=timeout
        )
        for result in results:
            lost = {"cost": given["max-cost"]}  # of one that is lost nobody knows better
            self._spent_by(result.get("full") or lost)
        return results

    def _spent_by(self, result: dict[str, Any]) -> None:
        """What a sub-agent has used belongs to the task; it has told the day's ledger itself."""
        told = result.get("usage") or {}
        used = blocks.Usage(**{f.name: int(told.get(f.name) or 0) for f in fields(blocks.Usage)})
        for meter in (self.task_meter, self.session_meter):
            meter.add(used, result.get("cost"), int(told.get("requests") or 0))
        for cap in self._budget.caps:
            if isinstance(cap, TaskCap):
                cap.settle(result.get("cost"), used)

    def aside(self, question: str, stop: Abort | None = None) -> Generator[str, None, None]:
        """Answer a question about the conversation while a task may be running, which learns nothing of it. Yields text.

        It is the conversation as it is now, asked once more in the same words, so that most of it comes from the cache.
        Raises LLMError, ConfigError, BudgetError.
        """
        client, seen = self.client, list(self.client.backend.history)
        while seen and not _settled(seen[-1]):
            seen.pop()
        session = make_session(self.config.models[self._chosen], self.config.models)
        session.prices, session.spent = self.config.prices, partial(self._spent, aside=True)
        session.budget = Budget([TaskCap(cap.left()) for cap in self._budget.caps if isinstance(cap, TaskCap)])
        if self.config.limits.daily_cost is not None:
            session.budget.caps.append(DailyCap(self.ledger, self.config.limits.daily_cost))
        session.reset(seen)
        tools = self._tools() if session.native else []
        system = client.system or self._system_prompt()
        self._asides.append(session.abort)
        if stop:
            stop.on_set(session.abort.set)
        try:
            answer = yield from session.ask([blocks.text(say("aside", question=question))], system, tools)
        except LLMError as error:
            raise LLMError(f"{error}{self._advice(error)}", status=error.status) from error
        finally:
            self._asides.remove(session.abort)
        if not blocks.text_of(answer.blocks).strip():
            yield say("aside_nothing")

    # for faces

    def usage_report(self) -> dict[str, Any]:
        """Tokens of the task; under `turns`, `session` and `day` those of each turn, of the conversation and of today,
        with dollars (None: a price was not known)."""
        day = self.ledger.today()
        return {
            **self.task_meter.as_dict(),
            "turns": [{"turn": n, **m.as_dict(), "cost": m.cost} for n, m in self._turn_meters.items()],
            "session": {**self.session_meter.as_dict(), "cost": self.session_meter.cost},
            "day": {**day.tokens, "requests": day.requests, "cost": day.cost, "unpriced": day.unpriced},
        }

    def usage_text(self) -> str:
        """Tokens, cache share and money of the session, and money of the day, in a few lines."""
        total, day = self.session_meter, self.ledger.today()
        used = total.usage
        share = 100 * used.cache_read / used.input if used.input else 0
        text = say(
            "usage", requests=total.requests, input=used.input, share=f"{share:.0f}", output=used.output, money=_money(total.cost)
        )  # fmt: skip
        limit = self.config.limits.daily_cost
        of = say("of_limit", limit=limit) if limit is not None else ""
        return f"{text}\n{say('usage_day', requests=day.requests, money=_money(day.cost), of=of)}"

    def banner_lines(self) -> list[str]:
        """What the first screen says: label, model, workspace, what is wrong with the configuration."""
        name = self.client.name if self.config.models else say("no_key")
        held, walls = self.containment(), say("banner_open")
        if held.sandbox:
            walls = say("banner_walls") + ("" if held.sandbox.net else say("banner_net"))
        first = [
            self.options.label,
            f"{name} · {paths.shown(self.workspace)}",
            held.note or walls,
            self.project_notes().line,
        ]
        return [*filter(None, first), *self.told, *self.problems]


GeneraticAgent = GenericAgent  # the original's name for it


def _settled(message: blocks.Message) -> bool:
    """Whether a history may end with it: an answer without tool calls that still have no result."""
    return message["role"] == "assistant" and all(block.get("type") != "tool_use" for block in message["content"])


def _money(dollars: float | None) -> str:
    return say("cost_unknown") if dollars is None else f"${dollars:.4f}"


def _brief(data: Any, redact: Callable[[str], str]) -> dict[str, Any]:
    """A tool's outcome for a face: whether it went well, and its text, at most 4,000 characters of it."""
    failed = isinstance(data, dict) and (data.get("status") in ("error", "timeout", "stopped") or "denied" in data)
    if isinstance(data, dict):
        text = str(data.get("msg") or data.get("note") or data.get("stdout") or as_content(data))
    else:
        text = data if isinstance(data, str) else "[image]"
    text = re.sub(r'</?outside id="[^>]*>\n?', "", text)  # a mark for the model
    return {"ok": not failed, "result": redact(text)[:4000]}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit code."""
    from genericagent.cli.args import run_command

    return run_command(list(sys.argv[1:] if argv is None else argv))


def cli_entry() -> None:
    """The command, as a script and installed as `ga`. Ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115
    code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone; nothing is left to be told
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
