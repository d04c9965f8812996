"""API auth: completes the `auth:` of an API with the security schemes of its OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import field

from pegboard.config.forms.source_auth_form import SourceAuthForm, plain
from pegboard.model.error import DefinitionError
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret
from pegboard.sources.openapi.security_schemes import SecurityNeeds, SecurityScheme

_METADATA_PATHS = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")


class CompletedAuth(CarriesCredentials, frozen=True, kw_only=True):
    """`auth:` without what only a document can explain, and what is sent besides.

    `is_from_document` means that the document named the URLs of the issuer.
    """

    form: SourceAuthForm
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"])
    query: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"])
    is_from_document: bool = False


class _Endpoints(NamedTuple):
    """The issuer of a scheme, or its endpoints; empty if the document has none."""

    issuer: str = ""
    authorization_url: str = ""
    token_url: str = ""


def needs_document(form: SourceAuthForm) -> bool:
    """Tell whether the document of an API may complete a section."""
    return form.key is not None or (form.mode == "user" and not (form.issuer or form.authorization_url))


def completed(form: SourceAuthForm, needs: SecurityNeeds) -> CompletedAuth:
    """Return a section completed by a document.

    Raises:
        DefinitionError: the document has no scheme that fits.
    """
    return _with_key(form, needs) if form.key is not None else _with_issuer(form, needs)


def _with_key(form: SourceAuthForm, needs: SecurityNeeds) -> CompletedAuth:
    """Return the form with the place of its API key."""
    scheme = _chosen(form, [each for each in needs.schemes if _takes_key(each)], needs)
    if scheme is None:
        known = ", ".join(map(str, needs.schemes)) or "none"
        raise DefinitionError(
            f"auth: the document does not say where `key` goes; its security schemes are: {known}. Write `bearer`, "
            "`basic` or `headers` instead"
        )
    key = Secret(plain(form.key or ""))
    headers: dict[str, str | Secret] = {}
    query: dict[str, str | Secret] = {}
    if scheme.type == "http":
        headers["Authorization"] = Secret(f"Bearer {key.reveal()}")
    elif scheme.place == "query":
        query[scheme.key_name] = key
    elif scheme.place == "cookie":
        headers["Cookie"] = Secret(f"{scheme.key_name}={key.reveal()}")
    else:
        headers[scheme.key_name] = key
    rest = form.model_copy(update={"key": None, "scheme": None})
    return CompletedAuth(form=rest, headers=headers, query=query)


def _with_issuer(form: SourceAuthForm, needs: SecurityNeeds) -> CompletedAuth:
    """Return the form with the endpoints of its issuer and its scopes."""
    scheme = _chosen(form, [each for each in needs.schemes if each.type in ("oauth2", "openIdConnect")], needs)
    if scheme is None:
        # The service itself may name its issuer (RFC 9728).
        return CompletedAuth(form=form)
    found = _endpoints(scheme)
    update: dict[str, object] = {"scheme": None}
    if not form.scopes:
        update["scopes"] = needs.required.get(scheme.name, ())
    if found.issuer:
        update["issuer"] = found.issuer
    elif form.client_id is not None and found.authorization_url and found.token_url:
        # Without metadata nobody can register a client, so that only a configured one can use these endpoints.
        update |= {"authorization_url": found.authorization_url, "token_url": found.token_url}
    is_named = bool({"issuer", "authorization_url"} & update.keys())
    if is_named and (form.client_secret is not None or form.private_key is not None):
        named = f"`issuer: {found.issuer}`" if found.issuer else f"`token_url: {found.token_url}`"
        raise DefinitionError(
            f"auth: only the document names who would get the secret of the client. If it is right, write {named} "
            f"{'' if found.issuer else f'and `authorization_url: {found.authorization_url}` '}here"
        )
    return CompletedAuth(form=form.model_copy(update=update), is_from_document=is_named)


def _chosen(form: SourceAuthForm, fitting: Sequence[SecurityScheme], needs: SecurityNeeds) -> SecurityScheme | None:
    """Return the named scheme, or the first that fits.

    Raises:
        DefinitionError: the named one does not exist, or does not fit.
    """
    if form.scheme is None:
        return next(iter(fitting), None)
    found = next((each for each in fitting if each.name == form.scheme), None)
    if found is None:
        known = ", ".join(map(str, needs.schemes)) or "none"
        raise DefinitionError(f"auth: no security scheme {form.scheme!r} fits `mode: {form.mode}`; there are: {known}")
    return found


def _takes_key(scheme: SecurityScheme) -> bool:
    is_bearer = (scheme.type, scheme.http_scheme) == ("http", "bearer")
    return is_bearer or (scheme.type == "apiKey" and bool(scheme.key_name))


def _endpoints(scheme: SecurityScheme) -> _Endpoints:
    for path in _METADATA_PATHS:
        before, found, after = scheme.metadata_url.partition(path)
        if found:
            return _Endpoints(issuer=before + after)
    flow = scheme.flows.get("authorizationCode")
    return _Endpoints() if flow is None else _Endpoints("", flow.authorization_url, flow.token_url)
