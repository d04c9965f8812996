"""Source auth form: the authentication of a source at its service, the same for every kind of source."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from pegboard.config.forms.value_types import (
    ConcealedText,
    FilledText,
    Flag,
    Form,
    Maybe,
    Names,
    PositiveNumber,
    definition_error,
)
from pegboard.model.secret import Secret

_STATIC = ("bearer", "basic", "headers", "key", "scheme")
_OF_ISSUERS = (
    "issuer", "token_url", "resource", "scopes", "client_id", "client_secret", "private_key", "private_key_id",
    "token_auth", "hosts", "sends_resource",
)  # fmt: skip
_OF_PERSONS = ("authorization_url", "authorization_params", "revocation_url", "idle_seconds", "scheme")
_OF_TOKENS = ("audience", "subject_token_type", "idle_seconds")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "static": _STATIC,
    "client_credentials": _OF_ISSUERS,
    "user": (*_OF_ISSUERS, *_OF_PERSONS),
    "exchange": (*_OF_ISSUERS, *_OF_TOKENS, "grant", "sends_actor"),
    "id_jag": (*_OF_ISSUERS, *_OF_TOKENS, "login"),
}


class LoginForm(Form):
    """A user name and a password."""

    username: ConcealedText = Field(description="The user name.")
    password: ConcealedText = Field(description="The password.")


TokenAuth = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class LoginIssuerForm(Form):
    """The issuer of your company's login, and the client that you registered there."""

    issuer: FilledText = Field(description="The URL of the issuer, exactly as in its metadata.")
    token_url: Maybe[FilledText] = Field(
        None, description="The URL where the issuer issues tokens, if it has no metadata."
    )
    client_id: ConcealedText = Field(description="The client that you registered there.")
    client_secret: Maybe[ConcealedText] = Field(None, description="The secret of that client.")
    private_key: Maybe[ConcealedText] = Field(
        None, description="The client's private key (PEM), which signs requests instead of a secret."
    )
    private_key_id: Maybe[FilledText] = Field(None, description="The id of that key, as the issuer knows it.")
    token_auth: Maybe[TokenAuth] = Field(None, description="How the client authenticates at the issuer.")


class SourceAuthForm(Form):
    """The credential that Pegboard sends to the service with each request."""

    mode: Literal["none", "static", "client_credentials", "user", "exchange", "id_jag"] = Field(
        description="`none`: no credential. `static`: the same credential for everybody. `client_credentials`: a token "
        "for "
        "this server, from an issuer. `user`: a token for each person, who agrees once in a browser. `exchange`: a "
        "token that an issuer gives in exchange for the person's own token. `id_jag`: the same through the company's "
        "issuer (Enterprise-Managed Authorization)."
    )
    bearer: Maybe[ConcealedText] = Field(None, description="Sent as `Authorization: Bearer …` (static).")
    basic: Maybe[LoginForm] = Field(None, description="Sent as `Authorization: Basic …` (static).")
    headers: Mapping[FilledText, ConcealedText] = Field(
        default_factory=dict[str, Any], description="Sent as headers, such as `X-API-Key` (static)."
    )
    key: Maybe[ConcealedText] = Field(
        None, description="An API key, sent where the OpenAPI document says: a header, the query or a cookie (static)."
    )
    scheme: Maybe[FilledText] = Field(
        None,
        description="The name of a scheme in the `securitySchemes` of an OpenAPI document (static, user). Default: "
        "the first suitable scheme that an operation requires.",
    )
    issuer: Maybe[FilledText] = Field(
        None,
        description="The URL of the authorization server, exactly as in its metadata. Default: the server that the "
        "service names.",
    )
    authorization_url: Maybe[FilledText] = Field(
        None, description="The URL where people agree, for an issuer without metadata (user)."
    )
    authorization_params: Mapping[FilledText, FilledText] = Field(
        default_factory=dict[str, Any],
        description="Further parameters for the page where people agree, such as `access_type: offline` with "
        "Google (user).",
    )
    token_url: Maybe[FilledText] = Field(
        None, description="The URL where tokens are issued, for an issuer without metadata."
    )
    revocation_url: Maybe[FilledText] = Field(
        None, description="The URL where tokens are revoked, for an issuer without metadata (user)."
    )
    resource: Maybe[FilledText] = Field(
        None,
        description="The service that the token is valid for (RFC 8707). Default: the value that the service names, "
        "or its URL.",
    )
    sends_resource: Flag = Field(
        True,
        description="Whether to send `resource` to the issuer. Some issuers, such as Microsoft Entra, refuse it.",
    )
    scopes: Names = Field((), description="The scopes to request. Default: the scopes that the service asks for.")
    client_id: Maybe[ConcealedText] = Field(
        None, description="The client that you registered at the issuer. Default: Pegboard registers itself."
    )
    client_secret: Maybe[ConcealedText] = Field(None, description="The secret of the client.")
    private_key: Maybe[ConcealedText] = Field(
        None, description="The PEM private key of the client, which signs its requests instead of a secret."
    )
    private_key_id: Maybe[FilledText] = Field(None, description="The id of that key, as the issuer knows it.")
    token_auth: Maybe[TokenAuth] = Field(
        None, description="How the client authenticates at the token endpoint. Default: as the issuer prefers."
    )
    hosts: Names = Field(
        (),
        description="The issuers with private addresses that the service may name, as HOST or HOST:PORT. Issuers that "
        "this file names may always have private addresses.",
    )
    idle_seconds: PositiveNumber = Field(
        300.0,
        description="How long an unused connection of one person to an MCP server stays open, in seconds "
        "(user, exchange, id_jag).",
    )
    login: Maybe[LoginIssuerForm] = Field(None, description="The company's issuer, where people log in (id_jag).")
    audience: Maybe[FilledText] = Field(
        None,
        description="The audience of the new token, if it differs from `resource` (exchange) or from `issuer` "
        "(id_jag).",
    )
    subject_token_type: Maybe[Literal["access_token", "id_token", "jwt"]] = Field(
        None,
        description="The kind of token that people send to Pegboard. Default: `id_token` with id_jag, otherwise "
        "`access_token`.",
    )
    grant: Literal["token_exchange", "on_behalf_of"] = Field(
        "token_exchange",
        description="How the issuer exchanges tokens (exchange): as in RFC 8693, or `on_behalf_of` as with Microsoft "
        "Entra.",
    )
    sends_actor: Flag = Field(
        False, description="Whether a token of the client itself is sent as `actor_token` (exchange)."
    )

    @model_validator(mode="after")
    def _fits_its_mode(self) -> SourceAuthForm:
        allowed = _KEYS[self.mode]
        for key in self.model_fields_set - {"mode", *allowed}:
            modes = " or ".join(f"`mode: {mode}`" for mode, keys in _KEYS.items() if key in keys)
            raise definition_error(f"`{key}` goes with {modes}, not with `mode: {self.mode}`. Remove it")
        if self.mode == "static":
            names_header = any(name.lower() == "authorization" for name in self.headers)
            if sum((self.bearer is not None, self.basic is not None, names_header)) > 1:
                raise definition_error("more than one Authorization; keep one")
            if not self.static_headers() and self.key is None:
                raise definition_error("`mode: static` needs `bearer`, `basic` or `headers`, or `key` for an API")
            if self.scheme is not None and self.key is None:
                raise definition_error("`scheme` says where `key` goes. Add `key`, or remove it")
        return self

    @property
    def is_personal(self) -> bool:
        """Whether each person has their own token."""
        return self.mode == "user" or self.exchanges_tokens

    @property
    def exchanges_tokens(self) -> bool:
        """Whether a person's token is exchanged for the one they present."""
        return self.mode in ("exchange", "id_jag")

    def static_headers(self) -> dict[str, str | Secret]:
        """Return the headers that are sent with every request."""
        return credential_headers(self.headers, self.bearer, self.basic)


def credential_headers(
    headers: Mapping[str, str | Secret], bearer: str | Secret | None, basic: LoginForm | None
) -> dict[str, str | Secret]:
    """Return the headers with an `Authorization` for one of the credentials, if there is one."""
    sent = dict(headers)
    if bearer is not None:
        sent["Authorization"] = Secret(f"Bearer {plain(bearer)}")
    if basic is not None:
        pair = f"{plain(basic.username)}:{plain(basic.password)}"
        sent["Authorization"] = Secret(f"Basic {base64.b64encode(pair.encode()).decode()}")
    return sent


def plain(value: str | Secret) -> str:
    """Return the text of a value that may be concealed."""
    return value.reveal() if isinstance(value, Secret) else value
