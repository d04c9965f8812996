"""Upload: take one file in, under a path of a source; it stands in the place of what was there."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.parsing.formats import FORMATS, format_of


async def upload(
    store: DocumentStore, scope: DocumentScope, payload: bytes, *, space: str, source: str, path: str
) -> JSON:
    """Read a file and store what it says; return its id, its path, its passages and what became of it.

    A file that cannot be read is not stored, and leaves what was there.

    Raises:
        CallError: not_found; read_only; invalid_arguments, for a name, a kind or a content that cannot be taken.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    if not path or not path.isprintable() or ".." in parts:
        text = f"{path[:100]!r} is no path of a document: printable names with slashes, such as policies/leave.md."
        raise CallError("invalid_arguments", text)
    if format_of(path) is None:
        kinds = ", ".join(FORMATS)
        raise CallError("invalid_arguments", f"No parser reads {path[-100:]!r}. It has to end with one of: {kinds}.")
    async with FileReader() as reader:
        document = await reader.read(path, payload)
    if document.error:
        raise CallError("invalid_arguments", f"{path[-100:]!r} was not taken in: {document.error}.")
    stored = await store.ingest(scope, document, space=space, source=source, replaces=True)
    return {**stored, "space": space, "source": source}
