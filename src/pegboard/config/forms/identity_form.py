"""Identity form: HTTP authentication in a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StrictInt, model_validator

from pegboard.auth.claim_templates import Template
from pegboard.config.forms.value_types import FilledText, Form, Maybe, Names, Text, checked, definition_error
from pegboard.model.error import DefinitionError
from pegboard.storage.store_uri import StoreUri

_WHEN = "exactly one of the keys key, claim"


def _store(value: str) -> str:
    try:
        is_file = StoreUri.parse(value, folder=Path()).path is not None
    except DefinitionError:
        is_file = False
    if not is_file:
        raise definition_error("expected `sqlite:` and a file, such as sqlite:./pegboard.db")
    return value


def _template(value: str) -> str:
    checked(Template)(value)
    return value


Filled: TypeAlias = Annotated[Text, AfterValidator(_template)]
FilledNames: TypeAlias = Annotated[Names, AfterValidator(lambda names: tuple(map(_template, names)))]
Wanted: TypeAlias = StrictBool | StrictInt | FilledText


class ApiKeysForm(Form):
    """API keys made by `pegboard keys add`."""

    store: Annotated[Text, AfterValidator(_store)] = Field(
        json_schema_extra={"pattern": "^sqlite:"},
        description="The file with the SHA-256 hashes of the keys, such as sqlite:./pegboard.db, relative to this one.",
    )


class JwtForm(Form):
    """Access tokens of an authorization server: signed JWTs issued for this server."""

    issuer: FilledText = Field(description="The required `iss` of a token: the authorization server.")
    audience: FilledText = Field(description="The required `aud` of a token: the public URL of this server's /mcp.")
    jwks_url: FilledText = Field(description="The URL of the issuer's public keys; https, except on this machine.")
    scopes: Names = Field((), description="Scopes that every token must have.")


class WhenForm(Form):
    """The API key or the tokens that a rule applies to. Give exactly one of the two."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    key: Maybe[FilledText] = Field(None, description="The API key of this name.")
    claim: Maybe[Mapping[FilledText, Wanted]] = Field(
        None,
        description="Claims that a token must have. If a claim is a list, it must contain the value. `*` matches any "
        "value.",
    )

    @model_validator(mode="after")
    def _says_one_thing(self) -> WhenForm:
        if len(self.model_fields_set) != 1:
            raise definition_error(f"a condition has {_WHEN}")
        if self.claim is not None and not self.claim:
            raise definition_error('name a claim; {sub: "*"} is every token')
        return self


class MapRuleForm(Form):
    """The rights of a credential. `{claim}` is replaced by the token's claim; a token without this claim is refused."""

    when: WhenForm = Field(description="The credential this rule applies to. The first matching rule wins.")
    user: Maybe[Filled] = Field(
        None, description="The caller's user name, such as ann, or {sub} to take it from the token."
    )
    space: Maybe[Filled] = Field(
        None, description="The caller's space, such as s1, or {org_id} to take it from the token."
    )
    roles: FilledNames = Field((), description="The caller's roles.")
    profiles: FilledNames = Field((), description="The profiles that the caller may use; /mcp uses the first.")


class AnonymousForm(Form):
    """The rights of callers without a credential."""

    profile: Maybe[FilledText] = Field(None, description="The profile they may use.")
    profiles: Maybe[Names] = Field(None, description="The profiles that they may use; /mcp uses the first.")
    on: Literal["loopback", "anywhere"] = Field(
        "loopback",
        description="From where these callers may call: only from this machine, or from anywhere, which lets "
        "everybody in.",
    )

    @model_validator(mode="after")
    def _names_them_once(self) -> AnonymousForm:
        if {"profile", "profiles"} <= self.model_fields_set:
            raise definition_error("write `profile` or `profiles`, not both")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The profiles as a tuple, in either spelling."""
        return (self.profile,) if self.profile is not None else self.profiles or ()


class IdentityForm(Form):
    """Who may connect over HTTP, and their rights. Without this section, everybody on this machine may connect."""

    api_keys: Maybe[ApiKeysForm] = Field(None, description="Accept API keys.")
    jwt: Maybe[JwtForm] = Field(None, description="Accept access tokens (OAuth 2.1).")
    map: tuple[MapRuleForm, ...] = Field(
        (), description="The rights of each credential. A credential without a rule has no rights."
    )
    anonymous: Maybe[AnonymousForm] = Field(None, description="Accept callers without a credential.")
