"""The status line: what runs, how full the context is, what it has cost. Pure but for what looks at the agent."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import control, paths
from ..errors import GAError
from ..llm.usage import Meter
from ..safety.term import one_line
from .cells import cells, cut
from .render import short

BAR = 6  # cells of the context bar


class Vitals(NamedTuple):
    """Tokens, percent, dollars (None: a price is not known)."""

    model: str = ""
    turns: int = 0  # at most, of the task
    used: int = 0  # tokens of the context
    window: int = 0
    cached: int | None = None
    task: float | None = 0.0
    session: float | None = 0.0
    workspace: str = ""
    walls: str = ""  # sandbox and approval


def vitals(agent: Any, texts: Mapping[str, str]) -> Vitals:
    """What can be seen of the agent without any work: this is asked several times a second."""
    if not agent.config.models:
        return Vitals()
    client, tokens = agent.client, agent.task_meter.usage
    guard = agent.guard
    walls = [texts["walls_on" if guard.containment.sandbox else "walls_off"]]
    if guard.containment.sandbox and not guard.containment.sandbox.net:
        walls.append(texts["walls_no_net"])
    if agent.plan is not None:
        walls.append(texts["planned"])
    return Vitals(
        client.name,
        agent.handler.max_turns if agent.handler else 0,
        client.backend.used,
        client.backend.context_win,
        round(100 * tokens.cache_read / tokens.input) if tokens.input else None,
        agent.task_meter.cost,
        agent.session_meter.cost,
        paths.shown(agent.workspace),
        ", ".join([*walls, texts["asks"]]),
    )


def recount(agent: Any) -> None:
    """The messages are others than at the last call. What the last task used is no part of this conversation."""
    agent.task_meter = Meter()
    estimate(agent)


def estimate(agent: Any) -> None:
    """Until the next call counts the messages, their estimate stands with all that a request has beside them."""
    if getattr(agent, "config", None) and agent.config.models and agent.client.backend.history:
        with contextlib.suppress(GAError, OSError):  # then the messages alone are estimated
            agent.client.backend.used = sum(control.context(agent).values())


def status_line(texts: Mapping[str, str], v: Vitals, state: str, turn: int, width: int) -> str:
    """One line of at most `width` cells: what fits, the most important first to stay. `state`: what is going on."""
    filled = min(BAR, round(BAR * v.used / v.window)) if v.window else 0
    bar = "▰" * filled + "▱" * (BAR - filled)
    money = "" if v.task is None or v.session is None else f"${v.task:.3f}/${v.session:.2f}"
    # (the smaller, the longer it stays; the text), in the order on the screen
    parts = [
        (0, state or texts["ready"]),
        (3, one_line(v.model, 30)),
        (1, texts["turn_of"].format(n=turn, most=v.turns) if state and turn and v.turns else ""),
        (2, f"{bar} {short(v.used)}/{short(v.window)}" if v.window else ""),
        (6, texts["cached"].format(percent=v.cached) if v.cached is not None else ""),
        (4, money if v.session or v.task else ""),
        (7, one_line(v.workspace, 40)),
        (5, v.walls),
    ]
    parts = [part for part in parts if part[1]]
    while len(parts) > 1 and cells(" · ".join(text for _, text in parts)) > width:
        parts.remove(max(parts))
    return cut(" · ".join(text for _, text in parts), width)
