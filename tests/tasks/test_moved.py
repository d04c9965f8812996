"""A task that another worker goes on with: its run here is `moved`, and only its user's word is `cancelled`."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from pegboard import CallContext, Catalog, Tasks, ToolContext
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.model.record import replace
from tests import forking
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann")


class Ends:
    """The kinds with which calls ended, by tool."""

    times_stages = False

    def __init__(self) -> None:
        self.kinds: list[tuple[str, str]] = []

    def started(self, call: StartedCall) -> None:
        pass

    def finished(self, call: FinishedCall) -> None:
        self.kinds.append((call.tool, call.kind))


def worker(folder: Path) -> tuple[Catalog, Ends, asyncio.Event, asyncio.Event]:
    """Return a catalog with a task of two steps, the second of which waits for the last event."""
    catalog, ends = Catalog("moving", tasks=Tasks(f"sqlite:{folder}/tasks.db")), Ends()
    began, may_end = asyncio.Event(), asyncio.Event()

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> object:
        """Load something in two steps."""

        async def second() -> str:
            began.set()
            await may_end.wait()
            return "done"

        await ctx.step("fetch", lambda: 1)
        return await ctx.step("store", second)

    catalog.executor.record(ends)
    return catalog, ends, began, may_end


async def _answer(folder: Path, *words: str) -> Any:
    """Ask in a process of its own: in this one, the log of the engine would keep the output of this test."""
    ran = await asyncio.to_thread(forking.run, ["pegboard", "tasks", *words, "--json"], cwd=folder)
    assert ran.returncode == 0, ran.stderr
    return orjson.loads(ran.stdout)


async def test_a_run_that_ends_with_its_worker_is_moved_and_one_that_its_user_ends_is_cancelled(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    first, ends, began, _ = worker(tmp_path)
    task_id = (await first.view(ANN).call("load")).task_id
    assert task_id is not None
    await asyncio.wait_for(began.wait(), PATIENCE_S)
    await first.close(grace_s=0)
    # The call that began the task ended with its handle.
    assert ends.kinds == [("load", "ok"), ("load", "moved")]

    (tmp_path / "pegboard.yaml").write_text('tasks: {store: "sqlite:tasks.db"}\n')
    [row] = (await _answer(tmp_path, "ls"))["tasks"]
    assert (row["last_step"], row["state"], row["id"]) == ("fetch", "working", task_id)
    assert (await _answer(tmp_path, "show", task_id))["last_step"] == "fetch"

    second, ends, began, may_end = worker(tmp_path)
    try:
        await second.tasks.wake()
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        may_end.set()
        assert (await second.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)).text == "done"
        assert ends.kinds == [("load", "ok")]
        began.clear()
        may_end.clear()
        other = (await second.view(ANN).call("load")).task_id
        assert other is not None
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        await second.tasks.cancel(other, ANN)
        await second.tasks.ended(other, ANN, timeout_s=PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while len(ends.kinds) < 3:
                await asyncio.sleep(0.01)
        assert ends.kinds[1:] == [("load", "ok"), ("load", "cancelled")]
    finally:
        await second.close(grace_s=0)


async def test_the_end_of_a_process_is_the_end_of_its_tasks_in_memory_which_do_not_move() -> None:
    catalog, ends = Catalog("memory", tasks=Tasks()), Ends()
    began = asyncio.Event()
    catalog.executor.record(ends)

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> None:
        """Load something for ever."""
        await ctx.step("fetch", lambda: 1)
        began.set()
        await asyncio.Event().wait()

    task_id = (await catalog.view(ANN).call("load")).task_id
    assert task_id is not None
    await asyncio.wait_for(began.wait(), PATIENCE_S)
    records = await catalog.tasks.list(ANN)
    assert await catalog.tasks.last_steps(records) == {task_id: "fetch"}
    await catalog.close(grace_s=0)
    assert ends.kinds[0] == ("load", "ok")
    assert ends.kinds[1][1] in ("cancelled", "shutting_down")


def stored(path: Path) -> list[tuple[float, float, str]]:
    """Return the last sign of each task in a store, with its progress."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("select noted_at, fraction, message from pegboard_tasks").fetchall()


async def test_progress_and_ended_steps_are_signs_of_a_durable_task(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    catalog, now = Catalog("moving", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db")), 1_900_000_000.0
    executor = catalog.executor
    executor.swap(replace(executor.ports, wall_clock=lambda: now))
    began, may_go_on, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> None:
        """Load something for long."""
        await ctx.progress(0.25, "a quarter")
        began.set()
        await may_go_on.wait()
        await ctx.step("fetch", lambda: 1)
        began.set()
        await may_end.wait()

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        assert [(one.updated_at, one.fraction) for one in await catalog.tasks.list(ANN)] == [(now, 0.25)]
        began.clear()
        now += 900.0
        may_go_on.set()
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        [record] = await catalog.tasks.list(ANN)
        assert (record.task_id, record.state, record.updated_at) == (task_id, "working", now)
        assert (record.fraction, record.message) == (0.25, "a quarter")
        # Other processes read it once it is written with the next heartbeat.
        async with asyncio.timeout(PATIENCE_S):
            while stored(tmp_path / "tasks.db") != [(now, 0.25, "a quarter")]:
                await asyncio.sleep(0.05)
    finally:
        may_end.set()
        await catalog.close(grace_s=0)
