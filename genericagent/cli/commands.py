"""The chat's slash commands: one function each. Its docstring is its line in /help (translated by `help_<name>`)."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import GAError, NoSuchSession
from ..safety.term import clean, one_line

if TYPE_CHECKING:
    from .chat import Chat

Function = Callable[["Chat", str], None]


class Command(NamedTuple):
    name: str
    usage: str  # its arguments, for /help
    idle: bool  # refused while a task runs
    function: Function


COMMANDS: dict[str, Command] = {}  # by name and by alias
_WORD = re.compile(r"/([a-z_]+)(?:\s+(.*))?$", re.S | re.I)


def command(*aliases: str, usage: str = "", idle: bool = False) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        entry = Command(function.__name__.strip("_"), usage, idle, function)
        COMMANDS.update(dict.fromkeys((entry.name, *aliases), entry))
        return function

    return register


def parse(text: str, exists: Callable[[str], bool] = lambda path: Path(path).exists()) -> tuple[str, str] | None:
    """(word, arguments) when `text` is meant as a command, known or not; None when it is for the model."""
    match = _WORD.match(text.strip())
    if not match:
        return None
    word, rest = match[1].lower(), (match[2] or "").strip()
    if word not in COMMANDS and ("/" in rest or exists(f"/{match[1]}")):
        return None  # a sentence that begins with a path
    return word, rest


def run(chat: Chat, text: str) -> bool:
    """Run `text` if it is a command. False: it is for the model. Expected errors become one line."""
    parsed = parse(text)
    if parsed is None:
        return False
    word, rest = parsed
    entry = COMMANDS.get(word)
    if entry is None:
        from difflib import get_close_matches

        near = get_close_matches(word, COMMANDS, 1, 0.5)
        chat.error("unknown_near" if near else "unknown", word=word, near=near[0] if near else "")
    elif entry.idle and chat.running:
        chat.error("busy", word=word)
    else:
        try:
            entry.function(chat, rest)
        except GAError as error:
            chat.error("plain", text=one_line(str(error), 500))
    return True


@command("h")
def help(chat: Chat, args: str) -> None:
    """what can be typed here"""
    entries = {entry.name: entry for entry in COMMANDS.values()}
    lines = []
    for entry in entries.values():
        others = [f"/{word}" for word, e in COMMANDS.items() if e is entry and word != entry.name]
        told = chat.texts.get(f"help_{entry.name}") or entry.function.__doc__ or ""
        head = f"/{entry.name} {entry.usage}".rstrip()
        lines.append(f"  {head:<16} {told}" + (f" ({', '.join(others)})" if others else ""))
    chat.say("plain", text="\n".join([*lines, "", chat.texts["keys"]]))


@command(idle=True)
def new(chat: Chat, args: str) -> None:
    """begin a new conversation"""
    chat.agent.new_session()
    chat.forget()
    chat.say("new")


@command(usage="[n|name]", idle=True)
def llm(chat: Chat, args: str) -> None:
    """list the models, or switch to one"""
    models = chat.agent.list_llms()
    if args:
        wanted = [i for i, name, _ in models if args == str(i) or args.lower() in str(name).lower()]
        if not wanted:
            return chat.error("no_llm", wanted=one_line(args), last=len(models) - 1)
        exact = [i for i in wanted if args == str(i)]
        chat.agent.next_llm((exact or wanted)[0])
        models = chat.agent.list_llms()
    lines = [f"{'▸' if current else ' '} {i}  {one_line(str(name))}" for i, name, current in models]
    return chat.say("plain", text="\n".join(lines) or chat.texts["no_models"])


@command()
def stop(chat: Chat, args: str) -> None:
    """stop the running task (also Ctrl-C)"""
    if not chat.stop():
        chat.say("nothing_runs")


@command()
def cost(chat: Chat, args: str) -> None:
    """tokens and money used so far"""
    chat.say("plain", text=clean(chat.agent.usage_text()))


@command(usage="[words]")
def sessions(chat: Chat, args: str) -> None:
    """list earlier conversations, or search them"""
    lines, damaged = list[str](), list[str]()
    if args:
        hits, damaged = chat.agent.search_sessions(args)
        chat.listed = [hit.session.id for hit in hits]
        for hit in hits:
            about = hit.session
            lines.append(_line(chat, len(lines), time.time() - about.updated, about.id, about.title))
            lines[-1] += f"\n     {one_line(hit.around, 200)}" * bool(hit.around)
    else:
        listed = chat.agent.list_sessions()
        chat.listed = [id for id, _, _ in listed]
        lines = [_line(chat, n, age, id, title) for n, (id, age, title) in enumerate(listed[:20])]
    for name in damaged:
        chat.error("session_damaged", name=one_line(name))
    chat.say("plain", text="\n".join(lines) or chat.texts["no_hits" if args else "no_sessions"])


@command(usage="[n|id|words]", idle=True)
def resume(chat: Chat, args: str) -> None:
    """list or search earlier conversations, or go on with one"""
    if not args:
        return sessions(chat, "")
    wanted = args
    if args.isdecimal():
        ids = chat.listed or [id for id, _, _ in chat.agent.list_sessions()]
        wanted = ids[int(args) - 1] if 1 <= int(args) <= len(ids) else args
    try:
        about = chat.agent.resume(wanted)
    except NoSuchSession:
        return sessions(chat, args)
    chat.forget()
    chat.say("resumed", about=one_line(str(about), 200))
    return chat.replay()


def _line(chat: Chat, n: int, seconds: float, id: str, title: str) -> str:
    return f"{n + 1:>3}  {age(chat.texts, seconds):>8}  {one_line(id)}  {one_line(title, 60)}"


@command(usage="QUESTION")
def btw(chat: Chat, args: str) -> None:
    """ask aside: the running task and the conversation don't learn of it"""
    if not args:
        return chat.error("btw_usage")

    def ask() -> None:
        try:
            chat.say("btw", text=clean("".join(chat.agent.aside(args))).strip())
        except GAError as error:
            chat.error("plain", text=one_line(str(error), 500))

    threading.Thread(target=ask, name="btw", daemon=True).start()
    return None


@command(usage="[keep|end n]")
def jobs(chat: Chat, args: str) -> None:
    """what runs in the background; keep or end one"""
    from ..tools import jobs

    listed = list(jobs.background().items())
    if args:
        verb, _, number = args.partition(" ")
        if verb not in ("keep", "end") or not number.isdecimal() or not 1 <= int(number) <= len(listed):
            return chat.error("no_job" if number.isdecimal() else "jobs_usage", n=one_line(number))
        group, title = listed[int(number) - 1]
        if verb == "end":
            jobs.kill_background([group])
            return chat.say("job_ended", title=one_line(title))
        jobs.keep(group)
    lines = [
        chat.texts["job"].format(n=n, title=one_line(title), kept=chat.texts["job_kept"] if jobs.is_kept(group) else "")
        for n, (group, title) in enumerate(listed, 1)
    ]
    return chat.say("plain", text="\n".join(lines) or chat.texts["no_jobs"])


@command(usage="[log|show n|revert n|check]")
def memory(chat: Chat, args: str) -> None:
    """what the agent has stored, and why; take a change back"""
    from .memory import run_memory

    chat.say("plain", text=run_memory(args.split())[0])


@command(usage="[offline]")
def doctor(chat: Chat, args: str) -> None:
    """what works here and what does not; each model is asked for a word, unless offline"""

    def look() -> None:
        from .doctor import report

        chat.say("plain", text="\n".join(map(str, report(chat.agent.config, offline=args == "offline"))))

    threading.Thread(target=look, name="doctor", daemon=True).start()


@command(usage="[md|html|clip] [file]")
def export(chat: Chat, args: str) -> None:
    """save the conversation as Markdown or as a web page, or copy it"""
    from .export import export

    chat.say("plain", text=export(chat.agent, args))


@command()
def verbose(chat: Chat, args: str) -> None:
    """show all output and thinking, or only the heads"""
    chat.view.verbose = not chat.view.verbose
    chat.say("verbose_on" if chat.view.verbose else "verbose_off")


@command("exit", "q")
def quit(chat: Chat, args: str) -> None:
    """leave the chat (also Ctrl-D)"""
    chat.close()


def age(texts: Mapping[str, str], seconds: float) -> str:
    """How long ago, in the largest unit that fits."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return texts[unit].format(n=int(seconds // length))
    return texts["just_now"]
