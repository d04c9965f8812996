"""Unseen: tools in groups that no profile includes, which a slip in a group's name makes of them."""

from __future__ import annotations

from collections.abc import Iterator

from pegboard.catalog import Catalog
from pegboard.core.names import nearest
from pegboard.model.error import Problem


def unreachable_tools(catalog: Catalog) -> Iterator[Problem]:
    """Yield a warning for each tool that no caller of any profile can see, for the names of its groups alone."""
    profiles = catalog.registry.profiles.values()
    if not profiles or any(profile.include is None for profile in profiles):
        return
    included = {group for profile in profiles for group in profile.include or ()}
    for entry in catalog.registry.build().entries:
        spec = entry.spec
        if spec.internal_only or not included.isdisjoint(spec.groups):
            continue
        named = f"{spec.groups[0]!r}" if len(spec.groups) == 1 else f"any of {list(spec.groups)}"
        message = f"no profile includes {named}.{nearest(spec.groups[0], included, label='Included')}"
        yield Problem(where=spec.origin, path=entry.wire_name or spec.name, message=message)
