"""Rule matching: from a verified credential to what it is given, by the first rule that matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pegboard.auth.claim_templates import MissingClaimError
from pegboard.auth.rules import ANY, Credential, Grant, MapRule
from pegboard.core.digests import digest

_WORDS_CLAIM = "scope"


def grant_of(rules: Iterable[MapRule], credential: Credential) -> Grant | None:
    """Return what the first matching rule gives; `None` when none matches, or the credential lacks a claim it needs.

    A rule that matches and cannot be filled in ends the search: a credential that is short of a claim must not be taken
    for one of another kind.
    """
    for rule in rules:
        if _matches(rule, credential):
            return _granted(rule, credential)
    return None


def _granted(rule: MapRule, credential: Credential) -> Grant | None:
    claims = credential.claims
    try:
        user = None if rule.user is None else rule.user.one(claims)
        space = None if rule.space is None else rule.space.one(claims)
        roles = tuple(dict.fromkeys(role for one in rule.roles for role in one.several(claims)))
        profiles = tuple(dict.fromkeys(name for one in rule.profiles for name in one.several(claims)))
    except MissingClaimError:
        return None
    if rule.profiles and not profiles:
        return None
    # The rights are part of it: what was begun with more of them must not be taken up with fewer.
    owner = digest([credential.owner, user, space, roles, profiles])
    return Grant(owner=owner, user=user, space=space, roles=roles, profiles=profiles)


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
    # 1 is not true here, although it is in Python.
    return any(type(item) is type(wanted) and item == wanted for item in items)
