"""Call intent: the fields where a model states its intent, and the schema keyword that fills arguments from them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pegboard.model.json_types import JSON, is_object

if TYPE_CHECKING:
    from pegboard.model.context import ToolContext

IntentField: TypeAlias = Literal["workspaceId", "sessionId", "memory", "goal", "constraints"]
FilledName: TypeAlias = Literal["workspaceId", "sessionId", "memory", "goal", "constraints", "context"]
"""A field of the intent that fills a property; `context` is the whole intent."""
FIELDS: Final[tuple[str, ...]] = get_args(IntentField)
SERVICE: Final = "call_intent"
"""The name that handlers and hooks use for the intent of a call: `ctx.services["call_intent"]`."""
MARK: Final = "x-call-intent"
"""A property with this key gets its value from the intent: `true` by its own name, else from the named field."""


def with_marks(schema: JSON, names: Collection[str]) -> JSON:
    """Return an input schema in which the properties with these names take their values from the intent."""
    properties = schema.get("properties")
    if not is_object(properties) or properties.keys().isdisjoint(names):
        return schema
    marked = {
        name: {**(inner if is_object(inner) else {}), MARK: True} if name in names and inner is not False else inner
        for name, inner in properties.items()
    }
    return {**schema, "properties": marked}


def narrowed_to(ctx: ToolContext) -> str | None:
    """Return the workspace that the model named for a call, or `None`. The name grants no rights."""
    workspace: object = getattr(ctx.services.get(SERVICE), "narrows_to", None)
    return workspace if isinstance(workspace, str) else None
