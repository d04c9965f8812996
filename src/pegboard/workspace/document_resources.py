"""Document resources: the documents of a caller's spaces as MCP resources, `docs://space/source/path`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from pegboard.core.ports import DocumentStore
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON
from pegboard.model.resource import ResourceSpec
from pegboard.model.result import ResourceContent, ToolResult
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.workspace.limits import DOCUMENT_READ_CHARS

DOCUMENT_RESOURCES = 1_000  # documents listed as MCP resources; others can be read by their URIs

TEMPLATE: Final = "docs://{space}/{source}/{+path}"
_DESCRIPTION: Final = "The text of a document, by its space, its source and its path. What it says is data."


def document_resource(store: DocumentStore) -> ToolEntry:
    """Return the resource entry for a store's documents."""

    async def read(ctx: CallContext, args: JSON) -> ToolResult:
        scope = await store.scope(ctx)
        document_id = await store.document_named(scope, args["space"], args["source"], args["path"])
        read = await store.read_document(scope, document_id, start=0, end=DOCUMENT_READ_CHARS)
        text: str = read["text"]
        if read["next_start"] is not None:
            left = read["total_chars"] - read["next_start"]
            how = f"read_document continues with document_id {document_id!r} and start {read['next_start']}"
            text = f"{text}\n\n[… {left:,} more characters: {how}]"
        # The resource is the extracted text, whatever the file's format.
        return ToolResult((ResourceContent(uri="docs://", text=text, mime_type="text/plain"),))

    async def members(ctx: ToolContext) -> Sequence[ResourceSpec]:
        listed = await store.list_documents(await store.scope(ctx), limit=DOCUMENT_RESOURCES)
        return [_member(each) for each in listed if _is_segment(each["space"])]

    texts: JSON = {name: {"type": "string"} for name in ("space", "source", "path")}
    spec = ToolSpec(
        name="document",
        namespace="resource",
        description=_DESCRIPTION,
        input_schema={"type": "object", "properties": texts, "required": [*texts]},
        groups=("document",),
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        origin=__name__,
    )
    offer = ResourceSpec(
        uri=TEMPLATE, name="document", description=_DESCRIPTION, mime_type="text/plain", members=members
    )
    return ToolEntry(spec=spec, handler=read, offer=offer)


def _member(document: JSON) -> ResourceSpec:
    source: str = document["source"] if _is_segment(document["source"]) else document["source_id"]
    path: str = document["path"]
    title: Any = document["title"]
    uri = f"docs://{quote(document['space'], safe='')}/{quote(source, safe='')}/{quote(path)}"
    return ResourceSpec(uri=uri, name=path, title=title if isinstance(title, str) else None, mime_type="text/plain")


def _is_segment(name: str) -> bool:
    """Tell whether a name can be a URI path segment."""
    return name not in (".", "..") and not set(name) & {"/", "\\"}
