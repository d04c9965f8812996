"""SessionStreams: the recent messages of a session, so that a disconnected client can resume."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from starlette.types import Receive, Send

from pegboard.server.mcp.event_streams import SSE_HEADERS, EventStream, OpenStream
from pegboard.server.mcp.limits import RECONNECT_MS, SESSION_BYTES, SESSION_MESSAGES

Watch = Callable[[Callable[[], None]], Callable[[], None]]
_NUMBER = re.compile(r"[0-9]{1,18}")
_LAST_WORDS = set[asyncio.Future[None]]()  # tasks; the event loop keeps weak references only
_PREFIX = "p"
"""The prefix of event ids; the name of the worker that keeps them follows if there are several."""


class StoredEvent(NamedTuple):
    """An event of one stream, as it was sent."""

    stream: SessionStream
    event: bytes


class SessionStreams:
    """The recent events of one session, limited in number and bytes, and the stream for messages without a request.

    Args:
        session_id: the session's id.
        worker: the name of the worker that keeps the events if there are several; part of the event ids.
    """

    def __init__(self, session_id: str, worker: str = "") -> None:
        self.session_id = session_id
        self._prefix = f"{_PREFIX}{worker}-" if worker else _PREFIX
        self._head = f"id: {self._prefix}".encode()
        self.own: SessionStream | None = None
        self.held: list[OpenStream] = []
        self.is_over = False
        self._events: dict[int, StoredEvent] = {}
        self._next = self._bytes = 0

    def end(self) -> None:
        """End the open connections of its streams, and refuse new ones."""
        self.is_over = True
        for held in self.held:
            held.let_go()

    def keep(self, stream: SessionStream, head: bytes, data: bytes) -> bytes:
        """Return an event with a new id, and keep it for clients that lose it."""
        self._next += 1
        event = b"%b%d\r\n%bdata: %b\r\n\r\n" % (self._head, self._next, head, data)
        self._events[self._next] = StoredEvent(stream, event)
        self._bytes += len(event)
        while len(self._events) > SESSION_MESSAGES or (self._bytes > SESSION_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.pop(next(iter(self._events))).event)
        return event

    def stream_of(self, last_event_id: str) -> SessionStream | None:
        """Return the stream of an event; `None` if the event is no longer kept."""
        known = self._events.get(self._number(last_event_id))
        return None if known is None else known.stream

    def after(self, stream: SessionStream, last_event_id: str) -> list[tuple[str, bytes]]:
        """Return the messages of a stream after an event, each with its id."""
        number = self._number(last_event_id)
        return [
            (f"{self._prefix}{at}", kept.event)
            for at, kept in self._events.items()
            if at > number and kept.stream is stream
        ]

    def _number(self, event_id: str) -> int:
        digits = event_id.removeprefix(self._prefix)
        return int(digits) if _NUMBER.fullmatch(digits) and event_id.startswith(self._prefix) else 0


class SessionStream(EventStream):
    """The stream of one request of a session, or of the session itself.

    It outlives its connection: a client that reconnects continues where it was, and messages are kept meanwhile.
    `is_primed` streams start with an event, so that a client can resume from it.
    """

    def __init__(self, streams: SessionStreams, send: Send | None, *, is_primed: bool) -> None:
        super().__init__(_nowhere if send is None else send)
        self._streams, self._is_primed = streams, is_primed
        self.is_attached = send is not None
        self._held: OpenStream | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*SSE_HEADERS, (b"mcp-session-id", self._streams.session_id.encode())]

    def event(self, message: bytes) -> bytes:
        return self._streams.keep(self, b"event: message\r\n", message)

    async def open(self) -> None:
        """Start, so that a client that loses the connection from now on can resume."""
        if not self.is_open and not self.is_ended:
            self.is_open = True
            await self.send({"type": "http.response.start", "status": 200, "headers": self.headers()})
            if self._is_primed:
                await self.send({"type": "http.response.body", "body": self._priming(), "more_body": True})

    def _priming(self) -> bytes:
        return self._streams.keep(self, b"", b"").replace(
            b"\r\ndata: \r\n", b"\r\ndata: \r\nretry: %d\r\n" % RECONNECT_MS
        )

    async def end(self, message: bytes) -> None:
        send, event = self.send, self.event(message)
        # First: a client that reconnects from now on reads the kept messages.
        self.is_ended = True
        self.detach()
        await send({"type": "http.response.body", "body": event})

    async def end_connection(self) -> None:
        """End the connection, not the stream: the client fetches the rest later, if it can."""
        if self._is_primed and self.is_attached:
            await self.open()
            send = self.send
            self.detach()
            await send({"type": "http.response.body", "body": b""})

    def detach(self) -> None:
        """Stop sending to the current connection."""
        self.send, self.is_attached = _nowhere, False
        if self._held is not None:
            self._held.let_go()
            self._held = None

    async def resume(self, send: Send, last_event_id: str = "") -> None:
        """Continue on another connection, after the client's last event."""
        if self.is_attached:
            previous = self.send
            self.detach()
            await previous({"type": "http.response.body", "body": b""})
        await send({"type": "http.response.start", "status": 200, "headers": self.headers()})
        self.is_open = True
        # New messages may arrive while old ones are sent again.
        while last_event_id and (later := self._streams.after(self, last_event_id)):
            for _, event in later:
                await send({"type": "http.response.body", "body": event, "more_body": True})
            last_event_id = later[-1][0]
        if self.is_ended:
            await send({"type": "http.response.body", "body": b""})
            return
        self.send, self.is_attached = send, True
        if self._is_primed:
            await send({"type": "http.response.body", "body": self._priming(), "more_body": True})

    async def hold(self, receive: Receive, session: AbstractContextManager[None], *, watch: Watch) -> None:
        """Keep a connection open while the stream uses it, its client stays connected and the session exists.

        `session` stays entered as long. `watch` is called with a function that ends the connection once its credential
        expires, and returns a function that stops the watch. Returns at once if the server holds connections without
        a task.
        """
        send, saying = self.send, list[asyncio.Future[None]]()

        def over(has_left: bool) -> None:
            forget()
            self._streams.held.remove(held)
            session.__exit__(None, None, None)
            if self.send is send:
                self.detach()
                if not (self.is_ended or has_left):
                    saying.append(_say_soon(send({"type": "http.response.body", "body": b""})))

        held = self._held = OpenStream(self.ping, over)
        forget = watch(held.let_go)
        session.__enter__()
        self._streams.held.append(held)
        # It may have ended during the write.
        if self._streams.is_over:
            held.let_go()
        else:
            await held.begin(receive, send)
            # If a connection uses the task of its request, the answer must be complete before the task ends.
            await asyncio.gather(*saying, return_exceptions=True)


def _say_soon(saying: Awaitable[None]) -> asyncio.Future[None]:
    """Send the last message on a connection without waiting: its client may read it late."""
    task = asyncio.ensure_future(saying)
    _LAST_WORDS.add(task)
    task.add_done_callback(_LAST_WORDS.discard)
    return task


async def _nowhere(_message: object) -> None:
    """Do nothing: the default for a closed connection."""
