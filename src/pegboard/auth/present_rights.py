"""Present rights: looks up the current rights of an earlier credential, long after its request.

A task asks about its caller, whose key may have been rotated meanwhile. A stream asks about the credential that opened
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from pegboard.auth.keys import ApiKey, KeyStore, KeyStoreError
from pegboard.auth.rejections import UnavailableError
from pegboard.auth.rule_matching import ANONYMOUS_PROOF, claims_read, grant_of, scopes_of
from pegboard.auth.rules import Credential, IdentityRules
from pegboard.core.steady_clock import steady_time
from pegboard.model.caller import Caller
from pegboard.model.record import replace


async def present_caller(
    rules: IdentityRules | None,
    caller: Caller,
    profile: str | None,
    *,
    wall_clock: Callable[[], float] = steady_time,
) -> Caller | None:
    """Return a caller with the current roles of the credential; `None` if it no longer has rights here.

    A key, or its successor, must still be valid. Tokens last only minutes, so their recorded issuer, scopes and claims
    are judged. A caller whom no rule ever judged is returned unchanged.

    Args:
        rules: the current rules; `None` accepts no credential.
        caller: the caller at that time.
        profile: the profile of the call, which must still be allowed.
        wall_clock: seconds since 1970.

    Raises:
        UnavailableError: the store of keys cannot be read.
    """
    if not caller.proof:
        return caller
    if rules is None:
        return None
    if caller.proof == ANONYMOUS_PROOF:
        rule = rules.anonymous
        return caller if rule is not None and profile in (None, *rule.profiles) else None
    proof = orjson.loads(caller.proof)
    if "claims" in proof:
        credential = _of_token(rules, proof["owner"], proof["claims"])
    else:
        credential = await asyncio.to_thread(_of_key, rules, proof["owner"], wall_clock())
    grant = None if credential is None else grant_of(rules.map, credential)
    if grant is None or (grant.user, grant.space) != (proof["user"], proof["space"]):
        return None
    is_theirs = profile in (None, *grant.profiles)
    return replace(caller, roles=frozenset(grant.roles), credential=grant.owner) if is_theirs else None


class Standing(NamedTuple):
    """The credential that opened a stream: the stored proof, the id of the key or end of the token, and the profile."""

    proof: str
    key_id: str
    ends_at: float | None
    profile: str | None


async def ended_standings(
    rules: IdentityRules | None, asked: Iterable[Standing], *, wall_clock: Callable[[], float] = steady_time
) -> set[Standing]:
    """Return those whose credential is no longer valid, or has lost its user, space or profile.

    The store of keys is read once. If it cannot be read, all keys count as ended: a request with one is refused too.
    """
    asked = set(asked)
    keys: Sequence[ApiKey] = ()
    if rules is not None and rules.key_store is not None and any(standing.key_id for standing in asked):
        try:
            keys = await asyncio.to_thread(KeyStore(rules.key_store).read)
        except KeyStoreError:
            keys = ()
    now, by_id = wall_clock(), {key.id: key for key in keys}
    return {standing for standing in asked if not _stands(rules, standing, by_id.get(standing.key_id), now)}


def _stands(rules: IdentityRules | None, standing: Standing, key: ApiKey | None, now: float) -> bool:
    if rules is None or not standing.proof:
        # Without rules only callers without a credential are admitted.
        return rules is None and not standing.proof
    if standing.proof == ANONYMOUS_PROOF:
        return rules.anonymous is not None and standing.profile in (None, *rules.anonymous.profiles)
    proof = orjson.loads(standing.proof)
    if standing.key_id:
        is_good = key is not None and key.is_good(now)
        credential = Credential(owner=proof["owner"], key=key.name) if key is not None and is_good else None
    else:
        is_over = standing.ends_at is not None and standing.ends_at <= now
        credential = None if is_over else _of_token(rules, proof["owner"], proof["claims"])
    grant = None if credential is None else grant_of(rules.map, credential)
    return (
        grant is not None
        and (grant.user, grant.space) == (proof["user"], proof["space"])
        and standing.profile in (None, *grant.profiles)
    )


def _of_key(rules: IdentityRules, owner: str, now: float) -> Credential | None:
    if rules.key_store is None:
        return None
    try:
        keys = KeyStore(rules.key_store).read()
    except KeyStoreError as error:
        raise UnavailableError(str(error)) from None
    good = [key for key in keys if f"key:{key.holder}" == owner and key.is_good(now)]
    return Credential(owner=owner, key=good[-1].name) if good else None


def _of_token(rules: IdentityRules, owner: str, claims: Mapping[str, Any]) -> Credential | None:
    tokens = rules.tokens
    if tokens is None or claims["iss"] != tokens.issuer or not scopes_of(claims).issuperset(tokens.scopes):
        return None
    # A current rule may deny rights because of a claim that was not recorded.
    return Credential(owner=owner, claims=claims) if claims.keys() >= claims_read(rules.map) else None
