"""Live calls in a real browser: how soon another browser shows a call, and that hundreds a second do not freeze it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import pytest

from pegboard import Catalog, agent_tool
from pegboard.model.context import ToolContext
from pegboard.server.app import AppOptions, app_of
from tests.agents.team import agent, playing
from tests.e2e.test_real_clients import CLIENTS
from tests.server.doors import listening
from tests.timing import PATIENCE_S

pytestmark = pytest.mark.e2e
PROBES = 15
SHOWN_MS = 200  # until another browser shows a call
CALLS_A_SECOND = 500
LOAD_S = 4.0


class Watcher:
    """A browser on the live page; see `live.mjs`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self) -> str:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 10 * PATIENCE_S)
        if not line:
            assert self._process.stderr is not None
            raise AssertionError((await self._process.stderr.read()).decode())
        return line.decode().strip()

    async def told(self, command: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        return await self.line()


@asynccontextmanager
async def watching(catalog: Catalog) -> AsyncGenerator[Watcher]:
    app, pipe = app_of(catalog, AppOptions(console=True, login_token="once")), asyncio.subprocess.PIPE
    async with listening(app, starts=app) as url:
        told = json.dumps({"base": f"{url}/console", "link": "once"})
        process = await asyncio.create_subprocess_exec(
            "node", "live.mjs", told, stdin=pipe, stdout=pipe, stderr=pipe, cwd=CLIENTS
        )
        watcher = Watcher(process)
        try:
            assert await watcher.line() == "ready"
            yield watcher
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def test_a_call_and_what_an_agent_calls_appear_within_200_ms_in_another_browser() -> None:
    catalog = Catalog("shop")
    for number in range(PROBES):
        catalog.tool(name=f"probe_{number}", groups="probes")(lambda: "x")
    catalog.agent(agent("helper", groups=("probes",)))
    catalog.register(agent_tool("ask_helper", agent="helper", description="Ask the helper."))
    last = f"probe_{PROBES - 1}"
    catalog.runtime.agents.make_model = playing({"helper": [[(last, {})], "done"]})
    began: dict[str, float] = {}
    async with watching(catalog) as watcher:
        view = catalog.view(ToolContext())
        for number in range(PROBES - 1):
            began[f"probe_{number}"] = time.time()
            await view.call(f"probe_{number}", {})
            # Calls that come together are drawn together: each of these is on its own.
            await asyncio.sleep(0.25)
        began[last] = time.time()
        assert not (await view.call("ask_helper", {"query": "go"})).is_error
        await asyncio.sleep(1.0)
        saw: dict[str, Any] = json.loads(await watcher.told("end"))
    delays = [saw["seen"][name] - at * 1000 for name, at in began.items() if name != last]
    print(f"a call is shown after {median(delays):.0f} ms, at most {max(delays):.0f} ms")
    assert median(delays) <= SHOWN_MS
    assert ["probe_0", False, "ok"] in saw["nested"]
    # What the agent called is below the call that started it.
    names = [name for name, _, _ in saw["nested"]]
    assert saw["nested"][names.index("ask_helper") + 1] == [last, True, "ok"]
    assert last in saw["seen"]


async def test_500_calls_a_second_do_not_freeze_the_page() -> None:
    catalog = Catalog("shop")
    for number in range(20):
        catalog.tool(name=f"tool_{number}")(lambda: "x")
    async with watching(catalog) as watcher:
        view = catalog.view(ToolContext())
        await watcher.told("load")
        until, made = time.monotonic() + LOAD_S, 0
        while (left := until - time.monotonic()) > 0:
            # As many as are due, in case the machine was busy with others.
            due = int((LOAD_S - left) * CALLS_A_SECOND) - made
            for _ in range(due):
                await view.call(f"tool_{made % 20}", {})
                made += 1
            await asyncio.sleep(0.02)
        await watcher.told("loaded")
        saw: dict[str, Any] = json.loads(await watcher.told("end"))
    share, answers_ms = saw["share"], saw["answersMs"]
    print(f"{made / LOAD_S:.0f} calls a second take {share:.0%} of the page's thread; it answers in {answers_ms} ms")
    assert made >= 0.9 * CALLS_A_SECOND * LOAD_S
    assert saw["rows"] == 300
    assert share <= 0.5
    assert answers_ms <= 1_000
