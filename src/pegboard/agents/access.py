"""Access: which agents a caller may run by name, and with which rights agents run."""

from __future__ import annotations

from pegboard.core.judge import layers
from pegboard.core.names import fold, matches_folded
from pegboard.core.view import View
from pegboard.model.context import ToolContext
from pegboard.model.policy import Policy
from pegboard.model.record import replace


async def runnable(view: View) -> frozenset[str] | None:
    """Return the agents that the groups of a caller's profile hold; `None` where it holds all groups.

    An agent stands in no group by itself: where only some are included, it is those whose tools the caller sees.
    """
    if view.selection.include is None:
        return None
    return frozenset(entry.agent for entry in await view.atools() if entry.agent is not None)


async def may_run(agent: str, view: View) -> bool:
    """Tell whether a caller may run an agent by its name: the groups of their profile hold it, and no policy denies it.

    Policies mean an agent by its name, as they mean a tool.
    """
    held = await runnable(view)
    return (held is None or agent in held) and _is_allowed(agent, view)


def _is_allowed(agent: str, view: View) -> bool:
    names = (fold(agent),)
    for policy in layers(view.selection.policy, view.ctx.policy):
        if any(matches_folded(glob, names) for glob in policy.deny):
            return False
        if policy.allow is not None and not any(matches_folded(glob, names) for glob in policy.allow):
            return False
    return True


def caller_of(view: View) -> ToolContext:
    """Return the context of a run that a caller asks for: it has their rights, within those of their profile."""
    ctx = view.ctx.plain()
    return replace(ctx, policy=ctx.policy.intersect(view.selection.policy))


def denials(policy: Policy) -> Policy:
    """Return a policy that denies what this one does by name, and otherwise allows everything."""
    return replace(policy, allow=None, within=None if policy.within is None else denials(policy.within))
