"""Call spans: one OpenTelemetry span for each call, with its slow stages below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.model import span_names
from pegboard.telemetry.served_request import HTTP_CARRIER, MCP_CALL, McpCall

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SPAN_NAME_CHARS = 128  # characters of a requested name in the name of a span
SLOW_STAGE_S = 0.001  # a stage of a call that takes at least so many seconds has its own span
_NS = 1_000_000_000
_W3C = TraceContextTextMapPropagator()


class _Open(NamedTuple):
    """The span of a running call, the context to return to, and the MCP request that the call answers."""

    span: Span
    outer: Context
    mcp: McpCall | None


class CallSpans:
    """Makes a span for each call; it is the current span while the call runs, so that what the tool does is below it.

    The parent of a call is the trace context in the `_meta` of its MCP request (SEP-414), or else the current span, or
    else the trace context of the HTTP request. The context of an HTTP request that carries MCP is a link, since one
    HTTP request may come from another part of the client. Spans have no arguments, results or error texts.

    A `CallObserver`, from `Executor.record` on.
    """

    times_stages = True

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._open: dict[str, _Open] = {}

    def started(self, call: StartedCall) -> None:
        """Start the span of a call."""
        outer = contexts.get_current()
        is_first = call.parent_call_id is None
        mcp, http = (MCP_CALL.get(), _remote(HTTP_CARRIER.get())) if is_first else (None, None)
        parent = outer if mcp is None else _remote(mcp.carrier) or outer
        if mcp is None and http is not None and not _is_within(outer):
            parent = http
        links = [] if mcp is None or http is None else [Link(get_current_span(http).get_span_context())]
        span = self._tracer.start_span(
            _span_name(call.name, mcp),
            context=parent,
            kind=SpanKind.INTERNAL if mcp is None else SpanKind.SERVER,
            links=links,
            start_time=int(call.at * _NS),
            attributes={
                span_names.OPERATION: span_names.EXECUTE_TOOL,
                span_names.TOOL_CALL_ID: call.call_id,
                span_names.REQUEST_ID: call.request_id,
                **({span_names.PROFILE: call.profile} if call.profile else {}),
                **({span_names.DOOR: call.door} if call.door else {}),
                **({} if mcp is None else _of_mcp(mcp)),
            },
        )
        self._open[call.call_id] = _Open(span, outer, mcp)
        contexts.attach(set_span_in_context(span, outer))

    def finished(self, call: FinishedCall) -> None:
        """End the span of a call, and add those of its slow stages."""
        opened = self._open.pop(call.started.call_id, None)
        if opened is None:
            return
        span, outer, mcp = opened
        # Not `detach`, which complains if the call ends in another task than it began in.
        contexts.attach(outer)
        began_ns = int(call.started.at * _NS)
        if span.is_recording():
            # A name that is not a tool is the client's own text.
            name = call.tool if call.entry is not None else ""
            span.update_name(_span_name(name, mcp))
            if call.entry is not None:
                span.set_attributes({span_names.TOOL_NAME: name, span_names.TOOL_ID: call.qualified_id})
            span.set_attribute(span_names.CALL_OUTCOME, call.kind)
            if call.kind != "ok":
                span.set_attribute(span_names.ERROR_TYPE, call.kind if mcp is None else span_names.TOOL_ERROR)
                span.set_status(Status(StatusCode.ERROR))
            self._add_stages(span, call.stage_s, began_ns)
        span.end(began_ns + int(call.duration_s * _NS))

    def end_all(self) -> None:
        """End the spans of calls whose end nobody will report."""
        while self._open:
            self._open.popitem()[1].span.end()

    def _add_stages(self, span: Span, stage_s: Mapping[str, float], began_ns: int) -> None:
        at_ns, context = began_ns, set_span_in_context(span)
        for stage, seconds in stage_s.items():
            ended_ns = at_ns + int(seconds * _NS)
            if seconds >= SLOW_STAGE_S:
                name = span_names.STAGE_PREFIX + stage
                self._tracer.start_span(name, context=context, start_time=at_ns).end(ended_ns)
            at_ns = ended_ns


def _remote(carrier: Mapping[str, str] | None) -> Context | None:
    """Return the context that another process sent; `None` if there is none, or if it is malformed."""
    if not carrier:
        return None
    context = _W3C.extract(carrier, Context())
    return context if _is_within(context) else None


def _is_within(context: Context) -> bool:
    return get_current_span(context).get_span_context().is_valid


def _span_name(name: str, mcp: McpCall | None) -> str:
    method = span_names.EXECUTE_TOOL if mcp is None else span_names.TOOLS_CALL
    return f"{method} {name[:SPAN_NAME_CHARS]}" if name else method


def _of_mcp(mcp: McpCall) -> Mapping[str, str]:
    return {
        span_names.MCP_METHOD: span_names.TOOLS_CALL,
        span_names.MCP_VERSION: mcp.version,
        span_names.JSONRPC_ID: str(mcp.request_id),
        span_names.TRANSPORT: "pipe" if HTTP_CARRIER.get() is None else "tcp",
        **({span_names.MCP_SESSION: mcp.session_id} if mcp.session_id else {}),
    }
