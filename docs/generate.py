"""TOOLS.md and COMMANDS.md, from the code.    python docs/generate.py     (a test fails when they are not up to date)"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ga import load_tool_schema
from genericagent import prompts
from genericagent.cli import commands
from genericagent.cli.args import build_parser

prompts.set_language("en")
HERE = Path(__file__).resolve().parent
BY = "<!-- made by docs/generate.py from {source}: change it there -->"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def tools() -> Iterator[str]:
    yield from ("# The tools", "", BY.format(source="assets/tools_schema.json"), "")
    yield "As the model is told of them. What each may do without asking: [SECURITY.md](SECURITY.md)."
    for tool in load_tool_schema():
        function = tool["function"]
        yield from ("", f"## {function['name']}", "", function["description"].replace("<", "\\<"))
        wanted = function["parameters"]["properties"]
        if wanted:
            yield from ("", "| argument | type | what |", "|---|---|---|")
        for name, about in wanted.items():
            must = "**" if name in function["parameters"].get("required", []) else ""
            kind = ", ".join(about["enum"]) if "enum" in about else about.get("type", "any")
            yield f"| {must}{name}{must} | {cell(kind)} | {cell(about.get('description', ''))} |"


def options() -> Iterator[str]:
    for group in build_parser()._action_groups:
        actions = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
        if actions:
            yield from ("", f"| {cell(group.title or '')} | |", "|---|---|")
        for action in actions:
            takes = "" if action.nargs == 0 else "\\|".join(map(str, action.choices or [action.metavar or action.dest]))
            yield f"| `{' '.join([', '.join(action.option_strings), takes]).strip()}` | {cell(action.help or '')} |"


def chat_commands() -> Iterator[str]:
    texts = prompts.catalog("chat")
    for group in commands.GROUPS:
        yield from ("", f"| {cell(texts[f'group_{group}'])} | |", "|---|---|")
        for entry in {c.name: c for c in commands.COMMANDS.values() if c.group == group}.values():
            others = [f"`/{word}`" for word, c in commands.COMMANDS.items() if c is entry and word != entry.name]
            told = texts.get(f"help_{entry.name}") or entry.function.__doc__ or ""
            idle = "; not while a task runs" if entry.idle else ""
            also = f" ({', '.join(others)})" if others else ""
            yield f"| `/{cell(f'{entry.name} {entry.usage}')}` | {cell(told)}{also}{idle} |"


def all_commands() -> Iterator[str]:
    yield from ("# Commands", "", BY.format(source="genericagent/cli/args.py and commands.py"), "", "## In a shell", "")
    yield "`ga [options] [folder]`; `ga browser`, `memory`, `sessions`, `schedule`, `import`, `doctor`, `telegram`, `web`."
    yield from options()
    yield from ("", "## In the chat")
    yield from chat_commands()


FILES = {"TOOLS.md": tools, "COMMANDS.md": all_commands}


def main() -> None:
    for name, lines in FILES.items():
        (HERE / name).write_text("\n".join(lines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
