"""query_documents: a SELECT gives what it gives on plain tables; everything else is refused by the engine."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from pegboard import ToolContext
from pegboard.config import load_catalog
from pegboard.model.document import DocumentTable
from pegboard.model.error import CallError
from tests.workspace.library import Library, as_bytes, files, in_space

STORES = ("sqlite", "postgres")
ORDERS = (
    (1, "north", 10.5, "007", None),
    (2, "south", None, "10", "x"),
    (3, "north", 0, "9", ""),
    (4, None, -3, "1e3", "É"),
    (5, "west", 2**53 + 1, " 5", "true"),
    (6, "south", 1e300, "NULL", "x"),
)
PEOPLE = (("north", "ann", 1), ("south", "bob", 0), ("east", "cid", None))
TABLES = (
    DocumentTable(name="orders", columns=("id", "region", "total", "code", "note"), rows=ORDERS),
    DocumentTable(name="people", columns=("region", "name", "is_head"), rows=PEOPLE),
)


async def selected(library: Library, sql: str, **more: Any) -> Any:
    return await library.call("query_documents", sql=sql, **more)


def plain() -> apsw.Connection:
    """The same rows in tables that somebody made by hand."""
    db = apsw.Connection(":memory:")
    for table in TABLES:
        db.execute(f"create table t_{table.name} ({', '.join(table.columns)})")
        marks = ", ".join("?" * len(table.columns))
        db.executemany(f"insert into t_{table.name} values ({marks})", table.rows)
    return db


def drawn(dice: random.Random) -> str:
    """Return a SELECT over both tables."""
    value = dice.choice(["total", "id", "code", "note", "region", "coalesce(note, code)", "length(code)", "total * 2"])
    test = dice.choice(
        [
            "total > 0", "code = '10'", "code = 10", "note is null", "note = ''", "region in ('north', 'east')",
            "code like '%0%'", "typeof(total) = 'real'", "total between -5 and 20", "id % 2 = 0", "not (total > 1)",
            "cast(code as integer) > 8", "code < '9'", "region is not 'north'", "note = true", "id = 3.0",
        ]
    )  # fmt: skip
    total = dice.choice(
        ["count(*)", "sum(id)", "avg(total)", "min(code)", "max(note)", "group_concat(id)", "total(id)"]
    )
    order = dice.choice(["1", "1 desc", "2, 1", "id"])
    joined = test.replace("region", "o.region")
    join = dice.choice(["join", "left join"])
    return dice.choice(
        [
            f"select {value}, id from t_orders where {test} order by {order}",
            f"select region, {total} from t_orders where {test} group by region order by region",
            f"select region, {total} as n from t_orders group by region having n is not null order by 2, 1",
            f"select o.id, name from t_orders o {join} t_people p on p.region = o.region where {joined} order by o.id",
            f"select id, {total} over (partition by region order by id) from t_orders order by id",
            f"select id, rank() over (order by {value}, id), lag(code) over (order by id) from t_orders order by 1",
            f"with picked as (select * from t_orders where {test}) select count(*), min({value}) from picked",
            f"select distinct {value} from t_orders union select name from t_people order by 1",
            f"select {value} from t_orders where id in (select max(id) from t_orders group by region) order by 1",
            f"select case when {test} then {value} else 'no' end, id from t_orders order by id limit 4 offset 1",
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 9) "
            "select i, (select code from t_orders where id = i) from n",
        ]
    )


# The same engine runs them for either store; what differs is how rows come into it.
@pytest.mark.parametrize(
    ("place", "count"),
    [("sqlite", 500), ("postgres", 100), *(pytest.param(each, 2_000, marks=pytest.mark.soak) for each in STORES)],
    indirect=["place"],
)
async def test_a_select_gives_what_it_gives_on_plain_tables(library: Library, count: int) -> None:
    await library.add("s1", "data", {"t.json": "rows"}, tables=TABLES)
    db, dice, filled = plain(), random.Random(3), 0
    for _ in range(count):
        sql = drawn(dice)
        expected = [list(row) for row in db.execute(sql)]
        answer = await selected(library, sql)
        assert answer.get("rows") == expected, (sql, answer)
        filled += bool(expected)
    assert filled > count // 2


# What SQLite calls things of its own, and as what a file of that name can be asked for.
NAMES_OF_THE_ENGINE = {
    "sqlite_master": "t_sqlite_master", "SQLITE_sequence": "t_sqlite_sequence", "sqlite_x": "t_sqlite_x",
    "main": "main", "stored": "stored", "rowid": "rowid", "json_each": "json_each",
    "pragma_table_list": "pragma_table_list",
}  # fmt: skip


async def test_the_rows_of_a_file_are_numbers_only_where_all_of_a_column_are(library: Library, tmp_path: Path) -> None:
    folder = files(
        tmp_path / "in",
        {
            "orders 2026.csv": "id;Größe;code;none;order\n1;1.5;007;;a\n2;;10;;b\n",
            "list.json": '[{"a": 1, "b": [1, 2]}, {"a": true, "c": "x"}]',
            "order.tsv": "x\ty\n1\t2\n",
            "two/order.tsv": "x\n3\n",
            **{f"{name}.csv": f"is_from\n{name}\n" for name in NAMES_OF_THE_ENGINE},
        },
    )
    await library.take_in(folder)
    answer = await selected(library, 'select id, "Größe", code, none, "order", typeof(code) from orders_2026')
    assert answer["rows"] == [[1, 1.5, "007", None, "a", "text"], [2, None, "10", None, "b", "text"]]
    assert answer["columns"] == ["id", "Größe", "code", "none", "order", "typeof(code)"]
    assert (await selected(library, "select a, b, c from list"))["rows"] == [[1, "[1, 2]", None], [1, None, "x"]]
    # A word of SQL, and a name that is there twice.
    assert (await selected(library, "select * from t_order"))["rows"] == [[1, 2]]
    assert (await selected(library, "select x from t_order_2"))["rows"] == [[3]]
    for name, table in NAMES_OF_THE_ENGINE.items():
        assert (await selected(library, f"select is_from from {table}")).get("rows") == [[name]], table
    grouped = await selected(library, "select count(*) as n from orders_2026 group by code order by 1", limit=1)
    assert (grouped["rows"], grouped["truncated"], grouped["tables_used"]) == ([[1]], True, ["orders_2026"])


ATTACKS = [
    "delete from t_orders", "/*x*/ delete from t_orders", "-- x\ndelete from t_orders", "; delete from t_orders",
    "with a as (select 1) delete from t_orders", "insert into t_orders values (1,2,3,4,5)", "drop table t_orders",
    "update t_orders set id = 1", "create table x (a)", "create temp view v as select 1",
    "replace into t_orders select 1",
    "attach '{path}' as other", "attach ':memory:' as other", "vacuum", "vacuum into '{folder}/copy.db'",
    "pragma writable_schema = 1", "pragma query_only = 0", "pragma table_info(t_orders)", "begin", "savepoint x",
    "select load_extension('x')", "select readfile('{path}')", "select writefile('{folder}/x', 'x')",
    "select fts3_tokenizer('x')", "select randomblob(5)", "select zeroblob(5)", "select sqlite_version()",
    "select sqlite_source_id()", "select last_insert_rowid()", "select changes()", "select sqlite_compileoption_get(1)",
    "select * from pragma_table_list", "select 1; select 2", "select 1; drop table t_orders",
    "select * from t_orders; --\n delete from t_orders", "explain delete from t_orders", "analyze", "reindex",
    "alter table t_orders rename to x", "detach main",
]  # fmt: skip


ATTACKS_ON_POSTGRES = [
    "select set_config('pegboard.spaces', 'all', true), * from t_orders", "set pegboard.spaces = 'all'",
    "select * from pegboard.documents", "select * from pg_catalog.pg_tables", "select pg_read_file('/etc/passwd')",
    "copy (select 1) to program 'id'", "select current_setting('pegboard.spaces')",
]  # fmt: skip


async def test_a_column_that_was_mistyped_in_double_quotes_is_no_text(library: Library, tmp_path: Path) -> None:
    files(tmp_path / "files", {"fruit.csv": "name,price\napple,3\n"})
    await library.take_in(tmp_path / "files")
    kind, said = (await library.call("query_documents", sql='select "nmae" from fruit'))["error"]
    assert (kind, said) == (
        "invalid_arguments",
        'SQLite refuses the statement: no such column: "nmae" - should this be a string literal in single-quotes?. '
        "Correct it. fruit has: name, price.",
    )
    assert (await library.call("query_documents", sql="""select "name", 'nmae' from fruit"""))["rows"] == [
        ["apple", "nmae"]
    ]


async def test_everything_but_one_select_is_refused_and_changes_nothing(library: Library, tmp_path: Path) -> None:
    await library.add("s1", "data", {"t.json": "rows"}, tables=TABLES)
    before = await selected(library, "select * from t_orders order by id")
    library.store.close()
    file = tmp_path / "documents.db"
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""
    for attack in (*ATTACKS, *ATTACKS_ON_POSTGRES):
        sql = attack.format(path=file, folder=tmp_path)
        answer = await selected(library, sql)
        assert "error" in answer, (sql, answer)
        assert answer["error"][0] in ("read_only", "invalid_arguments"), (sql, answer)
    assert (hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "") == digest
    assert {path.name for path in tmp_path.iterdir()} <= {"documents.db", "documents.db-wal", "documents.db-shm"}
    assert await selected(library, "select * from t_orders order by id") == before


LOOKS_ELSEWHERE = [
    "select * from table_rows", "select cells from main.table_rows", "select cells from stored.table_rows",
    "select * from texts", "select * from documents", "select * from tables", "select * from spaces",
    "select * from grants",
    "select name, sql from sqlite_master", "select * from sqlite_schema", "select * from sqlite_temp_master",
    "select * from stored.sqlite_master", "select * from temp.sqlite_master", "select * from dbstat",
    "with t_orders as (select cells from table_rows) select * from t_orders",
    "with t_orders as (select cells from stored.table_rows) select * from t_orders",
    "select * from t_secrets", "select * from t_secrets__s2", "select * from t_orders union select * from t_secrets",
    "select (select group_concat(cells) from stored.table_rows)", "select * from passages", "select * from t_orders_2",
    "select * from t_orders where (select count(*) from t_secrets) > 0", "select * from t_orders__s2",
    "select json_extract((select cells from table_rows), '$[0]')", "select * from json_each((select text from texts))",
]  # fmt: skip


async def test_no_query_reads_a_byte_of_another_space(library: Library) -> None:
    await library.add("s1", "data", {"t.json": "rows"}, tables=TABLES)
    secrets = DocumentTable(name="secrets", columns=("canary",), rows=(("canary-s2",),) * 3)
    ids = await library.add("s2", "data", {"t.json": "canary-s2"}, tables=(secrets, *TABLES))
    for sql in LOOKS_ELSEWHERE:
        answer = await selected(library, sql)
        assert b"canary" not in as_bytes(answer), (sql, answer)
        # What SQLite itself tells of is the copy, in which nothing else is.
        if "error" not in answer:
            assert "sqlite_" in sql or "dbstat" in sql, (sql, answer)
    for more in ({"tables": ["t_secrets"]}, {"document_ids": [ids["t.json"]]}):
        assert (await selected(library, "select 1", **more))["error"][0] == "not_found"
    # Both have a table of this name: who may see both tells them apart, and everybody else sees no trace of it.
    assert (await selected(library, "select count(*) from t_orders"))["rows"] == [[6]]
    await library.store.grant("user:bob", "s1", "read")
    await library.store.grant("user:bob", "s2", "read")
    both = await library.call("query_documents", in_space(None, "bob"), sql="select * from t_orders")
    assert "t_orders__s1, t_orders__s2" in both["error"][1]
    counted = await library.call(
        "query_documents", in_space(None, "bob"), sql="select count(*) from t_orders__s1, t_orders__s2"
    )
    assert counted["rows"] == [[36]]


@pytest.mark.parametrize(
    "sql",
    [
        "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n",
        "select count(*) from t_orders a, t_orders b, t_orders c, t_orders d, t_orders e, t_orders f, t_orders g, "
        "t_orders h, t_orders i, t_orders j, t_orders k, t_orders l",
    ],
)
async def test_a_query_without_an_end_is_stopped_and_the_next_one_runs(library: Library, sql: str) -> None:
    await library.add("s1", "data", {"t.json": "rows"}, tables=TABLES)
    scope = await library.store.scope(in_space("s1"))
    with pytest.raises(CallError) as stopped:
        await library.store.query(scope, sql, limit=10, timeout_s=0.3)
    assert stopped.value.error.kind == "timeout"
    assert (await selected(library, "select count(*) from t_orders"))["rows"] == [[6]]


async def test_a_question_in_words_says_what_it_needs(library: Library) -> None:
    answer = await library.call("query_documents", question="How many orders are there?")
    assert answer["error"][0] == "invalid_arguments"
    assert "language model" in answer["error"][1]
    assert (await library.call("query_documents", question="x", sql="select 1"))["error"][0] == "invalid_arguments"
    nothing = await selected(library, "select * from orders")
    assert nothing["error"][1].endswith("There are no tables in these documents.")


async def test_a_query_runs_as_long_as_the_operator_says(tmp_path: Path) -> None:
    path = tmp_path / "pegboard.yaml"
    path.write_text('workspace: {store: "sqlite:./documents.db"}\nlimits: {sql_s: 0.2}\n', encoding="utf-8")
    catalog, _ = load_catalog(path, env={})
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"

    answer = await catalog.view(ToolContext(space_id="s1")).call("query_documents", {"sql": endless})
    await catalog.close()

    assert answer.error is not None
    assert (answer.error.kind, "0.2 s" in answer.error.message) == ("timeout", True)
