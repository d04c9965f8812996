"""Upload: take one file in, under a path of a source; it stands in the place of what was there."""

from __future__ import annotations

import asyncio
import logging

from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.parsing.formats import FORMATS, format_of
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.store.within import folder_of
from pegboard.workspace.store.writing import prepared

log = logging.getLogger("pegboard")


async def upload(
    store: SqlDocumentStore, scope: DocumentScope, payload: bytes, *, space: str, source: str, path: str
) -> JSON:
    """Read a file and store what it says; return its id, its path, its passages and what became of it.

    A file that cannot be read is not stored, and leaves what was there.

    Raises:
        CallError: not_found; read_only; invalid_arguments, for a name, a kind or a content that cannot be taken.
    """
    path = folder_of(path)
    if not path or not path.isprintable():
        raise CallError(
            "invalid_arguments", "A document has a path of printable characters, such as policies/leave.md."
        )
    if format_of(path) is None:
        kinds = ", ".join(FORMATS)
        raise CallError(
            "invalid_arguments", f"No parser reads {path[-100:]!r}. The name has to end with one of: {kinds}."
        )
    # Before the work: whoever may not write costs nothing.
    await store.begin_source(scope, space, source, type_="upload", origin="")
    try:
        async with FileReader() as reader:
            document = await reader.read(path, payload)
        if document.error:
            raise CallError("invalid_arguments", f"{path[-100:]!r} was not taken in: {document.error}.")
        ready = await asyncio.to_thread(prepared, document)
        [(document_id, became)] = await store.put(scope, space, source, [ready])
    finally:
        await store.end_source(scope, space, source)
    try:
        await store.embed_missing(scope, space)
    except CallError:
        raise
    except Exception as error:  # noqa: BLE001 - boundary: an embedder is foreign code; what is stored is found by its words
        log.warning("A document was stored, and its passages have no vectors yet: %s", error)
    return {
        "document_id": document_id, "space": space, "source": source, "path": path, "status": became,
        "chunks": len(ready.passages), "tables": len(document.tables),
    }  # fmt: skip
