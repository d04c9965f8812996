"""sql_query beside its security cases: values, params, limits, and databases that SQLAlchemy speaks to."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from pegboard import Bounds, CallError, DefinitionError
from pegboard.sources.builtin import sqlalchemy_engine as alchemy
from pegboard.sources.builtin import sqlite_engine as sqlite
from pegboard.sources.builtin.builtins import BUILTINS, builtin_entry
from pegboard.sources.builtin.kind import Services
from pegboard.sources.builtin.sql_statement import Limits, Query
from tests.builtin.parts import Shelf


@pytest.fixture
def tools(tmp_path: Path) -> Shelf:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE t (id INTEGER, name TEXT, raw BLOB, score REAL)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(1, "ä", b"\0\1", 1.5), (2, None, None, float("inf"))])
    connection.commit()
    connection.close()
    return Shelf(services=Services(folder=tmp_path)).put("sql_query", {"connection_string": "sqlite:///a.db"})


async def test_rows_come_as_json_in_the_order_of_the_columns(tools: Shelf) -> None:
    got = await tools.value("sql_query", {"query": "SELECT * FROM t ORDER BY id"})
    assert got == {
        "columns": ["id", "name", "raw", "score"],
        "rows": [[1, "ä", "AAE=", 1.5], [2, None, None, "inf"]],
        "row_count": 2,
        "truncated": False,
        "affected_rows": None,
    }


async def test_params_stand_for_values_by_place_or_name(tools: Shelf) -> None:
    for query, params in (("SELECT id FROM t WHERE name = ?", ["ä"]), ("SELECT id FROM t WHERE name = :n", {"n": "ä"})):
        assert (await tools.value("sql_query", {"query": query, "params": params}))["rows"] == [[1]]
    evil = {"query": "SELECT id FROM t WHERE name = ?", "params": ["x' OR '1'='1"]}
    assert await tools.value("sql_query", evil) == {
        "columns": ["id"], "rows": [], "row_count": 0, "truncated": False, "affected_rows": None
    }  # fmt: skip
    for query, params, said in (
        ("SELECT ?", [], "uses 1 and there are 0 supplied"), ("SELECT ?", [1, 2], "uses 1 and there are 2 supplied"),
        ("SELECT ?", [[1]], "do not fit together"), ("SELECT :a", {"b": 1}, "the param 'a' is missing. Give it."),
        ("SELEC", [], "syntax error"), ("-- nothing", [], "no statement"), (" ; ", [], "no statement"),
        ("SELECT :a", {"a": {"b": 1}}, "do not fit together"), ("SELECT ?", [2**70], "do not fit together"),
    ):  # fmt: skip
        error = await tools.error("sql_query", {"query": query, "params": params})
        assert (error.kind, said in error.message) == ("invalid_arguments", True), error


async def test_the_limits_of_the_process_hold_where_the_config_says_none(tools: Shelf, tmp_path: Path) -> None:
    small = Shelf(services=Services(folder=tmp_path, bounds=Bounds(sql_rows=1)))
    small.put("sql_query", {"connection_string": "sqlite:///a.db"})
    small.put("sql_query", {"connection_string": "sqlite:///a.db", "max_rows": 2}, as_name="two")
    query = {"query": "SELECT id FROM t"}
    counts = [
        await each.value(name, query) for each, name in ((tools, "sql_query"), (small, "sql_query"), (small, "two"))
    ]
    assert [found["row_count"] for found in counts] == [2, 1, 2]


async def test_a_missing_database_is_a_definite_error(tmp_path: Path) -> None:
    tools = Shelf(services=Services(folder=tmp_path)).put("sql_query", {"connection_string": "sqlite:///none.db"})
    assert (await tools.error("sql_query", {"query": "SELECT 1"})).kind == "upstream_unavailable"
    assert list(tmp_path.iterdir()) == []


async def test_postgres_values_params_and_columns(postgres_url: str) -> None:
    tools = Shelf().put("sql_query", {"connection_string": postgres_url, "max_rows": 2, "allow_superuser": True})
    got = await tools.value(
        "sql_query", {"query": "SELECT %s::int AS a, %s::jsonb AS b, 1.50::numeric AS c", "params": [1, {"x": [1]}]}
    )
    assert (got["columns"], got["rows"]) == (["a", "b", "c"], [[1, {"x": [1]}, "1.50"]])
    assert (await tools.value("sql_query", {"query": "SELECT 1 AS a WHERE false"}))["columns"] == ["a"]
    many = await tools.value("sql_query", {"query": "SELECT repeat('x', 100000) FROM generate_series(1, 1000000)"})
    assert (many["row_count"], many["truncated"]) == (2, True)
    assert (await tools.value("sql_query", {"query": "SELECT 'a%b' LIKE '%'"}))["rows"] == [[True]]


async def test_postgres_writes_where_the_config_allows_it(postgres_url: str) -> None:
    tools = Shelf().put("sql_query", {"connection_string": postgres_url, "read_only": False, "allow_superuser": True})
    await tools.value("sql_query", {"query": "CREATE TABLE w (a int)"})
    got = await tools.value("sql_query", {"query": "INSERT INTO w VALUES (1), (2)"})
    assert got["affected_rows"] == 2
    back = await tools.value("sql_query", {"query": "UPDATE w SET a = 3 WHERE a = %s RETURNING a", "params": [1]})
    assert (back["rows"], back["affected_rows"]) == ([[3]], 1)
    assert (await tools.call("sql_query", {"query": "DELETE FROM w; DROP TABLE w"})).is_error
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM w").fetchone() == (2,)
    await tools.value("sql_query", {"query": "DROP TABLE w"})


async def test_postgres_that_cannot_be_reached_tells_no_password(tmp_path: Path) -> None:
    tools = Shelf().put("sql_query", {"connection_string": "postgresql://u:CANARY-pw@127.0.0.1:1/db"})
    result = await tools.call("sql_query", {"query": "SELECT 1"})
    assert result.error is not None
    assert (result.error.kind, "CANARY" in str(result)) == ("upstream_unavailable", False)


class OtherDialect(SQLiteDialect_pysqlite):
    """Another database than those that have an engine of ours: SQLite, by another name."""

    name = "other"
    supports_statement_cache = True


registry.register("other", __name__, "OtherDialect")


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("driver", ["sqlite+pysqlite", "sqlite+deaf", "postgresql+other"])
def test_what_has_an_engine_of_ours_is_reached_through_no_other(driver: str, read_only: bool) -> None:
    registry.register("sqlite.deaf", __name__, "DeafDialect")
    registry.register("postgresql.other", "sqlalchemy.dialects.postgresql.psycopg", "PGDialect_psycopg")
    config = {"connection_string": f"{driver}:///a.db", "read_only": read_only}
    with pytest.raises(DefinitionError, match=f"write '{driver.partition('+')[0]}://"):
        builtin_entry("sql_query", config=config)


async def test_another_database_goes_through_sqlalchemy(tools: Shelf) -> None:
    url = f"other:///{tools.services.folder}/a.db"
    with pytest.raises(DefinitionError, match="read_only cannot be held"):
        builtin_entry("sql_query", config={"connection_string": url})
    tools.put("sql_query", {"connection_string": url, "read_only": False, "max_rows": 1}, as_name="other")
    got = await tools.value("other", {"query": "SELECT id FROM t ORDER BY id"})
    assert (got["rows"], got["truncated"]) == ([[1]], True)
    changed = await tools.value("other", {"query": "UPDATE t SET name = ? WHERE id = ?", "params": ["z", 1]})
    assert changed["affected_rows"] == 1
    assert (await tools.error("other", {"query": "SELEC"})).kind == "invalid_arguments"
    with pytest.raises(DefinitionError, match="allow_superuser"):
        builtin_entry("sql_query", config={"connection_string": "sqlite:///a.db", "allow_superuser": True})
    for wrong in ("nosuch://x", "no url", ""):
        with pytest.raises(DefinitionError):
            builtin_entry("sql_query", config={"connection_string": wrong, "read_only": False})


def test_a_query_whose_time_is_over_before_it_begins_is_stopped_all_the_same(tools: Shelf) -> None:
    count = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000000) SELECT count(*) FROM c"
    limits = Limits(max_rows=1, timeout_s=1, max_bytes=1000)
    late = Query(text=count, params=None, read_only=True, limits=limits, started_s=time.monotonic() - 2)
    with pytest.raises(CallError, match="was stopped"):
        sqlite.run(tools.services.folder / "a.db", late)


SAMES = [
    "instr('banana', 'an')", "instr('banana', 'x')", "instr(x'0102', x'02')", "instr(NULL, 'a')", "instr('a', '')",
    "replace('banana', 'an', '')", "replace('banana', '', 'x')", "replace('a', 'a', NULL)", "replace(12, 2, 'x')",
    "trim('xxaxx', 'x')", "trim('xyaxy', 'yx')", "trim(' a ')", "trim('a', '')", "trim(NULL, 'a')", "ltrim('xax', 'x')",
    "rtrim('xax', 'x')", "rtrim('äxä', 'ä')", "hex(unhex('41 42', ' '))", "hex(unhex('4 1', ' '))", "unhex('4z', 'z')",
    "hex(unhex('414', ''))", "hex(unhex('-4142-', '-'))", "unhex(NULL, '')", "hex(unhex('aBcD', 'ef'))",
    "json_patch('{\"a\":1,\"b\":{\"c\":2,\"d\":3}}', '{\"b\":{\"c\":null},\"e\":[1.5,\"ü\"]}')",
    "json_patch('[1]', '{\"a\":null,\"b\":{\"c\":null}}')", "json_patch('{\"a\":1}', '[2]')", "json_patch(NULL, '{}')",
]  # fmt: skip


async def test_functions_that_take_the_place_of_those_of_sqlite_give_the_same(tools: Shelf) -> None:
    plain = apsw.Connection(":memory:")
    for expression in SAMES:
        expected = [list(row) for row in plain.execute(f"SELECT {expression}")]
        assert (await tools.value("sql_query", {"query": f"SELECT {expression}"}))["rows"] == expected, expression
    for faulty in ("json_patch('{', '{}')", f"json_patch('{'[' * 5000}', '1')"):
        assert (await tools.error("sql_query", {"query": f"SELECT {faulty}"})).kind == "invalid_arguments"


async def test_postgres_placeholders_stand_for_their_params_alone(postgres_url: str) -> None:
    tools = Shelf().put("sql_query", {"connection_string": postgres_url, "allow_superuser": True})
    for query, params, row in (
        ("SELECT %s::text, %s::int, '%%'", ["a", 2], ["a", 2, "%"]),
        ("SELECT %(b)s::text, %(a)s::int, %(b)s::text", {"a": 1, "b": "x"}, ["x", 1, "x"]),
        ("SELECT 7 % 4, '%s'", [], [3, "%s"]),
        ("SELECT %s::text", ["'; DROP TABLE t --"], ["'; DROP TABLE t --"]),
        # The name of a param is not a word of the statement: it is not sent.
        ("SELECT %(pg_sleep)s::text", {"pg_sleep": "x"}, ["x"]),
        ("SELECT %(über)s::text", {"über": "x"}, ["x"]),
    ):
        assert (await tools.value("sql_query", {"query": query, "params": params}))["rows"] == [row]
    for query, params in (
        ("SELECT %s", {"a": 1}), ("SELECT %(a)s", [1]), ("SELECT %(a)s", {"b": 1}), ("SELECT 1", [1]),
        ("SELECT %s, %s", [1]), ("SELECT 7 % 4, %s", [1]), ("SELECT %s::text", ["a\0"]), ("SELECT %s", [[1, "a"]]),
        ("SELECT %s::text", ["\ud800"]), ("SELECT '\ud800'", []), ("SELECT %(a b)s", {"a b": 1}),
        ("SELECT %()s", {"": 1}), ("SELECT %(a)d", {"a": 1}), (f"SELECT %({'a' * 64})s", {"a" * 64: 1}),
    ):  # fmt: skip
        error = await tools.error("sql_query", {"query": query, "params": params})
        assert error.kind == "invalid_arguments", (query, error)


def test_the_default_limit_is_the_documented_one_of_five_seconds() -> None:
    assert BUILTINS["sql_query"].configured({"connection_string": "sqlite:///a.db"}).timeout_seconds == 5.0


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


@pytest.mark.parametrize("query", [f"{ENDLESS} SELECT count(*) FROM c", f"{ENDLESS} SELECT x FROM c WHERE x < 0",
                                   f"INSERT INTO t (id) {ENDLESS} SELECT x FROM c"])  # fmt: skip
async def test_another_database_ends_a_runaway_query_at_its_deadline(tools: Shelf, query: str) -> None:
    url = f"other:///{tools.services.folder}/a.db"
    config = {"connection_string": url, "read_only": False, "timeout_seconds": 0.5}
    tools.put("sql_query", config, as_name="other")
    error = await tools.error("other", {"query": query})
    assert (error.kind, "within 0.5 s and was stopped" in error.message) == ("timeout", True)
    # It runs no longer, and what it did is undone.
    assert [each.name for each in threading.enumerate() if each.name == "pegboard-deadline"] == []
    assert (await tools.value("other", {"query": "SELECT count(*) FROM t"}))["rows"] == [[2]]


async def test_another_database_is_read_no_further_than_the_answer_goes(tools: Shelf) -> None:
    url = f"other:///{tools.services.folder}/a.db"
    tools.put("sql_query", {"connection_string": url, "read_only": False, "max_rows": 3}, as_name="other")
    got = await tools.value("other", {"query": f"{ENDLESS} SELECT x FROM c"})
    assert (got["rows"], got["truncated"]) == ([[1], [2], [3]], True)
    wide = await tools.value("other", {"query": f"{ENDLESS} SELECT printf('%.*c', 400000, 'x') FROM c"})
    assert (wide["row_count"], wide["truncated"]) == (1, True)


async def test_another_database_that_is_not_there_is_a_definite_error(tmp_path: Path) -> None:
    tools = Shelf(services=Services(folder=tmp_path))
    tools.put("sql_query", {"connection_string": f"other:///{tmp_path}/no/a.db", "read_only": False})
    error = await tools.error("sql_query", {"query": "SELECT 1"})
    assert (error.kind, error.retryable) == ("upstream_unavailable", True)
    for config in ({}, {"read_only": False}):
        with pytest.raises(DefinitionError, match="driver that is not installed"):
            builtin_entry("sql_query", config={"connection_string": "mysql://u:CANARY@h/d"} | config)


def test_any_driver_that_can_cancel_ends_a_query_at_its_deadline(postgres_url: str) -> None:
    def asked(text: str, timeout_s: float) -> Query:
        limits = Limits(max_rows=2, timeout_s=timeout_s, max_bytes=10_000)
        return Query(text=text, params=None, read_only=False, limits=limits)

    url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    with pytest.raises(CallError, match="was stopped"):
        alchemy.run(url, asked("SELECT pg_sleep(60)", 0.3))
    assert alchemy.run(url, asked("SELECT generate_series(1, 100000000)", 30)).rows == [[1], [2]]


class DeafConnection(sqlite3.Connection):
    """A connection of a driver that has no call to end a statement."""

    interrupt = None  # type: ignore[assignment]


class DeafDialect(SQLiteDialect_pysqlite):
    """SQLite through such a driver."""

    name, driver = "other", "deaf"
    supports_statement_cache = True

    def create_connect_args(self, url: sqlalchemy.URL) -> Any:
        places, named = super().create_connect_args(url)
        return places, {**named, "factory": DeafConnection}


async def test_a_driver_that_cannot_end_a_query_is_refused(tools: Shelf) -> None:
    registry.register("other.deaf", __name__, "DeafDialect")
    url = f"other+deaf:///{tools.services.folder}/a.db"
    tools.put("sql_query", {"connection_string": url, "read_only": False}, as_name="other")
    error = await tools.error("other", {"query": "DELETE FROM t"})
    assert (error.kind, "'deaf' cannot end a query" in error.message) == ("config_invalid", True)
    assert (await tools.value("sql_query", {"query": "SELECT count(*) FROM t"}))["rows"] == [[2]]
