"""Document calls: the operations on documents that a caller may use, each as a guarded call, for every door."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

from pegboard.core.ports import DocumentStore
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.request import Attachment
from pegboard.model.resource import DocumentOperation
from pegboard.model.result import ToolResult
from pegboard.model.tool import ToolEntry
from pegboard.server.gateway import Gateway


async def operation_of(
    gateway: Gateway, view: View, operation: DocumentOperation
) -> tuple[DocumentStore, ToolEntry] | None:
    """Return the store and the entry of an operation; `None` if this caller has none.

    `view` is one of resources; see `Gateway.resource_view`.
    """
    store = gateway.registry.declarations.documents
    entry = gateway.resources.document_operation(operation, view, within=await view.prepared_snapshot())
    return None if store is None or entry is None else (store, entry)


async def store_upload(
    view: View,
    entry: ToolEntry,
    payload: bytes,
    *,
    space: str,
    source: str,
    path: str,
    metadata: Mapping[str, str] | None = None,
) -> ToolResult:
    """Store a file by a call of the operation `upload`. The call's arguments have its size and checksum.

    A replaced document keeps its metadata if `metadata` is `None`.
    """
    arguments: JSON = {
        "space": space, "source": source, "path": path, "size_bytes": len(payload),
        "checksum": await asyncio.to_thread(_checksum, payload),
        **({} if metadata is None else {"metadata": dict(metadata)}),
    }  # fmt: skip
    ctx = view.ctx
    carrying = replace(ctx, request=ctx.request._replace(attachment=Attachment(payload)))
    return await view.renewed(carrying).call(entry.qualified_id, arguments)


def _checksum(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
