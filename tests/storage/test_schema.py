"""Versions and migrations, the same on both databases."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pegboard.storage.database import Database, database_of
from pegboard.storage.sqlite_file import SqliteFile, use_python_sqlite
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import Schema, table_version
from pegboard.storage.store_uri import StoreUri
from tests.tasks.databases import database

ONE = Schema(
    name="notes",
    sqlite=("create table notes (id text primary key);",),
    tables=("notes",),
    unrecorded=table_version("notes"),
)
TWO = Schema(
    name="notes",
    sqlite=(*ONE.sqlite, "alter table notes add column words text; update notes set words = id || '; ';"),
    tables=("notes",),
    unrecorded=table_version("notes"),
)


@pytest.fixture(params=["sqlite", "python sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreUri]:
    if request.param == "postgres":
        with database(request.getfixturevalue("postgres_url")) as url:
            yield StoreUri.parse(url, folder=tmp_path)
        return
    if request.param == "python sqlite":
        use_python_sqlite(tmp_path / "notes.db")
    yield StoreUri.parse("sqlite:notes.db", folder=tmp_path)


def opened(uri: StoreUri, schema: Schema) -> Database:
    return database_of(uri, schema, busy_s=30.0)


def test_each_step_runs_once_and_in_order(uri: StoreUri) -> None:
    with opened(uri, ONE).transaction() as connection:
        connection("insert into notes (id) values (:id)", id="a")
    assert opened(uri, TWO).stored_version() == 1
    with pytest.raises(StoreError, match="notes have version 1, and this Pegboard needs 2"):
        with opened(uri, TWO).reading():
            raise AssertionError
    assert opened(uri, TWO).migrate() == (1, 2)
    assert opened(uri, TWO).migrate() == (2, 2)
    with opened(uri, TWO).reading() as connection:
        assert connection("select id, words from notes") == [("a", "a; ")]


def test_tables_of_before_versions_were_recorded_have_the_version_that_they_show(uri: StoreUri) -> None:
    with opened(uri, ONE).transaction() as connection:
        connection("insert into notes (id) values ('a')")
        connection.script("drop table pegboard_schema_versions")
    assert opened(uri, TWO).stored_version() == 1
    assert opened(uri, TWO).migrate() == (1, 2)


def test_a_step_that_fails_changes_nothing(uri: StoreUri) -> None:
    with opened(uri, ONE).transaction() as connection:
        connection("insert into notes (id) values ('a')")
    broken = Schema(
        name="notes", sqlite=(*ONE.sqlite, "alter table notes add column words text; select * from nowhere;"),
        tables=("notes",), unrecorded=table_version("notes"),
    )  # fmt: skip
    with pytest.raises(StoreError):
        opened(uri, broken).migrate()
    with opened(uri, ONE).reading() as connection:
        assert not connection.has("notes", "words")


def test_tables_of_a_newer_pegboard_are_refused(uri: StoreUri) -> None:
    opened(uri, TWO).migrate()
    with pytest.raises(StoreError, match=r"written by a newer Pegboard; this one knows 1\. Upgrade Pegboard"):
        opened(uri, ONE).migrate()


def test_of_many_that_open_it_at_once_one_migrates(uri: StoreUri) -> None:
    opened(uri, ONE).migrate()
    start = threading.Barrier(6)

    def migrate(_: int) -> int:
        start.wait(60)
        return opened(uri, TWO).migrate()[1]

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(migrate, range(6))) == [2] * 6


def test_two_stores_in_one_database_have_a_version_each(uri: StoreUri) -> None:
    other = Schema(
        name="others", sqlite=("create table others (id text);",), tables=("others",), first=7,
        unrecorded=table_version("others"),
    )  # fmt: skip
    opened(uri, TWO).migrate()
    opened(uri, other).migrate()
    with opened(uri, other).reading() as connection:
        versions = dict(connection("select store, version from pegboard_schema_versions"))  # type: ignore[arg-type] - pairs
    assert (versions["notes"], versions["others"]) == (2, 7)


def test_a_file_of_dbos_is_opened_with_the_library_that_dbos_uses(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    use_python_sqlite(path)
    with SqliteFile(path, ONE, busy_s=1.0).transaction() as connection:
        assert isinstance(connection.raw, sqlite3.Connection)
    with SqliteFile(tmp_path / "other.db", ONE, busy_s=1.0).transaction() as connection:
        assert not isinstance(connection.raw, sqlite3.Connection)


def test_who_may_not_see_the_versions_works_with_the_tables_that_are_there(postgres_url: str, tmp_path: Path) -> None:
    with database(postgres_url) as url, psycopg.connect(url, autocommit=True) as owner:
        opened(StoreUri.parse(url, folder=tmp_path), ONE).migrate()
        owner.execute("create role reader login")
        owner.execute("grant select, insert on notes to reader")
        parts = conninfo_to_dict(url)
        uri = f"postgresql://reader@/{parts['dbname']}?host={parts['host']}"
        with opened(StoreUri.parse(uri, folder=tmp_path), ONE).transaction() as connection:
            connection("insert into notes (id) values ('a')")
        owner.execute("drop owned by reader; drop role reader")
