"""Confidence: the probability that a right tool is among the first five hits.

A word weighs 1.0 if a single tool has it, and near 0 if all do. Accidental matches are scattered, one word in one tool
and another in the next. A tool that fits has words that are adjacent in the request, in a namespace that has the rest
of the request or whose tools mostly share one of its words. Evidence that only grows with the length of a request is
divided by it. With more tools, the best accidental match gets better. If the fifth or even the tenth tool fits as well
as the first, words do not distinguish them: the request asks for something that many tools do.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import exp, log
from typing import Literal

import numpy as np
from msgspec import Struct

from pegboard.discovery.search.query import ParsedQuery
from pegboard.discovery.search.ranking import Matrix, Ranking, Scope, Vector, rows_in, rows_of

Confidence = Literal["strong", "fair", "weak"]

# The weights of the evidence; see docs/decisions/0005. The power gives a request of 30 words about as many wrong
# "strong" answers as one of six.
_CLAUSE_COVERED = 1.0
_WORDS_KNOWN = 1.0
_NAMESPACE_FOUND = 0.2
_NAMESPACE_ABOUT = 0.4
_PAIRS_FOUND = 0.4
_LENGTH_POWER = 0.25
# weight of names and addresses: they are values for the tool, so it matters little that no tool mentions them
_ARGUMENT_SHARE = 0.3
_GUESS_SHARE = 0.5

_BORNE = 0.85  # weight of a match of a name or of a short description
_TELLING = 0.4

# Logistic regression, fitted where half of the requests can be served, on catalogs of 2 to 2,000 tools. Each part can
# only raise or only lower the score. One weight for each of `Signs`. See docs/decisions/0005.
WEIGHTS = (2.0, -0.18, -1.79, -1.0)
OUTSET = -2.1
_OTHERS = 10  # assumed other tools; without them one tool of three would seem as distinctive as one of thousands

# On unseen requests and tools the probability is off by some hundredths. `strong` promises 0.8 and `weak` less than
# 0.4, so both thresholds keep a margin.
_STRONG_FROM = 0.83
_WEAK_BELOW = 0.23


class Signs(Struct, frozen=True, kw_only=True):
    """The inputs of the probability; `fifth` and `tenth` are these tools' shares of the first one's score."""

    evidence: float
    log_tools: float
    fifth: float
    tenth: float

    @property
    def values(self) -> tuple[float, ...]:
        """The signs in the order of `WEIGHTS`."""
        return self.evidence, self.log_tools, self.fifth, self.tenth


def confidence_of(score: float) -> Confidence:
    """Return the word for a score; the first hit's score is the probability of a right tool among the first five."""
    return "strong" if score >= _STRONG_FROM else "weak" if score < _WEAK_BELOW else "fair"


def chance_of(signs: Signs) -> float:
    """Return the probability of a right tool among the first five, assuming that half of all requests have one."""
    return 1 / (
        1 + exp(-sum((weight * sign for weight, sign in zip(WEIGHTS, signs.values, strict=True)), start=OUTSET))
    )


def signs_of(request: ParsedQuery, ranking: Ranking, scope: Scope) -> Signs:
    """Return the inputs of the probability."""
    return Signs(
        evidence=evidence_of(request, ranking, scope),
        log_tools=log(scope.count + _OTHERS),
        fifth=_score_of(5, ranking.scores),
        tenth=_score_of(10, ranking.scores),
    )


def _score_of(place: int, scores: Vector) -> float:
    """Return the score of the tool at this place, the best being the first; 0 if there are fewer."""
    return float(np.partition(scores, -place)[-place]) if place <= len(scores) else 0.0


def evidence_of(request: ParsedQuery, ranking: Ranking, scope: Scope) -> float:
    """Return the evidence for the best tool found."""
    trust = np.array([1.0 if group.is_known else _GUESS_SHARE for group in request.groups], dtype=np.float32)
    share = np.array([_ARGUMENT_SHARE if group.is_argument else 1.0 for group in request.groups], dtype=np.float32)
    numbers, rows = list(ranking.rows), ranking.rows
    evidence = ranking.matched * (ranking.rarity * trust)[numbers, None]
    due = ranking.rarity * share
    unknown = sum(not (group.is_known or group.is_argument) for group in request.groups)
    namespaces = np.maximum.reduceat(evidence * share[numbers, None], scope.starts, axis=1).sum(axis=0)
    return (
        _CLAUSE_COVERED
        * max(_covered(rows_of(evidence, rows_in(rows, clause)), due[list(clause)]) for clause in request.clauses)
        + _WORDS_KNOWN * (1 - unknown / len(request.groups))
        + _NAMESPACE_FOUND * float(namespaces.max()) / max(float(due.sum()), 1.0) ** _LENGTH_POWER
        + _NAMESPACE_ABOUT * _namespace_about(ranking, trust[numbers], scope)
        + _PAIRS_FOUND * _pairs_found(request, evidence, rows) / max(len(request.groups) - 1, 1) ** _LENGTH_POWER
    )


def _covered(evidence: Matrix, due: Matrix) -> float:
    # At least one rare word is expected, so that a clause of common words is not evidence.
    return float(evidence.sum(axis=0).max()) / max(float(due.sum()), 1.0)


def _namespace_about(ranking: Ranking, trust: Vector, scope: Scope) -> float:
    """Return the share of tools in one namespace that have a given distinctive word of the request."""
    rarity = ranking.rarity[list(ranking.rows)]
    telling = np.flatnonzero((rarity > _TELLING) & (ranking.matched.max(axis=1) >= _BORNE))
    if not len(telling):
        return 0.0
    sizes = np.diff(np.append(scope.starts, scope.count))
    bearing = np.add.reduceat(ranking.matched[telling] >= _BORNE, scope.starts, axis=1, dtype=np.float32)
    shares = bearing / np.maximum(sizes, 2).astype(np.float32)
    return float((shares * trust[telling, None]).max())


def _pairs_found(request: ParsedQuery, evidence: Matrix, rows: Mapping[int, int]) -> float:
    """Return how many adjacent word pairs of the request the best tool has, weighted."""
    pairs = [
        (rows[first], rows[second])
        for clause in request.clauses
        for first, second in pairwise(clause)
        if first in rows and second in rows
    ]
    # Words that no tool has together form no pair, which excludes most of a long request.
    both = [least for first, second in pairs if (least := np.minimum(evidence[first], evidence[second])).any()]
    return float(np.sum(both, axis=0).max()) if both else 0.0
