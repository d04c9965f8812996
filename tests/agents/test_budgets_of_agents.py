"""Budgets of cost and agents: what their models use is counted for the caller, and a spent budget ends a run."""

from typing import Any

from pegboard import Budget, CallContext, Catalog, Profile, ToolContext
from pegboard.agents.access import caller_of
from pegboard.core.call.budget_levels import budget_levels
from pegboard.model.agent import ModelSpec
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import QUERY, agent_entry
from tests.agents.team import agent, catalog_of
from tests.core.parts import kind_of

ANN = ToolContext(user_id="ann")


async def spend(ctx: CallContext) -> str:
    """Spend two dollars."""
    ctx.report_cost(2.0)
    return "spent"


async def used(catalog: Catalog) -> dict[str, float]:
    return {f"{level.name} {level.counter.unit}": level.used for level in await budget_levels(catalog.executor)}


async def test_the_tokens_of_a_run_are_counted_and_a_spent_budget_ends_the_next_before_its_model_is_asked() -> None:
    seen: dict[str, list[Any]] = {}
    catalog = catalog_of({"sales": [[("spend", {})], "done"]}, seen=seen)
    catalog.agent(agent("sales"), tools=[spend])
    catalog.budget(Budget(name="tokens", per="day", cost=1, unit="tokens", tools=("agent.sales",), each=("user",)))
    catalog.budget(Budget(name="ann", per="day", cost=9, users=("ann",)))
    first = await catalog.agents.run("sales", "Go", ctx=ANN)
    assert (first.status, len(seen["sales"])) == ("budget_exceeded", 1), "the second request was one too many"
    assert first.error is not None
    assert "the budget 'tokens' of user 'ann' is used up" in first.error.message
    again = await catalog.agents.run("sales", "Go", ctx=ANN)
    assert (again.status, len(seen["sales"])) == ("budget_exceeded", 1)
    other = await catalog.agents.run("sales", "Go", ctx=ToolContext(user_id="bob"))
    assert (other.status, len(seen["sales"])) == ("budget_exceeded", 2)
    levels = await used(catalog)
    assert levels["ann usd"] == 0.0, "its tool fell under the spent budget as well"
    assert levels["tokens of user 'ann' tokens"] > 1
    await catalog.close()


async def test_an_agent_below_a_tool_counts_in_the_budgets_of_the_tool_and_its_profile_once() -> None:
    catalog = catalog_of({"helper": [[("spend", {})], "done"]})
    catalog.agent(agent("helper"), tools=[spend])
    catalog.register(agent_entry(ToolSpec(name="ask", input_schema=QUERY), agent="helper"))
    catalog.profile(Profile(name="support"))
    for name, filters in (("tool", {"tools": ("ask",)}), ("profile", {"profiles": ("support",)}), ("all", {})):
        catalog.budget(Budget(name=name, per="day", cost=2, **filters))
        catalog.budget(Budget(name=f"{name}s", per="day", cost=1_000_000, unit="tokens", **filters))
    view = catalog.view(ANN, profile="support")
    assert kind_of(await view.call("ask", {"query": "Go"})) == "budget_exceeded", "the model's second request"
    levels = await used(catalog)
    assert {levels[f"{name} usd"] for name in ("tool", "profile", "all")} == {2.0}
    tokens = {levels[f"{name}s tokens"] for name in ("tool", "profile", "all")}
    assert len(tokens) == 1
    assert min(tokens) > 0
    # A run that no tool has begun falls under the profile as well.
    run = await catalog.agents.run("helper", "Go", ctx=caller_of(view))
    assert run.status == "budget_exceeded"
    assert caller_of(catalog.view(ANN)).request.spending is None
    await catalog.close()


async def test_a_model_with_a_price_costs_money() -> None:
    catalog = catalog_of({"gpt-4o": ["done"]})
    catalog.agent(agent("writer", model=ModelSpec(provider="openai", name="gpt-4o")))
    catalog.budget(Budget(name="money", per="day", cost=1))
    assert (await catalog.agents.run("writer", "Go")).status == "completed"
    assert 0 < (await used(catalog))["money usd"] < 0.01
    await catalog.close()
