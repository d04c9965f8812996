"""Handlers: what the SDK's server does for a request, in both eras. Each is a thin layer on the gateway."""

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
from pegboard.server.gateway import Gateway, RpcError
from pegboard.server.mcp.client_channel import ClientChannel
from pegboard.server.mcp.input_required import InputRequiredChannel
from pegboard.server.mcp.list_ttl import list_ttl_ms, starting
from pegboard.server.mcp.notifications import LEVELS, Notifications
from pegboard.server.mcp.sealing import Sealing
from pegboard.server.mcp.sessions import SessionChannel, Sessions, is_earlier
from pegboard.server.mcp.source_outcomes import outcomes
from pegboard.server.principal import Principal

Ctx = ServerRequestContext[Any, Any]
T = TypeVar("T")
Asking = types.CallToolRequestParams | types.GetPromptRequestParams | types.ReadResourceRequestParams
log = logging.getLogger("pegboard.serve")


class SdkInputRequiredChannel(Notifications, InputRequiredChannel):
    """A round of 2026-07-28 that came through the SDK, which can carry progress and log lines."""


class ToolHandlers:
    """tools/list and tools/call."""

    def __init__(
        self, gateway: Gateway, sealing: Sealing, sessions: Sessions, principals: Principals, *, page_tools: int
    ) -> None:
        self._gateway, self._sealing, self._sessions, self._principals = gateway, sealing, sessions, principals
        self._page_tools = page_tools

    async def list_tools(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        principal = self._principals.of(ctx)
        awaited = starting(self._gateway.catalog)
        view = await self._gateway.view(principal)
        tools = view.tools()
        generation = digest([(entry.wire_name, entry.fingerprint) for entry in tools])
        first, end, following = self._sealing.page(
            principal.owner, "tools", generation, size=self._page_tools, length=len(tools), cursor=params.cursor
        )
        draw = mcp_tool_before_2026 if is_earlier(ctx) else mcp_tool
        page: JSON = {
            "tools": [draw(entry) for entry in tools[first:end]],
            "ttlMs": list_ttl_ms(awaited, view),
            "cacheScope": "private",
        }
        told = outcomes(self._gateway.catalog, view)
        page |= {"_meta": told} if told else {}
        return complete(ctx, page if following is None else {**page, "nextCursor": following})

    async def call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> JSON:
        channel = self.channel(ctx, params)
        principal, arguments = self._principals.of(ctx), params.arguments or {}
        result = await isolated(
            self._gateway.call(principal, params.name, arguments, channel, is_earlier=is_earlier(ctx))
        )
        return complete(ctx, result)

    def channel(self, ctx: Ctx, params: Asking) -> ClientChannel:
        """Return the way back to the client that sent a request."""
        declared = ctx.session.client_capabilities
        capabilities: JSON = {} if declared is None else wire(declared)
        if is_earlier(ctx):
            asking = SessionChannel(capabilities)
            asking.hold(ctx, self._sessions.level(ctx) or "debug")
            return asking
        if params.request_state is not None:
            self._sealing.spend(params.request_state)
        responses: Mapping[str, Any] = params.input_responses or {}
        channel = SdkInputRequiredChannel(
            capabilities, responses={key: wire(value) for key, value in responses.items()}, state=params.request_state
        )
        wanted: Any = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        channel.hold(ctx, wanted if wanted in LEVELS else None)
        return channel


class Principals:
    """Tells who sent a request: what the HTTP endpoint wrote into its scope, or the one whom this process serves."""

    KEY = "pegboard.principal"

    def __init__(self, only: Principal | None) -> None:
        self._only = only

    def of(self, ctx: Ctx) -> Principal:
        if ctx.request is None:
            principal = self._only
        else:
            principal = ctx.request.scope.get(self.KEY)
            if principal is not None and is_earlier(ctx):
                principal = replace(principal, session=ctx.request.headers.get("mcp-session-id"))
        if principal is None:
            raise MCPError(code=types.INTERNAL_ERROR, message="Internal server error")
        return principal


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
