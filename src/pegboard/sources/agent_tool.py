"""Agent: a tool that runs an agent; a template can build the agent's context from the arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pegboard.core.digests import digest
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.call_context import CallContext
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.model.tool import Annotations, ToolEntry, ToolSpec

QUERY: Final[JSON] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "The task for the agent."}},
    "required": ["query"],
}


def invocation(agent: str) -> str:
    """Return the default description of a tool that runs an agent."""
    return f"Invoke agent '{agent}'"


def parameters_of(names: Sequence[str]) -> JSON:
    """Return the parameters of a tool whose template reads these names, as texts."""
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def agent_tool(
    name: str,
    *,
    agent: str,
    description: str = "",
    parameters: JSON | None = None,
    context_transform: str | None = None,
    groups: Sequence[str] = ("core",),
    timeout_s: float = DEFAULT_BOUNDS.agent_timeout_s,
) -> ToolEntry:
    """Return a tool that runs an agent, for `Catalog.agent(…, tools=[…])` or `Catalog.register`.

    Without `parameters` it takes a `query`.
    """
    spec = ToolSpec(
        name=name,
        description=description,
        input_schema=parameters or QUERY,
        groups=tuple(groups),
        timeout_s=timeout_s,
    )
    return agent_entry(spec, agent=agent, context_transform=context_transform)


def agent_entry(spec: ToolSpec, *, agent: str, context_transform: str | None = None) -> ToolEntry:
    """Return a tool that runs an agent. The argument `query` is the query; without one, all arguments as JSON.

    `context_transform` is a template that builds the agent's context, a JSON object, from the arguments as `data`.
    """

    async def run(ctx: CallContext, args: JSON) -> Any:
        assert ctx.call is not None
        query = args.get("query")
        if not isinstance(query, str):
            query = json.dumps(args, ensure_ascii=False)
        return await ctx.call.run_agent(agent, query, args, transform=context_transform)

    if not spec.description:
        spec = replace(spec, description=invocation(agent))
    if spec.annotations == Annotations():
        # The effects of an agent are unknown.
        spec = replace(spec, annotations=Annotations(open_world=True))
    return ToolEntry(
        spec=spec,
        handler=run,
        agent=agent,
        reaches=digest([agent, context_transform]),
        prepare=lambda call: call.load_agent(agent),
    )
