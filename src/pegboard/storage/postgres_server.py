"""PostgresServer: one PostgreSQL database with the tables of a store. Needs `pegboard[postgres]`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Any

from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.storage.awaited_statement import AwaitedStatement
from pegboard.storage.idle_connections import IdleConnections
from pegboard.storage.limits import POSTGRES_CONNECT_S, POSTGRES_STATEMENT_S
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import VERSIONS_TABLE, Question, Schema

if TYPE_CHECKING:
    import psycopg
    from psycopg import conninfo
else:
    psycopg = LazyModule("psycopg")
    conninfo = LazyModule("psycopg.conninfo")

_NAME = re.compile(r"(?<!:):([a-z]\w*)")
_LOCK = "select pg_advisory_xact_lock(7235140913)"  # a number of ours, for creating tables
# Not by `to_regclass`, which may still answer from before another process created the table.
_HAS_TABLE = "select 1 from pg_tables where tablename = :table and schemaname = any(current_schemas(false))"
_HAS_COLUMN = (
    "select 1 from information_schema.columns where table_name = :table and column_name = :column "
    "and table_schema = any(current_schemas(false))"
)
_MAY = "select has_table_privilege(cast(:table as text), cast(:right as text))"
_MAY_CREATE = (
    "select current_setting('transaction_read_only') = 'off' and has_schema_privilege(current_schema(), 'create')"
)
# Read-only transaction, missing privilege, full disk: these messages speak to operators and quote no stored data.
_TELLING_STATES = frozenset({"25006", "42501", "53100"})


class PostgresConnection:
    """A connection to a database; fills `StoreConnection`."""

    is_sqlite = False

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw: Any = raw

    def __call__(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        cursor = self.raw.execute(_with_percents(statement), values)
        return [] if cursor.description is None else cursor.fetchall()

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]], /) -> None:
        self.raw.cursor().executemany(statement.replace("?", "%s"), rows)

    def script(self, statements: str) -> None:
        self.raw.execute(statements)

    def has(self, table: str, column: str | None = None) -> bool:
        if column is None:
            return bool(self(_HAS_TABLE, table=table))
        return bool(self(_HAS_COLUMN, table=table, column=column))

    def may_read(self, table: str) -> bool:
        return self.has(table) and bool(self(_MAY, table=table, right="select")[0][0])

    def lock_schema(self) -> None:
        self.script(_LOCK)

    def may_record(self) -> bool:
        if self.has(VERSIONS_TABLE):
            return bool(self(_MAY, table=VERSIONS_TABLE, right="insert")[0][0])
        return bool(self(_MAY_CREATE)[0][0])


class PostgresServer:
    """The PostgreSQL database of one store. The first use creates the tables, unless an administrator has done so.

    Args:
        uri: `postgresql://…`.
        schema: the tables of the store.
        busy_s: how long to wait for a lock.
        statement_s: how long one statement may run.
        keep: how many connections stay open for the next transaction; with 0 each transaction connects.
        search_path: the schemas of the tables; by default those of the login.

    Raises:
        DefinitionError: the URI cannot be used.
        ImportError: psycopg is not installed.
    """

    def __init__(
        self,
        uri: Secret,
        schema: Schema,
        *,
        busy_s: float,
        statement_s: float | None = POSTGRES_STATEMENT_S,
        keep: int = 0,
        search_path: str | None = None,
    ) -> None:
        check_postgres_uri(uri)
        self._uri, self._schema = uri, schema
        self._patience: Any = {"busy_s": busy_s, "statement_s": statement_s, "search_path": search_path}
        self._idle = IdleConnections["psycopg.Connection[Any]"](keep=keep)
        self._asked: dict[str, AwaitedStatement] = {}
        self._is_prepared = False

    def check_place(self) -> None:
        """Do nothing: whether the server answers is seen when it is asked."""

    @contextmanager
    def transaction(self, *, only_reads: bool = False) -> Generator[PostgresConnection]:
        """Begin a transaction, which others see completely or not at all. Reading locks nothing in any case.

        Raises:
            StoreError: the database does not answer or refuses; the message does not name the server or its user.
        """
        del only_reads
        with self._explained():
            closings = self._idle.closings
            raw = self._begun()
            try:
                connection = PostgresConnection(raw)
                if not self._is_prepared:
                    self._schema.migrate(connection)
                yield connection
                raw.commit()
                self._is_prepared = True
            except BaseException as error:
                # An administrator may have dropped the tables.
                self._is_prepared &= not isinstance(error, psycopg.Error)
                with suppress(psycopg.Error):
                    raw.rollback()
                raise
            finally:
                is_idle = raw.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                self._idle.give_back(raw, is_sound=is_idle and not raw.closed, closings=closings)

    @contextmanager
    def reading(self) -> Generator[PostgresConnection]:
        """Begin a transaction that changes nothing, and creates no table.

        Raises:
            StoreError: the database does not answer, or holds no tables of the current version.
        """
        with self._unchecked() as connection:
            self._schema.check(connection)
            yield connection

    async def ask(self, question: Question, value: str) -> list[tuple[Any, ...]]:
        """Return the rows that a question reads, each cell as text; see `Database.ask`.

        Raises:
            StoreError: the database does not answer or refuses, or has no such tables.
        """
        asked = self._asked.get(question.postgres)
        if asked is None:
            asked = self._asked[question.postgres] = AwaitedStatement(
                question.postgres, lambda: open_postgres(self._uri, autocommit=True, **self._patience)
            )
        with self._explained():
            try:
                async with asyncio.timeout(POSTGRES_CONNECT_S + POSTGRES_STATEMENT_S):
                    return [*await asked.rows(value)]
            except TimeoutError:
                raise StoreError("the database does not answer") from None

    def glance(self, statement: str, /, **values: Any) -> None:
        """Return `None`: the answer of a server must be waited for."""

    def stored_version(self) -> int:
        """Return the version of the tables; 0 if there are none.

        Raises:
            StoreError: the database does not answer.
        """
        with self._unchecked() as connection:
            return self._schema.stored_version(connection)

    def probe(self) -> None:
        """Check that the database answers and takes changes; nothing is changed.

        Raises:
            StoreError: it does not answer, takes no changes now, or holds tables of a newer Pegboard.
        """
        with self._explained(), open_postgres(self._uri, **self._patience) as raw:
            connection = PostgresConnection(raw)
            if connection("select current_setting('transaction_read_only')")[0][0] != "off":
                raise StoreError("the database is read-only now")
            self._schema.check_usable(connection)

    def migrate(self) -> tuple[int, int]:
        """Create the tables or bring them to the current version. Return the version before and after.

        Raises:
            StoreError: the database does not answer or refuses, or has a version that cannot be migrated.
        """
        before = self.stored_version()
        with self.transaction():
            return before, self._schema.version

    @contextmanager
    def _unchecked(self) -> Generator[PostgresConnection]:
        with self._explained(), open_postgres(self._uri, **self._patience) as raw:
            connection = PostgresConnection(raw)
            connection.script("set transaction read only")
            yield connection

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except StoreError as error:
            raise StoreError(f"the store of {self._schema.name} cannot be used: {error}") from None
        except psycopg.Error as error:
            raise StoreError(f"the store of {self._schema.name} did not answer: {reason_of(error)}") from None

    def close(self) -> None:
        """Close the connections that are not in use; the next transaction opens another."""
        self._idle.close()
        for asked in self._asked.values():
            asked.close()

    def _begun(self) -> psycopg.Connection[Any]:
        """Return a connection in a transaction, and replace one that the server has closed."""
        while (raw := self._idle.take()) is not None:
            with suppress(psycopg.OperationalError):
                raw.execute("select 1")
                return raw
            raw.close()
        return open_postgres(self._uri, **self._patience)


def open_postgres(
    uri: Secret,
    *,
    busy_s: float,
    statement_s: float | None = None,
    search_path: str | None = None,
    autocommit: bool = False,
) -> psycopg.Connection[Any]:
    """Connect to the database of a store.

    Args:
        uri: `postgresql://…`.
        busy_s: how long to wait for a lock.
        statement_s: how long one statement may run.
        search_path: the schemas of the tables.
        autocommit: whether each statement is its own transaction.

    Raises:
        psycopg.Error: the server does not answer or refuses.
    """
    options = [f"-c lock_timeout={ceil(busy_s * 1000)}"]
    if statement_s is not None:
        options.append(f"-c statement_timeout={ceil(statement_s * 1000)}")
    if search_path is not None:
        options.append(f"-c search_path={search_path}")
    return psycopg.connect(
        uri.reveal(), autocommit=autocommit, connect_timeout=POSTGRES_CONNECT_S, options=" ".join(options)
    )


def check_postgres_uri(uri: Secret) -> None:
    """Refuse a URI that libpq cannot read.

    Raises:
        DefinitionError: the URI cannot be used.
        ImportError: psycopg is not installed.
    """
    try:
        conninfo.conninfo_to_dict(uri.reveal())
    except psycopg.Error as error:
        raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None


def reason_of(error: psycopg.Error) -> str:
    """Return why a database refused, for operators; most other messages name the server or quote stored data."""
    if error.sqlstate in _TELLING_STATES:
        return str(error).partition("\n")[0]
    return type(error).__name__


@lru_cache(maxsize=512)
def _with_percents(statement: str) -> str:
    """Return a statement with its values in psycopg's form."""
    return _NAME.sub(r"%(\1)s", statement.replace("%", "%%"))
