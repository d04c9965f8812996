"""Issuer discovery: from the URL of a service, or its refusal, to the issuer of its tokens.

401 → protected resource metadata (RFC 9728) → issuer metadata (RFC 8414 or OpenID) → `resource` (RFC 8707). Each step
checks that the next document is about the same service or issuer, so that none can put another one in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pegboard.connections.auth_settings import AuthSettings, place_of
from pegboard.connections.connection_records import NO_CHALLENGE, Challenge, ConnectFailedError
from pegboard.connections.issuer_requests import IssuerRequests
from pegboard.connections.issuers import Discovered, Issuer
from pegboard.egress.failures import EgressError
from pegboard.egress.responses import Response
from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    from pegboard.connections import oauth_protocol as oauth
else:
    oauth = LazyModule("pegboard.connections.oauth_protocol")

_MOST_SCOPES = 200
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_GRANTS = ["authorization_code", "refresh_token"]


def challenge_of(status: int, headers: Mapping[str, str]) -> Challenge:
    """Return the challenge in a service's refusal of a request (401 or 403)."""
    if "www-authenticate" not in {name.lower() for name in headers}:
        return NO_CHALLENGE
    response = oauth.response_of(status, headers)
    return Challenge(
        resource_metadata=oauth.extract_resource_metadata_from_www_auth(response) or "",
        scopes=scopes_of(oauth.extract_scope_from_www_auth(response)),
        error=oauth.extract_field_from_www_auth(response, "error") or "",
    )


def scopes_of(text: str | None) -> tuple[str, ...]:
    """Return the scopes of a text that separates them by spaces."""
    return tuple(dict.fromkeys((text or "").split()))[:_MOST_SCOPES]


def _tell_nobody(_detail: str) -> None:
    """Do nothing: nobody follows the discovery."""


async def discover(
    settings: AuthSettings,
    requests: IssuerRequests,
    *,
    challenge: Challenge = NO_CHALLENGE,
    held: Sequence[str] = (),
    tell: Callable[[str], object] = _tell_nobody,
) -> Discovered:
    """Return the issuer of a service's tokens, the resource, and the scopes to request.

    Args:
        settings: the source; what it says replaces what the service says.
        requests: sends requests.
        challenge: the service's refusal, if there was one.
        held: the scopes that the person's token has already; a step-up keeps them.
        tell: called with a sentence once the service's metadata are known, before the issuer is asked.

    Raises:
        ConnectFailedError: the documents are missing, invalid, or about another service or issuer.
        EgressError: a server cannot be reached.
    """
    if settings.token_url:
        tell("not needed: the config names the endpoints")
        return _configured(settings, challenge, held)
    asked = challenge
    if not challenge.resource_metadata and settings.mode == "user":
        asked = await _challenge_of(settings, requests, challenge)
    resource = await _resource_metadata(settings, requests, asked)
    offered = [] if resource is None else [str(server) for server in resource.authorization_servers]
    issuer_url = _chosen(settings, offered)
    named = ", ".join(offered) or "no issuer"
    tell("the service has none" if resource is None else f"of {resource.resource}, which names {named}")
    issuer, supported = await issuer_metadata(settings, requests, issuer_url)
    return Discovered(
        issuer=issuer,
        resource=_resource(settings, resource),
        scopes=_scopes(settings, asked, held, resource, supported),
    )


async def named_issuer(settings: AuthSettings, requests: IssuerRequests) -> Issuer:
    """Return the issuer that the operator named, without asking the service.

    Raises:
        ConnectFailedError, EgressError: as for `discover`.
    """
    if settings.token_url:
        return named_endpoints(settings)
    issuer, _ = await issuer_metadata(settings, requests, settings.issuer)
    return issuer


def named_endpoints(settings: AuthSettings) -> Issuer:
    """Return an issuer whose endpoints the operator named."""
    return Issuer(
        # Answers name the server of the page at which people agree (RFC 9207), if they name any.
        issuer=settings.issuer or oauth.origin_of_server(settings.authorization_url or settings.token_url),
        token_url=settings.token_url,
        authorization_url=settings.authorization_url,
        revocation_url=settings.revocation_url,
    )


def _configured(settings: AuthSettings, challenge: Challenge, held: Sequence[str]) -> Discovered:
    """Return the same as `discover` for named endpoints; nothing is fetched."""
    wanted = (*held, *settings.scopes, *challenge.scopes) if challenge.wants_more else settings.scopes
    return Discovered(
        issuer=named_endpoints(settings),
        resource=_resource(settings, None),
        scopes=tuple(dict.fromkeys(wanted or challenge.scopes)),
    )


async def _challenge_of(settings: AuthSettings, requests: IssuerRequests, known: Challenge) -> Challenge:
    """Ask the service without a credential, since its refusal may name metadata that are nowhere else."""
    try:
        response = await requests.get(settings.server_url, headers={"accept": "application/json, text/event-stream"})
        if settings.names_resource and response.status_code not in (401, 403):
            # An MCP server may refuse the method before it asks for a credential. A ping changes nothing.
            response = await requests.post_json(settings.server_url, _PING)
    except EgressError:
        return known  # its metadata may be on another host
    refused = challenge_of(response.status_code, response.headers)
    # What the call asked for goes before what any request is asked for.
    return Challenge(
        resource_metadata=refused.resource_metadata, scopes=known.scopes or refused.scopes, error=known.error
    )


async def _tried(requests: IssuerRequests, url: str, failed: str) -> tuple[Response | None, str]:
    """Return the answer to a request for metadata, if there is one, and the last failure so far."""
    try:
        response = await requests.get(url)
    except EgressError as error:
        return None, error.error.message
    if response.status_code >= 500 or response.status_code == 429:
        failed = f"{url!r} answered {response.status_code}."
    return response, failed


async def _resource_metadata(
    settings: AuthSettings, requests: IssuerRequests, challenge: Challenge
) -> oauth.ProtectedResourceMetadata | None:
    """Return the metadata of the service; `None` if it has none, as before the revision 2025-06-18."""
    urls = oauth.build_protected_resource_metadata_discovery_urls(
        challenge.resource_metadata or None, settings.server_url
    )
    failed = ""
    for place in urls:
        response, failed = await _tried(requests, place, failed)
        metadata = None if response is None else await oauth.handle_protected_resource_response(_read(response))
        if metadata is None:
            continue
        resource, wanted = str(metadata.resource), oauth.resource_url_from_server_url(settings.server_url)
        if resource != settings.resource and not oauth.check_resource_allowed(wanted, resource):
            text = (
                f"The metadata of {settings.server_url!r} are about another service, {resource[:200]!r}: a token for "
                "that one would be sent here. Nothing was connected. Correct the URL of the source, or name the "
                "resource with `resource`."
            )
            raise ConnectFailedError("issuer_changed", text)
        return metadata
    if failed and not settings.issuer:
        # An outage says nothing about whether there are metadata, and must not lead to an issuer of former times.
        text = f"The service did not tell who issues its tokens: {failed} Try again later."
        raise ConnectFailedError("issuer_unavailable", text)
    return None


def _chosen(settings: AuthSettings, offered: Sequence[str]) -> str:
    """Return the issuer: the operator's, which the service must not deny; else the first that the service names."""
    if not settings.issuer:
        return offered[0] if offered else ""
    if offered and settings.issuer not in offered:
        named = ", ".join(repr(each[:200]) for each in offered[:3])
        text = (
            f"The service takes tokens of {named}, and the issuer of {settings.source!r} is {settings.issuer!r}. "
            "Nothing was connected. Correct `issuer`, to the last character."
        )
        raise ConnectFailedError("issuer_changed", text)
    return settings.issuer


async def issuer_metadata(
    settings: AuthSettings, requests: IssuerRequests, url: str
) -> tuple[Issuer, oauth.OAuthMetadata | None]:
    """Return the issuer with this URL; without one that of former times, the service's own host.

    Raises:
        ConnectFailedError: its metadata are missing, invalid, or belong to another issuer.
        EgressError: it cannot be reached.
    """
    expected = url or oauth.origin_of_server(settings.server_url)
    failed = ""
    urls = oauth.build_oauth_authorization_server_metadata_discovery_urls(url or None, settings.server_url)
    for place in urls:
        response, failed = await _tried(requests, place, failed)
        if response is None:
            continue
        goes_on, metadata = await oauth.handle_auth_metadata_response(_read(response))
        if metadata is not None:
            return _checked(settings, metadata, expected, is_former=not url), metadata
        if not goes_on:
            break
    if failed or url:
        text = f"The issuer {expected!r} did not send its metadata. {failed}".rstrip()
        raise ConnectFailedError("issuer_unavailable", f"{text} Try again later.")
    # Revision 2025-03-26: a server without metadata has its endpoints at these paths.
    former = Issuer(
        issuer=expected,
        token_url=f"{expected}/token",
        authorization_url=f"{expected}/authorize",
        registration_url=f"{expected}/register",
    )
    return former, None


def _checked(settings: AuthSettings, metadata: oauth.OAuthMetadata, expected: str, *, is_former: bool) -> Issuer:
    named = str(metadata.issuer)
    if named != expected and not (is_former and oauth.issuers_match(named, expected)):
        text = (
            f"The metadata of the issuer {expected[:200]!r} are those of {named[:200]!r}. Nothing was connected: "
            "somebody may have put another issuer in its place."
        )
        raise ConnectFailedError("issuer_changed", text)
    _check_pkce(settings, named, metadata.code_challenge_methods_supported)
    return Issuer(
        issuer=named,
        token_url=str(metadata.token_endpoint),
        authorization_url=str(metadata.authorization_endpoint),
        revocation_url=str(metadata.revocation_endpoint or ""),
        registration_url=str(metadata.registration_endpoint or ""),
        token_auth_methods=tuple(metadata.token_endpoint_auth_methods_supported or ()),
        sends_iss=metadata.authorization_response_iss_parameter_supported is True,
        takes_client_documents=metadata.client_id_metadata_document_supported is True,
    )


def check_login_page(settings: AuthSettings, found: Issuer, known: Iterable[Issuer]) -> None:
    """Refuse an issuer that sends people to the login page of a known one, and takes their codes at another host.

    It could then use the codes itself: most issuers do not say in their answer who answers (RFC 9207).

    Raises:
        ConnectFailedError: `issuer_changed`. An issuer that the operator named is not refused.

    Source: RFC 9700, 4.4, mix-up attacks.
    """
    if settings.issuer or settings.token_url or not found.authorization_url:
        return
    page, tokens = place_of(found.authorization_url), place_of(found.token_url)
    for other in known:
        # The metadata of an issuer come from its own address, so it may move its endpoints.
        if other.issuer == found.issuer or not other.authorization_url or place_of(other.authorization_url) != page:
            continue
        if place_of(other.token_url) != tokens:
            text = (
                f"The issuer {found.issuer[:200]!r} sends people to the login page of {other.issuer[:200]!r}, and "
                f"would receive the answers at {tokens[:200]!r}. It could then use your account at {page[:200]!r}, so "
                f"nothing was connected. If the two belong together, the operator must set `issuer` for "
                f"{settings.source!r}."
            )
            raise ConnectFailedError("issuer_changed", text)


def _check_pkce(settings: AuthSettings, issuer: str, methods: Sequence[str] | None) -> None:
    """Refuse an issuer with which a stolen code could be used.

    Some issuers support PKCE and do not list it, such as Microsoft Entra. Then a code is of no use without the secret
    of a client that the operator registered at this very issuer.
    """
    if settings.mode != "user" or "S256" in (methods or ()):
        return
    if methods is None and settings.issuer and settings.has_secret and not settings.is_from_document:
        return
    text = f"The issuer {issuer[:200]!r} does not offer PKCE with S256, and without it a login code could be stolen."
    if methods is None:
        text = (
            f"The metadata of the issuer {issuer[:200]!r} does not list PKCE with S256, and without it a login code "
            "could be stolen. If the issuer supports PKCE, the operator must set `issuer`, `client_id`, and "
            f"`client_secret` or `private_key` for {settings.source!r}."
        )
    raise ConnectFailedError("not_supported", text)


def _resource(settings: AuthSettings, metadata: oauth.ProtectedResourceMetadata | None) -> str:
    if settings.resource or not settings.sends_resource:
        return settings.resource
    if metadata is not None:
        return str(metadata.resource)
    return oauth.resource_url_from_server_url(settings.server_url) if settings.names_resource else ""


def _scopes(
    settings: AuthSettings,
    challenge: Challenge,
    held: Sequence[str],
    resource: oauth.ProtectedResourceMetadata | None,
    issuer: oauth.OAuthMetadata | None,
) -> tuple[str, ...]:
    if settings.scopes:
        wanted: tuple[str, ...] = settings.scopes
    else:
        asked = " ".join(challenge.scopes) or None
        wanted = scopes_of(oauth.get_client_metadata_scopes(asked, resource, issuer, _GRANTS))
    if challenge.wants_more:
        wanted = (*held, *wanted, *challenge.scopes)
    return tuple(dict.fromkeys(wanted))[:_MOST_SCOPES]


def _read(response: Response) -> oauth.httpx2.Response:
    return oauth.response_of(response.status_code, response.headers, response.body)
