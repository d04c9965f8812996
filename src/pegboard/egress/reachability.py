"""Reachability: whether the server behind a URL accepts connections and reacts, without a request to a resource."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import urlsplit

import httpcore2

from pegboard.egress.connections import GuardedBackend, Resolve, system_resolve
from pegboard.egress.destinations import Destinations
from pegboard.egress.transport import shared_ssl_context


async def check_reachable(
    url: str, destinations: Destinations, *, timeout_s: float, resolve: Resolve = system_resolve
) -> None:
    """Connect to the server of a URL, wait for a sign of life, and close the connection.

    A stopped server still accepts connections, since its kernel does. The sign of life is the TLS handshake of an https
    server, and any reaction of an http server to `OPTIONS *`, the no-op of HTTP (RFC 9110, 9.3.7). No resource is
    requested, since even a GET may have effects on a service that we do not know.

    Raises:
        CallError: the destination is refused, or its name is unknown.
        OSError: no address accepts a connection, its certificate is not valid, or it stays silent.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        stream = await GuardedBackend(destinations, resolve).connect_tcp(host, port, timeout=timeout_s)
        try:
            if parts.scheme == "https":
                stream = await stream.start_tls(shared_ssl_context(), server_hostname=host, timeout=timeout_s)
            else:
                await _await_reaction(stream, parts.netloc.rpartition("@")[2], timeout_s)
        finally:
            await stream.aclose()
    except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        why = str(error) or type(error).__name__
        raise ConnectionError(f"{host}:{port} accepts no connection: {why}") from error


async def _await_reaction(stream: httpcore2.AsyncNetworkStream, host: str, timeout_s: float) -> None:
    """Send `OPTIONS *`, and wait until the server answers or hangs up.

    Raises:
        OSError: it does neither.
    """
    request = f"OPTIONS * HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("ascii", "replace")
    try:
        # A server that hangs up is alive.
        with suppress(httpcore2.NetworkError):
            await stream.write(request, timeout=timeout_s)
            await stream.read(1, timeout=timeout_s)
    except httpcore2.TimeoutException as error:
        raise ConnectionError(f"{host} accepts connections, but does not answer within {timeout_s:g} s") from error
