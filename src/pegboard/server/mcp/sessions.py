"""Sessions: what the revisions before 2026-07-28 need: asking in the middle of a call, events kept, changes told."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from pegboard.model.bounds import (
    SESSION_BYTES,
    SESSION_MESSAGES,
    SESSION_SUBSCRIPTIONS,
    SESSION_TELL_S,
    SESSIONS_OF_ONE,
)
from pegboard.model.consent import ConsentRequest
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.server.gateway import INVALID_PARAMS, RpcError
from pegboard.server.mcp.client_channel import ClientChannel, fits
from pegboard.server.mcp.notifications import Notifications
from pegboard.server.principal import Principal

Ctx = ServerRequestContext[Any, Any]
Whose = tuple[str | None, ...]
SHARES_AS: ContextVar[Whose] = ContextVar("pegboard_shares_as", default=())
"""Whose request it is that opens a session: `Principal.shares_as`."""
_ASKED: dict[str, tuple[type[Any], type[Any]]] = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult),
}


def is_earlier(ctx: Ctx) -> bool:
    """Tell whether a request is of a revision before 2026-07-28."""
    return ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS


class SessionChannel(Notifications, ClientChannel):
    """Sends the client a request of its own and waits for the answer, on the stream of this call."""

    ctx: Ctx

    async def close_stream(self) -> None:
        if self.ctx.close_sse_stream is not None:
            await self.ctx.close_sse_stream()

    async def _ask(self, key: str, request: JSON, *, bound_to: ConsentRequest | None = None) -> JSON:
        ask, answer_type = _ASKED[request["method"]]
        try:
            answer = await self.ctx.session.send_request(
                ask.model_validate(request),
                answer_type,
                metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
            )
        except MCPError as error:
            raise CallError("consent_required", f"The client could not be asked: {error.error.message}") from None
        result: JSON = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        if not fits(request, result):
            raise CallError("consent_required", f"The client's answer does not fit the question ({key!r}).")
        return result


@dataclass(kw_only=True, slots=True)
class Session:
    """What is known of one session, from its first word to us until its connection closes."""

    connection: Connection
    profile: str | None
    is_open: bool = False
    level: str | None = None
    uris: set[str] = field(default_factory=set[str])


class Sessions:
    """The sessions of earlier revisions: who they belong to, and how to tell them of a change."""

    def __init__(self, principal_of: Callable[[Ctx], Principal]) -> None:
        self._principal_of = principal_of
        self._known: dict[int, Session] = {}

    def _of(self, ctx: Ctx) -> Session:
        connection = connection_of(ctx)
        session = self._known.get(id(connection))
        if session is None:
            session = Session(connection=connection, profile=self._principal_of(ctx).profile)
            self._known[id(connection)] = session
            connection.exit_stack.callback(self._known.pop, id(connection), None)
        return session

    async def watch(self, ctx: Ctx, call_next: CallNext) -> HandlerResult:
        """Server middleware: a session hears of changes from its `initialized` on."""
        result = await call_next(ctx)
        if ctx.method == "notifications/initialized" and is_earlier(ctx):
            self._of(ctx).is_open = True
        return result

    async def set_level(self, ctx: Ctx, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Handle logging/setLevel."""
        self._of(ctx).level = params.level
        return types.EmptyResult()

    def level(self, ctx: Ctx) -> str | None:
        """Return the lowest level of log lines that a session wants."""
        return self._of(ctx).level

    def subscribe(self, ctx: Ctx, uri: str) -> None:
        """Remember that a session wants to hear of a resource."""
        uris = self._of(ctx).uris
        if len(uris) >= SESSION_SUBSCRIPTIONS:
            raise RpcError(INVALID_PARAMS, f"A session may subscribe to {SESSION_SUBSCRIPTIONS} resources.")
        uris.add(uri)

    def unsubscribe(self, ctx: Ctx, uri: str) -> None:
        """Forget it."""
        self._of(ctx).uris.discard(uri)

    async def tell_updated(self, profile: str | None, uri: str) -> None:
        """Send resource-updated to the sessions that look through a profile and subscribed to the resource."""
        sessions = [one for one in self._of_profile(profile) if uri in one.uris]
        await asyncio.gather(*(_in_time(one.connection.send_resource_updated(uri)) for one in sessions))

    async def tell(self, profile: str | None, what: str) -> None:
        """Send `tools`, `prompts` or `resources` list-changed to the sessions that look through a profile."""
        method = f"notifications/{what}/list_changed"
        sessions = self._of_profile(profile)
        await asyncio.gather(*(_in_time(one.connection.notify(method, None)) for one in sessions))

    def _of_profile(self, profile: str | None) -> list[Session]:
        return [one for one in self._known.values() if one.is_open and one.profile == profile]


async def _in_time(telling: Coroutine[Any, Any, None]) -> None:
    """A client that does not read its stream must not keep the others from hearing."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(telling, SESSION_TELL_S)


def connection_of(ctx: Ctx) -> Connection:
    """Return the connection of a request."""
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage] - mcp 2.3 has no public accessor


class RecentEvents(EventStore):
    """The latest messages of one session's streams, so that a client can reconnect; bounded in number and bytes."""

    def __init__(self) -> None:
        self._events: dict[int, tuple[str, types.JSONRPCMessage | None, int]] = {}
        self._next = self._bytes = 0

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._next += 1
        size = 0 if message is None else len(message.model_dump_json())
        self._events[self._next] = (stream_id, message, size)
        self._bytes += size
        while len(self._events) > SESSION_MESSAGES or (self._bytes > SESSION_BYTES and len(self._events) > 1):
            self._bytes -= self._events.pop(next(iter(self._events)))[2]
        return str(self._next)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        after = int(last_event_id) if last_event_id.isascii() and last_event_id.isdigit() else 0
        known = self._events.get(after)
        if known is None:
            return None
        for number, (stream, message, _) in list(self._events.items()):
            if number > after and stream == known[0] and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return known[0]


class SessionManager(StreamableHTTPSessionManager):
    """Gives each session an event store of its own, and each caller no more than its share of the sessions.

    The SDK hands one store to all sessions and names streams by request id only, so with a shared store one session
    could replay another's messages. The manager reads `event_store` once for each session that it opens.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._open: dict[str, Whose] = {}
        self._of_one: Counter[Whose] = Counter()

    def is_full_for(self, whose: Whose) -> bool:
        """Tell whether a caller has as many sessions open as it may."""
        return self._of_one[whose] >= SESSIONS_OF_ONE

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        whose = SHARES_AS.get()
        # Of several that were let through to here together, only as many as there is room for.
        transport = None if self.is_full_for(whose) else super()._admit_session(requestor)
        if transport is not None and transport.mcp_session_id is not None:
            self._open[transport.mcp_session_id] = whose
            self._of_one[whose] += 1
        return transport

    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        whose = self._open.pop(session_id, None)
        if whose is not None:
            self._of_one[whose] -= 1
            if not self._of_one[whose]:
                del self._of_one[whose]
        await super()._discard_session(session_id, transport)

    @property
    def event_store(self) -> EventStore:  # pyright: ignore[reportIncompatibleVariableOverride] - an attribute in the SDK
        return RecentEvents()

    @event_store.setter
    def event_store(self, value: EventStore | None) -> None:
        pass
