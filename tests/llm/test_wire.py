"""Answers of every dialect, small ones written here and the recorded ones of $GA_TESTDATA, and errors of every shape."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genericagent.errors import LLMError
from genericagent.llm import anthropic, chat, responses
from genericagent.llm.blocks import Answer, Block, Usage
from genericagent.llm.decode import Body, decode_body, parse_arguments
from genericagent.llm.faults import RETRYABLE, http_error, in_band
from genericagent.llm.sse import Reader

ROOT = Path(__file__).resolve().parent.parent.parent


def decoded(wire: ModuleType, body: dict[str, Any]) -> Answer:
    return decode_body(wire, [json.dumps(body).encode()])


def stream(*events: Any) -> bytes:
    """Events as bytes; objects become JSON and, if they have a type, get it as their event's name."""
    out = ""
    for event in events:
        name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
        out += f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n"
    return out.encode()


def decode(wire: ModuleType, *events: Any) -> Answer:
    return decode_body(wire, [stream(*events)])


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def part(index: Any = 0, call_id: Any = None, name: Any = None, args: Any = None, **more: Any) -> dict[str, Any]:
    return chunk(
        {"tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": args}, **more}]}
    )


STOP, CALLS = chunk({}, "stop"), chunk({}, "tool_calls")


def calls_of(answer: Answer) -> list[tuple[str, Any]]:
    found = [b for b in answer.blocks if b["type"] == "tool_use"]
    ids = [b["id"] for b in found]
    assert all(ids) and len(set(ids)) == len(ids), ids
    return [(b["name"], b["input"]) for b in found]


def start(content: Block, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": content}


def delta(kind: str, field: str, words: str, index: Any = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, field: words}}


def message(**usage: int) -> dict[str, Any]:
    return {"type": "message_start", "message": {"model": "claude-x", "content": [], "usage": usage}}


def stopped(reason: str = "end_turn", **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


END = {"type": "message_stop"}


def completed(*output: Any, **more: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "output": output, **more}}


# deltas, and when they come


def test_pieces_are_joined_per_read_and_thinking_is_kept_apart() -> None:
    decoder = chat.Decoder()
    events = Reader().feed(
        stream(chunk({"reasoning": "a"}), chunk({"reasoning": "b"}), chunk({"content": "c"}), chunk({"content": "d"}))
    )
    assert decoder.feed(events) == [("thinking", "ab"), ("text", "cd")]
    assert decoder.feed(Reader().feed(stream(chunk({"content": "e"})))) == [("text", "e")]


def test_surrogate_pair_in_two_deltas_is_shown_as_one_character() -> None:
    body = stream(
        r'{"choices":[{"delta":{"content":"a\ud83d"}}]}', r'{"choices":[{"delta":{"content":"\ude00b"}}]}', STOP
    )
    decoder, reader, shown = chat.Decoder(), Reader(), ""
    for at in range(0, len(body), 7):
        shown += "".join(words for _, words in decoder.feed(reader.feed(body[at : at + 7])))
    assert shown == "a\U0001f600b" == decoder.finish().blocks[0]["text"]


def test_anything_behind_the_end_is_ignored() -> None:
    answer = decode(
        anthropic, message(), start({"type": "text", "text": "x"}), stopped(), END, "[DONE]", "{", message()
    )
    assert (answer.outcome, answer.blocks) == ("ok", [{"type": "text", "text": "x"}])


# how an answer ends


@pytest.mark.parametrize(
    ("wire", "events"),
    [
        (chat, [chunk({"content": "half"})]),
        (anthropic, [message(), start({"type": "text", "text": "half"}), {"type": "content_block_stop", "index": 0}]),
        (responses, [{"type": "response.output_text.delta", "output_index": 0, "delta": "half"}]),
    ],
)
def test_early_end_is_truncated_and_not_an_output_limit(wire: ModuleType, events: list[Any]) -> None:
    answer = decode(wire, *events)
    assert (answer.outcome, answer.stop_reason) == ("truncated", None)
    assert answer.error is not None and answer.error.retryable
    assert [b["text"] for b in answer.blocks] == ["half"]


def test_cut_inside_the_last_event_is_truncated() -> None:
    body = stream(chunk({"content": "half"}), STOP)
    assert decode_body(chat, [body[:-10]]).outcome == "truncated"
    assert decode_body(chat, [body[:-2]]).outcome == "ok"  # only the blank line is missing


@pytest.mark.parametrize(
    "broken", ['{"choices":[{"delta":{"content":"lo', '{"a":1}{"b":2}', '{"choices":[{"delta":7}]}']
)
def test_an_unreadable_event_makes_the_answer_broken_not_shorter(broken: str) -> None:
    answer = decode(chat, chunk({"content": "a"}), broken, chunk({"content": "b"}), STOP, "[DONE]")
    assert answer.outcome == "error" and answer.error is not None and answer.error.retryable


def test_heartbeats_that_are_no_objects_are_ignored() -> None:
    answer = decode(chat, "null", '""', "1", "[]", "ping", chunk({"content": "x"}), STOP)
    assert (answer.outcome, answer.stop_reason) == ("ok", "end_turn")


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("content_filter", "refusal"),
        ("odd", "odd"),
    ],
)
def test_stop_reason_is_kept_raw_and_canonical(raw: str, canonical: str) -> None:
    answer = decode(chat, chunk({"content": "x"}, raw))
    assert (answer.outcome, answer.stop_reason, answer.raw_stop_reason) == ("ok", canonical, raw)


def test_provider_that_gave_up_is_a_transient_error() -> None:
    for reason in ("insufficient_system_resource", "error"):
        answer = decode(chat, chunk({"content": "par"}, reason))
        assert answer.outcome == "error" and answer.error is not None and answer.error.retryable


def test_finish_reason_is_optional_before_done() -> None:
    assert decode(chat, chunk({"content": "x"}), "[DONE]").stop_reason == "end_turn"
    assert decode(chat, part(0, "a", "f", "{}"), STOP).stop_reason == "tool_use"


def test_refusal_is_an_outcome_of_its_own_with_its_text() -> None:
    answers = [
        decode(chat, chunk({"refusal": "I can"}), chunk({"refusal": "not"}), STOP),
        decoded(chat, {"choices": [{"message": {"content": None, "refusal": "I cannot"}, "finish_reason": "stop"}]}),
        decode(responses, {"type": "response.refusal.delta", "output_index": 0, "delta": "I can"},
               {"type": "response.refusal.done", "output_index": 0, "refusal": "I cannot"}, completed()),
    ]  # fmt: skip
    for answer in answers:
        assert (answer.stop_reason, answer.blocks) == ("refusal", [{"type": "refusal", "text": "I cannot"}])


# bodies that are no stream


def test_json_where_a_stream_was_asked_for_and_the_reverse() -> None:
    whole = json.dumps({"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}).encode()
    for body in (whole, b"\xef\xbb\xbf\n " + whole, stream(chunk({"content": "hi"}), STOP)):
        for answer in (decode_body(chat, [body[:3], body[3:]]), decode_body(chat, [body])):
            assert (answer.outcome, answer.blocks) == ("ok", [{"type": "text", "text": "hi"}])
    shown = Body(chat.Decoder())
    assert shown.feed(whole) + shown.close() == [("text", "hi")]


@pytest.mark.parametrize("wire", [anthropic, chat, responses])
@pytest.mark.parametrize(
    "body",
    [b"", b" \n", b"<html><title>Login</title></html>", b"upstream gone", b"{}", b"[]", b'{"object":"list","data":[]}',
     b'{"error":{"message":"no"}}', b'{"error":"no"}', b'[{"error":{"message":"no"}}]', b'{"type":"error","message":"no"}',
     b'{"detail":"no"}', b'{"code":"x","message":"no"}', b'{"base_resp":{"status_code":1004,"status_msg":"no"}}'],
)  # fmt: skip
def test_status_200_without_an_answer_is_an_error(wire: ModuleType, body: bytes) -> None:
    answer = decode_body(wire, [body])
    assert answer.outcome == "error" and answer.error is not None and not answer.blocks
    assert "\n" not in answer.error.message and "<" not in answer.error.message
    if b"no" in body:
        assert answer.error.message == "no"


def test_json_that_was_cut_is_truncated() -> None:
    assert decode_body(chat, [b'{"choices":[{"message":{"content":"ha']).outcome == "truncated"


def test_response_that_was_only_queued_is_not_whole() -> None:
    answer = decoded(responses, {"object": "response", "status": "queued", "output": []})
    assert (answer.outcome, answer.raw_stop_reason) == ("truncated", "queued")


# errors inside an answer  C001


@pytest.mark.parametrize(
    ("wire", "event", "retryable"),
    [
        (anthropic, {"type": "error", "error": {"type": "overloaded_error", "message": "why"}}, True),
        (anthropic, {"type": "error", "error": {"type": "invalid_request_error", "message": "why"}}, False),
        (chat, {"error": {"message": "why", "code": 503}}, True),
        (chat, {"error": {"message": "why", "code": 400}}, False),
        (chat, {"error": "why"}, True),
        (chat, {"choices": [{"delta": {"content": ""}, "error": {"message": "why", "code": 502}}]}, True),
        (chat, {"object": "error", "message": "why", "type": "BadRequestError", "code": 400}, False),
        (chat, {"error": {"message": "why", "type": "insufficient_quota"}}, False),
        (responses, {"type": "error", "code": "server_error", "message": "why"}, True),
        (responses, {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "why"}}}, True),
        (responses, {"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "why"}}}, False),
    ],
)  # fmt: skip
def test_error_in_a_stream_keeps_its_message_and_is_no_text(wire: ModuleType, event: Any, retryable: bool) -> None:
    answer = decode(wire, event, "[DONE]")
    assert (answer.outcome, answer.stop_reason, answer.blocks) == ("error", "error", [])
    assert answer.error is not None and (answer.error.message, answer.error.retryable) == ("why", retryable)


def test_error_event_of_plain_words() -> None:
    answer = decode_body(chat, [b"event: error\ndata: engine died\n\n"])
    assert answer.error is not None and answer.error.message == "engine died"


def test_error_after_text_keeps_the_text_apart() -> None:
    answer = decode(chat, chunk({"content": "partial"}, "stop"), {"error": {"message": "idle timeout", "code": 504}})
    assert answer.outcome == "error" and answer.blocks == [{"type": "text", "text": "partial"}]


# tool calls


WHOLE = [("find", {"q": "Emma"}), ("find", {"q": "Bull"})]
ONE, TWO = '{"q":"Emma"}', '{"q":"Bull"}'


@pytest.mark.parametrize(
    "events",
    [
        [part(0, "a", "find", ONE), part(1, "b", "find", TWO)],
        [part(0, "a", "find", ONE), part(0, "b", "find", TWO)],
        [part(0, "a", "find", ""), part(0, None, None, ONE[:4]), part(0, None, None, ONE[4:]),
         part(0, "b", "find", ""), part(0, None, None, TWO[:4]), part(0, None, None, TWO[4:])],
        [part(0, "a", "find"), part(1, "b", "find"), part(0, None, None, ONE[:4]), part(1, None, None, TWO[:4]),
         part(0, None, None, ONE[4:]), part(1, None, None, TWO[4:])],
        [part(0, "a", "find", ONE[:4]), part(0, "b", "find", TWO[:4]), part(0, "b", None, TWO[4:]), part(0, "a", None, ONE[4:])][:1]
        + [part(0, None, None, ONE[4:]), part(0, "b", "find", TWO[:4]), part(0, "b", None, TWO[4:])],
        [part(None, "a", "find", ONE), part(None, "b", "find", TWO)],
        [part(None, "", "find", ONE), part(None, "", "find", TWO)],
        [part(0, None, "find", ONE), part(0, None, "find", TWO)],
        [part(0, "same", "find", ONE), part(1, "same", "find", TWO)],
        [part(0, "a", "find", ONE[:4]), part(0, "x", None, ONE[4:]), part(1, "b", "find", TWO[:4]), part(1, "y", None, TWO[4:])],
        [part(0, "a", "find", ONE[:4]), part(0, "a", "find", ONE[4:]), part(1, "b", "find", TWO[:4]), part(1, "b", "find", TWO[4:])],
        [part(0, None, "find", ONE[:4]), part(0, None, "find", ONE[4:]), part(1, None, "find", TWO)],
        [part(0, None, "find", ONE), part(0, "late", None, ""), part(0, None, "find", TWO), part(0, "later")],
        [part(0, "a", None, ""), part(0, None, None, ONE[:4]), part(0, None, "find"), part(0, None, None, ONE[4:]), part(1, "b", "find", TWO)],
        [part(0, "a", "find", {"q": "Emma"}), part(1, "b", "find", {"q": "Bull"})],
        [part(0, "a", "find", ONE + TWO)],
        [part(0, "a", "find", "{}"), part(0, None, None, ONE), part(1, "b", "find", TWO), part(1, None, None, TWO)],
        [part(0, "a", "find", json.dumps(ONE)), part(1, "b", "find", TWO)],
        [chunk({"tool_calls": [{"id": "a", "function": {"name": "find", "arguments": ONE}}, {"id": "b", "function": {"name": "find", "arguments": TWO}}]})],
    ],
)  # fmt: skip
def test_two_calls_in_every_dialect(events: list[Any]) -> None:  # C025
    answer = decode(chat, *events, CALLS, "[DONE]")
    assert (answer.outcome, answer.stop_reason, calls_of(answer)) == ("ok", "tool_use", WHOLE)


@pytest.mark.parametrize("args", ["", "null", None, "{}", " ", {}])
def test_call_without_arguments(args: Any) -> None:
    assert calls_of(decode(chat, part(0, "a", "now", args), CALLS)) == [("now", {})]
    whole = {"tool_calls": [{"id": "", "function": {"name": "now", "arguments": args}}] * 2}
    assert calls_of(decoded(chat, {"choices": [{"message": whole}]})) == [("now", {})] * 2


@pytest.mark.parametrize(
    "args", ['{"path": "a.txt", ', '{"a": 1,}', "[1]", "7", '"x"', '{"a":1}{"b":', "{" * 5000, "{'a': 1}"]
)
def test_cut_or_invalid_arguments_never_become_an_empty_object(args: str) -> None:  # C020 C022
    assert parse_arguments(args) is None
    broken = {"input": None, "incomplete": True, "input_raw": args}
    item = {"type": "function_call", "call_id": "a", "name": "w", "arguments": args}
    use = start({"type": "tool_use", "id": "a", "name": "w", "input": {}})
    for answer in (
        decode(chat, part(0, "a", "w", args), CALLS, "[DONE]"),
        decode(anthropic, message(), use, delta("input_json_delta", "partial_json", args), stopped("tool_use")),
        decoded(responses, {"status": "completed", "output": [item]}),
    ):
        assert answer.blocks == [{"type": "tool_use", "id": "a", "name": "w", **broken}]


def test_call_that_the_output_limit_cut_before_its_first_argument_must_not_run() -> None:
    limit = chunk({}, "length")
    finished, cut = decode(chat, part(0, "a", "now"), part(1, "b", "write"), limit).blocks
    assert finished["input"] == {} and cut["input"] is None and cut["incomplete"]
    use = start({"type": "tool_use", "id": "a", "name": "write", "input": {}})
    assert decode(anthropic, message(), use, stopped("max_tokens")).blocks[0]["incomplete"]
    assert decode(anthropic, message(), use).blocks[0]["incomplete"]
    whole = {"tool_calls": [{"id": "a", "function": {"name": "write", "arguments": ""}}]}
    assert decoded(chat, {"choices": [{"message": whole, "finish_reason": "length"}]}).blocks[0]["unsure"]


def test_legacy_function_call() -> None:
    answer = decode(
        chat,
        chunk({"function_call": {"name": "find", "arguments": ""}}),
        chunk({"function_call": {"arguments": ONE}}),
        chunk({}, "function_call"),
    )
    assert calls_of(answer) == WHOLE[:1] and answer.stop_reason == "tool_use"
    empty = {"content": "4", "function_call": {"name": "", "arguments": ""}, "tool_calls": None}
    assert calls_of(decoded(chat, {"choices": [{"message": empty}]})) == []


def test_ids_are_minted_by_the_given_factory() -> None:
    ids = map("id{}".format, itertools.count())
    decoder = chat.Decoder(new_id=lambda: next(ids))
    decoder.feed(
        Reader().feed(stream(part(0, None, "f", "{}"), part(1, "x", "f", "{}"), part(2, "x", "f", "{}"), CALLS))
    )
    assert [b["id"] for b in decoder.finish().blocks] == ["id0", "x", "id1"]


# chat: reasoning, opaque things, repetition, usage


@pytest.mark.parametrize("key", chat.REASONING_KEYS)
def test_reasoning_is_taken_once_whatever_its_name(key: str) -> None:
    both = {key: "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]}
    answer = decode(chat, chunk({"reasoning_content": "hm", **both}), chunk({"content": "x"}), STOP)
    assert [b["thinking"] for b in answer.blocks if b["type"] == "thinking"] == ["hm"]


def test_content_list_of_mistral() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    answer = decode(chat, chunk({"content": [thought]}), chunk({"content": [{"type": "text", "text": "c"}]}), STOP)
    assert [(b.get("thinking"), b.get("text")) for b in answer.blocks] == [("ab", None), (None, "c")]


def test_reasoning_details_are_put_together_and_kept() -> None:
    def piece(**more: Any) -> dict[str, Any]:
        return chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, **more}]})

    secret = {"type": "reasoning.encrypted", "data": "E", "index": 1}
    answer = decode(
        chat,
        piece(text="a"),
        piece(text="b"),
        piece(signature="S"),
        chunk({"reasoning_details": [secret, secret]}),
        STOP,
    )
    whole = {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "S"}
    assert answer.blocks[0]["extra"]["reasoning_details"] == [whole, secret, secret]


def test_thought_signature_of_gemini_stays_with_its_call_and_message() -> None:
    extra = {"google": {"thought_signature": "SIG"}}
    answer = decode(chat, part(0, "a", "f", "{}", extra_content=extra), chunk({"extra_content": extra}), CALLS)
    assert answer.blocks[-1]["extra_content"] == extra and answer.blocks[0]["extra"]["extra_content"] == extra


def test_last_chunk_that_repeats_the_whole_message_doubles_nothing() -> None:
    calls = [{"id": "a", "function": {"name": "find", "arguments": ONE}}]
    whole = {"content": "Hi there", "tool_calls": calls, "reasoning_content": "hm"}
    streamed = [
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "Hi "}),
        chunk({"content": "there"}),
        part(0, "a", "find", ONE),
    ]
    last = {"choices": [{"index": 0, "message": whole, "finish_reason": "tool_calls"}]}
    repeated, alone = decode(chat, *streamed, last), decode(chat, last)
    assert repeated.blocks == alone.blocks and calls_of(alone) == WHOLE[:1]


def test_only_the_first_choice_counts() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assert decode(chat, chunk({"content": "yes"}), other, STOP).blocks == [{"type": "text", "text": "yes"}]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}, Usage(9, 2, 4, 3)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 5}, Usage(9, 2, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4, "prompt_tokens_details": None}, Usage(9, 2, 4)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}, Usage(9, 2, 4, 3)),
        ({"total_tokens": 0}, None),
    ],
)  # fmt: skip
def test_usage_under_every_name_and_in_every_place(usage: Any, expected: Usage | None) -> None:
    places = [
        {**STOP, "usage": usage},
        {"choices": [], "usage": usage},
        {"choices": [], "x_groq": {"usage": usage}},
        {"choices": [{"index": 0, "delta": {}, "usage": usage}]},
    ]
    for place in places:
        assert decode(chat, chunk({"content": "x"}), STOP, place, "[DONE]").usage == expected


def test_running_usage_is_not_added_up_and_zeros_take_nothing_back() -> None:
    reports = [{"prompt_tokens": 9, "completion_tokens": n} for n in (1, 2, 0)]
    assert decode(chat, *({**chunk({"content": "x"}), "usage": u} for u in reports), STOP).usage == Usage(9, 2)


# anthropic


def test_blocks_are_keyed_by_their_index() -> None:
    answer = decode(
        anthropic,
        message(),
        start({"type": "text", "text": "a"}),
        start({"type": "tool_use", "id": "t", "name": "find", "input": {}}, 1),
        delta("text_delta", "text", "b"),
        delta("input_json_delta", "partial_json", ONE[:4], 1),
        delta("text_delta", "text", "c"),
        delta("input_json_delta", "partial_json", ONE[4:], 1),
        delta("text_delta", "text", "no start", 2),
        stopped("tool_use"),
    )
    assert [b.get("text") for b in answer.blocks] == ["abc", None, "no start"] and calls_of(answer) == WHOLE[:1]


def test_input_that_is_already_in_the_block_start() -> None:
    use = start({"type": "tool_use", "id": "t", "name": "find", "input": {"q": "Emma"}})
    assert (
        calls_of(decode(anthropic, use, delta("input_json_delta", "partial_json", ""), stopped("tool_use")))
        == WHOLE[:1]
    )


def test_opaque_blocks_come_back_as_they_were() -> None:
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "E"}]}
    thought = {"type": "thinking", "thinking": "let me see", "signature": "SIGNED"}
    answer = decode(
        anthropic,
        message(),
        start({"type": "thinking", "thinking": "", "signature": ""}),
        delta("thinking_delta", "thinking", "let me "),
        delta("thinking_delta", "thinking", "see"),
        delta("signature_delta", "signature", "SIG"),
        delta("signature_delta", "signature", "NED"),
        start({"type": "redacted_thinking", "data": "R"}, 1),
        start({**server, "input": {}}, 2),
        delta("input_json_delta", "partial_json", '{"query":"x"}', 2),
        start(found, 3),
        start({"type": "compaction", "content": None}, 4),
        delta("compaction_delta", "content", "all so far", 4),
        stopped("pause_turn"),
        END,
    )
    own = [{k: v for k, v in b.items() if k != "origin"} for b in answer.blocks]
    whole = [
        thought,
        {"type": "redacted_thinking", "data": "R"},
        server,
        found,
        {"type": "compaction", "content": "all so far"},
    ]
    assert (answer.stop_reason, own) == ("pause_turn", whole)
    assert {b["origin"] for b in answer.blocks} == {"anthropic:claude"}


def test_second_message_start_starts_the_message_again() -> None:
    answer = decode(
        anthropic,
        message(),
        start({"type": "text", "text": "x"}),
        message(),
        start({"type": "text", "text": "y"}),
        stopped(),
    )
    assert answer.blocks == [{"type": "text", "text": "y"}]


def test_usage_is_merged_from_both_events_and_counts_all_input() -> None:
    first = message(input_tokens=100, output_tokens=1, cache_read_input_tokens=900, cache_creation_input_tokens=50)
    assert decode(anthropic, first, stopped(output_tokens=33), END).usage == Usage(1050, 33, 900, 50)
    assert decode(
        anthropic, first, stopped(input_tokens=181, cache_read_input_tokens=0, output_tokens=8)
    ).usage == Usage(181, 8)
    assert decode(anthropic, message(), stopped(), END).usage is None


# responses


MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "sum"}],
    "encrypted_content": "ENC",
}
CALL = {"type": "function_call", "id": "fc", "call_id": "a", "name": "find", "arguments": ONE}


def added(item: Any, index: int) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Any, index: int) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def text(words: str, index: int, step: str = "delta", **more: Any) -> dict[str, Any]:
    return {
        "type": f"response.output_text.{step}",
        "output_index": index,
        "delta" if step == "delta" else "text": words,
        **more,
    }


@pytest.mark.parametrize(
    "events",
    [
        [completed(REASONING, MESSAGE, CALL)],
        [done(REASONING, 0), done(MESSAGE, 1), done(CALL, 2), completed()],
        [done(CALL, 2), done(MESSAGE, 1), done(REASONING, 0), completed()],
        [added({"type": "reasoning"}, 0), done(REASONING, 0), text("H", 1), text("i", 1), done(CALL, 2), completed(MESSAGE)],
        [done(REASONING, 0), text("H", 1, content_index=1), text("Hi", 1, "done", content_index=1), done(MESSAGE, 1),
         added({**CALL, "arguments": ""}, 2),
         {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ONE}, completed()],
        [{"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "s"},
         done(REASONING, 0), text("Hi", 1, "done"), done({**CALL, "id": "other"}, 2), completed(REASONING, MESSAGE, CALL)],
    ],
)  # fmt: skip
def test_items_are_merged_from_whatever_events_a_server_sends(events: list[Any]) -> None:
    decoder = responses.Decoder("gpt-5")
    shown = decoder.feed(Reader().feed(stream(*events)))
    answer = decoder.finish()
    thinking, words, use = answer.blocks
    assert (thinking["thinking"], thinking["signature"], thinking["id"]) == ("sum", "ENC", "rs_1")
    assert words == {"type": "text", "text": "Hi"} and (use["id"], *calls_of(answer)) == ("a", WHOLE[0])
    assert "".join(w for kind, w in shown if kind == "text") == "Hi"
    assert "".join(w for kind, w in shown if kind == "thinking") == "sum"


def test_incomplete_response_tells_why() -> None:
    cut = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [{**CALL, "arguments": '{"q"'}],
    }
    answer = decode(responses, {"type": "response.incomplete", "response": cut})
    assert (answer.outcome, answer.stop_reason, answer.blocks[0]["incomplete"]) == ("ok", "max_tokens", True)


def test_servers_own_items_are_kept() -> None:
    item = {"type": "web_search_call", "id": "ws", "action": {"query": "x"}}
    assert decode(responses, done(item, 0), completed(item, MESSAGE)).blocks[0] == {**item, "origin": "responses:"}


def test_usage_of_responses() -> None:
    usage = {"input_tokens": 20, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}
    assert decode(responses, completed(MESSAGE, usage=usage)).usage == Usage(20, 9, 4)


# robustness


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "x", "text", "tool_use", "\ud83d", "{"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["type", "index", "delta", "content", "choices", "message", "id", "function", "arguments", "error", "item", "output"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
KINDS = st.sampled_from(["content_block_start", "content_block_delta", "message_start", "message_delta", "response.completed",
                         "response.output_item.done", "response.output_text.delta", "response.output_text.done", "error", None])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("wire", [anthropic, chat, responses])
@settings(max_examples=150, deadline=None)
@given(events=st.lists(st.tuples(KINDS, JSON), max_size=5), shape=st.sampled_from(["any", "choices"]))
def test_no_object_whatever_its_shape_raises(wire: ModuleType, events: list[Any], shape: str) -> None:
    objects = [
        {"type": k, "delta": v, "item": v, "content_block": v, "response": v, "message": v, "index": 0}
        for k, v in events
    ]
    if shape == "choices":
        objects = [{"choices": [{"delta": v, "message": v}]} for _, v in events]
    answer = decode(wire, *objects)
    assert (answer.outcome == "ok") == (answer.error is None)
    json.dumps(answer.blocks, ensure_ascii=False).encode()


# HTTP errors


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"why"}}', "why"),
        (b'{"error":"why"}', "why"),
        (b'{"message":"why","object":"error"}', "why"),
        (b'{"detail":"why"}', "why"),
        (b'{"detail":[{"loc":["body","messages"],"msg":"field required"}]}', "body.messages: field required"),
        (b'{"errors":[{"message":"why"}]}', "why"),
        (b'[{"error":{"message":"why"}}]', "why"),
        (b'{"error":{"message":"Provider returned error","metadata":{"raw":"{\\"error\\":\\"why\\"}"}}}', "Provider returned error: why"),
        (b'{"error":{"message":null,"code":"x"}}', '{"error": {"message": null, "code": "x"}}'),
        (b"error code:\r\n 524", "error code: 524"),
        (b"<!DOCTYPE html><html><head><title>Just a\nmoment</title>" + b"x" * 9000, "a web page (Just a moment)"),
        (b"", "Internal Server Error"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)  # fmt: skip
def test_message_of_any_error_body_is_one_short_line(body: bytes, words: str) -> None:
    error = http_error(500, {}, body, 0)
    assert (error.message, error.status, error.retryable) == (f"HTTP 500: {words}", 500, True)


def test_long_messages_are_cut() -> None:
    assert len(http_error(400, {}, b"x" * 100_000, 0).message) < 500


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 60.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, None),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after_in_every_form(headers: dict[str, str], wait: float | None) -> None:  # C005
    assert http_error(429, headers, b"{}", 40.0).retry_after == wait


def test_retry_after_as_a_date_of_now() -> None:
    now = time.time()
    wait = http_error(503, {"retry-after": formatdate(now + 20, usegmt=True)}, b"", now).retry_after
    assert wait is not None and 18 <= wait <= 21


@pytest.mark.parametrize(("words", "wait"), [("Please try again in 1.898s.", 1.898), ("try again in 6m0s", 360.0), ("retry after 20 ms", 0.02),
                                             ("Please retry in 2 minutes", 120.0), ("try again later", None), ("try again in 5 tokens", None)])  # fmt: skip
def test_wait_that_only_the_message_tells(words: str, wait: float | None) -> None:
    assert in_band({"message": words}).retry_after == (None if wait is None else pytest.approx(wait))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 451, 501, 505])
def test_permanent_statuses_are_not_retried_unless_the_header_says_so(status: int) -> None:
    assert status not in RETRYABLE and not http_error(status, {}, b"{}", 0).retryable
    assert http_error(status, {"X-Should-Retry": "true"}, b"{}", 0).retryable
    assert not http_error(500, {"x-should-retry": "false"}, b"{}", 0).retryable


@pytest.mark.parametrize(
    "body",
    ['{"error":{"code":"insufficient_quota","message":"You exceeded your current quota, please check your plan and billing"}}',
     '{"error":{"code":"1113","message":"余额不足或无可用资源包,请充值。"}}',
     '{"error":{"message":"Insufficient Balance"}}', '{"code":"Arrearage","message":"Access denied"}',
     '{"error":{"type":"exceeded_current_quota_error","message":"suspended"}}',
     '{"error":{"message":"Your credit balance is too low to access the API"}}',
     '{"error":{"message":"This request requires more credits, or fewer max_tokens."}}'],
)  # fmt: skip
def test_quota_and_balance_errors_are_not_retried(body: str) -> None:
    assert not http_error(429, {}, body.encode(), 0).retryable
    assert not in_band(json.loads(body)).retryable


@pytest.mark.parametrize(
    "body",
    ['{"error":{"code":"rate_limit_exceeded","message":"Limit 10000. Try again in 6s. Visit https://platform.openai.com/account/billing"}}',
     '{"error":{"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota. Please retry in 36.7s."}}',
     '{"error":{"message":"Rate limit exceeded: free-models-per-min. Add 10 credits to unlock more"}}'],
)  # fmt: skip
def test_rate_limits_that_speak_of_money_are_retried(body: str) -> None:
    assert http_error(429, {}, body.encode(), 0).retryable


def test_redirect_tells_where_to() -> None:
    assert "https://b.com/v1" in http_error(301, {"Location": "https://b.com/v1"}, b"", 0).message


def test_errors_are_llm_errors() -> None:
    assert isinstance(in_band("x"), LLMError) and in_band({}).message


# the recorded answers


@pytest.mark.slow
def test_recorded_answers_all_decode(testdata: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    runner, adapter = testdata / "wire" / "run_corpus.py", ROOT / "tests" / "wire_adapter.py"
    run = subprocess.run(
        [sys.executable, runner, adapter, "--all", "--json", report], capture_output=True, text=True, timeout=300
    )
    found = json.loads(report.read_text())
    wrong = {name: faults for name, faults in found.pop("items").items() if faults}
    assert not wrong and not any(found.values()), f"{wrong}\n{found}\n{run.stdout}{run.stderr}"
    assert run.returncode == 0
