"""Present rights: looks up the current rights of an earlier credential, long after its request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from pegboard.auth.keys import KeyStore, KeyStoreError
from pegboard.auth.rejections import UnavailableError
from pegboard.auth.rule_matching import ANONYMOUS_PROOF, claims_read, grant_of, scopes_of
from pegboard.auth.rules import Credential, IdentityRules
from pegboard.model.caller import Caller
from pegboard.model.record import replace


async def present_caller(
    rules: IdentityRules | None,
    caller: Caller,
    profile: str | None,
    *,
    wall_clock: Callable[[], float] = time.time,
) -> Caller | None:
    """Return a caller with the current roles of the credential; `None` if it has no rights here any more.

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
    kept = orjson.loads(caller.proof)
    if "claims" in kept:
        credential = _of_token(rules, kept["owner"], kept["claims"])
    else:
        credential = await asyncio.to_thread(_of_key, rules, kept["owner"], wall_clock())
    grant = None if credential is None else grant_of(rules.map, credential)
    if grant is None or (grant.user, grant.space) != (kept["user"], kept["space"]):
        return None
    is_theirs = profile in (None, *grant.profiles)
    return replace(caller, roles=frozenset(grant.roles), credential=grant.owner) if is_theirs else None


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
