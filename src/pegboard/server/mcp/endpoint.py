"""Endpoint: `/mcp` and `/mcp/{profile}` over streamable HTTP. Checks a request; the fast path or the SDK answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.authenticator import Authenticator
from pegboard.server.body_reader import BodyError, BodyReader, ClientLeftError, replay
from pegboard.server.bus import ALONE, NO_BUS, Others
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal
from pegboard.server.mcp.earlier_path import EarlierPath
from pegboard.server.mcp.event_streams import answer
from pegboard.server.mcp.fast_path import FastPath
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.headers import HeaderReader, RequestHeaders
from pegboard.server.mcp.limits import RECONNECT_MS
from pegboard.server.mcp.protocol.jsonrpc import as_object, called_tool, error_message, json_bytes
from pegboard.server.mcp.sdk_handlers import Principals
from pegboard.server.mcp.sdk_server import MIRRORED, SdkServer, SdkSessions, accepts
from pegboard.server.mcp.sessions.session_endpoint import Exchange, SessionEndpoint
from pegboard.server.mcp.sessions.session_ids import SessionIds
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.open_requests import OpenRequests
from pegboard.server.principal import Principal, Whose
from pegboard.server.resource_metadata import ResourceMetadata
from pegboard.server.sealing import Sealing

_BUSY = -32000


class Endpoint:
    """One ASGI app for all profiles of a catalog.

    Args:
        gateway: the catalog's answers.
        host_guard: whose Host and Origin come in.
        authenticator: tells who sends a request.
        sealing: seals states and cursors.
        others: what is known of other workers.
    """

    def __init__(
        self,
        gateway: Gateway,
        host_guard: HostGuard,
        *,
        authenticator: Authenticator,
        sealing: Sealing,
        others: Others = ALONE,
    ) -> None:
        self._others = others
        self._gateway, self._host_guard, self._authenticator, self._sealing = (
            gateway,
            host_guard,
            authenticator,
            sealing,
        )
        self._body_reader = BodyReader(gateway.registry.bounds)
        self._header_reader = HeaderReader(host_guard)
        self._open = OpenRequests(gateway.registry.bounds.calls_in_flight)
        self.is_running = False

    @property
    def routes(self) -> list[Route]:
        """The addresses of the endpoint, and of what clients must know before they can use it."""
        metadata = ResourceMetadata(self._gateway.catalog, self._host_guard)
        return [Route("/mcp", endpoint=self), Route("/mcp/{profile}", endpoint=self), *metadata.routes]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve for the time of the block; may be entered again after it has ended."""
        lists, others = Lists(self._gateway), self._others
        worker = self._sealing.worker if others.may_be else ""
        refusal = NO_BUS if others.are_known and others.bus is None else None
        sessions = Sessions(SessionIds(self._sealing), worker=worker, refusal=refusal, has_others=others.are_known)
        self._sdk = SdkServer(self._gateway, lists, self._sealing, sessions)
        self._fast_path = FastPath(self._gateway, lists, seal=self._sdk.seal, accepts=accepts)
        self._sdk_sessions = self._manager(self._sdk)
        path = EarlierPath(self._gateway, lists)
        self._with_sessions = SessionEndpoint(self._gateway, path, sessions, self._to_sdk, others.bus)
        self._sdk.start()
        try:
            async with self._sdk_sessions.run(), self._with_sessions.running():
                self.is_running = True
                yield
        finally:
            self.is_running = False
            self.end_streams()

    def _manager(self, sdk: SdkServer) -> SdkSessions:
        return SdkSessions(
            app=sdk.server,
            retry_interval=RECONNECT_MS,
            # The host guard has looked already, and ours say how many there are and when they end.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=None,
            max_sessions=None,
            max_request_body_size=self._gateway.registry.bounds.request_body_bytes,
        )

    def end_streams(self) -> None:
        """End every open listen stream with its result; a server that shuts down would wait for them."""
        self._sdk.stop()
        self._with_sessions.end_streams()

    # -- one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._header_reader.read(scope["headers"])
        if headers.refusal is not None:
            await _turn_away(send, headers.refusal)
            return
        named = scope["path_params"].get("profile")
        principal = self._authenticator.at_hand(scope, named) or await self._authenticator.authenticate(scope, named)
        if isinstance(principal, Refusal):
            await _turn_away(send, principal)
            return
        # Without what tells who somebody is: the authenticator has seen it, and nobody else shall.
        scope["headers"] = headers.pairs
        if scope["method"] != "POST":
            if headers.is_earlier:
                await self._with_sessions.answer(Exchange(scope, receive, send, principal, headers))
            else:
                await self._to_sdk(scope, receive, send, principal)
            return
        whose = self._open.enter(principal)
        if whose is None:
            await _refuse(send, 503, _BUSY, "The server is busy. Try again in a moment.", (b"retry-after", b"1"))
        else:
            try:
                await self._post(scope, receive, send, principal, headers, whose)
            finally:
                self._open.leave(whose)

    async def _post(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        principal: Principal,
        headers: RequestHeaders,
        whose: Whose,
    ) -> None:
        if not headers.is_json:
            await _refuse(send, 415, -32600, "Send the body as Content-Type: application/json, in UTF-8.")
            return
        try:
            body = await self._body_reader.read(headers.by_name, receive)
            message = self._body_reader.parse(body)
        except BodyError as error:
            closing = () if error.status == 400 else ((b"connection", b"close"),)
            await _refuse(send, error.status, error.code, error.text, *closing)
            return
        except ClientLeftError:
            return
        if headers.hops is not None:
            message = _with_hops(message, headers.hops)
            body = json_bytes(message)
        if headers.is_earlier:
            await self._with_sessions.post(Exchange(scope, receive, send, principal, headers, body), message)
            return
        # What the headers announce is held against the body; whatever is not plain is the SDK's.
        plan = headers.plain and self._fast_path.plan(message, principal, announced=headers.plain)
        if plan is not None:
            await answer(plan, receive, send)
            return
        mirrored = MIRRORED.set(await self._mirrored(message, principal))
        # A stream that listens is counted by the SDK; it must not keep others from calling.
        listens = (as_object(message) or {}).get("method") == "subscriptions/listen"
        if listens:
            self._open.leave(whose)
        try:
            await self._to_sdk(scope, replay(body, receive), send, principal)
        finally:
            if listens:
                self._open.reenter(whose)
            MIRRORED.reset(mirrored)

    async def _mirrored(self, message: JSONValue, principal: Principal) -> JSON | None:
        """Return the schema by which the SDK checks mirrored headers: only of a tool that this caller may use."""
        name = called_tool(message)
        if name is None or not self._gateway.may_mirror(name):
            return None
        return await self._gateway.mirrored_schema(principal, name)

    async def _to_sdk(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        # The SDK gives a session to whoever opened it, and to nobody else.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal.owner, scopes=[]))
        scope[Principals.KEY] = principal
        await self._sdk_sessions.handle_request(scope, receive, send)


async def _turn_away(send: Send, refusal: Refusal) -> None:
    await _refuse(send, refusal.status, -32600, refusal.text, *refusal.headers)


def _with_hops(message: JSONValue, hops: list[str]) -> JSONValue:
    """Return a request that says itself what its header says; a webhook may ask in the words of MCP."""
    request = as_object(message) or {}
    params = as_object(request.get("params", {}))
    if params is None or "method" not in request:
        return message
    meta = as_object(params.get("_meta")) or {}
    return {**request, "params": {**params, "_meta": {**meta, HOPS_KEY: hops}}}


async def _refuse(send: Send, status: int, code: int, text: str, *more: tuple[bytes, bytes]) -> None:
    """Answer with a JSON-RPC error that belongs to no request."""
    body = error_message(code, text)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
