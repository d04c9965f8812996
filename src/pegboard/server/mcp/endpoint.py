"""Endpoint: `/mcp` and `/mcp/{profile}` over streamable HTTP, for both eras of the protocol.

It checks the headers, credential and body of a request. The dispatcher answers requests of 2026-07-28, behind a cache
of ready bytes; `SessionEndpoint` serves earlier revisions with the same two.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pegboard.model.hops import HOPS_KEY
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.authenticator import Authenticator
from pegboard.server.body_reader import BodyError, BodyReader, ClientLeftError
from pegboard.server.bus import ALONE, NO_BUS, Others
from pegboard.server.gateway import Gateway
from pegboard.server.host_guard import HostGuard, Refusal
from pegboard.server.mcp.dispatcher import Dispatcher
from pegboard.server.mcp.event_streams import answer
from pegboard.server.mcp.handlers.list_changes import ListChanges
from pegboard.server.mcp.handlers.lists import Lists
from pegboard.server.mcp.headers import HeaderReader, RequestHeaders
from pegboard.server.mcp.protocol import request_checks
from pegboard.server.mcp.protocol.answers import Answer, Stream, error_answer
from pegboard.server.mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    RpcError,
    as_object,
    called_tool,
    error_message,
    json_bytes,
    kind_of,
)
from pegboard.server.mcp.protocol.requests import MODERN
from pegboard.server.mcp.ready_bytes import ReadyBytes, ready_bytes
from pegboard.server.mcp.sessions.session_endpoint import Exchange, SessionEndpoint
from pegboard.server.mcp.sessions.session_ids import SessionIds
from pegboard.server.mcp.sessions.sessions import Sessions
from pegboard.server.open_requests import OpenRequests
from pegboard.server.principal import Principal, Whose
from pegboard.server.resource_metadata import ResourceMetadata
from pegboard.server.sealing import Sealing
from pegboard.server.whole_answer import send_whole

_BUSY = -32000
_NOT_A_MESSAGE = "Body must be a single JSON-RPC request or notification object"


class Endpoint:
    """One ASGI app for all profiles of a catalog.

    Args:
        gateway: the catalog's answers.
        host_guard: checks Host and Origin.
        authenticator: identifies the caller.
        sealing: seals states and cursors.
        others: the other workers.
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
        """The URLs of the endpoint, and of the metadata that clients need before they can use it."""
        metadata = ResourceMetadata(self._gateway.catalog, self._host_guard)
        return [Route("/mcp", endpoint=self), Route("/mcp/{profile}", endpoint=self), *metadata.routes]

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the endpoint within the block; it may be entered again afterwards."""
        lists, others = Lists(self._gateway), self._others
        worker = self._sealing.worker if others.may_be else ""
        refusal = NO_BUS if others.are_known and others.bus is None else None
        sessions = Sessions(SessionIds(self._sealing), worker=worker, refusal=refusal)
        self._changes = ListChanges(self._gateway, sessions, bus=others.bus)
        self._dispatcher = Dispatcher(self._gateway, lists, self._sealing, self._changes)
        self._ready: ReadyBytes | None = ready_bytes(
            self._gateway, lists, self._dispatcher, accepts=request_checks.accepts
        )
        self._with_sessions = SessionEndpoint(self._gateway, self._dispatcher, self._ready, sessions, others.bus)
        self._changes.start()
        try:
            async with self._with_sessions.running():
                self.is_running = True
                yield
        finally:
            self.is_running = False
            self.end_streams()

    def end_streams(self) -> None:
        """End every open listen stream with its result; otherwise a server that shuts down would wait for them."""
        self._changes.stop()
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
        # Without the credential: the authenticator has already checked it, and nothing after it needs it.
        scope["headers"] = headers.pairs
        if scope["method"] != "POST":
            if headers.is_earlier:
                await self._with_sessions.answer(Exchange(scope, receive, send, principal, headers))
            else:
                await _empty(send, 405, (b"allow", b"POST"))
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
            await _refuse(send, 415, INVALID_REQUEST, "Send the body as Content-Type: application/json, in UTF-8.")
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
        if headers.is_earlier:
            await self._with_sessions.post(Exchange(scope, receive, send, principal, headers, len(body)), message)
            return
        # The headers repeat parts of the body; only requests with consistent headers are recognised.
        if headers.plain and self._ready is not None:
            recognised = self._ready.recognise(message, principal, announced=headers.plain)
            if recognised is not None:
                await answer(recognised, receive, send)
                return
        await self._checked(message, receive, send, principal, headers, whose)

    async def _checked(
        self,
        message: JSONValue,
        receive: Receive,
        send: Send,
        principal: Principal,
        headers: RequestHeaders,
        whose: Whose,
    ) -> None:
        """Answer a 2026-07-28 message that the cache did not recognise."""
        if not headers.accepts_both:
            await _empty(send, 406)
            return
        request = as_object(message)
        kind = None if request is None else kind_of(request)
        if request is None or kind not in ("request", "notification"):
            await _refuse(send, 400, INVALID_REQUEST, _NOT_A_MESSAGE)
            return
        if kind == "notification":
            await self._notification(send, headers)
            return
        dispatched = await self._dispatched(request, principal, headers)
        if isinstance(dispatched, Answer):
            await send_whole(send, dispatched.status, dispatched.message(json_bytes(request["id"])))
            return
        # Listen streams have their own limit, so that they do not block calls.
        listens = request["method"] == "subscriptions/listen"
        if listens:
            self._open.leave(whose)
        try:
            await answer(dispatched, receive, send)
        finally:
            if listens:
                self._open.reenter(whose)

    async def _notification(self, send: Send, headers: RequestHeaders) -> None:
        """Accept and drop a notification: a 2026-07-28 client cancels by closing its connection."""
        try:
            request_checks.check_version(headers.by_name.get(b"mcp-protocol-version", b"").decode("latin-1"))
        except RpcError as error:
            refused = error_answer(error)
            await send_whole(send, refused.status, refused.message(b"null"))
        else:
            await _empty(send, 202)

    async def _dispatched(self, request: JSON, principal: Principal, headers: RequestHeaders) -> Answer | Stream:
        try:
            has_tasks = self._gateway.catalog.executor.ports.tasks is not None
            request_checks.check_headers(request, headers.pairs, has_tasks=has_tasks)
            await self._check_mirrored(request, principal, headers)
        except RpcError as error:
            return error_answer(error)
        return self._dispatcher.dispatch(request, MODERN, principal)

    async def _check_mirrored(self, request: JSON, principal: Principal, headers: RequestHeaders) -> None:
        """Check headers that mirror arguments, only for tools visible to this caller."""
        name = called_tool(request)
        arguments = as_object(request["params"].get("arguments") or {})
        if name is None or arguments is None or not self._gateway.may_mirror(name):
            return
        schema = await self._gateway.mirrored_schema(principal, name)
        if schema is not None:
            request_checks.check_mirrored(schema, arguments, headers.pairs)


async def _turn_away(send: Send, refusal: Refusal) -> None:
    await _refuse(send, refusal.status, INVALID_REQUEST, refusal.text, *refusal.headers)


def _with_hops(message: JSONValue, hops: list[str]) -> JSONValue:
    """Return a request whose `_meta` matches its header; a webhook may ask in the words of MCP."""
    request = as_object(message) or {}
    params = as_object(request.get("params", {}))
    if params is None or "method" not in request:
        return message
    meta = as_object(params.get("_meta")) or {}
    return {**request, "params": {**params, "_meta": {**meta, HOPS_KEY: hops}}}


async def _empty(send: Send, status: int, *headers: tuple[bytes, bytes]) -> None:
    """Send a status without a body."""
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0"), *headers]})
    await send({"type": "http.response.body", "body": b""})


async def _refuse(send: Send, status: int, code: int, text: str, *more: tuple[bytes, bytes]) -> None:
    """Send a JSON-RPC error without a request id."""
    body = error_message(code, text)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
