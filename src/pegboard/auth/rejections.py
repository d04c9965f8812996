"""Rejections: the errors for refused credentials. The reason goes to the log; the caller sees only the kind."""

from __future__ import annotations


class BadCredentialError(Exception):
    """The credential is invalid. `reason` is a word or two, without any part of the credential.

    `key` is the name of the key that it is, or claims to be; empty if there is none.
    """

    def __init__(self, reason: str, *, key: str = "") -> None:
        super().__init__(reason)
        self.reason, self.key = reason, key


class InsufficientScopeError(BadCredentialError):
    """The token is valid, but lacks a required scope."""


class UnavailableError(Exception):
    """The credential cannot be verified now: its store or its issuer does not respond."""
