"""Call intent: the words for what a model says that it is about, and the mark of what is filled with it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from pegboard.model.json_types import JSON, is_object

if TYPE_CHECKING:
    from pegboard.model.context import ToolContext

IntentField: TypeAlias = Literal["workspaceId", "sessionId", "memory", "goal", "constraints"]
FilledName: TypeAlias = Literal["workspaceId", "sessionId", "memory", "goal", "constraints", "context"]
"""A property that is filled by its name; `context` is filled with the whole intent."""
FIELDS: Final[tuple[str, ...]] = get_args(IntentField)
SERVICE: Final = "call_intent"
"""Where handlers and hooks find the intent of a call: `ctx.services["call_intent"]`."""
MARK: Final = "x-call-intent"
"""A property with this key takes its value from the intent: `true` by its own name, or the name of a field."""


def with_marks(schema: JSON, names: Collection[str]) -> JSON:
    """Return an input schema whose properties of these names take their value from the intent."""
    properties = schema.get("properties")
    if not is_object(properties) or properties.keys().isdisjoint(names):
        return schema
    marked = {
        name: {**(inner if is_object(inner) else {}), MARK: True} if name in names and inner is not False else inner
        for name, inner in properties.items()
    }
    return {**schema, "properties": marked}


def narrowed_to(ctx: ToolContext) -> str | None:
    """Return the workspace that a call is about, as the model said; `None` where it said none. It grants nothing."""
    workspace: object = getattr(ctx.services.get(SERVICE), "narrows_to", None)
    return workspace if isinstance(workspace, str) else None
