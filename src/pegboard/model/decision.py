"""Decision: whether one caller may use one tool, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

Code = Literal[
    "unknown", "internal", "group", "policy", "quarantine", "source", "factory", "available", "builder", "visible"
]


class Fix(NamedTuple):
    """The smallest change that passes one code: what kind, on what, in words."""

    kind: Code
    subject: str
    text: str


class Decision(NamedTuple):
    """Whether one caller may use one tool now, and why; `next` is the code met once `fix` is applied."""

    code: Code
    reason: str = ""
    fix: Fix | None = None
    next: Code | None = None
    next_reason: str = ""

    @property
    def visible(self) -> bool:
        return self.code == "visible"
