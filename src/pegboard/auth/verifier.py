"""Verifier: finds the grant of a credential's text, under one set of rules."""

from __future__ import annotations

from pegboard.auth.jwks import KeySet
from pegboard.auth.keyring import GRANTS_REMEMBERED, Keyring
from pegboard.auth.keys import PREFIX
from pegboard.auth.rejections import BadCredentialError
from pegboard.auth.rule_matching import grant_of
from pegboard.auth.rules import Credential, Grant, IdentityRules, Still
from pegboard.auth.tokens import TokenReader
from pegboard.core.bounded_cache import BoundedCache


class Verifier:
    """Verifies bearer credentials: API keys by their form, everything else as a token."""

    def __init__(self, rules: IdentityRules) -> None:
        self._map = rules.map
        self._keyring = None if rules.key_store is None else Keyring(rules.key_store)
        tokens = rules.tokens
        self._tokens = None if tokens is None else TokenReader(tokens, KeySet(tokens.jwks_url))
        self._grants = BoundedCache[int, tuple[Credential, Grant | None]](max_entries=GRANTS_REMEMBERED)

    def still(self, credential: str) -> Still | None:
        """Return a check, without waiting, of whether a credential that was just verified is still valid."""
        judge = self._keyring if credential.startswith(PREFIX) else self._tokens
        return None if judge is None else judge.still(credential)

    async def grant(self, credential: str) -> Grant | None:
        """Return the grant of a credential; `None` if it is valid, but no rule matches it.

        Equal credentials get the same grant object.

        Raises:
            BadCredentialError: it is invalid; InsufficientScopeError: it lacks a scope.
            UnavailableError: it cannot be verified now.
        """
        proven = await self._verified(credential)
        known = self._grants.get(id(proven))
        if known is None or known[0] is not proven:
            # Stored with its credential, so that the id cannot be reused.
            known = self._grants.remember(id(proven), (proven, grant_of(self._map, proven)))
        return known[1]

    async def key_of(self, credential: str) -> str:
        """Return the name of a valid API key, for the log; empty for a token.

        Raises:
            BadCredentialError, UnavailableError: as `grant`.
        """
        return (await self._verified(credential)).key or ""

    async def _verified(self, credential: str) -> Credential:
        if credential.startswith(PREFIX):
            if self._keyring is not None:
                return await self._keyring.credential(credential)
        elif self._tokens is not None:
            return await self._tokens.credential(credential)
        raise BadCredentialError("kind")
