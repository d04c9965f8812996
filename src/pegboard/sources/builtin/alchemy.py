"""Alchemy: run one statement on whatever else SQLAlchemy speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import sqlalchemy
from sqlalchemy import exc as sqlalchemy_errors

from pegboard.base.errors import CallError, DefinitionError
from pegboard.sources.builtin.query import Answer, Query, collected

# How an engine is told, before the statement, that this transaction reads only.
_READ_ONLY: Final = {
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
}


def check(url: str, *, read_only: bool) -> None:
    """See that the URL can be read, that its driver is there, and that its engine can hold `read_only`.

    Raises:
        DefinitionError: one of them is not so.
    """
    try:
        made = sqlalchemy.make_url(url)
        made.get_dialect()
    except (sqlalchemy_errors.ArgumentError, sqlalchemy_errors.NoSuchModuleError):
        text = "connection_string is no database URL; write 'sqlite:///file.db' or 'postgresql://user:…@host/name'."
        raise DefinitionError(text) from None
    except ImportError as error:
        raise DefinitionError(f"connection_string needs a driver that is not installed: {error}.") from None
    dialect = made.get_backend_name()
    if read_only and dialect not in _READ_ONLY:
        hint = "write 'sqlite:///…'" if dialect == "sqlite" else "connect as a role that may only read"
        raise DefinitionError(
            f"read_only cannot be held by the engine of {made.drivername!r}: {hint}, or say `read_only: false`."
        )


def run(url: str, query: Query) -> Answer:
    """Run the statement. Called in a worker thread.

    Raises:
        CallError: invalid_arguments for a faulty statement; upstream_unavailable.
    """
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    try:
        with engine.begin() as connection:
            if query.read_only:
                connection.exec_driver_sql(_READ_ONLY[engine.dialect.name])
            return _answer(connection, query)
    except sqlalchemy_errors.InterfaceError:
        raise CallError("upstream_unavailable", "The database cannot be reached. Try again later.") from None
    except sqlalchemy_errors.SQLAlchemyError as exc:
        said = str(getattr(exc, "orig", None) or exc)
        text = f"The database refuses the statement: {' '.join(said.split())[:300]}. Correct it."
        raise CallError("invalid_arguments", text) from None
    finally:
        engine.dispose()


def _answer(connection: sqlalchemy.Connection, query: Query) -> Answer:
    params: Any = dict(query.params) if isinstance(query.params, Mapping) else tuple(query.params or ())
    streaming = connection.execution_options(stream_results=True)
    found = streaming.exec_driver_sql(query.text, params or None)
    if not found.returns_rows:
        return Answer(affected_rows=max(found.rowcount, 0))
    rows: Any = found
    return collected(list(found.keys()), rows, query.limits)
