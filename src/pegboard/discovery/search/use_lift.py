"""Use lift: raises tools that were called after similar requests."""

from __future__ import annotations

from pegboard.discovery.search.ranking import Vector

# The greatest weight of use is below that of a strong match, so use alone never ranks a tool before one.
_SHARE = 0.75
# The weight of use in the probability. Use alone never makes an answer strong.
_TRUST = 0.5


def lifted(scores: Vector, chance: float, use: Vector) -> tuple[Vector, float]:
    """Return score and probability including use, the best score 1.0.

    Args:
        scores: by words and likeness, the best 1.0, or all 0.
        chance: the probability that they found a right tool.
        use: how much each tool was used for similar requests, 0 … 1.
    """
    most = float(use.max())
    if not most:
        return scores, chance
    both = chance * scores + _SHARE * use
    return both / both.max(), 1 - (1 - chance) * (1 - _TRUST * most)
