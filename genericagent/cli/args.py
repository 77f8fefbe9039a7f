"""The command line: which words there are, and which room does the work. Returns exit codes, raises nothing expected."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .. import __version__, paths
from ..config import CHOICES
from ..errors import ConfigError, GAError, UsageError
from ..extras import NEEDED, install_command
from ..safety.term import one_line
from .cells import fitted
from .log import start_log

if TYPE_CHECKING:
    from agentmain import GenericAgent, Options

    from ..safety.policy import Origin

FACES = {  # beside the terminal: module, function, what it is
    "telegram": ("frontends.tgapp", "run_telegram", "the agent as a bot in Telegram (docs/TELEGRAM.md)."),
    "web": ("frontends.webapp", "run_web", "the agent on a page of this machine (docs/WEB.md)."),
}
SUBCOMMANDS = ("browser", "memory", "sessions", "schedule", "import", "doctor", *FACES)
OF_ONE_RUN = {  # what a face has no use for, and its option
    "prompt": "-p", "output_format": "--output-format", "task": "--task", "func": "--func", "reflect": "--reflect",
    "again": "--continue", "resume": "--resume", "llm_no": "--llm_no", "verbose": "--verbose", "once": "--once", "nobg": "--nobg",
    "no_user_tools": "--no-user-tools",
}  # fmt: skip
USAGE = 2
TOLD = 2_000  # characters of an error: one line, however long a word was


class Parser(argparse.ArgumentParser):
    """Whose errors are ours: one line. Raises UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see --help)")


def named(text: str) -> str:
    """For what names a file, a folder or a conversation: the empty one is a variable that was not set, not the usual one."""
    if not text:
        raise argparse.ArgumentTypeError("is empty")
    return text


def build_parser() -> argparse.ArgumentParser:
    ga = paths.this_program()
    p = Parser(
        prog=ga,
        description="A personal agent: chat in the terminal, or one task from a script.",
        epilog=f"also: {ga} browser setup|status, memory log|show|revert|inbox|accept|drop|check, sessions [WORDS], "
        f"schedule list|add|run|disable|enable|remove, import PATH, doctor, {', '.join(FACES)}. "
        f"docs/ is {paths.shipped('docs')}",
        allow_abbrev=False,
    )
    p.add_argument("path", nargs="?", type=named, help="the folder to work in (default: $GA_HOME/temp)")
    p.add_argument("--version", action="version", version=f"genericagent {__version__}")
    mode = p.add_argument_group("one task, no chat")
    mode.add_argument("-p", dest="prompt", metavar="TEXT", help="one answer on stdout; - reads the text from stdin")
    mode.add_argument("--output-format", choices=("text", "json", "stream-json"), default="text")
    mode.add_argument("--task", metavar="NAME", help="files in $GA_HOME/temp/NAME: input.txt in, output.txt out")
    mode.add_argument("--input", metavar="TEXT", help="with --task: the request (default: NAME/input.txt)")
    mode.add_argument("--history", type=named, metavar="FILE", help="with --task: JSON list of messages to begin with")
    mode.add_argument("--wait", type=float, metavar="SECONDS", help="with --task: stay open for reply.txt")
    mode.add_argument("--bg", action="store_true", help="with --task: detach, print the PID, wait 600 s for replies")
    mode.add_argument(
        "--func", type=named, metavar="FILE", help="the request is in FILE; the answer goes to FILE.out.txt"
    )
    mode.add_argument("--inherit", action="store_true", help=argparse.SUPPRESS)  # see tools/subagents.py
    mode.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    mode.add_argument("--nobg", action="store_true", help=argparse.SUPPRESS)
    mode.add_argument(
        "--reflect",
        metavar="SCRIPT",
        help="watch: a Python file, or scheduler, autonomous, goal_mode; further --key value go to it",
    )
    mode.add_argument("--approve", metavar="HASH", help="with --reflect: run the script although it was changed")
    common = p.add_argument_group("common")
    common.add_argument("--demo", action="store_true", help="a scripted stand-in for a model: no key needed")
    common.add_argument("--llm_no", type=int, default=0, metavar="N", help="which configured model")
    common.add_argument("--continue", dest="again", action="store_true", help="go on with the newest session")
    common.add_argument("--resume", type=named, metavar="ID", help="go on with this session")
    common.add_argument("--max-turns", type=int, metavar="N")
    common.add_argument("--max-cost", type=float, metavar="DOLLARS")
    common.add_argument("--max-time", type=float, metavar="SECONDS")
    common.add_argument("--sandbox", choices=CHOICES["sandbox"], help="run commands in a sandbox (default: off here)")
    common.add_argument("--net", choices=CHOICES["net"], help="the network inside of the sandbox (default: on)")
    common.add_argument(
        "--allow", action="append", default=[], metavar="RULE", help="don't ask about this; see docs/SECURITY.md"
    )
    common.add_argument("--cwd", type=named, metavar="DIR", help="the folder to work in")
    common.add_argument("--no-user-tools", action="store_true", help="leave out the tools that need a person")
    common.add_argument("--verbose", action="store_true", help="show the model's text and tool output in full")
    common.add_argument("--config", type=named, metavar="FILE", help="read the configuration from FILE first")
    return p


def run_command(argv: Sequence[str]) -> int:
    """Parse and run. Expected errors end as one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that lacks a character must not end the program
    try:
        return _run(argv)
    except SystemExit as end:
        if end.code:
            raise
        return 0  # --help and --version
    except UsageError as error:
        return _fail(error, USAGE)
    except GAError as error:
        return _fail(error, 1)
    except BrokenPipeError:  # the reader has gone; nothing is left to be told
        return 1
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else error, 1)
    except KeyboardInterrupt:
        return 130


def _fail(error: Exception | str, code: int) -> int:
    sys.stderr.write(fitted(f"error: {one_line(str(error), TOLD)}\n", sys.stderr))
    return code


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] in SUBCOMMANDS:
        return _subcommand(argv[0], argv[1:])
    if argv and (near := _meant(argv[0])):
        raise UsageError(f"{argv[0]} is no command and no folder: did you mean `{paths.this_program()} {near}`?")
    parser = build_parser()
    argv, given = _for_the_script(parser, argv)
    args = parser.parse_args(["--help"] if list(argv) == ["help"] else argv)
    args.given = given
    _refuse_nonsense(args)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        there = "run it with the Python that it was installed for (.venv/bin/ga after `make chat`)"
        raise ConfigError(f"{sys.executable} lacks {', '.join(missing)}: {there}, or {install_command(*missing)}")
    if args.bg:
        from .task_mode import detach

        return detach(args, argv)
    if args.demo:
        from .demo import scripted_model

        with scripted_model() as (label, args.config):
            return _serve(args, label)
    return _serve(args, "")


def _meant(word: str) -> str:
    """The subcommand that a slip of the keys made this word of; "" when it may be something else."""
    if word.startswith("-") or Path(word).exists():
        return ""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, SUBCOMMANDS, 1, 0.7)), "")


def _for_the_script(parser: argparse.ArgumentParser, argv: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """(the program's own arguments, the `--key value` that a watcher's script gets)."""
    given, own = dict[str, str](), list[str]()
    if not any(word.partition("=")[0] == "--reflect" for word in argv):
        return argv, given
    known, rest = parser._option_string_actions, list(argv)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.partition("=")
        if not key.startswith("--") or key in known or key == "--":
            own.append(word)
            if key in known and not equals and known[key].nargs is None and rest:
                own.append(rest.pop(0))
        else:
            given[key[2:].replace("-", "_")] = value if equals or not rest or rest[0].startswith("--") else rest.pop(0)
    return own, given


def _refuse_nonsense(args: argparse.Namespace) -> None:
    modes = [m for m in ("prompt", "task", "func", "reflect") if getattr(args, m) is not None]
    if len(modes) > 1:
        raise UsageError("-p, --task, --func and --reflect exclude each other")
    with_task = (args.wait, args.history, args.input)
    if (args.bg or args.inherit or with_task != (None, None, None)) and args.task is None:
        raise UsageError("--input, --history, --wait and --bg go with --task")
    if args.approve is not None and args.reflect is None:
        raise UsageError("--approve goes with --reflect")
    for name in ("max_turns", "max_cost", "max_time"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be more than 0")
    if args.path and args.cwd:
        raise UsageError("the folder to work in is given twice: PATH and --cwd")
    if args.allow:
        _check_rules(args.allow)
    if args.llm_no < 0:
        raise UsageError("--llm_no counts from 0")
    if args.wait is not None and not 0 <= args.wait < 1e9:
        raise UsageError("--wait must be a number of seconds")


def _check_rules(rules: Sequence[str]) -> None:
    from ga import load_tool_schema

    from ..safety.policy import parse_rules

    try:
        parse_rules(rules, (), (), [tool["function"]["name"] for tool in load_tool_schema()])
    except ConfigError as error:
        raise UsageError(f"--allow: {error}") from None


def _options(args: argparse.Namespace, label: str) -> Options:
    from agentmain import Options

    folder = args.cwd or args.path
    workspace, inherited = None, getattr(args, "inherited", {})
    if folder:
        workspace = paths.expand(folder).absolute()
        if not os.path.isdir(workspace):  # noqa: PTH112  # never raises
            raise UsageError(f"{folder} is not a folder")
    origin: Origin = "chat" if is_chat(args) else inherited.get("origin", "script")
    fixed = list(map(Path, inherited.get("fixed", ())))
    if args.reflect:
        from .reflect_mode import find_script

        origin, fixed = "watcher", [find_script(args.reflect).resolve()]
    return Options(
        config_file=args.config,
        workspace=workspace,
        max_turns=args.max_turns,
        max_cost=args.max_cost,
        max_time=args.max_time,
        user_tools=not (args.no_user_tools or args.func),
        label=label,
        origin=origin,
        sandbox=args.sandbox,
        net=args.net,
        allow=tuple(args.allow),
        fixed=tuple(fixed),
        tainted=inherited.get("tainted", ""),
        hosts=tuple(inherited.get("hosts", ())),
        depth=inherited.get("depth", 0),
    )


def is_chat(args: argparse.Namespace) -> bool:
    return args.task is None and args.prompt is None and args.func is None and args.reflect is None


def _serve(args: argparse.Namespace, label: str) -> int:
    from . import one_shot, task_mode

    if args.task is not None:
        return task_mode.run_task_mode(args, lambda: _agent(args, label))
    if args.prompt is not None:
        return one_shot.run_prompt(args, lambda: _agent(args, label))
    if args.func is not None:
        return one_shot.run_func(args, lambda: _agent(args, label))
    if args.reflect is not None:
        from .reflect_mode import run_reflect

        return run_reflect(args, args.given, lambda: _agent(args, label))
    from .chat import is_terminal, run_chat

    agent = _agent(args, label)
    if agent.config.models or not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        return run_chat(agent, demo=args.demo)
    from .first_run import chosen_model

    with chosen_model(agent.config) as found:
        if found is None:
            return 0
        label, args.config = found[0], found[1] or args.config
        return run_chat(_agent(args, label), demo=found[1] is not None)


def _agent(args: argparse.Namespace, label: str) -> GenericAgent:
    from agentmain import GenericAgent

    one_shot = not is_chat(args)
    if label and one_shot:  # the chat says it on its first screen
        sys.stderr.write(f"{label}\n")
    agent = GenericAgent(_options(args, label))
    start_log(paths.logs(), lambda text: agent.redact(text), agent.told)
    if args.llm_no:
        if args.llm_no >= len(agent.config.models) > 0:
            raise UsageError(f"there is no model {args.llm_no}: {len(agent.config.models)} are configured")
        agent.next_llm(args.llm_no)
    agent.verbose = args.verbose or not one_shot
    if note := agent.containment().note:  # raises where no sandbox is there although one is required
        sys.stderr.write(fitted(f"note: {one_line(note, 1000)}\n", sys.stderr))
    if one_shot and agent.config.models:  # without any the error says it
        sys.stderr.writelines(fitted(f"warning: {one_line(problem, 300)}\n", sys.stderr) for problem in agent.problems)
    if args.again or args.resume:
        sys.stderr.write(f"resumed {one_line(agent.resume(args.resume or ''), 1000)}\n")
    return agent


def _face(name: str, rest: Sequence[str]) -> int:
    """A face beside the terminal: its agents get the options of this command line."""
    import importlib
    from dataclasses import replace

    from agentmain import GenericAgent

    if set(rest) & {"-h", "--help", "help"}:
        sys.stdout.write(f"{paths.this_program()} {name} [options]: {FACES[name][2]} It takes --cwd, --sandbox, --net, --allow, "
                         "--config, --demo, --max-turns, --max-cost, --max-time as the chat does.\n")  # fmt: skip
        return 0
    args = build_parser().parse_args(rest)
    args.given = {}
    _refuse_nonsense(args)
    unset = vars(build_parser().parse_args([]))
    if odd := [option for option in OF_ONE_RUN if getattr(args, option) != unset[option]]:
        raise UsageError(f"`{name}` takes no {OF_ONE_RUN[odd[0]]} (see `{name} --help`)")
    module, run, _ = FACES[name]
    with contextlib.ExitStack() as stack:
        label = ""
        if args.demo:
            from .demo import scripted_model

            label, args.config = stack.enter_context(scripted_model())
            sys.stderr.write(f"{label}\n")
        options = replace(_options(args, label), origin="remote")
        sys.path.insert(0, str(paths.shipped()))  # where the faces are, also in a wheel
        first = GenericAgent(options)
        start_log(paths.logs(), lambda text: first.redact(text), first.told)
        sys.stderr.writelines(f"warning: {one_line(problem, 300)}\n" for problem in first.problems)
        return int(getattr(importlib.import_module(module), run)(lambda: GenericAgent(options)))


def _subcommand(name: str, rest: Sequence[str]) -> int:
    if name == "sessions":
        from .sessions import run_sessions

        return run_sessions(rest)
    if name == "browser":
        from .browser import run_browser

        return run_browser(rest)
    if name == "memory":
        from .memory import run_memory

        text, code = run_memory(rest)
        sys.stdout.write(f"{text}\n")
        return code
    if name == "import":
        from .take_over import run_import

        return run_import(rest)
    if name == "schedule":
        from .schedule import run_schedule

        return run_schedule(rest, _run)
    if name == "doctor":
        from .doctor import run_doctor

        return run_doctor(rest)
    return _face(name, rest)
