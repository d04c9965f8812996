"""Worker checks: rate limits and budgets that each of several workers would count separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pegboard.catalog import Catalog
from pegboard.limits.memory import MemoryLimitStore
from pegboard.model.rate_limit import RateLimit
from pegboard.model.record import replace


def budgets_in_memory(catalog: Catalog) -> bool:
    """Tell whether there are budgets that each process would count separately."""
    ports = catalog.executor.ports
    return bool(catalog.registry.declarations.budgets) and ports.budgets is ports.local_budgets


def counted_in_memory(catalog: Catalog) -> str | None:
    """Name something with a rate limit that each process would count separately; `None` if there is nothing."""
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
    """Prevent separate counting of limits that appear later, from a source's list or by a reload.

    They are treated as if their store were down: calls that change something are refused, others are counted in this
    worker.
    """
    ports = replace(catalog.executor.ports, limits_without_store=_NotShared(workers))
    catalog.executor.swap(ports.with_limits(None) if isinstance(ports.limits, MemoryLimitStore) else ports)


class _NotShared:
    """A limit store that is always down, because each worker would count separately. Implements `LimitStore`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def wait_s(self, hits: Sequence[tuple[tuple[str | None, ...], RateLimit]], *, charge: bool) -> NoReturn:
        raise ConnectionError(
            f"each of {self._workers} workers would count for itself; add "
            '`rate_limits: {store: "redis://HOST:PORT"}` to the config, or serve with one worker'
        )
