"""Schema: the tables of one store, their version, and the steps from each version to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from pegboard.storage.store_error import StoreError

VERSIONS_TABLE = "pegboard_schema_versions"
"""The table where a database records the versions of its stores; one database may hold several."""
_VERSIONS = f"create table if not exists {VERSIONS_TABLE} (store text primary key, version integer not null)"
_RECORD = (
    f"insert into {VERSIONS_TABLE} (store, version) values (:store, :version) "  # noqa: S608 - our own names
    "on conflict (store) do update set version = excluded.version"
)


class Question(NamedTuple):
    """A statement that reads a few rows, with one value: `:value` in SQLite, `$1` in PostgreSQL."""

    sqlite: str
    postgres: str


class StoreConnection(Protocol):
    """A connection in a transaction. The same statements run on SQLite and PostgreSQL, with values by name."""

    is_sqlite: bool

    def __call__(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement with `:name` for each value, and return its rows."""
        ...

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        """Run one statement with the values of each row. It has a `?` for each value, and no other question mark."""
        ...

    def script(self, statements: str) -> None:
        """Run several statements without values."""
        ...

    def has(self, table: str, column: str | None = None) -> bool:
        """Return whether there is such a table, or such a column in it."""
        ...

    def may_read(self, table: str) -> bool:
        """Return whether there is such a table, and this user may read it."""
        ...

    def lock_schema(self) -> None:
        """Wait until no other process changes tables, and keep others waiting until the transaction ends."""
        ...

    def may_record(self) -> bool:
        """Return whether this user may write the versions table, or create it."""
        ...


class Schema(Struct, frozen=True, kw_only=True):
    """The tables of one store.

    Args:
        name: of the store, as the versions table and `pegboard store` show it.
        sqlite: one script for each version, the first of which creates the tables. Never change one that was released:
            add the next.
        postgres: the same for PostgreSQL; without them the scripts of SQLite are used.
        tables: the names of the tables, for counting rows.
        first: the version that the first script creates.
        unrecorded: returns the version of tables that were created before versions were recorded; 0 if there are none.
    """

    name: str
    sqlite: tuple[str, ...]
    postgres: tuple[str, ...] = ()
    tables: tuple[str, ...]
    first: int = 1
    unrecorded: Callable[[StoreConnection], int]

    @property
    def version(self) -> int:
        """The version that this Pegboard works with."""
        return self.first + len(self.sqlite) - 1

    def stored_version(self, connection: StoreConnection) -> int:
        """Return the version of the tables that are there; 0 if there are none."""
        recorded = self._recorded(connection)
        return self.unrecorded(connection) if recorded is None else recorded

    def is_current(self, connection: StoreConnection) -> bool:
        """Return whether the current version is recorded, so that there is nothing to migrate."""
        return self._recorded(connection) == self.version

    def check(self, connection: StoreConnection) -> None:
        """Refuse tables that this version cannot use as they are.

        Raises:
            StoreError: the tables are missing, older or newer.
        """
        version = self.stored_version(connection)
        if version == 0:
            raise StoreError(f"it holds no {self.name}")
        if version < self.version:
            raise StoreError(
                f"its {self.name} have version {version}, and this Pegboard needs {self.version}; "
                "run `pegboard store migrate`"
            )
        self._refuse_newer(version)

    def check_usable(self, connection: StoreConnection) -> None:
        """Refuse tables that the first use could not create or bring to the current version.

        Raises:
            StoreError: the tables were written by a newer Pegboard.
        """
        self._refuse_newer(self.stored_version(connection))

    def migrate(self, connection: StoreConnection) -> tuple[int, int]:
        """Create the tables, or bring them to the current version. Return the version before and after.

        Several processes may do so at once: the first one does the work.

        Raises:
            StoreError: the tables were written by a newer Pegboard, or by one that is too old.
        """
        if self.is_current(connection):
            return self.version, self.version
        connection.lock_schema()
        before = self.stored_version(connection)
        self._refuse_newer(before)
        if 0 < before < self.first:
            raise StoreError(
                f"its {self.name} have version {before}, which cannot be brought to {self.version}; "
                "use an empty file or database, and fill it again"
            )
        scripts = self.sqlite if connection.is_sqlite or not self.postgres else self.postgres
        for script in scripts[max(0, before - self.first + 1) :]:
            connection.script(script)
        if before != self.version or connection.may_record():
            connection(_VERSIONS)
            connection(_RECORD, store=self.name, version=self.version)
        return before, self.version

    def _recorded(self, connection: StoreConnection) -> int | None:
        # Somebody may have dropped the tables, to begin again.
        if not (connection.may_read(VERSIONS_TABLE) and connection.has(self.tables[0])):
            return None
        sql = f"select version from {VERSIONS_TABLE} where store = :store"  # noqa: S608 - our own name
        rows = connection(sql, store=self.name)
        return rows[0][0] if rows else None

    def _refuse_newer(self, version: int) -> None:
        if version > self.version:
            raise StoreError(
                f"its {self.name} have version {version} and were written by a newer Pegboard; this one knows "
                f"{self.version}. Upgrade Pegboard"
            )


def table_version(table: str) -> Callable[[StoreConnection], int]:
    """Return an `unrecorded` function for a store whose tables had one version before versions were recorded."""
    return lambda connection: int(connection.has(table))
