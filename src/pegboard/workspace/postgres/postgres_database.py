"""PostgreSQL database: tables and connections for reads within a scope, and for writes.

Row-level security enforces scopes a second time: each transaction declares its spaces, and sees no rows of others. This
applies to every login but superusers.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import apsw
import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors
from psycopg.raw_cursor import RawServerCursor

from pegboard.core.call.handler_threads import WorkerPool
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.secret import Secret
from pegboard.storage.idle_connections import IdleConnections, StoppableWork, StoppedError
from pegboard.storage.limits import POSTGRES_CONNECT_S
from pegboard.storage.postgres_server import PostgresConnection as StoredConnection
from pegboard.storage.postgres_server import check_postgres_uri, open_postgres
from pegboard.storage.store_error import StoreError
from pegboard.workspace.document_schema import SCHEMA, SEARCH_PATH
from pegboard.workspace.limits import DOCUMENT_STORE_BUSY_S, DOCUMENT_STORE_CONNECTIONS
from pegboard.workspace.postgres.near_index import build_near_indexes, near_settings
from pegboard.workspace.store.connection import Connection, Dialect, Rows
from pegboard.workspace.store.document_tables import StoredTable
from pegboard.workspace.store.near import NearIndex
from pegboard.workspace.store.querying import Copy, cells_of, created
from pegboard.workspace.store.readable_spaces import ReadableSpaces

VECTOR_EXACT_PASSAGES = 20_000  # all passages of a space up to this number are compared; above, an index may be used

T = TypeVar("T")
log = logging.getLogger("pegboard")
_UNUSABLE = "The document store cannot be used now. The operator must look at its database."
_ROWS_AT_ONCE = 500  # rows of a long answer fetched at once, between two checks of the clock
_PLACEHOLDER = re.compile(r"\?(\d*)")
_ALL: Final = "select set_config('pegboard.spaces', 'all', true)"
_THESE: Final = """
select set_config(
    'pegboard.spaces', coalesce((select string_agg(n::text, ',') from spaces where name = any ($1)), ''), true
)
"""
# The types of columns in bulk inserts.
_TYPES: Final = {
    "n": "bigint", "space_n": "bigint", "document_n": "bigint", "chunk_n": "bigint", "table_n": "bigint",
    "ordinal": "integer", "start": "integer", '"end"': "integer", "term_count": "integer", "count": "integer",
    "length": "integer", "terms": "text", "term": "text", "cells": "text",
    "letters": "text", "language": "text", "context": "text",
}  # fmt: skip
_DIALECT: Final = Dialect(
    first_name="split_part({path}, '/', 1)",
    has_metadata="exists (select 1 from jsonb_each(cast(documents.metadata as jsonb)) as told (key, value)"
    " where told.key = ? and told.value = cast(? as jsonb) -> 0)",
    lock=" for update",
    # Rows have length 1; a passage unknown to the embedder has no vector.
    likeness="coalesce(-(vectors.vector <#> {vector}), 0.0)",
    vector_value="cast(? as vector)",
    near_settings="select " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in near_settings()),
)


@lru_cache(maxsize=512)  # our own statements, each compiled once
def _numbered(statement: str) -> str:
    """Return a statement with PostgreSQL's placeholders."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"${match[1] or count}"

    return _PLACEHOLDER.sub(number, statement)


class PostgresConnection:
    """A connection for the statements of the store; see `store.connection`."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    @property
    def dialect(self) -> Dialect:
        """PostgreSQL's dialect."""
        return _DIALECT

    def execute(self, statement: str, bindings: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        cursor = psycopg.RawCursor[Any](self.raw)
        return cursor.execute(cast("Any", _numbered(statement)), bindings)

    def scan(self, statement: str, bindings: Sequence[Any] = (), /) -> Iterator[Any]:
        """Yield the rows of a statement in batches."""
        with RawServerCursor[Any](self.raw, "scan") as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            yield from cursor.execute(cast("Any", _numbered(statement)), bindings)

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /) -> None:
        """Insert rows, many per statement."""
        arrays = ", ".join(f"?::{_TYPES[column]}[]" for column in columns)
        statement = f"insert into {table} ({', '.join(columns)}) select * from unnest({arrays})"  # noqa: S608 - names of ours
        batch: list[Sequence[Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == 20 * _ROWS_AT_ONCE:
                self.execute(statement, [list(column) for column in zip(*batch, strict=True)])
                batch = []
        if batch:
            self.execute(statement, [list(column) for column in zip(*batch, strict=True)])

    def next_numbers(self, table: str, count: int, /) -> Sequence[int]:
        """Return unique numbers."""
        numbers: list[Any] = self.execute(
            "select nextval(pg_get_serial_sequence(?, 'n')) from generate_series(1, ?)", (table, count)
        ).fetchall()
        return sorted(int(n) for (n,) in numbers)

    def as_vector(self, vector: NDArray[np.float32], /) -> str | None:
        """Return a vector in pgvector's form; `None` for zeros."""
        return f"[{','.join(map(repr, vector.tolist()))}]" if vector.any() else None

    def close(self) -> None:
        """Close it."""
        self.raw.close()


class PostgresDatabase:
    """The database with the documents of all spaces. Its tables are in their own schema, created on first use.

    Any number of processes and machines can share it. Work runs in separate threads, of which one caller never gets
    all; a cancelled caller's work is cancelled. Forked processes open their own connections.

    Args:
        uri: `postgresql://…`; its user can create a schema and the extension `vector`, or they exist.
        exact_passages: a search compares all passages of a space up to this number; above, it may use an index.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(self, uri: Secret, *, exact_passages: int = VECTOR_EXACT_PASSAGES) -> None:
        check_postgres_uri(uri)
        self._uri, self._exact_passages = uri, exact_passages
        self._workers = WorkerPool(name="pegboard-documents")
        self._idle = IdleConnections[PostgresConnection](keep=DOCUMENT_STORE_CONNECTIONS)

    async def read(self, work: Callable[[Connection], T], *, caller: Hashable, scope: DocumentScope | None = None) -> T:
        """Run read-only work on one snapshot of the database; it sees only rows in the scope.

        Raises:
            CallError: storage_unavailable; busy.
        """
        begin = "begin isolation level repeatable read read only"
        return await self._run(work, begin, caller, None if scope is None else scope.spaces)

    async def write(self, work: Callable[[Connection], T], *, caller: Hashable) -> T:
        """Run work that changes data, atomically.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return await self._run(work, "begin", caller, None)

    async def index_vectors(self) -> list[NearIndex]:
        """Build the missing indexes of large spaces; return those examined.

        Raises:
            CallError: storage_unavailable; busy.
        """

        def build() -> list[NearIndex]:
            with _explained():
                db = self._opened()
                try:
                    return list(build_near_indexes(db, exact_passages=self._exact_passages))
                finally:
                    db.raw.close()

        return await self._workers.run(build, caller=None)

    async def _run(
        self, work: Callable[[Connection], T], begin: str, caller: Hashable, spaces: tuple[str, ...] | None
    ) -> T:
        current = StoppableWork[PostgresConnection](_cancel)

        def run() -> T:
            with _explained(), self._transaction(begin, current) as db:
                if spaces is None:
                    db.execute(_ALL)
                else:
                    db.execute(_THESE, (list(spaces),))
                return work(db)

        try:
            return await self._workers.run(run, caller=caller)
        except asyncio.CancelledError:
            # It sends a request to the server, which must not block the event loop.
            threading.Thread(target=current.stop, name="pegboard-cancel", daemon=True).start()
            raise

    @contextmanager
    def _transaction(self, begin: str, current: StoppableWork[PostgresConnection]) -> Generator[PostgresConnection]:
        closings = self._idle.closings
        db = self._begun(begin)
        try:
            with current.on(db):
                yield db
            db.execute("commit")
        except BaseException:
            with suppress(psycopg.Error):
                db.execute("rollback")
            raise
        finally:
            is_idle = not db.raw.closed and db.raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            self._idle.give_back(db, is_sound=is_idle, closings=closings)

    def _begun(self, begin: str) -> PostgresConnection:
        """Return a connection in a transaction; one that the server has closed is replaced."""
        while (db := self._idle.take()) is not None:
            with suppress(psycopg.OperationalError):
                db.execute(begin)
                return db
            db.raw.close()
        db = self._opened()
        db.execute(begin)
        return db

    def _opened(self) -> PostgresConnection:
        raw = open_postgres(self._uri, busy_s=DOCUMENT_STORE_BUSY_S, search_path=SEARCH_PATH, autocommit=True)
        db = PostgresConnection(raw)
        try:
            with raw.transaction():
                SCHEMA.migrate(StoredConnection(raw))
        except BaseException:
            raw.close()
            raise
        return db

    def copying(self, db: Connection, within: ReadableSpaces) -> Copy:
        """Return the function that copies tables of a scope to an SQLite database, where all queries run."""

        def copy(own: Any, tables: Sequence[StoredTable], left_s: Callable[[], float]) -> None:
            own.execute("begin")
            for table in tables:
                rows = db.scan(
                    f"select cells from table_rows where table_n = ? and {within.of('table_rows')} order by ordinal",  # noqa: S608 - numbers of ours
                    (table.n,),
                )
                own.executemany(f"{created(own, table)} select {cells_of(table, '?1')}", _in_time(rows, left_s))
            own.execute("commit")

        return copy

    def close(self) -> None:
        """Close the idle connections; later work opens new ones."""
        self._idle.close()


def _in_time(rows: Iterator[Any], left_s: Callable[[], float]) -> Iterator[Any]:
    for count, row in enumerate(rows):
        if count % _ROWS_AT_ONCE == 0 and left_s() <= 0:
            raise apsw.InterruptError("too slow")
        yield row


def _cancel(db: PostgresConnection) -> None:
    with suppress(psycopg.Error):
        db.raw.cancel_safe(timeout=POSTGRES_CONNECT_S)


@contextmanager
def _explained() -> Generator[None]:
    """Convert PostgreSQL errors to messages for the caller; original texts may contain others' data."""
    try:
        yield
    except (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure):
        raise CallError("busy", "The documents are being written to. Try again in a moment.") from None
    except (errors.QueryCanceled, StoppedError):
        raise CallError("cancelled", "The question was cancelled.") from None
    except StoreError as error:
        log.warning("The document store cannot be used: %s", error)
        raise CallError("storage_unavailable", _UNUSABLE) from error
    except psycopg.Error as error:
        reason = _reason(error)
        log.warning("The document store cannot be used: %s", reason)
        text = (
            f"The document store cannot be used now ({type(error).__name__}). The operator must look at its database."
        )
        raise CallError("storage_unavailable", text) from StoreError(reason)


def _reason(error: psycopg.Error) -> str:
    """Return the reason of a failure for operators; the original text only for connection and server errors."""
    kind = type(error).__name__ if error.sqlstate is None else f"{type(error).__name__}, {error.sqlstate}"
    if not isinstance(error, psycopg.OperationalError):
        # These quote stored data.
        return kind
    return f"{kind}: {' '.join(str(error).split())}"
