"""Confidence: how sure it is that a right tool is among the first five that were found.

A word weighs what it tells: 1.0 when one tool has it, near 0 when all do. Chance matches are scattered, one word in one
tool and another in the next; a tool that serves has words that stand together in the request, in a namespace that has
the rest, or that is about one of them: most of its tools bear it. What grows with the length of a request alone is
divided by that. The more tools there are, the better the best chance match; and where the fifth tool fits as well as
the first, words do not tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, log
from typing import Literal

import numpy as np

from pegboard.discovery.search.query import ParsedQuery
from pegboard.discovery.search.ranking import Matrix, Ranking, Scope, Vector

Confidence = Literal["strong", "fair", "weak"]

# Of the evidence, as before; see docs/decisions/0026. The power makes a request of 30 words get a wrong "strong" about
# as often as one of six.
_CLAUSE_COVERED = 1.0
_WORDS_KNOWN = 1.0
_NAMESPACE_FOUND = 0.2
_NAMESPACE_ABOUT = 0.4
_PAIRS_FOUND = 0.4
_LENGTH_POWER = 0.25
_ARGUMENT_SHARE = 0.3  # names and addresses are values for the tool; that no tool mentions them tells little
_GUESS_SHARE = 0.5

_BORNE = 0.85  # a match of a name or of a short description
_TELLING = 0.4

# Logistic, fitted where as many requests can be served as cannot; each part can only help or only harm.
WEIGHTS = (2.3, -0.44, -1.9)
OUTSET = -1.8
_OTHERS = 10  # without them one tool of three would count as told apart from thousands
_FIFTH = 5

_STRONG_FROM = 0.8
_WEAK_BELOW = 0.2


def confidence_of(score: float) -> Confidence:
    """Return the word for a score: the first hit's is the chance that a right tool is among the first five."""
    return "strong" if score >= _STRONG_FROM else "weak" if score < _WEAK_BELOW else "fair"


def chance_of(signs: Sequence[float]) -> float:
    """Return the chance that a right tool is among the first five, were half of all requests served by none."""
    return 1 / (1 + exp(-sum((weight * sign for weight, sign in zip(WEIGHTS, signs, strict=True)), start=OUTSET)))


def signs_of(request: ParsedQuery, ranking: Ranking, scope: Scope) -> tuple[float, float, float]:
    """Return what the chance is judged by: evidence, the logarithm of how many tools there are, the fifth's share."""
    place = min(_FIFTH, len(ranking.scores))
    fifth = float(np.partition(ranking.scores, -place)[-place])
    return evidence_of(request, ranking, scope), log(scope.count + _OTHERS), fifth


def evidence_of(request: ParsedQuery, ranking: Ranking, scope: Scope) -> float:
    """Return how much speaks for the best that was found."""
    trust = np.array([1.0 if group.is_known else _GUESS_SHARE for group in request.groups], dtype=np.float32)
    share = np.array([_ARGUMENT_SHARE if group.is_argument else 1.0 for group in request.groups], dtype=np.float32)
    found = ranking.matched * (ranking.rarity * trust)[:, None]
    due = ranking.rarity * share
    unknown = sum(not (group.is_known or group.is_argument) for group in request.groups)
    namespaces = np.maximum.reduceat(found * share[:, None], scope.starts, axis=1).sum(axis=0)
    return (
        _CLAUSE_COVERED * max(_covered(found[list(clause)], due[list(clause)]) for clause in request.clauses)
        + _WORDS_KNOWN * (1 - unknown / len(request.groups))
        + _NAMESPACE_FOUND * float(namespaces.max()) / max(float(due.sum()), 1.0) ** _LENGTH_POWER
        + _NAMESPACE_ABOUT * _namespace_about(ranking, trust, scope)
        + _PAIRS_FOUND * _pairs_found(request, found) / max(len(request.groups) - 1, 1) ** _LENGTH_POWER
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
