"""Audit: what a record of each call costs the call, and what a row costs the thread that writes it.

The call has three arguments, and runs on a view without limits or hooks. Its path is timed in its own thread, while
nothing writes; the metrics that every server has are on in both ways, since they need the same record of the call. A
row is everything from a queued record to the file: 1,000 rows in a batch, with the processor time of the system.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from bench.measure import THOROUGH, Cost, Effort, Row, Spread, compared, interleaved
from pegboard import Catalog, ToolContext, View
from pegboard.audit.audit import Audit
from pegboard.audit.audit_store import AuditStore
from pegboard.audit.audit_writer import AuditWriter
from pegboard.audit.call_rows import CallRows
from pegboard.audit.hash_chain import HeadSigner
from pegboard.audit.jsonl_audit import JsonlAudit
from pegboard.audit.limits import AUDIT_BATCH_ROWS
from pegboard.audit.sql_audit import SCHEMA, SqlAudit
from pegboard.core.call.finished_call import CallObserver
from pegboard.storage.database import database_of
from pegboard.storage.store_uri import StoreUri
from pegboard.telemetry.call_metrics import CallMetrics

SIGNER = HeadSigner(None)
ARGUMENTS = {"a": 1, "b": 2, "text": "hey"}


def observed(*observers: CallObserver) -> View:
    """Return a view whose calls the observers see."""
    catalog = Catalog()

    @catalog.tool
    async def add(a: int, b: int, text: str = "x") -> int:
        """Add two numbers."""
        return a + b

    for observer in observers:
        catalog.executor.record(observer)
    return catalog.view(ToolContext(user_id="ann", space_id="s1", session_id="s1", budget=None))


def queue_only(store: AuditStore) -> AuditWriter:
    """Return a writer whose thread never starts."""
    writer = AuditWriter(store, CallRows(has_bodies=False), SIGNER, keep_s=1e9)
    writer.is_idle = False
    return writer


async def records_of_calls(count: int, store: AuditStore) -> Sequence[object]:
    writer = queue_only(store)
    view = observed(Audit(writer))
    for _ in range(count):
        await view.call("add", ARGUMENTS)
    return [*writer.queue]


def run(effort: Effort = THOROUGH) -> list[Row]:
    """Measure a call with and without the audit, and a row on both kinds of files."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        stores: dict[str, AuditStore] = {
            "JSONL": JsonlAudit(Path(folder, "audit.jsonl")),
            "SQLite": SqlAudit(database_of(StoreUri.parse("sqlite:audit.db", folder=Path(folder)), SCHEMA, busy_s=5.0)),
        }
        writer = queue_only(stores["JSONL"])
        plain, audited, times = observed(CallMetrics()), observed(CallMetrics(), Audit(writer)), effort.times(3_000)

        async def calls(view: View) -> float:
            gc.collect()
            gc.disable()
            began = time.thread_time()
            for _ in range(times):
                await view.call("add", ARGUMENTS)
            took_s = time.thread_time() - began
            gc.enable()
            writer.queue.clear()
            return took_s / times

        floor = "a call without the audit"
        ways: dict[str, Cost] = {floor: lambda: runner.run(calls(plain)), "with": lambda: runner.run(calls(audited))}
        seconds = interleaved(ways, effort)
        more = [with_ - without for with_, without in zip(seconds["with"], seconds[floor], strict=True)]
        path = Row(
            what="on the path of a call", against=floor, seconds=Spread.of(more),
            ratio=Spread.of([each / without for each, without in zip(more, seconds[floor], strict=True)]),
            hold=4e-6, reach=1e-6, is_time_held=True,
        )  # fmt: skip
        records = runner.run(records_of_calls(AUDIT_BATCH_ROWS, stores["JSONL"]))
        maker = CallRows(has_bodies=False)

        batches = count()

        def row(store: AuditStore) -> float:
            began = time.process_time()
            rows = maker.rows_of(records, is_last=False)
            took_s = time.process_time() - began
            # Later than those of the batch before: otherwise SQLite would insert in the middle of its index.
            later_s = float(next(batches))
            rows = [each._replace(at=each.at + later_s) for each in rows]
            began = time.process_time()
            store.append(rows, SIGNER, closes=False, now=1.0)
            return (took_s + time.process_time() - began) / AUDIT_BATCH_ROWS

        of_rows: dict[str, Cost] = {f"a row, {name}": partial(row, store) for name, store in stores.items()}
        rows = compared(
            {"making rows": lambda: _made(maker, records), **of_rows},
            effort,
            floor="making rows",
            held={"a row, JSONL": (13e-6, 10e-6), "a row, SQLite": (18e-6, 10e-6)},
            is_time_held=True,
        )
        for store in stores.values():
            store.close()
    return [path, *rows]


def _made(maker: CallRows, records: Sequence[object]) -> float:
    began = time.process_time()
    maker.rows_of(records, is_last=False)
    return (time.process_time() - began) / AUDIT_BATCH_ROWS
