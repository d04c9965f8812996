"""Tracing: trace the calls of a catalog with OpenTelemetry where the process has set it up."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pegboard.egress.client_spans import use_tracer
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.version import __version__

if TYPE_CHECKING:
    from pegboard.core.call.record import ExecutorState
    from pegboard.telemetry import call_spans
else:
    call_spans = LazyModule("pegboard.telemetry.call_spans")

FLUSH_MS = 2_000  # milliseconds that the end of a process waits for spans that were not exported yet
# Source: the specification of OpenTelemetry, OTLP exporter configuration.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

log = logging.getLogger("pegboard")


def trace_calls(executor: ExecutorState, provider: Any = None) -> Callable[[], None]:
    """Trace the calls from now on, if there is a tracer provider; return a function that stops this.

    `provider` is an OpenTelemetry `TracerProvider`; by default the global one. Without one nothing is traced, and
    nothing of OpenTelemetry is imported.
    """
    provider = provider or _global_provider()
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


def set_up_exporter(env: Mapping[str, str]) -> None:
    """Export spans over OTLP/HTTP if the environment names an endpoint.

    For processes of ours alone: in a host's process the host sets OpenTelemetry up. A provider that is already set,
    such as by `opentelemetry-instrument`, stays.
    """
    if env.get("OTEL_TRACES_EXPORTER") == "none" or not any(env.get(name) for name in _ENDPOINTS):
        return
    if _global_provider() is not None:
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - only where spans are exported
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - the same
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - the same
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - the same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - the same
    except ImportError as error:
        log.warning("Spans are not exported, although the environment names an endpoint: %s.",
                    needs_package(error.name, "otel"))  # fmt: skip
        return
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    named = "OTEL_SERVICE_NAME" in env or "service.name=" in env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    provider = TracerProvider(resource=Resource.create({} if named else {"service.name": "pegboard"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def _global_provider() -> Any:
    """Return the tracer provider of the process; `None` if nobody has set one."""
    if "opentelemetry.trace" not in sys.modules:
        # Code that sets one imports this module.
        return None
    from opentelemetry import trace  # noqa: PLC0415 - imported already

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else provider


def _nothing() -> None:
    """Do nothing."""
