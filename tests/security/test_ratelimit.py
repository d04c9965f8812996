"""The shared rate-limit cases that touch what exists. Named after their ids."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import pytest

from pegboard import Catalog, RateLimit, ToolContext
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.record import replace
from tests.core.parts import ANN, Clock, Recorder, kind_of, one_tool
from tests.timing import is_within, running_clock


def limited(ran: list[Any], calls: int, *, clock: Clock | None = None, **said: Any) -> Catalog:
    async def work(ctx: Any, args: Any) -> None:
        ran.append(ctx.user_id)
        await asyncio.sleep(0)

    clock = clock or Clock()
    catalog = Catalog(clock=clock, limit_store=MemoryLimitStore(clock=clock))
    return one_tool(work, catalog=catalog, rate_limit=RateLimit(max_calls=calls, window_s=60.0), **said)


async def test_rate_01_a_race_lets_exactly_the_limit_through() -> None:
    ran: list[Any] = []
    catalog = limited(ran, 10)
    results = await asyncio.gather(*(catalog.view(replace(ANN, request_id=str(n))).call("echo") for n in range(200)))
    assert len(ran) == 10, "the counter in the tool decides"
    assert sorted({kind_of(result) for result in results}) == ["ok", "rate_limited"]


async def test_rate_03_no_spelling_session_or_client_gets_another_bucket() -> None:
    ran: list[Any] = []
    catalog = limited(ran, 3, renamed_from=("old_echo",))

    def claiming(**said: Any) -> ToolContext:
        return replace(ANN, **said)

    tries = [
        ("echo", ANN), ("main.echo", ANN), ("old_echo", ANN), ("echo", claiming(session_id="new")),
        ("main.echo", claiming(request_id="x", roles=["admin"])),
        ("old_echo", claiming(settings={"client": "console"})), ("ECHO", ANN), ("echo ", ANN),
    ]  # fmt: skip
    kinds = [kind_of(await catalog.view(ctx).call(name)) for name, ctx in tries]
    assert kinds == ["ok"] * 3 + ["rate_limited"] * 3 + ["not_found"] * 2
    assert len(ran) == 3


async def test_rate_03_a_batch_and_single_calls_share_one_bucket() -> None:
    ran: list[Any] = []
    catalog = limited(ran, 5)
    await asyncio.gather(*(catalog.view(ANN).call("echo") for _ in range(4)))
    assert [kind_of(await catalog.view(ANN).call("echo")) for _ in range(3)] == ["ok", "rate_limited", "rate_limited"]


async def test_rate_04_one_who_floods_does_not_starve_another() -> None:
    ran: list[Any] = []
    catalog = limited(ran, 100)
    bob = replace(ANN, user_id="bob")

    async def bobs_seconds() -> float:
        started = time.perf_counter()
        assert kind_of(await catalog.view(bob).call("echo")) == "ok"
        return time.perf_counter() - started

    alone = statistics.median([await bobs_seconds() for _ in range(20)])
    for _ in range(5_000):
        await catalog.view(ANN).call("echo")
    beside = statistics.median([await bobs_seconds() for _ in range(20)])
    assert ran.count("ann") == 100
    assert ran.count("bob") == 40
    assert is_within(beside, max(2 * alone, 0.005))


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0, 0.5])
async def test_rate_05_a_wall_clock_that_jumps_changes_nothing(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    clock = Clock()
    catalog = limited(ran, 2, clock=clock)
    wall = time.time
    kinds = [kind_of(await catalog.view(ANN).call("echo")) for _ in range(3)]
    monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
    kinds += [kind_of(await catalog.view(ANN).call("echo"))]
    clock.now += 60.0
    kinds += [kind_of(await catalog.view(ANN).call("echo"))]
    assert kinds == ["ok", "ok", "rate_limited", "rate_limited", "ok"]


async def test_rate_05_even_a_monotonic_clock_that_steps_back_gives_no_extra_call_and_no_long_lock_out() -> None:
    ran: list[Any] = []
    clock = Clock(1_000.0)
    catalog = limited(ran, 2, clock=clock)
    view = catalog.view(ANN)
    assert [kind_of(await view.call("echo")) for _ in range(2)] == ["ok", "ok"]
    clock.now = 400.0
    refused = await view.call("echo")
    assert refused.error is not None
    assert refused.error.kind == "rate_limited"
    clock.now = 460.0
    assert kind_of(await view.call("echo")) in ("ok", "rate_limited")
    assert len(ran) <= 3


class Store:
    """A limit store that can be made to fail."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.inner = MemoryLimitStore()

    async def wait_s(self, hits: Sequence[Any], *, charge: bool) -> float | None:
        if self.error is not None:
            raise self.error
        return self.inner.wait_s(hits, charge=charge)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        ConnectionResetError(),
        TimeoutError("slow"),
    ],
)
async def test_rate_06_without_its_store_a_write_is_refused_fast_and_it_recovers(error: OSError) -> None:
    store, recorder = Store(), Recorder()
    catalog = one_tool(catalog=Catalog(limit_store=store), rate_limit=RateLimit(max_calls=5, window_s=60.0))
    view = catalog.view(ANN)
    store.error = error
    with running_clock() as clock:
        started = clock()
        result = await view.call("echo", callbacks=recorder)
        assert is_within(clock() - started, 0.05)
    assert result.error is not None
    assert (result.error.kind, result.error.retryable, result.error.outcome_unknown) == (
        "ratelimit_unavailable",
        True,
        False,
    )
    assert len(recorder.results()) == 1
    store.error = None
    assert kind_of(await view.call("echo")) == "ok"


async def test_rate_06_a_store_that_breaks_in_another_way_never_opens_the_tool() -> None:
    ran: list[Any] = []

    async def work(ctx: Any, args: Any) -> None:
        ran.append(1)

    for broken in (ValueError("wrong type of key"), KeyError("script"), RuntimeError("failover")):
        store = Store()
        store.error = broken
        catalog = one_tool(work, catalog=Catalog(limit_store=store), rate_limit=RateLimit(max_calls=5, window_s=60.0))
        assert (await catalog.view(ANN).call("echo")).is_error
    assert ran == []
