"""What may be done without asking: risk of an action, the user's rules, the verdict. Pure: values in, values out.

A rule is `WHAT` or `WHAT:PATTERN`. WHAT is a tool's name, a risk, `destructive` or `*`. PATTERN is matched with
what the action touches: the real path (read, write), the host (send), the command (exec, control).

- path: `~` is the home folder, `*` and `?` stay within one part, `**` is any depth, a folder covers what is in it
- host: `example.com` is that host alone, `*.example.com` its subdomains; no scheme; a port for this machine alone
- command: `*` is any text, white space is collapsed

`[*]`, `[?]` and `[[]` stand for the character itself. An allow rule is read narrowly (every path, host and simple command
must be allowed by some rule), ask and deny rules widely (one is enough, without case, links not yet followed too).
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import itertools
import json
import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import ConfigError
from ..paths import expand
from ..prompts import say

Risk = Literal["read", "write", "exec", "send", "control"]
Origin = Literal["chat", "script", "remote", "watcher"]
Verdict = Literal["allow", "ask", "deny"]
Scope = Literal["once", "session"]
UNKNOWN = "unknown-host"  # the target of a send that nobody can tell
RISKS: tuple[str, ...] = get_args(Risk)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)  # the strictest last


@dataclass(frozen=True)
class Action:
    """One thing that a tool call would do; a call may be several.

    `targets` are real paths, hosts, or the whole text of the command; `parts` the simple commands in it
    (`commands.Findings.parts`), without which the text counts as one. `outside`: a write outside workspace and temp.
    `destructive` says what would be destroyed, in words for the question. `memory`: a write to the memory. `known`: the
    user named the host, or the task visited it before it was tainted.
    """

    tool: str
    risk: Risk
    targets: tuple[str, ...] = ()
    outside: bool = False
    destructive: str = ""
    memory: bool = False
    known: bool = False
    parts: tuple[str, ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether text from outside makes it a matter of asking (again): send, write outside, memory write."""
        return not self.known if self.risk == "send" else self.risk == "write" and (self.outside or self.memory)


@dataclass(frozen=True)
class Mode:
    """`sandbox_waived`: the config says `sandbox = "off"` for what runs unattended. `tainted`: text from outside was read."""

    origin: Origin
    sandboxed: bool = False
    sandbox_waived: bool = False
    tainted: bool = False


@dataclass(frozen=True)
class Decision:
    """`why` is a message for the user; `rules` are the `--allow` rules (quoted for a shell) that would permit it."""

    verdict: Verdict
    why: str = ""
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One rule. `paths` are the spellings of its pattern as a path, in parts."""

    text: str
    what: str
    pattern: str
    effect: Verdict
    paths: tuple[tuple[str, ...], ...] = ()

    @property
    def narrow(self) -> bool:
        """Whether it has a pattern that leaves something out."""
        return bool(self.pattern.strip("*?/. "))

    def about(self, action: Action) -> bool:
        if self.what == "destructive":
            return bool(action.destructive)
        return self.what in ("*", action.tool, action.risk)

    def concerns(self, folder: str) -> bool:
        """Whether something that the pattern names would be that folder or lie in it."""
        parts = _parts(folder, True)
        for path in self.paths:
            fixed = list(itertools.takewhile(lambda part: not re.search(r"[*?\[]", part), path))
            if parts[: len(fixed)] == fixed[: len(parts)]:
                return True
        return False

    def covers(self, target: str, kind: str) -> bool:
        """Whether the pattern covers one path, host or simple command (`kind`); no pattern covers all."""
        wide = self.effect != "allow"
        if not self.pattern:
            return True
        if kind == "path":
            return any(_below(path, _parts(target, wide), wide) for path in self.paths)
        if kind == "host":
            port = re.fullmatch(r"[^:]+(:\d+)", self.pattern)
            if port and not wide and not target.endswith(port[1]):
                return False
            host, pattern = _host(target), _host(self.pattern)
            return _like(pattern, host) or (wide and pattern == f"*.{host}")
        text, pattern = (" ".join(words.split()) for words in (target, self.pattern))
        return _like(pattern.casefold(), text.casefold()) if wide else _like(pattern, text)


@dataclass(frozen=True)
class Rules:
    """The user's rules, parsed."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()


def parse_rules(
    allow: Iterable[str],
    ask: Iterable[str],
    deny: Iterable[str],
    tools: Collection[str],
    *,
    real: Callable[[str], str] = os.path.realpath,
) -> Rules:
    """Rules from config and `--allow`; `tools` are the known tools' names, `real` resolves the links in a path.

    Raises ConfigError naming the first rule that is misspelt or could never match: a void deny rule protects nobody.
    """

    def parsed(texts: Iterable[str], effect: Verdict) -> tuple[Rule, ...]:
        return tuple(_parse(text, effect, tools, real) for text in texts)

    return Rules(parsed(allow, "allow"), parsed(ask, "ask"), parsed(deny, "deny"))


def _parse(text: str, effect: Verdict, tools: Collection[str], real: Callable[[str], str]) -> Rule:
    what, colon, pattern = (piece.strip() for piece in str(text).partition(":"))
    whole = bool(re.match(r"/|~|\*\*|[A-Za-z]:[\\/]", pattern))
    fault = ""
    if what not in RISKS and what not in ("*", "destructive") and what not in tools:
        fault = f"{what!r} is neither a risk ({', '.join(RISKS)}) nor a tool nor `destructive` nor `*`"
    elif colon and not pattern:
        fault = "there is no pattern after the colon"
    elif (
        what == "send"
        and pattern
        and not re.fullmatch(
            r"[\w.*?-]+|(?:localhost|127(?:\.\d+){3}):\d+|\[?[\da-f.]*:[\da-f:.]*:[\da-f:.]*\]?", pattern.lower()
        )
    ):
        fault = "the pattern of send is a host such as example.com or *.example.com, without scheme, port and path"
    elif effect == "allow" and pattern and not whole and (what in ("read", "write") or what.startswith("file_")):
        fault = "it can never match: the pattern of an allow rule for files begins with /, ~ or **"
    if fault:
        raise ConfigError(f"{effect} rule {text!r}: {fault}")
    wide = effect != "allow"
    spelt = _spellings(pattern if whole else f"**/{pattern}", wide, real) if pattern and (whole or wide) else []
    return Rule(str(text), what, pattern, effect, tuple(tuple(_parts(one, wide)) for one in spelt))


def _spellings(pattern: str, wide: bool, real: Callable[[str], str]) -> list[str]:
    """The path pattern with its fixed beginning resolved, as real paths are matched; for ask and deny as written too."""
    written = os.path.expanduser(pattern)  # noqa: PTH111  # a pattern, no path
    fixed = re.split(r"(?<=/)(?=[^/]*[*?\[])", written, maxsplit=1)[0]
    resolved = written
    if fixed not in ("", "/", written[:0]) and not fixed.startswith("*"):
        resolved = os.path.join(real(fixed), written[len(fixed) :]) if len(fixed) < len(written) else real(fixed)  # noqa: PTH118
    return [resolved, written] if wide and resolved != written else [resolved]


def _parts(path: str, wide: bool) -> list[str]:
    if re.match(r"[A-Za-z]:[\\/]", path):
        path = path.replace("\\", "/")
    return [part for part in (unicodedata.normalize("NFC", path).casefold() if wide else path).split("/") if part]


def _below(pattern: tuple[str, ...], parts: list[str], wide: bool) -> bool:
    """Whether the pattern names the path or a folder above it; a last `*` of an allow rule is one part and no folder."""
    end = len(pattern)
    folder = wide or not pattern or pattern[-1] == "**" or not re.search(r"[*?]", _fixed(pattern[-1]))
    states = _skip({0}, pattern)  # how much of the pattern may be used up
    for part in parts:
        if end in states and folder:
            return True
        here = states - {end}
        used = {i if pattern[i] == "**" else i + 1 for i in here if pattern[i] == "**" or _like(pattern[i], part)}
        states = _skip(used, pattern)
    return end in states


def _skip(states: set[int], pattern: tuple[str, ...]) -> set[int]:
    for i in range(len(pattern)):
        if i in states and pattern[i] == "**":
            states.add(i + 1)
    return states


def _fixed(part: str) -> str:
    return re.sub(r"\[[*?\[]\]", "", part)


@functools.lru_cache(1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(re.sub(r"\[(?![*?\[]\])", "[[]", pattern)))


def _like(pattern: str, text: str) -> bool:
    return bool(_regex(pattern).match(text))


def _host(text: str) -> str:
    """Lower case, ASCII, without port, brackets and the last dot."""
    bare = text.strip().lower()
    bare = (
        bare[1 : bare.find("]")] if bare.startswith("[") else bare.rpartition(":")[0] if bare.count(":") == 1 else bare
    )
    bare = bare.rstrip(".")
    with contextlib.suppress(UnicodeError):  # no name for the DNS: compared as it is
        return bare.encode("idna").decode()
    return bare


def _kind(action: Action, target: str) -> str:
    if action.risk == "send":
        return "host"
    if action.risk == "control" or (action.risk == "exec" and action.destructive and not action.parts):
        return "path" if re.match(r"/|[A-Za-z]:[\\/]", target) else "command"
    return "command" if action.risk == "exec" else "path"


def _hit(rules: Iterable[Rule], action: Action) -> Rule | None:
    """The first ask or deny rule that has to do with any part of the action."""
    things = dict.fromkeys((*action.targets, *action.parts))
    for rule in rules:
        if rule.about(action) and any(rule.covers(thing, _kind(action, thing)) for thing in things or [""]):
            return rule
        also = action.destructive and rule.what in ("*", "write", "destructive", action.tool, action.risk)
        paths = [thing for thing in action.targets if also and _kind(action, thing) == "path"]
        if any(map(rule.concerns, paths)):  # what lies in a folder goes with it
            return rule
    return None


def unreadable(rules: Rules) -> tuple[Path, ...]:
    """Folders and files that a deny rule takes out of reading altogether: a sandbox can hide those."""
    folders = (
        re.fullmatch(r"([/~][^*?\[]*?)(?:/\*\*)?", rule.pattern) for rule in rules.deny if rule.what in ("*", "read")
    )
    return tuple(Path(os.path.realpath(expand(found[1]))) for found in folders if found)


def ruled_out(action: Action, rules: Rules) -> bool:
    """Whether a deny or ask rule is about it."""
    return _hit((*rules.deny, *rules.ask), action) is not None


def _allowed(rules: Iterable[Rule], action: Action, tainted: bool) -> str:
    """The allow rules that together cover every part of the action, or ""; literally the whole command will do too."""
    counted = [
        rule
        for rule in rules
        if rule.about(action)
        and (rule.what == "destructive" or not action.destructive)
        and (rule.narrow or not (tainted and action.guarded))
    ]
    whole = next(
        (
            rule.text
            for rule in counted
            if len(action.targets) == 1
            and rule.pattern
            and rule.pattern in [_escaped(target) for target in action.targets]
        ),
        "",
    )
    used: dict[str, None] = {}
    for thing in action.parts or action.targets or ("",):
        kind = _kind(action, thing)
        # A command that nobody took apart may be several: only a rule for any command covers it.
        single = kind != "command" or bool(action.parts) or not re.search(r"[;&|\n`(<>]", thing)
        rule = next((r for r in counted if (single or not r.narrow) and r.covers(thing, kind)), None)
        if rule is None:
            return whole
        used[rule.text] = None
    return ", ".join(used)


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text.strip())


def rule_for(action: Action) -> str:
    """What to write after `--allow` to permit exactly this, quoted for a shell; several targets give several `--allow`."""
    what = "destructive" if action.destructive else action.risk
    rules = [f"{what}:{_escaped(target)}" for target in action.targets if target.strip()] or [what]
    return " --allow ".join(shlex.quote(rule) for rule in rules)


def decide(action: Action, rules: Rules, mode: Mode) -> Decision:
    """Deny rule, destructive, ask rule, allow rule, and then the defaults; "ask" is for `settle` to turn down."""
    if rule := _hit(rules.deny, action):
        return Decision("deny", say("may_not_rule", rule=rule.text, what=_said(action)))
    allowed = _allowed(rules.allow, action, mode.tainted)
    if action.destructive and not allowed:
        return Decision("ask", action.destructive, (rule_for(action),))
    if rule := _hit(rules.ask, action):
        return Decision("ask", say("may_rule", rule=rule.text, what=_said(action)))
    if allowed:
        return Decision("allow", f"allowed by the rule {allowed!r}")
    why = _doubt(action, mode)
    return Decision("ask", why, (rule_for(action),)) if why else Decision("allow")


def _doubt(action: Action, mode: Mode) -> str:
    """Why the defaults ask, or ""."""
    key = ""
    if action.risk == "write" and action.outside:
        key = "may_outside"
    elif action.risk == "write" and action.memory and mode.tainted:
        key = "may_memory"
    elif action.risk == "exec" and mode.origin in ("remote", "watcher") and not (mode.sandboxed or mode.sandbox_waived):
        key = "may_unboxed"
    elif action.risk == "send" and not action.known:
        key = "may_reach" if mode.tainted else "may_send"
    elif action.risk == "control":
        key = "may_browser" if action.tool.startswith("web_") else "may_control"
    return say(key, what=_said(action)) if key else ""


def _said(action: Action) -> str:
    text = " ".join((", ".join(action.targets) or action.tool).split())
    most = 200 if _kind(action, text) == "command" else 4000  # the end of a path is what tells it from others
    return f"{text[:most]}{'…' if len(text) > most else ''}"


def settle(decision: Decision, origin: Origin) -> Decision:
    """The verdict where it has to be final: a script and a watcher have nobody to ask, so they deny."""
    if decision.verdict != "ask" or origin in ("chat", "remote"):
        return decision
    return Decision("deny", decision.why, decision.rules)


def strictest(decisions: Iterable[Decision]) -> Decision:
    """One for all the actions of a tool call: the strictest verdict, and everything that speaks for it."""
    found = list(decisions)
    verdict: Verdict = max((d.verdict for d in found), key=VERDICTS.index, default="allow")
    why = dict.fromkeys(d.why for d in found if d.verdict == verdict and d.why)
    return Decision(verdict, "; ".join(why), tuple(dict.fromkeys(rule for d in found for rule in d.rules)))


class Grants:
    """The answers "once" and "session", each for exactly one call: the tool, its arguments, the folder."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[Scope, bool]] = {}
        self.said: dict[str, str] = {}  # what was allowed for the session, in words, by key

    @staticmethod
    def key(tool: str, args: Mapping[str, Any], cwd: str) -> str:
        """SHA-256 over tool, arguments (but those that begin with `_`) and folder; TypeError if no JSON."""
        shown = {name: value for name, value in args.items() if not name.startswith("_")}
        return hashlib.sha256(json.dumps([tool, shown, cwd], sort_keys=True).encode()).hexdigest()

    def grant(self, key: str, scope: Scope, tainted: bool = False, said: str = "") -> None:
        """`tainted`: whether text from outside had been read when the user answered."""
        self._given[key] = (scope, tainted)
        self.said |= {key: said} if scope == "session" else {}

    def covers(self, key: str, tainted: bool, guarded: bool = True) -> bool:
        """Whether it was answered; "once" is used up by that. After the taint an older answer isn't one if `guarded`."""
        scope, then = self._given.get(key, (None, False))
        if scope == "once":
            del self._given[key]
        return scope is not None and (then or not tainted or not guarded)
