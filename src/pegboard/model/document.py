"""Document: the scope, filters and contents of documents in a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from pegboard.model.json_types import JSON, JSONValue

Access = Literal["read", "write"]
SearchMode = Literal["hybrid", "vector", "keyword"]
SourceType = Literal["folder", "upload", "web", "feed", "git", "bucket", "site"]


class DocumentScope(Struct, frozen=True, kw_only=True):
    """The document spaces that one request may use. Every method of a store first derives it from the store's grants.

    `spaces` may be read; `writable` is the subset that may also be changed.
    """

    user: str | None = None
    spaces: tuple[str, ...] = ()
    writable: frozenset[str] = frozenset()


class DocumentFilters(Struct, frozen=True, kw_only=True):
    """Selects documents of a scope; an empty field selects all.

    `collection` is the id or the name of a source, which need not exist. `folder_path` includes its subfolders.
    `metadata` has values that a document must equal.
    """

    source_ids: tuple[str, ...] = ()
    feed_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    collection: str = ""
    folder_path: str = ""
    metadata: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])


EVERY_DOCUMENT = DocumentFilters()


class DocumentTable(Struct, frozen=True, kw_only=True):
    """The rows of a table in a document; a row has one JSON value per column."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[JSONValue, ...], ...]


class NewDocument(Struct, frozen=True, kw_only=True):
    """A document to ingest: its place in its source, and the parsed contents of its file.

    `path` includes the folders, separated by slashes. `error` explains why the file could not be read; such a document
    can be found by its name only. `metadata` describes the document: title, author, dates, language, headings, pages.
    `etag` is the version of the file at its source; empty if the file has to be read to know whether it has changed.
    """

    path: str
    mime: str
    size_bytes: int
    checksum: str
    modified_s: float | None = None
    text: str = ""
    metadata: JSON = field(default_factory=dict[str, JSONValue])
    tables: tuple[DocumentTable, ...] = ()
    error: str = ""
    etag: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether the file was read but has no text, such as a PDF of scanned pages."""
        return not self.error and not self.tables and not self.text.strip()


class LiveState(Struct, frozen=True, kw_only=True):
    """The state of a source that a server keeps in step with its place.

    `synced_at` is the end of the last run that succeeded, in seconds since 1970, 0 for never, and `documents` and
    `failures` are the files that it read and could not read. `trouble` is why the last run failed; empty if it did not.
    """

    space: str
    source: str
    origin: str
    synced_at: float = 0.0
    documents: int = 0
    failures: int = 0
    trouble: str = ""
