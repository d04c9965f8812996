"""Library: the public names of Python, imported together when the first of them is used."""

from pegboard.agents.guardrails import GuardedRun
from pegboard.authoring.field import Field
from pegboard.authoring.tool_class import Tool
from pegboard.catalog import Catalog, default_catalog
from pegboard.core.consent_text import consent_text
from pegboard.core.event_queue import EventQueue
from pegboard.core.view import View
from pegboard.model.agent import AgentBudgets, AgentMemory, AgentResult, AgentSpec, Guardrail, ModelSpec
from pegboard.model.bounds import Bounds
from pegboard.model.budget import Budget
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
from pegboard.model.record import replace
from pegboard.model.request import CallBudget
from pegboard.model.result import AudioContent, ImageContent, ResourceContent, ResourceLink, TextContent, ToolResult
from pegboard.model.secret import Secret
from pegboard.model.tool import ToolSpec
from pegboard.resources.prompt_messages import Message
from pegboard.sources.agent_tool import agent_tool
from pegboard.sources.composable import Toolset

__all__ = [
    "AgentBudgets",
    "AgentMemory",
    "AgentResult",
    "AgentSpec",
    "AsyncPredicateError",
    "AudioContent",
    "Bounds",
    "Budget",
    "CallBudget",
    "CallContext",
    "CallError",
    "Catalog",
    "Client",
    "ConsentRequest",
    "Decision",
    "DefinitionError",
    "DuplicateToolError",
    "Event",
    "EventQueue",
    "Field",
    "Fix",
    "GuardedRun",
    "Guardrail",
    "HookCall",
    "ImageContent",
    "Message",
    "ModelSpec",
    "PegboardError",
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
    "Toolset",
    "Verdict",
    "View",
    "agent_tool",
    "consent_text",
    "default_catalog",
    "replace",
]
