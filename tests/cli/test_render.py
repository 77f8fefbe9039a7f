"""Display items become pieces, and pieces text: what is hidden, cut, counted, and what it costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fake_agent import DONE, EVIL, event, text, tool, turn
from hypothesis import given
from hypothesis import strategies as st

from genericagent import prompts
from genericagent.cli.cells import cells, wrapped
from genericagent.cli.render import (
    _AS_IT_IS,
    _FORMS,
    CODE_PIECE,
    SPINNER,
    Painter,
    Piece,
    Reader,
    View,
    hint,
    usage_line,
)

TEXTS = prompts.catalog("chat")


def read(source: str, *, size: int = 10_000, verbose: bool = False) -> list[Piece]:
    """Pieces of a reply that comes in deltas of `size` characters."""
    reader = Reader(TEXTS, verbose)
    pieces = [p for i in range(0, len(source), size) for p in reader.feed(source[i : i + size])]
    return pieces + reader.finish()


def kinds(pieces: list[Piece]) -> list[str]:
    return [p.kind for p in pieces]


def play(items: list[dict[str, Any]], view: View | None = None) -> list[Piece]:
    view = view or View(TEXTS)
    return [piece for item in items for piece in view.feed(item)]


def plain(pieces: list[Piece]) -> str:
    return Painter(rich=False).paint(pieces, 80)


REPLY = """<thinking>
I must <b>not</b> be seen.
</thinking>
<summary>read the file</summary>
# Title
A paragraph
of two lines.

- one

  more of one
- two

After the list.

```python
def f():

    return 1
```
| a | b |
|---|---|
| 1 | 2 |

end <tool_use>{"name": "x"}</tool_use>"""


def test_complete_blocks_come_as_soon_as_they_are_finished() -> None:
    assert read(REPLY) == [
        Piece("dim", "thinking… 26 characters"),
        Piece("summary", "read the file"),
        Piece("md", "# Title"),
        Piece("md", "A paragraph\nof two lines."),
        Piece("md", "- one\n\n  more of one\n- two"),
        Piece("md", "After the list."),
        Piece("fence", "```python"),
        Piece("code", "def f():\n\n    return 1", "python"),
        Piece("fence", "```"),
        Piece("md", "| a | b |\n|---|---|\n| 1 | 2 |"),
        Piece("md", "end "),
    ]
    reader = Reader(TEXTS)
    assert reader.feed("First.\n\nSec") == [Piece("md", "First.")]
    assert reader.tail() == "Sec"


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
def test_tags_split_over_deltas_leak(size: int) -> None:
    assert read(REPLY, size=size) == read(REPLY)


@given(st.text(st.sampled_from("a`~<>/\n #-1.|*thinkgsumary_"), max_size=200), st.integers(1, 20))
def test_cutting_a_reply_anywhere_changes_what_is_shown(source: str, size: int) -> None:
    assert read(source, size=size) == read(source)


@given(st.lists(st.sampled_from(["word", "\n", "\n\n", "```", "- x", "<thinking>", "</thinking>", "| a |", "> q"])))
def test_words_of_a_reply_are_lost(parts: list[str]) -> None:
    source = "".join(parts)
    visible = re.sub(r"<thinking>.*?</thinking>", "", source, flags=re.S) if "```" not in source else source
    shown = "".join(p.text for p in read(source))
    if "```" not in source:
        assert shown.count("word") == visible.count("word")


def test_an_unclosed_tag_hides_the_rest_for_ever() -> None:
    pieces = read("Hello\n<thinking>half a thought\nand the answer: 42")
    assert "42" in pieces[-1].text and "half a thought" in pieces[-1].text
    assert kinds(read("<summary>looked at it\n\nThe answer is 42.")) == ["summary", "md"]


def test_a_tag_that_is_talked_about_hides_text() -> None:
    assert read("Write `<thinking>` first.") == [Piece("md", "Write `<thinking>` first.")]
    code = read("```html\n<summary>More</summary>\n```\n")
    assert code[1] == Piece("code", "<summary>More</summary>", "html")
    call = read('```json\n<tool_use>{"name": "x",\n"a": 1}</tool_use>\n```\nafter')  # as weaker models write it
    assert kinds(call) == ["fence", "fence", "md"]


def test_what_the_live_part_says() -> None:
    now = [0.0]
    view = View(TEXTS, clock=lambda: now[0])

    def live() -> tuple[str, str]:
        status, tail = view.live()
        assert status[0] in SPINNER
        return status[2:], tail

    play([event("turn"), text("\n**LLM Running (Turn 1) ...**\n\n")], view)
    now[0] = 2.0
    assert live() == ("waiting for the model… 2 s", "")
    play([text("<thinking>hm\nhm")], view)
    assert live() == ("thinking… 5 characters", "")
    play([text("</thinking>Done:\nthe re")], view)
    assert live() == ("writing… 2 s", "Done:\nthe re")
    play([text("sult <file_content>x")], view)
    assert live() == ("writing… 1 characters", "Done:\nthe result ")
    play([DONE], view)
    assert view.live() == ("", "")


def test_half_a_tag_flashes_in_the_live_part() -> None:
    reader = Reader(TEXTS)
    reader.feed("The answer <tool_u")
    assert reader.tail() == "The answer "
    reader.feed("se>{")
    assert reader.tail() == "The answer " and reader.hidden() == ("tool_use", 1)


def test_a_fence_in_a_list_or_never_closed_swallows_the_text_after_it() -> None:
    source = "1. ```sh\n   ls\n\n   pwd\n   ```\n2. Then this."
    assert kinds(read(source)) == ["fence", "code", "fence", "md"]
    assert read(source)[1].text == "ls\n\npwd"
    assert read("~~~\n```\n~~~\nafter")[-1] == Piece("md", "after")
    assert read("````\n```\n````\nafter")[1].text == "```"
    assert read("```python\nx = 1")[-1] == Piece("code", "x = 1", "python")
    assert read("``` not a fence ``` here\nafter") == [Piece("md", "``` not a fence ``` here\nafter")]


def test_a_long_answer_is_kept_back_until_its_end() -> None:  # C106
    code = Reader(TEXTS)
    shown = code.feed("```\n" + "line\n" * CODE_PIECE * 3)
    assert [p.text.count("line") for p in shown if p.kind == "code"] == [CODE_PIECE] * 3
    paragraph = Reader(TEXTS)
    shown = [p for _ in range(3000) for p in paragraph.feed("word " * 10)]
    assert sum(p.text.count("word") for p in shown) > 25_000
    table = Reader(TEXTS).feed("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 2000)
    assert len(table) > 1 and all(p.text.startswith("| a | b |\n|---|---|\n") for p in table)


def test_work_per_delta_grows_with_the_answer() -> None:  # C106
    """What a reader holds stays small however much it was fed: that is what a delta or a redraw can cost."""
    reader = Reader(TEXTS)
    for n in range(20_000):
        reader.feed(f"word{n} " + "\n\n" * (n % 50 == 49))
        if n % 1000 == 0:
            assert len(reader.tail()) < 5000
    assert sum(map(len, reader._block)) + reader._length < 10_000


def test_a_thousand_tags_in_one_line() -> None:
    assert kinds(read("<summary>x</summary>" * 3000)) == ["summary"] * 3000


# tools


def test_tool_output_is_shown_whole_or_with_the_loops_wrapping() -> None:
    lines = [f"{n}\n" for n in range(40)]
    view = View(TEXTS, unfold=" · Ctrl+O")
    pieces = play([event("turn"), *tool("code_run", {"type": "bash", "script": "seq 40"}, lines)], view)
    assert plain(pieces).splitlines() == [
        "── Turn 1 ──",
        "✓ code_run  bash: seq 40",
        *(f"  {n}" for n in range(4)),
        "  … 34 more lines · Ctrl+O",
        *("  38", "  39"),
    ]
    assert plain(view.unfold()).splitlines() == ["▾ code_run  bash: seq 40", *(f"  {n}" for n in range(40))]
    assert view.unfold() == []


@pytest.mark.parametrize(
    ("output", "lines", "more"),
    [
        (["one piece"], 1, 0),
        (["a\n", "b\n"], 2, 0),
        (["a\n\n\nb\n\n"], 4, 0),
        (["x\n" * 8], 8, 0),
        (["x\n" * 9], 6, 3),
        (["x\n" * 8 + "last"], 6, 3),
        (["x\n" * 12, "y\n" * 5, "z"], 6, 12),
        (["x\n" * 7, "\n\n", "y\n"], 6, 4),
        (["x\n" * 100_000], 6, 99_994),
        (["x\n" * 6_000, "y\n", "z"], 6, 5_996),
    ],
)
def test_lines_of_tool_output_are_miscounted(output: list[str], lines: int, more: int) -> None:
    for items in (
        tool("code_run", {"script": "x"}, output),
        [event("tool", name="code_run", args={}), *map(text, output), event("tool_done", name="code_run", ok=True)],
    ):
        pieces = play(items)
        shown = [p.text for p in pieces if p.kind == "output"]
        counted = [t for t in shown if t.endswith("more lines")]
        assert len(shown) - len(counted) == lines
        assert counted == ([f"… {more:,} more lines"] if more else [])
        assert shown[-1] == "".join(output).strip().split("\n")[-1]


def test_a_turn_that_goes_on_folds_to_its_summary() -> None:
    view = View(TEXTS)
    said = "I look **first**.\n<thinking>a\nb</thinking>\n<summary>looked</summary>"
    pieces = play([*turn(said), *tool("file_read", {"path": "a"}, [])], view)
    assert [(p.kind, p.text) for p in pieces] == [("turn", "Turn 1 ──"), ("summary", "looked"), ("ok", "file_read")]
    unfolded = [view.unfold() for _ in range(3)]
    assert [p.text for p in unfolded[0]] == ["what turn 1 said", "I look **first**."]
    assert [p.text for p in unfolded[1]] == ["thinking… 3 characters", "a", "b"] and unfolded[2] == []
    # without a summary, or too long to be overlooked: shown
    assert Piece("md", "I look.") in play([*turn("I look."), *tool("file_read", {"path": "a"}, [])])
    long = "word " * 200
    shown = play([*turn(f"{long}\n\n<summary>looked</summary>\n"), *tool("file_read", {"path": "a"}, [])])
    assert Piece("md", long.strip()) in [p._replace(text=p.text.strip()) for p in shown]


def test_the_newest_fold_comes_first_again_after_something_new() -> None:
    view = View(TEXTS)
    for name in ("one", "two"):
        play(tool("file_read", {"path": name}, [], result=f"[FILE] {name}\nx"), view)
    assert [view.unfold()[0].text for _ in range(2)] == ["file_read  two", "file_read  one"]
    play(tool("file_read", {"path": "three"}, [], result="[FILE]\nx"), view)
    assert view.unfold()[0].text == "file_read  three"


def test_a_line_of_a_megabyte_floods_the_screen() -> None:
    pieces = play(tool("code_run", {}, ["x" * 1_000_000 + "\nnext"]))
    assert [len(p.text) for p in pieces if p.kind == "output"] == [401, 4]


def test_a_tool_without_output_takes_one_line() -> None:
    assert plain(play(tool("file_read", {"path": "a.txt"}, []))) == "✓ file_read  a.txt\n"
    failed = play(tool("file_patch", {"path": "a.txt"}, [], ok=False, result="no match\nfor it"))
    assert plain(failed) == "✗ file_patch  a.txt\n  no match for it\n"


def test_the_output_of_a_failed_command_is_shown_twice() -> None:
    pieces = play(tool("code_run", {"script": "x"}, ["out\n", "  boom\n"], ok=False, result="out\n  boom\n"))
    assert plain(pieces) == "✗ code_run  x\n  out\n    boom\n"
    long = [f"line {n}\n" for n in range(90)]
    assert "error" not in kinds(play(tool("code_run", {}, long, ok=False, result="".join([*long[:40], "[…]\n"]))))
    other = play(tool("code_run", {"script": "x"}, ["out\n"], ok=False, result="stopped after 60 s"))
    assert plain(other) == "✗ code_run  x\n  out\n  stopped after 60 s\n"


def test_a_new_file_is_called_overwritten() -> None:
    pieces = play(tool("file_write", {"path": "new.txt"}, [], result="/w/new.txt: 3 bytes (overwrite)"))
    assert plain(pieces) == "✓ file_write  new.txt\n  /w/new.txt: 3 bytes\n"


def test_what_a_patch_changes_is_shown_and_nothing_of_one_that_failed() -> None:
    args = {"path": "a.py", "old_content": "x\nfor i in 9:\x1b[31m", "new_content": "x\nfor i in 10:"}
    pieces = play(tool("file_patch", args, [], result="/w/a.py: replaced at line 2"))
    shown = ["✓ file_patch  a.py", "  /w/a.py: replaced at line 2", "   x", "  -for i in 9:", "  +for i in 10:"]
    assert plain(pieces).splitlines() == shown
    failed = plain(play(tool("file_patch", args, [], ok=False, result="no match")))
    assert failed == "✗ file_patch  a.py\n  no match\n"


def test_a_tools_time_and_an_interrupted_tool() -> None:
    now = [0.0]
    view = View(TEXTS, clock=lambda: now[0])
    play([event("turn"), event("tool", name="code_run", args={"script": "sleep 3"}), text("`````\nhalf a li")], view)
    now[0] = 3.4
    assert view.live()[0][2:] == "code_run sleep 3 … 3 s" and view.live()[1] == "half a li"
    pieces = play([text("ne\n`````\n"), event("tool_done", name="code_run", ok=True, result="")], view)
    assert plain(pieces).splitlines() == ["✓ code_run  sleep 3  3 s", "  half a line"]
    cut = [event("tool", name="code_run", args={}), text("so far"), DONE | {"status": "interrupted", "usage": {}}]
    assert plain(play(cut)).splitlines() == ["● code_run", "  so far", "interrupted"]


def test_the_wait_for_permission_is_counted_as_the_tools_time() -> None:
    now = [0.0]
    view = View(TEXTS, clock=lambda: now[0])
    ask = event("ask", id="q", question="May it?", whole="May it?")
    play([event("turn"), event("tool", name="code_run", args={"script": "x"}), ask], view)
    now[0] = 90.0
    assert view.answered() == "q" and view.answered() == ""
    now[0] = 92.5
    assert view.live()[0].endswith("code_run x … 2 s")
    play([event("ask", id="r", question="May it?", whole="May it?")], view)
    now[0] = 100.0
    pieces = play([text("`````\nout\n`````\n"), event("tool_done", name="code_run", ok=True, result="")], view)
    assert plain(pieces).splitlines()[0] == "✓ code_run  x  2 s"


def test_all_of_a_question_is_offered_where_nothing_is_hidden() -> None:
    for question, whole, offered in (
        ("May it?\n  │ ls", "May it?\n  │ ls", False),
        ("May it?", "May it?\n  │ ls", True),
    ):
        view = View(TEXTS)
        assert ("[v]" in plain(play([event("ask", id="q", question=question, whole=whole)], view))) == offered
        assert "[v]" not in plain(view.ask(view.whole))


def test_verbose_shows_everything() -> None:
    view = View(TEXTS)
    view.verbose = True
    view.start()
    pieces = play(tool("code_run", {"script": "x"}, [f"{n}\n" for n in range(40)]), view)
    assert len([p for p in pieces if p.kind == "output"]) == 40
    assert Piece("dim", "so") in read("<thinking>so</thinking>", verbose=True)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"type": "python", "script": "import os\nprint(1)", "_index": 0}, "python: import os print(1)"),
        ({"path": "a.txt", "content": "x" * 500}, "a.txt"),
        ({"start": 3, "_tool_num": 1}, '{"start": 3}'),
        ({}, ""),
        ({"key_info": ["a", {"b": 1}]}, '["a", {"b": 1}]'),
        ({"path": f"x{EVIL}"}, "xlink"),
    ],
)
def test_hint(args: dict[str, Any], expected: str) -> None:
    assert hint(args) == expected


# the end of a task


@pytest.mark.parametrize(
    "header", ["\n**LLM Running (Turn 1) ...**\n\n", "\nLLM Running (Turn 1) ...\n", "Turn 1 ...\n", ""]
)
def test_the_loops_header_is_shown_beside_our_own(header: str) -> None:
    pieces = play([event("turn"), *([text(header)] if header else []), text("Hello"), DONE | {"usage": {}}])
    assert pieces == [Piece("turn", "Turn 1 ──"), Piece("md", "Hello")]


def end(**values: Any) -> list[str]:
    return plain(play([*turn("Text."), DONE | {"usage": {}} | values])).splitlines()[3:]


def test_how_a_task_ended_is_said() -> None:
    assert end() == []
    assert end(status="limit", error="the turn limit of 40 is reached") == [
        'stopped: the turn limit of 40 is reached — type "continue" to go on'
    ]
    assert end(status="failed", error="HTTP 401:\nwrong key") == ["failed: HTTP 401: wrong key"]
    assert end(status="interrupted") == ["interrupted"]
    question = {"question": "Which\x1b[2J one?", "candidates": ["a", 2]}
    assert end(status="needs_input", question=question) == [
        "", "Which one?", "Choose with the arrow keys or a number, or type an answer of your own.",
    ]  # fmt: skip
    assert end(files_changed={"/tmp/a": "written", "/tmp/b\x1b[2J": "patched"}) == ["changed: /tmp/a, /tmp/b"]
    assert end(status="failed", error="Error: Text.") == ["failed"]


def test_an_answer_that_was_never_streamed_is_lost() -> None:
    assert plain(play([DONE | {"answer": "temperature = 1", "usage": {}}])) == "temperature = 1\n"
    assert plain(play([*turn("Streamed."), DONE | {"answer": "Streamed.", "usage": {}}])).count("Streamed") == 1


def test_usage_line() -> None:
    item = {"usage": {"input": 20_000, "output": 150, "cache_read": 15_000}, "cost": 1.234, "turn": 3}
    assert usage_line(TEXTS, item) == "3 turns · 20.0k tokens in · 150 out · 75 % from cache · $1.23"
    assert usage_line(TEXTS, {"usage": {"input": 5, "output": 1}, "cost": None, "turn": 1}) == "5 tokens in · 1 out"
    assert usage_line(TEXTS, {"usage": {}}) == ""


# paint


def test_only_visible_text_and_our_colours_are_painted() -> None:  # C104
    items = [
        *turn(f"model {EVIL} &#x202e;bidi &#27;[2J\n\n`code {EVIL}`\n\n```sh\n{EVIL}\n```\n<summary>{EVIL}</summary>"),
        *tool("code_run", {"script": EVIL}, [f"{EVIL}\n"], ok=False, result=EVIL),
        event("retry", text=EVIL),
        DONE | {"status": "needs_input", "question": {"question": EVIL, "candidates": [EVIL]}},
        DONE | {"status": "failed", "error": EVIL, "files_changed": {EVIL: ""}},
    ]
    view = View(TEXTS)
    painted = Painter().paint([*play(items, view), *view.unfold(), *view.unfold()], 80)
    left = re.sub(r"\x1b\[[0-9;]*m", "", painted)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", left)
    assert "52;c" not in left and "title" not in left and "[U+202E]" in left


def test_a_sequence_split_over_two_deltas_is_painted() -> None:  # C104
    for cut in range(1, len(EVIL)):
        items = [event("turn"), text(EVIL[:cut]), text(EVIL[cut:] + "end"), DONE | {"usage": {}}]
        assert plain(play(items)) == "── Turn 1 ──\n\nlinkend\n"


@pytest.mark.parametrize("mark", ["❯ yes, allow everything", "✓ code_run", "── Turn 9 ──", "● code_run", "⏳ waiting"])
def test_a_model_writes_a_line_of_ours(mark: str) -> None:
    for said in (mark, f"`{mark}`", f"**{mark}**", f"```\n{mark}\n```", f"a\n\n{mark}"):
        for painter in (Painter(), Painter(colour=False)):
            painted = re.sub(r"\x1b\[[0-9;]*m", "", painter.paint(read(said), 80))
            assert mark in painted and not any(line.startswith(mark) for line in painted.split("\n"))


def test_the_patterns_of_a_language_take_seconds_for_a_hostile_line() -> None:
    """Only what is known to be quick is highlighted, and only lines of an ordinary length."""
    coloured = Painter().paint([Piece("code", "x = 1  # y", "python")], 80)
    assert re.search(r"\x1b\[[0-9;]*[39][0-7]", coloured)
    for code, language in (("x = 1 " + " " * 4000, "python"), ("a a a", "autoit"), ("a a a", "java")):
        painted = Painter().paint([Piece("code", code, language)], 80)
        assert not re.search(r"\x1b\[[0-9;]*[39][0-7]", painted)


def test_markdown_drops_text_that_looks_like_html_or_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    source = (
        "a <b>tag</b> <div>\n\n[1]: http://example.com/x\n\n![alt](pic.png) [t](http://e.x)\n\n" + ">" * 40 + "deep"
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", Painter().paint(read(source), 80))
    for part in ("<b>tag</b>", "<div>", "http://example.com/x", "pic.png", "http://e.x", "deep"):
        assert part in shown


def test_painted_lines_can_be_copied() -> None:
    code = "def f():\n" + " " * 4 + "x = '" + "y" * 200 + "'\n\n\nprint(1)"
    painted = Painter(colour=False).paint(
        [Piece("md", "short"), Piece("fence", "```"), Piece("code", code, "python")], 40
    )
    assert painted == f"short\n\n```\n{code}\n"


def test_chinese_wraps_at_the_edge_and_not_before_a_comma() -> None:
    source = "运行 code_run 得到结果，然后再用 file_patch 修改文件，最后（一定要）验证结果是否正确。"
    lines = Painter(colour=False).paint([Piece("md", source)], 24).splitlines()
    assert "".join(lines).replace(" ", "") == source.replace(" ", "")
    assert all(not line.startswith(("，", "。", "）")) for line in lines)
    assert len(lines) <= 5


def test_no_colour_and_plain_have_no_control_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    pieces = [*read(REPLY), Piece("tool", "x", "y"), Piece("error", "z")]
    assert "\x1b" in Painter().paint(pieces, 80)
    assert "\x1b" not in Painter(colour=False).paint(pieces, 80)
    assert "\x1b" not in plain(pieces)


@pytest.mark.parametrize(
    "evil", ["[" * 8000, "*a" * 4000, ">" * 8000, "`" * 8000, "[a](" * 2000, "**_" * 2600, "&#" * 4000]
)
def test_pathological_markdown_hangs_or_vanishes(evil: str) -> None:
    assert Painter(colour=False).paint([Piece("md", evil)], 80).strip()


def test_a_renderers_fault_loses_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise RuntimeError("no")

    monkeypatch.setattr("genericagent.cli.render._rich", broken)
    assert Painter().paint([Piece("md", "kept")], 80) == "kept\n"


def test_the_wait_for_the_next_try_is_counted_down() -> None:  # C005
    now = [100.0]
    view = View(TEXTS, clock=lambda: now[0])
    play([event("turn"), event("retry", text="busy", seconds=7.5)], view)
    assert view.live()[0] == "trying again in 8 s"
    now[0] += 5
    assert view.live()[0] == "trying again in 3 s"
    now[0] += 5
    assert "waiting" in view.live()[0]


def test_the_model_that_answered_is_named_when_it_is_not_the_first() -> None:  # C016
    assert "by B" in plain(play([*turn("hello"), {**DONE, "answered_by": "B"}]))


def test_a_line_of_code_in_a_question_cannot_pass_for_the_question() -> None:
    from genericagent.cli.render import Painter, Piece

    padded = "  │ echo a" + " " * 70 + "[y] yes, all is well 世界" * 4
    rows = Painter(rich=False, colour=False).paint([Piece("asked", padded)], 60).rstrip("\n").split("\n")
    assert len(rows) > 2 and all(row.startswith("  │ ") and len(row) < 60 for row in rows)


LONG = "Rules are written as kind:place and 规则写成种类和地点，中文每个字占两格（一定要数对）。 " * 3


@pytest.mark.parametrize("width", [30, 60, 81])
@pytest.mark.parametrize("kind", [kind for kind in _FORMS if kind not in _AS_IT_IS])
def test_a_line_breaks_inside_of_a_word_at_the_edge(kind: str, width: int) -> None:  # C107
    rows = Painter(rich=False).paint([Piece(kind, f"   {LONG}")], width).rstrip("\n").split("\n")
    assert max(map(cells, rows)) <= width and len(rows) > 3
    words = re.findall(r"[a-z]+", LONG)
    assert re.findall(r"[a-z]+", "\n".join(rows)) == words
    assert "".join("".join(rows).split()).endswith("".join(LONG.split()))
    assert all(not row.lstrip().startswith(("，", "）", "。")) for row in rows)


def test_what_is_to_be_copied_is_broken_in_two() -> None:
    path = "/a/long/path/" * 9
    for line in (f"saved as {path} for you", f"        → cp '{path}' there and there and there"):
        assert any(path in row for row in Painter(rich=False).paint([Piece("plain", line)], 40).split("\n"))
    assert wrapped(f"  → cp {path} there", 20) == [f"  → cp {path} there"]
    assert Painter(rich=False).paint([Piece("copy", "go on: " * 30)], 40) == "go on: " * 30 + "\n"
