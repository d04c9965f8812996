"""Pace: when a server that is away is tried again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_FIRST_S = 0.2
_LONGEST_S = 30.0
_FAILURES = 5
_WINDOW_S = 60.0
_STEADY_S = 10.0
_NUDGE_S = 1.0


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
