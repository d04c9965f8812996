"""Redirects: what the next request is, and what it must not carry along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from pegboard.egress.failures import EgressError
from pegboard.egress.urls import join_url

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})

# Everything else may be a credential, whatever its name; so only these cross to another origin.
_HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_OF_THE_BODY = frozenset({"content-type", "content-encoding", "content-language", "content-location"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Hop:
    """One request of a chain of redirects. Header names are lower case."""

    method: str
    url: httpx2.URL
    headers: Mapping[str, str]
    body: bytes | None = None


def next_hop(hop: Hop, *, status: int, location: str) -> Hop:
    """Return the request that a redirect asks for, with the method rewritten as browsers do.

    Raises:
        EgressError: blocked_destination when it leads from https to http or to another scheme.
    """
    url = join_url(hop.url, location)
    if hop.url.scheme == "https" and url.scheme == "http":
        raise EgressError("blocked_destination", f"A redirect from https to http is refused (to {url.host!r}).")
    method, headers, body = hop.method, dict(hop.headers), hop.body
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers = {name: value for name, value in headers.items() if name not in _OF_THE_BODY}
    if (url.scheme, url.host, _port(url)) != (hop.url.scheme, hop.url.host, _port(hop.url)):
        headers = {name: value for name, value in headers.items() if name in _HARMLESS}
    return Hop(method=method, url=url, headers=headers, body=body)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
