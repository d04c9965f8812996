"""Awaited statement: one statement that an event loop sends to a PostgreSQL server, without a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pegboard.lazy import LazyModule
from pegboard.storage.idle_connections import IdleConnections

if TYPE_CHECKING:
    import psycopg
    from psycopg import errors, generators, waiting
else:
    psycopg = LazyModule("psycopg")
    errors = LazyModule("psycopg.errors")
    generators = LazyModule("psycopg.generators")
    waiting = LazyModule("psycopg.waiting")

_NAME = b"pegboard_awaited"
_CLOSING_STATES = "57P"  # the server ends the connection; without any state it has done so already
_LOOK_S = 10.0  # seconds between two looks at a connection that has not become readable
_KEPT = 2  # connections, for loops that ask at the same time


class AwaitedStatement:
    """A prepared statement with its own connections. Without a cursor and a thread it costs a third of `execute`.

    The first question connects. A connection is closed if its question failed or was cancelled, and the next
    question connects again.

    Args:
        statement: the statement, with `$1` for its value.
        connect: opens a connection; called in a thread.
    """

    def __init__(self, statement: str, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._statement, self._connect = statement, connect
        self._idle = IdleConnections["psycopg.Connection[Any]"](keep=_KEPT)

    async def rows(self, value: str) -> list[tuple[str | None, ...]]:
        """Return the rows for a value, each cell as text.

        Raises:
            psycopg.Error: the server does not answer or refuses.
        """
        closings = self._idle.closings
        while (raw := self._idle.take()) is not None:
            try:
                return await self._asked(raw, value, closings)
            except psycopg.OperationalError as error:
                # Only a connection that the server has closed: a statement that was too slow would be so again.
                if error.sqlstate is not None and not error.sqlstate.startswith(_CLOSING_STATES):
                    raise
        return await self._asked(await asyncio.to_thread(self._prepared), value, closings)

    def _prepared(self) -> psycopg.Connection[Any]:
        raw = self._connect()
        result = raw.pgconn.prepare(_NAME, self._statement.encode())
        if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raw.close()
            raise errors.error_from_result(result)
        return raw

    async def _asked(self, raw: psycopg.Connection[Any], value: str, closings: int) -> list[tuple[str | None, ...]]:
        server, is_sound = raw.pgconn, False
        try:
            server.send_query_prepared(_NAME, [value.encode()])
            [result] = await waiting.wait_async(generators.execute(server), server.socket, _LOOK_S)
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise errors.error_from_result(result)
            is_sound = True
            cells = [
                [result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)
            ]
            return [tuple([None if cell is None else bytes(cell).decode() for cell in row]) for row in cells]
        finally:
            self._idle.give_back(raw, is_sound=is_sound, closings=closings)

    def close(self) -> None:
        """Close the connections; the next question connects again."""
        self._idle.close()
