"""Auth settings: how one source proves who it is to the service behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

AuthMode = Literal["client_credentials", "user"]
TokenAuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
_ENDPOINTS = ("issuer", "authorization_url", "token_url", "revocation_url")


class AuthSettings(Struct, frozen=True, kw_only=True):
    """How a source gets the token that it sends: `user`, one for each person; `client_credentials`, its own.

    Args:
        source: the name of the source.
        mode: whose token it is.
        server_url: the URL of the service; its tokens are sent there only.
        issuer: the authorization server. By default the service names it (RFC 9728).
        authorization_url: where a person agrees. By default the issuer's metadata name it, as the next two.
        token_url: where tokens are issued.
        revocation_url: where tokens are revoked.
        resource: what the token is for (RFC 8707). By default the resource that the service's metadata name, else
            `server_url` for an MCP server, and nothing for other APIs.
        scopes: the scopes to request. By default those that the service asks for.
        client_id: the client that is registered at the issuer; by default a metadata document, else one is registered.
        client_secret: its secret.
        private_key: its PEM private key, which signs an assertion (`private_key_jwt`) instead of a secret.
        private_key_id: the id of that key, as the issuer knows it.
        token_auth: how the client authenticates at the token endpoint; by default as the issuer prefers.
        hosts: hosts, or `host:port`, of issuers that may have private addresses. Those that these settings name may.
        names_resource: whether `resource` is sent although the service has no metadata, as MCP requires.

    Raises:
        DefinitionError: the settings contradict each other.
    """

    source: str
    mode: AuthMode
    server_url: str
    issuer: str = ""
    authorization_url: str = ""
    token_url: str = ""
    revocation_url: str = ""
    resource: str = ""
    scopes: tuple[str, ...] = ()
    client_id: str = ""
    client_secret: Secret | None = None
    private_key: Secret | None = None
    private_key_id: str = ""
    token_auth: TokenAuthMethod | None = None
    hosts: tuple[str, ...] = ()
    names_resource: bool = True

    def __post_init__(self) -> None:
        for name in ("server_url", *_ENDPOINTS):
            url: str = getattr(self, name)
            if url and not is_http_url(url):
                raise DefinitionError(f"{name}: {url!r} is not an http or https URL; write 'https://host/path'")
        if self.mode == "client_credentials":
            if not self.client_id:
                raise DefinitionError("client_id: `mode: client_credentials` needs the id of a client")
            if self.client_secret is None and self.private_key is None:
                raise DefinitionError(
                    "client_secret: `mode: client_credentials` needs `client_secret` or `private_key`"
                )
            if not (self.issuer or self.token_url):
                # Otherwise the service would choose who gets the secret.
                text = "`mode: client_credentials` needs `issuer` or `token_url`, which says who gets the credentials"
                raise DefinitionError(f"issuer: {text}")
        if (self.client_secret is not None or self.private_key is not None) and not self.client_id:
            raise DefinitionError("client_id: a client with a secret needs its id")
        if self.client_secret is not None and self.private_key is not None:
            raise DefinitionError("private_key: a client has a secret or a private key, not both. Remove one")
        if self.mode == "user" and bool(self.authorization_url) != bool(self.token_url):
            missing = "token_url" if self.authorization_url else "authorization_url"
            raise DefinitionError(f"{missing}: give `authorization_url` and `token_url`, or neither")
        if self.client_secret is not None and self.mode == "user" and not (self.issuer or self.token_url):
            text = "a client with a secret needs `issuer` or `token_url`, which says who gets the secret"
            raise DefinitionError(f"issuer: {text}")

    @property
    def is_personal(self) -> bool:
        """Whether each person has their own token."""
        return self.mode == "user"

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials of the client."""
        for secret in (self.client_secret, self.private_key):
            if secret is not None:
                yield secret

    def trusts(self, url: str) -> bool:
        """Tell whether the operator named the host of a URL, which may then have a private address."""
        there = place_of(url)
        named = (self.server_url, self.issuer, self.authorization_url, self.token_url, self.revocation_url)
        return there in {place_of(one) for one in named if one} or bool(
            {there, there.rpartition(":")[0]} & {*self.hosts}
        )


def is_http_url(url: str) -> bool:
    """Tell whether a text is an absolute http or https URL without credentials."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None and port != 0


def place_of(url: str) -> str:
    """Return `host:port` of an http or https URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
