"""Tokens: verifies signed JWTs of one issuer with PyJWT; we choose the keys and algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import jwt
import orjson

from pegboard.auth.jwks import KeySet
from pegboard.auth.rejections import BadCredentialError, InsufficientScopeError
from pegboard.auth.rule_matching import scopes_of
from pegboard.auth.rules import ALGORITHMS, Credential, Still, TokenRules
from pegboard.core.bounded_cache import BoundedCache
from pegboard.core.digests import digest
from pegboard.core.steady_clock import steady_time
from pegboard.model.bounds import KIB
from pegboard.model.json_types import JSON
from pegboard.model.secret import Secret

TOKEN_CHARS = 16 * KIB  # characters of a JWT
TOKENS_REMEMBERED = 1_000  # valid tokens in the cache
TOKEN_LEEWAY_S = 30  # how far the issuer's clock may differ, in seconds
TOKEN_KEYS_TRIED = 4  # keys tried for one token's key id
TOKEN_KEYS_REMEMBERED = 64  # parsed keys in the cache

_NAME_BYTES = 32
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})


class _Good(NamedTuple):
    """A valid token: its credential, the published keys, and its end in seconds since 1970."""

    credential: Credential
    keys: Sequence[JSON]
    ends_at: float


class TokenReader:
    """Verifies the access tokens of an issuer.

    A valid token is cached, by its hash, until it expires or the issuer's keys are fetched again. Then it is verified
    again, so a revoked key stops working at that moment.

    Args:
        rules: the accepted issuer, audience and scopes; each set of rules has its own reader.
        keys: the issuer's public keys.
        wall_clock: seconds since 1970.
    """

    def __init__(self, rules: TokenRules, keys: KeySet, *, wall_clock: Callable[[], float] = steady_time) -> None:
        self._rules, self._keys, self._clock = rules, keys, wall_clock
        self._good = BoundedCache[bytes, _Good](max_entries=TOKENS_REMEMBERED)
        self._public_keys = BoundedCache[bytes, jwt.PyJWK](max_entries=TOKEN_KEYS_REMEMBERED)
        self._judge = jwt.PyJWT(options={"enforce_minimum_key_length": True})

    def still(self, token: str) -> Still | None:
        """Return a check of whether a token that was just verified is still valid; `None` for one that was not."""
        good = self._good.get(_name_of(token))
        return None if good is None else lambda: self._holds(good, self._keys.fresh)

    def _holds(self, good: _Good, keys: Sequence[JSON] | None) -> bool:
        return good.keys is keys and good.ends_at > self._clock()

    async def credential(self, token: str) -> Credential:
        """Return the credential in a token.

        Raises:
            BadCredentialError: the token is invalid; InsufficientScopeError: it lacks a scope.
            UnavailableError: the issuer's keys are unavailable.
        """
        name = _name_of(token)
        good = self._good.get(name)
        if good is not None and self._holds(good, await self._keys.current()):
            return good.credential
        algorithm, kid = _head(token)
        # The issuer may have a new key, under the same or another id.
        for known in (self._keys.candidates, self._keys.newer):
            candidates = await known(kid, _key_type(algorithm), algorithm)
            published = self._keys.published
            for key in candidates[:TOKEN_KEYS_TRIED]:
                claims = self._claims(token, key, algorithm)
                if claims is not None:
                    if _end_of(claims) <= self._clock():
                        # PyJWT uses the machine's clock, which may have been set back.
                        raise BadCredentialError(jwt.ExpiredSignatureError.__name__)
                    credential = self._credential(claims, token)
                    self._good.remember(name, _Good(credential, published, _end_of(claims)))
                    return credential
        raise BadCredentialError("signature")

    def _claims(self, token: str, key: JSON, algorithm: str) -> JSON | None:
        """Return the claims of a token; `None` if it was not signed with this key."""
        try:
            return self._judge.decode(
                token,
                self._public(key, algorithm),
                algorithms=[algorithm],
                audience=self._rules.audience,
                issuer=self._rules.issuer,
                leeway=TOKEN_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError, jwt.PyJWKError):
            return None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            # Only the name of the error: its text may quote the token.
            raise BadCredentialError(type(error).__name__) from None

    def _public(self, key: JSON, algorithm: str) -> jwt.PyJWK:
        """Return a parsed key; parsing takes longer than verifying with it."""
        name = orjson.dumps([algorithm, key], option=orjson.OPT_SORT_KEYS)
        public_key = self._public_keys.get(name)
        if public_key is not None:
            return public_key
        return self._public_keys.remember(name, jwt.PyJWK.from_dict(key, algorithm))

    def _credential(self, claims: JSON, token: str) -> Credential:
        scopes = scopes_of(claims)
        if not scopes.issuperset(self._rules.scopes):
            raise InsufficientScopeError("scope")
        if not claims["sub"]:
            raise BadCredentialError("sub")
        client: Any = claims.get("client_id", claims.get("azp"))
        owner = f"jwt:{digest([claims['iss'], claims['sub'], client])}"
        kept = Secret(token) if self._rules.keeps_tokens else None
        return Credential(owner=owner, claims=claims, ends_at=_end_of(claims), token=kept)


def _name_of(token: str) -> bytes:
    return blake2b(token.encode(), digest_size=_NAME_BYTES).digest()


def _end_of(claims: JSON) -> float:
    return int(claims["exp"]) + TOKEN_LEEWAY_S


def _head(token: str) -> tuple[str, str | None]:
    """Return (algorithm, key id) from the header of an acceptable token."""
    if len(token) > TOKEN_CHARS or token.count(".") != 2:
        raise BadCredentialError("form")
    try:
        head = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise BadCredentialError("head") from None
    algorithm, kid, kind = head.get("alg"), head.get("kid"), head.get("typ", "JWT")
    if algorithm not in ALGORITHMS:
        raise BadCredentialError("algorithm")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise BadCredentialError("typ")
    return algorithm, kid


def _key_type(algorithm: str) -> str:
    return "OKP" if algorithm == "EdDSA" else "EC" if algorithm.startswith("ES") else "RSA"
