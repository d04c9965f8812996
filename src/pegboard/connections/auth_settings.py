"""Auth settings: the authentication of one source at its service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from pegboard.model.error import DefinitionError
from pegboard.model.secret import Secret

AuthMode = Literal["client_credentials", "user", "exchange", "id_jag"]
ExchangeGrant = Literal["token_exchange", "on_behalf_of"]
SubjectTokenType = Literal["access_token", "id_token", "jwt"]
TokenAuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
_ENDPOINTS = ("issuer", "authorization_url", "token_url", "revocation_url")
# The parameters that bind an answer to a link, or say what is requested, and those that could replace them.
_OWN_PARAMS = frozenset({
    "response_type", "response_mode", "client_id", "redirect_uri", "state", "scope", "resource", "code_challenge",
    "code_challenge_method", "request", "request_uri",
})  # fmt: skip


class AuthSettings(Struct, frozen=True, kw_only=True):
    """How a source gets the token that it sends.

    With `client_credentials` it is the service's own. Otherwise each person has their own: with `user` they agree once,
    in a browser; with `exchange` it is issued in exchange for the caller's token; with `id_jag` the
    company's issuer exchanges that token for an identity assertion, which the issuer of the service accepts.

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
        sends_resource: whether `resource` is sent at all; issuers that know no resources may refuse it.
        authorization_params: further parameters of the page at which a person agrees, as names and values.
        audience: for whom a token is exchanged, if the issuer wants another name than `resource`.
        subject_token_type: the kind of the caller's token; by default an ID token for `id_jag`, else an access token.
        sends_actor: whether a token of the client itself is sent as `actor_token` with each exchange.
        grant: how the issuer exchanges tokens: by RFC 8693, or `on_behalf_of` as Microsoft Entra.
        login: the company's issuer for `id_jag`, and the client that is registered there.
        is_from_document: whether the description of an API names the URLs of the issuer, and not the operator. They
            must have public addresses and https then, unless `hosts` has theirs.

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
    sends_resource: bool = True
    authorization_params: tuple[tuple[str, str], ...] = ()
    audience: str = ""
    subject_token_type: SubjectTokenType | None = None
    sends_actor: bool = False
    grant: ExchangeGrant = "token_exchange"
    login: AuthSettings | None = None
    is_from_document: bool = False

    def __post_init__(self) -> None:
        for name in ("server_url", *_ENDPOINTS):
            url: str = getattr(self, name)
            if url and not is_http_url(url):
                raise DefinitionError(f"{name}: {url!r} is not an http or https URL; write 'https://host/path'")
        if self.mode != "user":
            mode = f"`mode: {self.mode}`"
            if not self.client_id:
                raise DefinitionError(f"client_id: {mode} needs the id of a client")
            if not self.has_secret:
                raise DefinitionError(f"client_secret: {mode} needs `client_secret` or `private_key`")
            if not (self.issuer or self.token_url):
                # Otherwise the service would choose who gets the secret.
                text = f"{mode} needs `issuer` or `token_url`, which says who gets the credentials"
                raise DefinitionError(f"issuer: {text}")
        if self.mode == "id_jag" and not self.issuer:
            raise DefinitionError("issuer: `mode: id_jag` needs `issuer`, the audience of the identity assertion")
        if self.mode == "id_jag" and self.login is None:
            raise DefinitionError("login: `mode: id_jag` needs `login`, the issuer that identifies people")
        if self.has_secret and not self.client_id:
            raise DefinitionError("client_id: a client with a secret needs its id")
        if self.client_secret is not None and self.private_key is not None:
            raise DefinitionError("private_key: a client has a secret or a private key, not both. Remove one")
        if self.resource and not self.sends_resource:
            raise DefinitionError("resource: it is not sent, because of `sends_resource: false`. Remove one of them")
        if own := sorted(_OWN_PARAMS & {name for name, _ in self.authorization_params}):
            keys = {"resource": ". Use the key `resource` of `auth`", "scope": ". Use `scopes`"}
            instead = keys.get(own[0], "")
            raise DefinitionError(f"authorization_params: {own[0]!r} is set by Pegboard{instead}")
        if self.mode == "user" and bool(self.authorization_url) != bool(self.token_url):
            missing = "token_url" if self.authorization_url else "authorization_url"
            raise DefinitionError(f"{missing}: give `authorization_url` and `token_url`, or neither")
        names_issuer = bool(self.issuer or self.token_url) and not self.is_from_document
        if self.has_secret and self.mode == "user" and not names_issuer:
            text = "a client with a secret needs `issuer` or `token_url`, which says who gets the secret"
            raise DefinitionError(f"issuer: {text}")

    @property
    def has_secret(self) -> bool:
        """Whether the client proves its identity to the issuer."""
        return self.client_secret is not None or self.private_key is not None

    @property
    def is_personal(self) -> bool:
        """Whether each person has their own token."""
        return self.mode != "client_credentials"

    @property
    def is_exchanged(self) -> bool:
        """Whether each person's token is issued in exchange for the caller's."""
        return self.mode in ("exchange", "id_jag")

    def secrets(self) -> Iterator[Secret]:
        """Yield the credentials of the client."""
        for secret in (self.client_secret, self.private_key):
            if secret is not None:
                yield secret
        if self.login is not None:
            yield from self.login.secrets()

    def trusts(self, url: str) -> bool:
        """Tell whether the operator named the host of a URL, which may then have a private address."""
        there = place_of(url)
        endpoints = (self.issuer, self.authorization_url, self.token_url, self.revocation_url)
        named = (self.server_url, *(() if self.is_from_document else endpoints))
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
