"""Conversations: what was said in the sessions of agents, so that the next run goes on from there."""

from __future__ import annotations

import asyncio
import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from pegboard.model.error import DefinitionError

SESSIONS_REMEMBERED = 1_000  # conversations that a process without a store of them keeps
CONVERSATION_STORE_BUSY_S = 5.0  # how long another process may hold the store


class SessionKey(NamedTuple):
    """Whose conversation it is: nobody else's is ever read, whatever a session is called."""

    agent: str
    user: str | None
    space: str | None
    session: str

    def row(self) -> tuple[str, str, str, str]:
        """Return it for a table, where nobody and a user without a name differ too."""
        return self.agent, _column(self.user), _column(self.space), self.session


def _column(value: str | None) -> str:
    return "" if value is None else f"={value}"


class ConversationStore(Protocol):
    """Keeps the turns of sessions, each as the bytes that it was given."""

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        """Return the last turns of a session, the oldest first.

        Raises:
            ConnectionError: the store does not answer.
        """
        ...

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        """Add a turn, and forget all but the last `keep`, in one atomic step.

        Raises:
            ConnectionError: the store does not answer.
        """
        ...


class MemoryConversations:
    """Keeps the sessions of this process, the last used ones. For a server of one process, and for trying things."""

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


_TABLE = """
create table if not exists pegboard_agent_turns (
  id integer primary key, agent text not null, user_id text not null, space_id text not null, session_id text not null,
  at real not null, messages blob not null
)
"""
_INDEX = (
    "create index if not exists pegboard_agent_turns_session "
    "on pegboard_agent_turns (agent, user_id, space_id, session_id, id)"
)
_OF_SESSION = "agent = ? and user_id = ? and space_id = ? and session_id = ?"
_SELECT = f"select messages from pegboard_agent_turns where {_OF_SESSION} order by id desc limit ?"  # noqa: S608 - constants
_INSERT = (
    "insert into pegboard_agent_turns (agent, user_id, space_id, session_id, at, messages) values (?, ?, ?, ?, ?, ?)"
)
_FORGET = (
    f"delete from pegboard_agent_turns where {_OF_SESSION} and id not in "  # noqa: S608 - constants
    f"(select id from pegboard_agent_turns where {_OF_SESSION} order by id desc limit ?)"
)


class SqliteConversations:
    """Keeps conversations in an SQLite file on a local disk, which the workers of one machine share.

    It opens the file for each turn and holds nothing in between, so that forks and threads may share it.

    Raises:
        DefinitionError: its folder does not exist.
    """

    def __init__(self, path: Path, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, wall_clock
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        return await asyncio.to_thread(self._turns, key, last)

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        await asyncio.to_thread(self._append, key, turn, keep)

    def _turns(self, key: SessionKey, last: int) -> list[bytes]:
        try:
            with closing(self._connect()) as connection:
                rows = connection.execute(_SELECT, (*key.row(), last)).fetchall()
        except sqlite3.Error as error:
            raise ConnectionError(f"{str(self._path)!r}: {error}") from error
        return [row[0] for row in reversed(rows)]

    def _append(self, key: SessionKey, turn: bytes, keep: int) -> None:
        try:
            with closing(self._connect()) as connection, connection:
                connection.execute("begin immediate")
                connection.execute(_INSERT, (*key.row(), self._clock(), turn))
                connection.execute(_FORGET, (*key.row(), *key.row(), keep))
        except sqlite3.Error as error:
            raise ConnectionError(f"{str(self._path)!r}: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=CONVERSATION_STORE_BUSY_S)
        connection.execute(_TABLE)
        connection.execute(_INDEX)
        return connection
