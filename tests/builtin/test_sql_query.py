"""sql_query beside its security cases: values, params, limits, and databases that SQLAlchemy speaks to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from pegboard import DefinitionError
from pegboard.sources.builtin.kind import Services, builtin_entry
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
    assert (await tools.value("sql_query", evil))["rows"] == []
    for query in ({"query": "SELECT ?", "params": []}, {"query": "SELECT ?", "params": [[1]]}, {"query": "SELEC"}):
        assert (await tools.error("sql_query", query)).kind == "invalid_arguments"


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


async def test_another_database_goes_through_sqlalchemy(tools: Shelf) -> None:
    url = f"sqlite+pysqlite:///{tools.services.folder}/a.db"
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
