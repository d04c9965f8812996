"""Scoring: how well a passage answers a question, by BM25 over what the caller may see and nothing else.

A database's own scores count the rows of all spaces, so that they would tell of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_K1: Final = 1.2
_B: Final = 0.75
# What an occurrence adds to the score of a passage; one value: how long a passage of the scope is on average.
PART_OF_SCORE: Final = (
    f"asked.weight * postings.count * {_K1 + 1} / (postings.count + {_K1} * ({1 - _B} + {_B} * postings.length / ?))"
)


def idf(*, passages: int, having: int) -> float:
    """Return how much a term tells that `having` of so many passages have. Source: Robertson and Zaragoza, 2009, as
    Lucene has it, which is never below 0.
    """
    return math.log(1 + (passages - having + 0.5) / (having + 0.5))


def best_score(weights: Sequence[float]) -> float:
    """Return what no passage can exceed for these weights."""
    return sum(weights) * (_K1 + 1)
