"""Source auth: create the store of connections of a config, and the credentials of its sources."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import field

from pegboard.config.build_context import BuildContext
from pegboard.config.config import Config
from pegboard.config.forms.connections_form import CONNECTIONS_STORE
from pegboard.config.forms.source_auth_form import LoginIssuerForm, SourceAuthForm, plain
from pegboard.config.yaml.problems import Report
from pegboard.config.yaml.tree import At
from pegboard.connections.auth_settings import AuthMode, AuthSettings
from pegboard.extras import needs_package
from pegboard.lazy import LazyModule
from pegboard.model.error import DefinitionError
from pegboard.model.record import CarriesCredentials
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.connections import connections as stored_connections
    from pegboard.connections import exchanged_credentials, upstream_credentials
    from pegboard.connections.connections import Connections
    from pegboard.connections.upstream_credentials import PersonCredentials, ServiceCredentials
else:
    exchanged_credentials = LazyModule("pegboard.connections.exchanged_credentials")
    stored_connections = LazyModule("pegboard.connections.connections")
    upstream_credentials = LazyModule("pegboard.connections.upstream_credentials")


class SourceAuth(CarriesCredentials, frozen=True, kw_only=True):
    """The authentication of a source: fixed headers, its own token, or the token of the calling person."""

    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"])
    service: ServiceCredentials | None = None
    personal: PersonCredentials | None = None

    @property
    def credentials(self) -> ServiceCredentials | PersonCredentials | None:
        """The provider of the tokens, of the source or of persons."""
        return self.service or self.personal


def connections_of(config: Config, report: Report) -> Connections | None:
    """Return the connections of a config; `None` if it has none, or after reporting a problem."""
    folder = config.path.absolute().parent
    if config.connections is None:
        if "connections" not in config.refused.sections:
            return None
        # Left out because its key is not set. Commands that read need only what it is for.
        unused = Secret(secrets.token_hex(32))
        return stored_connections.Connections.open(CONNECTIONS_STORE, keys=[unused], folder=folder)
    declared = config.connections
    form, at = declared.value, declared.at
    keys = [Secret(plain(key)) for key in (form.key, form.older_key) if key is not None]
    try:
        return stored_connections.Connections.open(form.store, keys=keys, public_url=form.public_url, folder=folder)
    except ImportError as error:
        report.add((at / "store").problem(needs_package(error.name, "postgres")))
    except DefinitionError as error:
        key, colon, text = str(error).partition(": ")
        report.add((at / "key").problem(text) if colon and key == "key" else (at / "store").problem(str(error)))
    return None


class Upstream(CarriesCredentials, frozen=True, kw_only=True):
    """The service behind a source, as far as its `auth:` depends on it.

    Args:
        source: the name of the source.
        url: the URL of the service, which receives the tokens; empty if only its document names it.
        headers: the other headers of the source.
        names_resource: whether a token is requested for `url` if nothing else says what it is for.
        is_from_document: whether the description of an API has filled in the URLs of the issuer.
    """

    source: str
    url: str
    headers: Mapping[str, str | Secret] = field(default_factory=dict[str, "str | Secret"])
    names_resource: bool = False
    is_from_document: bool = False


def source_auth(form: SourceAuthForm | None, at: At, build: BuildContext, upstream: Upstream) -> SourceAuth | None:
    """Return the authentication declared by a source's `auth:`; `None` after reporting a problem.

    Args:
        form: the section.
        at: its place.
        build: the catalog being built.
        upstream: the service behind the source.
    """
    headers = upstream.headers
    if form is None or form.mode == "none":
        return SourceAuth(headers=headers)
    for key, value in (("key", form.key), ("scheme", form.scheme)):
        if value is not None:
            build.report.add((at / key).problem("goes with `openapi:`, whose document says where it belongs"))
            return None
    if form.mode == "static":
        own = form.static_headers()
        twice = {name.lower() for name in own} & {name.lower() for name in headers}
        if twice:
            build.report.add(at.problem(f"the header {min(twice)!r} is set here and in `headers`. Remove one"))
            return None
        return SourceAuth(headers={**headers, **own})
    if any(name.lower() == "authorization" for name in headers):
        build.report.add(at.problem(f"`mode: {form.mode}` sends an Authorization, and `headers` has one. Remove it"))
        return None
    if not upstream.url:
        text = "the tokens would be sent to a server that only the document names. Write `base_url`"
        build.report.add((at / "mode").problem(text))
        return None
    settings = _settings(form, form.mode, at, build, upstream)
    if settings is None:
        return None
    if secrets_of_client := tuple(settings.secrets()):
        build.catalog.add_secrets(*secrets_of_client)
    if settings.mode == "client_credentials":
        return SourceAuth(headers=headers, service=upstream_credentials.ServiceCredentials(settings))
    if settings.is_exchanged:
        build.exchanges_tokens = True
        return SourceAuth(headers=headers, personal=exchanged_credentials.ExchangedCredentials(settings))
    connections = stores_connections(at, build)
    if connections is None:
        return None
    return SourceAuth(headers=headers, personal=upstream_credentials.PersonalCredentials(connections, settings))


def _settings(
    form: SourceAuthForm, mode: AuthMode, at: At, build: BuildContext, upstream: Upstream
) -> AuthSettings | None:
    """Return the settings of a section with tokens; `None` after reporting a problem."""
    place = at / "login"
    try:
        login = None if form.login is None else _login_settings(form.login, upstream.source)
        place = at
        return AuthSettings(
            source=upstream.source,
            mode=mode,
            server_url=upstream.url,
            authorization_url=form.authorization_url or "",
            revocation_url=form.revocation_url or "",
            resource=form.resource or "",
            scopes=tuple(form.scopes),
            hosts=tuple(form.hosts),
            names_resource=upstream.names_resource,
            sends_resource=form.sends_resource,
            authorization_params=tuple(form.authorization_params.items()),
            audience=form.audience or "",
            subject_token_type=form.subject_token_type,
            sends_actor=form.sends_actor,
            grant=form.grant,
            login=login,
            is_from_document=upstream.is_from_document,
            **_client_of(form),
        )
    except DefinitionError as error:
        key, _, text = str(error).partition(": ")
        build.report.add((place / key).problem(text))
        return None


def stores_connections(at: At, build: BuildContext) -> Connections | None:
    """Return the connections of people, for a source that they connect to; `None` after reporting that there are none.

    `at` is the place of its `auth:`.
    """
    if build.catalog.connections is None and build.config.connections is None:
        text = (
            "each person's token is stored, and there is no `connections:`. Add `connections: {key: "
            '"${CONNECTIONS_KEY}"}` to the main file, with a secret of 32 bytes or more'
        )
        build.report.add((at / "mode").problem(text))
    return build.catalog.connections


def _login_settings(form: LoginIssuerForm, source: str) -> AuthSettings:
    return AuthSettings(source=source, mode="exchange", server_url=form.issuer, **_client_of(form))


def _client_of(form: SourceAuthForm | LoginIssuerForm) -> dict[str, Any]:
    """Return the fields of settings that name an issuer and the client that is registered there."""
    return {
        "issuer": form.issuer or "",
        "token_url": form.token_url or "",
        "client_id": plain(form.client_id or ""),
        "client_secret": None if form.client_secret is None else Secret(plain(form.client_secret)),
        "private_key": None if form.private_key is None else Secret(plain(form.private_key)),
        "private_key_id": form.private_key_id or "",
        "token_auth": form.token_auth,
    }
