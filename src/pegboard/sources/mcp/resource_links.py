"""Resource links: under which address a resource that a server named in an answer is read here, and by whom.

What a server lists has its address for all who may have it. What it only names in an answer, as a tool's
`resource_link`, has one for the caller who got the answer: it carries a mark that no one else can make, so that nobody
reads of a server what it neither lists nor gave them.
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

MCP_LINK_MARK_CHARS = 32  # of what shows that a resource was named to its reader: 128 bits

# What stands in a URI as it is; `%` does not, so that reading the address gives the URI again to the letter.
_KEPT = ":/?#[]@!$&'()*+,;=-._~"


class Address(NamedTuple):
    """A URI as it is called here; `fault` says why it cannot be read here, empty where it can."""

    uri: str
    fault: str = ""


AddressOf = Callable[[str], Address]


def of_tools_alone(server: str) -> AddressOf:
    """Return the addresses of a server whose tools are taken, and nothing else."""
    return lambda uri: Address(uri_here(server, uri), f"of {server!r} only the tools are here")


class ResourceLinks:
    """The addresses of one server's resources.

    Args:
        server: its name.
        key: gives the secret of the catalog that the server is part of; workers of one server have the same.
        offers: gives what the server lists, under its addresses here.
        reads: tells whether the server reads resources at all.
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
        """Return what gives the address of each URI in an answer to this caller."""
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
        """Tell whether a URI was named to this caller. What is listed by now is read under its own address."""
        is_given = hmac.compare_digest(mark.encode(), self._mark(uri, ctx).encode())
        return is_given and not self._is_listed(uri_here(self._server, uri))

    def _is_listed(self, here: str) -> bool:
        return any(offer.match(here) is not None for offer in self._offers())

    def _mark(self, uri: str, ctx: ToolContext) -> str:
        bound_to = orjson.dumps(["resource link", self._server, uri, ctx.space_id, ctx.user_id])
        return hmac.new(self._key(), bound_to, sha256).hexdigest()[:MCP_LINK_MARK_CHARS]
