"""A task of 2025-11-25 that asks its client, where every message of that client may go to another worker."""

import contextlib
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from tests.config.project import Project
from tests.limits.server import redis_server
from tests.server.doors import answer_of
from tests.server.patient_bus import PATIENT_BUS
from tests.server.test_two_workers import OPENED, Pair, Session, address, next_field, started

CONFIG = """
python: [mine]
tasks: {{store: "sqlite:tasks.db"}}
consents: {{store: "sqlite:answers.db"}}
server: {{keys: [{key}], bus: "{uri}"}}
tools:
  - {{name: decide, type: internal, handler: "python:mine:decide", task: required}}
"""
MODULE = """
from pegboard import CallContext

async def decide(ctx: CallContext) -> dict:
    return {"said": await ctx.ask("Which one?", schema={"type": "string"})}
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        Project(folder).write(CONFIG.format(key="k" * 32, uri=redis.uri), mine=PATIENT_BUS + MODULE)
        said = [started(folder, f"said-{number}", stack) for number in range(2)]
        yield Pair(folder, [address(path) for path in said], redis)


@pytest.fixture(autouse=True)
async def closing() -> AsyncGenerator[None]:
    yield
    while OPENED:
        await OPENED.pop().aclose()


@pytest.mark.parametrize(("making", "asking", "answering"), [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0)])
async def test_a_task_that_asks_its_client_ends_whichever_worker_each_message_goes_to(
    pair: Pair, making: int, asking: int, answering: int
) -> None:
    session = await Session.begun(pair)
    call = {"name": "decide", "arguments": {}, "task": {}}
    made = answer_of(await session.post(making, {"id": 1, "method": "tools/call", "params": call}))
    task_id = made["result"]["task"]["taskId"]
    message = {"jsonrpc": "2.0", "id": 2, "method": "tasks/result", "params": {"taskId": task_id}}
    async with session.stream(asking, message) as stream:
        lines = stream.aiter_lines()
        question = json.loads(await next_field(lines, "data"))
        assert question["params"]["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
        result: Any = {"action": "accept", "content": {"answer": "this one"}}
        assert (await session.post(answering, {"id": question["id"], "result": result})).status_code == 202
        answer = json.loads(await next_field(lines, "data"))
    assert answer["id"] == 2
    assert answer["result"]["structuredContent"] == {"said": "this one"}
