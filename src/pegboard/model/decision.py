"""Decision: the judge's answer to whether one caller may use one tool, with the reason."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

from pegboard.model.error import ErrorKind
from pegboard.model.json_types import JSON

Code = Literal[
    "unknown", "internal", "group", "policy", "quarantine", "source", "connection", "factory", "available", "builder",
    "visible",
]  # fmt: skip


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
    fix: Fix | None = None
    """The caller's next step; `as_json` leaves it out, since the decision has it."""

    def as_json(self) -> JSON:
        """Return the decision in wire form, with the time as ISO 8601."""
        until = None if self.until is None else self.until.isoformat(timespec="seconds")
        return {"kind": self.kind, "reason": self.reason, "until": until}


class Decision(NamedTuple):
    """Whether one caller may use one tool now, and why; `next` is the code that remains once `fix` is applied.

    `blocked` explains why a call of a visible tool would still be refused, and `fix` what would change that. Refusals
    that depend on arguments or hooks are not predicted. `asks` marks a visible tool that asks a person before every
    call; it is `callable` while there is an unused approval.

    >>> fix = Fix("group", "write", "include 'write'")
    >>> print(Decision("group", "not in include=['read']; its groups are ['write']", fix, next="visible"))
    hidden (group): not in include=['read']; its groups are ['write']. Fix: include 'write'.
    >>> print(Decision("visible"))
    visible
    """

    code: Code
    reason: str = ""
    fix: Fix | None = None
    next: Code | None = None
    next_reason: str = ""
    blocked: Blocked | None = None
    asks: bool = False

    @property
    def visible(self) -> bool:
        return self.code == "visible"

    @property
    def callable(self) -> bool:
        """Whether a call with valid arguments would run now, without asking a person."""
        return self.code == "visible" and self.blocked is None

    def __str__(self) -> str:
        """Return the decision as a line of text, for `print(view.why("refund"))`."""
        if self.visible and self.blocked is None:
            return "visible"
        if self.blocked is not None:
            text = f"visible, but refused ({self.blocked.kind}): {_sentence(self.blocked.reason)}"
            return text if self.fix is None else f"{text} Fix: {_sentence(self.fix.text)}"
        parts = [f"hidden ({self.code})" + (f": {_sentence(self.reason)}" if self.reason else ".")]
        if self.fix is not None:
            parts.append(f"Fix: {_sentence(self.fix.text)}")
        if self.next not in (None, "visible"):
            parts.append(
                f"After that: hidden ({self.next})" + (f": {_sentence(self.next_reason)}" if self.next_reason else ".")
            )
        return " ".join(parts)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
