"""Handlers: what the SDK's server does for a request, in both eras. Each is a thin layer on the desk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from pegboard.core.digests import digest
from pegboard.model.json_types import JSON
from pegboard.providers.mcp import mcp_tool, mcp_tool_before_2026
from pegboard.server.gateway import Desk, RpcError
from pegboard.server.mcp.client_channel import Bridge
from pegboard.server.mcp.input_required import RoundBridge
from pegboard.server.mcp.list_ttl import list_ttl_ms, starting
from pegboard.server.mcp.notifications import LEVELS, Speech
from pegboard.server.mcp.sealing import Seals
from pegboard.server.mcp.sessions import SessionBridge, Sessions, is_earlier
from pegboard.server.mcp.source_outcomes import outcomes
from pegboard.server.principal import Visit

Ctx = ServerRequestContext[Any, Any]
T = TypeVar("T")
Asking = types.CallToolRequestParams | types.GetPromptRequestParams | types.ReadResourceRequestParams
log = logging.getLogger("pegboard.serve")


class SdkRoundBridge(Speech, RoundBridge):
    """A round of 2026-07-28 that came through the SDK, which can carry progress and log lines."""


class ToolHandlers:
    """tools/list and tools/call."""

    def __init__(self, desk: Desk, seals: Seals, sessions: Sessions, visits: Visits, *, page_tools: int) -> None:
        self._desk, self._seals, self._sessions, self._visits = desk, seals, sessions, visits
        self._page_tools = page_tools

    async def list_tools(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        visit = self._visits.of(ctx)
        awaited = starting(self._desk.catalog)
        view = await self._desk.view(visit)
        tools = view.tools()
        generation = digest([(entry.wire_name, entry.fingerprint) for entry in tools])
        first, end, following = self._seals.page(
            visit.owner, "tools", generation, size=self._page_tools, length=len(tools), cursor=params.cursor
        )
        draw = mcp_tool_before_2026 if is_earlier(ctx) else mcp_tool
        page: JSON = {
            "tools": [draw(entry) for entry in tools[first:end]],
            "ttlMs": list_ttl_ms(awaited, view),
            "cacheScope": "private",
        }
        told = outcomes(self._desk.catalog, view)
        page |= {"_meta": told} if told else {}
        return complete(ctx, page if following is None else {**page, "nextCursor": following})

    async def call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> JSON:
        bridge = self.bridge(ctx, params)
        visit, arguments = self._visits.of(ctx), params.arguments or {}
        result = await isolated(self._desk.call(visit, params.name, arguments, bridge, is_earlier=is_earlier(ctx)))
        return complete(ctx, result)

    def bridge(self, ctx: Ctx, params: Asking) -> Bridge:
        """Return the way back to the client that sent a request."""
        declared = ctx.session.client_capabilities
        capabilities: JSON = {} if declared is None else wire(declared)
        if is_earlier(ctx):
            asking = SessionBridge(capabilities)
            asking.hold(ctx, self._sessions.level(ctx) or "debug")
            return asking
        if params.request_state is not None:
            self._seals.spend(params.request_state)
        responses: Mapping[str, Any] = params.input_responses or {}
        bridge = SdkRoundBridge(
            capabilities, responses={key: wire(value) for key, value in responses.items()}, state=params.request_state
        )
        wanted: Any = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        bridge.hold(ctx, wanted if wanted in LEVELS else None)
        return bridge


class Visits:
    """Tells who sent a request: what the HTTP endpoint wrote into its scope, or the one whom this process serves."""

    KEY = "pegboard.visit"

    def __init__(self, only: Visit | None) -> None:
        self._only = only

    def of(self, ctx: Ctx) -> Visit:
        if ctx.request is None:
            visit = self._only
        else:
            visit = ctx.request.scope.get(self.KEY)
            if visit is not None and is_earlier(ctx):
                visit = replace(visit, session=ctx.request.headers.get("mcp-session-id"))
        if visit is None:
            raise MCPError(code=types.INTERNAL_ERROR, message="Internal server error")
        return visit


def complete(ctx: Ctx, result: JSON) -> JSON:
    """Return a result with the `resultType` that 2026-07-28 wants."""
    return result if is_earlier(ctx) else {"resultType": "complete", **result}


def wire(model: BaseModel) -> JSON:
    """Return a model as the client sent it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def isolated(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in a task of its own, told once when the request is cancelled.

    The SDK cancels through scopes that cancel every further await as well, and would cut short what
    a call does at its end.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        _ending.add(task)
        task.add_done_callback(_ended)
        raise


_ending: set[asyncio.Task[Any]] = set()


def _ended(task: asyncio.Task[Any]) -> None:
    _ending.discard(task)
    if not task.cancelled():
        task.exception()


async def plain_errors(ctx: Ctx, call_next: CallNext) -> HandlerResult:
    """Server middleware, the outermost: a bug is answered with −32603 and nothing of its text, in both eras."""
    try:
        return await call_next(ctx)
    except RpcError as error:
        raise MCPError(code=error.code, message=error.message, data=error.data) from None
    except (MCPError, ValidationError):
        raise
    except Exception:
        log.exception("The handler of %r failed.", ctx.method)
        raise MCPError(code=types.INTERNAL_ERROR, message="Internal server error") from None
