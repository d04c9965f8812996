"""Rules: who may come in, as the operator says: which credentials are taken, and what each of them is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct, field

from pegboard.auth.claim_templates import Template

Still: TypeAlias = "Callable[[], bool]"
"""Tells of one credential that was good whether it still is, at once; `False` has it judged anew."""

ANY = "*"
"""As the wanted value of a claim: whatever it is, as long as the token has it."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that are taken: those with a public key. A shared secret (HS…) or none is never one."""


class TokenRules(Struct, frozen=True, kw_only=True):
    """Access tokens that are taken: signed JWTs of one issuer, made for this server.

    `scopes` are those that a token must have, all of them.
    """

    issuer: str
    audience: str
    jwks_url: str
    scopes: tuple[str, ...] = ()


class MapRule(Struct, frozen=True, kw_only=True):
    """What a credential is given: the first rule that matches it counts, and a credential without a rule gets nothing.

    Args:
        key: the name of an API key.
        claims: what a token must say; of a claim that is a list, one item. `"*"` matches any value.
        user: who the caller is then; as the others, with `{claim}` for what the token says.
        profiles: what the caller may look through, the first without being named. Empty in a catalog without profiles.
    """

    key: str | None = None
    claims: Mapping[str, str | int | bool] | None = None
    user: Template | None = None
    space: Template | None = None
    roles: tuple[Template, ...] = ()
    profiles: tuple[Template, ...] = ()


class AnonymousRule(Struct, frozen=True, kw_only=True):
    """What callers without a credential may look through; from other machines only when `is_anywhere` says so."""

    profiles: tuple[str, ...] = ()
    is_anywhere: bool = False


class IdentityRules(Struct, frozen=True, kw_only=True):
    """Who may come in over HTTP. What is not given is not taken: without any of them nobody comes in."""

    key_store: Path | None = None
    tokens: TokenRules | None = None
    map: tuple[MapRule, ...] = ()
    anonymous: AnonymousRule | None = None


class Credential(Struct, frozen=True, kw_only=True):
    """A credential that was verified: an API key by its name, or the claims of a token."""

    owner: str
    key: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Grant(Struct, frozen=True, kw_only=True):
    """What a credential is given. `owner` is the same for the same person with the same rights, and for nobody else.

    `proof` is what is kept of the credential, so that its rights can be asked for again when it is not there any more.
    """

    owner: str
    user: str | None
    space: str | None
    roles: tuple[str, ...]
    profiles: tuple[str, ...]
    proof: str = ""
