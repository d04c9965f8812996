"""Client registration: finds Pegboard's client id at an issuer: configured, a metadata document, or registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from pegboard.connections.auth_settings import AuthSettings, TokenAuthMethod
from pegboard.connections.connection_records import ConnectFailedError
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Issuer, OAuthClient
from pegboard.egress.responses import Response
from pegboard.lazy import LazyModule
from pegboard.model.json_types import JSON
from pegboard.model.secret import Secret

if TYPE_CHECKING:
    from pegboard.connections import oauth_protocol as oauth
else:
    oauth = LazyModule("pegboard.connections.oauth_protocol")

CLIENT_DOCUMENT_PATH = "/.well-known/pegboard-client.json"
_NAME = "Pegboard"
_METHODS = frozenset(get_args(TokenAuthMethod))


def client_document(url: str, redirect_uri: str) -> JSON:
    """Return the metadata document whose URL is Pegboard's client id (CIMD)."""
    return {
        "client_id": url,
        "client_name": _NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


def configured_client(settings: AuthSettings, issuer: Issuer) -> OAuthClient | None:
    """Return the client that the operator registered; `None` if they named none."""
    if not settings.client_id:
        return None
    return OAuthClient(
        client_id=settings.client_id,
        secret=settings.client_secret,
        private_key=settings.private_key,
        private_key_id=settings.private_key_id,
        method=settings.token_auth or _preferred(settings, issuer),
    )


def _preferred(settings: AuthSettings, issuer: Issuer) -> TokenAuthMethod:
    if settings.private_key is not None:
        return "private_key_jwt"
    if settings.client_secret is None:
        return "none"
    offered = issuer.token_auth_methods
    is_only_in_body = "client_secret_post" in offered and "client_secret_basic" not in offered
    # RFC 8414: without a list, the method is `client_secret_basic`.
    return "client_secret_post" if is_only_in_body else "client_secret_basic"


def document_client(issuer: Issuer, document_url: str | None) -> OAuthClient | None:
    """Return the client whose id is the URL of Pegboard's document; `None` if the issuer or the URL rules it out."""
    if not (issuer.takes_client_documents and oauth.is_valid_client_metadata_url(document_url)):
        return None
    return OAuthClient(client_id=document_url or "")


async def register(
    requests: IssuerRequests, issuer: Issuer, *, redirect_uri: str, scopes: tuple[str, ...], is_web: bool
) -> tuple[OAuthClient, float | None]:
    """Register Pegboard as a client (RFC 7591). Return it, and when its secret expires in seconds since 1970.

    Raises:
        ConnectFailedError: the issuer registers no clients, or refuses.
        EgressError: it cannot be reached.
    """
    if not issuer.registration_url:
        text = (
            f"The issuer {issuer.issuer!r} registers no clients by itself. The operator registers one there, with the "
            f"redirect URI {redirect_uri!r}, and writes its `client_id` under `auth` of the source."
        )
        raise ConnectFailedError("not_supported", text)
    methods = issuer.token_auth_methods
    method: TokenAuthMethod = "none"
    if methods and "none" not in methods:
        # Servers on the Python SDK revoke nothing for a client that is not in the form, whatever the header says.
        method = "client_secret_post" if "client_secret_post" in methods else "client_secret_basic"
    metadata = oauth.OAuthClientMetadata(
        redirect_uris=[oauth.AnyUrl(redirect_uri)],
        client_name=_NAME,
        token_endpoint_auth_method=method,
        scope=" ".join(scopes) or None,
        application_type="web" if is_web else "native",
    )
    body = metadata.model_dump_json(by_alias=True, exclude_none=True).encode()
    response = await requests.post_json(issuer.registration_url, body)
    registered = await _registered(response, issuer)
    named = registered.token_endpoint_auth_method or ("none" if not registered.client_secret else "client_secret_basic")
    if named not in _METHODS or named == "private_key_jwt":
        text = f"The issuer {issuer.issuer!r} wants the client to authenticate with {named[:60]!r}, which it cannot."
        raise ConnectFailedError("not_supported", text)
    client = OAuthClient(
        client_id=registered.client_id,
        secret=Secret(registered.client_secret) if registered.client_secret else None,
        method=cast("TokenAuthMethod", named) if registered.client_secret else "none",
    )
    return client, float(registered.client_secret_expires_at) if registered.client_secret_expires_at else None


async def _registered(response: Response, issuer: Issuer) -> oauth.OAuthClientInformationFull:
    if response.status_code not in (200, 201):
        text = f"The issuer {issuer.issuer!r} did not register Pegboard as a client: it answered "
        failure = "issuer_unavailable" if response.status_code >= 500 else "issuer_refused"
        raise ConnectFailedError(failure, f"{text}{response.status_code}. Configure a `client_id` for the source.")
    try:
        return await oauth.handle_registration_response(
            oauth.response_of(response.status_code, response.headers, response.body)
        )
    except oauth.OAuthRegistrationError:
        text = f"The issuer {issuer.issuer!r} answered the registration of a client with something else."
        raise ConnectFailedError("issuer_refused", text) from None
