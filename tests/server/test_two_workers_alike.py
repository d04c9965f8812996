"""Two workers and one: whatever is sent, and to whichever of the two, is answered as one alone answers it."""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette

from pegboard import http_app
from tests.limits.server import redis_server
from tests.server.asgi import send_raw
from tests.server.patient_bus import patient_bus
from tests.server.test_differ import (
    ACCEPTS,
    EARLIER,
    HELLO,
    comparable,
    everything,
    messages_of,
    opened,
    random_message,
    random_request,
    raw,
)
from tests.sizes import examples
from tests.timing import PATIENCE_S

__all__ = ["patient_bus"]

SEED = int(os.environ.get("PEGBOARD_SEED", "7"))
pytestmark = pytest.mark.usefixtures("patient_bus")


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        yield redis.uri


@asynccontextmanager
async def one_and_two(bus: str) -> AsyncGenerator[tuple[Starlette, list[Starlette]]]:
    """Run a worker that is alone, and two that hear each other."""
    alone = http_app(everything())
    pair = [http_app(everything(), keys=(b"k" * 32,), bus=bus) for _ in range(2)]
    async with (
        alone.router.lifespan_context(alone),
        pair[0].router.lifespan_context(pair[0]),
        pair[1].router.lifespan_context(pair[1]),
    ):
        yield alone, pair


async def test_a_request_is_answered_by_either_of_two_workers_as_by_one(bus: str) -> None:
    rng, met = random.Random(SEED), Counter[object]()
    async with one_and_two(bus) as (alone, pair):
        for number in range(examples(400)):
            body, heads, path = random_request(rng)
            answers = [await send_raw(app, body, heads, path=path) for app in (alone, pair[number % 2])]
            one, two = ((status, *comparable(kind, answer)) for status, kind, answer in answers)
            assert one == two, (number % 2, body, heads)
            met[one[0]] += 1
    assert {200, 400} <= met.keys()


async def test_a_session_that_goes_from_worker_to_worker_is_answered_as_at_one(bus: str) -> None:
    rng, met = random.Random(SEED), Counter[object]()
    async with one_and_two(bus) as (alone, pair):
        version = rng.choice(EARLIER)
        heads = {
            "host": "127.0.0.1:8420", "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }  # fmt: skip
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**HELLO, "protocolVersion": version}}
        of_one, of_two = await opened(alone, first, heads), await opened(pair[0], first, heads)
        heads |= {"mcp-protocol-version": version}
        for number in range(examples(400)):
            message = random_message(rng)
            # A level reaches the other worker in its own time, which test_two_workers waits for.
            if "logging/setLevel" in str(message):
                continue
            sent = {**heads, **({"accept": rng.choice(ACCEPTS)} if rng.random() < 0.03 else {})}
            answers: list[object] = []
            for app, session in ((alone, of_one), (pair[number % 2], of_two)):
                told: dict[str, str] = {}
                with_session = raw({**sent, "mcp-session-id": session})
                status, kind, answer = await send_raw(app, json.dumps(message).encode(), with_session, told=told)
                answers.append((status, "mcp-session-id" in told, messages_of(kind, answer)))
            assert answers[0] == answers[1], (number % 2, message, sent)
            met[str(answers[0])[:4]] += 1
    assert len(met) > 1


@pytest.mark.parametrize("worker", [0, 1])
async def test_a_session_that_was_deleted_or_forged_is_unknown_to_both(bus: str, worker: int) -> None:
    async with one_and_two(bus) as (_, pair):
        heads = {
            "host": "127.0.0.1:8420", "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }  # fmt: skip
        first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
        session = await opened(pair[worker], first, heads)
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
        forged = session[:-1] + ("A" if session[-1] != "A" else "B")

        async def status(app: Starlette, named: str, method: str = "POST") -> int:
            said = raw({**heads, "mcp-protocol-version": "2025-11-25", "mcp-session-id": named})
            return (await send_raw(app, ping, said, method=method))[0]

        assert [await status(app, forged) for app in pair] == [404, 404]
        assert [await status(app, session) for app in pair] == [200, 200]
        assert await status(pair[worker], session, "DELETE") == 200
        assert await status(pair[worker], session) == 404
        async with asyncio.timeout(PATIENCE_S):
            while await status(pair[1 - worker], session) != 404:
                await asyncio.sleep(0.01)  # it hears of it over the bus
