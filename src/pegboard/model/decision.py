"""Decision: whether one caller may use one tool, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON

Code = Literal[
    "unknown", "internal", "group", "policy", "quarantine", "source", "factory", "available", "builder", "visible"
]


class Fix(NamedTuple):
    """The smallest change that resolves one code: its kind, its target and a description."""

    kind: Code
    subject: str
    text: str


class Blocked(NamedTuple):
    """Why a call of a visible tool would be refused now: its error kind, an explanation, and the end of the refusal."""

    kind: ErrorKind
    reason: str
    until: datetime | None = None
    """When the call may be retried, in UTC; `None` if unknown."""

    def as_json(self) -> JSON:
        """Return the decision in wire form, with the time as ISO 8601."""
        until = None if self.until is None else self.until.isoformat(timespec="seconds")
        return {"kind": self.kind, "reason": self.reason, "until": until}


class Decision(NamedTuple):
    """Whether one caller may use one tool now, and why; `next` is the code that remains once `fix` is applied.

    `blocked` explains why a call of a visible tool would still be refused. Refusals that depend on arguments or hooks
    are not predicted.
    """

    code: Code
    reason: str = ""
    fix: Fix | None = None
    next: Code | None = None
    next_reason: str = ""
    blocked: Blocked | None = None

    @property
    def visible(self) -> bool:
        return self.code == "visible"

    @property
    def callable(self) -> bool:
        """Whether a call with valid arguments would run now."""
        return self.code == "visible" and self.blocked is None
