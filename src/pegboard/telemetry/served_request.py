"""Served request: facts about the request that a server is answering, for the log and the spans of its calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

from pegboard.model.json_types import JSON

_TRACE_HEADERS: Final = (b"traceparent", b"tracestate")
_TRACE_KEYS: Final = ("traceparent", "tracestate")


class McpCall(NamedTuple):
    """A tools/call request: its JSON-RPC id, its revision, its session (if it has one), and its trace context."""

    request_id: int | str
    version: str
    session_id: str
    carrier: Mapping[str, str]


REQUEST_ID: ContextVar[str] = ContextVar("pegboard_request_id", default="")
"""The id of the HTTP request; empty outside one, or if requests are not logged."""
HTTP_CARRIER: ContextVar[Mapping[str, str] | None] = ContextVar("pegboard_http_carrier", default=None)
"""The trace context in the headers of the HTTP request; `None` outside one, or if nothing is traced."""
MCP_CALL: ContextVar[McpCall | None] = ContextVar("pegboard_mcp_call", default=None)
"""The MCP request; `None` outside one, or if nothing is traced."""


@contextmanager
def serving_http(headers: Iterable[tuple[bytes, bytes]]) -> Generator[None]:
    """Remember the trace context of an HTTP request while it is answered."""
    trace_headers = {
        name.decode(): value.strip(b" \t").decode("latin-1") for name, value in headers if name in _TRACE_HEADERS
    }
    token = HTTP_CARRIER.set(trace_headers)
    try:
        yield
    finally:
        HTTP_CARRIER.reset(token)


@contextmanager
def serving_mcp(request_id: int | str, version: str, session_id: str, meta: JSON) -> Generator[None]:
    """Remember a tools/call request while it is answered. `meta` is its `_meta`, as the client sent it."""
    carrier = {key: value for key in _TRACE_KEYS if isinstance(value := meta.get(key), str)}
    token = MCP_CALL.set(McpCall(request_id, version, session_id, carrier))
    try:
        yield
    finally:
        MCP_CALL.reset(token)
