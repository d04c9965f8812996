"""Source outcomes: which sources of a list are not well, in its `_meta`, for those who may have tools of theirs."""

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
    """Return the `_meta` of a list: the outcome of each source that it may draw on; empty while all of them are well.

    Only the outcome is given, not its reason, which may name addresses and files; and none of a source that this
    caller can have no tool of.
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
    """Tell whether tools that are not known yet may be this caller's, by group and policy.

    `space` asks it of what a source brings beside tools: `resource` or `prompt`.
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
    """Tell whether a glob may fit some name that begins so."""
    fixed = fold(_WILD.split(glob, maxsplit=1)[0])
    return any(fixed.startswith(start) or (start.startswith(fixed) and fixed != fold(glob)) for start in starts)
