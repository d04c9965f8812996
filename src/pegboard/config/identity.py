"""Identity: create the authentication rules of a config."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from pegboard.auth.claim_templates import Template
from pegboard.auth.rules import AnonymousRule, ConsoleRules, IdentityRules, MapRule, TokenRules
from pegboard.config.config import Config, Declared
from pegboard.config.forms.identity_form import AnonymousForm, IdentityForm, JwtForm, MapRuleForm
from pegboard.config.yaml.tree import At, Table
from pegboard.core.names import nearest
from pegboard.extras import needs_package
from pegboard.model.error import Problem
from pegboard.model.secret import Secret
from pegboard.storage.store_uri import StoreUri

_WAYS_IN = ("api_keys", "jwt", "anonymous")


def key_store_of(form: IdentityForm, config: Path) -> Path | None:
    """Return the file of the API keys that a config names."""
    if form.api_keys is None:
        return None
    return StoreUri.parse(form.api_keys.store, folder=config.absolute().parent).path


def rules_of(form: IdentityForm, config: Path, *, keeps_tokens: bool = False) -> IdentityRules:
    """Return the rules of a validated section. `keeps_tokens` is for sources that exchange the tokens of callers."""
    tokens = form.jwt
    return IdentityRules(
        key_store=key_store_of(form, config),
        tokens=None
        if tokens is None
        else TokenRules(
            issuer=tokens.issuer,
            audience=tokens.audience,
            jwks_url=tokens.jwks_url,
            scopes=tokens.scopes,
            keeps_tokens=keeps_tokens,
        ),
        map=tuple(_rule(rule) for rule in form.map),
        anonymous=None
        if form.anonymous is None
        else AnonymousRule(profiles=form.anonymous.names, is_anywhere=form.anonymous.on == "anywhere"),
    )


def console_rules_of(config: Config) -> ConsoleRules:
    """Return how people log in to the console of a config."""
    if config.console is None:
        return ConsoleRules()
    form = config.console.value
    secret = form.client_secret
    return ConsoleRules(
        client_id=form.client_id or "",
        client_secret=Secret(secret) if isinstance(secret, str) else secret,
        scopes=form.scopes,
        shows_bodies=form.bodies == "operators",
    )


def console_faults_of(config: Config) -> Iterator[Problem]:
    """Yield the problems of the section of the console."""
    if config.console is None:
        return
    form, at, identity = config.console.value, config.console.at, config.identity
    if form.client_id is not None and (identity is None or identity.value.jwt is None):
        yield (at / "client_id").problem("there is no issuer to log in at; add `jwt:` to `identity:`")
    if form.client_id is None and (form.client_secret is not None or form.scopes is not None):
        yield at.problem("a secret and scopes are those of a client; add `client_id:`")


def _rule(form: MapRuleForm) -> MapRule:
    return MapRule(
        key=form.when.key,
        claims=form.when.claim,
        user=None if form.user is None else Template(form.user),
        space=None if form.space is None else Template(form.space),
        roles=tuple(Template(text) for text in form.roles),
        profiles=tuple(Template(text) for text in form.profiles),
    )


# -- what cannot be honoured


def faults_of(declared: Declared[IdentityForm], profiles: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems of a section, in a catalog with these profiles."""
    form, at = declared.value, declared.at
    named = set(at.node.items) if isinstance(at.node, Table) else set[str]()
    # An unknown key was probably meant to be one of these, and has its own problem already.
    if not any(name in _WAYS_IN or name not in IdentityForm.model_fields for name in named):
        yield at.problem("nobody could come in; add api_keys, jwt or anonymous, or remove the section")
    if (form.api_keys or form.jwt) and not form.map:
        yield at.problem("`map` has no rule, so no credential may do anything; add one for each")
    if form.jwt is not None:
        yield from _jwt_faults(form.jwt, at / "jwt")
    for index, rule in enumerate(form.map):
        yield from _rule_faults(rule, at / "map" / index, form, profiles)
    if form.anonymous is not None:
        yield from _anonymous_faults(form.anonymous, at / "anonymous", profiles)


def _jwt_faults(form: JwtForm, at: At) -> Iterator[Problem]:
    if importlib.util.find_spec("jwt") is None:
        yield at.problem(needs_package("PyJWT", "auth"))
    # An audience may be any word; one that begins like an address is shown to clients as one.
    if form.audience.startswith(("https://", "http://")) and not _host_of(form.audience):
        yield (at / "audience").problem(f"{form.audience!r} is not an address; write https://host/path")
    host = _host_of(form.jwks_url)
    if not host:
        yield (at / "jwks_url").problem(f"{form.jwks_url!r} is not an address; write https://host/path")
    elif not form.jwks_url.lower().startswith("https:") and not _is_here(host):
        yield (at / "jwks_url").problem(f"{form.jwks_url!r} can be changed on its way here; write https://")


def _host_of(url: str) -> str | None:
    """Return the host of an http or https URL; `None` for other texts."""
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("https", "http") and parts.port != 0 else None
    except ValueError:
        return None


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _rule_faults(rule: MapRuleForm, at: At, form: IdentityForm, profiles: Sequence[str]) -> Iterator[Problem]:
    if rule.when.key is not None and form.api_keys is None:
        yield (at / "when").problem("there are no API keys; add api_keys")
    if rule.when.claim is not None and form.jwt is None:
        yield (at / "when").problem("there are no tokens; add jwt")
    filled = {"user": (rule.user,), "space": (rule.space,), "roles": rule.roles, "profiles": rule.profiles}
    for key, texts in filled.items():
        if rule.when.key is not None and any(text and Template(text).claims for text in texts):
            yield (at / key).problem("an API key has no claims; write the name itself")
    plain = [(i, name) for i, name in enumerate(rule.profiles) if Template(name).is_plain]
    yield from _profile_faults(plain, at, "profiles", profiles)
    if profiles and not rule.profiles:
        yield at.problem(f"the rule gives no profile; add `profiles:` with some of {', '.join(profiles)}")


def _anonymous_faults(form: AnonymousForm, at: At, profiles: Sequence[str]) -> Iterator[Problem]:
    key = "profile" if form.profile is not None else "profiles"
    yield from _profile_faults(list(enumerate(form.names)), at, key, profiles)
    if profiles and not form.names:
        yield at.problem(f"anonymous callers need a profile; add `profile:` with one of {', '.join(profiles)}")


def _profile_faults(names: list[tuple[int, str]], at: At, key: str, profiles: Sequence[str]) -> Iterator[Problem]:
    for index, name in names:
        if name not in profiles:
            place = at / key / index if (at / key / index).exists else at / key
            yield place.problem(f"unknown profile {name!r}.{nearest(name, profiles, label='Profiles')}")
