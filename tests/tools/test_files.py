"""Files the way people have them: every ending, encoding, mark, link and mode survives, and no error leaves a trace."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from genericagent.errors import ToolError
from genericagent.tools import files
from genericagent.tools.files import expand_file_refs, file_patch, file_read, file_write
from genericagent.tools.reply_content import extract_content, last_code_block

ROOT = Path(__file__).resolve().parents[2]
ROOT_USER = hasattr(os, "geteuid") and os.geteuid() == 0


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def put(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def patched(path: Path, data: bytes | str, old: str, new: str) -> bytes:
    file_patch(put(path, data), old, new)
    return path.read_bytes()


def refused(path: Path, data: bytes | str, old: str, new: str = "something else") -> str:
    """The message of a patch that must fail and leave every byte."""
    put(path, data)
    before = path.read_bytes()
    with pytest.raises(ToolError) as caught:
        file_patch(path, old, new)
    assert path.read_bytes() == before
    return str(caught.value)


@pytest.fixture
def f(tmp_path: Path) -> Path:
    return tmp_path / "f.txt"


# line endings


@pytest.mark.parametrize(
    "data, old, new, after",
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "A\nB", b"A\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "A\r\nB", b"A\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "b1\nb2", b"a\r\nb1\r\nb2\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "\nB", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "x\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "x\r\ny\n", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc", "c", "c\nd", b"a\r\nb\r\nc\r\nd"),
        (b"a\r\n\r\n\r\nb\r\n", "a\n\n\nb", "a\n\nb", b"a\r\n\r\nb\r\n"),
        (b"a\nb\nc\n", "a\r\nb", "A\r\nB", b"A\nB\nc\n"),
        (b"a\nb\nc\n", "a\r\nb\r\n", "A\r\nA2\r\nB\r\n", b"A\nA2\nB\nc\n"),
        (b"a\nb", "b", "c", b"a\nc"),
        (b"a\nb\n", "b\n", "b", b"a\nb"),
        (b"a\rb\rc\r", "a\nb", "A\nB", b"A\rB\rc\r"),
        (b"a\rb\rc\r", "b", "b\nb2", b"a\rb\rb2\rc\r"),
    ],
)
def test_a_patch_keeps_the_line_endings_of_the_file(f: Path, data: bytes, old: str, new: str, after: bytes) -> None:
    assert patched(f, data, old, new) == after  # C061


@pytest.mark.parametrize(
    "data, old, new, after",
    [
        (b"1\n2\r\n3\n4\r\n5\n", "3", "three", b"1\n2\r\nthree\n4\r\n5\n"),
        (b"1\n2\r\n3\n4\r\n5\n", "2\n3\n4", "2\nX\n4", b"1\n2\r\nX\n4\r\n5\n"),
        (b"1\n2\r\n3\n4\r\n5\n", "1\n2\n3\n", "1\nnew\n2\n3\n", None),
        (b"1\n2\r\n3\n4\r\n5\n", "1\n2\n3\n4\n", "1\n3\n4\n", b"1\n3\n4\r\n5\n"),
        (b"1\r\n2\n3\r\n", "1\r\n2\r\n3", "1\r\nx\r\n3", b"1\r\nx\n3\r\n"),
        (b"a\n\tb  \r\nc\r\r\nd", "\tb  ", "\tB  ", b"a\n\tB  \r\nc\r\r\nd"),
    ],
)
def test_mixed_endings_stay_around_and_inside_the_edit(
    f: Path, data: bytes, old: str, new: str, after: bytes | None
) -> None:
    found = patched(f, data, old, new)  # C062
    if after is not None:
        assert found == after
    else:
        assert found in (b"1\nnew\n2\r\n3\n4\r\n5\n", b"1\nnew\r\n2\r\n3\n4\r\n5\n")


def test_one_line_break_of_two_bytes_is_not_two_line_breaks(f: Path) -> None:
    assert "not in the file" in refused(f, b"a\r\nb\r\n", "a\n\nb")  # C061 C070


def test_endings_can_be_changed_when_that_is_all_that_was_asked(f: Path) -> None:
    assert patched(f, b"a\nb\n", "a\n", "a\r\n") == b"a\r\nb\n"  # C061


def test_written_endings_follow_an_existing_file_and_are_plain_in_a_new_one(f: Path) -> None:
    file_write(f, "a\nb\n")
    assert f.read_bytes() == b"a\nb\n"  # C061
    put(f, b"a\r\nb\r\n")
    file_write(f, "c\n", "append")
    file_write(f, "0\n", "prepend")
    assert f.read_bytes() == b"0\r\na\r\nb\r\nc\r\n"
    file_write(f, "x\r\ny\n")
    assert f.read_bytes() == b"x\r\ny\r\n"


# encodings

SIMPLIFIED = "第一行：配置文件\n第二行：你好，世界\n"
TRADITIONAL = "第一行：設定檔案\n第二行：你好，世界\n這個檔案是測試用的資料\n"
JAPANESE = "設定ファイルです\nこれは二行目です。\n"
KOREAN = "설정 파일입니다\n두 번째 줄입니다.\n"
EAST_ASIAN = [
    ("gbk", SIMPLIFIED), ("gbk", "# 中\nx = 1\n"), ("gbk", "# 注释\nx = 1\n"), ("gbk", "用户名,密码\n张三,李四\n"),
    ("gbk", "错误：找不到文件\n请重试\n"), ("gb18030", "你好，世界𠮷\n这是测试数据的第二行\n"), ("gbk", "“引号”——破折号……的\n第二行\n"),
    ("shift_jis", JAPANESE), ("shift_jis", "# カタカナのコメント\nx = 1\n"), ("shift_jis", "東京都,大阪府\nあいう\n"),
    ("cp932", "①これは機種依存文字です\n②二番目\n"), ("shift_jis", "日本語テスト\nこんにちは、世界\n"), ("shift_jis", "ソース表示能力\nです\n"),
    ("big5", TRADITIONAL), ("big5", "# 註解\nx = 1\n我們的程式可以執行了\n"), ("big5", "使用者名稱與密碼\n請輸入資料\n"),
    ("euc_jp", JAPANESE), ("euc_jp", "日本語テスト\nこんにちは、世界\n"),
    ("euc_kr", KOREAN), ("euc_kr", "안녕하세요 세계\n둘째 줄\n"), ("euc_kr", "# 한글 주석\nx = 1\n사용자 이름을 입력하세요\n"),
]  # fmt: skip


@pytest.mark.parametrize("encoding, text", EAST_ASIAN)
def test_text_is_read_and_added_in_the_encoding_of_the_file(f: Path, encoding: str, text: str) -> None:
    put(f, text.encode(encoding))  # C065
    lines = text.splitlines()
    assert f"1|{lines[0]}" in file_read(f)
    file_patch(f, lines[1], lines[1] + "\n" + lines[0])
    assert f.read_bytes().decode(encoding).splitlines()[:3] == [lines[0], lines[1], lines[0]]
    file_write(f, lines[0] + "\n", "append")
    assert f.read_bytes().decode(encoding).splitlines()[-1] == lines[0]


@pytest.mark.parametrize(
    "encoding, text, char",
    [
        ("gbk", SIMPLIFIED, "한"), ("gbk", SIMPLIFIED, "é́"), ("gbk", SIMPLIFIED, "🙂"), ("shift_jis", JAPANESE, "们"),
        ("shift_jis", JAPANESE, "🙂"), ("big5", TRADITIONAL, "们"), ("euc_jp", JAPANESE, "🙂"), ("euc_kr", KOREAN, "🙂"), ("shift_jis", JAPANESE, "¥"), ("euc_jp", JAPANESE, "‾"),
        ("latin-1", "caf\xe9 cr\xe8me\nx\n", "中"), ("latin-1", "caf\xe9\nx\n", "🙂"), ("cp1252", "“caf\xe9”\nx\n", "中"),
    ],
)  # fmt: skip
def test_a_character_the_code_page_lacks_is_an_error_and_nothing_changes(
    f: Path, encoding: str, text: str, char: str
) -> None:
    lines = text.splitlines()
    msg = refused(f, text.encode(encoding), lines[-1], char)  # C065
    assert "U+" in msg and "nothing was changed" in msg
    for mode in ("append", "prepend", "overwrite"):
        with pytest.raises(ToolError, match="nothing was changed"):
            file_write(f, f"x{char}\n", mode)
        assert f.read_bytes() == text.encode(encoding)


@pytest.mark.parametrize(
    "data, old, new, after",
    [
        (b"x = 1\n# caf\xe9\n", "x = 1", "x = 2", b"x = 2\n# caf\xe9\n"),
        (b"x = 1\n# caf\xe9\n", "x = 1", "x = '\u00e8'", b"x = '\xe8'\n# caf\xe9\n"),
        (b"x = 1\n# \xe9t\xe9, na\xefve\n", "\u00e9t\u00e9", "\u00eatre", b"x = 1\n# \xeatre, na\xefve\n"),
        (b"x = 1\n# \x93caf\xe9\x94\n", "x = 1", "\u201cx\u201d", b"\x93x\x94\n# \x93caf\xe9\x94\n"),
        (b"x = 1\n# \x93caf\xe9\x94\n", "\u201ccaf\u00e9\u201d", "-", b"x = 1\n# -\n"),
        (b"x = 1\n\xff\xfe\xfd\x81\n", "x = 1", "x = 2", b"x = 2\n\xff\xfe\xfd\x81\n"),
        (b"x = 1\n\x80\x81\x8d\x8f\x90\x9d\n", "x = 1", "x = 2", b"x = 2\n\x80\x81\x8d\x8f\x90\x9d\n"),
        ("x = 1\n中文 é\n".encode() + b"\xff\xc3\n", "中文", "语", "x = 1\n语 é\n".encode() + b"\xff\xc3\n"),
        ("é è ü\n".encode() + b"\xe9\nx = 1\n", "x = 1", "ñ", "é è ü\n".encode() + b"\xe9\n\xc3\xb1\n"),
        ("配置文件的名称\nx\n".encode("gbk") + b"\xff\n", "x", "中", "配置文件的名称\n中\n".encode("gbk") + b"\xff\n"),
        ("привет мир\nx\n".encode("cp1251"), "x", "y", "привет мир\ny\n".encode("cp1251")),
        ("привет мир\nx\n".encode("koi8-r"), "x", "y", "привет мир\ny\n".encode("koi8-r")),
        ("γειά σου κόσμε\nx\n".encode("iso8859-7"), "x", "y", "γειά σου κόσμε\ny\n".encode("iso8859-7")),
    ],
)  # fmt: skip
def test_bytes_beside_the_edit_stay_whatever_they_are(f: Path, data: bytes, old: str, new: str, after: bytes) -> None:
    assert patched(f, data, old, new) == after  # C064


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "iso8859-7", "iso8859-8"])
@pytest.mark.parametrize("char", ["é", "п"])
def test_nothing_foreign_is_added_to_an_encoding_that_was_not_recognised(f: Path, encoding: str, char: str) -> None:
    text = {
        "iso8859-7": "γειά σου κόσμε, αυτό είναι ένα αρχείο\nx\n", "iso8859-8": "שלום עולם זה קובץ\nx\n",
    }.get(encoding, "привет мир, это файл с настройками\nx\n")  # fmt: skip
    assert "nothing was changed" in refused(f, text.encode(encoding), "x", char)  # C064 C065


@pytest.mark.parametrize("bom, encoding", [
    (b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be"),
])  # fmt: skip
def test_a_byte_order_mark_stays_once_and_where_it_was(f: Path, bom: bytes, encoding: str) -> None:
    text = "first é 中\r\n\u010a\u0a0a\r\nthird"  # C062
    put(f, bom + text.encode(encoding))
    shown = file_read(f)
    assert "[FILE] 3 lines" in shown and "\n1|first é 中\n2|\u010a\u0a0a\n3|third" in shown
    assert "[FILE] 3 lines" in file_read(f, count=1)
    file_patch(f, "first", "1st 🙂")
    text = text.replace("first", "1st 🙂")
    assert f.read_bytes() == bom + text.encode(encoding)
    file_write(f, "\n4th\n", "append")
    file_write(f, "0th\n", "prepend")
    assert f.read_bytes() == bom + f"0th\r\n{text}\r\n4th\r\n".encode(encoding)
    file_write(f, "\ufeffnew\n")
    assert f.read_bytes() == bom + "new\r\n".encode(encoding)
    put(f, bom)
    assert "[FILE] 0 lines" in file_read(f)


def test_damaged_utf16_is_not_touched(f: Path) -> None:
    refused(f, b"\xff\xfea\0b\0\n", "a")  # C064
    data = b"\xff\xfea\0\x00\xd8b\0"  # half a surrogate pair
    assert patched(f, data, "b", "c") == b"\xff\xfea\0\x00\xd8c\0"


def test_foreign_text_far_into_a_file_is_told_like_at_its_start(f: Path) -> None:
    plain = "x = 1\n" * 300_000
    put(f, plain.encode() + SIMPLIFIED.encode("gbk"))  # C065
    file_patch(f, "你好", "再见")
    assert f.read_bytes().decode("gbk") == plain + SIMPLIFIED.replace("你好", "再见")
    assert "第二行：再见" in file_read(f, start=300_001)


@pytest.mark.parametrize("given", [
    "\u201chi\u201d", "it\u2019s \u2013 \u2014 \u2026", "a\u00a0b", r"re.sub('[\u00A0\u200b]', '')", r"\u201c \\u0041 \x41 \N{DASH}",
    "\\1 \\g<0> \\n", "$1 ${x}", "e\u0301 \u00e9", "\ufb01 \u2126", "a\u200bb", "\u2028 \x0c \x85", "tab\there", "end  ", "&amp; &quot;",
    "🙂👩‍👩‍👧", "%s {x} {{y}}",
])  # fmt: skip
def test_the_given_characters_reach_the_disk_as_they_are(f: Path, given: str) -> None:
    assert patched(f, "a x b\n", "x", given) == f"a {given} b\n".encode()  # C068
    assert patched(f, f"a {given} b\n", given, "x") == b"a x b\n"
    file_write(f, given)
    assert f.read_bytes() == given.encode()


@pytest.mark.slow
def test_a_long_foreign_text_is_searched_quickly(f: Path) -> None:
    put(f, "这是一行文字，没有别的。\n" * 100_000 + "a\u00a0b\n")
    begin = time.monotonic()
    with pytest.raises(ToolError, match=r"line 100001 has .*U\+00A0"):
        file_patch(f, "a b", "c")
    assert time.monotonic() - begin < 15  # C067


def test_half_a_surrogate_pair_is_refused(f: Path) -> None:
    assert "surrogate" in refused(f, "x\n", "x", "\ud83d")
    with pytest.raises(ToolError, match="surrogate"):
        file_write(f, "\udce9")
    assert f.read_text() == "x\n"  # C068


# exact or not at all


@pytest.mark.parametrize(
    "data, old, named",
    [
        ("one\nlet a\u00a0b\n", "let a b", ["U+00A0", "U+0020", "line 2"]),
        ("say \u201chi\u201d\n", 'say "hi"', ["U+201C", "U+201D", "U+0022", "line 1"]),
        ("a\u00a0b\nit\u2019s\n", "a b\nit's", ["U+00A0", "line 1", "U+2019", "line 2"]),
        ('x = "y"\n', "x = \u201cy\u201d", ["U+201C", "U+0022", "line 1"]),
        ("\n\n1 \u2013 2\n", "1 - 2", ["U+2013", "U+002D", "line 3"]),
        ("if x:\n\treturn 1\n", "if x:\n return 1", ["U+0009", "line 2"]),
        ("wait\u2026\n", "wait...", ["U+2026", "line 1"]),
        ("caf\u00e9\n", "cafe\u0301", ["U+00E9", "line 1"]),
        ("cafe\u0301\n", "caf\u00e9", ["U+00E9", "U+0301", "line 1"]),
        ("a\u200bb = 1\n", "ab = 1", ["U+200B", "line 1"]),
        ("ab = 1\n", "a\u200bb = 1", ["U+200B", "line 1"]),
        ("x\nab", "ab\u200b", ["U+200B", "line 2"]),
        ("x\n\u2026y\n", "..y", ["U+2026", "line 2"]),
        ("a\nb\n", "a\rb", ["U+000D", "U+000A", "line 1"]),
        ("\u0441ode = 1\n", "code = 1", ["U+0441", "U+0063", "line 1"]),
        ("x\uff08y\uff09\n", "x(y)", ["U+FF08", "line 1"]),
        ("a\u3000b\u2003c\n", "a b c", ["U+3000", "U+2003", "line 1"]),
        ("a\u00a0b\r\nc\r\n", "a b\nc", ["U+00A0", "line 1"]),
    ],
)
def test_a_look_alike_is_named_with_code_points_and_line(f: Path, data: str, old: str, named: list[str]) -> None:
    msg = refused(f, data, old)  # C067
    assert [name for name in named if name not in msg] == []


@pytest.mark.parametrize(
    "data, old, shown",
    [
        ("def alpha(2):\n    pass\n", "alpha(9)", "1|def alpha(2):"),
        ("| apple | 1 |\n| pear | 2 |\n", "| pear | 3 |", "2|| pear | 2 |"),
        ("def f():\r\n    return 1\r\n", "def f():\nreturn 1", "2|    return 1"),
        ("if x:\n        go()\n", "if x:\n    go()", "2|        go()"),
        ("class A:\n    def go(self):\n        return 1\n", "def go(self):\n    return 1\n", "2|    def go(self):"),
        ("def f():\n    a = 1\n    b = 2\n", "def f():\n    a = 1\n    b = 3\n", "3|    b = 2"),
        ("x\n" * 30_000 + "value = compute(1)\n", "value = compute(2)", "30001|value = compute(1)"),
        ("Hello World\n", "hello world", "1|Hello World"),
        ("a\x0cb\x85c\u2028d\nneedle = 1\n", "needle = 2", "2|needle = 1"),
        ("foo(a,  b)\n", "foo(a, b)", "1|foo(a,  b)"),
        ("last line here", "last line here\n", "1|last line here"),
    ],
)
def test_nothing_but_an_exact_match_is_patched_and_the_nearest_lines_are_shown(
    f: Path, data: str, old: str, shown: str
) -> None:
    msg = refused(f, data, old)  # C070 C071 C073
    assert "not in the file" in msg and shown in msg


def test_the_error_for_huge_lines_and_texts_is_quick_and_short(f: Path) -> None:
    begin = time.monotonic()
    msg = refused(f, "ab" * 500_000 + "\n" + "some words in here\n" * 50_000, "cd" * 5000 + "\nsome words")
    assert time.monotonic() - begin < 10 and len(msg) < 5000  # C073


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_several_matches_are_refused_with_all_their_lines(f: Path, ending: str) -> None:
    data = ending.join(["go()" if n % 3 == 0 else f"line {n}" for n in range(1, 80)])
    msg = refused(f, data, "go()")  # C073
    assert "26 times" in msg and all(f" {n}" in msg for n in range(3, 79, 3))
    assert "2 times" in refused(f, "aaa", "aa")
    assert "lines 1, 2" in refused(f, f"x{ending}x{ending}", "x\n")
    assert "lines 1, 3" in refused(f, f"a{ending}b{ending}a{ending}b{ending}", "a\nb")


def test_every_match_of_something_very_common_is_counted_without_a_flood(f: Path) -> None:
    msg = refused(f, "x\n" * 100_000, "x")
    assert "100000 times" in msg and len(msg) < 3000  # C073


def test_line_numbers_are_the_same_in_reading_patching_and_inserting(f: Path) -> None:
    put(f, "a\x0cb\x0b\n\u2028x\x85\nneedle\nneedle\n")
    assert "3|needle\n4|needle" in file_read(f)  # C073
    with pytest.raises(ToolError, match="lines 3, 4"):
        file_patch(f, "needle", "x")
    assert expand_file_refs("{{file:f.txt:3:3}}", f.parent) == "needle"
    assert "line 3" in file_patch(f, "needle\nneedle\n", "needle\npin\n")["msg"]


@pytest.mark.parametrize("old, new", [("", "x"), ("x", "x")])
def test_a_patch_without_an_edit_is_refused(f: Path, old: str, new: str) -> None:
    refused(f, "x\n", old, new)  # C070


@pytest.mark.slow
def test_patching_a_large_file_is_quick(f: Path) -> None:
    put(f, "some line of text\r\n" * 1_000_000 + "needle\r\n")
    begin = time.monotonic()
    file_patch(f, "text\nneedle\n", "text\npin\n")
    assert time.monotonic() - begin < 10
    assert f.read_bytes().endswith(b"text\r\npin\r\n")  # C061


# several writers

PATCHER = """
import sys, time
from pathlib import Path
from genericagent.tools import files
read, path, ready = files._read, Path(sys.argv[1]), Path(sys.argv[3])
def slow(p):
    data = read(p)
    time.sleep(0.2)
    return data
files._read = slow
ready.touch()
while not Path(sys.argv[4]).exists(): time.sleep(0.005)
files.file_patch(path, sys.argv[2], sys.argv[2].upper())
"""


def test_two_threads_on_one_file_keep_both_edits(f: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"line {chr(97 + n)}" for n in range(8)]
    put(f, "\n".join(lines))
    link = f.with_name("link")
    link.symlink_to(f)
    read = files._read

    def slow(path: Path) -> bytes:
        data = read(path)
        time.sleep(0.02)
        return data

    monkeypatch.setattr(files, "_read", slow)
    work = [
        threading.Thread(target=file_patch, args=(link if n % 2 else f, line, line.upper()))
        for n, line in enumerate(lines)
    ]
    work += [threading.Thread(target=file_write, args=(f, "\nmore", "append")) for _ in range(2)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(60)
    assert f.read_text() == "\n".join(lines).upper() + "\nmore" * 2  # C074


def test_two_processes_on_one_file_keep_both_edits(f: Path, tmp_path: Path) -> None:
    put(f, "alpha\nbeta\ngamma\n")
    hard, go = tmp_path / "hard", tmp_path / "go"
    os.link(f, hard)
    started = []
    for n, (path, word) in enumerate([(f, "alpha"), (hard, "gamma")]):
        command = [sys.executable, "-c", PATCHER, str(path), word, str(tmp_path / f"ready{n}"), str(go)]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True))
    deadline = time.monotonic() + 60
    while not all((tmp_path / f"ready{n}").exists() for n in range(2)) and time.monotonic() < deadline:
        time.sleep(0.01)
    go.touch()
    ended = [p.communicate(timeout=30)[1] for p in started]
    assert f.read_text() == "ALPHA\nbeta\nGAMMA\n", ended  # C074


def test_a_change_from_outside_between_reading_and_writing_is_not_lost(
    f: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f, "a\nb\n")
    read, first = files._read, [True]

    def meanwhile(path: Path) -> bytes:
        data = read(path)
        if first:
            first.clear()
            put(path, "a\nB\n")
        return data

    monkeypatch.setattr(files, "_read", meanwhile)
    file_patch(f, "a", "A")
    assert f.read_text() == "A\nB\n"  # C074


# modes and links


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o644, 0o775, 0o444])
def test_mode_bits_survive_patching_and_writing(f: Path, mode: int) -> None:
    put(f, "#!/bin/sh\necho a\n").chmod(mode)
    file_patch(f, "echo a", "echo b")
    assert f.stat().st_mode & 0o7777 == mode  # C076
    file_write(f, "#!/bin/sh\n")
    file_write(f, "echo c\n", "append")
    assert f.stat().st_mode & 0o7777 == mode and f.read_text() == "#!/bin/sh\necho c\n"


@pytest.mark.skipif(not ROOT_USER, reason="only root can give files away")
def test_the_owner_survives(f: Path) -> None:
    put(f, "a\n")
    os.chown(f, 12345, 23456)
    file_patch(f, "a", "b")
    assert (f.stat().st_uid, f.stat().st_gid) == (12345, 23456)  # C076


def test_a_link_stays_a_link_and_its_target_is_changed(tmp_path: Path) -> None:
    real = put(tmp_path / "real.txt", "a\n")
    (tmp_path / "sub").mkdir()
    link, chain = tmp_path / "sub" / "link", tmp_path / "chain"
    link.symlink_to("../real.txt")
    chain.symlink_to("sub/link")
    file_patch(link, "a", "b")
    file_patch(chain, "b", "c")
    file_write(chain, "d\n", "append")
    assert link.is_symlink() and chain.is_symlink() and os.readlink(link) == "../real.txt"  # noqa: PTH115
    assert real.read_text() == "c\nd\n" and not real.is_symlink()  # C077
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chain", "real.txt", "sub"]


def test_links_to_nothing_or_to_themselves_are_errors(tmp_path: Path) -> None:
    link, loop = tmp_path / "link", tmp_path / "loop"
    link.symlink_to("nowhere")
    loop.symlink_to("loop")
    for path in (link, loop):
        for action in (
            lambda p: file_patch(p, "a", "b"), lambda p: file_write(p, "x"), lambda p: file_write(p, "x", "append"), file_read,
        ):  # fmt: skip
            with pytest.raises(ToolError):
                action(path)
    with pytest.raises(ToolError, match="symbolic link to nothing: nowhere"):
        file_patch(link, "a", "b")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "loop"]  # C077


def test_all_names_of_a_file_show_the_edit(f: Path) -> None:
    other = f.with_name("other")
    os.link(put(f, "long line here\n"), other)
    file_patch(f, "long line here", "a")
    assert other.read_text() == "a\n" and f.stat().st_nlink == 2  # C077


# what is no text file


def test_empty_and_nearly_empty_files(f: Path) -> None:
    put(f, b"")
    assert file_read(f) == "[FILE] 0 lines\n(empty)"  # C079
    assert "not in it" in file_read(f, keyword="x")
    assert "not in the file" in refused(f, b"", "x")
    file_write(f, "a\n", "append")
    assert f.read_text() == "a\n"
    put(f, b"")
    file_write(f, "b\n", "prepend")
    assert f.read_text() == "b\n"
    put(f, b"\n")
    assert file_read(f) == "[FILE] 1 lines\n1|"
    assert patched(f, b"\n", "\n", "x\n") == b"x\n"
    file_write(f, "")
    assert f.read_bytes() == b""
    put(f, b"\r\n")
    file_write(f, "a\n", "append")
    assert f.read_bytes() == b"\r\na\r\n"
    assert file_read(f, start=5) == "[FILE] 2 lines\n(there is no line 5)"
    assert file_read(put(f, "no end"), start=1) == "[FILE] 1 lines\n1|no end"


def test_appending_creates_what_is_not_there(tmp_path: Path) -> None:
    for mode in ("append", "prepend", "overwrite"):
        file_write(tmp_path / "new" / mode / "f", "a\n", mode)
        assert (tmp_path / "new" / mode / "f").read_text() == "a\n"  # C079


def test_a_missing_file_names_close_ones(tmp_path: Path) -> None:
    for name in ("config.yaml", "README.md", "main.py"):
        (tmp_path / name).touch()
    for asked, there in (("confg.yml", "config.yaml"), ("readme.MD", "README.md"), ("Main.py", "main.py")):
        for action in (file_read, lambda p: file_patch(p, "a", "b")):
            with pytest.raises(ToolError, match="does not exist") as caught:
                action(tmp_path / asked)
            assert there in str(caught.value)  # C079
    with pytest.raises(ToolError, match="does not exist"):
        file_read(tmp_path / "zzzzzzzz")
    with pytest.raises(ToolError, match="folder .* does not exist"):
        file_read(tmp_path / "no" / "f")
    with pytest.raises(ToolError):
        file_read(tmp_path / "main.py" / "f")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["README.md", "config.yaml", "main.py"]


def test_a_folder_is_listed_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").touch()
    for action in (file_read, lambda p: file_write(p, "x"), lambda p: file_patch(p, "a", "b")):
        with pytest.raises(ToolError, match=r"folder with 2 entries: a\.txt, sub/"):
            action(tmp_path)  # C079


@pytest.mark.parametrize("kind", ["zero", "fifo", "socket"])
def test_devices_and_pipes_are_not_opened(tmp_path: Path, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "fifo":
        path = tmp_path / "pipe"
        os.mkfifo(path)
    if kind == "socket":
        import socket

        path = tmp_path / "s"
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    actions: list[Any] = [file_read, lambda p: file_patch(p, "a", "b"), lambda p: file_write(p, "x")]
    actions += [lambda p: file_write(p, "x", "append"), lambda p: expand_file_refs(f"{{{{file:{p}:1:1}}}}", p.parent)]
    begin = time.monotonic()
    for action in actions:
        with pytest.raises(ToolError, match="no ordinary file"):
            action(path)
    assert time.monotonic() - begin < 5  # C079


@pytest.mark.skipif(ROOT_USER, reason="root reads everything")
def test_an_unreadable_file_is_one_clear_line(f: Path) -> None:
    put(f, "x\n").chmod(0)
    for action in (file_read, lambda p: file_patch(p, "x", "b"), lambda p: file_write(p, "x")):
        with pytest.raises(ToolError, match="Permission denied"):
            action(f)  # C079


def test_a_file_that_cannot_be_opened_is_one_clear_line(f: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(f, "x\n")

    def no(*args: Any, **how: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(f))

    monkeypatch.setattr(Path, "open", no)
    monkeypatch.setattr(Path, "read_bytes", no)
    for action in (file_read, lambda p: file_patch(p, "x", "b"), lambda p: file_write(p, "x")):
        with pytest.raises(ToolError, match="cannot read .*f.txt: Permission denied"):
            action(f)  # C079


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "d/" * 3000 + "f"])
def test_a_name_no_file_can_have_is_an_error_of_the_tool(tmp_path: Path, name: str) -> None:
    for action in (file_read, lambda p: file_patch(p, "x", "b"), lambda p: file_write(p, "x")):
        with pytest.raises(ToolError):
            action(tmp_path / name)  # C079


BINARIES = [
    (b"\x89PNG\r\n\x1a\n" + b"\0" * 100, "PNG image"), (b"\xff\xd8\xff\xe0" + noise(100_000), "JPEG image"),
    (b"PK\x03\x04" + noise(100_000), "zip archive"), (b"\x1f\x8b\x08" + noise(100), "gzip"), (b"%PDF-1.7\n%\xe2\xe3", "PDF"),
    (b"\x7fELF\x02\x01\x01\0", "ELF"), (b"SQLite format 3\0", "SQLite"), (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP"), (b"MZ\x90\0\3", "Windows"),
    (b"a\0b\0", "unknown"), (bytes(range(1, 9)) * 20, "unknown"), (b"BZh91AY&SY" + noise(50), "bzip2"),
    (b"\0" * 257 + b"ustar\0", "tar"), (b"\x28\xb5\x2f\xfd" + noise(50), "Zstandard"), (b"ID3\x03\0\0\0" + b"\0" * 20, "MP3"),
]  # fmt: skip


@pytest.mark.parametrize("data, kind", BINARIES)
def test_a_binary_file_is_told_by_type_and_size_only(f: Path, data: bytes, kind: str) -> None:
    shown = file_read(put(f, data))
    assert shown.startswith("[FILE] binary file: ") and kind in shown and f"{len(data)} bytes" in shown
    assert len(shown) < 100 and shown.isascii()  # C080
    msg = refused(f, data, "a")
    assert kind in msg and str(len(data)) in msg
    for mode in ("append", "prepend"):
        with pytest.raises(ToolError, match="binary"):
            file_write(f, "text", mode)
    assert f.read_bytes() == data
    file_write(f, "text\n")
    assert f.read_bytes() == b"text\n"


@pytest.mark.parametrize("text", [
    "MZ is a company\n", "SQLite is a database\n", "BZh\n", "GIF89 was a format\n", "RIFFs WEBPages\n", "PK\n", "7zip\n", "ID3 tags\n",
    "\x1b[31mred\x1b[0m\n", "a\x0cb\n", "%PDFs\n",
])  # fmt: skip
def test_text_that_begins_like_a_binary_file_is_text(f: Path, text: str) -> None:
    assert file_read(put(f, text)).startswith("[FILE] 1 lines\n1|")  # C080
    file_write(f, "more\n", "append")
    assert f.read_text() == text + "more\n"


# reading


def test_long_lines_are_clipped_with_a_note(f: Path) -> None:
    put(f, "a\n" + "x" * 3_000_000 + "\nb\n" + "y" * 30_000)
    shown = file_read(f)
    assert shown.startswith("[FILE] 4 lines\n1|a\n2|xxx") and "\n3|b\n4|yyy" in shown and len(shown) <= 20_000
    head = shown.split("\n")[2]
    count = head.count("x")
    assert head.endswith(f"… [{3_000_000 - count} more characters in this line]")  # C080
    assert "(1 more" not in shown and len(file_read(f, limit=500)) <= 500


def test_the_limit_is_kept_and_the_way_on_is_told(f: Path) -> None:
    put(f, "".join(f"this is line {n}\n" for n in range(1, 5001)))
    at, seen = 1, 0
    while True:
        shown = file_read(f, start=at, count=10**9, limit=20_000)
        assert len(shown) <= 20_000 and "[FILE] 5000 lines" in shown
        body = shown.split("\n")[1:]
        seen += sum("|this is line" in line for line in body)
        if "go on with start=" not in body[-1]:
            break
        at = int(body[-1].rsplit("start=", 1)[1].rstrip("]"))
    assert seen == 5000  # C080


def test_without_line_numbers_the_text_is_bare(f: Path) -> None:
    assert file_read(put(f, "a\n\tb\r\n c \n"), show_linenos=False) == "[FILE] 3 lines\na\n\tb\n c "


@pytest.mark.parametrize("start, count, lines", [
    (1, 3, [1, 2, 3]), (2, 1, [2]), (0, 1, [1]), (-7, 2, [1, 2]), (9, 5, [9, 10]), (10, 10**12, [10]), (1, 0, [1]), (11, 5, []), (10**9, 1, []),
])  # fmt: skip
def test_lines_start_and_end_where_asked(f: Path, start: int, count: int, lines: list[int]) -> None:
    put(f, "".join(f"line {n}\n" for n in range(1, 11)))
    shown = file_read(f, start, count)
    assert shown.startswith("[FILE] 10 lines\n")
    assert shown.split("\n")[1:] == [f"{n}|line {n}" for n in lines] or (
        not lines and shown.endswith(f"(there is no line {start})")
    )


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("final", [True, False])
def test_lines_are_counted_alike_however_little_is_shown(f: Path, ending: str, final: bool) -> None:
    put(f, ending.join(f"line {n}" for n in range(1, 11)) + ending * final)
    for count in (1, 9, 10, 11):
        assert file_read(f, count=count).startswith("[FILE] 10 lines\n1|line 1")
    assert file_read(f, start=4, count=1) == "[FILE] 10 lines\n4|line 4"


def test_a_keyword_is_shown_with_its_surroundings(f: Path) -> None:
    put(f, "".join(f"line {n}{' NEEDLE' if n in (50, 90) else ''}\n" for n in range(1, 101)))
    shown = file_read(f, keyword="needle")
    assert "\n50|line 50 NEEDLE\n51|" in shown and "\n30|line 30\n" in shown and "\n29|" not in shown
    for count in (1, 2, 5, 30):
        body = file_read(f, keyword="needle", count=count).split("\n")[1:]
        assert len(body) == count and any("50|line 50 NEEDLE" in line for line in body)
    shown = file_read(f, keyword="needle", start=50)
    assert "50|line 50 NEEDLE" in shown
    shown = file_read(f, keyword="needle", start=51)
    assert "90|line 90 NEEDLE" in shown and "50|" not in shown
    shown = file_read(f, keyword="needle", start=91)
    assert shown == "[FILE] 100 lines\n'needle' is not in it from line 91 on"
    assert "1|line 1\n" in file_read(f, keyword="line 1")
    assert "100|line 100" in file_read(f, keyword="line 100", limit=400)


@pytest.mark.parametrize("at", [0, 50_000, 1_048_570, 2_500_000])
def test_a_keyword_deep_in_a_long_line_is_seen(f: Path, at: int) -> None:
    put(f, "first\n" + "x" * at + "NEEDLE" + "y" * 100_000 + "\nlast\n")
    shown = file_read(f, keyword="needle")
    assert "NEEDLE" in shown and "1|first" in shown and len(shown) <= 20_000


SPARSE = """
import resource, sys
from genericagent.tools.files import file_read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
shown = file_read(sys.argv[1], count=3)
assert shown.startswith("[FILE] 200003+ lines\\n1|one\\n2|two\\n3|xxx"), shown
assert "1|one" in file_read(sys.argv[1], count=10**9)
assert "200003|some text" in file_read(sys.argv[1], start=200_003)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 50_000, f"{grown} KB"
"""


@pytest.mark.slow
def test_a_sparse_file_of_5_gb_is_read_with_flat_memory(f: Path) -> None:
    with f.open("wb") as file:
        file.write(b"one\ntwo\n" + b"x" * 80 + b"\n" + b"some text\n" * 200_000)
        file.truncate(5 << 30)
    begin = time.monotonic()
    command = [sys.executable, "-c", SPARSE, str(f)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr  # C080
    with pytest.raises(ToolError, match="too large"):
        file_patch(f, "one", "1")
    with pytest.raises(ToolError, match="too large"):
        file_write(f, "more", "append")
    with pytest.raises(ToolError, match="too large"):
        expand_file_refs("{{file:f.txt:1:1}}", f.parent)
    assert time.monotonic() - begin < 30
    file_write(f, "new\n")
    assert f.read_text() == "new\n"


def test_a_file_with_only_a_hole_is_binary_at_once(f: Path) -> None:
    with f.open("wb") as file:
        file.truncate(5 << 30)
    begin = time.monotonic()
    assert file_read(f) == f"[FILE] binary file: unknown type, {5 << 30} bytes"  # C080
    assert time.monotonic() - begin < 1


# content that comes with the reply


def test_lines_of_files_are_inserted(tmp_path: Path) -> None:
    put(tmp_path / "s.txt", "1\n2\n3\n4")
    put(tmp_path / "w.txt", "1\r\n2\r\n3\r\n")
    put(tmp_path / "g.txt", SIMPLIFIED.encode("gbk"))
    put(tmp_path / "b.txt", b"\xef\xbb\xbfone\n")
    expand = {
        "{{file:s.txt:2:3}}": "2\n3", "a\n{{file:s.txt:4:4}}\nb": "a\n4\nb", "{{file:w.txt:1:2}}!": "1\n2!", "{{file:b.txt:1:1}}": "one",
        "{{file:g.txt:1:1}}{{file:s.txt:1:1}}": SIMPLIFIED.split("\n")[0] + "1", f"{{{{file:{tmp_path}/s.txt:1:1}}}}": "1",
        "{{file:s.txt}} {{ file:x }} {{other}}": "{{file:s.txt}} {{ file:x }} {{other}}",
    }  # fmt: skip
    for given, wanted in expand.items():
        assert expand_file_refs(given, tmp_path) == wanted
    put(tmp_path / "r.txt", "{{file:s.txt:1:1}}\n")
    assert expand_file_refs("{{file:r.txt:1:1}}", tmp_path) == "{{file:s.txt:1:1}}"  # not over again


@pytest.mark.parametrize(
    "ref", ["s.txt:0:1", "s.txt:3:2", "s.txt:1:9", "none.txt:1:1", "~nobody-here/x:1:1", ".:1:1", "bad.txt:1:1", "s.png:1:1"]
)  # fmt: skip
def test_lines_that_are_not_there_stop_the_write(tmp_path: Path, ref: str) -> None:
    put(tmp_path / "s.txt", "1\n2\n3\n4")
    put(tmp_path / "bad.txt", "é中文\n".encode().replace(b"\n", b"\xff\n"))
    put(tmp_path / "s.png", b"\x89PNG\r\n\x1a\n\0\0")
    with pytest.raises(ToolError):
        expand_file_refs(f"x {{{{file:{ref}}}}}", tmp_path)


F3, F4, T3 = "```", "````", "~~~"
MARKDOWN = (
    f"# Title\n\n{F3}python\nprint(1)\n{F3}\n\ntext </file_content> in a line\n\n{F3}\nbare\n{F3}\n"
    f"{F3}bash\nls\n{F3}\n<file_content>\n</file_content>\nend\n"
)


@pytest.mark.parametrize(
    "reply, content",
    [
        (f"Here:\n<file_content>\n{MARKDOWN}</file_content>", MARKDOWN),
        (f"Here:\n<file_content>\n{MARKDOWN}</file_content>\nDone.", MARKDOWN),
        (f"<file_content>{MARKDOWN}</file_content>", MARKDOWN),
        ("<file_content>\na</file_content>", "a"),
        ("<file_content>\r\na\r\n</file_content>\r\n", "a\r\n"),
        ("<file_content>\n\n\na\n\n</file_content>", "\n\na\n\n"),
        ("I use `<file_content>` tags.\n<file_content>\nbody\n</file_content>", "body\n"),
        ("<file_content>\nbody\n</file_content>\nThe `</file_content>` tag ends it.", "body\n"),
        ("<file_content>\nx\n</file_content>\ny\n</file_content>\n", "x\n</file_content>\ny\n"),
        (
            "<file_content>\n<file_content>\nx\n</file_content>\n</file_content>\n",
            "<file_content>\nx\n</file_content>\n",
        ),
        ("<file_content>\nhalf", None),
        ("</file_content>\n<file_content>\nhalf", None),
        ("<file_content>\n</file_content>", None),
        ("<file_content></file_content>", None),
        ("<file_content>\nA\n</file_content>\nand\n<file_content>\nB\n</file_content>", None),
        (f"x\n{F3}\na\n{F3}\n", "a\n"),
        (f"x\n{F3}py\na\n{F3}\ny\n{F3}py\nb\n{F3}\nz", "b\n"),
        (f"{F4}markdown\n{MARKDOWN}{F4}\n", MARKDOWN),
        (f"{T3}\n{F3}\na\n{F3}\n{T3}\n", f"{F3}\na\n{F3}\n"),
        (f"{F3}markdown\n# T\n{F3}python\n1\n{F3}\nb\n{F3}\n", f"# T\n{F3}python\n1\n{F3}\nb\n"),
        (f"{F3}markdown\n# T\n{F3}\n1\n{F3}\nb\n{F3}\n", None),
        (f"{F3}md\na\n{F3}\nb\n{F3}\nc\n{F3}\nd\n{F3}\ne\n{F3}\n", None),
        (f"{F3}md\na\n{F3}\nb\n{F3}python\nc\n{F3}\n\n{F3}\nx\n{F3}\n", None),
        (f"{F3}\na\n", None),
        (f"{F3}\na\n{F3}\nthen\n{F3}\nb\n", None),
        (f"{F3}\n{F3}\n", None),
        ("no block at all", None),
        ("`inline ```code``` only`", None),
        (f"{F3}py\r\na\r\n{F3}\r\n", "a\r\n"),
        ("", None),
    ],
)
def test_content_is_what_was_between_the_marks_or_nothing(reply: str, content: str | None) -> None:
    assert extract_content(reply) == content  # C029


@pytest.mark.parametrize(
    "reply, script",
    [
        (f"{F3}python\na\n{F3}\n{F3}text\nb\n{F3}\n", "a\n"),
        (f"{F3}python\na\n{F3}\n{F3}py\nb\n{F3}\n", "b\n"),
        (f"{F3}Python title=x\na\n{F3}\n", "a\n"),
        (f"{F3}python\ns = '''\n{F3}bash\nls\n{F3}\n'''\n{F3}\n", f"s = '''\n{F3}bash\nls\n{F3}\n'''\n"),
        (f"{F4}python\n{F3}\nx\n{F3}\n{F4}\n", f"{F3}\nx\n{F3}\n"),
        (f"{F3}python\na\n{F3}\n{F3}python\nhalf", None),
        (f"{F3}bash\na\n{F3}\n", None),
        (f"{F3}\na\n{F3}\n", None),
        (f"{F3}python\n{F3}\n", None),
        ("", None),
    ],
)
def test_the_script_is_the_last_whole_block_of_its_language(reply: str, script: str | None) -> None:
    assert last_code_block(reply, ("python", "py")) == script  # C029
