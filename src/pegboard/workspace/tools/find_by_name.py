"""find_by_name: the documents whose name or path matches a pattern."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.model.document import DocumentScope
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import (
    FILTERS,
    FLAG,
    TEXT,
    WHOLE,
    document_tool,
    filters_of,
    rows,
    up_to,
)

GLOB_CHARS = 500  # characters of a name pattern


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON) -> JSON:
    return await store.find_by_name(
        scope,
        args["pattern"],
        ignore_case=args.get("ignore_case", True),
        filters=filters_of(args),
        limit=args.get("limit", 50),
    )


TOOL = document_tool(
    "find_by_name",
    "Find documents by their names. A word alone may stand anywhere in a name; a pattern with a slash is held against "
    "the whole path.",
    _look,
    groups=("search",),
    arguments={
        "pattern": {
            "type": "string",
            "minLength": 1,
            "maxLength": GLOB_CHARS,
            "description": "A word, or a pattern such as *.csv, *.{md,html}, report-202?.md or policies/**/travel*.",
        },
        "ignore_case": {"type": "boolean", "default": True, "description": "Whether case is the same."},
        **FILTERS,
        "limit": up_to(200, 50, "The maximum number of documents."),
    },
    required=("pattern",),
    result={
        "items": rows({
            "document_id": TEXT, "name": TEXT, "path": TEXT, "source_id": TEXT, "mime": TEXT, "size_bytes": WHOLE,
        }),
        "total": WHOLE,
        "truncated": FLAG,
    },
    always=("items", "total", "truncated"),
    examples=({"pattern": "invoice"}, {"pattern": "policies/**/*.md"}),
)  # fmt: skip
