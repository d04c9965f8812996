"""Servers that stall or misbehave among twenty: the others are as quick as before, and so is the start."""

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pegboard import Catalog
from pegboard.core.view import View
from pegboard.sources.mcp.supervised_source import McpSource
from tests.sizes import IS_SOAK
from tests.timing import is_within
from tests.upstream_mcp.parts import EVIL, on_stdio, view_of

CALM = [f"calm{number}" for number in range(19)]
RUNS = 5 if IS_SOAK else 3
# Below this a difference is one of the machine, not of a neighbour.
NOISE_S = 0.01


@asynccontextmanager
async def crowd(*misdeeds: str) -> AsyncGenerator[tuple[View, list[Any], float]]:
    """Give a view of 19 calm servers and one evil per misdeed, the evil ones, and the seconds until the calm listed."""
    catalog = Catalog()
    evil = [McpSource(on_stdio(EVIL, misdeed, name=f"evil{at}", trust="any")) for at, misdeed in enumerate(misdeeds)]
    calm = [McpSource(on_stdio(EVIL, name=name, trust="any")) for name in CALM]
    for source in (*evil, *calm):
        catalog.add_source(source)
    began = time.monotonic()
    await catalog.start(wait_s=0)
    try:
        async with asyncio.timeout(60):
            for source in calm:
                await source.listed()
        yield view_of(catalog), evil, time.monotonic() - began
    finally:
        await catalog.close(grace_s=0)


async def p99(view: View, rounds: int) -> float:
    """Return the 99th percentile of the time of a call of the calm servers, one after the other."""
    took: list[float] = []
    for _ in range(rounds):
        for name in CALM:
            began = time.perf_counter()
            assert (await view.call(f"{name}__echo", {"text": "hi"})).text == "hi"
            took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=100)[98]


async def compared(*misdeeds: str, rounds: int, drains: bool) -> tuple[float, float]:
    """Return the median of the percentile over some runs, without and with calls stuck at each evil server.

    With `drains` a run without begins when the servers have done with the calls of the run before.
    """
    async with crowd(*(f"call={misdeed}" for misdeed in misdeeds)) as (view, evil, _):
        alone: list[float] = []
        beside: list[float] = []
        await p99(view, rounds)
        for _ in range(RUNS):
            alone.append(await p99(view, rounds))
            names = [f"evil{at}__echo" for at in range(len(misdeeds))] * 20
            stuck = [asyncio.create_task(view.call(name, {"text": "x"})) for name in names]
            await asyncio.sleep(0)
            beside.append(await p99(view, rounds))
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
            if drains:
                for source in evil:
                    await source.refresh()
    medians = statistics.median(alone), statistics.median(beside)
    ratio = medians[1] / medians[0]
    alone_ms, beside_ms = (median * 1000 for median in medians)
    print(f"{' and '.join(misdeeds)}: p99 {alone_ms:.2f} ms alone, {beside_ms:.2f} ms beside, {ratio:.2f} times")
    return medians


async def test_evil_servers_do_not_slow_the_nineteen_others() -> None:
    alone, beside = await compared("hang", "drip", rounds=8, drains=False)
    assert is_within(beside, 3 * max(alone, NOISE_S))


@pytest.mark.soak
@pytest.mark.parametrize("misdeed", ["hang", "drip"])
async def test_on_an_idle_machine_the_nineteen_others_lose_less_than_a_fifth(misdeed: str) -> None:
    alone, beside = await compared(misdeed, rounds=50, drains=True)
    assert beside < 1.2 * alone


async def test_a_server_that_never_answers_does_not_delay_the_start_of_the_others() -> None:
    async with crowd("start=hang") as (view, _, listed_s):
        assert len(view.names()) == 3 * len(CALM)
    assert is_within(listed_s, 10)
