"""Glances: reading the file of a store on the event loop, without waiting for anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.storage import sqlite_file
from pegboard.storage.sqlite_file import SqliteFile, open_sqlite, use_python_sqlite
from pegboard.storage.store_schema import Schema, table_version

SCHEMA = Schema(name="things", sqlite=("create table things (n integer);",), tables=("things",),
                unrecorded=table_version("things"))  # fmt: skip
STATEMENT = "select n from things where n > :more_than"


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    tmp_path.chmod(0o700)
    return SqliteFile(tmp_path / "t.db", SCHEMA, busy_s=5.0)


def glanced(file: SqliteFile) -> list[int] | None:
    rows = file.glance(STATEMENT, more_than=0)
    return None if rows is None else [n for (n,) in rows]


def test_a_glance_sees_what_other_processes_have_committed(file: SqliteFile) -> None:
    assert glanced(file) is None, "there is no file"
    with file.transaction(only_reads=True) as connection:
        assert connection("select n from things") == [], "created although it only reads"
    assert glanced(file) == []
    with SqliteFile(file.path, SCHEMA, busy_s=5.0).transaction() as writer:
        writer("insert into things values (0)")
        writer("insert into things values (1)")
        assert glanced(file) == []
    assert glanced(file) == [1]
    file.close()
    assert glanced(file) == [1]
    file.close()


def test_a_glance_reads_the_file_that_replaced_another(file: SqliteFile) -> None:
    with file.transaction() as writer:
        writer("insert into things values (1)")
    spare = file.path.with_name("spare.db")
    spare.write_bytes(file.path.read_bytes())
    spare.chmod(0o600)
    with file.transaction() as writer:
        writer("insert into things values (2)")
    assert glanced(file) == [1, 2]
    spare.replace(file.path)
    assert glanced(file) == [1]
    file.close()


def test_a_glance_of_missing_tables_answers_nothing_and_of_later_ones_again(file: SqliteFile) -> None:
    other = Schema(name="others", sqlite=("create table others (n integer);",), tables=("others",),
                   unrecorded=table_version("others"))  # fmt: skip
    with SqliteFile(file.path, other, busy_s=5.0).transaction():
        pass
    assert glanced(file) is None
    with file.transaction():
        pass
    assert glanced(file) == []
    file.close()


def test_a_reader_waits_for_no_writer_and_a_glance_for_no_commit(file: SqliteFile) -> None:
    with file.transaction():
        pass
    assert glanced(file) == []
    with file.transaction() as writer:
        writer("insert into things values (1)")
        with SqliteFile(file.path, SCHEMA, busy_s=0.0).transaction(only_reads=True) as reader:
            assert reader("select n from things") == []
    connection = open_sqlite(file.path, busy_s=0.0)
    connection.script("begin exclusive")
    assert glanced(file) is None
    connection.close()
    assert glanced(file) == [1]
    file.close()


def test_a_file_of_the_other_library_is_not_glanced_at(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_of_python", set[str]())
    with file.transaction():
        pass
    use_python_sqlite(file.path)
    assert glanced(file) is None


def test_a_child_process_opens_its_own_connection(file: SqliteFile) -> None:
    with file.transaction():
        pass
    assert glanced(file) == []
    parent = file._glanced
    file.after_fork()
    assert glanced(file) == []
    assert file._glanced is not parent
    file.close()
