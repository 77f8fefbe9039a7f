"""`/export`: what it holds, what it leaves out, what cannot get out of its place, where it goes."""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from genericagent import paths, prompts
from genericagent.cli import commands, export_text
from genericagent.cli.changes import diff
from genericagent.cli.export import OSC52_BYTES, export
from genericagent.cli.export_page import as_html
from genericagent.cli.export_text import as_markdown, fenced
from genericagent.cli.transcript import Said, transcript
from genericagent.errors import GAError, SessionError
from genericagent.safety.redact import Redactor
from genericagent.safety.term import clean
from genericagent.scripted import call, say
from genericagent.store import archive
from genericagent.store.journal import encode

KEY = "sk-test-0123456789abcdef"
HOSTILE = (
    "</script><script>alert(1)</script></details></pre></code>\"'><img src=x onerror=alert(1)>"
    "\u202egnp.exe\u202c \x00\x07\x1b[2J\x1b]52;c;eA==\x07 \ud800 ```\n~~~~\n]]> --> </style></title></svg>"
)
PARTS = [
    "`", "``", "```", "````", "~~~", "<script>", "</details>", "<!--", "\n", "\n\n", "- ", "> ", "    ", "  ", "|", "\\", "\t",
    "![x](http://e)", "![", "# ", "## ", "---", "===", "a", " b", "1. ", "&", "<b", "?>", "|---|", "*", "[x]: ", "<http://a.b>",
]  # fmt: skip


def user(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "text", "text": text}], "request": True, **more}
    return {"type": "message", "message": message}


def answer(text: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": text}, *blocks]}}


def use(id: str, name: str, **args: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def result(id: str, content: Any) -> dict[str, Any]:
    return {"type": "result", "tool_use_id": id, "content": content}


def used(input: int, output: int, cost: float | None = 0.5) -> dict[str, Any]:
    return {"type": "usage", "input": input, "output": output, "cache_read": 10, "cache_write": 0, "cost": cost}


def image(media: str = "image/png", data: str = "iVBORw0KGgo=") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


RECORDS = [
    {"type": "session", "v": 1, "id": "20250101-000000-abcdef", "created": 1.7e9, "cwd": "/work", "llm": "claude"},
    {"type": "task", "event": "start", "source": "user"},
    {"type": "line", "text": "[USER]: Fix the loop"},
    user("Fix the loop"),
    used(1000, 20),
    answer(
        "<thinking>off by one?</thinking><summary>patch it</summary>\nI **patch** `it`.",
        use("t1", "file_patch", path="a.py", old_content="x\nfor i in 9:\ny", new_content="x\nfor i in 10:\ny"),
        use("t2", "code_run", type="bash", script="make\nmake test"),
    ),
    result("t1", '{"status": "success", "msg": "replaced"}'),
    result("t2", '{"status": "error", "exit_code": 2}\nmake: no rule'),
    {"type": "message", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": '{"status": "success", "msg": "replaced"}'},
        {"type": "tool_result", "tool_use_id": "t2", "content": '{"status": "error", "exit_code": 2}\nmake: no rule'},
        {"type": "text", "text": "<working_memory>secret notes</working_memory>Say a summary."},
    ]}},
    used(2000, 30),
    answer("<summary>done</summary>\nAll is well."),
    {"type": "task", "event": "end", "status": "done", "usage": {"input": 3000, "output": 50, "cache_read": 20}, "cost": 1.0},
]  # fmt: skip


class Agent:
    """What an export needs of an agent."""

    def __init__(self, folder: Path, records: Iterable[dict[str, Any]] = (), keys: Iterable[str] = ()) -> None:
        self.workspace, self.redact = folder, Redactor(keys)
        self.session_file: Path | None = None
        if records:
            self.session_file = folder / "journal.jsonl"
            self.session_file.write_bytes(b"".join(map(encode, records)))

    def secrets(self) -> tuple[set[str], list[str]]:
        return {KEY}, []


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path, RECORDS)


def forms(records: Iterable[dict[str, Any]]) -> tuple[str, str]:
    told, texts = transcript(records, clean), prompts.catalog("export")
    return as_markdown(told, texts), as_html(told, texts)


# what it holds


def test_a_conversation_as_markdown() -> None:
    markdown, _ = forms(RECORDS)
    assert markdown.startswith("# Fix the loop\n\nclaude · ")
    assert "2 turns · 3,000 tokens in (20 from the cache) · 50 out · $1.0000" in markdown
    assert "## You\n\nFix the loop\n\n## Turn 1: patch it\n\n<details>\n<summary>Thinking</summary>" in markdown
    assert (
        "\n\nI **patch** `it`.\n\n✓ **file_patch** a.py\n\n```diff\n x\n-for i in 9:\n+for i in 10:\n y\n```\n"
        in markdown
    )
    assert '```json\n{"type": "bash"}\n```\n\nscript\n\n```bash\nmake\nmake test\n```' in markdown
    assert "✗ **code_run**" in markdown and "make: no rule\n```\n\n</details>" in markdown
    assert markdown.endswith(
        "## Turn 2: done\n\nAll is well.\n\n*2,000 tokens in (10 from the cache) · 30 out · $0.5000*\n"
    )
    assert "secret notes" not in markdown and markdown.count("Say a summary.") == markdown.count("make: no rule") == 1


def test_a_conversation_as_a_page() -> None:
    _, page = forms(RECORDS)
    assert page.count("<article") == 2 and page.count("make: no rule") == 1
    assert '<i class="del">-for i in 9:</i><i class="add">+for i in 10:</i>' in page
    assert page.count("<rect") == 2 * 3 + 2 and "Turn 2: 2,000 tokens in" in page
    assert "<b>patch</b> <code>it</code>" in page and "secret notes" not in page


def test_what_was_cut_from_the_context_is_missing() -> None:
    short = {
        "type": "cut",
        "history": [{"role": "user", "content": "<earlier_turns>\n[Agent] patch it\n</earlier_turns>"}],
    }
    resumed = [*RECORDS, short, user("And now?"), answer("Now it rains.")]
    for whole, before in zip(forms(resumed), forms(RECORDS), strict=True):
        assert "for i in 10:" in whole and "make: no rule" in whole and "Now it rains." in whole
        assert "earlier_turns" not in whole and len(whole) > len(before)


def test_what_the_user_took_back_by_rewinding_is_exported(start: Any) -> None:
    from genericagent import control

    agent, _ = start([say("one"), say("two"), say("three")])
    for text in ("first", "second"):
        queue = agent.put_task(text)
        while "done" not in queue.get(timeout=30):
            pass
    turn, *_ = control.turns(agent)[1]
    control.rewind(agent, turn)
    queue = agent.put_task("another second")
    while "done" not in queue.get(timeout=30):
        pass
    control.rename(agent, "My title")
    told = transcript(agent.records())
    texts = [item.text for item in told.items]
    assert texts == ["first", "one", "another second", "three"] and told.title == "My title"
    assert told.total.requests == 3 and [turn.n for turn in told.turns] == [1, 2]


def test_a_history_that_was_given_is_missing() -> None:
    given = {"type": "cut", "history": [
        {"role": "user", "content": "from before"},
        {"role": "assistant", "content": [{"type": "text", "text": "I see."}, use("t1", "file_read", path="b")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "the file"}]},
    ]}  # fmt: skip
    for text in forms([given, user("go on")]):
        assert all(piece in text for piece in ("from before", "I see.", "the file", "go on"))


def test_calls_in_the_text_protocol_are_shown_as_text_or_lost() -> None:
    called = '<summary>w</summary>Here.\n<file_content>\none\n</file_content>\n<tool_use>{"name": "file_write", "arguments": {"path": "p"}}</tool_use>'
    records = [
        user("go"),
        answer(called),
        {"type": "call", "tool_use_id": "call_1", "name": "file_write"},
        {"type": "message", "message": {"role": "user", "content": [
            {"type": "text", "text": "<tool_result>\nwritten\n</tool_result>"},
            {"type": "text", "text": '# Tools\n{"name": "file_write"}'},
        ]}},
        answer("The tag <tool_use> begins a call, <file_content> a file."),
    ]  # fmt: skip
    first, second = transcript(records).turns
    assert first.text == "Here." and first.calls[0].pieces == [("", "diff", "+one")]
    assert first.calls[0].result == "written" and first.calls[0].hint == "p"
    assert second.text == "The tag <tool_use> begins a call, <file_content> a file." and not second.calls
    assert not any(isinstance(item, Said) and item.kind == "note" for item in transcript(records).items)


def test_the_same_id_in_two_turns_mixes_their_results() -> None:
    records = [answer("a", use("t", "x")), result("t", "one"), answer("b", use("t", "x")), result("t", "two")]
    assert [turn.calls[0].result for turn in transcript(records).turns] == ["one", "two"]


def test_how_a_task_ended_or_a_call_without_result_is_not_told() -> None:
    end = {"type": "task", "event": "end", "status": "interrupted", "usage": {}, "cost": 0}
    for text in forms([user("go"), answer("", use("t", "code_run", script="sleep")), end]):
        assert "The task ended: interrupted" in text and "no result is known" in text


def test_the_tokens_of_sub_agents_and_of_a_task_that_never_ended_are_left_out() -> None:
    more = {"type": "task", "event": "end", "status": "done", "usage": {"input": 9000, "output": 1}, "cost": None}
    told = transcript([*RECORDS[:-1], more, {"type": "task", "event": "start"}, used(5, 5)])
    assert (told.total.usage.input, told.total.cost) == (9005, None)
    assert [turn.used.usage.input for turn in told.turns] == [1000, 2005]


def test_numbers_that_are_none_break_the_chart() -> None:
    odd = [{"type": "usage", "input": 1e400, "output": -3, "cost": "x"}, {"type": "usage", "input": None, "cost": [1]}]
    _, page = forms([user("go"), *odd, answer("a"), {"type": "session", "v": 1, "created": float("nan")}])
    assert "<rect" not in page and "price unknown" in page


def test_a_damaged_line_is_passed_over_in_silence(agent: Agent) -> None:
    assert agent.session_file
    data = agent.session_file.read_bytes().split(b"\n")
    agent.session_file.write_bytes(b"\n".join([*data[:6], data[6][:40], *data[7:]]))
    assert export(agent, "md").endswith("; unreadable lines of the session that are missing: 1")


def test_records_of_any_shape_stop_it() -> None:
    odd = [None, 1, "x", [], {}, [{}], {"type": "text"}, {"role": "assistant", "content": [{"type": "weird"}]}]
    kinds = ("session", "message", "cut", "call", "result", "usage", "task", "line", "note", "?")
    records = [{"type": kind, field: value, "event": "end"} for kind in kinds for value in odd
               for field in ("message", "history", "content", "usage", "text", "id", "cost")]  # fmt: skip
    nested: Any = []
    for _ in range(50_000):  # newer Pythons go deeper
        nested = [nested]
    records += [
        answer("x", use("t", "n", deep=nested, tool={"a": ["b" * 100]})),
        result("t", [nested, image(), {"type": "text"}]),
    ]
    markdown, page = forms(records)
    assert "nested too deep" in markdown and "nested too deep" in page


def test_an_archived_session_is_not_found_or_is_unpacked(agent: Agent, tmp_path: Path) -> None:
    saved = paths.sessions() / "20250101-000000-abcdef.jsonl"
    saved.parent.mkdir()
    saved.write_bytes(b"".join(map(encode, RECORDS)))
    agent.session_file = None
    plain = export(agent, "md a", session="20250101")
    packed = archive.pack(saved, saved.stat().st_mtime + 1)
    assert export(agent, "md b", session="20250101").replace("b.md", "a.md") == plain
    assert (tmp_path / "a.md").read_bytes() == (tmp_path / "b.md").read_bytes() and packed.exists()


def test_a_chinese_export_is_half_english(agent: Agent) -> None:
    prompts.set_language("zh")
    try:
        assert export(agent, "html").startswith("已写入")
        page = (agent.workspace / "Fix-the-loop.html").read_text("utf-8")
    finally:
        prompts.set_language(None)
    assert '<html lang="zh">' in page and "第 1 轮" in page and "Turn" not in page


def test_large_changes_are_compared_line_by_line_for_minutes() -> None:
    assert diff("a\nb\nc", "a\nB\nc") == " a\n-b\n+B\n c"
    assert diff("a\n", "b\n") == "-a\n+b\n " and diff("", "a") == "+a" and diff("", "") == ""
    many = "x\n" * 30_000 + "y"
    assert diff(many, many) == "-x\n" * 30_000 + "-y\n" + "+x\n" * 30_000 + "+y"


def test_a_question_aside_counts_for_the_next_turn(start: Any) -> None:
    agent, _ = start([say("one"), say("beside"), say("two")])

    def do(text: str) -> None:
        queue = agent.put_task(text)
        while "done" not in queue.get(timeout=30):
            pass

    do("first")
    alone = transcript(agent.records())
    assert list(agent.aside("well?")) == ["beside"]
    do("second")
    told = transcript(agent.records())
    records = [record for record in agent.records() if record["type"] == "usage"]
    assert [turn.used.requests for turn in told.turns] == [1, 1] and told.total.requests == len(records) == 3
    assert told.turns[0].used.usage == alone.turns[0].used.usage
    assert told.turns[1].used.usage.input == records[2]["input"]


def test_one_turn_is_told_in_the_plural(agent: Agent) -> None:
    assert "\n1 turn · " in forms(RECORDS[:6])[0] and "1 turn · " in forms(RECORDS[:6])[1]
    agent.session_file = agent.workspace / "one.jsonl"
    agent.session_file.write_bytes(b"".join(map(encode, RECORDS[:6])))
    assert "(1 turn, " in export(agent, "one.md")


def test_a_table_is_a_row_of_code_in_the_page() -> None:
    text = (
        "Before\n| a | **b** |\n|---|:-:|\n| `x` | <i>2</i> |\n| only \\| one |\nafter | the last\n\nText | no table\n---\n"
        "```\n| c | d |\n|---|---|\n```\n||e|\n|-|-|"
    )
    _, page = forms([user("go"), answer(text)])
    assert page.count("<table") == 2 and "<thead><tr><th>a</th><th><b>b</b></th></tr></thead>" in page
    rows = [
        "<tr><td><code>x</code></td><td>&lt;i&gt;2&lt;/i&gt;</td></tr>", "<tr><td>only | one</td><td></td></tr>",
        "<tr><td>after</td><td>the last</td></tr>", "<thead><tr><th></th><th>e</th></tr></thead>",
    ]  # fmt: skip
    assert all(row in page for row in rows)
    assert "<pre>| c | d |" in page and "Text | no table\n---" in page and ">Before</div>" in page


def test_what_a_command_of_the_user_printed_is_told_as_said_by_the_user(start: Any) -> None:
    agent, server = start([say("one"), say("two")])
    output = "The user ran this command in /w (exit code 0), its output follows:\n$ cat x"
    parts = [("", output), ("file mail.txt", "I am <b>text</b> of somebody")]
    for outside in (parts, []):
        queue = agent.put_task("what is it?", outside=outside)
        while "done" not in queue.get(timeout=30):
            pass
    said = [(item.kind, item.text) for item in transcript(agent.records()).items if isinstance(item, Said)]
    ran = f"{output}\n\nI am <b>text</b> of somebody"
    assert said == [("ran", ran), ("user", "what is it?"), ("user", "what is it?")]
    assert "I am <b>text</b>" in json.dumps(server.requests[0].body)
    markdown, page = forms(agent.records())
    assert f"## You ran\n\n```text\n{ran}\n```\n\n## You\n\nwhat is it?\n" in markdown
    assert '<section class="ran">\n<h2>You ran</h2>\n<pre>The user ran' in page and "&lt;b&gt;text" in page


# what cannot get out


def hostile() -> list[dict[str, Any]]:
    return [
        {"type": "session", "v": 1, "id": HOSTILE, "cwd": HOSTILE, "llm": HOSTILE},
        {"type": "line", "text": f"[USER]: {HOSTILE}"},
        user(HOSTILE),
        answer(
            f"<thinking>{HOSTILE}</thinking><summary>{HOSTILE}</summary>{HOSTILE}",
            use("t", HOSTILE, path=HOSTILE, **{HOSTILE: HOSTILE, "deep": {HOSTILE: [HOSTILE]}}),
            use("u", "file_patch", path=HOSTILE, old_content=HOSTILE, new_content=f"{HOSTILE}2"),
            {"type": "tool_use", "id": "v", "name": "x", "input": None, "incomplete": True, "input_raw": HOSTILE},
        ),
        result("t", HOSTILE),
        result(
            "u", [{"type": "text", "text": HOSTILE}, image('image/svg+xml" onload="alert(1)'), image(data='"><script>')]
        ),
        {"type": "task", "event": "end", "status": HOSTILE},
    ]


def test_hostile_text_gets_out_of_its_place() -> None:
    markdown, page = forms(hostile())
    for text in (markdown, page):
        assert text.encode() and not set(text) & {"\x00", "\x07", "\x1b", "\u202e", "\ud800"} and "[U+202E]" in text
    ours = {"html", "head", "meta", "link", "title", "style", "body", "h1", "h2", "p", "br", "section", "article", "div", "a",
            "details", "summary", "pre", "span", "b", "code", "i", "img", "strong", "figure", "figcaption", "svg", "g", "rect", "table", "thead", "tbody", "tr", "th", "td"}  # fmt: skip
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag in ours, tag
            assert not any(name.startswith("on") or name == "style" for name, _ in attrs)
            if tag not in ("meta", "link", "br", "img"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(page)
    assert not opened and "<img" not in page


def structure(markdown: str) -> list[str]:
    """Headings of the first two levels, HTML blocks, and whatever is live in the text, as CommonMark has it."""
    found = []
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
    for token, behind in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.type == "html_block" or (token.tag in ("h1", "h2") and token.nesting == 1 and token.level == 0):
            found.append(behind.content if token.tag else token.content.strip())
        found += [child.content for child in token.children or () if child.type in ("html_inline", "image")]
    return found


def test_hostile_text_ends_a_fence_or_a_fold_of_markdown() -> None:
    markdown, _ = forms(hostile())
    folds = [part for part in structure(markdown) if part.startswith("<")]
    assert folds == ["<details>\n<summary>Thinking</summary>", "</details>"] + 2 * [
        "<details>\n<summary>Result (lines: 3)</summary>", "</details>",
    ]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=16).map("".join))
def test_a_model_begins_a_heading_of_ours_a_tag_or_an_image(text: str) -> None:
    assert structure(f"## Own\n\n{export_text._prose(text)}\n\n## Own\n") == ["Own", "Own"]


def test_code_loses_its_tags() -> None:
    assert export_text._prose("Use `<div>`, not <b>.") == "Use `<div>`, not &lt;b>."
    assert export_text._prose("- x:\n  ```html\n<b>\n") == "- x:\n\n```html\n<b>\n\n```"
    assert fenced("````\nx", "py</details>") == "`````py\n````\nx\n`````"


@pytest.mark.parametrize("form", ["md", "html"])
def test_a_key_is_in_an_export(tmp_path: Path, form: str) -> None:
    wrapped = base64.encodebytes(f"Authorization: Bearer {KEY} and more of it, wrapped".encode()).decode()
    cut = f"{KEY[:9]}\x1b[0m{KEY[9:]} {KEY[:9]}<summary>x</summary>{KEY[9:]}"
    records = [
        {"type": "session", "v": 1, "id": "s", "cwd": f"/{KEY}"},
        {"type": "line", "text": f"[USER]: {KEY}"},
        user(KEY),
        answer(f"<thinking>{KEY}</thinking>{cut}", use("t", KEY, path=KEY, content={KEY: [KEY]}),
               use("u", "file_write", path="p", content=wrapped)),
        result("t", json.dumps({"out": KEY})),
    ]  # fmt: skip
    made = Path(export(Agent(tmp_path, records, [KEY]), form).split()[1])
    text = made.read_text("utf-8")
    assert KEY not in text and KEY[9:] not in text and wrapped.split("\n")[0][-20:] not in text
    assert KEY not in made.name and "[a key]" in text


def test_an_image_is_lost_or_makes_a_huge_page() -> None:
    large = image(data="A" * (1 << 20) + "AAAA")
    records = [
        user("see", content=[{"type": "text", "text": "see"}, image()]),
        answer("", use("t", "file_read", path="p")),
    ]
    markdown, page = forms([*records, result("t", [image("image/webp"), large])])
    assert (
        page.count('<img alt="[image, 0 KB]" src="data:image/') == 2
        and "[image, 768 KB]" in page
        and len(page) < 20_000
    )
    assert markdown.count("\\[image, 0 KB\\]") == 2 and "base64" not in markdown


# where it goes


def test_an_export_overwrites_or_is_open_to_others(agent: Agent) -> None:
    for wish, name in (("", "Fix-the-loop.md"), ("md", "Fix-the-loop-2.md"), ("HTML", "Fix-the-loop.html"), ("html x y.htm", "x y.htm"),
                       ("x y.htm", "x y-2.htm"), ("md notes", "notes.md"), ("notes.md", "notes-2.md")):  # fmt: skip
        before = {path: path.read_bytes() for path in agent.workspace.iterdir()}
        made = agent.workspace / name
        assert export(agent, wish).startswith(f"written: {made} (2 turns, ")
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        assert made.read_bytes().startswith(b"<!DOCTYPE" if "htm" in name else b"# Fix the loop")
        assert {path: path.read_bytes() for path in agent.workspace.iterdir() if path != made} == before


def test_a_link_is_followed(agent: Agent) -> None:
    (agent.workspace / "notes.md").symlink_to(agent.workspace / "elsewhere")
    assert "notes-2.md" in export(agent, "notes.md") and not (agent.workspace / "elsewhere").exists()


@pytest.mark.parametrize(
    "title", ["../../etc/passwd", "...", "~", "a/b\\c:d", "\u202egnp", "\x00", "长" * 300, " ", "--help"]
)
def test_a_title_names_another_folder(tmp_path: Path, title: str) -> None:
    export(Agent(tmp_path, [*RECORDS[:1], {"type": "line", "text": f"[USER]: {title}"}, user("x")]), "md")
    (made,) = tmp_path.glob("*.md")
    assert made.name.isprintable() and not made.name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("md nowhere/x.md", "the folder {} does not exist"),
        ("md sub", "{} is a folder: name a file in it"),
        ("html other/", "{}"),
        ("md file/x.md", "the folder {} does not exist"),
        ("md a\0b", "cannot write"),
        (f"md {'x' * 300}", "cannot write"),
        ("clip notes.md", "/export, then md, html or clip"),
    ],
)
def test_a_target_that_cannot_be_is_a_traceback_or_a_file(agent: Agent, wish: str, said: str) -> None:
    (agent.workspace / "sub").mkdir()
    (agent.workspace / "file").write_text("")
    before = sorted(agent.workspace.rglob("*"))
    with pytest.raises(GAError) as error:
        export(agent, wish)
    assert said.split("{}")[0] in str(error.value) and "\n" not in str(error.value)
    assert sorted(agent.workspace.rglob("*")) == before


def test_a_full_disk_leaves_half_a_file(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(GAError, match=r"cannot write .*Fix-the-loop.md: No space left on device"):
        export(agent)
    assert not list(agent.workspace.glob("*.md"))


def test_no_conversation_is_an_empty_file(agent: Agent, tmp_path: Path) -> None:
    for empty in (Agent(tmp_path), Agent(tmp_path, RECORDS[:2])):
        with pytest.raises(SessionError, match="there is no conversation to export yet"):
            export(empty)
    assert not list(tmp_path.glob("*.md"))


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_a_clipboard_program_fails_and_the_next_is_not_tried(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, got = tmp_path / "bin", tmp_path / "got"
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("MY_KEY", KEY)
    with pytest.raises(GAError, match="install wl-clipboard"):
        export(agent, "clip")
    program(tools, "xclip", 'echo "Error: Can\'t open display" >&2; exit 1')
    with pytest.raises(GAError, match=r"^not copied: xclip: Error: Can't open display; over ssh"):
        export(agent, "clip")
    program(tools, "xsel", f'echo "$* $MY_KEY" > {got}; while IFS= read -r line; do echo "$line" >> {got}; done')
    assert export(agent, "CLIP").startswith("copied as Markdown by xsel (2 turns")
    assert got.read_text("utf-8") == "--clipboard --input \n" + forms(RECORDS)[0]


def test_a_copy_through_the_terminal_is_made_unasked_or_cut(agent: Agent, tmp_path: Path) -> None:
    terminal = tmp_path / "tty"
    terminal.touch()
    assert export(agent, "clip osc52", terminal=terminal).startswith("sent to the terminal to be copied (2 turns, ")
    sent = terminal.read_bytes()
    assert sent.startswith(b"\x1b]52;c;") and sent.endswith(b"\x07") and sent.count(b"\x1b") == 1
    assert base64.b64decode(sent[7:-1]).decode() == forms(RECORDS)[0]
    with pytest.raises(GAError, match="there is no terminal to copy through"):
        export(agent, "clip osc52", terminal=tmp_path / "none" / "tty")
    long = Agent(tmp_path, [*RECORDS, user("x" * OSC52_BYTES)])
    with pytest.raises(GAError, match="too much to be copied through the terminal"):
        export(long, "clip osc52", terminal=terminal)
    assert terminal.read_bytes() == sent


def test_the_command_of_the_chat_exports_what_an_agent_did(start: Any, tmp_path: Path) -> None:
    agent, _ = start([call("file_write", path="a.txt", content="one\n"), say("It is written.")], workspace=tmp_path)
    said: list[str] = []

    class Chat:
        running = False

        def say(self, key: str, text: str) -> None:
            said.append(text)

        error = say

    chat: Any = Chat()
    chat.agent = agent
    assert commands.run(chat, "/export") and said == ["there is no conversation to export yet"]
    queue = agent.put_task("Write <b>one</b>")
    while "done" not in queue.get(timeout=30):
        pass
    assert commands.run(chat, "/export md out.md") and said[1].startswith(f"written: {tmp_path / 'out.md'} (2 turns, ")
    text = (tmp_path / "out.md").read_text("utf-8")
    assert "Write &lt;b>one&lt;/b>" in text and "```diff\n+one\n```" in text and "It is written." in text


def test_an_existing_file_is_overwritten_unasked_or_a_new_one_is_asked_about(agent: Agent) -> None:
    from test_commands import Said as Chat

    chat = Chat(agent)
    assert chat.run("/export md notes.md").startswith("written: ") and chat.menu is None
    file = agent.workspace / "notes.md"
    file.write_text("mine\n")
    assert chat.run("/export notes.md").startswith(f"{file} is there already.") and file.read_text() == "mine\n"
    assert chat.pick("nothing") == "Nothing was changed." and file.read_text() == "mine\n"
    chat.run("/export notes.md")
    assert "notes-2.md" in chat.pick("write a new file") and file.read_text() == "mine\n"
    chat.run("/export notes.md")
    assert f"written: {file} (2 turns" in chat.pick("overwrite it") and file.read_text().startswith("# Fix the loop")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    chat.run("/export")
    assert "Fix-the-loop-2.md" in chat.run("/export") and chat.menu is None


def test_a_line_feed_in_a_path_begins_a_line_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "a\nerror: forged"
    folder.mkdir()
    agent = Agent(folder, RECORDS)
    assert "\n" not in export(agent, "md x\ny.md") and (folder / "x y.md").is_file()
    for wish in ("md none/x", "md " + "x" * 300, "md ./"):
        with pytest.raises(GAError) as caught:
            export(agent, wish)
        assert "\n" not in str(caught.value)
