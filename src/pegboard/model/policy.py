"""Policies: allow and deny lists that a request can only narrow."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from pegboard.model.error import DefinitionError
from pegboard.model.record import replace


class Policy(Struct, frozen=True, kw_only=True):
    """Allow and deny globs over qualified ids and wire names; deny wins, `allow=()` allows nothing.

    `within` is a policy that must allow the tool too; a child's policy is the intersection of both.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    within: Policy | None = None
    origin: str = ""

    def __post_init__(self) -> None:
        sides: tuple[tuple[str, Any], ...] = (("allow", self.allow), ("deny", self.deny))
        for side, globs in sides:
            entries: tuple[object, ...] = () if globs is None else tuple(globs)
            if isinstance(globs, str) or not all(isinstance(glob, str) and glob for glob in entries):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller may err
                raise DefinitionError(f"Policy {side}={globs!r}: a list of non-empty globs is needed, e.g. ['fs__*'].")
        force_setattr(self, "allow", None if self.allow is None else tuple(self.allow))
        force_setattr(self, "deny", tuple(self.deny))

    def intersect(self, other: Policy) -> Policy:
        """Return a policy that allows only what both allow."""
        if self == OPEN_POLICY:
            return other
        if other.within is None:
            return replace(other, within=self)
        return replace(other, within=self.intersect(other.within))


OPEN_POLICY = Policy()
