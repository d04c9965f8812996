"""Shown time: times for people: how long ago, and how long something took."""

from __future__ import annotations

_STEPS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def ago(at: float, now: float) -> str:
    """Return how long ago a time was, in its largest unit: `3 minutes ago`."""
    passed_s = max(now - at, 0.0)
    for seconds, unit in _STEPS:
        count = int(passed_s // seconds)
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def took(seconds: float) -> str:
    """Return a duration with three digits at most: `12 ms`, `1.25 s`."""
    if seconds >= 60.0:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds >= 1.0:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.0f} µs"
