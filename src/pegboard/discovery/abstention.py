"""Abstention: whether what was found is evidence enough that a visible tool serves the request.

A word weighs what it tells: 1.0 when one tool has it, near 0 when all do. Chance matches are scattered, one word in one
tool and another in the next; a tool that serves has words that stand together in the request, in a namespace that has
the rest. The more tools there are, the better the best chance match: it grows with the logarithm of their number.
"""

from __future__ import annotations

from itertools import pairwise
from math import log

import numpy as np

from pegboard.discovery.ranking import Matrix, Ranking, Scope
from pegboard.discovery.request import Request

# Fitted on the requests of `bench/discovery.py`, rounded; evidence of `enough_among` or more is answered.
_CLAUSE_COVERED = 1.2
_NAMESPACE_COVERED = 0.9
_NAMESPACE_FOUND = 0.3
_PAIRS_FOUND = 0.45
_ARGUMENT_SHARE = 0.3  # names and addresses are values for the tool; that no tool mentions them tells little
_NEAR_SPELLING_SHARE = 0.5

# Chosen so that requests which no tool serves get nothing about as often among 20 tools as among 2,500.
_ENOUGH_OF_ONE = 0.40
_MORE_EACH_TIME = 0.095


def enough_among(tools: int) -> float:
    """Return the least evidence that is an answer when so many tools are visible."""
    return _ENOUGH_OF_ONE + _MORE_EACH_TIME * log(max(tools, 1))


def evidence_of(request: Request, ranking: Ranking, scope: Scope) -> float:
    """Return how much speaks for an answer; below `enough_among`, nothing that was found should be shown."""
    trust = np.array([1.0 if group.is_known else _NEAR_SPELLING_SHARE for group in request.groups], dtype=np.float32)
    share = np.array([_ARGUMENT_SHARE if group.is_argument else 1.0 for group in request.groups], dtype=np.float32)
    found = ranking.matched * (ranking.rarity * trust)[:, None]
    due = ranking.rarity * share
    in_namespace = float(np.maximum.reduceat(found, scope.starts, axis=1).sum(axis=0).max())
    return (
        _CLAUSE_COVERED * max(_covered(found[list(clause)], due[list(clause)]) for clause in request.clauses)
        + _NAMESPACE_COVERED * in_namespace / max(float(due.sum()), 1e-6)
        + _NAMESPACE_FOUND * in_namespace
        + _PAIRS_FOUND * _pairs_found(request, found)
    )


def _covered(found: Matrix, due: Matrix) -> float:
    # At least one rare word is due, so that a clause of common words alone is no evidence.
    return float(found.sum(axis=0).max()) / max(float(due.sum()), 1.0)


def _pairs_found(request: Request, found: Matrix) -> float:
    """Return what the best tool has of words that stand next to each other in the request."""
    pairs = [pair for clause in request.clauses for pair in pairwise(clause)]
    if not pairs:
        return 0.0
    first, second = (list(side) for side in zip(*pairs, strict=True))
    return float(np.minimum(found[first], found[second]).sum(axis=0).max())
