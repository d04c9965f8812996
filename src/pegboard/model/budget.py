"""Budget: the calls or the cost that a period allows, and the callers that share them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct

from pegboard.model.error import DefinitionError
from pegboard.model.rate_limit import WhenStoreIsDown

BudgetPeriod = Literal["hour", "day", "week", "month"]
BudgetEach = Literal["user", "space", "agent", "key", "profile", "tool"]
CALLS = "calls"
"""The unit of counters of calls; all other units are units of cost."""
MICROS = 1_000_000  # millionths in one unit; amounts are whole millionths, so that sums are exact
BUDGET_AMOUNT = 1e12  # the largest limit or reported cost, in its unit

_HOURS = {"hour": 1, "day": 24, "week": 168}
_MONDAY_S = 4 * 86_400  # 1970-01-01 was a Thursday


class Budget(Struct, frozen=True, kw_only=True):
    """Limits the calls that all filters accept: in each period, to `calls` calls or to a total `cost` in `unit`.

    A period with a name, such as `week`, begins with a full hour, day, Monday or month in UTC. Periods in seconds are
    counted from 1970 on.
    Calls that the budget accepts are counted together, or separately for each combination of the values in `each`.

    Args:
        name: shown in errors, and the key of its counters: a change of the limit alone keeps the counts.
        per: the period; a number is seconds.
        tools: globs over tool names; empty for all tools.
        profiles: names of profiles; empty for every caller.
        users: globs over user ids; empty for all users.
        when_store_is_down: what happens while a shared store does not answer; `None` means `local` for read-only tools
            and `closed` for the others.
        origin: the place in the config, as `file:line`.

    Raises:
        DefinitionError: a value makes no sense.

    >>> Budget(name="search", per="day", calls=100, tools=("web_*",), each=("user",)).window_at(0.0)
    (0, 86400)
    """

    name: str
    per: BudgetPeriod | float
    calls: int | None = None
    cost: float | None = None
    unit: str = "usd"
    tools: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    each: tuple[BudgetEach, ...] = ()
    when_store_is_down: WhenStoreIsDown | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        who = f"The budget {self.name!r}"
        if self.calls is None and self.cost is None:
            raise DefinitionError(f"{who} limits nothing: set `calls`, `cost` or both.")
        if self.calls is not None and not _is_amount(self.calls, whole=True):
            raise DefinitionError(f"{who} allows {self.calls!r} calls: write a whole number, 0 or more.")
        if self.cost is not None and not _is_amount(self.cost, whole=False):
            raise DefinitionError(f"{who} allows a cost of {self.cost!r}: write a number, 0 or more.")
        if not self.unit or self.unit == CALLS:
            raise DefinitionError(f"{who} has the unit {self.unit!r}: name one of cost, such as `usd` or `tokens`.")
        if isinstance(self.per, str):
            if self.per not in get_args(BudgetPeriod):
                known = ", ".join(get_args(BudgetPeriod))
                raise DefinitionError(f"{who} is per {self.per!r}: write {known}, or a number of seconds.")
        elif not (_is_amount(self.per, whole=False) and self.per >= 1):
            raise DefinitionError(f"{who} is per {self.per!r} seconds: write a number of 1 or more.")
        for value in self.each:
            if value not in get_args(BudgetEach):
                raise DefinitionError(f"{who} is for each {value!r}: write {', '.join(get_args(BudgetEach))}.")
        if self.when_store_is_down not in (None, *get_args(WhenStoreIsDown)):
            known = ", ".join(get_args(WhenStoreIsDown))
            raise DefinitionError(f"{who} has when_store_is_down={self.when_store_is_down!r}: write {known}.")

    @property
    def period_text(self) -> str:
        """The period for messages: `day`, or `900 s`."""
        return self.per if isinstance(self.per, str) else f"{self.per:g} s"

    def whose(self, who: tuple[str | None, ...]) -> str:
        """Return a text that names the owner of a counter, such as ` of user 'ann'`; empty without `each`."""
        values = zip(self.each, who, strict=True)
        return "".join(f"{' of' if place == 0 else ','} {each} {value!r}" for place, (each, value) in enumerate(values))

    def window_at(self, now: float) -> tuple[int, int]:
        """Return the begin and the end of the period at a time, in seconds since 1970."""
        if self.per == "month":
            at = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            following = (at + timedelta(days=31)).replace(day=1)
            return int(at.timestamp()), int(following.timestamp())
        length_s = int(_HOURS[self.per] * 3600 if isinstance(self.per, str) else self.per)
        shift_s = _MONDAY_S if self.per == "week" else 0
        begins = int((now - shift_s) // length_s) * length_s + shift_s
        return begins, begins + length_s


class Counter(NamedTuple):
    """One counter: of the calls or the cost of one budget in one period, of one caller if the budget has `each`.

    `unit` is `calls` or a unit of cost; `who` has a value for each of the budget's `each`.
    """

    budget: str
    unit: str
    who: tuple[str | None, ...]
    begins_s: int
    ends_s: int

    @property
    def key(self) -> tuple[str | None, ...]:
        """The counter as a key of limits, for the audit."""
        return ("budget", self.budget, self.unit, *self.who, str(self.begins_s))


class Charge(NamedTuple):
    """An amount for a counter, in millionths; with a limit it is refused if the counter has reached the limit."""

    counter: Counter
    amount: int
    limit: int | None = None
    budget: Budget | None = None


class Spending(NamedTuple):
    """The budgets that a call passes on to the calls and agents below it, with its profile."""

    profile: str | None
    costs: tuple[Charge, ...]


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of one call of a tool, in a unit that budgets may limit.

    >>> Cost(amount=0.006)
    Cost(amount=0.006, unit='usd')

    Raises:
        DefinitionError: the amount is not 0 or a number from a millionth to 10¹², or `unit` is empty or `calls`.
    """

    amount: float
    unit: str = "usd"

    @classmethod
    def parse(cls, cost: Mapping[str, Any]) -> Cost:
        """Read the mapping `{"amount": 0.006, "unit": "usd"}`; `unit` may be left out.

        Raises:
            DefinitionError: it has another form.
        """
        if "amount" not in cost or not cost.keys() <= {"amount", "unit"}:
            raise DefinitionError(f'{dict(cost)!r} is not a cost; write {{"amount": 0.006, "unit": "usd"}}.')
        return cls(**cost)

    def __post_init__(self) -> None:
        unit: Any = self.unit
        if not _is_amount(self.amount, whole=False):
            raise DefinitionError(f"A cost of {self.amount!r}: give a number from 0 to {BUDGET_AMOUNT:g}.")
        if self.amount and not micros(self.amount):
            raise DefinitionError(f"A cost of {self.amount!r} counts as nothing: give a millionth or more.")
        if not isinstance(unit, str) or not unit or unit == CALLS:
            raise DefinitionError(f"A cost in the unit {unit!r}: name one, such as `usd` or `tokens`.")


def micros(amount: float) -> int:
    """Return an amount in millionths.

    Raises:
        ValueError: it is negative, too large or not a number.
    """
    if not _is_amount(amount, whole=False):
        raise ValueError(f"a cost of {amount!r}: give a number from 0 to {BUDGET_AMOUNT:g}")
    return round(amount * MICROS)


def _is_amount(value: Any, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    return math.isfinite(value) and 0 <= value <= BUDGET_AMOUNT
