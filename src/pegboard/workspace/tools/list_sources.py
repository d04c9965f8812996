"""list_sources: the sources of documents in the caller's space."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.model.document import DocumentScope
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import (
    CURSOR,
    PAGED,
    TEXT,
    WHOLE,
    document_tool,
    needs_one_space,
    rows,
    up_to,
)


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON) -> JSON:
    return await store.list_sources(
        scope, type_=args.get("type"), limit=args.get("limit", 50), cursor=args.get("cursor")
    )


TOOL = needs_one_space(
    document_tool(
        "list_sources",
        "List the sources of documents in this space, such as a handbook or a folder of contracts, by name.",
        _look,
        groups=("navigation",),
        arguments={
            "type": {
                "type": "string",
                "enum": ["folder", "upload", "web", "feed"],
                "description": "Only sources of this type.",
            },
            "limit": up_to(200, 50, "The maximum number of entries."),
            "cursor": CURSOR,
        },
        result={
            "items": rows({
                "source_id": TEXT, "name": TEXT, "type": TEXT, "document_count": WHOLE, "updated_at": TEXT,
                "status": TEXT,
            }),
            **PAGED,
        },
        always=("items", "next_cursor", "truncated"),
        examples=({}, {"type": "folder", "limit": 10}),
    )
)  # fmt: skip
