"""Searching: find passages by words, scored within the scope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pegboard.model.bounds import SEARCH_DOCUMENT_TERMS
from pegboard.model.document import DocumentFilters
from pegboard.model.json_types import JSON
from pegboard.workspace.analyzer import question_terms
from pegboard.workspace.paging import fitting_count
from pegboard.workspace.sqlite.connection import Connection
from pegboard.workspace.sqlite.scoring import best_score, idf
from pegboard.workspace.sqlite.within import Within


def search(
    db: Connection,
    within: Within,
    query: str,
    *,
    filters: DocumentFilters,
    limit: int,
    min_score: float,
) -> JSON:
    """Return the passages that fit a question best, the best first."""
    hits = keyword_hits(db, within, query, filters=filters, limit=limit, min_score=min_score)
    count = fitting_count(hits)
    return {"hits": hits[:count], "mode_used": "keyword", "truncated": count < len(hits)}


def keyword_hits(
    db: Connection, within: Within, query: str, *, filters: DocumentFilters, limit: int, min_score: float
) -> list[JSON]:
    """Return the passages that have words of a question, by their score."""
    # Also where nothing is searched for: an id that is not there is an error in any case.
    condition, values = within.filtered(db, filters)
    terms = question_terms(query)[:SEARCH_DOCUMENT_TERMS]
    passages, length = _size(db, within)
    if not terms or not passages:
        return []
    having = {term: _having(db, within, term) for term in terms}
    weights = {term: idf(passages=passages, having=count) for term, count in having.items()}
    known = [term for term in terms if having[term]]
    if not known:
        return []
    match = f"{within.match()} AND terms : ({_any(known)})"
    phrase_weights = [*[0.0] * len(within.spaces), *(weights[term] for term in known)]
    best = best_score([weights[term] for term in terms])
    # The weights are numbers of ours; they stand in the text, for SQLite has a limit on the values that it is given.
    listed = ", ".join(f"{weight!r}" for weight in phrase_weights)
    rows = db.execute(
        f"""
        with found as materialized (
            select rowid as n, round(passage_score(passages, {length!r}, {listed}) / {best!r}, 6) as score
            from passages where passages match ?
        )
        select documents.id, documents.name, chunks.ordinal, found.score, chunks.start, chunks."end", sources.id,
            substr(texts.text, chunks.start + 1, chunks."end" - chunks.start)
        from found
            join chunks on chunks.n = found.n
            join documents on documents.n = chunks.document_n
            join sources on sources.n = documents.source_n
            join texts on texts.document_n = documents.n
        where found.score >= ? and {condition}
        order by found.score desc, documents.id, chunks.ordinal limit ?
        """,  # noqa: S608 - numbers and conditions of ours
        (match, min_score, *values, limit),
    )
    return [
        {
            "document_id": document_id, "name": name, "chunk_id": f"{document_id}.{ordinal}", "text": text,
            "score": score, "start": start, "end": end, "source_id": source_id,
            "why": {"keyword_rank": rank, "vector_rank": None},
        }
        for rank, (document_id, name, ordinal, score, start, end, source_id, text) in enumerate(rows, start=1)
    ]  # fmt: skip


def _size(db: Connection, within: Within) -> tuple[int, float]:
    """Return how many passages a scope has, and how many terms one has on average."""
    numbers = ",".join(map(str, within.spaces)) or "null"
    row: Any = db.execute(
        f"select coalesce(sum(chunk_count), 0), coalesce(sum(term_total), 0) from spaces where n in ({numbers})"  # noqa: S608 - numbers of ours
    ).fetchone()
    return int(row[0]), max(1.0, row[1] / row[0]) if row[0] else 1.0


def _having(db: Connection, within: Within, term: str) -> int:
    """Return how many passages of a scope have a term."""
    match = f'{within.match()} AND terms : "{term}"'
    row: Any = db.execute("select count(*) from passages where passages match ?", (match,)).fetchone()
    return int(row[0])


def _any(terms: Sequence[str]) -> str:
    # A term has no quotes in it.
    return " OR ".join(f'"{term}"' for term in terms)
