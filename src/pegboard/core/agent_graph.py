"""Agent graph: the agents that each agent may run, and the shortest cycle among them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pegboard.core.declarations import Declarations
from pegboard.core.judge import permits
from pegboard.core.names import nearest
from pegboard.model.agent import AgentEntry
from pegboard.model.error import DefinitionError, Problem
from pegboard.model.record import replace
from pegboard.model.tool import ToolEntry


class Edge(NamedTuple):
    """One agent may run another, by a tool."""

    agent: str
    target: str
    tool: ToolEntry


Graph = Mapping[str, tuple[Edge, ...]]


def agent_graph(declared: Declarations) -> Graph:
    """Return the edges of each agent, in the order of their names."""
    shared = [entry for _, entry in declared.tools.items() if entry.agent is not None]
    return {
        name: tuple(Edge(name, entry.agent or "", entry) for entry in _agent_tools(declared.agents[name], shared))
        for name in sorted(declared.agents)
    }


def _agent_tools(agent: AgentEntry, shared: list[ToolEntry]) -> Iterator[ToolEntry]:
    """Yield the tools of an agent that run agents and that its permissions allow."""
    spec = agent.spec
    own = [entry for entry in agent.tools if entry.agent is not None]
    taken = [
        entry
        for entry in shared
        if entry.qualified_id in spec.shared or not set(spec.groups).isdisjoint(entry.spec.groups)
    ]
    for entry in (*own, *taken):
        # Permissions are matched against the name that the tool has in the agent's view.
        if permits(spec.policy, replace(entry, wire_name=entry.wire_name or entry.spec.name)):
            yield entry


def taken_by(edge: Edge, declared: Declarations) -> str | None:
    """Return the key that gives an agent a shared tool, such as `group: core`; `None` for its private tools."""
    spec = declared.agents[edge.agent].spec
    if edge.tool in declared.agents[edge.agent].tools:
        return None
    if edge.tool.qualified_id in spec.shared:
        return f"tool: {edge.tool.qualified_id}"
    return f"group: {next(group for group in spec.groups if group in edge.tool.spec.groups)}"


def way_out(cycle: tuple[Edge, ...], declared: Declarations) -> str:
    """Return the change that ends a circle of agents running each other."""
    for edge in cycle:
        taken = taken_by(edge, declared)
        if taken is not None and taken.startswith("group: "):
            name = edge.tool.wire_name or edge.tool.spec.name
            return (
                f"{edge.agent!r} takes {name!r} by `{taken}`: write `permissions: {{denied_actions: [{name}]}}` under "
                f"`spec:` of {edge.agent!r}, or give the tool another group"
            )
    return "Take one of these tools away"


def check_agents(declared: Declarations) -> None:
    """Refuse agents that run an unknown agent or, directly or indirectly, themselves.

    Raises:
        DefinitionError: with all faults; a cycle is shown as the shortest one, with the files.
    """
    problems = list(agent_faults(declared))
    if problems:
        raise DefinitionError(problems)


def agent_faults(declared: Declarations) -> Iterator[Problem]:
    """Yield the faults in the graph of agents."""
    known = declared.agents
    private = [entry for agent in known.values() for entry in agent.tools]
    for entry in (*private, *(entry for _, entry in declared.tools.items())):
        if entry.agent is not None and entry.agent not in known:
            text = f"there is no agent {entry.agent!r}.{nearest(entry.agent, known, label='Agents')}"
            yield Problem(where=entry.spec.origin, path=entry.qualified_id, message=text)
    graph = agent_graph(declared)
    for cycle in cycles(graph):
        names = " → ".join([*(edge.agent for edge in cycle), cycle[0].agent])
        places = "; ".join(f"{edge.tool.spec.name!r} of {edge.agent} ({edge.tool.spec.origin})" for edge in cycle)
        text = f"agents run each other in a circle: {names}, by {places}. {way_out(cycle, declared)}"
        yield Problem(where=cycle[0].tool.spec.origin, path=cycle[0].agent, message=text)


def cycles(graph: Graph) -> Iterator[tuple[Edge, ...]]:
    """Yield the shortest cycle through each agent, once for each set of agents."""
    for start in graph:
        way = _way_back(graph, start)
        # Each agent of a cycle finds the same one; it is reported from the first agent by name.
        if way is not None and start == min(edge.agent for edge in way):
            yield way


def reachable(graph: Graph, start: str) -> list[str]:
    """Return the agents that an agent may run, directly or through others, and the agent itself."""
    reached = [start] if start in graph else []
    for agent in reached:
        reached += {edge.target for edge in graph[agent] if edge.target in graph}.difference(reached)
    return reached


def _way_back(graph: Graph, start: str) -> tuple[Edge, ...] | None:
    """Return the shortest path from an agent to itself."""
    reached: dict[str, tuple[Edge, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        agent = waiting.popleft()
        for edge in graph.get(agent, ()):
            if edge.target == start:
                return (*reached[agent], edge)
            if edge.target not in reached:
                reached[edge.target] = (*reached[agent], edge)
                waiting.append(edge.target)
    return None
