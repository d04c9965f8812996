"""Endpoint: `/mcp` and `/mcp/{profile}` over streamable HTTP. Checks a request; the fast path or the SDK answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pegboard.model.bounds import ANSWERED_STREAM_S, RECONNECT_MS
from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.authenticator import Authenticator
from pegboard.server.body_reader import BodyError, BodyReader, ClientLeftError, replay
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal
from pegboard.server.mcp.disconnect import answer
from pegboard.server.mcp.fast_path import FastPath
from pegboard.server.mcp.headers import HeaderReader, RequestHeaders
from pegboard.server.mcp.jsonrpc import as_object, called_tool, error_message, json_bytes
from pegboard.server.mcp.lists import Lists
from pegboard.server.mcp.sdk_handlers import Principals
from pegboard.server.mcp.sdk_server import MIRRORED, SdkServer, accepts
from pegboard.server.mcp.sessions import SHARES_AS, SessionManager
from pegboard.server.open_requests import OpenRequests
from pegboard.server.principal import Principal
from pegboard.server.resource_metadata import ResourceMetadata
from pegboard.server.sealing import Sealing

_BUSY = -32000
_ID_IS_OPEN = "A request with the id {!r:.100} is already open in this session. Give each request an id of its own."
_TOO_MANY = "This caller has as many sessions open as it may. End one with DELETE, or wait until an idle one ends."


class Endpoint:
    """One ASGI app for all profiles of a catalog.

    Args:
        gateway: the catalog's answers.
        host_guard: whose Host and Origin come in.
        authenticator: tells who sends a request.
        sealing: seals states and cursors.
    """

    def __init__(
        self, gateway: Gateway, host_guard: HostGuard, *, authenticator: Authenticator, sealing: Sealing
    ) -> None:
        self._gateway, self._host_guard, self._authenticator, self._sealing = (
            gateway,
            host_guard,
            authenticator,
            sealing,
        )
        self._body_reader = BodyReader(gateway.catalog.registry.bounds)
        self._header_reader = HeaderReader(host_guard)
        self._open_ids: dict[tuple[str, bytes, str], asyncio.Event] = {}
        self._open = OpenRequests(gateway.catalog.registry.bounds.calls_in_flight)
        self.is_running = False

    @property
    def routes(self) -> list[Route]:
        """The addresses of the endpoint, and of what clients must know before they can use it."""
        metadata = ResourceMetadata(self._gateway.catalog, self._host_guard)
        return [Route("/mcp", endpoint=self), Route("/mcp/{profile}", endpoint=self), *metadata.routes]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve for the time of the block; may be entered again after it has ended."""
        lists = Lists(self._gateway)
        self._sdk = SdkServer(self._gateway, lists, self._sealing)
        self._fast_path = FastPath(self._gateway, lists, seal=self._sdk.seal, accepts=accepts)
        self._sessions = self._manager(self._sdk)
        self._sdk.start()
        try:
            async with self._sessions.run():
                self.is_running = True
                yield
        finally:
            self.is_running = False
            self.end_streams()

    def _manager(self, sdk: SdkServer) -> SessionManager:
        names = self._host_guard.hosts
        origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
        return SessionManager(
            app=sdk.server,
            retry_interval=RECONNECT_MS,
            # The host guard has looked already; what the SDK would let in beyond it never gets here.
            security_settings=TransportSecuritySettings(
                allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
                allowed_origins=[form for origin in origins for form in (origin, f"{origin}:*")],
            ),
            max_request_body_size=self._gateway.catalog.registry.bounds.request_body_bytes,
        )

    def end_streams(self) -> None:
        """End every open listen stream with its result; a server that shuts down would wait for them."""
        self._sdk.stop()

    # -- one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._header_reader.read(scope["headers"])
        if headers.refusal is not None:
            await _turn_away(send, headers.refusal)
            return
        principal = await self._authenticator.authenticate(scope, scope["path_params"].get("profile"))
        if isinstance(principal, Refusal):
            await _turn_away(send, principal)
            return
        # Without what tells who somebody is: the authenticator has seen it, and nobody else shall.
        scope[Principals.KEY], scope["headers"] = principal, headers.pairs
        if scope["method"] != "POST":
            await self._to_sdk(scope, receive, send, principal)
        elif headers.opens_session and self._sessions.is_full_for(principal.shares_as):
            await _refuse(send, 503, _BUSY, _TOO_MANY, (b"retry-after", b"60"))
        elif not self._open.enter(principal):
            await _refuse(send, 503, _BUSY, "The server is busy. Try again in a moment.", (b"retry-after", b"1"))
        else:
            try:
                await self._post(scope, receive, send, principal, headers)
            finally:
                self._open.leave(principal)

    async def _post(
        self, scope: Scope, receive: Receive, send: Send, principal: Principal, headers: RequestHeaders
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
        # What the headers announce is held against the body; whatever is not plain is the SDK's.
        if headers.hops is not None:
            message = _with_hops(message, headers.hops)
            body = json_bytes(message)
        plan = headers.plain and self._fast_path.plan(message, principal, announced=headers.plain)
        if plan is not None:
            await answer(plan, receive, send)
            return
        open_id = _id_in_session(principal, headers, message)
        schema = await self._mirrored(message, principal)
        if open_id is not None and not await self._is_free(open_id):
            await _refuse(
                send, 400, -32600, _ID_IS_OPEN.format(open_id[2]), request_id=(as_object(message) or {})["id"]
            )
            return
        if open_id is not None:
            self._open_ids[open_id] = asyncio.Event()
        mirrored = MIRRORED.set(schema)
        # A stream that listens is counted by the SDK; it must not keep others from calling.
        listens = (as_object(message) or {}).get("method") == "subscriptions/listen"
        if listens:
            self._open.leave(principal)
        try:
            await self._to_sdk(scope, replay(body, receive), send, principal)
        finally:
            if listens:
                self._open.reenter(principal)
            MIRRORED.reset(mirrored)
            if open_id is not None:
                self._open_ids.pop(open_id).set()

    async def _is_free(self, open_id: tuple[str, bytes, str]) -> bool:
        """Tell whether no request has this id; one that is answered already gets a moment to end its stream."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_STREAM_S):
                while (ended := self._open_ids.get(open_id)) is not None:
                    await ended.wait()
        return open_id not in self._open_ids

    async def _mirrored(self, message: JSONValue, principal: Principal) -> JSON | None:
        """Return the schema by which the SDK checks mirrored headers: only of a tool that this caller may use."""
        name = called_tool(message)
        if name is None or not self._gateway.may_mirror(name):
            return None
        return await self._gateway.mirrored_schema(principal, name)

    async def _to_sdk(self, scope: Scope, receive: Receive, send: Send, principal: Principal) -> None:
        # The SDK gives a session to whoever opened it, and to nobody else.
        SHARES_AS.set(principal.shares_as)
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=principal.owner, scopes=[]))
        await self._sessions.handle_request(scope, receive, send)


async def _turn_away(send: Send, refusal: Refusal) -> None:
    await _refuse(send, refusal.status, -32600, refusal.text, *refusal.headers)


def _id_in_session(principal: Principal, headers: RequestHeaders, message: JSONValue) -> tuple[str, bytes, str] | None:
    """Return by what a request of a session is told from all others; `None` for what is none.

    The SDK finds the stream of an answer by the id alone: of two requests with one id, one would get both answers.
    """
    session, request = headers.by_name.get(b"mcp-session-id"), as_object(message)
    if session is None or request is None or "method" not in request or type(request.get("id")) not in (int, str):
        return None
    # By its text: the SDK takes 7 and "7" for one.
    return principal.owner, session, str(request["id"])


def _with_hops(message: JSONValue, hops: list[str]) -> JSONValue:
    """Return a request that says itself what its header says; a webhook may ask in the words of MCP."""
    request = as_object(message) or {}
    params = as_object(request.get("params", {}))
    if params is None or "method" not in request:
        return message
    meta = as_object(params.get("_meta")) or {}
    return {**request, "params": {**params, "_meta": {**meta, HOPS_KEY: hops}}}


async def _refuse(
    send: Send, status: int, code: int, text: str, *more: tuple[bytes, bytes], request_id: int | str | None = None
) -> None:
    """Answer with a JSON-RPC error; without an id it belongs to no request."""
    body = error_message(code, text, request_id)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
