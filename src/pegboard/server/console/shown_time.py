"""Shown time: times for people: how long ago, and how long something took."""

from __future__ import annotations

_STEPS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


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
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.0f} µs"
