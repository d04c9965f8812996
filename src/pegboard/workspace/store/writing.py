"""Writing: stores, replaces and removes documents together with their search data."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import apsw
import orjson
from msgspec import Struct

from pegboard.model.document import DocumentScope, NewDocument, SourceType
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.workspace.analyzer import analyzed, folded_words, language_of
from pegboard.workspace.chunking import Chunk, chunks_of
from pegboard.workspace.own_metadata import RESERVED
from pegboard.workspace.shown_names import can_be_shown
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.readable_spaces import absent, as_path, folder_of
from pegboard.workspace.store.source_settings import remove_settings
from pegboard.workspace.store.spellings import put_spellings, remove_spellings
from pegboard.workspace.titles import title_of

SOURCE_NAME_CHARS = 128  # characters of a source's name

Stored = Literal["added", "changed", "renamed", "unchanged", "failed"]
# No database accepts NUL, not even as an escape.
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
_TABLE_NAME_CHARS = 60
_TABLE_TYPES = frozenset(("text/csv", "text/tab-separated-values"))
_LANGUAGE_CHARS = 20_000  # characters used to detect the language of a document
ANALYSIS = 1
"""The analyzer that documents are read with; those of an earlier one are read again."""


_Posting = tuple[int, str, int, int, int]


class Passage(NamedTuple):
    """A passage: its place in the text, its language, its number of words, and the frequency of each term.

    `context` is what a reader needs besides the text, as JSON: `{headings?, table_head?}`.
    """

    start: int
    end: int
    language: str
    context: str
    term_count: int
    counts: Mapping[str, int]


class PreparedDocument(Struct, frozen=True, kw_only=True):
    """A document with its searchable passages. `is_forced` means that it is stored even if nothing seems changed."""

    document: NewDocument
    passages: tuple[Passage, ...]
    is_forced: bool = False


def prepared(document: NewDocument) -> PreparedDocument:
    """Return a document ready to be stored. This is most of the work, and needs no database."""
    title = title_of(document.path, document.metadata)
    return PreparedDocument(document=document, passages=passages_of(document.text, title, document.mime))


def passages_of(text: str, title: str, mime: str) -> tuple[Passage, ...]:
    """Return the passages of a document with their terms, each in its own language."""
    of_document = language_of(text[:_LANGUAGE_CHARS])
    passages: list[Passage] = []
    for chunk in chunks_of(text, is_table=mime in _TABLE_TYPES):
        shown = text[chunk.start : chunk.end]
        # A passage is also found by its title, its headings and the header row of its table.
        above = "\n".join(dict.fromkeys((title, *chunk.headings, chunk.table_head)))
        language = language_of(shown, of_document)
        counts, words = analyzed((shown, above if chunk.start else _missing(title, shown)), language)
        passages.append(Passage(chunk.start, chunk.end, language, context_of(chunk), words, counts))
    return tuple(passages)


def context_of(chunk: Chunk) -> str:
    """Return the headings and the header row of a passage as JSON; empty if it has none."""
    context = {"headings": chunk.headings, "table_head": chunk.table_head}
    filled = {name: value for name, value in context.items() if value}
    return _NUL.sub(r"\1\\ufffd", orjson.dumps(filled).decode()) if filled else ""


def _missing(title: str, text: str) -> str:
    """Return the words of a title that are not in the first passage, which usually begins with the title."""
    known = set(folded_words(text))
    return "" if known.issuperset(folded_words(title)) else title


def writable_space(db: Connection, scope: DocumentScope, space: str) -> int:
    """Return the number of a space for writing, creating it if necessary.

    Raises:
        CallError: not_found, for a space outside the scope; read_only, for a read-only one.
    """
    if space not in scope.spaces:
        raise CallError("not_found", f"There is no space {space[:100]!r} here.")
    if space not in scope.writable:
        text = f"The documents of the space {space[:100]!r} may be read here, and not changed."
        raise CallError("read_only", text, hint="The operator can allow it: `pegboard workspace grant … write`.")
    return space_number(db, space)


def space_number(db: Connection, space: str) -> int:
    """Return the number of a space, creating it if necessary."""
    db.execute("insert into spaces (name) values (?) on conflict do nothing", (space,))
    row: Any = db.execute(f"select n from spaces where name = ?{db.dialect.lock}", (space,)).fetchone()  # noqa: S608 - words of ours
    return int(row[0])


def source_number(db: Connection, space_n: int, name: str, type_: SourceType, origin: str) -> int:
    """Return the number of a source by name, creating it if necessary, and mark it as incomplete.

    Raises:
        CallError: invalid_arguments, if the name belongs to another type of source.
    """
    if not 0 < len(name) <= SOURCE_NAME_CHARS or not can_be_shown(name):
        text = f"{name[:100]!r} is not a valid source name: 1 to {SOURCE_NAME_CHARS} printable characters."
        raise CallError("invalid_arguments", text)
    now = _now()
    db.execute(
        "insert into sources (id, space_n, name, type, origin, status, created_at, updated_at) "
        "values (?, ?, ?, ?, ?, 'ingesting', ?, ?) on conflict do nothing",
        (f"src_{secrets.token_hex(8)}", space_n, name, type_, origin, now, now),
    )
    row: Any = db.execute("select n, type from sources where space_n = ? and name = ?", (space_n, name)).fetchone()
    if row[1] != type_:
        text = f"The source {name[:100]!r} is of the type {row[1]!r}, and takes no {type_!r}. Choose another name."
        raise CallError("invalid_arguments", text)
    db.execute("update sources set origin = ?, status = 'ingesting' where n = ?", (origin, row[0]))
    return int(row[0])


def source_written(db: Connection, source_n: int) -> None:
    """Mark a source as complete."""
    db.execute("update sources set status = 'ready', updated_at = ? where n = ?", (_now(), source_n))


class KnownFile(NamedTuple):
    """A stored document: the checksum of its file, the version of the file at its source, and why it was not read."""

    checksum: str
    etag: str
    error: str


def known_files(db: Connection, source_n: int, paths: Sequence[str]) -> dict[str, KnownFile]:
    """Return the stored state of files, by path."""
    by_folder: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, name = split_path(path)
        by_folder.setdefault(folder, {})[name] = path
    known: dict[str, KnownFile] = {}
    for folder, names in by_folder.items():
        rows = db.execute(
            f"select name, checksum, etag, error from documents where source_n = ? and folder = ? "  # noqa: S608 - question marks
            f"and name in ({','.join('?' * len(names))})",
            (source_n, folder, *names),
        )
        known.update((names[name], KnownFile(*row)) for name, *row in rows)
    return known


def put_etags(db: Connection, source_n: int, etags: Mapping[str, str]) -> None:
    """Record the versions of files that have not changed, by path."""
    for path, etag in etags.items():
        db.execute(
            "update documents set etag = ? where source_n = ? and folder = ? and name = ?",
            (etag, source_n, *split_path(path)),
        )


def has_document(db: Connection, source_n: int, path: str) -> bool:
    """Tell whether a source has a document at a path."""
    statement = "select 1 from documents where source_n = ? and folder = ? and name = ?"
    return db.execute(statement, (source_n, *split_path(path))).fetchone() is not None


def own_metadata(db: Connection, source_n: int, path: str) -> JSON:
    """Return the metadata of a document without the keys that parsers fill."""
    statement = "select metadata from documents where source_n = ? and folder = ? and name = ?"
    row: Any = db.execute(statement, (source_n, *split_path(path))).fetchone()
    stored: JSON = {} if row is None else orjson.loads(str(row[0]))
    return {key: value for key, value in stored.items() if key.lower() not in RESERVED}


def free_path(db: Connection, source_n: int, path: str) -> str:
    """Return a free path in a source: this one, or one with a number in its name."""
    folder, name = split_path(path)
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    free, count = name, 1
    while has_document(db, source_n, as_path(folder, free)):
        count += 1
        free = f"{stem} ({count}){dot}{suffix}"
    return as_path(folder, free)


def put(db: Connection, space_n: int, source_n: int, documents: Sequence[PreparedDocument]) -> list[tuple[str, Stored]]:
    """Store documents, replacing those at their paths; return the id and outcome of each.

    The id stays the same when the content changes. An unreadable document has only its name and error.
    """
    postings: list[_Posting] = []
    stored = [_put_one(db, space_n, source_n, each, postings) for each in documents]
    _put_postings(db, postings)
    return stored


def _put_one(
    db: Connection, space_n: int, source_n: int, each: PreparedDocument, postings: list[_Posting]
) -> tuple[str, Stored]:
    document = each.document
    folder, name = split_path(document.path)
    row: Any = db.execute(
        "select n, id, checksum, error, metadata, etag from documents where source_n = ? and folder = ? and name = ?",
        (source_n, folder, name),
    ).fetchone()
    metadata = _NUL.sub(r"\1\\ufffd", orjson.dumps(document.metadata).decode())
    # The same bytes may now be decoded differently.
    is_same = row is not None and (row[2], row[3], row[4]) == (document.checksum, document.error, metadata)
    if row is not None and is_same and not each.is_forced:
        if row[5] != document.etag:
            db.execute("update documents set etag = ? where n = ?", (document.etag, row[0]))
        return str(row[1]), "failed" if document.error else "unchanged"
    document_id = f"doc_{secrets.token_hex(8)}" if row is None else str(row[1])
    modified = None if document.modified_s is None else _moment(document.modified_s)
    values = (
        document.mime, document.size_bytes, document.checksum, len(document.text),
        metadata, modified, _now(), document.error, document.etag,
    )  # fmt: skip
    if row is None:
        inserted: Any = db.execute(
            "insert into documents (id, space_n, source_n, folder, name, mime, size_bytes, checksum, char_count, "
            "metadata, modified_at, ingested_at, error, etag, analysis) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning n",
            (document_id, space_n, source_n, folder, name, *values, ANALYSIS),
        ).fetchone()
        document_n = int(inserted[0])
    else:
        document_n = int(row[0])
        # A removed document may be in the same batch.
        _put_postings(db, postings)
        _remove_content(db, space_n, document_n)
        db.execute(
            "update documents set mime = ?, size_bytes = ?, checksum = ?, char_count = ?, metadata = ?, "
            "modified_at = ?, ingested_at = ?, error = ?, etag = ?, analysis = ? where n = ?",
            (*values, ANALYSIS, document_n),
        )
    db.execute("insert into texts values (?, ?, ?)", (document_n, space_n, document.text))
    postings += _put_passages(db, space_n, document_n, each.passages)
    _put_tables(db, space_n, document_n, document)
    if document.error:
        return document_id, "failed"
    return document_id, "added" if row is None else "changed"


def _put_passages(db: Connection, space_n: int, document_n: int, passages: Sequence[Passage]) -> Iterator[_Posting]:
    """Store passages; return their postings, which are stored together with those of other documents."""
    numbers = db.next_numbers("chunks", len(passages))
    db.insert_rows(
        "chunks",
        ("n", "space_n", "document_n", "ordinal", "start", '"end"', "term_count", "terms", "language", "context"),
        [
            (n, space_n, document_n, ordinal, each.start, each.end, each.term_count, " ".join(each.counts),
             each.language, each.context)
            for ordinal, (n, each) in enumerate(zip(numbers, passages, strict=True))
        ],
    )  # fmt: skip
    _count_passages(db, space_n, len(passages), sum(each.term_count for each in passages))
    _count_languages(db, space_n, Counter(each.language for each in passages))
    return (
        (space_n, term, n, count, each.term_count)
        for n, each in zip(numbers, passages, strict=True)
        for term, count in each.counts.items()
    )


def _put_postings(db: Connection, postings: list[_Posting]) -> None:
    """Store postings and clear the list; in index order, so that each index page is written once per batch."""
    # Postings of a term are already ordered by passage.
    postings.sort(key=itemgetter(1))
    db.insert_rows("postings", ("space_n", "term", "chunk_n", "count", "length"), postings)
    by_space: dict[int, set[str]] = {}
    for space_n, term, *_ in postings:
        by_space.setdefault(space_n, set()).add(term)
    for space_n, terms in by_space.items():
        put_spellings(db, space_n, terms)
    postings.clear()


def _remove_content(db: Connection, space_n: int, document_n: int) -> None:
    """Remove a document's contents and its search data."""
    _remove_terms(db, space_n, document_n)
    # Vectors and rows are removed by cascade.
    for table in ("texts", "chunks", "tables"):
        db.execute(f"delete from {table} where document_n = ?", (document_n,))  # noqa: S608 - names of ours


def _remove_terms(db: Connection, space_n: int, document_n: int) -> None:
    """Remove a document's passages from the statistics and from the lists of terms; the passages stay."""
    rows = db.execute(
        "select n, terms, term_count, language from chunks where document_n = ?", (document_n,)
    ).fetchall()
    for n, terms, _, _ in rows:
        _remove_postings(db, space_n, n, terms)
    remove_spellings(db, space_n, (term for _, terms, _, _ in rows for term in terms.split()))
    _count_passages(db, space_n, -len(rows), -sum(count for _, _, count, _ in rows))
    # Passages of before languages were told count in none.
    _count_languages(db, space_n, {k: -v for k, v in Counter(each[3] for each in rows if each[3]).items()})


def stale_documents(db: Connection, *, limit: int) -> list[int]:
    """Return the numbers of some documents that an earlier analyzer read."""
    rows = db.execute(f"select n from documents where analysis < {ANALYSIS} order by n limit ?", (limit,))  # noqa: S608 - a number
    return [int(n) for (n,) in rows]


def read_again(db: Connection, document_n: int) -> None:
    """Rebuild the terms of a stored document. Its passages keep their numbers, and so their vectors."""
    # Another process may be doing the same.
    db.execute(
        f"select 1 from spaces where n = (select space_n from documents where documents.n = ?){db.dialect.lock}",  # noqa: S608 - words of ours
        (document_n,),
    )
    row: Any = db.execute(
        "select documents.space_n, documents.name, documents.metadata, documents.mime, texts.text from documents "
        "join texts on texts.document_n = documents.n where documents.n = ?",
        (document_n,),
    ).fetchone()
    if row is None:
        return
    space_n, name, metadata, mime, text = row
    passages = passages_of(text, title_of(name, orjson.loads(metadata)), mime)
    chunks = db.execute(
        'select n, start, "end" from chunks where document_n = ? order by ordinal', (document_n,)
    ).fetchall()
    _remove_terms(db, space_n, document_n)
    if [(start, end) for _, start, end in chunks] == [(each.start, each.end) for each in passages]:
        for (n, _, _), each in zip(chunks, passages, strict=True):
            db.execute(
                "update chunks set terms = ?, term_count = ?, language = ?, context = ? where n = ?",
                (" ".join(each.counts), each.term_count, each.language, each.context, n),
            )
        _count_passages(db, space_n, len(passages), sum(each.term_count for each in passages))
        _count_languages(db, space_n, Counter(each.language for each in passages))
        postings = [
            (space_n, term, n, count, each.term_count)
            for (n, _, _), each in zip(chunks, passages, strict=True)
            for term, count in each.counts.items()
        ]
    else:
        # Texts are cut into passages otherwise now.
        db.execute("delete from chunks where document_n = ?", (document_n,))
        postings = [*_put_passages(db, space_n, document_n, passages)]
    _put_postings(db, postings)
    db.execute("update documents set analysis = ? where n = ?", (ANALYSIS, document_n))


def _remove_postings(db: Connection, space_n: int, chunk_n: int, terms: str) -> None:
    """Remove the postings of a passage with these terms."""
    wanted = ",".join("?" * len(terms.split()))
    db.execute(
        f"delete from postings where space_n = ? and term in ({wanted or 'null'}) and chunk_n = ?",  # noqa: S608 - question marks
        (space_n, *terms.split(), chunk_n),
    )


def _count_passages(db: Connection, space_n: int, passages: int, terms: int) -> None:
    """Add to the numbers of passages and terms of a space."""
    db.execute(
        "update spaces set chunk_count = chunk_count + ?, term_total = term_total + ? where n = ?",
        (passages, terms, space_n),
    )


def _count_languages(db: Connection, space_n: int, counts: Mapping[str, int]) -> None:
    for language, passages in sorted(counts.items()):
        db.execute(
            "insert into languages (space_n, language, passages) values (?, ?, ?) on conflict (space_n, language) "
            "do update set passages = languages.passages + excluded.passages",
            (space_n, language, passages),
        )
    db.execute("delete from languages where space_n = ? and passages <= 0", (space_n,))


def _put_tables(db: Connection, space_n: int, document_n: int, document: NewDocument) -> None:
    stem = document.path.rpartition("/")[2].rpartition(".")[0]
    for table in document.tables:
        name = free_table_name(db, space_n, table_name(f"{stem}_{table.name}" if table.name else stem))
        inserted: Any = db.execute(
            "insert into tables (space_n, document_n, name, columns, row_count) values (?, ?, ?, ?, ?) returning n",
            (space_n, document_n, name, orjson.dumps(table.columns).decode(), len(table.rows)),
        ).fetchone()
        db.insert_rows(
            "table_rows",
            ("table_n", "space_n", "ordinal", "cells"),
            ((inserted[0], space_n, ordinal, orjson.dumps(row).decode()) for ordinal, row in enumerate(table.rows)),
        )


def free_table_name(db: Connection, space_n: int, wanted: str) -> str:
    """Return a free name for a table of a space: this one, or one with a number at its end."""
    name, count = wanted, 1
    while db.execute("select 1 from tables where space_n = ? and name = ?", (space_n, name)).fetchone():
        count += 1
        name = f"{wanted}_{count}"
    return name


def table_name(text: str) -> str:
    """Return a table name that SQL accepts without quotes."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")[:_TABLE_NAME_CHARS] or "table"
    # SQLite reserves names with this prefix.
    is_taken = name[0].isdigit() or name.startswith("sqlite_") or name.upper() in apsw.keywords
    return f"t_{name}" if is_taken else name


def remove_document(db: Connection, space_n: int, source_n: int, document_n: int) -> int:
    """Remove a document of a source with its search data; return whether it existed, as 0 or 1."""
    row = db.execute("select 1 from documents where n = ? and source_n = ?", (document_n, source_n)).fetchone()
    if row is None:
        return 0
    _remove_content(db, space_n, document_n)
    db.execute("delete from documents where n = ?", (document_n,))
    return 1


class StoredFile(NamedTuple):
    """A document of a source: its number, its place, and the content of its file."""

    n: int
    folder: str
    name: str
    size_bytes: int
    checksum: str


def documents_from(db: Connection, source_n: int, place: tuple[str, str] | None, *, limit: int) -> list[StoredFile]:
    """Return some documents of a source after a place in order of their paths."""
    rows = db.execute(
        "select n, folder, name, size_bytes, checksum from documents "
        "where source_n = ?1 and (cast(?2 as text) is null or (folder, name) > (?2, ?3)) "
        "order by folder, name limit ?4",
        (source_n, *(place or (None, None)), limit),
    )
    return [
        StoredFile(int(n), str(folder), str(name), int(size), str(checksum)) for n, folder, name, size, checksum in rows
    ]


def remove_source(db: Connection, space_n: int, name: str) -> int:
    """Remove a source and its documents; return their number.

    Raises:
        CallError: not_found.
    """
    row: Any = db.execute("select n from sources where space_n = ? and name = ?", (space_n, name)).fetchone()
    if row is None:
        raise absent("source", name)
    documents = db.execute("select n from documents where source_n = ?", (row[0],)).fetchall()
    for (document_n,) in documents:
        remove_document(db, space_n, row[0], document_n)
    remove_settings(db, row[0])
    db.execute("delete from sources where n = ?", (row[0],))
    return len(documents)


def split_path(path: str) -> tuple[str, str]:
    """Return the folder and the name in a path."""
    folder, _, name = folder_of(path).rpartition("/")
    return folder, name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")
