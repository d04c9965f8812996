"""The shared SQL cases, through sql_query. Named after their ids; the observers are the database and the disk."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from pathlib import Path

import psycopg
import pytest

from pegboard import ToolError
from pegboard.sources.builtin.kind import Services
from tests.builtin.database import postgres_url
from tests.builtin.parts import Shelf
from tests.timing import SLACK

__all__ = ["postgres_url"]
CANARY = "CANARY-77aa"


# ---------------------------------------------------------------- SQLite


@pytest.fixture
def lite(tmp_path: Path) -> Shelf:
    """sql_query on an SQLite file, with a deadline of a second."""
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE t (id INTEGER, name TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")])
    connection.commit()
    connection.close()
    (tmp_path / "secret.txt").write_text(CANARY)
    config = {"connection_string": "sqlite:///a.db", "timeout_seconds": 1}
    return Shelf(services=Services(folder=tmp_path)).put("sql_query", config)


def disk(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


async def refused_by_sqlite(tools: Shelf, query: str, *, kinds: tuple[str, ...] = ("read_only",)) -> ToolError:
    folder = tools.services.folder
    before = disk(folder)
    error = await tools.error("sql_query", {"query": query})
    assert error.kind in kinds, (query, error)
    assert CANARY not in str(error)
    assert disk(folder) == before
    return error


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM t", "/*x*/DELETE FROM t", "--x\nDELETE FROM t", ";DELETE FROM t", " ;; \n/**/ --\n DeLeTe FROM t",
     "INSERT INTO t VALUES (3, 'c') RETURNING *", "UPDATE t SET id = 0", "REPLACE INTO t VALUES (1, 'x')",
     "CREATE TABLE u (a)", "CREATE TEMP TABLE u (a)", "DROP TABLE t", "ALTER TABLE t ADD COLUMN c", "BEGIN IMMEDIATE",
     "\ufeffDELETE FROM t", "EXPLAIN DELETE FROM t"],
)  # fmt: skip
async def test_sql_01_sqlite_writes_behind_comments(lite: Shelf, query: str) -> None:
    await refused_by_sqlite(lite, query)


@pytest.mark.parametrize(
    "query",
    ["WITH a AS (SELECT 1) DELETE FROM t", "WITH a AS (SELECT 1) UPDATE t SET id = 9 RETURNING id",
     "WITH a AS (SELECT 3, 'c') INSERT INTO t SELECT * FROM a"],
)  # fmt: skip
async def test_sql_02_sqlite_writes_in_a_cte(lite: Shelf, query: str) -> None:
    await refused_by_sqlite(lite, query)


@pytest.mark.parametrize(
    "query",
    ["ATTACH '{folder}/new.db' AS x", "ATTACH ':memory:' AS x", "DETACH main", "PRAGMA writable_schema=1",
     "PRAGMA query_only=0", "PRAGMA journal_mode=wal", "PRAGMA user_version=7", "/*x*/ PRAGMA temp_store_directory='/'",
     "VACUUM", "VACUUM INTO '{folder}/copy.db'", "SELECT * FROM pragma_table_info('t')", "ANALYZE"],
)  # fmt: skip
async def test_sql_03_sqlite_pragma_attach_and_vacuum(lite: Shelf, query: str) -> None:
    await refused_by_sqlite(lite, query.format(folder=lite.services.folder))


@pytest.mark.parametrize(
    "query",
    ["SELECT load_extension('x')", "SELECT readfile('{folder}/secret.txt')", "SELECT writefile('{folder}/new', 'x')",
     "SELECT fts3_tokenizer('simple', x'00')", "SELECT edit('x')", "SELECT * FROM fsdir('{folder}')",
     "CREATE VIRTUAL TABLE v USING csv(filename='{folder}/secret.txt')"],
)  # fmt: skip
async def test_sql_04_sqlite_extensions_and_files(lite: Shelf, query: str) -> None:
    await refused_by_sqlite(
        lite, query.format(folder=lite.services.folder), kinds=("read_only", "invalid_arguments")
    )  # a function that is not there at all is a faulty statement


@pytest.mark.parametrize(
    "query",
    ["SELECT 1; DROP TABLE t", "SELECT ';'; DELETE FROM t", "SELECT 1;;;DELETE FROM t", "SELECT 1; -- x\nDELETE FROM t",
     'SELECT ";" FROM t; DELETE FROM t', "SELECT 1; SELECT 2", "SELECT * FROM t; PRAGMA user_version=1"],
)  # fmt: skip
async def test_sql_05_sqlite_several_statements(lite: Shelf, query: str) -> None:
    await refused_by_sqlite(lite, query)


async def test_sql_05_a_lonely_semicolon_or_comment_is_no_statement(lite: Shelf) -> None:
    for query in ("SELECT ';' AS s FROM t WHERE id = 1;", "SELECT ';' AS s; -- the end", "SELECT ';' AS s; /* x */ ;"):
        assert (await lite.value("sql_query", {"query": query}))["rows"] == [[";"]]


async def test_sql_05_a_statement_that_fails_half_way_leaves_nothing(lite: Shelf) -> None:
    lite.put("sql_query", {"connection_string": "sqlite:///a.db", "read_only": False}, as_name="write")
    folder = lite.services.folder
    before = disk(folder)
    for query in ("DELETE FROM t; DROP TABLE t", "DELETE FROM t; SELECT 1", "COMMIT", "ATTACH 'x.db' AS x", "VACUUM"):
        assert (await lite.call("write", {"query": query})).is_error, query
    assert disk(folder) == before
    changed = await lite.value("write", {"query": "UPDATE t SET name = ? WHERE id = ?", "params": ["z", 1]})
    assert changed["affected_rows"] == 1
    assert (await lite.value("sql_query", {"query": "SELECT name FROM t ORDER BY id"}))["rows"] == [["z"], ["b"]]


RUNAWAY = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000) "
    "SELECT count(*) FROM c a, c b, c d, c e",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000000) SELECT x FROM c ORDER BY -x",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c "
    "WHERE replace(hex(zeroblob(4000)), '0', 'a') || x LIKE '%a%a%a%a%a%a%a%b'",
]  # fmt: skip


@pytest.mark.parametrize("query", RUNAWAY)
async def test_sql_08_sqlite_runaway_queries_end_at_the_deadline_and_block_nobody(lite: Shelf, query: str) -> None:
    started = time.monotonic()
    running = asyncio.create_task(lite.error("sql_query", {"query": query}))
    beside = 0
    while not running.done():
        assert (await lite.value("sql_query", {"query": "SELECT count(*) FROM t"}))["rows"] == [[2]]
        beside += 1
        await asyncio.sleep(0.01)
    assert (await running).kind == "timeout"
    assert time.monotonic() - started < 1.7 * SLACK
    assert beside > 5


async def test_sql_08_sqlite_values_and_rows_are_bounded(lite: Shelf) -> None:
    for query in ("SELECT zeroblob(1000000000)", "SELECT printf('%1000000000d', 1)"):
        result = await lite.call("sql_query", {"query": query})
        assert len(str(result.structured)) < 2_000_000
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    rows = await lite.value("sql_query", {"query": many})
    assert (rows["row_count"], rows["truncated"]) == (1000, True)
    wide = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT printf('%0100000d', x) FROM c"
    rows = await lite.value("sql_query", {"query": wide})
    assert (rows["row_count"], rows["truncated"]) == (7, True)


def probes(own: str, other: str) -> list[str]:
    """Queries that try to see another space: directly, through the catalog, by joining, by asking for errors."""
    tables = ["t", f"{other}.t", f"main.{other}", "sqlite_master", "sqlite_schema", "pg_catalog.pg_class",
              "information_schema.tables", f"(SELECT * FROM t UNION SELECT * FROM {other}.t)"]  # fmt: skip
    columns = ["*", "count(*)", "max(name)", "hex(name)", "name || ''", "CAST(name AS INTEGER)", "quote(name)"]
    return [f"SELECT {column} FROM {table}" for table in tables for column in columns] + [
        f"ATTACH '{other}.db' AS o",
        f"SELECT * FROM t WHERE '{other}' = '{other}'",
        f"WITH x AS (SELECT * FROM t) SELECT * FROM x, {other}.t",
        "SELECT group_concat(sql) FROM sqlite_master",
    ]


async def test_sql_10_sqlite_each_space_has_a_file_of_its_own(tmp_path: Path) -> None:
    for space, name in (("s1", "mine"), ("s2", CANARY)):
        connection = sqlite3.connect(tmp_path / f"{space}.db")
        connection.execute("CREATE TABLE t (name TEXT)")
        connection.execute("INSERT INTO t VALUES (?)", (name,))
        connection.commit()
        connection.close()
    tools = Shelf(services=Services(folder=tmp_path)).put("sql_query", {"connection_string": "sqlite:///{space_id}.db"})
    for query in probes("s1", "s2"):
        result = await tools.call("sql_query", {"query": query}, space_id="s1")
        assert CANARY not in str(result), query
    assert (await tools.value("sql_query", {"query": "SELECT name FROM t"}, space_id="s2"))["rows"] == [[CANARY]]
    for nobody in (None, "", "../s2", "s2.db?x=", "s3"):
        assert (await tools.call("sql_query", {"query": "SELECT name FROM t"}, space_id=nobody)).is_error


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture(params=["superuser", "reader"])
def pg(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> Shelf:
    """sql_query on a real server: with the mightiest login there is, and with a humble one."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (id int, name text)")
        connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'reader'").fetchone() is None:
            connection.execute("CREATE ROLE reader LOGIN")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON t TO reader")
    url = postgres_url if request.param == "superuser" else postgres_url.replace("//postgres:", "//reader:")
    tools = Shelf(services=Services(folder=tmp_path))
    is_mighty = request.param == "superuser"
    return tools.put("sql_query", {"connection_string": url, "timeout_seconds": 1, "allow_superuser": is_mighty})


def table(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute("SELECT * FROM t ORDER BY id").fetchall()


async def refused_by_postgres(tools: Shelf, url: str, query: str, folder: Path) -> ToolError:
    (folder / "secret.txt").write_text(CANARY)
    before = disk(folder), table(url)
    error = await tools.error("sql_query", {"query": query.format(folder=folder)})
    assert error.kind == "read_only", (query, error)
    assert CANARY not in str(error)
    assert (disk(folder), table(url)) == before
    return error


PG_WRITES = [
    "DELETE FROM t",
    "/*x*/DELETE FROM t",
    "/* /* x */ */ DELETE FROM t",
    "--x\nDELETE FROM t",
    ";DELETE FROM t",
    "SELECT * INTO u FROM t",
    "SELECT * FROM t FOR UPDATE",
    "CREATE TABLE u (a int)",
    "DROP TABLE t",
    "TRUNCATE t",
    "EXPLAIN ANALYZE DELETE FROM t",
    "EXPLAIN ANALYZE CREATE TABLE u AS SELECT 1",
    "SELECT nextval('x')",
]
PG_CTES = [
    "WITH a AS (SELECT 1) DELETE FROM t",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "WITH x AS (INSERT INTO t VALUES (3, 'c') RETURNING *) SELECT count(*) FROM x",
]
PG_SESSION = [
    "VACUUM",
    "SET default_transaction_read_only = off",
    "SET TRANSACTION READ WRITE",
    "SET ROLE postgres",
    "RESET ROLE",
    "SET SESSION AUTHORIZATION postgres",
    "RESET ALL",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "DO $$ BEGIN DELETE FROM t; END $$",
    "PREPARE p AS DELETE FROM t",
    "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
    "LISTEN x",
    "LOCK t",
    "LOAD 'x'",
    "SELECT set_config('transaction_read_only', 'off', true)",
    "SELECT set_config('role', 'none', true)",
    "SELECT pg_catalog . \"set_config\" ('role', 'none', true), query_to_xml('DELETE FROM t', true, true, '')",
    "SELECT U&\"set\\005fconfig\"('role', 'none', true)",
    "SELECT 1 AS \u20ac$$, set_config('role', 'none', true) AS \u20ac$$",
    "SELECT 1 --\r, set_config('role', 'none', true)",
    "SELECT E'\\'', set_config('role', 'none', true) --'",
    "SELECT 'x' /* /* */ ' */ , set_config('role', 'none', true) --'",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "SELECT pg_notify('x', 'y')",
    "SELECT pg_sleep(60)",
]
PG_FILES = [
    "SELECT pg_read_file('{folder}/secret.txt')",
    "SELECT pg_read_binary_file('{folder}/secret.txt')",
    "SELECT * FROM pg_ls_dir('{folder}')",
    "SELECT (pg_stat_file('{folder}/secret.txt')).size",
    "SELECT * FROM PG_LS_LOGDIR()",
    "SELECT lo_import('{folder}/secret.txt')",
    "SELECT lo_export(1, '{folder}/new')",
    "SELECT lo_get(1)",
    "COPY t TO '{folder}/new'",
    "COPY t FROM '{folder}/secret.txt'",
    "COPY t TO PROGRAM 'touch {folder}/new'",
    "COPY (SELECT 1) TO STDOUT",
    "SELECT * FROM dblink('host=x', 'SELECT 1') AS d(a int)",
    "SELECT query_to_xml('SELECT pg_read_file(''{folder}/secret.txt'')', true, true, '')",
    "SELECT * FROM t WHERE name = pg_read_file('{folder}/secret.txt')",
    "WITH x AS MATERIALIZED (SELECT pg_read_file('{folder}/secret.txt')) SELECT * FROM x",
]
PG_SEVERAL = [
    "SELECT 1; DROP TABLE t",
    "SELECT ';'; DROP TABLE t",
    "SELECT $$;$$; DROP TABLE t",
    "SELECT $x$ $$;$x$; DROP TABLE t",
    "SELECT 1; COMMIT; DROP TABLE t",
    "SELECT 1; SELECT 2",
]


@pytest.mark.parametrize("query", PG_WRITES)
async def test_sql_01_postgres_writes_behind_comments(pg: Shelf, postgres_url: str, query: str, tmp_path: Path) -> None:
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


@pytest.mark.parametrize("query", PG_CTES)
async def test_sql_02_postgres_writes_in_a_cte(pg: Shelf, postgres_url: str, query: str, tmp_path: Path) -> None:
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


@pytest.mark.parametrize("query", PG_SESSION)
async def test_sql_04_postgres_session_and_role(pg: Shelf, postgres_url: str, query: str, tmp_path: Path) -> None:
    await refused_by_postgres(pg, postgres_url, query.replace("{", "{{").replace("}", "}}"), tmp_path)


@pytest.mark.parametrize("query", PG_FILES)
async def test_sql_04_postgres_functions_that_read_files(
    pg: Shelf, postgres_url: str, query: str, tmp_path: Path
) -> None:
    if "dblink" in query:
        # Not installed: the refusal is that there is no such function.
        assert (await pg.call("sql_query", {"query": query})).is_error
        return
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


@pytest.mark.parametrize("query", PG_SEVERAL)
async def test_sql_05_postgres_several_statements(pg: Shelf, postgres_url: str, query: str, tmp_path: Path) -> None:
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


async def test_sql_04_the_engine_holds_where_the_first_guard_is_passed(postgres_url: str) -> None:
    """Without our own look at the words, the role and the transaction still refuse."""
    from pegboard.sources.builtin.postgres import confine

    with psycopg.connect(postgres_url) as connection:
        connection.read_only = True
        confine(connection)
        for query in (
            "SELECT pg_read_file('/etc/hostname')",
            "SELECT * FROM pg_ls_dir('.')",
            "COPY (SELECT 1) TO PROGRAM 'true'",
        ):
            connection.execute("SAVEPOINT s")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(query)  # type: ignore[call-overload]
            connection.execute("ROLLBACK TO s")
        with pytest.raises((psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.InsufficientPrivilege)):
            connection.execute("CREATE TABLE u (a int)")


@pytest.mark.parametrize("right", ["SUPERUSER", "pg_read_server_files", "pg_write_server_files",
                                   "pg_execute_server_program"])  # fmt: skip
@pytest.mark.parametrize("read_only", [True, False])
async def test_sql_04_a_login_that_its_engine_cannot_hold_is_refused_unless_the_config_says_so(
    postgres_url: str, right: str, read_only: bool
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS mighty")
        connection.execute("CREATE ROLE mighty LOGIN")
        grant = "ALTER ROLE mighty SUPERUSER" if right == "SUPERUSER" else f"GRANT {right} TO mighty"
        connection.execute(grant)  # type: ignore[call-overload]
    url = postgres_url.replace("//postgres:", "//mighty:")
    tools = Shelf().put("sql_query", {"connection_string": url, "read_only": read_only})
    tools.put("sql_query", {"connection_string": url, "read_only": read_only, "allow_superuser": True}, as_name="wide")
    error = await tools.error("sql_query", {"query": "SELECT 1"})
    assert error.kind == "config_invalid"
    assert "allow_superuser" in error.message
    assert (await tools.value("wide", {"query": "SELECT 1"}))["rows"] == [[1]]
    if read_only:
        assert (await tools.error("wide", {"query": "SELECT pg_read_file('PG_VERSION')"})).kind == "read_only"


async def test_sql_04_passwords_of_other_roles_are_refused(pg: Shelf) -> None:
    for query in ("SELECT * FROM pg_authid", "TABLE pg_shadow", 'SELECT rolpassword FROM pg_catalog."pg_authid"'):
        assert (await pg.error("sql_query", {"query": query})).kind == "read_only"


@pytest.mark.parametrize(
    "query",
    ["SELECT count(*) FROM generate_series(1, 100000000000)",
     "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
     "SELECT count(*) FROM generate_series(1, 30000) a, generate_series(1, 30000) b, generate_series(1, 30000) c",
     "SELECT 1 FROM generate_series(1, 100000000) x ORDER BY md5(x::text)"],
)  # fmt: skip
async def test_sql_08_postgres_runaway_queries_end_at_the_deadline_and_block_nobody(pg: Shelf, query: str) -> None:
    started = time.monotonic()
    running = asyncio.create_task(pg.error("sql_query", {"query": query}))
    beside = 0
    while not running.done():
        assert (await pg.value("sql_query", {"query": "SELECT count(*) FROM t"}))["rows"] == [[2]]
        beside += 1
        await asyncio.sleep(0.01)
    assert (await running).kind == "timeout"
    assert time.monotonic() - started < 2 * SLACK
    assert beside > 2


async def test_sql_10_postgres_each_space_has_a_login_of_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS notes")
        connection.execute("CREATE TABLE notes (space text, name text)")
        connection.execute("INSERT INTO notes VALUES ('s1', 'mine'), ('s2', %s)", (CANARY,))
        connection.execute("ALTER TABLE notes ENABLE ROW LEVEL SECURITY")
        connection.execute("CREATE POLICY own ON notes USING ('space_' || space = session_user)")
        for space in ("s1", "s2"):
            connection.execute(f"DROP ROLE IF EXISTS space_{space}")  # type: ignore[arg-type]
            connection.execute(f"CREATE ROLE space_{space} LOGIN")  # type: ignore[arg-type]
            connection.execute(f"GRANT SELECT ON notes TO space_{space}")  # type: ignore[arg-type]
    tools = Shelf().put("sql_query", {"connection_string": postgres_url.replace("//postgres:", "//space_{space_id}:")})
    extra = [
        "SELECT row_to_json(n) FROM notes n", "SELECT set_config('role', 'space_s2', true), name FROM notes",
        "SELECT * FROM pg_stats WHERE tablename = 'notes'", "SELECT name::int FROM notes",
        "SELECT query_to_xml('SELECT * FROM notes', true, true, '')", "SET SESSION AUTHORIZATION space_s2",
    ]  # fmt: skip
    for query in [probe.replace(" t", " notes") for probe in probes("s1", "s2")] + extra:
        assert CANARY not in str(await tools.call("sql_query", {"query": query}, space_id="s1")), query
    assert (await tools.value("sql_query", {"query": "SELECT name FROM notes"}, space_id="s1"))["rows"] == [["mine"]]
    assert (await tools.value("sql_query", {"query": "SELECT name FROM notes"}, space_id="s2"))["rows"] == [[CANARY]]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE notes")
