"""Use lift: what was called after requests like this one, beside what words and likeness say of it."""

from __future__ import annotations

from pegboard.discovery.search.ranking import Vector

# What was used by everybody comes to less than a strong match has: by use alone no tool stands before one.
_SHARE = 0.75
# When it is judged how sure an answer is. Use alone makes none strong.
_TRUST = 0.5


def lifted(scores: Vector, chance: float, use: Vector) -> tuple[Vector, float]:
    """Return score and chance with use, the best score 1.0.

    Args:
        scores: of words and likeness, the best 1.0, or all 0.
        chance: that they have found a right tool.
        use: how much each tool was used for requests like this one, 0 … 1.
    """
    most = float(use.max())
    if not most:
        return scores, chance
    both = chance * scores + _SHARE * use
    return both / both.max(), 1 - (1 - chance) * (1 - _TRUST * most)
