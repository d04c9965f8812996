"""Security schemes: the authentication that an OpenAPI document declares, and its operations require."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct, field

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.sources.openapi.api_description import Document, UnfitError

SECURITY_SCHEMES = 100  # schemes of one document that are read
KeyPlace = Literal["header", "query", "cookie"]
_PLACES: Mapping[str, KeyPlace] = {"header": "header", "query": "query", "cookie": "cookie"}


class OAuthFlow(Struct, frozen=True, kw_only=True):
    """One flow of an `oauth2` scheme. URLs are as the document has them; empty without one."""

    authorization_url: str = ""
    token_url: str = ""


class SecurityScheme(Struct, frozen=True, kw_only=True):
    """One of the `securitySchemes`.

    `type` is as in the document: `apiKey`, `http`, `oauth2`, `openIdConnect`, or one that is not supported.

    Args:
        name: its name in the document.
        place: where an `apiKey` goes; `key_name` is its name there.
        http_scheme: `bearer`, `basic` or another one of an `http` scheme, in lower case.
        flows: the flows of `oauth2`, by the document's name, such as `authorizationCode`.
        metadata_url: the metadata of the issuer, of `openIdConnect`, or of `oauth2` from OpenAPI 3.2 on.
    """

    name: str
    type: str
    place: KeyPlace = "header"
    key_name: str = ""
    http_scheme: str = ""
    flows: Mapping[str, OAuthFlow] = field(default_factory=dict[str, OAuthFlow])
    metadata_url: str = ""

    def __str__(self) -> str:
        return f"{self.name!r} ({self.http_scheme or self.type})"


class SecurityNeeds(Struct, frozen=True, kw_only=True):
    """The schemes of a document, those of which an operation requires one, first, and the required scopes of each."""

    schemes: tuple[SecurityScheme, ...] = ()
    required: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    is_optional: bool = True
    """Whether no operation requires a scheme."""


def security_of(document: Document, operations: Iterable[JSON]) -> SecurityNeeds:
    """Return the requirements of some operations. Requirements of an operation replace the document's."""
    required: dict[str, dict[str, None]] = {}
    is_optional = True
    for operation in operations:
        alternatives = operation.get("security", document.root.get("security"))
        named = [each for each in alternatives if is_object(each)] if is_list(alternatives) else []
        is_optional &= not named or any(not each for each in named)
        for each in named:
            for name, scopes in each.items():
                texts = [scope for scope in scopes if isinstance(scope, str)] if is_list(scopes) else []
                required.setdefault(name, {}).update(dict.fromkeys(texts))
    schemes = _schemes_of(document)
    order = [*required, *(name for name in schemes if name not in required)]
    return SecurityNeeds(
        schemes=tuple(schemes[name] for name in order if name in schemes),
        required={name: tuple(scopes) for name, scopes in required.items()},
        is_optional=is_optional,
    )


def _schemes_of(document: Document) -> dict[str, SecurityScheme]:
    found: dict[str, SecurityScheme] = {}
    try:
        declared = document.follow({"$ref": "#/components/securitySchemes"}, "the schemes")
    except UnfitError:
        return found
    for name, value in list(declared.items())[:SECURITY_SCHEMES]:
        try:
            found[name] = _scheme(name, document.follow(value, "the scheme"))
        except UnfitError:
            continue
    return found


def _scheme(name: str, declared: JSON) -> SecurityScheme:
    flows = declared.get("flows")
    return SecurityScheme(
        name=name[:64],
        type=_text(declared.get("type"))[:32],
        place=_PLACES.get(_text(declared.get("in")), "header"),
        key_name=_text(declared.get("name")),
        http_scheme=_text(declared.get("scheme")).lower()[:32],
        flows={
            kind: OAuthFlow(
                authorization_url=_text(flow.get("authorizationUrl")), token_url=_text(flow.get("tokenUrl"))
            )
            for kind, flow in (flows.items() if is_object(flows) else ())
            if is_object(flow)
        },
        metadata_url=_text(declared.get("openIdConnectUrl", declared.get("oauth2MetadataUrl"))),
    )


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""
