"""Reachability: whether the server behind a URL accepts connections, without sending it a request."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpcore2

from pegboard.egress.connections import GuardedBackend, Resolve, system_resolve
from pegboard.egress.destinations import Destinations
from pegboard.egress.transport import shared_ssl_context


async def check_reachable(
    url: str, destinations: Destinations, *, timeout_s: float, resolve: Resolve = system_resolve
) -> None:
    """Connect to the server of a URL, with TLS for https, and close the connection.

    No request is sent, since even a GET may have effects on a service that we do not know.

    Raises:
        CallError: the destination is refused, or its name is unknown.
        OSError: no address accepts a connection, or its certificate is not valid.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        stream = await GuardedBackend(destinations, resolve).connect_tcp(host, port, timeout=timeout_s)
        try:
            if parts.scheme == "https":
                stream = await stream.start_tls(shared_ssl_context(), server_hostname=host, timeout=timeout_s)
        finally:
            await stream.aclose()
    except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
        why = str(error) or type(error).__name__
        raise ConnectionError(f"{host}:{port} accepts no connection: {why}") from error
