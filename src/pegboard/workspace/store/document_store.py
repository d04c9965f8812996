"""Document store: the documents of all spaces in a database; implements the port `DocumentStore`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.context import ToolContext
from pegboard.model.document import (
    EVERY_DOCUMENT,
    Access,
    DocumentFilters,
    DocumentScope,
    NewDocument,
    SearchMode,
    SourceType,
)
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON
from pegboard.model.record import replace
from pegboard.models.embedding.vectors import Vectors
from pegboard.models.limits import EMBED_BATCH
from pegboard.workspace.parsers import NO_PARSERS
from pegboard.workspace.passage_embedder import NO_ANSWER, NO_EMBEDDER, PassageEmbedder
from pegboard.workspace.reranking import NOT_RERANKED, Reranker
from pegboard.workspace.store import (
    browsing,
    document_tables,
    embedding,
    granting,
    grepping,
    querying,
    renaming,
    searching,
    source_settings,
    statistics,
    sync_turns,
    writing,
)
from pegboard.workspace.store.connection import Connection
from pegboard.workspace.store.embedding import BarePassage
from pegboard.workspace.store.near import NearIndex
from pegboard.workspace.store.querying import DOCUMENT_TABLES
from pegboard.workspace.store.readable_spaces import ReadableSpaces
from pegboard.workspace.store.renaming import Rename
from pegboard.workspace.store.searching import Found
from pegboard.workspace.store.source_settings import SourceRoot, SourceVersion
from pegboard.workspace.store.sync_turns import SyncState
from pegboard.workspace.store.writing import KnownFile, PreparedDocument, Stored, StoredFile

REPLACED_NOTE = "The next ingest of its source reads its own content again if it is still there."
INGEST_BATCH_DOCUMENTS = 100  # documents stored in one transaction
READ_AGAIN_DOCUMENTS = 20  # documents of an earlier Pegboard that one search reads again

log = logging.getLogger("pegboard")
T = TypeVar("T")


class Database(Protocol):
    """The database of the documents. Work runs in separate threads, of which one caller never gets all."""

    async def read(self, work: Callable[[Connection], T], *, caller: Hashable, scope: DocumentScope | None = None) -> T:
        """Run read-only work on one snapshot of the database, within a scope if there is one.

        Raises:
            CallError: storage_unavailable; busy.
        """
        ...

    async def write(self, work: Callable[[Connection], T], *, caller: Hashable) -> T:
        """Run work that changes data, atomically.

        Raises:
            CallError: storage_unavailable; busy.
        """
        ...

    async def index_vectors(self) -> list[NearIndex]:
        """Build the missing indexes of large spaces; return those examined.

        Raises:
            CallError: storage_unavailable; busy.
        """
        ...

    def copying(self, db: Connection, within: ReadableSpaces) -> querying.Copy:
        """Return the function that copies tables of a scope to another database."""
        ...

    def close(self) -> None:
        """Close the idle connections; later work opens new ones."""
        ...


class SqlDocumentStore:
    """Sources, documents, passages, rows and grants of all spaces in one database; see `ports.DocumentStore`.

    Each method takes a scope, which `scope` returns, and sees nothing outside of it.
    """

    def __init__(self, database: Database, *, embedder: PassageEmbedder | None = None) -> None:
        self._database, self._embedder = database, embedder
        self.place = "the database"
        """A description of the location, for people."""
        self.document_chars = DEFAULT_BOUNDS.document_chars
        """The longest text that is stored, in characters."""
        self.reranker: Reranker | None = None
        """The model that reorders the passages of a search."""
        self.parsers = NO_PARSERS
        """The host's own parsers, for an ingest."""
        self._is_current = False  # whether no document of an earlier analyzer is left

    def close(self) -> None:
        """Close the open connections; the next use opens new ones."""
        self._database.close()

    # ------------------------------------------------------------ scopes

    async def scope(self, ctx: ToolContext) -> DocumentScope:
        return await self._database.read(lambda db: granting.scope_of(db, ctx), caller=ctx.user_id)

    def operator_scope(self, space: str) -> DocumentScope:
        """Return the operator's scope, in one space.

        Raises:
            CallError: invalid_arguments, for an invalid space name.
        """
        return DocumentScope(spaces=(granting.checked_space(space),), writable=frozenset({space}))

    async def grant(self, principal: str, space: str, access: Access = "read") -> None:
        await self._database.write(lambda db: granting.grant(db, principal, space, access), caller=None)

    async def revoke(self, principal: str, space: str) -> bool:
        return await self._database.write(lambda db: granting.revoke(db, principal, space), caller=None)

    async def grants(self, space: str | None = None) -> list[JSON]:
        return await self._database.read(lambda db: granting.grants(db, space), caller=None)

    # ------------------------------------------------------------ reading

    async def list_sources(
        self, scope: DocumentScope, *, type_: str | None = None, limit: int, cursor: str | None = None
    ) -> JSON:
        return await self._within(
            scope, lambda db, within: browsing.list_sources(db, within, type_=type_, limit=limit, cursor=cursor)
        )

    async def root_folders(self, scope: DocumentScope, *, limit: int) -> list[str]:
        return await self._within(scope, lambda db, within: browsing.root_folders(db, within, limit=limit))

    async def list_documents(self, scope: DocumentScope, *, limit: int) -> list[JSON]:
        return await self._within(scope, lambda db, within: browsing.list_documents(db, within, limit=limit))

    async def documents(
        self,
        scope: DocumentScope,
        *,
        space: str | None = None,
        source: str | None = None,
        folder: str = "",
        limit: int,
        cursor: str | None = None,
    ) -> JSON:
        return await self._within(
            scope,
            lambda db, within: browsing.documents(
                db, within, space=space, source=source, folder=folder, limit=limit, cursor=cursor
            ),
        )

    async def place_of_document(self, scope: DocumentScope, document_id: str) -> JSON:
        return await self._within(scope, lambda db, within: browsing.place_of_document(db, within, document_id))

    async def document_named(self, scope: DocumentScope, space: str, source: str, path: str) -> str:
        return await self._within(scope, lambda db, within: browsing.document_named(db, within, space, source, path))

    async def list_folder(
        self, scope: DocumentScope, source_id: str, path: str, *, limit: int, cursor: str | None = None
    ) -> JSON:
        return await self._within(
            scope, lambda db, within: browsing.list_folder(db, within, source_id, path, limit=limit, cursor=cursor)
        )

    async def folder_tree(
        self, scope: DocumentScope, source_id: str, path: str, *, max_depth: int, documents: bool, max_nodes: int
    ) -> JSON:
        return await self._within(
            scope,
            lambda db, within: browsing.folder_tree(
                db, within, source_id, path, max_depth=max_depth, documents=documents, max_nodes=max_nodes
            ),
        )

    async def find_by_name(
        self, scope: DocumentScope, pattern: str, *, ignore_case: bool, filters: DocumentFilters, limit: int
    ) -> JSON:
        return await self._within(
            scope,
            lambda db, within: browsing.find_by_name(
                db, within, pattern, ignore_case=ignore_case, filters=filters, limit=limit
            ),
        )

    async def document_info(
        self, scope: DocumentScope, *, document_id: str = "", source_id: str = "", path: str = ""
    ) -> JSON:
        def look(db: Connection, within: ReadableSpaces) -> JSON:
            if document_id:
                return browsing.document_info(db, within, within.document_n(db, document_id))
            return browsing.document_info(db, within, browsing.document_at(db, within, source_id, path))

        return await self._within(scope, look)

    async def read_document(self, scope: DocumentScope, document_id: str, *, start: int, end: int) -> JSON:
        return await self._within(
            scope,
            lambda db, within: browsing.read_document(db, within.document_n(db, document_id), start=start, end=end),
        )

    async def search(
        self,
        scope: DocumentScope,
        query: str,
        *,
        mode: SearchMode = "hybrid",
        limit: int,
        filters: DocumentFilters = EVERY_DOCUMENT,
        min_score: float = 0.0,
        neighbours: int = 0,
    ) -> JSON:
        question = await self._question(query, mode)
        if not self._is_current:
            await self._read_some_again()
        reranker = self.reranker
        count = limit if reranker is None else max(limit, reranker.passages)

        def look(db: Connection, within: ReadableSpaces) -> Found:
            found = searching.search(db, within, question, filters=filters, limit=count, min_score=min_score)
            return found if reranker is not None else searching.with_neighbours(db, within, found, neighbours)

        found = await self._within(scope, look)
        if reranker is not None:
            hits = await reranker.ordered(query, found.hits)
            note = found.note if hits is not None else " ".join(filter(None, (found.note, NOT_RERANKED)))
            first = replace(found, hits=(found.hits if hits is None else hits)[:limit], note=note)
            found = first
            if neighbours:
                found = await self._within(
                    scope, lambda db, within: searching.with_neighbours(db, within, first, neighbours)
                )
        return searching.answer_of(found)

    async def _read_some_again(self) -> None:
        """Read some documents of an earlier Pegboard again, if the store can be written now."""
        try:
            # Looked up first, since a writer waits for others.
            self._is_current = not await self._database.read(
                lambda db: writing.stale_documents(db, limit=1), caller=None
            )
            if not self._is_current:
                await self._database.write(self._reading_again, caller=None)
        except CallError as error:
            log.info("Documents of an earlier Pegboard were not read again yet: %s", error)

    def _reading_again(self, db: Connection) -> int:
        stale = writing.stale_documents(db, limit=READ_AGAIN_DOCUMENTS)
        for document_n in stale:
            writing.read_again(db, document_n)
        self._is_current = not stale
        return len(stale)

    async def _question(self, text: str, mode: SearchMode) -> searching.Question:
        if mode == "vector" and self._embedder is None:
            return searching.Question(text=text, note=NO_EMBEDDER)
        if mode == "keyword" or self._embedder is None:
            return searching.Question(text=text)
        rows = await self._embedder.of_question(text)
        if rows is None:
            return searching.Question(text=text, note=NO_ANSWER)
        return searching.Question(
            text=text,
            mode=mode,
            vector=rows[0],
            vector_weight=self._embedder.weight,
            mark=await self._embedder.mark(),
        )

    async def grep(
        self,
        scope: DocumentScope,
        pattern: str,
        *,
        is_regex: bool,
        ignore_case: bool,
        filters: DocumentFilters,
        context_lines: int,
        limit: int,
    ) -> JSON:
        return await self._within(
            scope,
            lambda db, within: grepping.grep(
                db,
                within,
                pattern,
                is_regex=is_regex,
                ignore_case=ignore_case,
                filters=filters,
                context_lines=context_lines,
                limit=limit,
            ),
        )

    async def query(
        self,
        scope: DocumentScope,
        sql: str,
        *,
        document_ids: Sequence[str] = (),
        tables: Sequence[str] = (),
        limit: int,
        timeout_s: float,
    ) -> JSON:
        def query(db: Connection, within: ReadableSpaces) -> JSON:
            chosen = querying.chosen_tables(db, within, document_ids, tables)
            copy = self._database.copying(db, within)
            return querying.query(copy, chosen, sql, limit=limit, timeout_s=timeout_s)

        return await self._within(scope, query)

    async def tables(
        self, scope: DocumentScope, *, document_ids: Sequence[str] = (), tables: Sequence[str] = (), rows: int
    ) -> list[JSON]:
        def describe(db: Connection, within: ReadableSpaces) -> list[JSON]:
            chosen = querying.chosen_tables(db, within, document_ids, tables)
            return document_tables.described(db, within, chosen[:DOCUMENT_TABLES], rows=rows)

        return await self._within(scope, describe)

    # ------------------------------------------------------------ writing

    async def begin_source(
        self, scope: DocumentScope, space: str, name: str, *, type_: SourceType, origin: str
    ) -> None:
        """Create a source, or continue one, to put documents into it.

        Raises:
            CallError: not_found; read_only; invalid_arguments, if it has another type.
        """

        def begin(db: Connection) -> None:
            source_n = writing.source_number(db, writing.writable_space(db, scope, space), name, type_, origin)
            source_settings.put_version(db, source_n, None)

        await self._database.write(begin, caller=scope.user)

    async def known_files(
        self, scope: DocumentScope, space: str, source: str, paths: Sequence[str]
    ) -> dict[str, KnownFile]:
        """Return the stored state of files, by path; nothing for an unknown source."""

        def look(db: Connection) -> dict[str, KnownFile]:
            known = _known_source(db, scope, space, source)
            return {} if known is None else writing.known_files(db, known[1], paths)

        return await self._database.read(look, caller=scope.user)

    async def put_etags(self, scope: DocumentScope, space: str, source: str, etags: Mapping[str, str]) -> None:
        """Record the versions of files that have not changed, by path."""

        def put(db: Connection) -> None:
            writing.writable_space(db, scope, space)
            writing.put_etags(db, _source(db, scope, space, source)[1], etags)

        await self._database.write(put, caller=scope.user)

    async def put(
        self, scope: DocumentScope, space: str, source: str, documents: Sequence[PreparedDocument]
    ) -> list[tuple[str, Stored]]:
        """Store documents, all or none; return the id and outcome of each.

        Raises:
            CallError: not_found; read_only.
        """

        def put(db: Connection) -> list[tuple[str, Stored]]:
            writing.writable_space(db, scope, space)
            space_n, source_n = _source(db, scope, space, source)
            return writing.put(db, space_n, source_n, documents)

        return await self._database.write(put, caller=scope.user)

    async def ingest(
        self,
        scope: DocumentScope,
        document: NewDocument,
        *,
        space: str,
        source: str,
        type_: SourceType = "upload",
        replaces: bool = False,
        keeps_metadata: bool = False,
    ) -> JSON:
        ready = await asyncio.to_thread(writing.prepared, document)

        def ingest(db: Connection) -> JSON:
            space_n = writing.writable_space(db, scope, space)
            known = _known_source(db, scope, space, source)
            if replaces and known is not None and writing.has_document(db, known[1], document.path):
                # In any type of source, which keeps its origin.
                kept = writing.own_metadata(db, known[1], document.path) if keeps_metadata else {}
                whole = replace(ready, document=replace(document, metadata={**kept, **document.metadata}))
                [(document_id, status)] = writing.put(db, space_n, known[1], [whole])
                source_settings.put_version(db, known[1], None)
                place = browsing.place_of_document(db, ReadableSpaces.of_scope(db, scope), document_id)
                note = {} if place["source_type"] == "upload" else {"note": REPLACED_NOTE}
                chunks = len(ready.passages)
                return {"document_id": document_id, "chunks": chunks, "path": place["path"], "status": status, **note}
            source_n = writing.source_number(db, space_n, source, type_, "")
            path = document.path if replaces else writing.free_path(db, source_n, document.path)
            put = replace(ready, document=replace(document, path=path))
            [(document_id, status)] = writing.put(db, space_n, source_n, [put])
            writing.source_written(db, source_n)
            return {"document_id": document_id, "chunks": len(ready.passages), "path": path, "status": status}

        stored = await self._database.write(ingest, caller=scope.user)
        try:
            await self.embed_missing(scope, space)
        except CallError:
            raise
        except Exception as error:  # noqa: BLE001 - boundary: an embedder is foreign code; what is stored is found by its words
            log.warning("A document was stored, and its passages have no vectors yet: %s", error)
        return stored

    async def embed_missing(
        self, scope: DocumentScope, space: str, *, on_progress: Callable[[int], None] = lambda _: None
    ) -> int:
        """Embed the passages of a space without a vector of the current embedder; return their number.

        An interrupted run keeps its vectors. Vectors of another embedder are all replaced.

        Raises:
            CallError: not_found; read_only.
            Exception: any exception of the embedder; TimeoutError.
        """
        if self._embedder is None:
            return 0
        await self._database.write(lambda db: writing.writable_space(db, scope, space), caller=scope.user)
        embedder, count = self._embedder, 0
        mark = await embedder.mark()
        only = replace(scope, spaces=(space,))
        while passages := await self._bare_passages(only, mark):
            vectors = await embedder.of_passages([each.text for each in passages])
            await self._put_vectors(passages, vectors, mark, caller=scope.user)
            count += len(passages)
            on_progress(count)
        return count

    async def index_vectors(self) -> list[NearIndex]:
        """Build the missing vector indexes of large spaces; return those examined.

        It may take a minute per space, during which documents can be written and searched.

        Raises:
            CallError: storage_unavailable; busy.
        """
        return [] if self._embedder is None else await self._database.index_vectors()

    async def _bare_passages(self, scope: DocumentScope, mark: str) -> list[BarePassage]:
        return await self._within(
            scope, lambda db, within: embedding.bare_passages(db, within, mark=mark, limit=EMBED_BATCH)
        )

    async def _put_vectors(
        self, passages: Sequence[BarePassage], vectors: Vectors, mark: str, *, caller: str | None
    ) -> None:
        await self._database.write(lambda db: embedding.put_vectors(db, passages, vectors, mark=mark), caller=caller)

    async def documents_from(
        self, scope: DocumentScope, space: str, source: str, place: tuple[str, str] | None
    ) -> list[StoredFile]:
        """Return some documents of a source after a place in path order; none for an unknown source."""

        def look(db: Connection) -> list[StoredFile]:
            known = _known_source(db, scope, space, source)
            if known is None:
                return []
            return writing.documents_from(db, known[1], place, limit=INGEST_BATCH_DOCUMENTS)

        return await self._database.read(look, caller=scope.user)

    async def source_root(self, scope: DocumentScope, space: str, source: str) -> SourceRoot | None:
        """Return the folder of a source; `None` if none was recorded."""

        def look(db: Connection) -> SourceRoot | None:
            return source_settings.root_of(db, _source(db, scope, space, source)[1])

        return await self._database.read(look, caller=scope.user)

    async def source_version(self, scope: DocumentScope, space: str, source: str) -> SourceVersion | None:
        """Return the version of its place that a source has; `None` if it has none, or was changed since."""

        def look(db: Connection) -> SourceVersion | None:
            known = _known_source(db, scope, space, source)
            return None if known is None else source_settings.version_of(db, known[1])

        return await self._database.read(look, caller=scope.user)

    async def put_source_version(self, scope: DocumentScope, space: str, source: str, version: SourceVersion) -> None:
        """Record the version of its place that a source has."""

        def put(db: Connection) -> None:
            writing.writable_space(db, scope, space)
            source_settings.put_version(db, _source(db, scope, space, source)[1], version)

        await self._database.write(put, caller=scope.user)

    async def source_parsers(self, scope: DocumentScope, space: str, source: str) -> dict[str, str]:
        """Return the host's parsers that the last complete run used."""
        return await self._database.read(
            lambda db: source_settings.parsers_of(db, _source(db, scope, space, source)[1]), caller=scope.user
        )

    async def put_source_parsers(
        self, scope: DocumentScope, space: str, source: str, parsers: Mapping[str, str]
    ) -> None:
        """Record the host's parsers that a run used."""

        def put(db: Connection) -> None:
            writing.writable_space(db, scope, space)
            source_settings.put_parsers(db, _source(db, scope, space, source)[1], parsers)

        await self._database.write(put, caller=scope.user)

    async def set_encoding(
        self, scope: DocumentScope, space: str, source: str, encoding: str | None
    ) -> tuple[str, bool]:
        """Set the encoding of a source's texts, or keep it with `None`; return it, and whether it changed."""

        def put(db: Connection) -> tuple[str, bool]:
            writing.writable_space(db, scope, space)
            source_n = _source(db, scope, space, source)[1]
            before = source_settings.encoding_of(db, source_n)
            if encoding is None or encoding == before:
                return before, False
            source_settings.put_encoding(db, source_n, encoding)
            return encoding, True

        return await self._database.write(put, caller=scope.user)

    async def set_metadata(
        self, scope: DocumentScope, space: str, source: str, metadata: Mapping[str, str] | None
    ) -> tuple[dict[str, str], bool]:
        """Set the metadata of every document of a source, or keep it with `None`; return it, and whether it changed."""

        def put(db: Connection) -> tuple[dict[str, str], bool]:
            writing.writable_space(db, scope, space)
            source_n = _source(db, scope, space, source)[1]
            before = source_settings.metadata_of(db, source_n)
            if metadata is None or metadata == before:
                return before, False
            source_settings.put_metadata(db, source_n, metadata)
            return dict(metadata), True

        return await self._database.write(put, caller=scope.user)

    async def put_source_root(self, scope: DocumentScope, space: str, source: str, root: SourceRoot) -> None:
        """Record the folder of a source."""

        def put(db: Connection) -> None:
            writing.writable_space(db, scope, space)
            source_settings.put_root(db, _source(db, scope, space, source)[1], root)

        await self._database.write(put, caller=scope.user)

    async def rename_documents(
        self, scope: DocumentScope, space: str, source: str, renames: Sequence[Rename]
    ) -> list[Rename]:
        """Move documents of a source to other paths; return those that were moved. Their ids and vectors stay."""

        def rename(db: Connection) -> list[Rename]:
            writing.writable_space(db, scope, space)
            space_n, source_n = _source(db, scope, space, source)
            return [each for each in renames if renaming.rename(db, space_n, source_n, each)]

        return await self._database.write(rename, caller=scope.user)

    async def remove_documents(self, scope: DocumentScope, space: str, source: str, numbers: Sequence[int]) -> int:
        """Remove documents of a source by their numbers; return how many existed."""

        def remove(db: Connection) -> int:
            writing.writable_space(db, scope, space)
            space_n, source_n = _source(db, scope, space, source)
            return sum(writing.remove_document(db, space_n, source_n, n) for n in numbers)

        return await self._database.write(remove, caller=scope.user)

    async def end_source(self, scope: DocumentScope, space: str, source: str) -> None:
        """Mark a source as complete."""

        def end(db: Connection) -> None:
            writing.writable_space(db, scope, space)
            writing.source_written(db, _source(db, scope, space, source)[1])

        await self._database.write(end, caller=scope.user)
        while not self._is_current:
            await self._database.write(self._reading_again, caller=scope.user)

    # ------------------------------------------------------------ live sources

    async def sync_state(self, space: str, source: str) -> SyncState | None:
        """Return how a live source is kept in step; `None` if it has not been yet."""
        return await self._database.read(lambda db: sync_turns.state_of(db, space, source), caller=None)

    async def take_turn(self, space: str, source: str, worker: str, *, over: SyncState | None = None) -> SyncState:
        """Take or keep the turn to keep a live source in step; return its state, which says who has the turn."""
        return await self._database.write(
            lambda db: sync_turns.take_turn(db, space, source, worker, over=over), caller=None
        )

    async def put_outcome(self, space: str, source: str, outcome: SyncState) -> None:
        """Record how a run over a live source ended."""
        await self._database.write(lambda db: sync_turns.put_outcome(db, space, source, outcome), caller=None)

    async def leave_turn(self, space: str, source: str, worker: str) -> None:
        """Give up the turn of a live source."""
        await self._database.write(lambda db: sync_turns.leave_turn(db, space, source, worker), caller=None)

    async def remove_document(self, scope: DocumentScope, document_id: str) -> JSON:
        def remove(db: Connection) -> JSON:
            within = ReadableSpaces.of_scope(db, scope)
            place = browsing.place_of_document(db, within, document_id)
            space_n = writing.writable_space(db, scope, place["space"])
            _, source_n = _source(db, scope, place["space"], place["source"])
            writing.remove_document(db, space_n, source_n, within.document_n(db, document_id))
            source_settings.put_version(db, source_n, None)
            return place

        return await self._database.write(remove, caller=scope.user)

    async def remove_source(self, scope: DocumentScope, space: str, source: str) -> int:
        """Remove a source with its documents; return their number.

        Raises:
            CallError: not_found; read_only.
        """

        def remove(db: Connection) -> int:
            return writing.remove_source(db, writing.writable_space(db, scope, space), source)

        return await self._database.write(remove, caller=scope.user)

    # ------------------------------------------------------------ for the operator

    async def statistics(self) -> list[JSON]:
        """Return the statistics of each space, for the operator."""
        return await self._database.read(statistics.of_spaces, caller=None)

    async def _within(self, scope: DocumentScope, look: Callable[[Connection, ReadableSpaces], T]) -> T:
        def looking(db: Connection) -> T:
            return look(db, ReadableSpaces.of_scope(db, scope))

        return await self._database.read(looking, caller=scope.user, scope=scope)


def _source(db: Connection, scope: DocumentScope, space: str, name: str) -> tuple[int, int]:
    """Return the numbers of a space and of a source in it.

    Raises:
        CallError: not_found.
    """
    known = _known_source(db, scope, space, name)
    if known is None:
        raise CallError("not_found", f"There is no source {name[:100]!r} here.")
    return known


def _known_source(db: Connection, scope: DocumentScope, space: str, name: str) -> tuple[int, int] | None:
    """Return the numbers of a space and of a source in it; `None` if the scope has no such source."""
    row = db.execute(
        "select spaces.n, sources.n from sources join spaces on spaces.n = sources.space_n "
        "where spaces.name = ? and sources.name = ?",
        (space, name),
    ).fetchone()
    return None if row is None or space not in scope.spaces else (int(row[0]), int(row[1]))
