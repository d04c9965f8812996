"""Buses: what workers tell and ask each other over a Redis and over a PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import psycopg
import pytest

from pegboard import DefinitionError
from pegboard.server.bus import Bus, Transport
from pegboard.server.postgres_transport import PostgresTransport
from pegboard.server.redis_transport import RedisTransport
from pegboard.server.sealing import sealing_with
from tests.limits.server import RedisServer, redis_server
from tests.server.patient_bus import patient_bus
from tests.timing import PATIENCE_S

__all__ = ["patient_bus"]

pytestmark = pytest.mark.usefixtures("patient_bus")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


class Workers(NamedTuple):
    """Two of one server, and one of another server in the same store."""

    ours: Bus
    theirs: Bus
    foreign: Bus


def transport_of(kind: str, request: pytest.FixtureRequest, prefix: str) -> Transport:
    if kind == "redis":
        return RedisTransport(request.getfixturevalue("redis").uri, key_prefix=prefix)
    return PostgresTransport(request.getfixturevalue("postgres_url"), key_prefix=prefix)


@pytest.fixture(params=["redis", "postgres"])
async def workers(request: pytest.FixtureRequest, patient_bus: None) -> AsyncGenerator[Workers]:
    buses: list[Bus] = []
    async with AsyncExitStack() as stack:
        for prefix, key in (("a", b"k"), ("a", b"k"), ("b", b"x")):
            sealing = sealing_with((key * 32,), audience="pair")
            buses.append(Bus(transport_of(request.param, request, prefix), sealing))
            await stack.enter_async_context(buses[-1].running())
        yield Workers(*buses)


def heard_by(bus: Bus, kind: str = "word") -> "asyncio.Queue[Any]":
    heard: asyncio.Queue[Any] = asyncio.Queue()
    bus.on(kind, lambda _who, said: heard.put_nowait(said))
    return heard


async def next_of(heard: "asyncio.Queue[Any]") -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return await heard.get()


async def test_what_one_tells_reaches_the_others_of_its_server_in_order_and_nobody_else(workers: Workers) -> None:
    heard, foreign = heard_by(workers.theirs), heard_by(workers.foreign)
    own = heard_by(workers.ours)
    for number in range(20):
        workers.ours.tell_soon("word", {"number": number})
    assert [(await next_of(heard))["number"] for _ in range(20)] == list(range(20))
    assert await workers.ours.tell("word", {"last": True}, to=workers.theirs.worker) == 1
    assert await next_of(heard) == {"last": True}
    assert (own.qsize(), foreign.qsize()) == (0, 0)


async def test_a_message_of_any_length_and_of_any_characters_arrives_whole(workers: Workers) -> None:
    heard = heard_by(workers.theirs)
    said = {"text": "é\u2028\x00'\"\\ " * 60_000}
    await asyncio.gather(*(workers.ours.tell("word", {**said, "number": number}) for number in range(3)))
    assert [await next_of(heard) for _ in range(3)] == [{**said, "number": number} for number in range(3)]


async def test_a_question_is_answered_by_all_others_and_one_to_nobody_is_known_to_reach_nobody(
    workers: Workers,
) -> None:
    workers.theirs.on("sum", lambda _who, said: {"is": said["a"] + 1})
    answers = await workers.ours.ask("sum", {"a": 2})
    assert (answers.bodies, answers.are_all) == ([{"is": 3}], True)
    assert await workers.ours.tell("word", {}, to="0" * 16) == 0


async def test_what_anybody_else_writes_there_is_not_heard(workers: Workers, request: pytest.FixtureRequest) -> None:
    heard = heard_by(workers.theirs)
    transport: Any = workers.ours._transport
    channel = transport._channel("bus:all") if isinstance(transport, PostgresTransport) else None
    if channel:
        with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as connection:
            for text in ("", "x", "m 0 1 forged", "m 1 3 late", "m 0 9999999 begun", "m 0 2 half"):
                connection.execute("select pg_notify(%s, %s)", (channel, text))
    else:
        client = request.getfixturevalue("redis").client
        for name in client.pubsub_channels("*"):
            for text in (b"", b"\xff", b"forged"):
                client.publish(name, text)
    await workers.ours.tell("word", {"true": 1})
    assert await next_of(heard) == {"true": 1}
    assert heard.empty()


async def test_a_connection_that_the_database_ends_is_made_anew(postgres_url: str) -> None:
    one, two = (
        Bus(PostgresTransport(postgres_url, key_prefix="gone"), sealing_with((b"k" * 32,), audience="pair"))
        for _ in range(2)
    )
    heard = heard_by(two)
    async with one.running(), two.running():
        await one.tell("word", {"number": 0})
        assert await next_of(heard) == {"number": 0}
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            # It waits until they are gone, since what one of them reads before is answered.
            ended = f"select pg_terminate_backend(pid, {PATIENCE_S * 1_000:.0f}) from pg_stat_activity "
            connection.execute(f"{ended} where application_name like 'pegboard:%'".encode())
        with pytest.raises(ConnectionError, match="the bus did not answer"):
            await one.tell("word", {"number": 1})
        async with asyncio.timeout(PATIENCE_S):
            while heard.empty():
                one.tell_soon("word", {"number": 2})
                await asyncio.sleep(0.05)
        assert await next_of(heard) == {"number": 2}


def test_a_uri_that_cannot_be_used_is_refused_without_being_shown() -> None:
    with pytest.raises(DefinitionError, match="the URI of the bus cannot be used") as refused:
        PostgresTransport("postgresql://ann:s3cret@host:port/x?nonsense=1", key_prefix="a")
    assert "s3cret" not in str(refused.value)
