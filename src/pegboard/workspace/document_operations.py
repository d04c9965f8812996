"""Document operations: guarded calls that list, show, read and remove single documents, for the HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from pegboard.core.ports import DocumentKeeper, DocumentStore
from pegboard.model.call_context import CallContext
from pegboard.model.document import DocumentScope
from pegboard.model.json_types import JSON
from pegboard.model.resource import DocumentOperation, DocumentSpec
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec
from pegboard.workspace.limits import DOCUMENT_PLACES, DOCUMENT_READ_CHARS, DOCUMENTS_LISTED

REMOVED_NOTE: Final = "The next ingest of its source stores it again if it is still there."

_TEXT: Final[JSON] = {"type": "string"}
_ID: Final[JSON] = {"document_id": _TEXT}


def document_operations(store: DocumentStore, groups: Sequence[str]) -> list[ToolEntry]:
    """Return the entries that list, show, read and remove documents; none if the store does not support them.

    Callers who see one of the groups may remove documents of the spaces that they may write. Listing needs the group
    `navigation`, and showing and reading the group `document`, as for the tools.
    """
    keeper = store
    if not isinstance(keeper, DocumentKeeper):
        return []

    async def list_(scope: DocumentScope, args: JSON) -> JSON:
        limit: int = args.get("limit", 50)
        place = {name: args[name] for name in ("space", "source", "folder", "cursor") if name in args}
        return await keeper.documents(scope, **place, limit=limit)

    async def show(scope: DocumentScope, args: JSON) -> JSON:
        return await shown(store, keeper, scope, args["document_id"])

    async def read(scope: DocumentScope, args: JSON) -> JSON:
        start: int = args.get("start", 0)
        return await store.read_document(scope, args["document_id"], start=start, end=start + DOCUMENT_READ_CHARS)

    async def remove(scope: DocumentScope, args: JSON) -> JSON:
        return with_note(await keeper.remove_document(scope, args["document_id"]))

    page: JSON = {
        **dict.fromkeys(("space", "source", "folder", "cursor"), _TEXT),
        "limit": {"type": "integer", "minimum": 1, "maximum": DOCUMENTS_LISTED},
    }
    start: JSON = {"type": "integer", "minimum": 0, "maximum": DOCUMENT_PLACES}
    return [
        _entry("list", "list_documents", "Lists documents.", store, list_, ("navigation",), page),
        _entry("show", "show_document", "Shows a document.", store, show, ("document",), _ID),
        _entry("read", "read_document_text", "Reads a document.", store, read, ("document",), {**_ID, "start": start}),
        _entry("remove", "remove_document", "Removes a document.", store, remove, groups, _ID),
    ]


async def shown(store: DocumentStore, keeper: DocumentKeeper, scope: DocumentScope, document_id: str) -> JSON:
    """Return the details of a document and its place.

    Raises:
        CallError: not_found.
    """
    place = await keeper.place_of_document(scope, document_id)
    return {**await store.document_info(scope, document_id=document_id), "space": place["space"]}


def with_note(place: JSON) -> JSON:
    """Return the place of a removed document, with a note if its source still has the file."""
    is_read_again = place["source_type"] != "upload"
    return {**place, "removed": True, **({"note": REMOVED_NOTE} if is_read_again else {})}


def _entry(
    name: DocumentOperation,
    tool: str,
    description: str,
    store: DocumentStore,
    run: Callable[[DocumentScope, JSON], Awaitable[JSON]],
    groups: Sequence[str],
    properties: Mapping[str, JSON],
) -> ToolEntry:
    async def answer(ctx: CallContext, args: JSON) -> JSON:
        return await run(await store.scope(ctx), args)

    is_reading = name != "remove"
    required = [each for each in _ID if each in properties]
    spec = ToolSpec(
        name=tool,
        namespace="docs",
        description=description,
        input_schema={"type": "object", "properties": dict(properties), "required": required},
        groups=tuple(groups),
        annotations=Annotations(read_only=is_reading, destructive=not is_reading, idempotent=True, open_world=False),
        origin=__name__,
    )
    return ToolEntry(spec=spec, handler=answer, offer=DocumentSpec(name=name))
