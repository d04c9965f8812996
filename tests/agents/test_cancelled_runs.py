"""Cancelled runs: whenever a run is cancelled, its tasks end with it."""

import asyncio

from tests.agents.team import agent, catalog_of


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_run_cancelled_at_any_turn_of_the_loop_leaves_no_task_behind() -> None:
    catalog = catalog_of({"caller": [[("add", {"a": 1, "b": 2})], "It is three."]})

    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    catalog.agent(agent("caller"), tools=[add])
    assert (await catalog.agents.run("caller", "1 + 2?")).output == "It is three."
    before = asyncio.all_tasks()
    left_after: list[int] = []
    turn, is_over = 0, False
    while not is_over:
        run = asyncio.create_task(catalog.agents.run("caller", "1 + 2?"))
        await _turns(turn)
        is_over = run.done()
        run.cancel()
        await asyncio.wait([run])
        await _turns(30)
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()
        await _turns(30)
        left_after += [turn] if left else []
        turn += 1
    assert turn > 50, "a run takes this many turns, so each of its stages was interrupted"
    assert left_after == []
