"""Away sources: the sources of an agent's tools that are not up when a run begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pegboard.core.judge import UP
from pegboard.core.ports import Source
from pegboard.core.predicates import States
from pegboard.model.agent import AgentEntry


def away_sources(entry: AgentEntry, sources: Mapping[str, Source], states: States) -> tuple[str, ...]:
    """Return the sources that are not up, of those that the agent's declaration takes tools from, with the reason."""
    return tuple(_away(entry, sources, states))


def _away(entry: AgentEntry, sources: Mapping[str, Source], states: States) -> Iterator[str]:
    spec = entry.spec
    for name, source in sources.items():
        is_taken = (
            name in entry.sources
            or not source.groups().isdisjoint(spec.groups)
            or any(tool.startswith(f"{name}.") for tool in spec.shared)
        )
        state = states.get(name, UP) if is_taken else UP
        if not state.is_up:
            yield f"{name!r} ({state.status}: {state.reason})" if state.reason else f"{name!r} ({state.status})"
