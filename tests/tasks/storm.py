"""Workers for tests that kill them, or their database, under many tasks; each appends what it knows to one ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pegboard.tasks.dbos_engine as dbos_engine
import pegboard.tasks.worker_lease as worker_lease
from pegboard import CallContext, CallError, Catalog, Tasks, ToolContext, ToolResult
from pegboard.tasks.tasks import OPERATOR
from tests.tasks.power_cuts import store_of

STEPS = ("fetch", "check", "load")
KINDS = ("load_orders", "ask_first", "pay", "refuse", "load_orders_again")
IN_FLIGHT = 6  # tasks that one worker has begun and not seen the end of


def caller() -> ToolContext:
    """Return a new request of the caller, who agrees to everything."""
    return ToolContext(user_id="ann", space_id="s1", budget=None, approve=lambda _: True)


class Ledger:
    """A file of lines, each written at once, so that a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


def catalog_on(store: str, ledger: Ledger) -> Catalog:
    """Return a catalog with tools that take steps, ask, need a consent, and raise an error.

    Each run of a step returns another value; what later code sees of it must always be the recorded one.
    """
    consents = Path(store.removeprefix("sqlite:")).parent if store.startswith("sqlite:") else store
    catalog = Catalog("storm", tasks=Tasks(store), consent_store=store_of(consents))

    async def step(ctx: CallContext, name: str) -> str:
        await asyncio.sleep(random.uniform(0.0, 0.1))
        return f"{name}:{ctx.step_key}:{os.urandom(4).hex()}"

    async def steps(ctx: CallContext) -> str:
        values = list[str]()
        for name in STEPS:
            values.append(await ctx.step(name, step, ctx, name))
            ledger.write("saw", values[-1])
        return " ".join(values)

    @catalog.tool(task="required")
    async def load_orders(ctx: CallContext, number: int) -> str:
        """Load orders in three steps."""
        return await steps(ctx)

    @catalog.tool(task="required")
    async def ask_first(ctx: CallContext, number: int) -> str:
        """Ask, then do it."""
        if not await ctx.ask("Load them?", schema={"type": "boolean"}):
            return "no"
        return await steps(ctx)

    @catalog.tool(task="required", consent="always")
    async def pay(ctx: CallContext, number: int) -> str:
        """Pay in three steps."""
        return await steps(ctx)

    @catalog.tool(task="required")
    async def refuse(ctx: CallContext, number: int) -> str:
        """Raise an error after three steps."""
        await steps(ctx)
        raise CallError("tool_error", "No such order.")

    return catalog


async def called(catalog: Catalog, name: str, ledger: Ledger) -> ToolResult:
    """Call until the store takes the task; its refusals are counted."""
    while True:
        # Never the same twice: a call that failed alike again and again would be refused.
        result = await catalog.view(caller()).call(name, {"number": random.getrandbits(50)})
        if result.task_id is not None:
            return result
        assert result.error is not None
        ledger.write("refused", name, result.error.kind)
        await asyncio.sleep(0.05)


async def again(act: Callable[[], Awaitable[Any]]) -> Any:
    """Do so until the store answers."""
    while True:
        try:
            return await act()
        except CallError as error:
            if error.error.kind != "storage_unavailable":
                raise
            await asyncio.sleep(0.05)


async def begin_one(catalog: Catalog, name: str, ledger: Ledger) -> None:
    """Begin a task, and see it to its end: answered where it asks, and one of each five cancelled."""
    is_cancelled = name == "load_orders_again"
    result = await called(catalog, "load_orders" if is_cancelled else name, ledger)
    task_id = result.task_id
    assert task_id is not None
    ledger.write("begun", task_id, name, os.getpid())
    if is_cancelled:
        await asyncio.sleep(random.uniform(0.0, 0.3))
        await again(lambda: catalog.tasks.cancel(task_id, caller()))
        ledger.write("cancelled", task_id)
    await see_end(catalog, task_id, ledger)


async def see_end(catalog: Catalog, task_id: str, ledger: Ledger) -> None:
    """Answer what a task asks, wait for its end, and write down how it ended."""
    while True:
        try:
            record = await catalog.tasks.ended(task_id, OPERATOR, timeout_s=0.5)
        except CallError as error:
            if error.error.kind not in ("timeout", "storage_unavailable"):
                raise
            with contextlib.suppress(CallError):
                asking = await catalog.tasks.get(task_id, OPERATOR)
                answers = {key: {"action": "accept", "content": {"answer": True}} for key in asking.questions}
                await catalog.tasks.answer(task_id, OPERATOR, answers)
            continue
        error = record.error or (record.result and record.result.error)
        text = "" if record.result is None else record.result.text
        ledger.write("ended", task_id, record.state, error.kind if error else "-", text)
        return


async def main(store: str, ledger_path: Path, *, is_last: bool) -> None:
    """Begin tasks and run those of all workers until killed; the last worker ends what is left, and itself."""
    ledger = Ledger(ledger_path)
    logging.basicConfig(
        filename=f"{ledger_path}-log", level=logging.WARNING, format="%(asctime)s %(process)d %(message)s"
    )
    catalog = catalog_on(store, ledger)
    if is_last:
        await again(lambda: opened(catalog))
        begun = {line.split()[1] for line in ledger_path.read_text().splitlines() if line.startswith("begun ")}
        listed = {record.task_id for record in await again(lambda: catalog.tasks.list(OPERATOR))}
        for task_id in begun | listed:
            await see_end(catalog, task_id, ledger)
        ledger.write("over")
        await catalog.close()
        return
    catalog.tasks.wake_soon()

    async def begin_many() -> None:
        while True:
            await begin_one(catalog, random.choice(KINDS), ledger)

    await asyncio.gather(*(begin_many() for _ in range(IN_FLIGHT)))


async def opened(catalog: Catalog) -> None:
    """Open the store, as a call would."""
    await catalog.tasks.list(OPERATOR)


def work(store: str, ledger_path: Path, lease_s: float, *, is_last: bool = False) -> None:
    """Be a worker, in a process of its own."""
    dbos_engine.TASK_LIST = 100_000  # type: ignore[misc] - so that the last worker sees all
    dbos_engine.TASK_LEASE_S = worker_lease.TASK_LEASE_S = lease_s  # type: ignore[misc] - for this process alone
    random.seed(os.urandom(8))
    asyncio.run(main(store, ledger_path, is_last=is_last))
