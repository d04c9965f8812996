"""Statistics: the contents of each space, for the operator."""

from __future__ import annotations

from typing import Any

from pegboard.model.json_types import JSON
from pegboard.workspace.store.connection import Connection


def of_spaces(db: Connection) -> list[JSON]:
    """Return every space with its numbers of sources, documents, passages and rows, by name."""
    rows: Any = db.execute(
        """
        select spaces.name, spaces.chunk_count,
            (select count(*) from documents where documents.space_n = spaces.n),
            (select count(*) from documents where documents.space_n = spaces.n and documents.error <> ''),
            (select coalesce(sum(char_count), 0) from documents where documents.space_n = spaces.n),
            (select coalesce(sum(row_count), 0) from tables where tables.space_n = spaces.n),
            (select count(*) from grants where grants.space_n = spaces.n), spaces.n
        from spaces order by spaces.name
        """
    ).fetchall()
    return [
        {
            "space": name, "documents": documents, "failed": failed, "chunks": chunks, "chars": chars, "rows": cells,
            "grants": granted, "sources": _sources(db, number),
        }
        for name, chunks, documents, failed, chars, cells, granted, number in rows
    ]  # fmt: skip


def _sources(db: Connection, space_n: int) -> list[JSON]:
    rows = db.execute(
        """
        select id, name, type, origin, status, updated_at,
            (select count(*) from documents where documents.source_n = sources.n)
        from sources where space_n = ? order by name
        """,
        (space_n,),
    )
    return [
        {
            "source_id": source_id, "name": name, "type": kind, "origin": origin, "status": status,
            "updated_at": updated_at, "documents": documents,
        }
        for source_id, name, kind, origin, status, updated_at, documents in rows
    ]  # fmt: skip
