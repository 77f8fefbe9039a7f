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
from genericagent.prompts import text
from genericagent.store import atomic

INTERVAL = 5
MAX_TURNS: int | None = None
MAX_TIME: float | None = None
TAINTED = ""  # what the rounds so far have read of somebody else's: the open items may come from there
CLOSING_TURNS, CLOSING_TIME, CLOSING_TRIES = 10, 600.0, 3
ITEMS, LETTERS = 30, 300  # of the open items that are kept, and of each
clock = time.time
file = Path()
NEW: dict[str, Any] = {
    "budget_seconds": 10_800.0, "max_turns": 200, "turns_used": 0, "seconds_used": 0.0, "rounds": 0, "status": "running",
    "begun": False, "open": [], "closing": 0, "summary": "", "tainted": "",
}  # fmt: skip


def init(args: dict[str, str]) -> None:
    """Begin a goal, or go on with the one in the state file. ValueError: there is none, or there is another."""
    global file
    file = Path(args.pop("goal_state", "") or paths.home() / "goals" / "goal.json").expanduser()
    objective = args.pop("objective", "").strip()
    wish: dict[str, Any] = {
        key: type(NEW[key])(args.pop(key)) for key in ("budget_seconds", "max_turns") if key in args
    }
    if args or any(value <= 0 for value in wish.values()):
        raise ValueError(f"it takes --objective, --budget_seconds, --max_turns, --goal_state; not {args or wish}")
    state = load()
    if objective and (state is None or state["status"] == "done"):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        save({**NEW, "objective": objective, "start_time": clock(), **wish})
    elif state is None:
        raise ValueError(f"there is no goal in {file}: begin one with --objective")
    elif objective not in ("", state["objective"]):
        raise ValueError(f"{file} holds another goal that is not done yet; name another file with --goal_state")


def check() -> str:
    global MAX_TURNS, MAX_TIME, TAINTED
    state = load()
    if state is None or state["status"] == "done":
        return "/exit"
    TAINTED = state["tainted"]
    state["seconds_used"] = max(state["seconds_used"], clock() - state["start_time"])  # the clock may be set back
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


def load() -> dict[str, Any] | None:
    """The state. ValueError when the file holds none: it is left as it is."""
    if not file.is_file():
        return None
    state = {**NEW, **json.loads(file.read_text(encoding="utf-8"))}
    if not isinstance(state.get("objective"), str) or not state["objective"].strip():
        raise ValueError(f"{file} holds no goal: it has no objective")
    return {"start_time": clock(), **state}


def save(state: dict[str, Any]) -> None:
    atomic.write_bytes(file, (json.dumps(state, ensure_ascii=False, indent=1) + "\n").encode(), mode=0o600)
