"""Scoring: ranks passages for a question by BM25 over the caller's visible passages only.

A database's own ranking counts the rows of all spaces, and would reveal something about them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_K1: Final = 1.2
_B: Final = 0.75


def part_of_score(*, weight: str, count: str, length: str) -> str:
    """Return the expression for what the occurrences of a word add to a passage's score.

    Its one value is the average length of the scope's passages; the arguments are columns.
    """
    return f"{weight} * {count} * {_K1 + 1} / ({count} + {_K1} * ({1 - _B} + {_B} * {length} / ?))"


def idf(*, passages: int, having: int) -> float:
    """Return the weight of a term that `having` of all passages contain.

    Source: Robertson and Zaragoza, 2009, in Lucene's form, which is never negative.
    """
    return math.log(1 + (passages - having + 0.5) / (having + 0.5))


def best_score(weights: Sequence[float]) -> float:
    """Return the upper bound of a passage's score for these weights."""
    return sum(weights) * (_K1 + 1)
