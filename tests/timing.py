"""timing: limits on time that hold on any machine, idle, busy or slow, and need no setting.

A limit is in seconds of the idle machine where it was set. What takes longer is judged by a piece of work of known
cost, timed at the same moment with the same clock: where that takes three times as long, so may everything else.
"""

import gc
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from time import perf_counter, process_time, thread_time
from types import FrameType
from typing import Any

# What `_work` takes where the limits were set, and how far beyond its limit a step may go there: lines are traced, and
# collections of garbage, caches and neighbours come as they like. What is held off takes a hundred times longer.
WORK_S = 0.02
ROOM = 5
# For what must come at all: the test fails in the end, instead of waiting for ever.
PATIENCE_S = 60.0

CPU = process_time
OF_THREAD = thread_time
Clock = Callable[[], float]
# Seconds between two looks at whether this process may run.
LOOK_S = 0.005


class RunningClock:
    """Seconds in which this process could run; the time for which the machine let it stand still is left out.

    A thread looks at the time again and again. Where much more passes between two looks than was asked for, and no CPU
    was used meanwhile, nothing in this process could run. Waiting for an event counts, since the thread goes on then;
    so does computing, also where it keeps the thread from looking.
    """

    def __init__(self) -> None:
        self._over, self._lock = threading.Event(), threading.Lock()
        self._lost_s = 0.0
        self._looked_at = perf_counter(), process_time()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def __call__(self) -> float:
        with self._lock:
            now, cpu = perf_counter(), process_time()
            passed_s, used_s = now - self._looked_at[0], cpu - self._looked_at[1]
            self._lost_s += max(0.0, passed_s - used_s - 2 * LOOK_S)
            self._looked_at = now, cpu
            return now - self._lost_s

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_S):
            self()


@contextmanager
def running_clock() -> Generator[RunningClock]:
    """Give a clock for limits that are shorter than this process may stand still on a busy machine."""
    clock = RunningClock()
    try:
        yield clock
    finally:
        clock.close()


def _work() -> int:
    texts = sorted((f"{number * 7_919 % 10_007:x}" for number in range(20_000)), reverse=True)
    counts: dict[str, int] = {}
    for text in texts:
        counts[text[:2]] = counts.get(text[:2], 0) + len(text)
    return sum(counts.values())


def compute(seconds: float) -> None:
    """Use so much CPU, in the thread that asks."""
    began = thread_time()
    while thread_time() - began < seconds:
        _work()


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python a piece of work runs: the same number on every machine, idle or busy.

    What one line does in C (a copy of a dict, a sort) counts once, however long it is.
    """
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def pace(clock: Clock = perf_counter) -> float:
    """Return how many times longer than where the limits were set a piece of work takes here and now; at least 1."""
    took: list[float] = []
    for _ in range(5):
        started = clock()
        _work()
        took.append(clock() - started)
    return max(1.0, max(took) / WORK_S)


def is_within(took_s: float, limit_s: float, clock: Clock = perf_counter) -> bool:
    """Tell whether a step kept to its limit, as the machine goes now; give the clock that it was timed with."""
    return took_s < limit_s or took_s < limit_s * ROOM * pace(clock)


@contextmanager
def within(limit_s: float, clock: Clock = perf_counter) -> Iterator[None]:
    """Hold a block to its limit. Garbage of earlier tests is not collected meanwhile, which can take half a second."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        started = clock()
        yield
        took_s = clock() - started
    finally:
        if was_collecting:
            gc.enable()
    assert is_within(took_s, limit_s, clock), f"took {took_s:.3f} s"
