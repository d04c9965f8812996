"""SessionStreams: what one session was sent, so that a client which lost its connection can take it up again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from starlette.types import Receive, Send

from pegboard.server.mcp.event_streams import SSE_HEADERS, EventStream, HeldConnection
from pegboard.server.mcp.limits import RECONNECT_MS, SESSION_BYTES, SESSION_MESSAGES

Watch = Callable[[Callable[[], None]], Callable[[], None]]
_NUMBER = re.compile(r"[0-9]{1,18}")
_LAST_WORDS = set[asyncio.Future[None]]()  # a task that nobody holds may be collected before its end
_PREFIX = "p"
"""The ids of events begin with it; the worker that keeps them follows, where there may be several."""


class KeptEvent(NamedTuple):
    """An event of one stream, as it went out."""

    stream: SessionStream
    event: bytes


class SessionStreams:
    """The latest events of one session, bounded in number and bytes, and the stream that belongs to no request.

    Args:
        session_id: the id of the session.
        worker: the name of the worker that keeps them, where there may be others; part of the ids of events.
    """

    def __init__(self, session_id: str, worker: str = "") -> None:
        self.session_id = session_id
        self._prefix = f"{_PREFIX}{worker}-" if worker else _PREFIX
        self._head = f"id: {self._prefix}".encode()
        self.own: SessionStream | None = None
        self.held: list[HeldConnection] = []
        self.is_over = False
        self._events: dict[int, KeptEvent] = {}
        self._next = self._bytes = 0

    def end(self) -> None:
        """End the connections that are kept open for its streams, and those that begin after."""
        self.is_over = True
        for held in self.held:
            held.let_go()

    def keep(self, stream: SessionStream, head: bytes, data: bytes) -> bytes:
        """Return an event with an id of its own, and keep it for those who lose it."""
        self._next += 1
        event = b"%b%d\r\n%bdata: %b\r\n\r\n" % (self._head, self._next, head, data)
        self._events[self._next] = KeptEvent(stream, event)
        self._bytes += len(event)
        while len(self._events) > SESSION_MESSAGES or (self._bytes > SESSION_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.pop(next(iter(self._events))).event)
        return event

    def stream_of(self, last_event_id: str) -> SessionStream | None:
        """Return the stream of an event; `None` when it is not kept any more."""
        known = self._events.get(self._number(last_event_id))
        return None if known is None else known.stream

    def after(self, stream: SessionStream, last_event_id: str) -> list[tuple[str, bytes]]:
        """Return what went out on a stream after an event, each with its id."""
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

    It outlives the connection that it goes out on: a client that comes back goes on where it was, and until then what
    is said is kept. `is_primed` streams begin with an event from which one can come back.
    """

    def __init__(self, streams: SessionStreams, send: Send | None, *, is_primed: bool) -> None:
        super().__init__(_nowhere if send is None else send)
        self._streams, self._is_primed = streams, is_primed
        self.is_attached = send is not None
        self._held: HeldConnection | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*SSE_HEADERS, (b"mcp-session-id", self._streams.session_id.encode())]

    def event(self, message: bytes) -> bytes:
        return self._streams.keep(self, b"event: message\r\n", message)

    async def open(self) -> None:
        """Begin, so that a client which loses the connection from now on can come back."""
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
        # First: who comes back from now on gets it from what is kept.
        self.is_ended = True
        self.detach()
        await send({"type": "http.response.body", "body": event})

    async def end_connection(self) -> None:
        """End the connection, not the stream: the client comes back for the rest, where it can."""
        if self._is_primed and self.is_attached:
            await self.open()
            send = self.send
            self.detach()
            await send({"type": "http.response.body", "body": b""})

    def detach(self) -> None:
        """Send nothing more to where it went until now."""
        self.send, self.is_attached = _nowhere, False
        if self._held is not None:
            self._held.let_go()
            self._held = None

    async def resume(self, send: Send, last_event_id: str = "") -> None:
        """Go on over another connection, from the client's last event on."""
        if self.is_attached:
            previous = self.send
            self.detach()
            await previous({"type": "http.response.body", "body": b""})
        await send({"type": "http.response.start", "status": 200, "headers": self.headers()})
        self.is_open = True
        # While something is sent again, more may be said.
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
        """Keep a connection open for as long as the stream goes out on it, its client stays and the session lives.

        `session` is held for that time. `watch` is given the function that ends the connection with its credential, and
        returns the one to call when it is over. Where the server holds connections without a task, it returns at once.
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

        held = self._held = HeldConnection(self.ping, over)
        forget = watch(held.let_go)
        session.__enter__()
        self._streams.held.append(held)
        # It may have ended while the connection was written to.
        if self._streams.is_over:
            held.let_go()
        else:
            await held.begin(receive, send)
            # Where a connection takes the task of its request, the answer must be complete before that ends.
            await asyncio.gather(*saying, return_exceptions=True)


def _say_soon(saying: Awaitable[None]) -> asyncio.Future[None]:
    """Say the last word on a connection, whenever its client reads it."""
    task = asyncio.ensure_future(saying)
    _LAST_WORDS.add(task)
    task.add_done_callback(_LAST_WORDS.discard)
    return task


async def _nowhere(_message: object) -> None:
    """Stand for a connection that is gone."""
