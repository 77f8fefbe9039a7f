"""Slash commands about the conversation and the task: go on, name, go back, shorten, steer, plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .. import control
from ..safety.term import clean, one_line
from ..store.restored import Change, Turn
from .cells import cells
from .commands import command, pick, resume
from .status import recount

if TYPE_CHECKING:
    from .chat import Chat

BAR = 20  # cells
PLAN_LINES = 100
PLAN_CHARS = 100_000  # that are looked at for items
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s*\[([ xX])\][ \t]*(.*)", re.M)


@command(usage="[n|words|all]", idle=True, group="talk")
def _continue(chat: Chat, args: str) -> None:
    """go on with the newest conversation, or another"""
    if args:
        return resume(chat, args)
    ids = [id for id, _, _ in chat.agent.list_sessions() if id != chat.agent.session_id]
    return resume(chat, ids[0]) if ids else chat.say("no_sessions")


@command(usage="TITLE", group="talk")
def rename(chat: Chat, args: str) -> None:
    """call this conversation something else"""
    if not args:
        return chat.error("rename_usage")
    title = one_line(args, control.TITLE_CHARS)
    control.rename(chat.agent, title)
    return chat.say("renamed", title=title)


@command(usage="[n]", idle=True, group="talk")
def rewind(chat: Chat, args: str) -> None:
    """go back to before one of your messages"""
    found = control.turns(chat.agent)[::-1]
    if args and not (args.isdecimal() and 1 <= int(args) <= len(found)):
        return chat.error("no_turn", n=one_line(args), last=len(found))
    if args:
        return _how_far(chat, *found[int(args) - 1])
    if not found:
        return chat.say("no_turns")
    rows = [one_line(turn.text, 200) for turn, *_ in found]
    return pick(chat, chat.texts["rewind_which"], rows, lambda index: _how_far(chat, *found[index]))


def _how_far(chat: Chat, turn: Turn, changes: list[Change], memory: list[str]) -> None:
    """Ask whether the files go back too, where some can."""
    from ..tools import undo

    secret = control.secrecy(chat.agent)
    seen = [(change, undo.look(change, secret)) for change in changes]
    able = [change for change, why in seen if not why]
    stay = [(why, change) for change, why in seen if why in ("lost", "other")]
    if able:
        chat.say("plain", text="\n".join([chat.texts["rewind_files"], *(f"  {one_line(c.path, 300)}" for c in able)]))
    for why, change in stay:
        chat.say(f"rewind_{why}", path=one_line(change.path, 300))
    if memory:
        chat.say("rewind_memory", files=one_line(", ".join(memory), 300))
    if not able:
        return _go_back(chat, turn, [])
    rows = [chat.texts["rewind_talk"], chat.texts["rewind_both"].format(n=len(able)), chat.texts["cancel"]]
    ways = [lambda: _go_back(chat, turn, []), lambda: _go_back(chat, turn, able), lambda: chat.say("nothing_done")]
    return pick(chat, chat.texts["rewind_how"], rows, lambda index: ways[index]())


def _go_back(chat: Chat, turn: Turn, files: list[Change]) -> None:
    faults = control.rewind(chat.agent, turn, files)
    chat.forget()
    for fault in faults:
        chat.error("plain", text=one_line(fault, 500))
    if files:
        chat.say("rewound_files", n=len(files) - len(faults))
    chat.say("rewound", text=one_line(turn.text, 60))
    if turn.text and not chat.face.give_back(clean(turn.text)):
        chat.say("not_sent", text=clean(turn.text))


@command(group="talk")
def context(chat: Chat, args: str) -> None:
    """what fills the model's context"""
    parts, window = control.context(chat.agent), chat.agent.context_win
    lines = list[str]()
    for name, tokens in parts.items():
        if tokens:
            label = chat.texts[f"context_{name}"]
            bar = "█" * min(BAR, -(-BAR * tokens // window))
            gap = " " * (24 - cells(label))
            lines.append(f"  {label}{gap}{tokens:>9,}  {100 * tokens / window:>3.0f} %  {bar}")
    total = sum(parts.values())
    about = {"total": f"{total:,}", "window": f"{window:,}", "percent": f"{100 * total / window:.0f}"}
    chat.say("plain", text="\n".join([*lines, chat.texts["context_total"].format(**about)]))


@command(idle=True, group="talk")
def compact(chat: Chat, args: str) -> None:
    """shorten the conversation now"""
    before = f"{sum(control.context(chat.agent).values()):,}"
    if not control.compact(chat.agent):
        return chat.say("compact_nothing", before=before)
    recount(chat.agent)
    return chat.say("compacted", before=before, after=f"{sum(control.context(chat.agent).values()):,}")


@command(usage="TEXT", group="task")
def steer(chat: Chat, args: str) -> None:
    """tell the running task something, at its next turn"""
    if not args:
        return chat.error("steer_usage")
    return chat.say("steered") if chat.steered(args) else chat.submit(args)


@command(usage="[TASK|off]", group="task")
def plan(chat: Chat, args: str) -> None:
    """work along a checklist, from the next message on"""
    agent = chat.agent
    working = agent.handler.working if chat.running and agent.handler else {}
    active = working.get("plan", agent.plan)
    if args.lower() == "off":
        agent.plan = None
        working.pop("plan", None)
        return chat.say("plan_off")
    if not args and active:
        lines = Path(active).read_text("utf-8", "replace").splitlines() if Path(active).is_file() else []
        return chat.say("plain", text=clean("\n".join(lines[:PLAN_LINES])) or chat.texts["plan_unwritten"])
    if args and chat.running:
        return chat.error("busy", word="plan")
    agent.plan = ""
    chat.say("plan_task" if args else "plan_on")
    return chat.submit(args) if args else None


def progress(file: str, texts: Mapping[str, str]) -> str:
    """How far a checklist is, in a line; "" when there is none."""
    try:
        with Path(file).open(encoding="utf-8", errors="replace") as plan:
            items = _ITEM.findall(plan.read(PLAN_CHARS))
    except OSError:  # it is not written yet
        return ""
    left = [text for mark, text in items if mark == " "]
    if not left:
        return texts["plan_done"].format(all=len(items)) if items else ""
    return texts["plan_step"].format(done=len(items) - len(left), all=len(items), next=one_line(left[0], 60))
