"""One server among twenty that stalls or misbehaves: the others are as quick as before, and so is the start."""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from pegboard import Catalog
from pegboard.core.view import View
from pegboard.sources.mcp.source import McpSource
from tests.mcp_source.parts import EVIL, on_stdio, view_of
from tests.timing import SLACK

CALM = [f"calm{number}" for number in range(19)]
RUNS = 5
# Below this a difference is one of the machine, not of a neighbour.
NOISE_S = 0.01


@asynccontextmanager
async def crowd(*misdeeds: str) -> AsyncGenerator[tuple[View, float]]:
    """Give a view of nineteen calm servers and an evil one, and the seconds until the calm ones were listed."""
    catalog = Catalog()
    evil = McpSource(on_stdio(EVIL, *misdeeds, name="evil", trust="any"))
    calm = [McpSource(on_stdio(EVIL, name=name, trust="any")) for name in CALM]
    for source in (evil, *calm):
        catalog.add_source(source)
    began = time.monotonic()
    await catalog.start()
    try:
        async with asyncio.timeout(60):
            for source in calm:
                await source.listed()
        yield view_of(catalog), time.monotonic() - began
    finally:
        await catalog.close(grace_s=0)


async def p99(view: View) -> float:
    """Return the 99th percentile of the time of a call of the calm servers, one after the other."""
    took: list[float] = []
    for _ in range(8):
        for name in CALM:
            began = time.perf_counter()
            assert (await view.call(f"{name}__echo", {"text": "hi"})).text == "hi"
            took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=100)[98]


@pytest.mark.parametrize("misdeed", ["hang", "drip"])
async def test_an_evil_server_does_not_slow_the_nineteen_others(misdeed: str) -> None:
    async with crowd(f"call={misdeed}") as (view, _):
        alone: list[float] = []
        beside: list[float] = []
        await p99(view)
        for _ in range(RUNS):
            alone.append(await p99(view))
            stuck = [asyncio.create_task(view.call("evil__echo", {"text": "x"})) for _ in range(20)]
            await asyncio.sleep(0)
            beside.append(await p99(view))
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
    print(f"{misdeed}: p99 {statistics.median(alone):.4f} s alone, {statistics.median(beside):.4f} s beside")
    assert statistics.median(beside) < 3 * max(statistics.median(alone), NOISE_S)


async def test_a_server_that_never_answers_does_not_delay_the_start_of_the_others() -> None:
    async with crowd("start=hang") as (view, listed_s):
        assert len(view.names()) == 3 * len(CALM)
    assert listed_s < 10 * SLACK
