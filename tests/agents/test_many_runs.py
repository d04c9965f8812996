"""Many runs at once of many agents on one model server: no event is lost, doubled or heard by another caller."""

from __future__ import annotations

import asyncio
import gc
import re
import resource
from collections import Counter
from typing import Any

import pytest

from pegboard import Bounds, Catalog, ToolContext
from pegboard.model.agent import AgentSpec, ModelSpec
from pegboard.model.tool import ToolSpec
from pegboard.sources.agent_tool import QUERY, agent_entry
from pegboard.testing import CallsTool, EventRecorder, ModelRequest, ModelServer

# What one run of a lead and its helper is, in events that its caller hears.
HEARD = {
    "on_tool_call": 2, "on_tool_result": 2, "on_sub_agent_start": 1, "on_sub_agent_end": 1,
    "on_sub_agent_tool_call": 1, "on_sub_agent_tool_result": 1, "on_sub_agent_chunk": 2,
}  # fmt: skip
MEBI = 1024

# Threads of others start while it runs, which tracing cannot follow.
pytestmark = pytest.mark.slow


def play(request: ModelRequest) -> Any:
    """Play each agent: it marks the token of its query, a lead asks its helper about it too, and then says it."""
    (token,) = set(re.findall(r"<\d+>", request.prompt))
    if not request.outcomes:
        asks = [CallsTool("ask", {"query": f"What of {token}?"})] if "ask" in request.tools else []
        return [CallsTool("mark", {"token": token}), *asks]
    return [f"{token} is ", "done: " + ", ".join(outcome.text for outcome in request.outcomes)]


def catalog_of(agents: int, server: ModelServer) -> Catalog:
    catalog = Catalog(bounds=Bounds(calls_in_flight=20_000, agent_timeout_s=600.0))
    model = ModelSpec(provider="openai_compatible", name="m", base_url=server.openai_url, timeout_s=600.0)
    for number in range(agents):

        def mark(token: str, *, own: int = number) -> str:
            """Mark a token."""
            return f"{token} marked by {own}"

        catalog.agent(AgentSpec(name=f"helper-{number}", model=model, timeout_s=600.0), tools=[_without_own(mark)])
        ask = agent_entry(
            ToolSpec(name="ask", description="Ask.", input_schema=QUERY, timeout_s=600.0), agent=f"helper-{number}"
        )
        lead = AgentSpec(name=f"lead-{number}", model=model, timeout_s=600.0)
        catalog.agent(lead, tools=[_without_own(mark), ask])
    return catalog


def _without_own(mark: Any) -> Any:
    async def marked(token: str) -> str:
        """Mark a token."""
        await asyncio.sleep(0)
        return mark(token)

    marked.__name__ = "mark"
    return marked


async def run_one(catalog: Catalog, number: int, agents: int) -> None:
    recorder, text = EventRecorder(), list[str]()
    token, lead = f"<{number}>", number % agents
    result = await catalog.agents.run(
        f"lead-{lead}", f"See to {token}.", callbacks=recorder, on_text=text.append,
        ctx=ToolContext(user_id=f"user-{number}"),
    )  # fmt: skip
    assert result.error is None, result.error
    assert result.status == "completed"
    assert result.output == "".join(text)
    assert set(re.findall(r"<\d+>", str(result.output))) == {token}
    assert set(re.findall(r"by (\d+)", str(result.output))) == {str(lead)}
    assert Counter(recorder.types) == HEARD
    # Whatever was heard is of this run alone.
    assert set(re.findall(r"<\d+>", str([event.payload for event in recorder.events]))) == {token}
    assert len({event.request_id for event in recorder.events}) == 1
    assert [event.seq for event in recorder.events] == sorted({event.seq for event in recorder.events})


async def run_many(agents: int, runs: int, rounds: int = 1) -> list[int]:
    """Run them all at once, some rounds; return how much memory was in use after each."""
    used: list[int] = []
    async with ModelServer(play) as server:
        catalog = catalog_of(agents, server)
        for _ in range(rounds):
            await asyncio.gather(*(run_one(catalog, number, agents) for number in range(runs)))
            assert len(server.requests) == runs * 4
            server.requests.clear()
            gc.collect()
            used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // MEBI)
        await catalog.close()
    return used


async def test_runs_at_once_hear_their_own_events_alone_and_all_of_them() -> None:
    await run_many(agents=5, runs=15)


@pytest.mark.soak
async def test_a_thousand_runs_of_a_hundred_agents_lose_and_cross_nothing_in_flat_memory() -> None:
    used = await run_many(agents=100, runs=1_000, rounds=2)
    # The most that was ever in use: rounds after the first find what they need at hand.
    assert used[-1] < used[0] * 1.2, used
