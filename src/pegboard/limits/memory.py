"""Memory: the exact moving window of accepted calls, in this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from pegboard.core.after_fork import renew_after_fork
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.rate_limit import RateLimit

Key = tuple[str | None, ...]
Window = tuple[float, deque[float]]
"""(length in seconds, times of accepted calls, oldest first)"""


class MemoryLimitStore:
    """Counts accepted calls in moving windows: at most `max_calls` in any window, exactly.

    The window is half-open: a call exactly `window_s` old no longer counts. At most `max_keys` pairs of caller and tool
    are remembered. When all are in use, a new one is refused for a window, or, if the store `forgets`, replaces the
    oldest one. Implements the port `LocalLimitStore`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = DEFAULT_BOUNDS.ratelimit_keys,
        forgets: bool = False,
    ) -> None:
        self._clock, self.max_keys, self._forgets = clock, max_keys, forgets
        self._windows: dict[Key, Window] = {}
        self._swept = float("-inf")
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Replace the lock that a thread of the parent may hold; counts stay."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._windows)

    def wait_s(self, hits: Sequence[tuple[Key, RateLimit]], *, charge: bool) -> float | None:
        """Return seconds until one more call fits all windows, 0.0 if now, `None` if never; see `ports.LimitStore`."""
        with self._lock:
            now, wait_s = self._clock(), 0.0
            counted: list[deque[float]] = []
            for key, limit in hits:
                window_s, max_calls = limit.window_s, limit.max_calls
                if max_calls == 0:
                    return None
                window = self._windows.get(key) or self._new_window(key, window_s, now, keep=charge)
                if window is None:
                    wait_s = max(wait_s, window_s)
                    continue
                accepted_at = window[1]
                while accepted_at and now - accepted_at[0] >= window_s:
                    accepted_at.popleft()
                if len(accepted_at) >= max_calls:
                    wait_s = max(wait_s, window_s - (now - accepted_at[-max_calls]))
                counted.append(accepted_at)
            if charge and wait_s == 0.0:
                for accepted_at in counted:
                    accepted_at.append(now)
            return wait_s

    def _new_window(self, key: Key, window_s: float, now: float, *, keep: bool) -> Window | None:
        """Return an empty window for a key without one; `None` if there is no room for another key."""
        if len(self._windows) >= self.max_keys and not self._sweep(now):
            if not self._forgets:
                return None
            if keep:
                del self._windows[next(iter(self._windows))]
        window = (window_s, deque[float]())
        if keep:
            self._windows[key] = window
        return window

    def _sweep(self, now: float) -> bool:
        """Forget the keys whose calls no longer count, at most once a second; tell whether there is room now."""
        if now - self._swept >= 1.0:
            self._swept = now
            self._windows = {
                key: (window_s, accepted_at)
                for key, (window_s, accepted_at) in self._windows.items()
                if accepted_at and now - accepted_at[-1] < window_s
            }
        return len(self._windows) < self.max_keys
