"""`ga doctor`: what this installation is, may do, and lets in; every line is looked up, not remembered."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

from .. import __version__, paths
from ..config import Config
from ..errors import ConfigError
from ..safety.guard import contain, zones_of
from ..safety.policy import Origin, parse_rules
from ..safety.sandbox import Sandbox, why_not
from ..safety.term import one_line
from ..store.ledger import Ledger

WIDTH = 24  # characters of the names
# who starts it → (what it is called here, what its table of defaults says, see docs/SECURITY.md)
MODES: dict[Origin, tuple[str, str]] = {
    "chat": ("chat", "asks: writes outside the workspace, destructive, sending to new hosts, control"),
    "script": ("-p, --task, --func", "the same are denied (exit 4) unless --allow RULE"),
    "remote": ("Telegram, web page", "asks by buttons; not in this version yet"),
    "watcher": ("watchers", "the same are denied and reported"),
}


def run_doctor() -> int:
    """Print the report; 1 when something is broken."""
    from llmcore import load_config

    problems, notes = list[str](), paths.ensure_home()
    try:
        config = load_config()
    except ConfigError as error:
        config = Config()
        problems.append(str(error))
    problems += config.problems
    for name, text in [*_program(), *_models(config), *_modes(config, problems), *_doors(config)]:
        sys.stdout.write(f"{name:<{WIDTH}} {one_line(text, 300)}\n")
    sys.stdout.writelines(f"{'note':<{WIDTH}} {one_line(note, 500)}\n" for note in [*notes, *config.told])
    sys.stdout.writelines(f"{'PROBLEM':<{WIDTH}} {one_line(problem, 500)}\n" for problem in problems)
    return 1 if problems else 0


def _program() -> Iterator[tuple[str, str]]:
    yield "genericagent", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    home = paths.home()
    there = f"mode {home.stat().st_mode & 0o777:04o}" if home.is_dir() else "not made yet"
    yield "home", f"{home} ({there})"
    yield "workspace", f"{paths.temp()} unless a folder is named"


def _models(config: Config) -> Iterator[tuple[str, str]]:
    for number, model in enumerate(config.models):
        yield (
            f"model {number}",
            f"{model.label} at {model.base_url or ', '.join(map(str, model.members))} ({model.source})",
        )
    if not config.models:
        yield "models", "none configured"


def _modes(config: Config, problems: list[str]) -> Iterator[tuple[str, str]]:
    zones, safety = zones_of(paths.temp()), config.safety
    net = safety.net != "off"
    for folder in zones.writable:
        folder.mkdir(parents=True, exist_ok=True)
    fault = why_not(Sandbox(zones, net=net))
    yield "sandbox", fault or "works (bubblewrap, tried just now)"
    yield "sandbox, configured", f"{safety.sandbox or 'default'}, network {'on' if net else 'off'} inside"
    for origin, (name, default) in MODES.items():
        try:
            held = contain(safety.sandbox, origin, zones, net)
            state = "sandboxed" if held.sandbox else "no sandbox"
        except ConfigError as error:
            state = f"REFUSES to run: {error}"
        yield f"mode {name}", f"{state}; {default}"
    try:
        parse_rules(safety.allow, safety.ask, safety.deny, _tools())
    except ConfigError as error:
        problems.append(str(error))
    for name in ("allow", "ask", "deny"):
        yield f"rules {name}", ", ".join(getattr(safety, name)) or "none"


def _doors(config: Config) -> Iterator[tuple[str, str]]:
    yield "listeners", f"none now; on loopback, behind a secret: --demo while it runs, {_bridge()}"
    allowed = config.telegram.allowed_users
    yield "telegram", f"allowed users: {', '.join(map(str, allowed))}" if allowed else "allowed users: nobody"
    limits = config.limits
    caps = {"turns": limits.max_turns, "dollars a task": limits.max_cost, "seconds": limits.max_time, "dollars a day": limits.daily_cost}  # fmt: skip
    yield "limits", ", ".join(f"{value} {name}" for name, value in caps.items() if value is not None)
    spent = Ledger(paths.home() / "spend" / "watchers").today()
    yield "watchers", f"${spent.cost:.4f} of ${config.reflect.daily_cost:.2f} today, in {spent.requests} requests"


def _bridge() -> str:
    """Where the bridge to the browser listens while a task uses it."""
    from ..browser.server import ports

    paired = paths.pairing().is_file()
    try:
        port, link_port = ports(paths.home())
    except ConfigError as error:
        return str(error)
    return f"the browser's bridge while it is used on {port} and {link_port} ({'paired' if paired else 'not set up'})"


def _tools() -> list[str]:
    from ga import load_tool_schema

    return [tool["function"]["name"] for tool in load_tool_schema()]
