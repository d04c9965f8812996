"""ToolHandlers: what the SDK's server does for a request, in both eras. Each is a thin layer on the gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON
from pegboard.server.gateway import Gateway, RpcError
from pegboard.server.mcp.asking.client_channel import ClientChannel, fits
from pegboard.server.mcp.asking.earlier_channel import EarlierChannel
from pegboard.server.mcp.asking.input_required import NotifyingChannel
from pegboard.server.mcp.asking.notifications import LEVELS, Notifications
from pegboard.server.mcp.asking.request_states import RequestStates
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.sessions.sessions import Session
from pegboard.server.principal import Principal
from pegboard.server.sealing import Sealing

Ctx = ServerRequestContext[Any, Any]
T = TypeVar("T")
Asking = types.CallToolRequestParams | types.GetPromptRequestParams | types.ReadResourceRequestParams
log = logging.getLogger("pegboard.serve")


_NOT_ROUTED = (
    "This request came in a form, or is of a kind, whose questions reach one worker alone, and this server has several."
)


class SdkOutlet:
    """The stream of a request that came through the SDK."""

    def __init__(self, ctx: Ctx) -> None:
        self._ctx = ctx

    async def notify(self, method: str, params: JSON) -> None:
        notification = _NOTIFICATIONS[method].model_validate({"method": method, "params": params}, by_name=False)
        await self._ctx.session.send_notification(notification, related_request_id=self._ctx.request_id)


_NOTIFICATIONS: Mapping[str, type[types.ProgressNotification | types.LoggingMessageNotification]] = {
    "notifications/progress": types.ProgressNotification,
    "notifications/message": types.LoggingMessageNotification,
}


def capabilities_of(ctx: Ctx) -> JSON:
    """Return what the client declared that it can do."""
    declared = ctx.session.client_capabilities
    return {} if declared is None else wire(declared)


class SdkSessionChannel(Notifications, EarlierChannel):
    """Asks the client of a session in a request that the SDK answers."""

    ctx: Ctx
    refusal: str | None = None
    """Why nobody can be asked."""

    async def put(self, key: str, request: JSON) -> JSON:
        """Put a ready question to the client, and return its answer.

        Raises:
            CallError: there is none.
        """
        return await self._ask(key, request)

    async def close_stream(self) -> None:
        if self.ctx.close_sse_stream is not None:
            await self.ctx.close_sse_stream()

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        if self.refusal is not None:
            raise CallError("consent_required", f"The client could not be asked. {self.refusal}")
        ask, answer_type = _ASKED[request["method"]]
        try:
            answer = await self.ctx.session.send_request(
                ask.model_validate(request),
                answer_type,
                metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
            )
        except MCPError as error:
            raise CallError("consent_required", f"The client could not be asked: {error.error.message}") from None
        result: JSON = wire(answer)
        if not fits(request, result):
            raise CallError("consent_required", f"The client's answer does not fit the question ({key!r}).")
        return result


_ASKED: dict[str, tuple[type[Any], type[Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


def is_earlier(ctx: Ctx) -> bool:
    """Tell whether a request is of a revision before 2026-07-28."""
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


class ToolHandlers:
    """tools/list and tools/call."""

    def __init__(
        self, gateway: Gateway, lists: Lists, sealing: Sealing, *, states: RequestStates, principals: Principals
    ) -> None:
        self._gateway, self._lists, self._sealing = gateway, lists, sealing
        self._states, self._principals = states, principals

    async def list_tools(self, ctx: Ctx, params: types.PaginatedRequestParams) -> JSON:
        page = await self._lists.tools_page(
            self._principals.of(ctx),
            self._sealing,
            params.cursor,
            capabilities=capabilities_of(ctx),
            is_earlier=is_earlier(ctx),
            hops=hops_of(ctx),
        )
        return complete(ctx, page)

    async def call_tool(self, ctx: Ctx, params: types.CallToolRequestParams) -> JSON:
        channel = await self.channel(ctx, params)
        principal, arguments = self._principals.of(ctx), params.arguments or {}
        result = await isolated(
            self._gateway.call(principal, params.name, arguments, channel, is_earlier=is_earlier(ctx))
        )
        return complete(ctx, result)

    async def channel(self, ctx: Ctx, params: Asking) -> ClientChannel:
        """Return the way back to the client that sent a request."""
        channel = await self._channel(ctx, params)
        channel.hops = hops_of(ctx)
        return channel

    async def _channel(self, ctx: Ctx, params: Asking) -> ClientChannel:
        capabilities = capabilities_of(ctx)
        if is_earlier(ctx):
            asking = SdkSessionChannel(capabilities)
            asking.ctx = ctx
            session = self._principals.session_of(ctx)
            level = session.level
            # The SDK's questions have ids that say nothing of who asked, so no other worker could hand on the answer.
            asking.refusal = session.questions.refusal or (_NOT_ROUTED if session.questions.has_others else None)
            asking.tell_through(SdkOutlet(ctx), token=_token_of(ctx), level=level or "debug")
            return asking
        if params.request_state is not None:
            await self._states.spend(params.request_state)
        responses: Mapping[str, Any] = params.input_responses or {}
        channel = NotifyingChannel(
            capabilities, responses={key: wire(value) for key, value in responses.items()}, state=params.request_state
        )
        wanted: Any = (ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        channel.tell_through(SdkOutlet(ctx), token=_token_of(ctx), level=wanted if wanted in LEVELS else None)
        return channel


class Principals:
    """Tells who sent a request: what the HTTP endpoint wrote into its scope, or the one whom this process serves.

    The same of the session of an earlier revision that it belongs to.
    """

    KEY, SESSION = "pegboard.principal", "pegboard.session"

    def __init__(self, only: Principal | None, only_session: Session | None) -> None:
        self._only, self._only_session = only, only_session

    @classmethod
    def request_of(cls, principal: Principal) -> object:
        """Return what stands for the HTTP request of a principal, for a call that did not come through the SDK."""
        return SimpleNamespace(scope={cls.KEY: principal})

    def of(self, ctx: Ctx) -> Principal:
        if ctx.request is None:
            principal = self._only
        else:
            principal = ctx.request.scope.get(self.KEY)
            if principal is not None and is_earlier(ctx) and self.SESSION in ctx.request.scope:
                principal = principal.in_session(ctx.request.scope[self.SESSION].name)
        if principal is None:
            raise MCPError(code=types.INTERNAL_ERROR, message="Internal server error")
        return principal

    def session_of(self, ctx: Ctx) -> Session:
        """Return the session of a request of an earlier revision."""
        session = self._only_session if ctx.request is None else ctx.request.scope.get(self.SESSION)
        if session is None:
            raise MCPError(code=types.INTERNAL_ERROR, message="Internal server error")
        return session

    async def set_level(self, ctx: Ctx, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Handle logging/setLevel."""
        self.session_of(ctx).level = params.level
        return types.EmptyResult()

    async def watch(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Server middleware: a session hears of changes from its `initialized` on."""
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and is_earlier(ctx):
            self.session_of(ctx).is_open = True
        return result


def hops_of(ctx: Ctx) -> object:
    """Return what a request says of the servers that it has passed, unread; `None` where it says nothing."""
    meta: Mapping[str, Any] = ctx.meta or {}
    if HOPS_KEY not in meta:
        return None
    # What is there and null says something that is not a path, and is refused like all that is not.
    return () if meta[HOPS_KEY] is None else meta[HOPS_KEY]


def _token_of(ctx: Ctx) -> int | str | None:
    return cast("Mapping[str, Any]", ctx.meta or {}).get("progress_token")


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
