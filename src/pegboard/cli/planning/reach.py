"""Reach: what each profile, credential and agent may use, as the judge decides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from pegboard.agents.access import agent_view, caller_of, may_run
from pegboard.auth.rules import IdentityRules, MapRule
from pegboard.cli.options import Identity
from pegboard.cli.project import Project
from pegboard.core.view import AgentTools, View
from pegboard.model.decision import Decision

ALL_GROUPS = "(all groups)"
EVERYBODY = "everybody on this machine"


class Matrix(Struct, frozen=True, kw_only=True):
    """The decision for each tool in each profile. Tools are in the order of the snapshot, built ones last."""

    profiles: tuple[str | None, ...]
    decisions: Mapping[str, tuple[Decision, ...]]


class Caller(Struct, frozen=True, kw_only=True):
    """Callers that one rule of `identity` lets in. `unknown` are its texts that are filled from a token's claims."""

    name: str
    identity: Identity
    profiles: tuple[str | None, ...]
    unknown: tuple[str, ...] = ()


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
        made = tuple([await view.awhy(name) for view in views])
        # A builder of several tools has a name too, which nobody can call.
        if name in listed or not all(decision.visible for decision in made):
            decisions[name] = made
    return Matrix(profiles=tuple(profiles), decisions=decisions)


async def reached_by_callers(project: Project, name: str) -> list[tuple[Caller, list[Reached]]]:
    """Return for each rule of `identity` the decision about a tool in each of its profiles."""
    return [
        (caller, [await _asked(caller.name, _view(project, caller.identity, one), name) for one in caller.profiles])
        for caller in callers(project)
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


def callers(project: Project) -> Iterator[Caller]:
    """Yield the callers that the rules let in over HTTP, in the order of the rules."""
    rules: IdentityRules | None = project.catalog.identity
    known = tuple(project.catalog.registry.profiles)
    if rules is None:
        yield Caller(name=EVERYBODY, identity=Identity(), profiles=known or (None,))
        return
    keys = set[str]()
    for rule in rules.map:
        # Only the first rule of a key counts.
        if rule.key is None or rule.key not in keys:
            yield _caller(rule, known)
        if rule.key is not None:
            keys.add(rule.key)
    if rules.anonymous is not None:
        place = "" if rules.anonymous.is_anywhere else " on this machine"
        yield Caller(name=f"anonymous{place}", identity=Identity(), profiles=rules.anonymous.profiles or (None,))


def _caller(rule: MapRule, known: tuple[str, ...]) -> Caller:
    name = f"key {rule.key}" if rule.key is not None else f"token {dict(rule.claims or {})}"
    open_ended = [one for one in (*rule.roles, *rule.profiles) if not one.is_plain]
    has_any = any(not one.is_plain for one in rule.profiles)
    profiles = known if has_any else tuple(one.text for one in rule.profiles if one.text in known)
    identity = Identity(
        user=None if rule.user is None else rule.user.text,
        space=None if rule.space is None else rule.space.text,
        roles=tuple(one.text for one in rule.roles if one.is_plain),
    )
    unknown = tuple(one.text for one in (rule.user, rule.space) if one is not None and not one.is_plain)
    return Caller(
        name=name,
        identity=identity,
        profiles=profiles or (() if known else (None,)),
        unknown=tuple(dict.fromkeys((*unknown, *(one.text for one in open_ended)))),
    )


def _view(project: Project, identity: Identity, profile: str | None) -> View:
    return project.catalog.view(project.context(identity), profile=profile)


async def _asked(name: str, view: View, tool: str) -> Reached:
    return Reached(name, view.selection.profile, await view.awhy(tool))
