"""Reach: lists the tools that each profile, credential and agent may use, as decided by the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pegboard.agents.access import agent_view, caller_of, may_run
from pegboard.auth.rule_callers import RuleCaller, rule_callers
from pegboard.cli.options import Identity
from pegboard.cli.project import Project
from pegboard.core.view import AgentTools, View
from pegboard.model.decision import Decision

ALL_GROUPS = "(all groups)"


class Matrix(Struct, frozen=True, kw_only=True):
    """The decision for each tool in each profile. Tools are in the order of the snapshot, built ones last."""

    profiles: tuple[str | None, ...]
    decisions: Mapping[str, tuple[Decision, ...]]


class Reached(NamedTuple):
    """The decision for one caller or agent in one profile."""

    name: str
    profile: str | None
    decision: Decision


async def matrix(project: Project, identity: Identity, profiles: Sequence[str | None]) -> Matrix:
    """Return the decision of the judge for each tool in each profile, for one person."""
    views = [await _view(project, identity, profile).prepare() for profile in profiles]
    snapshot = project.catalog.snapshot()
    listed = {entry.wire_name: None for view in views for entry in (*view.tools(), *view.app_tools())}
    decisions: dict[str, tuple[Decision, ...]] = {}
    for name in dict.fromkeys([*(entry.wire_name for entry in snapshot.entries), *listed]):
        row = tuple([await view.awhy(name) for view in views])
        # A builder of several tools has a name too, which nobody can call.
        if name in listed or not all(decision.visible for decision in row):
            decisions[name] = row
    return Matrix(profiles=tuple(profiles), decisions=decisions)


async def reached_by_callers(project: Project, name: str) -> list[tuple[RuleCaller, list[Reached]]]:
    """Return for each rule of `identity` the decision about a tool in each of its profiles."""
    catalog = project.catalog
    return [
        (
            caller,
            [
                await _reached(caller.name, _view(project, _identity(caller), profile), name)
                for profile in caller.profiles
            ],
        )
        for caller in rule_callers(catalog.identity, tuple(catalog.registry.profiles))
    ]


async def reached_by_agents(
    project: Project, name: str, identity: Identity, profiles: Sequence[str | None]
) -> list[Reached]:
    """Return the decision about a tool for each agent, started by a caller of each profile that may run it.

    An agent has its own groups, so that a caller may reach a tool through it that its profile does not show. An
    agent that no profile may run is judged once, without a profile: another agent or a tool may run it.
    """
    catalog, parts = project.catalog, project.catalog.runtime.view_parts
    reached: list[Reached] = []
    for agent in catalog.registry.declarations.agents.values():
        tools = AgentTools(catalog.registry, agent)
        views = [(profile, _view(project, identity, profile)) for profile in profiles]
        may = [(profile, view) for profile, view in views if await may_run(agent.spec.name, view)]
        for profile, view in may or [(None, _view(project, identity, None))]:
            seen = agent_view(parts, tools, catalog.registry, caller_of(view))
            reached.append(Reached(agent.spec.name, profile, await seen.awhy(name)))
    return reached


def _identity(caller: RuleCaller) -> Identity:
    return Identity(user=caller.user, space=caller.space, roles=caller.roles)


def _view(project: Project, identity: Identity, profile: str | None) -> View:
    return project.catalog.view(project.context(identity), profile=profile)


async def _reached(name: str, view: View, tool: str) -> Reached:
    return Reached(name, view.selection.profile, await view.awhy(tool))
