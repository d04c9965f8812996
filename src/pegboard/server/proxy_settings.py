"""Proxy settings: what stands before a server."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class ProxySettings(Struct, frozen=True, kw_only=True):
    """What stands before a server: proxies that are believed where a request comes from, a path, a certificate.

    `trusted` are addresses and networks. Whoever connects by a file is a proxy of this machine, and is believed.
    """

    trusted: tuple[str, ...] = ()
    root_path: str = ""
    certificate: Path | None = None
    key: Path | None = None


NO_PROXY = ProxySettings()
