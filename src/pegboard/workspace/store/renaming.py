"""Renaming: moves documents to other paths of their source. Ids, texts, vectors and rows stay."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

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
        "select name, metadata from documents where n = ? and source_n = ?", (each.n, source_n)
    ).fetchone()
    if row is None or writing.has_document(db, source_n, each.path):
        return False
    old_name, metadata = str(row[0]), orjson.loads(row[1])
    db.execute("update documents set folder = ?, name = ? where n = ?", (folder, name, each.n))
    if each.reads_again:
        _read_again(db, each.n)
    elif old_name != name:
        _rename_tables(db, space_n, each.n, old_name, name)
        if not metadata.get("title"):
            # Its passages are found by its name.
            writing.read_again(db, each.n)
    return True


def _read_again(db: Connection, document_n: int) -> None:
    """Let the next read of the file replace the contents: no file has an empty checksum."""
    db.execute("update documents set checksum = '', etag = '' where n = ?", (document_n,))


def _rename_tables(db: Connection, space_n: int, document_n: int, old_name: str, name: str) -> None:
    """Name the tables of a document after its new name."""
    before, after = (writing.table_name(each.rpartition(".")[0]) for each in (old_name, name))
    for n, table in db.execute("select n, name from tables where document_n = ? order by n", (document_n,)).fetchall():
        if table.startswith(before):
            db.execute("update tables set name = '' where n = ?", (n,))
            wanted = writing.table_name(after + table[len(before) :])
            db.execute("update tables set name = ? where n = ?", (writing.free_table_name(db, space_n, wanted), n))
