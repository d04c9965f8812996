"""Kinds: the types of tools that a config may declare. A new kind is one module, and one row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.config.kinds import agent, builtin, client, internal, mcp, openapi, rag, webhook
from pegboard.config.kinds.tool_form import ToolForm

F = TypeVar("F", bound=ToolForm)


@dataclass(frozen=True, slots=True)
class Kind(Generic[F]):
    """One type of tools: the keys that one may have, and what puts it into the catalog that is being built."""

    form: type[F]
    declare: Callable[[Declared[F], BuildContext], None]


KINDS: Final[Mapping[str, Kind[Any]]] = {
    "agent": Kind(agent.AgentForm, agent.declare),
    "builtin": Kind(builtin.BuiltinForm, builtin.declare),
    "client": Kind(client.ClientForm, client.declare),
    "internal": Kind(internal.InternalForm, internal.declare),
    "mcp": Kind(mcp.McpForm, mcp.declare),
    "openapi": Kind(openapi.OpenApiForm, openapi.declare),
    "rag": Kind(rag.RagForm, rag.declare),
    "webhook": Kind(webhook.WebhookForm, webhook.declare),
}
