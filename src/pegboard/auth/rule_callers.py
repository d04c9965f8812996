"""Rule callers: the callers that the authentication rules name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from pegboard.auth.rules import IdentityRules, MapRule

EVERYBODY = "everybody on this machine"


class RuleCaller(Struct, frozen=True, kw_only=True):
    """Callers that one rule admits. `unknown` has the templates that only the claims of a token can fill in.

    `profiles` has `None` in a catalog without profiles.
    """

    name: str
    user: str | None = None
    space: str | None = None
    roles: tuple[str, ...] = ()
    profiles: tuple[str | None, ...] = (None,)
    unknown: tuple[str, ...] = ()


def rule_callers(rules: IdentityRules | None, declared: Sequence[str]) -> Iterator[RuleCaller]:
    """Yield the callers that the rules admit over HTTP, in the order of the rules.

    Args:
        rules: `None` admits everybody on this machine.
        declared: the profiles of the catalog.
    """
    known = tuple(declared)
    if rules is None:
        yield RuleCaller(name=EVERYBODY, profiles=known or (None,))
        return
    keys = set[str]()
    for rule in rules.map:
        # Only the first rule of a key counts.
        if rule.key is None or rule.key not in keys:
            yield _caller(rule, known)
        if rule.key is not None:
            keys.add(rule.key)
    if rules.anonymous is not None:
        place = "" if rules.anonymous.is_anywhere else " on this machine"
        yield RuleCaller(name=f"anonymous{place}", profiles=rules.anonymous.profiles or (None,))


def _caller(rule: MapRule, known: tuple[str, ...]) -> RuleCaller:
    name = f"key {rule.key}" if rule.key is not None else f"token {dict(rule.claims or {})}"
    open_ended = [one for one in (*rule.roles, *rule.profiles) if not one.is_plain]
    has_any = any(not one.is_plain for one in rule.profiles)
    profiles = known if has_any else tuple(one.text for one in rule.profiles if one.text in known)
    unknown = tuple(one.text for one in (rule.user, rule.space) if one is not None and not one.is_plain)
    return RuleCaller(
        name=name,
        user=None if rule.user is None else rule.user.text,
        space=None if rule.space is None else rule.space.text,
        roles=tuple(one.text for one in rule.roles if one.is_plain),
        profiles=profiles or (() if known else (None,)),
        unknown=tuple(dict.fromkeys((*unknown, *(one.text for one in open_ended)))),
    )
