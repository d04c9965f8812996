"""Issuers: the authorization server of a source and its metadata, and the client that is registered there."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pegboard.connections.auth_settings import TokenAuthMethod
from pegboard.model.secret import Secret


class Issuer(Struct, frozen=True, kw_only=True):
    """An authorization server, as its metadata describe it (RFC 8414). URLs are empty if there is no such endpoint.

    A connection keeps the metadata of its start: a refresh token is sent to no other endpoint than that of then.
    """

    issuer: str
    token_url: str
    authorization_url: str = ""
    revocation_url: str = ""
    registration_url: str = ""
    token_auth_methods: tuple[str, ...] = ()
    sends_iss: bool = False
    takes_client_documents: bool = False

    def to_json(self) -> str:
        """Return it as text for a store."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Issuer:
        """Return it from the text of a store."""
        return msgspec.json.decode(text, type=cls)


class Discovered(Struct, frozen=True, kw_only=True):
    """The known facts about a service before a person is asked: its issuer, the resource, and the scopes to request.

    `resource` is empty if none is sent.
    """

    issuer: Issuer
    resource: str
    scopes: tuple[str, ...]


class OAuthClient(Struct, frozen=True, kw_only=True):
    """Pegboard as a client of an issuer."""

    client_id: str
    secret: Secret | None = None
    private_key: Secret | None = None
    private_key_id: str = ""
    method: TokenAuthMethod = "none"


class TokenAnswer(Struct, frozen=True, kw_only=True):
    """The tokens in an issuer's answer. `expires_in_s` is `None` if it did not say; `scopes` too.

    `issuer` names it, where records of calls do.
    `id_token` is the ID token of OpenID Connect, unverified.
    """

    access: Secret
    refresh: Secret | None = None
    expires_in_s: float | None = None
    scopes: tuple[str, ...] | None = None
    issuer: str = ""
    id_token: Secret | None = None
