"""Searching: finds passages by words, by vectors, or both, scored within the scope.

`postings` lists the passages of a term by space. So one statement finds, scores and combines them in either database,
without reading other spaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson
from msgspec import Struct
from numpy.typing import NDArray

from pegboard.model.document import EVERY_DOCUMENT, DocumentFilters, SearchMode
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.workspace.paging import fitting_count
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.embedding import embedder_of
from pegboard.workspace.store.near import SEARCH_FUSED_PASSAGES, near_indexes
from pegboard.workspace.store.question_words import QuestionWords
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.titles import title_of

_K: Final = 60  # the constant of reciprocal rank fusion; source: Cormack, Clarke and Büttcher, 2009


NOT_READ: Final = (
    "The embedder has not read these documents yet, so passages were found by words alone. The operator can have it "
    "read them: `pegboard workspace embed`."
)


class Question(Struct, frozen=True, kw_only=True):
    """A question: its words, their vector, and the weight of the vector ranking.

    `mark` identifies the vector's embedder. `note` says why there is no vector although there is an embedder.
    """

    text: str
    mode: SearchMode = "keyword"
    vector: NDArray[np.float32] | None = None
    vector_weight: float = 1.0
    mark: str = ""
    note: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """The best passages for a question, best first; how they were found, and a note on that."""

    hits: Sequence[JSON]
    mode: SearchMode
    note: str


def search(
    db: Connection,
    within: ReadableSpaces,
    question: Question,
    *,
    filters: DocumentFilters,
    limit: int,
    min_score: float,
) -> Found:
    """Return the best passages for a question."""
    # Before any search: an unknown id is an error in any case.
    condition, values = within.filtered(db, filters)
    wanted = _Wanted(
        condition=condition, values=values, limit=limit, min_score=min_score, is_whole=filters == EVERY_DOCUMENT
    )
    mode, note = question.mode, question.note
    if mode != "keyword" and not (_has_any(db, within, "vectors") and embedder_of(db) == question.mark):
        mode, note = "keyword", NOT_READ if _has_any(db, within, "chunks") else ""
    words = None if mode == "vector" else QuestionWords.of(db, within, question.text)
    rows: Sequence[Any] = ()
    if words is not None and words.groups and mode == "keyword":
        rows = _by_words(db, within, words, wanted)
    elif question.vector is not None and mode != "keyword":
        rows = _by_both(db, within, question, words, wanted)
    if words is not None and _has_any(db, within, "chunks"):
        note = " ".join(filter(None, (note, words.note)))
    return Found(hits=[_hit(*row) for row in rows], mode=mode, note=note)


def with_neighbours(db: Connection, within: ReadableSpaces, found: Found, count: int) -> Found:
    """Return found passages, each with a number of passages before and after it."""
    if not count:
        return found
    return replace(found, hits=[{**hit, **_neighbours(db, within, hit, count)} for hit in found.hits])


def answer_of(found: Found) -> JSON:
    """Return the answer of a search, with as many passages as fit."""
    count = fitting_count(found.hits)
    answer: JSON = {"hits": found.hits[:count], "mode_used": found.mode, "truncated": count < len(found.hits)}
    return {**answer, "note": found.note} if found.note else answer


def _hit(
    document_id: str,
    name: str,
    ordinal: int,
    score: float,
    start: int,
    end: int,
    source_id: str,
    text: str,
    keyword_rank: int | None,
    vector_rank: int | None,
    metadata: str,
    context: str,
) -> JSON:
    """Return a passage that can be understood without its document."""
    hit: JSON = {
        "document_id": document_id, "name": name, "title": title_of(name, orjson.loads(metadata)),
        "chunk_id": f"{document_id}.{ordinal}", "text": text, "score": score, "start": start, "end": end,
        "source_id": source_id, "why": {"keyword_rank": keyword_rank, "vector_rank": vector_rank},
    }  # fmt: skip
    return {**hit, **orjson.loads(context)} if context else hit


def _neighbours(db: Connection, within: ReadableSpaces, hit: JSON, count: int) -> JSON:
    """Return the text before and after a passage, up to a number of passages each."""
    document_n = within.document_n(db, hit["document_id"])
    ordinal = int(hit["chunk_id"].rpartition(".")[2])
    row: Any = db.execute(
        """
        select min(chunks.start), max(chunks."end") from chunks
        where document_n = ? and ordinal between ? and ?
        """,
        (document_n, ordinal - count, ordinal + count),
    ).fetchone()
    start, end = int(row[0]), int(row[1])
    texts: Any = db.execute(
        "select substr(text, ?, ?), substr(text, ?, ?) from texts where document_n = ?",
        (start + 1, hit["start"] - start, hit["end"] + 1, end - hit["end"], document_n),
    ).fetchone()
    return {"before": texts[0], "after": texts[1]}


class _Wanted(Struct, frozen=True, kw_only=True):
    """The wanted passages of the scope: those of documents that match a condition, and the best of them.

    `is_whole` means that no document is excluded.
    """

    condition: str
    values: list[Any]
    limit: int
    min_score: float
    is_whole: bool

    def enough(self, condition: str) -> str:
        """Return a condition on ranks; always true with a filter, which may keep passages of any rank."""
        return condition if self.is_whole else "1 = 1"


# Rounded, so that scores are the same in both databases and in any order of addition.
_ROUNDED: Final = "cast(round(cast({score} as numeric), 6) as double precision)"
# The shown columns of the passages in `first`; only their texts are read.
_SHOWN: Final = """
    select documents.id, documents.name, chunks.ordinal, first.score, chunks.start, chunks."end", sources.id,
        substr(texts.text, chunks.start + 1, chunks."end" - chunks.start), first.keyword_rank, first.vector_rank,
        documents.metadata, chunks.context
    from first
        join chunks on chunks.n = first.n
        join documents on documents.n = chunks.document_n
        join sources on sources.n = documents.source_n
        join texts on texts.document_n = documents.n
    order by first.place
"""
_OF_DOCUMENT: Final = "join chunks on chunks.n = found.n join documents on documents.n = chunks.document_n"
_THEN: Final = "documents.id, chunks.ordinal"


def _by_words(db: Connection, within: ReadableSpaces, words: QuestionWords, wanted: _Wanted) -> list[Any]:
    scored, asked = words.scored(within)
    # Passages below the last one shown need not be read.
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
    db: Connection, within: ReadableSpaces, question: Question, words: QuestionWords | None, wanted: _Wanted
) -> list[Any]:
    """Return rows by both rankings, or by vectors only; each ranked passage is also scored by its vector."""
    assert question.vector is not None
    # Passages less similar than the last ranked one need not be read.
    enough = f"""
        found.likeness >= coalesce(
            (select likeness from near order by likeness desc limit 1 offset {SEARCH_FUSED_PASSAGES}), 0
        )
    """  # noqa: S608 - a number
    scored, asked = ("select cast(null as bigint) as n, 0.0 as score where 1 = 0", list[Any]())
    if words is not None and words.groups:
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
    """Return the statements for passages by likeness, and for the likeness of ranked ones.

    All passages of the scope are compared, except in spaces with a usable index. With a filter all are, since the
    nearest passages of a space may be excluded.
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
