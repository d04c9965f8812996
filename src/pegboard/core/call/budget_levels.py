"""Budget levels: how much of each budget is used now, for people and machines that watch."""

from __future__ import annotations

from typing import Any, NamedTuple

from pegboard.core.call.record import ExecutorState
from pegboard.model.budget import CALLS, MICROS, Budget, Counter
from pegboard.model.json_types import JSON, is_awaitable


class BudgetLevel(NamedTuple):
    """The used part of a budget in the current period, by one caller if the budget has `each`."""

    budget: Budget
    counter: Counter
    used: float
    limit: float

    @property
    def ratio(self) -> float:
        """The part that is used: 1.0 and more if nothing is left."""
        return self.used / self.limit if self.limit else 1.0

    @property
    def name(self) -> str:
        """The budget, and whose it is: `research of user 'ann'`."""
        return self.budget.name + self.budget.whose(self.counter.who)

    def as_json(self) -> JSON:
        """Return the level in wire form; times are seconds since 1970."""
        counter = self.counter
        return {
            "budget": counter.budget,
            "rule": self.budget.origin,
            "of": dict(zip(self.budget.each, counter.who, strict=True)),
            "unit": counter.unit,
            "used": self.used,
            "limit": self.limit,
            "left": max(self.limit - self.used, 0.0),
            "per": self.budget.per,
            "begins": counter.begins_s,
            "ends": counter.ends_s,
        }


async def budget_levels(state: ExecutorState) -> list[BudgetLevel]:
    """Return all levels, the fullest first; budgets that nobody has used yet are included if they have no `each`.

    Raises:
        OSError: the store does not respond.
    """
    now = state.ports.wall_clock()
    declared: dict[Counter, tuple[Budget, float]] = {}
    for budget in state.registry.declarations.budgets.values():
        for unit, limit in ((CALLS, budget.calls), (budget.unit, budget.cost)):
            if limit is not None:
                declared[Counter(budget.name, unit, (), *budget.window_at(now))] = budget, limit
    if not declared:
        return []
    answer: Any = state.ports.budgets.counters([*declared])
    known = await answer if is_awaitable(answer) else answer
    levels: list[BudgetLevel] = []
    for charge in known:
        budget, limit = declared[charge.counter._replace(who=())]
        # Others were counted when the budget had another `each`.
        if len(charge.counter.who) == len(budget.each):
            levels.append(BudgetLevel(budget, charge.counter, charge.amount / MICROS, limit))
    used = {level.counter for level in levels}
    levels += [
        BudgetLevel(budget, counter, 0.0, limit)
        for counter, (budget, limit) in declared.items()
        if not budget.each and counter not in used
    ]
    return sorted(levels, key=lambda level: (-level.ratio, level.name))
