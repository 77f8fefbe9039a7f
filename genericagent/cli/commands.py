"""The chat's slash commands: one function each. Its docstring is its line in /help (translated by `help_<name>`).

More of them are in conversation.py and settings.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..abort import Abort
from ..control import titled
from ..errors import NoSuchSession
from ..safety.term import clean, one_line
from .cells import flush, wrapped
from .log import in_one_line
from .render import Piece
from .status import estimate

if TYPE_CHECKING:
    from .chat import Chat

Function = Callable[["Chat", str], None]


class Command(NamedTuple):
    name: str
    usage: str  # its arguments, for /help
    idle: bool  # refused while a task runs
    group: str  # where /help names it
    function: Function


AGE = len("59 min ago")
LISTED, NEAR = 20, 3  # conversations; commands that are named for one that is not there
GROUPS = ("talk", "task", "set", "more")
COMMANDS: dict[str, Command] = {}  # by name and by alias
_WORD = re.compile(r"/([a-z_]+)(?:\s+(.*))?$", re.S | re.I)


def command(*aliases: str, usage: str = "", idle: bool = False, group: str = "more") -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        entry = Command(function.__name__.strip("_"), usage, idle, group, function)
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
    """Run `text` if it is a command. False: it is for the model. Errors become one line."""
    parsed = parse(text)
    if parsed is None:
        return False
    word, rest = parsed
    entry = COMMANDS.get(word)
    if entry is None:
        from difflib import get_close_matches

        near = [*filter(lambda name: name.startswith(word), COMMANDS), *get_close_matches(word, COMMANDS, NEAR, 0.5)]
        names = list(dict.fromkeys(f"/{COMMANDS[name].name}" for name in near))[:NEAR]
        chat.error("unknown_near" if names else "unknown", word=word, near=", ".join(names))
    elif entry.idle and chat.running:
        chat.error("busy", word=word)
    else:
        _told(chat, f"/{word}", lambda: entry.function(chat, rest))
    return True


def _told(chat: Chat, what: str, work: Callable[[], None]) -> None:
    """An error is one line, and ends the command, not the conversation."""
    try:
        work()
    except Exception as error:
        chat.error("plain", text=in_one_line(error, f"run {what}"))


def pick(chat: Chat, title: str, rows: list[str], then: Callable[[int], None], marked: int = 0, first: int = 1) -> None:
    """Let the user choose a row; `then` gets its index. `first`: the number of the first one."""
    from .chat import Menu

    chat.choose(title, Menu(rows, lambda index: _told(chat, title, lambda: then(index)), marked=marked, first=first))


HEAD, WIDTH = 25, 79  # cells in a line of /help


@command("h")
def help(chat: Chat, args: str) -> None:
    """what can be typed here"""
    lines, width = list[str](), min(WIDTH, chat.face.width())
    indent = HEAD if width > 2 * HEAD else 4
    for group in GROUPS:
        entries = {entry.name: entry for entry in COMMANDS.values() if entry.group == group}
        lines += ["", chat.texts[f"group_{group}"]]
        for entry in entries.values():
            others = [f"/{word}" for word, e in COMMANDS.items() if e is entry and word != entry.name]
            told = chat.texts.get(f"help_{entry.name}") or entry.function.__doc__ or ""
            rows = wrapped(told + (f" ({', '.join(others)})" if others else ""), width - indent)
            head = f"  /{entry.name} {entry.usage}".rstrip()
            lines += [head] if len(head) >= indent else []
            lines += [("" if n or len(head) >= indent else head).ljust(indent) + row for n, row in enumerate(rows)]
    keys = [row for line in chat.texts["keys"].split("\n") for row in wrapped(line, width)]
    chat.say("plain", text="\n".join([*lines[1:], "", *keys]))


@command(idle=True, group="talk")
def new(chat: Chat, args: str) -> None:
    """begin a new conversation"""
    before = chat.agent.workspace
    chat.agent.new_session()
    chat.forget()
    chat.say("new")
    _moved(chat, before)


def _moved(chat: Chat, before: Path) -> None:
    """Say where the conversation goes on, when it is another folder."""
    if (now := chat.agent.workspace) != before:
        chat.say("workspace_now", path=one_line(str(now), 300))


@command(usage="[n|name]", idle=True, group="set")
def llm(chat: Chat, args: str) -> None:
    """choose the model"""
    models = chat.agent.list_llms()
    names = [one_line(str(name)) for _, name, _ in models]

    def switch(index: int) -> None:
        chat.say("llm_now", name=one_line(chat.agent.next_llm(index)))
        estimate(chat.agent)

    if args:
        wanted = [i for i, name in enumerate(names) if args == str(i)] or [
            i for i, name in enumerate(names) if args.lower() in name.lower() and not args.isdecimal()
        ]
        return switch(wanted[0]) if wanted else chat.error("no_llm", wanted=one_line(args), last=len(models) - 1)
    if not models:
        return chat.say("no_models")
    return pick(chat, chat.texts["llm_which"], names, switch, [current for *_, current in models].index(True), first=0)


@command(group="task")
def stop(chat: Chat, args: str) -> None:
    """stop the running task (also Ctrl-C)"""
    if not chat.stop():
        chat.say("nothing_runs")


@command(group="talk")
def cost(chat: Chat, args: str) -> None:
    """tokens and money used so far"""
    chat.say("plain", text=clean(chat.agent.usage_text()))


@command(usage="[all] [words]", group="talk")
def sessions(chat: Chat, args: str) -> None:
    """list earlier conversations, or search them; all: also of watchers, sub-agents"""
    lines, damaged = list[str](), list[str]()
    args, everything = _all(args)
    if args:
        hits, damaged = chat.agent.search_sessions(args, everything=everything)
        chat.listed = [hit.session.id for hit in hits]
        for hit in hits:
            about = hit.session
            lines.append(_line(chat, len(lines), time.time() - about.updated, about.id, titled(about)))
            lines[-1] += f"\n     {one_line(hit.around, 200)}" * bool(hit.around)
    else:
        lines = [_line(chat, n, age, id, title) for n, (id, age, title) in enumerate(_list(chat, everything))]
    for name in damaged:
        chat.error("session_damaged", name=one_line(name))
    chat.say("plain", text="\n".join(lines) or chat.texts["no_hits" if args else "no_sessions"])


@command(usage="[n|words|all]", idle=True, group="talk")
def resume(chat: Chat, args: str) -> None:
    """go on with a conversation: choose one, or search for words"""
    words, everything = _all(args)
    if not words:
        rows = [f"{one_line(title, 60)} · {age(chat.texts, since)}" for _, since, title in _list(chat, everything)]
        ids = chat.listed
        return (
            pick(chat, chat.texts["resume_which"], rows, lambda n: _go_on(chat, ids[n]))
            if rows
            else chat.say("no_sessions")
        )
    if not args.isdecimal() or len(args) > 3:  # so long a number is the beginning of an id
        return _go_on(chat, args)
    ids = chat.listed or [id for id, _, _ in _list(chat)]
    if 1 <= int(args) <= len(ids):
        return _go_on(chat, ids[int(args) - 1])
    return chat.error("no_session", n=args, last=len(ids)) if ids else chat.say("no_sessions")


def _go_on(chat: Chat, wanted: str) -> None:
    """Resume the conversation with this id; what is none is searched for."""
    if wanted == chat.agent.session_id:
        return chat.say("here")
    before = chat.agent.workspace
    try:
        about = chat.agent.resume(wanted)
    except NoSuchSession:
        sessions(chat, wanted)
        found = [id for id in chat.listed if id != wanted]
        return _go_on(chat, found[0]) if len(found) == len(chat.listed) == 1 else None
    chat.forget()
    chat.say("resumed", about=one_line(str(about), 500))
    _moved(chat, before)
    return chat.replay()


def _all(args: str) -> tuple[str, bool]:
    """(the words behind "all", whether it is there)."""
    word, _, rest = args.partition(" ")
    return (rest.strip(), True) if word.lower() == "all" else (args, False)


def _list(chat: Chat, everything: bool = False) -> list[tuple[str, float, str]]:
    """The newest conversations; from now on their numbers mean them."""
    listed = chat.agent.list_sessions(everything=everything)[:LISTED]
    chat.listed = [id for id, _, _ in listed]
    return listed  # type: ignore[no-any-return]


def _line(chat: Chat, n: int, seconds: float, id: str, title: str) -> str:
    return f"{n + 1:>3}  {flush(age(chat.texts, seconds), AGE)}  {one_line(id)}  {one_line(title, 60)}"


@command(usage="QUESTION", group="task")
def btw(chat: Chat, args: str) -> None:
    """ask aside: the running task and the conversation don't learn of it"""
    if not args:
        return chat.error("btw_usage")

    def ask(stop: Abort) -> list[Piece]:
        answer = clean("".join(chat.agent.aside(args, stop))).strip()
        # no line of it can pass for one of ours
        return [Piece("dim", chat.texts["btw"].format(text=answer.replace("\n", "\n  ")))]

    return chat.shell.beside(f"/btw {args}", ask)


@command("jobs", usage="[read|keep|end n]", group="task")
def ps(chat: Chat, args: str) -> None:
    """what runs in the background; its output, keep or end it"""
    from ..tools import jobs

    listed = list(jobs.background().items())
    if args:
        verb, _, number = args.partition(" ")
        if verb not in ("read", "keep", "end") or not number.isdecimal() or not 1 <= int(number) <= len(listed):
            return chat.error("no_job" if number.isdecimal() else "jobs_usage", n=one_line(number))
        group, title = listed[int(number) - 1]
        if verb == "read":
            return chat.say("plain", text=clean(jobs.output(group)) or chat.texts["no_output"])
        if verb == "end":
            jobs.kill_background([group])
            return chat.say("job_ended", title=one_line(title))
        jobs.keep(group)
    lines = [
        chat.texts["job"].format(n=n, title=one_line(title), kept=chat.texts["job_kept"] if jobs.is_kept(group) else "")
        for n, (group, title) in enumerate(listed, 1)
    ]
    return chat.say("plain", text="\n".join(lines) or chat.texts["no_jobs"])


@command(usage="[log|show|revert|inbox|accept|drop|check]")
def memory(chat: Chat, args: str) -> None:
    """what the agent has stored, and why; take a change back"""
    from .memory import run_memory

    chat.say("plain", text=run_memory(args.split(), "/")[0])


@command(usage="[offline]", group="set")
def doctor(chat: Chat, args: str) -> None:
    """what works here and what does not; each model is asked for a word, unless offline"""

    def look(stop: Abort) -> list[Piece]:
        from .doctor import INDENT, report

        lines = map(str, report(chat.agent.config, chat.agent, offline=args == "offline"))
        rows = [row for line in lines for part in line.split("\n") for row in wrapped(part, chat.face.width(), INDENT)]
        return [Piece("plain", "\n".join(rows))]

    chat.shell.beside("/doctor", look)


@command(usage="[md|html|clip] [file]", group="talk")
def export(chat: Chat, args: str) -> None:
    """save the conversation as Markdown or as a web page, or copy it"""
    from .export import export, in_the_way

    if args.split()[:1] == ["clip"]:  # the clipboard's program may keep us waiting
        return chat.shell.beside("/export clip", lambda stop: [Piece("plain", export(chat.agent, args, stop=stop))])
    file = in_the_way(chat.agent, args)
    if file is None:
        return chat.say("plain", text=one_line(export(chat.agent, args), 5000))

    def chosen(index: int) -> None:
        chat.say(
            "plain", text=one_line(export(chat.agent, args, overwrite=index == 1), 5000)
        ) if index < 2 else chat.say("nothing_done")

    rows = [chat.texts[f"export_{way}"] for way in ("beside", "over")] + [chat.texts["cancel"]]
    return pick(chat, chat.texts["export_there"].format(path=one_line(str(file), 300)), rows, chosen)


@command(group="set")
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


from . import conversation, settings  # noqa: E402, F401  # they register theirs here
