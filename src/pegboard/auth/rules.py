"""Rules: the operator's rules for authentication: which credentials are accepted, and their rights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from pegboard.auth.claim_templates import Template
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret

Still: TypeAlias = "Callable[[], bool]"
"""Tells at once whether an accepted credential is still valid; `False` means that it must be verified again."""

ANY = "*"
"""As the required value of a claim: any value, as long as the token has the claim."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Accepted signatures: those with a public key. Shared secrets (HS…) and `none` are never accepted."""


class TokenRules(Struct, frozen=True, kw_only=True):
    """Accepted access tokens: signed JWTs of one issuer, made for this server.

    A token must have all `scopes`. `keeps_tokens` keeps valid tokens in memory, for sources that exchange them.
    """

    issuer: str
    audience: str
    jwks_url: str
    scopes: tuple[str, ...] = ()
    keeps_tokens: bool = False


class MapRule(Struct, frozen=True, kw_only=True):
    """The grant of a credential: the first matching rule counts, and a credential without a rule gets no rights.

    Args:
        key: the name of an API key.
        claims: required claims of a token; a list claim must contain the value. `"*"` matches any value.
        user: the user id of the caller; like the others, with `{claim}` placeholders.
        profiles: the allowed profiles; the first is the default. Empty in a catalog without profiles.
    """

    key: str | None = None
    claims: Mapping[str, str | int | bool] | None = None
    user: Template | None = None
    space: Template | None = None
    roles: tuple[Template, ...] = ()
    profiles: tuple[Template, ...] = ()


class AnonymousRule(Struct, frozen=True, kw_only=True):
    """The profiles of callers without a credential; callers on other machines only if `is_anywhere`."""

    profiles: tuple[str, ...] = ()
    is_anywhere: bool = False


class IdentityRules(Struct, frozen=True, kw_only=True):
    """The rules of HTTP authentication. Unlisted credentials are refused; without any rules everybody is."""

    key_store: Path | None = None
    tokens: TokenRules | None = None
    map: tuple[MapRule, ...] = ()
    anonymous: AnonymousRule | None = None


class ConsoleRules(CarriesCredentials, frozen=True, kw_only=True):
    """How people log in to the console, and what operators see there.

    Args:
        client_id: the console as a client of the issuer of `TokenRules`; empty if people do not log in there.
        client_secret: its secret, if it has one.
        scopes: the scopes to request; `None` for `openid` and the required ones.
        shows_bodies: whether operators see the arguments and results of other people's calls.
    """

    client_id: str = ""
    client_secret: Secret | None = None
    scopes: tuple[str, ...] | None = None
    shows_bodies: bool = False


class Credential(Struct, frozen=True, kw_only=True):
    """A credential that was verified: an API key by its name and id, or the claims of a token and its end.

    `ends_at` is in seconds since 1970; the store of keys knows the end of a key. `token` is the token itself, if the
    rules keep it.
    """

    owner: str
    key: str | None = None
    key_id: str = ""
    ends_at: float | None = None
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])
    token: Secret | None = None


class Grant(Struct, frozen=True, kw_only=True):
    """The rights of a credential. `owner` is the same for the same person with the same rights, and for nobody else.

    `proof` is stored so that the current rights can be looked up later, without the credential. `key` is
    the name of an API key. `key_id`, `ends_at` and `token` are those of the credential; streams must end with it.
    """

    owner: str
    user: str | None
    space: str | None
    roles: tuple[str, ...]
    profiles: tuple[str, ...]
    proof: str = ""
    key: str = ""
    key_id: str = ""
    ends_at: float | None = None
    token: Secret | None = None
