"""Embedding: finds passages without a vector, and records the embedder of the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.titles import title_of

_SETTING: Final = "embedder"


class BarePassage(NamedTuple):
    """A passage without a vector; `checksum` is the checksum of its document's content."""

    n: int
    checksum: str
    text: str


def embedder_of(db: Connection) -> str | None:
    """Return the mark of the vectors' embedder; `None` if there were never any vectors."""
    row: Any = db.execute("select value from settings where name = ?", (_SETTING,)).fetchone()
    return None if row is None else str(row[0])


def bare_passages(db: Connection, within: ReadableSpaces, *, mark: str, limit: int) -> list[BarePassage]:
    """Return some passages of a scope without a vector of this embedder."""
    missing = "and not exists (select 1 from vectors where vectors.chunk_n = chunks.n)"
    if embedder_of(db) not in (None, mark):
        missing = ""
    rows = db.execute(
        f"""
        select chunks.n, documents.checksum, documents.name, documents.metadata,
            substr(texts.text, chunks.start + 1, chunks."end" - chunks.start)
        from chunks join documents on documents.n = chunks.document_n join texts on texts.document_n = documents.n
        where {within.of("chunks")} {missing} order by chunks.n limit ?
        """,  # noqa: S608 - conditions of ours
        (limit,),
    )
    return [BarePassage(int(n), str(checksum), _with_title(name, told, text)) for n, checksum, name, told, text in rows]


def _with_title(name: str, metadata: str, text: str) -> str:
    """Return the text of a passage for the embedder, with its document's title."""
    shown = title_of(name, orjson.loads(metadata))
    return text if text.startswith(shown) else f"{shown}\n{text}"


def put_vectors(db: Connection, passages: Sequence[BarePassage], vectors: NDArray[np.float32], *, mark: str) -> None:
    """Store the vectors of passages that still exist; vectors of another embedder are deleted in all spaces."""
    if embedder_of(db) != mark:
        db.execute("delete from vectors")
        db.execute(
            "insert into settings (name, value) values (?, ?) on conflict (name) do update set value = excluded.value",
            (_SETTING, mark),
        )
    for passage, vector in zip(passages, vectors, strict=True):
        # A passage may have been removed meanwhile, and its number reused.
        db.execute(
            f"""
            insert into vectors (chunk_n, space_n, vector) select chunks.n, chunks.space_n, {db.dialect.vector_value}
            from chunks join documents on documents.n = chunks.document_n
            where chunks.n = ? and documents.checksum = ? on conflict (chunk_n) do nothing
            """,  # noqa: S608 - words of ours
            (db.as_vector(vector), passage.n, passage.checksum),
        )
