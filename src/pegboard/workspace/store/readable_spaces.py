"""Readable spaces: a scope in SQL: the numbers of its spaces, and conditions that restrict statements to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Struct

from pegboard.model.document import DocumentFilters, DocumentScope
from pegboard.model.error import CallError
from pegboard.workspace.own_metadata import filter_value
from pegboard.workspace.store.connection import Connection

Condition = tuple[str, list[Any]]


class ReadableSpaces(Struct, frozen=True, kw_only=True):
    """The readable part of one scope. Every statement on documents has a condition from `of` in its WHERE."""

    spaces: dict[int, str]

    @classmethod
    def of_scope(cls, db: Connection, scope: DocumentScope) -> ReadableSpaces:
        named = ",".join("?" * len(scope.spaces))
        rows = db.execute(f"select n, name from spaces where name in ({named or 'null'})", scope.spaces)  # noqa: S608 - question marks
        return cls(spaces={int(n): str(name) for n, name in rows})

    def of(self, table: str) -> str:
        """Return the condition that a row of a table is in one of the spaces. The numbers are our own."""
        return f"{table}.space_n in ({','.join(map(str, self.spaces)) or 'null'})"

    def without(self, spaces: Iterable[int]) -> ReadableSpaces:
        """Return the scope without some spaces."""
        gone = set(spaces)
        return ReadableSpaces(spaces={n: name for n, name in self.spaces.items() if n not in gone})

    def source_n(self, db: Connection, source_id: str) -> int:
        """Return the number of a source.

        Raises:
            CallError: not_found, if it does not exist or is in another space.
        """
        statement = f"select n from sources where {self.of('sources')} and id = ?"  # noqa: S608 - numbers of ours
        return _only(db, statement, source_id, "source")

    def document_n(self, db: Connection, document_id: str) -> int:
        """Return the number of a document.

        Raises:
            CallError: not_found, if it does not exist or is in another space.
        """
        statement = f"select n from documents where {self.of('documents')} and id = ?"  # noqa: S608 - numbers of ours
        return _only(db, statement, document_id, "document")

    def filtered(self, db: Connection, filters: DocumentFilters) -> Condition:
        """Return the condition, with its values, for rows of `documents` in this scope that match the filters.

        Raises:
            CallError: not_found, for an id outside this scope.
        """
        conditions, values = [self.of("documents")], list[Any]()
        sources = [self.source_n(db, each) for each in (*filters.source_ids, *filters.feed_ids)]
        if sources:
            conditions.append(f"documents.source_n in ({','.join(map(str, sources))})")
        documents = [self.document_n(db, each) for each in filters.document_ids]
        if documents:
            conditions.append(f"documents.n in ({','.join(map(str, documents))})")
        if filters.collection:
            named = f"select n from sources where (id = ? or name = ?) and {self.of('sources')}"  # noqa: S608 - numbers of ours
            conditions.append(f"documents.source_n in ({named})")
            values += [filters.collection, filters.collection]
        folder = folder_of(filters.folder_path)
        if folder:
            conditions.append("(documents.folder = ? or substr(documents.folder, 1, ?) = ?)")
            values += [folder, len(folder) + 1, f"{folder}/"]
        for key, value in filters.metadata.items():
            # An unknown name has no value, and equals nothing. Metadata of people is stored as text, that of parsers
            # and of host code with its type.
            conditions.append(f"({db.dialect.has_metadata} or {db.dialect.has_metadata})")
            values += [key, orjson.dumps([value]).decode(), key, orjson.dumps([filter_value(key, value)]).decode()]
        return " and ".join(conditions), values


def _only(db: Connection, statement: str, identifier: str, what: str) -> int:
    row = db.execute(statement, (identifier,)).fetchone()
    if row is None:
        raise absent(what, identifier)
    return int(row[0])


def absent(what: str, named: str) -> CallError:
    """Return the one error for both a missing item and one in another space."""
    where = "list_sources" if what == "source" else "find_by_name"
    return CallError("not_found", f"There is no {what} {named[:100]!r} here. Ask {where} for what there is.")


def folder_of(path: str) -> str:
    """Return a folder's stored form: names separated by slashes, empty for the root.

    Raises:
        CallError: invalid_arguments, for a path with `..` in it.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise CallError("invalid_arguments", f"The path {path[:100]!r} has a '..' step. Name the folder itself.")
    return "/".join(parts)


def as_path(folder: str, name: str) -> str:
    """Return the path of a document in its source."""
    return f"{folder}/{name}" if folder else name
