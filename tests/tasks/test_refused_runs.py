"""A task that was acknowledged does not end because something that it needs is away for a moment when it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pegboard import Bounds, CallContext, CallError, Catalog, Tasks, ToolContext
from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.core.call.repeats import REPEAT_FAILURES
from pegboard.model.record import replace
from pegboard.model.task import TaskCall
from tests.core.parts import SlowSource, slow
from tests.timing import PATIENCE_S

ANN = ToolContext(user_id="ann")


async def test_a_task_that_goes_on_after_a_restart_waits_for_the_servers_that_still_connect(tmp_path: Path) -> None:
    began = asyncio.Event()

    def restarted(source: SlowSource, *, hangs: bool) -> Catalog:
        catalog = Catalog("restarted", tasks=Tasks(f"sqlite:{tmp_path}/tasks.db"))
        catalog.add_source(source)

        @catalog.tool(task="required")
        async def load(ctx: CallContext) -> str:
            """Load something by a tool of a server."""
            began.set()
            if hangs:
                await asyncio.Event().wait()
            return (await catalog.view(ctx).call("git__read", {"path": "x"})).text

        return catalog

    source = slow("git")
    source.arrives.set()
    first = restarted(source, hangs=True)
    await first.start()
    task_id = (await first.view(ANN).call("load")).task_id
    assert task_id is not None
    await asyncio.wait_for(began.wait(), PATIENCE_S)
    await first.close(grace_s=0)
    began.clear()

    source = slow("git")
    second = restarted(source, hangs=False)
    waiting = [asyncio.create_task(event.wait()) for event in (source.is_waited_for, began)]
    try:
        await second.start(wait_s=0)
        second.tasks.wake_soon()
        await asyncio.wait(waiting, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        source.arrives.set()
        result = await second.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text) == (None, '{"path":"x"}')
    finally:
        for each in waiting:
            each.cancel()
        await second.close(grace_s=0)


class Audit:
    """An audit log that may be down."""

    is_up = True

    def started(self, call: StartedCall) -> None: ...

    def finished(self, call: FinishedCall) -> None: ...

    def note(self, event: str, detail: object, *, by: str = "") -> None: ...

    async def close(self) -> None: ...


async def test_a_task_waits_while_a_guard_before_its_tool_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pegboard.tasks.execution.TASK_LOOK_S", 0.01)
    audit, runs = Audit(), list[str]()

    def context_for(_call: TaskCall) -> ToolContext:
        # Up for the call that is acknowledged, and down when its task is to run.
        audit.is_up = bool(caplog.messages)
        return ANN

    catalog = Catalog("refused", tasks=Tasks(context_for=context_for))
    catalog.executor.swap(replace(catalog.executor.ports, audit=audit, audit_required=True))

    @catalog.tool(task="required")
    async def load(ctx: CallContext) -> str:
        """Load something."""
        runs.append("ran")
        return "done"

    try:
        task_id = (await catalog.view(ANN).call("load")).task_id
        assert task_id is not None
        result = await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S)
        assert (result.error, result.text, runs) == (None, "done", ["ran"])
        [message] = caplog.messages
        assert message.startswith(f"Task {task_id} waits until it may run: ")
    finally:
        await catalog.close()


async def test_tasks_that_fail_alike_do_not_keep_the_next_of_them_from_running() -> None:
    catalog = Catalog("alike", tasks=Tasks(), bounds=Bounds(calls_in_flight=1))
    may_run, number = asyncio.Event(), REPEAT_FAILURES + 2

    @catalog.tool(task="required")
    async def load() -> str:
        """Fail, always the same way."""
        await may_run.wait()
        raise CallError("tool_error", "No such order.")

    try:
        made = [await catalog.view(ANN).call("load") for _ in range(number)]
        may_run.set()
        ids = [result.task_id for result in made if result.task_id is not None]
        results = [await catalog.tasks.result(task_id, ANN, timeout_s=PATIENCE_S) for task_id in ids]
        assert [result.text for result in results] == ["No such order."] * number
        # A new call is refused.
        refused = (await catalog.view(ANN).call("load")).error
        assert refused is not None
        assert refused.kind == "rate_limited"
    finally:
        may_run.set()
        await catalog.close()
