"""Replies of a model stuck in a loop must not hang the program: everything that reads one is linear."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from genericagent import tags
from genericagent.display import only_code, tidy, untagged

ROOT = Path(__file__).parents[1]
ODD = [
    "```python\nx=1\ny=2\n" * 40_000, "<thinking>" * 60_000, "<file_content>" * 60_000, "<tool_use>" * 60_000, "<summary>" * 60_000,
    "<tool_result>" * 60_000, "<working_memory>" * 60_000, "`" * 500_000, "<file_content>a</file_content> x " * 40_000,
    "</thinking>" * 60_000, "<thinking>" * 30_000 + "</thinking>" * 30_000, "\n" * 500_000, " " * 500_000, "</file_content>" + " " * 400_000 + "x",
    '<tool_use>{"name": "x"}' * 20_000, "<tool_use>{" * 20_000, "```\n" + "x\n" * 200_000,
]  # fmt: skip
READERS = """
import sys, json
from genericagent import display
from genericagent.llm import history, textproto
from genericagent.tools.reply_content import extract_content, last_code_block
reply = json.loads(sys.stdin.read())
message = {"role": "user", "content": [{"type": "text", "text": reply}]}
for read in (
    display.tidy, display.untagged, display.only_code, history.summary_of, lambda r: textproto.parse_calls(r, lambda: "x"),
    extract_content, lambda r: last_code_block(r, ("python",)), lambda r: history.compress_history_tags([message] * 10),
):
    read(reply)
"""


@pytest.mark.slow
@pytest.mark.parametrize("reply", ODD, ids=range(len(ODD)))
def test_an_odd_reply_is_read_in_no_time(reply: str) -> None:
    import json

    command = [sys.executable, "-c", READERS]
    subprocess.run(
        command, cwd=ROOT, input=json.dumps(reply), text=True, check=True, timeout=30
    )  # a hang takes for ever


def test_regions_do_not_nest_and_unclosed_tags_are_text() -> None:
    text = "a<thinking>b<summary>c</summary></thinking>d<summary>e</summary>f<thinking>g"
    assert [(r.tag, text[r.inner : r.close]) for r in tags.regions(text, "thinking", "summary")] == [
        ("thinking", "b<summary>c</summary>"),
        ("summary", "e"),
    ]
    assert tags.drop(text, "thinking", "summary") == "adf<thinking>g"
    assert tags.first(text, "summary") == "c" and tags.first(text, "nothing") is None
    assert tags.replace("x<a>1</a>y", lambda tag, inner: f"[{tag}{inner}]", "a") == "x[a1]y"


def test_a_cut_call_is_hidden_and_code_is_shrunk() -> None:
    assert untagged("words <tool_use>{half") == "words"
    block = "```python\n" + "".join(f"x{i}\n" for i in range(20)) + "```"
    assert tidy(f"a\n{block}\nb").count("\n") == 10 and "15 more lines" in tidy(block)
    assert tidy("```\nnever closed\n") == "```\nnever closed\n"
    assert only_code(block) and not only_code(f"text\n{block}") and not only_code(f"{block}\n{block}")
    assert not only_code("```python\nx\n```") and not only_code("`" * 100)
