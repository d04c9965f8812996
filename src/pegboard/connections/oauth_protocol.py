"""OAuth protocol: the helpers of the MCP SDK that read and write what OAuth sends. None of them sends anything.

The only module of `connections` that imports the SDK. Its provider, `OAuthClientProvider`, cannot serve a gateway: a
flow lives in one coroutine, and its lock makes all calls of a source run one after another (see decision 0158).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx2  # noqa: TID251 - the SDK's helpers read its responses; requests go out through egress
from mcp.client.auth import OAuthRegistrationError
from mcp.client.auth.oauth2 import PKCEParameters
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    is_valid_client_metadata_url,
    issuers_match,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl

__all__ = [
    "AnyUrl",
    "OAuthClientInformationFull",
    "OAuthClientMetadata",
    "OAuthMetadata",
    "OAuthRegistrationError",
    "PKCEParameters",
    "ProtectedResourceMetadata",
    "build_oauth_authorization_server_metadata_discovery_urls",
    "build_protected_resource_metadata_discovery_urls",
    "check_resource_allowed",
    "extract_field_from_www_auth",
    "extract_resource_metadata_from_www_auth",
    "extract_scope_from_www_auth",
    "get_client_metadata_scopes",
    "handle_auth_metadata_response",
    "handle_protected_resource_response",
    "handle_registration_response",
    "is_valid_client_metadata_url",
    "issuers_match",
    "origin_of_server",
    "resource_url_from_server_url",
    "response_of",
]


def response_of(status: int, headers: Mapping[str, str], body: bytes = b"") -> httpx2.Response:
    """Return a response of ours in the form that the SDK's helpers read."""
    kept = {name: value for name, value in headers.items() if name.lower() in ("content-type", "www-authenticate")}
    return httpx2.Response(status, headers=kept, content=body)


def origin_of_server(server_url: str) -> str:
    """Return `scheme://host[:port]` of a server: the issuer of a server without metadata (revision 2025-03-26)."""
    parts = urlsplit(server_url)
    return f"{parts.scheme}://{parts.netloc.lower()}"
