"""Client spans: the OpenTelemetry tracer in use, if there is one, and the spans of requests to other services."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pegboard.model import span_names
from pegboard.model.error import CallError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_HTTP_ERROR = 400  # the first status that is an error for a client


_tracers: list[Tracer] = []


def tracer_in_use() -> Tracer | None:
    """Return the tracer for agents, models and requests to services; `None` if nothing is traced."""
    return _tracers[-1] if _tracers else None


def use_tracer(tracer: Tracer) -> Callable[[], None]:
    """Trace agents, models and requests to services with this tracer, in the whole process, until the end is called."""
    _tracers.append(tracer)
    return lambda: _tracers.remove(tracer)


def current_trace() -> tuple[str, str] | None:
    """Return the ids of the current trace and span, in hexadecimal; `None` if nothing is traced."""
    if not _tracers:
        return None
    from opentelemetry.trace import get_current_span  # noqa: PLC0415 - only where a tracer is in use

    current = get_current_span().get_span_context()
    return (f"{current.trace_id:032x}", f"{current.span_id:016x}") if current.is_valid else None


@contextmanager
def request_span(method: str, url: str, headers: dict[str, str]) -> Generator[Span | None]:
    """Trace one HTTP request, and add the headers that let the service continue the trace.

    Only for services that the operator has configured: others need not know of our traces. Query strings and bodies are
    not recorded.
    """
    tracer = tracer_in_use()
    if tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - only where a tracer is in use
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - the same
        TraceContextTextMapPropagator,
    )

    parts = urlsplit(url)
    attributes = {
        span_names.HTTP_METHOD: method,
        span_names.SERVER_ADDRESS: parts.hostname or "",
        span_names.SERVER_PORT: parts.port or (443 if parts.scheme == "https" else 80),
    }
    with tracer.start_as_current_span(
        method, kind=SpanKind.CLIENT, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        # Not the global propagator, which would pass baggage on, too.
        TraceContextTextMapPropagator().inject(headers)
        try:
            yield span
        except BaseException as error:
            kind = error.error.kind if isinstance(error, CallError) else type(error).__name__
            span.set_attribute(span_names.ERROR_TYPE, kind)
            span.set_status(Status(StatusCode.ERROR))
            raise


def note_status(span: Span | None, status: int) -> None:
    """Record the status of the response on the span of a request."""
    if span is None:
        return
    span.set_attribute(span_names.HTTP_STATUS, status)
    if status >= _HTTP_ERROR:
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - only where a tracer is in use

        span.set_attribute(span_names.ERROR_TYPE, str(status))
        span.set_status(Status(StatusCode.ERROR))
