"""Document workspace: the documents of all spaces, for host code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pegboard.core.ports import Embedder
from pegboard.egress.destinations import Destinations
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.document import Access
from pegboard.model.json_types import JSON
from pegboard.model.secret import Secret
from pegboard.workspace.document_operations import shown, with_note
from pegboard.workspace.document_stores import open_store
from pegboard.workspace.failed_files import FailedFiles
from pegboard.workspace.ingest import IngestReport, SourceIngest
from pegboard.workspace.parsers import DocumentParser, Parser, Parsers
from pegboard.workspace.reranking import Rerank, Reranker
from pegboard.workspace.source_sync import LiveSource
from pegboard.workspace.sources.addresses import SourceAccess, name_of, source_at
from pegboard.workspace.sources.document_source import BadFile, DocumentSource
from pegboard.workspace.sources.folder_source import FolderSource, is_output, own_outputs
from pegboard.workspace.sources.web_paths import is_address
from pegboard.workspace.sqlite.sqlite_store import SqliteDocumentStore
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.upload import upload
from pegboard.workspace.watching import FolderWatch, check_watchfiles
from pegboard.workspace.web_ingest import WebIngest

__all__ = ["DocumentParser", "Reranker", "Workspace"]


class Workspace:
    """The documents of all spaces: host code ingests them and grants access.

    Agents use them through the tools of a catalog: `catalog.use_documents(workspace.store)`.

    Args:
        store: `sqlite:FILE`, created on first use, or `postgresql://HOST/DATABASE`; or a store.
        embedder: makes vectors of passages and questions; without one, search uses words only. An open store has
            its own.
        max_file_bytes: the largest file.
        own_files: files that Pegboard writes, such as its other stores; they are never ingested.
        allow_hosts: allowed web hosts: `example.com`, `*.example.com`, `10.0.0.0/8`; by default all.
        allow_private: whether private and loopback addresses are allowed.
        parsers: functions of yours that read files, by file ending or media type, such as
            `{".dwg": drawings.read_drawing}`; they come before ours. See `DocumentParser`.
        ocr: a function that recognizes the text in a picture, for pictures and for pages without text.
        reranker: a function that scores the passages of a search again, `(query, passages) -> scores`. See `Reranker`.
        env: variables with credentials for `git:` and `s3:` addresses: `GIT_TOKEN`, and `AWS_ACCESS_KEY_ID`,
            `AWS_SECRET_ACCESS_KEY`, `AWS_REGION` and `AWS_ENDPOINT_URL`. Pass `os.environ` to use your own.

    Raises:
        DefinitionError: the store cannot be used, or a host or parser is invalid.
    """

    def __init__(
        self,
        store: str | Secret | SqlDocumentStore = "sqlite:documents.db",
        *,
        embedder: Embedder | None = None,
        max_file_bytes: int = DEFAULT_BOUNDS.upload_bytes,
        own_files: Sequence[Path] = (),
        allow_hosts: Sequence[str] = (),
        allow_private: bool = False,
        parsers: Mapping[str, Parser] | None = None,
        ocr: Parser | None = None,
        reranker: Reranker | Rerank | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if isinstance(store, SqlDocumentStore):
            self.store = store
        else:
            uri = store.reveal() if isinstance(store, Secret) else store
            self.store = open_store(uri, folder=Path.cwd(), embedder=embedder)
        if parsers or ocr:
            self.store.parsers = Parsers.of(parsers or {}, ocr)
        if reranker is not None:
            self.store.reranker = reranker if isinstance(reranker, Reranker) else Reranker(reranker)
        own = (*own_files, self.store.path) if isinstance(self.store, SqliteDocumentStore) else own_files
        self._own_files = tuple(str(each.absolute()) for each in own)
        self._max_file_bytes = max_file_bytes
        destinations = Destinations(allow_private=allow_private, allow_hosts=tuple(allow_hosts))
        self._access = SourceAccess.of_environment(destinations, env or {})

    async def ingest(
        self,
        path: str | Path,
        *,
        space: str,
        source: str | None = None,
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
        allow_shrink: bool = False,
        reads_again: bool = False,
        on_progress: Callable[[IngestReport], None] = lambda _: None,
        on_bad: Callable[[BadFile], None] = lambda _: None,
    ) -> IngestReport:
        """Ingest new and changed documents into a space.

        They come from a folder, a file, a web page or feed, a Git repository (`git:URL#branch:folder`), a bucket
        (`s3://BUCKET/PREFIX`) or the site map of a web site (`sitemap:URL`). Documents whose files were deleted are
        removed; old entries of a feed stay.

        Unreadable files are reported and skipped. An interrupted run keeps what it stored, and the next run continues.

        Args:
            path: the folder, one file, or an address.
            space: the space of the documents.
            source: the name of the source in that space; by default that of the folder, or the address.
            encoding: of texts without a byte order mark, such as `cp1252`; stored with the source of a folder. Without
                it, the encoding is detected; `auto` detects it again.
            metadata: of every document, such as `{"team": "support"}`, to filter searches; stored with the source.
            allow_shrink: remove deleted documents even if they are all or most of the source, or if the source was read
                from another folder before.
            reads_again: read unchanged files, too, for instance after a change of a parser of yours.
            on_progress: called after each stored batch.
            on_bad: called at once for each file that was skipped.

        Raises:
            DefinitionError: the folder, file or encoding does not exist.
            CallError: the store cannot be used; an address must not or cannot be fetched; `needs_review` without
                `allow_shrink`, if the source would lose more than half of its documents.
        """
        scope = self.store.operator_scope(space)
        if isinstance(path, str) and is_address(path):
            return await WebIngest(
                store=self.store,
                scope=scope,
                space=space,
                source=source,
                url=path,
                destinations=self._access.destinations,
                max_file_bytes=self._max_file_bytes,
                encoding=encoding,
                metadata=metadata,
                allow_shrink=allow_shrink,
                reads_again=reads_again,
                on_progress=on_progress,
                on_bad=on_bad,
            ).run()
        place = source_at(str(path), self._access, beside=Path.cwd())
        return await self.ingest_from(
            place or FolderSource(Path(path), is_own=self._is_own),
            space=space,
            source=source or name_of(str(path)),
            encoding=encoding,
            metadata=metadata,
            allow_shrink=allow_shrink,
            reads_again=reads_again,
            on_progress=on_progress,
            on_bad=on_bad,
        )

    async def ingest_from(
        self,
        place: DocumentSource,
        *,
        space: str,
        source: str,
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
        allow_shrink: bool = False,
        reads_again: bool = False,
        failed: FailedFiles | None = None,
        on_progress: Callable[[IngestReport], None] = lambda _: None,
        on_bad: Callable[[BadFile], None] = lambda _: None,
    ) -> IngestReport:
        """Ingest the files of a place, as `ingest` does. `failed` files of earlier runs are tried again with pauses.

        Raises:
            CallError: the store or the place cannot be used; `needs_review` without `allow_shrink`.
        """
        return await SourceIngest(
            store=self.store,
            scope=self.store.operator_scope(space),
            space=space,
            name=source,
            source=place,
            max_file_bytes=self._max_file_bytes,
            encoding=encoding,
            metadata=metadata,
            allow_shrink=allow_shrink,
            reads_again=reads_again,
            failed=failed,
            on_progress=on_progress,
            on_bad=on_bad,
        ).run()

    async def watch(
        self,
        folder: str | Path,
        *,
        space: str,
        source: str | None = None,
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
        on_report: Callable[[IngestReport], None] = lambda _: None,
        on_trouble: Callable[[str], None] = lambda _: None,
        on_progress: Callable[[IngestReport], None] = lambda _: None,
        on_bad: Callable[[BadFile], None] = lambda _: None,
    ) -> None:
        """Ingest a folder, and again after each change in it, until cancelled. Needs `pegboard[watch]`.

        A run that would remove more than half of the source changes nothing, as with `ingest`; it is reported, and the
        watch continues.

        Args:
            folder: the folder.
            space: the space of the documents.
            source: the name of the source in that space; by default that of the folder.
            encoding: as for `ingest`.
            metadata: as for `ingest`.
            on_report: called after each run.
            on_trouble: called with the reason of a failed run, which is tried again.
            on_progress: called after each stored batch.
            on_bad: called at once for each file that was skipped.

        Raises:
            DefinitionError: there is no such folder, or the package `watchfiles` is missing.
        """
        path, failed = Path(folder), FailedFiles()

        async def run() -> None:
            on_report(
                await self.ingest_from(
                    FolderSource(path, is_own=self._is_own),
                    space=space,
                    source=source or name_of(str(path)),
                    encoding=encoding,
                    metadata=metadata,
                    failed=failed,
                    on_progress=on_progress,
                    on_bad=on_bad,
                )
            )

        await FolderWatch(path, run, on_trouble=on_trouble, is_ignored=self._ignoring()).forever()

    def live_folder(
        self,
        folder: Path,
        *,
        space: str,
        source: str | None = None,
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
        every_s: float,
        watches: bool = True,
    ) -> LiveSource:
        """Return a folder for `SourceSync`, which ingests it regularly; with `watches`, also after each change.

        Raises:
            DefinitionError: the package `watchfiles` is missing.
        """
        if watches:
            check_watchfiles()
        name, failed = source or name_of(str(folder)), FailedFiles()
        return LiveSource(
            space=space,
            name=name,
            origin=str(folder),
            ingest=lambda: self.ingest_from(
                FolderSource(folder, is_own=self._is_own),
                space=space,
                source=name,
                encoding=encoding,
                metadata=metadata,
                failed=failed,
            ),
            every_s=every_s,
            watched=folder if watches else None,
            is_ignored=self._ignoring(),
        )

    def live_place(
        self,
        make: Callable[[], DocumentSource],
        *,
        space: str,
        source: str,
        encoding: str | None = None,
        metadata: Mapping[str, str] | None = None,
        every_s: float,
    ) -> LiveSource:
        """Return a place for `SourceSync`; `make` returns its source for each run."""
        failed = FailedFiles()
        return LiveSource(
            space=space,
            name=source,
            origin=make().origin,
            ingest=lambda: self.ingest_from(
                make(), space=space, source=source, encoding=encoding, metadata=metadata, failed=failed
            ),
            every_s=every_s,
        )

    def _ignoring(self) -> Callable[[Path], bool]:
        """Return a function that tells which changed files do not count: those that Pegboard itself writes."""
        outputs = own_outputs()
        return lambda changed: self._is_own(changed) or is_output(changed, outputs)

    def _is_own(self, file: Path) -> bool:
        """Tell whether Pegboard itself writes a file: a store, with what its database keeps next to it."""
        return str(file.absolute()).startswith(self._own_files)

    async def upload(
        self,
        payload: bytes,
        *,
        space: str,
        path: str,
        source: str = "uploads",
        metadata: Mapping[str, str] | None = None,
    ) -> JSON:
        """Ingest one file, replacing the document at its path in that source; its name determines the format.

        `metadata` of the document, such as `{"team": "support"}`, can filter searches. Without it, a replaced document
        keeps its own; `{}` clears it.

        Raises:
            CallError: invalid_arguments, for an unreadable file; the store cannot be used.
        """
        scope = self.store.operator_scope(space)
        return await upload(self.store, scope, payload, space=space, source=source, path=path, metadata=metadata)

    async def documents(
        self, space: str, source: str | None = None, *, folder: str = "", limit: int = 50, cursor: str | None = None
    ) -> JSON:
        """Return documents of a space by source and path: `{items, next_cursor, truncated}`.

        Each item has its `document_id`, `source`, `path`, sizes, times and `status`. Pass `next_cursor` as `cursor` for
        the next ones.

        Raises:
            CallError: invalid_arguments, for an invalid cursor or folder; the store cannot be used.
        """
        scope = self.store.operator_scope(space)
        return await self.store.documents(scope, source=source, folder=folder, limit=limit, cursor=cursor)

    async def document(self, space: str, source: str, path: str) -> JSON:
        """Return the details of a document, as the tool `document_info` does.

        Raises:
            CallError: not_found; the store cannot be used.
        """
        scope = self.store.operator_scope(space)
        document_id = await self.store.document_named(scope, space, source, path)
        return await shown(self.store, self.store, scope, document_id)

    async def remove_document(self, space: str, source: str, path: str) -> JSON:
        """Remove one document; return where it was.

        The next ingest of its source stores it again if its file is still there.

        Raises:
            CallError: not_found; the store cannot be used.
        """
        scope = self.store.operator_scope(space)
        document_id = await self.store.document_named(scope, space, source, path)
        return with_note(await self.store.remove_document(scope, document_id))

    async def remove(self, space: str, source: str) -> int:
        """Remove a source with its documents; return their number.

        Raises:
            CallError: not_found; the store cannot be used.
        """
        return await self.store.remove_source(self.store.operator_scope(space), space, source)

    async def grant(self, who: str, space: str, access: Access = "read") -> None:
        """Grant a space to `user:NAME` or `role:NAME`.

        Raises:
            CallError: invalid_arguments, for another principal.
        """
        await self.store.grant(who, space, access)

    async def revoke(self, who: str, space: str) -> bool:
        """Revoke a grant; tell whether there was one."""
        return await self.store.revoke(who, space)

    async def grants(self, space: str | None = None) -> list[JSON]:
        """Return all grants, or those of one space."""
        return await self.store.grants(space)

    async def statistics(self) -> list[JSON]:
        """Return the statistics of each space and its sources."""
        return await self.store.statistics()

    def close(self) -> None:
        """Close the open connections; the next use opens new ones."""
        self.store.close()
