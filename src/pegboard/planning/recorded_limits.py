"""Recorded limits: decide from recorded times which calls a rate limit would have refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from pegboard.core.call.limit_keys import Hits, Key
from pegboard.model.rate_limit import RateLimit

# The record has the time of a call's start and of its stages; the limit store looked at its own clock a moment later.
CLOCK_SLACK_S = 0.05  # how far a recorded time may differ from that of the limit store, in seconds


class TimedCall(NamedTuple):
    """A call that would reach its rate limits at `at`, in seconds since 1970, and what the limits decided then."""

    at: float
    number: int
    hits: Hits
    then: Literal["passed", "limited", "unknown"]


class LimitedCall(NamedTuple):
    """A call, and the window that would refuse it, if any. `is_known` is false if older calls may be missing."""

    number: int
    refused_by: tuple[Key, RateLimit] | None
    is_known: bool


def limited(calls: Iterable[TimedCall]) -> Iterator[LimitedCall]:
    """Yield the decision for each call, in the order of time. Refused calls are not counted, as at run time.

    Where a call is so close to the end of a window that the clocks decide, it is judged as it was then.
    """
    counted: dict[Key, deque[float]] = {}
    began: float | None = None
    for call in sorted(calls, key=lambda timed: (timed.at, timed.number)):
        began = call.at if began is None else began
        refusing = next((hit for hit in call.hits if _is_full(counted.get(hit[0]), hit[1], call)), None)
        longest_s = max(limit.window_s for _, limit in call.hits)
        is_known = refusing is not None or call.then != "limited" or call.at - longest_s >= began
        yield LimitedCall(call.number, refusing, is_known)
        if refusing is None:
            for key, limit in call.hits:
                times = counted.setdefault(key, deque(maxlen=limit.max_calls))
                times.append(call.at)


def _is_full(times: deque[float] | None, limit: RateLimit, call: TimedCall) -> bool:
    if limit.max_calls == 0:
        return True
    if times is None or len(times) < limit.max_calls:
        return False
    slack_s = {"passed": -CLOCK_SLACK_S, "limited": CLOCK_SLACK_S, "unknown": 0.0}[call.then]
    # The oldest of the last `max_calls` decides.
    return call.at - times[0] < limit.window_s + slack_s
