"""The shared SQL cases on SQLite, through sql_query. Named after their ids; the observers are the database and disk."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from pegboard import DefinitionError, ToolContext, ToolError
from pegboard.config import load_catalog
from pegboard.sources.builtin.kind import Services
from tests.builtin.parts import Shelf
from tests.security.test_ssrf import forget_peak, peak_kib
from tests.timing import CPU, is_within

CANARY = "CANARY-77aa"


@pytest.fixture
def lite(tmp_path: Path) -> Shelf:
    """sql_query on an SQLite file, with a deadline of a second."""
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE t (id INTEGER, name TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, "a"), (2, "b")])
    connection.commit()
    connection.close()
    (tmp_path / "secret.txt").write_text(CANARY)
    tools, config = Shelf(services=Services(folder=tmp_path)), {"connection_string": "sqlite:///a.db"}
    tools.put("sql_query", config | {"timeout_seconds": 60}, as_name="patient")
    return tools.put("sql_query", config | {"timeout_seconds": 1})


def disk(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


async def refused_by_sqlite(tools: Shelf, query: str, *, kinds: tuple[str, ...] = ("read_only",)) -> ToolError:
    folder = tools.services.folder
    before = disk(folder)
    error = await tools.error("patient", {"query": query})
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


async def test_sql_01_sqlite_itself_opens_the_file_for_reading_alone(lite: Shelf) -> None:
    """A login that may write would, at its end, put what waits in the log into the database."""
    folder = lite.services.folder
    with closing(sqlite3.connect(folder / "busy.db")) as writer:
        writer.execute("PRAGMA journal_mode = wal")
        writer.execute("CREATE TABLE t (id INTEGER)")
        writer.execute("INSERT INTO t VALUES (7)")
        writer.commit()
        for name in ("busy.db", "busy.db-wal"):
            shutil.copy(folder / name, folder / name.replace("busy", "left"))
    lite.put("sql_query", {"connection_string": "sqlite:///left.db"}, as_name="left")
    before = {name: mark for name, mark in disk(folder).items() if name in ("left.db", "left.db-wal")}
    assert (await lite.value("left", {"query": "SELECT id FROM t"}))["rows"] == [[7]]
    assert {name: mark for name, mark in disk(folder).items() if name in ("left.db", "left.db-wal")} == before


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
        assert (await lite.value("patient", {"query": query}))["rows"] == [[";"]]


async def test_sql_05_a_statement_that_fails_half_way_leaves_nothing(lite: Shelf) -> None:
    lite.put("sql_query", {"connection_string": "sqlite:///a.db", "read_only": False}, as_name="write")
    folder = lite.services.folder
    before = disk(folder)
    for query in ("DELETE FROM t; DROP TABLE t", "DELETE FROM t; SELECT 1", "COMMIT", "ATTACH 'x.db' AS x", "VACUUM"):
        assert (await lite.call("write", {"query": query})).is_error, query
    assert disk(folder) == before
    changed = await lite.value("write", {"query": "UPDATE t SET name = ? WHERE id = ?", "params": ["z", 1]})
    assert changed["affected_rows"] == 1
    assert (await lite.value("patient", {"query": "SELECT name FROM t ORDER BY id"}))["rows"] == [["z"], ["b"]]


RUNAWAY = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000) "
    "SELECT count(*) FROM c a, c b, c d, c e",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000000) SELECT x FROM c ORDER BY -x",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c "
    "WHERE replace(hex(zeroblob(4000)), '0', 'a') || x LIKE '%a%a%a%a%a%a%a%b'",
    # Few steps, each of which takes long.
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
    "SELECT sum(length(hex(zeroblob(2000000 + x % 2)))) FROM c",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c), "
    "v(j) AS (SELECT '[' || replace(hex(zeroblob(500000)), '0', '1,') || '1]') "
    "SELECT sum(length(json(j || substr('  ', 1, x % 2)))) FROM c, v",
]  # fmt: skip


@pytest.mark.parametrize("query", RUNAWAY)
async def test_sql_08_sqlite_runaway_queries_end_at_the_deadline_and_block_nobody(lite: Shelf, query: str) -> None:
    assert is_within(await soonest(lite, query), 0.2)


async def soonest(tools: Shelf, query: str) -> float:
    """Return how long after its deadline of a second a query ends: the first good try, or the best of three.

    The machine may be busy, so one try must show all: the query was stopped inside the engine, with its thread free
    again, and meanwhile others were answered (a query that blocks them lets one or two through, at its end).
    """
    tries: list[RunawayQuery] = []
    while len(tries) < 3 and not any(each.late_s < 0.2 and each.blocks_nobody for each in tries):
        tries.append(await run_away(tools, query))
    assert any(each.blocks_nobody for each in tries), tries
    return min(each.late_s for each in tries if each.blocks_nobody)


class RunawayQuery(NamedTuple):
    late_s: float
    answered: int
    message: str

    @property
    def blocks_nobody(self) -> bool:
        return self.answered > 2 and "did not finish within 1 s" in self.message


async def run_away(tools: Shelf, query: str) -> RunawayQuery:
    started = time.monotonic()
    running = asyncio.create_task(tools.error("sql_query", {"query": query}))
    answered = 0
    while not running.done():
        other = await tools.call("sql_query", {"query": "SELECT count(*) FROM t"})
        # Its own second may be over on a machine that stood still.
        assert other.error.kind == "timeout" if other.error else other.structured["rows"] == [[2]], other
        answered += other.error is None
        await asyncio.sleep(0.01)
    error = await running
    assert error.kind == "timeout"
    return RunawayQuery(time.monotonic() - started - 1, answered, error.message)


LONG = "replace(hex(zeroblob(2000000)), '0', 'z')"
ENDLESS = [
    f"SELECT length(instr({LONG}, {LONG} || 'y'))", f"SELECT length(replace({LONG}, 'zz', 'z'))",
    f"SELECT length(trim({LONG}, printf('%.*c', 3000000, 'b') || 'z'))",
    f"SELECT length(ltrim({LONG}, printf('%.*c', 3000000, 'b') || 'z'))",
    f"SELECT length(rtrim({LONG}, printf('%.*c', 3000000, 'b') || 'z'))",
    f"SELECT length(unhex({LONG}, printf('%.*c', 3000000, 'b') || 'z'))",
    "WITH v(j) AS (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000) "
    "SELECT json_group_object('k' || x, 1) FROM c) SELECT length(json_patch(j, j)) FROM v",
    "SELECT jsonb_patch('{}', '{}')", "SELECT geopoly_overlap('[[0,0],[1,0],[1,1],[0,0]]', 1)",
    f"SELECT json_extract({LONG}{', 1' * 200})", f"SELECT {LONG} LIKE '{'%z' * 49}y'",
]  # fmt: skip


@pytest.mark.parametrize("query", ENDLESS)
async def test_sql_08_no_function_of_sqlite_goes_on_where_nothing_stops_it(lite: Shelf, query: str) -> None:
    started = time.process_time()
    result = await lite.call("patient", {"query": query})
    assert is_within(time.process_time() - started, 4, CPU)
    assert result.error is None or "gave no answer" not in result.error.message, result.error


async def test_sql_08_sqlite_is_stopped_where_it_would_eat_the_memory(lite: Shelf) -> None:
    before_kib = forget_peak()
    value = "printf('%04000000d', 1)"
    for query in (
        f"SELECT {', '.join([value] * 400)}",
        f"SELECT max({', '.join([value] * 127)}), {', '.join([value] * 300)}",
        f"SELECT json_pretty('[1,1,1,1,1,1,1,1]', {value})",
    ):
        error = await lite.error("patient", {"query": query})
        assert error.kind in ("result_too_large", "invalid_arguments"), (query[:80], error)
    assert peak_kib() - before_kib < 400 * 1024
    assert (await lite.value("patient", {"query": "SELECT count(*) FROM t"}))["rows"] == [[2]]


async def test_sql_08_sqlite_values_and_rows_are_bounded(lite: Shelf) -> None:
    for query in ("SELECT zeroblob(1000000000)", "SELECT printf('%1000000000d', 1)"):
        result = await lite.call("patient", {"query": query})
        assert len(str(result.structured)) < 2_000_000
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
    rows = await lite.value("patient", {"query": many})
    assert (rows["row_count"], rows["truncated"]) == (1000, True)
    wide = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT printf('%0100000d', x) FROM c"
    rows = await lite.value("patient", {"query": wide})
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


@pytest.fixture
def library(lite: Shelf) -> Shelf:
    """The same file, with texts to search through and a tree of places; `write` may write."""
    with closing(sqlite3.connect(lite.services.folder / "a.db")) as connection:
        connection.executescript(
            "CREATE VIRTUAL TABLE d USING fts5(title, body);"
            "INSERT INTO d VALUES ('a', 'hello world'), ('b', 'bye world');"
            "CREATE VIRTUAL TABLE tri USING fts5(body, tokenize='trigram'); INSERT INTO tri VALUES ('hello world');"
            "CREATE VIRTUAL TABLE places USING rtree(id, low, high); INSERT INTO places VALUES (1, 0, 1), (2, 5, 6);"
            "CREATE TABLE plain_node (a); INSERT INTO plain_node VALUES (1);"
        )
        connection.commit()
    return lite.put("sql_query", {"connection_string": "sqlite:///a.db", "read_only": False}, as_name="write")


@pytest.mark.parametrize("tool", ["patient", "write"])
async def test_full_texts_and_trees_are_searched(library: Shelf, tool: str) -> None:
    before = disk(library.services.folder)
    for query, params, rows in (
        ("SELECT title FROM d WHERE d MATCH 'hello' ORDER BY rank", [], [["a"]]),
        ("SELECT title, snippet(d, 1, '[', ']', '', 5) FROM d WHERE d MATCH ?", ["bye"], [["b", "[bye] world"]]),
        ("SELECT title FROM d WHERE body MATCH :what AND bm25(d) < 1", {"what": "hello OR bye"}, [["a"], ["b"]]),
        ("SELECT title FROM d(?) WHERE rowid > 1", ["world"], [["b"]]),
        ("SELECT count(*) FROM tri WHERE body LIKE '%llo%'", [], [[1]]),
        ("SELECT t.name FROM t JOIN d ON d.rowid = t.id WHERE d MATCH 'bye'", [], [["b"]]),
        ("SELECT id FROM places WHERE low < ?", [3], [[1]]),
        ("EXPLAIN QUERY PLAN SELECT 1 FROM d WHERE d MATCH 'x'", [], None),
    ):
        found = (await library.value(tool, {"query": query, "params": params}))["rows"]
        assert rows is None or found == rows, query
    assert disk(library.services.folder) == before


@pytest.mark.parametrize(
    "query",
    ["INSERT INTO d VALUES ('c', 'd')", "INSERT INTO d(d) VALUES ('optimize')", "DELETE FROM d WHERE d MATCH 'hello'",
     "DELETE FROM d_data", "UPDATE places SET low = 1", "DELETE FROM places_node", "DELETE FROM places_rowid",
     "DELETE FROM plain_node", "INSERT INTO plain_node VALUES (2)", "UPDATE plain_node SET a = 2",
     "PRAGMA page_size=8192", "PRAGMA data_version=1", "PRAGMA temp_store=1", "PRAGMA query_only=0"],
)  # fmt: skip
async def test_full_texts_and_trees_are_not_written_by_what_only_reads(library: Shelf, query: str) -> None:
    # The tables that they stand in are nobody's to change, which SQLite says in its own words.
    await refused_by_sqlite(library, query, kinds=("read_only", "invalid_arguments"))


MANY = "z " * 40_000
WORKED_OUT = "SELECT count(*) FROM d WHERE d MATCH {}"


@pytest.mark.parametrize("tool", ["patient", "write"])
async def test_sql_08_no_question_of_a_full_text_search_is_read_for_minutes(library: Shelf, tool: str) -> None:
    doubled = "replace(printf('%.*c', 90000, 'x'), 'x', 'z ')"
    with_rows = "WITH RECURSIVE q(s, n) AS (SELECT 'z ', 0 UNION ALL SELECT s || s, n + 1 FROM q WHERE n < 18)"
    asked: list[tuple[str, list[str]]] = [
        (WORKED_OUT.format(f"'{MANY}'"), []), (WORKED_OUT.format("?"), [MANY * 9]), (WORKED_OUT.format(doubled), []),
        (WORKED_OUT.format(f"(SELECT {doubled})"), []), (f"SELECT count(*) FROM d({doubled})", []),
        (f"SELECT count(*) FROM (SELECT {doubled} AS q), d WHERE d MATCH q", []),
        (f"{with_rows} SELECT count(*) FROM q, d WHERE d MATCH q.s", []),
        (f"/* x */ ; {WORKED_OUT.format('? || ?')}", [MANY, MANY]),
        (f"SELECT (SELECT count(*) FROM d WHERE title = 'a' AND d MATCH q.name || {doubled}) FROM t q", []),
        (f"SELECT count(*) FROM t JOIN d ON d MATCH {doubled}", []),
        (f"SELECT 1 FROM tri WHERE body LIKE {doubled} UNION SELECT 1 FROM tri WHERE body GLOB {doubled}", []),
        (f"SELECT count(*) FROM d WHERE d = {doubled}", []),
        (f"SELECT CASE WHEN EXISTS (SELECT 1 FROM d WHERE d MATCH {doubled}) THEN 1 END", []),
    ]  # fmt: skip
    for query, params in asked:
        started = time.process_time()
        error = await library.error(tool, {"query": query, "params": params})
        assert (error.kind, "MATCH" in error.message) == ("invalid_arguments", True), (query[:80], error)
        assert is_within(time.process_time() - started, 0.5, CPU), query[:80]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="what a process has open is read from /proc")
@pytest.mark.parametrize(
    "query",
    ["SELECT x FROM c ORDER BY randomblob(20000)", "SELECT count(DISTINCT randomblob(20000)) FROM c",
     "SELECT x, randomblob(20000) FROM c UNION SELECT 1, 2", "SELECT count(*) FROM c GROUP BY randomblob(20000)",
     "SELECT sum(a) FROM (SELECT x a, randomblob(20000) b FROM c ORDER BY b), t"],
)  # fmt: skip
async def test_sql_08_what_a_query_sorts_fills_no_disk(lite: Shelf, query: str) -> None:
    over, sizes = threading.Event(), [0]

    def watch() -> None:
        while not over.wait(0.002):
            for handle in os.listdir("/proc/self/fd"):
                try:
                    if "(deleted)" in os.readlink(f"/proc/self/fd/{handle}"):
                        sizes.append(os.fstat(int(handle)).st_blocks * 512)
                except OSError:
                    pass

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
        error = await lite.error("patient", {"query": f"{endless} {query}"})
    finally:
        over.set()
        watcher.join()
    assert error.kind == "result_too_large"
    assert max(sizes) < 1 << 24


STORES = """
  identity: {api_keys: {store: 'sqlite:///keys.db'}, map: [{when: {key: k}, user: ann}]}
  consents: {store: 'sqlite:./answers.db'}
  agents: {store: 'sqlite:talks.db'}
"""


@pytest.mark.parametrize(
    "place", ["keys.db", "./keys.db", "answers.db", "talks.db", "sub/../keys.db", "%6beys.db", "link.db", "hard.db",
              "pegboard.lock", "folder/keys.db"],
)  # fmt: skip
async def test_no_tool_writes_a_database_that_decides_who_may_run_what(tmp_path: Path, place: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("keys.db", "answers.db", "talks.db", "pegboard.lock"):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            connection.execute("CREATE TABLE api_keys (id TEXT)")
            connection.commit()
    (tmp_path / "link.db").symlink_to("keys.db")
    os.link(tmp_path / "keys.db", tmp_path / "hard.db")
    tool = f"{{name: sql_query, type: builtin, config: {{connection_string: 'sqlite:///{place}', read_only: false}}}}"
    config = tmp_path / "pegboard.yaml"
    config.write_text("\n".join(line.strip() for line in STORES.splitlines()) + f"\ntools: [{tool}]\n")
    with pytest.raises(DefinitionError, match="decides what runs here"):
        load_catalog(config, env={})
    config.write_text(config.read_text().replace("read_only: false", "read_only: true"))
    load_catalog(config, env={})


async def test_no_space_is_called_as_a_database_that_decides_who_may_run_what(tmp_path: Path) -> None:
    for name in ("keys", "talks", "s1"):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            connection.execute("CREATE TABLE api_keys (id TEXT)")
            connection.commit()
    tools = ", ".join(
        f"{{name: sql_query, as: {name}, type: builtin, config: "
        f"{{connection_string: 'sqlite:///{{space_id}}.db', read_only: {value}}}}}"
        for name, value in (("reads", "true"), ("writes", "false"))
    )
    config = tmp_path / "pegboard.yaml"
    config.write_text("\n".join(line.strip() for line in STORES.splitlines()) + f"\ntools: [{tools}]\n")
    catalog = load_catalog(config, env={})[0]
    before = disk(tmp_path)
    for tool in ("reads", "writes"):
        for space in ("keys", "talks"):
            view = catalog.view(ToolContext(budget=None, user_id="ann", space_id=space))
            for query in ("SELECT * FROM api_keys", "INSERT INTO api_keys VALUES ('mine')"):
                result = await view.call(tool, {"query": query})
                assert result.error is not None
                assert (result.error.kind, "decides what runs" in result.error.message) == ("config_invalid", True)
    assert disk(tmp_path) == before
    view = catalog.view(ToolContext(budget=None, user_id="ann", space_id="s1"))
    assert (await view.call("writes", {"query": "INSERT INTO api_keys VALUES ('mine')"})).error is None
