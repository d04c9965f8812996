"""Pegboard: hang every tool once.

Every agent sees exactly what it may use, and every call goes through one guarded door.
"""

from typing import TYPE_CHECKING, Any

from pegboard.base.loading import Later
from pegboard.catalog import Catalog, default_catalog
from pegboard.core.context import ToolContext
from pegboard.sources.class_ import Tool
from pegboard.sources.fields import Field

if TYPE_CHECKING:
    from pegboard.base.bounds import Bounds
    from pegboard.base.content import (
        AudioContent as AudioContent,
    )
    from pegboard.base.content import (
        ImageContent,
        ResourceContent,
        ResourceLink,
        TextContent,
        ToolResult,
    )
    from pegboard.base.errors import (
        AsyncPredicateError,
        CallError,
        DefinitionError,
        ToolError,
    )
    from pegboard.base.errors import (
        DuplicateToolError as DuplicateToolError,
    )
    from pegboard.base.errors import (
        PegboardError as PegboardError,
    )
    from pegboard.base.model import (
        ConsentRequest,
        Decision,
        Event,
        HookCall,
        Profile,
        RateLimit,
        ToolSpec,
        Verdict,
    )
    from pegboard.base.model import (
        Fix as Fix,
    )
    from pegboard.base.policies import Policy
    from pegboard.base.secrets import Secret
    from pegboard.core.call_context import CallContext
    from pegboard.core.context import CallBudget
    from pegboard.core.view import View
    from pegboard.streams import EventQueue

__version__ = "0.1.0"
__all__ = [
    "AsyncPredicateError",
    "Bounds",
    "CallBudget",
    "CallContext",
    "CallError",
    "Catalog",
    "ConsentRequest",
    "Decision",
    "DefinitionError",
    "Event",
    "EventQueue",
    "Field",
    "HookCall",
    "ImageContent",
    "Policy",
    "Profile",
    "RateLimit",
    "ResourceContent",
    "ResourceLink",
    "Secret",
    "TextContent",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "Verdict",
    "View",
    "default_catalog",
]  # fmt: skip

# Importing Pegboard stays cheaper than importing pydantic: what most programs do not name comes in when it is named.
_LATER = {
    "pegboard.base.bounds": "Bounds",
    "pegboard.base.errors": "AsyncPredicateError CallError DefinitionError DuplicateToolError PegboardError ToolError",
    "pegboard.base.content": "AudioContent ImageContent ResourceContent ResourceLink TextContent ToolResult",
    "pegboard.base.model": "ConsentRequest Decision Event Fix HookCall Profile RateLimit ToolSpec Verdict",
    "pegboard.base.policies": "Policy",
    "pegboard.base.secrets": "Secret",
    "pegboard.core.call_context": "CallContext",
    "pegboard.core.context": "CallBudget",
    "pegboard.core.view": "View",
    "pegboard.streams": "EventQueue",
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names.split():
            return getattr(Later(module), name)
    raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
