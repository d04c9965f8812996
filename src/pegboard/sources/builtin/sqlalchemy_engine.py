"""SQLAlchemy engine: runs one statement on any other database that SQLAlchemy supports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import sqlalchemy
from sqlalchemy import exc as sqlalchemy_errors

from pegboard.model.error import CallError, DefinitionError
from pegboard.sources.builtin.sql_statement import Answer, Query, collected

SQL_ROWS_AHEAD = 10  # rows of one statement buffered in addition to those of the result

# Statements that make a transaction read-only, by engine.
_READ_ONLY: Final = {
    "mysql": "SET TRANSACTION READ ONLY",
    "mariadb": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
}
# Databases with our own engine, and their connection strings.
_GUARDED: Final = {"sqlite": "sqlite:///…", "postgresql": "postgresql://…"}
# Statements that set a time limit, for engines whose drivers have no call for that.
_DEADLINE: Final = {
    "mysql": "SET SESSION max_execution_time = {ms}",
    "mariadb": "SET SESSION max_statement_time = {seconds}",
}
# Repeated until the statement ends: a stop before its start has no effect.
_STOP_AGAIN_S: Final = 0.1


def check(url: str, *, read_only: bool) -> None:
    """Check that the URL is valid, that its driver is installed, and that its engine can enforce `read_only`.

    Raises:
        DefinitionError: one of these fails.
    """
    try:
        parsed = sqlalchemy.make_url(url)
        parsed.get_dialect().import_dbapi()
    except (sqlalchemy_errors.ArgumentError, sqlalchemy_errors.NoSuchModuleError):
        text = "connection_string is not a database URL; write 'sqlite:///file.db' or 'postgresql://user:…@host/name'."
        raise DefinitionError(text) from None
    except ImportError as error:
        text = f"connection_string needs a driver that is not installed: {error}; install it, or name another."
        raise DefinitionError(text) from None
    dialect = parsed.get_backend_name()
    if dialect in _GUARDED:
        # Our engines restrict a query by more than its transaction, even one that may write.
        hint = f"write '{_GUARDED[dialect]}'"
        raise DefinitionError(f"read_only and limits cannot be held through the driver {parsed.drivername!r}: {hint}.")
    if read_only and dialect not in _READ_ONLY:
        hint = "connect as a role that may only read, or set `read_only: false`"
        raise DefinitionError(f"read_only cannot be held by the engine of {parsed.drivername!r}: {hint}.")


def run(url: str, query: Query) -> Answer:
    """Run the statement. Called in a worker thread.

    Raises:
        CallError: invalid_arguments for an invalid statement; timeout; upstream_unavailable; config_invalid if the
            driver cannot stop a statement at its deadline.
    """
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    try:
        connection = _connected(engine)
        with connection, _explained(query), _ending(connection, query), connection.begin():
            if query.read_only:
                connection.exec_driver_sql(_READ_ONLY[engine.dialect.name])
            return _answer(connection, query)
    finally:
        engine.dispose()


def _connected(engine: sqlalchemy.Engine) -> sqlalchemy.Connection:
    try:
        return engine.connect()
    except sqlalchemy_errors.SQLAlchemyError:
        text = "The database cannot be reached, or refuses our login. Try again later, or ask the operator."
        raise CallError("upstream_unavailable", text) from None


@contextmanager
def _ending(connection: sqlalchemy.Connection, query: Query) -> Generator[None]:
    """Stop the statement at its deadline from outside, or let the engine do it."""
    dialect = connection.dialect
    command = _DEADLINE.get("mariadb" if getattr(dialect, "is_mariadb", False) else dialect.name)
    stop = _stopper(connection)
    if command is None and stop is None:
        text = f"The driver {dialect.driver!r} cannot end a query at its deadline. The operator must name another one."
        raise CallError("config_invalid", text)
    if command is not None:
        connection.exec_driver_sql(command.format(ms=max(int(query.left_s() * 1000), 1), seconds=query.left_s()))
        connection.rollback()
    over = threading.Event()

    def watch() -> None:
        is_over = over.wait(query.left_s())
        while stop is not None and not is_over:
            with suppress(dialect.loaded_dbapi.Error, OSError):
                stop()
            is_over = over.wait(_STOP_AGAIN_S)

    watcher = threading.Thread(target=watch, name="pegboard-deadline", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _stopper(connection: sqlalchemy.Connection) -> Callable[[], object] | None:
    """Return the driver's function that cancels the connection's statement from another thread."""
    driver: Any = connection.connection.driver_connection
    calls = [getattr(driver, name, None) for name in ("interrupt", "cancel")]
    return next((call for call in calls if callable(call)), None)


def _answer(connection: sqlalchemy.Connection, query: Query) -> Answer:
    params: Any = dict(query.params) if isinstance(query.params, Mapping) else tuple(query.params or ())
    streaming = connection.execution_options(stream_results=True, max_row_buffer=SQL_ROWS_AHEAD)
    result = streaming.exec_driver_sql(query.text, params or None)
    if not result.returns_rows:
        return Answer(affected_rows=max(result.rowcount, 0))
    with result:
        return collected(list(result.keys()), _rows(result, query), query.limits)


def _rows(result: sqlalchemy.CursorResult[Any], query: Query) -> Iterator[Any]:
    for row in result:
        if query.left_s() <= 0:
            raise query.too_slow()
        yield row


@contextmanager
def _explained(query: Query) -> Generator[None]:
    """Convert driver errors to messages for the caller."""
    try:
        yield
    except sqlalchemy_errors.SQLAlchemyError as exc:
        if query.left_s() <= 0:
            raise query.too_slow() from None
        message = str(getattr(exc, "orig", None) or exc)
        text = f"The database refuses the statement: {' '.join(message.split())[:300]}. Correct it."
        raise CallError("invalid_arguments", text) from None
    except (TypeError, ValueError, OverflowError, UnicodeError) as exc:
        text = f"The statement and its params do not fit together: {str(exc)[:300]}. Correct them."
        raise CallError("invalid_arguments", text) from None
