"""SQLite store: the document store in one file."""

from __future__ import annotations

from pathlib import Path

from pegboard.core.ports import Embedder
from pegboard.model.error import DefinitionError
from pegboard.workspace.passage_embedder import PassageEmbedder
from pegboard.workspace.sqlite.sqlite_database import SqliteDatabase
from pegboard.workspace.store.document_store import SqlDocumentStore


class SqliteDocumentStore(SqlDocumentStore):
    """The documents of all spaces in one file, which is made with its first use.

    Any number of processes of one machine may share it; it must be on a local disk.

    Args:
        path: the file.
        embedder: makes vectors of passages and questions; without one, words alone find them.

    Raises:
        DefinitionError: its folder does not exist.
    """

    def __init__(self, path: Path, *, embedder: Embedder | None = None) -> None:
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")
        super().__init__(SqliteDatabase(path), embedder=None if embedder is None else PassageEmbedder(embedder))
        self.path, self.place = path, repr(str(path))
