"""SQLite store: the document store in one file."""

from __future__ import annotations

from pathlib import Path

from pegboard.core.ports import Embedder
from pegboard.model.error import DefinitionError
from pegboard.storage.file_permissions import store_faults
from pegboard.storage.sqlite_file import opens_with_python
from pegboard.workspace.passage_embedder import PassageEmbedder
from pegboard.workspace.sqlite.sqlite_database import SqliteDatabase
from pegboard.workspace.store.document_store import SqlDocumentStore


class SqliteDocumentStore(SqlDocumentStore):
    """The documents of all spaces in one file, created on first use.

    Any number of processes on one machine can share it; it must be on a local disk.

    Args:
        path: the file.
        embedder: makes vectors of passages and questions; without one, search uses words only.

    Raises:
        DefinitionError: its folder does not exist, other users may write the file, or it contains tasks.
    """

    def __init__(self, path: Path, *, embedder: Embedder | None = None) -> None:
        if not path.parent.is_dir():
            raise DefinitionError(f"there is no folder {str(path.parent)!r} for it")
        if opens_with_python(path):
            text = f"{str(path)!r} is the file of tasks, which another SQLite library has open"
            raise DefinitionError(f"{text}; store documents in a separate file")
        for fault in store_faults(path):
            raise DefinitionError(fault.message)
        super().__init__(SqliteDatabase(path), embedder=None if embedder is None else PassageEmbedder(embedder))
        self.path, self.place = path, repr(str(path))
