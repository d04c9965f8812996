"""Decision record: the audit row of a person's decision about calls."""

from __future__ import annotations

from typing import Literal

from pegboard.core.digests import digest
from pegboard.core.ports import AuditEvent
from pegboard.model.consent import Consent
from pegboard.model.json_types import JSON

Decision = Literal["approved", "denied", "granted", "forgotten"]


def decision_record(consent: Consent, decision: Decision) -> tuple[AuditEvent, JSON]:
    """Return the event and its detail: the caller and the tool, never the arguments.

    A call whose arguments a person edited has two digests: of those that its caller sent, and of those that run.
    """
    event: AuditEvent = "consent_decided"
    if decision in ("granted", "forgotten"):
        event = "grant_given" if decision == "granted" else "consent_forgotten"
    detail: JSON = {
        "decision": decision, "consent_id": consent.id, "tool": consent.tool, "definition": consent.definition_hash,
        "user": consent.user_id or "", "space": consent.space_id or "", "credential": consent.credential or "",
        "arguments_digest": consent.args_digest or "", "edited_by": consent.edited_by or "",
        "edited_digest": "" if consent.edited is None else digest(dict(consent.edited)),
        "reason": consent.decline_reason or "", "progress": consent.progress, "calls": consent.uses,
        "expires_at": consent.expires_at,
    }  # fmt: skip
    return event, {name: value for name, value in detail.items() if value not in ("", 0)}
