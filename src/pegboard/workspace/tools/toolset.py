"""Toolset: the tools for documents, on one store."""

from __future__ import annotations

from typing import Final

from pegboard.core.ports import DocumentStore
from pegboard.model.tool import ToolEntry
from pegboard.workspace.tools import (
    document_info,
    find_by_name,
    folder_tree,
    grep_documents,
    list_folder_contents,
    list_sources,
    read_document,
    search_documents,
)
from pegboard.workspace.tools.declaration import DocumentTool
from pegboard.workspace.tools.lent_model import ModelOf, no_model
from pegboard.workspace.tools.query_documents import query_entry

TOOLS: Final[tuple[DocumentTool, ...]] = (
    list_sources.TOOL,
    list_folder_contents.TOOL,
    folder_tree.TOOL,
    search_documents.TOOL,
    grep_documents.TOOL,
    find_by_name.TOOL,
    document_info.TOOL,
    read_document.TOOL,
)
GROUPS: Final = {
    "navigation": "Sources of documents and their folders.",
    "search": "Finding documents, by what they say and by their names.",
    "document": "One document: what is known of it, and its text.",
}


def entries(store: DocumentStore, *, sql_s: float, model_of: ModelOf = no_model) -> tuple[ToolEntry, ...]:
    """Return the tools on a store; a query may run `sql_s` seconds, and `model_of` lends the model that writes one."""
    return (*(tool.entry(store) for tool in TOOLS), query_entry(store, sql_s=sql_s, model_of=model_of))
