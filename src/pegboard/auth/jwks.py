"""JWKS: an issuer's public keys, fetched on demand and cached."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from pegboard.auth.rejections import UnavailableError
from pegboard.core.json_reader import read_answer
from pegboard.egress.destinations import Destinations
from pegboard.egress.failures import EgressError
from pegboard.egress.http import GuardedClient
from pegboard.egress.urls import parse_url
from pegboard.model.bounds import KIB
from pegboard.model.json_types import JSON

JWKS_FRESH_S = 600.0  # how long fetched keys are used, in seconds; a revoked key works at most as long
JWKS_STALE_S = 3_600.0  # how long old keys are used while the issuer does not respond, in seconds
JWKS_PAUSE_S = 5.0  # seconds between two fetches, so that invented key ids do not cause many
JWKS_FETCH_S = 5.0  # seconds for one fetch
JWKS_BYTES = 256 * KIB  # bytes of one response
JWKS_KEYS = 100  # keys of one issuer

log = logging.getLogger("pegboard.auth")


class KeySet:
    """The keys at one address.

    Args:
        url: their address; no other host is contacted, and no redirect is followed.
        clock: a monotonic clock in seconds.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._clock = url, clock
        self._keys: Sequence[JSON] = ()
        self._fetched, self._tried = float("-inf"), float("-inf")
        self._fetching: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def fresh(self) -> Sequence[JSON] | None:
        """The current keys, if they need not be fetched."""
        return self._keys if self._clock() - self._fetched < JWKS_FRESH_S else None

    async def current(self) -> Sequence[JSON]:
        """Return the current keys: the same object until they are fetched again.

        Raises:
            UnavailableError: the issuer does not respond, and the known keys are too old.
        """
        await self._refresh(JWKS_FRESH_S)
        return self._keys

    @property
    def published(self) -> Sequence[JSON]:
        """The last fetched keys, however old."""
        return self._keys

    async def candidates(self, kid: str | None, key_type: str, algorithm: str) -> list[JSON]:
        """Return the keys that may have signed a token with this header.

        Raises:
            UnavailableError: the issuer does not respond, and the known keys are too old.
        """
        await self._refresh(JWKS_FRESH_S)
        return self._matching(kid, key_type, algorithm)

    async def newer(self, kid: str | None, key_type: str, algorithm: str) -> list[JSON]:
        """Fetch the keys again and return the new candidates; empty if they were fetched just now, or have not changed.

        Raises:
            UnavailableError: see `candidates`.
        """
        known = self._keys
        await self._refresh(JWKS_PAUSE_S)
        return [] if self._keys is known else self._matching(kid, key_type, algorithm)

    def _matching(self, kid: str | None, key_type: str, algorithm: str) -> list[JSON]:
        return [
            key
            for key in self._keys
            if key.get("kty") == key_type
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and (kid is None or key.get("kid") == kid)
        ]

    async def _refresh(self, after_s: float) -> None:
        """Fetch the keys if they are older than this, unless a fetch was tried just now."""
        age_s = self._clock() - self._fetched
        if age_s < after_s:
            return
        loop = asyncio.get_running_loop()
        if self._fetching is None or self._loop is not loop:
            self._fetching, self._loop = asyncio.Lock(), loop
        if self._fetching.locked() and JWKS_FRESH_S <= age_s <= JWKS_STALE_S:
            # A fetch is running; the known keys are used until it ends.
            return
        async with self._fetching:
            # Another request may have fetched them meanwhile.
            if self._clock() - max(self._fetched, self._tried) >= min(after_s, JWKS_PAUSE_S):
                await self._fetch()
                # Counted from the end, so that callers who waited for a slow issuer do not each start another fetch.
                self._tried = self._clock()
        if self._clock() - self._fetched > JWKS_STALE_S:
            raise UnavailableError

    async def _fetch(self) -> None:
        try:
            keys = await _fetched(self._url)
        except EgressError as error:
            log.error("jwks_unavailable: %s: %s", self._url, error.error.message)
        except ValueError:
            log.error("jwks_unavailable: %s: the answer is not a key set (RFC 7517)", self._url)
        else:
            self._keys, self._fetched = keys, self._clock()


async def _fetched(url: str) -> list[JSON]:
    """Return the usable keys.

    Raises:
        EgressError: no response.
        ValueError: the response is not a key set.
    """
    place = parse_url(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    host = f"[{place.host}]" if ":" in place.host else place.host
    there = Destinations(allow_private=True, allow_hosts=(f"{host}:{port}",))
    async with GuardedClient(there) as client:
        answer = await client.request(
            "GET", url, timeout_s=JWKS_FETCH_S, max_response_bytes=JWKS_BYTES, max_redirects=0
        )
    document: Any = read_answer(answer.body)
    if answer.status_code != 200 or not isinstance(document, dict):
        raise ValueError(answer.status_code)
    keys = cast("JSON", document).get("keys")
    if not isinstance(keys, list):
        raise ValueError(answer.status_code)
    return [cast("JSON", key) for key in cast("list[object]", keys)[:JWKS_KEYS] if isinstance(key, dict)]
