"""Trusted proxies: reads the origin of a request from the headers of a trusted proxy."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from pegboard.server.host_guard import FORWARDED_HOST

# An address with or without a port, as proxies write it: 10.0.0.5, 10.0.0.5:80, ::1, [::1], [::1]:80.
_ADDRESS = re.compile(
    r"\[(?P<v6>[^\[\]]+)\](?::(?P<v6_port>\d{1,5}))?|(?P<v4>[^:\[\]]+):(?P<v4_port>\d{1,5})", re.ASCII
)
_UNIX = "unix"


class TrustedProxies:
    """An ASGI app that takes the client, scheme and host of a request from the headers of a trusted proxy.

    The same headers from other clients are ignored. A client that connects through a socket file is a proxy on this
    machine, and is trusted.

    Args:
        trusted: addresses and networks of proxies.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app, self._networks = app, [ipaddress.ip_network(each) for each in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope.get("client") is None:
                scope["client"] = (_UNIX, 0)
                self._take_headers(scope)
            elif self._is_trusted(scope["client"][0]):
                self._take_headers(scope)
        await self._app(scope, receive, send)

    def _is_trusted(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def _take_headers(self, scope: Scope) -> None:
        schemes, clients, hosts = (
            [value.strip(b" \t") for name, value in scope["headers"] if name == wanted]
            for wanted in (b"x-forwarded-proto", b"x-forwarded-for", b"x-forwarded-host")
        )
        if schemes and schemes[-1] in (b"http", b"https"):
            scope["scheme"] = schemes[-1].decode()
        if clients:
            client = self._client_of(b",".join(clients).decode("latin-1").split(","))
            if client[0]:
                scope["client"] = client
        # With several proxies only the first knows the host, and nobody can tell which of them wrote which.
        if len(hosts) == 1 and b"," not in hosts[0]:
            scope[FORWARDED_HOST] = hosts[0]

    def _client_of(self, addresses: Sequence[str]) -> tuple[str, int]:
        """Return the last address that is not a trusted proxy's; the client may have written those before it."""
        parsed = [_parsed(address.strip()) for address in addresses]
        return next((each for each in reversed(parsed) if not self._is_trusted(each[0])), parsed[0])


def _parsed(address: str) -> tuple[str, int]:
    """Return host and port; what is not an address is left as it is, with the port 0."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return address, 0
    return match["v6"] or match["v4"], int(match["v6_port"] or match["v4_port"] or 0)
