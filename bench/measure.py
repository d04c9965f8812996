"""Measure: processor time of several ways of doing one thing, in alternating short rounds.

Ratios within one interleaved run are the only figures that survive a noisy machine: whatever
disturbs a round disturbs all ways alike. A ratio is taken per round, then the median of them.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Cost = Callable[[], float]
"""Does the work some times and returns the seconds of processor time that one took."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to measure: rounds, and the share of each bench's usual repetitions within a round."""

    rounds: int = 15
    share: float = 1.0

    def times(self, usual: int) -> int:
        return max(1, round(usual * self.share))


THOROUGH = Effort()
BRIEF = Effort(rounds=2, share=0.001)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median and quartiles of one figure."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(low=low, median=median, high=high)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the results: a way of doing something, its cost, and its ratio to the floor.

    `hold` is the ratio that must not be passed, `reach` the one to aim for; both `None` for what stands beside it.
    With `is_time_held` they are seconds.
    """

    what: str
    against: str
    seconds: Spread
    ratio: Spread
    hold: float | None = None
    reach: float | None = None
    is_time_held: bool = False

    @property
    def verdict(self) -> str:
        if self.hold is None:
            return "beside"
        found = (self.seconds if self.is_time_held else self.ratio).median
        if self.reach is not None and found <= self.reach:
            return "PASS, reach met"
        return "PASS" if found <= self.hold else "short"


def interleaved(ways: Mapping[str, Cost], effort: Effort) -> dict[str, list[float]]:
    """Return the seconds of each way in each round, after one round to warm up. Every other round runs backwards."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for cost in ways.values():
        cost()
    for turn in range(effort.rounds):
        for name in list(ways)[:: -1 if turn % 2 else 1]:
            seconds[name].append(ways[name]())
    return seconds


def compared(
    ways: Mapping[str, Cost],
    effort: Effort,
    *,
    floor: str,
    held: Mapping[str, tuple[float, float | None]],
    less: str | None = None,
    is_time_held: bool = False,
) -> list[Row]:
    """Return a row for each way but the floor. `held` has (hold, reach) of ours; `less` is a way to take off."""
    seconds = interleaved(ways, effort)
    if less is not None:
        base = seconds.pop(less)
        seconds = {name: [max(a - b, 1e-9) for a, b in zip(own, base, strict=True)] for name, own in seconds.items()}
    return [
        Row(
            what=name,
            against=floor,
            seconds=Spread.of(own),
            ratio=Spread.of([a / b for a, b in zip(own, seconds[floor], strict=True)]),
            hold=held.get(name, (None, None))[0],
            reach=held.get(name, (None, None))[1],
            is_time_held=is_time_held,
        )
        for name, own in seconds.items()
        if name != floor
    ]


# ---- ways of taking the time -----------------------------------------------------------------------------------------


def looped(work: Callable[[], object], times: int) -> Cost:
    """Return the cost of a plain function."""

    def cost() -> float:
        start = time.process_time()
        for _ in range(times):
            work()
        return (time.process_time() - start) / times

    return cost


def awaited(work: Callable[[], Awaitable[object]], times: int, runner: asyncio.Runner) -> Cost:
    """Return the cost of an async function, called in one task of the runner's loop."""

    async def rounds() -> float:
        start = time.process_time()
        for _ in range(times):
            await work()
        return (time.process_time() - start) / times

    return lambda: runner.run(rounds())


def spawned(start: Callable[[], subprocess.Popen[Any]], times: int = 1) -> Cost:
    """Return the cost of a whole process, user and system; `start` gives one that was not waited for yet.

    Raises:
        RuntimeError: it did not end as it should.
    """

    def once() -> float:
        process = start()
        _, status, usage = os.wait4(process.pid, 0)
        # Told to the Popen object, which else would wait for it a second time.
        process.returncode = code = os.waitstatus_to_exitcode(status)
        # A server is killed once it has answered: what it does on its way out is not the question.
        if code not in (0, -9):
            raise RuntimeError(f"A measured process ended with {code}; run it by hand to see why.")
        return usage.ru_utime + usage.ru_stime

    return lambda: sum(once() for _ in range(times)) / times
