"""What the chat shows: display queue items → pieces (pure) → text for the terminal.

    View      a task's display items in, finished pieces out; the unfinished rest is its live part
    Reader    the model's text: hides tag blocks, cuts Markdown where a block is complete
    Painter   pieces → ANSI text by rich (imported here only, and late), or plain text

Work per item depends on the item alone, never on what was shown before: a finished piece is painted once.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from .. import paths
from ..safety.term import Stripper, clean, one_line, only_colours
from .cells import WORD, broken, wrapped
from .changes import diff

LONGEST_LINE = 4_000  # characters without a line feed before a soft break
LONGEST_BLOCK = 8_000  # characters of an unfinished block before what is there gets shown
CODE_PIECE = 40  # lines of an open code fence that are shown together
OUTPUT_WHOLE = (
    8  # lines of a tool's output that are shown whole; of more the first and the last ones (all with /verbose)
)
OUTPUT_HEAD, OUTPUT_END = 4, 2
OUTPUT_WIDTH = 400  # characters of such a line
RESULT_WIDTH = 100  # of the first line of a result that has no output of its own
LIVE_LINES = 3  # of a running tool's output
KEPT_LINES = 5_000  # of a tool's output that can be unfolded
SAME = 100  # characters of a failed tool's result that are compared with its output
HELD_LINES, HELD_CHARS = 6, 600  # what a turn may say before a tool call and still be folded into its summary
LANGUAGES = frozenset(  # those that are highlighted; the patterns of some others take seconds for a hostile line
    [
        "bash",
        "sh",
        "shell",
        "console",
        "python",
        "py",
        "python3",
        "json",
        "toml",
        "yaml",
        "yml",
        "ini",
        "diff",
        "html",
        "xml",
        "css",
        "javascript",
        "js",
        "typescript",
        "ts",
        "c",
        "cpp",
        "go",
        "rust",
        "sql",
        "make",
        "dockerfile",
        "markdown",
        "md",
    ]
)
CODE_WIDTH = 400  # characters of a line of code that is highlighted
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
HINTS = ("script", "path", "command", "url", "query", "question", "key_info", "content")

_TAG = re.compile(r"(?<!`)<(thinking|summary|tool_use|file_content)>")
_HALF_TAG = re.compile(r"<[a-z_]{0,12}$")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FENCE = re.compile(rf"((?:{_ITEM.pattern})?[ \t]*)(`{{3,}}|~{{3,}})[ \t]*([^`]*)$")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-*:?[ \t]*)+$")
_HEADER = re.compile(r"\s*(\*\*)?(LLM Running \(Turn \d+\)|Turn \d+) \.\.\.(\*\*)?\s*$")
_TOOL_FENCE = "`````"
_OURS = re.compile(r"(?m)^((?:\x1b\[[0-9;]*m)*)(?=[❯✓✗●▸▾⏳]|── )")  # how our own lines begin
_PADDING = re.compile(r" +(?=(?:\x1b\[0?m)?$)", re.M)  # rich fills lines up, which is a nuisance when copying
_EMPTY = re.compile(r"\A(?:(?:\x1b\[[0-9;]*m)*\n)+|(?:\n(?:\x1b\[[0-9;]*m)*)+\Z")

# kind of piece → (colour as SGR parameters, what stands before the text); md and code are painted by rich
_FORMS = {
    "title": ("1", ""), "plain": ("", ""), "user": ("1;36", "❯ "), "turn": ("2", "── "), "fence": ("2", ""),
    "dim": ("2", ""), "summary": ("2;3", "▸ "), "tool": ("36", "● "), "output": ("2", "  "), "ok": ("32", "✓ "),
    "asked": ("33", ""), "fail": ("31", "✗ "), "notice": ("33", ""), "error": ("31", ""), "question": ("1", ""), "md": ("", ""),
    "code": ("", ""), "fold": ("1;2", "▾ "), "copy": ("", ""),
}  # fmt: skip
_AS_IT_IS = {
    "md",
    "code",
    "fence",
    "output",
    "copy",
}  # kinds whose long lines are left to the terminal: they can be copied
_LOOSE = {"fold", "md", "fence", "turn", "question", "asked", "user"}  # kinds with an empty line before them
_TIGHT = {("fence", "code"), ("code", "code"), ("code", "fence"), ("question", "question"), ("asked", "asked")}


class Piece(NamedTuple):
    """Something finished. Kinds: see _FORMS; `note` is a code's language or what follows a tool's name."""

    kind: str
    text: str
    note: str = ""


class Reader:
    """A model's text in deltas → pieces. Raises nothing; whatever it held comes out with finish()."""

    def __init__(self, texts: Mapping[str, str], verbose: bool = False) -> None:
        self._texts, self._verbose = texts, verbose
        self._partial: list[str] = []
        self._length = 0
        self._block: list[str] = []
        self._size = 0
        self._fence: tuple[str, str, str] | None = None  # indentation, marker, language
        self._tag = ""
        self._hidden: list[str] = []
        self._hidden_size = 0
        self._out: list[Piece] = []
        self.thoughts: list[str] = []  # whose line was shown; the reader's owner takes them

    def feed(self, text: str) -> list[Piece]:
        *lines, rest = text.split("\n")
        for line in lines:
            self._whole_line("".join(self._partial) + line)
            self._partial, self._length = [], 0
        self._partial.append(rest)
        self._length += len(rest)
        while self._length > LONGEST_LINE:
            joined = "".join(self._partial)
            cut = joined.rfind(" ", 1, LONGEST_LINE)
            cut = cut if cut > 0 else LONGEST_LINE
            self._whole_line(joined[:cut])
            self._partial, self._length = [joined[cut:].lstrip(" ")], len(joined[cut:].lstrip(" "))
        return self._taken()

    def finish(self) -> list[Piece]:
        """The end of the turn: everything is shown, also what an unclosed tag or fence held."""
        if self._length:
            self._whole_line("".join(self._partial))
            self._partial, self._length = [], 0
        if self._tag:
            self._out.append(Piece("dim", "\n".join([f"<{self._tag}>", *self._hidden])))
            self._tag = ""
        self._flush()
        self._fence = None
        return self._taken()

    def hidden(self) -> tuple[str, int]:
        """(the tag that is open now or "", characters inside of it)"""
        if self._tag:
            return self._tag, self._hidden_size + self._length
        opened = None if self._fence else _TAG.search(partial := "".join(self._partial))
        return (opened[1], len(partial) - opened.end()) if opened else ("", 0)

    def tail(self, lines: int = 6) -> str:
        """The last lines of what is not finished."""
        if self._tag:
            return ""
        partial = "".join(self._partial)
        if not self._fence:
            partial = _HALF_TAG.sub("", _TAG.split(partial, maxsplit=1)[0])
        return "\n".join([*self._block[-lines:], partial]).strip("\n")

    def _taken(self) -> list[Piece]:
        out, self._out = self._out, []
        return out

    def _whole_line(self, line: str) -> None:
        while True:
            if self._tag:
                inside, closed, line = line.partition(f"</{self._tag}>")
                self._hidden.append(inside)
                self._hidden_size += len(inside) + 1
                # a summary is one line: an empty line ends it, should its end be forgotten
                if closed or (self._tag == "summary" and not inside.strip() and self._hidden_size > 2):
                    self._close_tag()
            elif (tag := _TAG.search(line)) and (not self._fence or line.lstrip().startswith("<tool_use>")):
                if line[: tag.start()].strip():
                    self._text_line(line[: tag.start()])
                self._flush()
                self._tag, self._hidden, self._hidden_size = tag[1], [], 0
                line = line[tag.end() :]
            else:
                return self._text_line(line)
            if not line.strip():
                return None

    def _close_tag(self) -> None:
        text, kind = "\n".join(self._hidden).strip(), self._tag
        self._tag = ""
        if kind == "summary" and text:
            self._out.append(Piece("summary", one_line(text, 200)))
        elif kind == "thinking":
            if text and not self._verbose:
                self.thoughts.append(text)
            self._out.append(Piece("dim", self._texts["thought"].format(n=f"{len(text):,}")))
        if self._verbose and kind != "summary" and text:
            self._out.append(Piece("dim", text))

    def _text_line(self, line: str) -> None:
        if self._fence:
            return self._code_line(line)
        if fence := _FENCE.match(line):
            self._flush()
            language = (fence[3].split() or [""])[0]
            self._fence = (" " * len(fence[1]), fence[2], language)
            self._out.append(Piece("fence", fence[1].strip() + " " * bool(fence[1].strip()) + fence[2] + language))
            return None
        listing = bool(self._block) and bool(_ITEM.match(self._block[0]))
        if not line.strip():
            if not listing:
                return self._flush()
        elif line.startswith("#") or (
            self._block and not self._block[-1] and not (line[0] in " \t" or _ITEM.match(line))
        ):
            self._flush()
        elif self._size > LONGEST_BLOCK or (listing and self._size > 1500 and _ITEM.match(line)):
            self._split()
        self._block.append(line if line.strip() else "")
        self._size += len(line) + 1
        if line.startswith("#"):
            self._flush()
        return None

    def _code_line(self, line: str) -> None:
        assert self._fence
        indent, marker, _ = self._fence
        bare = line.strip()
        if bare.startswith(marker) and not bare.strip(marker[0]):
            self._flush()
            self._out.append(Piece("fence", marker))
            self._fence = None
            return
        self._block.append(line.removeprefix(indent))
        self._size += len(line) + 1
        if len(self._block) >= CODE_PIECE or self._size > LONGEST_BLOCK:
            self._flush()

    def _split(self) -> None:
        """Show a long block before its end; a table's next part gets the head again."""
        head = self._block[:2] if len(self._block) > 2 and _TABLE_RULE.match(self._block[1]) else []
        self._flush()
        self._block, self._size = head, sum(map(len, head))

    def _flush(self) -> None:
        if self._block and self._fence:
            self._out.append(Piece("code", "\n".join(self._block), self._fence[2]))
        elif text := "\n".join(self._block).strip("\n"):
            self._out.append(Piece("md", text))
        self._block, self._size = [], 0


class ToolOutput:
    """One tool call's text: the loop's announcement and fences dropped, the beginning kept, the rest counted.

    `at_once`: so many lines are shown as they come, under the tool's line (● name hint), and no preview follows.
    """

    def __init__(self, line: Piece, at_once: int) -> None:
        self.line, self.at_once = line, at_once
        self.quiet = line.text == "ask_user"  # the question is shown when the task ends with it
        self.kept: list[str] = []
        self.count = self.shown = 0  # lines, without empty ones at the end
        self.last = ""
        self._ends: deque[str] = deque(maxlen=LIVE_LINES)
        self._empty = 0
        self._mode = ""  # "" at the start, then announced, fenced or plain

    def feed(self, text: str) -> list[Piece]:
        if self.count >= KEPT_LINES and self.shown >= self.at_once:
            *lines, self.last = (self.last + text.removesuffix(f"\n{_TOOL_FENCE}\n")).split("\n")
            self.count += len(lines)
            self._ends.extend(lines[-LIVE_LINES:])
            return []
        *lines, self.last = (self.last + text).split("\n")
        return [piece for line in lines for piece in self._line(line)]

    def add(self, text: str) -> list[Piece]:
        """Text that is not from the loop."""
        self._mode = "plain"
        return self.feed(text)

    def finish(self) -> list[Piece]:
        rest, self.last = self.last, ""
        return self._line(rest) if rest else []

    def live(self) -> str:
        """The newest lines."""
        return "\n".join(line[:OUTPUT_WIDTH] for line in [*self._ends, *filter(None, [self.last])][-LIVE_LINES:])

    def preview(self) -> tuple[list[str], int, list[str]]:
        """(the first lines, how many are left out, the last ones)"""
        if self.count <= OUTPUT_WHOLE:
            return self.kept, 0, []
        ends = list(self._ends)[-OUTPUT_END:]
        return self.kept[:OUTPUT_HEAD], self.count - OUTPUT_HEAD - len(ends), ends

    def told(self, result: str) -> bool:
        """Whether the result begins as the output did: then it says nothing new."""
        begin = "".join(result.split())[:SAME]
        return bool(begin) and "".join("".join(self.kept[:SAME]).split()).startswith(begin)

    def _line(self, line: str) -> list[Piece]:
        if self._mode in ("", "announced") and line == _TOOL_FENCE:
            self._mode = "fenced"
        elif not self._mode and line.strip():
            told = line.startswith(("Tool: `", f"{self.line.text}(", f"{self.line.text}: "))
            self._mode = "announced" if told else "plain"
        if self._mode in ("", "announced") or line == _TOOL_FENCE or self.quiet:
            return []
        if not line.strip():
            self._empty += 1  # counts when something follows
            return []
        lines, self._empty = [*[""] * self._empty, line], 0
        first = [self.line] if self.at_once and not self.count else []
        self.count += len(lines)
        self._ends.extend(lines)
        self.kept += [clipped(t, LONGEST_LINE) for t in lines]
        shown = lines[: self.at_once - self.shown]
        self.shown += len(shown)
        return [*first, *(Piece("output", clipped(t, LONGEST_LINE)) for t in shown)]


def clipped(line: str, width: int) -> str:
    return line if len(line) <= width else line[:width] + "…"


class Folded(NamedTuple):
    """Something that was shown shorter than it is."""

    title: str
    pieces: list[Piece]


class View:
    """One task's display: items in, pieces out.

    `clock` in seconds; `unfold`: what a hint at the folded rest ends with; `alive`: what is not finished is shown by live(),
    without it everything is shown as it comes.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
        unfold: str = "",
        alive: bool = True,
    ) -> None:
        self.texts, self.verbose, self._clock, self._unfold, self._alive = texts, False, clock, unfold, alive
        self._folded: deque[Folded] = deque(maxlen=100)
        self._unfolded = 0  # how many of them were shown since the newest one came
        self.start()

    def start(self) -> None:
        """A new task begins."""
        self._strip = Stripper()
        self._reader = Reader(self.texts, self.verbose)
        self._tool: ToolOutput | None = None
        self._patch = ""  # what the running call changes, as lines
        self._expect_header = self._over = False
        self.turn = 0
        self._held: list[Piece] = []  # what the model has said in this turn, as long as it may be folded
        self._holding = self._alive and not self.verbose
        self._said = ""  # the newest paragraph of the model
        self.asking = self.whole = ""  # the id of a question of permission that waits for its answer; all of it
        self._since = self._asked = self._clock()
        self._until = 0.0  # when the next try begins

    def feed(self, item: Mapping[str, Any]) -> list[Piece]:
        self.answered()  # a task that asks is silent until it is answered or stopped
        if event := item.get("event"):
            return [*self._text(self._strip.flush()), *self._event(event, item.get("turn", 0))]
        if "done" in item:
            self._over = True
            return [*self._text(self._strip.flush()), *self._end_turn(), *self._release(), *self._outcome(item)]
        return self._text(self._strip.feed(str(item.get("next") or "")))

    def live(self) -> tuple[str, str]:
        """(what is going on, the unfinished text)"""
        now = self._clock()
        seconds, spinner = int(now - self._since), SPINNER[int(now * 8) % len(SPINNER)]
        if self._over:
            return "", ""
        if (left := self._until - now) > 0:
            return self.texts["retrying"].format(seconds=int(left) + 1), ""
        if self.asking:
            return self.texts["may_waiting"], ""
        tool, reader = self._tool, self._reader  # the other thread may replace them
        if tool:
            about = f"{tool.line.text} {one_line(tool.line.note, 40)}".rstrip()
            return f"{spinner} {self.texts['running'].format(what=about, seconds=seconds)}", tool.live()
        tail = "\n".join([*(p.text for p in list(self._held) if p.kind in ("md", "code")), reader.tail()]).strip("\n")
        tag, hidden = reader.hidden()
        if tag:
            key = "writing" if tag in ("tool_use", "file_content") else "thinking"
            return f"{spinner} {self.texts[key].format(n=f'{hidden:,}')}", tail
        key = "streaming" if tail and not self._expect_header else "waiting"
        return f"{spinner} {self.texts[key].format(seconds=seconds)}", "" if self._expect_header else tail

    def _fold(self, title: str, text: str, kind: str = "") -> None:
        whole = [Piece(kind, text)] if kind else [Piece("output", line) for line in text.split("\n")]
        self._folded.append(Folded(title, whole))
        self._unfolded = 0

    def unfold(self) -> list[Piece]:
        """The newest folded thing in full; asked again, the one before it. Empty when there is none."""
        if self._unfolded >= len(self._folded):
            return []
        self._unfolded += 1
        title, pieces = self._folded[-self._unfolded]
        return [Piece("fold", title), *pieces]

    def _release(self) -> list[Piece]:
        held, self._held = self._held, []
        return held

    def _fold_turn(self) -> list[Piece]:
        """The turn goes on with a tool: of what it said its summary is shown, when it has one."""
        held = self._release()
        summary = [p for p in held if p.kind == "summary"]
        said = "\n\n".join(p.text for p in held if p.kind in ("md", "code"))
        if not summary:
            return held
        if said:
            self._fold(self.texts["turn_said"].format(n=self.turn), said, "md")
        return summary

    def ask(self, question: str) -> list[Piece]:
        """A question of permission, and how to answer it."""
        view = "" if question == self.whole else self.texts["may_view"]
        how = Piece("dim", self.texts["may_choices"].format(view=view))
        return [*(Piece("asked", line) for line in question.split("\n")), how]

    def answered(self) -> str:
        """The id of the question of permission that was open; the time it waited is not the tool's."""
        asked, self.asking = self.asking, ""
        self._since += self._clock() - self._asked if asked else 0.0
        return asked

    def _text(self, text: str) -> list[Piece]:
        if self._tool:
            return self._tool.feed(text)
        if self._expect_header and text.strip():
            # The loop's header says what the turn piece has said: it is a line of its own after the event.
            self._expect_header = False
            head, _, rest = text.lstrip("\n").partition("\n")
            text = rest if _HEADER.match(head) else text
        return self._model(self._reader.feed(text))

    def _model(self, pieces: list[Piece]) -> list[Piece]:
        self._said = next((p.text for p in reversed(pieces) if p.kind in ("md", "code")), self._said)
        for thought in self._reader.thoughts:
            self._fold(self.texts["thought"].format(n=f"{len(thought):,}"), thought)
        self._reader.thoughts.clear()
        self._held += pieces
        text = "\n".join(p.text for p in self._held)
        self._holding &= text.count("\n") < HELD_LINES and len(text) < HELD_CHARS
        return [] if self._holding else self._release()

    def _event(self, event: Mapping[str, Any], turn: int) -> list[Piece]:
        kind = event.get("kind")
        if kind == "turn":
            pieces = [*self._end_turn(), *self._release(), Piece("turn", self.texts["turn"].format(n=turn))]
            self._reader, self._expect_header = Reader(self.texts, self.verbose), True
            self.turn, self._holding = turn, self._alive and not self.verbose
            return pieces
        if kind == "tool":
            pieces = [*self._end_turn(), *self._fold_turn()]
            line = Piece("tool", one_line(str(event.get("name"))), hint(event.get("args") or {}))
            at_once = 10**9 if self.verbose else 0 if self._alive else OUTPUT_WHOLE
            self._tool, args = ToolOutput(line, at_once), event.get("args") or {}
            patch = [str(args.get(key) or "") for key in ("old_content", "new_content")]
            self._patch = clean(diff(*patch)) if any(patch) else ""
            return pieces
        if kind == "tool_done" and self._tool:
            return self._tool_done(self._tool, bool(event.get("ok")), clean(str(event.get("result") or "")))
        if kind == "ask":
            self.asking, self.whole = str(event.get("id")), clean(str(event.get("whole")))
            self._asked = self._clock()
            return self.ask(clean(str(event.get("question"))))
        if kind == "notice":
            return [Piece("notice", one_line(str(event.get("text")), 500))]
        if kind == "retry":
            self._until = self._clock() + float(event.get("seconds") or 0)
            return [Piece("notice", one_line(str(event.get("text")), 300))]
        return []

    def _tool_done(self, tool: ToolOutput, ok: bool, result: str) -> list[Piece]:
        seconds, told = int(self._clock() - self._since), list[Piece]()
        if ok and self._patch:
            told = tool.add(f"{one_line(result)}\n{self._patch}\n")
        shown = [*told, *tool.finish(), *self.preview(tool)]
        self._tool, self._since = None, self._clock()
        if tool.quiet and ok:
            return []
        about = ["" if tool.shown else tool.line.note, f"{seconds} s" if seconds else ""]
        line = Piece("ok" if ok else "fail", tool.line.text, "  ".join(filter(None, about)))
        if tool.line.text == "file_write":  # the ordinary way is not worth a word, and a new file has nothing under it
            result = result.removesuffix(" (overwrite)")
        if ok and not tool.count and not result.startswith("{"):
            shown = self._result(line, result)
        pieces = [*shown, line] if tool.shown else [line, *shown]
        return pieces if ok or tool.told(result) else [*pieces, Piece("error", "  " + one_line(result, 300))]

    def preview(self, tool: ToolOutput) -> list[Piece]:
        """The lines of a tool's output that stay on the screen; all that was kept can be unfolded."""
        head, more, ends = ([], tool.count - tool.shown, []) if tool.at_once else tool.preview()
        pieces = [Piece("output", clipped(line, OUTPUT_WIDTH)) for line in (*head, *ends)]
        if more or any(len(line) > OUTPUT_WIDTH for line in tool.kept):
            rest = [self.texts["more_lines"].format(n=f"{n:,}")] if (n := tool.count - len(tool.kept)) > 0 else []
            self._fold(f"{tool.line.text}  {tool.line.note}", "\n".join([*tool.kept, *rest]))
        if more:
            told = self.texts["more_lines"].format(n=f"{more:,}") + self._unfold
            pieces.insert(len(head), Piece("output", told))
        return pieces

    def _result(self, line: Piece, result: str) -> list[Piece]:
        """A result without output of its own: its first line, the rest folded; with /verbose more of it."""
        lines = [clipped(text, LONGEST_LINE) for text in result.strip("\n").split("\n")]
        if self.verbose:
            return [Piece("output", text) for text in lines[:40]]
        if len(lines) > 1 or len(lines[0]) > RESULT_WIDTH:
            self._fold(f"{line.text}  {line.note}", "\n".join(lines))
        return [Piece("output", clipped(lines[0], RESULT_WIDTH))] if lines[0].strip() else []

    def _end_turn(self) -> list[Piece]:
        """The model's reply, or the tool, is at its end, whether it said so or not."""
        tool, self._tool, self._since = self._tool, None, self._clock()
        if not tool:
            return self._model(self._reader.finish())
        pieces = tool.finish()
        if tool.quiet:
            return []
        return [*pieces, *self.preview(tool)] if tool.shown else [tool.line, *self.preview(tool)]

    def _outcome(self, item: Mapping[str, Any]) -> list[Piece]:
        status, pieces = item.get("status", "done"), []
        if status == "needs_input":
            question = item.get("question") or {}
            several = (
                len(parts := question.get("questions") or [question]) > 1
            )  # then each is shown when it is its turn
            choices = any(part.get("candidates") for part in parts)
            pieces += [] if several else [Piece("question", clean(str(question.get("question") or "")))]
            pieces.append(Piece("dim", self.texts["pick" if choices else "answer_below"]))
        elif status == "done":
            if item.get("answer") and not self._said:
                pieces.append(Piece("md", clean(str(item["answer"]))))
        else:
            error = one_line(str(item.get("error") or ""), 500)
            told = not error or error.removeprefix("Error: ") in " ".join(self._said.split())
            text = self.texts[f"end_{status}"].format(error="" if told else f": {error}")
            pieces.append(Piece("error" if status == "failed" else "notice", text))
        if files := list(item.get("files_changed") or ()):
            names = ", ".join(one_line(paths.shown(str(f)), 80) for f in files[:10]) + (" …" if len(files) > 10 else "")
            pieces.append(Piece("dim", self.texts["changed"].format(files=names)))
        if usage := usage_line(self.texts, item):
            pieces.append(Piece("dim", usage))
        return pieces


def hint(args: Mapping[str, Any]) -> str:
    """The argument that says most about a tool call, in one line."""
    shown = {k: v for k, v in args.items() if not k.startswith("_") and v not in (None, "")}
    key = next((k for k in HINTS if k in shown), None)
    if key is None:
        return one_line(json.dumps(shown, ensure_ascii=False, default=str), 72) if shown else ""
    value = shown[key] if isinstance(shown[key], str) else json.dumps(shown[key], default=str)
    return one_line(f"{shown['type']}: {value}" if key == "script" and "type" in shown else value, 72)


def usage_line(texts: Mapping[str, str], item: Mapping[str, Any]) -> str:
    """Tokens and money of a task in a short line, "" when nothing was used."""
    usage = item.get("usage") or {}
    tokens_in, tokens_out = int(usage.get("input") or 0), int(usage.get("output") or 0)
    if not tokens_in + tokens_out:
        return ""
    parts = [texts["turns"].format(n=item["turn"])] if item.get("turn", 0) > 1 else []
    parts.append(texts["used"].format(input=short(tokens_in), output=short(tokens_out)))
    if cached := int(usage.get("cache_read") or 0):
        parts.append(texts["cached"].format(percent=round(100 * cached / max(tokens_in, cached))))
    if (cost := item.get("cost")) is not None:
        parts.append(f"${cost:.4f}" if cost < 1 else f"${cost:.2f}")
    if name := item.get("answered_by"):
        parts.append(texts["by"].format(name=one_line(str(name), 40)))
    return " · ".join(parts)


class Painter:
    """Pieces → text to write. `rich` off: plain text without any control code; `colour` off: no colours."""

    def __init__(self, *, rich: bool = True, colour: bool = True) -> None:
        self._rich, self._colour = rich, rich and colour
        self._last = ""

    def paint(self, pieces: Iterable[Piece], width: int) -> str:
        parts: list[str] = []
        for piece in pieces:
            tool = piece.kind in ("tool", "ok", "fail") and self._last in ("md", "fence", "code")
            if self._last and (self._last, piece.kind) not in _TIGHT and (piece.kind in _LOOSE or tool):
                parts.append("\n")
            parts.append(self._one(piece, width))
            self._last = piece.kind
        return only_colours("".join(parts))

    def warm_up(self) -> None:
        """Import what painting needs, before it is needed."""
        if self._rich:
            _kit()

    def _one(self, piece: Piece, width: int) -> str:
        if self._rich and piece.kind in ("md", "code"):
            try:
                if (painted := _rich(piece, width, self._colour)).strip():
                    return _OURS.sub(r"\1 ", painted)
            except Exception:  # a fault in the renderer costs the colours, not the text
                logging.getLogger(__name__).exception("cannot render a piece of %d characters", len(piece.text))
        colour, mark = _FORMS[piece.kind]
        text = piece.text + (f"  {piece.note}" if piece.note and piece.kind != "code" else "")
        if piece.kind not in _AS_IT_IS:
            fit, room = _behind_bar if piece.kind == "asked" else wrapped, max(width - len(mark), 10)
            text = "\n".join(row for line in text.split("\n") for row in fit(line, room))
        text = mark + (text.replace("\n", "\n" + " " * len(mark)) if mark else text)
        return f"\x1b[{colour}m{text}\x1b[0m\n" if colour and self._colour else text + "\n"


def _behind_bar(line: str, width: int) -> list[str]:
    """Code behind a bar keeps the bar in each row, so that it cannot pass for what stands around it."""
    bar, code = line[: line.find("│") + 2], line[line.find("│") + 2 :]
    if bar.strip() != "│":
        return wrapped(line, width)
    return [bar + row for row in broken(code, max(width - len(bar) - 1, 10))]


def _rich(piece: Piece, width: int, colour: bool) -> str:
    """Markdown or code as rich paints it, without its empty lines around and its padding at line ends."""
    from io import StringIO

    from rich.console import Console

    markdown, code, theme = _kit()
    out = StringIO()
    console = Console(
        file=out, width=max(width, 10), force_terminal=colour, color_system="auto" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False, theme=theme,
    )  # fmt: skip
    if piece.kind == "md":
        console.print(markdown(piece.text))
    else:  # long lines are left to the terminal, so that code can be copied as it is
        console.print(code(piece.text, piece.note), soft_wrap=True)
        return out.getvalue()
    return _EMPTY.sub("", _PADDING.sub("", out.getvalue())) + "\n"


@cache
def _kit() -> tuple[Callable[[str], Any], Callable[[str, str], Any], Any]:
    """rich, set up for a chat: (Markdown, code, theme). Imported at the first use, not at the start."""
    import rich._wrap
    from markdown_it import MarkdownIt
    from rich.markdown import Heading, Markdown
    from rich.syntax import Syntax
    from rich.theme import Theme

    if hasattr(rich._wrap, "re_word"):  # rich has no public way to say where a line may break
        rich._wrap.re_word = WORD
    # Nothing of the text may vanish: tags, link definitions and pictures are shown as text
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["reference", "image"])

    class LeftHeading(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            yield self.text

    class Plain(Markdown):
        elements = {**Markdown.elements, "heading_open": LeftHeading}

        def __init__(self, text: str) -> None:
            # hyperlinks=False: a link's target is shown, not hidden in an escape sequence
            super().__init__("", code_theme="ansi_dark", hyperlinks=False)
            self.parsed = parser.parse(text)

    def code(text: str, language: str) -> Any:
        slow = language not in LANGUAGES or any(len(line) > CODE_WIDTH for line in text.split("\n"))
        syntax = Syntax("", "text" if slow else language, theme="ansi_dark", background_color="default")
        highlighted = syntax.highlight(text)
        highlighted.right_crop(len(highlighted) - len(highlighted.plain.removesuffix("\n")))
        return highlighted

    return Plain, code, Theme({"markdown.code": "magenta"})


def short(n: int) -> str:
    """A count of tokens in few characters."""
    return f"{n / 1000:.1f}k" if n >= 1000 else str(n)
