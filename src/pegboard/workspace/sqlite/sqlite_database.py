"""Database: the file, its tables, and connections for reads and writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np
import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] - it has none
from numpy.typing import NDArray

from pegboard.core.call.handler_threads import WorkerPool
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.storage.idle_connections import IdleConnections, StoppableWork, StoppedError
from pegboard.storage.sqlite_file import open_sqlite, sqlite_fault
from pegboard.storage.store_error import StoreError
from pegboard.workspace.document_schema import SCHEMA
from pegboard.workspace.limits import DOCUMENT_STORE_BUSY_S, DOCUMENT_STORE_CONNECTIONS
from pegboard.workspace.store.connection import Connection, Dialect, Rows
from pegboard.workspace.store.document_tables import StoredTable
from pegboard.workspace.store.near import NearIndex
from pegboard.workspace.store.querying import DOCUMENT_STORE_READ_BUSY_S, Copy, cells_of, created
from pegboard.workspace.store.readable_spaces import ReadableSpaces

T = TypeVar("T")
log = logging.getLogger("pegboard")
_UNUSABLE = "The document store cannot be used now. The operator must look at its file."
_DIALECT = Dialect(
    first_name="substr({path}, 1, instr({path} || '/', '/') - 1)",
    has_metadata="exists (select 1 from json_each(documents.metadata) as told"
    " where told.key = ? and told.value is json_extract(?, '$[0]'))",
    lock="",
    # Rows have length 1. A passage unknown to the embedder has no vector, which sqlite-vec refuses to read.
    likeness="case when vectors.vector is null then 0.0 "
    "else 1.0 - pow(vec_distance_l2(vectors.vector, {vector}), 2) / 2 end",
    vector_value="?",
)


class SqliteConnection:
    """An apsw connection for the statements of the store; see `store.connection`."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def close(self) -> None:
        """Close it."""
        self.raw.close()

    @property
    def dialect(self) -> Dialect:
        """SQLite's dialect."""
        return _DIALECT

    def execute(self, statement: str, bindings: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""
        return self.raw.execute(statement, bindings)

    def scan(self, statement: str, bindings: Sequence[Any] = (), /) -> Iterator[Any]:
        """Yield the rows of a statement lazily."""
        return self.raw.execute(statement, bindings)

    def insert_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], /) -> None:
        """Insert many rows."""
        marks = ",".join("?" * len(columns))
        self.raw.executemany(f"insert into {table} ({','.join(columns)}) values ({marks})", rows)  # noqa: S608 - names of ours

    def next_numbers(self, table: str, count: int, /) -> Sequence[int]:
        """Return the numbers after the last one: there is only one writer at a time."""
        last: Any = self.execute(f"select coalesce(max(n), 0) from {table}").fetchone()  # noqa: S608 - names of ours
        return range(int(last[0]) + 1, int(last[0]) + 1 + count)

    def as_vector(self, vector: NDArray[np.float32], /) -> bytes | None:
        """Return a vector in sqlite-vec's form; `None` for zeros."""
        return vector.astype(np.float32).tobytes() if vector.any() else None


class SqliteDatabase:
    """The file with the documents of all spaces. Created on first use, readable by its owner only.

    Readers see the committed state at their start, even during writes; writers wait for each other across processes.
    Work runs in separate threads, of which one caller never gets all; a cancelled caller's work is interrupted. Forked
    processes open their own connections.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._workers = WorkerPool(name="pegboard-documents")
        self._idle = IdleConnections[SqliteConnection](keep=DOCUMENT_STORE_CONNECTIONS)

    async def read(self, work: Callable[[Connection], T], *, caller: Hashable, scope: DocumentScope | None = None) -> T:
        """Run read-only work on one snapshot of the database; the statements themselves restrict it to the scope.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return await self._run(lambda current: self._reading(work, current), caller)

    async def write(self, work: Callable[[Connection], T], *, caller: Hashable) -> T:
        """Run work that changes data, atomically.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return await self._run(lambda current: self._writing(work, current), caller)

    async def _run(self, work: Callable[[StoppableWork[SqliteConnection]], T], caller: Hashable) -> T:
        current = StoppableWork[SqliteConnection](lambda db: db.raw.interrupt())
        try:
            return await self._workers.run(lambda: work(current), caller=caller)
        except asyncio.CancelledError:
            current.stop()
            raise

    def _reading(self, work: Callable[[Connection], T], current: StoppableWork[SqliteConnection]) -> T:
        with _explained(self.path), self._connection() as db, current.on(db), _transaction(db, "begin"):
            db.raw.set_busy_timeout(int(DOCUMENT_STORE_READ_BUSY_S * 1000))
            return work(db)

    def _writing(self, work: Callable[[Connection], T], current: StoppableWork[SqliteConnection]) -> T:
        with _explained(self.path), self._connection() as db, current.on(db):
            db.raw.set_busy_timeout(int(DOCUMENT_STORE_BUSY_S * 1000))
            with _transaction(db, "begin immediate"):
                return work(db)

    @contextmanager
    def _connection(self) -> Generator[SqliteConnection]:
        closings = self._idle.closings
        db = self._idle.take() or self._opened()
        is_sound = False
        try:
            yield db
            is_sound = True
        except CallError:
            # Our own refusals leave the connection usable; a database error may persist.
            is_sound = not db.raw.in_transaction
            raise
        finally:
            self._idle.give_back(db, is_sound=is_sound, closings=closings)

    def _opened(self) -> SqliteConnection:
        opened = open_sqlite(self.path, busy_s=DOCUMENT_STORE_BUSY_S, is_wal=True)
        try:
            opened.script("pragma foreign_keys = on; pragma recursive_triggers = on")
            if not SCHEMA.is_current(opened):
                opened.script("begin immediate")
                SCHEMA.migrate(opened)
                opened.script("commit")
            opened.raw.enable_load_extension(True)
            opened.raw.load_extension(sqlite_vec.loadable_path())
            opened.raw.enable_load_extension(False)
        except BaseException:
            opened.close()
            raise
        return SqliteConnection(opened.raw)

    async def index_vectors(self) -> list[NearIndex]:
        """Return nothing: all passages of a scope are compared."""
        return []

    def copying(self, db: Connection, within: ReadableSpaces) -> Copy:
        """Return the function that copies tables of a scope to another database; SQLite copies them from the file."""

        def copy(own: Any, tables: Sequence[StoredTable], left_s: Callable[[], float]) -> None:
            own.execute("attach ? as stored", (str(self.path),))
            own.execute("begin")
            for table in tables:
                # Matched by name and space as well, since the number may belong to another table by now.
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
        """Close the idle connections; later work opens new ones."""
        self._idle.close()


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
def _explained(path: Path) -> Generator[None]:
    """Convert SQLite errors to messages for the caller; original texts may contain others' data and are logged."""
    try:
        yield
    except apsw.BusyError:
        raise CallError("busy", "The documents are being written to. Try again in a moment.") from None
    except (apsw.InterruptError, StoppedError):
        raise CallError("cancelled", "The question was cancelled.") from None
    except StoreError as error:
        log.warning("The document store cannot be used: %s", error)
        raise CallError("storage_unavailable", _UNUSABLE) from error
    except (apsw.Error, OSError) as error:
        fault = sqlite_fault(path, error)
        log.warning("The document store cannot be used: %s: %s", type(error).__name__, fault)
        raise CallError("storage_unavailable", _UNUSABLE) from fault
