"""Redis is killed and started again under calls and tasks of two servers: no call runs twice, each task ends."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.config.project import Project
from tests.limits.server import RedisServer, redis_server
from tests.server.processes import serving
from tests.timing import PATIENCE_S

CONFIG = """\
name: pair
tasks: {{store: "sqlite:tasks.db"}}
consents: {{store: "sqlite:consents.db"}}
server: {{keys: [{key}], bus: "{uri}"}}
rate_limits: {{store: "{uri}"}}

tools:
  - {{name: note, type: internal, handler: "python:mine:note", rate_limit: 100000/60s}}
  - {{name: look, type: internal, handler: "python:mine:look", rate_limit: 9999/1s, annotations: {{read_only: true}}}}
  - {{name: load, type: internal, handler: "python:mine:load", rate_limit: 100000/60s, task: required}}
"""
MODULE = """
import asyncio, random
from pathlib import Path
from pegboard import CallContext

HERE = Path(__file__).parent

def wrote(file: str, line: str) -> str:
    with (HERE / file).open("a") as lines:
        lines.write(line + "\\n")
    return line

async def note(name: str) -> str:
    return wrote("notes", name)

async def look(name: str) -> str:
    return name

async def load(ctx: CallContext, name: str) -> str:
    for step in ("fetch", "check"):
        await ctx.step(step, pause, ctx)
    if not await ctx.ask("Load it?", schema={"type": "boolean"}):
        return "no"
    return await ctx.step("load", lambda: wrote("loads", name))

async def pause(ctx: CallContext) -> str:
    await asyncio.sleep(random.uniform(0, 0.1))
    return ctx.step_key
"""
# What a call may be answered while the store of limits is away; nothing of it has run then.
AWAY = "ratelimit_unavailable"


class Callers:
    """Callers who go on until they are told, each request at the next server; and what they were told."""

    def __init__(self, clients: list[httpx2.AsyncClient]) -> None:
        self._turns, self._numbers = itertools.cycle(clients), itertools.count()
        self.kinds, self.noted, self.tasks = Counter[str](), list[str](), dict[str, str]()
        self.ended, self.is_over = Counter[str](), False

    async def post(self, path: str, body: Any = None) -> httpx2.Response:
        return await next(self._turns).post(path, json=body or {})

    async def call(self, tool: str) -> tuple[str, dict[str, Any]]:
        name = f"{tool}-{next(self._numbers)}"
        answer = await self.post(f"/v1/tools/{tool}/call", {"name": name})
        kind = "ok" if answer.status_code == 200 else answer.json()["kind"]
        self.kinds[f"{tool} {kind}"] += 1
        return name, answer.json() if kind == "ok" else {}

    async def call_on(self, tool: str) -> None:
        while not self.is_over:
            name, body = await self.call(tool)
            if body and tool == "note":
                self.noted.append(name)
            await asyncio.sleep(0.02)

    async def load_on(self) -> None:
        while not self.is_over:
            name, body = await self.call("load")
            if body:
                self.tasks[body["taskId"]] = name
                await self.end(body["taskId"])

    async def end(self, task_id: str) -> None:
        while True:
            shown = (await next(self._turns).get(f"/v1/tasks/{task_id}")).json()
            if shown["state"] in ("completed", "failed", "cancelled"):
                self.ended[f"{shown['state']} {'error' if shown.get('error') else '-'}"] += 1
                return
            for key in shown.get("questions") or ():
                answers = {key: {"action": "accept", "content": {"answer": True}}}
                await self.post(f"/v1/tasks/{task_id}/answer", answers)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def called(folder: Path, redis: RedisServer) -> AsyncGenerator[Callers]:
    Project(folder).write(CONFIG.format(key="k" * 32, uri=redis.uri), mine=MODULE)
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(serving(folder))).url for _ in range(2)]
        clients = [httpx2.AsyncClient(base_url=url, verify=False, timeout=PATIENCE_S) for url in urls]
        for client in clients:
            await stack.enter_async_context(client)
        callers = Callers(clients)
        async with asyncio.timeout(60 * PATIENCE_S), asyncio.TaskGroup() as group:
            for work in (callers.call_on("note"), callers.call_on("look"), *(callers.load_on() for _ in range(4))):
                group.create_task(work)
            yield callers
            callers.is_over = True


async def restarted(folder: Path, restarts: int) -> Callers:
    chance = random.Random(20261128)
    with redis_server(folder) as redis:
        async with called(folder, redis) as callers:
            for _ in range(restarts):
                before = callers.kinds["note ok"], callers.ended.total()
                while callers.kinds["note ok"] < before[0] + 10 or callers.ended.total() < before[1] + 2:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(chance.uniform(0.0, 0.5))  # the moment is what is tried
                redis.stop()
                await asyncio.sleep(chance.uniform(0.0, 3.0))  # as above
                redis.start()
    assert sorted((folder / "notes").read_text().split()) == sorted(callers.noted)
    assert sorted((folder / "loads").read_text().split()) == sorted(callers.tasks.values())
    assert callers.ended == {"completed -": len(callers.tasks)}
    assert {kind.partition(" ")[2] for kind in callers.kinds} <= {"ok", AWAY}
    assert callers.kinds[f"look {AWAY}"] == 0
    return callers


@pytest.mark.soak
async def test_no_call_is_made_twice_and_each_task_ends_whenever_redis_is_restarted(tmp_path: Path) -> None:
    callers = await restarted(tmp_path, restarts=20)
    print(f"20 restarts: {len(callers.tasks)} tasks, {callers.ended}, {callers.kinds}")
