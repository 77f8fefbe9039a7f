"""One cheap call that proves a model: its address, its key, its name. What it costs is counted like any other call."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from .. import paths
from ..config import Config, Model
from ..errors import Aborted, LLMError
from ..llm import blocks
from ..llm.blocks import Usage
from ..llm.budget import DailyCap
from ..llm.transport import Transport
from ..prompts import say
from ..store.ledger import Ledger

TOKENS = 16  # of the answer at most; OpenAI's Responses takes no smaller limit


@dataclass(frozen=True)
class Trial:
    """`cost` in dollars, None without a known price; `date`: the Date header of the answer, "" without one."""

    cost: float | None
    seconds: float
    date: str


def try_model(model: Model, config: Config, patience: float) -> Trial:
    """Ask `model` for a word within `patience` seconds. Raises LLMError, ConfigError, BudgetError, SessionError."""
    from llmcore import make_session

    small = replace(
        model, max_tokens=TOKENS, max_retries=0, reasoning_effort=None, thinking_type=None, thinking_budget_tokens=None
    )
    session, ledger, costs = make_session(small), Ledger(paths.home() / "spend"), list[float | None]()
    session.prices, session.transport = config.prices, Transport(model.proxy, model.verify)
    daily = config.limits.daily_cost
    if daily is not None:
        session.budget.caps.append(DailyCap(ledger, daily))

    def spent(used: Usage, cost: float | None) -> None:
        costs.append(cost)
        if daily is None:  # the cap does it itself
            ledger.settle(None, cost, used.as_dict())

    session.spent = spent
    timer = threading.Timer(patience, session.abort.set, [say("no_answer_within", seconds=f"{patience:.0f}")])
    timer.daemon = True
    timer.start()
    begin = time.monotonic()
    try:
        call = session.call([{"role": "user", "content": [blocks.text("Say: ok")]}], "", [])
        while True:
            next(call)
    except StopIteration as end:
        answer: blocks.Answer = end.value
        if answer.outcome != "ok":
            raise answer.error or LLMError(say("no_answer_within", seconds=f"{patience:.0f}")) from None
    except Aborted as slow:
        raise LLMError(str(slow), retryable=True) from None
    except LLMError as error:  # a model that thought until the limit has been reached, and so has the key
        if error.status != 400 or "output limit was reached" not in str(error):
            raise
    finally:
        timer.cancel()
    return Trial(costs[0] if costs else None, time.monotonic() - begin, session.transport.date)
