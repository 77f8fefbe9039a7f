"""The nine tools as the model calls them, the working memory between turns, and the bookkeeping at each turn's end."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping
from functools import cache, cached_property, partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_loop import BaseHandler, LoopExit, StepOutcome, as_content
from genericagent import display, memory, paths, tags
from genericagent.abort import Abort
from genericagent.display import untagged
from genericagent.errors import Aborted, ConfigError, SessionError, ToolError
from genericagent.llm import blocks
from genericagent.llm.history import one_line, summary_of
from genericagent.memory import insight as get_global_memory
from genericagent.memory.evidence import COUNTED, Evidence
from genericagent.prompts import say
from genericagent.safety.asking import NO
from genericagent.safety.confine import Confinement
from genericagent.safety.guard import Containment, Guard, Ruling, real
from genericagent.safety.redact import MARK as MASK
from genericagent.safety.redact import Redactor
from genericagent.store import atomic
from genericagent.tools import files, images
from genericagent.tools.arguments import check_arguments
from genericagent.tools.code_run import Limits, child_env, clean_spool, code_run
from genericagent.tools.files import file_patch, file_read, missing_folders
from genericagent.tools.reply_content import extract_content, last_code_block
from genericagent.tools.text import smart_format

if TYPE_CHECKING:
    from genericagent.memory.watch import Watch

__all__ = [
    "GenericAgentHandler", "code_run", "consume_file", "file_patch", "file_read", "get_global_memory",
    "load_tool_schema", "smart_format",
]  # fmt: skip

Outcome = Generator[str, None, StepOutcome]

MAX_BAD_REPLIES = 3  # empty or cut ones in a row
MAX_BAD_PATCHES = 3  # failed ones in a row on one file, before a stronger hint
PLAN_TURNS = 80
MAX_SENT_BACK = 5  # claims in a row that a plan is done, then the user is asked
LONG_TASK = 15  # turns after which a task that ends is asked whether it taught something lasting
LINES_SHOWN = 30  # summary lines of the working memory
REFERENCE_WINDOW = 30_000  # the context window, in tokens, that the output limits below are made for
CODE_LIMIT, READ_LIMIT, PAGE_LIMIT, PAGE_TEXT_LIMIT, WEB_LIMIT = 10_000, 20_000, 35_000, 10_000, 8_000  # characters
_TEXT, _NUMBER = {"type": "string"}, {"type": "number"}
INLINE_METHODS: dict[str, dict[str, Any]] = {  # and what they take
    "enter_plan_mode": {"path": _TEXT}, "enter_project_mode": {"name": _TEXT},
    "subagent": {"prompts": {}, "cwd": _TEXT, "timeout": _NUMBER}, "search_sessions": {"words": _TEXT, "days": _NUMBER},
}  # fmt: skip


@cache
def load_tool_schema() -> list[dict[str, Any]]:
    """The nine tools in OpenAI function format. Shared: don't change it."""
    schema: list[dict[str, Any]] = json.loads(paths.shipped("assets", "tools_schema.json").read_text("utf-8"))
    return schema


def consume_file(folder: Path | str, name: str) -> str | None:
    """Take a file: its text, and it is gone; None when there is none. Two takers never get the same file."""
    data = atomic.read_and_delete(Path(folder) / name)
    return None if data is None else data.decode("utf-8", "replace").strip()


class _Refused(Exception):
    """A request to the browser in the middle of a call may not be made."""

    def __init__(self, outcome: StepOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class GenericAgentHandler(BaseHandler):
    """The tools of one task. `parent` is the GenericAgent that runs it, or None; `last_history` the summary lines of
    the conversation so far; `cwd` the folder that relative paths start from (default: $GA_HOME/temp)."""

    def __init__(
        self, parent: Any = None, last_history: list[str] | None = None, cwd: Path | str | None = None
    ) -> None:
        super().__init__()
        self.parent = parent
        self.history_info: list[str] = list(last_history or [])
        self.working: dict[str, Any] = {}
        self.current_turn = 0
        self.stop: Abort = getattr(parent, "stop", None) or Abort()
        self.boundary: Callable[[], str] = lambda: os.urandom(4).hex()  # of a mark around text from outside
        self.files_changed: dict[str, str] = {}  # path → what was done to it, in order
        self._cwd = Path(cwd) if cwd else None
        self._bad_replies = 0
        self.denied: list[str] = []  # what was not allowed, in order
        self._failed_patches: dict[Path, int] = {}  # in a row, by file
        self._ruling = Ruling("allow")  # on the call that runs
        self._within: Confinement | None = None  # what holds the file tools of that call
        self.answer: str | None = None  # of a task that is done but for what it may store
        self._distilled = False
        self._sent_back = 0  # claims of a plan's end, without a tool call in between
        self._subagents = 0  # that were wanted so far
        self._watch: Watch | None = None  # over what no script may change, from the first one on that nobody watches
        self._left = set[int]()  # what ran in the background before that
        self._parameters = {t["function"]["name"]: t["function"]["parameters"] for t in load_tool_schema()}

    @property
    def cwd(self) -> Path:
        if self._cwd is None:
            self._cwd = paths.temp()
            self._cwd.mkdir(parents=True, exist_ok=True)
        return self._cwd

    def check(self) -> None:
        if self.stop.is_set():
            raise LoopExit("ABORTED", say("stopped"))

    def dispatch(
        self, tool_name: str, args: dict[str, Any], response: Any, index: int = 0, tool_num: int = 1
    ) -> Generator[Any, None, StepOutcome]:
        if tool_name in self._parameters:
            try:
                args = check_arguments(self._parameters[tool_name], args)
            except ToolError as error:
                return StepOutcome({"status": "error", "msg": f"{tool_name}: {error}"}, self._next(index))
        if tool_name not in ("no_tool", "bad_json"):
            self._bad_replies = self._sent_back = 0
            args = {name: value for name, value in args.items() if not name.startswith("_")}  # those are ours
            self._complete(tool_name, args, response)
            self._ruling = self.guard.rule(tool_name, args, self.cwd)
            if refusal := self._refusal(tool_name, args, index, self._ruling):
                return refusal
            self._within = self.guard.confinement(self._ruling)
        if tool_name == "code_run":
            try:
                self._begin_watch()
            except ToolError as error:
                return StepOutcome({"status": "error", "msg": str(error)}, self._next(index))
        outcome = yield from super().dispatch(tool_name, args, response, index, tool_num)
        self._witness(tool_name, args, outcome.data)
        if tool_name == "code_run":
            self.look_again()
        return outcome

    def _complete(self, tool: str, args: dict[str, Any], response: Any) -> None:
        """What the reply carries beside the call belongs to it: what is asked about is what will run."""
        if tool == "code_run" and not args.get("script"):
            args["script"] = last_code_block(response.content, _block_names(args.get("type") or "python"))
        if tool == "file_write" and args.get("content") is None:
            args["content"] = extract_content(response.content)

    def _script_of(self, given: str) -> str:
        """The text of a .js file that is named, else the script as it is."""
        name = given.strip()
        if not name.endswith(".js") or len(name) > 1000 or "\n" in name or not self._path(name).is_file():
            return given
        within = Confinement(self.guard.zones, ()) if self.guard.confined else None
        return files.load(self._path(name), within).text

    def _refusal(self, tool: str, args: Mapping[str, Any], index: int, ruling: Ruling) -> StepOutcome | None:
        """None when the call may run; else what the model, or whoever started the script, is told."""
        if ruling.verdict == "allow":
            return None
        note = ""
        if ruling.verdict == "ask":
            answer = self.parent.ask(*ruling.question) if hasattr(self.parent, "ask") else NO
            if answer.scope != "no":
                self.guard.granted(ruling, answer.scope)
                return None
            note = answer.note
        self.check()  # a stop is no answer
        self.denied.append(f"{tool}: {ruling.why}")
        if not self._somebody and tool in ("file_patch", "file_write"):
            self._keep_for_later(args)
        if self.guard.origin == "script":
            rules = " ".join(f"--allow {rule}" for rule in ruling.rules)
            text = say("may_script", why=ruling.why, rules=rules) if rules else say("may_never", why=ruling.why)
            data = {"status": "INTERRUPT", "intent": "HUMAN_INTERVENTION", "denied": True}
            return StepOutcome({**data, "data": {"question": text, "candidates": []}}, should_exit=True)
        msg = say("not_allowed_said", why=ruling.why, note=note) if note else say("not_allowed", why=ruling.why)
        return StepOutcome({"status": "error", "msg": msg}, self._next(index))

    def result_content(self, data: Any) -> Any:
        """A tool's data as the model reads it, without the keys of its own providers."""
        content = self._content(data)
        if isinstance(content, list):
            return [{**b, "text": self.redact(b["text"])} if b.get("type") == "text" else b for b in content]
        return self.redact(content)

    def _content(self, data: Any) -> Any:
        for key in ("stdout", "page") if isinstance(data, dict) else ():
            if isinstance(data.get(key), str):
                # long text as it is, behind the facts: escaped into JSON it costs a tenth more and reads worse
                facts = {k: v for k, v in data.items() if k not in (key, "images")}
                text = f"{as_content(facts)}\n{data[key]}".rstrip("\n")
                return [blocks.text(text), *data["images"]] if data.get("images") else text
        return as_content(data)

    def show_reply(self, chat: Generator[str, None, Any], verbose: bool) -> Generator[str, None, Any]:
        return chat if verbose else display.whole(chat)

    def show_call(self, name: str, args: dict[str, Any], verbose: bool) -> str:
        return display.announce(name, args, verbose)

    def show_tool(self, run: Outcome, verbose: bool) -> Outcome:
        return display.fenced(run, verbose, self.redact)

    # tools

    def do_code_run(self, args: dict[str, Any], response: Any) -> Outcome:
        kind, script = args.get("type") or "python", args.get("script")
        if not script:
            return self._refused(args, say("no_script"))
        if args.get("inline_eval") and kind == "python":
            try:
                done, value = self._inline(script)
                if isinstance(value, Generator):
                    value = yield from value
            except (ToolError, SessionError, OSError) as error:
                return self._refused(args, one_line(str(error), 500))
            if done:
                return StepOutcome({"status": "success", "value": value}, self._next(args["_index"]))
        since, cwd = self.guard.clock(), self._path(args.get("cwd") or ".")
        sandbox, note = self.guard.sandbox_for(self._ruling)
        try:
            run = code_run(
                script,
                kind,
                timeout=args.get("timeout", 60),
                cwd=cwd,
                stop=self.stop,
                env=self._child_env(),
                limit=self._limit(CODE_LIMIT, args),
                spool_dir=self._spool,
                python_path=[paths.memory()],
                sandbox=sandbox,
                limits=self.parent.run_limits() if hasattr(self.parent, "run_limits") else Limits(),
                redact=self.redact,
            )
            result = yield from run
        except ToolError as error:
            return self._refused(args, str(error))
        if sandbox and re.search(r"(?<![\w/])/(?:var/)?tmp/", script):
            note = "; ".join(filter(None, [note, say("tmp_is_gone")]))
        if note:
            result["note"] = "; ".join(filter(None, [result.get("note"), note]))
        if source := self.guard.source_of_output(self._ruling, script, cwd, since):
            result["stdout"] = self.outside(result["stdout"], source)
        return StepOutcome(result, self._next(args["_index"]))

    def do_file_read(self, args: dict[str, Any], response: Any) -> StepOutcome:
        path = self._path(args["path"])
        try:
            if images.is_image(path):
                data: Any = [images.image_block(path, self._takes_images(), within=self._within)]
            else:
                data = file_read(
                    path,
                    args.get("start", 1),
                    args.get("count", 200),
                    args.get("keyword"),
                    args.get("show_linenos", True),
                    limit=self._limit(READ_LIMIT, args),
                    within=self._within,
                )
        except ToolError as error:
            return self._refused(args, str(error))
        if source := self.guard.source_of(Path(real(path, self.cwd))):
            data = self.outside(data, source)
        return StepOutcome(data, self._next(args["_index"]))

    def do_file_write(self, args: dict[str, Any], response: Any) -> StepOutcome:
        content = args.get("content")
        if content is None:
            return self._refused(args, say("no_content"))
        if self._holds_a_mask(content):
            return self._refused(args, say("holds_mask"))
        path, within = self._path(args["path"]), self._within
        try:
            content = files.expand_file_refs(content, self.cwd, within=within)
            data = self._guarded(
                path, partial(files.file_write, path, content, args.get("mode") or "overwrite"), whole=True
            )
        except ToolError as error:
            return self._refused(args, str(error))
        for taken in map(Path, self.guard.references(args, self.cwd)):
            if source := self.guard.source_of(taken):  # not shown, but the workspace is trusted from here on
                self.outside("", source)
        self._changed(path, "written")
        return StepOutcome(data, self._next(args["_index"]))

    def do_file_patch(self, args: dict[str, Any], response: Any) -> StepOutcome:
        if self._holds_a_mask(args["new_content"]):
            return self._refused(args, say("holds_mask"))
        path = self._path(args["path"])
        try:
            data = self._guarded(path, partial(file_patch, path, args["old_content"], args["new_content"]))
        except ToolError as error:
            failures = self._failed_patches[path] = self._failed_patches.get(path, 0) + 1
            hint = say("patch_again", count=failures) if failures >= MAX_BAD_PATCHES else ""
            return self._refused(args, f"{error}{hint}")
        self._failed_patches.pop(path, None)
        self._changed(path, "patched")
        return StepOutcome(data, self._next(args["_index"]))

    def do_web_scan(self, args: dict[str, Any], response: Any) -> StepOutcome:
        import simphtml
        from genericagent.tools import web

        def work() -> StepOutcome:
            tab, tabs = self.browser.look(args.get("switch_tab_id"))
            if args.get("tabs_only") or tab is None:
                listed = web.tab_lines(tabs, str(tab["id"]) if tab else None)
                data = self.outside(listed, say("source_tabs")) if listed else say("web_no_tab")
                return StepOutcome(data, self._next(args["_index"]))
            current, text_only = str(tab["id"]), bool(args.get("text_only"))
            limit = self._limit(PAGE_TEXT_LIMIT if text_only else PAGE_LIMIT, args)
            page = simphtml.get_html(self.browser, text_only, limit, args.get("start", 0), current)
            listed = web.tab_lines(self.browser.get_all_sessions(), current, web.TABS_SHOWN)
            self.browser.session = current
            return StepOutcome(self.outside(f"{listed}\n\n{page}", str(tab["url"])), self._next(args["_index"]))

        return self._browse("web_scan", args, work)

    def do_web_execute_js(self, args: dict[str, Any], response: Any) -> StepOutcome:
        import simphtml
        from genericagent.tools import web

        def work() -> StepOutcome:
            since, script = self.guard.clock(), self._script_of(args["script"])
            page, monitor = cast(web.Page, simphtml), not args.get("no_monitor")
            try:
                told = web.run(self.browser, page, script, args.get("switch_tab_id"), monitor)
            finally:
                self.guard.fetched.append((since, self.guard.clock()))  # it may have downloaded
            saved = (
                self._save_value(told, args) if args.get("save_to_file") and told.facts["status"] == "success" else {}
            )
            pictures = [] if saved else told.images
            shown = [images.data_block("screenshot", data, self._takes_images()) for data, _ in pictures]
            scales = [about["scale"] for _, about in pictures if "scale" in about]
            data = {**told.facts, **saved, **({"scale": scales} if scales else {}), "page": "", "images": shown}
            said = told.said(self._limit(WEB_LIMIT, args))
            if said or shown or saved:
                data["page"] = self.outside(said, told.source)
            return StepOutcome(data, self._next(args["_index"]))

        return self._browse("web_execute_js", args, work)

    def _browse(self, tool: str, args: dict[str, Any], work: Callable[[], StepOutcome]) -> StepOutcome:
        """Use the browser: each request to it is judged when it is made, and one answer counts for the whole call."""
        asked: set[str] = set()

        def permit(request: dict[str, Any], tab: dict[str, Any] | None, tabs: list[dict[str, Any]]) -> None:
            ruling = self.guard.rule_request(tool, request, tab, tabs, self.browser.made, self.cwd)
            if ruling.key not in asked and (outcome := self._refusal(tool, args, args["_index"], ruling)):
                raise _Refused(outcome)
            asked.update([ruling.key] if ruling.key else [])
            self.guard.allowed(request, tab, self.browser.made)

        try:
            self.browser.permit = permit
            return work()
        except _Refused as refused:
            return refused.outcome
        except (ToolError, ConfigError) as error:
            return self._refused(args, str(error))
        except Aborted:  # the loop ends after this
            return StepOutcome({"status": "stopped", "msg": say("web_stopped")}, self._next(args["_index"]))
        finally:
            if "browser" in vars(self):
                self.browser.permit = None

    def _save_value(self, told: Any, args: Mapping[str, Any]) -> dict[str, Any]:
        """Write what a script gave, or the picture, into the wished file instead of the context. Raises ToolError."""
        path, within = self._path(args["save_to_file"]), self._within
        if told.images and told.value is None:
            data = told.images[0][0]
            if self.guard.zones.of(Path(real(path, self.cwd))) == "memory":
                raise ToolError(say("memory_text_only", file=path))
            files.save_bytes(path, data, within=within)
            size = f"{len(data)} bytes"
        else:
            value = told.value if told.shown else told.facts.get("value")
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
            self._guarded(path, partial(files.file_write, path, text), whole=True)
            size, told.shown = f"{len(text)} characters", ""
        self._changed(path, "written")
        return {"saved": f"{path}, {size}"}

    @cached_property
    def browser(self) -> Any:
        """The driver of the agent; of this handler alone where it has no agent."""
        if hasattr(self.parent, "browser"):
            return self.parent.browser
        from TMWebDriver import TMWebDriver

        return TMWebDriver(stop=self.stop)

    def do_ask_user(self, args: dict[str, Any], response: Any) -> StepOutcome:
        """The question, and those of the calls of this tool that follow in the same reply, in one form."""
        asked = [{"question": args["question"], "candidates": args.get("candidates") or []}]
        for call in (getattr(response, "tool_calls", None) or [])[args["_index"] + 1 :]:
            if call.function.name == "ask_user":
                with contextlib.suppress(ValueError, ToolError):  # a call that can't be read is not asked
                    more = check_arguments(self._parameters["ask_user"], json.loads(call.function.arguments))
                    asked.append({"question": more["question"], "candidates": more.get("candidates") or []})
        question: dict[str, Any] = asked[0]
        if len(asked) > 1:
            numbered = "\n".join(f"{n}. {one['question']}" for n, one in enumerate(asked, 1))
            question = {"question": numbered, "candidates": [], "questions": asked}
        data = {"status": "INTERRUPT", "intent": "HUMAN_INTERVENTION", "data": question}
        return StepOutcome(data, should_exit=True)

    def do_update_working_checkpoint(self, args: dict[str, Any], response: Any) -> StepOutcome:
        self.working["key_info"] = args["key_info"]
        self.working.pop("key_info_age", None)
        if self.parent:
            self.parent.checkpoint(args["key_info"])
        return StepOutcome({"status": "success", "msg": say("checkpoint_saved")}, self._next(args["_index"]))

    def do_start_long_term_update(self, args: dict[str, Any], response: Any) -> StepOutcome:
        self._distilled = True
        folder = paths.memory()
        texts = [f"## {name}\n{memory.layer(name) or ''}" for name in (memory.L0, memory.L1, memory.L2)]
        todo = say("long_term", l1=folder / memory.L1, l2=folder / memory.L2)
        return StepOutcome("\n\n".join(texts), f"{todo}\n{self._next(args['_index'])}")

    def do_bad_json(self, args: dict[str, Any], response: Any) -> StepOutcome:
        """A call whose arguments were cut or are no JSON: never run, the model is told why."""
        if args.get("cut") and args["_index"] == args["_tool_num"] - 1:  # only the last call of a reply can be cut
            self._count_bad_reply("kind_cut")
        return self._refused(args, str(args.get("msg")))

    def do_no_tool(self, args: dict[str, Any], response: Any) -> StepOutcome:
        """A reply without tool calls: the answer, or a reason to ask again."""
        content = untagged(response.content or "")
        if response.stop_reason == "max_tokens":
            self._count_bad_reply("kind_cut")
            return StepOutcome({}, say("cut_reply") + self._next(0))
        if not content:
            self._count_bad_reply("kind_empty")
            return StepOutcome({}, say("empty_reply") + self._next(0))
        self._bad_replies = 0
        if display.only_code(content) and not self.working.pop("asked_about_code", False):
            self.working["asked_about_code"] = True
            return StepOutcome({}, say("only_code") + self._next(0))
        if gate := self._plan_gate(content):
            self._sent_back += 1
            if self._sent_back < MAX_SENT_BACK:
                return StepOutcome({}, gate + self._next(0))
            question = {"question": say("plan_stuck", count=self._sent_back), "candidates": []}
            data = {"status": "INTERRUPT", "intent": "HUMAN_INTERVENTION", "data": question}
            return StepOutcome(data, should_exit=True)
        if self.answer is not None:  # what is said after the evaluation is not for the user
            return StepOutcome(self.answer, None)
        if self.current_turn >= LONG_TASK and not self._distilled and self._may_distil():
            self.answer = content
            self._done_hooks.append(say("evaluate", turns=self.current_turn))
        return StepOutcome(content, None)

    def _may_distil(self) -> bool:
        return bool(getattr(getattr(self.parent, "options", None), "user_tools", False))

    # modes, reached through code_run's inline_eval

    def enter_plan_mode(self, path: str) -> str:
        """Work along a Markdown checklist: no end while an item is open or nothing was verified. Without an agent, whose
        limit of turns is the user's, it has 80 of them."""
        plan = self._path(path)
        if plan.exists() and not plan.is_file():
            raise ToolError(f"{plan} is no file: a plan is a Markdown checklist")
        self.working["plan"] = str(plan)
        if not hasattr(self.parent, "options"):
            self.max_turns = max(self.max_turns, PLAN_TURNS)
        return say("plan_entered", plan=path, turns=self.max_turns)

    def subagent(
        self, prompts: str | list[str], cwd: str | None = None, timeout: float = 1800
    ) -> Generator[str, None, list[dict[str, Any]]]:
        """Have tasks done by agents of their own, eight at a time, and wait for them: a list of {"name", "status", "answer", …}.

        Each works in its folder $GA_HOME/temp/NAME, or all in `cwd`. They can't ask anybody. Raises ToolError.
        """
        from genericagent.tools.subagents import requests

        if not hasattr(self.parent, "subagents"):
            raise ToolError(say("subagent_none"))
        wanted = requests(prompts, self._subagents)
        folder = self._path(cwd) if cwd else None
        if folder and self.guard.zones.of(Path(real(folder, self.cwd))) not in ("workspace", "temp"):
            raise ToolError(say("subagent_cwd", folder=one_line(str(folder), 200)))
        self._subagents += len(wanted)
        results: list[dict[str, Any]] = yield from self.parent.subagents(wanted, folder, timeout)
        self.check()
        for result in results:
            full = result.pop("full", {})
            for path, how in full.get("files_changed", {}).items():
                self.files_changed.setdefault(path, how)
            for key in ("answer", "error"):
                told = smart_format(str(result.get(key) or ""), CODE_LIMIT // len(results))
                if told and full.get("tainted", True):  # one that is lost may have read anything
                    told = self.outside(told, say("source_subagent", name=result["name"]))
                result[key] = told
        return results

    def search_sessions(self, words: str, days: float | None = None) -> Any:
        """What earlier conversations say about these words. Raises ToolError where they are not for this task: a rule
        denies it, or somebody else's text may be asking and nobody watches."""
        if (self.guard.tainted and not self._somebody) or self.guard.rule(
            "file_read", {"path": str(paths.sessions())}, self.cwd
        ).verdict != "allow":
            raise ToolError(say("sessions_hidden"))
        found, _ = self.parent.search_sessions(words, days, most=9, width=400) if self.parent else ([], [])
        hits = [hit for hit in found if hit.session.id != self.parent.session_id]
        text = "\n".join(
            f"{one_line(hit.session.id)} {time.strftime('%Y-%m-%d', time.localtime(hit.session.updated))} "
            f"{hit.session.title}\n  {hit.around}"
            for hit in hits
        )
        source = next((f"{hit.session.id}: {hit.tainted}" for hit in hits if hit.tainted), "")
        return self.outside(text, source) if source else text or say("no_hits")

    def _plan_gate(self, answer: str) -> str | None:
        plan = self.working.get("plan")
        if not plan:
            return None
        still_open = len(re.findall(r"^\s*(?:[-*]|\d+\.)\s*\[ \]", _text_of(Path(plan)), re.M))
        if still_open:
            return say("plan_open", plan=plan, count=still_open)
        if not re.search(r"VERDICT:\s*(PASS|FAIL|PARTIAL)", answer):
            return say("plan_unverified" if Path(plan).is_file() else "plan_missing", plan=plan)
        return None

    def enter_project_mode(self, name: str | None = None) -> str:
        """Keep a project's own notes at hand until the task ends: each prompt names their file. None leaves the mode."""
        if name is None:
            self.working.pop("project", None)
            return say("project_left")
        if not re.fullmatch(r"[^\s./\\:\x00-\x1f][^/\\:\x00-\x1f]{0,99}", name):
            raise ToolError(f"{name!r} is no name of a project: one folder name, not beginning with a dot")
        notes = paths.temp() / "projects" / name / "project_memory.md"
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.touch()
        self.working["project"] = str(notes)
        return say("project_line", path=notes, lines=len(_text_of(notes).splitlines()))

    def _inline(self, script: str) -> tuple[bool, Any]:
        """(True, value) for a literal or one call of a listed handler method with literal arguments; else (False, None)."""
        try:
            node = ast.parse(script.strip(), mode="eval").body
            if not isinstance(node, ast.Call):
                return True, ast.literal_eval(node)
            target = node.func
            if (
                not isinstance(target, ast.Attribute)
                or not isinstance(target.value, ast.Name)
                or target.value.id not in ("handler", "self")
                or target.attr not in INLINE_METHODS
                or not hasattr(self, target.attr)
            ):
                return False, None
            args = [ast.literal_eval(a) for a in node.args]
            kwargs = {k.arg or "**": ast.literal_eval(k.value) for k in node.keywords}
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            return False, None  # anything else is ordinary code
        method = getattr(self, target.attr)
        try:
            bound = signature(method).bind(*args, **kwargs)
        except TypeError as error:
            raise ToolError(f"{target.attr}: {error}") from None
        if any(isinstance(v, str) and re.search("[\0\ud800-\udfff]", v) for v in bound.arguments.values()):
            raise ToolError(f"{target.attr}: a text holds a NUL or half a surrogate pair")
        needed = [name for name, one in bound.signature.parameters.items() if one.default is one.empty]
        schema = {"properties": INLINE_METHODS[target.attr], "required": needed}
        return True, method(**check_arguments(schema, bound.arguments))

    # between turns

    def _get_anchor_prompt(self, skip: bool = False) -> str:
        """The working memory as the next prompt carries it; `skip` (not the first of several calls): only a blank."""
        if skip:
            return "\n"
        lines = self.history_info[-LINES_SHOWN:]
        older = len(self.history_info) - len(lines)
        if older:
            lines = [say("folded", count=older), *lines]
        parts = ["<history>", *map(_inside, lines), "</history>", say("turn_line", turn=self.current_turn + 1)]
        if project := self.working.get("project"):
            parts.append(say("project_line", path=project, lines=len(_text_of(Path(project)).splitlines())))
        notes = _inside(self.working.get("key_info") or "")
        if notes:
            age = self.working.get("key_info_age")
            mark = f" ({say('old_notes', count=age)})" if age else ""
            parts.append(f"<key_info>{mark}\n{notes}\n</key_info>")
        return "\n<working_memory>\n" + "\n".join(parts) + "\n</working_memory>\n"

    def turn_end_callback(
        self, response: Any, tool_calls: Any, tool_results: Any, turn: int, next_prompt: str, exit_reason: Any
    ) -> str:
        self.current_turn = turn
        line, found = _summary(response, tool_calls)
        self._add_line(f"[Agent] {line}")
        if exit_reason:
            return next_prompt
        extra = [] if found else [say("summary_missing")]
        extra += self._milestones(turn)
        extra += self._steering()
        fresh = self._get_anchor_prompt()
        body = tags.drop(next_prompt, "working_memory")
        return "\n".join([*(e for e in extra if e), body.strip("\n"), fresh]).lstrip("\n")

    def _milestones(self, turn: int) -> list[str]:
        out = []
        plan = self.working.get("plan")
        if plan and turn >= 70:
            out.append(say("plan_late", turn=turn))
        elif plan and turn >= 10 and turn % 5 == 0:
            out.append(say("plan_step", plan=plan))
        elif turn % 35 == 0:
            out.append(say("milestone_ask", turn=turn))
        elif turn % 7 == 0:
            out.append(say("milestone_retry", turn=turn))
        if turn % 10 == 0:
            out.append(say("memory_again", insight=self.redact(get_global_memory())))
        return out

    def _steering(self) -> list[str]:
        """What somebody outside wants said to the running task; notes for the notepad are added to it."""
        parent = self.parent
        if parent is None or self.stop.is_set():  # no prompt follows that could say it
            return []
        said, parent.intervene = parent.intervene, None
        wishes, notes, parent.extrakeyinfo = [said], [parent.extrakeyinfo], None
        if said:  # a message of the user's like any other
            self.guard.user_said(said)
            self.evidence.user_said(said)
            parent.record({"type": "said", "text": said})
        if parent.task_dir:
            wishes.append(consume_file(parent.task_dir, "_intervene"))
            notes.append(consume_file(parent.task_dir, "_keyinfo"))
        for note in filter(None, notes):
            self.working["key_info"] = f"{self.working.get('key_info', '')}\n{say('master', text=note)}".strip()
        return [say("master", text=self.redact(wish)) for wish in wishes if wish]

    def _add_line(self, line: str) -> None:
        self.history_info.append(line)
        if self.parent:
            self.parent.add_line(line)

    # safety

    def _holds_a_mask(self, text: str) -> bool:
        """Whether it was copied from what the model was shown in a key's place: written, it would destroy the key."""
        return bool(self.redact.longest) and MASK in text

    @cached_property
    def guard(self) -> Guard:
        if hasattr(self.parent, "guard"):
            return cast(Guard, self.parent.guard)
        guard = Guard()
        guard.enter(self.cwd, Containment())
        return guard

    def outside(self, data: Any, source: str) -> Any:
        """Text from somebody else: marked as data, and the conversation is tainted from here on."""
        if self.guard.outside(source) and hasattr(self.parent, "tainted"):
            self.parent.tainted(source)
        from genericagent.safety.fence import fence

        return fence(data, source, self.boundary()) if isinstance(data, str) else data

    # memory

    @cached_property
    def evidence(self) -> Evidence:
        return cast(Evidence, self.parent.evidence) if hasattr(self.parent, "evidence") else Evidence()

    def _guarded(self, path: Path, write: Callable[..., dict[str, Any]], whole: bool = False) -> dict[str, Any]:
        """Run a file tool; what it writes into the memory goes through the memory's writer."""
        target = Path(real(path, self.cwd))
        linked = target.is_file() and target.stat().st_nlink > 1
        if linked and any(file.is_file() and target.samefile(file) for file in paths.memory().rglob("*")):
            raise ToolError(say("memory_linked", file=target))
        if self.guard.zones.of(target) != "memory":
            return write(within=self._within, check=partial(self._keep, target, missing_folders(target)))
        from genericagent.memory import writer

        within = self._within or Confinement(self.guard.zones)
        done = writer.write(target, self._about(), partial(write, within=within), whole=whole)
        if hasattr(self.parent, "record"):
            self.parent.record({"type": "memory", "file": target.name}, sync=False)
        return done

    def _about(self) -> Any:
        from genericagent.memory.writer import About

        session = getattr(self.parent, "session_id", "")
        return About(session, self.current_turn, self.guard.tainted, self.evidence, self.redact, self.cwd)

    @property
    def _somebody(self) -> bool:
        """Whether there is a person who could be asked."""
        return bool(getattr(self.parent, "can_ask", False))

    def _keep_for_later(self, args: Mapping[str, Any]) -> None:
        """What nobody was there to allow is kept for the user, when it is a change of the memory."""
        target = Path(real(args["path"], self.cwd))
        if self.guard.zones.of(target) == "memory":
            from genericagent.memory import inbox

            with contextlib.suppress(
                ToolError, OSError
            ):  # what may not be stored at all, or a full disk: it stays refused
                inbox.propose(target, args, self._about())

    def _begin_watch(self) -> None:
        """What is looked at again after a script that nobody watches, once text from outside was read. Raises ToolError."""
        walled = self.guard.containment.sandbox is not None
        if not self.guard.tainted or not hasattr(self.parent, "tell") or (self._somebody and not walled):
            return
        if self._watch is None or walled:
            from genericagent.memory.watch import Watch
            from genericagent.tools.jobs import background

            self._watch, self._left = Watch(self.guard.zones.workspace, self._about(), walled), set(background())

    def look_again(self, last: bool = False) -> None:
        """Put back what was changed around the writers; `last`: the task is over, and what it has left running is ended."""
        if self._watch is None or (last and self._watch.walled):
            return
        if last:
            from genericagent.tools import jobs

            if ended := jobs.kill_background(set(jobs.background()) - self._left):
                self.parent.tell(say("ended_at_exit", titles=", ".join(map(one_line, ended.values()))))
        for line in self._watch.back([Path(real(path, self.cwd)) for path in self.files_changed]):
            self.parent.tell(line)

    def _keep(self, target: Path, made: int, new: bytes) -> None:
        """Right before a file is changed: what it holds is kept, so that the user can go back."""
        if hasattr(self.parent, "record"):
            from genericagent.tools import undo

            secret = undo.secrecy(self.guard, self.parent.secrets()[0])
            self.parent.record(undo.change(target, new, secret, made), sync=False)

    def _witness(self, tool: str, args: Mapping[str, Any], data: Any) -> None:
        """Remember a call as evidence if it succeeded and has nothing to do with memory."""
        if tool not in COUNTED or (isinstance(data, dict) and data.get("status", "success") != "success"):
            return
        what = str(args.get("script") or args.get("path") or "")
        if tool == "code_run" and isinstance(data, dict) and "value" in data and ".subagent(" not in what:
            return  # a handler's method or a literal: nothing was looked at
        if tool in ("file_write", "file_patch"):
            self.evidence.wrote(self._written(args))
        if not self.guard.about_memory(tool, args, self.cwd):
            self.evidence.saw(tool, self.current_turn, what, str(self._content(data)))

    def _written(self, args: Mapping[str, Any]) -> str:
        """The lines that a file tool has just written, those whole that it wrote a part of."""
        if "new_content" not in args:
            return str(args["content"])
        new, text = str(args["new_content"]), _text_of(self._path(args["path"]))
        before, _, after = text.partition(new) if new else ("", "", "")
        return before.rpartition("\n")[2] + new + after.partition("\n")[0]

    # small things

    def _next(self, index: int) -> str:
        return self._get_anchor_prompt(skip=index > 0)

    def _refused(self, args: dict[str, Any], msg: str) -> StepOutcome:
        return StepOutcome({"status": "error", "msg": msg}, self._next(args["_index"]))

    def _count_bad_reply(self, kind: str) -> None:
        self._bad_replies += 1
        if self._bad_replies >= MAX_BAD_REPLIES:
            raise LoopExit("LLM_FAILED", say("bad_replies", count=self._bad_replies, kind=say(kind)))

    def _path(self, given: str) -> Path:
        path = paths.expand(given)
        return path if path.is_absolute() else self.cwd / path

    def _changed(self, path: Path, how: str) -> None:
        self.files_changed.setdefault(str(path), how)

    @property
    def redact(self) -> Redactor:
        return cast(Redactor, self.parent.redact) if hasattr(self.parent, "redact") else Redactor(())

    @cached_property
    def _spool(self) -> Path:
        folder = paths.outputs()
        clean_spool(folder, time.time())
        return folder

    def _limit(self, chars: int, args: Mapping[str, Any]) -> int:
        window = self.parent.context_win if self.parent else REFERENCE_WINDOW
        return int(chars * max(1.0, window / REFERENCE_WINDOW) / max(1, args["_tool_num"]))

    def _takes_images(self) -> bool:
        return self.parent.takes_images() if self.parent else True

    def _child_env(self) -> dict[str, str]:
        keys, keep = self.parent.secrets() if self.parent else ((), ())
        environ = child_env(os.environ, keys, keep)
        if not self.guard.confined:
            return environ
        from genericagent.safety.sandbox import sandbox_env

        return sandbox_env(environ, keep, self.guard.containment.sandbox is not None)


def _inside(text: str) -> str:
    """Text without the tags of the working memory around it."""
    return re.sub(r"</?(?:working_memory|key_info|history)>", "", text)


def _block_names(kind: str) -> tuple[str, ...]:
    return {"python": ("python", "py"), "bash": ("bash", "sh", "shell")}.get(kind, (kind,))


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _summary(response: Any, tool_calls: Any) -> tuple[str, bool]:
    """(the turn in one line, whether the model wrote it): its `<summary>`, else made from its first call or text."""
    content = getattr(response, "content", "") or ""
    line = summary_of(content)
    if line:
        return line, True
    call = tool_calls[0].function if tool_calls else None
    return one_line(f"{call.name} {call.arguments}" if call else untagged(content)), False
