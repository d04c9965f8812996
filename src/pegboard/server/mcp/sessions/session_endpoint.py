"""SessionEndpoint: the revisions before 2026-07-28 over HTTP, which have sessions.

What most clients send is answered here. The rest is the SDK's: resources, prompts, completions, log levels, cursors,
and whatever is not in order. The SDK keeps a session of its own for it, opened when it is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from starlette.types import Message, Receive, Scope, Send

from pegboard.core.coroutine_runner import Begun, first_step
from pegboard.model.json_types import JSON, JSONValue
from pegboard.server.body_reader import replay
from pegboard.server.bus import NO_BUS, Bus
from pegboard.server.gateway import Gateway, RpcError
from pegboard.server.limits import STREAM_PING_S
from pegboard.server.mcp.asking.notifications import MessageOutlet
from pegboard.server.mcp.asking.unanswered_requests import worker_of
from pegboard.server.mcp.earlier_path import EarlierPath
from pegboard.server.mcp.fast_path import Answer, Plan, error_answer
from pegboard.server.mcp.headers import RequestHeaders
from pegboard.server.mcp.limits import WATCHED_AFTER_S
from pegboard.server.mcp.protocol.capabilities import initialization
from pegboard.server.mcp.protocol.jsonrpc import as_object, error_message, json_bytes
from pegboard.server.mcp.sdk_handlers import Principals
from pegboard.server.mcp.sdk_server import introduced
from pegboard.server.mcp.sessions.session_streams import SessionStream, SessionStreams
from pegboard.server.mcp.sessions.sessions import Session, Sessions
from pegboard.server.mcp.sessions.shared_sessions import SharedSessions, Wishes, other_keeper_of
from pegboard.server.principal import Principal
from pegboard.server.whole_answer import AnswerHeaders, answer_headers, send_whole

ANSWERED_STREAM_S = 1.0  # for a stream to end after its answer, before its id counts as still open
INITIALIZE_BYTES = 32_768  # of the first message of a session
SESSION_SWEEP_S = 60.0  # and between two looks for such sessions

ToSdk = Callable[[Scope, Receive, Send, Principal], Awaitable[None]]
_JSON = (b"content-type", b"application/json")
_IN_A_MINUTE, _IN_A_SECOND = (answer_headers(_JSON, (b"retry-after", wait_s)) for wait_s in (b"60", b"1"))
_PRIMED_SINCE = b"2025-11-25"
_CANCELLED = RpcError(-32800, "Request cancelled")
_ID_IS_OPEN = "A request with the id {!r:.100} is already open in this session. Give each request an id of its own."
_TOO_MANY = "This caller has as many sessions open as it may. End one with DELETE, or wait until an idle one ends."
_TOO_LONG = "An initialize of {} bytes is too long: {} is the most. What a client can do takes far less."
_NOT_REACHED = "Another worker asked, and cannot be reached at the moment. Send the answer again."
_RESPONSE = {"jsonrpc", "id", "result"}
_CLIENT: JSON = {"name": "client", "version": ""}
_INITIALIZED = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})


@dataclass(kw_only=True, slots=True, eq=False)
class OpenRequest:
    """A request of a session that has no answer yet; `call` is its task where it is one of ours."""

    roles: tuple[str, ...] = ()
    """Those of whoever sent it."""
    call: asyncio.Task[Any] | None = None
    is_cancelled: bool = False
    answered: asyncio.Event | None = None
    """Set with its answer, where somebody waits for that."""


@dataclass(kw_only=True, slots=True, eq=False)
class HttpSession:
    """What a session has over HTTP: its streams, its open requests, and the SDK's session for the rest.

    `principal` is who was the first here to name it.
    """

    session: Session
    principal: Principal
    streams: SessionStreams
    open_requests: dict[str, OpenRequest] = field(default_factory=dict[str, OpenRequest])
    headers: AnswerHeaders = field(init=False)
    """Those of every answer in it."""
    in_sdk: str | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: tuple[Principal, Principal] | None = None

    def __post_init__(self) -> None:
        self.headers = answer_headers(_JSON, (b"mcp-session-id", self.session.session_id.encode()))

    def whose(self, principal: Principal) -> Principal:
        """Return who asks as somebody in this session: the same as for the request before, as a rule."""
        if self._asking is None or (self._asking[0] is not principal and self._asking[0] != principal):
            self._asking = principal, principal.in_session(self.session.name)
        return self._asking[1]

    async def tell(self, message: JSON) -> None:
        """Send what belongs to no request, or keep it for a client that takes up its stream again."""
        if self.streams.own is not None:
            await self.streams.own.message(json_bytes(message))


class Exchange(NamedTuple):
    """One request over HTTP: its ASGI parts, who sent it, what its headers say, and its body where that was read."""

    scope: Scope
    receive: Receive
    send: Send
    principal: Principal
    headers: RequestHeaders
    body: bytes | None = None

    @property
    def unread(self) -> Receive:
        """What gives the body, once more where it was read."""
        return self.receive if self.body is None else replay(self.body, self.receive)


class SessionEndpoint:
    """Answers the requests of earlier revisions; made anew for each run of an app.

    Args:
        gateway: the catalog's answers.
        path: answers plain requests.
        sessions: the sessions of the server.
        to_sdk: has the SDK answer a request.
        bus: the way to the other workers, where there is one.
    """

    def __init__(
        self, gateway: Gateway, path: EarlierPath, sessions: Sessions, to_sdk: ToSdk, bus: Bus | None = None
    ) -> None:
        self._gateway, self._path, self._sessions, self._to_sdk = gateway, path, sessions, to_sdk
        self._http_sessions: dict[Session, HttpSession] = {}
        self._ending: set[asyncio.Task[None]] = set()
        sessions.on_forget = self._forget
        self._shared = (
            None
            if bus is None
            else SharedSessions(bus, sessions, follow=self._follow_from_elsewhere, cancel=self._cancel_named)
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Forget idle sessions for the time of the block, and end all streams at its end."""
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
        """End every stream that waits for something to be said; a server that shuts down would wait for them."""
        for http_session in self._http_sessions.values():
            http_session.streams.end()

    # -- one request

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request without a body."""
        http_session, method = self._find(exchange), exchange.scope["method"]
        if http_session is None:
            await self._to_sdk_or_nowhere(exchange)
            return
        with http_session.session:
            if method == "GET" and exchange.headers.accepts_events:
                await self._follow(exchange, http_session)
            elif method == "DELETE":
                self._sessions.end(http_session.session)
                if self._shared is not None:
                    self._shared.ended(http_session.session)
                await _reply(exchange.send, 200, b"", http_session)
            else:
                await self._by_sdk(exchange, http_session)

    async def post(self, exchange: Exchange, message: JSONValue) -> None:
        """Answer a message, which was read from the body."""
        request, http_session, length = as_object(message), self._find(exchange), len(exchange.body or b"")
        if length > INITIALIZE_BYTES and request is not None and request.get("method") == "initialize":
            text = _TOO_LONG.format(length, INITIALIZE_BYTES)
            await send_whole(exchange.send, 413, error_message(-32600, text))
            return
        if http_session is None:
            is_first = exchange.headers.session is None and request is not None
            if is_first and request is not None and request.get("method") == "initialize":
                await self._open(exchange, request)
            else:
                await self._to_sdk_or_nowhere(exchange)
            return
        with http_session.session:
            if request is None or not exchange.headers.accepts_both:
                await self._by_sdk(exchange, http_session)
            elif "method" not in request:
                await self._response(exchange, http_session, request)
            elif "id" not in request:
                await self._notification(exchange, http_session, request)
            else:
                await self._request(exchange, http_session, request)

    def _find(self, exchange: Exchange) -> HttpSession | None:
        named, principal = exchange.headers.session, exchange.principal
        if named is None:
            return None
        session = self._sessions.find(named, principal.owner)
        if session is not None:
            if self._sessions.worker:
                # Its `initialized` may have gone to another worker.
                session.is_open = True
            return self._http_sessions[session]
        session = self._sessions.reopen(named, principal)
        return None if session is None else self._known(session, principal)

    def _known(self, session: Session, principal: Principal) -> HttpSession:
        streams = SessionStreams(session.session_id, self._sessions.worker)
        opened = HttpSession(session=session, principal=principal, streams=streams)
        if self._shared is not None:
            self._shared.remembered(session)
        session.tell, self._http_sessions[session] = opened.tell, opened
        return opened

    async def _to_sdk_or_nowhere(self, exchange: Exchange) -> None:
        """Refuse a request of no session: of one that is not there as of another's; the SDK what names none."""
        if exchange.headers.session is None:
            await self._to_sdk(exchange.scope, exchange.unread, exchange.send, exchange.principal)
        else:
            await send_whole(exchange.send, 404, _not_found())

    # -- a session begins and ends

    async def _open(self, exchange: Exchange, request: JSON) -> None:
        client, principal = introduced(request) if exchange.headers.accepts_both else None, exchange.principal
        # Those who come together are let in one after the other: nothing is awaited in between.
        if self._sessions.is_full_for(principal.shares_as):
            await send_whole(exchange.send, 503, error_message(-32000, _TOO_MANY), _IN_A_MINUTE)
        elif not self._sessions.has_room():
            await send_whole(exchange.send, 503, error_message(-32603, "Too many open sessions"))
        elif client is None:
            await self._to_sdk(exchange.scope, exchange.unread, exchange.send, principal)
        else:
            opened = self._known(self._sessions.open(principal, client), principal)
            result = Answer((json_bytes(initialization(self._gateway, client.version)),))
            await _reply(exchange.send, 200, result.message(json_bytes(request["id"])), opened)

    def _forget(self, session: Session) -> None:
        http_session = self._http_sessions.pop(session)
        http_session.streams.end()
        for open_request in http_session.open_requests.values():
            _cancel(open_request)
        if http_session.in_sdk is not None:
            ending = asyncio.create_task(self._end_in_sdk(http_session.in_sdk, http_session.principal))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _end_in_sdk(self, in_sdk: str, principal: Principal) -> None:
        scope = _scope_of("DELETE", in_sdk)
        await self._to_sdk(scope, replay(b"", _receive_nothing), _send_to_nobody, principal)

    # -- what is no request

    async def _response(self, exchange: Exchange, http_session: HttpSession, response: JSON) -> None:
        # Who answers what nobody has asked is thanked as well; of its own questions the SDK knows.
        is_stray = http_session.in_sdk is None and response.keys() == _RESPONSE and response["jsonrpc"] == "2.0"
        roles = exchange.principal.identity.roles
        if http_session.session.questions.take(response, roles=roles):
            await _reply(exchange.send, 202, b"", http_session)
        elif worker_of(response.get("id")) not in (None, self._sessions.worker):
            await self._response_elsewhere(exchange, http_session, response)
        elif is_stray and type(response["id"]) in (int, str):
            await _reply(exchange.send, 202, b"", http_session)
        elif any(not set(roles).issuperset(one.roles) for one in http_session.open_requests.values()):
            # Which of them the SDK asked for is its own: an answer with fewer rights than one has is to none.
            await send_whole(exchange.send, 404, _not_found())
        else:
            await self._by_sdk(exchange, http_session)

    async def _response_elsewhere(self, exchange: Exchange, http_session: HttpSession, response: JSON) -> None:
        """Hand on the answer to a question that another worker asked."""
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
        elif http_session.in_sdk is not None or type(method) is not str or notification.get("jsonrpc") != "2.0":
            await self._by_sdk(exchange, http_session)
            return
        elif method == "notifications/initialized":
            http_session.session.is_open = True
        await _reply(exchange.send, 202, b"", http_session)

    # -- a request

    async def _request(self, exchange: Exchange, http_session: HttpSession, request: JSON) -> None:
        # By its text: the SDK takes 7 and "7" for one.
        name = str(request["id"])
        if name in http_session.open_requests and not await _is_free(http_session, name):
            refusal = error_message(-32600, _ID_IS_OPEN.format(request["id"]), request["id"])
            await send_whole(exchange.send, 400, refusal)
            return
        open_request = http_session.open_requests[name] = OpenRequest(roles=exchange.principal.identity.roles)
        try:
            # What says over which servers it came is the SDK's, as in a `_meta`.
            plan = None
            if exchange.headers.hops is None:
                plan = self._path.plan(request, http_session.whose(exchange.principal), http_session.session)
            if plan is None:
                # One that begins again says anew what it can do.
                client = introduced(request) if request["method"] == "initialize" else None
                if client is not None:
                    http_session.session.capabilities = client.capabilities
                wishes = Wishes(http_session.session.level, set(http_session.session.uris))
                await self._by_sdk(exchange, http_session)
                if self._shared is not None:
                    self._shared.wished(http_session.session, wishes)
            elif plan.outlet is None:
                await _reply(exchange.send, 200, (await plan.work).message(plan.request_id), http_session)
            else:
                await self._call(exchange, plan, plan.outlet, http_session, open_request)
        finally:
            del http_session.open_requests[name]
            if open_request.answered is not None:
                open_request.answered.set()

    async def _call(
        self,
        exchange: Exchange,
        plan: Plan,
        outlet: MessageOutlet,
        http_session: HttpSession,
        open_request: OpenRequest,
    ) -> None:
        """Answer a call. A client that leaves does not end it: it may come back for the answer."""
        is_primed = exchange.headers.by_name.get(b"mcp-protocol-version", b"") >= _PRIMED_SINCE
        stream = SessionStream(http_session.streams, exchange.send, is_primed=is_primed)
        outlet.write, outlet.end_stream = stream.message, stream.end_connection
        begun = first_step(plan.work)
        done = await _finished(begun, stream, open_request) if isinstance(begun, Begun) else begun
        if stream.is_open:
            await stream.end(done.message(plan.request_id))
        else:
            stream.is_ended = True
            await _reply(exchange.send, 200, done.message(plan.request_id), http_session)

    # -- streams

    async def _follow(self, exchange: Exchange, http_session: HttpSession) -> None:
        streams, last = http_session.streams, exchange.headers.by_name.get(b"last-event-id", b"").decode("latin-1")
        worker = other_keeper_of(last, self._sessions.worker)
        if worker is not None and await self._follow_elsewhere(exchange, http_session, worker, last):
            return
        if last and not streams.are_ours(last):
            await self._by_sdk(exchange, http_session)
            return
        stream = streams.stream_of(last) if last else streams.own
        if stream is None:
            stream = SessionStream(streams, None, is_primed=False)
            # Of an event that is not kept any more, nothing follows.
            stream.is_ended = bool(last)
            streams.own = streams.own if last else stream
        elif not last and stream.is_attached:
            refusal = error_message(-32600, "Conflict: Only one SSE stream is allowed per session")
            await _reply(exchange.send, 409, refusal, http_session)
            return
        await stream.resume(exchange.send, last)
        if stream.is_attached:
            await stream.hold(exchange.receive, http_session.session)

    async def _follow_elsewhere(self, exchange: Exchange, http_session: HttpSession, worker: str, last: str) -> bool:
        """Let a client go on with a stream of another worker; `False` where that is gone, and the stream with it."""
        if self._shared is not None:
            return await self._shared.follow_there(worker, http_session.session, last, exchange.receive, exchange.send)
        text = f"Another worker keeps this stream. {NO_BUS}"
        await send_whole(exchange.send, 503, error_message(-32603, text), _IN_A_SECOND)
        return True

    async def _follow_from_elsewhere(self, session: Session, last: str, receive: Receive, send: Send) -> None:
        http_session = self._http_sessions.get(session)
        if http_session is not None and http_session.streams.are_ours(last):
            headers = RequestHeaders([], {b"last-event-id": last.encode("latin-1", "replace")})
            with session:
                await self._follow(Exchange({}, receive, send, http_session.principal, headers), http_session)

    def _cancel_named(self, session: Session, name: str) -> None:
        http_session = self._http_sessions.get(session)
        open_request = None if http_session is None else http_session.open_requests.get(name)
        if open_request is not None:
            _cancel(open_request)

    # -- the rest is the SDK's

    async def _by_sdk(self, exchange: Exchange, http_session: HttpSession) -> None:
        async with http_session.opening:
            if http_session.in_sdk is None:
                http_session.in_sdk = await self._opened_in_sdk(exchange.principal, http_session)
        scope = exchange.scope
        scope["headers"] = _renamed(scope["headers"], http_session.in_sdk)
        scope[Principals.SESSION] = http_session.session

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _renamed(message["headers"], http_session.session.session_id)
            await exchange.send(message)

        await self._to_sdk(scope, exchange.unread, send, exchange.principal)

    async def _opened_in_sdk(self, principal: Principal, http_session: HttpSession) -> str:
        """Open a session of the SDK, which is told what the client has said."""
        response_headers: dict[bytes, bytes] = {}

        async def take_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                response_headers.update(message["headers"])

        async def post(body: bytes, in_sdk: str | None) -> None:
            scope = _scope_of("POST", in_sdk)
            scope[Principals.SESSION] = http_session.session
            await self._to_sdk(scope, replay(body, _receive_nothing), take_headers, principal)

        session = http_session.session
        params: JSON = {"protocolVersion": session.version, "capabilities": session.capabilities, "clientInfo": _CLIENT}
        await post(orjson.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}), None)
        in_sdk = response_headers[b"mcp-session-id"].decode()
        if http_session.session.is_open:
            await post(_INITIALIZED, in_sdk)
        return in_sdk


async def _finished(begun: Begun, stream: SessionStream, open_request: OpenRequest) -> Answer:
    """Return the answer of a call that takes a while."""
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
    """Tell whether an id that a request has becomes free: one that is answered gets a moment to end its stream."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWERED_STREAM_S):
            while (open_request := http_session.open_requests.get(name)) is not None:
                open_request.answered = open_request.answered or asyncio.Event()
                await open_request.answered.wait()
    return name not in http_session.open_requests


def _not_found() -> bytes:
    return error_message(-32600, "Session not found")


def _reply(send: Send, status: int, body: bytes, http_session: HttpSession) -> Awaitable[None]:
    return send_whole(send, status, body, http_session.headers)


def _renamed(headers: list[tuple[bytes, bytes]], session_id: str) -> list[tuple[bytes, bytes]]:
    """Return headers that name another session."""
    return [(name, session_id.encode() if name == b"mcp-session-id" else value) for name, value in headers]


def _scope_of(method: str, session_id: str | None) -> Scope:
    """Return the scope of a request of our own to the SDK."""
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    ]
    if session_id is not None:
        headers.append((b"mcp-session-id", session_id.encode()))
    scope: Scope = {"type": "http", "http_version": "1.1", "method": method, "path": "/mcp", "query_string": b""}
    return {**scope, "headers": headers}


async def _receive_nothing() -> Message:
    """Stand for a client that stays, and says nothing more."""
    await asyncio.Event().wait()
    raise AssertionError


async def _send_to_nobody(_message: Message) -> None:
    """Stand for a client that does not listen."""
