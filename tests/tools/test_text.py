"""Text for a model or a screen: no control sequence gets through, cuts are honest, and no input makes it slow."""

from __future__ import annotations

import time

import pytest

from genericagent.tools.text import smart_format, strip_controls


@pytest.mark.parametrize(
    "raw, seen",
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hclean", "clean"),
        ("\x1b[?1049h\x1b[?25lfull\x1b[?25h", "full"),
        ("\x1b[38:2::1:2:3mcolour", "colour"),
        ("\x1b]0;new title\x07after", "after"),
        ("\x1b]52;c;cm0gLXJmIC8=\x1b\\after", "after"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP$qm\x1b\\dcs", "dcs"),
        ("\x1b_Ga=T;AAAA\x1b\\apc", "apc"),
        ("\x1b^pm\x1b\\x\x1bXsos\x1b\\y", "xy"),
        ("\x1b[c\x1b[6n\x1b[>c\x1bZreports", "reports"),
        ("\x1bc\x1b7\x1b8\x1b=\x1b>\x1b(Breset", "reset"),
        ("\x9b31mred\x9b0m", "red"),
        ("\x9d52;c;AAAA\x9cafter", "after"),
        ("\x9d0;title\x07after", "after"),
        ("\x90q#0\x9cafter", "after"),
        ("a\x00b\x07c\x0bd\x0ce\x7ff\x85g", "abcdefg"),
        ("\x1b\x1b[31mx", "x"),
        ("\x1b[\x1b]52;c;AAAA\x07x", "x"),
        ("\x1b]52;c;\x1b]0;t\x07AAAA\x07x", "AAAAx"),
        ("end\x1b", "end"),
        ("end\x1b[", "end"),
        ("end\x1b[31", "end"),
        ("tab\tstays\n", "tab\tstays\n"),
        ("ünï 中文 🙂\n", "ünï 中文 🙂\n"),
    ],
)
def test_a_control_sequence_in_output_drives_the_terminal(raw: str, seen: str) -> None:  # C104
    assert strip_controls(raw) == seen


def test_an_unfinished_sequence_swallows_the_lines_after_it() -> None:  # C104
    assert strip_controls("one\x1b]0;title\ntwo\nthree\n") == "one\ntwo\nthree\n"
    assert strip_controls("one\x9dtitle\ntwo\n") == "one\ntwo\n"


@pytest.mark.parametrize(
    "raw, seen",
    [
        ("a\r\nb\r\n", "a\nb\n"),
        ("a\r\r\nb", "a\nb"),
        ("10%\r50%\r100%\ndone\n", "100%\ndone\n"),
        ("10%\r50%\r", "50%"),
        ("10%\r\x1b[K100%\r\n", "100%\n"),
        ("first\n1\r2\r3", "first\n3"),
        ("N\bNA\bAM\bM", "NAM"),
        ("spin |\b/\b-\b done", "spin  done"),
        ("\b\bx\n\by", "x\ny"),
    ],
)
def test_a_line_that_is_drawn_again_is_shown_many_times(raw: str, seen: str) -> None:
    assert strip_controls(raw) == seen


@pytest.mark.parametrize(
    "raw",
    [
        "x" * 200_000 + "\na\rb",
        "\r" * 200_000,
        "a\r" * 100_000,
        "\x9d" * 200_000,
        "\x1b]" * 100_000,
        "\x1b[" + "1;" * 100_000,
        "\x1b" + " " * 200_000,
        "a\b" * 100_000,
    ],
    ids=["long line", "returns", "redraws", "c1", "osc", "csi", "escape", "backspaces"],
)
def test_a_hostile_output_takes_seconds_to_clean(raw: str) -> None:
    start = time.monotonic()
    out = strip_controls(raw)
    assert time.monotonic() - start < 2
    assert not set(out) & set("\r\x1b\x9d\b")


@pytest.mark.parametrize("limit", [0, 1, 2, 9, 10, 99, 100, 1000])
def test_a_cut_text_is_longer_than_its_limit_or_its_count_is_wrong(limit: int) -> None:
    text = "".join(f"line {n}\n" for n in range(40))
    out = smart_format(text, limit)
    if limit >= len(text):
        assert out == text
        return
    head, rest = out.split("\n… ", 1)
    count, tail = rest.split(" characters left out …\n", 1)
    assert len(head) + len(tail) <= limit + 1
    assert text.startswith(head) and text.endswith(tail)
    assert len(head) + len(tail) + int(count) == len(text)
