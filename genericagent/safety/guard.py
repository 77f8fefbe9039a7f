"""Stands between the model and its tools: says of each call whether it runs, is asked about, or not, and remembers what a
conversation has seen: text from outside (it is tainted from then on), hosts, the user's answers.

policy.py has the rules and commands.py reads scripts; here is what they are told about a call.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import paths
from ..errors import ConfigError
from ..prompts import say
from .confine import Confinement
from .policy import UNKNOWN, Action, Grants, Mode, Origin, Rules, decide, ruled_out, settle, strictest
from .term import one_line, visible
from .zones import ARCHIVE, NOTES, Zones

if TYPE_CHECKING:  # imported when they are needed: a task without a script needs none of them
    from .commands import Findings
    from .sandbox import Sandbox
    from .web import Tab

SHOWN, WIDE = 12, 200  # lines of a script that a question shows at first, characters of each
SCRIPT_AT_MOST = 256 << 10  # bytes of a script file that is looked into
NAMED_FILES = 50  # words of a script that are looked up as files
TERMINAL: tuple[Origin, ...] = ("chat", "script")  # started by a person at this terminal
_HOST = re.compile(
    r"(?<![\w@.-])(?P<scheme>[a-z]+://)?(?P<host>(?:[\w-]+\.)+[a-z]{2,24}|localhost|\d{1,3}(?:\.\d{1,3}){3})(?P<port>:\d{1,5})?(?![\w-]|[\w.-]*@)",
    re.I,
)
# Top-level domains that are more often the end of a file's name; such a host is only named with its scheme.
FILE_ENDINGS = frozenset("app cc do id in is java md mov my name page pl ps py rs run sh so tools zip".split())  # noqa: SIM905
_WORD = re.compile(r"[^\s'\"`;|&<>()$={},]+")
_MEMORY = re.compile(
    r"[/\\]memory\b|\bmemory[/\\]|['\"]memory['\"]|global_mem|memory_management_sop|L4_raw_sessions|\bga memory\b"
)
_WRITES = ("file_write", "file_patch")
# What the system's administrator put there, or the kernel makes up.
SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/etc/", "/proc/", "/sys/", "/dev/", "/opt/", "/System/", "/Library/")
WEB = ("web_scan", "web_execute_js")
_OF_THE_WIRE = ("do", "args", "around", "file", "frame_url", "all_frames")  # of a request to the browser: not shown
LOOKS = ("page", "screenshot", "activate")  # requests to the browser that only look
_URL = re.compile(r"\bhttps?://[^\s<>\"'`，。；、）),;!]+", re.I)


def zones_of(workspace: Path) -> Zones:
    """The zones of a task that works there."""
    return Zones(*(Path(os.path.realpath(path)) for path in (workspace, paths.home(), Path.home())))


@dataclass(frozen=True)
class Containment:
    """What holds the commands of a task: a sandbox or none. `waived`: none, by the user's word. `note`: for the user."""

    sandbox: Sandbox | None = None
    waived: bool = False
    note: str = ""


def contain(
    wish: str | None,
    origin: Origin,
    zones: Zones,
    net: bool = True,
    hide: tuple[Path, ...] = (),
    fixed: tuple[Path, ...] = (),
) -> Containment:
    """`wish` is off, auto, require, or None for the default; `hide`, `fixed`: more that commands must not read, or change.

    Raises ConfigError where nothing may run without a sandbox.
    """
    unattended = origin not in TERMINAL
    if wish == "off" or (wish is None and not unattended):
        if not net:
            raise ConfigError(say("net_needs_sandbox"))
        return Containment(waived=unattended)
    if zones.workspace == Path(zones.workspace.anchor):
        raise ConfigError(say("sandbox_whole_disk"))
    if zones.of(zones.workspace / "file") == "protected":
        raise ConfigError(say("sandbox_own_home", folder=zones.workspace))
    from .sandbox import Sandbox, why_not

    for folder in (*zones.writable, zones.home / ARCHIVE):  # what is not there yet cannot be hidden
        folder.mkdir(parents=True, exist_ok=True)
    sandbox = Sandbox(zones, net=net, hide=hide, fixed=fixed)
    fault = why_not(sandbox)
    if not fault:
        return Containment(sandbox)
    if wish == "require" or not net:
        raise ConfigError(say("no_sandbox_required", why=fault))
    if unattended:
        raise ConfigError(say("no_sandbox_refused", why=fault))
    return Containment(note=say("no_sandbox", why=fault))


@dataclass(frozen=True)
class Ruling:
    """What a call may do. `question` is for the person who is asked; `findings` are those of a script."""

    verdict: str
    why: str = ""
    question: tuple[str, str] = ("", "")  # short, and with everything that would run
    rules: tuple[str, ...] = ()  # for --allow, quoted for a shell
    key: str = ""
    paths: tuple[str, ...] = ()  # real paths outside that the call may write: a rule or a person has said so
    findings: Findings | None = None
    hosts: tuple[str, ...] = ()  # that the call would reach
    opens: str = ""  # the place that a request to the browser opens or acts in


@dataclass
class Guard:
    """One conversation's. `enter` at the begin of each task; `tainted` says where the first outside text came from."""

    origin: Origin = "chat"
    rules: Rules = field(default_factory=Rules)
    clock: Callable[[], float] = time.time
    tainted: str = ""
    hosts: set[str] = field(default_factory=set)  # named by the user, or visited before any taint
    grants: Grants = field(default_factory=Grants)
    lent: set[str] = field(default_factory=set)  # hosts that are known only by such a grant
    fetched: list[tuple[float, float]] = field(default_factory=list)  # when calls ran that may have downloaded
    ours: set[str] = field(default_factory=set)  # keys of the tabs of the user's that the conversation works in
    opened: set[str] = field(default_factory=set)  # places that the user let it open or act in, if only once
    fixed: tuple[Path, ...] = ()  # files that steer this run
    containment: Containment = field(default_factory=Containment)
    zones: Zones = field(default_factory=lambda: zones_of(paths.temp()))  # of the task

    def enter(self, workspace: Path, containment: Containment) -> None:
        self.zones, self.containment = zones_of(workspace), containment

    @property
    def confined(self) -> bool:
        """Whether the file tools keep inside workspace, temp and memory whatever the policy says."""
        return self.containment.sandbox is not None or self.origin not in TERMINAL

    @property
    def mode(self) -> Mode:
        return Mode(self.origin, self.containment.sandbox is not None, self.containment.waived, bool(self.tainted))

    def user_said(self, text: str) -> None:
        """Hosts that the user names may be sent to."""
        if "." not in text and "//" not in text and "localhost" not in text:
            return
        from .web import LOOPBACK, place

        self.hosts.update(where for where in map(place, _URL.findall(text)) if where != UNKNOWN)
        for match in _HOST.finditer(text):
            ending = match["host"].rpartition(".")[2].lower()
            if match["scheme"] or match["host"].lower().startswith("www.") or ending not in FILE_ENDINGS:
                host = match["host"].lower()
                self.hosts |= {host, f"{host}{match['port'] or ':80'}"} if LOOPBACK.fullmatch(host) else {host}

    def outside(self, source: str) -> bool:
        """Text from outside has come into the context. True the first time."""
        first = not self.tainted
        self.tainted = self.tainted or source
        return first

    # a call

    def rule(self, tool: str, args: Mapping[str, Any], cwd: Path) -> Ruling:
        """The verdict on a call: allow, ask or deny."""
        actions, findings = self.actions(tool, args, cwd)
        return self._ruled(tool, args, cwd, actions, findings)

    def _ruled(
        self, tool: str, args: Mapping[str, Any], cwd: Path, actions: Sequence[Action], findings: Findings | None = None
    ) -> Ruling:
        decisions = [settle(decide(action, self.rules, self.mode), self.origin) for action in actions]
        worst = strictest(decisions)
        written = tuple(t for a in actions if a.risk in ("write", "control") and tool != "code_run" for t in a.targets)
        hosts = tuple(target for action in actions if action.risk == "send" for target in action.targets)
        ruling = Ruling(
            "allow", findings=findings, paths=written, hosts=(*hosts, *(findings.hosts if findings else ()))
        )
        if worst.verdict == "allow":
            return ruling
        # what a script file that it names would do now; where a tab is now
        found = {"findings": repr(findings or [action.targets for action in actions])}
        key = self.grants.key(tool, {**args, **found}, str(cwd))
        guarded = any(action.guarded for action in actions)
        if worst.verdict == "ask" and self.grants.covers(key, bool(self.tainted), guarded):
            return ruling
        stopped = [d for d in decisions if d.verdict == worst.verdict]
        whys = dict.fromkeys(one_line(d.why, 4000) for d in stopped)
        # one that a rule denies cannot be allowed, so no rule is offered for the others either
        rules = dict.fromkeys(rule for d in stopped for rule in d.rules if all(other.rules for other in stopped))
        asked = self._question(tool, args, list(whys))
        return replace(ruling, verdict=worst.verdict, why="; ".join(whys), rules=tuple(rules), question=asked, key=key)

    def actions(self, tool: str, args: Mapping[str, Any], cwd: Path) -> tuple[list[Action], Findings | None]:
        """What the call would do, as the policy understands it."""
        if tool in _WRITES:
            refs = (Action("file_read", "read", (path,)) for path in self.references(args, cwd))
            return [self._write(tool, str(args.get("path", "")), cwd), *refs], None
        if tool == "code_run":
            findings = self._analysis(args, cwd)
            actions = self._script(tool, str(args.get("script") or ""), findings)
            if (
                self.tainted and self.containment.sandbox is None and self.about_memory(tool, args, cwd)
            ):  # it may write there
                actions.append(Action(tool, "write", (str(self.zones.home / "memory"),), memory=True))
            if self.tainted and (notes := [name for name in NOTES if name in str(args.get("script"))]):
                actions.append(Action(tool, "write", (str(self.zones.workspace / notes[0]),), memory=True))
            return actions, findings
        if tool == "web_execute_js" and args.get("save_to_file"):
            return [Action(tool, "read"), self._write(tool, str(args["save_to_file"]), cwd)], None
        if "path" in args:  # also of a tool that is not named here
            return [Action(tool, "read", (real(args["path"], cwd),))], None
        return [Action(tool, "read")], None  # what a web tool asks of the browser is judged request by request

    def rule_request(
        self,
        tool: str,
        request: Mapping[str, Any],
        tab: Tab | None,
        tabs: Sequence[Tab],
        made: Collection[str],
        cwd: Path,
    ) -> Ruling:
        """The verdict on one request to the browser; `made`: the keys of the tabs that the agent has made."""
        from .web import View, opened_by, request_actions

        ours = self.ours | set(made)
        view = View(self.hosts, bool(self.tainted), ours, self.opened, self.zones, lambda path: real(path, cwd), tabs)
        shown = {key: value for key, value in request.items() if key not in _OF_THE_WIRE}
        args = {
            "script": shown.pop("code", "") or (json.dumps(shown, ensure_ascii=False) if shown else ""),
            "do": request["do"],
            **shown,
        }
        ruling = self._ruled(tool, args, cwd, request_actions(tool, request, tab, view))
        if request["do"] in LOOKS:  # an answer to that is no leave to act there
            return replace(ruling, hosts=())
        return replace(ruling, opens=opened_by(request, tab))

    def allowed(self, request: Mapping[str, Any], tab: Tab | None, made: Collection[str]) -> None:
        """Remember where the task works. What it chose before it had read anything of somebody else's is known from then on."""
        from .web import key_of, place

        chosen = [str(request["url"])] if request.get("url") else []
        if tab is not None and key_of(tab) not in self.ours | set(made):
            chosen += [] if request["do"] == "jump" else [str(tab["url"])]
            self.ours.add(key_of(tab))
        if not self.tainted:
            self.hosts.update(where for where in map(place, chosen) if "." in where or ":" in where)

    def _write(self, tool: str, path: str, cwd: Path) -> Action:
        target = real(path, cwd)
        zone = self.zones.of(Path(target))
        if zone == "protected" or Path(target) in self.fixed:
            return Action(tool, "control", (target,))
        lasting = zone == "memory" or Path(target).name.lower() in map(str.lower, NOTES)
        return Action(tool, "write", (target,), outside=zone == "outside", memory=lasting)

    def references(self, args: Mapping[str, Any], cwd: Path) -> list[str]:
        """The real paths of the files whose lines a file_write takes over."""
        return [real(path, cwd) for path in referenced(str(args.get("content") or ""))]

    def _analysis(self, args: Mapping[str, Any], cwd: Path) -> Findings:
        from .commands import Findings, analyze
        from .sandbox import sandbox_env

        script, kind = str(args.get("script") or ""), str(args.get("type") or "python")
        folder = Path(real(args.get("cwd") or ".", cwd))
        try:
            return analyze(
                script, kind, folder, home=self.zones.user, environ=sandbox_env(os.environ) if self.confined else os.environ,
                resolve=lambda path: Path(os.path.realpath(path)), read=_script_file, zones=self.zones,
            )  # fmt: skip
        except Exception:  # a fault of the reader must neither let a script pass nor end the task
            logging.getLogger("genericagent").exception("a script could not be read before it runs")
            return Findings(destroys=(say("may_unread"),), fetches=True, opaque=True)

    def _script(self, tool: str, script: str, found: Findings) -> list[Action]:
        unknown = self.tainted and (found.opaque or (found.fetches and not found.hosts))
        sent_to = dict.fromkeys((*found.sends, *(found.hosts if self.tainted else ()), *([UNKNOWN] if unknown else ())))
        about = dict(found.targets)
        return [
            Action(tool, "exec", (script,), parts=found.parts),
            *(self._destroying(tool, script, line, about.get(line, ""), found) for line in found.destroys),
            *(Action(tool, "send", (host,), known=host.lower() in self.hosts) for host in sent_to),
            *(Action(tool, "control", (about.get(line) or line,)) for line in found.control),
            *(action for action in self._visible_writes(tool, found) if self.tainted or ruled_out(action, self.rules)),
        ]

    @staticmethod
    def _destroying(tool: str, script: str, line: str, target: str, found: Findings) -> Action:
        """A rule can permit the path that would go, or the command; where neither is known, the script as it is."""
        if target:
            return Action(tool, "exec", (target,), destructive=line)
        return Action(tool, "exec", (script,), destructive=line, parts=found.parts)

    def _visible_writes(self, tool: str, found: Findings) -> Iterable[Action]:
        """Running code is allowed in the chat, whatever it writes, unless a rule or somebody else's text speaks of it."""
        for path in found.writes if self.containment.sandbox is None else ():  # there it cannot write outside
            memory = self.zones.of(Path(path)) == "memory"
            yield Action(tool, "write", (path,), outside=not memory, memory=memory)

    def _question(self, tool: str, args: Mapping[str, Any], whys: list[str]) -> tuple[str, str]:
        """What is asked: the tool, why, and what exactly would run; in short, and whole."""
        parts = (str(args[name]) for name in ("script", "old_content", "new_content", "content") if args.get(name))
        lines = [f"  │ {line}" for part in parts for line in visible(part).split("\n")]
        where = [say("may_where", folder=one_line(visible(str(args["cwd"])), 300))] if args.get("cwd") else []
        head = [say("may_question", tool=tool), *(f"  {why}" for why in whys), *where]
        fit = len(lines) <= SHOWN and all(len(line) <= WIDE for line in lines)
        short = [line if len(line) <= WIDE else f"{line[:WIDE]}…" for line in lines[:SHOWN]]
        more = [] if fit else [say("may_more", count=len(lines))]
        return "\n".join([*head, *short, *more]), "\n".join([*head, *lines])

    def granted(self, ruling: Ruling, scope: Literal["once", "session"]) -> None:
        """The user said yes. What was answered for the session holds for exactly this call, and its hosts are named now.
        Where it was let in once, it may look at what it finds there."""
        self.opened |= {ruling.opens} - {""}
        if scope == "session":
            self.grants.grant(ruling.key, scope, bool(self.tainted), ruling.why)
            self.lent |= {host.lower() for host in ruling.hosts if host != UNKNOWN} - self.hosts
            self.hosts |= self.lent

    def take_back(self, rules: Rules) -> None:
        """What the user has allowed for this conversation is not any more; `rules`: those that hold without it."""
        self.hosts -= self.lent
        self.grants, self.rules, self.lent, self.opened = Grants(), rules, set(), set()

    def sandbox_for(self, ruling: Ruling) -> tuple[Sandbox | None, str]:
        """(the sandbox of a script, what is to be said about it). Where nobody watches and somebody else's text may be
        speaking, the net is there only for a script that names nothing but hosts of the user's."""
        sandbox, found = self.containment.sandbox, ruling.findings
        if sandbox and self.tainted:
            notes = (self.zones.workspace / name for name in NOTES)
            sandbox = replace(sandbox, fixed=(*sandbox.fixed, *notes))
        if sandbox is None or not sandbox.net or not self.tainted or self.origin in TERMINAL or found is None:
            return sandbox, ""
        if found.hosts and all(host.lower() in self.hosts for host in (*found.hosts, *found.sends)):
            return sandbox, ""
        return replace(sandbox, net=False), say("net_off", source=self.tainted)

    def confinement(self, ruling: Ruling) -> Confinement | None:
        return Confinement(self.zones, ruling.paths) if self.confined else None

    def about_memory(self, tool: str, args: Mapping[str, Any], cwd: Path) -> bool:
        """Whether a call has to do with the memory: then it proves nothing that may be stored there."""
        memory = self.zones.home / "memory"
        named = [args[key] for key in ("path", "cwd", "save_to_file") if args.get(key)]
        if any(Path(real(name, cwd)).is_relative_to(memory) for name in named):
            return True
        script = str(args.get("script") or "")
        words = _WORD.findall(script)[: 10 * NAMED_FILES]
        return bool(_MEMORY.search(script)) or any(
            Path(real(word, cwd)).is_relative_to(memory) for word in words if len(word) < 1000
        )

    # what comes back

    def source_of_output(self, ruling: Ruling, script: str, cwd: Path, since: float) -> str:
        """Where the output of a script that ran comes from, as far as it can be told; "" for the user's own things."""
        found, sandbox = ruling.findings, self.containment.sandbox
        if found and found.fetches and (sandbox is None or sandbox.net):
            self.visited(found, since)
            return say("source_command", hosts=", ".join(found.hosts) or one_line(script, 60))
        return self.files_in(script, cwd, found.writes if found else ())

    def visited(self, findings: Findings, since: float) -> None:
        """A script that asks the net has run: its hosts count as visited unless somebody else's text sent it there."""
        self.fetched.append((since, self.clock()))
        if not self.tainted:  # what was sent to was asked about, and is not known by that
            self.hosts.update(host.lower() for host in findings.hosts if host not in findings.sends)

    def source_of(self, path: Path) -> str:
        """Where a file's text comes from when it is not the user's workspace: "" for what is trusted."""
        if self._downloaded(path):
            return say("source_downloaded", path=path)
        outside = self.zones.of(path) == "outside" and not str(path).startswith(SYSTEM)
        return say("source_file", path=path) if outside else ""

    def files_in(self, script: str, cwd: Path, written: Collection[str] = ()) -> str:
        """Where the first file comes from that a script names, reads, and that is not the user's workspace, nor a program."""
        words = dict.fromkeys(_WORD.findall(script[:SCRIPT_AT_MOST]))
        for word in list(words)[:NAMED_FILES]:
            path = Path(real(word, cwd)) if len(word) < 1000 else cwd
            if str(path) not in written and self._is_text_of_somebody(path) and (source := self.source_of(path)):
                return source
        return ""

    def _is_text_of_somebody(self, path: Path) -> bool:
        try:
            ordinary = path.is_file() and not os.access(path, os.X_OK)
        except (OSError, ValueError):
            return False  # no file name at all
        return ordinary and path.suffix not in (".py", ".sh") and not str(path).startswith(SYSTEM)

    def _downloaded(self, path: Path) -> bool:
        try:
            written = path.stat().st_mtime
        except (OSError, ValueError):
            return False  # not there, or no file name at all
        return path.is_file() and any(start - 1 <= written <= end for start, end in self.fetched)


def referenced(content: str) -> list[str]:
    """The paths in `{{file:path:start:end}}`."""
    return re.findall(r"\{\{file:([^{}\n]+?):\d+:\d+\}\}", content)


def real(path: Any, cwd: Path) -> str:
    """The real path; a name that cannot be one stays as it is, and the tool says what is wrong with it."""
    try:
        return os.path.realpath(cwd / paths.expand(str(path)))
    except (OSError, ValueError):
        return str(path)


def _script_file(path: Path) -> str | None:
    """The text of a script that a command names, None for what is too large or no text."""
    try:
        with path.open("rb") as file:
            data = file.read(SCRIPT_AT_MOST)
    except (OSError, ValueError):
        return None
    return None if b"\0" in data[:4096] else data.decode("utf-8", "replace")
