"""CallMetrics: count and time the calls of a catalog as they end; fills the port `Telemetry`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

LIMITS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
UNKNOWN = "(unknown)"
OTHER = "(other)"
_MAX_TOOLS = 5_000


@dataclass(kw_only=True, slots=True)
class ToolMetrics:
    """The calls of one tool: how many ended in which way, and how long they took, by `LIMITS_S`."""

    ends: dict[str, int] = field(default_factory=dict[str, int])
    within: list[int] = field(default_factory=lambda: [0] * (len(LIMITS_S) + 1))
    total_s: float = 0.0


class CallMetrics:
    """Counts finished calls by tool. Names that no tool has are counted as one, so that no caller can make it grow.

    Args:
        is_tool: tells whether there is a tool of a name.
    """

    def __init__(self, is_tool: Callable[[str], bool]) -> None:
        self.by_tool: dict[str, ToolMetrics] = {}
        self._is_tool = is_tool

    def finished(self, *, tool: str, kind: str, duration_s: float) -> None:
        """Count one call."""
        metrics = self.by_tool.get(tool) or self._metrics_of(tool, kind)
        metrics.ends[kind] = metrics.ends.get(kind, 0) + 1
        metrics.within[bisect_left(LIMITS_S, duration_s)] += 1
        metrics.total_s += duration_s

    def _metrics_of(self, tool: str, kind: str) -> ToolMetrics:
        # What a bundle builds is no tool of the catalog by itself, but it ran.
        name = tool if kind == "ok" or self._is_tool(tool) else UNKNOWN
        if len(self.by_tool) >= _MAX_TOOLS:
            name = OTHER
        return self.by_tool.setdefault(name, ToolMetrics())
