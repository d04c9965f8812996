"""The shared SQL cases on PostgreSQL, through sql_query. Named after their ids; the server itself is the observer."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psycopg
import pytest

from pegboard import ToolContext, ToolError
from pegboard.config import load_catalog
from pegboard.sources.builtin.kind import Services
from tests.builtin.database import postgres_url
from tests.builtin.parts import Shelf
from tests.security.test_ssrf import forget_peak, peak_kib
from tests.security.test_tool_sql import CANARY, disk, probes, soonest
from tests.timing import CPU, PATIENCE_S, is_within

__all__ = ["postgres_url"]


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
    config = {"connection_string": url, "allow_superuser": is_mighty}
    tools.put("sql_query", config | {"timeout_seconds": 60}, as_name="patient")
    return tools.put("sql_query", config | {"timeout_seconds": 1})


def table(url: str) -> list[tuple[object, ...]]:
    """The rows, and how much else there is: tables, roles, settings of roles, large objects, locks for ever."""
    others = (
        "pg_class",
        "pg_roles",
        "pg_db_role_setting",
        "pg_largeobject_metadata",
        "pg_locks WHERE locktype = 'advisory'",
    )
    with psycopg.connect(url, autocommit=True) as connection:
        counted = ", ".join(f"(SELECT count(*) FROM {each})" for each in others)
        rows = connection.execute("SELECT * FROM t ORDER BY id").fetchall()
        return [*rows, *connection.execute(f"SELECT {counted}").fetchall()]  # type: ignore[call-overload]


async def refused_by_postgres(tools: Shelf, url: str, query: str, folder: Path) -> ToolError:
    (folder / "secret.txt").write_text(CANARY)
    before = disk(folder), table(url)
    error = await tools.error("patient", {"query": query.format(folder=folder)})
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
    # Spelled so that a name seems to stand in a string.
    "SELECT E'a''b\\'c', pg_sleep(60), 'x'",
    "SELECT E'a'\n'b\\'c', pg_sleep(60), 'x'",
    "SELECT e'a' --x\n --y\n 'b\\'c', pg_sleep(60), 'x'",
    "SELECT 1e5$$ a $$, pg_sleep(60), $$ b$$",
    "SELECT 0x1f$$, pg_sleep(60) AS y$$",
    "SELECT txid_current()",
    "EXPLAIN ANALYZE SELECT pg_sleep(60)",
    "VALUES (pg_try_advisory_lock(1))",
    "SELECT ('x'::text).pg_sleep",
    "SELECT * FROM ROWS FROM (pg_sleep(60)) AS s",
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


async def test_sql_04_strings_end_where_they_seem_to_whatever_the_login_has_set(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS careless")
        connection.execute("CREATE ROLE careless LOGIN")
        connection.execute("ALTER ROLE careless SET standard_conforming_strings = off")
    url = postgres_url.replace("//postgres:", "//careless:")
    tools = Shelf().put("sql_query", {"connection_string": url, "timeout_seconds": 1})
    got = await tools.value("sql_query", {"query": "SELECT 'a\\'', pg_sleep(60) --'"})
    assert got["rows"] == [["a\\', pg_sleep(60) --"]]


@pytest.mark.parametrize("query", PG_FILES)
async def test_sql_04_postgres_functions_that_read_files(
    pg: Shelf, postgres_url: str, query: str, tmp_path: Path
) -> None:
    if "dblink" in query:
        # Not installed: the refusal is that there is no such function.
        assert (await pg.call("patient", {"query": query})).is_error
        return
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


@pytest.mark.parametrize("query", PG_SEVERAL)
async def test_sql_05_postgres_several_statements(pg: Shelf, postgres_url: str, query: str, tmp_path: Path) -> None:
    await refused_by_postgres(pg, postgres_url, query, tmp_path)


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("SELECT %(a')s::text, pg_sleep(60), 'x'", {"a'": "1"}),
        ("SELECT %(a/*)s::text, pg_sleep(60) /* */", {"a/*": "1"}),
        ("SELECT %s$$ a $$, pg_sleep(60), $$ b $$", ["1"]),
        ("SELECT $%s, pg_sleep(60), $%s", ["1", "2"]),
        ("SELECT %s::text, '%%', pg_sleep(60)", ["1"]),
        ("SELECT %(a)s::text, pg_sleep(60)", {"a": "1"}),
    ],
)
async def test_sql_04_no_placeholder_hides_a_name(pg: Shelf, query: str, params: object) -> None:
    started = time.monotonic()
    error = await pg.error("patient", {"query": query, "params": params})
    assert error.kind in ("read_only", "invalid_arguments"), error
    assert is_within(time.monotonic() - started, 1)


async def test_sql_04_the_engine_holds_where_the_first_guard_is_passed(postgres_url: str) -> None:
    """Without our own look at the words, the role and the transaction still refuse."""
    from pegboard.sources.builtin.postgres_engine import confine

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
        assert (await pg.error("patient", {"query": query})).kind == "read_only"
    hidden = "SELECT table_to_xml('pg_authid', true, true, ''), schema_to_xml('pg_catalog', true, true, '')"
    for query in (hidden, "SELECT umoptions FROM information_schema._pg_user_mappings"):
        # The humble login is refused by the server itself, in its own words.
        assert (await pg.error("patient", {"query": query})).kind in ("read_only", "invalid_arguments")


async def test_passwords_of_other_roles_are_not_read_from_the_statistics_of_their_table(
    pg: Shelf, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for number in range(3):
            connection.execute(f"CREATE ROLE of_statistics_{number} LOGIN PASSWORD 'x{number}'")  # type: ignore[call-overload]
        connection.execute("ANALYZE pg_authid")
        try:
            for query in (
                "SELECT * FROM pg_stats WHERE tablename = 'pg_authid'", "SELECT * FROM pg_statistic", "TABLE pg_stats",
                "SELECT stavalues1::text FROM pg_catalog.\"pg_statistic\" WHERE starelid = 1260",
                "SELECT row_to_json(s) FROM pg_stats s", "SELECT * FROM pg_stats_ext_exprs",
            ):  # fmt: skip
                result = await pg.call("patient", {"query": query})
                assert "SCRAM-SHA-256" not in str(result), query
        finally:
            for number in range(3):
                connection.execute(f"DROP ROLE of_statistics_{number}")  # type: ignore[call-overload]


async def test_a_function_is_known_by_the_name_that_the_server_makes_of_what_is_written(
    pg: Shelf, postgres_url: str
) -> None:
    long = "a" * 62 + "\u00e9"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in ("\u00c4ndern", "\u0130x", "\u212aill", long[:62]):
            connection.execute(f"CREATE FUNCTION {name}() RETURNS int LANGUAGE sql VOLATILE AS 'SELECT 1'")  # type: ignore[call-overload]
        try:
            for query in (
                "SELECT \u00c4ndern()", 'SELECT "\u00c4ndern"()', "SELECT \u00c4NDERN()", "SELECT \u0130x()",
                "SELECT \u212aill()", f"SELECT {long}()", f'SELECT "{long}zz"()',
                f"SELECT {long.upper()[:62]}\u00e9b()",
            ):  # fmt: skip
                assert (await pg.error("patient", {"query": query})).kind == "read_only", query
        finally:
            for name in ("\u00c4ndern", "\u0130x", "\u212aill", long[:62]):
                connection.execute(f"DROP FUNCTION {name}()")  # type: ignore[call-overload]


async def test_a_function_that_runs_what_stands_in_a_string_is_refused_by_whatever_name(
    pg: Shelf, postgres_url: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # As the extension `tablefunc` makes it, which is not installed here.
        connection.execute("CREATE FUNCTION pivot(text) RETURNS text LANGUAGE internal STABLE AS 'upper'")
        connection.execute(
            "UPDATE pg_proc SET prolang = (SELECT oid FROM pg_language WHERE lanname = 'c'), prosrc = 'crosstab', "
            "probin = '$libdir/tablefunc' WHERE proname = 'pivot'"
        )
        try:
            error = await pg.error("patient", {"query": "SELECT pivot('SELECT pg_sleep(60)')"})
            assert (error.kind, "pivot may change something" in error.message) == ("read_only", True)
        finally:
            connection.execute("DROP FUNCTION pivot(text)")


async def test_sql_08_a_statement_of_many_placeholders_is_read_at_once(pg: Shelf) -> None:
    many = 30_000
    query = f"SELECT cardinality(ARRAY[{','.join(['%s'] * many)}]::int[])"
    started = time.process_time()
    assert (await pg.value("patient", {"query": query, "params": [1] * many}))["rows"] == [[many]]
    assert is_within(time.process_time() - started, 1, CPU)
    named = {f"p{number}": number for number in range(9_000)}
    started = time.process_time()
    await pg.call("patient", {"query": f"SELECT {', '.join(f'%({name})s' for name in named)}", "params": named})
    assert is_within(time.process_time() - started, 2, CPU)


async def test_no_tool_writes_tables_that_decide_who_may_run_what(postgres_url: str, tmp_path: Path) -> None:
    login = postgres_url.replace("//postgres:", "//table_writer:")
    config = tmp_path / "pegboard.yaml"
    tools = ", ".join(
        f"{{name: sql_query, as: {name}, type: builtin, config: "
        f"{{connection_string: '{url}', allow_superuser: true, read_only: {value}}}}}"
        for name, url, value in (
            ("reads", login, "true"),
            ("writes", login, "false"),
            ("may_all", postgres_url, "false"),
        )
    )
    config.write_text(f"consents: {{store: '{postgres_url}'}}\ntools: [{tools}]\n")
    view = load_catalog(config, env={})[0].view(ToolContext(budget=None))

    async def writes(query: str = "INSERT INTO own VALUES (1)", tool: str = "writes") -> str | None:
        result = await view.call(tool, {"query": query})
        if result.error is None:
            return None
        assert "consents" in result.error.message, result.error
        return result.error.kind

    with psycopg.connect(postgres_url, autocommit=True) as connection:

        def run(*statements: str) -> None:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload] - no literal

        run("CREATE ROLE table_writer LOGIN", "CREATE ROLE table_group NOINHERIT", "CREATE SCHEMA ours",
            "CREATE TABLE own (a int)", "GRANT ALL ON own TO table_writer", "CREATE TABLE ours.used_answers (a int)",
            "CREATE TABLE ours.consents (id text, args_digest text, state text)",
            "INSERT INTO ours.consents VALUES ('1', 'd', 'asked')",
            "GRANT USAGE ON SCHEMA ours TO table_writer", "GRANT SELECT ON ours.consents TO table_writer")  # fmt: skip
        try:
            # Who may read them, and change another's of the same name, changes nothing of ours.
            run("GRANT ALL ON ours.used_answers TO table_writer")
            assert await writes() is None
            for given, taken in (
                ("GRANT UPDATE ON ours.consents TO {}", "REVOKE UPDATE ON ours.consents FROM {}"),
                ("GRANT UPDATE (state) ON ours.consents TO {}", "REVOKE UPDATE (state) ON ours.consents FROM {}"),
                ("GRANT DELETE ON ours.consents TO {}", "REVOKE DELETE ON ours.consents FROM {}"),
                ("GRANT TRUNCATE ON ours.consents TO {}", "REVOKE TRUNCATE ON ours.consents FROM {}"),
                ("ALTER TABLE ours.consents OWNER TO {}", "ALTER TABLE ours.consents OWNER TO postgres"),
                ("ALTER SCHEMA ours OWNER TO {}", "ALTER SCHEMA ours OWNER TO postgres"),
                ("GRANT pg_write_all_data TO {}", "REVOKE pg_write_all_data FROM {}"),
            ):
                for role in ("table_writer", "PUBLIC", "table_group"):
                    if role == "PUBLIC" and ("OWNER" in given or "pg_write" in given):
                        continue
                    run("GRANT table_group TO table_writer", given.format(role))
                    for query in ("INSERT INTO own VALUES (1)", "UPDATE ours.consents SET state = 'approved'"):
                        assert await writes(query) == "config_invalid", (given, role)
                    run(taken.format(role), "REVOKE table_group FROM table_writer")
            assert await writes(tool="may_all") == "config_invalid"
            # A change of owners takes these along.
            run("GRANT USAGE ON SCHEMA ours TO table_writer", "GRANT SELECT ON ours.consents TO table_writer")
            assert (await view.call("reads", {"query": "SELECT state FROM ours.consents"})).error is None
            assert await writes() is None
            assert connection.execute("SELECT state FROM ours.consents").fetchall() == [("asked",)]
        finally:
            run("DROP SCHEMA ours CASCADE", "DROP TABLE own", "DROP OWNED BY table_writer, table_group",
                "DROP ROLE table_writer, table_group")  # fmt: skip


async def test_sql_08_a_row_of_postgres_larger_than_any_answer_is_not_held_in_memory(pg: Shelf) -> None:
    before_kib = forget_peak()
    for query in ("SELECT repeat('x', 40000000)", "SELECT repeat('x', 40000000)::int"):
        error = await pg.error("patient", {"query": query})
        assert error.kind == "result_too_large", error
    assert peak_kib() - before_kib < 55 * 1024


async def test_sql_08_a_postgres_that_hangs_is_left_alone_at_the_deadline(pg: Shelf, postgres_url: str) -> None:
    def ask() -> asyncio.Task[ToolError]:
        return asyncio.create_task(pg.error("sql_query", {"query": "SELECT count(*) FROM generate_series(1, 1e11)"}))

    running = ask()
    busy = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pegboard' AND query LIKE '%%1e11%%'"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE_S):
            while (found := connection.execute(busy).fetchone()) is None:
                if running.done():  # its second was over before we saw it
                    running = ask()
                await asyncio.sleep(0.01)
    os.kill(found[0], signal.SIGSTOP)
    try:
        error = await running
    finally:
        os.kill(found[0], signal.SIGCONT)
    assert (error.kind, "did not finish within 1 s" in error.message) == ("timeout", True)


@pytest.mark.parametrize(
    "query",
    ["SELECT count(*) FROM generate_series(1, 100000000000)",
     "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
     "SELECT count(*) FROM generate_series(1, 30000) a, generate_series(1, 30000) b, generate_series(1, 30000) c",
     "SELECT 1 FROM generate_series(1, 100000000) x ORDER BY md5(x::text)"],
)  # fmt: skip
async def test_sql_08_postgres_runaway_queries_end_at_the_deadline_and_block_nobody(
    pg: Shelf, postgres_url: str, query: str
) -> None:
    assert is_within(await soonest(pg, query), 0.2)
    # Nor does the server go on with it.
    active = "SELECT query FROM pg_stat_activity WHERE application_name = 'pegboard' AND state = 'active'"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        async with asyncio.timeout(PATIENCE_S):
            while connection.execute(active).fetchall():
                await asyncio.sleep(0.01)


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
        "SELECT jsonb_path_query(to_jsonb(n), '$.name') FROM notes n", "SELECT (SELECT max(name) FROM notes)",
        "SELECT json_agg(n) FROM notes n", "SELECT * FROM notes WHERE name LIKE 'CANARY%'",
        "SELECT name FROM notes UNION SELECT 'x'", "SELECT x.name FROM (SELECT * FROM notes) x, LATERAL (SELECT 1) y",
        "SELECT view_definition FROM information_schema.views", "SELECT most_common_vals FROM pg_stats",
    ]  # fmt: skip
    for query in [probe.replace(" t", " notes") for probe in probes("s1", "s2")] + extra:
        assert CANARY not in str(await tools.call("sql_query", {"query": query}, space_id="s1")), query
    # Nor does an error, a count or the time that something takes depend on what is not its own.
    for inference in (
        "SELECT 1 / (2 - count(*)) FROM notes", "SELECT count(*) FROM notes WHERE name LIKE 'CANARY%'",
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM notes WHERE space = 's2') THEN (SELECT count(*) FROM "
        "generate_series(1, 100000000000)) ELSE 1 END",
    ):  # fmt: skip
        found = await tools.value("sql_query", {"query": inference}, space_id="s1")
        assert found["rows"] in ([[1]], [[0]])
    assert (await tools.value("sql_query", {"query": "SELECT name FROM notes"}, space_id="s1"))["rows"] == [["mine"]]
    assert (await tools.value("sql_query", {"query": "SELECT name FROM notes"}, space_id="s2"))["rows"] == [[CANARY]]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP TABLE notes")


async def test_a_login_that_may_run_a_function_with_the_rights_of_its_owner_is_refused_unless_it_is_named(
    postgres_url: str, tmp_path: Path
) -> None:
    reader = postgres_url.replace("//postgres:", "//definer_reader:")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE definer_reader LOGIN")
        connection.execute("CREATE ROLE definer_group NOINHERIT")
        connection.execute("CREATE SCHEMA app")
        connection.execute("CREATE TABLE app.hits (at int)")
        # Of a query that only reads, it would write with the rights of the superuser.
        connection.execute(
            "CREATE FUNCTION app.count_hit() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN SET transaction_read_only = off; INSERT INTO app.hits VALUES (1); RETURN 1; END $$"
        )
        connection.execute("CREATE FUNCTION app.plain() RETURNS int LANGUAGE sql AS 'SELECT 1'")

    def hits() -> int:
        with psycopg.connect(postgres_url) as connection:
            row = connection.execute("SELECT count(*) FROM app.hits").fetchone()
            assert row is not None
            return int(row[0])

    def grant(*statements: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)  # type: ignore[call-overload] - no literal

    def tools(**more: object) -> Shelf:
        return Shelf(services=Services(folder=tmp_path)).put("sql_query", {"connection_string": reader, **more})

    try:
        # Without the schema it cannot be run.
        assert (await tools().value("sql_query", {"query": "SELECT 1 AS one"}))["rows"] == [[1]]
        ways = [
            ("GRANT USAGE ON SCHEMA app TO definer_reader", "REVOKE USAGE ON SCHEMA app FROM definer_reader"),
            (
                "GRANT USAGE ON SCHEMA app TO definer_group; GRANT definer_group TO definer_reader",
                "REVOKE definer_group FROM definer_reader; REVOKE USAGE ON SCHEMA app FROM definer_group",
            ),
        ]
        for given, taken in ways:
            grant(given)
            for query in ("SELECT app.count_hit()", "SELECT 1"):
                for more in ({}, {"allow_functions": ["app.plain"]}, {"allow_functions": ["count_hit"]}):
                    error = await tools(**more).error("sql_query", {"query": query})
                    assert (error.kind, "app.count_hit" in error.message) == ("config_invalid", True)
            assert hits() == 0
            named = tools(allow_functions=["app.count_hit"])
            assert (await named.value("sql_query", {"query": "SELECT 1 AS one"}))["rows"] == [[1]]
            grant(taken)
        grant("GRANT USAGE ON SCHEMA app TO definer_reader", "REVOKE EXECUTE ON FUNCTION app.count_hit() FROM PUBLIC")
        assert (await tools().value("sql_query", {"query": "SELECT 1 AS one"}))["rows"] == [[1]]
    finally:
        grant(
            "DROP SCHEMA app CASCADE", "DROP OWNED BY definer_reader", "DROP ROLE definer_reader",
            "DROP ROLE definer_group",
        )  # fmt: skip


THROUGH = {
    "an operator": (
        "CREATE FUNCTION hidden.count_hit(int, int) RETURNS int {body}",
        "CREATE OPERATOR public.@#@ (LEFTARG = int, RIGHTARG = int, FUNCTION = hidden.count_hit)",
        "SELECT 1 OPERATOR(public.@#@) 2",
    ),
    "a cast": (
        "CREATE TYPE public.pair AS (a int, b int); CREATE FUNCTION hidden.count_hit(public.pair) RETURNS int {body}",
        "CREATE CAST (public.pair AS int) WITH FUNCTION hidden.count_hit(public.pair)",
        "SELECT CAST(ROW(1, 2)::public.pair AS int)",
    ),
    "an aggregate": (
        "CREATE FUNCTION hidden.count_hit(int, int) RETURNS int {body}; "
        "REVOKE EXECUTE ON FUNCTION hidden.count_hit FROM PUBLIC",
        "CREATE AGGREGATE public.hits_of(int) (SFUNC = hidden.count_hit, STYPE = int, INITCOND = '0')",
        "SELECT public.hits_of(1)",
    ),
}


@pytest.mark.parametrize("way", THROUGH)
async def test_a_function_with_the_rights_of_its_owner_is_found_behind_what_reaches_it(
    postgres_url: str, tmp_path: Path, way: str
) -> None:
    reader = postgres_url.replace("//postgres:", "//indirect_reader:")
    function, around, query = THROUGH[way]
    body = "LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN SET transaction_read_only = off; "
    body += "INSERT INTO hidden.hits VALUES (1); RETURN 1; END $$"
    tools = Shelf(services=Services(folder=tmp_path)).put("sql_query", {"connection_string": reader})
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute("CREATE ROLE indirect_reader LOGIN")
            connection.execute("CREATE SCHEMA hidden")
            connection.execute("CREATE TABLE hidden.hits (at int)")
            connection.execute(function.format(body=body))  # type: ignore[call-overload] - no literal
            assert "rows" in await tools.value("sql_query", {"query": "SELECT 1"})
            connection.execute(around)  # type: ignore[call-overload] - no literal
            error = await tools.error("sql_query", {"query": query})
            assert (error.kind, "hidden.count_hit" in error.message) == ("config_invalid", True)
            assert connection.execute("SELECT count(*) FROM hidden.hits").fetchone() == (0,)
        finally:
            connection.execute("DROP SCHEMA hidden CASCADE")
            connection.execute("DROP TYPE IF EXISTS public.pair CASCADE")
            connection.execute("DROP OWNED BY indirect_reader")
            connection.execute("DROP ROLE indirect_reader")
