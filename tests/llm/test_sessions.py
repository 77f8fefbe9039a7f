"""Sessions and clients against a model server that fails in every way a provider does."""

from __future__ import annotations

import email.utils
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from genericagent import config
from genericagent.abort import Abort
from genericagent.errors import Aborted, ConfigError, LLMError
from genericagent.llm import blocks
from genericagent.scripted import Reply, ScriptedServer, Tool, call, fail, say, seq
from llmcore import (
    SESSIONS,
    BaseClient,
    BaseSession,
    MixinSession,
    NativeClaudeSession,
    NativeOAISession,
    NativeToolClient,
    Response,
    ToolClient,
)

KINDS = ("native_claude", "native_oai", "responses")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TOOLS = [{"type": "function", "function": {"name": "echo", "parameters": {"type": "object", "properties": {}}}}]


class Quiet(Abort):
    """Waits for nothing and remembers how long it would have been."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self.is_set()


def session(server: ScriptedServer, kind: str = "native_claude", **settings: Any) -> BaseSession:
    """A session whose waiting takes no time; `.notes` are the lines it told the user."""
    base = server.url if kind.endswith("claude") else f"{server.url}/v1"
    cfg = {"api_key": "k", "base_url": base, "model": "m", **settings}
    if kind == "responses":
        kind, cfg["api_mode"] = "native_oai", "responses"
    made = SESSIONS[kind](cfg, rng=lambda: 0.0)
    made.abort = Quiet()
    made.notes = []  # type: ignore[attr-defined]
    made.notice = lambda text, seconds=0: made.notes.append(text)  # type: ignore[attr-defined]
    return made


def ask(client: BaseClient, text: str = "hi", tools: Any = ()) -> tuple[str, Response]:
    """(what was shown, the response)."""
    return send(client, [{"role": "system", "content": "s"}, {"role": "user", "content": text}], list(tools))


def send(client: BaseClient, messages: list[Any], tools: list[Any]) -> tuple[str, Response]:
    chat, shown = client.chat(messages, tools), []
    while True:
        try:
            shown.append(next(chat))
        except StopIteration as end:
            return "".join(shown), end.value


def native(server: ScriptedServer, kind: str = "native_claude", **settings: Any) -> NativeToolClient:
    return NativeToolClient(session(server, kind, **settings))


def history_text(client: BaseClient) -> str:
    return json.dumps(client.backend.history, ensure_ascii=False)


def waits(client: BaseClient) -> list[float]:
    abort = client.backend.abort
    assert isinstance(abort, Quiet)
    return abort.waits


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_text_thinking_and_calls_arrive_over_every_api(model_server: Any, kind: str, stream: bool) -> None:
    server = model_server([Reply(text="I look.", tools=[Tool("echo", {"a": 1})]), say("done")])
    client = native(server, kind, stream=stream)
    shown, response = ask(client, tools=TOOLS)
    assert "I look." in shown and response.exit_result is None
    (made,) = response.tool_calls
    assert made.function.name == "echo" and json.loads(made.function.arguments) == {"a": 1}
    assert response.usage is not None and response.usage.input > 0 and response.usage.output > 0
    shown, response = ask_next(client, made.id, "out")
    assert response.content == "done" and server.requests[1].body.get("stream", False) is stream


def ask_next(client: BaseClient, id: str, result: str) -> tuple[str, Response]:
    message = {"role": "user", "content": "go on", "tool_results": [{"tool_use_id": id, "content": result}]}
    return send(client, [message], TOOLS)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 524, 529])
def test_transient_errors_are_tried_again(model_server: Any, status: int) -> None:
    server = model_server([fail(status), say("fine")])
    client = native(server)
    _, response = ask(client)
    assert response.content == "fine" and len(server.requests) == 2
    assert waits(client) == [1.5] and "fine" in history_text(client)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_errors_fail_at_once_with_the_providers_words(model_server: Any, status: int) -> None:  # C001
    server = model_server([fail(status, "the reason given"), say("never asked")])
    client = native(server)
    shown, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and shown.startswith("Error: ")
    assert "the reason given" in shown and len(server.requests) == 1
    assert "the reason" not in history_text(client) and "Error" not in history_text(client)


def test_back_off_doubles_up_to_30_s_and_stops_after_max_retries(model_server: Any) -> None:
    server = model_server(lambda body, n: fail(503, "busy"))
    client = native(server, max_retries=7)
    _, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and len(server.requests) == 8
    assert waits(client) == [1.5, 3, 6, 12, 24, 30, 30]


def test_jitter_only_adds(model_server: Any) -> None:
    server = model_server([fail(503), say("ok")])
    client = native(server)
    client.backend._rng = lambda: 1.0
    ask(client)
    assert 1.5 < waits(client)[0] <= 2.0


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"retry-after": "7"}, 7), ({"retry-after": "0"}, 0.5), ({"retry-after-ms": "2500"}, 2.5), ({"retry-after": "soon"}, 1.5),
     ({"retry-after": "-5"}, 1.5), ({"retry-after": ""}, 1.5)],
)  # fmt: skip
def test_retry_after_is_obeyed_and_garbage_falls_back(model_server: Any, headers: Any, wait: float) -> None:  # C005
    server = model_server([Reply(status=429, text="slow down", headers=headers), say("ok")])
    client = native(server)
    _, response = ask(client)
    assert response.content == "ok" and waits(client) == [wait]


def test_retry_after_as_a_date(model_server: Any) -> None:  # C005
    soon = email.utils.formatdate(time.time() + 20, usegmt=True)
    server = model_server([Reply(status=429, headers={"retry-after": soon}), say("ok")])
    client = native(server)
    ask(client)
    assert 10 < waits(client)[0] <= 20


@pytest.mark.parametrize("wish", ["86400", "Fri, 31 Dec 2199 23:59:59 GMT"])
def test_a_huge_retry_after_gives_up_at_once_and_says_the_value(model_server: Any, wish: str) -> None:  # C005
    server = model_server([Reply(status=429, text="quota", headers={"retry-after": wish})])
    client = native(server)
    shown, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and waits(client) == [] and len(server.requests) == 1
    assert "max_retry_after" in shown


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_inside_a_200_stream_is_no_answer_and_tried_again(model_server: Any, kind: str) -> None:  # C001
    server = model_server([Reply(error_event="overloaded_error"), say("fine")])
    client = native(server, kind)
    shown, response = ask(client)
    assert response.content == "fine" and "overloaded" not in shown.lower().replace("trying", "")
    assert "overloaded" not in history_text(client).lower()


@pytest.mark.parametrize("kind", KINDS)
def test_a_permanent_error_inside_a_stream_is_not_tried_again(model_server: Any, kind: str) -> None:  # C001
    server = model_server([Reply(error_event="invalid_request_error"), say("never asked")])
    client = native(server, kind)
    _, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and len(server.requests) == 1


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_drop_after_visible_text_is_marked_and_asked_once_more(
    model_server: Any, kind: str, how: Any
) -> None:  # C011
    server = model_server([say("half an ans" * 20, chunk=11, drop_text=66, drop_how=how), say("a whole answer")])
    client = native(server, kind)
    shown, response = ask(client)
    assert response.content == "a whole answer" and len(server.requests) == 2
    assert "dropped" in shown and shown.index("dropped") < shown.index("a whole answer")
    assert "half an ans" not in history_text(client) and "connection" not in history_text(client)


def test_a_second_drop_after_visible_text_ends_the_call(model_server: Any) -> None:  # C011
    server = model_server(lambda body, n: say("half an answer", chunk=4, drop_text=8))
    client = native(server)
    _, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and len(server.requests) == 2
    assert "half" not in history_text(client)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_cut_by_a_drop_is_never_run(model_server: Any, kind: str) -> None:  # C002 C020
    half = Reply(text="I write.", tools=[Tool("echo", {"text": "x" * 500})], chunk=20, drop_after=8)
    server = model_server([half, say("ok")])
    _, response = ask(native(server, kind), tools=TOOLS)
    assert response.tool_calls == [] and response.content == "ok"


def test_comments_do_not_keep_a_dead_answer_alive(model_server: Any) -> None:  # C004
    server = model_server([say("one two three", chunk=3, hang_mid=20, pings=0.05), say("ok")])
    client = native(server, idle_timeout=0.4)
    began = time.monotonic()
    shown, response = ask(client)
    assert response.content == "ok" and time.monotonic() - began < 10
    assert len(server.requests) == 2 and "dropped" in shown


def test_silence_before_the_first_byte_times_out(model_server: Any) -> None:
    server = model_server([say("late", hang_before_headers=20), say("ok")])
    client = native(server, read_timeout=0.4)
    _, response = ask(client)
    assert response.content == "ok" and "timed out" in " ".join(client.backend.notes)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "reply",
    [say("x", hang_before_headers=30), say("abc", chunk=1, hang_mid=30), say("abc", chunk=1, hang_mid=30, pings=0.05),
     say("x" * 4000, chunk=1, pace=0.02)],
    ids=["before the headers", "in the middle", "with pings", "while it streams"],
)  # fmt: skip
def test_a_stop_is_felt_at_once_wherever_the_answer_is(model_server: Any, reply: Reply) -> None:
    server = model_server([reply])
    client = NativeToolClient(NativeClaudeSession({"api_key": "k", "base_url": server.url, "model": "m"}))
    timer = threading.Timer(0.3, client.backend.abort.set)
    timer.start()
    began = time.monotonic()
    _, response = ask(client)
    assert response.exit_result == "ABORTED" and time.monotonic() - began < 5
    assert '"assistant"' not in history_text(client)


def test_a_stop_is_felt_while_waiting_for_the_next_try(model_server: Any) -> None:
    server = model_server([fail(429, "later", retry_after="30")])
    client = NativeToolClient(NativeClaudeSession({"api_key": "k", "base_url": server.url, "model": "m"}))
    threading.Timer(0.3, client.backend.abort.set).start()
    began = time.monotonic()
    _, response = ask(client)
    assert response.exit_result == "ABORTED" and time.monotonic() - began < 5


def test_a_stop_is_felt_while_connecting() -> None:
    cfg = {"api_key": "k", "base_url": "https://10.255.255.1:9", "model": "m", "connect_timeout": 30}
    client = NativeToolClient(NativeClaudeSession(cfg))
    threading.Timer(0.3, client.backend.abort.set).start()
    began = time.monotonic()
    _, response = ask(client)
    assert response.exit_result in ("ABORTED", "LLM_FAILED") and time.monotonic() - began < 5


def test_the_next_task_works_after_a_stop(model_server: Any) -> None:  # C013
    server = model_server([say("x", hang_before_headers=30), say("ok")])
    client = NativeToolClient(NativeClaudeSession({"api_key": "k", "base_url": server.url, "model": "m"}))
    threading.Timer(0.2, client.backend.abort.set).start()
    ask(client)
    client.backend.abort.clear()
    _, response = ask(client)
    assert response.content == "ok"


def test_an_unreachable_host_is_one_clear_line(model_server: Any) -> None:
    cfg = {"api_key": "k", "base_url": "http://127.0.0.1:9", "model": "m", "max_retries": 0}
    shown, response = ask(NativeToolClient(NativeClaudeSession(cfg)))
    assert response.exit_result == "LLM_FAILED" and "127.0.0.1:9" in shown and "\n" not in shown.strip()
    assert "Max retries exceeded" not in shown and "object at 0x" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_left_out_unless_set(model_server: Any, kind: str) -> None:  # C019
    server = model_server([say("a"), say("b")])
    ask(native(server, kind, model="gpt-5" if kind != "native_claude" else "claude-x"))
    body = server.requests[0].body
    assert "temperature" not in body and "reasoning_effort" not in body
    if kind != "native_claude":
        assert "max_tokens" not in body
    ask(native(server, kind, temperature=0.3, max_tokens=77))
    body = server.requests[1].body
    name = {"native_claude": "max_tokens", "responses": "max_output_tokens"}.get(kind)
    assert body["temperature"] == 0.3
    assert body[name] == 77 if name else 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_picture_becomes_a_note_and_the_chat_goes_on(model_server: Any, status: int) -> None:  # C017 C167
    def script(body: dict[str, Any], n: int) -> Reply:
        return fail(status, "media exceeds size limit") if "base64" in json.dumps(body) else say("fine")

    server = model_server(script)
    client = native(server)
    client.backend.history = [
        {"role": "user", "content": [blocks.text("look"), IMAGE]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "echo", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [blocks.text("x"), IMAGE]}]},
        {"role": "assistant", "content": [blocks.text("ok")]},
    ]  # fmt: skip
    _, response = ask(client)
    assert response.content == "fine" and "base64" not in history_text(client)
    assert "image was here" in history_text(client)
    _, response = ask(client)
    assert response.content == "fine" and len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "words"), [(403, "request blocked"), (400, "Content Exists Risk"), (400, "data_inspection_failed")]
)
@pytest.mark.parametrize("kind", ["native_claude", "claude"])
def test_a_tool_result_that_a_filter_refuses_is_left_out_and_the_task_goes_on(
    model_server: Any, status: int, words: str, kind: str
) -> None:  # C133
    server = model_server(lambda body, n: fail(status, words) if "EVIL" in json.dumps(body) else say("fine"))
    backend = session(server, kind)
    client = NativeToolClient(backend) if backend.native else ToolClient(backend)
    backend.save = lambda text: "/kept/result.txt" if "EVIL" in text else ""

    def turn(n: int, result: str) -> list[Any]:
        called, given = (
            ({"type": "tool_use", "id": f"t{n}", "name": "echo", "input": {}}, {"type": "tool_result", "tool_use_id": f"t{n}", "content": result})
            if backend.native
            else (blocks.text("calling"), blocks.text(f"<tool_result>\n{result}\n</tool_result>"))
        )  # fmt: skip
        return [{"role": "assistant", "content": [called]}, {"role": "user", "content": [given]}]

    asked = {"role": "user", "content": [blocks.text("look for it")], "request": True}
    backend.history = [asked, *turn(1, "harmless"), *turn(2, "Traceback: EVIL"), {"role": "assistant", "content": [blocks.text("hm")]}]  # fmt: skip
    for _ in range(2):
        _, response = ask(client)
        assert response.content == "fine" and response.exit_result is None
    assert "EVIL" not in history_text(client) and "left out" in history_text(client)
    assert "harmless" in history_text(client) and "look for it" in history_text(client)
    assert len(server.requests) == 3, "later turns are not refused any more"
    (note,) = backend.notes  # type: ignore[attr-defined]
    assert words in note and "/kept/result.txt" in note


def test_a_refusal_that_no_tool_result_caused_stays_one_and_loses_nothing(model_server: Any) -> None:  # C133
    server = model_server(lambda body, n: fail(403, "no access to this model"))
    client = native(server)
    ask(client)
    assert len(server.requests) == 1, "without a tool result it is asked once"
    client.backend.history = [
        {"role": "user", "content": [blocks.text("look")], "request": True},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "echo", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "as it was"}]},
        {"role": "assistant", "content": [blocks.text("ok")]},
    ]
    _, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and "no access" in response.content
    assert "as it was" in history_text(client) and len(server.requests) == 3


def test_a_history_the_model_finds_too_long_is_cut_and_sent_again(model_server: Any) -> None:  # C032
    def script(body: dict[str, Any], n: int) -> Reply:
        too_long = len(json.dumps(body)) > 30_000
        return fail(400, "prompt is too long: 210000 tokens > 200000 maximum") if too_long else say("fine")

    server = model_server(script)
    client = native(server, context_win=200_000)
    for i in range(12):
        client.backend.history += [
            {"role": "user", "content": [blocks.text(f"part {i} " + "y" * 4000)], "request": i == 0},
            {"role": "assistant", "content": [blocks.text("ok")]},
        ]
    _, response = ask(client)
    assert response.content == "fine" and len(server.requests) == 2
    assert client.backend.context_win < 200_000, "what the provider refused is not tried again"


def test_pictures_stay_when_they_were_not_the_reason(model_server: Any) -> None:  # C017
    server = model_server(lambda body, n: fail(400, "temperature is not supported"))
    client = native(server)
    client.backend.history = [{"role": "user", "content": [blocks.text("look"), IMAGE]}]
    _, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and "base64" in history_text(client)


def test_the_text_protocol_sends_the_tools_once_and_again_after_a_cut(model_server: Any) -> None:
    server = model_server(lambda body, n: say(f"answer {n} " + "z" * 3000))
    client = ToolClient(session(server, "claude", context_win=6000))
    for _ in range(8):
        ask(client, "x" * 2000, TOOLS)
    sent = [json.dumps(r.body["messages"][-1]).count("# Tools") for r in server.requests]
    assert sent[0] == 1 and sent[1] == 0
    assert client.backend.cuts >= 1
    for request in server.requests:
        assert "# Tools" in json.dumps(request.body["messages"]), "every request shows the tool list somewhere"


def test_usage_is_reported_with_the_price_of_the_model(model_server: Any) -> None:
    server = model_server([Reply(text="x", usage=blocks.Usage(1000, 100, 400, 200))])
    client = native(server, model="claude-sonnet-4-5")
    seen: list[Any] = []
    client.backend.spent = lambda used, cost: seen.append((used, cost))
    client.backend.prices = {
        "claude-sonnet-4-5": {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}
    }
    ask(client)
    ((used, cost),) = seen
    assert (used.input, used.output, used.cache_read, used.cache_write) == (1000, 100, 400, 200)
    assert cost == pytest.approx((400 * 3 + 100 * 15 + 400 * 0.3 + 200 * 3.75) / 1e6)


def test_the_prefix_stays_byte_identical_while_nothing_is_cut(model_server: Any) -> None:
    server = model_server(seq(*[call("echo", n=i) for i in range(6)], then=say("done")))
    client = native(server)
    _, response = ask(client, "go", TOOLS)
    while response.tool_calls:
        _, response = ask_next(client, response.tool_calls[0].id, "result\n" * 50)
    earlier: list[Any] = []
    for request in server.requests:
        messages = [strip_marks(m) for m in request.body["messages"]]
        assert messages[: len(earlier)] == earlier, "an older message was rewritten"
        earlier = messages[:-1]
        assert json.dumps(request.body).count("cache_control") <= 4
        assert (request.body["system"], request.body["tools"]) == (
            server.requests[0].body["system"], server.requests[0].body["tools"],
        )  # fmt: skip


def strip_marks(message: Any) -> Any:
    """Without the cache breakpoints, which move and are no part of what is cached."""
    content = message["content"]
    if isinstance(content, list):
        content = [{k: v for k, v in b.items() if k != "cache_control"} for b in content]
    return {**message, "content": content}


# fail-over


def mixin(*members: BaseSession, clock: Callable[[], float] = time.monotonic) -> MixinSession:
    cfg = config.model_from({"name": "mix"}, "mixin", {}, source="test")
    made = MixinSession(members, cfg, clock=clock)
    made.abort = Quiet()
    for member in members:
        member.abort = made.abort
    made.notes = []  # type: ignore[attr-defined]
    made.notice = lambda text, seconds=0: made.notes.append(text)  # type: ignore[attr-defined]
    return made


def test_fail_over_before_the_first_word_and_back_after_the_cool_down(model_server: Any) -> None:  # C016
    first = model_server(seq(fail(500), then=say("from the first")))
    second = model_server(lambda body, n: say("from the second"))
    now = [0.0]
    a, b = session(first, max_retries=0, name="A"), session(second, max_retries=0, name="B")
    client = NativeToolClient(mixin(a, b, clock=lambda: now[0]))
    assert ask(client)[1].content == "from the second"
    assert any("A" in n and "B" in n for n in client.backend.notes)  # type: ignore[attr-defined]
    now[0] = 299
    assert ask(client)[1].content == "from the second", "sticky for 300 s"
    now[0] = 301
    assert ask(client)[1].content == "from the first"


def test_no_fail_over_after_visible_text(model_server: Any) -> None:  # C002
    first = model_server(lambda body, n: say("Part one of it", chunk=4, drop_text=8))
    second = model_server(lambda body, n: say("another answer"))
    client = NativeToolClient(mixin(session(first), session(second)))
    shown, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and second.requests == []
    assert "another answer" not in shown and "Part one" not in history_text(client)


def test_when_all_fail_the_last_reason_is_given(model_server: Any) -> None:
    first, second = model_server([fail(500, "first down")]), model_server([fail(500, "second down")])
    client = NativeToolClient(mixin(session(first, max_retries=0), session(second, max_retries=0)))
    shown, response = ask(client)
    assert response.exit_result == "LLM_FAILED" and "second down" in shown


def test_a_mixin_of_native_and_text_sessions_is_refused(model_server: Any) -> None:
    server = model_server([])
    with pytest.raises(ConfigError, match="native"):
        mixin(session(server), session(server, "claude"))


def test_a_bare_session_takes_its_model_and_address_from_the_environment(
    model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = model_server([say("ok")])
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_MODEL", "some-model")
    _, response = ask(NativeToolClient(NativeOAISession({"api_key": "k"})))
    assert response.content == "ok" and server.requests[0].body["model"] == "some-model"


def test_errors_raise_from_ask_and_aborted_is_its_own_kind(model_server: Any) -> None:
    server = model_server([fail(401, "bad key")])
    asking = session(server).ask([blocks.text("hi")], "", [])
    with pytest.raises(LLMError, match="bad key"):
        list(asking)
    stopped = session(server)
    stopped.abort.set()
    with pytest.raises(Aborted):
        list(stopped.ask([blocks.text("hi")], "", []))
