"""Conversations: stores the turns of agent sessions, which later runs continue."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from pegboard.storage.database import Database, database_of
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import Schema, StoreConnection, table_version
from pegboard.storage.store_uri import StoreUri

SESSIONS_REMEMBERED = 1_000  # conversations kept in a process without a store
CONVERSATION_STORE_BUSY_S = 5.0  # seconds to wait for another process that has locked the store


class SessionKey(NamedTuple):
    """The owner and name of a conversation; nobody else's is ever read, even under the same session name."""

    agent: str
    user: str | None
    space: str | None
    session: str

    def row(self) -> tuple[str, str, str, str]:
        """Return the key for a table, where no user differs from an empty user name."""
        return self.agent, _column(self.user), _column(self.space), self.session


def _column(value: str | None) -> str:
    return "" if value is None else f"={value}"


class ConversationStore(Protocol):
    """Stores the turns of sessions as bytes."""

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        """Return the last turns of a session, the oldest first.

        Raises:
            ConnectionError: the store does not respond.
        """
        ...

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        """Add a turn, and delete all but the last `keep`, in one atomic step.

        Raises:
            ConnectionError: the store does not respond.
        """
        ...


class MemoryConversations:
    """Keeps the most recently used sessions in memory. For a single process, and for experiments."""

    def __init__(self, *, max_sessions: int = SESSIONS_REMEMBERED) -> None:
        self._sessions: OrderedDict[SessionKey, tuple[bytes, ...]] = OrderedDict()
        self._max = max_sessions

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        return list(self._sessions.get(key, ())[-last:])

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        self._sessions[key] = (*self._sessions.get(key, ()), turn)[-keep:]
        self._sessions.move_to_end(key)
        while len(self._sessions) > self._max:
            self._sessions.popitem(last=False)


_INDEX = "create index pegboard_agent_turns_session on pegboard_agent_turns (agent, user_id, space_id, session_id, id);"
SCHEMA = Schema(
    name="conversations",
    sqlite=(
        f"""
create table pegboard_agent_turns (
  id integer primary key, agent text not null, user_id text not null, space_id text not null, session_id text not null,
  at real not null, messages blob not null
);
{_INDEX}
""",
    ),
    postgres=(
        f"""
create table pegboard_agent_turns (
  id bigint generated always as identity primary key, agent text not null, user_id text not null,
  space_id text not null, session_id text not null, at timestamptz not null default now(), messages bytea not null
);
{_INDEX}
""",
    ),
    tables=("pegboard_agent_turns",),
    unrecorded=table_version("pegboard_agent_turns"),
)
_OF_SESSION = "agent = :agent and user_id = :user and space_id = :space and session_id = :session"
_SELECT = f"select messages from pegboard_agent_turns where {_OF_SESSION} order by id desc limit :last"  # noqa: S608 - constants
_INSERT = (
    "insert into pegboard_agent_turns (agent, user_id, space_id, session_id, at, messages) "
    "values (:agent, :user, :space, :session, {at}, :turn)"
)
_FORGET = (
    f"delete from pegboard_agent_turns where {_OF_SESSION} and id not in "  # noqa: S608 - constants
    f"(select id from pegboard_agent_turns where {_OF_SESSION} order by id desc limit :keep)"
)


class SqlConversations:
    """Stores conversations in a database; implements `ConversationStore`.

    It connects for each operation and keeps nothing open, so forks and threads may share it.

    Args:
        database: the database with the tables of `SCHEMA`.
        wall_clock: seconds since 1970.

    Raises:
        DefinitionError: the location of the database is invalid.
    """

    def __init__(self, database: Database, *, wall_clock: Callable[[], float] = time.time) -> None:
        database.check_place()
        self._database, self._clock = database, wall_clock

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        def run() -> list[bytes]:
            with self._database.transaction() as connection:
                rows = connection(_SELECT, **_columns(key, connection), last=last)
            return [bytes(row[0]) for row in reversed(rows)]

        return await asyncio.to_thread(run)

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        def run() -> None:
            with self._database.transaction() as connection:
                at = ":now" if connection.is_sqlite else "to_timestamp(:now)"
                connection(_INSERT.format(at=at), **_columns(key, connection), now=self._clock(), turn=turn)
                connection(_FORGET, **_columns(key, connection), keep=keep)

        await asyncio.to_thread(run)


class SqliteConversations(SqlConversations):
    """Stores conversations in an SQLite file on a local disk, shared by the workers of one machine.

    Raises:
        DefinitionError: its folder does not exist, or other users may write the file.
    """

    def __init__(self, path: Path, *, wall_clock: Callable[[], float] = time.time) -> None:
        super().__init__(SqliteFile(path, SCHEMA, busy_s=CONVERSATION_STORE_BUSY_S), wall_clock=wall_clock)


def conversations_of(uri: StoreUri) -> SqlConversations:
    """Return the conversation store of a URI.

    Raises:
        DefinitionError: the URI or its location is invalid.
        ImportError: psycopg is not installed.
    """
    return SqlConversations(database_of(uri, SCHEMA, busy_s=CONVERSATION_STORE_BUSY_S))


def conversation_user(user: str, connection: StoreConnection) -> dict[str, str]:
    """Return the value of the column `user_id` for the conversations of a user, as the parameter `user_column`."""
    return {"user_column": _columns(SessionKey("", user, None, ""), connection)["user"]}


def _columns(key: SessionKey, connection: StoreConnection) -> dict[str, str]:
    row = key.row()
    if not connection.is_sqlite:
        # PostgreSQL accepts no NUL in texts; the escape keeps different keys different.
        row = tuple(part.replace("\\", "\\\\").replace("\0", "\\0") for part in row)
    return dict(zip(("agent", "user", "space", "session"), row, strict=True))
