"""Document space: the document store and space for rag_query and rag_ingest."""

from __future__ import annotations

from typing import Annotated, Final, cast

from pydantic import Field

from pegboard.core.ports import DocumentStore
from pegboard.model.context import ToolContext
from pegboard.model.error import CallError
from pegboard.model.tool import ToolSpec
from pegboard.sources.builtin.kind import BuiltinConfig, Services, available_where

COLLECTION: Final = "^[A-Za-z0-9_.-]{1,64}$"
Collection = Annotated[str, Field(pattern=COLLECTION)]


def store_of(ctx: ToolContext, services: Services) -> DocumentStore:
    """Return the host's store, or that of the config.

    Raises:
        CallError: there is none.
    """
    store = ctx.services.get("documents") or services.documents
    if store is None:
        raise CallError("upstream_unavailable", "There is no document store.", retryable=False)
    return cast("DocumentStore", store)


def hidden_without_store(config: BuiltinConfig, spec: ToolSpec, services: Services) -> ToolSpec:
    """Return the declaration, hidden while there is no store."""
    if services.documents is not None:
        return spec
    return available_where(
        spec,
        "the config has a document store (workspace:), or the host supplies one (services: documents)",
        lambda ctx: ctx.services.get("documents") is not None,
    )
