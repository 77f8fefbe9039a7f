"""The scripted model itself: what tests rely on must hold before anything is tested against it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from genericagent.llm.blocks import Usage
from genericagent.scripted import (
    Reply,
    Script,
    ScriptedServer,
    Tool,
    call,
    demo_script,
    fail,
    say,
    seq,
    text_call,
    violations,
)
from genericagent.scripted.demo import PROGRAM, RIGHT_LINE, WRONG_LINE

PATHS = {"anthropic": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
KINDS = list(PATHS)
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


@pytest.fixture
def play() -> Iterator[Any]:
    servers = []

    def start(replies: Script, **how: Any) -> ScriptedServer:
        servers.append(ScriptedServer(replies, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
    left = [t.name for t in threading.enumerate() if t.name.startswith("scripted-model")]
    assert left == [], "no thread outlives its server"


def body(kind: str, stream: bool = True, **more: Any) -> dict[str, Any]:
    messages = {"input" if kind == "responses" else "messages": [{"role": "user", "content": "hi"}]}
    limit = {"max_tokens": 100} if kind == "anthropic" else {}
    return {"model": "m", **messages, **limit, "stream": stream, **more}


def post(server: ScriptedServer, kind: str, stream: bool = True, http: Any = requests, **more: Any) -> Any:
    return http.post(server.url + PATHS[kind], json=body(kind, stream, **more), headers=HEADERS, timeout=20)


def events(response: Any) -> list[dict[str, Any]]:
    lines = response.content.decode().split("\n\n")
    data = [line.rpartition("data: ")[2] for line in lines if "data: " in line]
    return [json.loads(d) for d in data if d != "[DONE]"]


def text_of(kind: str, response: Any) -> str:
    """The visible text in an answer's SSE events or JSON."""
    if response.headers["content-type"] == "application/json":
        whole = response.json()
        return str({
            "anthropic": lambda: whole["content"][-1]["text"],
            "chat": lambda: whole["choices"][0]["message"]["content"],
            "responses": lambda: whole["output"][-1]["content"][0]["text"],
        }[kind]())  # fmt: skip
    found = ""
    for e in events(response):
        if kind == "anthropic":
            found += e.get("delta", {}).get("text", "")
        elif kind == "chat":
            found += (e["choices"][0]["delta"].get("content") or "") if e.get("choices") else ""
        elif e["type"] == "response.output_text.delta":
            found += e["delta"]
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_text_arrives_in_each_format(play: Any, kind: str, stream: bool) -> None:
    server = play([Reply(text="Grüße, 世界 🌍", thinking="hm", signature="sig", chunk=2)])
    assert text_of(kind, post(server, kind, stream)) == "Grüße, 世界 🌍"
    (request,) = server.requests
    assert request.path == PATHS[kind] and request.body == body(kind, stream)
    assert request.headers["x-api-key"] == "k" and request.previous_sent is None


@pytest.mark.parametrize("kind", KINDS)
def test_tool_arguments_are_sent_as_they_were_given(play: Any, kind: str) -> None:
    cut = '{"path": "a", "content": "hal'
    server = play([Reply(tools=[Tool("file_write", cut), Tool("b", {"x": 1}, id="mine")], stop="length", chunk=5)])
    said = events(post(server, kind))
    if kind == "anthropic":
        got = "".join(e["delta"]["partial_json"] for e in said if e["type"] == "content_block_delta")
        ids = [e["content_block"]["id"] for e in said if e["type"] == "content_block_start"]
        stop = said[-2]["delta"]["stop_reason"]
        assert stop == "max_tokens"
    elif kind == "chat":
        deltas = [c for e in said for c in e["choices"][0]["delta"].get("tool_calls", [])]
        got, ids = "".join(d["function"]["arguments"] for d in deltas), [d["id"] for d in deltas if "id" in d]
        assert said[-1]["choices"][0]["finish_reason"] == "length"
    else:
        got = "".join(e["delta"] for e in said if e["type"] == "response.function_call_arguments.delta")
        ids = [e["item"]["call_id"] for e in said if e["type"] == "response.output_item.added"]
        assert said[-1]["type"] == "response.incomplete"
    assert got == cut + '{"x": 1}' and ids[1] == "mine" and ids[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_a_function_and_a_sequence_make_the_replies(play: Any, kind: str) -> None:
    server = play(["one", say("two")])
    answers = [post(server, kind, False) for _ in range(3)]
    assert [text_of(kind, a) for a in answers[:2]] == ["one", "two"]
    assert answers[2].status_code == 400 and "no reply for request 2" in answers[2].text
    server = play(lambda body, n: f"{n}: {body['model']}")
    assert [text_of(kind, post(server, kind)) for _ in range(2)] == ["0: m", "1: m"]
    server = play(seq(fail(500), then="again"))
    assert [post(server, kind).status_code for _ in range(3)] == [500, 200, 200]


def test_usage_is_reported_in_each_apis_terms(play: Any) -> None:
    server = play(lambda body, n: Reply(text="x", usage=Usage(100, 7, cache_read=60, cache_write=30)))
    last = events(post(server, "anthropic"))[-2]["usage"]
    assert (last["input_tokens"], last["cache_read_input_tokens"], last["output_tokens"]) == (10, 60, 7)
    assert "usage" not in events(post(server, "chat"))[-1], "only on request"
    asked = events(post(server, "chat", stream_options={"include_usage": True}))[-1]
    assert asked["usage"]["prompt_tokens"] == 100 and asked["choices"] == []
    assert events(post(server, "responses"))[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 60}
    assert "usage" not in events(post(play([Reply(text="x", usage=False)]), "anthropic"))[-2]


def test_an_error_of_http_has_the_apis_shape_and_headers(play: Any) -> None:  # C005
    server = play(lambda body, n: fail(429, "slow down", retry_after="86400"))
    answer = post(server, "anthropic")
    assert answer.status_code == 429 and answer.headers["Retry-After"] == "86400"
    assert answer.json() == {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    assert post(server, "chat").json()["error"]["message"] == "slow down"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_event_inside_a_good_stream(play: Any, kind: str) -> None:  # C001
    server = play(
        [Reply(text="Part one", error_event="overloaded_error"), Reply(error_event={"type": "error", "x": 1})]
    )
    first = post(server, kind)
    assert first.status_code == 200 and text_of(kind, first) == "Part one"
    assert "overloaded_error" in json.dumps(events(first)[-1])
    assert events(post(server, kind))[-1] == {"type": "error", "x": 1}


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_break_in_the_middle_comes_after_what_was_sent(play: Any, kind: str, how: Any) -> None:  # C002 C011
    server = play([Reply(text="x" * 400, chunk=50, drop_text=200, drop_how=how), Reply(text="y" * 400, drop_bytes=30)])
    with requests.post(server.url + PATHS[kind], json=body(kind), stream=True, timeout=20) as response:
        got = b""
        with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
            for piece in response.iter_content(None):
                got += piece
    assert got.count(b"x") - got.count(b"text") - got.count(b"index") - got.count(b"next") == 200
    assert server.requests[0].answered is None
    with pytest.raises((requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError)):
        post(server, kind)


def test_a_clean_end_without_a_length_looks_complete(play: Any) -> None:
    whole = play(
        [Reply(text="abc", framing="close"), Reply(text="abc", framing="close", drop_after=3, drop_how="close")]
    )
    first, second = post(whole, "anthropic"), post(whole, "anthropic")
    assert "transfer-encoding" not in first.headers and "content-length" not in first.headers
    assert events(first)[-1]["type"] == "message_stop" and events(second)[-1]["type"] == "content_block_delta"
    assert whole.requests[0].connection != whole.requests[1].connection


def test_silence_and_comments_without_data(play: Any) -> None:  # C004
    server = play([Reply(text="a", hang_mid=0.3, pings=0.05), Reply(text="b", delay=0.2)])
    began = time.monotonic()
    answer = post(server, "anthropic")
    assert answer.content.count(b": ping\n\n") >= 2 and text_of("anthropic", answer) == "a"
    assert time.monotonic() - began >= 0.3
    assert b"ping" not in post(server, "anthropic").content


def test_a_client_that_leaves_ends_the_wait(play: Any) -> None:
    server = play([Reply(text="late", hang_before_headers=60)])
    with pytest.raises(requests.exceptions.ReadTimeout):
        requests.post(server.url + PATHS["chat"], json=body("chat"), timeout=0.2)
    deadline = time.monotonic() + 60
    while server._open:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_closing_ends_answers_that_hang(play: Any) -> None:
    server = play([Reply(text="never", hang_before_headers=60)])
    caller = threading.Thread(target=lambda: pytest.raises(requests.exceptions.RequestException, post, server, "chat"))
    caller.start()
    while not server.requests:
        time.sleep(0.01)
    began = time.monotonic()
    server.close()
    caller.join()
    assert time.monotonic() - began < 5
    with pytest.raises(requests.exceptions.ConnectionError):
        post(server, "chat")


def test_bytes_go_out_as_given_and_cut_anywhere(play: Any) -> None:  # C025
    odd = ['{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":null}]}}]}', "[DONE]"]
    server = play([
        Reply(events=[(None, odd[0]), ("x", {"a": "é"}), b": just a comment\n\n", (None, odd[1])], packet=3),
        Reply(body=b"<html>busy</html>", content_type="text/html"),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    ])  # fmt: skip
    expected = f'data: {odd[0]}\n\nevent: x\ndata: {{"a":"é"}}\n\n: just a comment\n\ndata: [DONE]\n\n'
    assert post(server, "chat").content.decode() == expected
    html = post(server, "chat")
    assert (html.status_code, html.headers["content-type"], html.text) == (200, "text/html", "<html>busy</html>")
    assert post(server, "chat").json() == {}


def test_a_connection_is_kept_and_the_gap_between_calls_is_known(play: Any) -> None:
    server = play(lambda body, n: say("x"))
    with requests.Session() as http:
        for kind in KINDS:
            post(server, kind, http=http)
            time.sleep(0.02)
    assert {r.connection for r in server.requests} == {1}
    assert all(r.gap is not None and r.gap >= 0.02 for r in server.requests[1:])
    assert [b.previous_sent for b in server.requests[1:]] == [a.answered for a in server.requests[:-1]]


def test_other_paths_are_no_model_calls(play: Any) -> None:
    server = play([say("x")])
    assert requests.get(server.url + "/v1/models", timeout=5).json()["data"]
    assert requests.post(server.url + "/v1/v1/messages", json={}, timeout=5).status_code == 404
    assert requests.get(server.url + "/", timeout=5).status_code == 404
    assert server.requests == [] and server.strays == ["GET /v1/models", "POST /v1/v1/messages", "GET /"]
    assert requests.post(server.url + "/api/v4/chat/completions", json=body("chat"), timeout=5).status_code == 200


def test_text_calls_are_those_of_the_text_protocol() -> None:
    assert text_call("f", a="ü").text == '<tool_use>{"name": "f", "arguments": {"a": "ü"}}</tool_use>'


# strict


USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER, BOT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}
GOOD: dict[str, list[Any]] = {
    "anthropic": [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}, BOT, USER],
    "chat": [
        {"role": "system", "content": "s"}, USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": ""}, BOT, USER,
    ],
    "responses": [
        USER, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": ""}, BOT, USER,
    ],
}  # fmt: skip


def wrong(kind: Any, messages: list[Any], **more: Any) -> str:
    field = "input" if kind == "responses" else "messages"
    return "; ".join(violations(kind, {**body(kind), field: messages, **more}))


@pytest.mark.parametrize("kind", KINDS)
def test_good_requests_pass(kind: str) -> None:
    assert wrong(kind, GOOD[kind]) == ""
    assert wrong(kind, [USER]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_without_its_result_and_a_result_without_its_call_are_refused(kind: str) -> None:  # C035
    at = next(
        i for i, m in enumerate(GOOD[kind]) if "tool_result" in str(m) or m.get("role") == "tool" or "output" in m
    )
    without_result = GOOD[kind][:at] + GOOD[kind][at + (2 if kind == "anthropic" else 1) :]
    assert "t1" in wrong(kind, without_result) or "c1" in wrong(kind, without_result)
    start = 1 if kind == "chat" else 0
    without_call = GOOD[kind][: start + 1] + GOOD[kind][at:]
    assert "t1" in wrong(kind, without_call) or "c1" in wrong(kind, without_call)
    twice = [*GOOD[kind][:at], GOOD[kind][at], GOOD[kind][at], *GOOD[kind][at + 1 :]]
    assert wrong(kind, twice)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([USER, USER], "alternate"),
        ([BOT, USER], "alternate"),
        ([USER, BOT], "last one must be the user's"),
        ([{"role": "user", "content": ""}], "non-whitespace"),
        ([{"role": "user", "content": [{"type": "text", "text": " \n"}]}], "non-whitespace"),
        ([{"role": "user", "content": []}], "must not be empty"),
        ([USER, {"role": "assistant", "content": []}, USER], "must not be empty"),
        ([USER, {"role": "assistant", "content": [{**USE, "id": "a.b"}]}, USER], "must match"),
        ([USER, {"role": "assistant", "content": [{**USE, "input": "x"}]}, USER], "must be an object"),
        ([USER, {"role": "assistant", "content": [{**USE, "incomplete": True}]}, USER], "not permitted"),
        ([{**USER, "request": True}], "not permitted"),
        ([USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]}, USER], "signature"),
        ([USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [{"type": "text", "text": "x"}, RESULT]}], "first"),
        ([{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": "x"}}]}], "image/png"),
        ([USER, {"role": "assistant", "content": [{**USE, "name": "a b"}]}, USER], "must match"),
        ([USER, {"role": "assistant", "content": [{"type": "redacted_thinking"}]}, USER], "needs its data"),
        ([USER, *[{"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}] * 2], "comes again"),
        ([USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [{**RESULT, "content": 3}]}], "text or blocks"),
        ([USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [{**RESULT, "content": [USE]}]}], "tool_use is not allowed"),
        ([{"role": "user", "content": ["a string"]}], "None is not allowed"),
        ([{"role": "user", "content": None}], "must not be empty"),
    ],
)  # fmt: skip
def test_what_anthropic_refuses(messages: list[Any], told: str) -> None:
    assert told in wrong("anthropic", messages)


def test_settings_that_anthropic_refuses() -> None:
    assert "max_tokens" in wrong("anthropic", [USER], max_tokens=0)
    assert "extra" in wrong("anthropic", [USER], reasoning_effort="low")
    marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5
    assert "cache_control" in wrong("anthropic", [USER], system=marked)
    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert "greater" in wrong("anthropic", [USER], thinking=thinking, max_tokens=2000)
    assert "temperature" in wrong("anthropic", [USER], thinking=thinking, max_tokens=4000, temperature=0.5)
    assert "at least 1024" in wrong("anthropic", [USER], thinking={**thinking, "budget_tokens": 100})
    assert "between 0 and 1" in wrong("anthropic", [USER], temperature=1.5)
    assert "image is not allowed" in wrong("anthropic", [USER], system=[{"type": "image", "source": {}}])
    assert "twice" in wrong("anthropic", [USER], tools=[{"name": "f", "input_schema": {"type": "object"}}] * 2)
    assert "must match" in wrong("anthropic", [USER], tools=[{"name": "a b", "input_schema": {"type": "object"}}])
    assert "of type object" in wrong("anthropic", [USER], tools=[{"name": "f", "input_schema": {"type": "array"}}])


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_api_refuses(kind: str) -> None:
    assert "a name is required" in wrong(kind, [USER], model="")
    assert "at least one message" in wrong(kind, [])
    assert "must be an object" in wrong(kind, ["a string"])
    assert "must be a boolean" in wrong(kind, [USER], stream="yes")


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([USER, USER], "alternate"),
        ([USER, {"role": "system", "content": "s"}], "must be the first"),
        ([USER, BOT], "last one"),
        ([USER, {"role": "assistant", "content": ""}, USER], "must not be empty"),
        ([USER, {"role": "assistant", "content": None}, USER], "must be text"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}, USER], "must not be empty"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": '{"a'}}]}, USER], "JSON object"),
        ([{**USER, "request": True}], "unknown field"),
        ([BOT, USER], "first message must be the user's"),
        ([{"role": "function", "content": "x"}], "unknown role"),
        ([{"role": "user", "content": []}], "must not be empty"),
        ([{"role": "user", "content": [{"type": "text", "text": " "}]}], "must not be empty"),
        ([USER, {"role": "tool", "tool_call_id": "c1", "content": "x"}], "must follow"),
        ([USER, {"role": "assistant", "tool_calls": [{"id": "c1"}]}, USER], "list of function calls"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]}, USER], "must be 'function'"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "", "arguments": "{}"}}]}, USER], "must match"),
        ([USER, {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": None}}]}, USER], "JSON object"),
        ([USER, {"role": "assistant", "tool_calls": [CALL, CALL]}, USER], "comes again"),
        ([USER, {"role": "assistant", "tool_calls": [CALL]}], "have no tool message"),
    ],
)  # fmt: skip
def test_what_chat_completions_refuses(messages: list[Any], told: str) -> None:
    assert told in wrong("chat", messages)


def test_settings_that_chat_completions_refuses() -> None:
    assert "exclude each other" in wrong("chat", [USER], max_tokens=9, max_completion_tokens=9)
    assert "stream_options" in wrong("chat", [USER], stream=False, stream_options={"include_usage": True})


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([USER, {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}, USER], "not allowed"),
        ([{"role": "tool", "content": "x"}], "unknown role"),
        ([{"role": "user", "content": []}], "must not be empty"),
        ([{"role": "user", "content": [{"type": "input_text", "text": ""}]}], "must not be empty"),
        ([USER, {"type": "reasoning"}, BOT, USER], "summary"),
        ([USER, {"content": "x"}], "neither a message nor a known item"),
        ([USER, {"type": "function_call_output", "call_id": "c1", "output": ""}], "no function call found"),
        ([*GOOD["responses"][:2], {"type": "function_call_output", "call_id": "c1"}], "must be text or parts"),
        ([*GOOD["responses"][:2], USER], "no tool output found"),
        (GOOD["responses"][:2], "no tool output found"),
    ],
)  # fmt: skip
def test_what_responses_refuses(items: list[Any], told: str) -> None:
    assert told in wrong("responses", items)


def test_settings_that_responses_refuses() -> None:
    reasoning = {"type": "reasoning", "summary": []}
    assert "encrypted_content" in wrong("responses", [USER, reasoning, BOT, USER], store=False)
    nested = [{"type": "function", "function": {"name": "f"}}]
    assert "beside type" in wrong("responses", [USER], tools=nested)
    assert "at least 16" in wrong("responses", [USER], max_output_tokens=9)


def test_a_bare_text_is_an_input_of_the_responses_api() -> None:
    assert violations("responses", {**body("responses"), "input": "hi"}) == []


def test_a_refused_request_is_answered_and_remembered(play: Any) -> None:
    server = play([say("x"), Reply(text="y", thinking="t", signature="s1"), say("z")], strict=True)
    assert post(server, "anthropic").status_code == 200 and server.faults == []
    refused = post(server, "anthropic", messages=[USER, USER])
    assert refused.status_code == 400 and "alternate" in refused.json()["error"]["message"]
    assert len(server.faults) == 1
    changed = {"type": "thinking", "thinking": "other", "signature": "s1"}
    server.replies = lambda body, n: Reply(text="y", thinking="t", signature="s1")
    post(server, "anthropic")
    answer = post(server, "anthropic", messages=[USER, {"role": "assistant", "content": [changed]}, USER])
    assert answer.status_code == 400 and "s1" in answer.text


def test_a_failing_assertion_in_a_script_reaches_the_test(play: Any) -> None:
    def script(body: Any, n: int) -> Reply:
        raise AssertionError("expected something else")

    server = play(script)
    assert post(server, "chat").status_code == 400 and "expected something else" in server.faults[0]


# the demo


class DemoRun:
    """A stand-in for the program: keeps the history, runs the demo's calls on a program held in memory."""

    def __init__(self, language: str = "en", **results: Any) -> None:
        self.script, self.results = demo_script(language, pace=0), results
        self.messages: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.called: list[str] = []
        self.program = ""

    def ask(self, text: str) -> str:
        content: list[Any] = [{"type": "text", "text": text}]
        while True:
            self.messages.append({"role": "user", "content": content})
            reply = self.script({"tools": [1], "messages": self.messages}, len(self.said))
            self.said.append(reply.text)
            blocks: list[Any] = [{"type": "text", "text": reply.text}]
            content = []
            for i, tool in enumerate(reply.tools):
                id_ = f"{len(self.said)}-{i}"
                blocks.append({"type": "tool_use", "id": id_, "name": tool.name, "input": tool.args})
                content.append({"type": "tool_result", "tool_use_id": id_, "content": self.run(tool)})
            self.messages.append({"role": "assistant", "content": blocks})
            if not content:
                return reply.text

    def run(self, tool: Tool) -> str:
        args: Any = tool.args
        self.called.append(tool.name)
        if tool.name in self.results:
            return str(self.results[tool.name])
        if tool.name == "file_write":
            self.program = args["content"]
        elif tool.name == "file_patch":
            assert self.program.count(args["old_content"]) == 1
            self.program = self.program.replace(args["old_content"], args["new_content"])
        elif tool.name == "code_run":
            printed: list[str] = []
            exec(compile(self.program, "primes.py", "exec"), {"print": printed.append, "range": range})
            return json.dumps({"status": "success", "stdout": printed[0], "exit_code": 0})
        return "done"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_demo_finds_and_mends_its_mistake(language: str) -> None:
    demo = DemoRun(language)
    answer = demo.ask("book me a flight")
    assert demo.called == ["file_write", "code_run", "file_read", "file_patch", "code_run"]
    assert "25 primes below 100, the largest is 97" in answer
    assert "33 primes below 100" in demo.said[2], "it quotes the wrong output"
    assert all("<summary>" in said for said in demo.said)
    label = "scripted stand-in" if language == "en" else "替身"
    assert label in demo.said[0] and label in answer
    assert label in demo.ask("and what is 2 + 2?") and len(demo.called) == 5


def test_the_demo_looks_at_what_the_tools_return() -> None:
    other = DemoRun(code_run='{"status": "success", "stdout": "25 primes below 100, the largest is 97"}')
    assert "right already" in other.ask("x") and other.called == ["file_write", "code_run"]
    silent = DemoRun(code_run='{"status": "success", "stdout": "Killed"}')
    assert "Killed" in silent.ask("x") and silent.called == ["file_write", "code_run"]
    failed = DemoRun(file_write='{"status": "error", "msg": "disk full"}')
    assert "disk full" in failed.ask("x") and failed.called == ["file_write"]
    same = DemoRun(code_run='{"stdout": "33 primes below 100, the largest is 97"}')
    assert "33 primes" in same.ask("x") and same.called[-2:] == ["file_patch", "code_run"]


def test_a_stopped_demo_goes_on_where_it_was() -> None:
    demo = DemoRun()
    script = demo.script
    stopped: list[int] = []

    def stop_once(body: Any, n: int) -> Reply:
        if n == 1 and not stopped:
            stopped.append(n)
            demo.results["code_run"] = "interrupted"
        else:
            demo.results.clear()
        return script(body, n)

    demo.script = stop_once
    assert "25 primes" in demo.ask("x")
    assert demo.called[:3] == ["file_write", "code_run", "code_run"]


def test_the_demo_program_holds_its_mistake_once() -> None:
    assert PROGRAM.count(WRONG_LINE) == 1 and RIGHT_LINE not in PROGRAM


def test_the_demo_streams_over_the_same_path_as_a_provider(play: Any) -> None:
    server = play(demo_script(pace=0), strict=True)
    tools = [{"name": "file_write", "input_schema": {"type": "object"}}]
    answer = post(server, "anthropic", tools=tools)
    said = events(answer)
    deltas = [e["delta"]["text"] for e in said if e.get("delta", {}).get("text")]
    assert len(deltas) > 20 and "scripted stand-in" in "".join(deltas)
    assert said[0]["message"]["model"] == "scripted-demo"
    assert call("file_write").tools[0].name in answer.text
    assert "scripted stand-in" in text_of("anthropic", post(server, "anthropic")), "without tools it has only words"
