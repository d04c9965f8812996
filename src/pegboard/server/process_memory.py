"""Process memory: exempts loaded objects from garbage collection, and returns memory after a peak."""

from __future__ import annotations

import ctypes  # noqa: TID251 - one function of the C library, without arguments from anywhere
import gc
import sys
import time
from collections.abc import Callable, Mapping

COLLECTOR_PAUSE_S = 0.025  # seconds; a full collection that held the loop for longer freezes the survivors
COLLECTOR_ASIDE_S = 60.0  # seconds until a full collection includes frozen objects again


_OLDEST = 2  # the number of the full collection's generation in CPython's callbacks


class Collector:
    """The garbage collector of a server, tuned not to stop the event loop.

    A full collection visits every live object, which holds the loop for most of a second with ten thousand open calls.
    After a slow one the survivors are frozen, so that the next visits only new objects. Reference counting still frees
    frozen objects; only cycles among them wait, for a minute at most or until the peak is over.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_at = self._whole_at = clock()
        self._has_set_aside = False

    def begin(self) -> None:
        """Freeze the loaded objects, which stay, and watch collections from now on."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        """Stop watching."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def give_back(self) -> None:
        """Free cycles, and return free memory to the system if the C library (glibc) can do that."""
        self._look_at_all()
        gc.collect()
        trim = None if sys.platform == "win32" else getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] < _OLDEST:
            return
        now = self._clock()
        if phase == "start":
            self._began_at = now
            if now - self._whole_at >= COLLECTOR_ASIDE_S:
                self._look_at_all()
        elif now - self._began_at > COLLECTOR_PAUSE_S:
            gc.freeze()
            self._has_set_aside = True

    def _look_at_all(self) -> None:
        """Let the next collection include the frozen objects."""
        self._whole_at = self._clock()
        if self._has_set_aside:
            gc.unfreeze()
            self._has_set_aside = False
