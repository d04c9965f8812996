"""Budgets: what a period allows, what is counted together, and what happens when a store is away."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from pegboard import Budget, CallContext, CallError, Catalog, DefinitionError, Profile, ToolContext
from pegboard.core.call.budget_levels import budget_levels
from pegboard.core.call.budget_meter import BudgetMeter
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.ports import BudgetStore
from pegboard.limits.memory_budgets import MemoryBudgetStore
from pegboard.model.budget import MICROS, Charge, Cost, Counter, micros
from pegboard.model.record import replace
from tests.core.parts import ANN, Clock, kind_of

BOB = replace(ANN, user_id="bob")
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC).timestamp()


def shop(*budgets: Budget, store: BudgetStore | None = None, clock: Clock | None = None) -> Catalog:
    """Return a catalog with two tools that cost what they are told to, and these budgets."""
    catalog = Catalog(budget_store=store)
    catalog.executor.swap(replace(catalog.executor.ports, wall_clock=clock or Clock(NOON)))

    @catalog.tool(read_only=True)
    async def look(ctx: CallContext, cost: float = 0.0, unit: str = "usd") -> str:
        ctx.report_cost(cost, unit)
        return "done"

    @catalog.tool
    async def pay(ctx: CallContext, cost: float = 0.0) -> str:
        ctx.report_cost(cost)
        return "done"

    for name in ("support", "sales"):
        catalog.profile(Profile(name=name))
    for budget in budgets:
        catalog.budget(budget)
    return catalog


async def ends(catalog: Catalog, tool: str, *, ctx: ToolContext = ANN, times: int = 1, **args: Any) -> list[str]:
    """Call a tool some times, and return how each call ended."""
    return [kind_of(await catalog.view(ctx).call(tool, args)) for _ in range(times)]


class Away:
    """A shared store that a test can cut off."""

    def __init__(self) -> None:
        self.store, self.is_away = MemoryBudgetStore(), False

    async def charge(self, charges: Sequence[Charge]) -> Sequence[int]:
        await asyncio.sleep(0)
        if self.is_away:
            raise ConnectionError("cut off")
        return self.store.charge(charges)

    async def counters(self, periods: Sequence[Counter]) -> Sequence[Charge]:
        return self.store.counters(periods)


async def used(catalog: Catalog) -> dict[str, float]:
    return {f"{level.name} {level.counter.unit}": level.used for level in await budget_levels(catalog.executor)}


# ---------------------------------------------------------------- what is counted


async def test_a_spent_budget_refuses_the_next_call_and_says_which_and_until_when() -> None:
    clock = Clock(NOON)
    budget = Budget(name="help", per="day", calls=2, each=("user",), origin="pegboard.yaml:7")
    catalog = shop(budget, clock=clock)
    assert await ends(catalog, "pay", times=3) == ["ok", "ok", "budget_exceeded"]
    assert await ends(catalog, "pay", ctx=BOB) == ["ok"]
    refused = (await catalog.view(ANN).call("pay")).error
    assert refused is not None
    assert refused.message == (
        "'pay' was not run: the budget 'help' of user 'ann' (pegboard.yaml:7) is used up, with 2 of 2 calls per day. "
        "It resets at 2026-11-28T00:00:00Z. Other tools may be used meanwhile."
    )
    assert refused.retry_after_s == 12 * 3600
    assert refused.details == {
        "budget": "help", "unit": "calls", "used": 2.0, "limit": 2.0, "resets_at": "2026-11-28T00:00:00Z",
    }  # fmt: skip
    clock.now += 12 * 3600
    assert await ends(catalog, "pay") == ["ok"]


async def test_the_cost_of_a_call_is_counted_after_it_and_refuses_the_next() -> None:
    catalog = shop(
        Budget(name="money", per="month", cost=1.0), Budget(name="credits", per="hour", cost=5, unit="credit")
    )
    assert await ends(catalog, "look", cost=0.4, times=2) == ["ok", "ok"]
    assert await ends(catalog, "look", cost=4, unit="credit") == ["ok"]
    assert await used(catalog) == {"money usd": 0.8, "credits credit": 4.0}
    assert await ends(catalog, "pay", cost=0.7) == ["ok"], "it may exceed the budget once"
    assert await ends(catalog, "pay", times=2) == ["budget_exceeded", "budget_exceeded"]
    assert await used(catalog) == {"money usd": 1.5, "credits credit": 4.0}


async def test_why_and_callable_show_a_spent_budget_as_a_call_does() -> None:
    catalog = shop(Budget(name="help", per="day", calls=1, tools=("pay",)))
    view = catalog.view(ANN)
    assert view.why("pay").callable
    assert await ends(catalog, "pay") == ["ok"]
    for decision in (view.why("pay"), await view.awhy("pay")):
        assert decision.blocked is not None
        assert (decision.visible, decision.blocked.kind) == (True, "budget_exceeded")
        assert "the budget 'help' is used up" in decision.blocked.reason
        assert decision.blocked.until == datetime(2026, 11, 28, tzinfo=UTC)
    assert view.why("look").callable
    remote = shop(Budget(name="help", per="day", calls=0), store=Away())
    assert remote.view(ANN).why("pay").callable, "a store that must be awaited is not asked here"
    assert not (await remote.view(ANN).awhy("pay")).callable


async def test_only_the_calls_that_all_filters_accept_are_counted() -> None:
    catalog = shop(
        Budget(name="tool", per="day", calls=9, tools=("nothing", "PA*")),
        Budget(name="profile", per="day", calls=9, profiles=("support",)),
        Budget(name="user", per="day", calls=9, users=("a*",)),
        Budget(name="both", per="day", calls=9, profiles=("support",), users=("bob",)),
    )
    nobody = replace(ANN, user_id=None)
    for ctx, profile, tool in (
        (ANN, "support", "pay"),
        (BOB, "support", "look"),
        (nobody, "sales", "look"),
        (ANN, None, "look"),
    ):
        assert not (await catalog.view(ctx, profile=profile).call(tool)).is_error
    assert await used(catalog) == {"tool calls": 1, "profile calls": 2, "user calls": 2, "both calls": 1}


async def test_each_value_has_its_own_count() -> None:
    each = ("user", "space", "agent", "key", "profile", "tool")
    catalog = shop(Budget(name="b", per=900, calls=1, each=each))
    view = catalog.view(ANN, profile="sales")
    assert [kind_of(await view.call(tool)) for tool in ("pay", "pay", "look")] == ["ok", "budget_exceeded", "ok"]
    whose = "user 'ann', space 's1', agent None, key None, profile 'sales', tool"
    assert await used(catalog) == {f"b of {whose} 'main.look' calls": 1, f"b of {whose} 'main.pay' calls": 1}


async def test_refused_invalid_and_limited_calls_are_not_counted() -> None:
    catalog = shop(Budget(name="b", per="day", calls=5))
    catalog.before("look")(lambda call: "deny" if call.args["cost"] else None)

    @catalog.tool(rate_limit="1/60s")
    def once() -> str:
        return "done"

    assert await ends(catalog, "unknown") == ["not_found"]
    assert await ends(catalog, "look", cost="much") == ["invalid_arguments"]
    assert await ends(catalog, "once", times=3) == ["ok", "rate_limited", "rate_limited"]
    await asyncio.sleep(0)
    assert await used(catalog) == {"b calls": 1}


async def test_a_call_that_needs_consent_is_refused_before_a_person_is_asked() -> None:
    asked: list[str] = []

    class Client:
        async def approve(self, request: Any) -> bool:
            asked.append(request.tool)
            return True

    catalog = shop(Budget(name="b", per="day", calls=1))
    catalog.tool(name="drop", consent="always")(lambda: "dropped")
    ctx = replace(ANN, client=Client())
    assert await ends(catalog, "drop", ctx=ctx, times=2) == ["ok", "budget_exceeded"]
    assert asked == ["main.drop"]


async def test_a_client_that_calls_again_with_an_answer_is_counted_once() -> None:
    class Client:
        """The second round of a call."""

        def begins(self, tool: str, definition_hash: str) -> None: ...

        def has_paid(self, tool: str) -> bool:
            return True

    catalog = shop(Budget(name="b", per="day", calls=1, cost=1.0))
    assert await ends(catalog, "pay") == ["ok"]
    again = replace(ANN, client=Client())
    assert await ends(catalog, "pay", ctx=again, cost=2.0) == ["ok"]
    assert await ends(catalog, "pay", ctx=again) == ["budget_exceeded"], "its cost counts"


async def test_a_nested_call_counts_for_the_profile_and_its_cost_in_every_budget_above_it_once() -> None:
    catalog = shop(
        Budget(name="team", per="day", calls=9, cost=9, profiles=("support",)),
        Budget(name="report", per="day", calls=9, cost=9, tools=("report",)),
        Budget(name="pays", per="day", cost=9, tools=("pay",)),
    )

    @catalog.tool
    async def report(ctx: CallContext) -> str:
        ctx.report_cost(0.5)
        child = ctx.child(agent="helper")
        for nested in (ctx, child):
            assert not (await catalog.view(nested).call("pay", {"cost": 1.0})).is_error
        return "done"

    assert not (await catalog.view(ANN, profile="support").call("report")).is_error
    assert await used(catalog) == {
        "report calls": 1, "team calls": 3, "pays usd": 2.0, "report usd": 2.5, "team usd": 2.5,
    }  # fmt: skip


async def test_calls_through_a_meta_tool_are_counted_once() -> None:
    catalog = shop(Budget(name="b", per="day", calls=9, cost=9))
    catalog.profile(Profile(name="few", exposure="two_tool"))
    view = catalog.exposed(catalog.view(ANN, profile="few"))
    result = await view.call("useTools", {"calls": [{"agent": "main", "tool": "pay", "params": {"cost": 1.0}}] * 2})
    assert "done" in result.text, result.text
    assert await used(catalog) == {"b calls": 2, "b usd": 2.0}


async def test_costs_can_be_reported_from_threads_and_wrong_ones_are_refused() -> None:
    catalog = shop(Budget(name="b", per="day", cost=9))

    @catalog.tool
    def work(ctx: CallContext) -> str:
        assert threading.current_thread() is not threading.main_thread()
        ctx.report_cost(2)
        ctx.report_cost(0.5)
        return "done"

    contexts: list[CallContext] = []

    @catalog.tool
    async def wrong(ctx: CallContext) -> str:
        contexts.append(ctx)
        for amount in (-1, float("nan"), float("inf"), 1e13, True, "1"):
            with pytest.raises(ValueError, match="give a number from 0"):
                ctx.report_cost(amount)  # type: ignore[arg-type]
        return "done"

    assert await ends(catalog, "work") == ["ok"]
    assert await ends(catalog, "wrong") == ["ok"]
    assert await used(catalog) == {"b usd": 2.5}
    with pytest.raises(CallError, match="is over"):
        contexts[0].report_cost(1)
    outside_of_a_call: Any = CallContext
    outside_of_a_call(origin_context=ANN, emitter=None).report_cost(1)


async def test_a_declared_cost_is_counted_for_each_call_that_runs_and_is_in_its_record() -> None:
    records: list[FinishedCall] = []

    class Observer:
        times_stages = False

        def started(self, call: StartedCall) -> None: ...

        def finished(self, call: FinishedCall) -> None:
            records.append(call)

    catalog = shop(Budget(name="b", per="day", cost=2.5, unit="credits"))
    catalog.executor.record(Observer())

    @catalog.tool(cost={"amount": 1, "unit": "credits"})
    async def ask(ctx: CallContext, fails: bool = False) -> str:
        ctx.report_cost(0.25, "credits")
        ctx.report_cost(0.5)
        if fails:
            raise ValueError("no")
        return "done"

    assert await ends(catalog, "ask", ctx=ANN, fails=True) == ["tool_error"]
    assert await ends(catalog, "ask", ctx=ANN, wrong=1) == ["invalid_arguments"]
    assert await ends(catalog, "ask", times=2) == ["ok", "budget_exceeded"]
    assert await used(catalog) == {"b credits": 2.5}
    each = {"credits": 1_250_000, "usd": 500_000}
    assert [dict(record.costs) for record in records] == [each, {}, each, {}]


@pytest.mark.parametrize(
    ("cost", "problem"),
    [
        ({"amount": -1}, "A cost of -1"), ({"amount": "1"}, "A cost of '1'"), ({"amount": True}, "A cost of True"),
        ({"amount": 1, "unit": "calls"}, "in the unit 'calls'"), ({"amount": 1, "unit": 2}, "in the unit 2"),
        ({"amount": 1e-7}, "counts as nothing"), ({"amount": 1, "unit": ""}, "in the unit ''"),
        ({"unit": "usd"}, "is not a cost"),
        ({"amount": 1, "per": "call"}, "is not a cost"), (1, "must be a mapping or a Cost"),
    ],
)  # fmt: skip
def test_a_cost_that_cannot_be_counted_is_refused(cost: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        Catalog().tool(name="ask", cost=cost)(lambda: "done")
    assert Cost.parse({"amount": 2}) == Cost(amount=2, unit="usd")


async def test_the_record_of_a_call_names_the_counters_that_it_was_charged_to() -> None:
    records: list[FinishedCall] = []

    class Observer:
        times_stages = True

        def started(self, call: StartedCall) -> None: ...

        def finished(self, call: FinishedCall) -> None:
            records.append(call)

    catalog = shop(Budget(name="b", per="day", calls=1, each=("user",)))
    catalog.executor.record(Observer())
    assert await ends(catalog, "pay", times=2) == ["ok", "budget_exceeded"]
    begins = str(int(NOON - 12 * 3600))
    assert [record.limit_keys for record in records] == [(("budget", "b", "calls", "ann", begins),), ()]
    assert "rate_limit" in records[0].stage_s


async def test_a_budget_without_calls_yet_is_shown_and_one_of_nothing_is_full() -> None:
    catalog = shop(Budget(name="none", per="day", calls=0), Budget(name="each", per="day", calls=5, each=("user",)))
    [level] = await budget_levels(catalog.executor)
    assert (level.ratio, level.used, level.as_json()["left"]) == (1.0, 0.0, 0.0)
    assert await budget_levels(Catalog().executor) == []
    catalog.budget(Budget(name="none", per="day", calls=5, each=("user",)))
    await ends(catalog, "pay")
    catalog.budget(Budget(name="each", per="day", calls=5, each=("user", "tool")))
    assert [level.name for level in await budget_levels(catalog.executor)] == ["none of user 'ann'"]


# ---------------------------------------------------------------- stores


async def test_while_a_shared_store_is_away_each_budget_follows_its_rule_and_costs_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Away()
    catalog = shop(Budget(name="b", per="day", calls=3, cost=9.0), store=store)
    assert await ends(catalog, "look", cost=1.0) == ["ok"]
    store.is_away = True
    assert await ends(catalog, "pay") == ["ratelimit_unavailable"], "it changes something"
    assert await ends(catalog, "look", cost=1.0, times=4) == ["ok", "ok", "ok", "budget_exceeded"]
    assert "The store of budgets is down (cut off)" in caplog.text
    catalog.budget(Budget(name="b", per="day", calls=3, cost=9.0, when_store_is_down="open"))
    assert await ends(catalog, "pay", cost=1.0, times=2) == ["ok", "ok"]
    catalog.budget(Budget(name="b", per="day", calls=3, cost=9.0, when_store_is_down="closed"))
    assert await ends(catalog, "look") == ["ratelimit_unavailable"]
    store.is_away = False
    assert await ends(catalog, "look") == ["ok"]
    assert await used(catalog) == {"b calls": 2, "b usd": 6.0}, "what was reported meanwhile is paid"


async def test_a_store_in_this_process_that_is_full_is_one_that_is_away() -> None:
    catalog = shop(Budget(name="b", per="day", calls=9, each=("user",)), store=MemoryBudgetStore(max_counters=1))
    assert await ends(catalog, "pay") == ["ok"]
    assert await ends(catalog, "pay", ctx=BOB) == ["ratelimit_unavailable"]
    assert await ends(catalog, "look", ctx=BOB) == ["ok"]
    meter = catalog.executor.budgets
    meter.owe([Counter("other", "usd", (), 0, 1)], 5)
    assert await ends(catalog, "pay") == ["ok"]
    assert meter.has_unpaid, "there is no room for it"


async def test_a_caller_who_leaves_does_not_lose_what_is_being_paid() -> None:
    store = Away()
    catalog = shop(Budget(name="b", per="day", cost=9.0), store=store)
    counter = next(iter(catalog.executor.registry.declarations.budgets.values()))
    begins, ends_s = counter.window_at(NOON)
    catalog.executor.budgets.owe([Counter("b", "usd", (), begins, ends_s)], 3 * MICROS)
    calling = asyncio.ensure_future(catalog.view(ANN).call("look"))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    for _ in range(5):
        await asyncio.sleep(0)
    assert await used(catalog) == {"b usd": 3.0}


def test_costs_of_too_many_callers_are_dropped_with_an_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: Any
) -> None:
    monkeypatch.setattr("pegboard.core.call.budget_meter.UNPAID_COUNTERS", 1)
    meter = BudgetMeter()
    with caplog.at_level(logging.ERROR):
        meter.owe([Counter("a", "usd", (), 0, 1), Counter("b", "usd", (), 0, 1)], MICROS)
        meter.owe([Counter("a", "usd", (), 0, 1)], MICROS)
    assert [(charge.counter.budget, charge.amount) for charge in meter.take()] == [("a", 2 * MICROS)]
    assert "1 usd of the budget 'b' are not counted" in caplog.text
    meter.after_fork()
    assert not meter.has_unpaid


# ---------------------------------------------------------------- declared


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "limits nothing"),
        ({"calls": -1}, "allows -1 calls"),
        ({"calls": 1.5}, "allows 1.5 calls"),
        ({"cost": float("nan")}, "a cost of nan"),
        ({"cost": 1, "unit": "calls"}, "has the unit 'calls'"),
        ({"calls": 1, "per": "year"}, "is per 'year': write hour, day, week, month"),
        ({"calls": 1, "per": 0.5}, "is per 0.5 seconds"),
        ({"calls": 1, "each": ("team",)}, "is for each 'team': write user, space"),
        ({"calls": 1, "when_store_is_down": "shut"}, "has when_store_is_down='shut': write closed"),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_budget_that_makes_no_sense_is_refused_in_words(values: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Budget(**{"name": "b", "per": "day", **values})
    with pytest.raises(DefinitionError, match=r"unknown profile 'suport'\. Did you mean 'support'"):
        shop(Budget(name="b", per="day", calls=1, profiles=("suport",)))
    with pytest.raises(ValueError, match="give a number from 0"):
        micros(-1)


@pytest.mark.parametrize(
    ("per", "begins", "ends_at"),
    [
        ("hour", "2026-11-27T12:00", "2026-11-27T13:00"),
        ("day", "2026-11-27T00:00", "2026-11-28T00:00"),
        ("week", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("month", "2026-11-01T00:00", "2026-12-01T00:00"),
        (900, "2026-11-27T12:30", "2026-11-27T12:45"),
    ],
)  # fmt: skip
def test_a_period_begins_with_a_full_hour_day_monday_or_month(per: Any, begins: str, ends_at: str) -> None:
    window = Budget(name="b", per=per, calls=1).window_at(NOON + 2_400)
    assert [datetime.fromtimestamp(at, UTC).isoformat()[:16] for at in window] == [begins, ends_at]
