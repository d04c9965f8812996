"""Likeness: what an embedder says of the visible tools, beside what words say. Nobody knows how good it is.

A cosine means nothing by itself: each model has its own scale. What counts is how far a tool stands out from all
others that are visible: of so many numbers drawn by chance the largest lies about √(2 ln n) deviations above the
middle, and only what lies above that speaks. A poor embedder singles out nothing and leaves the words as they are; one
that knows lifts its tools as far as it is sure of them.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from pegboard.discovery.search.ranking import Vector

# Chosen with embedders that know nothing, that know words alone, and that know the answer more or less blurred.
_SHARE = 0.2
_SURE_AFTER = 2.0  # deviations beyond chance
ALIKE = 1e-6  # a spread of cosines below this is that of rounding


def fused(scores: Vector, chance: float, beyond: Vector) -> tuple[Vector, float]:
    """Return score and chance of words and likeness together, the best score 1.0; all 0 where neither says anything.

    The surer the words are, the less the likeness counts.

    Args:
        scores: of words, the best 1.0, or all 0.
        chance: that words have found a right tool.
        beyond: by how many deviations each tool stands out, beyond what chance gives.
    """
    most = float(beyond.max())
    if not most:
        return scores, chance
    both = chance * scores + _SHARE * (1 - chance) * beyond
    return both / both.max(), 1 - (1 - chance) * exp(-most / _SURE_AFTER)


def by_chance(count: int) -> float:
    """Return how many deviations above the middle the largest of so many numbers lies by chance."""
    return sqrt(2 * log(max(count, 2)))


def deviations_of(cosines: Vector) -> Vector:
    """Return by how many deviations each lies above the middle."""
    spread = float(cosines.std())
    # Alike to the last digits is alike: nothing stands out by rounding.
    return (cosines - np.median(cosines)) / spread if spread > ALIKE else np.zeros_like(cosines)
