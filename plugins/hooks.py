"""Event → callbacks: how a plugin sees and touches a run without a change to the loop.

Events: agent_before, turn_before, llm_before, llm_after, tool_before, tool_after, turn_after, agent_after. A callback
gets the local variables of the function that fired (`ctx`, a dict) and acts by changing the objects in it. A callback
that raises is reported in the log and skipped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Callback = Callable[[dict[str, Any]], dict[str, Any] | None]

_registry: dict[str, list[Callback]] = {}
_log = logging.getLogger("genericagent.hooks")


def register(event: str) -> Callable[[Callback], Callback]:
    """Decorator: call the function whenever `event` fires."""

    def add(callback: Callback) -> Callback:
        _registry.setdefault(event, []).append(callback)
        return callback

    return add


def unregister(event: str, callback: Callback) -> None:
    """Take a callback back; one that is not registered is no error."""
    callbacks = _registry.get(event, [])
    if callback in callbacks:
        callbacks.remove(callback)


def clear() -> None:
    _registry.clear()


def has(event: str) -> bool:
    return bool(_registry.get(event))


def trigger(event: str, ctx: dict[str, Any]) -> dict[str, Any]:
    """Call the callbacks of `event` in order; a returned dict replaces `ctx` for the later ones."""
    for callback in list(_registry.get(event, ())):
        try:
            ctx = callback(ctx) or ctx
        except (Exception, SystemExit, KeyboardInterrupt):  # a plugin must not end the program either
            _log.exception("plugin callback %r failed on %s and was skipped", callback, event)
    return ctx


def discover(folders: Iterable[Path]) -> list[str]:
    """Import every `*.py` of the folders whose name does not begin with `_`, in alphabetical order.

    Returns one line per plugin that could not be loaded. A file loaded before is not loaded again.
    """
    problems = []
    for folder in folders:
        for file in sorted(f for f in folder.glob("*.py") if f.is_file()):
            name = f"plugins.{file.stem}"
            if file.stem.startswith("_") or file.stem == "hooks" or name in sys.modules:
                continue
            spec = importlib.util.spec_from_file_location(name, file)
            if spec is None or spec.loader is None:
                continue
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                with contextlib.redirect_stdout(sys.stderr):  # stdout belongs to the answer
                    spec.loader.exec_module(module)
            except (Exception, SystemExit, KeyboardInterrupt) as error:
                del sys.modules[name]
                problems.append(f"plugin {file} was skipped: {type(error).__name__}: {error}")
    return problems
