"""Document: who may see and write which documents, which of them a question is about, and what a file becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from pegboard.model.json_types import JSON, JSONValue

Access = Literal["read", "write"]
SearchMode = Literal["hybrid", "vector", "keyword"]
SourceType = Literal["folder", "upload", "web", "feed"]


class DocumentScope(Struct, frozen=True, kw_only=True):
    """Whose documents one request may use: a store makes it from its grants, and asks for it first in every method.

    `spaces` are those that may be read, `writable` those of them that may be changed too.
    """

    user: str | None = None
    spaces: tuple[str, ...] = ()
    writable: frozenset[str] = frozenset()


class DocumentFilters(Struct, frozen=True, kw_only=True):
    """Which documents of a scope a question is about; an empty field leaves all of them.

    `collection` is the id or the name of a source; there need not be one. `folder_path` takes what lies below it too.
    `metadata` has values that a document's own must equal.
    """

    source_ids: tuple[str, ...] = ()
    feed_ids: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    collection: str = ""
    folder_path: str = ""
    metadata: Mapping[str, JSONValue] = field(default_factory=dict[str, JSONValue])


EVERY_DOCUMENT = DocumentFilters()


class DocumentTable(Struct, frozen=True, kw_only=True):
    """The rows of a table in a document; a row has one JSON value for each column."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[JSONValue, ...], ...]


class NewDocument(Struct, frozen=True, kw_only=True):
    """A document that is to be taken in: where it stands in its source, and what its file says.

    `path` has its folders, with slashes between them. `error` says why nothing could be read of the file; it is then
    known by its name alone. `metadata` is what is told of it: title, author, dates, language, headings, pages.
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

    @property
    def is_empty(self) -> bool:
        """Whether the file was read and says nothing, as a PDF of scanned pages does."""
        return not self.error and not self.tables and not self.text.strip()
