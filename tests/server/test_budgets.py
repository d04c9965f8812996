"""Budgets end to end: over MCP and /v1, with one worker and two, on SQLite, PostgreSQL and Redis."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from tests.config.project import Project
from tests.limits.server import redis_server
from tests.server.doors import call
from tests.server.processes import serving

CONFIG = """\
name: shop
tools:
  - {name: pay, type: internal, handler: "python:mine:pay"}
  - {name: look, type: internal, handler: "python:mine:look", annotations: {read_only: true}}
profiles: {all: {}}
limits: {limit_store_s: 60}
audit: {store: "jsonl:./audit.jsonl"}
budgets:
  store: STORE
  rules:
    paying: {tools: pay, calls: 10, per: month}
    money: {tools: look, cost: 1.5, per: month}
"""
MODULE = """
from pegboard import CallContext

def pay() -> str:
    return "paid"

def look(ctx: CallContext) -> str:
    ctx.report_cost(1)
    return "seen"
"""


async def over_mcp(client: httpx2.AsyncClient, tool: str) -> str:
    result = (await call(client, tool))["result"]
    return result["_meta"]["pegboard/error"]["kind"] if result["isError"] else "ok"


async def over_http(client: httpx2.AsyncClient, tool: str) -> str:
    response = await client.post(f"/v1/tools/{tool}/call", json={})
    if response.status_code == 200:
        return "ok"
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) > 0
    return response.json()["kind"]


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
async def folder(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """A config with budgets in a store of each kind."""
    with redis_server(tmp_path) as redis:
        uri = {"sqlite": "sqlite:./budgets.db", "redis": redis.uri}.get(request.param)
        uri = uri or request.getfixturevalue("postgres_url")
        text = CONFIG.replace("STORE", json.dumps(uri)).replace("name: shop", f"name: {tmp_path.name[-20:]}")
        Project(tmp_path).write(text, mine=MODULE)
        yield tmp_path


async def spent(clients: list[httpx2.AsyncClient]) -> tuple[Counter[str], Counter[str]]:
    """Make calls at once over both doors of each server; return how those of `pay` and of `look` ended."""
    ways = [way(client, "pay") for client in clients for way in (over_mcp, over_http) for _ in range(8)]
    pays = Counter(await asyncio.gather(*ways))
    looks = Counter([await way(client, "look") for client in clients for way in (over_mcp, over_http) * 2])
    return pays, looks


async def test_two_servers_share_a_budget_over_both_doors(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        clients: list[httpx2.AsyncClient] = []
        for _ in range(2):
            server = await stack.enter_async_context(serving(folder))
            clients.append(await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url)))
        pays, looks = await spent(clients)
        assert pays == {"ok": 10, "budget_exceeded": 22}
        assert looks == {"ok": 2, "budget_exceeded": 6}
        metrics = (await clients[0].get("/metrics")).text
        assert 'pegboard_budget_used_ratio{budget="paying",unit="calls"} 1.0' in metrics
    # A later process, and `usage`, know what was spent.
    async with serving(folder) as server, httpx2.AsyncClient(base_url=server.url) as client:
        assert await over_mcp(client, "pay") == "budget_exceeded"


async def test_workers_that_would_each_count_for_themselves_do_not_start(tmp_path: Path) -> None:
    Project(tmp_path).write(CONFIG.replace("  store: STORE\n", ""), mine=MODULE)
    with pytest.raises(AssertionError, match="each of 2 workers would count for itself"):
        async with serving(tmp_path, "--workers", "2"):
            pass


async def test_two_workers_share_a_budget(tmp_path: Path) -> None:
    Project(tmp_path).write(CONFIG.replace("STORE", "sqlite:./budgets.db"), mine=MODULE)
    async with serving(tmp_path, "--workers", "2") as server, httpx2.AsyncClient(base_url=server.url) as client:
        pays, looks = await spent([client] * 2)
    assert (pays["ok"], looks["ok"]) == (10, 2)
