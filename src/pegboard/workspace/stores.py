"""Stores: the document store that a URI names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.core.ports import Embedder
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.workspace.postgres import postgres_store
    from pegboard.workspace.sqlite import sqlite_store
    from pegboard.workspace.store.document_store import SqlDocumentStore
else:
    postgres_store = LazyModule("pegboard.workspace.postgres.postgres_store")
    sqlite_store = LazyModule("pegboard.workspace.sqlite.sqlite_store")

_POSTGRES = ("postgres", "postgresql")


def open_store(uri: str, *, folder: Path, embedder: Embedder | None = None) -> SqlDocumentStore:
    """Return the store at `sqlite:FILE`, a relative one below the folder, or at `postgresql://HOST/DATABASE`.

    Raises:
        DefinitionError: it is neither, or cannot be used.
    """
    scheme, _, rest = uri.partition(":")
    if scheme in _POSTGRES:
        return postgres_store.PostgresDocumentStore(Secret(uri), embedder=embedder)
    if scheme != "sqlite" or not rest:
        kinds = "write sqlite:FILE or postgresql://HOST/DATABASE"
        raise DefinitionError(f"a store of the kind {scheme[:40]!r} is unknown; {kinds}")
    return sqlite_store.SqliteDocumentStore(folder / rest.removeprefix("//"), embedder=embedder)
