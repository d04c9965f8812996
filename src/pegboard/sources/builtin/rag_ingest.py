"""rag_ingest: take a document into the caller's space."""

from __future__ import annotations

import hashlib

import orjson
from pydantic import Field

from pegboard.model.bounds import KIB, MIB
from pegboard.model.call_context import CallContext
from pegboard.model.document import NewDocument
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.tool import Annotations, Handler
from pegboard.sources.builtin.document_space import COLLECTION, Collection, hidden_without_store, store_of
from pegboard.sources.builtin.kind import BuiltinConfig, BuiltinKind, Services, tool_spec

DOCUMENT_METADATA_BYTES = 16 * KIB  # bytes of one document's metadata


class IngestConfig(BuiltinConfig):
    """The collection for new documents, and their size limit.

    The tool is hidden if neither the config (`workspace:`) nor the host (`ToolContext(services={"documents": …})`) has
    a store of documents.
    """

    collection: Collection = Field("default", description="The collection for documents that do not name one.")
    max_bytes: int = Field(2 * MIB, gt=0, description="The size limit of one document, in bytes of UTF-8.")


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
    """Return the handler, on the store of the context or of the config."""

    async def ingest(ctx: CallContext, args: JSON) -> JSON:
        # Remove characters that no store accepts: lone surrogates, and NUL, which ends a text in SQL.
        text: str = args["document"].encode("utf-8", "replace").decode().replace("\0", " ")
        size = len(text.encode())
        if size > config.max_bytes:
            refusal = f"The document has {size} bytes; at most {config.max_bytes} are taken. Split it."
            raise CallError("invalid_arguments", refusal)
        if ctx.space_id is None:
            raise CallError("tool_error", "A document needs a space, and this caller has none. Ask the operator.")
        metadata: JSON = args.get("metadata", {})
        try:
            metadata_bytes = len(orjson.dumps(metadata))
        except TypeError as error:
            raise CallError("invalid_arguments", f"`metadata` cannot be stored: {error}. Leave that out.") from None
        if metadata_bytes > DOCUMENT_METADATA_BYTES:
            raise CallError(
                "invalid_arguments", f"`metadata` has more than {DOCUMENT_METADATA_BYTES} bytes. Give less."
            )
        store = store_of(ctx, services)
        ingested = await store.ingest(
            await store.scope(ctx),
            NewDocument(
                path=_file_name(args.get("name", "")),
                mime="text/plain",
                size_bytes=size,
                checksum=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
                text=text,
                metadata=metadata,
            ),
            space=ctx.space_id,
            source=args.get("collection", config.collection),
        )
        return {"document_id": ingested["document_id"], "chunks": ingested["chunks"]}

    return ingest


def _file_name(name: str) -> str:
    """Return the model's name for a text as a plain file name."""
    plain = "".join(character if character.isprintable() else " " for character in name).replace("/", "_").strip()
    return "document.txt" if plain.strip(".") == "" else plain


KIND = BuiltinKind(spec=SPEC, config=IngestConfig, make=make, adapt=hidden_without_store)
