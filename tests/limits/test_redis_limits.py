"""Limits on a real Redis: exact over processes, and decided by the tool's rule while the store is away."""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from pegboard import Catalog, DefinitionError, Profile, RateLimit
from pegboard.limits.memory import MemoryLimitStore
from pegboard.limits.redis_store import RedisLimitStore
from tests.core.parts import ANN, Clock, kind_of, one_tool
from tests.limits.server import SILENCE_S, RedisServer, race
from tests.timing import PATIENCE_S, is_within


@pytest.fixture
async def store(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[RedisLimitStore]:
    """Give a store that waits for Redis on a busy machine too, or an `impatient` one, which soon calls it away."""
    is_impatient = getattr(request, "param", "") == "impatient"
    made = RedisLimitStore(server.uri, silence_s=SILENCE_S if is_impatient else PATIENCE_S)
    yield made
    await made.close()


def per_minute(calls: int, **said: Any) -> RateLimit:
    return RateLimit(max_calls=calls, window_s=60.0, **said)


async def test_two_processes_let_exactly_the_limit_through(server: RedisServer) -> None:
    assert await race(sys.executable, server.uri, processes=2, calls=300, limit=50) == (50, {"ok", "rate_limited"})


async def test_it_answers_like_the_store_in_memory(server: RedisServer) -> None:
    clock = Clock(1_700_000_000.0)
    store = RedisLimitStore(server.uri, wall_clock=clock, silence_s=PATIENCE_S)
    memory = MemoryLimitStore(clock=clock)
    tool, profile = RateLimit(max_calls=2, window_s=10.0), RateLimit(max_calls=3, window_s=30.5)
    hits = [(("caller", "t", None), tool), (("caller", "profile chat", "ann"), profile)]
    steps = [(0.0, hits), (1.0, hits), (2.0, hits), (7.0, hits[1:]), (2.0, hits), (19.0, hits), (0.5, hits[:1])]
    for after_s, asked in steps:
        clock.now += after_s
        for charge in (False, True):
            said = memory.wait_s(asked, charge=charge)
            assert await store.wait_s(asked, charge=charge) == pytest.approx(said, abs=0.002)
    assert await store.wait_s([(("x",), per_minute(0))], charge=True) is None
    await store.close()


async def test_a_call_that_one_window_refuses_is_recorded_in_none(store: RedisLimitStore) -> None:
    wide, narrow = (("wide",), per_minute(5)), (("narrow",), per_minute(1))
    waits = [await store.wait_s([wide, narrow], charge=True) for _ in range(20)]
    assert waits.count(0.0) == 1
    alone = [await store.wait_s([wide], charge=True) for _ in range(6)]
    assert alone.count(0.0) == 4


async def test_keys_leave_when_their_window_is_over(server: RedisServer, store: RedisLimitStore) -> None:
    await store.wait_s([(("a", None), RateLimit(max_calls=5, window_s=59.5))], charge=True)
    (key,) = server.client.keys()
    assert key == b'pegboard:["a",null]'
    assert 0 < server.client.ttl(key) <= 60


async def test_many_callers_wait_for_each_other_without_calling_the_store_away(store: RedisLimitStore) -> None:
    waits = await asyncio.gather(*(store.wait_s([(("many",), per_minute(700))], charge=True) for _ in range(1_000)))
    assert waits.count(0.0) == 700


async def test_a_call_that_is_cancelled_leaves_the_others_their_own_answers(store: RedisLimitStore) -> None:
    limits = [RateLimit(max_calls=1, window_s=60.0 * (number + 1)) for number in range(40)]
    for limit in limits:
        await store.wait_s([((str(limit.window_s),), limit)], charge=True)
    asked = [asyncio.ensure_future(store.wait_s([((str(one.window_s),), one)], charge=False)) for one in limits]
    await asyncio.sleep(0)
    for each in asked[::3]:
        each.cancel()
    waits = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(wait, asyncio.CancelledError) for wait in waits[::3])
    for number, (wait, limit) in enumerate(zip(waits, limits, strict=True)):
        assert not number % 3 or (isinstance(wait, float) and limit.window_s - 30 < wait <= limit.window_s)


async def test_a_store_that_forgot_the_script_or_ended_the_connection_is_asked_again(
    server: RedisServer, store: RedisLimitStore
) -> None:
    hit = [(("again",), per_minute(3))]
    assert await store.wait_s(hit, charge=True) == 0.0
    server.client.script_flush()
    assert await store.wait_s(hit, charge=True) == 0.0
    server.client.client_kill_filter(_type="normal", skipme=True)
    began = time.perf_counter()
    while True:
        # A question that is on its way as the connection ends is lost with it.
        with suppress(ConnectionError):
            assert await store.wait_s(hit, charge=False) == 0.0
            break
        assert is_within(time.perf_counter() - began, 2)
    assert await store.wait_s(hit, charge=True) == 0.0
    assert 50.0 < (await store.wait_s(hit, charge=True) or 0.0) <= 60.0


async def test_a_store_that_answers_what_nobody_asked_is_left_and_asked_anew() -> None:
    connections = list[asyncio.StreamWriter]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while head := await reader.readline():
            words = [await reader.readexactly(int((await reader.readline())[1:]) + 2) for _ in range(int(head[1:]))]
            writer.write(b"$1\r\n0\r\n$4\r\n9000\r\n" if words[0].startswith(b"EVAL") else b"+OK\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as fake:
        store = RedisLimitStore(f"redis://127.0.0.1:{fake.sockets[0].getsockname()[1]}")
        for _ in range(3):
            assert await store.wait_s([(("a",), per_minute(3))], charge=True) == 0.0
            async with asyncio.timeout(PATIENCE_S):
                await connections[-1].wait_closed()
        await store.close()
    assert len(connections) == 3


def test_a_store_serves_one_loop_after_the_other(server: RedisServer) -> None:
    store = RedisLimitStore(server.uri, silence_s=PATIENCE_S)

    async def once() -> float | None:
        try:
            return await store.wait_s([(("loops",), per_minute(2))], charge=True)
        finally:
            await store.close()

    assert [asyncio.run(once()) for _ in range(2)] == [0.0, 0.0]


@pytest.mark.parametrize("store", ["impatient"], indirect=True)
@pytest.mark.parametrize("how", ["stop", "freeze"])
async def test_while_it_is_known_to_be_away_each_tool_follows_its_own_rule_at_once(
    server: RedisServer, store: RedisLimitStore, how: str
) -> None:
    catalog = Catalog(limit_store=store)
    for name, said in {
        "write": {"rate_limit": per_minute(2)},
        "read": {"rate_limit": per_minute(2), "read_only": True},
        "open": {"rate_limit": per_minute(2, when_store_is_down="open")},
    }.items():
        catalog.tool(name=name, **said)(lambda: "done")
    view = catalog.view(ANN)
    assert [kind_of(await view.call(name)) for name in ("write", "read", "open")] == ["ok"] * 3
    getattr(server, how)()
    kinds: dict[str, list[str]] = {}
    took: list[float] = []
    for name in ("write", "read", "open") * 3:
        started = time.perf_counter()
        kinds.setdefault(name, []).append(kind_of(await view.call(name)))
        took.append(time.perf_counter() - started)
    assert is_within(statistics.median(took), 0.05)
    assert kinds == {
        "write": ["ratelimit_unavailable"] * 3,
        "read": ["ok", "ok", "rate_limited"],
        "open": ["ok"] * 3,
    }
    started = time.perf_counter()
    await asyncio.gather(*(view.call("write") for _ in range(50)))
    assert is_within(time.perf_counter() - started, 0.5), "they do not wait one after the other"
    server.thaw() if how == "freeze" else server.start()
    back = time.perf_counter()
    while kind_of(await view.call("write")) == "ratelimit_unavailable":
        assert is_within(time.perf_counter() - back, 2)
    assert is_within(time.perf_counter() - back, 2)


async def test_a_store_that_is_silent_for_a_while_refuses_no_call(server: RedisServer) -> None:
    store = RedisLimitStore(server.uri, silence_s=60.0)
    assert await store.wait_s([(("a",), per_minute(100))], charge=True) == 0.0
    server.freeze()
    asked = [asyncio.ensure_future(store.wait_s([(("a",), per_minute(100))], charge=True)) for _ in range(20)]
    done, _ = await asyncio.wait(asked, timeout=0.2)
    assert not done
    server.thaw()
    assert await asyncio.gather(*asked) == [0.0] * 20
    assert store.is_up
    await store.close()


async def test_a_restart_of_the_store_refuses_no_call(server: RedisServer) -> None:
    store = RedisLimitStore(server.uri, silence_s=60.0)
    assert await store.wait_s([(("a",), per_minute(100))], charge=True) == 0.0
    server.stop()
    asked = [asyncio.ensure_future(store.wait_s([(("a",), per_minute(100))], charge=True)) for _ in range(20)]
    await asyncio.to_thread(server.start)
    assert await asyncio.gather(*asked) == [0.0] * 20
    await store.close()


async def test_a_store_that_is_away_is_told_of_until_it_answers(server: RedisServer) -> None:
    store = RedisLimitStore(server.uri, silence_s=0.2)
    server.stop()
    for _ in range(3):
        with pytest.raises(ConnectionError, match="did not answer"):
            await store.wait_s([(("a",), per_minute(3))], charge=True)
        assert not store.is_up
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(PATIENCE_S):
        while not store.is_up:
            await asyncio.sleep(0)
        # It has answered, and may be slower the next time than these 0.2 s.
        while True:
            with suppress(ConnectionError):
                assert await store.wait_s([(("a",), per_minute(3))], charge=False) == 0.0
                break
    await store.close()


async def test_profile_and_tool_are_counted_together(store: RedisLimitStore) -> None:
    catalog = one_tool(catalog=Catalog(limit_store=store), rate_limit=per_minute(5))
    catalog.profile(Profile(name="chat", include=("core",), rate_limit=per_minute(3)))
    results = await asyncio.gather(*(catalog.view(ANN, profile="chat").call("echo") for _ in range(20)))
    assert [kind_of(result) for result in results].count("ok") == 3
    rest = await asyncio.gather(*(catalog.view(ANN).call("echo") for _ in range(20)))
    assert [kind_of(result) for result in rest].count("ok") == 2


@pytest.mark.parametrize("uri", ["", "localhost", "http://localhost", "redis://", "redis://h:port", "memory://"])
def test_a_uri_that_leads_to_no_store_is_refused(uri: str) -> None:
    with pytest.raises(DefinitionError, match="store"):
        RedisLimitStore(uri)


async def test_no_password_is_in_what_it_says() -> None:
    store = RedisLimitStore("redis://user:hunter2@127.0.0.1:1/0")
    with pytest.raises(ConnectionError, match=r"limit store at 127\.0\.0\.1:1 did not answer") as raised:
        await store.wait_s([(("a",), per_minute(1))], charge=True)
    assert "hunter2" not in str(raised.value)
    await store.close()


@pytest.mark.parametrize("scheme", ["valkey", "redis"])
async def test_valkey_is_asked_in_the_same_way(server: RedisServer, scheme: str) -> None:
    store = RedisLimitStore(server.uri.replace("redis", scheme, 1), silence_s=PATIENCE_S)
    assert await store.wait_s([(("a",), per_minute(1))], charge=True) == 0.0
    await store.close()
