"""Lint rule: what `pegboard lint` looks for, how much each matters, and what an operator lets pass."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

LintRule: TypeAlias = Literal[
    "no description",
    "weak description",
    "long description",
    "silent parameters",
    "stray words",
    "competing",
    "deep nesting",
    "refused schema",
    "past its end",
    "no such successor",
    "former name taken",
    "idle ignore",
]
LintLevel: TypeAlias = Literal["note", "warning", "error"]
LINT_LEVELS: Final[tuple[LintLevel, ...]] = get_args(LintLevel)
"""From what matters least."""


class LintIgnore(Struct, frozen=True, kw_only=True):
    """Findings that are meant to be so: of which tools, by a glob, by which rule, and why."""

    tool: str
    rule: LintRule
    reason: str

    def fits(self, rule: str, names: Iterable[str]) -> bool:
        """Tell whether it lets pass a finding by `rule` on the tool with these names."""
        return rule == self.rule and any(fnmatchcase(name.casefold(), self.tool.casefold()) for name in names)
