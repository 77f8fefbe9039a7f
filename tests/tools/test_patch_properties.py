"""Whatever a file holds: a patch changes the piece it names and nothing else, and what was written is what is read."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from genericagent.errors import ToolError
from genericagent.tools.files import file_patch, file_read, file_write
from genericagent.tools.reply_content import extract_content

MARKS = {
    "utf-8": b"", "utf-8-sig": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff", "gbk": b"", "big5": b"",
    "shift_jis": b"", "euc_jp": b"", "euc_kr": b"", "latin-1": b"", "cp1252": b"",
}  # fmt: skip
WORDS = {
    "gbk": ["配置文件", "你好，世界", "这是一个测试", "用户"], "big5": ["設定檔案", "你好，世界", "這是一個測試", "我們的"],
    "shift_jis": ["設定ファイル", "これは", "テスト", "日本語"], "euc_jp": ["設定ファイル", "これは", "テスト", "日本語"],
    "euc_kr": ["설정 파일", "입니다", "사용자", "안녕하세요"], "latin-1": ["café", "naïve", "über alles", "señor"],
    "cp1252": ["“café”", "naïve – oui", "l’été", "10 €"],
}  # fmt: skip
ANY = ["日本語", "é", "e\u0301", "🙂", "\u00a0", "\u2028", "\u200b", "\x0c", "\x85", "“”"]
ASCII = ["x = 1", "\tif a:", "    ", "", "a", "foo(bar)", "}", "\\u00a0", "  end  ", "[.*]$^", "\\1"]
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
quick = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, list[str], list[str]]:
    """(encoding, lines, their ends): enough words that the encoding can be told."""
    encoding = draw(st.sampled_from(list(MARKS)))
    words = WORDS.get(encoding, ANY)
    line = st.lists(st.sampled_from(ASCII + words), max_size=4).map("".join)
    lines = draw(st.lists(line, min_size=1, max_size=8))
    lines.insert(draw(st.integers(0, len(lines))), "".join(words if words is not ANY else draw(st.permutations(ANY))))
    ends = [draw(ENDS) for _ in lines]
    if draw(st.booleans()):
        ends = [ends[0]] * len(lines)
    ends[-1] = draw(st.sampled_from(["", ends[-1]]))
    for i in range(1, len(lines)):
        if not lines[i] and ends[i - 1] == "\r" and ends[i] == "\n":
            ends[i - 1] = "\r\n"  # else the two would be one line break
    return encoding, lines, ends


def raw(encoding: str, text: str) -> bytes:
    return MARKS[encoding] + text.encode(encoding.removesuffix("-sig"))


def joined(lines: list[str], ends: list[str]) -> str:
    return "".join(a + b for a, b in zip(lines, ends, strict=True))


def in_file(data: bytes) -> Path:
    folder = Path(tempfile.mkdtemp(dir=Path.home()))
    path = folder / "f.txt"
    path.write_bytes(data)
    return path


@quick
@given(texts(), st.data())
def test_patching_one_piece_changes_that_piece_and_no_other_byte(
    text: tuple[str, list[str], list[str]], data: st.DataObject
) -> None:
    encoding, lines, ends = text  # C061 C062 C064 C065
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = lines[at] + "@NEEDLE@"
    cut = data.draw(st.integers(0, lines[at].index("@")))
    new = data.draw(st.sampled_from([*ASCII, *WORDS.get(encoding, ANY)]))
    before = raw(encoding, joined(lines, ends))
    path = in_file(before)
    file_patch(path, lines[at][cut:], new)
    after = [*lines[:at], lines[at][:cut] + new, *lines[at + 1 :]]
    assert path.read_bytes() == raw(encoding, joined(after, ends))


@quick
@given(texts(), st.data())
def test_lines_around_the_change_inside_a_piece_keep_their_ends(
    text: tuple[str, list[str], list[str]], data: st.DataObject
) -> None:
    encoding, lines, ends = text  # C061 C062
    lines = [f"{i}: {line}" for i, line in enumerate(lines)]
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    at = data.draw(st.integers(first, last))
    changed = [*lines[:at], lines[at] + " changed", *lines[at + 1 :]]
    sep = data.draw(st.sampled_from(["\n", "\r\n"]))
    path = in_file(raw(encoding, joined(lines, ends)))
    file_patch(path, sep.join(lines[first : last + 1]), sep.join(changed[first : last + 1]))
    assert path.read_bytes() == raw(encoding, joined(changed, ends))


@quick
@given(st.binary(max_size=60).filter(lambda b: b"\0" not in b), st.binary(max_size=60).filter(lambda b: b"\0" not in b))
@example(b"\xff\xfe", b"")
@example(b"\xe9", b"caf\xe9\r\n")
@example(b"\xc3", b"\xa9")
@example(b"\x81", b"@\n")
def test_any_bytes_around_the_piece_stay_or_the_patch_is_refused(head: bytes, tail: bytes) -> None:
    before = head + b"\nneedle_1\n" + tail  # C064
    path = in_file(before)
    try:
        file_patch(path, "needle_1", "needle_2")
    except ToolError:
        assert path.read_bytes() == before
    else:
        assert path.read_bytes() == head + b"\nneedle_2\n" + tail


@quick
@given(
    st.text("ab\n", min_size=1, max_size=12), st.text("ab\n", min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"])
)
def test_a_patch_succeeds_exactly_when_the_piece_occurs_once(text: str, old: str, end: str) -> None:
    before = text.replace("\n", end).encode()  # C070 C073
    path = in_file(before)
    times = sum(text.startswith(old, i) for i in range(len(text)))
    if times == 1:
        file_patch(path, old, "<new>")
        assert path.read_bytes() == text.replace(old, "<new>").replace("\n", end).encode()
    else:
        with pytest.raises(ToolError, match=f"{times} times" if times else "not in the file"):
            file_patch(path, old, "<new>")
        assert path.read_bytes() == before


TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=80)


@quick
@given(TEXT)
def test_what_is_written_is_on_disk_and_read_back(text: str) -> None:
    path = in_file(b"")  # C068
    file_write(path, text)
    assert path.read_bytes() == text.encode()
    shown = file_read(path, show_linenos=False)
    if text and not shown.startswith("[FILE] binary") and not text.startswith("\ufeff"):
        assert shown.split("\n", 1)[1] == text.removesuffix("\n")


@quick
@given(texts(), st.lists(st.sampled_from(ASCII), min_size=1, max_size=3), st.sampled_from(["append", "prepend"]))
def test_adding_keeps_what_was_there(text: tuple[str, list[str], list[str]], more: list[str], mode: str) -> None:
    encoding, lines, ends = text  # C061 C065
    end = ends[0]
    ends = [end or "\n"] * len(lines)
    before, added = joined(lines, ends), "\n".join(more) + "\n"
    path = in_file(raw(encoding, before))
    file_write(path, added, mode)
    added = added.replace("\n", ends[0])
    assert path.read_bytes() == raw(encoding, before + added if mode == "append" else added + before)


@quick
@given(texts())
def test_reading_shows_every_line_with_its_number(text: tuple[str, list[str], list[str]]) -> None:
    encoding, lines, ends = text
    path = in_file(raw(encoding, joined(lines, ends)))
    if not ends[-1] and not lines[-1]:
        lines = lines[:-1]
    shown = file_read(path).split("\n")
    assert shown[0].startswith(f"[FILE] {len(lines)} lines")
    assert shown[1:] == [f"{n}|{line}" for n, line in enumerate(lines, 1)]


@quick
@given(
    st.lists(
        st.sampled_from(["```", "```python", "~~~", "text", "", "</file_content> in it", "<b>", "  x"]), max_size=12
    )
)
def test_tagged_content_comes_back_whatever_fences_it_holds(lines: list[str]) -> None:
    body = "".join(f"{line}\n" for line in ["first", *lines])  # C029
    assert extract_content(f"Here it is:\n<file_content>\n{body}</file_content>\nDone.") == body
