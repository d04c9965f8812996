"""Database: the file, its tables, and connections that read or write it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np
import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] - it has none
from numpy.typing import NDArray

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.call.workers import WorkerPool
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.workspace.limits import DOCUMENT_STORE_BUSY_S, DOCUMENT_STORE_CONNECTIONS
from pegboard.workspace.store.connection import Connection, Dialect, Rows
from pegboard.workspace.store.document_tables import StoredTable
from pegboard.workspace.store.near import NearIndex
from pegboard.workspace.store.querying import DOCUMENT_STORE_READ_BUSY_S, Copy, cells_of, created
from pegboard.workspace.store.readable_spaces import ReadableSpaces

T = TypeVar("T")
_VERSION = 2
# `n` counts for ourselves alone: what callers are shown are the random ids.
_TABLES = """
create table settings (name text primary key, value text not null) strict, without rowid;
create table spaces (
    n integer primary key, name text not null unique, is_granted integer not null default 0,
    chunk_count integer not null default 0, term_total integer not null default 0
) strict;
create table grants (
    principal text not null, space_n integer not null references spaces on delete cascade, access text not null,
    primary key (principal, space_n)
) strict, without rowid;
create table sources (
    n integer primary key, id text not null unique, space_n integer not null references spaces on delete cascade,
    name text not null, type text not null, origin text not null, status text not null,
    created_at text not null, updated_at text not null, unique (space_n, name)
) strict;
create table documents (
    n integer primary key, id text not null unique, space_n integer not null,
    source_n integer not null references sources on delete cascade,
    folder text not null, name text not null, mime text not null, size_bytes integer not null, checksum text not null,
    char_count integer not null, metadata text not null, modified_at text, ingested_at text not null,
    error text not null, unique (source_n, folder, name)
) strict;
create index documents_of_space on documents (space_n, id);
create table texts (
    document_n integer primary key references documents on delete cascade, space_n integer not null, text text not null
) strict;
create table chunks (
    n integer primary key, space_n integer not null, document_n integer not null references documents on delete cascade,
    ordinal integer not null, start integer not null, "end" integer not null, term_count integer not null,
    terms text not null
) strict;
create index chunks_of_document on chunks (document_n, ordinal);
create index chunks_of_space on chunks (space_n);
create table postings (
    space_n integer not null, term text not null, chunk_n integer not null, count integer not null,
    length integer not null, primary key (space_n, term, chunk_n)
) strict, without rowid;
create table vectors (
    chunk_n integer primary key references chunks on delete cascade, space_n integer not null, vector blob
) strict;
create index vectors_of_space on vectors (space_n);
create table tables (
    n integer primary key, space_n integer not null, document_n integer not null references documents on delete cascade,
    name text not null, columns text not null, row_count integer not null, unique (space_n, name)
) strict;
create index tables_of_document on tables (document_n);
create table table_rows (
    table_n integer not null references tables on delete cascade, space_n integer not null, ordinal integer not null,
    cells text not null, primary key (table_n, ordinal)
) strict, without rowid;
"""
_DIALECT = Dialect(
    first_name="substr({path}, 1, instr({path} || '/', '/') - 1)",
    has_metadata="exists (select 1 from json_each(documents.metadata) as told"
    " where told.key = ? and told.value is json_extract(?, '$[0]'))",
    lock="",
    # Of rows of length 1; a passage of which the embedder knows nothing has none.
    # A passage of which the embedder knows nothing has none, which sqlite-vec refuses to read.
    likeness="case when vectors.vector is null then 0.0 "
    "else 1.0 - pow(vec_distance_l2(vectors.vector, {vector}), 2) / 2 end",
    vector_value="?",
)


class SqliteConnection:
    """A connection of apsw, with what the statements of the store need; see `store.connection`."""

    def __init__(self, path: Path) -> None:
        # Without types: apsw's own leave what rows hold unknown.
        self.raw: Any = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)

    @property
    def dialect(self) -> Dialect:
        """The words of SQLite."""
        return _DIALECT

    def execute(self, statement: str, bindings: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        return self.raw.execute(statement, bindings)

    def scan(self, statement: str, bindings: Sequence[Any] = (), /) -> Iterator[Any]:
        """Yield the rows of a statement, which are read as they are asked for."""
        return self.raw.execute(statement, bindings)

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /) -> None:
        """Insert many rows."""
        marks = ",".join("?" * len(columns))
        self.raw.executemany(f"insert into {table} ({','.join(columns)}) values ({marks})", rows)  # noqa: S608 - names of ours

    def next_numbers(self, table: str, count: int, /) -> Sequence[int]:
        """Return the numbers behind the last one: there is one writer at a time."""
        last: Any = self.execute(f"select coalesce(max(n), 0) from {table}").fetchone()  # noqa: S608 - names of ours
        return range(int(last[0]) + 1, int(last[0]) + 1 + count)

    def as_vector(self, vector: NDArray[np.float32], /) -> bytes | None:
        """Return a vector as sqlite-vec reads it; one of zeros is none."""
        return vector.astype(np.float32).tobytes() if vector.any() else None


class SqliteDatabase:
    """The file with the documents of all spaces. It is made with its first use, for its owner alone.

    Readers see what was committed when they began, also while somebody writes; writers wait for each other, those of
    other processes too. Work is done in threads of its own, of which one caller never has all; a cancelled caller's is
    interrupted. Forked processes open connections of their own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._workers = WorkerPool(name="pegboard-documents")
        self._idle: list[SqliteConnection] = []
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the connections, which are the parent's."""
        leave_to_parent(self._idle)
        self._idle, self._lock = [], threading.Lock()

    async def read(self, work: Callable[[Connection], T], *, caller: Hashable, scope: DocumentScope | None = None) -> T:
        """Run work that only reads, on one state of the database; the statements themselves keep to the scope.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return await self._run(lambda current: self._reading(work, current), caller)

    async def write(self, work: Callable[[Connection], T], *, caller: Hashable) -> T:
        """Run work that changes something, all of it or nothing.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return await self._run(lambda current: self._writing(work, current), caller)

    async def _run(self, work: Callable[[_Current], T], caller: Hashable) -> T:
        current = _Current()
        try:
            return await self._workers.run(lambda: work(current), caller=caller)
        except asyncio.CancelledError:
            current.stop()
            raise

    def _reading(self, work: Callable[[Connection], T], current: _Current) -> T:
        with _explained(), self._connection() as db, current.interruptible(db), _transaction(db, "begin"):
            db.raw.set_busy_timeout(int(DOCUMENT_STORE_READ_BUSY_S * 1000))
            return work(db)

    def _writing(self, work: Callable[[Connection], T], current: _Current) -> T:
        with _explained(), self._connection() as db, current.interruptible(db):
            db.raw.set_busy_timeout(int(DOCUMENT_STORE_BUSY_S * 1000))
            with _transaction(db, "begin immediate"):
                return work(db)

    @contextmanager
    def _connection(self) -> Generator[SqliteConnection]:
        with self._lock:
            db = self._idle.pop() if self._idle else None
        if db is None:
            db = self._opened()
        is_sound = False
        try:
            yield db
            is_sound = True
        except CallError:
            # A refusal of ours; what the database itself failed at may go on failing.
            is_sound = not db.raw.in_transaction
            raise
        finally:
            self._give_back(db, is_sound=is_sound)

    def _give_back(self, db: SqliteConnection, *, is_sound: bool) -> None:
        with self._lock:
            if is_sound and len(self._idle) < DOCUMENT_STORE_CONNECTIONS:
                self._idle.append(db)
                return
        db.raw.close()

    def _opened(self) -> SqliteConnection:
        if not self.path.exists():
            with suppress(FileExistsError):
                # Before SQLite makes it: the documents of all spaces are for nobody else on this machine.
                self.path.touch(mode=0o600, exist_ok=False)
        db = SqliteConnection(self.path)
        db.raw.set_busy_timeout(int(DOCUMENT_STORE_BUSY_S * 1000))
        for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = on", "recursive_triggers = on"):
            db.execute(f"pragma {pragma}")
        db.raw.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        self._prepare(db)
        db.raw.enable_load_extension(True)
        db.raw.load_extension(sqlite_vec.loadable_path())
        db.raw.enable_load_extension(False)
        return db

    def _prepare(self, db: SqliteConnection) -> None:
        if db.raw.pragma("user_version") == 0:
            with _transaction(db, "begin immediate"):
                # Somebody else may have been first.
                if db.raw.pragma("user_version") == 0:
                    db.execute(_TABLES)
                    db.execute(f"pragma user_version = {_VERSION}")
        version = db.raw.pragma("user_version")
        if version != _VERSION:
            text = f"The documents in {self.path.name!r} were stored by another version of Pegboard ({version})."
            raise CallError("storage_unavailable", f"{text} The operator must ingest them into a new file.")

    async def index_vectors(self) -> list[NearIndex]:
        """Return nothing: all passages of a scope are compared."""
        return []

    def copying(self, db: Connection, within: ReadableSpaces) -> Copy:
        """Return what copies tables of a scope into another database: the engine does it, from the file."""

        def copy(own: Any, tables: Sequence[StoredTable], left_s: Callable[[], float]) -> None:
            own.execute("attach ? as stored", (str(self.path),))
            own.execute("begin")
            for table in tables:
                # By its name and space as well: the number may have been given to another table meanwhile.
                own.execute(
                    f"{created(own, table)} select {cells_of(table, 'cells')} from stored.table_rows "  # noqa: S608 - names that are quoted
                    f"where table_n = (select n from stored.tables as known where n = ? and name = ? and "
                    f"document_n = ? and {within.of('known')}) order by ordinal",
                    (table.n, table.name, table.document_n),
                )
            own.execute("commit")
            own.execute("detach stored")

        return copy

    def close(self) -> None:
        """Close the connections that nobody uses; later work opens others."""
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.raw.close()


class _Current:
    """The connection that one piece of work is using, so that it can be told to stop."""

    def __init__(self) -> None:
        self._db: SqliteConnection | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @contextmanager
    def interruptible(self, db: SqliteConnection) -> Generator[None]:
        with self._lock:
            if self._is_stopped:
                raise apsw.InterruptError("interrupted")
            self._db = db
        try:
            yield
        finally:
            with self._lock:
                self._db = None

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._db is not None:
                self._db.raw.interrupt()


@contextmanager
def _transaction(db: SqliteConnection, begin: str) -> Generator[None]:
    db.execute(begin)
    try:
        yield
    except BaseException:
        if db.raw.in_transaction:
            db.execute("rollback")
        raise
    db.execute("commit")


@contextmanager
def _explained() -> Generator[None]:
    """Turn what SQLite says into what the caller can do; its own words may hold what others have stored."""
    try:
        yield
    except apsw.BusyError:
        raise CallError("busy", "The documents are being written to. Try again in a moment.") from None
    except apsw.InterruptError:
        raise CallError("cancelled", "The question was cancelled.") from None
    except apsw.Error as error:
        text = "The document store cannot be used now. The operator must look at its file."
        raise CallError("storage_unavailable", text) from error
