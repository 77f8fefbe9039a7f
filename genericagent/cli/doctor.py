"""`ga doctor`: does everything work that is needed, what does this installation let in, and how is mended what is wrong.

Every line is looked up, not remembered. The checks run beside each other, and none is waited for longer than LIMIT.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .. import __version__, control, paths
from ..config import Config, Model, resolve_secret
from ..errors import BudgetError, ConfigError, GAError, LLMError, ToolError
from ..extras import EXTRAS, NEEDED, install_command
from ..prompts import language, say
from ..safety.guard import contain, zones_of
from ..safety.policy import Origin, parse_rules
from ..safety.redact import Redactor
from ..safety.sandbox import Sandbox, why_not
from ..safety.term import one_line
from ..store.ledger import Ledger
from .cells import fitted
from .log import in_one_line

if TYPE_CHECKING:
    from agentmain import GenericAgent

LIMIT, PATIENCE = 10.0, 8.0  # seconds for a check, and for a call that one makes
FACES = {"telegram": ("telegram", "markdown_it"), "web": ("aiohttp", "markdown_it")}  # by the extra's name
INDENT = " " * 8  # what a line says stands behind its state
LITTLE = 500 << 20  # bytes of free disk below which there is a problem
SKEW = 120  # seconds that the clock may be wrong
MODES: tuple[Origin, ...] = ("chat", "script", "remote", "watcher")


class Line(NamedTuple):
    """`state`: ok, note or problem. `mend`: the one command or edit that mends it."""

    state: str
    text: str
    mend: str = ""

    def __str__(self) -> str:
        head = f"{say(f'doctor_{self.state}'):<{len(INDENT)}}{one_line(self.text, 500)}"
        return f"{head}\n{INDENT}→ {one_line(self.mend, 300)}" if self.mend else head


Check = Callable[[], Iterator[Line]]


def run_doctor(argv: Sequence[str]) -> int:
    """The subcommand: prints the report; 1 when there is a problem. Raises UsageError."""
    from llmcore import load_config

    from .args import Parser, named

    about = "Does everything work that is needed, what does this installation let in, and how is mended what is wrong."
    parser = Parser(prog=f"{paths.this_program()} doctor", description=about, allow_abbrev=False)
    parser.add_argument("--offline", action="store_true", help="ask neither the models nor Telegram")
    parser.add_argument("--config", type=named, metavar="FILE", help="read the configuration from FILE first")
    args = parser.parse_args(argv)
    found = list[Config]()

    def read() -> Iterator[Line]:
        found.append(load_config(args.config))
        yield from ()

    broken = together([read])  # a mykey.py may hang
    lines = [*broken, *report(found[0] if found else Config(), offline=args.offline)]
    sys.stdout.write(fitted("".join(f"{line}\n" for line in lines), sys.stdout, INDENT))
    count = Counter(line.state for line in lines)
    sys.stdout.write(f"{say('doctor_sum', problems=count['problem'], notes=count['note'])}\n")
    return int(count["problem"] > 0)


def report(config: Config, agent: GenericAgent | None = None, *, offline: bool = False) -> list[Line]:
    """What works and what does not, without keys; first in the chat of this `agent`. Unless `offline`, each model is asked
    for a word (some tokens)."""
    dates = list[tuple[str, float]]()
    models = [lambda n=n, m=m: _model(n, m, config, offline, dates) for n, m in enumerate(config.models)]
    checks: list[Check] = _of_this_chat(agent, offline, dates) if agent else []
    checks += [_program, _home, lambda: _files(config), *models]
    checks += [
        lambda: _sandbox(config),
        lambda: _browser(config),
        lambda: _faces(config),
        lambda: _telegram(config, offline),
        lambda: _limits(config),
        _terminal,
    ]
    lines = [*together(checks), *together([lambda: iter([_clock(dates)])])]
    if not config.models:
        lines.append(Line("problem", say("no_key"), say("doctor_no_model")))
    hide = Redactor(config.hidden())
    return [Line(line.state, hide(line.text), hide(line.mend)) for line in lines]


def together(checks: Sequence[Check], limit: float = LIMIT) -> list[Line]:
    """Their lines in order; one that is not ready after `limit` seconds is a problem, and left behind."""
    found: list[list[Line]] = [[] for _ in checks]
    late = Line("problem", say("doctor_late", seconds=f"{limit:.0f}"))

    def work(check: Check, lines: list[Line]) -> None:
        try:
            lines.extend(check())
        except (GAError, OSError) as error:
            lines.append(Line("problem", str(error)))
        except Exception as error:  # a bug ends this check, and is told like what it looks for
            lines.append(Line("problem", in_one_line(error, "make a check")))

    threads = [
        threading.Thread(target=work, args=job, name="doctor-check", daemon=True)
        for job in zip(checks, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    ready = zip(threads, found, strict=True)
    return [line for thread, lines in ready for line in [*lines, *([late] if thread.is_alive() else [])]]


def _of_this_chat(agent: GenericAgent, offline: bool, dates: list[tuple[str, float]]) -> list[Check]:
    """What counts in the conversation, which may not be what is configured."""

    def model() -> Iterator[Line]:
        name, used, window = agent.client.name, sum(control.context(agent).values()), agent.context_win
        yield Line("ok", say("doctor_here_model", name=name, used=f"{used:,}", window=f"{window:,}"))
        asked = agent.client.backend.model
        if asked.kind != "mixin" and asked not in agent.config.models:  # /session.… has changed it
            yield from _model(
                next(n for n, _, chosen in agent.list_llms() if chosen),
                asked,
                replace(agent.config, models=[asked]),
                offline,
                dates,
            )
        if agent.config.stale():
            yield Line("note", say("doctor_here_stale"))

    def saved() -> Iterator[Line]:
        if (file := agent.session_file) is None:
            yield Line("ok", say("doctor_here_new"))
        else:
            turns = len(control.turns(agent))
            yield Line("ok", say("doctor_here_saved", id=agent.session_id, turns=turns, file=file))

    def folder() -> Iterator[Line]:
        try:
            paths.temp().mkdir(parents=True, exist_ok=True)  # the first task would make it
            with tempfile.TemporaryFile(dir=agent.workspace) as file:
                file.write(b"x")
            yield Line("ok", say("doctor_here_folder", path=agent.workspace))
        except OSError as error:
            why = say("doctor_unwritable_folder", path=agent.workspace, why=error.strerror)
            yield Line("problem", why, say("doctor_here_workspace"))

    def walls() -> Iterator[Line]:
        try:
            held = agent.containment()
            state = held.note or say("doctor_held" if held.sandbox else "doctor_free")
            yield Line("note" if held.note else "ok", say("doctor_here_walls", state=state))
        except ConfigError as error:
            yield Line("problem", say("doctor_here_walls", state=say("doctor_refuses", why=error)), "/sandbox")
        said = [*control.allowed_here(agent), *map(str, agent.guard.grants.said.values())]
        yield Line("ok", say("doctor_here_asks", allowed=", ".join(said) or "–"))
        if agent.guard.tainted:
            yield Line("note", say("doctor_here_tainted", source=agent.guard.tainted))

    return [model, saved, folder, walls, lambda: iter([Line("ok", say("doctor_here_language", name=language()))])]


def _program() -> Iterator[Line]:
    system = f"{platform.system()} {platform.release()}"
    yield Line("ok", f"genericagent: {__version__}, Python {platform.python_version()}, {system}")
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        yield Line("problem", say("doctor_packages", names=", ".join(missing)), install_command(*missing))


def _home() -> Iterator[Line]:
    told, home = paths.ensure_home(), paths.home()
    yield Line("ok", say("doctor_home", home=home, mode=f"{home.stat().st_mode & 0o777:04o}", temp=paths.temp()))
    yield from (Line("note", line) for line in told)
    try:
        with tempfile.TemporaryFile(dir=home) as file:
            file.write(b"x")
    except OSError as error:
        yield Line(
            "problem",
            say("doctor_unwritable", home=home, why=error.strerror),
            f"chmod -R u+rwX {shlex.quote(str(home))}",
        )
    free = shutil.disk_usage(home).free
    full, biggest = free < LITTLE, f"du -ah {shlex.quote(str(home))} | sort -h | tail"
    disk = say("doctor_disk", free=f"{free / (1 << 30):.1f}", home=home)
    yield Line("problem" if full else "ok", disk, biggest if full else "")


def _files(config: Config) -> Iterator[Line]:
    read = [str(path) for path, stamp in config.seen.items() if stamp is not None]
    yield Line("ok", say("doctor_files", files=", ".join(read) or "–"))
    yield from (Line("note", line) for line in config.told)
    for problem in config.problems:
        text, colon, command = problem.partition(": chmod ")
        yield Line("problem", text, f"chmod {command}" if colon else say("doctor_correct"))


def _model(number: int, model: Model, config: Config, offline: bool, dates: list[tuple[str, float]]) -> Iterator[Line]:
    where = model.base_url or ", ".join(map(str, model.members))
    about = say("doctor_model", number=number, name=model.label, where=where, source=model.source)
    twin = next(
        m for m in config.models if (m.base_url, m.api_key, m.model) == (model.base_url, model.api_key, model.model)
    )
    if offline or model.kind == "mixin" or twin is not model:
        yield Line("ok", about)
        return
    from .trial import try_model

    try:
        resolve_secret(model.api_key, model.source, PATIENCE)
        trial = try_model(model, config, PATIENCE)
    except GAError as error:
        yield Line("problem", f"{about}: {error}", _mend_model(error, model))
        return
    dates.append((trial.date, time.time()))
    cost = say("cost_unknown") if trial.cost is None else f"${trial.cost:.6f}"
    yield Line("ok", say("doctor_answered", about=about, seconds=f"{trial.seconds:.1f}", cost=cost))


def _mend_model(error: GAError, model: Model) -> str:
    source, status = model.source, error.status if isinstance(error, LLMError) else 0
    if source == "environment":
        source = "ANTHROPIC_API_KEY, ANTHROPIC_…" if model.api == "anthropic" else "OPENAI_API_KEY, OPENAI_…"
    if isinstance(error, BudgetError):
        return say("doctor_limit")
    if isinstance(error, ConfigError):
        return say("doctor_correct")
    if status in (401, 403):
        return say("doctor_key", source=source)
    if status == 404:
        return say("doctor_name", source=source)
    return say("doctor_net", source=source, host=model.base_url)


def _sandbox(config: Config) -> Iterator[Line]:
    zones, safety = zones_of(paths.temp()), config.safety
    net = safety.net != "off"
    for folder in zones.writable:
        folder.mkdir(parents=True, exist_ok=True)
    wanted = safety.sandbox == "require" or not net
    if fault := why_not(Sandbox(zones, net=net)):
        missing = sys.platform == "linux" and not shutil.which("bwrap")
        mend = "sudo apt install bubblewrap" if missing else ""
        yield Line("problem" if wanted else "note", say("doctor_sandbox", state=fault), mend)
    else:
        yield Line("ok", say("doctor_sandbox", state=say("doctor_sandbox_works")))
    inside = say("doctor_configured", sandbox=safety.sandbox or "–", net="on" if net else "off")
    yield Line("ok", inside)
    for origin in MODES:
        try:
            held = contain(safety.sandbox, origin, zones, net)
            yield Line("ok", say(f"doctor_{origin}", state=say("doctor_held" if held.sandbox else "doctor_free")))
        except ConfigError as error:
            yield Line("note", say(f"doctor_{origin}", state=say("doctor_refuses", why=error)))
    from ga import load_tool_schema

    tools = [tool["function"]["name"] for tool in load_tool_schema()]
    for name in ("allow", "ask", "deny"):
        yield Line("ok", say("doctor_rules", name=name, rules=", ".join(getattr(safety, name)) or "–"))
    try:
        parse_rules(safety.allow, safety.ask, safety.deny, tools)
    except ConfigError as error:
        yield Line("problem", str(error), say("doctor_correct"))


def _browser(config: Config) -> Iterator[Line]:
    from ..browser.server import ports

    port, link_port = ports(paths.home())
    yield Line("ok", say("doctor_listeners", port=port, link_port=link_port, page=config.web.port))
    if not paths.pairing().is_file():
        yield Line("note", say("doctor_unpaired"), f"{paths.this_program()} browser setup")
        return
    from TMWebDriver import TMWebDriver

    try:
        with TMWebDriver() as driver:
            browsers = driver.status(PATIENCE / 2)["browsers"]
    except ToolError as error:  # it may simply not be open
        yield Line("note", say("doctor_browser", state=error), f"{paths.this_program()} browser status")
        return
    for browser in browsers:
        state = browser.get("error") or say("doctor_tabs", tabs=browser["tabs"], ms=f"{browser['ms']:.0f}")
        yield Line("note" if "error" in browser else "ok", say("doctor_browser", state=f"{browser['name']}: {state}"))


def _faces(config: Config) -> Iterator[Line]:
    """Whether the packages of the optional faces are there."""
    for extra, packages in FACES.items():
        if all(map(importlib.util.find_spec, packages)):
            yield Line("ok", say(f"doctor_face_{extra}"))
            continue
        wanted = extra == "telegram" and config.telegram.token
        yield Line(
            "problem" if wanted else "note",
            say("doctor_no_face", face=f"{paths.this_program()} {extra}"),
            install_command(*EXTRAS[extra]),
        )


def _paired() -> str:
    """Who has become the bot's owner by its code; "" when nobody has."""
    try:
        owner = json.loads((paths.faces() / "telegram.json").read_bytes())["owner"]
    except (OSError, ValueError, KeyError, TypeError):  # the bot itself says what is wrong with it
        return ""
    return "" if owner is None else f"{owner:d}" if isinstance(owner, int) else ""


def _telegram(config: Config, offline: bool) -> Iterator[Line]:
    token, users = config.telegram.token, config.telegram.allowed_users
    let_in = ", ".join(map(str, users)) or _paired() or say("doctor_nobody")
    if not token:
        yield Line("note", say("doctor_telegram", users=let_in, bot=say("doctor_no_token")))
        return
    if not users and not _paired():
        yield Line(
            "problem", say("doctor_telegram", users=let_in, bot=""), say("doctor_users", ga=paths.this_program())
        )
    if offline:
        yield Line("ok", say("doctor_telegram", users=let_in, bot=say("doctor_unasked")))
        return
    from ..abort import Abort
    from ..llm.transport import Transport

    try:
        url = f"{config.telegram.base_url.rstrip('/')}/bot{resolve_secret(token, '[telegram] token', PATIENCE)}/getMe"
        stream = Transport().send(url, {}, None, connect=PATIENCE / 2, first_byte=PATIENCE / 2, abort=Abort())
        stream.limit(PATIENCE / 2)
        bot = json.loads(stream.body())["result"]["username"]
        stream.close()
        yield Line("ok", say("doctor_telegram", users=let_in, bot=f"@{bot}"))
    except (GAError, ValueError, KeyError, TypeError) as error:
        refused = isinstance(error, LLMError) and error.status in (401, 404)
        mend = (
            say("doctor_token")
            if refused or isinstance(error, ConfigError)
            else say("doctor_net", source="[telegram]", host=config.telegram.base_url)
        )
        yield Line("problem", say("doctor_telegram", users=let_in, bot=error), mend)


def _limits(config: Config) -> Iterator[Line]:
    limits, spent = config.limits, Ledger(paths.home() / "spend").today()
    caps = {"max_turns": limits.max_turns, "max_cost": limits.max_cost, "max_time": limits.max_time, "daily_cost": limits.daily_cost}  # fmt: skip
    yield Line("ok", say("doctor_limits", caps=", ".join(f"{k} = {v}" for k, v in caps.items() if v is not None)))
    watchers = Ledger(paths.home() / "spend" / "watchers").today()
    yield Line(
        "ok",
        say(
            "doctor_spent",
            day=f"{spent.cost:.4f}",
            watchers=f"{watchers.cost:.4f}",
            limit=f"{config.reflect.daily_cost:.2f}",
        ),
    )


def _terminal() -> Iterator[Line]:
    encoding, term = (sys.stdout.encoding or "ascii").lower(), os.environ.get("TERM", "")
    size = shutil.get_terminal_size()
    about = say("doctor_terminal", term=term or "–", columns=size.columns, rows=size.lines, encoding=encoding)
    if not encoding.startswith("utf"):
        yield Line("note", about, "export LANG=C.UTF-8" if os.name != "nt" else "chcp 65001")
    elif term in ("dumb", "unknown") and sys.stdout.isatty():
        yield Line("note", about, "export TERM=xterm-256color")
    else:
        yield Line("ok", about)


def _clock(dates: Sequence[tuple[str, float]], now: Callable[[], float] = time.time) -> Line:
    """Against the Date header of an answer; without one only against the age of this program."""
    from email.utils import parsedate_to_datetime

    about, skew = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now())), 0.0
    for header, here in dates:
        try:
            skew = here - parsedate_to_datetime(header).timestamp()
            break
        except (ValueError, TypeError):
            continue  # it sends none
    else:
        skew = min(0.0, now() - Path(__file__).stat().st_mtime)
    if abs(skew) <= SKEW:
        return Line("ok", say("doctor_clock", now=about))
    mends = {
        "linux": "sudo timedatectl set-ntp true",
        "darwin": "sudo sntp -sS time.apple.com",
        "win32": "w32tm /resync",
    }
    return Line("problem", say("doctor_skew", now=about, seconds=f"{skew:+.0f}"), mends.get(sys.platform, "date"))
