"""The history as each API takes it: pairs, roles, ids, thinking, images, and beginnings that never change."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericagent.llm import anthropic, chat, responses
from genericagent.llm.blocks import Request
from genericagent.llm.convert import INTERRUPTED, endpoint

WIRES = {"anthropic": anthropic, "chat": chat, "responses": responses}
ROOT = Path(__file__).resolve().parent.parent.parent
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
TOOL = {"type": "function", "function": {"name": "run", "description": "d", "parameters": {"type": "object"}}}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]}


def model(*content: Any) -> dict[str, Any]:
    return {**user(*content), "role": "assistant"}


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "run", "input": {"x": 1}, **more}


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def body(api: str, history: list[Any], model: str = "claude-x", **more: Any) -> dict[str, Any]:
    request = Request(model, more.pop("system", ""), history, more.pop("tools", []), **more)
    encoded: dict[str, Any] = WIRES[api].encode(request)
    json.dumps(encoded, ensure_ascii=False).encode()  # what goes out is UTF-8
    return encoded


def sent(api: str, history: list[Any], model: str = "claude-x", **more: Any) -> list[Any]:
    items: list[Any] = body(api, history, model, **more)["input" if api == "responses" else "messages"]
    return items


def bare(messages: Any) -> Any:
    """Without the cache marks, which move on."""
    if isinstance(messages, list):
        return [bare(m) for m in messages]
    return {k: bare(v) for k, v in messages.items() if k != "cache_control"} if isinstance(messages, dict) else messages


# what the APIs insist on


def check_anthropic(messages: list[Any]) -> None:
    assert messages and messages[0]["role"] == "user"
    open_calls: list[str] = []
    for at, message in enumerate(messages):
        assert at == 0 or messages[at - 1]["role"] != message["role"]
        content = message["content"]
        assert content and all(b["text"].strip() for b in content if b["type"] == "text")
        kinds = [b["type"] for b in content]
        results = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        assert results == open_calls and kinds[: len(results)] == ["tool_result"] * len(results)
        open_calls = [b["id"] for b in content if b["type"] == "tool_use"]
        assert len(set(open_calls)) == len(open_calls)
        assert all(re.fullmatch("[a-zA-Z0-9_-]+", i) for i in open_calls)
        assert all(isinstance(b["input"], dict) and b["name"] for b in content if b["type"] == "tool_use")
        assert all(b["signature"] for b in content if b["type"] == "thinking")
        assert kinds[-1] != "thinking"
    assert not open_calls


def check_chat(messages: list[Any]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_calls.pop(0) and message["content"]
            continue
        assert not open_calls
        assert message["content"] or message.get("tool_calls")
        for each in message.get("tool_calls", ()):
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
            assert each["id"] and each["id"] not in seen
            seen.add(each["id"])
            open_calls.append(each["id"])
    assert not open_calls


def check_responses(items: list[Any]) -> None:
    calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
    answers = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    assert len(set(calls)) == len(calls) and answers == calls
    for at, item in enumerate(items):
        if item.get("type") == "reasoning":
            assert items[at + 1].get("type") in ("reasoning", "function_call") or items[at + 1]["role"] == "assistant"
        assert item.get("content", True)


CHECKS = {"anthropic": check_anthropic, "chat": check_chat, "responses": check_responses}
IDS = st.sampled_from(["t1", "t2", "functions.run:0", "", "a b", "t" * 70])
WORDS = st.sampled_from(["", "  ", "hello", "bad \ud83d end", "é"])
BLOCKS = st.one_of(
    WORDS.map(lambda w: {"type": "text", "text": w}),
    st.builds(call, IDS),
    st.builds(lambda i: {**call(i), "input": None, "incomplete": True, "input_raw": '{"a'}, IDS),
    st.builds(
        result, IDS, st.one_of(WORDS, st.none(), st.just([IMAGE]), st.just([{"type": "text", "text": "t"}, IMAGE]))
    ),
    st.builds(lambda w, s: {"type": "thinking", "thinking": w, "signature": s}, WORDS, st.sampled_from(["", "SIG"])),
    st.just({"type": "thinking", "thinking": "sum", "signature": "ENC", "id": "rs_1"}),
    st.just({"type": "redacted_thinking", "data": "R"}),
    st.just(IMAGE),
    st.sampled_from([None, 3, "plain", {}, {"type": None}, {"type": "text"}, {"type": "tool_use"}, {"type": "image"}]),
)
MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant"]),
    st.one_of(st.lists(BLOCKS, max_size=4), st.none(), WORDS),
)
HISTORIES = st.lists(MESSAGES, max_size=9)


@pytest.mark.parametrize("api", WIRES)
@settings(max_examples=200, deadline=None)
@given(HISTORIES)
def test_any_history_can_be_sent(api: str, history: list[Any]) -> None:
    before = copy.deepcopy(history)
    CHECKS[api](sent(api, history))
    assert history == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude-x", "deepseek-v4", "mistral-small"])
@pytest.mark.parametrize("api", WIRES)
@settings(max_examples=100, deadline=None)
@given(HISTORIES, MESSAGES)
def test_what_was_sent_once_stays_byte_identical(api: str, name: str, history: list[Any], more: dict[str, Any]) -> None:
    history = [user("task"), *history, user("end of the old part")]
    old = bare(sent(api, history, name))
    new = bare(sent(api, [*history, model("next", call("t1")), user(result("t1")), more], name))
    assert json.dumps(new[: len(old)]) == json.dumps(old)


# single faults


@pytest.mark.parametrize("api", WIRES)
def test_unanswered_calls_get_an_explicit_result_before_the_users_words(api: str) -> None:
    items = sent(api, [user("go"), model("ok", call("t1"), call("t2")), user("stop, do B", result("t2", "two"))])
    CHECKS[api](items)
    text = json.dumps(items)
    assert text.index(INTERRUPTED) < text.index("two") < text.index("stop, do B")


@pytest.mark.parametrize("api", WIRES)
def test_history_that_ends_with_calls_is_answered(api: str) -> None:  # C040: killed while tools ran
    items = sent(api, [user("go"), model(call("t1"))])
    CHECKS[api](items)
    assert INTERRUPTED in json.dumps(items)


@pytest.mark.parametrize("api", WIRES)
def test_ids_that_recur_across_turns_are_paired_by_turn(api: str) -> None:
    history = [user("go")]
    for content in ("A", "B", "C"):
        history += [model(call("run:0")), user(result("run:0", content))]
    items = sent(api, history)
    CHECKS[api](items)
    assert re.findall(r'"(?:content|output)": "([ABC])"', json.dumps(items)) == ["A", "B", "C"]


@pytest.mark.parametrize("api", WIRES)
def test_ids_that_are_missing_or_repeated_in_one_turn_are_paired_by_order(api: str) -> None:  # C025
    for call_id in ("", "same"):
        calls = [call(call_id), call(call_id)]
        items = sent(api, [user("go"), model(*calls), user(result(call_id, "A"), result(call_id, "B"))])
        CHECKS[api](items)
        assert re.findall(r'"(?:content|output)": "([AB])"', json.dumps(items)) == ["A", "B"]


@pytest.mark.parametrize("api", WIRES)
def test_result_without_its_call_becomes_text_and_a_second_one_is_dropped(api: str) -> None:  # C035
    items = sent(
        api, [user(result("gone", "old output"), "go"), model(call("t1")), user(result("t1"), result("t1", "no"))]
    )
    CHECKS[api](items)
    text = json.dumps(items)
    assert "old output" in text and '"no"' not in text


@pytest.mark.parametrize("api", WIRES)
def test_a_call_with_null_arguments_from_a_saved_session_can_be_sent(api: str) -> None:  # C026
    broken = {"type": "tool_use", "id": "t1", "name": None, "input": None}
    CHECKS[api](sent(api, [user("go"), model(broken), user(result("t1", "not run"))]))


@pytest.mark.parametrize("api", WIRES)
def test_images_stay_also_in_tool_results(api: str) -> None:
    seen = [{"type": "text", "text": "screenshot"}, IMAGE]
    items = sent(api, [user("look", IMAGE), model(call("c1")), user(result("c1", seen), "and?")])
    CHECKS[api](items)
    assert json.dumps(items).count("iVBORw0KGgo=") == 2


def test_signed_thinking_goes_back_verbatim_and_only_to_its_kin() -> None:  # C010
    thought = {"type": "thinking", "thinking": "A" * 3000, "signature": "S1", "origin": "anthropic:claude"}
    history = [user("go"), model(thought, {"type": "redacted_thinking", "data": "R"}, call("t1")), user(result("t1"))]
    content = sent("anthropic", history)[1]["content"]
    assert content[0] == {"type": "thinking", "thinking": "A" * 3000, "signature": "S1"}
    assert content[1] == {"type": "redacted_thinking", "data": "R"}
    for api, name in (("anthropic", "kimi-k2"), ("chat", "gpt-x"), ("chat", "deepseek-chat"), ("responses", "gpt-5")):
        assert "AAAA" not in json.dumps(sent(api, history, name))


def test_thinking_that_is_alone_or_last_is_dropped_whole() -> None:
    thought = {"type": "thinking", "thinking": "half", "signature": "S"}
    for content in ([thought], ["text", thought]):
        items = sent("anthropic", [user("go"), model(*content), user("again")])
        check_anthropic(items)
        assert "half" not in json.dumps(items)


def test_unsigned_thinking_goes_back_to_imitators_of_the_api_that_do_not_sign() -> None:
    thought = {"type": "thinking", "thinking": "th", "signature": "", "origin": "anthropic:kimi"}
    history = [user("go"), model(thought, "x"), user("y")]
    assert sent("anthropic", history, "kimi-k2")[1]["content"][0]["thinking"] == "th"
    assert "th" not in [b["type"] for b in sent("anthropic", history, "claude-x")[1]["content"]]


def test_reasoning_goes_back_under_the_name_it_came_by() -> None:
    thought = {"type": "thinking", "thinking": "th", "signature": "", "key": "reasoning", "origin": "chat:qwen"}
    history = [
        user("go"),
        model({**thought, "extra": {"reasoning_details": [{"data": "E"}]}}, call("c")),
        user(result("c")),
    ]
    answer = sent("chat", history, "qwen/qwen3-max")[1]
    assert answer["reasoning"] == "th" and answer["reasoning_details"] == [{"data": "E"}]
    assert "reasoning" not in sent("chat", history, "gpt-oss-120b")[1]
    mistral = [user("go"), model({**thought, "key": "content", "origin": "chat:magistral"}, "so"), user("y")]
    assert [c["type"] for c in sent("chat", mistral, "magistral-small")[1]["content"]] == ["thinking", "text"]


def test_reasoning_without_origin_goes_to_models_that_insist_on_it() -> None:
    history = [user("go"), model({"type": "thinking", "thinking": "th", "signature": ""}, call("c")), user(result("c"))]
    assert sent("chat", history, "deepseek/deepseek-v4")[1]["reasoning_content"] == "th"
    assert "th" not in json.dumps(sent("chat", history, "gpt-x")[1])


def test_encrypted_reasoning_is_replayed_before_its_call() -> None:
    thought = {"type": "thinking", "thinking": "a\n\nb", "signature": "ENC", "id": "rs_1", "summary": ["a", "b"]}
    items = sent(
        "responses", [user("go"), model({**thought, "origin": "responses:gpt"}, call("c")), user(result("c"))], "gpt-5"
    )
    words = [{"type": "summary_text", "text": t} for t in "ab"]
    assert items[1] == {"type": "reasoning", "id": "rs_1", "summary": words, "encrypted_content": "ENC"}


def test_paused_turn_goes_back_as_is_but_not_when_the_user_went_on() -> None:
    paused = model("searching", {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}})
    assert sent("anthropic", [user("go"), paused], tail="now 12:00")[-1] == paused
    assert "server_tool_use" not in json.dumps(sent("anthropic", [user("go"), paused, user("stop")]))
    done = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "E"}]}
    answered = sent("anthropic", [user("go"), paused, model(done, "found"), user("thanks")])
    assert [b["type"] for b in answered[1]["content"]] == ["text", "server_tool_use", "web_search_tool_result", "text"]


def test_blocks_of_another_api_are_not_sent() -> None:
    item = {"type": "web_search_call", "id": "ws_1", "origin": "responses:gpt"}
    history = [user("go"), model(item, "found"), user("thanks")]
    assert sent("responses", history, "gpt-5")[1] == {"type": "web_search_call", "id": "ws_1"}
    assert "ws_1" not in json.dumps([sent("anthropic", history), sent("chat", history, "gpt-5")])


def test_foreign_ids_and_names_are_made_legal() -> None:
    odd = {**call("functions.read:0 é" + "x" * 80), "name": "web.search"}
    history = [user("go"), model(odd), user(result(odd["id"]))]
    for api in WIRES:
        CHECKS[api](sent(api, history))
    assert len(sent("chat", history, "gpt-x")[1]["tool_calls"][0]["id"]) <= 40
    mistral = sent("chat", history, "mistral-large")[1]["tool_calls"][0]
    assert re.fullmatch("[a-zA-Z0-9]{9}", mistral["id"]) and mistral["function"]["name"] == "web_search"


def test_pair_of_surrogate_halves_is_joined_and_a_lone_one_replaced() -> None:
    items = sent("chat", [user("\ud83d\ude00 and \ud83d")])
    assert items == [{"role": "user", "content": "\U0001f600 and \ufffd"}]


def test_nothing_at_all_is_still_a_request() -> None:
    for api in WIRES:
        assert len(sent(api, [])) == 1
        assert "now" in json.dumps(sent(api, [], tail="now"))


# the rest of the body


def test_cache_breakpoints_cover_system_and_the_last_two_user_messages_but_not_the_tail() -> None:
    history = [user("a"), model("b"), user("c"), model(call("t")), user(result("t"))]
    request = body("anthropic", history, system="sys", tools=[TOOL], tail="changes every turn")
    assert request["system"][0]["cache_control"] and "cache_control" not in request["tools"][0]
    marked = [(i, b["type"]) for i, m in enumerate(request["messages"]) for b in m["content"] if "cache_control" in b]
    assert marked == [(2, "text"), (4, "tool_result")]
    assert request["messages"][-1]["content"][-1] == {"type": "text", "text": "changes every turn"}
    assert "cache_control" in body("anthropic", history, tools=[TOOL])["tools"][0]


@pytest.mark.parametrize("api", WIRES)
def test_tail_comes_last_and_changes_nothing_before_it(api: str) -> None:
    history = [user("a"), model(call("t")), user(result("t"))]
    with_tail = json.dumps(bare(sent(api, history, tail="TAIL")))
    assert with_tail.startswith(json.dumps(bare(sent(api, history))).rstrip("]}"))
    assert with_tail.rstrip('"]}').endswith("TAIL")


def test_parameters_nobody_set_are_not_sent() -> None:  # C019
    plain = {"model", "messages", "stream", "stream_options"}
    assert set(body("chat", [user("x")])) == plain
    assert set(body("anthropic", [user("x")])) == {"model", "messages", "stream", "max_tokens"}
    assert set(body("responses", [user("x")], "gpt-4o")) == {"model", "input", "stream", "store"}
    assert "stream_options" not in body("chat", [user("x")], stream=False)


def test_output_limit_has_the_right_name() -> None:  # C019
    options = {"max_tokens": 5}
    assert body("chat", [], "gpt-5", options=options)["max_completion_tokens"] == 5
    assert body("chat", [], "openai/o3-mini", options=options)["max_completion_tokens"] == 5
    assert body("chat", [], "openai/gpt-oss-20b", options=options)["max_tokens"] == 5
    assert body("chat", [], "deepseek-chat", options=options)["max_tokens"] == 5
    assert body("responses", [], "gpt-5", options=options)["max_output_tokens"] == 5
    assert body("anthropic", [], options=options)["max_tokens"] == 5


def test_thinking_settings() -> None:
    enabled = body(
        "anthropic", [], options={"thinking_type": "enabled", "reasoning_effort": "xhigh", "max_tokens": 100}
    )
    assert enabled["thinking"] == {"type": "enabled", "budget_tokens": 10240} and enabled["max_tokens"] == 10340
    assert enabled["output_config"] == {"effort": "max"}
    assert body("anthropic", [], options={"thinking_budget_tokens": 2000})["thinking"]["budget_tokens"] == 2000
    assert body("anthropic", [], options={"thinking_type": "adaptive"})["thinking"] == {"type": "adaptive"}
    assert "output_config" not in body("anthropic", [], options={"reasoning_effort": "minimal"})
    assert body("chat", [], options={"reasoning_effort": "minimal"})["reasoning_effort"] == "minimal"
    assert body("chat", [], "glm-4.6", options={"thinking_type": "disabled"})["thinking"] == {"type": "disabled"}
    effort = body("responses", [], "grok-4", options={"reasoning_effort": "low"})
    assert effort["reasoning"] == {"effort": "low"} and effort["include"] == ["reasoning.encrypted_content"]
    assert "include" in body("responses", [], "gpt-5.2") and "include" not in body("responses", [], "gpt-5-chat-latest")


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1/chat/completions"),
        ("http://127.0.0.1:1234/", "http://127.0.0.1:1234/v1/chat/completions"),
        ("https://api.x.com/v1/", "https://api.x.com/v1/chat/completions"),
        ("https://open.bigmodel.cn/api/paas/v4", "https://open.bigmodel.cn/api/paas/v4/chat/completions"),
        ("https://g.com/v1beta/openai", "https://g.com/v1beta/openai/chat/completions"),
        ("https://a.com/deep/chat/completions", "https://a.com/deep/chat/completions"),
        ("https://a.com/v1/responses", "https://a.com/v1/chat/completions"),
        ("https://a.com/openai/deployments/d?api-version=1", "https://a.com/openai/deployments/d/chat/completions?api-version=1"),
    ],
)  # fmt: skip
def test_address_from_base(base: str, address: str) -> None:
    assert chat.url(base) == endpoint(base, "chat/completions") == address


def test_addresses_and_keys_of_the_other_apis() -> None:
    assert anthropic.url("https://api.anthropic.com") == "https://api.anthropic.com/v1/messages"
    assert anthropic.url("https://api.deepseek.com/anthropic") == "https://api.deepseek.com/anthropic/v1/messages"
    assert responses.url("https://api.openai.com/v1") == "https://api.openai.com/v1/responses"
    assert anthropic.headers("sk-ant-1")["x-api-key"] == "sk-ant-1"
    assert anthropic.headers(" other\n")["Authorization"] == "Bearer other"
    assert chat.headers("") == {} and responses.headers("k") == {"Authorization": "Bearer k"}


def test_history_cases_all_pass(testdata: Path) -> None:
    command = [sys.executable, testdata / "wire" / "history_cases.py", ROOT / "tests" / "wire_adapter.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    passed, _, total = done.stdout.strip().splitlines()[-1].partition("/")
    assert passed == total and int(total) >= 26, done.stdout + done.stderr
