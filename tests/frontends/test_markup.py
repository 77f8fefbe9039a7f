"""Markdown in messages of a limited size: nothing lost, nothing cut in two, nothing that a messenger refuses."""

from __future__ import annotations

import re
from html import unescape

import pytest
from fakegram import plain_of
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("markdown_it")
from genericagent.faces.markup import fenced, literal, parts, plain_parts, size  # noqa: E402
from genericagent.safety.term import clean  # noqa: E402

FAMILY = "👨‍👩‍👧‍👦"
SNIPPETS = st.lists(
    st.sampled_from([
        "# Head\n\n", "**bold *both* `code`** ", "[a link](https://example.org/?a=1&b=2) ", "[bad](javascript:alert(1)) ", "> quote\n> more\n\n", "- one\n  - two\n\n    para\n\n",
        "1. first\n2. second\n\n", "| a | b |\n|---|---|\n| 1 < 2 | `x` |\n\n", "```python\nif a < b & c:\n    pass\n```\n\n", "```\n" + "line & <tag>\n" * 30 + "```\n\n", "~~gone~~ ",
        "<b>html</b> <script>x</script> ", "&amp; &lt; ", FAMILY, "🇩🇪🇫🇷", "👍🏽", "e\u0301", "_*[]()~`>#+-=|{}.! ", "word " * 40, "a" * 300 + "\n", "![pic](http://x/y.png) ", "---\n\n", "`` a`b `` ", "**open ", "\n\n",
    ]), max_size=30,
)  # fmt: skip


@given(SNIPPETS, st.integers(60, 500))
def test_no_messenger_refuses_a_part_and_every_word_is_there_once_in_order(
    snippets: list[str], limit: int
) -> None:  # C109 C110
    text = "".join(snippets)
    found = parts(text, limit)
    for part in found:
        assert size(part.html) <= limit and part.plain.strip()
        assert plain_of({"text": part.html, "parse_mode": "HTML"}) == part.plain
    whole = "".join(part.plain for part in parts(text, 10**9))
    assert re.sub(r"\s", "", "".join(part.plain for part in found)) == re.sub(r"\s", "", whole)


@pytest.mark.parametrize(
    "where", ["{}", "`{}`", "**{}**", "[{}](https://a.b)", "| {} |\n|---|\n| {} |", "```\n{}\n```"]
)
@pytest.mark.parametrize("sign", ["\u202e", "&#x202e;", "&#8238;", "\u2066", "&#x1b;[31m", "\x1b[31m"])
def test_no_sign_that_reorders_or_colours_what_follows_gets_into_a_message(where: str, sign: str) -> None:
    for part in parts(where.format(sign + "exe.txt", "x"), 500):
        assert not re.search("[\x1b\u202a-\u202e\u2066-\u2069]", part.plain + unescape(part.html))


def test_what_is_measured_is_the_message_as_it_is_sent() -> None:  # C109
    for text in ("_*[]" * 1000, "<&>" * 1300, "| **a** | b |\n|---|---|\n" + "| **x** | <y> |\n" * 300):
        found = parts(text, 4096)
        assert len(found) > 1 and all(size(part.html) <= 4096 for part in found)


@pytest.mark.parametrize(
    "sign", [FAMILY, "🇩🇪", "👍🏽", "e\u0301\u0302", "1\ufe0f\u20e3", "🏴\U000e0067\U000e0062\U000e007f"]
)
@pytest.mark.parametrize("before", range(4090, 4098))
def test_a_sign_of_several_code_points_is_never_cut(sign: str, before: int) -> None:  # C110
    found = plain_parts("x" * before + sign * 3, 4096)
    assert "".join(part.plain for part in found) == "x" * before + sign * 3
    assert all(part.plain.replace("x", "") == sign * (len(part.plain.replace("x", "")) // len(sign)) for part in found)


def test_bold_over_the_border_is_closed_and_opened_again() -> None:  # C110
    found = parts("**" + "word " * 2000 + "end**", 4096)
    assert len(found) == 3 and all(part.html.startswith("<b>") and part.html.endswith("</b>") for part in found)


def test_a_block_of_code_that_fits_is_in_one_message_and_a_longer_one_is_cut_between_lines() -> None:
    code = "\n".join(f"line {n} < {n}" for n in range(100))
    found = parts("intro " * 500 + "\n\n" + fenced(code, "python") + "\n\nafter", 4096)
    assert [part.html.count("<pre>") for part in found] == [0, 1] and code in found[1].plain
    found = parts(fenced("\n".join(f"line {n}" for n in range(2000)), "python"), 4096)
    assert all(
        part.html.startswith('<pre><code class="language-python">line ')
        and re.search(r"line \d+</code></pre>$", part.html)
        for part in found
    )
    assert "\n".join(part.plain for part in found) == "\n".join(f"line {n}" for n in range(2000))


def test_only_harmless_addresses_become_links() -> None:
    text = '[a](https://ok.example) [b](javascript:alert(1)) [c](data:text/html,x) [d](tg://user?id=1) [e](file:///etc/passwd) [f](<https://x.example/"onclick=>)'
    html = parts(text, 4096)[0].html
    assert (
        re.findall(r'href="(\w+):', html) == ["https", "tg", "https"]
        and "onclick" in unescape(html)
        and '"onclick' not in html
    )


def test_html_of_a_model_is_text() -> None:
    found = parts("<b>x</b> <script>alert(1)</script>\n\n<div>block</div>", 4096)
    assert (
        "<script>" not in found[0].html and found[0].plain == "<b>x</b> <script>alert(1)</script>\n\n<div>block</div>"
    )


@given(st.text(max_size=200))
def test_literal_and_fenced_show_what_is_there(text: str) -> None:
    text = re.sub(r"[\x00-\x1f\x7f\ufffd\s]", "", text).strip("&;")
    shown = "".join(part.plain for part in parts(f"x{literal(text)}x", 10**6))
    assert shown == clean(f"x{unescape(text)}x") or "&" in text
    assert "".join(part.plain for part in parts(fenced(text), 10**6)) == clean(text)


def test_nothing_to_say_is_no_message() -> None:
    assert [parts(text, 4096) for text in ("", " \n ", "\u200b\n")][:2] == [[], []]


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("see [a][1]\n\n[1]: https://x.org/y", ["[1]:", "https://x.org/y"]),
        ("- ```\n  x = 1\n  ```\n- b", ["•", "x = 1", "b"]),
        ("| [t](https://x.org) | <https://y.org> |\n|--|--|\n| a | b |", ["https://x.org", "https://y.org"]),
        ("[](https://x.org)", ["https://x.org"]),
        ("> " * 90 + "deep", ["deep"]),
        ("- " * 90 + "deep", ["deep"]),
        ("> " * 3000 + "deep", ["deep"]),
    ],
)
def test_no_text_is_lost_by_its_markup(markdown: str, words: list[str]) -> None:
    found = parts(markdown, 4096)
    text = "\n".join(part.plain + part.html for part in found)
    assert all(word in text for word in words)


def test_an_items_mark_stands_before_its_code() -> None:
    assert [part.html for part in parts("- ```\n  x\n  ```\n- b", 4096)] == ["• \n<pre>x</pre>\n• b"]
