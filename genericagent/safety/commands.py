"""What a script would delete, write, send, fetch and change, found by reading it and never by running it.

A seat belt, not a wall: it is there so that a mistake, or a model that does as a web page bids, is asked about before it
hurts. Who wants to hide something from it can; only the sandbox of the operating system contains that. What can't be
followed (a variable without a value, a quote without an end, too deep, too long) counts as the worst it might be.

`analyze` is pure: the file system is asked only through `resolve` and `read`. The rooms behind it: `shell_words` (how
a shell splits words), `effects` (what one command does), `other_scripts` (Python, PowerShell, cmd and the rest).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .effects import DATA, HIDDEN, MAX_DEPTH, NET, UNKNOWN, Call, Effects, Ran, show, tool_of
from .shell_words import ALL, ALTERNATIVES, Words
from .zones import Zones

_LONG_VALUE = 4_000
_DECLARE = ("export", "local", "declare", "readonly", "typeset")
_BLANK = r"(?:[ \t\r]|\\\n)+|#[^\n]*"
_ASSIGNMENT = r"([A-Za-z_]\w*)(?:\[[^]\s]*\])?(\+?)="
_REDIRECT = r"(?:\d*|\{\w+\})(<<<|<<-?|<>|<&|>&|>>|>\||<(?!\()|>(?!\()|&>>?)[ \t]*"
_HEREDOC = r"(['\"\\]?)([^\s;|&<>()'\"]+)['\"]?"
_OPERATOR = r";;&?|;&|&&|\|\||\|&|[;&|()\n]"
_KEYWORD = r"(if|then|elif|else|fi|while|until|do|done|for|select|case|esac|\{|\}|!|coproc)(?=[\s;|&()]|$)"
_FUNCTION = r"(?:function[ \t]+([^\s(){};|&]+)[ \t]*(?:\([ \t]*\))?|([^\s(){};|&<>'\"$`=]+)[ \t]*\([ \t]*\))\s*(?=[{(])"
_KINDS = {"bash": "bash", "sh": "bash", "shell": "bash", "zsh": "bash", "python": "python", "py": "python", "powershell": "powershell",
          "pwsh": "powershell", "ps1": "powershell", "cmd": "cmd", "bat": "cmd", "batch": "cmd"}  # fmt: skip
_PRELOADED = r"LD_|(PATH|BASH_ENV|PYTHONPATH)$"


@dataclass(frozen=True)
class Findings:
    """What a script would do; every line is for people. Empty where nothing was found.

    `destroys`: one line each, with the resolved target. `sends`: hosts that get something. `fetches`: text from outside
    may come back, from `hosts` as far as they are named. `control`: changes to the system or to what runs later.
    `parts`: the simple commands as the shell would split them, for rules. `writes`: real paths outside the workspace and
    the agent's temp folder that it would visibly change, the memory's too. `opaque`: it runs code that cannot be read here.
    """

    destroys: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    fetches: bool = False
    hosts: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    opaque: bool = False
    targets: tuple[tuple[str, str], ...] = ()  # line of destroys or control → the real path or the command it is about


def analyze(
    script: str, kind: str, cwd: str | Path, *, home: str | Path, environ: Mapping[str, str],
    resolve: Callable[[Path], Path], read: Callable[[Path], str | None], zones: Zones,
) -> Findings:  # fmt: skip
    """Read a script of the kind bash (sh), python, powershell (pwsh) or cmd that would run in the real folder `cwd`.

    `home` is what `~` means, `environ` what the script would see; `resolve` follows links (OSError, ValueError: no such
    path can be); `read` gives the text of a script that is named on a command line, None if there is none to be read.
    """
    seen = _Reader(zones, str(cwd), str(home), environ, resolve, read)
    try:
        seen.script(re.sub("[\U000f0000-\U000fffff]", "\ufffd", script), _KINDS.get(kind, "code"))
    except RecursionError:
        seen.depth = MAX_DEPTH
        seen.too_much()
    names = ("destroys", "sends", "hosts", "control", "parts", "writes")
    return Findings(
        **{name: tuple(getattr(seen, name)) for name in names},
        fetches=seen.fetches,
        opaque=seen.opaque,
        targets=(*seen.destroys.items(), *seen.control.items()),
    )


@dataclass
class _Frame:
    """A group that is open: its keyword, what feeds it, the pipe so far, all that ran in it; what comes back after it."""

    kind: str
    stdin: Sequence[Ran]
    nested: bool = False  # in a branch or loop: an assignment there may happen or not
    before: tuple[dict[str, Sequence[str]], str | None] | None = None
    pattern: bool = False  # in the pattern of a case
    feeds: list[Ran] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)

    def keep(self, *more: Ran) -> None:
        self.feeds, self.ran = [*self.feeds, *more][-32:], [*self.ran, *more][-32:]


@dataclass
class _Reader(Effects, Words):
    """Goes through shell scripts, every branch once, and tells what `Effects` notes of each command."""

    vars: dict[str, Sequence[str]] = field(default_factory=lambda: {"IFS": [" "]})
    functions: dict[str, str] = field(default_factory=dict)
    frames: list[_Frame] = field(default_factory=list)
    skips: dict[int, int] = field(default_factory=dict)  # behind which line the text of a heredoc ends

    def bash(self, text: str, args: Sequence[str] = (), feeds: Sequence[Ran] = ()) -> list[Ran]:
        outer = self.text, self.pos, self.skips, self.broken
        self.text, self.pos, self.skips, self.broken = text, 0, {}, False
        if args:
            self._position(args)
        ran = self.run("", feeds)
        if self.broken:
            self.suspect(text)
        self.text, self.pos, self.skips, self.broken = outer
        return ran

    def _position(self, args: Sequence[str]) -> None:
        self.vars.update({str(i): [arg] for i, arg in enumerate(args[:9], 1)})
        self.vars["@"] = self.vars["*"] = args[:ALTERNATIVES]

    def run(self, end: str, feeds: Sequence[Ran] = ()) -> list[Ran]:
        """Go through the commands up to `end`, which is skipped; returns those of the last pipe."""
        outer, self.frames, last = self.frames, [_Frame("", feeds)], list[Ran]()
        argv, redirects = list[str](), list[tuple[str, list[str]]]()
        while self.left > 0 and self.pos < len(self.text):
            frame = self.frames[-1]
            if self.take(_BLANK):
                continue
            if frame.pattern:
                self._pattern(frame)
            elif self.text[self.pos] == end and len(self.frames) == 1 and (end == ")" or not argv):
                break
            elif m := self.take(_REDIRECT):
                redirects.append((m[1], self._heredoc(m[1]) if m[1] in ("<<", "<<-") else self.word()))
            elif m := self.take(_OPERATOR):
                self._finish(argv, redirects)
                argv, redirects = [], []
                if m[0] == "(":
                    self._open("(")
                elif m[0] == ")":
                    self._close(frame.kind == "(")
                elif m[0] not in ("|", "|&"):
                    last, frame.feeds = frame.feeds or last, []
                    frame.pattern = frame.kind == "case" and m[0].startswith((";;", ";&"))
                    self.pos = self.skips.get(self.pos - 1, self.pos)
            elif not argv and (m := self.take(_KEYWORD)):
                self._keyword(m[1])
            elif not argv and (m := self.take(_FUNCTION)):
                self._define(m[1] or m[2])
            elif (not argv or argv[0] in _DECLARE) and (m := self.take(_ASSIGNMENT)):
                argv += [f"{m[1]}={value}" for value in self._assign(m[1], bool(m[2]), bool(argv)) if argv]
            else:
                argv += self.word()
        self._finish(argv, redirects)
        self.broken |= (bool(end) and self.pos >= len(self.text)) or self.frames[-1].pattern
        self.pos += bool(end)
        if self.left <= 0:
            self.too_much()
        while len(self.frames) > 1:
            self._close()
        last, self.frames = self.frames[0].feeds or last, outer
        return last

    def _pattern(self, frame: _Frame) -> None:
        if self.take(r"esac\b"):
            frame.pattern = False
            self._close()
        elif self.take(r"\)"):
            frame.pattern = False
        elif not self.take(r"[\s|(;&<>]+"):
            self.word()

    def _heredoc(self, operator: str) -> list[str]:
        """The text, which begins behind the line; there it is skipped later."""
        m, line = self.take(_HEREDOC), self.text.find("\n", self.pos)
        if not m or line < 0:
            return []
        start = self.skips.get(line, line + 1)
        close = re.compile(r"(?m)^{}{}$".format(r"\t*" * (operator == "<<-"), re.escape(m[2]))).search(self.text, start)
        body = self.text[start : close.start() if close else len(self.text)]
        self.skips[line] = close.end() if close else len(self.text)
        return [body] if m[1] else self.inside(body)

    def inside(self, body: str) -> list[str]:
        outer = self.text, self.pos
        self.text, self.pos = body, 0
        values = self.values(ALL, True)
        self.text, self.pos = outer
        return values

    def _define(self, name: str) -> None:
        """Keep the body of a function. Where it ends is found by going through it and forgetting what it does."""
        self.left -= 2
        start, kept = self.pos, {key: dict(one) if isinstance(one, dict) else one for key, one in vars(self).items()}
        self.pos += 1
        self.deeper(lambda: self.run("}" if self.text[start] == "{" else ")"))
        vars(self).update({**kept, **{key: getattr(self, key) for key in ("pos", "left", "broken", "skips")}})
        self.functions[name] = self.text[start : self.pos]

    def _keyword(self, word: str) -> None:
        if word in ("if", "while", "until", "{", "for", "select", "case"):
            self._open(word)
        elif word in ("fi", "done", "esac", "}"):
            self._close()
        if word == "case":
            self.take(r"\s+")
            self.word()
            self.frames[-1].pattern = self.take(r"\s+in\b") is not None
        elif word in ("for", "select") and (m := self.take(r"\s+(\w+)(\s+in\b)?")):
            values: list[str] = []
            while m[2] and self.pos < len(self.text) and not self.take(r"[ \t]*(?=[;\n&|()<>#])"):
                self.take(r"(?:[ \t]|\\\n)+")
                values += self.word()
            self.vars[m[1]] = values[:ALTERNATIVES] if m[2] else [UNKNOWN]

    def _open(self, kind: str) -> None:
        up, before = self.frames[-1], self._state() if kind == "(" else None
        self.frames.append(_Frame(kind, up.feeds or up.stdin, up.nested or kind != "(", before))

    def _close(self, wanted: bool = True) -> None:
        if wanted and len(self.frames) > 1:
            inner = self.frames.pop()
            self.vars, self.cwd = inner.before or (self.vars, self.cwd)
            self.frames[-1].keep(*inner.ran)

    def _state(self) -> tuple[dict[str, Sequence[str]], str | None]:
        """What a subshell cannot change."""
        return (dict(self.vars) if len(self.vars) < 500 else self.vars), self.cwd

    def _finish(self, argv: list[str], redirects: list[tuple[str, list[str]]]) -> None:
        """A simple command is at its end."""
        frame = self.frames[-1]
        if not argv and not redirects:
            return
        stdin, targets = self._redirects(redirects, argv)
        ran = self._call(argv, frame.feeds or frame.stdin, stdin) if argv else Ran("", [], stdin)
        for target, append in targets[:500]:
            if not re.fullmatch("/dev/(null|std(out|err)|tty)", target):
                self.parts[f"> {show(target)}"] = None
            self.write(target, UNKNOWN if ran.text is None else ran.text, append)
        frame.keep(ran)

    def _call(self, argv: list[str], feeds: Sequence[Ran], stdin: str | None) -> Ran:
        name = argv[0]
        if name in self.functions:
            self.left -= 2
            self._position(argv[1:])
            inner = self.deeper(lambda: self.bash(self.functions[name], (), feeds)) or []
            return inner[-1] if inner else Ran(name, argv[1:])
        if name == "read":
            text = Call(name, argv, [], [], feeds, stdin).given
            values = [text.strip()] if text else self.listed(feeds)
            self.vars.update({arg: values for arg in argv[1:] if arg.isidentifier()})
        elif name == "set" and "--" in argv:
            self._position(argv[argv.index("--") + 1 :])
        return self.command(argv, feeds, stdin)

    def _redirects(
        self, redirects: list[tuple[str, list[str]]], argv: list[str]
    ) -> tuple[str | None, list[tuple[str, bool]]]:
        """The text on standard input, if that is known, and the files that are written (True: added to)."""
        stdin, targets = None, []
        runs = bool(argv) and tool_of(argv[0])[1].method in ("shell", "code")
        for operator, values in redirects:
            if operator in ("<<", "<<-", "<<<"):
                stdin = " ".join(values)
                continue
            for value in values:
                if m := re.match(r"/dev/(?:tcp|udp)/([^/]+)", value):
                    self.net([show(m[1])])
                    self.sends[show(m[1])] = None
                elif operator == "<":
                    stdin = (self.text_of(value) or UNKNOWN) if runs else NET if NET in value else DATA
                elif operator != "<&" and not re.fullmatch(r"\d+-?|-", value):
                    targets.append((value, operator in (">>", "&>>")))
        return stdin, targets

    def _assign(self, name: str, more: bool, declared: bool) -> Sequence[str]:
        values: list[str] = []
        if self.take(r"\("):
            while self.pos < len(self.text) and not self.take(r"\s*\)"):
                self.take(r"\s+")
                values += self.word()
        else:
            values = self.word(split=False) if re.match(r"[^\s;|&()<>]", self.text[self.pos : self.pos + 1]) else [""]
        self.left -= 1
        old = self.vars.get(name, ())
        values = [before + value for before in old or [""] for value in values] if more else values
        if any(len(value) > _LONG_VALUE for value in values):
            self.suspect(" ".join(values))
            values = [UNKNOWN]
        if re.match(_PRELOADED, name) and not declared:
            self.parts[show(f"{name}={values[0]}")] = None
        kept = old if self.frames[-1].nested and not more else ()
        self.vars[name] = list(dict.fromkeys([*kept, *values]))[:ALTERNATIVES]
        return values[:1]

    # --- what words ask for ---

    def variable(self, name: str) -> Sequence[str]:
        known = {"PWD": self.cwd, "CD": self.cwd, "HOME": self.home, "USERPROFILE": self.home}
        value = known.get(name, self.environ.get(name))
        return self.vars.get(name, [] if value is None else [value])

    def output(self, text: str | None = None) -> str:
        self.left -= 2
        state, start = self._state(), self.pos
        ran = self.deeper(lambda: self.run(")") if text is None else self.bash(text)) or []
        self.vars, self.cwd = state
        reads = re.match(r"\s*<[^<(]", self.text[start : start + 100] if text is None else text)
        return (ran[-1].text or "" if ran else "").rstrip("\n") or (DATA if reads else UNKNOWN)

    def file_of(self, text: str) -> str:
        if re.search(HIDDEN, text):
            return text
        name = f"/dev/fd/{63 + len(self.written)}"
        self.written[name] = text
        return name
