"""The loop against a client and a handler made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from agent_loop import BaseHandler, LoopExit, StepOutcome, agent_runner_loop, exhaust, try_call_generator
from ga import GenericAgentHandler
from plugins import hooks


def call(name: str, *, id: str = "t1", **args: Any) -> SimpleNamespace:
    return SimpleNamespace(id=id, function=SimpleNamespace(name=name, arguments=json.dumps(args)))


def reply(text: str = "", *calls: SimpleNamespace, exit_result: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(content=text, tool_calls=list(calls), exit_result=exit_result, stop_reason=None)


class Client:
    """Plays replies; keeps what it was asked."""

    last_tools = "sent"

    def __init__(self, *replies: SimpleNamespace) -> None:
        self.replies, self.asked, self.settled = list(replies), [], []

    def chat(self, messages: Any, tools: Any) -> Any:
        self.asked.append(messages)
        answer = self.replies.pop(0)
        yield answer.content
        return answer

    def settle(self, result: dict[str, Any]) -> None:
        self.settled.append(result)


class Shown(BaseHandler):
    """Shows a run as the agent's own handler does."""

    show_reply = GenericAgentHandler.show_reply
    show_call = GenericAgentHandler.show_call
    show_tool = GenericAgentHandler.show_tool
    redact = staticmethod(str)


class Handler(Shown):
    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def do_plain(self, args: dict[str, Any], response: Any) -> StepOutcome:
        self.ran.append("plain")
        return StepOutcome({"got": args.get("x")}, "go on")

    def do_slow(self, args: dict[str, Any], response: Any) -> Any:
        yield "line 1\n"
        yield "line 2\n"
        return StepOutcome("finished", "go on")

    def do_ask(self, args: dict[str, Any], response: Any) -> StepOutcome:
        return StepOutcome({"question": "?"}, should_exit=True)

    def do_raise(self, args: dict[str, Any], response: Any) -> StepOutcome:
        raise ValueError("no such thing")

    def do_stop(self, args: dict[str, Any], response: Any) -> StepOutcome:
        raise LoopExit("ABORTED", "by the user")

    def do_no_tool(self, args: dict[str, Any], response: Any) -> StepOutcome:
        return StepOutcome(response.content, None)


def run(client: Client, handler: BaseHandler, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    loop = agent_runner_loop(client, "system", "the request", handler, [], **kwargs)
    chunks = []
    while True:
        try:
            chunks.append(next(loop))
        except StopIteration as end:
            return chunks, end.value


def test_first_request_has_system_and_user_later_ones_only_the_new_message_with_results() -> None:
    client = Client(reply("a", call("plain", x=1)), reply("done"))
    chunks, end = run(client, Handler())
    assert [m["role"] for m in client.asked[0]] == ["system", "user"]
    assert client.asked[1] == [
        {"role": "user", "content": "go on", "tool_results": [{"tool_use_id": "t1", "content": '{"got": 1}'}]}
    ]
    assert end == {"result": "CURRENT_TASK_DONE", "data": "done"}
    text = "".join(chunks)
    assert "LLM Running (Turn 1) ..." in text and "LLM Running (Turn 2) ..." in text
    assert "plain" in text and '"x": 1' in text


def test_progress_of_a_generator_tool_is_shown_as_it_comes() -> None:
    chunks, _ = run(Client(reply("", call("slow")), reply("x")), Handler())
    assert [c for c in chunks if "line" in c] == ["`````\nline 1\n", "line 2\n"]


def test_quiet_run_shows_one_line_a_tool_and_no_output() -> None:
    chunks, _ = run(Client(reply("", call("slow", path="/a/b/c.txt")), reply("x")), Handler(), verbose=False)
    text = "".join(chunks)
    assert "slow(path=c.txt)" in text and "line 1" not in text


def test_quiet_run_shrinks_long_code_and_hides_tool_blocks() -> None:
    long = "```python\n" + "\n".join(f"x{i}" for i in range(20)) + "\n```\n<tool_use>{}</tool_use>after"
    chunks, _ = run(Client(reply(long)), Handler(), verbose=False)
    text = "".join(chunks)
    assert "x4" in text and "x5" not in text and "15 more lines" in text
    assert "tool_use" not in text and "after" in text


def test_every_call_of_a_turn_gets_a_result_in_order_when_the_first_is_interrupted() -> None:  # C014
    calls = [call("stop", id="a"), call("plain", id="b"), call("plain", id="c")]
    client, handler = Client(reply("", *calls)), Handler()
    _, end = run(client, handler)
    assert end == {"result": "ABORTED", "data": "by the user"}
    assert [r["tool_use_id"] for r in client.settled] == ["a", "b", "c"]
    assert all("not run" in r["content"] for r in client.settled[1:])
    assert handler.ran == []


def test_a_question_ends_the_run_and_the_calls_after_it_are_not_run() -> None:
    client, handler = Client(reply("", call("ask", id="a"), call("plain", id="b"))), Handler()
    _, end = run(client, handler)
    assert end == {"result": "EXITED", "data": {"question": "?"}}
    assert handler.ran == [] and len(client.settled) == 2


def test_exception_in_a_tool_becomes_its_result_with_type_message_and_place() -> None:
    client = Client(reply("", call("raise")), reply("x"))
    run(client, Handler())
    content = client.asked[1][0]["tool_results"][0]["content"]
    assert "ValueError: no such thing" in content and "test_agent_loop.py" in content


def test_unknown_tool_is_answered_with_the_tools_there_are() -> None:
    client = Client(reply("", call("fly")), reply("x"))
    run(client, Handler())
    content = client.asked[1][0]["tool_results"][0]["content"]
    assert "fly" in content and "plain" in content and "no_tool" not in content


def test_turn_limit_is_not_success() -> None:  # C037
    client = Client(*[reply("", call("plain")) for _ in range(9)])
    _, end = run(client, Handler(), max_turns=3)
    assert end["result"] == "MAX_TURNS_EXCEEDED" and len(client.asked) == 3


def test_turn_limit_may_be_raised_while_running() -> None:
    class Longer(Handler):
        def do_plain(self, args: Any, response: Any) -> StepOutcome:
            self.max_turns = 5
            return StepOutcome(1, "on")

    client = Client(*[reply("", call("plain")) for _ in range(9)])
    run(client, Longer(), max_turns=2)
    assert len(client.asked) == 5


def test_model_failure_ends_as_failed_and_runs_no_tool() -> None:
    client, handler = Client(reply("Error: gone", call("plain"), exit_result="LLM_FAILED")), Handler()
    _, end = run(client, handler)
    assert end == {"result": "LLM_FAILED", "data": "Error: gone"} and handler.ran == []


def test_done_hooks_are_said_one_by_one_before_the_end() -> None:
    handler = Handler()
    handler._done_hooks = ["first", "second"]
    client = Client(reply("a"), reply("b"), reply("c"))
    _, end = run(client, handler)
    assert [m[-1]["content"] for m in client.asked] == ["the request", "first", "second"]
    assert end["data"] == "c"


def test_tool_list_is_forgotten_every_ten_turns() -> None:
    seen = []

    class Watching(Client):
        def chat(self, messages: Any, tools: Any) -> Any:
            seen.append(self.last_tools)
            self.last_tools = "sent"
            return (yield from super().chat(messages, tools))

    run(Watching(*[reply("", call("plain")) for _ in range(12)]), Handler(), max_turns=12)
    assert [i + 1 for i, s in enumerate(seen) if not s] == [10]


def test_identical_prompts_of_several_calls_are_said_once() -> None:
    client = Client(reply("", call("plain", id="a"), call("plain", id="b")), reply("x"))
    run(client, Handler())
    assert client.asked[1][0]["content"] == "go on"


def test_index_and_count_reach_the_tool() -> None:
    seen = []

    class Counting(Handler):
        def do_plain(self, args: Any, response: Any) -> StepOutcome:
            seen.append((args["_index"], args["_tool_num"]))
            return StepOutcome(1, "on")

    run(Client(reply("", call("plain", id="a"), call("plain", id="b")), reply("x")), Counting())
    assert seen == [(0, 2), (1, 2)]


def test_info_tells_turns_and_tools() -> None:
    chunks, _ = run(Client(reply("", call("plain", x=2)), reply("x")), Handler(), yield_info=True)
    infos = [c for c in chunks if isinstance(c, dict)]
    assert infos == [
        {"turn": 1},
        {"tool": "plain", "args": {"x": 2}, "index": 0, "count": 1},
        {"tool_done": "plain", "data": {"got": 2}},
        {"turn": 2},
    ]


def test_a_new_tool_is_a_new_method_and_nothing_else() -> None:
    class Git(Handler):
        def do_git_branch(self, args: dict[str, Any], response: Any) -> StepOutcome:
            return StepOutcome({"branch": "main"}, next_prompt="go on")

    client = Client(reply("", call("git_branch")), reply("x"))
    run(client, Git())
    assert client.asked[1][0]["tool_results"][0]["content"] == '{"branch": "main"}'


def test_hooks_fire_in_order_and_a_raising_plugin_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    fired = []
    events = [
        "agent_before",
        "turn_before",
        "llm_before",
        "llm_after",
        "tool_before",
        "tool_after",
        "turn_after",
        "agent_after",
    ]
    for event in events:
        hooks.register(event)(lambda ctx, e=event: fired.append(e))

    @hooks.register("llm_before")
    def broken(ctx: dict[str, Any]) -> None:
        raise RuntimeError("plugin bug")

    try:
        _, end = run(Client(reply("", call("plain")), reply("x")), Handler())
    finally:
        hooks.clear()
    assert end["result"] == "CURRENT_TASK_DONE" and "plugin bug" in caplog.text
    once = ["turn_before", "llm_before", "llm_after", "tool_before", "tool_after", "turn_after"]
    assert fired == ["agent_before", *once, *once, "agent_after"]


def test_agent_after_fires_when_the_run_is_closed_early() -> None:
    fired = []
    hooks.register("agent_after")(lambda ctx: fired.append(1))
    try:
        loop = agent_runner_loop(Client(reply("a")), "s", "u", Handler(), [])
        next(loop)
        loop.close()
    finally:
        hooks.clear()
    assert fired == [1]


def test_generators_and_plain_functions_are_called_alike() -> None:
    def gen() -> Any:
        yield 1
        return 2

    assert exhaust(try_call_generator(gen)) == 2
    assert exhaust(try_call_generator(lambda: 3)) == 3


def test_sets_and_odd_values_in_tool_data_become_json() -> None:
    class Odd(Handler):
        def do_plain(self, args: Any, response: Any) -> StepOutcome:
            return StepOutcome({"s": {1}, "o": object}, "on")

    client = Client(reply("", call("plain")), reply("x"))
    run(client, Odd())
    content = json.loads(client.asked[1][0]["tool_results"][0]["content"])
    assert content["s"] == [1] and "object" in content["o"]


def test_40_honest_calls_of_one_tool_are_not_taken_for_a_loop() -> None:  # C028
    client = Client(*[reply("", call("plain", x=i)) for i in range(39)], reply("done"))
    _, end = run(client, Handler())
    assert end["result"] == "CURRENT_TASK_DONE"
