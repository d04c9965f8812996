"""The shared rate-limit cases on a real Redis. Named after their ids."""

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pegboard import Catalog, RateLimit
from pegboard.limits.redis_store import RedisLimitStore
from tests.core.parts import ANN, Recorder, kind_of, one_tool
from tests.limits.server import SILENCE_S, RedisServer, race, redis_server
from tests.timing import PATIENCE_S, is_within

KEY = 'pegboard:["caller","main.echo","s1","ann",null]'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


async def test_rate_01_four_processes_on_one_store_let_exactly_the_limit_through(server: RedisServer) -> None:
    assert await race(sys.executable, server.uri, processes=4, calls=200, limit=10) == (10, {"ok", "rate_limited"})


def break_key(server: RedisServer) -> None:
    server.client.set(KEY, "no list")


BROKEN = {
    "refused": (RedisServer.stop, RedisServer.start),
    "slow": (RedisServer.freeze, RedisServer.thaw),
    "wrong type of key": (break_key, lambda server: server.client.flushall()),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("read_only", [False, True])
async def test_rate_06_a_broken_store_is_decided_by_policy_and_used_again(
    server: RedisServer, how: str, read_only: bool
) -> None:
    break_it, mend_it = BROKEN[how]
    store, recorder = RedisLimitStore(server.uri, silence_s=SILENCE_S), Recorder()
    catalog = Catalog(limit_store=store)
    limit = RateLimit(max_calls=3, window_s=60.0)
    catalog.tool(name="echo", rate_limit=limit, read_only=read_only)(lambda: "done")
    view = catalog.view(ANN)
    assert kind_of(await view.call("echo")) == "ok"
    break_it(server)
    kinds, took = list[str](), list[float]()
    for _ in range(4):
        started = time.perf_counter()
        kinds.append(kind_of(await view.call("echo", callbacks=recorder)))
        took.append(time.perf_counter() - started)
    assert is_within(statistics.median(took), 0.05)
    local, closed = ["ok"] * 3 + ["rate_limited"], ["ratelimit_unavailable"] * 4
    assert kinds == (local if read_only else closed)
    assert len(recorder.results()) == 4, "each call has its one terminal event"
    mend_it(server)
    mended = time.perf_counter()
    # Counted there again.
    while server.client.type(KEY) != b"list":
        await view.call("echo")
        assert is_within(time.perf_counter() - mended, 2)
    await store.close()


async def test_rate_06_lost_counts_start_a_new_window_and_break_nothing(server: RedisServer) -> None:
    store = RedisLimitStore(server.uri, silence_s=PATIENCE_S)
    catalog = one_tool(catalog=Catalog(limit_store=store), rate_limit=RateLimit(max_calls=2, window_s=60.0))
    view = catalog.view(ANN)
    before = [kind_of(await view.call("echo")) for _ in range(3)]
    server.client.flushall()
    server.client.script_flush()
    after = [kind_of(await view.call("echo")) for _ in range(3)]
    assert before == after == ["ok", "ok", "rate_limited"]
    await store.close()
