"""Process memory: what is loaded and open is not looked at again and again, and what a crowd took is given back."""

from __future__ import annotations

import ctypes  # noqa: TID251 - one function of the C library, without arguments from anywhere
import gc
import sys
import time
from collections.abc import Callable, Mapping

COLLECTOR_PAUSE_S = 0.025  # a full collection that held the loop for longer sets aside what it found alive
COLLECTOR_ASIDE_S = 60.0  # and after this, another one looks at all of it


_OLDEST = 2  # the generation that a full collection has in what CPython says of it


class Collector:
    """The garbage collector of a server, kept from stopping its loop.

    A full collection looks at all that lives, which holds the loop for most of a second with ten thousand calls open.
    What a long one found alive is set aside, so that the next looks at what is new alone. Reference counts free it all
    the same; only circles among it wait, for a minute at most or until the crowd has gone.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_at = self._whole_at = clock()
        self._has_set_aside = False

    def begin(self) -> None:
        """Set aside what is loaded by now, which stays, and watch from now on."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._on_collection)

    def end(self) -> None:
        """Watch no more."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def give_back(self) -> None:
        """Free what only circles hold, and give free memory to the system, where the C library (glibc's) has a way."""
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
        """Let the collection that follows look at what was set aside, too."""
        self._whole_at = self._clock()
        if self._has_set_aside:
            gc.unfreeze()
            self._has_set_aside = False
