"""The loop: ask the model, run the tool calls it makes, hand the results back, until the task ends.

The client is anything with `chat(messages, tools)`, a generator of visible text that returns a response with
`.content`, `.tool_calls` (`.id`, `.function.name`, `.function.arguments` as JSON text) and `.exit_result` (None, or the
reason why the run must end). The handler owns the tools: `do_<name>(args, response)` returns a StepOutcome.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import genericagent  # noqa: F401  # an installed wheel has plugins/ inside this package
from plugins import hooks

Chunk = str | dict[str, Any]
Exit = dict[str, Any]  # {"result": why the run ended, "data": the answer, the question or the explanation}


@dataclass
class StepOutcome:
    """What a tool call led to: `data` for the model, `next_prompt` to go on with (falsy: the task is done)."""

    data: Any
    next_prompt: str | None = None
    should_exit: bool = False

    def exit(self) -> Exit | None:
        if self.should_exit:
            return {"result": "EXITED", "data": self.data}
        return None if self.next_prompt else {"result": "CURRENT_TASK_DONE", "data": self.data}


NOT_RUN = StepOutcome({"status": "error", "msg": "not run: the turn ended before this call"}, "\n")


class LoopExit(Exception):
    """Ends the run, also from inside a handler: `result` is one of the loop's exit results, `data` its explanation."""

    def __init__(self, result: str, data: Any = None) -> None:
        super().__init__(f"{result}: {data}")
        self.reason: Exit = {"result": result, "data": data}


def try_call_generator(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
    """Call `func`; pass on what it yields when it is a generator function. Returns its value either way."""
    value = func(*args, **kwargs)
    return (yield from value) if isinstance(value, Generator) else value


def exhaust(generator: Generator[Any, None, Any]) -> Any:
    """Run a generator to its end, drop what it yields, return its value."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


class BaseHandler:
    """Routes tool calls to `do_<tool_name>` methods. Subclass it and add methods; nothing is registered."""

    max_turns = 40

    def __init__(self) -> None:
        self._done_hooks: list[str] = []  # prompts that are still to be worked on before a normal end

    def check(self) -> None:
        """Called before every model call and tool call; raises LoopExit when the run has to stop."""

    def tool_names(self) -> list[str]:
        return [n[3:] for n in dir(self) if n.startswith("do_") and n not in ("do_no_tool", "do_bad_json")]

    def turn_end_callback(
        self, response: Any, tool_calls: Any, tool_results: Any, turn: int, next_prompt: str, exit_reason: Any
    ) -> str:
        """Called at the end of every turn; returns the prompt of the next one."""
        return next_prompt

    def do_bad_json(self, args: dict[str, Any], response: Any) -> StepOutcome:
        return StepOutcome({"status": "error", "msg": args.get("msg")}, "\n")

    def dispatch(
        self, tool_name: str, args: dict[str, Any], response: Any, index: int = 0, tool_num: int = 1
    ) -> Generator[Any, None, StepOutcome]:
        """Run one tool call. An exception inside the tool becomes its result: type, message, where."""
        args["_index"], args["_tool_num"] = index, tool_num
        method = getattr(self, f"do_{tool_name}", None)
        hooks.trigger("tool_before", locals())
        ret: StepOutcome
        try:
            if method:
                ret = yield from try_call_generator(method, args, response)
            else:
                ret = failed(f"unknown tool {tool_name!r}; tools: {', '.join(self.tool_names())}")
        except LoopExit:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            ret = failed(f"{type(error).__name__}: {error} (at {where.filename}:{where.lineno})")
        hooks.trigger("tool_after", locals())
        return ret

    def result_content(self, data: Any) -> Any:
        """A tool's data as the model reads it: text or a list of content blocks."""
        return as_content(data)

    # what a human sees of a run

    def show_reply(self, chat: Generator[str, None, Any], verbose: bool) -> Generator[str, None, Any]:
        return chat

    def show_call(self, name: str, args: dict[str, Any], verbose: bool) -> str:
        return f"\nTool: {name} {json.dumps(args, ensure_ascii=False)}\n"

    def show_tool(self, run: Generator[Any, None, StepOutcome], verbose: bool) -> Generator[Any, None, StepOutcome]:
        return run


def agent_runner_loop(
    client: Any, system_prompt: str, user_input: Any, handler: BaseHandler, tools_schema: list[dict[str, Any]],
    max_turns: int = 40, verbose: bool = True, initial_user_content: Any = None, yield_info: bool = False,
) -> Generator[Chunk, None, Exit]:  # fmt: skip
    """Run a task. Yields what a human should see, as it happens; returns `{"result": …, "data": …}`.

    Results: CURRENT_TASK_DONE, EXITED, MAX_TURNS_EXCEEDED, BUDGET_EXCEEDED, LLM_FAILED, ABORTED. With `yield_info`
    dicts come between the text: {"turn": n} before a turn's header, {"tool": name, "args", "index", "count"} before a
    tool's output, {"tool_done": name, "data"} after it.
    """
    handler.max_turns, turn, exit_reason = max_turns, 0, None
    first = user_input if initial_user_content is None else initial_user_content
    messages = [{"role": "system", "content": system_prompt}, {"role": "user", "content": first}]
    hooks.trigger("agent_before", locals())
    try:
        while exit_reason is None:
            try:
                handler.check()
                if turn >= handler.max_turns:
                    raise LoopExit("MAX_TURNS_EXCEEDED")
                turn += 1
                if yield_info:
                    yield {"turn": turn}
                yield f"\n{'**' * verbose}LLM Running (Turn {turn}) ...{'**' * verbose}\n\n"
                if turn % 10 == 0:
                    client.last_tools = ""
                hooks.trigger("turn_before", locals())
                hooks.trigger("llm_before", locals())
                response = yield from handler.show_reply(client.chat(messages, tools_schema), verbose)
                hooks.trigger("llm_after", locals())
                if getattr(response, "exit_result", None):
                    raise LoopExit(response.exit_result, response.content)
                tool_calls = list(response.tool_calls or [])
                runs = _run_calls(client, handler, response, tool_calls, verbose, yield_info)
                tool_results, next_prompt, exit_reason = yield from runs
                if exit_reason and exit_reason["result"] == "CURRENT_TASK_DONE" and handler._done_hooks:
                    next_prompt, exit_reason = handler._done_hooks.pop(0), None
                next_prompt = handler.turn_end_callback(
                    response, tool_calls, tool_results, turn, next_prompt, exit_reason
                )
                hooks.trigger("turn_after", locals())
                messages = [{"role": "user", "content": next_prompt, "tool_results": tool_results}]
            except LoopExit as stop:
                exit_reason = stop.reason
    finally:
        hooks.trigger("agent_after", locals())
    return exit_reason


def _run_calls(
    client: Any, handler: BaseHandler, response: Any, calls: list[Any], verbose: bool, yield_info: bool
) -> Generator[Chunk, None, tuple[list[dict[str, Any]], str, Exit | None]]:
    """Run the calls of one reply in order; every one gets a result. Returns (results, next prompt, exit reason).

    A client with `settle(result)` is told each result at once, so that none is lost when no request follows.
    """
    results: list[dict[str, Any]] = []
    prompts: dict[str, None] = {}  # an ordered set: identical prompts of several calls are said once
    exit_reason: Exit | None = None
    for index, call in enumerate(calls or [None]):
        name, args = (call.function.name, json.loads(call.function.arguments)) if call else ("no_tool", {})
        if call and name == "no_tool":  # the engine's own: as a call it would end the task
            name = "no_tool()"
        outcome = NOT_RUN
        if exit_reason is None:
            if call and yield_info:
                yield {"tool": name, "args": dict(args), "index": index, "count": len(calls)}
            if call:
                yield handler.show_call(name, args, verbose)
            try:
                handler.check()
                run = handler.dispatch(name, args, response, index, len(calls) or 1)
                outcome = yield from handler.show_tool(run, verbose)
                exit_reason = outcome.exit()
            except LoopExit as stop:
                exit_reason = stop.reason
        if call:
            results.append({"tool_use_id": call.id, "content": handler.result_content(outcome.data)})
            if hasattr(client, "settle"):
                client.settle(results[-1])
            if yield_info:
                yield {"tool_done": name, "data": outcome.data}
        if exit_reason is None and outcome.next_prompt:
            prompts[outcome.next_prompt] = None
    return results, "\n".join(prompts), exit_reason


def failed(msg: str) -> StepOutcome:
    return StepOutcome({"status": "error", "msg": msg}, "\n")


def as_content(data: Any) -> Any:
    """A tool's data as the content of its tool result: text, or a list of content blocks as it is."""
    if isinstance(data, str):
        return data
    kinds = [b.get("type") if isinstance(b, dict) else None for b in data] if isinstance(data, list) else []
    if kinds and set(kinds) <= {"text", "image"}:
        return data
    return json.dumps(data, ensure_ascii=False, default=lambda o: list(o) if isinstance(o, set) else str(o))
