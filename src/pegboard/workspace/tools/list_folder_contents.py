"""list_folder_contents: the contents of one folder of a source."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.model.document import DocumentScope
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import (
    CURSOR,
    MAYBE_TEXT,
    PAGED,
    PATH,
    SOURCE_ID,
    TEXT,
    WHOLE,
    document_tool,
    needs_one_space,
    rows,
    up_to,
)


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON) -> JSON:
    return await store.list_folder(
        scope, args["source_id"], args.get("path", "/"), limit=args.get("limit", 100), cursor=args.get("cursor")
    )


TOOL = needs_one_space(
    document_tool(
        "list_folder_contents",
        "List the contents of one folder of a source: its folders first, then its documents, by name.",
        _look,
        groups=("navigation",),
        arguments={
            "source_id": SOURCE_ID,
            "path": PATH,
            "limit": up_to(500, 100, "The maximum number of entries."),
            "cursor": CURSOR,
        },
        required=("source_id",),
        result={
            "path": TEXT,
            "items": rows(
                {"type": {"enum": ["folder", "document"]}, "name": TEXT, "path": TEXT},
                document_id=TEXT, mime=TEXT, size_bytes=WHOLE, modified_at=MAYBE_TEXT,
            ),
            **PAGED,
        },
        always=("path", "items", "next_cursor", "truncated"),
        examples=({"source_id": "src_5813f6b2e63beef2", "path": "/policies"},),
    )
)  # fmt: skip
