"""Database: the file, its tables, and connections that read or write it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar, cast

import apsw

from pegboard.core.after_fork import leave_to_parent, renew_after_fork
from pegboard.core.call.workers import WorkerPool
from pegboard.model.bounds import (
    DOCUMENT_STORE_BUSY_S,
    DOCUMENT_STORE_CONNECTIONS,
    DOCUMENT_STORE_READ_BUSY_S,
)
from pegboard.model.error import CallError
from pegboard.workspace.sqlite.browsing import add_name_function
from pegboard.workspace.sqlite.connection import Connection
from pegboard.workspace.sqlite.scoring import add_score_function

T = TypeVar("T")
_VERSION = 1  # not a limit: of the tables below
# `n` counts for ourselves alone: what callers are shown are the random ids.
_TABLES = """
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
    document_n integer primary key references documents on delete cascade, text text not null
) strict;
create table chunks (
    n integer primary key, space_n integer not null, document_n integer not null references documents on delete cascade,
    ordinal integer not null, start integer not null, "end" integer not null, term_count integer not null
) strict;
create index chunks_of_document on chunks (document_n, ordinal);
create virtual table passages using fts5 (
    space, terms, content='', contentless_delete=1, tokenize='ascii'
);
create table tables (
    n integer primary key, space_n integer not null, document_n integer not null references documents on delete cascade,
    name text not null, columns text not null, row_count integer not null, unique (space_n, name)
) strict;
create index tables_of_document on tables (document_n);
create table table_rows (
    table_n integer not null references tables on delete cascade, ordinal integer not null, cells text not null,
    primary key (table_n, ordinal)
) strict, without rowid;
create trigger chunk_added after insert on chunks begin
    update spaces set chunk_count = chunk_count + 1, term_total = term_total + new.term_count where n = new.space_n;
end;
create trigger chunk_removed after delete on chunks begin
    update spaces set chunk_count = chunk_count - 1, term_total = term_total - old.term_count where n = old.space_n;
    delete from passages where rowid = old.n;
end;
"""


class Database:
    """The file with the documents of all spaces. It is made with its first use, for its owner alone.

    Readers see what was committed when they began, also while somebody writes; writers wait for each other, those of
    other processes too. Work is done in threads of its own, of which one caller never has all; a cancelled caller's is
    interrupted. Forked processes open connections of their own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._workers = WorkerPool(name="pegboard-documents")
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Forget the connections, which are the parent's."""
        leave_to_parent(self._idle)
        self._idle, self._lock = [], threading.Lock()

    async def read(self, work: Callable[[Connection], T], *, caller: Hashable) -> T:
        """Run work that only reads, on one state of the database.

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
            db.set_busy_timeout(int(DOCUMENT_STORE_READ_BUSY_S * 1000))
            return work(db)

    def _writing(self, work: Callable[[Connection], T], current: _Current) -> T:
        with _explained(), self._connection() as db, current.interruptible(db):
            db.set_busy_timeout(int(DOCUMENT_STORE_BUSY_S * 1000))
            with _transaction(db, "begin immediate"):
                return work(db)

    @contextmanager
    def _connection(self) -> Generator[Connection]:
        with self._lock:
            db = self._idle.pop() if self._idle else None
        if db is None:
            db = self._opened()
        yield db
        # One that met an error is not used again.
        with self._lock:
            if len(self._idle) < DOCUMENT_STORE_CONNECTIONS:
                self._idle.append(db)
                return
        db.close()

    def _opened(self) -> Connection:
        if not self.path.exists():
            with suppress(FileExistsError):
                # Before SQLite makes it: the documents of all spaces are for nobody else on this machine.
                self.path.touch(mode=0o600, exist_ok=False)
        db = cast("Connection", apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE))
        db.set_busy_timeout(int(DOCUMENT_STORE_BUSY_S * 1000))
        for pragma in ("journal_mode = wal", "synchronous = full", "foreign_keys = on", "recursive_triggers = on"):
            db.execute(f"pragma {pragma}")
        db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        self._prepare(db)
        add_score_function(db)
        add_name_function(db)
        return db

    def _prepare(self, db: Connection) -> None:
        if db.pragma("user_version") == 0:
            with _transaction(db, "begin immediate"):
                # Somebody else may have been first.
                if db.pragma("user_version") == 0:
                    db.execute(_TABLES)
                    db.execute(f"pragma user_version = {_VERSION}")
        version = db.pragma("user_version")
        if version != _VERSION:
            text = f"The documents in {self.path.name!r} were stored by another version of Pegboard ({version})."
            raise CallError("storage_unavailable", f"{text} The operator must ingest them into a new file.")

    def close(self) -> None:
        """Close the connections that nobody uses; later work opens others."""
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()


class _Current:
    """The connection that one piece of work is using, so that it can be told to stop."""

    def __init__(self) -> None:
        self._db: Connection | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @contextmanager
    def interruptible(self, db: Connection) -> Generator[None]:
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
                self._db.interrupt()


@contextmanager
def _transaction(db: Connection, begin: str) -> Generator[None]:
    db.execute(begin)
    try:
        yield
    except BaseException:
        if db.in_transaction:
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
