"""The MCP SDK's own server on the handlers of an app, which the differential test compares our protocol with."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp_types.methods import SPEC_CLIENT_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Route

from pegboard import Catalog, http_app
from pegboard.server.mcp.asking.notifications import LEVELS, MessageOutlet
from pegboard.server.mcp.protocol.capabilities import capabilities_before_2026, server_info
from pegboard.server.mcp.protocol.jsonrpc import RpcError, as_object, called_tool, json_bytes
from pegboard.server.mcp.protocol.requests import LEVEL_KEY, MODERN, Era, McpRequest
from pegboard.server.mcp.sessions.session_ids import Client
from pegboard.server.mcp.sessions.sessions import Session, Sessions

PRINCIPAL = "tests.principal"
MIRRORED: ContextVar[Any] = ContextVar("mirrored", default=None)
NOTIFICATIONS: dict[str, type[Any]] = {
    "notifications/progress": types.ProgressNotification,
    "notifications/message": types.LoggingMessageNotification,
}
Ctx = ServerRequestContext[Any, Any]


class _Any(BaseModel):
    """Takes any params."""


def endpoint_of(app: Starlette) -> Any:
    """Return the endpoint behind `/mcp`."""
    return next(route.endpoint for route in app.routes if isinstance(route, Route) and route.path == "/mcp")


@asynccontextmanager
async def answered_by_the_sdk(catalog: Catalog) -> AsyncGenerator[Starlette]:
    """Run an app whose credentials, hosts and bodies we check, and whose messages the SDK answers."""
    app = http_app(catalog)
    async with app.router.lifespan_context(app):
        endpoint = endpoint_of(app)
        manager = StreamableHTTPSessionManager(
            app=_server(endpoint),
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        async with manager.run():
            reference = _Reference(endpoint, manager)
            vars(endpoint).update(_ready=None, _checked=reference.modern, _with_sessions=reference)
            yield app


class _Reference:
    """Stands where our own answers are made, for 2026-07-28 and for sessions."""

    def __init__(self, endpoint: Any, manager: StreamableHTTPSessionManager) -> None:
        self._endpoint, self._manager = endpoint, manager

    async def modern(self, message: Any, receive: Any, send: Any, principal: Any, headers: Any, _whose: Any) -> None:
        name, schema = called_tool(message) if as_object(message) else None, None
        if name is not None and self._endpoint._gateway.may_mirror(name):
            schema = await self._endpoint._gateway.mirrored_schema(principal, name)
        mirrored = MIRRORED.set(schema)
        try:
            await self._handle("POST", message, receive, send, principal, headers)
        finally:
            MIRRORED.reset(mirrored)

    async def post(self, exchange: Any, message: Any) -> None:
        await self._handle("POST", message, exchange.receive, exchange.send, exchange.principal, exchange.headers)

    async def answer(self, exchange: Any) -> None:
        method = exchange.scope["method"]
        await self._handle(method, None, exchange.receive, exchange.send, exchange.principal, exchange.headers)

    def end_streams(self) -> None:
        pass

    async def _handle(self, method: str, message: Any, receive: Any, send: Any, principal: Any, headers: Any) -> None:
        body = [{"type": "http.request", "body": b"" if message is None else json_bytes(message), "more_body": False}]

        async def replayed() -> Any:
            return body.pop() if body else await receive()

        scope = {"type": "http", "http_version": "1.1", "method": method, "path": "/mcp", "query_string": b""}
        user = AuthenticatedUser(AccessToken(token="", client_id=principal.owner, scopes=[]))
        # Ours has looked at the content type, whose case does not matter; the SDK's takes it in small letters alone.
        pairs = [(name, b"application/json" if name == b"content-type" else value) for name, value in headers.pairs]
        scope |= {"headers": pairs, "user": user, PRINCIPAL: principal}
        await self._manager.handle_request(scope, replayed, send)


class _Announcing(Server[Any]):
    """Announces what we do, whatever the SDK would conclude from the handlers that it has."""

    def __init__(self, gateway: Any) -> None:
        super().__init__(**server_info(gateway), get_tool_input_schema=lambda _name: MIRRORED.get())
        self._gateway = gateway

    def get_capabilities(self, *_args: object, **_options: object) -> types.ServerCapabilities:
        return types.ServerCapabilities.model_validate(capabilities_before_2026(self._gateway))


def _server(endpoint: Any) -> Server[Any]:
    """Return the SDK's server with the handlers of an endpoint."""
    server = _Announcing(endpoint._gateway)
    sessions, known = Sessions(), dict[str, Session]()
    for name, method in endpoint._dispatcher._methods.items():
        if name == "initialize" or (method.is_offered is not None and not method.is_offered()):
            continue
        # The SDK checks params before it knows the revision; ours of one revision alone are checked behind that.
        is_of_both = method.era == "both" or name in SPEC_CLIENT_METHODS
        params = method.params() if is_of_both else _Any
        server.add_request_handler(name, params, _handler(name, method, sessions, known))
    states = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="workshop")
    server.middleware[:] = [_plain_errors, states]
    return server


def _handler(name: str, method: Any, sessions: Sessions, known: dict[str, Session]) -> Any:
    async def handle(ctx: Ctx, _params: Any) -> Any:
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        if method.era == ("earlier" if is_modern else "2026"):
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=name)
        if name not in SPEC_CLIENT_METHODS:
            method.params().model_validate(dict(ctx.params or {}), by_name=False)
        assert ctx.request is not None
        principal = ctx.request.scope[PRINCIPAL]
        declared = ctx.session.client_capabilities
        capabilities = {} if declared is None else declared.model_dump(mode="json", by_alias=True, exclude_none=True)
        era = MODERN
        if not is_modern:
            # One of ours for each of the SDK's: it remembers the level of log lines.
            ours = known.setdefault(
                ctx.request.headers["mcp-session-id"], sessions.open(principal, Client(ctx.protocol_version, {}))
            )
            ours.capabilities = capabilities
            era = Era(ours)
        meta: Any = dict(ctx.meta or {})
        level: Any = meta.get(LEVEL_KEY)
        request = McpRequest(
            name, ctx.request_id or 0, dict(ctx.params or {}), principal, era, capabilities, _outlet(ctx),
            progress_token_from_params(ctx.params), level if level in LEVELS else None,
        )  # fmt: skip
        result = await method.handler(request)
        return {"resultType": "complete", **result} if is_modern else result

    return handle


def _outlet(ctx: Ctx) -> MessageOutlet:
    async def write(message: bytes) -> None:
        said = json.loads(message)
        notification = NOTIFICATIONS[said["method"]].model_validate(
            {"method": said["method"], "params": said["params"]}, by_name=False
        )
        await ctx.session.send_notification(notification, related_request_id=ctx.request_id)

    outlet = MessageOutlet()
    outlet.write = write
    return outlet


async def _plain_errors(ctx: Ctx, call_next: Any) -> Any:
    try:
        return await call_next(ctx)
    except RpcError as error:
        raise MCPError(code=error.code, message=error.message, data=error.data) from None
