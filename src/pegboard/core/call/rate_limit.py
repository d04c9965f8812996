"""Rate limit: check or charge all windows of a call in one atomic step."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Coroutine
from typing import Any, cast

from pegboard.core.call.limit_keys import Hits, Key, scope_key
from pegboard.core.call.record import Asked, Call
from pegboard.model.error import CallError
from pegboard.model.json_types import is_awaitable
from pegboard.model.rate_limit import RateLimit, WhenStoreIsDown
from pegboard.model.tool import ToolSpec

log = logging.getLogger("pegboard")

STORE_DOWN = "{name!r} cannot be used now: its {what} cannot be checked. Try again in a moment."


def limits_of(call: Call) -> Hits:
    """Return the windows of this call: the tool's own limit (or the default), and the profile's."""
    hits = windows_of(call)
    client = call.view.ctx.request.client
    if client is None:
        return hits
    if call.has_paid is None:
        has_budgets = bool(call.executor.registry.declarations.budgets)
        call.has_paid = _has_paid(call, client, is_limited=bool(hits) or has_budgets)
    # A client that calls again with an answer was charged in the first round. Limits of 0 calls apply regardless.
    return [hit for hit in hits if not hit[1].max_calls] if call.has_paid else hits


def windows_of(call: Asked) -> Hits:
    """Return the windows of a first call."""
    view, entry = call.view, call.entry
    ctx, profile = view.ctx, view.profile
    own = entry.spec.rate_limit or call.executor.registry.declarations.default_limit
    if own is None:
        if profile is None or profile.rate_limit is None:
            return ()
        hits: list[tuple[Key, RateLimit]] = []
    else:
        hits = [(scope_key(own.scope, ctx, entry.qualified_id), own)]
    if profile is not None and profile.rate_limit is not None:
        hits.append((scope_key(profile.rate_limit.scope, ctx, f"profile {profile.name}"), profile.rate_limit))
    return hits


def _has_paid(call: Call, client: object, *, is_limited: bool) -> bool:
    """Tell the client that a call begins; return whether the call was charged before the client was asked."""
    begins = getattr(client, "begins", None)
    if begins is None:
        return False
    begins(call.entry.qualified_id, call.entry.fingerprint)
    return is_limited and cast("Any", client).has_paid(call.entry.qualified_id)


def pass_limits(call: Asked, hits: Hits, *, charge: bool, may_wait: bool) -> Awaitable[None] | None:
    """Check the limits, or charge them in one atomic step; a refused call is not recorded.

    Returns an awaitable if the store is not in memory; without `may_wait` such a store is skipped.
    """
    try:
        wait_s: Any = call.ports.limits.wait_s(hits, charge=charge)
    except OSError as error:
        wait_s = _without_store(call, hits, charge=charge, error=error)
    if wait_s == 0.0:
        return None
    if is_awaitable(wait_s):
        if not may_wait:
            cast("Coroutine[Any, Any, None]", wait_s).close()
            return None
        return _pass_remote(call, hits, wait_s, charge=charge)
    raise _rate_limited(call, wait_s)


async def _pass_remote(call: Asked, hits: Hits, asked: Awaitable[float | None], *, charge: bool) -> None:
    try:
        wait_s = await asked
        call.executor.limits_are_away = False
    except OSError as error:
        wait_s = _without_store(call, hits, charge=charge, error=error)
    if wait_s != 0.0:
        raise _rate_limited(call, wait_s)


def _rate_limited(call: Asked, wait_s: float | None) -> CallError:
    when = "" if wait_s is None else f" It can be used again in {wait_s:.3g} s."
    text = (
        f"{call.name!r} is temporarily unavailable: its rate limit is reached.{when} Other tools may be used meanwhile."
    )
    return CallError("rate_limited", text, retryable=wait_s is not None, retry_after_s=wait_s)


def rule_without_store(declared: WhenStoreIsDown | None, tool: ToolSpec) -> WhenStoreIsDown:
    """Return the rule for a shared store that does not answer: the declared one, or the default for the tool."""
    return declared or ("local" if tool.is_read_only else "closed")


def _without_store(call: Asked, hits: Hits, *, charge: bool, error: OSError) -> float | None:
    rules = [rule_without_store(limit.when_store_is_down, call.entry.spec) for _, limit in hits]
    # Once in an outage: every later call of it would repeat the same.
    level = logging.DEBUG if call.executor.limits_are_away else logging.WARNING
    call.executor.limits_are_away = True
    named = " and ".join(sorted(set(rules)))
    log.log(level, "The rate limit store is down (%s); the rule for %r is %s.", error, call.name, named)
    if "closed" in rules:
        raise CallError("ratelimit_unavailable", STORE_DOWN.format(name=call.name, what="rate limit"))
    local = [hit for hit, rule in zip(hits, rules, strict=True) if rule == "local"]
    return call.ports.local_limits.wait_s(local, charge=charge)
