"""Postgres connection: a connection with limits on time and memory."""

from __future__ import annotations

import os
import select
import socket  # noqa: TID251  (the library has opened the connection already)
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from pegboard.model.bounds import KIB, MIB
from pegboard.model.error import CallError
from pegboard.sources.builtin.sql_statement import Query

POSTGRES_MESSAGE_BYTES = 16 * MIB  # bytes of one row or message
POSTGRES_GRACE_S = 0.5  # seconds past the deadline until a query that the server has not stopped is abandoned

_LOOK_S: Final = 0.1
# What a pipe has room for, whatever the system.
_PIECE_BYTES: Final = 32 * KIB  # bytes passed on at once, which fit into a pipe on any system
RV = TypeVar("RV")


class LimitedConnection(psycopg.Connection[Any]):
    """A connection for one query. psycopg alone would accept a row of any size, and wait for ever."""

    _relay: Relay | None = None

    @contextmanager
    def serving(self, query: Query) -> Generator[None]:
        """Apply the limits of this query to the connection, which is closed afterwards."""
        with ExitStack() as opened:
            self._relay = Relay(self.pgconn.socket, query, opened)
            yield
            self._relay.send_rest()

    def wait(self, gen: PQGen[RV], interval: float = _LOOK_S, timeout: float | None = None) -> RV:
        """Wait for one exchange with the server; psycopg calls this for each row.

        Raises:
            CallError: timeout; result_too_large.
        """
        relay = self._relay
        if relay is None:
            return super().wait(gen, interval, timeout)
        relay.held_bytes = 0
        try:
            state = next(gen)
            while True:
                state = gen.send(relay.ready(state))
        except StopIteration as stop:
            relay.send_rest()
            return stop.value
        except CallError:
            self.pgconn.finish()
            raise


class Relay:
    """Passes data between the server and psycopg, piece by piece, through a pipe.

    libpq reads for as long as the server sends; through the pipe it can read only one piece at once.
    """

    def __init__(self, library: int, query: Query, opened: ExitStack) -> None:
        self.held_bytes = 0
        self._query = query
        self._server = opened.enter_context(socket.socket(fileno=os.dup(library)))
        self._server.setblocking(False)
        self._inner, outer = socket.socketpair()
        opened.enter_context(self._inner).setblocking(False)
        with outer:
            outer.setblocking(False)
            os.dup2(outer.fileno(), library, inheritable=False)
        self._library = library
        self._outgoing = bytearray()

    def ready(self, state: Wait) -> Ready:
        """Wait until psycopg can continue, and return what it can do.

        Raises:
            CallError: timeout; result_too_large.
        """
        while True:
            self.send_rest()
            if state & Wait.W:
                return Ready.W
            if _polled(self._library, select.POLLIN, 0.0):
                return Ready.R
            if _polled(self._server.fileno(), select.POLLIN | (select.POLLOUT if self._outgoing else 0), _LOOK_S):
                self._receive()
            if time.monotonic() > self._query.until_s + POSTGRES_GRACE_S:
                raise self._query.too_slow()

    def send_rest(self) -> None:
        """Send psycopg's output to the server, as far as the server accepts it now."""
        with suppress(OSError):
            while piece := self._inner.recv(_PIECE_BYTES):
                self._outgoing += piece
        with suppress(OSError):
            while self._outgoing:
                del self._outgoing[: self._server.send(self._outgoing)]

    def _receive(self) -> None:
        try:
            piece = self._server.recv(_PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        self.held_bytes += len(piece)
        if self.held_bytes > POSTGRES_MESSAGE_BYTES:
            text = f"The query gives a value or message of more than {POSTGRES_MESSAGE_BYTES} bytes. Select less."
            raise CallError("result_too_large", text)
        if piece:
            self._inner.send(piece)
        else:
            self._inner.shutdown(socket.SHUT_WR)


def _polled(handle: int, events: int, wait_s: float) -> bool:
    poll = select.poll()
    poll.register(handle, events)
    return bool(poll.poll(wait_s * 1000))
