"""Usage: calls, errors, latency and bytes in the audit, by tool, profile, user or another field."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from pegboard.audit.audit_row import NO_COSTS, AuditRow
from pegboard.model.budget import MICROS

UsageField = Literal["tool", "profile", "user", "agent", "key", "space", "door"]

_NONE = "(none)"
_NO_ERRORS = ("ok", "")  # a call that runs has no outcome yet


class UsageRow(Struct, frozen=True, kw_only=True):
    """The calls with one value of a field.

    `ran` counts the calls that reached their tool, `errors` all others and those that failed, by kind. The percentiles
    are in seconds, over the calls that ran; `None` if none did. `argument_bytes` and `result_bytes` count the text of
    valid arguments and of results. `costs` has the sum in each unit.
    """

    name: str
    calls: int
    ran: int
    errors: Mapping[str, int]
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    argument_bytes: int
    result_bytes: int
    costs: Mapping[str, float] = NO_COSTS

    @property
    def is_always_refused(self) -> bool:
        """Whether callers wanted this and never got it; a call that waits for a person may still run."""
        return self.ran == 0 and bool(self.errors) and not self.is_awaited

    @property
    def is_awaited(self) -> bool:
        """Whether calls of this were asked for, and none has run yet."""
        return self.ran == 0 and "consent_required" in self.errors


class CountedFields(Protocol):
    """The fields of a call by whose values calls are counted."""

    @property
    def name(self) -> str: ...
    @property
    def tool(self) -> str: ...


class UsageCounter:
    """The running counts of one value."""

    __slots__ = ("_argument_bytes", "_calls", "_costs", "_durations_s", "_errors", "_is_sorted", "_result_bytes")

    def __init__(self) -> None:
        self._calls = self._argument_bytes = self._result_bytes = 0
        self._errors = Counter[str]()
        self._costs = Counter[str]()  # in millionths, so that sums are exact
        self._durations_s: list[float] = []
        self._is_sorted = True

    @property
    def is_empty(self) -> bool:
        return not self._calls

    def add(self, row: AuditRow) -> None:
        """Count a call."""
        ran_s = row.duration_s if row.has_run else None
        self.add_many((row.outcome,), (ran_s,), (row.argument_bytes,), (row.result_bytes,), (row.costs,))

    def add_many(
        self,
        outcomes: Sequence[str],
        ran_s: Sequence[float | None],
        argument_bytes: Sequence[int],
        result_bytes: Sequence[int],
        costs: Sequence[Mapping[str, float]],
    ) -> None:
        """Count many calls at once; `ran_s` has the durations of those that ran."""
        self._calls += len(outcomes)
        self._argument_bytes += sum(argument_bytes)
        self._result_bytes += sum(result_bytes)
        self._errors.update(outcomes)
        for outcome in _NO_ERRORS:
            del self._errors[outcome]
        self._durations_s += [seconds for seconds in ran_s if seconds is not None]
        self._is_sorted = False
        for each in filter(None, costs):
            for unit, amount in each.items():
                self._costs[unit] += round(amount * MICROS)

    def merge(self, other: UsageCounter) -> None:
        """Count the calls of another counter, too."""
        self._calls += other._calls
        self._argument_bytes += other._argument_bytes
        self._result_bytes += other._result_bytes
        self._errors.update(other._errors)
        self._costs.update(other._costs)
        self._durations_s += other._durations_s
        self._is_sorted = False

    def subtract(self, other: UsageCounter) -> None:
        """Leave out the calls of another counter, which were all counted here."""
        self._calls -= other._calls
        self._argument_bytes -= other._argument_bytes
        self._result_bytes -= other._result_bytes
        self._errors -= other._errors
        self._costs -= other._costs
        ordered = self._ordered_s()
        for seconds in other._durations_s:
            del ordered[bisect_left(ordered, seconds)]

    def _ordered_s(self) -> list[float]:
        if not self._is_sorted:
            # Nearly free if few were added since the last time.
            self._durations_s.sort()
            self._is_sorted = True
        return self._durations_s

    def counted(self, name: str) -> UsageRow:
        """Return the counts until now."""
        ordered = self._ordered_s()
        p50, p95, p99 = (_percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        return UsageRow(
            name=name, calls=self._calls, ran=len(ordered), errors=dict(self._errors.most_common()), p50_s=p50,
            p95_s=p95, p99_s=p99, argument_bytes=self._argument_bytes, result_bytes=self._result_bytes,
            costs={unit: amount / MICROS for unit, amount in sorted(self._costs.items())},
        )  # fmt: skip


def usage(rows: Iterable[AuditRow], by: UsageField) -> tuple[UsageRow, list[UsageRow]]:
    """Return the counts of all calls, and those of each value of a field, the most frequent first."""
    whole, parts = UsageCounter(), defaultdict[str, UsageCounter](UsageCounter)
    for row in rows:
        whole.add(row)
        parts[value_of(row, by)].add(row)
    return whole.counted(""), by_frequency(part.counted(name) for name, part in parts.items())


def value_of(row: CountedFields, by: UsageField) -> str:
    """Return the value of a call's field, for grouping."""
    # A hidden or unknown tool has no id; the requested name is what its caller wanted.
    return (row.tool or row.name if by == "tool" else getattr(row, by)) or _NONE


def by_frequency(rows: Iterable[UsageRow]) -> list[UsageRow]:
    """Return the rows in their order: the most frequent first, then by name."""
    return sorted(rows, key=lambda row: (-row.calls, row.name))


class UsageSpan(Struct, frozen=True, kw_only=True):
    """The calls of one span of time, which began at `at`, in seconds since 1970."""

    at: float
    usage: UsageRow


def _percentile(ordered: list[float], share: float) -> float | None:
    """Return the value that this share of the values does not exceed (nearest rank)."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
