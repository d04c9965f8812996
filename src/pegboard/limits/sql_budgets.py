"""SQL budgets: counts calls and costs of budgets in a table shared by several processes, on SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import orjson

from pegboard.model.budget import Charge, Counter
from pegboard.storage.database import Database
from pegboard.storage.store_schema import Schema, StoreConnection, table_version

BUDGET_BUSY_S = 2.0  # seconds to wait for another process that has locked the store
BUDGET_KEPT_S = 3600  # how long a counter is kept after its period, in seconds, since clocks differ
BUDGET_PAUSE_S = 1.0  # how long a store that failed is not asked again, in seconds

T = TypeVar("T")

SCHEMA = Schema(
    name="budgets",
    sqlite=(
        """
create table budget_counters (
    catalog text not null, budget text not null, unit text not null, who text not null, begins_s bigint not null,
    ends_s bigint not null, amount bigint not null,
    primary key (catalog, budget, unit, begins_s, ends_s, who)
);
""",
    ),
    tables=("budget_counters",),
    unrecorded=table_version("budget_counters"),
)
_IS_COUNTER = "catalog = :catalog and budget = :budget and unit = :unit and begins_s = :begins_s and ends_s = :ends_s"
_READ = f"select amount from budget_counters where {_IS_COUNTER} and who = :who"  # noqa: S608 - names of ours
_LIST = f"select who, amount from budget_counters where {_IS_COUNTER}"  # noqa: S608 - names of ours
# Adding nothing locks the row on PostgreSQL, so that nobody adds to it between the check and the charge.
_ADD = (
    "insert into budget_counters values (:catalog, :budget, :unit, :who, :begins_s, :ends_s, :amount) "
    "on conflict (catalog, budget, unit, begins_s, ends_s, who) "
    "do update set amount = budget_counters.amount + excluded.amount returning amount"
)
_FORGET = "delete from budget_counters where catalog = :catalog and ends_s < :before"


class SqlBudgetStore:
    """Counts in a database; implements `pegboard.core.ports.BudgetStore`.

    Each operation is one transaction, in a thread. After a failure the store is not asked for a second, so that calls
    do not wait for it one by one.

    Args:
        database: the database with the tables of `SCHEMA`.
        catalog: the name of the catalog; several may share a database.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, database: Database, *, catalog: str, clock: Callable[[], float] = time.monotonic) -> None:
        database.check_place()
        self._database, self._catalog, self._clock = database, catalog, clock
        self._fault: tuple[float, OSError] | None = None

    @property
    def is_up(self) -> bool:
        """Whether the store answered when it was last asked; true before the first call."""
        return self._fault is None

    async def charge(self, charges: Sequence[Charge]) -> Sequence[int]:
        """Return the amounts before, and add what fits; see `ports.BudgetStore`."""
        return await self._do(lambda run: self._charge(run, charges))

    async def counters(self, periods: Sequence[Counter]) -> Sequence[Charge]:
        """Return the amounts of these periods; see `ports.BudgetStore`."""

        def work(run: StoreConnection) -> Sequence[Charge]:
            return [
                Charge(period._replace(who=tuple(orjson.loads(who))), amount)
                for period in periods
                for who, amount in run(_LIST, **self._row(period))
            ]

        return await self._do(work)

    async def close(self) -> None:
        """Close the connections; the next request opens others."""
        await asyncio.to_thread(self._database.close)

    async def _do(self, work: Callable[[StoreConnection], T]) -> T:
        if self._fault is not None and self._clock() < self._fault[0] + BUDGET_PAUSE_S:
            raise ConnectionError(str(self._fault[1]))

        def run() -> T:
            with self._database.transaction() as connection:
                return work(connection)

        try:
            answer = await asyncio.to_thread(run)
        except OSError as error:
            self._fault = (self._clock(), error)
            raise
        self._fault = None
        return answer

    def _charge(self, run: StoreConnection, charges: Sequence[Charge]) -> Sequence[int]:
        if not any(charge.amount for charge in charges):
            rows = [run(_READ, **self._row(charge.counter)) for charge in charges]
            return [row[0][0] if row else 0 for row in rows]
        # In the order of the rows' keys, so that two transactions never wait for each other.
        order = sorted(range(len(charges)), key=lambda place: orjson.dumps(tuple(charges[place].counter)))
        used = dict.fromkeys(order, 0)
        for place in order:
            charge = charges[place]
            amount = charge.amount if charge.limit is None else 0
            used[place] = run(_ADD, **self._row(charge.counter), amount=amount)[0][0] - amount
        limited = [place for place in order if charges[place].limit is not None]
        if all(used[place] < (charges[place].limit or 0) for place in limited):
            for place in limited:
                if charges[place].amount:
                    run(_ADD, **self._row(charges[place].counter), amount=charges[place].amount)
        began = max(charge.counter.begins_s for charge in charges)
        run(_FORGET, catalog=self._catalog, before=began - BUDGET_KEPT_S)
        return [used[place] for place in range(len(charges))]

    def _row(self, counter: Counter) -> dict[str, str | int]:
        return {**counter._asdict(), "catalog": self._catalog, "who": orjson.dumps(counter.who).decode()}
