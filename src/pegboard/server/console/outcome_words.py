"""Outcome words: the console's wording of the outcomes of calls, for its pages and their filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pegboard.model.error import ErrorKind

OUTCOME_WORDS: Final[Mapping[ErrorKind, str]] = {
    "not_found": "not found",
    "invalid_arguments": "wrong arguments",
    "rate_limited": "rate limit reached",
    "ratelimit_unavailable": "rate limit not readable",
    "consent_required": "waits for a person",
    "consent_declined": "declined by a person",
    "consent_expired": "approval expired",
    "consent_mismatch": "differs from the approved call",
    "hook_refused": "refused by a hook",
    "timeout": "timed out",
    "cancelled": "cancelled",
    "busy": "too many calls at once",
    "budget_exceeded": "budget used up",
    "recursion_limit": "too many calls inside calls",
    "upstream_unavailable": "server unreachable",
    "upstream_lost": "connection to the server lost",
    "upstream_error": "error at the server",
    "upstream_auth": "rejected by the server’s login",
    "protocol_error": "invalid answer of the server",
    "blocked_destination": "address blocked",
    "result_too_large": "result too large",
    "output_invalid": "result does not fit its schema",
    "template_error": "template failed",
    "read_only": "refused: read only",
    "schema_too_complex": "schema too complex",
    "needs_review": "needs review",
    "storage_unavailable": "store unavailable",
    "audit_unavailable": "audit unavailable",
    "shutting_down": "server was shutting down",
    "tool_error": "tool failed",
    "config_invalid": "config invalid",
    "connection_required": "account not connected",
}
_WORDS: Final[Mapping[str, str]] = {
    **OUTCOME_WORDS,
    "ok": "ok",
    "": "runs",
    "unknown": "not ended yet",
    "moved": "moved to another worker",
}
# A call that runs has an event alone, and no outcome.
_KINDS: Final[Mapping[str, str]] = {words: kind or "begin" for kind, words in _WORDS.items()}


def outcome_in_words(kind: str) -> str:
    """Return the outcome of a call or the name of an event in words: `tool failed` for `tool_error`."""
    return _WORDS.get(kind, kind.replace("_", " "))


def outcome_meant(text: str) -> str:
    """Return the outcome or event that a person has typed, as its name or in the words that the pages show."""
    typed = text.strip().lower()
    return _KINDS.get(typed, typed.replace(" ", "_"))
