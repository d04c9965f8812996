"""Ranking: scores each visible tool and its namespace for a request.

BM25F: the fields of a tool are summed before saturation, and the namespace is scored as one more document. Every
statistic is taken over the visible tools only, so the ranking equals that of an index of just those tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.discovery.search.postings import Postings
from pegboard.discovery.search.query import ParsedQuery

Floats = NDArray[np.floating[Any]]
Vector = Floats
Matrix = Floats

# The same for every catalog; `bench/discovery.py` measures their effect.
_SATURATION = 1.6
_NAMESPACE_SATURATION = 1.2
_NAMESPACE_LENGTH = 0.8  # how much the score of a large namespace is damped
_NAMESPACE_SHARE = 0.4
_SIMILAR_SHARE = 0.3
_CLAUSE_SHARE = 0.3
_SIMILAR_TRUST = 0.5  # weight of a synonym when judging whether anything was found at all
_UNSEEN = 50  # assumed number of other tools for rarity, since among three tools no word would be rare


class Scope(Struct, frozen=True, kw_only=True):
    """The tools that a caller may see.

    `columns` has the place of each tool among them, or -1; `starts` the places where the namespaces begin.
    """

    columns: NDArray[np.int64]
    starts: NDArray[np.int64]
    count: int


def scope_of(seen: NDArray[np.int64], namespace_of: NDArray[np.int64]) -> Scope:
    """Return the scope of the tools numbered in `seen`; the tools of a namespace are adjacent."""
    columns = np.full(len(namespace_of), -1, dtype=np.int64)
    columns[seen] = np.arange(len(seen))
    namespaces = namespace_of[seen]
    starts = np.flatnonzero(np.diff(namespaces, prepend=-1))
    return Scope(columns=columns, starts=starts, count=len(seen))


class Ranking(Struct, frozen=True, kw_only=True):
    """The scores of a request, per visible tool and per visible namespace.

    `matched` is 0 … 1 for each term group and tool; `rows` maps groups to rows, if a tool may have them at all.
    `rarity` is the weight of each group, 1.0 for a word of a single tool.
    """

    scores: Vector
    namespace_scores: Vector
    matched: Matrix
    rows: Mapping[int, int]
    rarity: Vector


def rank(request: ParsedQuery, postings: Postings, scope: Scope) -> Ranking:
    """Rank the visible tools for a request that has at least one group."""
    numbers = [number for number, group in enumerate(request.groups) if group.exact or group.similar]
    groups = [request.groups[number] for number in numbers]
    row_of = {number: row for row, number in enumerate(numbers)}
    exact = _frequencies([group.exact for group in groups], postings, scope)
    rows = [row for row, group in enumerate(groups) if group.similar]
    similar = _frequencies([tuple((t, 1.0) for t in groups[row].similar) for row in rows], postings, scope)
    holders = _holders(exact)
    holders[rows] = np.where(holders[rows] > 0, holders[rows], _holders(similar))
    exactly, nearly = _saturated(exact, _SATURATION), _saturated(similar, _SATURATION)
    cells = exactly.copy()
    cells[rows] = np.maximum(cells[rows], np.float32(_SIMILAR_SHARE) * nearly)
    cells *= _idf(holders, scope.count)[:, None]
    matched = exactly
    matched[rows] = np.maximum(matched[rows], np.float32(_SIMILAR_TRUST) * nearly)

    sizes = np.diff(np.append(scope.starts, scope.count))
    damping = 1 - _NAMESPACE_LENGTH + _NAMESPACE_LENGTH * sizes / sizes.mean()
    pooled = np.add.reduceat(exact, scope.starts, axis=1) / damping.astype(np.float32)
    namespace_idf = _idf(_holders(pooled), len(sizes))
    namespace_cells = _saturated(pooled, _NAMESPACE_SATURATION) * namespace_idf[:, None]

    cells += np.repeat(_NAMESPACE_SHARE * namespace_cells, sizes, axis=1)
    rarity = np.ones(len(request.groups), dtype=np.float32)
    rarity[numbers] = _rarity(holders, scope.count)
    telling = [clause for clause in request.clauses if len(clause) > 1]
    return Ranking(
        scores=_fused(cells, [rows_in(row_of, clause) for clause in telling]),
        namespace_scores=namespace_cells.sum(axis=0),
        matched=np.minimum(matched, np.float32(1.0), out=matched),
        rows=row_of,
        rarity=rarity,
    )


def _frequencies(groups: list[tuple[tuple[str, float], ...]], postings: Postings, scope: Scope) -> Matrix:
    """Return the summed weight of each term group in each visible tool."""
    frequencies = np.zeros((len(groups), scope.count), dtype=np.float32)
    for row, terms in zip(frequencies, groups, strict=True):
        for term, share in terms:
            span = postings.span(term)
            columns = scope.columns[postings.tools[span]]
            seen = columns >= 0
            # A term occurs once per tool, so no place occurs twice.
            row[columns[seen]] += postings.weights[span][seen] * np.float32(share)
    return frequencies


def _fused(cells: Matrix, telling: Sequence[Sequence[int]]) -> Vector:
    """Return one score per tool, from the whole request and from each clause, since a long task needs several tools."""
    scores = _relative(cells.sum(axis=0))
    if len(telling) > 1:
        parts = sum((_relative(rows_of(cells, clause).sum(axis=0)) for clause in telling), np.zeros_like(scores))
        scores = scores + np.float32(_CLAUSE_SHARE / len(telling)) * parts
    return _relative(scores)


def rows_in(rows: Mapping[int, int], clause: Sequence[int]) -> list[int]:
    """Return the rows of those groups of a clause that have one."""
    return [rows[group] for group in clause if group in rows]


def rows_of(matrix: Matrix, rows: Sequence[int]) -> Matrix:
    """Return some rows of a matrix, without a copy if they are adjacent, as the words of a clause usually are."""
    first, count = rows[0] if rows else 0, len(rows)
    return matrix[first : first + count] if tuple(rows) == tuple(range(first, first + count)) else matrix[list(rows)]


def _relative(scores: Vector) -> Vector:
    best = scores.max()
    return scores / best if best > 0 else scores


def _saturated(frequencies: Matrix, saturation: float) -> Matrix:
    return frequencies * np.float32(saturation + 1) / (frequencies + np.float32(saturation))


def _holders(frequencies: Matrix) -> NDArray[np.int64]:
    return (frequencies > 0).sum(axis=1, dtype=np.int64)


def _idf(holders: NDArray[np.int64], count: int) -> Vector:
    return np.log1p((count - holders + 0.5) / (holders + 0.5)).astype(np.float32)


def _rarity(holders: NDArray[np.int64], count: int) -> Vector:
    others = np.maximum(holders, 1) - 1
    return _idf(others, count + _UNSEEN) / _idf(np.zeros_like(others), count + _UNSEEN)
