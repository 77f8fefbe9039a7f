"""What is typed, pasted, dropped, completed, and what of it is sent."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import compress, crc32

import pytest
from fake_agent import FakeAgent

from genericagent import prompts
from genericagent.cli import completion, composer
from genericagent.cli.completion import FILE, Files, offers, rank, walk
from genericagent.cli.composer import Composer, Shell, dropped, history
from genericagent.cli.render import Piece, View

TEXTS = prompts.catalog("chat")
LONG = "\n".join(f"line {n}" for n in range(200))


def png(path: Path, side: int = 4) -> Path:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc32(name + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", compress((b"\0" + b"\xff" * side) * side))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + pixels + chunk(b"IEND", b""))
    return path


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def typed(tmp_path: Path) -> Composer:
    return Composer(prompts.catalog("chat"), lambda: tmp_path)


# pastes


def test_a_long_paste_is_sent_cut(typed: Composer, told: list[str]) -> None:
    mark = typed.pasted(LONG, told.append)
    assert mark == "[Pasted text #1 +200 lines]"
    assert typed.pasted("x" * 1001, told.append) == "[Pasted text #2 +1 lines]"
    assert typed.message(f"see {mark}, then [Pasted text #2 +1 lines].") == (f"see {LONG}, then {'x' * 1001}.", [])
    assert typed.pasted("a\n" * 10, told.append) == "a\n" * 10 and typed.pasted("x" * 1000, told.append) == "x" * 1000


def test_a_paste_whose_mark_was_edited_is_sent_all_the_same(typed: Composer, told: list[str]) -> None:
    mark = typed.pasted(LONG, told.append)
    assert typed.message(mark[:-1])[0] == mark[:-1]
    assert typed.message(mark.replace("200", "20"))[0] == "[Pasted text #1 +20 lines]"
    assert typed.message("never pasted: [Pasted text #7 +3 lines]")[0] == "never pasted: [Pasted text #7 +3 lines]"


def test_a_mark_inside_of_a_paste_brings_another_paste(typed: Composer, told: list[str], tmp_path: Path) -> None:
    first = typed.pasted(LONG, told.append)
    image = typed.pasted(str(png(tmp_path / "a.png")), told.append)
    short = typed.pasted(f"quoted {first} {image} @a.png [Pasted text #9 +1 lines]", told.append)
    assert short == "[Pasted text #2 +1 lines]"  # short, but as a paste of its own it isn't looked into
    assert typed.message(short) == (f"quoted {first} {image} @a.png [Pasted text #9 +1 lines]", [])


def test_escape_codes_of_a_paste_reach_the_screen_or_the_model(typed: Composer, told: list[str]) -> None:
    assert typed.pasted("a\x1b]52;c;cm0=\x07b\x1b[2Jc\x9b2Jd\x07\r\ne\u202ef", told.append) == "abcd\ne[U+202E]f"
    mark = typed.pasted("\x1b[2J" + LONG, told.append)
    assert typed.message(mark)[0] == LONG


# pictures and files


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("{}/a.png", ["a.png"]),
        ("'{}/a b.png'", ["a b.png"]),
        ('"{}/a b.png" {}/a.png', ["a b.png", "a.png"]),
        ("{}/a\\ b.png {}/a.png ", ["a b.png", "a.png"]),
        ("{}/a b.png\n{}/a.png\n", ["a b.png", "a.png"]),
        ("file://{}/a%20b.png", ["a b.png"]),
        ("file://localhost{}/a.png", ["a.png"]),
        ("{}/图.png", ["图.png"]),
        ("{}/a.png {}/text.txt", ["a.png", "text.txt"]),
        ("{}/missing.png", []),
        ("{}/a.png is my picture", []),
        ("a.png", []),
        ("", []),
        ("'", []),
        ("\\", []),
        ("/\0", []),
        ("~nobody-of-that-name/a.png", []),
        ("/" * 9000, []),
    ],
)
def test_a_dropped_path_is_not_understood(tmp_path: Path, written: str, names: list[str]) -> None:
    for name in ("a.png", "a b.png", "图.png", "text.txt"):
        png(tmp_path / name)
    assert [path.name for _, path in dropped(written.replace("{}", str(tmp_path)))] == names


def test_a_picture_is_lost_on_the_way(typed: Composer, told: list[str], tmp_path: Path) -> None:
    one, two, text = png(tmp_path / "a b.png"), png(tmp_path / "c.png"), tmp_path / "d.txt"
    text.write_text("text")
    assert typed.pasted(f"'{one}' {two} {text}", told.append) == f"[Image #1] [Image #2] {text}"
    assert typed.message("[Image #2] before [Image #1], [Image #2]!") == (
        f"[Image #2] ({two}) before [Image #1] ({one}), [Image #2] ({two})!",
        [two, one],
    )
    assert typed.message("[Image #2") == ("[Image #2", [])
    assert typed.pasted(str(text), told.append) == str(text) and not told
    assert typed.command("identify [Image #1]") == f"identify '{one}'"


def test_a_broken_picture_ends_the_task_it_is_sent_with(typed: Composer, told: list[str], tmp_path: Path) -> None:
    broken = png(tmp_path / "broken.png")
    broken.write_bytes(broken.read_bytes()[:-20])
    assert typed.pasted(str(broken), told.append) == str(broken)
    assert "damaged picture" in told[0] and len(told) == 1


def test_a_named_picture_is_not_attached(typed: Composer, tmp_path: Path) -> None:
    picture, spaced = png(tmp_path / "shots" / "a.png"), png(tmp_path / "my shot.png")
    (tmp_path / "notes.txt").write_text("text")
    line = 'compare @shots/a.png, @"my shot.png" and @notes.txt; me@shots/a.png, @missing.png, @~nobody-here/x'
    assert typed.message(line) == (line, [picture, spaced])


def test_a_clipboard_without_a_picture_ends_the_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(composer.ToolError, match="install wl-clipboard"):
        composer.clipboard_image(TEXTS)
    for name, script in (("wl-paste", "exit 1"), ("xclip", "echo text")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(composer.ToolError, match="no picture"):
        composer.clipboard_image(TEXTS)
    coded = png(tmp_path / "a.png").read_bytes().hex().upper()
    (tmp_path / "osascript").write_text(f"#!/bin/sh\necho '«data PNGf{coded}»'\n", encoding="utf-8")
    (tmp_path / "osascript").chmod(0o755)
    assert composer.clipboard_image(TEXTS).read_bytes() == (tmp_path / "a.png").read_bytes()


# history


def test_a_recalled_message_has_lost_what_its_marks_stood_for(typed: Composer, told: list[str], tmp_path: Path) -> None:
    paste, picture = typed.pasted(LONG, told.append), typed.pasted(str(png(tmp_path / "a b.png")), told.append)
    kept = history(typed.kept)
    for line in ("one", f"{paste} {picture}", "two", "two"):
        kept.append_string(line)
    strings = list(history(typed.kept).load_history_strings())
    assert strings == ["two", f'{LONG} @"{tmp_path}/a b.png"', "one"]  # newest first, none twice in a row
    assert Composer(TEXTS, lambda: tmp_path).message(strings[1])[1] == [tmp_path / "a b.png"]
    huge = typed.pasted("x" * 300_000, told.append)
    assert typed.kept(huge) == huge  # the history is read at each start


# completion


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("@", ""), ("look at @src/ma", "src/ma"), ('@"my no', "my no"), ("me@example.org", None), ("a@", None),
        ("@one two", None), ("(@x", None), ("世界 @世", "世"), ("@a @b", "b"), ('@"a b"', "a b"), ("", None),
    ],
)  # fmt: skip
def test_an_address_opens_the_list_of_files(before: str, found: str | None) -> None:
    match = FILE.search(before)
    assert (match and (match["quoted"] or match["bare"] or "")) == found


def test_the_best_file_is_not_the_first() -> None:
    names = [
        "docs/domain.md",
        "lib/x/main.py",
        "main.py",
        "src/mobile/again.py",
        "maintain/other.txt",
        "m/a/i/n",
        "none",
    ]
    assert rank("main", names) == [
        "main.py", "lib/x/main.py", "docs/domain.md", "maintain/other.txt", "m/a/i/n", "src/mobile/again.py",
    ]  # fmt: skip
    assert rank("MAIN.PY", names)[0] == "main.py"
    assert rank("a" * 40, ["a/" * 2000]) == ["a/" * 2000]  # no search that explodes


def test_files_nobody_wants_are_offered(tmp_path: Path) -> None:
    for name in (
        "a.py", "src/b.py", "src/my notes.txt", ".git/config", "x/node_modules/y.js", ".venv/lib.py", "build/out", "src/c.log",
        "kept.log", "tmp/d.py", "src/only/e.py", "only/f.py", ".env", "bad\nname", "世界.md", "obj/g.o1",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / ".gitignore").write_text("# no\n*.log\n!kept.log\ntmp/\n/only\n**/*.o[12]\n[z-a\n")
    assert list(walk(tmp_path)) == [
        ".env", ".gitignore", "a.py", "kept.log", "loop", "世界.md", "src/b.py", "src/my notes.txt", "src/only/e.py",
    ]  # fmt: skip
    agent = FakeAgent()
    agent.workspace = tmp_path
    assert [o[:2] for o in offers("see\n@mynote", agent, TEXTS, Files())] == [('@"src/my notes.txt"', 7)]
    assert list(walk(tmp_path / "missing")) == []


def test_a_slow_folder_holds_up_typing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, calls = threading.Event(), list[Path]()

    def slow(root: Path, over: Any) -> Iterator[str]:
        calls.append(root)
        yield "first.py"
        go_on.wait()
        yield "second.py"

    monkeypatch.setattr(completion, "walk", slow)
    monkeypatch.setattr(completion, "PATIENCE", 0.01)
    now = [0.0]
    files = Files(clock=lambda: now[0])
    assert files(tmp_path) == files(tmp_path) == ["first.py"] and calls == [tmp_path]  # one that lists, whoever waits
    go_on.set()
    assert files._done.wait(60)
    assert files(tmp_path) == ["first.py", "second.py"]
    now[0] = 60.0
    files(tmp_path)
    assert files._done.wait(60) and len(calls) == 2


@pytest.mark.parametrize("what", ["a device", "a pipe"])
def test_a_workspace_names_a_device_or_a_pipe_as_its_gitignore(tmp_path: Path, what: str) -> None:
    if what == "a pipe":
        os.mkfifo(tmp_path / ".gitignore")
    else:
        (tmp_path / ".gitignore").symlink_to("/dev/zero")
    (tmp_path / "a.py").touch()
    assert "a.py" in list(completion.walk(tmp_path))


def test_a_huge_folder_is_listed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[int]()

    def endless(root: Path, over: Any) -> Iterator[str]:
        for n in range(10**9):
            seen.append(n)
            yield str(n)

    monkeypatch.setattr(completion, "walk", endless)
    monkeypatch.setattr(completion, "PATIENCE", 20)
    assert len(Files(clock=lambda: 0.0)(tmp_path)) == len(seen) == completion.MOST_FILES
    ticks = iter(range(1000))
    assert len(Files(clock=lambda: float(next(ticks)))(tmp_path)) < 50  # out of time


def test_commands_and_their_arguments_are_not_offered() -> None:
    agent, files = FakeAgent(), Files()

    def texts(before: str) -> list[str]:
        return [offer.text for offer in offers(before, agent, TEXTS, files)]

    assert texts("/co")[0] == "/cost" and texts("/cst") == ["/cost"]
    assert next(offers("/res", agent, TEXTS, files)).about.endswith(TEXTS["help_resume"])
    assert texts("/")[:2] == ["/help", "/new"] and "/q" not in texts("/q")
    assert texts("/llm ") == ["claude", "gpt"] and texts("/llm cl") == ["claude"]
    assert texts("/resume old") == ["s-old"]
    assert texts("/cost ") == texts("say /co") == texts("line\n/co") == texts("/tmp/x y") == []


# the user's own commands


class Heard:
    """A chat that only remembers what it showed."""

    def __init__(self, folder: Path) -> None:
        self.agent: Any = FakeAgent()
        self.agent.workspace = folder
        self.texts, self.view, self.face = TEXTS, View(TEXTS), self
        self.shown: list[Piece] = []

    def show(self, pieces: Any) -> None:
        self.shown += pieces

    def error(self, key: str, **values: object) -> None:
        self.shown.append(Piece("error", self.texts[key].format(**values)))

    def refresh(self) -> None:
        pass


def said(chat: Heard, command: str) -> list[tuple[str, str]]:
    shell = Shell(chat)  # type: ignore[arg-type]
    shell.run(command)
    for thread in list(shell.running):
        thread.join(60)
    assert not shell.running
    return shell.taken()


def test_the_users_command_taints_more_than_the_models(tmp_path: Path) -> None:
    folder, other = tmp_path / "work", tmp_path / "other.txt"
    folder.mkdir()
    (folder / "own.txt").write_text("https://evil.example/own")
    other.write_text("other's text")
    chat = Heard(folder)
    head = f"The user ran this command in {folder} (exit code 0), its output follows:\n$ "
    assert said(chat, "cat own.txt") == [("", f"{head}cat own.txt\nhttps://evil.example/own")]
    assert [source for source, _ in said(chat, f"cat {other}")] == ["", prompts.say("source_file", path=other)]
    assert not chat.agent.guard.tainted  # until it is sent
    assert said(chat, "  ") == []
    (fetch := folder / "curl").write_text("#!/bin/sh\necho page > got.txt\n")
    fetch.chmod(0o755)
    command = "PATH=.:$PATH curl http://site.example/"
    assert said(chat, command)[1:] == [(prompts.say("source_command", hosts="site.example"), "")]
    assert said(chat, "cat got.txt")[0] != said(chat, "cat got.txt")[-1]  # what it has fetched is not the user's
    assert "site.example" in chat.agent.guard.hosts


def test_a_commands_output_floods_the_screen_or_shows_a_key(tmp_path: Path) -> None:
    chat = Heard(tmp_path)
    [(_, text)] = said(chat, "seq 5000; echo sk-a-key-of-the-provider; exit 3")
    assert len(text) < 10_500 and "(exit code 3)" in text and "[a key]" in text and "sk-a" not in text
    kinds = [piece.kind for piece in chat.shown]
    assert kinds == ["tool", *["output"] * 13, "fail", "dim"]
    assert "more lines" in chat.shown[13].text and "sk-a" not in str(chat.shown)


def test_an_hour_of_commands_fills_the_context(tmp_path: Path) -> None:
    chat = Heard(tmp_path)
    shell = Shell(chat)  # type: ignore[arg-type]
    for n in range(5):
        shell.run(f"seq 5000; echo last {n}")
        for thread in list(shell.running):
            thread.join(60)
    texts = [text for _, text in shell.taken()]
    assert len("".join(texts)) < 31_000 and shell.taken() == []
    assert texts[0] == "(The output of 3 earlier commands of the user is left out.)"
    assert [text[-6:] for text in texts[1:]] == ["last 3", "last 4"]


def test_a_command_asks_for_input_or_runs_in_another_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine := tmp_path / "myshell").write_text('#!/bin/sh\necho "mine: $*"\n')
    mine.chmod(0o755)
    [(_, text)] = said(Heard(tmp_path), "read x; echo \"<$x>\"; ps -o pgid= -p $$ | tr -d ' '")
    answer, group = text.splitlines()[-2:]
    assert answer == "<>" and int(group) != os.getpgrp()
    monkeypatch.setenv("SHELL", str(mine))
    [(_, text)] = said(Heard(tmp_path), "echo 'a b'")
    assert text.endswith("\nmine: -c echo 'a b'")


def test_what_a_command_printed_counts_as_the_users_words(start: Callable[..., Any]) -> None:
    from genericagent.scripted import say

    agent, server = start([say("one"), say("two")])
    for outside in ([("", "see https://evil.example/x")], [("the net", "and this")]):
        assert not agent.guard.tainted
        queue = agent.put_task("read https://good.example/", outside=outside)
        while "done" not in (end := queue.get(timeout=60)):
            pass
        assert end["status"] == "done"
    first, second = (str(request.body["messages"]) for request in server.requests)
    assert "evil.example" in first and "<outside" not in first
    assert "<outside id=" in second and agent.guard.tainted == "the net"
    assert "good.example" in agent.guard.hosts and "evil.example" not in agent.guard.hosts
