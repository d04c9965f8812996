"""Searching: find passages by words, by what an embedder says of them, or both; scored within the scope.

The passages that a term is in stand in `postings`, space by space, so that one statement finds, scores and fuses them
in either database, and what stands in other spaces is not even looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.model.document import EVERY_DOCUMENT, DocumentFilters, SearchMode
from pegboard.model.json_types import JSON
from pegboard.workspace.analyzer import telling_terms
from pegboard.workspace.paging import fitting_count
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.embedding import embedder_of
from pegboard.workspace.store.near import SEARCH_FUSED_PASSAGES, near_indexes
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.store.scoring import PART_OF_SCORE, best_score, idf

SEARCH_DOCUMENT_TERMS = 64  # different ones of one question, by which passages are scored
SEARCH_COUNTED_TERMS = (
    5_000  # of one question, from which those are chosen; a question of 10,000 characters has no more
)
_COUNTED_AT_ONCE = 1_000  # terms of one statement

_K: Final = 60  # Source: Cormack, Clarke and Büttcher, 2009, reciprocal rank fusion


NOT_READ: Final = (
    "The embedder has not read these documents yet, so passages were found by words alone. The operator can have it "
    "read them: `pegboard workspace embed`."
)


class Question(Struct, frozen=True, kw_only=True):
    """What is asked: words, the vector that an embedder made of them, and how much its ranks count beside words.

    `mark` tells whose vector it is. `note` says why there is none although there is an embedder.
    """

    text: str
    mode: SearchMode = "keyword"
    vector: NDArray[np.float32] | None = None
    vector_weight: float = 1.0
    mark: str = ""
    note: str = ""


def search(
    db: Connection,
    within: ReadableSpaces,
    question: Question,
    *,
    filters: DocumentFilters,
    limit: int,
    min_score: float,
) -> JSON:
    """Return the passages that fit a question best, the best first."""
    # Also where nothing is searched for: an id that is not there is an error in any case.
    condition, values = within.filtered(db, filters)
    wanted = _Wanted(
        condition=condition, values=values, limit=limit, min_score=min_score, is_whole=filters == EVERY_DOCUMENT
    )
    mode, note = question.mode, question.note
    if mode != "keyword" and not (_has_any(db, within, "vectors") and embedder_of(db) == question.mark):
        mode, note = "keyword", NOT_READ if _has_any(db, within, "chunks") else ""
    words = None if mode == "vector" else _Words.of(db, within, question.text)
    rows: Sequence[Any] = ()
    if words is not None and mode == "keyword":
        rows = _by_words(db, within, words, wanted)
    elif question.vector is not None and mode != "keyword":
        rows = _by_both(db, within, question, words, wanted)
    hits: list[JSON] = [
        {
            "document_id": document_id, "name": name, "chunk_id": f"{document_id}.{ordinal}", "text": text,
            "score": score, "start": start, "end": end, "source_id": source_id,
            "why": {"keyword_rank": keyword_rank, "vector_rank": vector_rank},
        }
        for document_id, name, ordinal, score, start, end, source_id, text, keyword_rank, vector_rank in rows
    ]  # fmt: skip
    count = fitting_count(hits)
    answer: JSON = {"hits": hits[:count], "mode_used": mode, "truncated": count < len(hits)}
    return {**answer, "note": note} if note else answer


class _Wanted(Struct, frozen=True, kw_only=True):
    """Which passages of the scope are wanted: those of some documents, by a condition with its values, and the best.

    `is_whole` says that no document is left out.
    """

    condition: str
    values: list[Any]
    limit: int
    min_score: float
    is_whole: bool

    def enough(self, condition: str) -> str:
        """Return a condition on ranks, or one that always holds: of those that are ranked a filter may take any."""
        return condition if self.is_whole else "1 = 1"


class _Words(Struct, frozen=True, kw_only=True):
    """The terms of a question that some passage of the scope has, each with its weight.

    A term weighs as much as it is rare, times how often the question has it.
    """

    weights: dict[str, float]
    best: float
    average_length: float

    @classmethod
    def of(cls, db: Connection, within: ReadableSpaces, text: str) -> _Words | None:
        """Return the words of a question; `None` where no passage has any."""
        asked = dict(Counter(telling_terms(text)).most_common(SEARCH_COUNTED_TERMS))
        numbers = ",".join(map(str, within.spaces)) or "null"
        size: Any = db.execute(
            f"select coalesce(sum(chunk_count), 0), coalesce(sum(term_total), 0) from spaces where n in ({numbers})"  # noqa: S608 - numbers of ours
        ).fetchone()
        passages, total = int(size[0]), float(size[1])
        if not asked or not passages:
            return None
        having = _passages_having(db, within, [*asked])
        if not having:
            return None
        weights = {term: count * idf(passages=passages, having=having.get(term, 0)) for term, count in asked.items()}
        # Of a very long question, those that tell most: the first ones may be a greeting.
        found = sorted(having, key=lambda term: -weights[term])[:SEARCH_DOCUMENT_TERMS]
        return cls(
            weights={term: weights[term] for term in found},
            best=best_score([*weights.values()]),
            average_length=max(1.0, total / passages),
        )

    def scored(self, within: ReadableSpaces) -> tuple[str, list[Any]]:
        """Return the statement that scores every passage with such a term, and its values."""
        listed = ", ".join(["(cast(? as text), cast(? as double precision))"] * len(self.weights))
        statement = f"""
            with asked (term, weight) as (values {listed})
            select postings.chunk_n as n, sum({PART_OF_SCORE}) / {self.best!r} as score
            from asked cross join postings
            where postings.term = asked.term and {within.of("postings")} group by postings.chunk_n
        """  # noqa: S608 - numbers of ours
        return statement, [*(value for pair in self.weights.items() for value in pair), self.average_length]


def _passages_having(db: Connection, within: ReadableSpaces, terms: Sequence[str]) -> dict[str, int]:
    """Return in how many passages of the scope each term is; terms that no passage has are left out."""
    having: dict[str, int] = {}
    for start in range(0, len(terms), _COUNTED_AT_ONCE):
        some = terms[start : start + _COUNTED_AT_ONCE]
        rows: list[Any] = db.execute(
            f"select term, count(*) from postings where {within.of('postings')} "  # noqa: S608 - numbers of ours
            f"and term in ({','.join('?' * len(some))}) group by term",
            some,
        ).fetchall()
        having.update((str(term), int(count)) for term, count in rows)
    return having


# Of the same score on either database, and in whatever order it was added up.
_ROUNDED: Final = "cast(round(cast({score} as numeric), 6) as double precision)"
# What is shown of the passages of `first`, once it is known which they are: only their texts are read.
_SHOWN: Final = """
    select documents.id, documents.name, chunks.ordinal, first.score, chunks.start, chunks."end", sources.id,
        substr(texts.text, chunks.start + 1, chunks."end" - chunks.start), first.keyword_rank, first.vector_rank
    from first
        join chunks on chunks.n = first.n
        join documents on documents.n = chunks.document_n
        join sources on sources.n = documents.source_n
        join texts on texts.document_n = documents.n
    order by first.place
"""
_OF_DOCUMENT: Final = "join chunks on chunks.n = found.n join documents on documents.n = chunks.document_n"
_THEN: Final = "documents.id, chunks.ordinal"


def _by_words(db: Connection, within: ReadableSpaces, words: _Words, wanted: _Wanted) -> list[Any]:
    scored, asked = words.scored(within)
    # What scores less than the last that is shown need not be looked up.
    enough = f"score >= coalesce((select score from found order by score desc limit 1 offset {wanted.limit:d}), 0)"  # noqa: S608 - a number
    return db.execute(
        f"""
        with found as materialized (select n, {_ROUNDED.format(score="score")} as score from ({scored}) as scored),
        first as materialized (
            select found.n, found.score, row_number() over (order by found.score desc, {_THEN}) as place,
                row_number() over (order by found.score desc, {_THEN}) as keyword_rank, null as vector_rank
            from found {_OF_DOCUMENT}
            where found.score >= ? and {wanted.enough(enough)} and {wanted.condition} order by place limit ?
        )
        {_SHOWN}
        """,  # noqa: S608 - conditions of ours
        (*asked, wanted.min_score, *wanted.values, wanted.limit),
    ).fetchall()


def _by_both(
    db: Connection, within: ReadableSpaces, question: Question, words: _Words | None, wanted: _Wanted
) -> list[Any]:
    """Return rows by the ranks of both, or of vectors alone; each passage that is ranked is scored by its vector."""
    assert question.vector is not None
    # What is less like than the last that is ranked need not be looked up.
    enough = f"""
        found.likeness >= coalesce(
            (select likeness from near order by likeness desc limit 1 offset {SEARCH_FUSED_PASSAGES}), 0
        )
    """  # noqa: S608 - a number
    scored, asked = ("select cast(null as bigint) as n, 0.0 as score where 1 = 0", list[Any]())
    if words is not None:
        scored, asked = words.scored(within)
    likeness = _ROUNDED.format(score=db.dialect.likeness.format(vector="(select vector from question)"))
    vector = db.as_vector(question.vector)
    near, likened = _near(db, within, likeness, mark=question.mark, is_whole=wanted.is_whole)
    return db.execute(
        f"""
        with question (vector) as materialized (select {db.dialect.vector_value}),
        keyword as materialized (
            select found.n, row_number() over (
                order by {_ROUNDED.format(score="found.score")} desc, {_THEN}
            ) as keyword_rank
            from ({scored}) as found {_OF_DOCUMENT}
            where {wanted.condition} order by keyword_rank limit {SEARCH_FUSED_PASSAGES}
        ), near as materialized (
            {near}
        ), alike as materialized (
            select found.n, row_number() over (order by found.likeness desc, {_THEN}) as vector_rank
            from near as found {_OF_DOCUMENT}
            where found.likeness > 0 and {wanted.enough(enough)} and {wanted.condition}
            order by vector_rank limit {SEARCH_FUSED_PASSAGES}
        ), ranked as materialized (
            select n, max(keyword_rank) as keyword_rank, max(vector_rank) as vector_rank from (
                select n, keyword_rank, null as vector_rank from keyword
                union all select n, null, vector_rank from alike
            ) as either group by n
        ), likened (n, likeness) as (
            {likened}
        ), found as materialized (
            select ranked.n, keyword_rank, vector_rank,
                round(cast(coalesce(1.0 / ({_K} + keyword_rank), 0.0) +
                    coalesce(cast(? as double precision) / ({_K} + vector_rank), 0.0) as numeric), 9) as fused,
                case when likened.likeness > 0 then likened.likeness else 0.0 end as score
            from ranked left join likened on likened.n = ranked.n
        ), first as materialized (
            select found.n, keyword_rank, vector_rank, score,
                row_number() over (order by fused desc, {_THEN}) as place
            from found {_OF_DOCUMENT} where score >= ? order by place limit ?
        )
        {_SHOWN}
        """,  # noqa: S608 - conditions of ours
        (
            vector,
            *asked,
            *wanted.values,
            *wanted.values,
            question.vector_weight,
            wanted.min_score,
            wanted.limit,
        ),
    ).fetchall()


def _near(db: Connection, within: ReadableSpaces, likeness: str, *, mark: str, is_whole: bool) -> tuple[str, str]:
    """Return the statements that give passages by their likeness, and the likeness of those that are ranked.

    All passages of the scope are compared but those of spaces whose index gives their nearest. With a filter all are,
    as the nearest of a space may all be outside of it.
    """
    indexes = [] if not (is_whole and db.dialect.near_settings) else [
        each for each in near_indexes(db, [*within.spaces]).values() if each.is_used and each.mark == mark
    ]  # fmt: skip
    if not indexes:
        compared = f"select vectors.chunk_n as n, {likeness} as likeness from vectors where {within.of('vectors')}"  # noqa: S608 - numbers of ours
        return compared, "select n, likeness from near"
    db.execute(db.dialect.near_settings)
    left = within.without(each.space_n for each in indexes)
    parts = [f"select vectors.chunk_n as n, {likeness} as likeness from vectors where {left.of('vectors')}"]  # noqa: S608 - numbers of ours
    rounded = _ROUNDED.format(score="likeness")
    parts += [f"select n, {rounded} as likeness from ({each.nearest()}) as of_{each.space_n}" for each in indexes]  # noqa: S608 - numbers of ours
    likened = (
        f"select ranked.n, {likeness} from ranked join vectors on vectors.chunk_n = ranked.n "  # noqa: S608 - numbers of ours
        f"where {within.of('vectors')}"
    )
    return " union all ".join(parts), likened


def _has_any(db: Connection, within: ReadableSpaces, table: str) -> bool:
    return db.execute(f"select 1 from {table} where {within.of(table)} limit 1").fetchone() is not None  # noqa: S608 - names of ours
