"""Audit form: the store of the audit, and the parts of a call that it records."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pegboard.config.forms.value_types import ConcealedText, Flag, Form, Maybe, PositiveWhole

AUDIT_KEEP_DAYS = 400


class AuditForm(Form):
    """A record of every call, and of every change that affects which calls are allowed."""

    store: ConcealedText = Field(
        description="Where rows are stored: sqlite:FILE or jsonl:FILE for the processes of one machine, "
        "postgresql://HOST/NAME for several machines."
    )
    bodies: Literal["none", "redacted"] = Field(
        "none", description="Whether rows contain the arguments of calls, without secrets, or only their hash."
    )
    required: Flag = Field(
        False, description="Whether calls of tools that are not read-only are refused while the store does not work."
    )
    keep_days: PositiveWhole = Field(AUDIT_KEEP_DAYS, description="Days until rows are deleted.")
    sign_key: Maybe[ConcealedText] = Field(
        None, description="The secret that signs the end of the record (HMAC-SHA256), such as ${AUDIT_KEY}."
    )
