"""Source outcomes: lists the sources with problems in the `_meta` of a list, for callers who may use their tools."""

from __future__ import annotations

import re

from pegboard.catalog import Catalog
from pegboard.core.names import fold, matches
from pegboard.core.ports import Source
from pegboard.core.snapshot import Snapshot
from pegboard.core.view import View
from pegboard.model.json_types import JSON
from pegboard.model.policy import Policy
from pegboard.model.source_state import SourceState

SOURCES_KEY = "pegboard/sources"
_WILD = re.compile(r"[*?\[]")


def outcomes(catalog: Catalog, view: View, snapshot: Snapshot) -> JSON:
    """Return the `_meta` of a list: the outcome of each source behind it; empty if all are healthy.

    Only the outcome is given, without its reason, which may contain addresses and files; and nothing about a source
    that cannot have a tool for this caller.
    """
    sources = catalog.registry.sources
    if not sources:
        return {}
    states = catalog.registry.states()
    outcome_of = {name: _outcome(states.get(name)) for name in sorted(sources)}
    if set(outcome_of.values()) == {"ok"}:
        return {}
    selected = {entry.source for entry in snapshot.judged(view.selection, view.ctx.policy).conditional}
    seen = {
        name: {"status": outcome}
        for name, outcome in outcome_of.items()
        if name in selected or (not sources[name].entries() and may_bring(sources[name], view))
    }
    return {SOURCES_KEY: seen} if any(status != {"status": "ok"} for status in seen.values()) else {}


def _outcome(state: SourceState) -> str:
    held = state.status == "ok" and (state.quarantined or state.changed)
    return "quarantined" if held else state.status


def may_bring(source: Source, view: View, *, space: str = "") -> bool:
    """Tell whether a source's unknown tools might be visible to this caller, by group and policy.

    `space` asks about something other than tools: `resource` or `prompt`.
    """
    include = view.selection.include
    if include is not None and not source.groups() & set(include):
        return False
    name = source.name
    starts = (f"{space}.{name}__", f"{space}__{name}__") if space else (f"{name}__", f"{name}.")
    return all(_leaves_open(policy, starts) for policy in (view.selection.policy, view.ctx.policy))


def _leaves_open(policy: Policy, starts: tuple[str, str]) -> bool:
    if any(matches(glob, starts) for glob in policy.deny):
        return False
    if policy.allow is not None and not any(_meets(glob, tuple(map(fold, starts))) for glob in policy.allow):
        return False
    return policy.within is None or _leaves_open(policy.within, starts)


def _meets(glob: str, starts: tuple[str, ...]) -> bool:
    """Tell whether a glob may match a name with this prefix."""
    fixed = fold(_WILD.split(glob, maxsplit=1)[0])
    return any(fixed.startswith(start) or (start.startswith(fixed) and fixed != fold(glob)) for start in starts)
