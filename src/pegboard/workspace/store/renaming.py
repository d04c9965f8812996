"""Renaming: moves documents to other paths of their source. Ids, texts, vectors and rows stay."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from pegboard.model.document import NewDocument
from pegboard.model.json_types import JSON
from pegboard.workspace.store import writing
from pegboard.workspace.store.connection import Connection


class Rename(NamedTuple):
    """A document by its number, and its new path. `reads_again` if the new name means another format."""

    n: int
    path: str
    reads_again: bool = False


def rename(db: Connection, space_n: int, source_n: int, each: Rename) -> bool:
    """Move a document to another path; return False if it does not exist, or the path is taken.

    The vectors of its passages stay, even if the embedder saw the old name as a title.
    """
    folder, name = writing.split_path(each.path)
    row: Any = db.execute(
        "select documents.name, documents.metadata, texts.text from documents "
        "join texts on texts.document_n = documents.n where documents.n = ? and documents.source_n = ?",
        (each.n, source_n),
    ).fetchone()
    if row is None or writing.has_document(db, source_n, each.path):
        return False
    old_name, metadata, text = str(row[0]), orjson.loads(row[1]), str(row[2])
    db.execute("update documents set folder = ?, name = ? where n = ?", (folder, name, each.n))
    if each.reads_again:
        _read_again(db, each.n)
    elif old_name != name:
        _rename_tables(db, space_n, each.n, old_name, name)
        if not metadata.get("title"):
            _retitle(db, space_n, each, text, metadata)
    return True


def _read_again(db: Connection, document_n: int) -> None:
    """Let the next read of the file replace the contents: no file has an empty checksum."""
    db.execute("update documents set checksum = '' where n = ?", (document_n,))


def _rename_tables(db: Connection, space_n: int, document_n: int, old_name: str, name: str) -> None:
    """Name the tables of a document after its new name."""
    before, after = (writing.table_name(each.rpartition(".")[0]) for each in (old_name, name))
    for n, table in db.execute("select n, name from tables where document_n = ? order by n", (document_n,)).fetchall():
        if table.startswith(before):
            db.execute("update tables set name = '' where n = ?", (n,))
            wanted = writing.table_name(after + table[len(before) :])
            db.execute("update tables set name = ? where n = ?", (writing.free_table_name(db, space_n, wanted), n))


def _retitle(db: Connection, space_n: int, each: Rename, text: str, metadata: JSON) -> None:
    """Let the passages of a document without a title be found by its new name."""
    document = NewDocument(path=each.path, mime="", size_bytes=0, checksum="", text=text, metadata=metadata)
    passages = writing.prepared(document).passages
    rows = db.execute(
        "select n, terms, term_count from chunks where document_n = ? order by ordinal", (each.n,)
    ).fetchall()
    if len(rows) != len(passages):
        # An earlier version split the text differently.
        _read_again(db, each.n)
        return
    postings: list[writing.Posting] = []
    for (n, terms, _), passage in zip(rows, passages, strict=True):
        writing.remove_postings(db, space_n, n, terms)
        db.execute(
            "update chunks set terms = ?, term_count = ? where n = ?",
            (" ".join(passage.counts), passage.term_count, n),
        )
        postings += [(space_n, term, n, count, passage.term_count) for term, count in passage.counts.items()]
    writing.put_postings(db, postings)
    change = sum(passage.term_count for passage in passages) - sum(count for _, _, count in rows)
    writing.count_passages(db, space_n, 0, change)
