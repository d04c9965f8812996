"""PostgreSQL transport: the bus on a database, by LISTEN and NOTIFY. Needs `pegboard[postgres]`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pegboard.core.identifiers import new_id
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.server.bus import stop_if_cancelled
from pegboard.server.limits import BUS_AGAIN_S, BUS_PING_S, BUS_SOCKET_S

BUS_PART_CHARS = 7_800  # characters of a message on PostgreSQL, which accepts less than 8,000 bytes at once

log = logging.getLogger("pegboard.serve")
_PART = re.compile(r"(\w+) (\d+) (\d+) (.*)", re.DOTALL)
_LISTENERS = "select count(*) from pg_stat_activity where application_name like %s"


class PostgresTransport:
    """Implements `pegboard.server.bus.Transport`. It connects with the first message.

    Subscribers are counted by the names of connections, which the database lists: one per worker. A pooler that
    reassigns connections after each transaction (PgBouncer) does not work.

    Args:
        uri: `postgresql://…`; its user needs only the right to connect, no tables.
        key_prefix: separates this server's channels from others in the same database.

    Raises:
        DefinitionError: the URI is not valid.
    """

    def __init__(self, uri: str | Secret, *, key_prefix: str) -> None:
        self._uri, self._prefix = uri if isinstance(uri, Secret) else Secret(uri), key_prefix
        self._sender: Any = None
        try:
            conninfo_to_dict(self._uri.reveal())
        except psycopg.Error as error:
            raise DefinitionError(f"the URI of the bus cannot be used: {type(error).__name__}") from None

    async def listen(self, channels: Sequence[str], hear: Callable[[bytes], None], is_listening: asyncio.Event) -> None:
        """Receive messages until cancelled, and reconnect if the connection is lost; see `bus.Transport`."""
        is_away = False
        while True:
            try:
                async with await self._connected(f"{self._name()}/begins") as connection:
                    for channel in channels:
                        await connection.execute(f'listen "{self._channel(channel)}"')
                    # Its name lists its channels, so senders count it only now that it receives.
                    name = ":".join((self._name(), *(_digest(channel)[:12] for channel in channels)))
                    await connection.execute("select set_config('application_name', %s, false)", (name,))
                    stop_if_cancelled()
                    is_listening.set()
                    if is_away:
                        log.warning("The bus of the workers is back.")
                    is_away = False
                    await self._join_parts(connection, hear)
            except (psycopg.Error, OSError) as error:
                stop_if_cancelled()
                if not is_away:
                    # The text of a connection error may contain the server and its user.
                    text = "The bus of the workers is not reachable, so they are not connected: %s"
                    log.warning(text, type(error).__name__)
                is_away = True
                await asyncio.sleep(BUS_AGAIN_S)

    async def _join_parts(self, connection: Any, hear: Callable[[bytes], None]) -> None:
        """Join the parts of a message; parts of other messages may be in between."""
        parts: list[str] = []
        begun = ""
        while True:
            # Closed here, since it holds the lock of the connection until then.
            async with contextlib.aclosing(connection.notifies(timeout=BUS_PING_S)) as notices:
                async for notice in notices:
                    part = _PART.fullmatch(notice.payload)
                    # Anybody who may connect can send on this channel.
                    if part is None:
                        continue
                    message, number, count = part[1], int(part[2]), int(part[3])
                    if number == 0:
                        parts, begun = [], message
                    if message != begun or number != len(parts):
                        parts, begun = [], ""
                        continue
                    parts.append(part[4])
                    if len(parts) == count:
                        hear("".join(parts).encode())
                        parts, begun = [], ""
            # A long silent connection may be dead without notice.
            async with asyncio.timeout(BUS_SOCKET_S):
                await connection.execute("select 1")
            stop_if_cancelled()

    async def probe(self) -> None:
        """Connect and run one statement; see `core.ports.Probed`.

        Raises:
            ConnectionError: the database is away or does not answer.
        """
        try:
            async with await self._connected(f"{self._name()}/probes") as connection:
                await connection.execute("select 1")
        except (psycopg.Error, OSError) as error:
            raise ConnectionError(f"the bus did not answer ({type(error).__name__})") from error

    async def publish(self, channel: str, message: bytes) -> int:
        """Send a message; see `bus.Transport`.

        Raises:
            ConnectionError: the database is away or does not answer.
        """
        text, name = message.decode(), new_id()
        cut = [text[start : start + BUS_PART_CHARS] for start in range(0, max(len(text), 1), BUS_PART_CHARS)]
        parts = [(self._channel(channel), f"{name} {number} {len(cut)} {part}") for number, part in enumerate(cut)]
        try:
            async with asyncio.timeout(BUS_SOCKET_S):
                if self._sender is None:
                    self._sender = await self._connected(f"{self._name()}/sends")
                async with self._sender.transaction(), self._sender.cursor() as cursor:
                    await cursor.executemany("select pg_notify(%s, %s)", parts)
                    await cursor.execute(_LISTENERS, (f"{self._name()}:%{_digest(channel)[:12]}%",))
                    (count,) = await cursor.fetchone()
        except (psycopg.Error, OSError) as error:
            await self.close()
            raise ConnectionError(f"the bus did not answer ({type(error).__name__})") from None
        return int(count)

    async def close(self) -> None:
        """Close the connection."""
        sender, self._sender = self._sender, None
        if sender is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await sender.close()

    async def _connected(self, name: str) -> Any:
        return await psycopg.AsyncConnection.connect(
            self._uri.reveal(), autocommit=True, application_name=name, connect_timeout=_whole(BUS_SOCKET_S),
            keepalives_idle=_whole(BUS_PING_S),
        )  # fmt: skip

    def _name(self) -> str:
        return f"pegboard:{_digest(self._prefix)[:12]}"

    def _channel(self, channel: str) -> str:
        return f"pegboard_{_digest(f'{self._prefix}:{channel}')}"


def _digest(text: str) -> str:
    # Names in PostgreSQL have 63 bytes.
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _whole(seconds: float) -> int:
    return max(1, round(seconds))
