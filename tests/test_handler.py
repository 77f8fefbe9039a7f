"""The handler: its tools as the model calls them, and what it tells the model between turns."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_loop import LoopExit, StepOutcome, exhaust
from ga import GenericAgentHandler, consume_file
from genericagent import paths
from llmcore import Function, ToolCall


def reply(content: str = "", stop_reason: str | None = "end_turn") -> Any:
    return SimpleNamespace(content=content, stop_reason=stop_reason)


@pytest.fixture
def handler(tmp_path: Path) -> GenericAgentHandler:
    return GenericAgentHandler(parent=None, cwd=tmp_path)


def do(handler: GenericAgentHandler, name: str, said: str = "", /, **args: Any) -> StepOutcome:
    outcome: StepOutcome = exhaust(handler.dispatch(name, args, reply(said)))
    return outcome


def turn_end(handler: GenericAgentHandler, turn: int, content: str = "<summary>did it</summary>", **more: Any) -> str:
    calls = [ToolCall("t", Function("code_run", "{}"))]
    return handler.turn_end_callback(reply(content), calls, [], turn, more.get("prompt", "\n"), more.get("exit"))


# code_run


def test_a_script_runs_in_the_handlers_folder(handler: GenericAgentHandler, tmp_path: Path) -> None:
    data = do(handler, "code_run", type="python", script="import os; print(os.getcwd())").data
    assert data["status"] == "success" and data["stdout"].strip() == str(tmp_path)


def test_without_a_script_the_last_fenced_block_of_that_type_runs(handler: GenericAgentHandler) -> None:
    content = "```python\nprint('first')\n```\ntext\n```bash\necho second\n```\n```text\nnot code\n```"
    assert do(handler, "code_run", content, type="bash").data["stdout"] == "second\n"
    assert do(handler, "code_run", content, type="python").data["stdout"] == "first\n"
    assert do(handler, "code_run", "no block", type="bash").data["status"] == "error"


@pytest.mark.parametrize(
    "script",
    ["__import__('os').system('touch canary')", "handler.do_code_run({}, None)", "handler.stop.set()", "open('canary', 'w')",
     "[x for x in handler.__dict__]", "handler.enter_plan_mode(open('canary','w').name)", "handler.enter_plan_mode.__globals__",
     "(lambda: handler.enter_plan_mode('p'))()", "other.enter_plan_mode('p')"],
)  # fmt: skip
def test_inline_eval_takes_only_listed_calls_with_literals(handler: GenericAgentHandler, script: str) -> None:
    done, _ = handler._inline(script)
    assert done is False and "plan" not in handler.working and not handler.stop.is_set()


def test_inline_eval_of_a_literal_and_of_a_listed_method(handler: GenericAgentHandler) -> None:
    assert do(handler, "code_run", type="python", inline_eval=True, script="[1, {'a': 2}]").data["value"] == [
        1,
        {"a": 2},
    ]
    outcome = do(handler, "code_run", type="python", inline_eval=True, script="handler.enter_plan_mode('plan.md')")
    assert outcome.data["status"] == "success" and handler.max_turns >= 80


def test_children_do_not_see_keys_but_the_rest(handler: GenericAgentHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-1")
    monkeypatch.setenv("SOME_API_KEY", "secret-2")
    monkeypatch.setenv("HARMLESS", "yes")
    out = do(handler, "code_run", type="bash", script="env").data["stdout"]
    assert "secret" not in out and "HARMLESS=yes" in out


def test_output_limits_are_divided_by_the_number_of_calls(handler: GenericAgentHandler) -> None:
    args = {"type": "bash", "script": "seq 1 20000"}
    one = exhaust(handler.dispatch("code_run", dict(args), reply(), 0, 1)).data["stdout"]
    four = exhaust(handler.dispatch("code_run", dict(args), reply(), 0, 4)).data["stdout"]
    assert 9_000 < len(one) < 10_300 and 2_200 < len(four) < 2_800


# arguments


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [("file_read", {}, "path is missing"), ("file_read", {"path": 3}, "path must be text"),
     ("file_write", {"path": "a", "content": "x", "mode": "shred"}, "mode must be one of"),
     ("code_run", {"type": "bash", "script": "echo", "timeout": "long"}, "timeout must be"),
     ("file_patch", {"path": "a", "old_content": "x"}, "new_content is missing"), ("ask_user", {}, "question is missing")],
)  # fmt: skip
def test_wrong_arguments_are_told_and_nothing_runs(
    handler: GenericAgentHandler, tmp_path: Path, tool: str, args: dict[str, Any], said: str
) -> None:
    outcome = do(handler, tool, **args)
    assert outcome.data["status"] == "error" and said in outcome.data["msg"] and outcome.next_prompt
    assert list(tmp_path.iterdir()) == []


def test_numbers_and_flags_given_as_text_are_taken(handler: GenericAgentHandler, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc\n")
    assert "2|b" in do(handler, "file_read", path="f", start="2", count="1", show_linenos="true").data


# files


def test_files_changed_are_listed_once_in_order(handler: GenericAgentHandler, tmp_path: Path) -> None:
    do(handler, "file_write", path="b.txt", content="one\n")
    do(handler, "file_write", path="a.txt", content="x")
    do(handler, "file_patch", path="b.txt", old_content="one", new_content="two")
    do(handler, "file_patch", path="b.txt", old_content="not there", new_content="y")
    assert list(handler.files_changed) == [str(tmp_path / "b.txt"), str(tmp_path / "a.txt")]


def test_content_may_come_from_the_reply_and_is_never_guessed(
    handler: GenericAgentHandler, tmp_path: Path
) -> None:  # C029
    body = "# Title\n```python\nx = 1\n```\n</file_content> in the text\n```\n"
    do(handler, "file_write", f"Here:\n<file_content>\n{body}</file_content>", path="a.md")
    assert (tmp_path / "a.md").read_text() == body
    outcome = do(handler, "file_write", "<file_content>\nhalf of it", path="a.md")
    assert outcome.data["status"] == "error" and (tmp_path / "a.md").read_text() == body


def test_file_references_are_expanded(handler: GenericAgentHandler, tmp_path: Path) -> None:
    (tmp_path / "src.txt").write_text("1\n2\n3\n4\n")
    do(handler, "file_write", path="out.txt", content="a\n{{file:src.txt:2:3}}\nb\n")
    assert (tmp_path / "out.txt").read_text() == "a\n2\n3\nb\n"


def test_three_failed_patches_of_a_file_get_a_stronger_hint(
    handler: GenericAgentHandler, tmp_path: Path
) -> None:  # C073
    (tmp_path / "f").write_text("alpha\n")
    msgs = [do(handler, "file_patch", path="f", old_content=f"beta{i}", new_content="x").data["msg"] for i in range(3)]
    assert "file_read" not in msgs[1] and "file_read" in msgs[2] and "3" in msgs[2]
    do(handler, "file_patch", path="f", old_content="alpha", new_content="beta")
    assert "file_read" not in do(handler, "file_patch", path="f", old_content="zz", new_content="x").data["msg"]


def test_relative_paths_start_in_the_working_directory_and_home_is_expanded(
    handler: GenericAgentHandler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    do(handler, "file_write", path="~/x/y.txt", content="z")
    assert (tmp_path / "home" / "x" / "y.txt").read_text() == "z"


def test_a_picture_becomes_an_image_block(handler: GenericAgentHandler, tmp_path: Path) -> None:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    png = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0\0\0" * 2)) + chunk(b"IEND", b"")
    (tmp_path / "p.png").write_bytes(png)
    (block,) = do(handler, "file_read", path="p.png").data
    assert block["type"] == "image" and block["source"]["media_type"] == "image/png"
    (tmp_path / "z.zip").write_bytes(b"PK\x03\x04" + bytes(range(256)) * 400)
    assert do(handler, "file_read", path="z.zip").data == "[FILE] binary file: zip archive, 102404 bytes"  # C080


# the rest of the tools


def test_a_question_stops_with_the_interrupt_record(handler: GenericAgentHandler) -> None:
    outcome = do(handler, "ask_user", question="Which?", candidates=["a", "b"])
    assert outcome.should_exit and outcome.data == {
        "status": "INTERRUPT",
        "intent": "HUMAN_INTERVENTION",
        "data": {"question": "Which?", "candidates": ["a", "b"]},
    }


def test_the_notepad_is_shown_in_every_following_prompt(handler: GenericAgentHandler) -> None:
    outcome = do(handler, "update_working_checkpoint", key_info="port is 8080")
    assert "port is 8080" in str(outcome.next_prompt)
    assert "port is 8080" in turn_end(handler, 5)
    do(handler, "update_working_checkpoint", key_info="port is 9090")
    assert "8080" not in turn_end(handler, 6)


def test_long_term_update_hands_over_rules_and_memory(handler: GenericAgentHandler) -> None:
    from genericagent import memory

    memory.ensure_seeds()
    (paths.memory() / memory.L2).write_text("## [ENV]\ncoffee machine at 10.0.0.7\n")
    outcome = do(handler, "start_long_term_update")
    assert "10.0.0.7" in outcome.data and "No execution, no memory" in outcome.data
    assert str(paths.memory() / memory.L2) in str(outcome.next_prompt)


# no tool


def test_words_are_the_answer(handler: GenericAgentHandler) -> None:
    outcome = do(handler, "no_tool", "<summary>x</summary>All is well.")
    assert not outcome.next_prompt and "All is well." in outcome.data


@pytest.mark.parametrize(
    ("content", "stop"),
    [("", "end_turn"), ("<thinking>only thoughts</thinking>", "end_turn"), ("<summary>only this</summary>", "end_turn"),
     ("half an ans", "max_tokens")],
)  # fmt: skip
def test_the_third_empty_or_cut_reply_in_a_row_fails(
    handler: GenericAgentHandler, content: str, stop: str
) -> None:  # C007 C008 C010
    for _ in range(2):
        assert exhaust(handler.dispatch("no_tool", {}, reply(content, stop))).next_prompt
    with pytest.raises(LoopExit) as end:
        exhaust(handler.dispatch("no_tool", {}, reply(content, stop)))
    assert end.value.reason["result"] == "LLM_FAILED"


def test_the_counter_of_bad_replies_is_shared_and_reset_by_a_good_one(
    handler: GenericAgentHandler,
) -> None:  # C007 C008
    exhaust(handler.dispatch("no_tool", {}, reply("", "end_turn")))
    exhaust(handler.dispatch("no_tool", {}, reply("x", "max_tokens")))
    do(handler, "file_read", path="nothing")
    exhaust(handler.dispatch("no_tool", {}, reply("", "end_turn")))
    exhaust(handler.dispatch("no_tool", {}, reply("", "end_turn")))
    with pytest.raises(LoopExit):
        exhaust(handler.dispatch("no_tool", {}, reply("x", "max_tokens")))


def test_one_big_code_block_without_words_is_asked_about_once(handler: GenericAgentHandler) -> None:
    code = "```python\n" + "x = 1\n" * 10 + "```"
    assert "code_run" in str(do(handler, "no_tool", code).next_prompt)
    assert not do(handler, "no_tool", code).next_prompt, "asked again it is the answer"
    assert not do(handler, "no_tool", "The code is:\n" + code).next_prompt


def test_a_plan_that_does_not_go_on_is_sent_back_for_ever(handler: GenericAgentHandler, tmp_path: Path) -> None:
    handler.enter_plan_mode("plan.md")
    assert "is not there" in str(do(handler, "no_tool", "All done!").next_prompt)
    outcomes = [do(handler, "no_tool", "All done!") for _ in range(4)]
    assert [outcome.should_exit for outcome in outcomes] == [False, False, False, True]
    assert outcomes[-1].data["status"] == "INTERRUPT" and "5 replies" in outcomes[-1].data["data"]["question"]
    do(handler, "code_run", type="bash", script="true")
    assert not do(handler, "no_tool", "All done!").should_exit  # something was done in between


def test_a_plan_ends_only_when_all_is_ticked_and_verified(handler: GenericAgentHandler, tmp_path: Path) -> None:
    plan = tmp_path / "plan.md"
    plan.write_text("- [x] one\n- [ ] two\n")
    handler.enter_plan_mode("plan.md")
    assert "1 open" in str(do(handler, "no_tool", "All done!").next_prompt)
    plan.write_text("- [x] one\n- [x] two\n")
    assert "VERDICT" in str(do(handler, "no_tool", "All done!").next_prompt)
    assert not do(handler, "no_tool", "All done. VERDICT: PASS").next_prompt


# between turns


def test_the_prompt_carries_the_last_thirty_lines_and_counts_the_rest(handler: GenericAgentHandler) -> None:
    for n in range(1, 41):
        prompt = turn_end(handler, n, f"<summary>step {n}.</summary>")
    assert "[Agent] step 40." in prompt and "[Agent] step 11." in prompt
    assert "step 10." not in prompt and "10 earlier lines" in prompt and "Current turn: 41" in prompt


def test_a_missing_summary_is_made_up_and_reminded_of(handler: GenericAgentHandler) -> None:
    assert "<summary>" in turn_end(handler, 1, "no summary here")
    assert handler.history_info[-1].startswith("[Agent] code_run")
    assert "[Begin each reply" not in turn_end(handler, 2, "<summary>fine</summary>")


def test_a_summary_of_several_lines_or_of_a_novel_stays_one_line(handler: GenericAgentHandler) -> None:
    turn_end(handler, 1, "<summary>a\nb\n" + "word " * 500 + "</summary>")
    assert "\n" not in handler.history_info[-1] and len(handler.history_info[-1]) < 200


@pytest.mark.parametrize(
    ("turn", "said"), [(7, "no blind retries"), (14, "no blind retries"), (35, "ask the user"), (10, "Memory index")]
)
def test_milestones_warn(handler: GenericAgentHandler, turn: int, said: str) -> None:
    assert said in turn_end(handler, turn) and said not in turn_end(handler, turn + 1)


def test_honest_repetition_is_never_stopped(handler: GenericAgentHandler, tmp_path: Path) -> None:  # C028
    for n in range(40):
        (tmp_path / f"f{n}").write_text(str(n))
        assert do(handler, "file_read", path=f"f{n}").next_prompt
        assert turn_end(handler, n + 1)
    for n in range(30):
        assert (
            do(handler, "file_patch", path="f0", old_content=str(n), new_content=str(n + 1)).data["status"] == "success"
        )


def test_steering_comes_into_the_next_prompt_once(handler: GenericAgentHandler, tmp_path: Path) -> None:
    lines: list[str] = []
    records: list[dict[str, str]] = []
    parent = SimpleNamespace(
        intervene="use the other door", extrakeyinfo="the key is under the mat", task_dir=tmp_path, stop=None, add_line=lines.append,
        record=records.append,
    )  # fmt: skip
    handler.parent = parent
    (tmp_path / "_intervene").write_text("hurry up")
    prompt = turn_end(handler, 1)
    assert "[MASTER] use the other door" in prompt and "[MASTER] hurry up" in prompt and "under the mat" in prompt
    assert not (tmp_path / "_intervene").exists()
    again = turn_end(handler, 2)
    assert "other door" not in again and "under the mat" in again
    assert records == [{"type": "said", "text": "use the other door"}]


def test_only_the_newest_working_memory_is_sent(handler: GenericAgentHandler) -> None:
    first = do(handler, "file_read", path="x").next_prompt
    prompt = turn_end(handler, 1, prompt=f"{first}\n{first}")
    assert prompt.count("<working_memory>") == 1


def test_consume_file_takes_it_away(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("text\n")
    assert consume_file(tmp_path, "f") == "text" and consume_file(tmp_path, "f") is None


def test_broken_json_is_told_to_the_model(handler: GenericAgentHandler) -> None:  # C020
    outcome = do(handler, "bad_json", msg="The arguments of x are not valid JSON")
    assert outcome.data == {"status": "error", "msg": "The arguments of x are not valid JSON"} and outcome.next_prompt


def test_a_stop_between_calls_ends_the_run(handler: GenericAgentHandler) -> None:
    handler.check()
    handler.stop.set()
    with pytest.raises(LoopExit) as end:
        handler.check()
    assert end.value.reason["result"] == "ABORTED"


def test_prompts_are_the_same_without_a_parent_and_hold_no_placeholder(handler: GenericAgentHandler) -> None:
    do(handler, "update_working_checkpoint", key_info="{not a placeholder}")
    assert "{not a placeholder}" in turn_end(handler, 1)
    assert not re.search(r"\{(turn|count|text)\}", turn_end(handler, 35))


@pytest.mark.skipif(os.name != "posix", reason="POSIX paths")
def test_a_name_with_control_characters_is_no_crash(handler: GenericAgentHandler) -> None:
    outcome = do(handler, "file_read", path="a\0b")
    assert outcome.data["status"] == "error"
    assert json.dumps(outcome.data)
