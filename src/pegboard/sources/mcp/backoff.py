"""Pace: when a server that is away is tried again, and how often one that is there is asked for its lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_FIRST_S = 0.2
_LONGEST_S = 30.0
_FAILURES = 5
_WINDOW_S = 60.0
_STEADY_S = 10.0
_NUDGE_S = 1.0
_SHORTEST_GAP_S = 0.05
_LONGEST_GAP_S = 5.0


class Pace:
    """Counts failures: waits of 0.2 s, doubled up to 30 s, and 30 s at once after five failures in a minute."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=_FAILURES)
        self._in_a_row = 0
        self._started_at = float("-inf")
        self.next_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open: five failures in the last minute."""
        return len(self._failures) == _FAILURES and self._clock() - self._failures[0] <= _WINDOW_S

    @property
    def wait_s(self) -> float:
        """Seconds until the next attempt that nobody asks for."""
        return max(0.0, self.next_at - self._clock())

    def starts(self) -> None:
        """Take note that an attempt begins."""
        self._started_at = self._clock()

    def failed(self, *, lived_s: float) -> None:
        """Take note that an attempt failed, or a connection ended after `lived_s`."""
        if lived_s >= _STEADY_S:
            self._in_a_row = 0
            self._failures.clear()
        self._failures.append(self._clock())
        wait_s = min(_FIRST_S * 2.0 ** min(self._in_a_row, 20), _LONGEST_S)
        self._in_a_row += 1
        self.next_at = self._clock() + (_LONGEST_S if self.is_open else wait_s)

    def may_nudge(self) -> bool:
        """Tell whether a call may start an attempt at once: the last one began a second ago or earlier."""
        return self._clock() - self._started_at >= _NUDGE_S


class Spacing:
    """Spaces out what somebody else may cause without end: nothing to wait at first, 5 s where it never stops."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._gap_s = 0.0
        self._last_at = float("-inf")

    def wait_s(self) -> float:
        """Return the seconds to wait before it is done once more; it counts as done then."""
        now = self._clock()
        is_at_rest = now - self._last_at > self._gap_s + 1.0
        self._gap_s = 0.0 if is_at_rest else min(max(2 * self._gap_s, _SHORTEST_GAP_S), _LONGEST_GAP_S)
        wait_s = max(0.0, self._last_at + self._gap_s - now)
        self._last_at = now + wait_s
        return wait_s
