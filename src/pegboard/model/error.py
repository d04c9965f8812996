"""Error: one tree for three audiences (developer, model, log)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import msgspec
from msgspec import Struct

ErrorKind = Literal[
    "not_found", "invalid_arguments", "rate_limited", "ratelimit_unavailable",
    "consent_required", "consent_declined", "consent_expired", "consent_mismatch",
    "hook_refused", "timeout", "cancelled", "busy", "budget_exceeded", "recursion_limit",
    "upstream_unavailable", "upstream_lost", "upstream_error", "upstream_auth", "protocol_error",
    "blocked_destination", "result_too_large", "output_invalid", "template_error", "read_only",
    "schema_too_complex", "needs_review", "storage_unavailable", "audit_unavailable",
    "shutting_down", "tool_error", "config_invalid", "connection_required",
]  # fmt: skip
ERROR_KINDS: frozenset[str] = frozenset(get_args(ErrorKind))

# Waiting or an unchanged retry may help with these kinds; the others need a change.
_RETRYABLE: frozenset[str] = frozenset({
    "rate_limited", "ratelimit_unavailable", "timeout", "busy", "upstream_unavailable",
    "upstream_lost", "storage_unavailable", "audit_unavailable", "shutting_down",
})  # fmt: skip


class ToolError(Struct, frozen=True, kw_only=True):
    """Why a call failed, safe to show the model.

    `message` says what failed and what to do next; `details` is JSON (for `invalid_arguments`:
    `{"problems": [{"path", "rule", "message", "value"}]}`). `outcome_unknown` means that the
    action may have happened although no result came back.
    """

    kind: ErrorKind
    message: str
    hint: str = ""
    retryable: bool = False
    retry_after_s: float | None = None
    outcome_unknown: bool = False
    details: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])


class PegboardError(Exception):
    """Base of every error that Pegboard raises on purpose."""


class CallError(PegboardError):
    """One guarded call failed. Raise it in a handler to choose the kind the caller sees.

    Raises:
        ValueError: `kind` is not one of the closed set.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        hint: str = "",
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        outcome_unknown: bool = False,
        details: Mapping[str, object] | None = None,
    ) -> None:
        if kind not in ERROR_KINDS:
            raise ValueError(f"{kind!r} is not an error kind; the kinds are: {', '.join(sorted(ERROR_KINDS))}.")
        super().__init__(message)
        self.error = ToolError(
            kind=kind,
            message=message,
            hint=hint,
            retryable=kind in _RETRYABLE if retryable is None else retryable,
            retry_after_s=retry_after_s,
            outcome_unknown=outcome_unknown,
            details=details or {},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One fault of a declaration: its location (`file:line:column` or `module:line`), the fault and the correction."""

    message: str
    where: str = ""
    path: str = ""
    source: str = field(default="", compare=False, repr=False)
    source_column: int = field(default=0, compare=False, repr=False)
    """The line of the config that has the fault, if it may be shown, and the column in it, from 1."""
    variable: str = field(default="", compare=False)
    """The environment variable that is not set, if that is the fault."""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.path, self.message) if part)


class DefinitionError(PegboardError):
    """A declaration is invalid. `problems` has all its faults, in file order."""

    def __init__(self, problems: str | Problem | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(message=problems)
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class DuplicateToolError(DefinitionError):
    """Two declarations have the same qualified id; the message names both origins."""

    def __init__(self, qualified_id: str, *, first: str, second: str) -> None:
        super().__init__(
            f"Tool {qualified_id!r} is declared twice: at {first} and at {second}. "
            "Rename one, or pass replace=True to take the later one."
        )


class NoFactoryError(PegboardError, KeyError):
    """The host supplied no factory of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no factory {name!r} in the context")

    def __str__(self) -> str:
        # KeyError would put quotes around it.
        return self.args[0]


class AsyncPredicateError(PegboardError):
    """A synchronous method met an async predicate that has not been awaited in this context."""

    def __init__(self, predicate: str) -> None:
        super().__init__(
            f"Predicate {predicate!r} is async and not answered yet in this context: "
            "use `await catalog.aview(ctx, …)`, which answers such predicates first."
        )
