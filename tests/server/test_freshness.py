"""Freshness: a list may be kept for a minute, but only a moment while a source has yet to give its first lists."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import Client

from pegboard import Catalog, Policy, Profile, http_app
from pegboard.sources.mcp.server_settings import ServerSettings
from pegboard.sources.mcp.supervised_source import McpSource
from tests.server.doors import answer_of, post, served
from tests.upstream_mcp.parts import PLAIN, free_port, on_stdio, until

USUAL_MS, STARTING_MS = 60_000, 1_000
HELD = f"""
import runpy, sys
open(sys.argv[1]).readline()
sys.argv = [{str(PLAIN)!r}]
runpy.run_path({str(PLAIN)!r}, run_name="__main__")
"""
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


def catalog_on(*settings: ServerSettings) -> Catalog:
    catalog = Catalog("fresh")
    catalog.tool(name="own", groups="core")(lambda: "here")

    @catalog.resource("memo://own", groups="core")
    def memo() -> str:
        return "here"

    catalog.profile(Profile(name="all", include=("core",)))
    catalog.profile(Profile(name="own", include=("core",), policy=Policy(deny=("up__*",))))
    catalog.profile(Profile(name="tools", include=("core",), policy=Policy(deny=("*__up__*",))))
    for said in settings:
        catalog.add_source(McpSource(said))
    return catalog


@asynccontextmanager
async def slow_to_start(folder: Path) -> AsyncGenerator[tuple[Catalog, Callable[[], object]]]:
    """Give a catalog on a server that starts, but says nothing before it is released."""
    script, fifo = folder / "held.py", folder / "go"
    script.write_text(HELD)
    os.mkfifo(fifo)
    gate = os.open(fifo, os.O_RDWR)
    try:
        yield catalog_on(on_stdio(script, str(fifo))), lambda: os.write(gate, b"\n")
    finally:
        os.close(gate)


async def kept_ms(client: httpx2.AsyncClient, path: str = "/mcp/all", **meta: Any) -> dict[str, int]:
    """Return how long the answer of each method may be kept."""
    methods = (*LISTS, "server/discover")
    answers = [answer_of(await post(client, method, path=path, meta=meta))["result"] for method in methods]
    return {method: answer["ttlMs"] for method, answer in zip(methods, answers, strict=True)}


def all_of(ttl_ms: int) -> dict[str, int]:
    return dict.fromkeys((*LISTS, "server/discover"), ttl_ms)


async def test_lists_are_short_lived_until_a_slow_server_has_given_all_of_its_own(tmp_path: Path) -> None:
    async with (
        slow_to_start(tmp_path) as (catalog, release),
        served(http_app(catalog)) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        assert await kept_ms(client) == all_of(STARTING_MS)
        # The SDK's way of the same requests.
        assert await kept_ms(client, progressToken="p") == all_of(STARTING_MS)
        assert await kept_ms(client, "/mcp/own") == {
            **all_of(STARTING_MS),
            "tools/list": USUAL_MS,
        }, "who can have no tool of it may keep the tools"
        assert await kept_ms(client, "/mcp/tools") == {
            **all_of(USUAL_MS),
            "tools/list": STARTING_MS,
            "server/discover": STARTING_MS,
        }
        release()
        async with asyncio.timeout(60):
            while await kept_ms(client) != all_of(USUAL_MS):
                await asyncio.sleep(0.02)
        assert await kept_ms(client, progressToken="p") == all_of(USUAL_MS)
        for method, member in LISTS.items():
            listed = answer_of(await post(client, method, path="/mcp/all"))["result"][member]
            assert "up" in str(listed), f"{method} is whole once it may be kept"


async def test_a_client_that_does_not_listen_has_the_tools_a_moment_after_they_are_there(tmp_path: Path) -> None:
    async with (
        slow_to_start(tmp_path) as (catalog, release),
        served(http_app(catalog)) as url,
        Client(f"{url}/mcp/all", mode="2026-07-28") as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["own"]
        release()
        # Far less than the usual minute, for which the first list would be kept.
        async with asyncio.timeout(60):
            while "up__add" not in names:
                names = [tool.name for tool in (await client.list_tools()).tools]
                await asyncio.sleep(0.02)


async def test_a_server_that_is_away_shortens_no_list_for_good() -> None:
    away = ServerSettings(name="up", transport="http", url=f"http://127.0.0.1:{free_port()}/mcp")
    catalog = catalog_on(away)
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        assert await kept_ms(client) == all_of(STARTING_MS)
        source: Any = catalog.registry.sources["up"]
        await until(lambda: not source.is_starting(), within_s=60)
        assert await kept_ms(client) == all_of(USUAL_MS)


async def test_a_lazy_server_is_awaited_once_a_list_has_asked_for_it() -> None:
    catalog = catalog_on(on_stdio(start="lazy"))
    async with served(http_app(catalog)) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await kept_ms(client))["tools/list"] == STARTING_MS
        async with asyncio.timeout(60):
            while await kept_ms(client) != all_of(USUAL_MS):
                await asyncio.sleep(0.02)
