"""document_info: the details of one document, without its text."""

from __future__ import annotations

from pegboard.core.ports import DocumentStore
from pegboard.egress.limits import PATH_CHARS
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import (
    DOCUMENT_ID,
    MAYBE_TEXT,
    MAYBE_WHOLE,
    SOURCE_ID,
    TEXT,
    WHOLE,
    document_tool,
    rows,
)


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON) -> JSON:
    by_id = "document_id" in args
    by_path = {"source_id", "path"} <= args.keys()
    if by_id == by_path or (by_id and {"source_id", "path"} & args.keys()):
        raise CallError("invalid_arguments", "Name a document by document_id alone, or by source_id and path together.")
    return await store.document_info(
        scope,
        document_id=args.get("document_id", ""),
        source_id=args.get("source_id", ""),
        path=args.get("path", ""),
    )


TOOL = document_tool(
    "document_info",
    "Tell what is known of one document: its type, size, dates, title, author, headings, the tables that "
    "query_documents can query, and whether it could be read.",
    _look,
    groups=("document",),
    arguments={
        "document_id": DOCUMENT_ID,
        "source_id": SOURCE_ID,
        "path": {"type": "string", "minLength": 1, "maxLength": PATH_CHARS, "description": "Its path in that source."},
    },
    result={
        "document_id": TEXT, "name": TEXT, "path": TEXT, "source_id": TEXT, "source": TEXT, "mime": TEXT,
        "size_bytes": WHOLE, "char_count": WHOLE, "pages": MAYBE_WHOLE, "language": MAYBE_TEXT,
        "created_at": MAYBE_TEXT, "modified_at": MAYBE_TEXT, "ingested_at": TEXT, "checksum": TEXT,
        "chunk_count": WHOLE, "metadata": {"type": "object"},
        "tables": rows({"table": TEXT, "columns": {"type": "array", "items": TEXT}, "row_count": WHOLE}, note=TEXT),
        "parser": TEXT, "ocr": TEXT, "encoding": MAYBE_TEXT, "encoding_from": MAYBE_TEXT,
        "status": {"enum": ["ready", "empty", "failed"]}, "error": TEXT, "note": TEXT,
    },
    always=("document_id", "name", "path", "source_id", "mime", "size_bytes", "char_count", "checksum", "chunk_count",
            "metadata", "tables", "status"),
    examples=({"document_id": "doc_ed47d07ce7ff888e"},),
)  # fmt: skip
