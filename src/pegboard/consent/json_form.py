"""JSON form: a consent record as the command line and the HTTP API show it."""

from __future__ import annotations

from datetime import UTC, datetime

from pegboard.consent.grant_scope import open_arguments, scope_text
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
        "approvalsNeeded": consent.approvals_needed,
        "approvers": list(consent.approvers),
        "edited": consent.edited,
        "editedBy": consent.edited_by,
        "declineReason": consent.decline_reason,
        "parameters": None if consent.parameters is None else list(consent.parameters.names),
        **_scope(consent),
    }


def _scope(consent: Consent) -> JSON:
    """Return the open arguments of a grant: their names, or all that it does not name, and the same in words."""
    if consent.matching is None:
        return {"any": None, "anyOther": None, "scope": None}
    opened = open_arguments(consent.matching)
    return {"any": opened or [], "anyOther": opened is None, "scope": scope_text(consent.matching, max_chars=None)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
