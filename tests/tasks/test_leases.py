"""A worker whose lease runs out while it lives: it stops before others may go on with its tasks."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pegboard import CallContext, Catalog, Tasks, ToolContext
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann")


async def test_a_worker_that_cannot_renew_its_lease_stops_its_tasks_and_goes_on_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pegboard.tasks.dbos_engine.TASK_LEASE_S", 1.0)
    monkeypatch.setattr("pegboard.tasks.dbos_engine.TASK_BEAT_S", 0.05)
    catalog = Catalog("leases", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    runs, began, stopped, may_end = list[str](), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> object:
        """Load something in two steps."""

        async def second() -> str:
            runs.append("second")
            began.set()
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                stopped.set()
                raise
            return "done"

        await ctx.step("first", lambda: runs.append("first"))
        return await ctx.step("second", second)

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        may_end.set()
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text, runs.count("first")) == (None, "done", 1)
        assert runs.count("second") > 1
    finally:
        await catalog.close()
