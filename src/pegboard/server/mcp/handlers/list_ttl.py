"""List TTL: how long a 2026-07-28 client may cache a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pegboard.catalog import Catalog
from pegboard.core.ports import ListsForPersons, Source
from pegboard.core.view import View
from pegboard.model.caller import Caller
from pegboard.model.source_state import SourceState
from pegboard.server.mcp.handlers.source_outcomes import may_bring
from pegboard.server.mcp.limits import LIST_TTL_MS

STARTING_TTL_MS = 1_000  # seconds, while a source has not delivered its first lists


@runtime_checkable
class Starting(Protocol):
    """A source that reports whether its first lists are still pending, which its state alone does not show."""

    def is_starting(self) -> bool: ...


def starting(catalog: Catalog, caller: Caller | None = None) -> Sequence[Source]:
    """Return the sources whose first lists are still pending, for this caller if one is given.

    Ask before a list is written: what a source adds meanwhile is then in the list, or the list is short-lived.
    """
    sources = catalog.registry.sources
    if not sources:
        return ()
    states = catalog.registry.states()
    return [source for name, source in sources.items() if _is_starting(source, states.get(name), caller)]


def list_ttl_ms(awaited: Sequence[Source], view: View, *, space: str = "") -> int:
    """Return how long a list may be cached: shorter while pending sources may bring something for this caller.

    `space` is `resource` or `prompt` for lists of those.
    """
    return STARTING_TTL_MS if any(may_bring(source, view, space=space) for source in awaited) else LIST_TTL_MS


def discover_ttl_ms(catalog: Catalog) -> int:
    """Return how long the answer to server/discover may be cached; it is the same for every caller."""
    return STARTING_TTL_MS if starting(catalog) else LIST_TTL_MS


def _is_starting(source: Source, state: SourceState, caller: Caller | None) -> bool:
    if caller is not None and isinstance(source, ListsForPersons):
        return source.is_starting_for(caller)
    if isinstance(source, Starting):
        return source.is_starting()
    return state.status == "connecting" and not source.entries()
