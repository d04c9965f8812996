"""SqliteFile: one SQLite file with the tables of a store, private to its owner."""

from __future__ import annotations

import asyncio
import os
import sqlite3  # noqa: TID251 - a database of ours, not a file that somebody names
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.storage.file_permissions import store_faults
from pegboard.storage.free_space import check_free_space
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import Question, Schema

if TYPE_CHECKING:
    import apsw
else:
    apsw = LazyModule("apsw")

_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_WAL_RETRY_S = 0.01  # seconds between two attempts to switch a new file to write-ahead logging

_of_python = set[str]()


def use_python_sqlite(path: Path) -> None:
    """Open a file with Python's SQLite library from now on in this process, because other code does so.

    Most files are opened with apsw, which brings its own SQLite. Two libraries must not open one file in one process:
    when one of them closes the file, the system drops the POSIX locks of the other.
    """
    _of_python.add(os.path.realpath(path))


def opens_with_python(path: Path) -> bool:
    """Return whether this process opens the file with Python's SQLite library, which loads no extensions."""
    return bool(_of_python) and os.path.realpath(path) in _of_python


class SqliteConnection:
    """A connection to a file, by apsw or by Python's `sqlite3`; fills `StoreConnection`."""

    is_sqlite = True

    def __init__(self, raw: apsw.Connection | sqlite3.Connection) -> None:
        # Untyped: apsw's own types leave open what a row holds.
        self.raw: Any = raw

    def __call__(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        return list(self.raw.execute(statement, values))

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        self.raw.executemany(statement, rows)

    def script(self, statements: str) -> None:
        # One at a time: `executescript` of `sqlite3` would end the transaction.
        statement = ""
        for part in statements.split(";"):
            statement = f"{statement}{part};"
            if sqlite3.complete_statement(statement):
                if statement.strip() != ";":
                    list(self.raw.execute(statement))
                statement = ""

    def has(self, table: str, column: str | None = None) -> bool:
        if column is None:
            return bool(self("select 1 from sqlite_schema where type = 'table' and name = :table", table=table))
        return bool(self("select 1 from pragma_table_info(:table) where name = :column", table=table, column=column))

    def may_read(self, table: str) -> bool:
        return self.has(table)

    def lock_schema(self) -> None:
        """Do nothing: a transaction that writes is alone already."""

    def may_record(self) -> bool:
        return True

    def close(self) -> None:
        """Close it; a transaction that was not committed is rolled back."""
        self.raw.close()


class _GlancedFile:
    """A connection that only reads, and the device and number of its file."""

    def __init__(self, place: tuple[int, int], connection: SqliteConnection) -> None:
        self.place, self.connection = place, connection


class SqliteFile:
    """The SQLite file of one store. The first write creates it, readable and writable by its owner only.

    Each transaction opens the file and keeps nothing open, so processes, forks and threads may share it; `glance`
    alone keeps a connection, which only reads. It must be on a local disk: locks do not work on network file systems.

    Args:
        path: the file.
        schema: the tables of the store.
        busy_s: how long to wait for another process that holds the file.
        is_wal: whether readers and a writer work at the same time.
        longest_s: after how long a transaction is interrupted.
    """

    def __init__(
        self, path: Path, schema: Schema, *, busy_s: float, is_wal: bool = False, longest_s: float | None = None
    ) -> None:
        self.path, self._schema = path, schema
        self._busy_s, self._is_wal, self._longest_s = busy_s, is_wal, longest_s
        self._glanced: _GlancedFile | None = None
        self._glance_lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Leave the open connection to the parent."""
        leave_to_parent(self._glanced)
        self._glanced, self._glance_lock = None, threading.Lock()

    def check_place(self) -> None:
        """Refuse a file that cannot be used, before anything is asked of it.

        Raises:
            DefinitionError: its folder does not exist, or other users may write the file.
        """
        if not self.path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(self.path.parent)!r} for it")
        for fault in store_faults(self.path):
            raise DefinitionError(fault.message)

    @contextmanager
    def transaction(self, *, only_reads: bool = False) -> Generator[SqliteConnection]:
        """Open the file for one transaction, which other connections see completely or not at all.

        With `only_reads` it does not wait for another process that changes rows, except for the moment of its commit.

        Raises:
            StoreError: the file cannot be read or written, or other users may write it.
        """
        with self._explained(), closing(self._open(is_writing=True)) as connection:
            connection.script("begin" if only_reads else "begin immediate")
            if not only_reads:
                self._schema.migrate(connection)
            elif not self._schema.is_current(connection):
                connection.script("rollback; begin immediate")
                self._schema.migrate(connection)
            yield connection
            connection.script("commit")

    @contextmanager
    def reading(self) -> Generator[SqliteConnection]:
        """Open a file that exists, and change nothing in it.

        Raises:
            StoreError: the file is missing or cannot be read, holds an older version, or other users may write it.
        """
        with self._unchecked() as connection:
            self._schema.check(connection)
            yield connection

    async def ask(self, question: Question, value: str) -> list[tuple[Any, ...]]:
        """Return the rows that a question reads; see `Database.ask`.

        Raises:
            StoreError: the file or its tables are missing or cannot be read, or other users may write it.
        """

        def work() -> list[tuple[Any, ...]]:
            with self._explained(), closing(self._open(is_writing=False)) as connection:
                return connection(question.sqlite, value=value)

        return await asyncio.to_thread(work)

    def glance(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]] | None:
        """Return the rows that a statement reads, if the file can be read at once; else `None`.

        It waits for nobody, over a connection that stays open, so it may be called on an event loop.
        """
        if opens_with_python(self.path) or not self._glance_lock.acquire(blocking=False):
            return None
        try:
            status = self.path.stat()
            place = (status.st_dev, status.st_ino)
            if self._glanced is None or self._glanced.place != place:
                # A restored file has the same path.
                self._close_glanced()
                self._glanced = _GlancedFile(place, open_sqlite(self.path, busy_s=0.0, is_writing=False))
            return self._glanced.connection(statement, **values)
        except (apsw.Error, OSError):
            self._close_glanced()
            return None
        finally:
            self._glance_lock.release()

    def _close_glanced(self) -> None:
        if self._glanced is not None:
            self._glanced.connection.close()
            self._glanced = None

    def stored_version(self) -> int:
        """Return the version of the tables in a file that exists; 0 if it has none.

        Raises:
            StoreError: the file is missing or cannot be read, or other users may write it.
        """
        with self._unchecked() as connection:
            return self._schema.stored_version(connection)

    def probe(self) -> None:
        """Check that the file can be read and written, or created; nothing is created or changed.

        Raises:
            StoreError: it cannot be used, its disk is full, or it holds tables of a newer Pegboard.
        """
        if not self.path.exists():
            folder = self.path.parent
            if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
                raise StoreError(f"{str(self.path)!r} does not exist, and cannot be created in its folder")
            check_free_space(self.path)
            return
        check_free_space(self.path)
        with self._explained(), closing(self._open(is_writing=True)) as connection:
            # Takes the lock of a writer; closing the connection undoes it.
            connection.script("begin immediate")
            self._schema.check_usable(connection)

    def compact(self) -> None:
        """Rewrite the file without the deleted rows, and empty its log.

        Raises:
            StoreError: another process holds the file.
        """
        with self._explained(), closing(self._open(is_writing=True)) as connection:
            connection.script("pragma secure_delete = on; vacuum; pragma wal_checkpoint(truncate)")

    def migrate(self) -> tuple[int, int]:
        """Create the tables or bring them to the current version. Return the version before and after.

        Raises:
            StoreError: the file cannot be used, or has a version that cannot be migrated.
        """
        before = self.stored_version() if self.path.exists() else 0
        with self.transaction():
            return before, self._schema.version

    @contextmanager
    def _unchecked(self) -> Generator[SqliteConnection]:
        with self._explained(), closing(self._open(is_writing=False)) as connection:
            connection.script("begin")
            yield connection

    def close(self) -> None:
        """Close the connection that `glance` keeps."""
        with self._glance_lock:
            self._close_glanced()

    def _open(self, *, is_writing: bool) -> SqliteConnection:
        connection = open_sqlite(self.path, busy_s=self._busy_s, is_writing=is_writing, is_wal=self._is_wal)
        if self._longest_s is not None:
            # Tables that somebody else created may be endless views.
            ends = time.monotonic() + self._longest_s
            connection.raw.set_progress_handler(lambda: time.monotonic() > ends, _STEPS)
        return connection

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (apsw.Error, sqlite3.Error, OSError) as error:
            raise sqlite_fault(self.path, error) from error


def sqlite_fault(path: Path, error: Exception) -> StoreError:
    """Return an error of SQLite for operators, with the file, and the space left where its disk is full."""
    if "disk" in str(error):
        # SQLite reports many full disks as "disk I/O error".
        try:
            check_free_space(path)
        except StoreError as full:
            return StoreError(f"{full}: {error}")
    return StoreError(f"{str(path)!r}: {error}")


def open_sqlite(path: Path, *, busy_s: float, is_writing: bool = True, is_wal: bool = False) -> SqliteConnection:
    """Open the file of a store; create it, for its owner only, if it does not exist and may be written.

    Raises:
        StoreError: other users may write the file.
        apsw.Error, sqlite3.Error: SQLite cannot open it.
        OSError: it cannot be created.
    """
    for fault in store_faults(path):
        raise StoreError(fault.message)
    if is_writing:
        with suppress(FileExistsError):
            path.touch(mode=0o600, exist_ok=False)
    connection = SqliteConnection(_raw(path, is_writing=is_writing))
    try:
        connection.script(f"pragma busy_timeout = {int(busy_s * 1000)}; pragma trusted_schema = off")
        if is_writing and is_wal:
            _use_wal(connection, busy_s)
            connection.script("pragma synchronous = full")
        elif is_writing:
            # Flushes the folder as well when a journal is deleted: after a power cut no journal comes back that would
            # undo an acknowledged transaction, such as the use of a consent or the end of a key.
            connection.script("pragma synchronous = extra")
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: SqliteConnection, busy_s: float) -> None:
    """Switch to write-ahead logging. SQLite does not wait for other processes that open a new file at the same time."""
    ends = time.monotonic() + busy_s
    while True:
        try:
            return connection.script("pragma journal_mode = wal")
        except (apsw.BusyError, sqlite3.OperationalError) as error:
            if "locked" not in str(error) or time.monotonic() > ends:
                raise
            time.sleep(_WAL_RETRY_S)


def _raw(path: Path, *, is_writing: bool) -> apsw.Connection | sqlite3.Connection:
    if opens_with_python(path):
        uri = f"{path.absolute().as_uri()}?mode={'rw' if is_writing else 'ro'}"
        return sqlite3.connect(uri, uri=True, isolation_level=None)
    return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE if is_writing else apsw.SQLITE_OPEN_READONLY)
