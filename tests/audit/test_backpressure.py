"""Calls that come faster than the audit can store them: they wait, in turn and for a bounded time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from pegboard import Catalog, ToolContext, http_app
from pegboard.audit import audit_writer, call_backpressure
from pegboard.audit.audit import Audit
from pegboard.audit.audit_row import AuditRow, read_row
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.call_backpressure import CallBackpressure
from pegboard.audit.verify_chain import verify
from pegboard.config import load_catalog
from pegboard.storage.store_error import StoreError
from tests.server.doors import inside
from tests.timing import PATIENCE_S


class SlowStore:
    """A store that adds a batch only when it is allowed to."""

    def __init__(self, store: AuditStore) -> None:
        self._store, self._may_add = store, threading.Event()
        self.is_broken = False

    def append(self, *args: Any, **options: Any) -> None:
        if self.is_broken:
            raise StoreError("the disk is full")
        assert self._may_add.wait(PATIENCE_S)
        self._store.append(*args, **options)

    def open(self) -> None:
        self._may_add.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Catalog, Audit, SlowStore]:
    """Return a catalog with a small audit whose store is slow."""
    monkeypatch.setattr(audit_writer, "AUDIT_BATCH_ROWS", 2)
    monkeypatch.setattr(audit_writer, "AUDIT_CROWDED", 8)
    monkeypatch.setattr(audit_writer, "AUDIT_QUEUE", 16)
    tmp_path.chmod(0o700)
    path = tmp_path / "pegboard.yaml"
    path.write_text('{"groups": {"core": ""}, "audit": {"store": "sqlite:./audit.db"}}')
    catalog, _ = load_catalog(path)
    audit = catalog.executor.ports.audit
    assert isinstance(audit, Audit)
    store = SlowStore(audit.writer.store)
    audit.writer.store = cast("AuditStore", store)

    @catalog.tool
    async def look() -> str:
        """Look."""
        return "done"

    return catalog, audit, store


async def calls_of(catalog: Catalog, user: str, count: int) -> None:
    view = catalog.view(ToolContext(user_id=user, budget=None))
    for _ in range(count):
        assert (await view.call("look")).error is None


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0)


def rows_in(audit: Audit) -> list[AuditRow]:
    (checked,) = verify(audit.writer.store, audit.writer.signer)
    assert checked.faults == []
    return [read_row(stored.raw) for stored in audit.writer.store.rows("")]


async def test_calls_wait_while_the_store_is_slow_and_each_has_one_row(
    audited: tuple[Catalog, Audit, SlowStore], caplog: pytest.LogCaptureFixture
) -> None:
    catalog, audit, store = audited
    flood = asyncio.create_task(calls_of(catalog, "ann", 60))
    await until(lambda: audit.writer.backpressure.waiting)
    assert not flood.done()
    assert audit.is_up
    store.open()
    await flood
    await catalog.close()
    rows = [row for row in rows_in(audit) if row.event != "begin"]
    assert [(row.event, row.outcome) for row in rows] == [("call", "ok")] * 60
    assert any("audit_wait" in row.stage_s for row in rows)
    assert caplog.text.count("Calls wait for the audit") == 1


async def test_the_metrics_count_the_calls_that_wait(audited: tuple[Catalog, Audit, SlowStore]) -> None:
    catalog, audit, store = audited
    async with inside(http_app(catalog)) as client:
        assert "\npegboard_audit_waiting_calls 0.0" in (await client.get("/metrics")).text
        floods = [asyncio.create_task(calls_of(catalog, user, 30)) for user in ("ann", "bob")]
        await until(lambda: audit.writer.backpressure.waiting == 2)
        assert "\npegboard_audit_waiting_calls 2.0" in (await client.get("/metrics")).text
        floods[0].cancel()
        await until(floods[0].done)
        assert "\npegboard_audit_waiting_calls 1.0" in (await client.get("/metrics")).text
        store.open()
        await floods[1]
        assert "\npegboard_audit_waiting_calls 0.0" in (await client.get("/metrics")).text


async def test_a_call_that_is_stopped_while_it_waits_has_a_row(audited: tuple[Catalog, Audit, SlowStore]) -> None:
    catalog, audit, store = audited
    waiting = asyncio.create_task(calls_of(catalog, "ann", 60))
    await until(lambda: audit.writer.backpressure.waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.open()
    await catalog.close()
    last = rows_in(audit)[-1]
    assert (last.event, last.outcome, [*last.stage_s][:1]) == ("call", "cancelled", ["audit_wait"])


async def test_a_store_that_hangs_delays_calls_once_and_the_lost_ones_are_counted(
    audited: tuple[Catalog, Audit, SlowStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, audit, store = audited
    with monkeypatch.context() as patch:
        patch.setattr(call_backpressure, "AUDIT_WAIT_S", 0.01)
        await calls_of(catalog, "ann", 30)
    assert audit.writer.backpressure.is_stopped
    assert not audit.is_up
    store.open()
    await audit.close()
    await calls_of(catalog, "ann", 60)
    await catalog.close()
    rows = rows_in(audit)
    lost = sum(cast("int", row.detail["lost"]) for row in rows if row.event == "gap")
    assert 0 < lost < 2 * 30, "the start and the end of some of the first calls"
    assert sum(row.event == "call" for row in rows) >= 60 + 30 - lost


async def test_calls_do_not_wait_for_a_store_that_fails(audited: tuple[Catalog, Audit, SlowStore]) -> None:
    catalog, audit, store = audited
    store.is_broken = True
    await calls_of(catalog, "ann", 60)
    assert not audit.writer.backpressure.waiting
    store.is_broken = False
    store.open()
    await catalog.close()


async def test_callers_take_turns_so_that_many_calls_of_one_delay_nobody_else() -> None:
    pressure, order = CallBackpressure(), list[str]()

    async def call(user: str) -> None:
        await pressure.wait(user)
        order.append(user)

    pressure.turn_on()
    waiting = [asyncio.create_task(call(user)) for user in ("ann", "ann", "ann", "ann", "bob", "eve")]
    await asyncio.sleep(0)
    pressure.let_go(3)
    await until(lambda: len(order) >= 3)
    assert order == ["ann", "bob", "eve"]
    waiting[1].cancel()
    await until(waiting[1].done)
    pressure.let_go(1)
    await until(lambda: len(order) >= 4)
    assert pressure.is_on, "one call still waits"
    pressure.let_go(5)
    await until(lambda: len(order) >= 5)
    assert not pressure.is_on
    await call("ann")
    assert order == ["ann", "bob", "eve", "ann", "ann", "ann"]


async def test_no_more_calls_wait_than_there_are_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_backpressure, "AUDIT_WAITING_CALLS", 1)
    pressure = CallBackpressure()
    pressure.turn_on()
    first = asyncio.create_task(pressure.wait("ann"))
    await asyncio.sleep(0)
    await pressure.wait("bob")
    assert not first.done()
    pressure.stop()
    await first
    assert not pressure.turn_on(), "until a batch is stored"
    pressure.let_go(0)
    assert pressure.turn_on()


def test_calls_of_a_loop_that_was_closed_hold_nobody_up() -> None:
    pressure = CallBackpressure()
    pressure.turn_on()
    loop = asyncio.new_event_loop()
    step = pressure.wait("ann").__await__()

    async def begin() -> None:
        next(step)

    loop.run_until_complete(begin())
    loop.close()
    pressure.let_go(1)
    assert not pressure.waiting
