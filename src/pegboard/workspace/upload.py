"""Upload: take one file in, under a path of a source; it stands in the place of what was there."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

from pegboard.core.ports import DocumentStore
from pegboard.model.call_context import CallContext
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.resource import UploadSpec
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.parsing.formats import FORMATS, format_of
from pegboard.workspace.shown_names import can_be_shown

UPLOAD_S = 300.0  # until the file of an upload is there

sent: Final = ContextVar[bytes]("sent")
"""The file that the present call brings: bytes, which no argument can be."""


def upload_entry(store: DocumentStore, groups: Sequence[str]) -> ToolEntry:
    """Return what takes in files that callers send, to be declared beside the tools: as guarded as any call.

    It is there for whoever sees one of the groups. Hooks and records see where a file goes, how long it is and its
    checksum, and not its content.
    """

    async def take(ctx: CallContext, args: JSON) -> JSON:
        scope = await store.scope(ctx)
        return await upload(store, scope, sent.get(), space=args["space"], source=args["source"], path=args["path"])

    texts: JSON = {name: {"type": "string"} for name in ("space", "source", "path", "checksum")}
    properties: JSON = {**texts, "size_bytes": {"type": "integer"}}
    spec = ToolSpec(
        name="upload_document",
        namespace="docs",
        description="Takes a file into a source of a space; it stands in the place of what had its path.",
        input_schema={"type": "object", "properties": properties, "required": [*properties]},
        groups=tuple(groups),
        annotations=Annotations(read_only=False, destructive=False, idempotent=True, open_world=False),
        timeout_s=UPLOAD_S,
        origin=__name__,
    )
    return ToolEntry(spec=spec, handler=take, offer=UploadSpec(name="documents"))


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
    if not path or not can_be_shown(path) or ".." in parts:
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
