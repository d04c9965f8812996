"""Backoff: when a server that is away is tried again, and how often one that is there is asked for its lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MCP_FIRST_RETRY_S = 0.2  # the first wait before a lost server is tried again; doubled each time
MCP_LONGEST_RETRY_S = 30.0  # and the longest
MCP_BREAKER_FAILURES = 5  # so many failures
MCP_BREAKER_WINDOW_S = 60.0  # within this time, and the longest wait comes at once
MCP_STEADY_S = 10.0  # a connection that lived this long ends the series of failures
MCP_NUDGE_S = 1.0  # between two tries that a call asked for
MCP_SHORTEST_RELIST_S = 0.05  # between two listings while a server says again and again that its lists changed; doubled
MCP_LONGEST_RELIST_S = 5.0  # and the longest


class Backoff:
    """Counts failures: waits of 0.2 s, doubled up to 30 s, and 30 s at once after five failures in a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=MCP_BREAKER_FAILURES)
        self._in_a_row = 0
        self._started_at = float("-inf")
        self.next_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open: five failures in the last minute."""
        return len(self._failures) == MCP_BREAKER_FAILURES and self._clock() - self._failures[0] <= MCP_BREAKER_WINDOW_S

    @property
    def wait_s(self) -> float:
        """Seconds until the next attempt that nobody asks for."""
        return max(0.0, self.next_at - self._clock())

    def started(self) -> None:
        """Take note that an attempt begins."""
        self._started_at = self._clock()

    def failed(self, *, lived_s: float) -> None:
        """Take note that an attempt failed, or a connection ended after `lived_s`."""
        if lived_s >= MCP_STEADY_S:
            self._in_a_row = 0
            self._failures.clear()
        self._failures.append(self._clock())
        wait_s = min(MCP_FIRST_RETRY_S * 2.0 ** min(self._in_a_row, 20), MCP_LONGEST_RETRY_S)
        self._in_a_row += 1
        self.next_at = self._clock() + (MCP_LONGEST_RETRY_S if self.is_open else wait_s)

    def may_try_now(self) -> bool:
        """Tell whether a call may start an attempt at once: the last one began a second ago or earlier."""
        return self._clock() - self._started_at >= MCP_NUDGE_S


class RefreshThrottle:
    """Spaces out what somebody else may cause without end: nothing to wait at first, 5 s where it never stops."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._gap_s = 0.0
        self._last_at = float("-inf")

    def wait_s(self) -> float:
        """Return the seconds to wait before it is done once more; it counts as done then."""
        now = self._clock()
        is_at_rest = now - self._last_at > self._gap_s + 1.0
        self._gap_s = 0.0 if is_at_rest else min(max(2 * self._gap_s, MCP_SHORTEST_RELIST_S), MCP_LONGEST_RELIST_S)
        wait_s = max(0.0, self._last_at + self._gap_s - now)
        self._last_at = now + wait_s
        return wait_s
