"""Keeping the conversation inside the window: one deep cut at a clean boundary."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from genericagent.llm.blocks import Message
from genericagent.llm.history import compress_history_tags, cut, shorten
from genericagent.llm.usage import estimate, estimate_message


def user(*content: Any, request: bool = False) -> Message:
    message: Message = {"role": "user", "content": list(content)}
    if request:
        message["request"] = True
    return message


def assistant(*content: Any) -> Message:
    return {"role": "assistant", "content": list(content)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def turn(n: int, size: int = 6000) -> list[Message]:
    use = {"type": "tool_use", "id": f"t{n}", "name": "code_run", "input": {"script": f"echo {n}"}}
    result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"<{n}>" + "r" * size + f"</{n}>"}
    return [assistant(text(f"<summary>turn {n}</summary>"), use), user(result)]


def conversation(turns: int, size: int = 6000) -> list[Message]:
    out = [user(text("the request"), request=True)]
    for n in range(turns):
        out += turn(n, size)
    return out


def total(messages: list[Message]) -> int:
    return sum(map(estimate_message, messages))


def assert_paired(messages: list[Message]) -> None:
    known: set[str] = set()
    for m in messages:
        for b in m["content"]:
            if b["type"] == "tool_use":
                known.add(b["id"])
            if b["type"] == "tool_result":
                assert b["tool_use_id"] in known, "a result without its call"


def test_nothing_is_touched_while_it_fits() -> None:
    assert cut(conversation(5), 30_000) is None


def test_a_cut_is_deep_and_leaves_the_request_and_the_newest_results() -> None:
    messages = conversation(14)
    before = copy.deepcopy(messages)
    out = cut(messages, 28_000, fixed=2000)
    assert out is not None and total(out) + 2000 <= 14_500
    assert messages == before, "the caller's list is not changed"
    assert out[0]["content"] == [text("the request")]
    assert out[-1] == messages[-1] and out[-3] == messages[-3]
    assert_paired(out)


def test_trimming_never_separates_a_result_from_its_call() -> None:  # C035
    for budget in range(1500, 20_000, 700):
        out = cut(conversation(12, 3000), budget, fixed=800)
        if out is not None:
            assert_paired(out)
            assert out[0]["role"] == "user"


def test_one_result_of_three_windows_is_shortened_instead_of_ending_the_session() -> None:  # C034
    messages = [user(text("go"), request=True), *turn(1, 300_000)]
    out = cut(messages, 30_000, fixed=2000)
    assert out is not None and total(out) < 30_000
    content = out[-1]["content"][0]["content"]
    assert content.startswith("<1>") and content.endswith("</1>") and "characters left out" in content
    assert estimate(content) > 8_000, "the newest keeps up to a third of the budget"


def test_signed_thinking_is_kept_or_dropped_whole() -> None:
    thinking = {"type": "thinking", "thinking": "z" * 5000, "signature": "S"}
    messages = conversation(10)
    messages[3]["content"].insert(0, thinking)
    messages[-2]["content"].insert(0, thinking)
    out = cut(messages, 15_000) or []
    kept = [b for m in out for b in m["content"] if b["type"] == "thinking"]
    assert kept and all(b == thinking for b in kept)


def test_prefix_messages_are_kept() -> None:
    messages = [user(text("rules")), assistant(text("understood")), *conversation(14)]
    out = cut(messages, 20_000, keep_prefix=2) or []
    assert out[:2] == messages[:2]


def test_what_lies_before_the_checkpoint_goes_first() -> None:
    messages = conversation(14, 3000)
    out = cut(messages, 14_000, checkpoint=21) or []
    assert not any("turn 5<" in b.get("text", "") for m in out for b in m["content"])
    assert any("turn 10<" in b.get("text", "") for m in out for b in m["content"])


def test_old_tags_are_shortened_to_their_ends_and_old_memory_dropped() -> None:
    long = "<tool_result>" + "a" * 500 + "b" * 5000 + "c" * 500 + "</tool_result>"
    messages = [user(text(f"hi <working_memory>notes</working_memory>{long}")), *conversation(6)]
    out = compress_history_tags(messages)
    short = out[0]["content"][0]["text"]
    assert "working_memory" not in short and len(short) < 1000
    assert short.startswith("hi <tool_result>aaa") and short.endswith("ccc</tool_result>")


def test_a_shortened_piece_counts_what_is_gone() -> None:
    assert shorten("x" * 2000).count("x") == 800 and "1200 characters left out" in shorten("x" * 2000)
    assert shorten("short") == "short"


def test_estimate_counts_cjk_one_by_one() -> None:
    assert estimate("abcabc") == 3 and estimate("你好") == 3


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9000), min_size=1, max_size=25),
    st.integers(1200, 30_000),
    st.integers(0, 900),
    st.integers(0, 4),
)
def test_any_conversation_fits_after_the_cut_and_stays_paired(
    results: list[int], budget: int, fixed: int, prefix: int
) -> None:
    messages = [user(text("the request"), request=True)]
    for n, size in enumerate(results):
        messages += turn(n, size)
    out = cut(messages, budget, fixed=fixed, keep_prefix=prefix)
    if out is None:
        assert total(messages) + fixed <= budget or budget < 3000
        return
    assert_paired(out)
    assert any(m.get("request") for m in out)
    assert cut(out, budget, fixed=fixed, keep_prefix=prefix) is None or total(out) < total(messages)


def results(messages: list[Message]) -> list[str]:
    return [b["content"] for m in messages for b in m["content"] if b["type"] == "tool_result"]


def test_what_is_shortened_is_saved_and_its_file_named() -> None:
    saved: dict[str, str] = {}

    def save(value: str) -> str:
        saved[f"/kept/{len(saved)}"] = value
        return f"/kept/{len(saved) - 1}"

    messages = conversation(20)
    assert cut(messages, 200_000, save=save) is None or saved
    saved.clear()
    out = cut(messages, 30_000, save=save)
    assert out is not None
    shortened = [r for r in results(out) if "left out" in r]
    assert len(shortened) == 4 == len(saved)
    for result, path in zip(shortened, saved, strict=True):
        assert f"all of it is in {path}" in result and len(result) >= 800
        assert saved[path] in results(messages)


def test_a_result_that_names_its_file_is_not_saved_again() -> None:
    told = "head\n… 50000 characters left out, all of it is in /out/1.txt …\n" + "t" * 5000
    assert "all of it is in /out/1.txt" in shorten(told, 20, lambda text: "/never")


def test_nothing_is_saved_while_nothing_is_cut() -> None:
    def save(value: str) -> str:
        raise AssertionError("saved without a cut")

    assert cut(conversation(5), 30_000, save=save) is None


@given(st.lists(st.integers(10, 40_000), min_size=9, max_size=20))
def test_the_newest_results_are_whole_while_they_fit(sizes: list[int]) -> None:
    messages = [user(text("the request"), request=True)]
    for n, size in enumerate(sizes):
        messages += turn(n, size)
    out = cut(messages, 30_000, fixed=1500)
    if out is None:
        return
    before, after = results(messages), results(out)
    four = sum(estimate(r) for r in before[-4:])
    if four < 20_000:
        assert after[-4:] == before[-4:]
    if estimate(before[-1]) < 9_000:
        assert after[-1] == before[-1], "the newest is whole up to a third of the budget"
    assert all(len(a) >= min(800, len(b)) for a, b in zip(after[-8:], before[-8:], strict=True))
    assert total(out) + 1500 <= 30_000
