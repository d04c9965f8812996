"""Keyring: caches the keys of a store for every request, and reloads them when the file changes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from pegboard.auth.keys import ApiKey, KeyStore, KeyStoreError, digest_of, id_of
from pegboard.auth.rejections import BadCredentialError, UnavailableError
from pegboard.auth.rules import Credential, Still
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.steady_clock import steady_time

# how long after a write the file may change again unnoticed, in seconds, since file times are coarse
KEY_FILE_SETTLED_S = 2.5

log = logging.getLogger("pegboard.auth")
GRANTS_REMEMBERED = 1_024  # credentials in the cache with their grants
_NAME_BYTES = 32
_NO_KEY = bytes(32)

_FileMark = tuple[int, int, int, int]
_Mark = tuple[_FileMark | None, ...]
"""The metadata of the file and its log; if they differ, the file has changed."""


class _KeyEntry(NamedTuple):
    """A key and its credential: the same object until the file changes it."""

    key: ApiKey
    credential: Credential


class Keyring:
    """Finds the holder of a key.

    Args:
        path: the file of the store. While it is missing or unreadable, every key is refused.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = steady_time) -> None:
        self._store, self._clock = KeyStore(path, clock=clock), clock
        # SQLite writes changes to the log first and moves them to the file later.
        self._files = (str(path), str(path.with_name(f"{path.name}-wal")))
        self._keys: Mapping[str, _KeyEntry] = {}
        self._proven = _none_proven()
        self._known: _Mark | None = None
        self._has_log = True
        self._told: str | None = None

    def still(self, key: str) -> Still | None:
        """Return a check of whether a key that was just verified is still valid; `None` for a key that was not.

        Each request runs the check, so that a revoked key stops working at once.
        """
        keys, known = self._keys, self._proven.get(_name_of(key))
        if known is None:
            return None
        expires_at, clock = known.key.expires_at, self._clock
        # A reload may have changed the key.
        if expires_at is None:
            return lambda: self._is_current() and self._keys is keys
        return lambda: self._is_current() and self._keys is keys and clock() < expires_at

    async def credential(self, key: str) -> Credential:
        """Return the credential of a key.

        Raises:
            BadCredentialError: it is unknown or no longer valid.
            UnavailableError: the store cannot be read.
        """
        keys = await self._current()
        name = _name_of(key)
        known = self._proven.get(name)
        if known is None:
            known = self._proven.remember(name, _proven(key, keys))
        if not known.key.is_good(self._clock()):
            raise BadCredentialError(f"{known.key.state(self._clock())} key", key=known.key.name)
        return known.credential

    async def _current(self) -> Mapping[str, _KeyEntry]:
        if not self._is_current():
            mark = tuple([_mark_of(path) for path in self._files])
            try:
                contents = await asyncio.to_thread(self._store.contents)
            except KeyStoreError as error:
                self._known = None
                self._tell(str(error))
                raise UnavailableError from None
            self._keys = {key.id: _key_entry(key) for key in contents.keys}
            self._told, self._proven = None, _none_proven()
            # The state before the read, so that a change during it is noticed by the next request.
            self._known, self._has_log = mark if self._is_settled(mark) else None, contents.has_log
        return self._keys

    def _is_current(self) -> bool:
        """Tell whether the file is unchanged since it was read.

        The creation of a log changes the file's own metadata, so without a log only the file is checked.
        """
        known, (path, log_path) = self._known, self._files
        if known is None or _mark_of(path) != known[0]:
            return False
        return not self._has_log or _mark_of(log_path) == known[1]

    def _is_settled(self, mark: _Mark) -> bool:
        now = time.time_ns()
        return all(abs(now - time_ns[0]) > KEY_FILE_SETTLED_S * 1e9 for time_ns in mark if time_ns is not None)

    def _tell(self, text: str) -> None:
        if text != self._told:
            log.error("key_store_unavailable: %s", text)
            self._told = text


def _none_proven() -> BoundedCache[bytes, _KeyEntry]:
    return BoundedCache(max_entries=GRANTS_REMEMBERED)


def _name_of(key: str) -> bytes:
    # The store's SHA-256 costs more than everything else here, so it is computed once per key.
    return blake2b(key.encode(), digest_size=_NAME_BYTES).digest()


def _proven(key: str, keys: Mapping[str, _KeyEntry]) -> _KeyEntry:
    """Return the entry of a key.

    Raises:
        BadCredentialError: the key is unknown, or its secret is wrong.
    """
    known = keys.get(id_of(key) or "")
    is_right = hmac.compare_digest(digest_of(key), _NO_KEY if known is None else known.key.digest)
    if known is None:
        raise BadCredentialError("unknown key")
    if not is_right:
        raise BadCredentialError("wrong secret", key=known.key.name)
    return known


def credential_of(key: ApiKey) -> Credential:
    """Return the credential of callers with this key."""
    return Credential(owner=f"key:{key.holder}", key=key.name, key_id=key.id)


def _key_entry(key: ApiKey) -> _KeyEntry:
    return _KeyEntry(key, credential_of(key))


def _mark_of(path: str) -> _FileMark | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path costs as much again
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
