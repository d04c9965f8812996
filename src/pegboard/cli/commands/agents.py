"""agents: list the agents of a config, with their tools and the agents that each may run."""

from __future__ import annotations

from pegboard.cli.options import SharedOptions
from pegboard.cli.project import left_out, opened
from pegboard.cli.terminal import Column
from pegboard.core.agent_graph import Graph, agent_graph
from pegboard.core.registry import Registry
from pegboard.model.agent import AgentEntry
from pegboard.model.json_types import JSON

_AGENTS = (
    Column(head="Agent", style="bold"),
    Column(head="Model"),
    Column(head="Own tools"),
    Column(head="Takes"),
    Column(head="Runs"),
    Column(head="Description"),
)


async def agents_command(*, options: SharedOptions) -> None:
    """List the agents, with their tools and the agents that each may run."""
    async with opened(options, lists_only=True, only_reads=True) as (project, view):
        registry = project.catalog.registry
        declared = registry.declarations
        graph = agent_graph(declared)
        rows: list[JSON] = [_row(registry, declared.agents[name], graph) for name in graph]
        rows = project.clean(rows, view.ctx)  # type: ignore[assignment] - cleaning keeps the type
        problems: JSON = project.clean(left_out(project.config), view.ctx)
    if options.json:
        options.terminal.json({"agents": rows, "problems": problems})
        return
    if rows:
        options.terminal.table(_AGENTS, [_cells(row) for row in rows])
        options.terminal.say("")
        for line in _tree(graph):
            options.terminal.say(line)
        options.terminal.say("")
    options.terminal.say(f"{len(rows)} agent{'' if len(rows) == 1 else 's'}.")


def _row(registry: Registry, agent: AgentEntry, graph: Graph) -> JSON:
    spec = agent.spec
    return {
        "name": spec.name,
        "version": spec.version,
        "description": spec.description,
        "model": f"{spec.model.provider}:{spec.model.name}",
        "tools": [entry.spec.name for entry in registry.own_tools(agent)],
        "groups": list(spec.groups),
        "shared": list(spec.shared),
        "allowed": None if spec.policy.allow is None else list(spec.policy.allow),
        "denied": list(spec.policy.deny),
        "runs": [{"agent": edge.target, "tool": edge.tool.spec.name} for edge in graph[spec.name]],
        "origin": spec.origin,
    }


def _cells(row: JSON) -> list[str]:
    takes = [*(f"group {group}" for group in row["groups"]), *row["shared"]]
    runs = [edge["agent"] for edge in row["runs"]]
    return [row["name"], row["model"], ", ".join(row["tools"]), ", ".join(takes), ", ".join(runs), row["description"]]


def _tree(graph: Graph) -> list[str]:
    """Return lines with each agent and those that it runs, from the agents that nobody runs; each expanded once."""
    run = {edge.target for edges in graph.values() for edge in edges}
    lines: list[str] = []
    expanded: set[str] = set()
    waiting: list[tuple[str, int, str]] = [(agent, 0, "") for agent in reversed(tuple(graph)) if agent not in run]
    while waiting:
        agent, depth, by = waiting.pop()
        edges = graph.get(agent, ())
        again = " …" if edges and agent in expanded else ""
        lines.append(f"{'  ' * depth}{agent}{f' (by {by})' if by else ''}{again}")
        if not again:
            waiting += [(edge.target, depth + 1, edge.tool.spec.name) for edge in reversed(edges)]
        expanded.add(agent)
    return lines
