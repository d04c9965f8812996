"""Postgres conversations: the turns of sessions in a PostgreSQL that several machines share."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from math import ceil

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pegboard.agents.conversations import CONVERSATION_STORE_BUSY_S, SessionKey
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.sources.builtin.limits import POSTGRES_CONNECT_S

_MADE = "select 1 from pg_tables where tablename = 'pegboard_agent_turns' and schemaname = any(current_schemas(false))"
_LOCK = "select pg_advisory_xact_lock(7235140913)"  # a number of ours, for making the table
_TABLE = """
create table if not exists pegboard_agent_turns (
  id bigint generated always as identity primary key, agent text not null, user_id text not null,
  space_id text not null, session_id text not null, at timestamptz not null default now(), messages bytea not null
)
"""
_INDEX = (
    "create index if not exists pegboard_agent_turns_session "
    "on pegboard_agent_turns (agent, user_id, space_id, session_id, id)"
)
_OF_SESSION = "agent = %s and user_id = %s and space_id = %s and session_id = %s"
_SELECT = f"select messages from pegboard_agent_turns where {_OF_SESSION} order by id desc limit %s"  # noqa: S608 - constants
_INSERT = (
    "insert into pegboard_agent_turns (agent, user_id, space_id, session_id, messages) values (%s, %s, %s, %s, %s)"
)
_FORGET = (
    f"delete from pegboard_agent_turns where {_OF_SESSION} and id not in "  # noqa: S608 - constants
    f"(select id from pegboard_agent_turns where {_OF_SESSION} order by id desc limit %s)"
)


class PostgresConversations:
    """Keeps conversations in a PostgreSQL database; fills `ConversationStore`.

    It connects for each turn and holds nothing in between, so that forks and threads may share it.

    Args:
        uri: `postgresql://…`; its user must be able to make a table, or find it made.

    Raises:
        DefinitionError: the URI cannot be used.
    """

    def __init__(self, uri: str | Secret) -> None:
        self._uri, self._has_table = uri if isinstance(uri, Secret) else Secret(uri), False
        try:
            conninfo_to_dict(self._uri.reveal())
        except psycopg.Error as error:
            raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None

    async def turns(self, key: SessionKey, *, last: int) -> list[bytes]:
        return await asyncio.to_thread(self._turns, key, last)

    async def append(self, key: SessionKey, turn: bytes, *, keep: int) -> None:
        await asyncio.to_thread(self._append, key, turn, keep)

    def _turns(self, key: SessionKey, last: int) -> list[bytes]:
        with self._transaction() as connection:
            rows = connection.execute(_SELECT, (*_row(key), last)).fetchall()
        return [bytes(row[0]) for row in reversed(rows)]

    def _append(self, key: SessionKey, turn: bytes, keep: int) -> None:
        with self._transaction() as connection:
            connection.execute(_INSERT, (*_row(key), turn))
            connection.execute(_FORGET, (*_row(key), *_row(key), keep))

    @contextmanager
    def _transaction(self) -> Generator[psycopg.Connection]:
        patience = f"-c lock_timeout={ceil(CONVERSATION_STORE_BUSY_S * 1000)} -c statement_timeout=10000"
        try:
            with psycopg.connect(
                self._uri.reveal(), connect_timeout=POSTGRES_CONNECT_S, options=patience
            ) as connection:
                if not self._has_table and not connection.execute(_MADE).fetchone():
                    connection.execute(_LOCK)
                    connection.execute(_TABLE)
                    connection.execute(_INDEX)
                yield connection
            self._has_table = True
        except psycopg.Error as error:
            self._has_table = False
            # The text of an error of connecting may name the server and its user.
            raise ConnectionError(f"the store of conversations did not answer: {type(error).__name__}") from None


def _row(key: SessionKey) -> tuple[str, ...]:
    """Return a key as the database can hold it, which takes no NUL in a text; no two keys become one."""
    return tuple(part.replace("\\", "\\\\").replace("\0", "\\0") for part in key.row())
