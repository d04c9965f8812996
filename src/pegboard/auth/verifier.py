"""Verifier: from the text of a credential to what it is given, as one set of rules says."""

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
    """Judges bearer credentials: API keys by their form, everything else as a token."""

    def __init__(self, rules: IdentityRules) -> None:
        self._map = rules.map
        self._keyring = None if rules.key_store is None else Keyring(rules.key_store)
        tokens = rules.tokens
        self._tokens = None if tokens is None else TokenReader(tokens, KeySet(tokens.jwks_url))
        self._grants = BoundedCache[int, tuple[Credential, Grant | None]](max_entries=GRANTS_REMEMBERED)

    def still(self, credential: str) -> Still | None:
        """Return what tells, without waiting, whether a credential that has just been judged is good still."""
        judge = self._keyring if credential.startswith(PREFIX) else self._tokens
        return None if judge is None else judge.still(credential)

    async def grant(self, credential: str) -> Grant | None:
        """Return what a credential is given; `None` when it is good, but no rule has anything for it.

        One that proves the very same as before is given the very same value.

        Raises:
            BadCredentialError: it proves nothing; InsufficientScopeError: not enough.
            UnavailableError: nobody can tell at the moment.
        """
        proven = await self._verified(credential)
        known = self._grants.get(id(proven))
        if known is None or known[0] is not proven:
            # Kept with what it was made of, so that no other has its identity meanwhile.
            known = self._grants.remember(id(proven), (proven, grant_of(self._map, proven)))
        return known[1]

    async def _verified(self, credential: str) -> Credential:
        if credential.startswith(PREFIX):
            if self._keyring is not None:
                return await self._keyring.credential(credential)
        elif self._tokens is not None:
            return await self._tokens.credential(credential)
        raise BadCredentialError("kind")
