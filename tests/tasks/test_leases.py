"""A worker whose lease runs out while it lives: it stops before others may go on with its tasks."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from dbos._registrations import get_func_info

import pegboard.tasks.dbos_engine as dbos_engine
from pegboard import CallContext, Catalog, Tasks, ToolContext
from pegboard.model.task import Question, TaskCall
from pegboard.tasks.records import question_to_json
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann")


def set_lease(monkeypatch: pytest.MonkeyPatch, lease_s: float) -> None:
    """Set the seconds after which a worker that has not renewed its lease has lost it."""
    monkeypatch.setattr("pegboard.tasks.worker_lease.TASK_LEASE_S", lease_s)


def set_settling(monkeypatch: pytest.MonkeyPatch, settles_s: float) -> None:
    """Set the seconds after which a worker runs a task again whose end is not recorded."""
    monkeypatch.setattr("pegboard.tasks.dbos_engine.TASK_LEASE_S", settles_s)


def set_beat(monkeypatch: pytest.MonkeyPatch, beat_s: float) -> None:
    """Set the seconds between two heartbeats."""
    for module in ("dbos_engine", "worker_lease"):
        monkeypatch.setattr(f"pegboard.tasks.{module}.TASK_BEAT_S", beat_s)


async def test_a_worker_that_cannot_renew_its_lease_stops_its_tasks_and_goes_on_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_beat(monkeypatch, 0.05)
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
        set_lease(monkeypatch, 1.0)
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        may_end.set()
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text, runs.count("first")) == (None, "done", 1)
        assert runs.count("second") > 1
        # One that others took for dead, and that hears of it from a task that it begins, stops what it ran as well.
        set_lease(monkeypatch, 1_000.0)
        set_beat(monkeypatch, 1.0)
        for event in (began, stopped, may_end):
            event.clear()
        running = (await catalog.view(ANN).call("load")).task_id
        assert running is not None
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
            other.execute("delete from pegboard_task_workers")
        assert (await catalog.view(ANN).call("load")).task_id is not None
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        may_end.set()
        assert (await catalog.tasks.result(running, ANN, timeout_s=PATIENCE_S)).text == "done"
    finally:
        await catalog.close()


@pytest.mark.parametrize("full", ["step", "end"])
async def test_what_a_full_disk_does_not_take_is_written_when_there_is_room_and_the_tool_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    catalog = Catalog("full", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    limits, runs = resource.getrlimit(resource.RLIMIT_FSIZE), list[str]()

    def run(name: str) -> str:
        runs.append(name)
        if name == full:
            # Enough for the signs of life of this worker, and not for what is to be recorded.
            size = (tmp_path / "tasks.db-wal").stat().st_size + 500_000
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        return "x" * 900_000

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> str:
        """Load something in two steps."""
        # Loaded by now, and the place where what the disk says is judged.
        judge = sys.modules["dbos._sys_db"].retriable_postgres_exception

        def make_room(error: Exception) -> bool:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            return judge(error)

        monkeypatch.setattr("dbos._sys_db.retriable_postgres_exception", make_room)
        await ctx.step("first", run, "first")
        await ctx.step("second", run, "step")
        return run("end")

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, len(result.text), runs) == (None, 900_000, ["first", "step", "end"])
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == limits
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await catalog.close()


async def test_what_the_database_refused_is_done_again_and_is_no_failure_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_beat(monkeypatch, 0.05)
    catalog = Catalog("refused", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    runs, heard = list[str](), list[type[BaseException]]()

    def rename(table: str, name: str) -> None:
        with closing(sqlite3.connect(tmp_path / "tasks.db", timeout=PATIENCE_S)) as other:
            other.execute(f"alter table {table} rename to {name}")

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> str:
        """Load something in two steps."""

        def second() -> str:
            runs.append("second")
            # Its own end may take a busy machine longer to record.
            set_settling(monkeypatch, 1_000.0)
            if runs.count("second") == 1:
                rename("operation_outputs", "away")
            return "done"

        await ctx.step("first", lambda: runs.append("first"))
        try:
            return await ctx.step("second", second)
        except BaseException as error:
            heard.append(type(error))
            rename("away", "operation_outputs")
            set_settling(monkeypatch, 0.5)
            raise

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text, runs) == (None, "done", ["first", "second", "second"])
        assert heard == [asyncio.CancelledError]
    finally:
        await catalog.close()


async def test_a_task_that_one_process_runs_twice_ends_with_its_result(tmp_path: Path) -> None:
    catalog = Catalog("twice", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    began, began_again, first_left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    runs = list[str]()

    @catalog.tool(task="required")
    async def load() -> str:
        """Load something that another run of this tool may be loading."""
        if runs:
            runs.append("second")
            began_again.set()
            await first_left.wait()
            return "second"
        runs.append("first")
        began.set()
        try:
            await began_again.wait()
        finally:
            first_left.set()
        return "first"

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        with closing(sqlite3.connect(tmp_path / "tasks.db", timeout=PATIENCE_S)) as other:
            # As another worker does that takes this one for dead; this one is the first to look into the queue.
            other.execute(
                "update workflow_status set status = 'ENQUEUED', queue_name = '_dbos_internal_queue' "
                "where workflow_uuid = ?",
                (task_id,),
            )
            other.commit()
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text, runs) == (None, "second", ["first", "second"])
    finally:
        began_again.set()
        await catalog.close()


async def test_an_error_of_our_own_does_not_end_a_task_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    set_beat(monkeypatch, 0.05)
    set_settling(monkeypatch, 0.5)
    errors = [KeyError("of ours")]

    def context_for(_call: TaskCall) -> ToolContext:
        if errors:
            raise errors.pop()
        set_settling(monkeypatch, 1_000.0)
        return ANN

    catalog = Catalog("ours", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db", context_for=context_for))

    @catalog.tool(task="required")
    async def load() -> str:
        """Load something."""
        return "done"

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text) == (None, "done")
        [record] = [one for one in caplog.records if one.levelname == "ERROR"]
        assert task_id in record.getMessage()
        assert record.exc_info is not None
        assert record.exc_info[0] is KeyError
    finally:
        await catalog.close()


async def test_who_waits_for_a_task_hears_of_its_end_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wait that nobody ends would outlast the test.
    monkeypatch.setattr("pegboard.tasks.dbos_engine.TASK_REMOTE_LOOK_S", 1_000.0)
    monkeypatch.setattr("pegboard.tasks.tasks.TASK_LOOK_S", 1_000.0)
    catalog = Catalog("waits", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    may_end = asyncio.Event()

    @catalog.tool(task="required")
    async def load() -> str:
        """Load something."""
        await may_end.wait()
        return "done"

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        waiting = [asyncio.create_task(catalog.tasks.result(task_id, ANN)) for _ in range(3)]
        record = await catalog.tasks.get(task_id, ANN)
        may_end.set()
        async with asyncio.timeout(PATIENCE_S):
            assert [result.text for result in await asyncio.gather(*waiting)] == ["done"] * 3
        assert not record.is_over
    finally:
        may_end.set()
        await catalog.close()


async def test_restarts_of_the_server_do_not_count_as_crashes_that_a_task_caused(tmp_path: Path) -> None:
    info = get_func_info(dbos_engine._task)
    assert info is not None
    runs, may_end = list[str](), asyncio.Event()
    began = asyncio.Event()

    def opened() -> Catalog:
        catalog = Catalog("restarts", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))

        @catalog.tool(task="required")
        async def load(ctx: CallContext) -> str:
            """Load something."""
            runs.append("load")
            began.set()
            await may_end.wait()
            return "done"

        return catalog

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(info, "max_recovery_attempts", 1)
        catalog = opened()
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        for _ in range(4):
            await asyncio.wait_for(began.wait(), PATIENCE_S)
            began.clear()
            await catalog.close()
            catalog = opened()
            catalog.tasks.wake_soon()
        try:
            may_end.set()
            result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
            assert (result.error, result.text) == (None, "done")
            assert len(runs) > 4
        finally:
            await catalog.close()


@pytest.mark.parametrize("question", [None, Question(message="Load it?", form={})])
async def test_a_task_that_was_running_in_many_crashes_waits_before_it_begins_again_unless_it_only_asked(
    tmp_path: Path, question: Question | None
) -> None:
    catalog = Catalog("crashes", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
    runs, going = list[str](), asyncio.Event()

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> str:
        """Load something."""
        runs.append("load")
        await going.wait()
        return "done"

    def row(sql: str, **values: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(tmp_path / "tasks.db", timeout=PATIENCE_S, isolation_level=None)) as other:
            return other.execute(sql, values).fetchall()

    async def until(state: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while row("select status from workflow_status") != [(state,)]:
                await asyncio.sleep(0.01)

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        await until("PENDING")
        if question is not None:
            asked = json.dumps(question_to_json(question))
            row("insert into pegboard_task_questions values (:id, 'q', :asked, null)", id=task_id, asked=asked)
        # As if it had run in thirty workers that crashed, and this one were the next.
        (tmp_path / "tasks.db-workers/dead").touch()
        row("update workflow_status set executor_id = 'dead', recovery_attempts = 30")
        row("insert into pegboard_task_workers values ('dead', 1.0)")
        if question is None:
            await until("DELAYED")
            [(left_s,)] = row("select delay_until_epoch_ms / 1000.0 - strftime('%s') from workflow_status")
            assert isinstance(left_s, float)
            assert 0 < left_s < 61
            assert (await catalog.tasks.get(task_id, ANN)).state == "working"
            assert await catalog.tasks.resume(task_id, ANN)
        async with asyncio.timeout(PATIENCE_S):
            while len(runs) < 2:
                await asyncio.sleep(0.01)
        going.set()
        assert (await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)).text == "done"
        assert runs == ["load", "load"]
        assert row("select recovery_attempts from workflow_status") == [(30 if question else 31,)]
    finally:
        await catalog.close()
