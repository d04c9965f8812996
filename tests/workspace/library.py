"""A library for tests: a store in a folder, documents made of a few words, and folders of files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pegboard import Catalog, ToolContext
from pegboard.core.ports import Embedder
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.document import DocumentTable, NewDocument
from pegboard.workspace.file_reader import checksum_of
from pegboard.workspace.ingest import IngestReport, SourceIngest
from pegboard.workspace.postgres.postgres_store import PostgresDocumentStore
from pegboard.workspace.sources.folder_source import FolderSource
from pegboard.workspace.sqlite.sqlite_store import SqliteDocumentStore
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.store.writing import prepared

Place = Path | str
"""A folder for a file of SQLite, or the URI of a PostgreSQL database."""

ON_SQLITE_ALONE = pytest.mark.parametrize("place", ["sqlite"], indirect=True)
"""Of what is the same for either store, or of the file of SQLite."""


class Library:
    """A store with the tools on it, in a place of its own."""

    def __init__(self, place: Place, *, embedder: Embedder | None = None) -> None:
        self.place = place
        if isinstance(place, Path):
            self.store: SqlDocumentStore = SqliteDocumentStore(place / "documents.db", embedder=embedder)
        else:
            self.store = PostgresDocumentStore(place, embedder=embedder)
        self.catalog = Catalog()
        self.catalog.use_documents(self.store)

    async def add(
        self, space: str, source: str, texts: Mapping[str, str], *, tables: tuple[DocumentTable, ...] = (), **told: Any
    ) -> dict[str, str]:
        """Store texts by their paths; return their ids."""
        scope = self.store.operator_scope(space)
        await self.store.begin_source(scope, space, source, type_="folder", origin="")
        documents = [
            prepared(
                NewDocument(
                    path=path,
                    mime="text/plain",
                    size_bytes=len(text.encode()),
                    checksum=checksum_of(text.encode()),
                    text=text,
                    metadata=dict(told),
                    tables=tables,
                )
            )
            for path, text in texts.items()
        ]
        stored = await self.store.put(scope, space, source, documents)
        await self.store.end_source(scope, space, source)
        return {path: document_id for path, (document_id, _) in zip(texts, stored, strict=True)}

    async def take_in(
        self,
        folder: Path,
        *,
        space: str = "s1",
        source: str = "handbook",
        encoding: str | None = None,
        allow_shrink: bool = False,
    ) -> IngestReport:
        """Ingest a folder."""
        return await SourceIngest(
            store=self.store,
            scope=self.store.operator_scope(space),
            space=space,
            name=source,
            source=FolderSource(folder),
            max_file_bytes=DEFAULT_BOUNDS.upload_bytes,
            encoding=encoding,
            allow_shrink=allow_shrink,
        ).run()

    async def call(self, tool: str, ctx: ToolContext | None = None, /, **args: Any) -> Any:
        """Call a tool; return what it gives, or its error as `{"error": [kind, message]}`."""
        result = await self.catalog.view(ctx or in_space("s1")).call(tool, args)
        if result.error is not None:
            return {"error": [result.error.kind, result.error.message]}
        return result.structured

    async def read(self, uri: str, ctx: ToolContext) -> Any:
        """Read a resource; return its text, or its error, and `None` where there is none for this caller."""
        view = self.catalog.resources.view(ctx)
        found = await self.catalog.resources.find_resource(uri, view)
        if found is None:
            return None
        result = await view.call(found[0], found[2])
        if result.error is not None:
            return {"error": [result.error.kind, result.error.message]}
        return [getattr(block, "text", None) for block in result.content]

    async def resources(self, ctx: ToolContext) -> list[str]:
        """Return the URIs that a caller is shown."""
        [(_, offered)] = self.catalog.resources.resources(self.catalog.resources.view(ctx))
        assert offered.members is not None
        return [each.uri for each in await offered.members(ctx)]

    async def source_id(self, space: str = "s1", name: str = "handbook") -> str:
        items = (await self.call("list_sources", in_space(space)))["items"]
        [found] = [each["source_id"] for each in items if each["name"] == name]
        return found


def in_space(space: str | None, user: str | None = "ann", *roles: str) -> ToolContext:
    return ToolContext(user_id=user, space_id=space, roles=roles)


def files(folder: Path, content: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder."""
    for name, text in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def as_bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode()
