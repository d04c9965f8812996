"""Postgres engine: runs one statement on PostgreSQL, in a read-only transaction and role that the server enforces."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, cast

import psycopg
from psycopg import errors

from pegboard.model.error import CallError
from pegboard.model.record import replace
from pegboard.sources.builtin.postgres_connection import LimitedConnection
from pegboard.sources.builtin.postgres_statement import Name, names_of, numbered
from pegboard.sources.builtin.sql_statement import Answer, Query, collected, one_statement_only, read_only_refusal
from pegboard.storage.limits import POSTGRES_CONNECT_S

# The allowed first words, in addition to WITH and EXPLAIN; others change the session or copy to files and programs.
_QUERIES: Final = frozenset({"select", "values", "table", "show"})
# Volatile, but they only generate values.
_HARMLESS: Final = frozenset({
    "random", "random_normal", "clock_timestamp", "timeofday", "gen_random_uuid", "uuidv4", "uuidv7", "setseed",
    "system", "bernoulli",
})  # fmt: skip
# Not volatile, but they use up transaction numbers, which are limited.
_COUNTING: Final = frozenset({"pg_current_xact_id", "txid_current"})
# They expose passwords of other roles and servers, or samples of them, to a role that may read everything; or they read
# tables and schemas whose names are in strings.
_SECRET: Final = frozenset({
    "pg_authid", "pg_shadow", "pg_user_mapping", "pg_user_mappings", "_pg_user_mappings", "pg_subscription",
    "pg_statistic", "pg_stats", "pg_statistic_ext_data", "pg_stats_ext", "pg_stats_ext_exprs",
    *(f"{whole}_to_xml{kind}" for whole in ("table", "schema", "database") for kind in ("", "_and_xmlschema")),
})  # fmt: skip
# Functions of `tablefunc` and `xml2` that run a statement or read a table named in a string, although they are declared
# stable. Recognised by their C symbol, since anybody can create one under another name.
_RUNNING_STRINGS: Final = (
    "crosstab", "crosstab_hash", "connectby_text", "connectby_text_serial", "xpath_table",
)  # fmt: skip
_REFUSED: Final = """
SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE p.proname = ANY(%s) AND (p.provolatile = 'v' OR l.lanname = 'c' AND p.prosrc = ANY(%s))
"""
_TOO_MIGHTY: Final = (
    "The database login is a superuser, or may use the server's files, so its engine cannot hold it back. The operator"
    " must give this tool another login, or set `allow_superuser: true` in its config."
)


_SHOWN: Final = 5  # names listed in a message
# Functions that run with the rights of a role that the login cannot assume; its own rights add nothing. Operators and
# casts call their functions without the schema's permission, and an aggregate has its owner's rights.
_WITH_RIGHTS_OF_OTHERS: Final = """
WITH functions AS MATERIALIZED (
  SELECT p.oid, n.oid AS schema, n.nspname || '.' || p.proname AS name
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE p.prosecdef AND n.nspname <> 'pg_catalog' AND pg_catalog.pg_get_userbyid(p.proowner) <> session_user
), ways AS (
  SELECT f.oid, f.schema, f.name FROM functions f
  UNION ALL
  SELECT f.oid, NULL, f.name FROM functions f JOIN pg_catalog.pg_operator o ON o.oprcode = f.oid
  UNION ALL
  SELECT f.oid, NULL, f.name FROM functions f JOIN pg_catalog.pg_cast c ON c.castfunc = f.oid
  UNION ALL
  SELECT p.oid, p.pronamespace, f.name FROM functions f
  JOIN pg_catalog.pg_aggregate a ON f.oid IN (
    a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn, a.aggmtransfn, a.aggminvtransfn,
    a.aggmfinalfn
  )
  JOIN pg_catalog.pg_proc p ON p.oid = a.aggfnoid
)
SELECT DISTINCT name FROM ways w
WHERE EXISTS (
  SELECT 1 FROM pg_catalog.pg_roles r
  WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')
    AND pg_catalog.has_function_privilege(r.oid, w.oid, 'EXECUTE')
    AND (w.schema IS NULL OR pg_catalog.has_schema_privilege(r.oid, w.schema, 'USAGE'))
)
ORDER BY name
"""

# The tables of Pegboard that the login, or a role that it can assume, may change or can get the right to change.
_CHANGEABLE: Final = """
SELECT DISTINCT n.nspname || '.' || c.relname
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
JOIN unnest(%s::text[], %s::text[]) AS ours(relname, attname) ON ours.relname = c.relname AND ours.attname = a.attname
WHERE c.relkind IN ('r', 'p') AND EXISTS (
  SELECT 1 FROM pg_catalog.pg_roles r
  WHERE pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER') AND (
    r.oid IN (c.relowner, n.nspowner)
    OR pg_catalog.has_table_privilege(r.oid, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
    OR pg_catalog.has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE')
  )
)
ORDER BY 1
"""


def run(url: str, query: Query) -> Answer:
    """Run the statement. Called in a worker thread.

    Raises:
        CallError: read_only; timeout; busy; invalid_arguments for an invalid statement; upstream_unavailable;
            upstream_auth; config_invalid for a login with too many rights.
    """
    text, params = numbered(query.text, query.params)
    names = list(names_of(text))
    if query.read_only:
        _check(names)
    with _explained(query), _opened(url, query) as connection:
        is_mighty = may_use_the_server(connection)
        if is_mighty and not query.allow_superuser:
            raise CallError("config_invalid", _TOO_MIGHTY)
        if not is_mighty:
            _check_functions(connection, query.allow_functions)
        if not query.read_only:
            _check_tables(connection, query.deciding_tables)
        if query.read_only:
            if is_mighty:
                confine(connection)
            _check_names(connection, {text for name in names for text in name.spellings()}, is_mighty=is_mighty)
        return _answer(connection, query, text, params, first=names[0].text if names else "")


@contextmanager
def _opened(url: str, query: Query) -> Generator[LimitedConnection]:
    """Connect, set the deadlines in the transaction, and roll back read-only queries."""
    try:
        connection = LimitedConnection.connect(url, connect_timeout=POSTGRES_CONNECT_S, application_name="pegboard")
    except psycopg.OperationalError as exc:
        if "password" in str(exc) or "authentication" in str(exc):
            text = "The database refused our login. The operator must correct the connection string."
            raise CallError("upstream_auth", text) from None
        raise CallError("upstream_unavailable", "The database cannot be reached. Try again later.") from None
    with connection.serving(query), connection:
        connection.read_only = query.read_only
        _set_deadline(connection, query)
        # The syntax of strings must not depend on server settings, or names could hide in them.
        connection.execute("SELECT set_config('standard_conforming_strings', 'on', true)")
        yield connection
        if query.read_only:
            connection.rollback()


def _set_deadline(connection: LimitedConnection, query: Query) -> None:
    """Set the time limit of the next statement."""
    connection.execute(
        "SELECT set_config('statement_timeout', %(ms)s, true), set_config('lock_timeout', %(ms)s, true)",
        {"ms": str(max(int(query.left_s() * 1000), 1))},
    )


def may_use_the_server(connection: psycopg.Connection[Any]) -> bool:
    """Tell whether the login is a superuser, or may read or write server files or start programs."""
    row = connection.execute(
        "SELECT rolsuper OR pg_has_role(oid, 'pg_read_server_files', 'MEMBER')"
        " OR pg_has_role(oid, 'pg_write_server_files', 'MEMBER')"
        " OR pg_has_role(oid, 'pg_execute_server_program', 'MEMBER') FROM pg_roles WHERE rolname = session_user"
    ).fetchone()
    return row is None or bool(row[0])


def _check_functions(connection: psycopg.Connection[Any], allowed: frozenset[str]) -> None:
    """Refuse a login that may run functions with the rights of others, since the query does not show their effects.

    Raises:
        CallError: config_invalid, with the names.
    """
    rows = connection.execute(_WITH_RIGHTS_OF_OTHERS).fetchall()
    names = [str(row[0]) for row in rows if row[0] not in allowed]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        text = f"The database login may run functions with the rights of others: {', '.join(names[:_SHOWN])}{more}. "
        cure = "The operator must take that right from the login, or name them under `allow_functions:`."
        raise CallError("config_invalid", text + cure)


def _check_tables(connection: psycopg.Connection[Any], deciding: frozenset[tuple[str, str]]) -> None:
    """Refuse a login that may change Pegboard's own tables, since a statement does not show all that it changes.

    Raises:
        CallError: config_invalid, with the names.
    """
    if not deciding:
        return
    names, columns = zip(*sorted(deciding), strict=True)
    changeable = [str(row[0]) for row in connection.execute(_CHANGEABLE, (list(names), list(columns)))]
    if changeable:
        more = f" and {len(changeable) - _SHOWN} more" if len(changeable) > _SHOWN else ""
        text = f"The database login may change what decides who may run what: {', '.join(changeable[:_SHOWN])}{more}. "
        cure = "The operator must give this tool another login or database, or set `read_only: true`."
        raise CallError("config_invalid", text + cure)


def confine(connection: psycopg.Connection[Any]) -> None:
    """Switch to a read-only role until the transaction ends, if the login may.

    Functions that could undo this, or that read files, are also refused by name.
    """
    row = connection.execute("SELECT pg_has_role(session_user, 'pg_read_all_data', 'MEMBER')").fetchone()
    if row is not None and row[0]:
        connection.execute("SET LOCAL ROLE pg_read_all_data")


def _check_names(connection: psycopg.Connection[Any], names: set[str], *, is_mighty: bool) -> None:
    """Refuse volatile functions, and those that run statements in strings.

    Volatile functions may change something, wait, read files, or restore a role that was given up.
    """
    rows = connection.execute(_REFUSED, (sorted(names - _HARMLESS), list(_RUNNING_STRINGS))).fetchall()
    refused = {str(row[0]) for row in rows} | names & _COUNTING
    if refused:
        listed = ", ".join(sorted(refused))
        raise read_only_refusal(f"{listed} may change something, wait or read files")
    secret = sorted(names & _SECRET)
    if is_mighty and secret:
        raise read_only_refusal(f"{secret[0]} may show credentials")


def _answer(
    connection: LimitedConnection, query: Query, statement: str, params: Sequence[Any] | None, *, first: str
) -> Answer:
    # The statement as it was checked, with the server's own placeholders.
    cursor, text = psycopg.RawCursor(connection), cast("Any", statement)
    # Both methods send the statement separately from its values, so that the server accepts only one statement.
    if query.read_only or first in _QUERIES:
        rows = cursor.stream(text, params, size=1)
        with closing(cast("Any", rows)):
            answer = collected((), rows, query.limits)
        if not answer.rows and query.read_only:
            # A stream without rows has no columns; the remaining time is for both attempts.
            _set_deadline(connection, query)
            cursor.execute(text, params, prepare=True)
    else:
        cursor.execute(text, params, prepare=True)
        if cursor.description is None:
            return Answer(affected_rows=max(cursor.rowcount, 0))
        answer = replace(collected((), cursor, query.limits), affected_rows=max(cursor.rowcount, 0))
    return replace(answer, columns=[column.name for column in cursor.description or ()])


def _check(names: Sequence[Name]) -> None:
    """Refuse statements that are not queries, and names with unknown text."""
    first = names[0].text if names and not names[0].is_quoted else ""
    if first not in _QUERIES | {"with", "explain"}:
        raise read_only_refusal(f"{first.upper() or 'this'} is not a query")
    if any(name.is_hidden for name in names):
        raise read_only_refusal("names written with U& or, without quotes, with $ are refused")


@contextmanager
def _explained(query: Query) -> Generator[None]:
    """Convert PostgreSQL errors to messages for the caller."""
    try:
        yield
    except (errors.QueryCanceled, errors.LockNotAvailable, errors.IdleInTransactionSessionTimeout):
        raise query.too_slow() from None
    except (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege) as exc:
        raise read_only_refusal(_first_line(exc)) from None
    except psycopg.Error as exc:
        if "multiple commands" in str(exc):
            raise one_statement_only() from None
        if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
            text = "The connection to the database was lost. Try again later."
            raise CallError("upstream_lost", text, outcome_unknown=not query.read_only) from None
        text = f"PostgreSQL refuses the statement: {_first_line(exc)}. Correct it."
        raise CallError("invalid_arguments", text) from None
    except (TypeError, ValueError, OverflowError) as exc:
        text = f"The statement and its params do not fit together: {_first_line(exc)}. Correct them."
        raise CallError("invalid_arguments", text) from None


def _first_line(exc: BaseException) -> str:
    return (str(exc).splitlines() or [""])[0][:300]
