"""Document tables: the tables in the documents of a scope, with their names for queries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import orjson
from msgspec import Struct

from pegboard.model.json_types import JSON
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import ReadableSpaces


class StoredTable(Struct, frozen=True, kw_only=True):
    """A table of a document: its number, its name in its space, and its name in this scope."""

    n: int
    name: str
    shown: str
    document_n: int
    columns: tuple[str, ...]
    row_count: int


def tables_of(db: Connection, within: ReadableSpaces) -> list[StoredTable]:
    """Return the tables of a scope by name. A name that occurs in two spaces gets the space's name appended."""
    rows = db.execute(
        f"select n, space_n, name, document_n, columns, row_count from tables where {within.of('tables')} "  # noqa: S608 - numbers of ours
        "order by name, space_n"
    ).fetchall()
    counts = Counter(name for _, _, name, _, _, _ in rows)
    taken = {name for name, count in counts.items() if count == 1}
    tables: list[StoredTable] = []
    for n, space_n, name, document_n, columns, row_count in rows:
        shown = name
        if counts[name] > 1:
            space = re.sub(r"[^a-z0-9]+", "_", within.spaces[space_n].lower()).strip("_") or "space"
            shown, number = f"{name}__{space}", 1
            while shown in taken:
                number += 1
                shown = f"{name}__{space}_{number}"
            taken.add(shown)
        tables.append(
            StoredTable(
                n=n,
                name=name,
                shown=shown,
                document_n=document_n,
                columns=tuple(orjson.loads(columns)),
                row_count=row_count,
            )
        )
    return tables


def described(db: Connection, within: ReadableSpaces, tables: Sequence[StoredTable], *, rows: int) -> list[JSON]:
    """Return the names, columns and first rows of tables, for writing a query."""
    first = f"select cells from table_rows where table_n = ? and {within.of('table_rows')} order by ordinal limit ?"  # noqa: S608 - numbers of ours
    return [
        {
            "table": table.shown,
            "columns": list(table.columns),
            "row_count": table.row_count,
            "first_rows": [orjson.loads(cells) for (cells,) in db.execute(first, (table.n, rows)).fetchall()],
        }
        for table in tables
    ]
