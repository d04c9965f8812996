"""Many runs at once of many agents on one model server: no event is lost, doubled or heard by another caller."""

import pytest

from bench.agents import at_once, model_server

# Threads of others start while it runs, which tracing cannot follow.
pytestmark = pytest.mark.slow


async def test_runs_at_once_hear_their_own_events_alone_and_all_of_them() -> None:
    with model_server() as url:
        faults, _, _ = await at_once(url, agents=5, runs=15, rounds=1)
    assert faults == []


@pytest.mark.soak
async def test_a_thousand_runs_of_a_hundred_agents_lose_and_cross_nothing_in_flat_memory() -> None:
    with model_server() as url:
        faults, _, resident = await at_once(url, agents=100, runs=1_000)
    assert faults == []
    assert resident[-1] < resident[0] * 1.2, resident
