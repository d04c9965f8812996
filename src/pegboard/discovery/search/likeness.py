"""Likeness: combines the embedder's comparison with the ranking by words, without knowing the embedder's quality.

A cosine alone means nothing, since each model has its own scale. What counts is how far a tool stands out from all
other visible ones. The largest of n random numbers is about √(2 ln n) deviations above the median, and only values
above that count. A poor embedder singles out nothing and leaves the words' ranking unchanged; a good one raises its
tools in proportion to its certainty.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from pegboard.discovery.search.ranking import Vector

# Tuned with embedders that know nothing, that know only words, and that know the answer more or less clearly.
_SHARE = 0.2
_SURE_AFTER = 2.0  # deviations beyond chance at which the likeness is certain
ALIKE = 1e-6  # a spread of cosines below this is rounding


def fused(scores: Vector, chance: float, beyond: Vector) -> tuple[Vector, float]:
    """Return combined score and probability of words and likeness, the best score 1.0; all 0 if neither has any.

    The more certain the words, the less the likeness counts.

    Args:
        scores: by words, the best 1.0, or all 0.
        chance: the probability that words found a right tool.
        beyond: by how many deviations each tool stands out beyond chance.
    """
    most = float(beyond.max())
    if not most:
        return scores, chance
    both = chance * scores + _SHARE * (1 - chance) * beyond
    return both / both.max(), 1 - (1 - chance) * exp(-most / _SURE_AFTER)


def by_chance(count: int) -> float:
    """Return the expected maximum of `count` random numbers, in deviations above the median."""
    return sqrt(2 * log(max(count, 2)))


def deviations_of(cosines: Vector) -> Vector:
    """Return by how many deviations each value is above the median."""
    spread = float(cosines.std())
    # Values that differ only by rounding are equal.
    return (cosines - np.median(cosines)) / spread if spread > ALIKE else np.zeros_like(cosines)
