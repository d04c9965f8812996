"""Sizes: with how many examples a property is tried, few beside everything else and many in `make soak`."""

import os

FACTOR = 10.0 if os.environ.get("PEGBOARD_SOAK") else 0.2


def examples(count: int) -> int:
    """Return a fifth of the count, or ten times as many in `make soak`; what is few already stays."""
    return max(round(count * FACTOR), min(count, 25))
