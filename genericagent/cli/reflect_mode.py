"""`--reflect SCRIPT`: a watcher. The script's check() is asked at intervals, and what it says is done as a task.

It costs nothing as long as check() says None. Everything that goes wrong is told once and waited out; see docs/WATCHERS.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import select
import shlex
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import paths
from ..errors import ConfigError, UsageError
from ..prompts import text
from ..safety.term import one_line
from ..store import atomic
from ..store.journal import new_id
from ..store.lock import FileLock
from ..store.outbox import Outbox
from .running import exit_code, items, outcome, working
from .script_host import Host, ScriptError, Settings, text_of

if TYPE_CHECKING:
    from agentmain import GenericAgent

LOOK = 5.0  # seconds between two looks at the script's file and the configuration
LONGEST = 3600.0  # seconds of the longest wait after a fault
LAST_WORDS = 5.0  # seconds that on_done() has when the watcher is stopped
MOST_FILES = 20_000  # files of a watched place whose writer is made out
SHOWN = 300  # characters of an answer on the watcher's screen
KEPT = 20  # results of a watcher that wait for the next chat; those after them are in the log
SHIPPED = {  # SHA-256 of the scripts as they are shipped: what is one of them needs nobody's word
    "autonomous": "5d6980de7ea746a804ea4f3e125e9d2529ff6fc966457d2d150721d0c4288f6b",
    "goal_mode": "5cf4ff1d6878bf6a3a2ea199db9e2b3f0b3a5f4ffcaebd7fe0a8e3c33bd94408",
    "scheduler": "1ddf6ebe1592333503be721ee01d14fd3ce1c42acc776ed8c14eb0bb575f1b50",
}
Stamp = tuple[int, int]


def find_script(name: str) -> Path:
    """The file of a path, of a script in $GA_HOME/reflect, or of a shipped one: absolute, links as they were given.
    Raises UsageError."""
    given = paths.expand(name)
    places = _places(name.removesuffix(".py"))
    named = given.name == name and not name.endswith(".py")  # a file that happens to be here is not meant
    for path in places if named else [given, *(places if given.name == name else [])]:
        if path.is_file():
            return _here() / path
    raise UsageError(f"there is no script {name}; shipped are {', '.join(sorted(SHIPPED))}")


def _places(name: str) -> list[Path]:
    return [folder / f"{name}.py" for folder in (paths.home() / "reflect", paths.shipped("reflect"))]


def _here() -> Path:
    """The current folder, by the links that the shell has followed."""
    shown = os.environ.get("PWD", "")
    with contextlib.suppress(OSError):  # gone meanwhile
        if Path(shown).is_absolute() and Path(shown).samefile("."):
            return Path(shown)
    return Path.cwd()


def _key(script: Path) -> str:
    return _hash(os.fsencode(os.path.normpath(script)))[:16]


def locks_of(script: Path) -> list[FileLock]:
    """Held by the one process that runs this script, by whatever name."""
    return [FileLock(paths.home() / "locks" / f"reflect-{key}.lock") for key in {_key(script), _key(script.resolve())}]


class Approval:
    """Which text of a script a person wants to be run, and where its path has led to, in $GA_HOME/watchers: that of the
    first start, and what was confirmed since. Who may write there may do anything."""

    def __init__(self, script: Path) -> None:
        self.script, self.real = script, script.resolve()
        keys = {_key(script), _key(self.real)}  # what is approved by one name is so by the other
        self._files = [paths.home() / "watchers" / f"{key}.sha256" for key in keys]

    def confirm(self, word: str | None, ask: Callable[[str], bool]) -> bytes:
        """The script's text, if it is approved: before, by the beginning of its hash, or by a yes. Raises UsageError."""
        source, known = self.script.read_bytes(), self._known()
        version, shipped = _hash(source), _hash(source.replace(b"\r\n", b"\n")) in SHIPPED.values()
        first = not (known or self._shadows())
        if not (first or shipped or self.given(version) or (word and len(word) >= 12 and version.startswith(word))):
            path = self.script if self.script == self.real else f"{self.script} ({self.real})"
            told = text("watchers", "changed" if known else "shadows", path=path)
            if not ask(told):
                raise UsageError(f"{told} {how_to_approve(self.script, version)}")
        if known != [self._line(version)] * len(self._files):
            self.give(version)
        return source

    def given(self, version: str) -> bool:
        """Whether this text, at this place, is what was approved last."""
        return set(self._known()) == {self._line(version)}

    def give(self, version: str) -> None:
        """Raises ToolError."""
        for file in self._files:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            atomic.write_own(file, self._line(version).decode("utf-8", "surrogatepass"))

    def _line(self, version: str) -> bytes:
        return f"{version}  {self.real}\n".encode("utf-8", "surrogatepass")

    def _known(self) -> list[bytes]:
        """What was approved, by each name of the script that there is something of; b"" when it cannot be made out."""
        found = list[bytes]()
        for file in self._files:
            try:
                found.append(atomic.read_own(file))
            except FileNotFoundError:  # nothing was approved by this name
                continue
            except OSError:
                found.append(b"")
        return found

    def _shadows(self) -> bool:
        """Whether it has the name of a shipped script, or of one in $GA_HOME/reflect, and so is found in its stead."""
        others = (path for path in _places(self.script.stem) if path.is_file())
        return self.script.stem in SHIPPED or any(path.resolve() != self.real for path in others)


def how_to_approve(script: Path, version: str) -> str:
    return text("watchers", "approve", script=shlex.quote(str(script)), version=version[:12])


def _asked(told: str) -> bool:
    """Whether the person at the terminal says yes; nobody there is a no."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{one_line(told, 500)} {text('watchers', 'run_it')} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _typed() -> str | None:
    """What the person at the terminal has typed since the last time; None: nobody is there that could be asked."""
    if os.name != "posix" or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    try:
        if os.tcgetpgrp(0) != os.getpgrp():  # in the background, where reading would stop us
            return None
        return os.read(0, 4096).decode(errors="replace") if select.select([0], [], [], 0)[0] else ""
    except OSError:  # the terminal is gone
        return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run_reflect(args: Namespace, given: Mapping[str, str], make_agent: Callable[[], GenericAgent]) -> int:
    """Watch until the script says /exit (0), the user stops it (130), or, with ONCE, the first task is over."""
    script = find_script(args.reflect)
    paths.ensure_home()
    locks = locks_of(script)
    taken = [lock for lock in locks if lock.acquire()]
    try:
        approval = Approval(script)
        if busy := [lock for lock in locks if lock not in taken]:
            if args.approve and approval.confirm(args.approve, lambda told: False):
                sys.stderr.write(f"{text('watchers', 'approved', path=script)}\n")
                return 0
            pid = (busy[0].holder() or {}).get("pid", "unknown")
            raise UsageError(f"{script.name} is being watched already (process {pid})")
        source = approval.confirm(args.approve, _asked)
        agent = make_agent()
        if not agent.config.models:
            raise ConfigError("; ".join(agent.config.problems) or text("messages", "no_key"))
        stop = threading.Event()
        with working(agent, stop.set):
            return Watcher(agent, script, source, given, stop.is_set, stop.wait, typed=_typed).run()
    finally:
        for lock in taken:
            lock.release()


class Watcher:
    """One script and the agent that does what it asks for. `source`: the text of it that a person has approved;
    `wait(seconds)` sleeps, and is True when all is to end; `typed()`: see `_typed`."""

    def __init__(
        self, agent: GenericAgent, script: Path, source: bytes, given: Mapping[str, str], stopped: Callable[[], bool],
        wait: Callable[[float], bool], clock: Callable[[], float] = time.time,
        typed: Callable[[], str | None] = lambda: None,
    ) -> None:  # fmt: skip
        self.agent, self.path, self.name = agent, script, script.stem
        self._given, self._stopped, self._wait, self._clock, self._typed = given, stopped, wait, clock, typed
        self._outbox = Outbox(paths.home() / "outbox", clock)
        self._told: set[str] = set()  # faults of this version of the script that were reported
        self._faults = self._failures = 0  # in a row: of the script, of the model
        self._configured: dict[str, Stamp] = {}  # the configuration files when a task failed
        self._kept: tuple[str, Settings] | None = None  # a wake whose task could not begin, as it was asked for
        self._spent_on = ""  # the day whose money is used up
        self._turns, self._time = agent.options.max_turns, agent.options.max_time
        self._source, self._gone = source, False
        self._edited = self._broken = ""  # the version that waits for a person; that does not load
        self._host = self._new_host(source)

    def run(self) -> int:
        """The exit code. Raises UsageError when the script cannot be used at all."""
        try:
            self._host.load(self._stopped)
            self._tell("begins", path=self.path)
            while True:
                seconds, code = self._step()
                if self._stopped():
                    return 130
                if code is not None:
                    return code
                while seconds > 0:
                    if self._wait(min(LOOK, seconds)):
                        return 130
                    seconds -= LOOK
                    self._look()
                    if self._failures and self._configured_anew():
                        break
        except ScriptError as error:  # of load() alone: what comes later is waited out
            if self._stopped():
                return 130
            raise UsageError(self.agent.redact(f"{self.path.name}: {error}")) from None
        finally:
            self._host.close()

    def _step(self) -> tuple[float, int | None]:
        """One look and what follows from it: (seconds until the next, the exit code if that was the last)."""
        if self._gone or (self._spent_on == self._today() and not self._configured_anew()):
            return LOOK, None
        if self._kept:
            prompt, settings = self._kept
        else:
            try:
                prompt = self._host.check(self._stopped)
            except ScriptError as error:
                return self._fault(error), None
            settings, self._faults = self._host.settings, 0
        if prompt is None:
            return settings.interval, None
        if prompt.strip() == "/exit":
            return 0, 0
        looked = self._host.looked
        before = _stamps(looked)
        end, scripts = self._wake(prompt, settings)
        after = _stamps(looked)
        waits = self._must_wait(end) and not settings.once
        self._kept = (prompt, settings) if waits else None
        if not waits:
            self._done(end, settings.delivers)
            if settings.once:
                return 0, exit_code(end)
            if _only_ours(before, after, end.get("files_changed", {}), scripts):
                self._settle()
        wait = self._back_off(self._failures) if self._failures else 0.0
        return max(wait, self._host.settings.interval), None

    # a task

    def _wake(self, prompt: str, settings: Settings) -> tuple[dict[str, Any], str]:
        """Do it: (the last item, the scripts that have run). In a conversation of its own, unless the script keeps one."""
        shown, ran = list[str](), list[str]()
        options = self.agent.options
        options.max_turns, options.max_time = settings.max_turns or self._turns, settings.max_time or self._time
        self._log(f"\n== {prompt}\n")
        if settings.tainted:
            self.agent.guard.outside(settings.tainted)
        end: dict[str, Any] = {}
        for end in items(self.agent, prompt, source=f"reflect:{self.name}"):
            shown.append(end.get("next", ""))
            event = end.get("event") or {}
            if event.get("kind") == "notice" and not event.get("passing"):
                self._log(f"-- {event['text']}\n")
                self._put_few(one_line(event["text"], 2000), "notice")
            if event.get("kind") == "tool":
                ran.append(str(event["args"].get("script") or ""))
        end["began"] = bool(ran) or end["turn"] > 1
        self._log("".join(shown))
        if not settings.keep_session:  # who wants to go on with it, for an answer, can
            self.agent.new_session()
        day, limit = self.agent.watchers_ledger.today(), self.agent.config.reflect.daily_cost
        about = {"session": end["session"], "spent": day.cost, "limit": limit}
        told = end["status"] == "failed" or self.agent.day_is_spent()  # by the one notice of those
        (self._note if told else self._tell)("ended", status=end["status"], why=end["error"] or "", **about)
        return end, "\n".join(ran)

    def _must_wait(self, end: dict[str, Any]) -> bool:
        """Whether the task has not begun because of the model or the money: then it is kept, and tried again later."""
        self._configured = _stamps([str(path) for path in self.agent.config.seen])
        if self.agent.day_is_spent() and end["status"] == "limit":
            if self._spent_on != self._today():
                self._notice("spent", why=end["error"])
            self._spent_on = self._today()
            return not end["began"]
        if end["status"] != "failed":
            self._failures = 0
            return False
        if not self._failures:
            self._notice("failing", why=end["error"])
        self._failures += 1
        return not end["began"]

    def _done(self, end: dict[str, Any], delivers: bool) -> None:
        record, session = outcome(end), end["session"]
        if not delivers and end["status"] != "failed":  # of that there is a notice
            words, asked = text_of(record), end["question"]
            if asked:
                words = text("watchers", "asks", question=words, session=session)
            elif end["status"] != "done":
                words = text("watchers", "job_not_done", status=end["status"], result=words, session=session)
            words = self.agent.redact(words)
            sys.stderr.write(f"{self.name}: {one_line(words, SHOWN)}\n")
            self._put_few(words, "result")
        until = time.monotonic() + LAST_WORDS
        try:
            self._host.done(record, lambda: self._stopped() and time.monotonic() > until)
        except ScriptError as error:
            self._fault(error)

    def _settle(self) -> None:
        """Nothing but our own writes has changed where the script looks: it may see them, but they don't wake it."""
        try:
            prompt = self._host.check(self._stopped)
        except ScriptError as error:
            self._fault(error)
        else:
            if prompt is not None:
                self._tell("own_writes", prompt=prompt[:200])

    # the script

    def _new_host(self, source: bytes) -> Host:
        return Host(self.path, source.decode("utf-8-sig", "replace"), self._given, self._printed)

    def _look(self) -> None:
        """Take an edited script over once a person has approved it; until then the old text goes on. Who has edited it
        cannot be made out: a task may have left a process behind that does it later."""
        try:
            source = self.path.read_bytes() if self.path.is_file() else None
        except OSError:
            source = None
        if source is None and not self._gone:
            self._notice("gone", path=self.path)
        self._gone = source is None
        if source is None or source == self._source:
            self._edited = self._broken = ""
            return
        version, approval, said = _hash(source), Approval(self.path), self._typed()
        if version == self._edited and said and said.split()[-1:] in (["y"], ["yes"]):
            approval.give(version)
        if version == self._broken:
            return
        if approval.given(version):
            self._reload(source, version)
        elif said is not None and version != self._edited:
            self._tell("edited_here", path=self.path)
        elif said is None and not self._edited:  # --approve names the hash of a later one
            self._notice("edited", path=self.path, approve=how_to_approve(self.path, version))
        self._edited = version

    def _reload(self, source: bytes, version: str) -> None:
        """Go on with this approved text of the script; where it cannot be used, with the old one, begun anew."""
        self._host.close()  # first: both may want the same lock or port
        host = self._new_host(source)
        try:
            host.load(self._stopped)
        except ScriptError as error:
            if not self._stopped():
                self._broken = version
                self._notice("not_reloaded", path=self.path, why=one_line(str(error), 500))
            return
        self._host, self._source, self._told, self._faults, self._broken = host, source, set(), 0, ""
        self._tell("reloaded", path=self.path)

    def _fault(self, error: ScriptError) -> float:
        """Told once for each fault. Returns how long to wait, seconds."""
        if error.where not in self._told and not self._stopped():
            self._told.add(error.where)
            self._notice("fault", why=one_line(str(error), 500))
        self._faults += 1
        return max(self._back_off(self._faults), self._host.settings.interval)

    def _printed(self, line: str) -> None:
        self._tell("printed", line=line)

    # small things

    def _configured_anew(self) -> bool:
        """Whether a configuration file was edited since the last task failed."""
        return _stamps([str(path) for path in self.agent.config.seen]) != self._configured

    def _back_off(self, count: int) -> float:
        return float(min(LONGEST, 15 * 2 ** min(count, 20)))

    def _today(self) -> str:
        return time.strftime("%Y-%m-%d", time.localtime(self._clock()))

    def _notice(self, key: str, **values: object) -> None:
        """What a person should learn, also one that is not looking: it is shown when the next chat starts."""
        self._put(self._tell(key, **values))

    def _put(self, words: str, kind: str = "notice") -> None:
        self._outbox.put(f"{_plain(self.name)}-{kind}-{new_id(self._clock())}", "terminal", self.name, words)

    def _put_few(self, words: str, kind: str) -> None:
        waiting = [m for m in self._outbox.pending("terminal") if m["id"].startswith(f"{_plain(self.name)}-{kind}-")]
        if len(waiting) == KEPT:
            words = text("watchers", "more_results", folder=paths.temp() / "reflect_logs")
        if len(waiting) <= KEPT:
            self._put(words, kind)

    def _tell(self, key: str, **values: object) -> str:
        line = self._note(key, **values)
        sys.stderr.write(f"{self.name}: {line}\n")
        return line

    def _note(self, key: str, **values: object) -> str:
        """Into the log alone."""
        line = one_line(self.agent.redact(text("watchers", key, **values)), 2000)
        self._log(f"-- {line}\n")
        return line

    def _log(self, words: str) -> None:
        folder = paths.temp() / "reflect_logs"
        folder.mkdir(parents=True, exist_ok=True)
        if folder.is_symlink():  # scripts can write there too
            raise UsageError(f"{folder} is a link: nothing is written there")
        stamp = time.strftime("%H:%M:%S ", time.localtime(self._clock())) if words.startswith("-- ") else ""
        with atomic.open_own(folder / f"{self.name}-{self._today()}.log", append=True) as file:
            file.write((stamp + self.agent.redact(words)).encode("utf-8", "replace"))


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name)[:60]


def _stamps(places: list[str]) -> dict[str, Stamp]:
    """Modification time and size of the files that a script sees at these places, by real path; none of too many."""
    found: dict[str, Stamp] = {}
    for place in map(os.path.realpath, places):
        try:
            entries = list(os.scandir(place)) if os.path.isdir(place) else []  # noqa: PTH112  # many
            files = [(entry.path, entry.stat()) for entry in entries] if entries else [(place, os.stat(place))]  # noqa: PTH116
        except OSError:
            continue  # gone, or not to be read
        for path, stat in files:
            found[path] = (0, 0) if os.path.isdir(path) else (stat.st_mtime_ns, stat.st_size)  # noqa: PTH112
        if len(found) > MOST_FILES:
            return {}
    return found


def _only_ours(before: Mapping[str, Stamp], now: Mapping[str, Stamp], written: Iterable[str], scripts: str) -> bool:
    """Whether something has changed, and all of it by the file tools, or under a name that a script of the task had."""
    changed = [path for path in {*before, *now} if before.get(path) != now.get(path)]
    ours = {os.path.realpath(path) for path in written}

    def is_ours(path: str) -> bool:
        named = rf"(?<![\w.-]){re.escape(os.path.basename(path))}(?![\w-])"  # noqa: PTH119  # not `a` in `cat`
        return path in ours or any(o.startswith(f"{path}/") for o in ours) or bool(re.search(named, scripts))

    return bool(changed) and all(map(is_ours, changed))
