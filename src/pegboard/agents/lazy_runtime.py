"""Lazy runtime: creates the agent runtime of a catalog when the first agent runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from pegboard.core.redaction import Redactor
from pegboard.core.registry import Registry
from pegboard.core.view import View, ViewParts
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.agent import AgentEntry, AgentResult, ModelSpec
from pegboard.model.call_context import CallContext
from pegboard.model.context import ToolContext
from pegboard.model.error import DefinitionError
from pegboard.model.json_types import JSONValue
from pegboard.model.result import ToolResult

if TYPE_CHECKING:
    from pegboard.agents import runtime as agent_runtime
    from pegboard.agents.conversations import ConversationStore
    from pegboard.agents.model_factory import ModelFactory
    from pegboard.agents.runtime import AgentRuntime
else:
    agent_runtime = LazyModule("pegboard.agents.runtime")


class LazyAgentRuntime:
    """Creates the `AgentRuntime` of a catalog on first use; implements the port `AgentRunner`.

    `make_model` returns the models of agents, `store` keeps their conversations; both may be set until then.
    """

    def __init__(
        self,
        registry: Registry,
        parts: ViewParts,
        *,
        make_model: ModelFactory,
        load_model: Callable[[ModelSpec], None],
        clock: Callable[[], float],
        redactor: Callable[[ToolContext], Redactor | None],
    ) -> None:
        self._registry, self._parts, self._clock, self._redactor = registry, parts, clock, redactor
        self.make_model, self._own_models, self._load_model = make_model, make_model, load_model
        self.store: ConversationStore | None = None

    @cached_property
    def runtime(self) -> AgentRuntime:
        """The runtime.

        Raises:
            DefinitionError: the required packages are not installed.
        """
        try:
            return agent_runtime.AgentRuntime(
                self._registry,
                self._parts,
                make_model=self.make_model,
                load_model=self._load_model if self.make_model == self._own_models else None,
                clock=self._clock,
                redactor=self._redactor,
                store=self.store,
            )
        except ImportError as error:
            raise DefinitionError(f"Running agents {needs_package(error.name, 'agents')}.") from error

    async def ready(self) -> AgentRuntime:
        """Return the runtime.

        Its first import takes seconds, so it runs in a thread and does not block other calls.

        Raises:
            DefinitionError: the required packages are not installed.
        """
        if "runtime" not in self.__dict__:
            with suppress(ImportError):
                await asyncio.to_thread(getattr, agent_runtime, "AgentRuntime")
        return self.runtime

    async def load(self, agent: str | ModelSpec) -> None:
        """Import the packages of an agent or a model; see `AgentRuntime.load`. Missing ones are reported by the run."""
        with suppress(DefinitionError):
            await (await self.ready()).load(agent)

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
        """Run an agent as part of a call; see `AgentRuntime.run_below`."""
        runtime = await self.ready()
        return await runtime.run_below(agent, query, data, transform=transform, ctx=ctx, view=view)

    async def run_own(
        self, agent: AgentEntry, query: str, *, on_text: Callable[[str], None], ctx: CallContext, view: View
    ) -> AgentResult:
        """Run a private agent of a tool; see `AgentRuntime.run_own`."""
        return await (await self.ready()).run_own(agent, query, on_text=on_text, ctx=ctx, view=view)

    async def close(self) -> None:
        """Close the runtime, if it was created."""
        if "runtime" in self.__dict__:
            await self.runtime.close()
