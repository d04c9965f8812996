"""Intent: a model's statement of what it is doing; recorded, may narrow the reach of a call, never grants rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from pegboard.core.ports import DocumentStore
from pegboard.discovery.meta_tools.catalog_listing import echoed
from pegboard.model.call_intent import FIELDS, MARK
from pegboard.model.context import ToolContext
from pegboard.model.json_types import JSON, JSONValue, is_object

INTENT_CHARS = 4_000  # characters of each text of an intent

_REQUIRED: Final = FIELDS[:-1]
CONTEXT_SCHEMA: Final[JSON] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in FIELDS},
    "required": list(_REQUIRED),
    "additionalProperties": False,
}
_PLACEHOLDERS = frozenset({"", "n/a", "na", "tbd", "todo", "none", "null", "undefined", "unknown", "-", "…", "string"})
_EXAMPLE = (
    '"context": {"workspaceId": "default", "sessionId": "release notes", "memory": "the user wants short notes", '
    '"goal": "list what changed since 1.2"}'
)


class CallIntent(Struct, frozen=True, kw_only=True):
    """The model's statement about a batch of calls. No guard relies on it."""

    workspace: str = ""
    session: str = ""
    memory: str = ""
    goal: str = ""
    constraints: str = ""

    @classmethod
    def of(cls, context: object) -> CallIntent:
        """Read `context` and keep its texts."""
        fields: Mapping[str, Any] = context if is_object(context) else {}
        texts = (fields.get(name) for name in FIELDS)
        workspace, session, memory, goal, constraints = (
            text.strip()[:INTENT_CHARS] if isinstance(text, str) else "" for text in texts
        )
        return cls(workspace=workspace, session=session, memory=memory, goal=goal, constraints=constraints)

    @property
    def narrows_to(self) -> str | None:
        """The workspace of the calls; `None` if it means everything that the caller may use."""
        return None if self.workspace == "default" or _is_placeholder(self.workspace) else self.workspace

    def as_json(self) -> JSON:
        """Return the fields that the model filled, under their wire names."""
        values = (self.workspace, self.session, self.memory, self.goal, self.constraints)
        return {name: value for name, value in zip(FIELDS, values, strict=True) if value}


async def workspaces_of(ctx: ToolContext, documents: DocumentStore | None) -> list[str]:
    """Return the workspaces that a call may name.

    These are `default`, which means all of the caller's, the context's space, and spaces with documents that the caller
    may read.
    """
    granted = () if documents is None else (await documents.scope(ctx)).spaces
    return list(dict.fromkeys(["default", *([ctx.space_id] if ctx.space_id else []), *granted]))


async def fault_of(
    intent: CallIntent, ctx: ToolContext, documents: DocumentStore | None, *, is_required: bool
) -> str | None:
    """Return all faults of an intent in one text; `None` if the batch may run."""
    known = await workspaces_of(ctx, documents) if intent.workspace else []
    if intent.workspace and intent.workspace not in known and not _is_placeholder(intent.workspace):
        return f'Workspace "{echoed(intent.workspace)}" is not available. Available: {", ".join(known)}.'
    if not is_required:
        return None
    fields = intent.as_json()
    missing = [name for name in _REQUIRED if _is_placeholder(fields.get(name, ""))]
    if not missing:
        return None
    return f"context needs real values for: {', '.join(missing)}. Example: {_EXAMPLE}"


def _is_placeholder(text: str) -> bool:
    return text.strip().strip("<>[]{}.").casefold() in _PLACEHOLDERS


# ---------------------------------------------------------------- properties filled from the intent


def marked(schema: JSON) -> dict[str, str]:
    """Return the properties that are filled from the intent, with the field of each; `context` is the whole intent."""
    properties: Mapping[str, JSONValue] = schema.get("properties") or {}
    fields: dict[str, str] = {}
    for name, inner in properties.items():
        mark = inner.get(MARK) if is_object(inner) else None
        field = name if mark is True else mark
        if isinstance(field, str) and (field in FIELDS or field == "context"):
            fields[name] = field
    return fields


def without_intent(schema: JSON) -> JSON:
    """Return a schema as the model sees it: a copy without the properties that the intent fills."""
    hidden = marked(schema)
    if not hidden:
        return schema
    properties = {name: inner for name, inner in schema["properties"].items() if name not in hidden}
    shown = {**schema, "properties": properties}
    if "required" in shown:
        shown["required"] = [name for name in shown["required"] if name not in hidden]
        if not shown["required"]:
            del shown["required"]
    return shown


def filled(params: JSON, schema: JSON, intent: CallIntent) -> JSON:
    """Return arguments with marked properties filled from the intent; values from the model are kept."""
    context = intent.as_json()
    known = {name: context if field == "context" else context.get(field) for name, field in marked(schema).items()}
    return {**{name: value for name, value in known.items() if value}, **params}
