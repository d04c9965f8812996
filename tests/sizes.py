"""Sizes: with how many examples a property is tried, few beside everything else and many in `make soak`."""

import os

IS_SOAK = bool(os.environ.get("PEGBOARD_SOAK"))
FACTOR = 10.0 if IS_SOAK else 0.1


def examples(count: int, *, few: int | None = None) -> int:
    """Return a tenth of the count, or ten times as many in `make soak`; what is few already stays.

    An example that costs tenths of a second says how `few` of them stand beside everything else.
    """
    if few is not None and not IS_SOAK:
        return few
    return max(round(count * FACTOR), min(count, 25))
