"""Lint rule: the rules of `pegboard lint`, their levels, and the exceptions that an operator declares."""

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
"""In ascending order of severity."""


class LintIgnore(Struct, frozen=True, kw_only=True):
    """Findings that are intended: the tools (a glob), the rule and the reason."""

    tool: str
    rule: LintRule
    reason: str

    def fits(self, rule: str, names: Iterable[str]) -> bool:
        """Tell whether it permits a finding by `rule` on the tool with these names."""
        return rule == self.rule and any(fnmatchcase(name.casefold(), self.tool.casefold()) for name in names)
