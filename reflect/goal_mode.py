"""Keeps working on one objective until its time or its turns are used up; see docs/WATCHERS.md.

    ga --reflect goal_mode --objective "…" [--budget_seconds 10800] [--max_turns 200] [--goal_state FILE]

The state file is written before and after each round, so that one that was cut off is gone on with, and the closing round
too. A round is told the objective and the open items, never what was said before.
"""

import json
import re
import time
from pathlib import Path
from typing import Any

from genericagent import paths
from genericagent.errors import UsageError
from genericagent.prompts import text
from genericagent.store import atomic
from genericagent.store.journal import new_id
from genericagent.store.outbox import Outbox

INTERVAL = 5
MAX_TURNS: int | None = None
MAX_TIME: float | None = None
TAINTED = ""  # what the rounds so far have read of somebody else's: the open items may come from there
DELIVERS = True  # the end of it; a round is only shown
CLOSING_TURNS, CLOSING_TIME, CLOSING_TRIES = 10, 600.0, 3
ITEMS, LETTERS = 30, 300  # of the open items that are kept, and of each
clock = time.time
file = Path()
NEW: dict[str, Any] = {
    "budget_seconds": 10_800.0, "max_turns": 200, "turns_used": 0, "seconds_used": 0.0, "rounds": 0, "status": "running",
    "begun": False, "open": [], "closing": 0, "summary": "", "tainted": "", "seen": 0.0,
}  # fmt: skip


def init(args: dict[str, str]) -> None:
    """Begin a goal, or go on with the one in the state file. UsageError: there is none, or there is another."""
    global file
    file = paths.expand(args.pop("goal_state", "") or str(paths.home() / "goals" / "goal.json"))
    objective = args.pop("objective", "").encode(errors="replace").decode().strip()  # it may be bytes that are no text
    given = {key: args.pop(key) for key in ("budget_seconds", "max_turns") if key in args}
    try:
        wish: dict[str, Any] = {key: type(NEW[key])(value) for key, value in given.items()}
    except ValueError:
        wish = {"": 0}
    if args or not all(0 < value < 1e9 for value in wish.values()):
        wrong = ", ".join(f"--{key} {value}".strip() for key, value in (args or given).items())
        raise UsageError(f"it takes --objective, --budget_seconds, --max_turns, --goal_state; not {wrong}")
    state = load()
    if objective and (state is None or state["status"] == "done"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        save({**NEW, "objective": objective, "seen": clock(), **wish})
    elif state is None:
        raise UsageError(f"there is no goal in {file}: begin one with --objective")
    elif objective not in ("", state["objective"]):
        raise UsageError(f"{file} holds another goal that is not done yet; name another file with --goal_state")


def check() -> str:
    global MAX_TURNS, MAX_TIME, TAINTED
    state = load()
    if state is None or state["status"] == "done":
        return "/exit"
    TAINTED = state["tainted"]
    now = clock()
    state["seconds_used"] += max(0.0, now - state["seen"])  # the clock may be set back
    state["seen"] = now
    state["turns_used"] += state["begun"]  # a round that was cut off
    turns, seconds = state["max_turns"] - state["turns_used"], state["budget_seconds"] - state["seconds_used"]
    if state["status"] == "running" and turns > 0 and seconds > 0:
        key = "goal_create" if not state["rounds"] else ("goal_inspect", "goal_improve")[(state["rounds"] - 1) % 2]
        state["rounds"] += 1
        MAX_TURNS, MAX_TIME = turns, seconds
    else:
        key, state["status"] = "goal_close", "closing"
        state["closing"] += 1
        MAX_TURNS, MAX_TIME = CLOSING_TURNS, CLOSING_TIME
        if state["closing"] > CLOSING_TRIES:
            save({**state, "status": "done"})
            deliver(text("watchers", "goal_unclosed", objective=state["objective"], file=file))
            return "/exit"
    save({**state, "begun": True})
    items = "\n".join(f"- {item}" for item in state["open"]) or text("watchers", "goal_no_items")
    return text(
        "watchers", key, objective=state["objective"], items=items, round=state["rounds"], turns=turns, minutes=max(0, int(seconds // 60))
    )  # fmt: skip


def on_done(result: Any) -> None:
    state = load()
    if state is None:
        return
    state["turns_used"] += max(1, result["turns"])
    state["begun"] = False
    state["tainted"] = state["tainted"] or result["tainted"]
    found = re.findall(r"^\W*OPEN:\s*(.+)$", str(result), re.M)
    if result["status"] == "done":
        state["open"] = [item.strip()[:LETTERS] for item in found][:ITEMS]
        if state["status"] == "closing":
            state.update(status="done", summary=str(result))
    save(state)
    if state["status"] == "done":
        deliver(str(result))  # which shows it whole
    else:
        print(text("watchers", "goal_round", round=state["rounds"], status=result["status"], answer=str(result)[:300]))


def deliver(words: str) -> None:
    Outbox(paths.home() / "outbox", clock).put(f"goal-{new_id(clock())}", "terminal", "goal_mode", words)


def load() -> dict[str, Any] | None:
    """The state. UsageError when the file holds none: it is left as it is."""
    if not file.is_file():
        return None
    try:
        state = {**NEW, "objective": "", "seen": clock(), **json.loads(file.read_text(encoding="utf-8"))}
        json.dumps(state, ensure_ascii=False, allow_nan=False).encode()  # what cannot be written again is refused now
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{file} holds no goal: {error}") from None
    kinds = {"objective": str, **{key: (int, float) if type(v) is float else type(v) for key, v in NEW.items()}}
    wrong = [
        key
        for key, kind in kinds.items()
        if not isinstance(state[key], kind) or (isinstance(state[key], bool) and kind is not bool)
    ]
    wrong += [] if wrong or state["objective"].strip() else ["objective"]
    wrong += [] if state["status"] in ("running", "closing", "done") else ["status"]
    if wrong:
        raise UsageError(f"{file} holds no goal: {wrong[0]} is not what it should be")
    return state


def save(state: dict[str, Any]) -> None:
    atomic.write_bytes(file, (json.dumps(state, ensure_ascii=False, indent=1) + "\n").encode(), mode=0o600)
