"""Database: the SQLite file or the PostgreSQL database of a store, whichever its URI names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from pegboard.storage.postgres_server import PostgresServer
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_schema import Question, Schema, StoreConnection
from pegboard.storage.store_uri import StoreUri


class Database(Protocol):
    """The database with the tables of one store. Methods that are not async block: call them in a thread."""

    def check_place(self) -> None:
        """Refuse a place that cannot be used, without opening it.

        Raises:
            DefinitionError: an SQLite file without a folder, or one that other users may write.
        """
        ...

    def transaction(self, *, only_reads: bool = False) -> AbstractContextManager[StoreConnection]:
        """Begin a transaction, which others see completely or not at all; tables of an older version are migrated.

        With `only_reads` it changes no row, and does not wait for those that do. Unlike `reading`, it creates tables.

        Raises:
            StoreError: the database cannot be used.
        """
        ...

    def reading(self) -> AbstractContextManager[StoreConnection]:
        """Begin a transaction that changes nothing; the tables must exist with the current version.

        Raises:
            StoreError: the database cannot be used.
        """
        ...

    async def ask(self, question: Question, value: str) -> list[tuple[Any, ...]]:
        """Return the rows that a question reads on tables that exist, without blocking the event loop.

        It is cheaper than a transaction. Cells of a server are text.

        Raises:
            StoreError: the database cannot be used.
        """
        ...

    def glance(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]] | None:
        """Return the rows that a statement reads, if that takes no waiting; else `None`.

        It does not block: call it on an event loop, with a statement that reads a few pages.
        """
        ...

    def stored_version(self) -> int:
        """Return the version of the tables; 0 if there are none.

        Raises:
            StoreError: the file does not exist, or the database cannot be used.
        """
        ...

    def probe(self) -> None:
        """Check that the store can be read and written, without creating or changing anything.

        Raises:
            StoreError: it cannot be used.
        """
        ...

    def migrate(self) -> tuple[int, int]:
        """Create the tables or bring them to the current version. Return the version before and after.

        Raises:
            StoreError: the database cannot be used, or has a version that cannot be migrated.
        """
        ...

    def close(self) -> None:
        """Close the open connections that are not in use."""
        ...


def database_of(uri: StoreUri, schema: Schema, *, busy_s: float) -> Database:
    """Return the database that a URI names, for the tables of a store.

    Raises:
        DefinitionError: the URI cannot be used.
        ImportError: psycopg is not installed.
    """
    if uri.path is not None:
        return SqliteFile(uri.path, schema, busy_s=busy_s)
    return PostgresServer(uri.text, schema, busy_s=busy_s)
