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

from genericagent.display import announce, tidy, to_text
from plugins import hooks

Chunk = str | dict[str, Any]
NOT_RUN = {"status": "error", "msg": "not run: the turn ended before this call"}


@dataclass
class StepOutcome:
    """What a tool call led to: `data` for the model, `next_prompt` to go on with (falsy: the task is done)."""

    data: Any
    next_prompt: str | None = None
    should_exit: bool = False


class LoopExit(Exception):
    """Ends the run from inside a handler: `result` is one of the loop's exit results, `data` its explanation."""

    def __init__(self, result: str, data: Any = None) -> None:
        super().__init__(f"{result}: {data}")
        self.result, self.data = result, data


def try_call_generator(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Generator[Any, None, Any]:
    """Call `func`; pass on what it yields when it is a generator function. Returns its value either way."""
    value = func(*args, **kwargs)
    if isinstance(value, Generator):
        value = yield from value
    return value


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
    _done_hooks: list[str]

    def __init__(self) -> None:
        self._done_hooks = []

    def check(self) -> None:
        """Called before every model call and tool call; raises LoopExit when the run has to stop."""

    def tool_names(self) -> list[str]:
        hidden = ("do_no_tool", "do_bad_json")
        return [n[3:] for n in dir(type(self)) if n.startswith("do_") and n not in hidden]

    def _get_anchor_prompt(self, skip: bool = False) -> str:
        return "\n"

    def turn_end_callback(
        self, response: Any, tool_calls: Any, tool_results: Any, turn: int, next_prompt: str, exit_reason: Any
    ) -> str:
        """Called at the end of every turn; returns the prompt of the next one."""
        return next_prompt

    def do_bad_json(self, args: dict[str, Any], response: Any) -> StepOutcome:
        return StepOutcome({"status": "error", "msg": args.get("msg")}, self._get_anchor_prompt())

    def dispatch(
        self, tool_name: str, args: dict[str, Any], response: Any, index: int = 0, tool_num: int = 1
    ) -> Generator[Any, None, StepOutcome]:
        """Run one tool call. An exception inside the tool becomes its result: type, message, where."""
        args["_index"], args["_tool_num"] = index, tool_num
        method = getattr(self, f"do_{tool_name}", None)
        hooks.trigger("tool_before", locals())
        try:
            if method is None:
                known = ", ".join(self.tool_names())
                ret = StepOutcome(
                    {"status": "error", "msg": f"unknown tool {tool_name!r}; tools: {known}"}, "\n"
                )
            else:
                ret = yield from try_call_generator(method, args, response)
        except LoopExit:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            msg = f"{type(error).__name__}: {error} (at {where.filename}:{where.lineno})"
            ret = StepOutcome({"status": "error", "msg": msg}, self._get_anchor_prompt(skip=index > 0))
        hooks.trigger("tool_after", locals())
        return ret


def agent_runner_loop(
    client: Any, system_prompt: str, user_input: Any, handler: BaseHandler, tools_schema: list[dict[str, Any]],
    max_turns: int = 40, verbose: bool = True, initial_user_content: Any = None, yield_info: bool = False,
) -> Generator[Chunk, None, dict[str, Any]]:  # fmt: skip
    """Run a task. Yields what a human should see, as it happens; returns `{"result": …, "data": …}`.

    Results: CURRENT_TASK_DONE, EXITED, MAX_TURNS_EXCEEDED, BUDGET_EXCEEDED, LLM_FAILED, ABORTED. With `yield_info`
    dicts come between the text: {"turn": n} before a turn's header, {"tool": name, "args", "index", "count"} before a
    tool's output, {"tool_done": name, "data"} after it.
    """
    handler.max_turns = max_turns
    first = user_input if initial_user_content is None else initial_user_content
    messages = [{"role": "system", "content": system_prompt}, {"role": "user", "content": first}]
    turn, exit_reason = 0, None
    hooks.trigger("agent_before", locals())
    try:
        while exit_reason is None:
            exit_reason = _stop_reason(handler, turn)
            if exit_reason:
                break
            turn += 1
            if yield_info:
                yield {"turn": turn}
            yield (
                f"\n**LLM Running (Turn {turn}) ...**\n\n"
                if verbose
                else f"\nLLM Running (Turn {turn}) ...\n"
            )
            if turn % 10 == 0:
                client.last_tools = ""
            hooks.trigger("turn_before", locals())
            hooks.trigger("llm_before", locals())
            response = yield from _streamed(client.chat(messages, tools_schema), verbose)
            hooks.trigger("llm_after", locals())
            if getattr(response, "exit_result", None):
                exit_reason = {"result": response.exit_result, "data": response.content}
                break
            tool_calls = list(response.tool_calls or [])
            runs = _run_calls(client, handler, response, tool_calls, verbose, yield_info)
            tool_results, next_prompt, exit_reason = yield from runs
            done_hooks = getattr(handler, "_done_hooks", None)
            if exit_reason and exit_reason["result"] == "CURRENT_TASK_DONE" and done_hooks:
                next_prompt, exit_reason = done_hooks.pop(0), None
            try:
                next_prompt = handler.turn_end_callback(
                    response, tool_calls, tool_results, turn, next_prompt, exit_reason
                )
            except LoopExit as stop:
                exit_reason = {"result": stop.result, "data": stop.data}
            hooks.trigger("turn_after", locals())
            messages = [{"role": "user", "content": next_prompt, "tool_results": tool_results}]
    finally:
        hooks.trigger("agent_after", locals())
    return exit_reason


def _stop_reason(handler: BaseHandler, turn: int) -> dict[str, Any] | None:
    """Why no further turn may start, or None."""
    try:
        handler.check()
    except LoopExit as stop:
        return {"result": stop.result, "data": stop.data}
    return {"result": "MAX_TURNS_EXCEEDED", "data": None} if turn >= handler.max_turns else None


def _run_calls(
    client: Any, handler: BaseHandler, response: Any, calls: list[Any], verbose: bool, yield_info: bool
) -> Generator[Chunk, None, tuple[list[dict[str, Any]], str, dict[str, Any] | None]]:
    """Run the calls of one reply in order; every one gets a result. Returns (results, next prompt, exit reason).

    A client with `settle(result)` is told each result at once, so that none is lost when no request follows.
    """
    results: list[dict[str, Any]] = []
    prompts: dict[str, None] = {}  # an ordered set: identical prompts of several calls are said once
    exit_reason: dict[str, Any] | None = None
    for index, call in enumerate(calls or [None]):
        name, args = (call.function.name, json.loads(call.function.arguments)) if call else ("no_tool", {})
        outcome = StepOutcome(NOT_RUN, "\n")
        if not exit_reason:
            if call and yield_info:
                yield {"tool": name, "args": dict(args), "index": index, "count": len(calls)}
            if call:
                yield announce(name, args, verbose)
            try:
                handler.check()
                outcome = yield from _fenced(
                    handler.dispatch(name, args, response, index, len(calls) or 1), verbose
                )
            except LoopExit as stop:
                exit_reason = {"result": stop.result, "data": stop.data}
        if call:
            results.append({"tool_use_id": call.id, "content": to_text(outcome.data)})
            if hasattr(client, "settle"):
                client.settle(results[-1])
            if yield_info:
                yield {"tool_done": name, "data": outcome.data}
        if exit_reason:
            continue
        if outcome.should_exit:
            exit_reason = {"result": "EXITED", "data": outcome.data}
        elif not outcome.next_prompt:
            exit_reason = {"result": "CURRENT_TASK_DONE", "data": outcome.data}
        else:
            prompts[outcome.next_prompt] = None
    return results, "\n".join(prompts), exit_reason


def _streamed(chat: Generator[str, None, Any], verbose: bool) -> Generator[str, None, Any]:
    """Verbose: the model's text as it comes. Otherwise the whole reply, tidied, once it is there."""
    if verbose:
        return (yield from chat)
    parts: list[str] = []
    while True:
        try:
            parts.append(next(chat))
        except StopIteration as end:
            yield tidy("".join(parts))
            return end.value


def _fenced(tool: Generator[Any, None, StepOutcome], verbose: bool) -> Generator[Any, None, StepOutcome]:
    """Verbose: a tool's own output inside a fence. Otherwise it is left out."""
    opened = False
    while True:
        try:
            piece = next(tool)
        except StopIteration as end:
            if opened:
                yield "\n`````\n"
            outcome: StepOutcome = end.value
            return outcome
        if verbose:
            yield piece if opened else f"`````\n{piece}"
            opened = True
