"""Shared state: what would count or know for itself in each of several workers, and what must not."""

from __future__ import annotations

from pegboard.catalog import Catalog
from pegboard.limits.memory import MemoryLimitStore


def counted_in_memory(catalog: Catalog) -> str | None:
    """Return what has a rate limit that each process counts for itself; `None` where nothing has."""
    if not isinstance(catalog.guards.limits, MemoryLimitStore):
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
