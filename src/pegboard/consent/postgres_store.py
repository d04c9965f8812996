"""PostgreSQL store: consents in a database shared by several machines. Needs `pegboard[postgres]`."""

from __future__ import annotations

from collections.abc import Callable

from pegboard.consent.limits import CONSENT_STORE_BUSY_S
from pegboard.consent.sql_records import SCHEMA, SqlConsents
from pegboard.model.secret import Secret
from pegboard.storage.postgres_server import PostgresServer


class PostgresConsents(SqlConsents):
    """Keeps consents in a PostgreSQL database; see `SqlConsents`.

    Args:
        uri: `postgresql://…`; its user can create tables, or the tables exist.
        page: the address of the server with the page for decisions, without a slash at its end.
        wall_clock: seconds since 1970, the same for all who share the database; by default the server's clock.

    Raises:
        DefinitionError: the URI is invalid.
    """

    def __init__(
        self, uri: str | Secret, *, page: str | None = None, wall_clock: Callable[[], float] | None = None
    ) -> None:
        secret = uri if isinstance(uri, Secret) else Secret(uri)
        super().__init__(PostgresServer(secret, SCHEMA, busy_s=CONSENT_STORE_BUSY_S), page=page, wall_clock=wall_clock)
