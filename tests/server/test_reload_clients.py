"""Reload under MCP clients: 50 sessions of both eras list and call while the files are swapped."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from pegboard import http_app
from tests.config.project import Project
from tests.config.test_reload import BAD, reloader_of, write
from tests.server.doors import served
from tests.server.processes import serving

SWAPS, CLIENTS = 100, 50
FEW = 2 * len(BAD)
ERAS = ("2026-07-28", "legacy")


class Crowd:
    """MCP clients that list and call without end, and the generation that each has last listed."""

    def __init__(self, url: str, *, pause_s: float) -> None:
        self.url, self.pause_s, self.calls = url, pause_s, 0
        self.seen = [0] * CLIENTS
        self._is_done = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run them for the time of the block; what one of them finds wrong ends it."""
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._client(number))
            await self.until(lambda: min(self.seen) > 0)
            yield
            self._is_done = True

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.005)

    async def _client(self, number: int) -> None:
        # What checks certificates takes long to make, and has nothing to do here.
        async with (
            httpx2.AsyncClient(verify=False, timeout=60) as http,
            Client(
                streamable_http_client(f"{self.url}/mcp", http_client=http), mode=ERAS[number % 2], cache=None
            ) as client,
        ):
            while not self._is_done:
                await self._look(client, number)
                # Each at a pace of its own: what all ask for at once takes longer than many swaps.
                await asyncio.sleep(self.pause_s * (1 + number / CLIENTS))

    async def _look(self, client: Client, number: int) -> None:
        """List and call: one generation in the list, none older than the last, and no call lost."""
        names = {tool.name for tool in (await client.list_tools()).tools}
        generation = max(int(name.rpartition("_")[2]) for name in names if "_" in name)
        assert names == {"stable", "held", *(f"t{place}_{generation}" for place in range(5))}
        assert generation >= self.seen[number]
        self.seen[number] = generation
        answer: Any = await client.call_tool("stable", {})
        assert (answer.is_error, int(answer.content[0].text) >= generation) == (False, True)
        self.calls += 1


def break_file(project: Project, how: str) -> None:
    text = BAD[how][0]
    if text is None:
        project.path.unlink()
    else:
        project.path.write_text(text)


async def test_reloads_under_50_clients_lose_no_call_and_mix_no_list(tmp_path: Path) -> None:
    project, bad = Project(tmp_path), list(BAD)
    write(project, 1)
    catalog, reloader = reloader_of(project)
    async with served(http_app(catalog)) as url:
        crowd = Crowd(url, pause_s=1.5)
        async with crowd.running():
            for n in range(2, FEW + 2):
                if n % 2 == 0:
                    break_file(project, bad.pop())
                    assert not await reloader.reload()
                    before = crowd.calls
                    await crowd.until(lambda before=before: crowd.calls > before + 10)
                    assert max(crowd.seen) == n - 1
                write(project, n)
                assert await reloader.reload()
                await crowd.until(lambda n=n: n in crowd.seen)
            await crowd.until(lambda: set(crowd.seen) == {FEW + 1})
    assert bad == []
    assert crowd.calls > CLIENTS + FEW


@pytest.mark.soak
async def test_100_changes_of_the_file_of_a_process_reach_each_of_50_clients(tmp_path: Path) -> None:
    project, bad = Project(tmp_path), list(BAD)
    write(project, 1)
    async with serving(tmp_path, "--reload") as server:
        crowd = Crowd(server.url, pause_s=0.4)
        async with crowd.running():
            for n in range(2, SWAPS + 2):
                if n % (SWAPS // len(BAD)) == 0:
                    refused = server.said.read_text().count("config_reload_refused")
                    break_file(project, bad.pop())
                    await crowd.until(
                        lambda refused=refused: server.said.read_text().count("config_reload_refused") > refused
                    )
                    before = crowd.calls
                    await crowd.until(lambda before=before: crowd.calls > before + CLIENTS)
                    assert set(crowd.seen) == {n - 1}
                write(project, n)
                await crowd.until(lambda n=n: set(crowd.seen) == {n})
    assert bad == []
