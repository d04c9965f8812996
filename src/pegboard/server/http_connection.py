"""HttpConnection: an HTTP connection that has a deadline and a size for its headers, and writes an answer in one go."""

from __future__ import annotations

import asyncio
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from pegboard.core.bounded_cache import BoundedCache
from pegboard.model.bounds import DEFAULT_BOUNDS, KIB
from pegboard.server.access_log import log_request
from pegboard.server.whole_answer import AnswerHeaders

REFUSAL_TOLD_S = 1.0  # between two lines on requests whose headers are refused
HEADER_BYTES = 128 * KIB  # of one request's headers
HEADERS = 256  # of one request: each costs more than its bytes
PIPELINED_REQUESTS = 32  # that one connection sends before the first of them is answered; it ends with the last
LINGER_S = 2.0  # for a client that still sends the body of a refused request to read the answer
TARGETS_REMEMBERED = 256  # addresses that were asked for
TARGET_BYTES = 256  # and are no longer than this

log = logging.getLogger("pegboard.serve")
_BAD_REQUEST = 400
_CHUNK_BYTES = 8  # what a chunk of one byte has around it, more or less
_COPIED_BYTES = 1 << 16  # an answer up to here is copied behind its headers
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_COMMON = (
    b"Accept Accept-Encoding Accept-Language Authorization Connection Content-Length Content-Type Host Mcp-Method "
    b"Mcp-Name Mcp-Protocol-Version Mcp-Session-Id Origin Sec-Fetch-Mode Traceparent User-Agent X-Forwarded-For "
    b"X-Forwarded-Host X-Forwarded-Proto"
)
_FRAMING = (b"content-length", b"transfer-encoding")
_NOT_HTTP = "Invalid HTTP request received."
_NAMES = {spelt: name.lower() for name in _COMMON.split() for spelt in (name, name.lower())}
"""The names of headers that most requests have, one value each for all of them."""


class _Target(NamedTuple):
    """What the first line of a request asks for; `host` where that is a whole URL."""

    path: str
    raw_path: bytes
    query: bytes
    host: bytes | None


_TARGETS = BoundedCache[bytes, _Target](max_entries=TARGETS_REMEMBERED)
"""What was asked for lately: most requests of a server are for one address."""


def _target_of(url: bytes) -> _Target:
    """Read the target of a request.

    Raises:
        HttpParserInvalidURLError: it is none.
    """
    parsed = httptools.parse_url(url)
    raw_path, host = parsed.path, None
    path = raw_path.decode("ascii")
    # There in a whole URL alone, whatever the types say.
    if parsed.host:
        name = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
        host = name + (b":%d" % parsed.port if parsed.port else b"")
    target = _Target(urllib.parse.unquote(path) if "%" in path else path, raw_path, parsed.query or b"", host)
    # What has a query is asked for once, as a rule.
    is_usual = not parsed.query and len(url) <= TARGET_BYTES
    return _TARGETS.remember(url, target) if is_usual else target


class WrittenTogether:
    """A transport that writes at once what is written in one go: uvicorn writes head and body of an answer apart.

    Each of the two would be a call of the system and a packet of its own. What nobody flushes goes out with the next
    turn of the loop.
    """

    __slots__ = ("_end", "_is_body_due", "_loop", "_transport", "_waiting", "is_ending")

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, is_body_due: Callable[[], bool]) -> None:
        self._transport, self._loop, self._is_body_due = transport, loop, is_body_due
        self._waiting: list[bytes] = []
        self._end: asyncio.TimerHandle | None = None
        self.is_ending = False
        """Whether nothing that comes counts any more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write with what else is written in this turn of the loop."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def write_now(self, *data: bytes) -> None:
        """Write, behind what waits."""
        if self._waiting:
            self._waiting += data
            self.flush()
        else:
            self._send(data)

    def flush(self) -> None:
        """Write what waits; nothing, where the client has gone in the meantime: uvloop would raise in the loop."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._send(waiting)

    def _send(self, parts: Sequence[bytes]) -> None:
        if self._transport.is_closing():
            return
        if sum(map(len, parts)) > _COPIED_BYTES:
            # Of a list of a thousand tools a copy takes longer than a second call of the system.
            self._transport.writelines(parts)
        else:
            self._transport.write(b"".join(parts))

    def is_closing(self) -> bool:
        """Tell whether nothing shall be written any more."""
        return self.is_ending or self._transport.is_closing()

    def close(self) -> None:
        """Write what waits, and close.

        Where the client still sends the body of a request that was refused, it may read the answer first: a socket
        that is closed with something unread in it takes back what the other side has not read yet.
        """
        self.flush()
        if self.is_ending or self._transport.is_closing() or not self._is_body_due():
            self._transport.close()
            return
        self.is_ending, self._end = True, self._loop.call_later(LINGER_S, self._transport.close)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()

    def ended(self) -> None:
        """Note that the connection is gone."""
        if self._end is not None:
            self._end.cancel()


class Signal:
    """What `asyncio.Event` is to uvicorn, without its queue: of a thousand connections few ever wait."""

    __slots__ = ("_event", "is_raised")

    def __init__(self, *, is_raised: bool = False) -> None:
        self._event: asyncio.Event | None = None
        self.is_raised = is_raised

    def set(self) -> None:
        """Raise it: nobody waits until it is cleared."""
        self.is_raised = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        """Have those wait who come from now on."""
        self.is_raised = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        """Wait until it is raised."""
        if not self.is_raised:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()


class Flow(FlowControl):
    """Uvicorn's flow control, with a signal that costs nothing until a client reads slowly."""

    __slots__ = ("_is_writable_event", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False
        self._is_writable_event: Any = Signal(is_raised=True)


class Cycle(RequestResponseCycle):
    """One request, and what an app sends its answer by: the `send` of ASGI, and ways that cost less than its messages.

    `whole` is for an answer that is ready, with headers of our own making: nobody looks again whether they are any.
    `hold` is for one that lasts: it needs no task.
    """

    __slots__ = (
        "_connection", "_on_left", "access_log", "access_logger", "chunked_encoding", "default_headers",
        "disconnected", "expected_content_length", "flow", "keep_alive", "logger", "message_event", "more_body",
        "on_response", "received", "response_complete", "response_started", "scope", "task", "transport",
        "waiting_for_100_continue",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, *, keep_alive: bool) -> None:
        self._connection = connection
        self.scope: Any = connection.scope
        self.transport, self.flow = connection.transport, connection.flow
        self.logger, self.access_logger, self.access_log = connection.logger, connection.access_logger, False
        self.default_headers = connection.server_state.default_headers
        self.message_event: Any = Signal()
        self.on_response = connection.on_response_complete
        self.keep_alive, self.waiting_for_100_continue = keep_alive, connection.expect_100_continue
        self.more_body, self.received = True, cast("bytes | bytearray", b"")
        self.disconnected = self.response_started = self.response_complete = False
        self.chunked_encoding, self.expected_content_length = None, 0
        self.task: asyncio.Task[None] | None = None
        self._on_left: Callable[[], None] | None = None

    async def run_asgi(self, app: Any) -> None:
        """Have the app answer. One that returns too early is told so in the log, and its client by a 500 or the end."""
        try:
            await app(self.scope, self.receive, self)
        except BaseException as error:  # boundary: as uvicorn has it, whatever an app raises ends its request alone
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            await self._fail()
        else:
            if not (self.response_complete or self.disconnected or self._on_left is not None):
                self.logger.error("ASGI callable returned without completing response.")
                await self._fail()
        finally:
            # A callback of the task would be one more turn of the loop for each request.
            if self.task is not None:
                self._connection.tasks.discard(self.task)
                self.task = None

    async def _fail(self) -> None:
        if self.response_started:
            self.transport.close()
        else:
            await self.send_500_response()

    def __call__(self, message: Any) -> Awaitable[None]:
        return self.send(message)

    async def receive(self) -> Any:
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(_CONTINUE)
            self.waiting_for_100_continue = False
        signal = self.message_event
        if not self.disconnected and not self.response_complete:
            if self.flow.read_paused:
                self.flow.resume_reading()
            if not signal.is_raised:
                await signal.wait()
            signal.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.received = self.received, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    def whole(self, status: int, headers: AnswerHeaders, body: bytes) -> bool:
        """Send a whole answer, its length said by us; `False` where it must go the ordinary way."""
        connection = self._connection
        if self.response_started or self.disconnected or not self.keep_alive or self.flow.write_paused:
            return False
        head = b"%bcontent-length: %d\r\n%b\r\n" % (connection.head(status), len(body), headers.lines)
        self.waiting_for_100_continue = False
        self.response_started = self.response_complete = True
        connection.written.write_now(head, body)
        self.message_event.set()
        connection.on_response_complete()
        return True

    def hold(self, on_left: Callable[[], None]) -> bool:
        """Keep the answer open when the app has returned, until it is ended by a message; `False` where it is over.

        `on_left` is told when the client leaves before. Of the request nothing is kept: it may last for days.
        """
        if self.disconnected or self.response_complete:
            return False
        self._on_left = on_left
        self.scope = {"type": "http", "method": self.scope["method"]}
        self._connection.lighten(self.scope)
        return True

    def leave(self) -> None:
        """Note that the client has gone."""
        if not self.response_complete:
            self.disconnected = True
        self.message_event.set()
        if self._on_left is not None and self.disconnected:
            on_left, self._on_left = self._on_left, None
            on_left()


class HttpConnection(HttpToolsProtocol):
    """Closes connections that send their headers too slowly, or too many of them.

    What stands behind a body (trailers) is no header: a proxy in front looks at those before it alone, and would hand
    on what it takes out or writes itself there. Nor does it cost memory, as chunks and what stands in them do not.

    A client that offers another protocol (`Upgrade`) is answered in this one, body and all.

    Answers go out in the order of their requests. Of requests that come before their answers only so many are taken:
    the last of them is told to end the connection, and what follows is not read.
    """

    __slots__ = (
        "_answering", "_bytes_around_body", "_deadline", "_head_bytes", "_idle", "_idle_since", "_is_behind_head",
        "_is_deaf", "_is_in_head", "_queued", "written",
    )  # fmt: skip
    header_s: float = DEFAULT_BOUNDS.header_s
    _is_last = False
    # One for all connections of a server, made anew when the time of day in it changes.
    _heads_of: list[tuple[bytes, bytes]] | None = None
    _heads: dict[int, bytes] = {}  # noqa: RUF012 - replaced whole
    _told_refused_at = float("-inf")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.written: WrittenTogether
        self.pipeline = cast("Any", None)
        self._queued: tuple[Cycle, ...] = ()
        self._answering: Cycle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None
        self._head_bytes = self._bytes_around_body = 0
        self._is_in_head, self._is_deaf, self._is_behind_head = True, False, False

    def connection_made(self, transport: Any) -> None:
        self.written = WrittenTogether(transport, self.loop, self._is_body_due)
        super().connection_made(cast("Any", self.written))
        self.flow = Flow(self.written)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self.written.ended()
        super().connection_lost(exc)
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        # Uvicorn tells the newest request alone; the one that is answered may stand before it.
        waiting = self._queued if self._answering is None else (self._answering, *self._queued)
        self._answering, self._queued, self.cycle = None, (), cast("Any", None)
        for cycle in waiting:
            cycle.leave()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.written.is_ending:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        else:
            self._bytes_around_body += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.logger.warning(_NOT_HTTP)
            self.send_400_response(_NOT_HTTP)
            return
        if not self._is_in_head:
            if self._bytes_around_body > HEADER_BYTES:
                self.transport.close()
            return
        if self._head_bytes > HEADER_BYTES:
            self._tell_refused(f"headers of more than {HEADER_BYTES} bytes")
            self.send_400_response("The headers are too long.")
        elif self._deadline is None:
            self._expect_head()

    def _parse(self, data: bytes) -> None:
        """Feed the parser, which ends at the head of a request that offers another protocol, and leaves out its body.

        What comes next would be read as a request, though for a proxy in front it is a body: another parser goes on.
        """
        rest = memoryview(data)
        while not self._is_deaf:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as stopped:
                rest = rest[stopped.args[0] :]
                self.parser = self._parser_behind_head()
            else:
                return

    def _parser_behind_head(self) -> httptools.HttpRequestParser:
        """Return a parser that has read as much of this request: a head that says how long its body is, and no more."""
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        framing = [b"%b: %b\r\n" % header for header in self.headers if header[0] in _FRAMING]
        self._is_behind_head = True
        parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
        self._is_behind_head = False
        return parser

    # -- a request comes

    def on_message_begin(self) -> None:
        if self._is_behind_head:
            return
        if self._queued and not self._queued[-1].keep_alive:
            # The connection ends with that one, which was read to its end.
            self._is_deaf = True
            return
        self._is_in_head, self._head_bytes, self._bytes_around_body = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return
        if len(self.headers) >= HEADERS:
            # The parser ends with it, and the request is refused as any that is not HTTP.
            self._tell_refused(f"more than {HEADERS} headers")
            raise ValueError("too many headers")
        known = _NAMES.get(name)
        if known is None:
            known = name.lower()
            if known == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        self.headers.append((known, value))

    def on_headers_complete(self) -> None:
        if self._is_behind_head:
            return
        self._is_in_head = False
        if self._deadline is not None:
            self._forget_deadline()
        if self._is_deaf:
            return
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        target = _TARGETS.get(self.url) or _target_of(self.url)
        if target.host is not None:
            self._take_host(target.host)
        scope["path"] = self.root_path + target.path
        scope["raw_path"] = self.root_path.encode("ascii") + target.raw_path
        scope["query_string"] = target.query
        cycle = Cycle(self, keep_alive=version != "1.0" and parser.should_keep_alive())
        self.cycle = cycle
        if self._answering is None:
            self._start(cycle)
        else:
            self._queue(cycle)
        if self._is_last:
            self.end_after_this()

    def lighten(self, scope: Any) -> None:
        """Keep no more of the newest request than this, and no timer."""
        if not self._queued:
            self.scope, self.headers = scope, []
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _start(self, cycle: Cycle) -> None:
        self._answering = cycle
        cycle.task = self.loop.create_task(cycle.run_asgi(cast("Any", self).app))
        self.tasks.add(cycle.task)

    def _queue(self, cycle: Cycle) -> None:
        self._queued = (*self._queued, cycle)
        if len(self._queued) >= PIPELINED_REQUESTS:
            cycle.keep_alive = False

    def _take_host(self, host: bytes) -> None:
        """Have the host of a whole URL in the first line be judged: it counts before Host (RFC 9112, 3.2.2)."""
        self.headers[:] = [(b"host", host), *(each for each in self.headers if each[0] != b"host")]

    def on_body(self, body: bytes) -> None:
        self._bytes_around_body = max(self._bytes_around_body - _CHUNK_BYTES * len(body), 0)
        cycle: Any = self.cycle
        if self._is_deaf or cycle.response_complete:
            return
        # Most bodies come in one piece, which is handed on as it is.
        if not cycle.received:
            cycle.received = body
        else:
            if isinstance(cycle.received, bytes):
                cycle.received = bytearray(cycle.received)
            cycle.received += body
        if len(cycle.received) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._is_deaf:
            return
        if not self._is_behind_head and self.parser.should_upgrade():
            # Of the head alone.
            return
        cycle = self.cycle
        cycle.more_body = False
        if not cycle.response_complete:
            cycle.message_event.set()

    # -- its answer is over

    def on_response_complete(self) -> None:
        self.written.flush()
        self.server_state.total_requests += 1
        self._answering = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._queued:
            first, self._queued = self._queued[0], self._queued[1:]
            self._start(first)
            return
        self._idle_since = self.loop.time()
        if self._idle is None:
            self._idle = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _unset_keepalive_if_required(self) -> None:
        # The timer goes on, and finds that the connection was not idle: one for each answer would cost as much as
        # writing its headers.
        self._idle_since = None

    def _end_if_idle(self) -> None:
        self._idle, since = None, self._idle_since
        if since is None:
            return
        left_s = since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle = self.loop.call_later(left_s, self._end_if_idle)
        else:
            self.timeout_keep_alive_handler()

    def _is_body_due(self) -> bool:
        """Tell whether what comes is not read: the body of a request that is answered, or what follows the last."""
        cycle = cast("Cycle | None", self.cycle)
        return self._is_deaf or (cycle is not None and cycle.response_complete and cycle.more_body)

    def head(self, status: int) -> bytes:
        """Return how an answer with this status begins, with the headers that every answer has."""
        every = self.server_state.default_headers
        if self._heads_of is not every:
            kind = type(self)
            kind._heads_of, kind._heads = every, {}
        known = self._heads.get(status)
        if known is None:
            lines = b"".join([b"%b: %b\r\n" % header for header in every])
            known = self._heads[status] = STATUS_LINE[status] + lines
        return known

    @classmethod
    def end_each(cls) -> None:
        """Have every connection end with its next answer."""
        cls._is_last = True

    def end_after_this(self) -> None:
        """Tell the client, with the answer that is due, to come again by another connection."""
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False

    def send_400_response(self, msg: str) -> None:
        # It gets no further than this, so nobody else will log it.
        log_request(self.client, "-", "-", _BAD_REQUEST, 0.0)
        cycle = cast("Cycle | None", self.cycle)
        if self._answering is None or (cycle is self._answering and self._answering.more_body):
            super().send_400_response(msg)
            return
        # Its answer would pass for that of a request before it: those are answered, and the connection ends.
        self._is_deaf = True
        if self._queued and self._queued[-1].more_body:
            self._queued = self._queued[:-1]
        (self._queued or (self._answering,))[-1].keep_alive = False

    def _tell_refused(self, why: str) -> None:
        """Say why a request gets no further than its headers, now and then: who sends one such may send many."""
        now = self.loop.time()
        if now - HttpConnection._told_refused_at >= REFUSAL_TOLD_S:
            HttpConnection._told_refused_at = now
            log.info("request_refused: %s", why)

    def _expect_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self.header_s, self.transport.close)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
