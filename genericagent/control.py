"""What the user may look at and change between two tasks of an agent: where the conversation stands, and what holds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import memory
from .errors import ConfigError, GAError, SessionError
from .prompts import say
from .safety.guard import Containment, zones_of
from .safety.policy import UNKNOWN, Action, decide, settle
from .store.restored import Change, Turn, changes_of, history_from, turns_of
from .tools import undo

if TYPE_CHECKING:
    from agentmain import GenericAgent

    from .store.journal import SessionInfo

TITLE_CHARS = 80


def titled(session: SessionInfo) -> str:
    """A session's title, and whose it is where it is not the user's own."""
    return f"[{say(f'by_{session.by}')}] {session.title}" if session.by in ("watcher", "subagent") else session.title


def rename(agent: GenericAgent, title: str) -> None:
    """What the conversation is called from now on. Raises SessionError before its first task."""
    if not agent.session_id:
        raise SessionError(say("no_conversation"))
    agent.record({"type": "title", "title": title[:TITLE_CHARS]})


def turns(agent: GenericAgent) -> list[tuple[Turn, list[Change], list[str]]]:
    """The user's turns, oldest first, each with the files, and those of the memory, that tools have changed since. Raises
    SessionError."""
    records = agent.records()
    return [(turn, changes_of(since), _memory(since)) for turn in turns_of(records) for since in [records[turn.at :]]]


def _memory(records: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(record.get("file")) for record in records if record["type"] == "memory"))


def secrecy(agent: GenericAgent) -> undo.Secret:
    """Of which files no copy may be made or brought back."""
    return undo.secrecy(agent.guard, agent.secrets()[0])


def rewind(agent: GenericAgent, turn: Turn, files: Sequence[Change] = ()) -> list[str]:
    """Go back to before a turn, in these files too; text from outside that was read stays read. Returns a line for each
    file that could not be written. Raises SessionError."""
    records = agent.records()
    restored = history_from(records[: turn.at])
    there = {"history": restored.history, "lines": restored.lines, "key_info": restored.key_info}
    agent.record({"type": "cut", **there, "turns": turn.number})
    if not turn.number:  # nothing is left that its title was about
        agent.record({"type": "title", "title": ""})
    agent.take_up(restored)
    made = {folder for one in changes_of(records[turn.at :]) for folder in Path(one.path).parents[: one.made] if files}
    return undo.bring_back(files, agent.record, secrecy(agent), made)


def context(agent: GenericAgent) -> dict[str, int]:
    """Tokens of the next request by what they are for (see usage.weigh), as far as they can be told ahead."""
    (system, tools, notes), insight = _beside(agent), memory.insight().strip()
    texts = {"system": system.replace(insight, "") if insight else system, "memory": insight, "notes": notes}
    return agent.client.backend.weigh({**texts, "tools": json.dumps(tools) if tools else ""})


def _beside(agent: GenericAgent) -> tuple[str, list[dict[str, Any]], str]:
    """What requests have beside the messages; told in words, the tools are in these."""
    system, tools, notes = agent.surroundings()
    return system, tools if agent.client.backend.native else [], notes


def compact(agent: GenericAgent) -> bool:
    """Cut the conversation now; False when that would save nothing. Raises SessionError."""
    agent.client.last_tools = ""
    return agent.client.backend.compact(*_beside(agent))


def allowed_here(agent: GenericAgent) -> list[str]:
    """The rules that hold for this conversation alone."""
    return [rule.text for rule in agent.guard.rules.allow[len(agent.parsed_rules().allow) :]]


def allow(agent: GenericAgent, rule: str) -> None:
    """The user allows something for this conversation. Raises ConfigError."""
    agent.guard.rules = agent.parsed_rules([*allowed_here(agent), rule])


def change(agent: GenericAgent, **options: Any) -> Containment:
    """Change options of the next tasks, by the user's word. Raises ConfigError, and then nothing has changed."""
    before, agent.options = agent.options, replace(agent.options, **options)
    try:
        if zones_of(agent.workspace).of(agent.workspace.resolve() / "file") != "workspace":
            raise ConfigError(say("sandbox_own_home", folder=agent.workspace))
        held = agent.containment()
    except GAError:
        agent.options = before
        raise
    agent.guard.enter(agent.workspace, held)
    if "workspace" in options and agent.session_id:
        agent.record({"type": "folder", "cwd": str(agent.workspace)})
    return held


def verdicts(agent: GenericAgent, renew: bool) -> tuple[dict[str, str], dict[str, str]]:
    """(tool → allow, ask or deny for its ordinary use, the same by risk), as it is now; `renew`: as for a new task."""
    guard = agent.guard
    if renew:
        guard.enter(agent.workspace, agent.containment())
    sample = {"path": "x", "script": "true", "type": "bash"}
    tools = [tool["function"]["name"] for tool in agent.surroundings()[1]]
    risks = {
        "outside": Action("file_write", "write", (f"{guard.zones.user}-elsewhere/x",), outside=True),
        "destructive": Action("code_run", "exec", ("true",), destructive="x"),
        "send": Action("code_run", "send", (UNKNOWN,)),
        "control": Action("code_run", "control", ("x",)),
    }
    judged: dict[str, str] = {
        name: settle(decide(risk, guard.rules, guard.mode), guard.origin).verdict for name, risk in risks.items()
    }
    return {name: guard.rule(name, sample, agent.workspace).verdict for name in tools}, judged
