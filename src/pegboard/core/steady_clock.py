"""Steady clock: the wall clock of a process for everything that expires. Its time never goes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

CLOCK_BACK_S = 60.0  # how far the machine's clock must fall behind before that is logged, in seconds
CLOCK_FORWARD_S = 60.0  # how far it must jump ahead before that is logged, in seconds
CLOCK_TOLD_S = 600.0  # how long a clock that was set forward counts as a fault, in seconds
_STEP_S = 1.0  # smaller steps forward are corrections of the system's

log = logging.getLogger("pegboard")


class SteadyClock:
    """Returns seconds since 1970, by the latest setting of the machine's clock that this process has seen.

    If the machine's clock is set forward, so is this one, and a jump is logged. If it is set back, this one continues
    from where it was, at the pace of the monotonic clock, so that an expired right stays expired. Only a new process
    accepts an earlier time.

    Args:
        wall_clock: the machine's clock, in seconds since 1970.
        monotonic_clock: seconds, not counting those when the machine was suspended.
        boot_clock: the same with them, which tells a suspend from a clock that was set; `None` if there is none.
    """

    __slots__ = (
        "_boot_clock", "_forward_at", "_forward_s", "_is_logged", "_monotonic_clock", "_started_at", "_suspended_s",
        "_wall_clock",
    )  # fmt: skip

    def __init__(
        self,
        wall_clock: Callable[[], float] = time.time,
        *,
        monotonic_clock: Callable[[], float] = time.monotonic,
        boot_clock: Callable[[], float] | None = None,
    ) -> None:
        self._wall_clock, self._monotonic_clock, self._boot_clock = wall_clock, monotonic_clock, boot_clock
        self._suspended_s = 0.0 if boot_clock is None else boot_clock() - monotonic_clock()
        self._forward_s, self._forward_at = 0.0, 0.0
        self._started_at = wall_clock() - monotonic_clock()
        """The wall-clock time when the monotonic clock was 0, by the latest setting of the wall clock."""
        self._is_logged = False

    @property
    def behind_s(self) -> float:
        """How far the machine's clock is behind this one, in seconds."""
        return max(0.0, self() - self._wall_clock())

    async def check(self) -> None:
        """Check that the machine's clock was not set back, nor forward within the last minutes.

        Raises:
            OSError: it was.
        """
        if self.behind_s > CLOCK_BACK_S:
            raise OSError(f"the clock of this machine was set back by {self.behind_s:.0f} s")
        if self._forward_s and self._monotonic_clock() - self._forward_at < CLOCK_TOLD_S:
            raise OSError(f"the clock of this machine was set forward by {self._forward_s:.0f} s")

    def __call__(self) -> float:
        # The wall clock first: a pause between the two readings then makes the result earlier, and is not kept.
        wall = self._wall_clock()
        elapsed_s = self._monotonic_clock()
        behind_s = self._started_at - (wall - elapsed_s)
        if behind_s < 0.0:
            if behind_s < -CLOCK_FORWARD_S:
                log.warning(
                    "The clock of this machine went forward by %.0f s more than time has passed. Keys, tokens, "
                    "sessions and consents that ended within that time are expired. After a suspend this is right. "
                    "If the earlier time is right, set the clock back and restart this process.",
                    -behind_s,
                )
            if behind_s < -_STEP_S and self._boot_clock is not None:
                self._note_step(-behind_s, elapsed_s, self._boot_clock() - elapsed_s)
            self._started_at = wall - elapsed_s
            self._is_logged = False
        elif behind_s > CLOCK_BACK_S and not self._is_logged:
            self._is_logged = True
            log.error(
                "The clock of this machine was set back by %.0f s. So that expired keys, tokens, sessions and consents "
                "stay expired, this process continues from the later time. If the earlier time is right, restart it.",
                behind_s,
            )
        return self._started_at + elapsed_s

    def _note_step(self, step_s: float, now_s: float, suspended_s: float) -> None:
        """Note that the clock was set forward, unless the machine was suspended for that long."""
        if step_s - (suspended_s - self._suspended_s) > CLOCK_FORWARD_S:
            self._forward_s, self._forward_at = step_s, now_s
        self._suspended_s = suspended_s


# On Linux alone.
_boot_clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else None
steady_time: Final = SteadyClock(boot_clock=_boot_clock)
"""The clock of this process; the default of every clock that decides whether something has expired."""
