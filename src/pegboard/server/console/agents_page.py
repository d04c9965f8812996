"""Agents page: the agents, the tools and agents that each may call, and its recent calls; for operators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from pegboard.agents.access import agent_view, caller_of
from pegboard.audit.audit_query import AuditFilter, newest_rows
from pegboard.audit.audit_row import AuditRow
from pegboard.audit.audit_store import AuditStore
from pegboard.core.agent_graph import Edge, Graph, agent_graph
from pegboard.core.view import AgentTools
from pegboard.model.agent import AgentBudgets, AgentEntry
from pegboard.model.decision import Code
from pegboard.server.console.audit_page import AuditLine, audit_line, audit_of
from pegboard.server.console.decision_words import legend_of
from pegboard.server.console.find_page import callers_of
from pegboard.server.console.frame import frame
from pegboard.server.console.natural_order import natural_key
from pegboard.server.console.page_error import PageError, only_operators
from pegboard.server.console.pages import Pages
from pegboard.server.console.visit import Visit
from pegboard.storage.store_error import StoreError

AGENT_CALLS_SHOWN = 50  # newest calls on an agent's page
AGENT_CALLS_S = 7 * 86_400.0  # how far back calls are shown, in seconds
CALLERS_SHOWN = 100  # of the rules
AGENT_TOOLS_SHOWN = 200  # tools on an agent's page


class AgentRow(NamedTuple):
    """An agent in the list; `takes` are the groups and shared tools of the catalog that it asks for."""

    name: str
    model: str
    description: str
    own: int
    takes: Sequence[str]


class Node(NamedTuple):
    """An agent in the graph, the tool that the agent above uses to run it, and the agents that it runs.

    An agent is expanded once; `is_again` marks its other places.
    """

    name: str
    tool: str
    is_again: bool
    below: Sequence[Node]


class AgentPeg(NamedTuple):
    """A tool in the view of an agent; `runs` is the agent that it runs."""

    name: str
    code: Code
    runs: str
    is_own: bool


class AgentsPage:
    """`/console/agents` and `/console/agents/{name}`, for operators."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def list(self, visit: Visit) -> Response:
        """Show all agents, and which runs which."""
        only_operators(visit)
        registry = visit.gateway.registry
        graph = agent_graph(registry.declarations)
        rows = [_row(agent, len(registry.own_tools(agent))) for agent in registry.declarations.agents.values()]
        values = {
            "rows": sorted(rows, key=lambda row: natural_key(row.name)),
            "tree": _tree(graph),
            "edges": sum(map(len, graph.values())),
            "callers": callers_of(visit)[:CALLERS_SHOWN],
        }
        return self._pages.page("agents.html", {**frame(visit, "agents"), **values})

    async def show(self, visit: Visit) -> Response:
        """Show one agent: its tools if this caller runs it, its budgets, and its recent calls."""
        only_operators(visit)
        registry, name = visit.gateway.registry, visit.path["name"]
        agent = registry.declarations.agents.get(name)
        if agent is None:
            raise PageError(404, "Not found", f"There is no agent {name!r}.")
        graph = agent_graph(registry.declarations)
        pegs = await _pegs(visit, agent)
        audit = audit_of(visit)
        started_by = [edge for edges in graph.values() for edge in edges if edge.target == name]
        values = {
            "agent": agent.spec, "row": _row(agent, 0), "pegs": pegs[:AGENT_TOOLS_SHOWN],
            "left_out": len(pegs[AGENT_TOOLS_SHOWN:]), "visible": sum(peg.code == "visible" for peg in pegs),
            "legend": legend_of(peg.code for peg in pegs),
            "started_by": sorted({(edge.agent, edge.tool.spec.name) for edge in started_by}),
            "budgets": _budgets(agent.spec.budgets), "has_audit": audit is not None,
            "calls": [] if audit is None else await _calls(visit, audit.writer.store, agent),
        }  # fmt: skip
        return self._pages.page("agent.html", {**frame(visit, "agents"), **values})


def _row(agent: AgentEntry, own: int) -> AgentRow:
    spec = agent.spec
    takes = [*(f"group {group}" for group in spec.groups), *spec.shared]
    return AgentRow(spec.name, f"{spec.model.provider}:{spec.model.name}", spec.description, own, takes)


def _tree(graph: Graph) -> list[Node]:
    """Return the agents that no other agent runs, each with those that it runs."""
    run = {edge.target for edges in graph.values() for edge in edges}
    shown = set[str]()

    def node(name: str, tool: str) -> Node:
        edges: Sequence[Edge] = graph.get(name, ())
        is_again = name in shown and bool(edges)
        shown.add(name)
        below = [] if is_again else [node(edge.target, edge.tool.spec.name) for edge in edges]
        return Node(name, tool, is_again, below)

    return [node(name, "") for name in graph if name not in run]


async def _pegs(visit: Visit, agent: AgentEntry) -> list[AgentPeg]:
    """Return the tools of an agent, with the code of each if the caller looked through ran it."""
    gateway = visit.gateway
    tools = AgentTools(gateway.registry, agent)
    view = agent_view(
        gateway.catalog.runtime.view_parts, tools, gateway.registry, caller_of(visit.view())
    )  # fmt: skip
    own = {entry.qualified_id for entry in gateway.registry.own_tools(agent)}
    codes, entries = await view.acodes(), {entry.wire_name: entry for entry in view.snapshot.entries}
    pegs = list[AgentPeg]()
    for name, code in codes.items():
        entry = entries.get(name)
        is_own = entry is not None and entry.qualified_id in own
        # What the agent does not ask for says nothing about it.
        if code != "group":
            pegs.append(AgentPeg(name, code, "" if entry is None else entry.agent or "", is_own))
    return sorted(pegs, key=lambda peg: (peg.code != "visible", not peg.is_own, natural_key(peg.name)))


def _budgets(budgets: AgentBudgets) -> list[tuple[str, str]]:
    limits = ((name.replace("_", " "), getattr(budgets, name)) for name in budgets.__struct_fields__)
    return [(name, f"{limit:,}") for name, limit in limits if limit is not None]


async def _calls(visit: Visit, store: AuditStore, agent: AgentEntry) -> list[AuditLine]:
    """Return the newest calls that started the agent or that it made, the newest first."""
    since = visit.now() - AGENT_CALLS_S
    tools = [
        entry.qualified_id for entry in visit.gateway.registry.snapshot().entries if entry.agent == agent.spec.name
    ]

    def read() -> list[AuditRow]:
        filters = [
            AuditFilter(agent=agent.spec.name, since=since),
            *(AuditFilter(tool=tool, since=since) for tool in tools),
        ]
        rows = {row.call_id: row for one in filters for row in newest_rows(store, one, limit=AGENT_CALLS_SHOWN)}
        return sorted(rows.values(), key=lambda row: -row.at)[:AGENT_CALLS_SHOWN]

    try:
        return [audit_line(row) for row in await asyncio.to_thread(read)]
    except StoreError as error:
        raise PageError(503, "Not now", f"The audit cannot be read: {error}.") from None
