"""Rule matching: finds the grant of a verified credential by the first matching rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import orjson

from pegboard.auth.claim_templates import MissingClaimError
from pegboard.auth.rules import ANY, Credential, Grant, MapRule
from pegboard.core.digests import digest

_WORDS_CLAIM = "scope"
_SCOPES: Final = ("scope", "scp")
ANONYMOUS_PROOF: Final = '{"anonymous":true}'
"""`Grant.proof` of a caller without a credential, if the rules allow such callers."""


def grant_of(rules: Sequence[MapRule], credential: Credential) -> Grant | None:
    """Return the grant of the first matching rule; `None` if none matches, or a claim is missing.

    A matching rule with a missing claim ends the search, so that an incomplete credential is not treated as one of
    another kind.
    """
    for rule in rules:
        if _matches(rule, credential):
            return _granted(rule, credential, rules)
    return None


def claims_read(rules: Sequence[MapRule]) -> frozenset[str]:
    """Return the names of the claims that a token's grant depends on."""
    names = {"iss", *_SCOPES}
    for rule in rules:
        names.update(rule.claims or ())
        for template in (rule.user, rule.space, *rule.roles, *rule.profiles):
            names.update(() if template is None else template.claims)
    return frozenset(names)


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes of a token."""
    scope: Any = next((claims[name] for name in _SCOPES if claims.get(name) is not None), "")
    words = scope.split() if isinstance(scope, str) else cast("list[Any]", scope) if isinstance(scope, list) else []
    return frozenset(word for word in words if isinstance(word, str))


def _granted(rule: MapRule, credential: Credential, rules: Sequence[MapRule]) -> Grant | None:
    claims = credential.claims
    try:
        user = None if rule.user is None else rule.user.one(claims)
        space = None if rule.space is None else rule.space.one(claims)
        roles = tuple(dict.fromkeys(role for template in rule.roles for role in template.several(claims)))
        profiles = tuple(dict.fromkeys(name for template in rule.profiles for name in template.several(claims)))
    except MissingClaimError:
        return None
    if rule.profiles and not profiles:
        return None
    # The owner includes the rights: work begun with more rights must not be continued with fewer.
    owner = digest([credential.owner, user, space, roles, profiles])
    proof = _proof_of(rules, credential, user, space)
    return Grant(
        owner=owner,
        user=user,
        space=space,
        roles=roles,
        profiles=profiles,
        proof=proof,
        key=credential.key or "",
        key_id=credential.key_id,
        ends_at=credential.ends_at,
        token=credential.token,
    )


def _proof_of(rules: Sequence[MapRule], credential: Credential, user: str | None, space: str | None) -> str:
    """Return the stored proof of a credential: no secrets; for a token the claims that these rules read."""
    proof: dict[str, Any] = {"owner": credential.owner, "user": user, "space": space}
    if credential.key is None:
        proof["claims"] = {name: credential.claims.get(name) for name in sorted(claims_read(rules))}
    return orjson.dumps(proof).decode()


def _matches(rule: MapRule, credential: Credential) -> bool:
    if credential.key is not None:
        return rule.key == credential.key
    if rule.claims is None:
        return False
    return all(_says(credential.claims, name, wanted) for name, wanted in rule.claims.items())


def _says(claims: Mapping[str, Any], name: str, wanted: str | int | bool) -> bool:
    value = claims.get(name)
    if value is None:
        return False
    if wanted == ANY:
        return True
    if name == _WORDS_CLAIM and isinstance(value, str):
        return wanted in value.split()
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    # 1 does not equal true here, although it does in Python.
    return any(type(item) is type(wanted) and item == wanted for item in items)
