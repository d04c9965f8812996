"""Call metrics: count and time the calls of a catalog as they end."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from pegboard.core.call.finished_call import FinishedCall, StartedCall
from pegboard.model.json_types import JSON

COUNTED_TOOLS = 5_000  # tools with their own metrics

# fmt: off
LIMITS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)
# fmt: on
UNKNOWN = "(unknown)"
OTHER = "(other)"


@dataclass(kw_only=True, slots=True)
class ToolMetrics:
    """The calls of one tool: the number of each outcome, and their durations in the buckets of `LIMITS_S`."""

    ends: dict[str, int] = field(default_factory=dict[str, int])
    within: list[int] = field(default_factory=lambda: [0] * (len(LIMITS_S) + 1))
    total_s: float = 0.0


class CallMetrics:
    """Counts finished calls by tool. Unknown names share one counter, so that callers cannot make it grow.

    A `CallObserver`, from `Executor.record` on.
    """

    times_stages = False

    def __init__(self) -> None:
        self.by_tool: dict[str, ToolMetrics] = {}

    def started(self, call: StartedCall) -> None:
        """Do nothing: a call is counted when it ends."""

    def finished(self, call: FinishedCall) -> None:
        """Count one call."""
        metrics = self.by_tool.get(call.tool) or self.by_tool.setdefault(self.counted_name(call), ToolMetrics())
        metrics.ends[call.kind] = metrics.ends.get(call.kind, 0) + 1
        metrics.within[bisect_left(LIMITS_S, call.duration_s)] += 1
        metrics.total_s += call.duration_s

    def counted_name(self, call: FinishedCall) -> str:
        """Return the name for counting a call: that of its tool, or a name that several share."""
        if call.tool in self.by_tool:
            return call.tool
        if len(self.by_tool) >= COUNTED_TOOLS:
            return OTHER
        is_tool = call.qualified_id or (call.decision is not None and call.decision.code != "unknown")
        return call.tool if is_tool else UNKNOWN

    def counters(self) -> JSON:
        """Return the counters, for another process to add."""
        return {tool: [counts.ends, counts.within, counts.total_s] for tool, counts in self.by_tool.items()}

    def add(self, counters: JSON) -> None:
        """Add the counters of another process."""
        for tool, (ends, within, total_s) in counters.items():
            metrics = self.by_tool.setdefault(tool, ToolMetrics())
            for kind, count in ends.items():
                metrics.ends[kind] = metrics.ends.get(kind, 0) + count
            metrics.within = [ours + theirs for ours, theirs in zip(metrics.within, within, strict=True)]
            metrics.total_s += total_s
