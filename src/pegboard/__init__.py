"""Pegboard: hang every tool once.

Every agent sees exactly what it may use, and every call goes through one guarded door.
"""

from typing import TYPE_CHECKING, Any

from pegboard.authoring.field import Field
from pegboard.authoring.tool_class import Tool
from pegboard.catalog import Catalog, default_catalog
from pegboard.core.consent_text import consent_text
from pegboard.core.event_queue import EventQueue
from pegboard.core.view import View
from pegboard.lazy import LazyModule
from pegboard.model.bounds import Bounds
from pegboard.model.call_context import CallContext
from pegboard.model.consent import ConsentRequest
from pegboard.model.context import ToolContext
from pegboard.model.context_ports import Client
from pegboard.model.decision import Decision, Fix
from pegboard.model.error import (
    AsyncPredicateError,
    CallError,
    DefinitionError,
    DuplicateToolError,
    PegboardError,
    ToolError,
)
from pegboard.model.event import Event
from pegboard.model.hook import Verdict
from pegboard.model.hook_call import HookCall
from pegboard.model.policy import Policy
from pegboard.model.profile import Profile
from pegboard.model.rate_limit import RateLimit
from pegboard.model.request import CallBudget
from pegboard.model.result import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent, ToolResult
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolSpec
from pegboard.resources.prompt_messages import Message
from pegboard.version import __version__

if TYPE_CHECKING:
    from pegboard.config import context_for, load_catalog
    from pegboard.server.app import http_app, run_http
    from pegboard.server.identify import Identified
    from pegboard.server.stdio import run_stdio

__all__ = [
    "AsyncPredicateError", "AudioContent", "Bounds", "CallBudget", "CallContext", "CallError", "Catalog", "Client",
    "ConsentRequest", "Decision", "DefinitionError", "DuplicateToolError", "Event", "EventQueue", "Field", "Fix",
    "HookCall", "Identified", "ImageContent", "Message", "PegboardError", "Policy", "Profile", "RateLimit",
    "ResourceContent", "ResourceLink", "Secret", "TextContent", "Tool", "ToolContext", "ToolError", "ToolResult",
    "ToolSpec", "Verdict", "View", "__version__", "consent_text", "context_for", "default_catalog", "http_app",
    "load_catalog", "run_http", "run_stdio",
]  # fmt: skip

# A library that only declares tools needs neither a server (Starlette, the MCP SDK) nor a config reader (ruamel.yaml).
_LAZY = {
    "context_for": LazyModule("pegboard.config"),
    "load_catalog": LazyModule("pegboard.config"),
    "http_app": LazyModule("pegboard.server.app"),
    "run_http": LazyModule("pegboard.server.app"),
    "Identified": LazyModule("pegboard.server.identify"),
    "run_stdio": LazyModule("pegboard.server.stdio"),
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(_LAZY[name], name)
    raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
