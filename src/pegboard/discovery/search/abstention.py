"""Abstention: whether what was found is evidence enough that a visible tool serves the request.

A word weighs what it tells: 1.0 when one tool has it, near 0 when all do. Chance matches are scattered, one word in one
tool and another in the next; a tool that serves has words that stand together in the request, in a namespace that has
the rest, or that is about one of them: most of its tools bear it. The more tools there are, the better the best chance
match: it grows with the logarithm of their number.
"""

from __future__ import annotations

from itertools import pairwise
from math import log

import numpy as np

from pegboard.discovery.search.query import ParsedQuery
from pegboard.discovery.search.ranking import Matrix, Ranking, Scope, Vector

# Fitted on the requests of `bench/discovery.py`, rounded; evidence of `enough_among` or more is answered. What it gives
# for a set that it was not fitted on stands in docs/decisions/0018.
_CLAUSE_COVERED = 1.0
_WORDS_KNOWN = 1.0
_NAMESPACE_FOUND = 0.15
_NAMESPACE_ABOUT = 0.4
_PAIRS_FOUND = 0.3
_ARGUMENT_SHARE = 0.3  # names and addresses are values for the tool; that no tool mentions them tells little
_GUESS_SHARE = 0.5

_BORNE = 0.85  # a match of a name or of a short description
_TELLING = 0.4

# Chosen so that requests which no tool serves get nothing about as often among 20 tools as among 2,500.
_ENOUGH_EACH_TIME = 0.23


def enough_among(tools: int) -> float:
    """Return the least evidence that is an answer when so many tools are visible."""
    return _ENOUGH_EACH_TIME * log(tools + 1)


def evidence_of(request: ParsedQuery, ranking: Ranking, scope: Scope) -> float:
    """Return how much speaks for an answer; below `enough_among`, nothing that was found should be shown."""
    trust = np.array([1.0 if group.is_known else _GUESS_SHARE for group in request.groups], dtype=np.float32)
    share = np.array([_ARGUMENT_SHARE if group.is_argument else 1.0 for group in request.groups], dtype=np.float32)
    found = ranking.matched * (ranking.rarity * trust)[:, None]
    due = ranking.rarity * share
    unknown = sum(not (group.is_known or group.is_argument) for group in request.groups)
    return (
        _CLAUSE_COVERED * max(_covered(found[list(clause)], due[list(clause)]) for clause in request.clauses)
        + _WORDS_KNOWN * (1 - unknown / len(request.groups))
        + _NAMESPACE_FOUND * float(np.maximum.reduceat(found, scope.starts, axis=1).sum(axis=0).max())
        + _NAMESPACE_ABOUT * _namespace_about(ranking, trust, scope)
        + _PAIRS_FOUND * _pairs_found(request, found)
    )


def _covered(found: Matrix, due: Matrix) -> float:
    # At least one rare word is due, so that a clause of common words alone is no evidence.
    return float(found.sum(axis=0).max()) / max(float(due.sum()), 1.0)


def _namespace_about(ranking: Ranking, trust: Vector, scope: Scope) -> float:
    """Return the share of the tools of one namespace that bear one telling word of the request."""
    sizes = np.diff(np.append(scope.starts, scope.count))
    bearing = np.add.reduceat(ranking.matched >= _BORNE, scope.starts, axis=1, dtype=np.float32)
    shares = bearing / np.maximum(sizes, 2).astype(np.float32)
    return float((shares * (trust * (ranking.rarity > _TELLING))[:, None]).max())


def _pairs_found(request: ParsedQuery, found: Matrix) -> float:
    """Return what the best tool has of words that stand next to each other in the request."""
    pairs = [pair for clause in request.clauses for pair in pairwise(clause)]
    if not pairs:
        return 0.0
    first, second = (list(side) for side in zip(*pairs, strict=True))
    return float(np.minimum(found[first], found[second]).sum(axis=0).max())
