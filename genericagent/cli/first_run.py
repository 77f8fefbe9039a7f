"""The chat without a model: how to give a key, and what works without one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from .. import paths, prompts
from ..llm.local import LocalServer, find_local
from ..safety.term import one_line
from .demo import only_model, scripted_model

EXPORT = '$env:ANTHROPIC_API_KEY = "…"' if os.name == "nt" else "export ANTHROPIC_API_KEY=…"
ENTRY = """[[llm]]
api = "anthropic"    # or "chat", "responses" (OpenAI and its like)
model = "claude-sonnet-4-5"
api_key = "…"
"""


@contextlib.contextmanager
def chosen_model() -> Iterator[tuple[str, str] | None]:
    """Ask at the terminal. Yields (what the first screen says, a configuration file), None when the user leaves."""
    texts = prompts.catalog("chat")
    offers = [(server, name) for server in find_local(os.environ) for name in server.models]
    sys.stdout.write(_welcome(texts, offers))
    while True:
        choice = _asked()
        if not choice:
            yield None
            return
        if choice in ("d", "demo"):
            with scripted_model() as found:
                yield found
            return
        if choice.isdecimal() and 1 <= int(choice) <= len(offers):
            server, name = offers[int(choice) - 1]
            with only_model(name, "chat", server.base_url) as file:
                yield texts["only_now"].format(name=one_line(name), address=server.base_url), file
            return
        sys.stdout.write(texts["choose"] + "\n")


def _welcome(texts: dict[str, str], offers: list[tuple[LocalServer, str]]) -> str:
    entry = "\n".join(f"       {line}" for line in ENTRY.splitlines())
    head = texts["welcome"].format(export=EXPORT, file=paths.home() / "config.toml", entry=entry, home=paths.home())
    lines = [texts["offer_demo"]]
    for number, (server, name) in enumerate(offers, 1):
        lines.append(texts["offer_local"].format(number=number, name=one_line(name), server=server.name))
    return "\n".join([head, *lines, texts["choose"], ""])


def _asked() -> str:
    """A line of the user, "" when they leave."""
    try:
        return input("> ").strip().lower()
    except (EOFError, KeyboardInterrupt):
        sys.stdout.write("\n")
        return ""
