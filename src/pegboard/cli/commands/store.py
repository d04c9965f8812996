"""store: back up, restore and migrate the databases that a config names."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pegboard.cli.command_error import CommandError, Exit
from pegboard.cli.options import Options, SharedOptions
from pegboard.cli.project import find_config
from pegboard.cli.terminal import Column
from pegboard.config import load
from pegboard.config.stores import SCHEMAS, DeclaredStore, store_database, stores_of
from pegboard.model.error import DefinitionError
from pegboard.storage.backup import BUSY_S, back_up, check_restore, restore
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import Schema

_CREATED = "Folder for the copies; it is created if it is missing."
_FOLDER = "Folder with the copies that `pegboard store backup` wrote."
_OVERWRITE = "Replace stores that contain records."
_DRY_RUN = "Show the versions; change nothing."
_COLUMNS = (
    Column(head="Store", style="bold"),
    Column(head="Place"),
    Column(head="Version"),
    Column(head="State"),
)


def backup_command(folder: Annotated[Path, Parameter(help=_CREATED)], /, *, options: SharedOptions) -> None:
    """Copy every SQLite store into a folder, even while the server runs."""
    with _stores(options) as stores:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _show(list(_backed_up(stores, folder)), options)


def restore_command(
    folder: Annotated[Path, Parameter(help=_FOLDER)],
    /,
    *,
    overwrite: Annotated[bool, Parameter(help=_OVERWRITE)] = False,
    options: SharedOptions,
) -> None:
    """Restore the copies from a folder. Stop the server first."""
    with _stores(options) as stores:
        _show(list(_restored(stores, folder, overwrite=overwrite)), options)


def migrate_command(*, dry_run: Annotated[bool, Parameter(help=_DRY_RUN)] = False, options: SharedOptions) -> None:
    """Migrate every store to this version of Pegboard, and show the versions."""
    with _stores(options) as stores:
        _show([_migrated(store, dry_run=dry_run) for store in stores], options)


@contextmanager
def _stores(options: Options) -> Generator[list[DeclaredStore]]:
    """Yield the stores that the config names; report errors of a store."""
    path = find_config(options.config, start=Path.cwd())
    stores = list(stores_of(load(path, env=os.environ)))
    if not stores:
        raise CommandError(f"{str(path)!r} names no store in SQLite or PostgreSQL.", kind="no_store")
    try:
        yield stores
    except (StoreError, DefinitionError, OSError) as error:
        raise CommandError(str(error), kind="store_refused", code=Exit.REFUSED) from None


Row = tuple[str, str, str, str]


def _migrated(store: DeclaredStore, *, dry_run: bool) -> Row:
    schema, database = SCHEMAS[store.name], store_database(store)
    if store.uri.path is not None and not store.uri.path.exists():
        return store.name, _place(store), "", "not created yet"
    before = database.stored_version()
    if before == 0:
        return store.name, _place(store), "", "not created yet"
    if dry_run:
        state = "current" if before == schema.version else f"version {schema.version} is due"
        return store.name, _place(store), str(before), state
    _, after = database.migrate()
    return store.name, _place(store), str(after), "current" if before == after else f"migrated from {before}"


def _backed_up(stores: list[DeclaredStore], folder: Path) -> Iterator[Row]:
    for path, names in _files(stores).items():
        if not path.exists():
            yield names, str(path), "", "not created yet"
            continue
        back_up(path, folder / f"{names}.db")
        yield names, str(path), "", f"copied to {str(folder / f'{names}.db')!r}"
    yield from _of_postgres(stores, "pg_dump --format=custom --file={file} URL")


def _restored(stores: list[DeclaredStore], folder: Path, *, overwrite: bool) -> Iterator[Row]:
    files = {path: (names, folder / f"{names}.db") for path, names in _files(stores).items()}
    # All copies are checked before the first store is overwritten.
    for path, (names, backup) in files.items():
        if backup.exists():
            check_restore(backup, path, overwrite=overwrite)
            for name in names.split("+"):
                _refuse_newer(backup, SCHEMAS[name])
    for path, (names, backup) in files.items():
        if not backup.exists():
            yield names, str(path), "", f"no copy {str(backup)!r}"
            continue
        restore(backup, path)
        for name in names.split("+"):
            SqliteFile(path, SCHEMAS[name], busy_s=BUSY_S).migrate()
        yield names, str(path), "", "restored"
    yield from _of_postgres(stores, "pg_restore --clean --if-exists --dbname=URL {file}")


def _refuse_newer(backup: Path, schema: Schema) -> None:
    version = SqliteFile(backup, schema, busy_s=BUSY_S).stored_version()
    if version > schema.version:
        raise StoreError(
            f"{str(backup)!r} holds {schema.name} of version {version}; this Pegboard knows {schema.version}"
        )


def _files(stores: list[DeclaredStore]) -> dict[Path, str]:
    """Return the SQLite files, each with the names of the stores in it."""
    files: dict[Path, list[str]] = {}
    for store in stores:
        if store.uri.path is not None:
            files.setdefault(store.uri.path, []).append(store.name)
    return {path: "+".join(sorted(names)) for path, names in files.items()}


def _of_postgres(stores: list[DeclaredStore], command: str) -> Iterator[Row]:
    for store in stores:
        if store.uri.path is None:
            yield store.name, "PostgreSQL", "", f"not done here; run {command.format(file=f'{store.name}.dump')}"


def _place(store: DeclaredStore) -> str:
    return "PostgreSQL" if store.uri.path is None else str(store.uri.path)


def _show(rows: list[Row], options: Options) -> None:
    if options.json:
        keys_of_row = ("store", "place", "version", "state")
        options.terminal.json({"stores": [dict(zip(keys_of_row, row, strict=True)) for row in rows]})
        return
    options.terminal.table(_COLUMNS, [list(row) for row in rows])
