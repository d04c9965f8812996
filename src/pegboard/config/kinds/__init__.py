"""Kinds: the types of tools that a config may declare. A new kind is one module, and one row here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Declared
from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    from pegboard.config.kinds import agent, builtin, client, internal, mcp, openapi, rag, webhook
    from pegboard.config.kinds.tool_form import ToolForm
else:
    agent = LazyModule("pegboard.config.kinds.agent")
    builtin = LazyModule("pegboard.config.kinds.builtin")
    client = LazyModule("pegboard.config.kinds.client")
    internal = LazyModule("pegboard.config.kinds.internal")
    mcp = LazyModule("pegboard.config.kinds.mcp")
    openapi = LazyModule("pegboard.config.kinds.openapi")
    rag = LazyModule("pegboard.config.kinds.rag")
    webhook = LazyModule("pegboard.config.kinds.webhook")

F = TypeVar("F", bound="ToolForm")


Declare = Callable[[Declared[F], BuildContext], None]


class Kind(Struct, Generic[F], frozen=True):
    """One type of tools. Its form and function are loaded when a config needs them, since forms are slow to build."""

    parts: Callable[[], tuple[type[F], Declare[F]]]

    @classmethod
    def of(cls, form: type[F], declare: Declare[F]) -> Kind[F]:
        """Return a kind whose parts are loaded already."""
        return cls(lambda: (form, declare))

    @property
    def form(self) -> type[F]:
        """The form with the keys of such a tool."""
        return self.parts()[0]

    @property
    def declare(self) -> Declare[F]:
        """The function that adds such a tool to the catalog being built."""
        return self.parts()[1]


KINDS: Final[Mapping[str, Kind[Any]]] = {
    "agent": Kind(lambda: (agent.AgentForm, agent.declare)),
    "builtin": Kind(lambda: (builtin.BuiltinForm, builtin.declare)),
    "client": Kind(lambda: (client.ClientForm, client.declare)),
    "internal": Kind(lambda: (internal.InternalForm, internal.declare)),
    "mcp": Kind(lambda: (mcp.McpForm, mcp.declare)),
    "openapi": Kind(lambda: (openapi.OpenApiForm, openapi.declare)),
    "rag": Kind(lambda: (rag.RagForm, rag.declare)),
    "webhook": Kind(lambda: (webhook.WebhookForm, webhook.declare)),
}
