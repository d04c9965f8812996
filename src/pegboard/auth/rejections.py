"""Rejections: why a credential is not taken. The reason is for the log; the caller hears no more than the kind."""

from __future__ import annotations


class BadCredentialError(Exception):
    """The credential proves nothing. `reason` is a word or two, with nothing of the credential in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InsufficientScopeError(BadCredentialError):
    """The token is good, but lacks a scope that everybody needs here."""


class UnavailableError(Exception):
    """Nobody can tell at the moment whether the credential is good: its store or its issuer does not answer."""
