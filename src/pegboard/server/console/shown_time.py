"""Shown time: times for people: how long ago, and how long something took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_STEPS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


class Stage(NamedTuple):
    """A stage of a call: its name, its time in words, and its share of the call in hundredths."""

    name: str
    time: str
    share: int


def stages_of(stage_s: Mapping[str, float]) -> list[Stage]:
    """Return the stages of a call from their seconds, by name."""
    whole = max(sum(stage_s.values()), 1e-9)
    return [Stage(name, took(spent), round(100 * spent / whole)) for name, spent in stage_s.items()]


def ago(at: float, now: float) -> str:
    """Return how long ago a time was, in its largest unit: `3 minutes ago`."""
    passed_s = now - at
    return f"{_largest(passed_s)} ago" if passed_s >= 1.0 else "just now"


def until(at: float, now: float) -> str:
    """Return how long it is until a time: `in 3 minutes`; `expired 3 minutes ago` if it has passed."""
    return f"in {_largest(at - now)}" if at > now else f"expired {ago(at, now)}"


def _largest(span_s: float) -> str:
    """Return a span of time in its largest unit."""
    for seconds, unit in _STEPS:
        count = int(span_s // seconds)
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "a moment"


def took(seconds: float) -> str:
    """Return a duration with three digits at most: `12 ms`, `1.25 s`."""
    if seconds >= 60.0:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if round(seconds, 3) >= 1.0:
        return f"{seconds:.3g} s"
    # Rounded first, so that 999.9 ms are `1 s`, and not `1e+03 ms`.
    return f"{seconds * 1e3:.3g} ms" if round(seconds, 6) >= 1e-3 else f"{seconds * 1e6:.0f} µs"
