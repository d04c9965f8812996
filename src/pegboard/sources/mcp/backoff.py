"""Backoff: the waits before reconnecting to a server, and between two listings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

MCP_FIRST_RETRY_S = 0.2  # seconds before the first reconnection; doubled after each failure
MCP_LONGEST_RETRY_S = 30.0  # the longest wait, in seconds
MCP_BREAKER_FAILURES = 5  # failures within the window until the longest wait applies
MCP_BREAKER_WINDOW_S = 60.0  # seconds of that window
MCP_STEADY_S = 10.0  # seconds until a connection counts as stable and ends the series of failures
MCP_NUDGE_S = 1.0  # seconds between two attempts that calls trigger
MCP_SHORTEST_RELIST_S = 0.05  # seconds between two listings while a server keeps announcing changes; doubled each time
MCP_LONGEST_RELIST_S = 5.0  # the longest wait between them, in seconds


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
        """Seconds until the next automatic attempt."""
        return max(0.0, self.next_at - self._clock())

    def started(self) -> None:
        """Record that an attempt begins."""
        self._started_at = self._clock()

    def failed(self, *, lived_s: float) -> None:
        """Record that an attempt failed, or that a connection ended after `lived_s`."""
        if lived_s >= MCP_STEADY_S:
            self._in_a_row = 0
            self._failures.clear()
        self._failures.append(self._clock())
        wait_s = min(MCP_FIRST_RETRY_S * 2.0 ** min(self._in_a_row, 20), MCP_LONGEST_RETRY_S)
        self._in_a_row += 1
        self.next_at = self._clock() + (MCP_LONGEST_RETRY_S if self.is_open else wait_s)

    def returned(self) -> None:
        """Let the next attempt be now: the server was away, and accepts connections again.

        The failures still count: a server that comes and goes does not get five quick attempts each time.
        """
        self.next_at = self._clock()

    def may_try_now(self) -> bool:
        """Tell whether a call may trigger an attempt now: the last one began at least a second ago."""
        return self._clock() - self._started_at >= MCP_NUDGE_S


class RefreshThrottle:
    """Spaces out an action that others may trigger without end: no wait at first, up to 5 s if it never stops."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._gap_s = 0.0
        self._last_at = float("-inf")

    def wait_s(self) -> float:
        """Return the seconds to wait before the next time, and record it."""
        now = self._clock()
        is_at_rest = now - self._last_at > self._gap_s + 1.0
        self._gap_s = 0.0 if is_at_rest else min(max(2 * self._gap_s, MCP_SHORTEST_RELIST_S), MCP_LONGEST_RELIST_S)
        wait_s = max(0.0, self._last_at + self._gap_s - now)
        self._last_at = now + wait_s
        return wait_s
