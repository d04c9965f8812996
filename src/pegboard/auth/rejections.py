"""Rejections: the errors for refused credentials. The reason goes to the log; the caller sees only the kind."""

from __future__ import annotations


class BadCredentialError(Exception):
    """The credential is invalid. `reason` is a word or two, without any part of the credential."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class InsufficientScopeError(BadCredentialError):
    """The token is valid, but lacks a required scope."""


class UnavailableError(Exception):
    """The credential cannot be verified now: its store or its issuer does not respond."""
