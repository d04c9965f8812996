"""Upload: store one file under a path of a source; it replaces the document at that path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pegboard.core.ports import DocumentStore
from pegboard.model.call_context import CallContext
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.resource import DocumentSpec
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.own_metadata import METADATA_KEYS, checked_metadata
from pegboard.workspace.parsers import parsers_of
from pegboard.workspace.shown_names import can_be_shown

UPLOAD_S = 300.0  # seconds to receive the file of an upload


def upload_entry(store: DocumentStore, groups: Sequence[str]) -> ToolEntry:
    """Return the entry that stores uploaded files; every upload is a guarded call of it.

    Callers who see one of the groups may upload. Hooks and records see the place, the size and the checksum of a file,
    not its content: that is the attachment of the request.
    """

    async def take(ctx: CallContext, args: JSON) -> JSON:
        attachment = ctx.request.attachment
        if attachment is None:
            raise CallError("invalid_arguments", "The request has no file. Send it as the body of POST /v1/documents.")
        scope = await store.scope(ctx)
        return await upload(
            store,
            scope,
            attachment.content,
            space=args["space"],
            source=args["source"],
            path=args["path"],
            metadata=args.get("metadata"),
        )

    texts: JSON = {name: {"type": "string"} for name in ("space", "source", "path", "checksum")}
    required: JSON = {**texts, "size_bytes": {"type": "integer"}}
    properties: JSON = {**required, "metadata": {"type": "object", "maxProperties": METADATA_KEYS}}
    spec = ToolSpec(
        name="upload_document",
        namespace="docs",
        description="Stores a file in a source of a space; it replaces the document at the same path.",
        input_schema={"type": "object", "properties": properties, "required": [*required]},
        groups=tuple(groups),
        annotations=Annotations(read_only=False, destructive=False, idempotent=True, open_world=False),
        timeout_s=UPLOAD_S,
        origin=__name__,
    )
    return ToolEntry(spec=spec, handler=take, offer=DocumentSpec(name="upload"))


async def upload(
    store: DocumentStore,
    scope: DocumentScope,
    payload: bytes,
    *,
    space: str,
    source: str,
    path: str,
    metadata: Mapping[str, object] | None,
) -> JSON:
    """Parse and store a file; return its id, path, number of passages and outcome.

    An unreadable file is not stored, and the previous document stays. Without `metadata` (`None`), a replaced document
    keeps its own.

    Raises:
        CallError: not_found; read_only; invalid_arguments, for an invalid name, format or content.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    path = "/".join(parts)
    if not path or not can_be_shown(path) or ".." in parts:
        text = f"{path[:100]!r} is not a valid document path: printable names with slashes, such as policies/leave.md."
        raise CallError("invalid_arguments", text)
    async with FileReader(max_chars=store.document_chars, parsers=parsers_of(store)) as reader:
        document = await reader.read(path, payload)
    if document.error:
        raise CallError("invalid_arguments", f"{path[-100:]!r} was not stored: {document.error.rstrip('.')}.")
    document = replace(document, metadata={**checked_metadata(metadata or {}), **document.metadata})
    stored = await store.ingest(
        scope, document, space=space, source=source, replaces=True, keeps_metadata=metadata is None
    )
    return {**stored, "space": space, "source": source}
