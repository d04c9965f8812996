"""query_documents: one SELECT over the tables in documents."""

from __future__ import annotations

from functools import partial

from pegboard.core.ports import DocumentStore
from pegboard.model.bounds import (
    DOCUMENT_FILTER_IDS,
    DOCUMENT_QUERY_CHARS,
    DOCUMENT_QUERY_ROWS,
    DOCUMENT_QUERY_USUAL_ROWS,
)
from pegboard.model.document import DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.tools.declaration import FILTERS, FLAG, TEXT, WHOLE, DocumentTool, document_tool, up_to


async def _look(store: DocumentStore, scope: DocumentScope, args: JSON, *, sql_s: float) -> JSON:
    if "sql" not in args:
        text = "A question in words needs a language model that writes SQL; there is none here. Give `sql`: one SELECT."
        raise CallError("invalid_arguments", text)
    if "question" in args:
        raise CallError("invalid_arguments", "Give `sql` or `question`, not both.")
    return await store.query(
        scope,
        args["sql"],
        document_ids=args.get("document_ids", []),
        tables=args.get("tables", []),
        limit=args.get("limit", DOCUMENT_QUERY_USUAL_ROWS),
        timeout_s=sql_s,
    )


def query_tool(sql_s: float) -> DocumentTool:
    """Return the tool; a query may run `sql_s` seconds."""
    return document_tool(
        "query_documents",
        "Query the tables in documents (CSV, TSV, JSON, Excel, Word) with one SELECT of SQLite. document_info names "
        "the tables of a document and their columns.",
        partial(_look, sql_s=sql_s),
        groups=("document",),
        arguments={
            "sql": {
                "type": "string",
                "minLength": 1,
                "maxLength": DOCUMENT_QUERY_CHARS,
                "description": "One SELECT, such as SELECT region, sum(total) FROM orders GROUP BY region.",
            },
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": 10_000,
                "description": "Needs a language model.",
            },
            "document_ids": FILTERS["document_ids"],
            "tables": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "maxItems": DOCUMENT_FILTER_IDS,
                "description": "Only these tables.",
            },
            "limit": up_to(DOCUMENT_QUERY_ROWS, DOCUMENT_QUERY_USUAL_ROWS, "How many rows are returned at most."),
        },
        result={
            "sql": TEXT,
            "columns": {"type": "array", "items": TEXT},
            "rows": {"type": "array", "items": {"type": "array"}},
            "row_count": WHOLE,
            "truncated": FLAG,
            "tables_used": {"type": "array", "items": TEXT},
        },
        always=("sql", "columns", "rows", "row_count", "truncated", "tables_used"),
        examples=({"sql": "SELECT region, sum(total) AS total FROM orders GROUP BY region ORDER BY total DESC"},),
    )
