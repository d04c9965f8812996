"""Two `pegboard serve` processes on one Redis: exact together, and decided by each tool's rule while it is away."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.config.project import Project
from tests.limits.server import SILENCE_S, RedisServer
from tests.server.doors import call
from tests.server.processes import serving
from tests.timing import PATIENCE_S, is_within

TOOL = '  - {{name: {}, type: internal, handler: "python:mine:{}", rate_limit: {}}}\n'
CONFIG = f"""\
name: shop
rate_limits: {{store: "${{REDIS_URL}}"}}
limits: {{limit_store_s: SILENCE_S}}
tools:
{TOOL.format("work", "work", "50/60s")}\
{TOOL.format("write", "done", "2/60s")}\
{TOOL.format("read", "done", "2/60s, annotations: {read_only: true}")}\
{TOOL.format("open", "done", "{max_calls: 2, window_seconds: 60, when_store_is_down: open}")}\
"""
MODULE = """
import os

def work() -> str:
    with open(os.environ["RUNS"], "a") as runs:
        runs.write("ran\\n")
    return "done"

def done() -> str:
    return "done"
"""


async def over_mcp(client: httpx2.AsyncClient, tool: str) -> str:
    result = (await call(client, tool))["result"]
    return result["_meta"]["pegboard/error"]["kind"] if result["isError"] else "ok"


async def over_http(client: httpx2.AsyncClient, tool: str) -> str:
    response = await client.post(f"/v1/tools/{tool}/call", json={})
    return "ok" if response.status_code == 200 else response.json()["kind"]


@pytest.fixture
async def pair(
    request: pytest.FixtureRequest, server: RedisServer, tmp_path: Path
) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """Run two servers of one config; gives a client of each. `patient` ones wait for Redis on a busy machine too."""
    silence_s = 60 if getattr(request, "param", "") == "patient" else SILENCE_S
    Project(tmp_path).write(CONFIG.replace("SILENCE_S", str(silence_s)), mine=MODULE)
    env = {"REDIS_URL": server.uri, "RUNS": str(tmp_path / "runs")}
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(serving(tmp_path, env=env))).url for _ in range(2)]
        limits = httpx2.Limits(max_connections=150)
        yield [
            await stack.enter_async_context(httpx2.AsyncClient(base_url=url, limits=limits, timeout=60)) for url in urls
        ]


@pytest.mark.parametrize("pair", ["patient"], indirect=True)
async def test_300_calls_at_once_on_two_servers_let_exactly_50_through(
    pair: list[httpx2.AsyncClient], tmp_path: Path
) -> None:
    kinds = Counter(
        await asyncio.gather(
            *(door(client, "work") for _ in range(75) for client in pair for door in (over_mcp, over_http))
        )
    )
    assert kinds == {"ok": 50, "rate_limited": 250}
    assert (tmp_path / "runs").read_text() == "ran\n" * 50


async def timed(client: httpx2.AsyncClient, *tools: str) -> tuple[dict[str, list[str]], float]:
    """Call three times each, over both doors in turn; return the outcomes, and the median of the seconds."""
    kinds, took = dict[str, list[str]](), list[float]()
    for number, tool in enumerate(tools * 3):
        started = time.perf_counter()
        kinds.setdefault(tool, []).append(await (over_mcp, over_http)[number % 2](client, tool))
        took.append(time.perf_counter() - started)
    return kinds, statistics.median(took)


@pytest.mark.parametrize("how", ["stop", "freeze"])
async def test_without_the_store_each_server_goes_by_the_tools_rule_and_with_it_again_within_2_s(
    pair: list[httpx2.AsyncClient], server: RedisServer, how: str
) -> None:
    for client in pair:
        assert await over_mcp(client, "write") == "ok"
    usual_s = (await timed(pair[0], "write"))[1]
    getattr(server, how)()
    for client in pair:
        kinds, away_s = await timed(client, "write", "read", "open")
        assert kinds == {
            "write": ["ratelimit_unavailable"] * 3,
            "read": ["ok", "ok", "rate_limited"],
            "open": ["ok"] * 3,
        }
        # What the way there and back takes is no part of the decision.
        assert is_within(away_s - usual_s, 0.05)
    async with asyncio.timeout(PATIENCE_S):
        # A probe counts for two seconds, also one that was answered just before.
        while 'pegboard_store_up{store="limits"} 0.0' not in (await pair[0].get("/metrics")).text:
            await asyncio.sleep(0.05)
    back = time.perf_counter()
    server.thaw() if how == "freeze" else server.start()
    for client in pair:
        while await over_mcp(client, "write") == "ratelimit_unavailable":
            assert is_within(time.perf_counter() - back, 2)
    assert is_within(time.perf_counter() - back, 2)
    async with asyncio.timeout(PATIENCE_S):
        while 'pegboard_store_up{store="limits"} 1.0' not in (await pair[0].get("/metrics")).text:
            await asyncio.sleep(0.05)
    assert [await over_http(client, "write") for client in pair] == ["rate_limited"] * 2
    (key,) = server.client.keys("*main.write*")
    assert server.client.llen(key) == 2, "both servers count there again"
