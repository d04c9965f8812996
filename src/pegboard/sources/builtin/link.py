"""Link: a connection to PostgreSQL that takes in no more than it may, and waits no longer than it may."""

from __future__ import annotations

import fcntl
import struct
import termios
import time
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready

from pegboard.base.bounds import MIB
from pegboard.base.errors import CallError
from pegboard.sources.builtin.query import Query

# Of one row or message; what the system's own buffer holds may be counted twice.
_MAX_HELD_BYTES: Final = 16 * MIB
# The server stops the query at its deadline; one that is gone or hangs is left alone this much later.
_GRACE_S: Final = 0.5
_LOOK_S: Final = 0.1
RV = TypeVar("RV")


class Link(psycopg.Connection[Any]):
    """A connection that serves one query. Its library alone would hold a row of any size, and wait for ever."""

    _query: Query | None = None

    def serve(self, query: Query) -> None:
        """Hold what comes to the limits of this query."""
        self._query = query

    def wait(self, gen: PQGen[RV], interval: float = _LOOK_S, timeout: float | None = None) -> RV:
        """Do one thing with the server; psycopg asks for it, row by row.

        Raises:
            CallError: timeout; result_too_large.
        """
        watched = gen if self._query is None else self._watched(gen, self._query)
        return super().wait(watched, interval, timeout)

    def _watched(self, gen: PQGen[RV], query: Query) -> PQGen[RV]:
        held_bytes = 0
        try:
            state = next(gen)
            while True:
                ready = yield state
                if ready & Ready.R:
                    held_bytes += _waiting_bytes(self.pgconn.socket)
                if held_bytes > _MAX_HELD_BYTES:
                    self.pgconn.finish()
                    text = f"The query gives a value or message of more than {_MAX_HELD_BYTES} bytes. Select less."
                    raise CallError("result_too_large", text)
                if time.monotonic() > query.until_s + _GRACE_S:
                    self.pgconn.finish()
                    raise query.too_slow()
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def _waiting_bytes(socket: int) -> int:
    """Return how much has come in and is about to be read."""
    return struct.unpack("i", fcntl.ioctl(socket, termios.FIONREAD, struct.pack("i", 0)))[0]
