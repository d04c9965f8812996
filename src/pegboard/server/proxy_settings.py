"""Proxy settings: the proxies, path and certificate in front of a server."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class ProxySettings(Struct, frozen=True, kw_only=True):
    """The proxies whose forwarding headers are trusted, the path prefix, and the certificate.

    `trusted` are addresses and networks. A peer on a Unix socket is a local proxy, and is trusted.
    """

    trusted: tuple[str, ...] = ()
    root_path: str = ""
    certificate: Path | None = None
    key: Path | None = None


NO_PROXY = ProxySettings()
