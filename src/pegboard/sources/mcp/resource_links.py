"""Resource links: our addresses for resources that a server mentions in an answer.

A listed resource has one address for all permitted callers. A resource that is only mentioned, e.g. in a tool's
`resource_link`, gets an address for the caller of that answer: it has a signature that nobody else can make, so that
callers read only resources that the server listed or gave them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

import orjson

from pegboard.model.context import ToolContext
from pegboard.model.resource import ResourceSpec
from pegboard.sources.foreign_text import has_hidden
from pegboard.sources.mcp.foreign_metadata import MCP_URI_CHARS, uri_here

MCP_LINK_MARK_CHARS = 32  # characters of the signature: 128 bits

# Unescaped URI characters; `%` is escaped, so that decoding the address restores the exact URI.
_KEPT = ":/?#[]@!$&'()*+,;=-._~"


class Address(NamedTuple):
    """Our address of a URI; `fault` says why it cannot be read here, else empty."""

    uri: str
    fault: str = ""


AddressOf = Callable[[str], Address]


def of_tools_alone(server: str) -> AddressOf:
    """Return the addresses for a server of which only tools are used."""
    return lambda uri: Address(uri_here(server, uri), f"of {server!r} only the tools are here")


class ResourceLinks:
    """The addresses of one server's resources.

    Args:
        server: its name.
        key: returns the secret of the catalog; workers of one server share it.
        offers: returns the listed resources, with our addresses.
        reads: tells whether the server can read resources at all.
    """

    def __init__(
        self,
        server: str,
        *,
        key: Callable[[], bytes],
        offers: Callable[[], Sequence[ResourceSpec]],
        reads: Callable[[], bool],
    ) -> None:
        self._server, self._key, self._offers, self._reads = server, key, offers, reads

    def addresses(self, ctx: ToolContext) -> AddressOf:
        """Return the function that gives the address of each URI in an answer to this caller."""
        return lambda uri: self._address(uri, ctx)

    def _address(self, uri: str, ctx: ToolContext) -> Address:
        here = uri_here(self._server, uri)
        if uri.startswith("ui://") or self._is_listed(here):
            return Address(here)
        if not self._reads():
            return Address(here, f"the server {self._server!r} reads no resources")
        if len(uri) > MCP_URI_CHARS or has_hidden(uri):
            return Address(here, "its address is too long, or has hidden characters")
        return Address(f"pegboard://{self._server}/link/{self._mark(uri, ctx)}/{quote(uri, safe=_KEPT)}")

    def allow(self, uri: str, mark: str, ctx: ToolContext) -> bool:
        """Tell whether a URI was mentioned to this caller. A resource that is now listed has its own address."""
        is_given = hmac.compare_digest(mark.encode(), self._mark(uri, ctx).encode())
        return is_given and not self._is_listed(uri_here(self._server, uri))

    def _is_listed(self, here: str) -> bool:
        return any(offer.match(here) is not None for offer in self._offers())

    def _mark(self, uri: str, ctx: ToolContext) -> str:
        bound_to = orjson.dumps(["resource link", self._server, uri, ctx.space_id, ctx.user_id])
        return hmac.new(self._key(), bound_to, sha256).hexdigest()[:MCP_LINK_MARK_CHARS]
