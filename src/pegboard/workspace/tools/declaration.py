"""Declaration: shared parts of the document tools: declarations, filters and paging."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pegboard.core.ports import DocumentStore
from pegboard.egress.limits import PATH_CHARS
from pegboard.model.call_context import CallContext
from pegboard.model.call_intent import narrowed_to
from pegboard.model.context import ToolContext
from pegboard.model.document import DocumentFilters, DocumentScope
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.model.record import replace
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec

DOCUMENT_ID_CHARS = 100
DOCUMENT_FILTER_IDS = 100  # ids in one filter
DOCUMENT_CURSOR_CHARS = 2_000

NAMESPACE: Final = "docs"
TEXT: Final[JSON] = {"type": "string"}
NO_SPACE: Final = (
    "There is nothing to look at: this caller is in no space, and none is granted to it. The operator can give it one: "
    "by a rule under identity:, by --as user=NAME,space=NAME, by `pegboard workspace grant`, or, where nobody is asked "
    "who they are, by workspace: {space: NAME}."
)
# These arguments are parsed, and never compared with stored values directly.
_OWN_WORDS: Final = frozenset({"query", "pattern", "sql", "question"})
_UNPAIRED: Final = re.compile("[\\ud800-\\udfff]")
Look = Callable[[DocumentStore, DocumentScope, JSON], Awaitable[JSON]]
Scoped = Callable[[CallContext, DocumentScope, JSON], Awaitable[JSON]]


class DocumentTool(Struct, frozen=True, kw_only=True):
    """One tool: its declaration, and its query on a store within the caller's scope."""

    spec: ToolSpec
    look: Look

    def entry(self, store: DocumentStore) -> ToolEntry:
        """Return the tool for a store."""
        look = self.look
        return document_entry(self.spec, store, lambda _, scope, args: look(store, scope, args))


def document_entry(spec: ToolSpec, store: DocumentStore, run: Scoped) -> ToolEntry:
    """Return a tool that runs within its caller's scope."""

    async def within_scope(ctx: CallContext, args: JSON) -> JSON:
        for name, value in args.items():
            if name not in _OWN_WORDS:
                _check_storable(name, value)
        scope = await store.scope(ctx)
        answer = await run(ctx, scope, args)
        return answer if scope.spaces else {**answer, "note": NO_SPACE}

    return ToolEntry(spec=spec, handler=within_scope)


def _check_storable(name: str, value: JSONValue) -> None:
    """Check that a value can be compared with stored ones in either database, i.e. that it could be stored.

    Raises:
        CallError: invalid_arguments.
    """
    if isinstance(value, str):
        if "\0" in value or not (value.isascii() or _UNPAIRED.search(value) is None):
            text = f"`{name}` has a NUL or half a character, as no stored text has. Leave it out."
            raise CallError("invalid_arguments", text)
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise CallError("invalid_arguments", f"`{name}` has a number of more than 64 bits. Leave it out.")
    elif is_object(value):
        for key, each in value.items():
            _check_storable(name, key)
            _check_storable(name, each)
    elif is_list(value):
        for each in value:
            _check_storable(name, each)


def document_tool(
    name: str,
    description: str,
    look: Look,
    *,
    groups: Sequence[str],
    arguments: Mapping[str, JSON],
    required: Sequence[str] = (),
    result: Mapping[str, JSON],
    always: Sequence[str] = (),
    examples: Sequence[JSON],
) -> DocumentTool:
    """Return a tool that only queries the store."""
    spec = document_spec(
        name,
        description,
        groups=groups,
        arguments=arguments,
        required=required,
        result=result,
        always=always,
        examples=examples,
    )
    return DocumentTool(spec=spec, look=look)


def document_spec(
    name: str,
    description: str,
    *,
    groups: Sequence[str],
    arguments: Mapping[str, JSON],
    required: Sequence[str] = (),
    result: Mapping[str, JSON],
    always: Sequence[str] = (),
    examples: Sequence[JSON],
) -> ToolSpec:
    """Return the declaration of a tool that only reads stored documents."""
    input_schema: JSON = {"type": "object", "properties": dict(arguments)}
    if required:
        input_schema["required"] = list(required)
    return ToolSpec(
        name=name,
        namespace=NAMESPACE,
        description=description,
        input_schema=input_schema,
        output_schema={"type": "object", "properties": {**result, "note": TEXT}, "required": list(always)},
        groups=tuple(groups),
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        examples=tuple(examples),
        origin=f"pegboard.workspace.tools.{name}",
    )


def needs_one_space(tool: DocumentTool) -> DocumentTool:
    """Return the tool, hidden from callers without a single space."""
    return replace(tool, spec=replace(tool.spec, available=SpaceIsSet()))


class SpaceIsSet:
    """A predicate on the context with a description as its name, which `why` shows."""

    def __init__(self) -> None:
        self.__qualname__ = "the caller is in one space (space_id)"

    def __call__(self, ctx: ToolContext) -> bool:
        return ctx.space_id is not None or narrowed_to(ctx) is not None


def _ids(what: str) -> JSON:
    return {
        "type": "array",
        "items": {"type": "string", "minLength": 1, "maxLength": DOCUMENT_ID_CHARS},
        "maxItems": DOCUMENT_FILTER_IDS,
        "description": what,
    }


FILTERS: Final[Mapping[str, JSON]] = {
    "source_ids": _ids("Only documents of these sources."),
    "folder_path": {"type": "string", "maxLength": PATH_CHARS, "description": "Only what is in this folder or below."},
    "feed_ids": _ids("Only documents of these feeds."),
    "document_ids": _ids("Only these documents."),
}
CURSOR: Final[JSON] = {
    "type": "string",
    "maxLength": DOCUMENT_CURSOR_CHARS,
    "description": "The next_cursor of the answer before.",
}
DOCUMENT_ID: Final[JSON] = {
    "type": "string",
    "minLength": 1,
    "maxLength": DOCUMENT_ID_CHARS,
    "description": "The document_id that another tool gave.",
}
SOURCE_ID: Final[JSON] = {
    "type": "string",
    "minLength": 1,
    "maxLength": DOCUMENT_ID_CHARS,
    "description": "The source_id that list_sources gave.",
}
PATH: Final[JSON] = {
    "type": "string",
    "maxLength": PATH_CHARS,
    "default": "/",
    "description": "A folder of the source, such as /policies/travel.",
}


def up_to(most: int, usual: int, description: str, *, least: int = 1) -> JSON:
    """Return the schema of a whole number."""
    return {"type": "integer", "minimum": least, "maximum": most, "default": usual, "description": description}


def rows(always: Mapping[str, JSON], **sometimes: JSON) -> JSON:
    """Return the schema of a list of objects with these properties."""
    row: JSON = {"type": "object", "properties": {**always, **sometimes}, "required": list(always)}
    return {"type": "array", "items": row}


def filters_of(args: JSON) -> DocumentFilters:
    """Return the filters in the arguments."""

    def names(key: str) -> tuple[str, ...]:
        listed: list[Any] = args.get(key, [])
        return tuple(map(str, listed))

    return DocumentFilters(
        source_ids=names("source_ids"),
        feed_ids=names("feed_ids"),
        document_ids=names("document_ids"),
        folder_path=args.get("folder_path", ""),
        metadata=args.get("metadata", {}),
    )


NUMBER: Final[JSON] = {"type": "number"}
WHOLE: Final[JSON] = {"type": "integer"}
FLAG: Final[JSON] = {"type": "boolean"}
MAYBE_TEXT: Final[JSON] = {"type": ["string", "null"]}
MAYBE_WHOLE: Final[JSON] = {"type": ["integer", "null"]}
PAGED: Final[Mapping[str, JSON]] = {"next_cursor": MAYBE_TEXT, "truncated": FLAG}
