"""rag_ingest: take a document into the caller's space."""

from __future__ import annotations

from pydantic import Field

from pegboard.model.bounds import MIB
from pegboard.model.call_context import CallContext
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.document_space import COLLECTION, Collection, hidden_without_store, store_of
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec


class IngestConfig(BuiltinConfig):
    """Where documents go, and how large one may be.

    Without a store of the host, `ToolContext(services={"documents": …})`, the tool is hidden.
    """

    collection: Collection = Field("default", description="The collection of a document that names none.")
    max_bytes: int = Field(2 * MIB, gt=0, description="How large one document may be, in UTF-8.")


SPEC = tool_spec(
    "rag_ingest",
    "Take a text into the documents of this space, so that rag_query finds it. It never replaces another document.",
    arguments={
        "document": {"type": "string", "minLength": 1, "description": "The text."},
        "name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "What the text is called."},
        "metadata": {"type": "object", "maxProperties": 50, "description": "What else is known of it."},
        "collection": {"type": "string", "pattern": COLLECTION, "description": "Where to keep it."},
    },
    required=("document",),
    result={"document_id": {"type": "string"}, "chunks": {"type": "integer"}},
    always=("document_id", "chunks"),
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=False),
    examples=({"document": "The lease ends on 1 May.", "name": "lease.txt"},),
)


def make(config: IngestConfig, services: Services) -> Handler:
    """Return the handler; the store comes with the context."""

    async def ingest(ctx: CallContext, args: JSON) -> JSON:
        text: str = args["document"].encode("utf-8", "replace").decode()
        size = len(text.encode())
        if size > config.max_bytes:
            refusal = f"The document has {size} bytes; at most {config.max_bytes} are taken. Split it."
            raise CallError("invalid_arguments", refusal)
        if ctx.space_id is None:
            raise CallError("tool_error", "A document needs a space, and this caller has none. Ask the operator.")
        taken = await store_of(ctx).ingest(
            text,
            space=ctx.space_id,
            collection=args.get("collection", config.collection),
            name=args.get("name", ""),
            metadata=args.get("metadata", {}),
        )
        return {"document_id": taken["document_id"], "chunks": taken["chunks"]}

    return ingest


KIND = BuiltinKind(spec=SPEC, config=IngestConfig, make=make, adapt=hidden_without_store)
