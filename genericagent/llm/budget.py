"""Caps on money: a call is counted ahead at its dearest, and not made when it might cross one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..errors import BudgetError, ConfigError
from ..prompts import say
from ..store.ledger import Ledger
from .blocks import Usage

FIRST_OUTPUT = 1000  # tokens that the first answer is taken to have; later the largest so far
CAPPED_OUTPUT = (
    8192  # tokens of an answer at most where a cap counts and the user set no max_tokens; all models take it
)


class Cap(Protocol):
    """One limit in dollars."""

    def left(self) -> float:
        """What may still be spent."""

    def reserve(self, amount: float) -> bool:
        """Count a call ahead; False when it might cross the limit."""

    def settle(self, cost: float | None, usage: Usage) -> None:
        """The call is over and has cost this."""

    def reason(self) -> str:
        """Why no call can be made, with what was spent."""


class Budget:
    """The caps of a run. With none of them nothing is refused."""

    def __init__(self, caps: Sequence[Cap] = ()) -> None:
        self.caps = list(caps)
        self.largest = 0  # tokens of the largest answer so far

    def before(self, model: str, price: tuple[float, ...] | None, input: int, max_tokens: int | None) -> int | None:
        """Count a call ahead. Returns the most tokens its answer may have; None where no cap counts.

        `price`: dollars per million tokens (input, output, cache read, cache write); `input`: tokens, estimated.
        Raises BudgetError when the call might cross a cap, ConfigError when its price is unknown.
        """
        if not self.caps:
            return max_tokens
        if price is None:
            raise ConfigError(say("price_needed", model=model))
        if not any(price):
            return max_tokens
        into = input * max(price[0], price[3]) / 1e6
        one = price[1] / 1e6
        wanted = max_tokens or CAPPED_OUTPUT
        tightest = min(self.caps, key=lambda cap: cap.left())
        # a hair less than all: its price, added up again, must not come out above what is left
        affordable = int((tightest.left() - into) / one - 1e-6) if one else wanted
        if affordable < min(self.largest or FIRST_OUTPUT, wanted):
            raise BudgetError(tightest.reason())
        most = min(wanted, affordable)
        for done, cap in enumerate(self.caps):
            if not cap.reserve(into + most * one):
                for taken in self.caps[:done]:
                    taken.settle(0.0, Usage())
                raise BudgetError(cap.reason())
        return most

    def after(self, usage: Usage, cost: float | None) -> None:
        self.largest = max(self.largest, usage.output)
        for cap in self.caps:
            cap.settle(cost, usage)


class TaskCap:
    """Dollars of one task."""

    def __init__(self, limit: float) -> None:
        self._limit, self._spent = limit, 0.0

    def left(self) -> float:
        return self._limit - self._spent

    def reserve(self, amount: float) -> bool:
        return amount <= self.left()

    def settle(self, cost: float | None, usage: Usage) -> None:
        self._spent += cost or 0.0

    def reason(self) -> str:
        return say("limit_cost", limit=self._limit, spent=self._spent)


class DailyCap:
    """Dollars a day, of all processes of this home; `told`: the message that it is used up."""

    def __init__(self, ledger: Ledger, limit: float, told: str = "limit_day") -> None:
        self.ledger, self._limit, self._told = ledger, limit, told
        self._token: str | None = None
        self.refused = False  # a call was not made because of it

    def left(self) -> float:
        return self._limit - self.ledger.committed()

    def reserve(self, amount: float) -> bool:
        self._token = self.ledger.reserve(amount, self._limit)
        return self._token is not None

    def settle(self, cost: float | None, usage: Usage) -> None:
        self.ledger.settle(self._token, cost, usage.as_dict())
        self._token = None

    def reason(self) -> str:
        self.refused = True
        return say(self._told, limit=self._limit, spent=self.ledger.today().cost)
