"""HttpConnection: an HTTP/1.1 connection over httptools, which limits headers, pipelined requests and time."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import urllib.parse
from collections.abc import Callable
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import Any

import httptools

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.server.access_log import log_request
from pegboard.server.whole_answer import AnswerHeaders

HEADER_BYTES = 128 * 1024  # of one request's headers
AROUND_BODY_BYTES = 16 * 1024  # sizes and extensions of chunks, and trailers, beyond a few bytes for each byte of body
HEADERS = 256  # of one request: each costs more than its bytes
BODY_AHEAD_BYTES = 64 * 1024  # of a body that the app has not read, before reading pauses
PIPELINED_REQUESTS = 32  # that wait on one connection while another request is answered
# A connection without a request is kept longer than any usual client or proxy keeps it (httpx 5 s, nginx and the load
# balancers 60 s): if the server closed first, a request could meet a closed connection.
KEEP_ALIVE_S = 75
LINGER_S = 2.0  # for a client that still sends a refused request to read the answer
LINGER_BYTES = 64 * 1024 * 1024  # that it may send meanwhile; they are dropped
REFUSAL_TOLD_S = 1.0  # between two log lines about refused headers

log = logging.getLogger("pegboard.serve")
_CHUNK_BYTES = 8  # around a chunk of one byte, more or less
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FRAMING = (b"content-length", b"transfer-encoding")
_NOT_IN_NAMES = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = (204, 304)


class ServerState:
    """The connections of one server, the tasks that answer their requests, and what they share.

    A `Listener` makes it. Connections and tasks add and remove themselves until the last one is gone. Once `is_ending`
    is set, each answer ends its connection.

    Args:
        app: an ASGI app.
        header_s: how long a client may take for the headers of a request.
        idle_s: how long a connection without a request stays open.
        root_path: the path below which a proxy shows the server.
        on_count: called with the number of connections whenever it changes.
        errors: where errors of the app and invalid requests are logged.
    """

    def __init__(
        self,
        app: Any,
        *,
        header_s: float = DEFAULT_BOUNDS.header_s,
        idle_s: float = KEEP_ALIVE_S,
        root_path: str = "",
        on_count: Callable[[int], None] = lambda _: None,
        errors: logging.Logger = log,
    ) -> None:
        self.app, self.header_s, self.idle_s, self.root_path, self.errors = app, header_s, idle_s, root_path, errors
        self.connections, self.tasks = set[HttpConnection](), set[asyncio.Task[None]]()
        self.is_ending = False
        self._on_count = on_count
        self._is_empty: asyncio.Future[None] | None = None
        self._date, self._date_s = b"", 0

    def add(self, connection: HttpConnection) -> None:
        """Count a connection that was opened."""
        self.connections.add(connection)
        self._on_count(len(self.connections))

    def remove(self, connection: HttpConnection) -> None:
        """Forget a connection that was closed."""
        self.connections.discard(connection)
        self._on_count(len(self.connections))
        if self._is_empty is not None and not self.connections and not self._is_empty.done():
            self._is_empty.set_result(None)

    async def until_done(self) -> None:
        """Wait until the last connection is closed and the last task has ended."""
        if self.connections:
            self._is_empty = asyncio.get_running_loop().create_future()
            await self._is_empty
        if self.tasks:
            await asyncio.wait(self.tasks)

    def head(self, status: int) -> bytes:
        """Return the first lines of an answer: the status and the date."""
        now_s = int(time.time())
        if now_s != self._date_s:
            self._date_s, self._date = now_s, f"date: {formatdate(now_s, usegmt=True)}\r\n".encode()
        return _status_line(status) + self._date


class Exchange:
    """One request and its answer: ASGI's `receive`, its `send` (calling the exchange), and two faster ways to answer.

    `whole` sends a complete answer, whose headers are ours and are not checked again. `hold` keeps the answer open
    after the app has returned, so that a long stream needs no task.
    """

    __slots__ = (
        "_connection", "_expects_continue", "_has_news", "_is_chunked", "_is_head", "_left_bytes", "_on_left",
        "_waiter", "is_complete", "is_gone", "is_started", "keep_alive", "more_body", "received", "scope", "task",
    )  # fmt: skip

    def __init__(self, connection: HttpConnection, scope: Any, *, keep_alive: bool, expects_continue: bool) -> None:
        self._connection, self.scope, self._is_head = connection, scope, scope["method"] == "HEAD"
        self.keep_alive, self._expects_continue = keep_alive, expects_continue
        self.received, self.more_body = bytearray(), True
        self.is_started = self.is_complete = self.is_gone = False
        self._is_chunked, self._left_bytes = False, 0
        self._has_news, self._waiter = False, None
        self._on_left: Callable[[], None] | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: Any) -> None:
        """Let the app answer."""
        try:
            await app(self.scope, self.receive, self)
        except BaseException as error:  # noqa: BLE001 - boundary: an error of an app ends its request only
            self._connection.server.errors.error("The app failed to answer a request.", exc_info=error)
            await self._fail()
        else:
            if not (self.is_complete or self.is_gone or self._on_left is not None):
                self._connection.server.errors.error("The app returned without completing its answer.")
                await self._fail()
        finally:
            self._connection.forget(self)

    async def _fail(self) -> None:
        if self.is_started:
            self._connection.close()
            return
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"21"),
            (b"connection", b"close"),
        ]
        await self({"type": "http.response.start", "status": 500, "headers": headers})
        await self({"type": "http.response.body", "body": b"Internal Server Error"})

    # -- the request

    async def receive(self) -> Any:
        """Wait for the next part of the body, or for the end."""
        if self._expects_continue:
            self._expects_continue = False
            self._connection.write(_CONTINUE)
        if not (self.is_gone or self.is_complete):
            self._connection.read_on()
            if not self._has_news:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            self._has_news = False
        if self.is_gone or self.is_complete:
            return {"type": "http.disconnect"}
        body = bytes(self.received)
        self.received.clear()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def wake(self) -> None:
        """Let `receive` return."""
        self._has_news = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the answer

    async def __call__(self, message: Any) -> None:
        if not self.is_gone:
            await self._connection.until_writable()
        if self.is_gone:
            return
        expected = "http.response.body" if self.is_started else "http.response.start"
        if self.is_complete or message["type"] != expected:
            raise RuntimeError(f"Unexpected ASGI message {message['type']!r}.")
        if self.is_started:
            self._write_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._write_head(message["status"], message.get("headers", ()))

    def _write_head(self, status: int, headers: Any) -> None:
        lines, length, is_closing = [self._connection.server.head(status)], None, False
        for name, value in headers:
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise RuntimeError("Invalid HTTP header.")
            lower = name.lower()
            if lower == b"content-length":
                length = int(value)
            elif lower == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                is_closing = True
            if lower != b"transfer-encoding":
                lines.append(b"%b: %b\r\n" % (lower, value))
        if is_closing:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        self.is_started, self._expects_continue = True, False
        has_body = not self._is_head and status not in _WITHOUT_BODY
        self._is_chunked, self._left_bytes = has_body and length is None, (length or 0) if has_body else 0
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        self._connection.write(b"".join([*lines, b"\r\n"]))

    def _write_body(self, body: bytes, *, more: bool) -> None:
        if self._is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self._connection.write(chunk if more else chunk + b"0\r\n\r\n")
        elif not self._is_head:
            self._left_bytes -= len(body)
            if self._left_bytes < 0:
                raise RuntimeError("Response content longer than Content-Length")
            self._connection.write(body)
        if not more:
            if self._left_bytes:
                raise RuntimeError("Response content shorter than Content-Length")
            self._finish()

    def whole(self, status: int, headers: AnswerHeaders, body: bytes) -> bool:
        """Send a complete answer; `False` if it must be sent by messages."""
        if self.is_started or self.is_gone or not self.keep_alive or not self._connection.is_writable:
            return False
        head = b"%bcontent-length: %d\r\n%b\r\n" % (self._connection.server.head(status), len(body), headers.lines)
        self.is_started = True
        # One call of the system, and no copy of a long body.
        self._connection.write(head, body)
        self._finish()
        return True

    def _finish(self) -> None:
        self.is_complete = True
        self.wake()
        if not self.keep_alive:
            self._connection.close()
        self._connection.answered()

    def hold(self, on_left: Callable[[], None]) -> bool:
        """Keep the answer open when the app has returned, until a message ends it; `False` if it is over.

        `on_left` is called when the client leaves before. The request is forgotten: the answer may last for days.
        """
        if self.is_gone or self.is_complete:
            return False
        self._on_left, self.scope = on_left, None
        self._connection.forget_headers()
        return True

    def leave(self) -> None:
        """Note that the client has left."""
        if self.is_complete:
            return
        self.is_gone = True
        self.wake()
        if self._on_left is not None:
            self._on_left()


class HttpConnection(asyncio.Protocol):
    """Reads requests, answers them in their order, and closes when a client is too slow or sends too much.

    Trailers are not headers: a proxy checks and writes only the headers before the body. A request that offers another
    protocol (`Upgrade`) is answered in this one, and its body is not read as the next request.
    """

    __slots__ = (
        "_address", "_answering", "_bytes_around_body", "_closes_at", "_dropped_bytes", "_expects_continue",
        "_head_bytes", "_headers", "_is_behind_head", "_is_deaf", "_is_head_timed", "_is_in_head", "_is_lingering",
        "_is_paused", "_loop", "_newest", "_parser", "_scheme", "_timer", "_transport", "_url", "_waiting",
        "_writable", "client", "server",
    )  # fmt: skip
    _told_refused_at = float("-inf")

    def __init__(self, server: ServerState) -> None:
        self.server, self._loop = server, asyncio.get_running_loop()
        self._parser: Any = self._new_parser()
        self._answering: Exchange | None = None
        self._waiting: list[Exchange] = []
        self._newest: Exchange | None = None
        self._closes_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Event | None = None
        self._head_bytes = self._bytes_around_body = self._dropped_bytes = 0
        self._is_in_head, self._is_behind_head = True, False
        self._is_deaf = self._is_lingering = self._is_paused = False

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Requests behind one that asks to close are not answered, which is for us to say.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # -- the transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.server.add(self)
        self._is_head_timed = True
        self.client, self._address = _address(transport, "peername"), _address(transport, "sockname")
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._close_in(self.server.header_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        leaving = [self._answering, *self._waiting] if self._answering else []
        # The parser refers to the connection: without this, only the garbage collector would free the two.
        self._answering, self._newest, self._parser = None, None, None
        self._waiting.clear()
        for exchange in leaving:
            exchange.leave()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    @property
    def is_writable(self) -> bool:
        return self._writable is None

    async def until_writable(self) -> None:
        """Wait for a client that reads slowly."""
        if self._writable is not None:
            await self._writable.wait()

    def write(self, *data: bytes) -> None:
        if not (self._is_lingering or self._transport.is_closing()):
            self._transport.writelines(data)

    def close(self) -> None:
        """Close, once the client has had time to read the answer if it still sends."""
        newest = self._newest
        if self._is_deaf or (newest is not None and newest.is_complete and newest.more_body):
            self._linger()
        else:
            self._transport.close()

    def _linger(self) -> None:
        """End the answers, and drop what the client still sends until it closes, or has sent for too long or too much.

        Closing a socket with unread bytes in it resets the connection, and the client may lose the answer.
        """
        if self._is_lingering or self._transport.is_closing():
            self._transport.close()
            return
        self._is_lingering = True
        self._close_in(LINGER_S)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self.read_on()

    def shutdown(self) -> None:
        """Close after the answers that are due."""
        if self._newest is None or self._newest.is_complete:
            self.close()
        else:
            self._newest.keep_alive = False

    def abort(self) -> None:
        """Close at once, whatever has not been sent."""
        self._transport.abort()

    def end_after_this(self) -> None:
        """Close with the answer that is due; an idle connection stays open."""
        if self._newest is not None:
            self._newest.keep_alive = False

    def read_on(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()

    # -- time: one timer, which looks again when the time of closing has moved

    def _close_in(self, seconds: float) -> None:
        closes_at = self._closes_at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= closes_at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(closes_at, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._closes_at is not None:
            if self._closes_at <= self._loop.time():
                self._transport.close()
            else:
                self._timer = self._loop.call_at(self._closes_at, self._on_time)

    # -- bytes arrive

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > LINGER_BYTES:
                self._transport.close()
            return
        if self._is_deaf:
            return
        if self._is_in_head:
            self._head_bytes += len(data)
        else:
            self._bytes_around_body += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if not self._is_deaf:
                self.server.errors.warning("Invalid HTTP request received.")
                self._refuse("Invalid HTTP request received.")
            return
        if not self._is_in_head:
            if self._bytes_around_body > AROUND_BODY_BYTES:
                self._log_refusal(f"a body with more than {AROUND_BODY_BYTES} bytes around its chunks")
                self._refuse("The chunks of the body have too much around them.")
        elif self._head_bytes > HEADER_BYTES:
            self._log_refusal(f"headers of more than {HEADER_BYTES} bytes")
            self._refuse("The headers are too long.")
        elif not self._is_head_timed:
            self._is_head_timed = True
            self._close_in(self.server.header_s)

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self._parser.feed_data(rest)
            except httptools.HttpParserUpgrade as stopped:
                # The parser ends behind a head that offers another protocol. A new one continues with the body.
                rest = rest[stopped.args[0] :]
                self._parser = self._parser_behind_head()
            else:
                return

    def _parser_behind_head(self) -> httptools.HttpRequestParser:
        parser = self._new_parser()
        framing = [b"%b: %b\r\n" % header for header in self._headers if header[0] in _FRAMING]
        self._is_behind_head = True
        parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))
        self._is_behind_head = False
        return parser

    def _refuse(self, why: str) -> None:
        """Answer 400 and close, unless the client would take that for the answer to an earlier request.

        Answers to requests that arrived whole go out first, and then the connection closes without a 400.
        """
        # No app sees the request, so nobody else logs it.
        log_request(self.client, "-", "-", 400, 0.0)
        answering, newest = self._answering, self._newest
        if answering is not None and not (newest is answering and answering.more_body):
            self._is_deaf = True
            if self._waiting and self._waiting[-1].more_body:
                self._waiting.pop()
            (self._waiting or [answering])[-1].keep_alive = False
            return
        if answering is not None and answering.is_started:
            self._transport.abort()
            return
        is_answered = answering is None and newest is not None and newest.more_body
        if not is_answered:
            self.write(
                b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (self.server.head(400), len(why), why.encode())
            )
        if answering is not None:
            # Its app learns that no more of the body comes.
            answering.leave()
            self._answering = self._newest = None
        self._linger()

    def _log_refusal(self, why: str) -> None:
        """Log a refusal, but not each: a client that sends one such request may send many."""
        if self._loop.time() - HttpConnection._told_refused_at >= REFUSAL_TOLD_S:
            HttpConnection._told_refused_at = self._loop.time()
            log.info("request_refused: %s", why)

    # -- the parser reports

    def on_message_begin(self) -> None:
        if self._is_behind_head:
            return
        if self._newest is not None and not self._newest.is_complete and not self._newest.keep_alive:
            # The connection closes with that one. The error stops the parser.
            self._is_deaf = True
            raise ValueError("no more requests")
        self._is_in_head, self._head_bytes, self._bytes_around_body = True, 0, 0
        self._url, self._headers, self._expects_continue = b"", list[tuple[bytes, bytes]](), False

    def on_url(self, url: bytes) -> None:
        if not self._is_behind_head:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return
        if len(self._headers) >= HEADERS:
            self._log_refusal(f"more than {HEADERS} headers")
            raise ValueError("too many headers")
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._is_behind_head:
            return
        self._is_in_head, self._is_head_timed, self._closes_at = False, False, None
        parser, version = self._parser, self._parser.get_http_version()
        url, root_path = httptools.parse_url(self._url), self.server.root_path
        path = url.path.decode("ascii")
        if url.host:
            # The host of a whole URL counts before the header Host (RFC 9112, 3.2.2).
            host = (b"[%b]" if b":" in url.host else b"%b") % url.host + (b":%d" % url.port if url.port else b"")
            self._headers = [(b"host", host), *(each for each in self._headers if each[0] != b"host")]
        exchange = Exchange(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": version,
                "server": self._address,
                "client": self.client,
                "scheme": self._scheme,
                "method": parser.get_method().decode("ascii"),
                "root_path": root_path,
                "path": root_path + (urllib.parse.unquote(path) if "%" in path else path),
                "raw_path": root_path.encode("ascii") + url.path,
                "query_string": url.query or b"",
                "headers": self._headers,
            },
            keep_alive=version != "1.0" and parser.should_keep_alive() and not self.server.is_ending,
            expects_continue=self._expects_continue,
        )
        self._newest = exchange
        if self._answering is None:
            self._start(exchange)
            return
        self._waiting.append(exchange)
        if len(self._waiting) >= PIPELINED_REQUESTS:
            exchange.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._bytes_around_body = max(self._bytes_around_body - _CHUNK_BYTES * len(body), 0)
        exchange = self._newest
        if exchange is None or exchange.is_complete:
            return
        exchange.received += body
        if len(exchange.received) > BODY_AHEAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        exchange.wake()

    def on_message_complete(self) -> None:
        # With an offer of another protocol, this is the end of the head; its body follows.
        if self._newest is not None and (self._is_behind_head or not self._parser.should_upgrade()):
            self._newest.more_body = False
            self._newest.wake()

    # -- the app answers

    def _start(self, exchange: Exchange) -> None:
        self._answering = exchange
        exchange.task = self._loop.create_task(exchange.run(self.server.app))
        self.server.tasks.add(exchange.task)

    def forget(self, exchange: Exchange) -> None:
        """Forget the task of an exchange, which has ended; a callback of the task would take a turn of the loop."""
        self.server.tasks.discard(exchange.task)
        exchange.task = None

    def answered(self) -> None:
        """Go on with the next request, as the answer is complete."""
        self._answering = None
        if self._is_lingering or self._transport.is_closing():
            return
        self.read_on()
        if self._waiting:
            self._start(self._waiting.pop(0))
        elif not self._is_head_timed:
            self._close_in(self.server.idle_s)

    def forget_headers(self) -> None:
        self._headers = []


@cache
def _status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


def _address(transport: Any, name: str) -> tuple[str, int | None] | None:
    """Return one end of a connection, as ASGI has it."""
    found = transport.get_extra_info(name)
    if isinstance(found, str):
        return (found, None) if found and name == "sockname" else None
    return (str(found[0]), int(found[1])) if found else None
