"""Keys: API keys in an SQLite file, which stores the SHA-256 of each key and never the key."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from pegboard.core.steady_clock import steady_time
from pegboard.model.error import PegboardError
from pegboard.storage.sqlite_file import SqliteFile
from pegboard.storage.store_error import StoreError
from pegboard.storage.store_schema import Schema, StoreConnection

KEY_FILE_BUSY_S = 2.0  # seconds to wait for another process that has locked the file

PREFIX = "pgb_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_FORM = re.compile(r"pgb_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")


def _unrecorded(connection: StoreConnection) -> int:
    if not connection.has("api_keys"):
        return 0
    return 2 if connection.has("api_keys", "holder") else 1


SCHEMA = Schema(
    name="api_keys",
    sqlite=(
        """
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, digest BLOB NOT NULL,
  created_at INTEGER NOT NULL, expires_at INTEGER, revoked_at INTEGER
) STRICT;
""",
        # A rotated key has the holder of the first one; for a while two keys with the same name are valid.
        """
ALTER TABLE api_keys ADD COLUMN holder TEXT;
DROP INDEX IF EXISTS api_keys_names;
UPDATE api_keys SET holder = id;
""",
    ),
    tables=("api_keys",),
    unrecorded=_unrecorded,
)
_COLUMNS = "id, name, digest, created_at, expires_at, revoked_at, coalesce(holder, id)"


class KeyStoreError(PegboardError):
    """The store of API keys cannot be used, or the operation is impossible."""


class ApiKey(Struct, frozen=True, kw_only=True):
    """The record of a key; times in seconds since 1970. `id` is the public part of the key.

    `holder` is the id of the holder's first key, which rotated keys inherit.
    """

    id: str
    name: str
    digest: bytes
    created_at: int
    holder: str
    expires_at: int | None = None
    revoked_at: int | None = None

    def is_good(self, now: float) -> bool:
        """Tell whether the key may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def state(self, now: float) -> str:
        """Return the state in a word."""
        return "revoked" if self.revoked_at is not None else "active" if self.is_good(now) else "expired"


class Contents(NamedTuple):
    """The contents of a file; `has_log` if changes are first written to a separate log, as in SQLite's WAL mode."""

    keys: list[ApiKey]
    has_log: bool


def id_of(key: str) -> str | None:
    """Return the id in a key; `None` for a text that is not a key."""
    match = _FORM.fullmatch(key)
    return None if match is None else match[1]


def digest_of(key: str) -> bytes:
    """Return the stored digest of a key. A key has 256 random bits, so it cannot be guessed from the digest."""
    return hashlib.sha256(key.encode()).digest()


class KeyStore:
    """The keys in one file.

    Args:
        path: the file; `add` creates it, readable by its owner only.
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = steady_time) -> None:
        self.path, self._clock = path, clock
        self._file = SqliteFile(path, SCHEMA, busy_s=KEY_FILE_BUSY_S)

    def add(self, name: str, *, lifetime_s: int | None = None) -> tuple[str, ApiKey]:
        """Create a key and return it with its record. The key cannot be read again.

        Raises:
            KeyStoreError: the name is invalid or in use, or the file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise KeyStoreError(f"The name {name!r} cannot be used: take 1 to 64 of A-Z a-z 0-9 . _ @ -.")
        text, key = self._new_key(name, lifetime_s)
        with self._changing() as connection:
            if _open_keys(connection, name):
                conflict = (
                    f"There is a key {name!r} already. Revoke it first, or take another name; rotate replaces it."
                )
                raise KeyStoreError(conflict)
            _insert(connection, key)
        return text, key

    def rotate(self, name: str, *, overlap_s: int, lifetime_s: int | None = None) -> tuple[str, ApiKey]:
        """Create the successor of the key with this name; the old key stays valid for `overlap_s` seconds.

        The new key has the old one's lifetime, unless `lifetime_s` is set. It has the same holder: sessions and
        questions of the old key belong to the new one.

        Raises:
            KeyStoreError: there is no valid key with this name, or the file cannot be written.
        """
        now = int(self._clock())
        with self._changing() as connection:
            good = [key for key in _open_keys(connection, name) if key.is_good(now)]
            if not good:
                raise KeyStoreError(f"There is no key {name!r} to rotate. `pegboard keys ls` shows them.")
            newest = good[-1]
            if lifetime_s is None and newest.expires_at is not None:
                lifetime_s = newest.expires_at - newest.created_at
            text, key = self._new_key(name, lifetime_s, holder=newest.holder)
            ends = "UPDATE api_keys SET expires_at = min(coalesce(expires_at, :until), :until) WHERE id = :id"
            for old in good:
                connection(ends, until=now + overlap_s, id=old.id)
            _insert(connection, key)
            return text, key

    def _new_key(self, name: str, lifetime_s: int | None, *, holder: str | None = None) -> tuple[str, ApiKey]:
        now, key_id = int(self._clock()), secrets.token_hex(8)
        text = f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
        until = None if lifetime_s is None else now + lifetime_s
        return text, ApiKey(
            id=key_id, name=name, digest=digest_of(text), created_at=now, expires_at=until, holder=holder or key_id
        )

    def listed(self) -> list[ApiKey]:
        """Return every key, the oldest first; empty if the file does not exist yet.

        Raises:
            KeyStoreError: the file cannot be read.
        """
        if not self.path.exists():
            return []
        return self.read()

    def read(self) -> list[ApiKey]:
        """Return every key of an existing file.

        Raises:
            KeyStoreError: it does not exist, or cannot be read.
        """
        return self.contents().keys

    def contents(self) -> Contents:
        """Return the same, with the file's journal mode.

        Raises:
            KeyStoreError: it does not exist, or cannot be read.
        """
        with self._reading() as connection:
            return Contents(_selected(connection), connection("PRAGMA journal_mode") != [("delete",)])

    def revoke(self, named: str) -> list[ApiKey]:
        """Revoke every key with a name, or the key with an id; it is refused from the next request on.

        A rotated name may have two valid keys for a while.

        Raises:
            KeyStoreError: there is none, or the file cannot be written.
        """
        matching = [key for key in self.listed() if key.revoked_at is None and named in (key.name, key.id)]
        if not matching:
            raise KeyStoreError(f"There is no key {named!r} to revoke. `pegboard keys ls` shows them.")
        with self._changing() as connection:
            for key in matching:
                sql = "UPDATE api_keys SET revoked_at = :now WHERE id = :id AND revoked_at IS NULL"
                connection(sql, now=int(self._clock()), id=key.id)
        return matching

    @contextmanager
    def _changing(self) -> Generator[StoreConnection]:
        with _explained(self.path, "written"), self._file.transaction() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Generator[StoreConnection]:
        with _explained(self.path, "read"):
            if 0 < self._file.stored_version() < SCHEMA.version:
                self._file.migrate()
            with self._file.reading() as connection:
                yield connection


@contextmanager
def _explained(path: Path, did: str) -> Generator[None]:
    try:
        yield
    except StoreError as error:
        text = f"The key store {str(path)!r} cannot be {did}: {error}. Look at `api_keys:` and the file."
        raise KeyStoreError(text) from None


def _selected(connection: StoreConnection) -> list[ApiKey]:
    """Return every key, the oldest first."""
    sql = f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, rowid"  # noqa: S608 - our own words
    return [_key(row) for row in connection(sql)]


def _open_keys(connection: StoreConnection, name: str) -> list[ApiKey]:
    return [key for key in _selected(connection) if key.name == name and key.revoked_at is None]


def _insert(connection: StoreConnection, key: ApiKey) -> None:
    connection(
        "INSERT INTO api_keys (id, name, digest, created_at, expires_at, holder) "
        "VALUES (:id, :name, :digest, :created_at, :expires_at, :holder)",
        id=key.id, name=key.name, digest=key.digest, created_at=key.created_at, expires_at=key.expires_at,
        holder=key.holder,
    )  # fmt: skip


def _key(row: tuple[Any, ...]) -> ApiKey:
    key_id, name, digest, created_at, expires_at, revoked_at, holder = row
    # Another program may have written the file.
    if not isinstance(digest, bytes) or not all(isinstance(value, int | None) for value in row[3:6]):
        raise KeyStoreError(f"The key store holds something else under {key_id!r}. Look at `api_keys:` and the file.")
    return ApiKey(
        id=key_id, name=name, digest=digest, created_at=created_at, expires_at=expires_at, revoked_at=revoked_at,
        holder=holder,
    )  # fmt: skip
