"""Querying: runs one SELECT over the tables of a scope, in a separate database with only these tables.

The tables that a query names are copied to a temporary database, so the query can reach nothing else by any name,
function or error. An authorizer on the shared tables would not work: it would have to know which view a row is
read, and SQLite reports a CTE with a view's name as that view.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final, cast

import apsw

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.sources.builtin.sql_statement import Limits, Query, read_only_refusal
from pegboard.sources.builtin.sqlite_engine import run_on
from pegboard.workspace.limits import DOCUMENT_RESULT_BYTES
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.document_tables import StoredTable, tables_of
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.unclear_columns import unclear_notes

DOCUMENT_STORE_READ_BUSY_S = 2.0  # seconds that a reader waits for a locked store
DOCUMENT_TABLES = 500  # tables that one query may use

_SHOWN_NAMES = 20  # tables or columns listed in an error
_SHOWN_TABLES = 3
_LOOKED_AT_ROWS = 50  # rows of a table examined for dates that are not ISO
_SHOWN_CHARS = 1_500
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROGRESS_STEPS = 5_000  # steps between two checks of the clock
FUNCTIONS: Final = frozenset(
    """
    abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh count
    cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor format
    glob group_concat hex if ifnull iif instr json json_array json_array_length json_each json_extract json_group_array
    json_group_object json_object json_quote json_type json_valid julianday lag last_value lead length like likely
    likelihood ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length percent_rank
    percentile percentile_cont percentile_disc pi pow power printf quote radians random rank replace round row_number
    rtrim sign sin sinh sqrt strftime string_agg substr substring subtype sum tan tanh time timediff total trim trunc
    typeof unicode unixepoch unlikely upper -> ->>
    """.split()
)  # fmt: skip


Copy = Callable[[Any, Sequence[StoredTable], Callable[[], float]], None]
"""Copies tables of the store to an apsw database, in the form that `created` makes, within the remaining seconds."""


def created(own: Any, table: StoredTable) -> str:
    """Create a table with untyped columns, which keep values unchanged; return its insert statement."""
    columns = ", ".join(quoted(name) for name in table.columns)
    own.execute(f"create table main.{quoted(table.shown)} ({columns})")
    return f"insert into main.{quoted(table.shown)}"


def cells_of(table: StoredTable, row: str) -> str:
    """Return the SQLite expression for the values of a row that is JSON in a column or a placeholder."""
    return ", ".join(f"json_extract({row}, '$[{place}]')" for place in range(len(table.columns)))


def _copy_all(own: Any, copy: Copy, tables: Sequence[StoredTable], asked: Query) -> None:
    if not tables:
        return
    own.set_progress_handler(lambda: asked.left_s() <= 0, _PROGRESS_STEPS)
    own.set_busy_timeout(int(DOCUMENT_STORE_READ_BUSY_S * 1000))
    try:
        copy(own, tables, asked.left_s)
    except apsw.InterruptError:
        raise asked.too_slow() from None


def chosen_tables(
    db: Connection, within: ReadableSpaces, document_ids: Sequence[str], names: Sequence[str]
) -> list[StoredTable]:
    """Return the tables that a query may use: all of the scope, of some documents, or named ones.

    Raises:
        CallError: not_found, for a document or a table outside the scope.
    """
    tables = tables_of(db, within)
    if document_ids:
        documents = {within.document_n(db, each) for each in document_ids}
        tables = [table for table in tables if table.document_n in documents]
    if names:
        known = {table.shown.lower(): table for table in tables}
        for name in names:
            if name.lower() not in known:
                raise CallError("not_found", f"There is no table {name[:100]!r} here.{_existing_tables(tables)}")
        tables = [known[name.lower()] for name in dict.fromkeys(names)]
    return tables


def query(copy: Copy, tables: Sequence[StoredTable], sql: str, *, limit: int, timeout_s: float) -> JSON:
    """Run one SELECT over these tables; `copy` provides only those that the query's text names.

    Raises:
        CallError: read_only; invalid_arguments; timeout; result_too_large.
    """
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    named = [table for table in tables if table.shown.lower() in words][:DOCUMENT_TABLES]
    limits = Limits(max_rows=limit, timeout_s=timeout_s, max_bytes=DOCUMENT_RESULT_BYTES * 3 // 4)
    asked = Query(text=sql, params=None, read_only=True, limits=limits, only_functions=FUNCTIONS)
    with closing(apsw.Connection("")) as own:
        # An unknown name in double quotes is an error, not a text.
        own.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        _copy_all(cast("Any", own), copy, named, asked)
        note = unclear_notes((table.shown, table.columns, _first_rows(cast("Any", own), table)) for table in named)
        try:
            answer = run_on(own, asked)
        except CallError as error:
            reason = error.error.message
            if "no such table" in reason:
                raise CallError("invalid_arguments", f"{reason}{_existing_tables(tables)}") from None
            if "no such column" in reason and named:
                raise CallError("invalid_arguments", f"{reason}{_columns_of(named)}") from None
            raise
    if not answer.columns:
        raise read_only_refusal("it gives no rows")
    return {
        "sql": sql,
        "columns": list(answer.columns),
        "rows": [list(row) for row in answer.rows],
        "row_count": len(answer.rows),
        "truncated": answer.truncated,
        "tables_used": [table.shown for table in named],
        **({"note": note} if note else {}),
    }


def _first_rows(own: Any, table: StoredTable) -> list[Any]:
    return own.execute(f"select * from main.{quoted(table.shown)} limit {_LOOKED_AT_ROWS}").fetchall()  # noqa: S608 - a name that is quoted


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _columns_of(tables: Sequence[StoredTable]) -> str:
    """Return the columns of some tables as SQL, so that a wrong name can be corrected at once."""
    shown = "".join(
        f" {table.shown} has: {', '.join(map(_as_written, table.columns[:_SHOWN_NAMES]))}"
        + (f" and {len(table.columns) - _SHOWN_NAMES} more." if len(table.columns) > _SHOWN_NAMES else ".")
        for table in tables[:_SHOWN_TABLES]
    )
    return shown[:_SHOWN_CHARS]


def _as_written(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name.upper() not in apsw.keywords else quoted(name)


def _existing_tables(tables: Sequence[StoredTable]) -> str:
    if not tables:
        return " There are no tables in these documents."
    shown = ", ".join(table.shown for table in tables[:_SHOWN_NAMES])
    more = f" and {len(tables) - _SHOWN_NAMES} more" if len(tables) > _SHOWN_NAMES else ""
    return f" There are: {shown}{more}. Ask document_info for their columns."
