"""folder_tree: the folders of a source, drawn and as JSON."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.model.document import DocumentScope
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import (
    FLAG,
    PATH,
    SOURCE_ID,
    TEXT,
    WHOLE,
    document_tool,
    needs_one_space,
    up_to,
)


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON) -> JSON:
    return await store.folder_tree(
        scope,
        args["source_id"],
        args.get("path", "/"),
        max_depth=args.get("max_depth", 3),
        documents=args.get("include_documents", False),
        max_nodes=args.get("max_nodes", 500),
    )


TOOL = needs_one_space(
    document_tool(
        "folder_tree",
        "Show the folders of a source below one of them, as a drawn tree and as JSON, with how many documents each "
        "holds. What is too much is left out level by level, and counted.",
        _look,
        groups=("navigation",),
        arguments={
            "source_id": SOURCE_ID,
            "path": PATH,
            "max_depth": up_to(10, 3, "The number of levels to show."),
            "include_documents": {"type": "boolean", "default": False, "description": "Whether documents are named."},
            "max_nodes": up_to(2_000, 500, "The maximum number of folders and documents."),
        },
        required=("source_id",),
        result={
            "tree": {"type": "object", "description": "name, path, document_count, folders, documents, more."},
            "text": TEXT,
            "shown": WHOLE,
            "total": WHOLE,
            "truncated": FLAG,
        },
        always=("tree", "text", "shown", "total", "truncated"),
        examples=({"source_id": "src_5813f6b2e63beef2", "include_documents": True},),
    )
)
