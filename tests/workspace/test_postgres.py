"""What only a PostgreSQL database has: several machines that share it, and row-level security behind every scope."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from tests import forking
from tests.workspace.library import Library, files, in_space
from tests.workspace.postgres_databases import Databases


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.empty()


@pytest.fixture
def library(url: str) -> Iterator[Library]:
    made = Library(url)
    yield made
    made.store.close()


TABLES = ("sources", "documents", "texts", "chunks", "postings", "spellings", "languages", "tables", "table_rows")


async def test_no_row_of_another_space_is_there_even_for_a_statement_that_forgets_to_ask(
    library: Library, url: str
) -> None:
    for space in ("s1", "s2"):
        await library.add(space, f"canary{space}", {"a.csv": f"canary{space} lease"})
    one = DocumentScope(spaces=("s1",))
    for table in TABLES:
        seen = await library.store._database.read(
            lambda db, table=table: [str(row) for row in db.execute(f"select * from {table}")], caller=None, scope=one
        )
        assert "canarys2" not in str(seen)
        assert len(seen) == {"postings": 5, "spellings": 12, "tables": 0, "table_rows": 0}.get(table, 1), table
    # Without a word of which spaces it is about, a transaction of the same login has nothing.
    with psycopg.connect(url, options="-c search_path=pegboard,public") as connection:
        for table in TABLES:
            assert connection.execute(f"select count(*) from {table}").fetchone() == (0,)  # type: ignore[arg-type] - of ours
        connection.execute("select set_config('pegboard.spaces', '', true)")
        assert connection.execute("select count(*) from documents").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("insert into texts values (1, 1, 'smuggled')")


async def test_two_machines_that_take_in_one_folder_at_once_end_as_one_would(
    library: Library, url: str, tmp_path: Path
) -> None:
    folder = files(tmp_path / "in", {f"{place:02}.txt": f"lease of house {place}" for place in range(40)})
    other = Library(url)
    reports = await asyncio.gather(library.take_in(folder), other.take_in(folder))
    assert not [report.bad for report in reports if report.bad]
    for each in (library, other):
        assert len((await each.call("find_by_name", pattern="*", limit=200))["items"]) == 40
        assert (await each.call("grep_documents", pattern="lease"))["total"] == 40
    [space] = await library.store.statistics()
    assert (space["documents"], space["chunks"]) == (40, 40)
    # What one takes in the other finds, and what one removes is gone for the other.
    await other.store.remove_source(other.store.operator_scope("s1"), "s1", "handbook")
    assert (await library.call("search_documents", query="lease"))["hits"] == []
    other.store.close()


async def test_connections_that_the_server_closed_cost_nobody_an_answer(library: Library, url: str) -> None:
    await library.add("s1", "handbook", {"a.txt": "lease"})
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid()"
        )
    assert len((await library.call("search_documents", query="lease"))["hits"]) == 1


async def test_a_server_that_is_away_is_told_of_without_its_address_but_to_the_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = Library(f"postgresql://canary:canary@/nowhere?host={tmp_path}")
    answer = await library.call("search_documents", in_space("s1"), query="lease")
    assert answer["error"][0] == "storage_unavailable"
    assert "canary" not in str(answer)
    assert str(tmp_path) not in str(answer)
    # Which of all causes it was stands in the log, and no password.
    assert f"{tmp_path}/.s.PGSQL" in caplog.text
    assert "canary" not in caplog.text
    with pytest.raises(CallError):
        await library.store.statistics()


def test_the_commands_work_on_it_as_on_a_file(url: str, tmp_path: Path) -> None:
    (tmp_path / "pegboard.yaml").write_text("workspace: {store: '${DOCUMENTS}'}\n")
    files(tmp_path / "handbook", {"leave.md": "# Leave\n\nThirty days.\n", "orders.csv": "region,total\nnorth,1\n"})
    env = {**os.environ, "DOCUMENTS": url}
    took = forking.run(["pegboard", "ingest", "handbook", "--space", "s1"], cwd=tmp_path, env=env)
    assert took.stdout == b"2 added in the space 's1'.\n", took
    shown = [forking.run(["pegboard", "workspace", word], cwd=tmp_path, env=env) for word in ("ls", "stats")]
    assert [b"in the PostgreSQL database." in each.stdout for each in shown] == [True, True], shown
    sql = '{"sql": "select total from orders"}'
    asked = forking.run(
        ["pegboard", "call", "query_documents", "--as", "space=s1", "--args", sql, "--json"], cwd=tmp_path, env=env
    )
    assert '"rows": [[1]]' in " ".join(asked.stdout.decode().split()).replace("[ ", "[").replace(" ]", "]"), asked
