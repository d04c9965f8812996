"""Browsing: the sources and folders of a scope, and the details of single documents."""

from __future__ import annotations

from typing import Any

import orjson

from pegboard.model.document import DocumentFilters
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.file_globs import name_matcher
from pegboard.workspace.limits import DOCUMENT_PLACES, DOCUMENT_RESULT_BYTES
from pegboard.workspace.paging import fitting_count, page, place_of
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.document_tables import described, tables_of
from pegboard.workspace.store.folder_node import FolderNode, drawn
from pegboard.workspace.store.readable_spaces import ReadableSpaces, absent, as_path, folder_of
from pegboard.workspace.unclear_columns import unclear_note

_FOLDER = 0
_LOOKED_AT_ROWS = 50  # rows of a table examined for ambiguous dates and numbers


def list_sources(db: Connection, within: ReadableSpaces, *, type_: str | None, limit: int, cursor: str | None) -> JSON:
    """Return the sources of a scope by name, each with its number of documents."""
    place = place_of(cursor, str, str)
    rows = db.execute(
        f"""
        select id, name, type, status, updated_at,
            (select count(*) from documents where documents.source_n = sources.n) as document_count
        from sources
        where {within.of("sources")} and (cast(?1 as text) is null or type = ?1)
            and (cast(?2 as text) is null or (name, id) > (?2, ?3))
        order by name, id limit ?4
        """,  # noqa: S608 - numbers of ours
        (type_, *(place or (None, None)), limit + 1),
    ).fetchall()
    items = [
        {
            "source_id": source_id, "name": name, "type": kind, "document_count": count,
            "updated_at": updated_at, "status": status,
        }
        for source_id, name, kind, status, updated_at, count in rows
    ]  # fmt: skip
    return page(items, limit=limit, places=[(row[1], row[0]) for row in rows])


def root_folders(db: Connection, within: ReadableSpaces, *, limit: int) -> list[str]:
    """Return the first root folders of the sources, as `source/folder`, and `...` if there are more."""
    rows = db.execute(
        f"""
        select distinct sources.name,
            coalesce({db.dialect.first_name.format(path="documents.folder")}, '') as folder
        from sources left join documents on documents.source_n = sources.n
        where {within.of("sources")} order by 1, 2 limit ?
        """,  # noqa: S608 - numbers of ours
        (2 * limit + 2,),
    ).fetchall()
    # A source with folders is already named by them; its documents outside of folders add no line.
    with_folders = {source for source, folder in rows if folder}
    names = [f"{source}/{folder}" for source, folder in rows if folder or source not in with_folders]
    return names if len(names) <= limit else [*names[:limit], "..."]


def list_documents(db: Connection, within: ReadableSpaces, *, limit: int) -> list[JSON]:
    """Return the first documents of a scope by space, source and path."""
    rows = db.execute(
        f"""
        select spaces.name, sources.name, sources.id, documents.folder, documents.name, documents.mime,
            documents.size_bytes, documents.metadata
        from documents join sources on sources.n = documents.source_n join spaces on spaces.n = documents.space_n
        where {within.of("documents")} and documents.error = ''
        order by spaces.name, sources.name, documents.folder, documents.name limit ?
        """,  # noqa: S608 - numbers of ours
        (limit,),
    )
    return [
        {
            "space": space, "source": source, "source_id": source_id, "path": as_path(folder, name), "mime": mime,
            "size_bytes": size_bytes, "title": _pop_value(orjson.loads(metadata), "title", str),
        }
        for space, source, source_id, folder, name, mime, size_bytes, metadata in rows
    ]  # fmt: skip


def documents(
    db: Connection,
    within: ReadableSpaces,
    *,
    space: str | None,
    source: str | None,
    folder: str,
    limit: int,
    cursor: str | None,
) -> JSON:
    """Return the documents of a scope by space, source and path, including those that could not be read.

    A source is given by name or id. An unknown space or source has no documents, as one outside of the scope.
    """
    below = folder_of(folder)
    rows = db.execute(
        f"""
        select spaces.name, sources.name, sources.id, documents.folder, documents.name, documents.id, documents.mime,
            documents.size_bytes, documents.char_count, documents.error, documents.modified_at, documents.ingested_at
        from documents join sources on sources.n = documents.source_n join spaces on spaces.n = documents.space_n
        where {within.of("documents")} and (cast(?1 as text) is null or spaces.name = ?1)
            and (cast(?2 as text) is null or sources.name = ?2 or sources.id = ?2)
            and (?3 = '' or documents.folder = ?3 or substr(documents.folder, 1, ?4) = ?5)
            and (cast(?6 as text) is null
                or (spaces.name, sources.name, documents.folder, documents.name) > (?6, ?7, ?8, ?9))
        order by spaces.name, sources.name, documents.folder, documents.name limit ?10
        """,  # noqa: S608 - numbers of ours
        (
            space, source, below, len(below) + 1, f"{below}/",
            *(place_of(cursor, str, str, str, str) or (None, None, None, None)), limit + 1,
        ),
    ).fetchall()  # fmt: skip
    items: list[JSON] = [
        {
            "document_id": document_id, "space": of_space, "source": of_source, "source_id": source_id,
            "path": as_path(str(its_folder), str(name)), "mime": mime, "size_bytes": size_bytes,
            "char_count": char_count, "modified_at": modified_at, "ingested_at": ingested_at,
            "status": "failed" if error else "ready", **({"error": error} if error else {}),
        }
        for (of_space, of_source, source_id, its_folder, name, document_id, mime, size_bytes, char_count, error,
             modified_at, ingested_at) in rows
    ]  # fmt: skip
    return page(items, limit=limit, places=[(row[0], row[1], row[3], row[4]) for row in rows])


def place_of_document(db: Connection, within: ReadableSpaces, document_id: str) -> JSON:
    """Return the place of a document: its id, space, source, type of source, and path.

    Raises:
        CallError: not_found.
    """
    row: Any = db.execute(
        "select spaces.name, sources.name, sources.type, documents.folder, documents.name from documents "
        "join sources on sources.n = documents.source_n join spaces on spaces.n = documents.space_n "
        "where documents.n = ?",
        (within.document_n(db, document_id),),
    ).fetchone()
    space, source, type_, folder, name = row
    return {
        "document_id": document_id, "space": space, "source": source, "source_type": type_,
        "path": as_path(str(folder), str(name)),
    }  # fmt: skip


def document_named(db: Connection, within: ReadableSpaces, space: str, source: str, path: str) -> str:
    """Return the id of the document at a path of a source, which is given by name or id.

    Raises:
        CallError: not_found.
    """
    folder, _, name = folder_of(path).rpartition("/")
    row = db.execute(
        f"""
        select documents.id from documents join sources on sources.n = documents.source_n
            join spaces on spaces.n = sources.space_n
        where {within.of("sources")} and spaces.name = ? and (sources.name = ? or sources.id = ?)
            and documents.folder = ? and documents.name = ?
        order by sources.name = ? desc
        """,  # noqa: S608 - numbers of ours
        (space, source, source, folder, name, source),
    ).fetchone()
    if row is None:
        raise absent("document", path)
    return str(row[0])


def list_folder(
    db: Connection, within: ReadableSpaces, source_id: str, path: str, *, limit: int, cursor: str | None
) -> JSON:
    """Return the contents of a folder, folders first.

    Raises:
        CallError: not_found; invalid_arguments for the path of a document.
    """
    source_n = within.source_n(db, source_id)
    folder = _existing_folder(db, source_n, path)
    kind, name = place_of(cursor, int, str) or (-1, "")
    rows = db.execute(
        f"""
        with inside as (
            select distinct 0 as kind, {_name_below(db, folder)} as name, '' as id, '' as mime, 0 as size_bytes,
                null as at
            from documents where source_n = ?2 and folder <> ?1 and substr(folder, 1, ?6) = ?7
            union all
            select 1, name, id, mime, size_bytes, modified_at from documents where source_n = ?2 and folder = ?1
        )
        select kind, name, id, mime, size_bytes, at from inside
        where (kind, name) > (?3, ?4) order by kind, name limit ?5
        """,  # noqa: S608 - words of ours
        (folder, source_n, kind, name, limit + 1, *_below(folder)),
    ).fetchall()
    items: list[JSON] = [
        {"type": "folder", "name": name, "path": as_path(folder, name)}
        if kind == _FOLDER
        else {
            "type": "document", "name": name, "path": as_path(folder, name), "document_id": document_id,
            "mime": mime, "size_bytes": size_bytes, "modified_at": modified_at,
        }
        for kind, name, document_id, mime, size_bytes, modified_at in rows
    ]  # fmt: skip
    return {"path": f"/{folder}", **page(items, limit=limit, places=[(row[0], row[1]) for row in rows])}


def _existing_folder(db: Connection, source_n: int, path: str) -> str:
    folder = folder_of(path)
    if not folder:
        return folder
    upper, _, name = folder.rpartition("/")
    if db.execute(
        "select 1 from documents where source_n = ? and (folder = ? or substr(folder, 1, ?) = ?) limit 1",
        (source_n, folder, *_below(folder)),
    ).fetchone():
        return folder
    if db.execute(
        "select 1 from documents where source_n = ? and folder = ? and name = ?", (source_n, upper, name)
    ).fetchone():
        text = f"{path[:100]!r} is a document, not a folder. Read it with read_document, or name its folder."
        raise CallError("invalid_arguments", text)
    text = f"There is no folder {path[:100]!r} in this source. Ask list_folder_contents or folder_tree for its folders."
    raise CallError("not_found", text)


def _below(folder: str) -> tuple[int, str]:
    """Return the common prefix of the paths of all subfolders, and its length."""
    start = f"{folder}/" if folder else ""
    return len(start), start


def _name_below(db: Connection, folder: str) -> str:
    """Return the SQL expression for the next name below a folder."""
    return db.dialect.first_name.format(path=f"substr(folder, {_below(folder)[0] + 1})")


def folder_tree(
    db: Connection,
    within: ReadableSpaces,
    source_id: str,
    path: str,
    *,
    max_depth: int,
    documents: bool,
    max_nodes: int,
) -> JSON:
    """Return the subfolders of a folder as nested JSON and as a drawn tree; large ones are cut breadth first.

    Raises:
        CallError: not_found; invalid_arguments for the path of a document.
    """
    source_n = within.source_n(db, source_id)
    top = _existing_folder(db, source_n, path)
    name = db.execute("select name from sources where n = ?", (source_n,)).fetchone()
    assert name is not None
    below = (top, source_n, *_below(top))
    # One row per folder with documents: far fewer than documents.
    counts: dict[str, int] = dict(
        db.execute(
            "select folder, count(*) from documents where source_n = ?2 and "
            "(folder = ?1 or substr(folder, 1, ?3) = ?4) group by folder",
            below,
        ).fetchall()
    )
    root = FolderNode(top.rpartition("/")[2] or str(name[0]), top)
    for folder in sorted(counts):
        root.add(folder, document_count=counts[folder])
    if documents:
        named = db.execute(
            "select folder, name, id from documents where source_n = ?2 and "
            "(folder = ?1 or substr(folder, 1, ?3) = ?4) order by folder, name",
            below,
        )
        for folder, document, document_id in named:
            root.add(folder).documents.append((document, document_id))
    total = root.count_nodes()
    while True:
        tree, shown = root.cut(max_depth=max_depth, max_nodes=max_nodes)
        answer = {"tree": tree, "text": drawn(tree), "shown": shown, "total": total, "truncated": shown < total}
        if len(orjson.dumps(answer)) <= DOCUMENT_RESULT_BYTES or max_nodes <= 1:
            return answer
        # Both forms must fit, so the number of nodes is halved until they do.
        max_nodes = max(1, min(max_nodes, shown) // 2)


def find_by_name(
    db: Connection, within: ReadableSpaces, pattern: str, *, ignore_case: bool, filters: DocumentFilters, limit: int
) -> JSON:
    """Return the documents whose name matches a glob, or whose path does if the glob has a slash; sorted."""
    condition, values = within.filtered(db, filters)
    matches = name_matcher(pattern, ignore_case=ignore_case)
    on_path = "/" in pattern
    rows = db.execute(
        f"""
        select documents.id, documents.folder, documents.name, documents.mime, documents.size_bytes, sources.id
        from documents join sources on sources.n = documents.source_n
        where {condition} order by sources.name, sources.id, documents.folder, documents.name
        """,  # noqa: S608 - conditions of ours
        values,
    )
    items: list[JSON] = []
    total = 0
    for document_id, folder, name, mime, size_bytes, source_id in rows:
        if not matches(as_path(folder, name) if on_path else name):
            continue
        total += 1
        if len(items) < limit:
            items.append({
                "document_id": document_id, "name": name, "path": as_path(folder, name), "source_id": source_id,
                "mime": mime, "size_bytes": size_bytes,
            })  # fmt: skip
    count = fitting_count(items)
    return {"items": items[:count], "total": total, "truncated": count < total}


def document_info(db: Connection, within: ReadableSpaces, document_n: int) -> JSON:
    """Return the details of a document."""
    row = db.execute(
        """
        select documents.id, documents.name, documents.folder, documents.mime, documents.size_bytes,
            documents.char_count, documents.checksum, documents.metadata, documents.modified_at, documents.ingested_at,
            documents.error, sources.id, sources.name,
            (select count(*) from chunks where chunks.document_n = documents.n)
        from documents join sources on sources.n = documents.source_n where documents.n = ?
        """,
        (document_n,),
    ).fetchone()
    assert row is not None
    (document_id, name, folder, mime, size_bytes, char_count, checksum, metadata_text, modified_at, ingested_at, error,
     source_id, source, chunk_count) = row  # fmt: skip
    metadata: JSON = orjson.loads(str(metadata_text))
    parser, ocr = _pop_value(metadata, "parser", str), _pop_value(metadata, "ocr", str)
    return {
        "document_id": document_id, "name": name, "path": as_path(str(folder), str(name)),
        "source_id": source_id, "source": source, "mime": mime, "size_bytes": size_bytes, "char_count": char_count,
        "pages": _pop_value(metadata, "pages", int), "language": _pop_value(metadata, "language", str),
        "created_at": _pop_value(metadata, "created", str), "modified_at": modified_at, "ingested_at": ingested_at,
        "checksum": checksum, "chunk_count": chunk_count, "metadata": metadata,
        "tables": [
            {"table": each["table"], "columns": each["columns"], "row_count": each["row_count"], **_notes_of(each)}
            for each in described(
                db, within, [table for table in tables_of(db, within) if table.document_n == document_n],
                rows=_LOOKED_AT_ROWS,
            )
        ],
        "parser": parser or "pegboard", **({"ocr": ocr} if ocr else {}),
        "encoding": _pop_value(metadata, "encoding", str), "encoding_from": _pop_value(metadata, "encoding_from", str),
        **_status(str(error), str(mime), is_empty=not chunk_count),
    }  # fmt: skip


def _notes_of(table: JSON) -> JSON:
    note = unclear_note(table["columns"], table["first_rows"])
    return {"note": note} if note else {}


def _status(error: str, mime: str, *, is_empty: bool) -> JSON:
    """Return whether a document could be read, and the reason if it has no text."""
    if error:
        return {"status": "failed", "error": error}
    return {"status": "empty", "note": _empty_reason("", mime)} if is_empty else {"status": "ready"}


def _pop_value(metadata: JSON, name: str, kind: type) -> Any:
    """Remove a value from the metadata; a value of another type is custom and stays."""
    return metadata.pop(name) if type(metadata.get(name)) is kind else None


def document_at(db: Connection, within: ReadableSpaces, source_id: str, path: str) -> int:
    """Return the number of the document at a path of a source.

    Raises:
        CallError: not_found.
    """
    source_n = within.source_n(db, source_id)
    folder, _, name = folder_of(path).rpartition("/")
    row = db.execute(
        "select n from documents where source_n = ? and folder = ? and name = ?", (source_n, folder, name)
    ).fetchone()
    if row is None:
        raise absent("document", path)
    return int(row[0])


def read_document(db: Connection, document_n: int, *, start: int, end: int) -> JSON:
    """Return a part of a document's text, by code points; a large part continues at `next_start`."""
    start = min(start, DOCUMENT_PLACES)
    row = db.execute(
        "select documents.id, documents.name, documents.char_count, substr(texts.text, ?2, ?3), documents.error, "
        "documents.mime from documents "
        "join texts on texts.document_n = documents.n where documents.n = ?1",
        (document_n, start + 1, min(max(0, end - start), DOCUMENT_PLACES)),
    ).fetchone()
    assert row is not None
    document_id, name, total, text = str(row[0]), str(row[1]), row[2], str(row[3])
    note = _empty_reason(row[4], row[5]) if total == 0 else ""
    shown = _fitting(text)
    stop = min(start, total) + len(shown)
    return {
        "document_id": document_id, "name": name, "text": shown, "start": min(start, total), "end": stop,
        "total_chars": total, "next_start": stop if stop < total else None, "truncated": len(shown) < len(text),
        **({"note": note} if note else {}),
    }  # fmt: skip


def _empty_reason(error: str, mime: str) -> str:
    """Return why a document has no text, so that it is not taken for an empty one."""
    if error:
        return f"Nothing could be read of this document: {error}."
    return "This document has no text" + (
        ": its pages are pictures, or empty. Scanned pages need text recognition (OCR)."
        if mime == "application/pdf"
        else "."
    )


def _fitting(text: str) -> str:
    """Return the longest beginning that fits into one answer as JSON."""
    room = DOCUMENT_RESULT_BYTES - 2_048
    if len(text) * 6 <= room or len(orjson.dumps(text)) <= room:
        return text
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(orjson.dumps(text[:middle])) <= room else (low, middle - 1)
    return text[:low]
