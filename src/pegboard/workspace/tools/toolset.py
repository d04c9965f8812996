"""Toolset: all document tools for one store."""

from __future__ import annotations

from typing import Final

from pegboard.core.ports import DocumentStore
from pegboard.model.agent import ModelSpec
from pegboard.model.bounds import DEFAULT_BOUNDS
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
from pegboard.workspace.tools.analyze_document import analyze_entry
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


def entries(
    store: DocumentStore,
    *,
    sql_s: float,
    model_of: ModelOf = no_model,
    analyst_model: ModelSpec | None = None,
    analysis_s: float = DEFAULT_BOUNDS.agent_timeout_s,
) -> tuple[ToolEntry, ...]:
    """Return the tools for a store.

    Args:
        store: the document store.
        sql_s: the time limit of a query in seconds.
        model_of: provides the model that writes queries for questions.
        analyst_model: the model of the agent that reads documents; without one, that tool is hidden.
        analysis_s: the time limit of that agent in seconds.
    """
    return (
        *(tool.entry(store) for tool in TOOLS),
        query_entry(store, sql_s=sql_s, model_of=model_of),
        analyze_entry(store, model=analyst_model, timeout_s=analysis_s),
    )
