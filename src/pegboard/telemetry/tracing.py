"""Tracing: trace the calls of a catalog with OpenTelemetry where the process has set it up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pegboard.egress.client_spans import use_tracer
from pegboard.lazy import LazyModule
from pegboard.telemetry.otel_providers import FLUSH_MS, tracer_provider_in_use
from pegboard.version import __version__

if TYPE_CHECKING:
    from pegboard.core.call.record import ExecutorState
    from pegboard.telemetry import call_spans
else:
    call_spans = LazyModule("pegboard.telemetry.call_spans")


def trace_calls(executor: ExecutorState, provider: Any = None) -> Callable[[], None]:
    """Trace the calls from now on, if there is a tracer provider; return a function that stops this.

    `provider` is an OpenTelemetry `TracerProvider`; by default the global one. Without one nothing is traced, and
    nothing of OpenTelemetry is imported.
    """
    provider = provider or tracer_provider_in_use()
    if provider is None or any(isinstance(known, call_spans.CallSpans) for known in executor.ports.call_observers):
        return _nothing
    tracer = provider.get_tracer("pegboard", __version__)
    spans, end_use = call_spans.CallSpans(tracer), use_tracer(tracer)
    end_observing = executor.record(spans)

    def end() -> None:
        end_observing()
        spans.end_all()
        end_use()
        if (flush := getattr(provider, "force_flush", None)) is not None:
            flush(FLUSH_MS)

    return end


def _nothing() -> None:
    """Do nothing."""
