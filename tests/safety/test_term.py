"""Nothing but visible text reaches the terminal. # C104"""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genericagent.safety.term import Stripper, clean, one_line, only_colours

ESC, ST, BEL = "\x1b", "\x1b\\", "\x07"

# Each is one whole sequence: between two words nothing of it may be left.
SEQUENCES = {
    "clipboard write": f"{ESC}]52;c;cm0gLXJmIH4K{BEL}",
    "clipboard write, ST": f"{ESC}]52;c;cm0gLXJmIH4K{ST}",
    "clipboard query": f"{ESC}]52;c;?{BEL}",
    "clipboard, 8 bit": "\x9d52;c;cm0=\x9c",
    "clipboard, 8 bit start, 7 bit end": f"\x9d52;c;cm0={ST}",
    "clipboard, 7 bit start, 8 bit end": f"{ESC}]52;c;cm0=\x9c",
    "title and icon": f"{ESC}]0;root@host{BEL}",
    "title": f"{ESC}]2;root@host{ST}",
    "title on the stack": f"{ESC}[22;0t",
    "title report": f"{ESC}[21t",
    "hyperlink start": f"{ESC}]8;;http://evil.example{ST}",
    "hyperlink with id": f"{ESC}]8;id=1;http://evil.example{BEL}",
    "hyperlink end": f"{ESC}]8;;{ST}",
    "palette": f"{ESC}]4;1;rgb:00/00/00{BEL}",
    "foreground colour query": f"{ESC}]10;?{BEL}",
    "working directory": f"{ESC}]7;file://host/{ST}",
    "notification": f"{ESC}]9;buy this{BEL}",
    "notification, urxvt": f"{ESC}]777;notify;a;b{BEL}",
    "shell integration": f"{ESC}]133;A{BEL}",
    "file transfer": f"{ESC}]1337;File=inline=1:AAAA{BEL}",
    "cancelled string": f"{ESC}]0;x\x18",
    "substituted string": f"{ESC}]0;x\x1a",
    "clear screen": f"{ESC}[2J",
    "clear scrollback": f"{ESC}[3J",
    "home": f"{ESC}[H",
    "cursor up": f"{ESC}[999A",
    "cursor to": f"{ESC}[1;1H",
    "erase line": f"{ESC}[2K",
    "alternate screen": f"{ESC}[?1049h",
    "bracketed paste off": f"{ESC}[?2004l",
    "mouse on": f"{ESC}[?1000;1006h",
    "hide cursor": f"{ESC}[?25l",
    "colour": f"{ESC}[31m",
    "hidden text": f"{ESC}[8m",
    "colour with colons": f"{ESC}[38:2::1:2:3m",
    "8 bit control sequence": "\x9b2J",
    "device attributes": f"{ESC}[c",
    "secondary attributes": f"{ESC}[>c",
    "cursor position report": f"{ESC}[6n",
    "terminal name": f"{ESC}[>q",
    "window resize": f"{ESC}[8;10;10t",
    "window minimise": f"{ESC}[2t",
    "scroll region": f"{ESC}[1;5r",
    "soft reset": f"{ESC}[!p",
    "cursor style": f"{ESC}[3 q",
    "repeat": f"{ESC}[500b",
    "printer on": f"{ESC}[5i",
    "keyboard protocol": f"{ESC}[>1u",
    "full reset": f"{ESC}c",
    "save cursor": f"{ESC}7",
    "reverse index": f"{ESC}M",
    "identify": f"{ESC}Z",
    "keypad": f"{ESC}=",
    "line drawing": f"{ESC}(0",
    "alignment test": f"{ESC}#8",
    "encoding": f"{ESC}%G",
    "8 bit controls on": f"{ESC} G",
    "device control": f"{ESC}P+q544e{ST}",
    "sixel": f"{ESC}Pq#0;2;0;0;0#0~~@@vv{ST}",
    "device control, 8 bit": "\x90$qm\x9c",
    "application command": f"{ESC}_Gf=100,a=T;AAAA{ST}",
    "application command, 8 bit": "\x9fx\x9c",
    "privacy message": f"{ESC}^x{ST}",
    "start of string": f"{ESC}Xx{ST}",
    "privacy message, 8 bit": "\x9ex\x9c",
    "window name of tmux and screen": f"{ESC}kroot{ST}",
    "enquiry": "\x05",
    "bell": BEL,
    "backspace": "\x08",
    "delete": "\x7f",
    "null": "\x00",
    "shift out": "\x0e",
    "shift in": "\x0f",
    "index, 8 bit": "\x84",
    "single shift, 8 bit": "\x8e",
}


def is_visible(text: str) -> bool:
    return all(c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") for c in text) and not re.search(
        "[\u202a-\u202e\u2066-\u2069]", text
    )


@pytest.mark.parametrize("name", SEQUENCES)
def test_escape_sequence_reaches_the_terminal(name: str) -> None:  # C104
    text = f"before{SEQUENCES[name]}after"
    assert clean(text) == "beforeafter"


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_cut_between_two_deltas_reaches_the_terminal(name: str) -> None:  # C104
    text = f"before{SEQUENCES[name]}after"
    for cut in range(len(text) + 1):
        stripper = Stripper()
        assert stripper.feed(text[:cut]) + stripper.feed(text[cut:]) + stripper.flush() == "beforeafter"
    one_by_one = Stripper()
    assert "".join(map(one_by_one.feed, text)) + one_by_one.flush() == "beforeafter"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b", "a"),
        ("a\x1b[", "a"),
        ("a\x1b[31", "a"),
        ("a\x1b(", "a"),
        ("a\x1b\x1b\x1b[31mb", "ab"),
        ("a\x1b]0;never ended", "a0;never ended"),
        ("\x1b]0;x\nthe next line", "0;x\nthe next line"),
        ("\x1b]" + "y" * 9000 + "\x07end", "y" * 9000 + "end"),
        ("\x1bP\x1b]52;c;AA\x07\x1b\\b", "b"),
        ("\x1bé", "é"),
        ("rm -rf ~\recho hello", "rm -rf ~\necho hello"),
        ("a\r\nb", "a\nb"),
        ("a\x0bb\x0cc\x85d\u2028e", "a\nb\nc\nd\ne"),
        ("if admin\u202e\u2066 // nobody", "if admin[U+202E][U+2066] // nobody"),
        ("name\udc9b2J.txt", "name\ufffd2J.txt"),
        ("tab\tand\nline 世界 👩‍👩‍👧 é", "tab\tand\nline 世界 👩‍👩‍👧 é"),
    ],
)
def test_broken_or_hidden_text(text: str, shown: str) -> None:  # C104
    assert clean(text) == shown


def test_an_unended_string_hides_the_rest_of_a_stream_for_ever() -> None:  # C104
    stripper = Stripper()
    shown = stripper.feed("\x1b]0;") + stripper.feed("x" * 3000) + stripper.feed("y" * 3000)
    assert len(shown) > 4000
    assert stripper.feed("\nplain") == "\nplain"


@given(st.lists(st.text(st.sampled_from("\x1b\x9b\x9d\x07\x18[]PX^_\\;?0123mHJ(# q\r\na世\u202e\udc9b"), max_size=9)))
def test_any_mixture_and_any_cut_leaves_visible_text(pieces: list[str]) -> None:  # C104
    stripper = Stripper()
    streamed = "".join(map(stripper.feed, pieces)) + stripper.flush()
    assert is_visible(streamed)
    assert streamed == clean("".join(pieces))


def test_only_the_renderers_own_colours_pass() -> None:  # C104
    assert only_colours("\x1b[1;31mred\x1b[0m \x1b[2J\x1b]0;t\x07\u202e!") == "\x1b[1;31mred\x1b[0m [U+202E]!"


def test_name_with_line_feeds_or_a_megabyte_breaks_the_line() -> None:
    assert one_line("a\nb\x1b[2J\tc") == "a b c"
    assert one_line("x" * 1_000_000, 20) == "x" * 19 + "…"


def test_a_mark_of_a_direction_turns_a_name_around() -> None:
    assert one_line("exe.\u200ftxt\u061c \u200e\u202e") == "exe.[U+200F]txt[U+061C] [U+200E][U+202E]"
    assert clean("שלום\u200f!") == "שלום\u200f!"


def test_clean_text_costs_one_scan() -> None:
    text, stripper = "line of ordinary output, 50 per cent done\n" * 250_000, Stripper()
    start = time.perf_counter()
    assert stripper.feed(text) is not None
    assert time.perf_counter() - start < 2  # 10 MB: some 20 ms; the bound is for hangs


@pytest.mark.parametrize("evil", ["\x1b]", "\x1b[1;", "\x1b", "\x9d", "\x1b[", "\x1b]0;x"])
def test_a_flood_of_broken_sequences_hangs(evil: str) -> None:
    start = time.perf_counter()
    assert is_visible(clean(evil * 100_000))
    assert time.perf_counter() - start < 10
