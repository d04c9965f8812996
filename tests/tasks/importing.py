"""A five-step import for the tests of tasks: each step writes a line to a ledger outside, and says so beforehand."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from pathlib import Path

from dbos._registrations import get_func_info

import pegboard.tasks.dbos_engine as dbos_engine
import pegboard.tasks.worker_lease as worker_lease
from pegboard import CallContext, Catalog, Tasks, ToolContext

STEPS = ("fetch", "parse", "check", "load", "report")
CRASHING = "crashing"  # ends its process in its first step, each time
HELD = "load"  # the step that waits while there is a file of `hold_of`


def hold_of(ledger: Path) -> Path:
    """Return the file that holds tasks up in the step `HELD`."""
    return ledger.with_name("hold")


def owner() -> ToolContext:
    """Return a request of whoever imports."""
    return ToolContext(user_id="ann")


def catalog_with(store: str, ledger: Path, *, step_s: float) -> Catalog:
    """Return a catalog with the import, whose steps take some time each."""
    catalog = Catalog("importing", tasks=Tasks(store))

    @catalog.tool(task="required")
    async def import_orders(ctx: CallContext, name: str) -> str:
        """Import orders in five steps."""
        results = [await ctx.step(step, one, ctx, name, step) for step in STEPS]
        return " ".join(results)

    async def one(ctx: CallContext, name: str, step: str) -> str:
        # One line each, in one write: what was killed in between has written whole lines or none.
        write(ledger, f"begin {name} {step} {ctx.step_key} {os.getpid()}")
        if name == CRASHING:
            os._exit(1)
        await asyncio.sleep(step_s)
        while step == HELD and hold_of(ledger).exists():
            await asyncio.sleep(0.01)  # another process removes it, and says nothing
        write(ledger, f"end {name} {step} {ctx.step_key} {os.getpid()}")
        return f"{step}:{ctx.step_key[:6]}:{os.getpid()}"

    return catalog


def write(ledger: Path, line: str) -> None:
    """Append a line."""
    with ledger.open("a") as file:
        file.write(f"{line}\n")


async def main(store: str, ledger: Path, step_s: float, begin: list[str]) -> None:
    """Work until killed; begin the imports that are named."""
    catalog = catalog_with(store, ledger, step_s=step_s)
    catalog.tasks.wake_soon()
    for name in begin:
        # A request of its own for each, as one may make so many calls and no more.
        while not (result := await catalog.view(owner()).call("import_orders", {"name": name})).task_id:
            # A file that many write at once may be busy for longer than anybody waits.
            assert result.error is not None
            assert result.error.kind == "storage_unavailable"
        write(ledger, f"began {name} {result.task_id}")
    write(ledger, f"ready {os.getpid()}")
    await asyncio.Event().wait()


def work(store: str, ledger: Path, step_s: float, lease_s: float, most_runs: int | None, begin: list[str]) -> None:
    """Be a worker, in a process of its own."""
    if most_runs is not None:
        info = get_func_info(dbos_engine._task)
        assert info is not None
        info.max_recovery_attempts = most_runs
    dbos_engine.TASK_LEASE_S = worker_lease.TASK_LEASE_S = lease_s  # type: ignore[misc] - for this process alone
    asyncio.run(main(store, ledger, step_s, begin))


def example(script: Path, folder: Path, said: Path) -> None:
    """Run a script in a process of its own, with what it says in a file."""
    sys.argv = [str(script), str(folder)]
    with said.open("w") as sys.stdout:
        runpy.run_path(str(script), run_name="__main__")
