"""Change marks: whether another process has changed the file of a store, without waiting for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegboard.storage import sqlite_file
from pegboard.storage.sqlite_file import SqliteFile, open_sqlite, use_python_sqlite
from pegboard.storage.store_schema import Schema, table_version

SCHEMA = Schema(name="things", sqlite=("create table things (n integer);",), tables=("things",),
                unrecorded=table_version("things"))  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    tmp_path.chmod(0o700)
    return SqliteFile(tmp_path / "t.db", SCHEMA, busy_s=5.0)


def test_a_mark_differs_after_a_change_and_not_after_a_look(file: SqliteFile) -> None:
    assert file.change_mark() is None, "there is no file"
    with file.transaction(only_reads=True) as connection:
        assert connection("select n from things") == [], "created although it only reads"
    before = file.change_mark()
    assert before is not None
    with file.transaction(only_reads=True) as connection:
        connection("select n from things")
    with file.reading() as connection:
        connection("select n from things")
    assert file.change_mark() == before
    with SqliteFile(file.path, SCHEMA, busy_s=5.0).transaction() as connection:
        connection("insert into things values (1)")
    after = file.change_mark()
    assert after not in (None, before)
    assert file.change_mark() == after
    file.close()
    assert file.change_mark() not in (None, after), "numbers of another connection mean nothing"
    file.close()


def test_a_file_that_was_replaced_has_another_mark(file: SqliteFile) -> None:
    with file.transaction():
        pass
    before = file.change_mark()
    spare = file.path.with_name("spare.db")
    spare.write_bytes(file.path.read_bytes())
    spare.chmod(0o600)
    spare.replace(file.path)
    assert file.change_mark() not in (None, before)
    file.close()


def test_a_look_waits_for_no_writer_and_a_mark_for_no_commit(file: SqliteFile) -> None:
    with file.transaction():
        pass
    assert file.change_mark() is not None
    with file.transaction() as writer:
        writer("insert into things values (1)")
        with SqliteFile(file.path, SCHEMA, busy_s=0.0).transaction(only_reads=True) as reader:
            assert reader("select n from things") == []
    connection = open_sqlite(file.path, busy_s=0.0)
    connection.script("begin exclusive")
    assert file.change_mark() is None
    connection.close()
    assert file.change_mark() is not None
    file.close()


def test_a_file_of_the_other_library_is_not_watched(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "_of_python", set[str]())
    with file.transaction():
        pass
    use_python_sqlite(file.path)
    assert file.change_mark() is None


def test_a_child_process_opens_its_own_connection(file: SqliteFile) -> None:
    with file.transaction():
        pass
    before = file.change_mark()
    file.after_fork()
    assert file.change_mark() not in (None, before)
    file.close()
