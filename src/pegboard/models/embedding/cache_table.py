"""Cache table: the table of the embedding cache, separate from the code that needs numpy to read it."""

from __future__ import annotations

from pegboard.storage.store_schema import Schema, table_version

SCHEMA = Schema(
    name="embedding_cache",
    sqlite=("create table vectors (mark blob primary key, row blob not null);",),
    tables=("vectors",),
    unrecorded=table_version("vectors"),
)
