"""Usage: calls, errors, latency and bytes in the audit, by tool, profile, user or another field."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from pegboard.audit.audit_row import AuditRow

UsageField = Literal["tool", "profile", "user", "agent", "key", "space", "door"]

_NONE = "(none)"


class UsageRow(Struct, frozen=True, kw_only=True):
    """The calls with one value of a field.

    `ran` counts the calls that reached their tool, `errors` all others and those that failed, by kind. The percentiles
    are in seconds, over the calls that ran; `None` if none did. `argument_bytes` and `result_bytes` count the text of
    valid arguments and of results.
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

    @property
    def is_always_refused(self) -> bool:
        """Whether callers wanted this and never got it."""
        return self.ran == 0


class _Counted:
    """The running counts of one value."""

    __slots__ = ("argument_bytes", "calls", "durations_s", "errors", "result_bytes")

    def __init__(self) -> None:
        self.calls = self.argument_bytes = self.result_bytes = 0
        self.errors = Counter[str]()
        self.durations_s = array("d")

    def add(self, row: AuditRow) -> None:
        self.calls += 1
        self.argument_bytes += row.argument_bytes
        self.result_bytes += row.result_bytes
        if row.outcome != "ok":
            self.errors[row.outcome] += 1
        if row.has_run:
            self.durations_s.append(row.duration_s)

    def counted(self, name: str) -> UsageRow:
        ordered = sorted(self.durations_s)
        p50, p95, p99 = (_percentile(ordered, share) for share in (0.5, 0.95, 0.99))
        return UsageRow(
            name=name, calls=self.calls, ran=len(ordered), errors=dict(self.errors.most_common()), p50_s=p50,
            p95_s=p95, p99_s=p99, argument_bytes=self.argument_bytes, result_bytes=self.result_bytes,
        )  # fmt: skip


def usage(rows: Iterable[AuditRow], by: UsageField) -> tuple[UsageRow, list[UsageRow]]:
    """Return the counts of all calls, and those of each value of a field, the most frequent first."""
    whole, parts = _Counted(), dict[str, _Counted]()
    for row in rows:
        # A hidden or unknown tool has no id; the requested name is what its caller wanted.
        name = row.tool or row.name if by == "tool" else getattr(row, by)
        whole.add(row)
        parts.setdefault(name or _NONE, _Counted()).add(row)
    counted = [part.counted(name) for name, part in parts.items()]
    return whole.counted(""), sorted(counted, key=lambda one: (-one.calls, one.name))


class UsageSpan(Struct, frozen=True, kw_only=True):
    """The calls of one span of time, which began at `at`, in seconds since 1970."""

    at: float
    usage: UsageRow


class UsageOverTime:
    """Counts calls by spans of time of the same length.

    Args:
        since: the beginning of the first span, in seconds since 1970.
        until: the end of the last one.
        spans: their number.
    """

    def __init__(self, *, since: float, until: float, spans: int) -> None:
        self._since, self._span_s = since, (until - since) / spans
        self._counts = [_Counted() for _ in range(spans)]

    def add(self, row: AuditRow) -> None:
        """Count a call; one outside of all spans is left out."""
        place = math.floor((row.at - self._since) / self._span_s)
        if 0 <= place < len(self._counts):
            self._counts[place].add(row)

    def counted(self) -> list[UsageSpan]:
        """Return all spans in order, also those without calls."""
        return [
            UsageSpan(at=self._since + place * self._span_s, usage=count.counted(""))
            for place, count in enumerate(self._counts)
        ]


def _percentile(ordered: list[float], share: float) -> float | None:
    """Return the value that this share of the values does not exceed (nearest rank)."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
