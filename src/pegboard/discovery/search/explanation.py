"""Explanation: the parts of a score, from the values used to compute it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.discovery.search.confidence import Signs
from pegboard.discovery.search.query import ParsedQuery, TermGroup
from pegboard.discovery.search.ranking import Ranking, Vector
from pegboard.discovery.search.tool_text import ToolText, weights_by_field


class Judged(Struct, frozen=True, kw_only=True):
    """One request and the visible tools: scores by words, likeness and use, and the total.

    Vectors have a place for each visible tool; `None` means not used, or no contribution.
    """

    request: ParsedQuery
    ranking: Ranking | None
    signs: Signs | None
    by_words: tuple[Vector, float]
    begun: Vector | None
    likeness: Vector | None
    use: Vector | None
    scores: Vector
    chance: float


class AskedWord(Struct, frozen=True, kw_only=True):
    """A word of the request: its search terms, and its weight, 1.0 if a single tool has it.

    `is_known`: a visible tool has the word or a synonym. `is_argument`: a value for the tool, such as a path or a name,
    whose absence counts less against an answer.
    """

    terms: tuple[str, ...]
    rarity: float
    is_known: bool
    is_argument: bool


class HitParts(Struct, frozen=True, kw_only=True):
    """The parts of one hit's score.

    `words`: how well the tool matches each word of the request, 0 … 1. `fields`: the weight of each such word in each
    field. `by_words`: the share of the best score by words. `namespace`: the score of its namespace relative to the
    best one. `begun`: how well its name begins like a request of one word, 0 … 1. `likeness`: deviations beyond chance.
    `use`: 0 … 1. `share`: the share of the best total score.
    """

    words: dict[str, float]
    fields: dict[str, dict[str, float]]
    by_words: float
    namespace: float
    begun: float | None
    likeness: float | None
    use: float | None
    share: float


class Explanation(Struct, frozen=True, kw_only=True):
    """The derivation of an answer. `evidence` to `tenth` are the inputs of the probability by words."""

    asked: tuple[AskedWord, ...]
    evidence: float | None
    tools: int
    fifth: float | None
    tenth: float | None
    chance_by_words: float
    chance: float
    hits: tuple[HitParts, ...]


def explained(judged: Judged, best: Sequence[int], texts: Sequence[ToolText], starts: NDArray[np.int64]) -> Explanation:
    """Return the parts of the scores of the hits at these places, with the texts of their tools."""
    ranking, signs = judged.ranking, judged.signs
    rarity: list[float] = [] if ranking is None else ranking.rarity.tolist()
    groups = judged.request.groups
    return Explanation(
        asked=tuple(
            AskedWord(
                terms=_terms(group),
                rarity=round(rarity_of_word, 3),
                is_known=group.is_known,
                is_argument=group.is_argument,
            )
            for group, rarity_of_word in zip(groups, rarity, strict=True)
        ),
        evidence=None if signs is None else round(signs.evidence, 3),
        tools=len(judged.scores),
        fifth=None if signs is None else round(signs.fifth, 3),
        tenth=None if signs is None else round(signs.tenth, 3),
        chance_by_words=round(judged.by_words[1], 4),
        chance=round(judged.chance, 4),
        hits=tuple(
            HitParts(
                words={} if ranking is None else _words(groups, ranking, place),
                fields=_fields(groups, text),
                by_words=round(float(judged.by_words[0][place]), 4),
                namespace=0.0 if ranking is None else _of_namespace(ranking, starts, place),
                begun=None if judged.begun is None else round(float(judged.begun[place]), 3),
                likeness=None if judged.likeness is None else round(float(judged.likeness[place]), 3),
                use=None if judged.use is None else round(float(judged.use[place]), 3),
                share=round(float(judged.scores[place]), 4),
            )
            for place, text in zip(best, texts, strict=True)
        ),
    )


def _terms(group: TermGroup) -> tuple[str, ...]:
    return (*(term for term, _ in group.exact), *group.similar)


def _words(groups: Sequence[TermGroup], ranking: Ranking, place: int) -> dict[str, float]:
    matched: list[float] = ranking.matched[:, place].tolist()
    return {_terms(groups[n])[0]: round(matched[row], 3) for n, row in ranking.rows.items() if matched[row] > 0}


def _fields(groups: Sequence[TermGroup], text: ToolText) -> dict[str, dict[str, float]]:
    asked = {term for group in groups for term in _terms(group)}
    by_field = {
        field: {term: round(weight, 2) for term, weight in weights.items() if term in asked}
        for field, weights in weights_by_field(text)[0].items()
    }
    return {field: weights for field, weights in by_field.items() if weights}


def _of_namespace(ranking: Ranking, starts: NDArray[np.int64], place: int) -> float:
    best = float(ranking.namespace_scores.max())
    own = float(ranking.namespace_scores[int((starts <= place).sum()) - 1])
    return round(own / best, 3) if best > 0 else 0.0
