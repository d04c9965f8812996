"""PostgreSQL store: consents in a database that several machines share. Needs `pegboard[postgres]`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import ceil
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import InsufficientPrivilege, ReadOnlySqlTransaction

from pegboard.consent.limits import CONSENT_STORE_BUSY_S
from pegboard.consent.sql_records import TABLES, Run, SqlConsents
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret
from pegboard.sources.builtin.limits import POSTGRES_CONNECT_S

_NAME = re.compile(r"(?<!:):([a-z_]+)")
_MADE = "select 1 from pg_tables where tablename = 'used_answers' and schemaname = any(current_schemas(false))"
_LOCK = "select pg_advisory_xact_lock(7235140912)"  # a number of ours, for making the tables


class PostgresConsents(SqlConsents):
    """Keeps consents in a PostgreSQL database; see `SqlConsents`.

    Args:
        uri: `postgresql://…`; its user must be able to make tables, or find them made.
        page: the address of the server whose page lets people decide, without a slash at its end.
        wall_clock: seconds since 1970, the same for all who share the database.

    Raises:
        DefinitionError: the URI cannot be used.
    """

    def __init__(
        self, uri: str | Secret, *, page: str | None = None, wall_clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(page=page, wall_clock=wall_clock)
        self._uri, self._has_tables = uri if isinstance(uri, Secret) else Secret(uri), False
        try:
            conninfo_to_dict(self._uri.reveal())
        except psycopg.Error as error:
            raise DefinitionError(f"the URI of the store cannot be used: {type(error).__name__}") from None

    @contextmanager
    def _transaction(self) -> Generator[Run]:
        patience = f"-c lock_timeout={ceil(CONSENT_STORE_BUSY_S * 1000)} -c statement_timeout=10000"
        try:
            with psycopg.connect(
                self._uri.reveal(), connect_timeout=POSTGRES_CONNECT_S, options=patience
            ) as connection:

                def run(sql: str, **values: Any) -> list[tuple[Any, ...]]:
                    cursor = connection.execute(cast("Any", _NAME.sub(r"%(\1)s", sql)), values)
                    return [] if cursor.description is None else cursor.fetchall()

                if not self._has_tables and not run(_MADE):
                    run(_LOCK)
                    for table in TABLES:
                        run(table)
                yield run
            self._has_tables = True
        except psycopg.Error as error:
            self._has_tables = False
            # The text of an error of connecting may name the server and its user; what a user may not, does not.
            told = isinstance(error, (InsufficientPrivilege, ReadOnlySqlTransaction))
            reason = str(error).partition("\n")[0] if told else type(error).__name__
            raise ConnectionError(f"the store of consents did not answer: {reason}") from None
