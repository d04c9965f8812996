"""API keys: what is kept of them, who holds one, and how they end."""

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from pegboard.auth.keyring import Keyring
from pegboard.auth.keys import KeyStore, KeyStoreError
from pegboard.auth.rejections import BadCredentialError, UnavailableError
from pegboard.auth.rules import Credential


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys.db")


async def test_a_key_tells_who_holds_it(store: KeyStore) -> None:
    ann, bob = store.add("ann")[0], store.add("bob")[0]
    ring = Keyring(store.path)
    assert [(await ring.credential(key)).key for key in (ann, bob)] == ["ann", "bob"]
    assert (await ring.credential(ann)).owner != (await ring.credential(bob)).owner


def test_the_file_has_the_hash_of_a_key_and_never_the_key(store: KeyStore) -> None:
    text, key = store.add("ann")
    kept = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert hashlib.sha256(text.encode()).digest() in kept
    # The secret part may have any number of "_" in it: count from the end.
    assert text[-43:].encode() not in kept
    assert text[-20:].encode() not in kept
    assert key.digest == hashlib.sha256(text.encode()).digest()
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


async def test_what_is_not_exactly_a_key_of_ours_is_refused(store: KeyStore) -> None:
    key = store.add("ann")[0]
    other = KeyStore(store.path.with_name("other.db")).add("ann")[0]
    last = "A" if key[-1] != "A" else "B"
    ring = Keyring(store.path)
    wrong = [other, key[:-1], key + "A", key[:-1] + last, key.upper(), f" {key}", f"{key}\n", "pgb_", "pgb__", "",
             key[:21] + other[21:], "pgb_" + "0" * 16 + "_" + "A" * 43, key.replace("_", "-")]  # fmt: skip
    for text in wrong:
        with pytest.raises(BadCredentialError):
            await ring.credential(text)
    assert await ring.credential(key)


async def test_a_revoked_key_is_refused_from_the_next_request_on(store: KeyStore) -> None:
    ring = Keyring(store.path)
    for number in range(20):
        key = store.add("ann")[0]
        assert (await ring.credential(key)).key == "ann", number
        # By another connection, as `pegboard keys revoke` does it in another process.
        KeyStore(store.path).revoke("ann")
        with pytest.raises(BadCredentialError):
            await ring.credential(key)


async def test_a_key_ends_when_it_was_to_end(store: KeyStore) -> None:
    now = 1_000_000.0
    key = KeyStore(store.path, clock=lambda: now).add("ann", lifetime_s=60)[0]
    ring = Keyring(store.path, clock=lambda: now)
    now += 59
    assert await ring.credential(key)
    now += 1
    with pytest.raises(BadCredentialError):
        await ring.credential(key)


async def test_a_file_that_looks_unchanged_is_not_read_again(store: KeyStore) -> None:
    key = store.add("ann")[0]
    os.utime(store.path, (1, 1))
    ring = Keyring(store.path)
    assert await ring.credential(key)
    # Whoever reads it now finds no database.
    store.path.write_bytes(bytes(store.path.stat().st_size))
    os.utime(store.path, (1, 1))
    assert await ring.credential(key)


@pytest.mark.parametrize("harm", ["deleted", "emptied", "garbage", "a folder", "another table", "other types", "cut"])
async def test_a_store_that_cannot_be_read_lets_nobody_in(store: KeyStore, harm: str) -> None:
    key = store.add("ann")[0]
    ring = Keyring(store.path)
    assert await ring.credential(key)
    whole = store.path.read_bytes()
    store.path.unlink()
    if harm == "a folder":
        store.path.mkdir()
    elif harm == "another table":
        apsw.Connection(str(store.path)).execute("CREATE TABLE other (id)")
    elif harm == "other types":
        columns = "id, name, digest, created_at, expires_at, revoked_at"
        with closing(apsw.Connection(str(store.path))) as connection:
            connection.execute(f"CREATE TABLE api_keys ({columns})")
            connection.execute("INSERT INTO api_keys VALUES (?, 'ann', 'x', 1, NULL, NULL)", (key[4:20],))
    elif harm != "deleted":
        store.path.write_bytes({"emptied": b"", "garbage": b"x" * 8192, "cut": whole[:5000]}[harm])
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await ring.credential(key)
    if harm == "a folder":
        store.path.rmdir()
    store.path.write_bytes(whole)
    assert await ring.credential(key)


async def test_a_write_in_progress_keeps_nobody_out(store: KeyStore) -> None:
    key = store.add("ann")[0]
    ring = Keyring(store.path)
    writer = apsw.Connection(str(store.path))
    writer.execute("BEGIN IMMEDIATE; INSERT INTO api_keys VALUES ('0', 'x', x'', 0, NULL, NULL, NULL)")
    assert await ring.credential(key)
    writer.execute("ROLLBACK")
    writer.close()


def test_a_name_is_taken_once_until_its_key_is_revoked(store: KeyStore) -> None:
    first = store.add("ann")[1]
    with pytest.raises(KeyStoreError, match="'ann' already"):
        store.add("ann")
    assert [key.name for key in store.revoke(first.id)] == ["ann"]
    second = store.add("ann")[1]
    assert [(key.id, key.state(0.0)) for key in store.listed()] == [(first.id, "revoked"), (second.id, "active")]
    with pytest.raises(KeyStoreError, match="no key 'bob'"):
        store.revoke("bob")


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "é", "a\n", "../x"])
def test_a_name_that_would_confuse_is_refused(store: KeyStore, name: str) -> None:
    with pytest.raises(KeyStoreError, match="cannot be used"):
        store.add(name)
    assert not store.path.exists()


def _held(credential: Credential) -> tuple[str, str | None]:
    """Return what rights, sessions and questions depend on; only open streams depend on which key it was."""
    return credential.owner, credential.key


async def test_a_rotated_key_is_good_for_the_overlap_and_what_is_its_holders_stays_so(tmp_path: Path) -> None:
    now = 1_000_000.0
    store = KeyStore(tmp_path / "keys.db", clock=lambda: now)
    ring = Keyring(store.path, clock=lambda: now)
    old, _ = store.add("ann", lifetime_s=500)
    new, key = store.rotate("ann", overlap_s=60)
    assert _held(await ring.credential(old)) == _held(await ring.credential(new))
    assert key.expires_at == 1_000_500
    newest, _ = store.rotate("ann", overlap_s=3_600)
    assert _held(await ring.credential(old)) == _held(await ring.credential(newest))
    now += 60
    with pytest.raises(BadCredentialError):
        await ring.credential(old)
    # An overlap lengthens no key's life.
    assert (await ring.credential(new)).key == "ann"
    now += 440
    for ended in (new, newest):
        with pytest.raises(BadCredentialError):
            await ring.credential(ended)


async def test_revoking_a_name_ends_the_key_that_was_rotated_too(store: KeyStore) -> None:
    old, new = store.add("ann")[0], store.rotate("ann", overlap_s=3_600)[0]
    ring = Keyring(store.path)
    assert len(store.revoke("ann")) == 2
    for key in (old, new):
        with pytest.raises(BadCredentialError):
            await ring.credential(key)
    with pytest.raises(KeyStoreError, match="no key 'ann' to rotate"):
        store.rotate("ann", overlap_s=60)


async def test_a_file_of_before_keys_had_holders_is_read_and_brought_up(store: KeyStore) -> None:
    key = store.add("ann")[0]
    with closing(apsw.Connection(str(store.path))) as connection:
        connection.execute("DROP TABLE pegboard_schema_versions")
        connection.execute("ALTER TABLE api_keys DROP COLUMN holder")
        connection.execute("CREATE UNIQUE INDEX api_keys_names ON api_keys (name) WHERE revoked_at IS NULL")
    ring = Keyring(store.path)
    before = await ring.credential(key)
    new = store.rotate("ann", overlap_s=60)[0]
    assert _held(before) == _held(await ring.credential(new)) == _held(await ring.credential(key))


def test_of_two_that_take_one_name_at_once_one_has_it(store: KeyStore) -> None:
    store.add("bob")
    with ThreadPoolExecutor(8) as pool:
        took = list(pool.map(lambda _: _took(store), range(8)))
    assert (took.count(True), len(store.listed())) == (1, 2)


def _took(store: KeyStore) -> bool:
    try:
        store.add("ann")
    except KeyStoreError:
        return False
    return True
