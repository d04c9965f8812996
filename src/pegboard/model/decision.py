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
    """The smallest change that passes one code: what kind, on what, in words."""

    kind: Code
    subject: str
    text: str


class Blocked(NamedTuple):
    """Why a call of a visible tool would be refused now: the error kind that it would get, in words, until when."""

    kind: ErrorKind
    reason: str
    until: datetime | None = None
    """When it may be tried again, in UTC; `None` where that is not known."""

    def as_json(self) -> JSON:
        """Return it in wire form, the time as ISO 8601."""
        until = None if self.until is None else self.until.isoformat(timespec="seconds")
        return {"kind": self.kind, "reason": self.reason, "until": until}


class Decision(NamedTuple):
    """Whether one caller may use one tool now, and why; `next` is the code met once `fix` is applied.

    `blocked` says of a visible tool why a call of it would be refused all the same; what only the arguments or a hook
    decide is not foreseen.
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
        """Whether a call with good arguments would run now."""
        return self.code == "visible" and self.blocked is None
