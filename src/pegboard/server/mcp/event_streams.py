"""Event streams: stream a call's answer, ping meanwhile, and cancel the call if its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Send

from pegboard.core.coroutine_runner import Begun, first_step
from pegboard.server.limits import STREAM_PING_S
from pegboard.server.mcp.limits import WATCHED_AFTER_S
from pegboard.server.mcp.protocol.answers import Answer, Stream
from pegboard.server.whole_answer import send_whole

SSE_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_PING = b": ping\r\n\r\n"


async def answer(request: Stream, receive: Receive, send: Send) -> None:
    """Run a request and write its answer, unless the client leaves first."""
    if request.outlet is None:
        begun = first_step(request.work)
        if not isinstance(begun, Begun):
            await _write_whole(request.request_id, begun, send)
            return
        stream = EventStream(send)
    else:
        stream = EventStream(send)
        request.outlet.write = stream.message
        begun = first_step(request.work)
    if isinstance(begun, Begun):
        await _watched(request.request_id, begun, receive, stream)
    else:
        await _write(request.request_id, begun, stream)


async def _watched(request_id: bytes, work: Begun, receive: Receive, stream: EventStream) -> None:
    watcher = DisconnectWatcher(receive, stream)
    task = asyncio.current_task()
    assert task is not None
    timer = asyncio.get_running_loop().call_later(WATCHED_AFTER_S, watcher.start, task)
    try:
        done = await work
        timer.cancel()
        watcher.stop()
        await _write(request_id, done, stream)
    except asyncio.CancelledError:
        # Our own watcher cancelled us: the client is gone and nobody waits for an answer.
        if not (watcher.client_left and task.uncancel() == 0):
            raise
    finally:
        timer.cancel()
        watcher.stop()


async def _write(request_id: bytes, done: Answer, stream: EventStream) -> None:
    if stream.is_open:
        await stream.end(done.message(request_id))
    else:
        stream.is_ended = True
        await _write_whole(request_id, done, stream.send)


def _write_whole(request_id: bytes, done: Answer, send: Send) -> Awaitable[None]:
    return send_whole(send, done.status, done.message(request_id))


class EventStream:
    """The answer to one request as server-sent events, once there is a message to send before the result.

    Until then nothing is written, and the answer may be plain JSON with its own status. Messages after the end are
    dropped.
    """

    def __init__(self, send: Send) -> None:
        self.send = send
        self.is_open = self.is_ended = False

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the response headers."""
        return SSE_HEADERS

    def event(self, message: bytes) -> bytes:
        """Return a message as a server-sent event."""
        return b"event: message\r\ndata: %b\r\n\r\n" % message

    async def open(self) -> None:
        """Begin."""
        if not self.is_open and not self.is_ended:
            self.is_open = True
            await self.send({"type": "http.response.start", "status": 200, "headers": self.headers()})

    async def message(self, message: bytes) -> None:
        """Send a message before the answer."""
        if not self.is_ended:
            await self.open()
            await self.send({"type": "http.response.body", "body": self.event(message), "more_body": True})

    async def ping(self) -> None:
        """Send a comment that keeps proxies from closing the connection."""
        if not self.is_ended:
            await self.open()
            await self.send({"type": "http.response.body", "body": _PING, "more_body": True})

    async def end(self, message: bytes) -> None:
        """Send the answer and end the stream."""
        self.is_ended = True
        await self.send({"type": "http.response.body", "body": self.event(message)})


class DisconnectWatcher:
    """Cancels the task of a call when its client leaves, and sends pings until the call is done."""

    def __init__(self, receive: Receive, stream: EventStream) -> None:
        self._receive, self._stream = receive, stream
        self._tasks: list[asyncio.Task[None]] = []
        self.client_left = False

    def start(self, call: asyncio.Task[Any]) -> None:
        """Start watching `call`."""
        self._tasks = [asyncio.create_task(self._wait_for_leaving(call)), asyncio.create_task(self._ping())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _wait_for_leaving(self, call: asyncio.Task[Any]) -> None:
        await _client_leaves(self._receive)
        self.client_left = True
        call.cancel()

    async def _ping(self) -> None:
        await asyncio.sleep(STREAM_PING_S - WATCHED_AFTER_S)
        while True:
            await self._stream.ping()
            await asyncio.sleep(STREAM_PING_S)


class OpenStream:
    """A connection that is kept open for later messages until its client leaves or it is released.

    There can be thousands at a time. If the server supports it, no task is used: the app finishes the request and only
    the connection is held. Otherwise the task of its request is used.

    Args:
        ping: sends a comment.
        on_over: called once at the end, with whether the client has left.
    """

    __slots__ = ("_holder", "_is_over", "_on_over", "_ping", "_pinging", "_timer")

    def __init__(self, ping: Callable[[], Awaitable[None]], on_over: Callable[[bool], None]) -> None:
        self._ping, self._on_over = ping, on_over
        self._holder: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._is_over = False

    async def begin(self, receive: Receive, send: Send) -> None:
        """Hold the connection; returns at once if no task is used, otherwise when it ends."""
        hold: Callable[[Callable[[], None]], bool] | None = getattr(send, "hold", None)
        self._ping_later()
        if hold is not None:
            if not hold(self._client_left):
                self._client_left()
            return
        holder = self._holder = asyncio.current_task()
        assert holder is not None
        try:
            await _client_leaves(receive)
            self._client_left()
        except asyncio.CancelledError:
            # It was released, and only we want its task to end.
            if not (self._is_over and holder.uncancel() == 0):
                raise
        finally:
            self._holder = None
            self._end(has_left=True)

    def let_go(self) -> None:
        """End it."""
        self._end(has_left=False)

    def _client_left(self) -> None:
        self._end(has_left=True)

    def _end(self, *, has_left: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._pinging is not None:
            self._pinging.cancel()
        if self._holder is not None and not has_left:
            self._holder.cancel()
        on_over, self._on_over = self._on_over, _know
        on_over(has_left)

    def _ping_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(STREAM_PING_S, self._ping_now)

    def _ping_now(self) -> None:
        # One ping at a time: a client that does not read blocks the previous one.
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.ensure_future(self._pinged())
        self._ping_later()

    async def _pinged(self) -> None:
        try:
            await self._ping()
        except OSError:
            # The connection is gone; not every server wakes a pending receive.
            self._pinging = None
            self.let_go()


def _know(_has_left: bool) -> None:
    """Do nothing: replaces a callback that was already called."""


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
