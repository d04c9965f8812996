"""Likeness: combines the embedder's comparison with the ranking by words.

A cosine alone means nothing, since each model has its own scale. What counts is how far a tool stands out from all
other visible ones. The largest of n random numbers is about √(2 ln n) deviations above the median. Of an embedder of
unknown quality only values above that count, so a poor one leaves the ranking by words unchanged. An embedder that has
shown to know meanings (see `meaning_pairs`) also orders tools that stand out less, by a bounded share.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np
from msgspec import Struct

from pegboard.discovery.search.ranking import Vector

# Tuned with embedders that know nothing, that know only words, and that know the answer more or less clearly.
_SHARE = 0.2
# The most that likeness adds for an embedder that knows meanings, and the deviations above the median for half of it.
_KNOWING_SHARE = 0.5
_HALF_AT = 6.0
_SURE_AFTER = 2.0  # deviations beyond chance where the likeness is certain
ALIKE = 1e-6  # a spread of cosines below this is rounding


class Standing(Struct, frozen=True, kw_only=True):
    """By how many deviations each visible tool is above the median, and by how many beyond what chance would give."""

    deviations: Vector
    beyond: Vector


def fused(scores: Vector, chance: float, standing: Standing, knowledge: float) -> tuple[Vector, float]:
    """Return combined score and probability of words and likeness, the best score 1.0; all 0 if neither has any.

    The more certain the words, the less the likeness counts.

    Args:
        scores: by words, the best 1.0, or all 0.
        chance: the probability that words found a right tool.
        standing: by how many deviations each tool stands out.
        knowledge: how well the embedder knows meanings, 0 … 1; 0 if unknown.
    """
    most = float(standing.beyond.max())
    # If nothing stands out and words found nothing, the order by likeness is not an answer.
    if not most and not (knowledge and scores.any()):
        return scores, chance
    above = np.maximum(standing.deviations, 0)
    alike = _SHARE * (1 - knowledge) * standing.beyond + _KNOWING_SHARE * knowledge * above / (above + _HALF_AT)
    both = (chance * scores + (1 - chance) * alike).astype(np.float32)
    return both / both.max(), 1 - (1 - chance) * exp(-most / _SURE_AFTER)


def by_chance(count: int) -> float:
    """Return the expected maximum of `count` random numbers, in deviations above the median."""
    return sqrt(2 * log(max(count, 2)))


def deviations_of(cosines: Vector) -> Vector:
    """Return by how many deviations each value is above the median."""
    spread = float(cosines.std())
    # Values that differ only by rounding are equal.
    return (cosines - np.median(cosines)) / spread if spread > ALIKE else np.zeros_like(cosines)
