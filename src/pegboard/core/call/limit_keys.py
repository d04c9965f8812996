"""Limit keys: the keys that rate limits use to count calls, and the guard against floods of invalid calls."""

from __future__ import annotations

from collections.abc import Sequence

from pegboard.core.ports import LocalLimitStore
from pegboard.model.context import ToolContext
from pegboard.model.rate_limit import LimitScope, RateLimit

Key = tuple[str | None, ...]
Hits = Sequence[tuple[Key, RateLimit]]


def scope_key(scope: LimitScope, ctx: ToolContext, subject: str) -> Key:
    """Return the key of a limit: the verified caller as its scope says, and the id of the limited tool."""
    caller = ctx.caller
    if scope == "caller":
        return (scope, subject, caller.space_id, caller.user_id, caller.agent)
    if scope == "tool":
        return (scope, subject)
    by_scope = {
        "user": caller.user_id,
        "space": caller.space_id,
        "agent": caller.agent,
        "session": caller.session_id,
    }
    return (scope, subject, by_scope[scope])


def owner_of(ctx: ToolContext) -> Key:
    """Return the key for sharing threads and places fairly: one credential, user and space.

    Unauthenticated callers share one key per network.
    """
    caller = ctx.caller
    return (caller.credential, caller.user_id, caller.space_id, caller.address)


class FloodGuard:
    """Remembers callers who make many invalid calls; a cheap check for everyone else."""

    def __init__(self, limit: RateLimit, store: LocalLimitStore) -> None:
        self.limit = limit
        self._store = store
        self.is_quiet = True

    def wait_s(self, ctx: ToolContext) -> float:
        """Return how long this caller must wait; 0.0 for all but flooders, and for everybody while `is_quiet`."""
        return self._pass(ctx, charge=False)

    def count(self, ctx: ToolContext) -> None:
        """Record one invalid call."""
        self.is_quiet = False
        self._pass(ctx, charge=True)

    def _pass(self, ctx: ToolContext, *, charge: bool) -> float:
        key = (*scope_key("caller", ctx, "invalid"), ctx.caller.address)
        return self._store.wait_s([(key, self.limit)], charge=charge) or 0.0
