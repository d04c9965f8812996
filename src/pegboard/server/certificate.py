"""Certificate: the TLS certificate of the server, reloaded after a renewal, and its expiry."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pegboard.lazy import LazyModule

if TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = LazyModule("cryptography.x509")

CERTIFICATE_WARN_S = 7 * 86_400.0  # seconds before its expiry when a certificate counts as a fault


class ServerCertificate:
    """A certificate with its key. `context` serves it; `check` reloads the files after a change.

    Args:
        path: the certificate and its chain, as PEM.
        key: the private key; `None` if it is in the same file.
        wall_clock: seconds since 1970.

    Raises:
        OSError, ValueError: the files cannot be used.
    """

    def __init__(self, path: Path, key: Path | None, *, wall_clock: Callable[[], float] = time.time) -> None:
        self.path, self._key, self._wall_clock = path, key, wall_clock
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._loaded: tuple[int, ...] = ()
        self._ends = 0.0
        self._load()

    def _load(self) -> None:
        changed = tuple(file.stat().st_mtime_ns for file in (self.path, self._key) if file is not None)
        if changed == self._loaded:
            return
        # A half-written file fails here, and the old certificate stays in use.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.path, self._key)
        self.context.load_cert_chain(self.path, self._key)
        self._ends = end_of(self.path.read_bytes())  # raw: the operator's own file
        self._loaded = changed

    async def check(self) -> None:
        """Use a renewed certificate for new connections.

        Raises:
            OSError: it cannot be used, has expired or expires soon.
        """
        try:
            self._load()
        except (OSError, ValueError) as error:
            raise OSError(f"{str(self.path)!r} cannot be used; the old certificate stays in use: {error}") from error
        left_s = self._ends - self._wall_clock()
        if left_s < CERTIFICATE_WARN_S:
            word = "expired" if left_s <= 0 else "expires"
            raise OSError(f"{str(self.path)!r} {word} at {datetime.fromtimestamp(self._ends, UTC):%Y-%m-%d %H:%M} UTC")


def end_of(pem: bytes) -> float:
    """Return the expiry of the first certificate in a PEM text, in seconds since 1970.

    Raises:
        ValueError: it has no valid certificate.
    """
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
