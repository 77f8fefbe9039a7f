"""Slash commands about what the agent uses and may do: tools, workspace, permissions, sandbox, language."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import control, paths, prompts
from ..errors import ConfigError
from ..safety.term import one_line
from .cells import cells, wrapped
from .commands import WIDTH, command, pick

if TYPE_CHECKING:
    from .chat import Chat

WHOLE = ("/home", "/opt", "/srv", "/var", "/Users")  # in which folders of users lie
SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"),
    *("/Applications", "/Library", "/System", "/private/etc", "C:/Program Files", "C:/Windows"),
)
WISHES = ("off", "auto", "require")  # the strictest last


@command(group="set")
def tools(chat: Chat, args: str) -> None:
    """the tools, and what is allowed, asked, denied now"""

    width = chat.face.width()

    def row(name: str, about: str, verdict: str) -> str:
        told = chat.texts[f"is_{verdict}"]
        if width < WIDTH:  # no columns
            return "\n".join(wrapped(f"  {told}  {' · '.join(filter(None, [name, about]))}", width, "  "))
        return f"  {name:<28}{about}{' ' * (42 - cells(about))}{told}"

    tools, risks = control.verdicts(chat.agent, renew=not chat.running)
    lines = [row(name, chat.texts.get(f"tool_{name}", ""), verdict) for name, verdict in tools.items()]
    lines += [row("", chat.texts[f"risk_{name}"], verdict) for name, verdict in risks.items()]
    chat.say("plain", text="\n".join(lines))


@command(usage="[PATH]", group="set")
def workspace(chat: Chat, args: str) -> None:
    """show or change the folder to work in"""
    agent = chat.agent
    if args and chat.running:
        return chat.error("busy", word="workspace")
    if args:
        try:
            folder = (agent.workspace / paths.expand(args)).resolve()
            if not folder.is_dir():
                return chat.error("no_folder", path=one_line(str(folder), 300))
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL
            raise ConfigError(f"{args}: {error}") from None
        control.change(agent, workspace=folder)
    chat.say("workspace_now", path=one_line(str(agent.workspace), 300))
    if key := careful(agent.workspace):
        chat.error(key)
    return None


def careful(folder: Path) -> str:
    """The text that warns of this folder as a workspace; "" for an ordinary one."""
    folder = folder.resolve()
    if folder == Path.home().resolve():
        return "workspace_home"
    whole = folder == Path(folder.anchor) or str(folder) in WHOLE
    return "workspace_system" if whole or any(folder.is_relative_to(top) for top in SYSTEM) else ""


@command(usage="[RULE|clear]", group="set")
def approve(chat: Chat, args: str) -> None:
    """what is allowed without asking; allow more here"""
    guard = chat.agent.guard
    if args == "clear":
        guard.take_back(chat.agent.parsed_rules())
        return chat.say("approve_cleared")
    if args:
        control.allow(chat.agent, args)
        return chat.say("approved", rule=one_line(args, 300))
    here = control.allowed_here(chat.agent)
    sets = {
        "allow": guard.rules.allow[: len(guard.rules.allow) - len(here)],
        "ask": guard.rules.ask,
        "deny": guard.rules.deny,
    }
    rules = [
        f"  {chat.texts[f'is_{name}']}  {one_line(rule.text, 300)}" for name, found in sets.items() for rule in found
    ]
    granted = [f"  {one_line(what, 300)}" for what in (*here, *guard.grants.said.values())]
    lines = [chat.texts["approve_config"], *rules] if rules else []
    lines += [chat.texts["approve_here"], *granted] if granted else []
    return chat.say("plain", text="\n".join([*(lines or [chat.texts["approve_none"]]), chat.texts["approve_how"]]))


@command(usage="[auto|require|off]", group="set")
def sandbox(chat: Chat, args: str) -> None:
    """show or change what holds commands"""
    now, wish = chat.agent.sandbox_wish or "off", args.lower()
    if not args:
        return _tell_sandbox(chat, now, chat.agent.guard.containment.note)
    if wish not in WISHES:
        return chat.error("sandbox_usage")
    if chat.running:
        return chat.error("busy", word="sandbox")

    def switch() -> None:
        _tell_sandbox(chat, wish, control.change(chat.agent, sandbox=wish).note)

    if WISHES.index(wish) >= WISHES.index(now):
        return switch()
    title = chat.texts["sandbox_sure"].format(before=now, wish=wish, means=chat.texts[f"sandbox_means_{wish}"])
    rows = [chat.texts["no_keep"], chat.texts["yes_loosen"]]
    return pick(chat, title, rows, lambda index: switch() if index else chat.say("nothing_done"))


def _tell_sandbox(chat: Chat, wish: str, note: str) -> None:
    chat.say("sandbox_is", wish=wish, means=chat.texts[f"sandbox_means_{wish}"])
    if note:
        chat.say("plain", text=one_line(note, 500))


@command(usage="en|zh", idle=True, group="set")
def language(chat: Chat, args: str) -> None:
    """switch the language"""
    if args not in ("en", "zh"):
        return chat.error("language_usage")
    prompts.set_language(args)
    chat.texts.update(prompts.catalog("chat"))  # in place: others hold it too
    return chat.say("language_now")
