"""Worker checks: what would count or know for itself in each of several workers, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pegboard.catalog import Catalog
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace


def counted_in_memory(catalog: Catalog) -> str | None:
    """Return what has a rate limit that each process counts for itself; `None` where nothing has."""
    if not isinstance(catalog.executor.ports.limits, MemoryLimitStore):
        return None
    declared = catalog.registry.declarations
    if declared.default_limit is not None:
        return "Every tool"
    for name, profile in declared.profiles.items():
        if profile.rate_limit is not None:
            return f"The profile {name!r}"
    for entry in catalog.snapshot().entries:
        if entry.spec.rate_limit is not None:
            return f"The tool {entry.qualified_id!r}"
    return None


def count_for_all(catalog: Catalog, workers: int) -> None:
    """Have no worker count for itself what gets a limit later: from a source that lists it, or by a reload.

    Such a limit is held as one whose store is down: what changes something is refused, the rest is counted here.
    """
    ports = replace(catalog.executor.ports, limits_without_store=_NotShared(workers))
    catalog.executor.swap(ports.with_limits(None) if isinstance(ports.limits, MemoryLimitStore) else ports)


class _NotShared:
    """A store of limits that does not answer: each worker would count for itself. Fills the port `LimitStore`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def wait_s(self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool) -> NoReturn:
        raise ConnectionError(
            f"each of {self._workers} workers would count for itself; add "
            '`rate_limits: {store: "redis://HOST:PORT"}` to the config, or serve with one worker'
        )
