"""Guards of credentials that another one stands behind, each seen by itself."""

import os
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from pegboard.auth import jwks, tokens
from pegboard.auth.jwks import KeySet
from pegboard.auth.keyring import Keyring
from pegboard.auth.keys import KeyStore
from pegboard.auth.rejections import BadCredentialError, UnavailableError
from pegboard.auth.rules import TokenRules
from pegboard.auth.tokens import TokenReader
from tests.auth.parts import AUDIENCE, ISSUER, RSA_ONE, RSA_TWO, Issuer, jwk_of, listening


async def outcome(issuer: Issuer, token: str) -> str:
    rules = issuer.rules()
    try:
        await TokenReader(rules, KeySet(rules.jwks_url)).credential(token)
    except BadCredentialError as error:
        return error.reason
    return "known"


async def test_a_key_serves_the_signatures_that_it_is_for_and_is_long_enough() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
        async with Issuer().running() as issuer:
            token = issuer.token()
            issuer.keys = [jwk_of(RSA_ONE, "one", alg="RS256")]
            assert await outcome(issuer, token) == "known"
            issuer.keys = [jwk_of(RSA_ONE, "one", alg="RS512")]
            assert await outcome(issuer, token) == "signature"
            issuer.keys = [jwk_of(short, "one")]
            assert await outcome(issuer, issuer.token(key=short)) != "known"


async def test_of_many_keys_some_are_kept_and_few_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Issuer().running() as issuer:
        token = issuer.token(kid=None)
        issuer.keys = [jwk_of(RSA_TWO, "two"), jwk_of(RSA_ONE, "one")]
        assert await outcome(issuer, token) == "known"
        monkeypatch.setattr(tokens, "TOKEN_KEYS_TRIED", 1)
        assert await outcome(issuer, token) == "signature"
        monkeypatch.setattr(tokens, "TOKEN_KEYS_TRIED", 10)
        monkeypatch.setattr(jwks, "JWKS_KEYS", 1)
        assert await outcome(issuer, token) == "signature"


async def test_the_keys_of_an_issuer_are_at_its_address_and_nowhere_that_it_sends_us() -> None:
    asked: list[str] = []

    async def real(_request: Any) -> JSONResponse:
        asked.append("real")
        return JSONResponse({"keys": [jwk_of(RSA_ONE, "one")]})

    async def moved(_request: Any) -> RedirectResponse:
        return RedirectResponse("/real")

    async with listening(Starlette(routes=[Route("/jwks", moved), Route("/real", real)])) as url:
        rules = TokenRules(issuer=ISSUER, audience=AUDIENCE, jwks_url=f"{url}/jwks")
        with pytest.raises(UnavailableError):
            await TokenReader(rules, KeySet(rules.jwks_url)).credential(Issuer().token())
    assert asked == []


async def test_a_revocation_counts_though_the_file_looks_as_it_did_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine more time may pass between two of these lines.
    monkeypatch.setattr("pegboard.auth.keyring.KEY_FILE_SETTLED_S", 600.0)
    store = KeyStore(tmp_path / "keys.db")
    key, _ = store.add("ann")
    ring, before = Keyring(store.path), store.path.stat().st_mtime_ns
    assert (await ring.credential(key)).key == "ann"
    store.revoke("ann")
    os.utime(store.path, ns=(before, before))
    with pytest.raises(BadCredentialError):
        await ring.credential(key)


async def test_a_revocation_counts_that_is_only_in_the_log_beside_the_file(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.db")
    key, _ = store.add("ann")
    log, long_ago = store.path.with_name("keys.db-wal"), time.time() - 1_000
    os.utime(store.path, (long_ago, long_ago))
    # This one knew the file when there was no log.
    before = Keyring(store.path)
    assert (await before.credential(key)).key == "ann"
    connection = sqlite3.connect(store.path)
    try:
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma wal_autocheckpoint=0")
        connection.execute("create table other (n)")
        connection.commit()
        for file in (store.path, log):
            os.utime(file, (long_ago + 1, long_ago + 1))
        for ring in (before, Keyring(store.path)):
            connection.execute("update api_keys set revoked_at = null")
            connection.commit()
            assert (await ring.credential(key)).key == "ann"
            still = ring.still(key)
            unchanged = store.path.stat().st_mtime_ns
            connection.execute("update api_keys set revoked_at = 1")
            connection.commit()
            assert store.path.stat().st_mtime_ns == unchanged
            assert still is not None
            assert not still()
            with pytest.raises(BadCredentialError):
                await ring.credential(key)
    finally:
        connection.close()
