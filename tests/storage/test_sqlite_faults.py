"""SQLite faults: what an operator reads about a store that cannot be used."""

from pathlib import Path

import pytest

from pegboard.storage import free_space
from pegboard.storage.sqlite_file import sqlite_fault


def test_a_full_disk_is_named_where_sqlite_reports_an_io_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    assert str(sqlite_fault(path, OSError("disk I/O error"))) == f"{str(path)!r}: disk I/O error"
    monkeypatch.setattr(free_space, "LEAST_FREE_BYTES", 1 << 62)
    assert f"{str(path)!r}: the disk is full (" in str(sqlite_fault(path, OSError("disk I/O error")))
    assert str(sqlite_fault(path, OSError("file is not a database"))) == f"{str(path)!r}: file is not a database"
