"""Channels: create the channel for asking the client of a request, for either era."""

from __future__ import annotations

from typing import Any

from pegboard.model.json_types import JSON
from pegboard.server.mcp.asking.client_channel import ClientChannel
from pegboard.server.mcp.asking.input_required import InputRequiredChannel, NotifyingChannel
from pegboard.server.mcp.asking.unanswered_requests import SessionChannel
from pegboard.server.mcp.protocol.requests import CLIENT_KEY, McpRequest
from pegboard.server.mcp.sessions.session_ids import CLIENT_NAME_CHARS

_CENTURY_MS = 100 * 366 * 86_400_000  # the size limit of a JSON integer, which may be too long for a float


def channel_of(request: McpRequest) -> ClientChannel:
    """Return the channel to the client of a 2026-07-28 request, for one call."""
    if request.era.session is not None:
        return session_channel(request)
    params, hops = request.params, request.hops
    name = client_name_in(params.get("_meta"))
    if request.outlet is None:
        plain = InputRequiredChannel(request.capabilities)
        plain.client_name = name
        return plain
    responses: JSON = params.get("inputResponses") or {}
    channel = NotifyingChannel(request.capabilities, responses=responses, state=request.state)
    channel.tell_through(request.outlet, token=request.token, level=request.level)
    channel.hops, channel.client_name = hops, name
    return channel


def client_name_in(meta: Any) -> str:
    """Return the name of the client program in a checked `_meta`; empty if it has none."""
    named = None if meta is None else meta.get(CLIENT_KEY)
    return "" if named is None else str(named["name"])[:CLIENT_NAME_CHARS]


def session_channel(request: McpRequest) -> SessionChannel:
    """Return the channel to the client of a request from an earlier revision."""
    session, outlet = request.session, request.outlet
    assert outlet is not None
    channel = SessionChannel(request.capabilities)
    task: Any = request.params.get("task") if request.method == "tools/call" else None
    if task is not None:
        ttl_ms = task.get("ttl")
        channel.wants_task = True
        channel.task_ttl_s = None if ttl_ms is None else max(0, min(int(ttl_ms), _CENTURY_MS)) / 1_000
    channel.tell_through(outlet, token=request.token, level=session.level or "debug")
    channel.ask_through(outlet, session.questions, roles=request.principal.identity.roles)
    channel.tell_through_session(session.tell_soon, session.awaited)
    channel.hops, channel.client_name = request.hops, session.client_name
    return channel
