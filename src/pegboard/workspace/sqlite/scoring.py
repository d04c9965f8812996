"""Scoring: how well a passage answers a question, by BM25 over what the caller may see and nothing else.

SQLite's own `bm25()` counts the rows of all spaces, so that its scores would tell of them. The engine finds the
passages; this scores them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from pegboard.workspace.sqlite.connection import Connection

_K1: Final = 1.2  # not a limit: Source: the default of Lucene
_B: Final = 0.75  # not a limit: Source: the default of Lucene


def add_score_function(db: Connection) -> None:
    """Let statements of a connection say `passage_score(passages, average_length, weight, …)`: a weight for each
    phrase of the MATCH, in its order.
    """
    db.register_fts5_function("passage_score", _passage_score)


def idf(*, passages: int, having: int) -> float:
    """Return how much a term tells that `having` of so many passages have. Source: Robertson and Zaragoza, 2009, as
    Lucene has it, which is never below 0.
    """
    return math.log(1 + (passages - having + 0.5) / (having + 0.5))


def best_score(weights: Sequence[float]) -> float:
    """Return what no passage can exceed for these weights."""
    return sum(weights) * (_K1 + 1)


def _passage_score(api: Any, average_length: float, *weights: float) -> float:
    """Return the BM25 score of the row at hand; column 1 has the terms, and a phrase with weight 0 is the space."""
    room = _K1 * (1 - _B + _B * api.column_size(1) / average_length)
    score = 0.0
    for phrase, weight in enumerate(weights):
        if weight > 0.0:
            count = len(api.phrase_locations(phrase)[1])
            score += weight * count * (_K1 + 1) / (count + room)
    return score
