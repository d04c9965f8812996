"""Certificate: the TLS certificate of the server, read again when it is renewed, and the time when it ends."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

CERTIFICATE_WARN_S = 7 * 86_400.0  # seconds before its expiry when a certificate counts as a fault

# `Validity` of X.509: two times in a sequence, each UTCTime or GeneralizedTime (RFC 5280, 4.1.2.5).
_TIME = rb"(?:\x17\x0d(\d{12})Z|\x18\x0f(\d{14})Z)"
_VALIDITY = re.compile(rb"\x30." + _TIME + _TIME, re.DOTALL)


class ServerCertificate:
    """A certificate with its key. `context` serves it; `check` reads the files again after they have changed.

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
        # A file that is being written fails here, and the old one stays in use.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.path, self._key)
        self.context.load_cert_chain(self.path, self._key)
        self._ends = end_of(self.path.read_text(encoding="ascii", errors="replace"))  # raw: the operator's own file
        self._loaded = changed

    async def check(self) -> None:
        """Use a renewed certificate for new connections.

        Raises:
            OSError: it cannot be used, has expired or expires soon.
        """
        try:
            self._load()
        except (OSError, ValueError) as error:
            raise OSError(f"{str(self.path)!r} cannot be used, and the old certificate stays: {error}") from error
        left_s = self._ends - self._wall_clock()
        if left_s < CERTIFICATE_WARN_S:
            word = "expired" if left_s <= 0 else "expires"
            raise OSError(f"{str(self.path)!r} {word} at {datetime.fromtimestamp(self._ends, UTC):%Y-%m-%d %H:%M} UTC")


def end_of(pem: str) -> float:
    """Return when the first certificate of a PEM text ends, in seconds since 1970.

    Raises:
        ValueError: it has no certificate.
    """
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    if begin not in pem:
        raise ValueError("no certificate in it")
    first = begin + pem.partition(begin)[2].partition(end)[0] + end
    validity = _VALIDITY.search(ssl.PEM_cert_to_DER_cert(first))
    if validity is None:
        raise ValueError("a certificate without an end")
    short, full = validity.group(3), validity.group(4)
    # Years from 50 are those of the last century.
    text = (full or (b"19" if short >= b"50" else b"20") + short).decode()
    return datetime.strptime(text, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
