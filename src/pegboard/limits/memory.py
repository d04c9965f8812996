"""Memory: the exact moving window of accepted calls, in this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.rate_limit import RateLimit

Key = tuple[str | None, ...]


class MemoryLimitStore:
    """Counts accepted calls in moving windows: in any window at most `max_calls`, exactly.

    The window is half-open: a call exactly `window_s` old no longer counts. At most `max_keys`
    callers and tools are remembered; when all of them are in use, a new one is refused for a window, or, where the
    store `forgets`, the one known longest is forgotten. Fills the port `LocalLimitStore`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = DEFAULT_BOUNDS.ratelimit_keys,
        forgets: bool = False,
    ) -> None:
        self._clock, self.max_keys, self._forgets = clock, max_keys, forgets
        # Per key: its window, and the times of its hits, oldest first.
        self._hits: dict[Key, tuple[float, deque[float]]] = {}
        self._swept = float("-inf")
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._hits)

    def wait_s(self, hits: Sequence[tuple[Key, RateLimit]], *, charge: bool) -> float | None:
        """Return seconds until one more call fits all windows, 0.0 if now, `None` if never; see `ports.LimitStore`."""
        with self._lock:
            now, longest = self._clock(), 0.0
            charged: list[deque[float]] = []
            for key, limit in hits:
                window_s, max_calls, known = limit.window_s, limit.max_calls, self._hits.get(key)
                if max_calls == 0:
                    return None
                if known is None:
                    if len(self._hits) >= self.max_keys and not self._sweep(now):
                        if not self._forgets:
                            longest = max(longest, window_s)
                            continue
                        if charge:
                            del self._hits[next(iter(self._hits))]
                    known = (window_s, deque[float]())
                    if charge:
                        self._hits[key] = known
                times = known[1]
                while times and now - times[0] >= window_s:
                    times.popleft()
                if len(times) >= max_calls:
                    longest = max(longest, window_s - (now - times[-max_calls]))
                charged.append(times)
            if charge and longest == 0.0:
                for times in charged:
                    times.append(now)
            return longest

    def _sweep(self, now: float) -> bool:
        """Forget the keys whose hits no longer count, at most once a second; tell whether there is room now."""
        if now - self._swept >= 1.0:
            self._swept = now
            self._hits = {k: v for k, v in self._hits.items() if v[1] and now - v[1][-1] < v[0]}
        return len(self._hits) < self.max_keys
