"""JSON form: a consent record as the command line and the HTTP API show it."""

from __future__ import annotations

from datetime import UTC, datetime

from pegboard.model.consent import Consent
from pegboard.model.json_types import JSON


def consent_json(consent: Consent) -> JSON:
    """Return one record, limited to fields that the deciding person may see."""
    return {
        "id": consent.id,
        "state": consent.state,
        "tool": consent.tool,
        "definitionHash": consent.definition_hash,
        "argumentsDigest": consent.args_digest,
        "arguments": consent.arguments,
        "matching": consent.matching,
        "question": consent.question,
        "credential": consent.credential,
        "user": consent.user_id,
        "space": consent.space_id,
        "session": consent.session_id,
        "agent": consent.agent,
        "askedAt": _time(consent.asked_at),
        "decidedAt": None if consent.decided_at is None else _time(consent.decided_at),
        "decidedBy": consent.decided_by,
        "expiresAt": _time(consent.expires_at),
        "usesLeft": consent.uses_left,
        "uses": consent.uses,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
