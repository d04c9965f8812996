"""The stores of budgets count alike: in memory, on SQLite, PostgreSQL and Redis."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pegboard.core.ports import BudgetStore
from pegboard.limits.memory_budgets import MemoryBudgetStore
from pegboard.limits.redis_store import RedisBudgetStore
from pegboard.limits.sql_budgets import BUDGET_PAUSE_S, SCHEMA, SqlBudgetStore
from pegboard.model.budget import Charge, Counter
from pegboard.model.secret import Secret
from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from tests.core.parts import Clock
from tests.limits.server import redis_server
from tests.timing import PATIENCE_S

KINDS = ("memory", "sqlite", "postgresql", "redis")
DAY_S = 86_400
TODAY = 40_000 * DAY_S


def counter(budget: str = "b", unit: str = "calls", who: tuple[str | None, ...] = (), day: int = 0) -> Counter:
    return Counter(budget, unit, who, TODAY + day * DAY_S, TODAY + (day + 1) * DAY_S)


@pytest.fixture(params=KINDS)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[BudgetStore, BudgetStore]]:
    """Two stores on one database, as two workers have them; one in memory is both."""
    match request.param:
        case "memory":
            store = MemoryBudgetStore()
            yield store, store
        case "sqlite":
            files = [SqliteFile(tmp_path / "b.db", SCHEMA, busy_s=10, is_wal=True) for _ in range(2)]
            yield SqlBudgetStore(files[0], catalog="shop"), SqlBudgetStore(files[1], catalog="shop")
        case "postgresql":
            url = Secret(request.getfixturevalue("postgres_url"))
            servers = [PostgresServer(url, SCHEMA, busy_s=10, keep=2) for _ in range(2)]
            ours, theirs = (SqlBudgetStore(each, catalog=tmp_path.name) for each in servers)
            yield ours, theirs
            await ours.close()
            await theirs.close()
        case _:
            with redis_server(tmp_path) as server:
                one, other = (RedisBudgetStore(server.uri, silence_s=PATIENCE_S) for _ in range(2))
                yield one, other
                await one.close()
                await other.close()


async def charge(store: BudgetStore, *charges: Charge) -> list[int]:
    used: Any = store.charge(charges)
    return [*(await used if inspect.isawaitable(used) else used)]


async def counters(store: BudgetStore, *periods: Counter) -> dict[tuple[str | None, ...], int]:
    found: Any = store.counters(periods)
    found = await found if inspect.isawaitable(found) else found
    return {each.counter.who: each.amount for each in found}


async def test_a_charge_is_added_to_all_counters_or_to_none(pair: tuple[BudgetStore, BudgetStore]) -> None:
    one, other = pair
    few, many = Charge(counter("few"), 10, limit=10), Charge(counter("many"), 10, limit=100)
    assert await charge(one, few, many) == [0, 0]
    assert await charge(other, many, few) == [10, 10], "the first is full, so nothing is added"
    assert await charge(one, few._replace(amount=0), many._replace(amount=0)) == [10, 10]
    assert await charge(other, many) == [10]
    assert await charge(one, Charge(counter("few"), 7), Charge(counter("many"), -20)) == [10, 20]
    assert await counters(other, counter("few")) == {(): 17}
    assert await charge(one, few._replace(amount=0), many._replace(amount=0)) == [17, 0]


async def test_each_unit_period_and_caller_has_its_own_amount(pair: tuple[BudgetStore, BudgetStore]) -> None:
    one, other = pair
    wanted = {("ann",): 1, ("bob",): 2, (None,): 3, ('a"/\\é',): 4}
    for who, amount in wanted.items():
        await charge(one, Charge(counter(who=who), amount), Charge(counter(who=who, day=1), 50))
        await charge(other, Charge(counter(unit="usd", who=who), 60), Charge(counter("c", who=who), 70))
    assert await counters(other, counter()) == wanted
    assert await counters(one, counter(unit="usd")) == dict.fromkeys(wanted, 60)


async def test_two_workers_at_once_never_pass_a_limit(pair: tuple[BudgetStore, BudgetStore]) -> None:
    dice = Random(7)

    async def taken(store: BudgetStore) -> int:
        accepted = 0
        for _ in range(20):
            charges = [Charge(counter(name), 1, limit=25) for name in dice.sample(["x", "y"], 2)]
            accepted += max(await charge(store, *charges)) < 25
        return accepted

    counts = await asyncio.gather(*(taken(store) for store in pair))
    assert sum(counts) == 25
    assert await counters(pair[0], counter("x")) == {(): 25}


async def test_ended_periods_are_forgotten_on_sqlite_and_in_memory(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "b.db", SCHEMA, busy_s=10)
    store = SqlBudgetStore(file, catalog="shop")
    await charge(store, Charge(counter(), 1), Charge(counter(day=1), 1))
    assert await counters(store, counter()) == {(): 1}
    await charge(store, Charge(counter(day=2), 1))
    assert await counters(store, counter()) == {}
    memory = MemoryBudgetStore(max_counters=2)
    await charge(memory, Charge(counter(), 1), Charge(counter(day=1), 1))
    await charge(memory, Charge(counter(day=1, who=("ann",)), 1))
    assert await counters(memory, counter()) == {}
    with pytest.raises(ConnectionError, match="counts 2 budgets already"):
        await charge(memory, Charge(counter(day=1, who=("bob",)), 1))
    memory.after_fork()
    assert await counters(memory, counter(day=1)) == {(): 1, ("ann",): 1}


async def test_a_store_that_failed_is_not_asked_for_a_second(tmp_path: Path) -> None:
    class Counting(SqliteFile):
        opened = 0

        def transaction(self) -> Any:
            self.opened += 1
            return super().transaction()

    clock, file = Clock(), Counting(tmp_path / "b.db", SCHEMA, busy_s=1)
    store = SqlBudgetStore(file, catalog="shop", clock=clock)
    assert await charge(store, Charge(counter(), 1)) == [0]
    (tmp_path / "b.db").write_bytes(b"this is not a database, but it is long enough to look like one" * 20)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await charge(store, Charge(counter(), 1))
    assert (file.opened, store.is_up) == (2, False)
    (tmp_path / "b.db").unlink()
    clock.now += BUDGET_PAUSE_S
    assert await charge(store, Charge(counter(), 1)) == [0]
    assert store.is_up
