"""Backup: copy the SQLite file of a store while others use it, and put a copy back."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.lazy import LazyModule
from pegboard.storage.sqlite_file import SqliteConnection, open_sqlite
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import VERSIONS_TABLE

if TYPE_CHECKING:
    import apsw
else:
    apsw = LazyModule("apsw")

BUSY_S = 10.0  # that another process may hold the file
_PAGES = 1_000  # copied between two chances for others to write
# Hold no records of anybody: how DBOS and Pegboard made the tables.
_BOOKKEEPING = frozenset({VERSIONS_TABLE, "dbos_migrations"})


def back_up(path: Path, target: Path) -> None:
    """Copy a database into a new file, for its owner only: its state at one moment, while others read and write.

    Raises:
        StoreError: the file cannot be read, other users may write it, or the target exists or cannot be written.
    """
    if target.exists():
        raise StoreError(f"{str(target)!r} exists already; name a new folder")
    partial = target.with_name(f"{target.name}.partial")
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        with (
            closing(open_sqlite(path, busy_s=BUSY_S, is_writing=False)) as source,
            closing(open_sqlite(partial, busy_s=BUSY_S)) as copy,
        ):
            _copy(source, copy)
            # One file, without a log next to it, whatever the source has.
            copy.script("pragma journal_mode = delete")
        partial.replace(target)
    except (apsw.Error, OSError) as error:
        with suppress(OSError):
            partial.unlink()
        raise StoreError(f"{str(path)!r} was not backed up: {error}") from error


def check_restore(backup: Path, path: Path, *, overwrite: bool) -> None:
    """Refuse a backup that cannot be restored, before anything is changed.

    Raises:
        StoreError: the backup is damaged or no database, or the store holds records and `overwrite` is not set.
    """
    try:
        with closing(open_sqlite(backup, busy_s=BUSY_S, is_writing=False)) as source:
            if source("pragma quick_check") != [("ok",)]:
                raise StoreError("the backup is damaged")
        if not overwrite and path.exists() and _has_records(path):
            raise StoreError("the store holds records; --overwrite replaces them")
    except (apsw.Error, OSError) as error:
        raise StoreError(f"{str(path)!r} was not restored from {str(backup)!r}: {error}") from error


def restore(backup: Path, path: Path) -> None:
    """Put a backup in the place of a database, which others then see at once.

    Raises:
        StoreError: the backup cannot be read, another process keeps the file for longer than ten seconds, or other
            users may write it.
    """
    try:
        with (
            closing(open_sqlite(backup, busy_s=BUSY_S, is_writing=False)) as source,
            closing(open_sqlite(path, busy_s=BUSY_S)) as target,
        ):
            _copy(source, target)
    except (apsw.Error, OSError) as error:
        raise StoreError(f"{str(path)!r} was not restored from {str(backup)!r}: {error}") from error


def _has_records(path: Path) -> bool:
    with closing(open_sqlite(path, busy_s=BUSY_S, is_writing=False)) as connection:
        tables = connection("select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'")
        quoted = ['"{}"'.format(name.replace('"', '""')) for (name,) in tables if name not in _BOOKKEEPING]
        return any(connection(f"select 1 from {name} limit 1") for name in quoted)  # noqa: S608 - quoted


def _copy(source: SqliteConnection, target: SqliteConnection) -> None:
    with target.raw.backup("main", source.raw, "main") as copying:
        while not copying.done:
            copying.step(_PAGES)
