"""Access: decides whether a caller may run an agent by name, and limits the rights of the run."""

from __future__ import annotations

from pegboard.core.judge import Selection, layers
from pegboard.core.names import fold, matches_folded
from pegboard.core.registry import Registry
from pegboard.core.view import AgentTools, View, ViewParts
from pegboard.model.agent import AgentEntry
from pegboard.model.budget import Spending
from pegboard.model.context import ToolContext
from pegboard.model.policy import Policy
from pegboard.model.record import replace


async def runnable(view: View) -> frozenset[str] | None:
    """Return the agents in the groups of a caller's profile; `None` if the profile has all groups.

    Agents have no groups. If only some groups are included, these are the agents whose tools are visible.
    """
    if view.selection.include is None:
        return None
    return frozenset(entry.agent for entry in await view.atools() if entry.agent is not None)


async def may_run(agent: str, view: View) -> bool:
    """Tell whether a caller may run an agent by name: the profile's groups include it, and no policy denies it.

    Policies match the name of an agent like that of a tool.
    """
    visible_agents = await runnable(view)
    return (visible_agents is None or agent in visible_agents) and _is_allowed(agent, view)


def _is_allowed(agent: str, view: View) -> bool:
    names = (fold(agent),)
    for policy in layers(view.selection.policy, view.ctx.policy):
        if any(matches_folded(glob, names) for glob in policy.deny):
            return False
        if policy.allow is not None and not any(matches_folded(glob, names) for glob in policy.allow):
            return False
    return True


def caller_of(view: View) -> ToolContext:
    """Return the context of a run for a caller: with the caller's rights, within those of the profile."""
    ctx = view.ctx.plain()
    if view.profile is not None:
        ctx = ctx.with_request(spending=Spending(view.profile.name, ()))
    return replace(ctx, policy=ctx.policy.intersect(view.selection.policy))


def selection_of(agent: AgentEntry, registry: Registry) -> Selection:
    """Return the tools selected by an agent: its groups, its private tools, and the tools named in its declaration."""
    spec = agent.spec
    # Tools that its declaration names are opened, as for host code.
    named = frozenset(spec.shared) | {tool.qualified_id for tool in registry.own_tools(agent)}
    return Selection(include=spec.groups, policy=spec.policy, internal=named, extra=named, origin=spec.origin)


def agent_view(parts: ViewParts, tools: AgentTools, registry: Registry, caller: ToolContext) -> View:
    """Return the tools that a run of an agent would have now, for a caller as `caller_of` returns it."""
    ctx = replace(caller, agent=tools.agent.spec.name)
    return View(parts, ctx, selection_of(tools.agent, registry), tools_of=tools)


def denials(policy: Policy) -> Policy:
    """Return a policy with only the deny list of this one."""
    return replace(policy, allow=None, within=None if policy.within is None else denials(policy.within))
