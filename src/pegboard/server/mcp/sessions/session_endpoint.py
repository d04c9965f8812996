"""SessionEndpoint: serves revisions before 2026-07-28 over streamable HTTP, with sessions.

It keeps the streams and open requests of each session. The dispatcher answers the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

from pegboard.core.coroutine_runner import Begun, first_step
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.bus import NO_BUS, Bus
from pegboard.server.gateway import Gateway
from pegboard.server.limits import STREAM_PING_S
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.asking.unanswered_requests import worker_of
from pegboard.server.mcp.dispatcher import Dispatcher
from pegboard.server.mcp.handlers.session_handlers import client_of
from pegboard.server.mcp.headers import RequestHeaders
from pegboard.server.mcp.limits import WATCHED_AFTER_S
from pegboard.server.mcp.protocol import request_checks
from pegboard.server.mcp.protocol.answers import Answer, Stream, error_answer
from pegboard.server.mcp.protocol.capabilities import initialization
from pegboard.server.mcp.protocol.jsonrpc import (
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_ID,
    RpcError,
    as_object,
    error_message,
    is_unanswerable,
    json_bytes,
    kind_of,
)
from pegboard.server.mcp.protocol.requests import Era
from pegboard.server.mcp.ready_bytes import ReadyBytes
from pegboard.server.mcp.sessions.session_streams import SessionStream, SessionStreams
from pegboard.server.mcp.sessions.sessions import Session, Sessions
from pegboard.server.mcp.sessions.shared_sessions import SharedSessions, Wishes, other_keeper_of
from pegboard.server.principal import Principal
from pegboard.server.whole_answer import AnswerHeaders, answer_headers, send_whole

ANSWERED_STREAM_S = 1.0  # seconds for a stream to end after its answer, before its id counts as still open
INITIALIZE_BYTES = 32_768  # of the first message of a session
SESSION_SWEEP_S = 60.0  # seconds between two checks for such sessions

_JSON = (b"content-type", b"application/json")
_ALLOWED = answer_headers(_JSON, (b"allow", b"GET, POST, DELETE"))
_IN_A_MINUTE, _IN_A_SECOND = (answer_headers(_JSON, (b"retry-after", wait_s)) for wait_s in (b"60", b"1"))
_PRIMED_SINCE = b"2025-11-25"
_CANCELLED = RpcError(CANCELLED, "Request cancelled")
_FAILED = RpcError(INTERNAL_ERROR, "Internal server error")
_ID_IS_OPEN = "A request with the id {!r:.100} is already open in this session. Give each request its own id."
_TOO_MANY = "This caller has as many sessions open as it may. End one with DELETE, or wait until an idle one ends."
_TOO_LONG = "An initialize of {} bytes is too long: {} is the most. What a client can do takes far less."
_NOT_REACHED = "Another worker asked, and cannot be reached at the moment. Send the answer again."
_NOT_ACCEPTABLE = "Not Acceptable: Client must accept both application/json and text/event-stream"
_NO_EVENTS = "Not Acceptable: Client must accept text/event-stream"
_WISHES = frozenset(("logging/setLevel", "resources/subscribe", "resources/unsubscribe"))
_NO_SESSION = "Bad Request: Missing session ID"


@dataclass(kw_only=True, slots=True, eq=False)
class OpenRequest:
    """A request of a session without an answer yet; `call` is its task while it runs."""

    call: asyncio.Task[Any] | None = None
    is_cancelled: bool = False
    answered: asyncio.Event | None = None
    """Set together with the answer, if a caller waits for it."""


@dataclass(kw_only=True, slots=True, eq=False)
class HttpSession:
    """The HTTP state of a session: its streams and its open requests.

    `principal` is the caller that first used the session in this worker.
    """

    session: Session
    principal: Principal
    streams: SessionStreams
    open_requests: dict[str, OpenRequest] = field(default_factory=dict[str, OpenRequest])
    headers: AnswerHeaders = field(init=False, repr=False)
    """The headers of every answer in it."""
    era: Era = field(init=False)
    _asking: tuple[Principal, Principal] | None = None

    def __post_init__(self) -> None:
        self.era = Era(self.session)
        self.headers = answer_headers(_JSON, (b"mcp-session-id", self.session.session_id.encode()))

    def caller_in_session(self, principal: Principal) -> Principal:
        """Return the caller within its session; usually the same object as for the previous request."""
        if self._asking is None or (self._asking[0] is not principal and self._asking[0] != principal):
            self._asking = principal, principal.in_session(self.session.name)
        return self._asking[1]

    async def tell(self, message: JSON) -> None:
        """Send a message that does not belong to a request, or keep it for a client that reconnects."""
        if self.streams.own is not None:
            await self.streams.own.message(json_bytes(message))


class Exchange(NamedTuple):
    """One HTTP request: its ASGI parts, caller, parsed headers, and the length of its body."""

    scope: Scope
    receive: Receive
    send: Send
    principal: Principal
    headers: RequestHeaders
    length: int = 0


class SessionEndpoint:
    """Answers the requests of earlier revisions; created for each run of an app.

    Args:
        gateway: the catalog's answers.
        dispatcher: answers requests.
        ready: the cache in front of the dispatcher, if switched on.
        sessions: the server's sessions.
        bus: the connection to the other workers, if there are any.
    """

    def __init__(
        self,
        gateway: Gateway,
        dispatcher: Dispatcher,
        ready: ReadyBytes | None,
        sessions: Sessions,
        bus: Bus | None = None,
    ) -> None:
        self._gateway, self._dispatcher, self._ready, self._sessions = gateway, dispatcher, ready, sessions
        self._http_sessions: dict[Session, HttpSession] = {}
        sessions.on_forget = self._forget
        self._shared = (
            None
            if bus is None
            else SharedSessions(bus, sessions, follow=self._follow_from_elsewhere, cancel=self._cancel_named)
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Forget idle sessions within the block, and end all streams at its end."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            self.end_streams()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SESSION_SWEEP_S)
            for session in self._sessions.idle():
                self._sessions.forget(session)

    def end_streams(self) -> None:
        """End every stream that waits for messages; otherwise a server that shuts down would wait for them."""
        for http_session in self._http_sessions.values():
            http_session.streams.end()

    # -- one request

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request without a body."""
        http_session, method = self._find(exchange), exchange.scope["method"]
        if method not in ("GET", "DELETE"):
            await send_whole(exchange.send, 405, error_message(INVALID_REQUEST, "Method Not Allowed"), _ALLOWED)
        elif http_session is None:
            await _no_session(exchange)
        elif method == "DELETE":
            with http_session.session:
                self._sessions.end(http_session.session)
                if self._shared is not None:
                    self._shared.ended(http_session.session)
                await _reply(exchange.send, 200, b"", http_session)
        elif not exchange.headers.accepts_events:
            await _reply(exchange.send, 406, error_message(INVALID_REQUEST, _NO_EVENTS), http_session)
        else:
            with http_session.session:
                await self._follow(exchange, http_session)

    async def post(self, exchange: Exchange, message: JSONValue) -> None:
        """Answer a message from a request body."""
        request, http_session = as_object(message), self._find(exchange)
        is_initialize = request is not None and request.get("method") == "initialize"
        if exchange.length > INITIALIZE_BYTES and is_initialize:
            text = _TOO_LONG.format(exchange.length, INITIALIZE_BYTES)
            await send_whole(exchange.send, 413, error_message(INVALID_REQUEST, text))
        elif http_session is not None:
            with http_session.session:
                await self._in_session(exchange, http_session, request)
        elif exchange.headers.session is not None:
            await send_whole(exchange.send, 404, _not_found())
        elif not exchange.headers.accepts_both:
            await send_whole(exchange.send, 406, error_message(INVALID_REQUEST, _NOT_ACCEPTABLE))
        elif request is None or (kind_of(request) is None and not is_unanswerable(request)):
            await send_whole(exchange.send, 400, _malformed(request))
        elif is_initialize and kind_of(request) == "request":
            await self._open(exchange, request)
        else:
            await send_whole(exchange.send, 400, error_message(INVALID_REQUEST, _NO_SESSION))

    async def _in_session(self, exchange: Exchange, http_session: HttpSession, message: JSON | None) -> None:
        if not exchange.headers.accepts_both:
            await _reply(exchange.send, 406, error_message(INVALID_REQUEST, _NOT_ACCEPTABLE), http_session)
            return
        match None if message is None else kind_of(message):
            case "request":
                assert message is not None
                await self._request(exchange, http_session, message)
            case "notification":
                assert message is not None
                await self._notification(exchange, http_session, message)
            case "response":
                assert message is not None
                await self._response(exchange, http_session, message)
            case _:
                await _reply(exchange.send, 400, _malformed(message), http_session)

    def _find(self, exchange: Exchange) -> HttpSession | None:
        named, principal = exchange.headers.session, exchange.principal
        if named is None:
            return None
        session = self._sessions.find(named, principal.owner)
        if session is not None:
            if self._sessions.worker:
                # The client's `initialized` may have reached another worker.
                session.is_open = True
            return self._http_sessions[session]
        session = self._sessions.reopen(named, principal)
        return None if session is None else self._opened_session(session, principal)

    def _opened_session(self, session: Session, principal: Principal) -> HttpSession:
        streams = SessionStreams(session.session_id, self._sessions.worker)
        opened = HttpSession(session=session, principal=principal, streams=streams)
        if self._shared is not None:
            self._shared.remembered(session)
        session.tell, self._http_sessions[session] = opened.tell, opened
        return opened

    # -- start and end of a session

    async def _open(self, exchange: Exchange, request: JSON) -> None:
        principal, params = exchange.principal, as_object(request.get("params"))
        # Simultaneous clients are admitted one after the other: there is no await in between.
        if self._sessions.is_full_for(principal.shares_as):
            await send_whole(exchange.send, 503, error_message(-32000, _TOO_MANY), _IN_A_MINUTE)
        elif not self._sessions.has_room():
            await send_whole(exchange.send, 503, error_message(INTERNAL_ERROR, "Too many open sessions"))
        elif params is None or not request_checks.fits_initialize(params):
            refusal = error_message(INVALID_PARAMS, "Invalid request parameters", request["id"], data="")
            await send_whole(exchange.send, 200, refusal)
        else:
            client = client_of(params)
            opened = self._opened_session(self._sessions.open(principal, client), principal)
            result = Answer((json_bytes(initialization(self._gateway, client.version)),))
            await _reply(exchange.send, 200, result.message(json_bytes(request["id"])), opened)

    def _forget(self, session: Session) -> None:
        http_session = self._http_sessions.pop(session)
        http_session.streams.end()
        for open_request in http_session.open_requests.values():
            _cancel(open_request)

    # -- responses and notifications

    async def _response(self, exchange: Exchange, http_session: HttpSession, response: JSON) -> None:
        roles = exchange.principal.identity.roles
        is_taken = http_session.session.questions.take(response, roles=roles)
        if not is_taken and worker_of(response.get("id")) not in (None, self._sessions.worker):
            await self._response_elsewhere(exchange, http_session, response)
        else:
            # An answer to an unknown question is accepted and dropped.
            await _reply(exchange.send, 202, b"", http_session)

    async def _response_elsewhere(self, exchange: Exchange, http_session: HttpSession, response: JSON) -> None:
        """Forward an answer to the worker that asked the question."""
        try:
            if self._shared is not None and await self._shared.answer(
                http_session.session, response, roles=exchange.principal.identity.roles
            ):
                await _reply(exchange.send, 202, b"", http_session)
                return
            text = f"Another worker asked. {NO_BUS}"
        except ConnectionError:
            text = _NOT_REACHED
        refusal = error_message(-32603, text)
        await send_whole(exchange.send, 503, refusal, _IN_A_SECOND)

    async def _notification(self, exchange: Exchange, http_session: HttpSession, notification: JSON) -> None:
        method, params = notification["method"], as_object(notification.get("params"))
        named = None if params is None else params.get("requestId")
        is_cancelling = method == "notifications/cancelled"
        open_request = http_session.open_requests.get(str(named)) if is_cancelling else None
        if is_cancelling and open_request is None and self._shared is not None:
            self._shared.cancelled(http_session.session, str(named))
        if open_request is not None and open_request.call is not None:
            _cancel(open_request)
        elif method == "notifications/initialized":
            http_session.session.is_open = True
        await _reply(exchange.send, 202, b"", http_session)

    # -- a request

    async def _request(self, exchange: Exchange, http_session: HttpSession, request: JSON) -> None:
        # Compared as text: the notification that cancels 7 may name "7".
        name = str(request["id"])
        if name in http_session.open_requests and not await _is_free(http_session, name):
            refusal = error_message(-32600, _ID_IS_OPEN.format(request["id"]), request["id"])
            await send_whole(exchange.send, 400, refusal)
            return
        open_request = http_session.open_requests[name] = OpenRequest()
        session = http_session.session
        is_wish = self._shared is not None and request["method"] in _WISHES
        before = Wishes(session.level, set(session.uris)) if is_wish else None
        try:
            principal = http_session.caller_in_session(exchange.principal)
            dispatched = self._ready and self._ready.recognise_earlier(request, principal, http_session.era)
            dispatched = dispatched or self._dispatcher.dispatch(request, http_session.era, principal)
            if isinstance(dispatched, Answer):
                await _reply(exchange.send, 200, dispatched.message(json_bytes(request["id"])), http_session)
            elif dispatched.outlet is None:
                await _reply(exchange.send, 200, (await dispatched.work).message(dispatched.request_id), http_session)
            else:
                await self._call(exchange, dispatched, dispatched.outlet, http_session, open_request)
            if self._shared is not None and before is not None:
                self._shared.wished(session, before)
        finally:
            del http_session.open_requests[name]
            if open_request.answered is not None:
                open_request.answered.set()

    async def _call(
        self,
        exchange: Exchange,
        dispatched: Stream,
        outlet: MessageOutlet,
        http_session: HttpSession,
        open_request: OpenRequest,
    ) -> None:
        """Answer a call. The call continues if its client disconnects; the client may come back for the answer."""
        is_primed = exchange.headers.by_name.get(b"mcp-protocol-version", b"") >= _PRIMED_SINCE
        stream = SessionStream(http_session.streams, exchange.send, is_primed=is_primed)
        outlet.write, outlet.end_stream = stream.message, stream.end_connection
        begun = first_step(dispatched.work)
        try:
            done = await _finished(begun, stream, open_request) if isinstance(begun, Begun) else begun
        except BaseException:
            # The connection fails with the request, and a client that resumes its stream would wait for ever.
            if stream.is_open:
                await stream.end(error_answer(_FAILED).message(dispatched.request_id))
            raise
        if stream.is_open:
            await stream.end(done.message(dispatched.request_id))
        else:
            stream.is_ended = True
            await _reply(exchange.send, 200, done.message(dispatched.request_id), http_session)

    # -- streams

    async def _follow(self, exchange: Exchange, http_session: HttpSession) -> None:
        streams, last = http_session.streams, exchange.headers.by_name.get(b"last-event-id", b"").decode("latin-1")
        worker = other_keeper_of(last, self._sessions.worker)
        if worker is not None and await self._follow_elsewhere(exchange, http_session, worker, last):
            return
        stream = streams.stream_of(last) if last else streams.own
        if stream is None:
            stream = SessionStream(streams, None, is_primed=False)
            # Nothing follows an event that is no longer kept.
            stream.is_ended = bool(last)
            streams.own = streams.own if last else stream
        elif not last and stream.is_attached:
            refusal = error_message(-32600, "Conflict: Only one SSE stream is allowed per session")
            await _reply(exchange.send, 409, refusal, http_session)
            return
        await stream.resume(exchange.send, last)
        if stream.is_attached:
            watch = partial(self._gateway.watch, exchange.principal)
            await stream.hold(exchange.receive, http_session.session, watch=watch)

    async def _follow_elsewhere(self, exchange: Exchange, http_session: HttpSession, worker: str, last: str) -> bool:
        """Let a client continue a stream of another worker; `False` if that worker and so the stream is gone."""
        if self._shared is not None:
            return await self._shared.follow_there(worker, http_session.session, last, exchange.receive, exchange.send)
        text = f"Another worker keeps this stream. {NO_BUS}"
        await send_whole(exchange.send, 503, error_message(-32603, text), _IN_A_SECOND)
        return True

    async def _follow_from_elsewhere(self, session: Session, last: str, receive: Receive, send: Send) -> None:
        http_session = self._http_sessions.get(session)
        if http_session is not None:
            headers = RequestHeaders([], {b"last-event-id": last.encode("latin-1", "replace")})
            with session:
                await self._follow(Exchange({}, receive, send, http_session.principal, headers), http_session)

    def _cancel_named(self, session: Session, name: str) -> None:
        http_session = self._http_sessions.get(session)
        open_request = None if http_session is None else http_session.open_requests.get(name)
        if open_request is not None:
            _cancel(open_request)


async def _finished(begun: Begun, stream: SessionStream, open_request: OpenRequest) -> Answer:
    """Return the answer to a call that takes a while."""
    open_request.call = task = asyncio.current_task()
    assert task is not None
    warming: list[asyncio.Task[None]] = []
    timer = asyncio.get_running_loop().call_later(
        WATCHED_AFTER_S, lambda: warming.append(asyncio.create_task(_keep_warm(stream)))
    )
    try:
        return await begun
    except asyncio.CancelledError:
        if not (open_request.is_cancelled and task.uncancel() == 0):
            raise
        return error_answer(_CANCELLED)
    finally:
        open_request.call = None
        timer.cancel()
        for warmer in warming:
            warmer.cancel()


async def _keep_warm(stream: SessionStream) -> None:
    await stream.open()
    while True:
        await asyncio.sleep(STREAM_PING_S)
        await stream.ping()


def _cancel(open_request: OpenRequest) -> None:
    if open_request.call is not None and not open_request.is_cancelled:
        open_request.is_cancelled = True
        open_request.call.cancel()


async def _is_free(http_session: HttpSession, name: str) -> bool:
    """Tell whether a used request id becomes free: an answered request gets a moment to end its stream."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWERED_STREAM_S):
            while (open_request := http_session.open_requests.get(name)) is not None:
                open_request.answered = open_request.answered or asyncio.Event()
                await open_request.answered.wait()
    return name not in http_session.open_requests


async def _no_session(exchange: Exchange) -> None:
    """Refuse a request without a body that does not name one of its caller's sessions."""
    if exchange.headers.session is not None:
        await send_whole(exchange.send, 404, _not_found())
    elif exchange.scope["method"] == "GET" and not exchange.headers.accepts_events:
        await send_whole(exchange.send, 406, error_message(INVALID_REQUEST, _NO_EVENTS))
    else:
        await send_whole(exchange.send, 400, error_message(INVALID_REQUEST, _NO_SESSION))


def _malformed(message: JSON | None) -> bytes:
    if message is not None and is_unanswerable(message):
        return error_message(INVALID_REQUEST, NO_ID)
    return error_message(INVALID_PARAMS, "Validation error: the body is not a JSON-RPC 2.0 message.")


def _not_found() -> bytes:
    return error_message(-32600, "Session not found")


def _reply(send: Send, status: int, body: bytes, http_session: HttpSession) -> Awaitable[None]:
    return send_whole(send, status, body, http_session.headers)
