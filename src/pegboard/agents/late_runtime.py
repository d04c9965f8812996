"""Late runtime: the agent runtime of a catalog, made when the first agent is run; until then it costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from pegboard.agents.conversations import ConversationStore
from pegboard.core.redaction import Redactor
from pegboard.core.registry import Registry
from pegboard.core.view import View, ViewParts
from pegboard.lazy import LazyModule
from pegboard.model.agent import AgentEntry, AgentResult
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.result import ToolResult

if TYPE_CHECKING:
    from pegboard.agents import runtime as agent_runtime
    from pegboard.agents.model_factory import ModelFactory
else:
    agent_runtime = LazyModule("pegboard.agents.runtime")


class LateAgentRuntime:
    """Makes the `AgentRuntime` of a catalog at its first use; fills the port `AgentRunner`.

    `make_model` gives the models that agents run on, `store` keeps their conversations; both may be set until then.
    """

    def __init__(
        self,
        registry: Registry,
        parts: ViewParts,
        *,
        make_model: ModelFactory,
        clock: Callable[[], float],
        redactor: Callable[[ToolContext], Redactor | None],
    ) -> None:
        self._registry, self._parts, self._clock, self._redactor = registry, parts, clock, redactor
        self.make_model = make_model
        self.store: ConversationStore | None = None

    @cached_property
    def runtime(self) -> agent_runtime.AgentRuntime:
        """The runtime.

        Raises:
            DefinitionError: the packages that it needs are not installed.
        """
        try:
            return agent_runtime.AgentRuntime(
                self._registry,
                self._parts,
                make_model=self.make_model,
                clock=self._clock,
                redactor=self._redactor,
                store=self.store,
            )
        except ImportError as error:
            text = f"Agents need the package {error.name!r}, which is not installed; install `pegboard[agents]`."
            raise DefinitionError(text) from error

    async def run_below(
        self,
        agent: str,
        query: str,
        data: Mapping[str, JSONValue],
        *,
        transform: str | None,
        ctx: CallContext,
        view: View,
    ) -> ToolResult:
        """Run an agent as a part of a call; see `AgentRuntime.run_below`."""
        return await self.runtime.run_below(agent, query, data, transform=transform, ctx=ctx, view=view)

    async def run_own(
        self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None], ctx: CallContext, view: View
    ) -> AgentResult:
        """Run an agent that is a part of a tool; see `AgentRuntime.run_own`."""
        return await self.runtime.run_own(agent, query, on_text=on_text, ctx=ctx, view=view)

    async def close(self) -> None:
        """End what the runtime holds, if it was ever made."""
        if "runtime" in self.__dict__:
            await self.runtime.close()
