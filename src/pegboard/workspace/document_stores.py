"""Document stores: opens the document store of a URI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.core.ports import Embedder
from pegboard.lazy import LazyModule
from pegboard.storage.store_uri import StoreUri
from pegboard.workspace.parsers import NO_PARSERS, Parsers

if TYPE_CHECKING:
    from pegboard.workspace.postgres import postgres_store
    from pegboard.workspace.sqlite import sqlite_store
    from pegboard.workspace.store.document_store import SqlDocumentStore
else:
    postgres_store = LazyModule("pegboard.workspace.postgres.postgres_store")
    sqlite_store = LazyModule("pegboard.workspace.sqlite.sqlite_store")


def open_store(
    uri: str,
    *,
    folder: Path,
    embedder: Embedder | None = None,
    document_chars: int | None = None,
    parsers: Parsers = NO_PARSERS,
) -> SqlDocumentStore:
    """Return the store at `sqlite:FILE`, relative to the folder, or at `postgresql://HOST/DATABASE`.

    Raises:
        DefinitionError: it is neither, or cannot be used.
    """
    located = StoreUri.located(uri, folder=folder)
    store: SqlDocumentStore
    if located.path is None:
        store = postgres_store.PostgresDocumentStore(located.text, embedder=embedder)
    else:
        store = sqlite_store.SqliteDocumentStore(located.path, embedder=embedder)
    store.document_chars = document_chars or store.document_chars
    store.parsers = parsers
    return store
