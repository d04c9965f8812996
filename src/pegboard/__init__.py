"""Pegboard: hang every tool once.

Every agent sees exactly what it may use, and every call goes through one guarded door.
"""

from typing import TYPE_CHECKING, Any

from pegboard.lazy import LazyModule
from pegboard.version import __version__

if TYPE_CHECKING:
    from pegboard.agents.runtime import AgentRuntime
    from pegboard.config import context_for, load_catalog
    from pegboard.library import (
        AgentBudgets,
        AgentMemory,
        AgentResult,
        AgentSpec,
        AsyncPredicateError,
        AudioContent,
        Bounds,
        Budget,
        CallBudget,
        CallContext,
        CallError,
        Catalog,
        Client,
        ConsentRequest,
        Decision,
        DefinitionError,
        DuplicateToolError,
        Event,
        EventQueue,
        Field,
        Fix,
        GuardedRun,
        Guardrail,
        HookCall,
        ImageContent,
        Message,
        ModelSpec,
        PegboardError,
        Policy,
        Profile,
        RateLimit,
        ResourceContent,
        ResourceLink,
        Secret,
        TextContent,
        Tool,
        ToolContext,
        ToolError,
        ToolResult,
        Toolset,
        ToolSpec,
        Verdict,
        View,
        agent_tool,
        consent_text,
        default_catalog,
        replace,
    )
    from pegboard.server.app import http_app, run_http
    from pegboard.server.identify import Identified
    from pegboard.server.stdio import run_stdio
    from pegboard.tasks.tasks import Tasks
    from pegboard.workspace.document_workspace import DocumentParser, Reranker, Workspace
    from pegboard.workspace.ingest import IngestReport
    from pegboard.workspace.sources.document_source import BadFile

__all__ = [
    "AgentBudgets", "AgentMemory", "AgentResult", "AgentRuntime", "AgentSpec", "AsyncPredicateError", "AudioContent",
    "BadFile", "Bounds", "Budget", "CallBudget", "CallContext", "CallError", "Catalog", "Client", "ConsentRequest",
    "Decision", "DefinitionError", "DocumentParser", "DuplicateToolError", "Event", "EventQueue", "Field", "Fix",
    "GuardedRun", "Guardrail", "HookCall", "Identified", "ImageContent", "IngestReport", "Message", "ModelSpec",
    "PegboardError", "Policy", "Profile", "RateLimit", "Reranker", "ResourceContent", "ResourceLink", "Secret", "Tasks",
    "TextContent", "Tool", "ToolContext", "ToolError", "ToolResult", "ToolSpec", "Toolset", "Verdict", "View",
    "Workspace", "__version__", "agent_tool", "consent_text", "context_for", "default_catalog", "http_app",
    "load_catalog", "replace", "run_http", "run_stdio",
]  # fmt: skip

# The help of the command line needs nothing of the library; and a library that only declares tools needs neither a
# server (Starlette, the MCP SDK) nor a config reader (PyYAML).
_LIBRARY = LazyModule("pegboard.library")
_LAZY = {
    "AgentRuntime": LazyModule("pegboard.agents.runtime"),
    "context_for": LazyModule("pegboard.config"),
    "load_catalog": LazyModule("pegboard.config"),
    "http_app": LazyModule("pegboard.server.app"),
    "run_http": LazyModule("pegboard.server.app"),
    "Identified": LazyModule("pegboard.server.identify"),
    "run_stdio": LazyModule("pegboard.server.stdio"),
    "Tasks": LazyModule("pegboard.tasks.tasks"),
    "BadFile": LazyModule("pegboard.workspace.sources.document_source"),
    "IngestReport": LazyModule("pegboard.workspace.ingest"),
    "DocumentParser": LazyModule("pegboard.workspace.document_workspace"),
    "Reranker": LazyModule("pegboard.workspace.document_workspace"),
    "Workspace": LazyModule("pegboard.workspace.document_workspace"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pegboard' has no attribute {name!r}")
    value = globals()[name] = getattr(_LAZY.get(name, _LIBRARY), name)
    return value
