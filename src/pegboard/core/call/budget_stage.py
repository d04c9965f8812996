"""Budget stage: check and charge the budgets of a call, and the costs that it and its agents report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, cast

from pegboard.core.call.rate_limit import STORE_DOWN, rule_without_store
from pegboard.core.call.record import Asked, Call, ExecutorState
from pegboard.core.names import META_NAMESPACE, fold, matches_folded
from pegboard.model.agent import RUN_PREFIX
from pegboard.model.budget import CALLS, MICROS, Budget, Charge, Counter, Spending, micros
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.json_types import is_awaitable
from pegboard.model.rate_limit import WhenStoreIsDown

log = logging.getLogger("pegboard")


# ---------------------------------------------------------------- of a call


def dues_of(call: Asked) -> Sequence[Charge]:
    """Return the charges of a first call: one call in each budget of calls; budgets of cost are only checked.

    A cost of this call counts once in each budget that the call or a surrounding one falls under. Calls of meta tools
    are not counted, since the calls that they make are.
    """
    view, entry = call.view, call.entry
    spending = view.ctx.request.spending
    if entry.spec.namespace == META_NAMESPACE:
        return () if spending is None else spending.costs
    profile = None if view.profile is None else view.profile.name
    return _charges(call.executor, view.ctx, profile=profile, tool=entry.qualified_id, folded_names=entry.folded_names)


def open_dues(call: Call) -> Sequence[Charge]:
    """Return the charges of this call; a client that calls again with an answer was counted in the first round."""
    dues = dues_of(call)
    return [due for due in dues if due.counter.unit != CALLS] if call.has_paid else dues


def pass_budgets(call: Asked, dues: Sequence[Charge], *, charge: bool, may_wait: bool) -> Awaitable[None] | None:
    """Check the budgets, or charge them in one atomic step; a refused call is not counted.

    Returns an awaitable if the store is not in memory; without `may_wait` such a store is skipped.
    """
    default: WhenStoreIsDown = rule_without_store(None, call.entry.spec)
    return _pass(call.executor, dues, name=call.name, charge=charge, may_wait=may_wait, default=default)


def give_back(call: Call) -> None:
    """Return the calls that were charged for a call which another limit refuses."""
    counters = [due.counter for due in call.dues if due.amount]
    call.executor.budgets.owe(counters, -MICROS)


def settle(state: ExecutorState) -> Awaitable[None] | None:
    """Send the costs that calls have reported to the store; they are kept if it is away.

    Returns an awaitable if the store is not in memory. A caller that is cancelled meanwhile does not stop it.
    """
    owed = state.budgets.take()
    try:
        used: Any = state.ports.budgets.charge(owed)
    except OSError as error:
        _keep(state, owed, error)
        return None
    return asyncio.shield(asyncio.ensure_future(_settled(state, owed, used))) if is_awaitable(used) else None


async def _settled(state: ExecutorState, owed: Sequence[Charge], asked: Awaitable[object]) -> None:
    try:
        await asked
    except OSError as error:
        _keep(state, owed, error)
    else:
        state.budgets.is_waiting = False


def _keep(state: ExecutorState, owed: Sequence[Charge], error: OSError) -> None:
    if not state.budgets.is_waiting:
        log.warning("The store of budgets is down (%s); reported costs wait for it.", error)
    state.budgets.give_back(owed)


# ---------------------------------------------------------------- of an agent


class AgentAccount:
    """The budgets of cost of one run of an agent. Every request to its model is checked, and its usage counted.

    A run falls under the budgets of its caller, of the calls above it, and of tools whose glob matches the agent's
    name, also as `agent.NAME`.
    """

    def __init__(self, state: ExecutorState, ctx: ToolContext, agent: str) -> None:
        spending, names = ctx.request.spending, names_of_agent(agent)
        profile = None if spending is None else spending.profile
        charges = _charges(state, ctx, profile=profile, tool=f"{RUN_PREFIX}{agent}", folded_names=names)
        self._state, self._agent = state, agent
        self._dues = tuple([charge for charge in charges if charge.counter.unit != CALLS])
        self.spending = Spending(profile, self._dues)

    async def check(self) -> None:
        """Refuse a request to the model if a budget is used up.

        Raises:
            CallError: `budget_exceeded`, or `ratelimit_unavailable` if the store is away.
        """
        if self._dues:
            asked = _pass(self._state, self._dues, name=self._agent, charge=False, may_wait=True, default="closed")
            if asked is not None:
                await asked  # pragma: no cover - with stores of other processes: tests/limits

    def wants(self, unit: str) -> bool:
        """Tell whether a budget counts this unit."""
        return any(due.counter.unit == unit for due in self._dues)

    def report_cost(self, amount: float, unit: str) -> None:
        """Count a cost of the run."""
        self._state.budgets.owe([due.counter for due in self._dues if due.counter.unit == unit], micros(amount))

    async def settle(self) -> None:
        """Send the costs to the store."""
        if self._state.budgets.has_unpaid and (settling := settle(self._state)) is not None:
            await settling  # pragma: no cover - with stores of other processes: tests/limits


def names_of_agent(agent: str) -> tuple[str, str]:
    """Return the casefolded names of an agent that globs of budgets are compared with."""
    return fold(agent), fold(f"{RUN_PREFIX}{agent}")


# ---------------------------------------------------------------- of both


def spending_of(call: Call) -> Spending:
    """Return the budgets of cost of a call, and what else it passes on to the calls below it."""
    profile, above = call.view.profile, call.view.ctx.request.spending
    name = profile.name if profile is not None else None if above is None else above.profile
    return Spending(name, tuple([due for due in dues_of(call) if due.counter.unit != CALLS]))


def _charges(
    state: ExecutorState, ctx: ToolContext, *, profile: str | None, tool: str, folded_names: Sequence[str]
) -> Sequence[Charge]:
    """Return a charge for each counter of the budgets that accept such a call, and those passed on from above."""
    above = ctx.request.spending
    if profile is None and above is not None:
        profile = above.profile
    charges: list[Charge] = []
    for budget in state.registry.declarations.budgets.values():
        if not _accepts(budget, ctx.caller.user_id, profile, folded_names):
            continue
        begins_s, ends_s = budget.window_at(state.ports.wall_clock())
        who = _counter_key(budget, ctx, profile, tool)
        if budget.calls is not None:
            counter = Counter(budget.name, CALLS, who, begins_s, ends_s)
            charges.append(Charge(counter, MICROS, budget.calls * MICROS, budget))
        if budget.cost is not None:
            counter = Counter(budget.name, budget.unit, who, begins_s, ends_s)
            charges.append(Charge(counter, 0, micros(budget.cost), budget))
    if above is not None:
        own = {charge.counter for charge in charges}
        charges += [charge for charge in above.costs if charge.counter not in own]
    return charges


def _accepts(budget: Budget, user: str | None, profile: str | None, names: Sequence[str]) -> bool:
    return (
        (not budget.tools or any(matches_folded(glob, names) for glob in budget.tools))
        and (not budget.profiles or profile in budget.profiles)
        and (not budget.users or (user is not None and any(fnmatchcase(user, glob) for glob in budget.users)))
    )


def _counter_key(budget: Budget, ctx: ToolContext, profile: str | None, tool: str) -> tuple[str | None, ...]:
    if not budget.each:
        return ()
    caller = ctx.caller
    values = {
        "user": caller.user_id,
        "space": caller.space_id,
        "agent": caller.agent,
        "key": caller.key or None,
        "profile": profile,
        "tool": tool,
    }
    return tuple([values[each] for each in budget.each])


def _pass(
    state: ExecutorState,
    dues: Sequence[Charge],
    *,
    name: str,
    charge: bool,
    may_wait: bool,
    default: WhenStoreIsDown,
) -> Awaitable[None] | None:
    if not charge:
        dues = [due._replace(amount=0) for due in dues]
    settling = settle(state) if may_wait and state.budgets.has_unpaid else None
    if settling is not None:
        return _pass_remote(state, dues, settling, name=name, default=default)
    try:
        used: Any = state.ports.budgets.charge(dues)
    except OSError as error:
        used = _without_store(state, dues, name=name, default=default, error=error)
    if is_awaitable(used):
        if not may_wait:
            cast("Coroutine[Any, Any, Any]", used).close()
            return None
        return _pass_remote(state, dues, used, name=name, default=default)
    _refuse_spent(state, dues, used, name)
    return None


async def _pass_remote(
    state: ExecutorState, dues: Sequence[Charge], asked: Awaitable[Any], *, name: str, default: WhenStoreIsDown
) -> None:
    try:
        # What had to be settled first returns no amounts.
        used = await asked or await cast("Awaitable[Sequence[int]]", state.ports.budgets.charge(dues))
        state.budgets_are_away = False
    except OSError as error:
        used = _without_store(state, dues, name=name, default=default, error=error)
    _refuse_spent(state, dues, used, name)


def _refuse_spent(state: ExecutorState, dues: Sequence[Charge], used: Sequence[int], name: str) -> None:
    for due, before in zip(dues, used, strict=True):
        if due.limit is not None and before >= due.limit:
            raise _spent(due, before, name, state.ports.wall_clock())


def _spent(due: Charge, used: int, name: str, now: float) -> CallError:
    """Return the refusal: what is used up, which budget that is, and when it resets."""
    counter, budget = due.counter, cast("Budget", due.budget)
    limit, resets_at = cast("int", due.limit) / MICROS, _iso(counter.ends_s)
    place = f" ({budget.origin})" if budget.origin else ""
    text = (
        f"{name!r} was not run: the budget {budget.name!r}{budget.whose(counter.who)}{place} is used up, with "
        f"{used / MICROS:,g} of {limit:,g} {counter.unit} per {budget.period_text}. It resets at {resets_at}. "
        "Other tools may be used meanwhile."
    )
    details = {
        "budget": budget.name, "unit": counter.unit, "used": used / MICROS, "limit": limit, "resets_at": resets_at,
    }  # fmt: skip
    return CallError("budget_exceeded", text, retry_after_s=max(counter.ends_s - now, 0.0), details=details)


def _without_store(
    state: ExecutorState, dues: Sequence[Charge], *, name: str, default: WhenStoreIsDown, error: OSError
) -> Sequence[int]:
    """Return the counts of this process, if they decide while the store is away."""
    rules = [(due.budget and due.budget.when_store_is_down) or default for due in dues]
    level = logging.DEBUG if state.budgets_are_away else logging.WARNING
    state.budgets_are_away = True
    named = " and ".join(sorted(set(rules)))
    log.log(level, "The store of budgets is down (%s); the rule for %r is %s.", error, name, named)
    if "closed" in rules:
        raise CallError("ratelimit_unavailable", STORE_DOWN.format(name=name, what="budget"))
    local = [due for due, rule in zip(dues, rules, strict=True) if rule == "local"]
    counted = iter(state.ports.local_budgets.charge(local))
    return [next(counted) if rule == "local" else 0 for rule in rules]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
