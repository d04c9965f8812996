"""HttpConnection: an HTTP connection that has a deadline and a size for its headers, and writes an answer in one go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from pegboard.model.bounds import DEFAULT_BOUNDS, HEADER_BYTES, LINGER_S
from pegboard.server.access_log import log_request

_BAD_REQUEST = 400  # not a limit: a status of HTTP
_CHUNK_BYTES = 8  # not a limit: what a chunk of one byte has around it, more or less


class _Unread(list[tuple[bytes, bytes]]):
    """Where what stands behind a body goes: nobody reads it, so nothing of it is kept."""

    def append(self, header: tuple[bytes, bytes], /) -> None:
        pass


class WrittenTogether:
    """A transport that writes at once what is written in one go: uvicorn writes head and body of an answer apart.

    Each of the two would be a call of the system and a packet of its own. What nobody flushes goes out with the next
    turn of the loop.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop, is_body_due: Callable[[], bool]) -> None:
        self._transport, self._loop, self._is_body_due = transport, loop, is_body_due
        self._waiting: list[bytes] = []
        self._end: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write with what else is written in this turn of the loop."""
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def write_now(self, data: bytes) -> None:
        """Write, behind what waits."""
        self._waiting.append(data)
        self.flush()

    def flush(self) -> None:
        """Write what waits; nothing, where the client has gone in the meantime: uvloop would raise in the loop."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            if not self._transport.is_closing():
                self._transport.write(b"".join(waiting))

    @property
    def is_ending(self) -> bool:
        """Whether nothing that comes counts any more."""
        return self._end is not None

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
        self._end = self._loop.call_later(LINGER_S, self._transport.close)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()

    def ended(self) -> None:
        """Note that the connection is gone."""
        if self._end is not None:
            self._end.cancel()


class Sending:
    """What an app sends its answer by; one that is whole may go out without ASGI's messages, which cost more than it.

    `whole` is for headers of our own making: nobody looks again whether they are any.
    """

    __slots__ = ("_connection", "_cycle")

    def __init__(self, connection: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._connection, self._cycle = connection, cycle

    def __call__(self, message: Any) -> Awaitable[None]:
        return RequestResponseCycle.send(self._cycle, message)

    def whole(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer, its length said by us; `False` where it must go the ordinary way."""
        cycle, connection = self._cycle, self._connection
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or connection.flow.write_paused:
            return False
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        head = b"%bcontent-length: %d\r\n%b\r\n" % (connection.head(status), len(body), lines)
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        connection.written.write_now(head + body)
        cycle.message_event.set()
        cycle.on_response()
        return True


class HttpConnection(HttpToolsProtocol):
    """Closes connections that send their headers too slowly, or too many of them.

    What stands behind a body (trailers) is no header: a proxy in front looks at those before it alone, and would hand
    on what it takes out or writes itself there. Nor does it cost memory, as chunks and what stands in them do not.
    """

    header_s: float = DEFAULT_BOUNDS.header_s
    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _bytes_around_body = 0
    _is_in_head = True
    _is_last = False
    # One for all connections of a server, made anew when the time of day in it changes.
    _heads_of: list[tuple[bytes, bytes]] | None = None
    _heads: dict[int, bytes] = {}  # noqa: RUF012 - replaced whole

    def connection_made(self, transport: Any) -> None:
        self.written = WrittenTogether(transport, self.loop, self._is_body_due)
        super().connection_made(cast("Any", self.written))
        self._expect_head()

    def on_response_complete(self) -> None:
        self.written.flush()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        self.written.ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.written.is_ending:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        else:
            self._bytes_around_body += len(data)
        super().data_received(data)
        if not self._is_in_head:
            if self._bytes_around_body > HEADER_BYTES:
                self.transport.close()
            return
        if self._head_bytes > HEADER_BYTES:
            self.send_400_response("The headers are too long.")
        elif self._deadline is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes, self._bytes_around_body = True, 0, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._forget_deadline()
        if self.url[:1] != b"/":
            self._take_host_of_url()
        super().on_headers_complete()
        self.headers = _Unread()
        cycle: Any = self.cycle
        cycle.send = Sending(self, cycle)
        if self._is_last:
            self.end_after_this()

    def on_body(self, body: bytes) -> None:
        self._bytes_around_body = max(self._bytes_around_body - _CHUNK_BYTES * len(body), 0)
        super().on_body(body)

    def _take_host_of_url(self) -> None:
        """Have the host of a whole URL in the first line be judged: it counts before Host (RFC 9112, 3.2.2)."""
        url = httptools.parse_url(self.url)
        # Neither is there in every URL, whatever the types say.
        if url.host:
            port = b":%d" % url.port if url.port else b""
            host = b"[%b]" % url.host if b":" in url.host else url.host
            self.headers[:] = [(b"host", host + port), *(each for each in self.headers if each[0] != b"host")]

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        super().on_message_complete()
        cycle.more_body = False

    def _is_body_due(self) -> bool:
        """Tell whether a request is answered whose body is still to come."""
        cycle: Any = self.cycle
        return cycle is not None and cycle.response_complete and cycle.more_body

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
        super().send_400_response(msg)

    def _expect_head(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self.header_s, self.transport.close)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
