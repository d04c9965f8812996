"""SQLite engine: runs one statement on an SQLite file, with restrictions that SQLite enforces."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import apsw

from pegboard.model.bounds import MIB
from pegboard.model.error import CallError
from pegboard.model.json_types import JSONValue
from pegboard.model.record import replace
from pegboard.sources.builtin.sql_statement import Answer, Query, collected, one_statement_only, read_only_refusal
from pegboard.sources.builtin.sqlite_functions import ENDLESS, SQLITE_VALUE_BYTES, replace_endless
from pegboard.sources.builtin.sqlite_matching import check_matching

# bytes of memory of all statements in the process together, since SQLite has no separate limits
SQLITE_MEMORY_BYTES = 256 * MIB

# Steps of SQLite's machine between two looks at the clock.
_PROGRESS_STEPS = 5_000  # steps of SQLite's virtual machine between two checks of the clock
_READING: Final = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
# They leave the opened file, or end the savepoint around the statement.
_LEAVING: Final = frozenset({apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH, apsw.SQLITE_TRANSACTION, apsw.SQLITE_SAVEPOINT})
_LOOKING: Final = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"})
# Pragmas without a value that virtual table modules (FTS5, R-tree) run themselves.
_OF_MODULES: Final = frozenset({"data_version", "page_size"})
# Even to read an R-tree, SQLite prepares statements that write its three tables.
_WRITING: Final = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_OF_TREES: Final = ("_node", "_rowid", "_parent")
_FUNCTIONS: Final = frozenset({
    "load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "fsdir", "sqlar_compress", "zipfile",
    "sqlite_log", "rtreecheck", *ENDLESS,
})  # fmt: skip
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|$)", re.DOTALL)
_LIMITS: Final = {
    apsw.SQLITE_LIMIT_LENGTH: SQLITE_VALUE_BYTES,
    # Each function may scan a whole value, and SQLite cannot be stopped inside one.
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 127,
    apsw.SQLITE_LIMIT_SQL_LENGTH: 200_000,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 500,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 50,
}


def path_of(url: str, folder: Path) -> Path:
    """Return the file in a `sqlite:` URL; three slashes are relative to `folder`, four absolute."""
    path = unquote(urlsplit(url).path)
    return folder / (path.removeprefix("/") if url.partition(":")[2].startswith("//") else path)


def run(path: Path, query: Query) -> Answer:
    """Run the statement. Called in a worker thread; SQLite releases the GIL meanwhile.

    Raises:
        CallError: read_only; timeout; busy; invalid_arguments for an invalid statement; upstream_unavailable.
    """
    with closing(_opened(path, query)) as connection:
        return run_on(connection, query)


def run_on(connection: apsw.Connection, query: Query) -> Answer:
    """Run the statement on a connection, and close it afterwards.

    Raises:
        CallError: as `run`.
    """
    refused: list[str] = []
    with _explained(query, refused), _ending(connection, query):
        _limit(connection, query)
        if query.read_only:
            return _judged(connection, query, refused)
        # A savepoint, so that a failure leaves no partial changes.
        savepoint: Any = connection
        with savepoint:
            return _judged(connection, query, refused)


def _opened(path: Path, query: Query) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY if query.read_only else apsw.SQLITE_OPEN_READWRITE
    try:
        # Without SQLITE_OPEN_URI a file name is never parsed as a URI.
        connection = apsw.Connection(str(path), flags=flags)
    except apsw.Error:
        text = "The database file cannot be opened. The operator must check the connection string."
        raise CallError("upstream_unavailable", text, retryable=False) from None
    connection.set_busy_timeout(int(query.limits.timeout_s * 1000))
    return connection


def _limit(connection: apsw.Connection, query: Query) -> None:
    for limit, value in _LIMITS.items():
        connection.limit(limit, value)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0)
    replace_endless(connection)
    if query.read_only:
        # Temporary data stays in memory, which is limited; in files it could fill the disk until the deadline.
        untyped: Any = connection
        untyped.pragma("temp_store", "memory")
        untyped.pragma("query_only", 1)
    connection.set_progress_handler(lambda: query.left_s() <= 0, _PROGRESS_STEPS)
    # Keep a limit that the application has set.
    if not apsw.hard_heap_limit(-1):
        apsw.hard_heap_limit(SQLITE_MEMORY_BYTES)


@contextmanager
def _ending(connection: apsw.Connection, query: Query) -> Generator[None]:
    """Stop the statement at its deadline from outside: a few steps with large values can take minutes."""
    timer = threading.Timer(query.left_s(), connection.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _judged(connection: apsw.Connection, query: Query, refused: list[str]) -> Answer:
    connection.authorizer = _authorizer(query, refused)
    try:
        return _answer(connection, query)
    finally:
        connection.authorizer = None


def _authorizer(query: Query, refused: list[str]) -> Callable[..., int]:
    only = query.only_functions

    def judge(action: int, first: str | None, second: str | None, database: str | None, _inner: str | None) -> int:
        name = str(apsw.mapping_authorizer_function.get(action, action)).removeprefix("SQLITE_")
        if action == apsw.SQLITE_FUNCTION:
            called = str(second).lower()
            allowed = called not in _FUNCTIONS and (only is None or called in only)
            name = f"the function {second}"
        elif action == apsw.SQLITE_PRAGMA and second is None and str(first).lower() in _OF_MODULES:
            allowed = True
        elif query.read_only:
            # Prepared for an R-tree but not run; the engine would refuse to run it.
            is_of_tree = action in _WRITING and database == "main" and str(first).lower().endswith(_OF_TREES)
            allowed = action in _READING or is_of_tree
        else:
            allowed = action not in _LEAVING and (action != apsw.SQLITE_PRAGMA or str(first).lower() in _LOOKING)
        if not allowed:
            refused.append(f"{name} is refused")
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    return judge


def _answer(connection: apsw.Connection, query: Query) -> Answer:
    if not _bare(query.text):
        raise CallError("invalid_arguments", "There is no statement in the query. Write one.")
    before = connection.total_changes()
    cursor = connection.cursor()
    columns: list[str] = []

    def begin(cursor: apsw.Cursor, first: str, _bindings: object) -> bool:
        _only(first, query.text)
        if not cursor.is_explain:
            check_matching(_program(connection, first, query), _texts(query.params))
        # Read now, since later there are none if there are no rows.
        columns.extend(str(column[0]) for column in cursor.get_description())
        return True

    cursor.exec_trace = begin
    cursor.execute(query.text, cast("Any", query.params if query.params is not None else ()))  # pyright: ignore[reportUnknownMemberType] - apsw names no types
    if not columns:
        return Answer(affected_rows=connection.total_changes() - before)
    answer = collected(columns, _rows(cursor), query.limits)
    changed = connection.total_changes() - before
    return replace(answer, affected_rows=changed) if changed else answer


def _program(connection: apsw.Connection, statement: str, query: Query) -> list[Any]:
    """Return the program that SQLite compiles for a statement."""
    params: Any = query.params if query.params is not None else ()
    cursor: Any = connection.cursor()
    explained = cursor.execute(statement, params, explain=1)
    return [step[:6] for step in explained]


def _texts(params: Sequence[JSONValue] | Mapping[str, JSONValue] | None) -> list[JSONValue]:
    return list(params.values() if isinstance(params, Mapping) else params or ())


def _only(first: str, whole: str) -> None:
    """Refuse a text with more than the one statement that SQLite is about to run, before anything runs."""
    rest = whole[whole.index(first) + len(first) :] if first in whole else whole
    if _bare(rest):
        raise one_statement_only()


def _bare(text: str) -> str:
    return re.sub(_COMMENT, "", text).strip(" \t\r\n\f;\0")


def _rows(cursor: apsw.Cursor) -> Iterator[tuple[Any, ...]]:
    yield from cursor


@contextmanager
def _explained(query: Query, refused: list[str]) -> Generator[None]:
    """Convert SQLite errors to messages for the caller."""
    try:
        yield
    except apsw.InterruptError:
        raise query.too_slow() from None
    except (apsw.NoMemError, MemoryError):
        text = f"The query needs more than {SQLITE_MEMORY_BYTES // MIB} MiB of memory. Ask for less."
        raise CallError("result_too_large", text) from None
    except apsw.BusyError:
        raise CallError("busy", "Another writer holds the database. Try again in a moment.") from None
    except KeyError as exc:
        text = f"The statement and its params do not fit together: the param {exc.args[0]!r} is missing. Give it."
        raise CallError("invalid_arguments", text) from None
    except apsw.BindingsError as exc:
        text = f"The statement and its params do not fit together: {str(exc).split('  Current')[0]} Correct them."
        raise CallError("invalid_arguments", text) from None
    except (apsw.AuthError, apsw.ReadOnlyError) as exc:
        raise read_only_refusal(refused[-1] if refused else str(exc)) from None
    except apsw.Error as exc:
        if refused and "not authorized" in str(exc):
            raise read_only_refusal(refused[-1]) from None
        if query.left_s() <= 0:
            raise query.too_slow() from None
        text = f"SQLite refuses the statement: {str(exc)[:300]}. Correct it."
        raise CallError("invalid_arguments", text) from None
    except (TypeError, ValueError, OverflowError, UnicodeError) as exc:
        text = f"The statement and its params do not fit together: {str(exc)[:300]}. Correct them."
        raise CallError("invalid_arguments", text) from None
