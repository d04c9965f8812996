"""Metric export: show the metrics of a served catalog to OpenTelemetry where the process has set it up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from threading import Thread
from typing import TYPE_CHECKING

from pegboard.core.call.record import ExecutorState
from pegboard.core.cancellation import cancel_and_wait
from pegboard.lazy import LazyModule
from pegboard.telemetry.call_metrics import CallMetrics
from pegboard.telemetry.otel_providers import FLUSH_MS, meter_provider_in_use

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from pegboard.telemetry import otel_metrics
    from pegboard.telemetry.otel_metrics import OtelMetrics
else:
    otel_metrics = LazyModule("pegboard.telemetry.otel_metrics")

GAUGES_READ_S = 5.0  # seconds between two looks at the values of gauges

log = logging.getLogger("pegboard")


@asynccontextmanager
async def exporting_metrics(
    executor: ExecutorState,
    catalog: str,
    *,
    counts: CallMetrics | None = None,
    gauges: Callable[[], Awaitable[Iterable[Metric]]] | None = None,
) -> AsyncGenerator[None]:
    """Show metrics to OpenTelemetry within the block, and export the last ones at its end.

    Without a meter provider nothing is shown, and nothing of OpenTelemetry is imported.

    Args:
        executor: its calls are timed.
        catalog: its name.
        counts: the counters of its calls; by default they are counted here.
        gauges: reads the current values of gauges, every few seconds; by default there are none.
    """
    provider = meter_provider_in_use()
    if provider is None:
        yield
        return
    instruments = otel_metrics.instruments_of(provider, catalog)
    if instruments in executor.ports.call_observers:
        # Another app of this catalog exports its metrics already.
        yield
        return
    with ExitStack() as stack:
        if counts is None:
            counts = CallMetrics()
            stack.callback(executor.record(counts))
        stack.callback(instruments.begin(counts))
        stack.callback(executor.record(instruments))
        reading = asyncio.create_task(_read_on(instruments, gauges or _no_gauges))
        try:
            yield
        finally:
            await cancel_and_wait(reading)
            # In a thread that nobody waits for: with a collector that is down it takes longer than we wait.
            flushing = Thread(target=provider.force_flush, args=(FLUSH_MS,), daemon=True)
            flushing.start()
            await asyncio.to_thread(flushing.join, FLUSH_MS / 1e3)


async def _read_on(instruments: OtelMetrics, gauges: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
    while True:
        try:
            instruments.show(await gauges())
        except Exception:  # boundary: a fault here must not end the export of all later values
            log.exception("The metrics to export could not be read.")
        await asyncio.sleep(GAUGES_READ_S)


async def _no_gauges() -> Iterable[Metric]:
    return ()
