"""Doorman: tell who sends a request, and through which profile they may look. One for all doors over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pegboard.serve.gate import Refusal
from pegboard.serve.identity import Identity, Visit, choose_profile

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pegboard.catalog import Catalog

NOT_FOUND = Refusal(status=404, text="Not found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Visitor:
    """Somebody let in, with the profiles that they may look through; `None` means every profile there is."""

    identity: Identity
    profiles: tuple[str, ...] | None = None


_ANYBODY = Visitor(identity=Identity())


class Doorman:
    """Judges the credential of every request.

    Args:
        catalog: whose door it is.
        profile: the profile behind an address that names none; by default `default`, or the first.
    """

    def __init__(self, catalog: Catalog, *, profile: str | None = None) -> None:
        self._catalog, self._profile = catalog, profile
        self._visits: dict[str | None, Visit] = {}

    async def identify(self, scope: MutableMapping[str, Any]) -> Visitor | Refusal:
        """Tell who sends a request, by its ASGI scope."""
        return _ANYBODY

    async def visit(self, scope: MutableMapping[str, Any], named: str | None = None) -> Visit | Refusal:
        """Return the visit of who sends a request to a profile, or to the one that they get without naming any.

        A profile that the caller does not have is not found, like one that does not exist.
        """
        visitor = await self.identify(scope)
        if isinstance(visitor, Refusal):
            return visitor
        return self._anonymous_visit(named)

    def _anonymous_visit(self, named: str | None) -> Visit | Refusal:
        profiles = self._catalog.registry.profiles
        profile = named or choose_profile(profiles, None if self._profile not in profiles else self._profile)
        if named is not None and named not in profiles:
            return NOT_FOUND
        visit = self._visits.get(profile)
        if visit is None:
            who = _ANYBODY.identity
            visit = self._visits[profile] = Visit(identity=who, profile=profile, session=who.credential)
        return visit
