"""Document workspace: the documents of all spaces, for host code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pegboard.core.ports import Embedder
from pegboard.egress.destinations import Destinations
from pegboard.model.bounds import DEFAULT_BOUNDS
from pegboard.model.document import Access
from pegboard.model.json_types import JSON
from pegboard.model.secret import Secret
from pegboard.workspace.ingest import BadFile, FolderIngest, IngestReport
from pegboard.workspace.store.document_store import SqlDocumentStore
from pegboard.workspace.stores import open_store
from pegboard.workspace.upload import upload
from pegboard.workspace.web_ingest import WebIngest, is_address


class Workspace:
    """The documents of all spaces: host code takes them in and says who may see them.

    Agents have them by the tools of a catalog: `catalog.use_documents(workspace.store)`.

    Args:
        store: where they are: `sqlite:FILE`, made with its first use, or `postgresql://HOST/DATABASE`; or a store.
        embedder: makes vectors of passages and questions; without one, words alone find them. A store has its own.
        max_file_bytes: what one file may have.
        allow_hosts: where addresses of the web may be: `example.com`, `*.example.com`, `10.0.0.0/8`; without any, all.
        allow_private: whether private and loopback addresses may be reached.

    Raises:
        DefinitionError: the store cannot be used, or a host cannot be read.
    """

    def __init__(
        self,
        store: str | Secret | SqlDocumentStore = "sqlite:documents.db",
        *,
        embedder: Embedder | None = None,
        max_file_bytes: int = DEFAULT_BOUNDS.upload_bytes,
        allow_hosts: Sequence[str] = (),
        allow_private: bool = False,
    ) -> None:
        if isinstance(store, SqlDocumentStore):
            self.store = store
        else:
            uri = store.reveal() if isinstance(store, Secret) else store
            self.store = open_store(uri, folder=Path.cwd(), embedder=embedder)
        self._max_file_bytes = max_file_bytes
        self._destinations = Destinations(allow_private=allow_private, allow_hosts=tuple(allow_hosts))

    async def ingest(
        self,
        path: str | Path,
        *,
        space: str,
        source: str | None = None,
        encoding: str | None = None,
        allow_shrink: bool = False,
        on_progress: Callable[[IngestReport], None] = lambda _: None,
        on_bad: Callable[[BadFile], None] = lambda _: None,
    ) -> IngestReport:
        """Take a folder, a file, or a page or feed of the web into a space: what is new or has changed.

        What is gone from a folder is removed; entries that a feed no longer has stay.

        Files that cannot be read are told of, and the others come in. What was stored stays, whatever ends it; the next
        run does the rest.

        Args:
            path: the folder, one file, or an address of the web.
            space: the space that the documents belong to.
            source: the name of the source in that space; by default that of the folder, or the address.
            encoding: that of texts without a byte order mark, such as `cp1252`; kept for the source of a folder. It is
                detected without one; `auto` has it detected again.
            allow_shrink: remove what is gone also where that is all or most of the source, or where the source was
                read from another folder before.
            on_progress: told after each batch that was stored.
            on_bad: told of each file that was not, at once.

        Raises:
            DefinitionError: there is no such folder, file or encoding.
            CallError: the store cannot be used; an address may not or cannot be fetched; `needs_review` without
                `allow_shrink`, where the source would lose more than half of its documents.
        """
        scope = self.store.operator_scope(space)
        if isinstance(path, str) and is_address(path):
            return await WebIngest(
                store=self.store,
                scope=scope,
                space=space,
                source=source,
                url=path,
                destinations=self._destinations,
                max_file_bytes=self._max_file_bytes,
                encoding=encoding,
                allow_shrink=allow_shrink,
                on_progress=on_progress,
                on_bad=on_bad,
            ).run()
        path = Path(path)
        return await FolderIngest(
            store=self.store,
            scope=scope,
            space=space,
            source=source or path.absolute().name or "root",
            path=path,
            max_file_bytes=self._max_file_bytes,
            encoding=encoding,
            allow_shrink=allow_shrink,
            on_progress=on_progress,
            on_bad=on_bad,
        ).run()

    async def upload(self, payload: bytes, *, space: str, path: str, source: str = "uploads") -> JSON:
        """Take one file in, in the place of what was at its path in that source; its name tells how it is read.

        Raises:
            CallError: invalid_arguments, for what cannot be read; the store cannot be used.
        """
        scope = self.store.operator_scope(space)
        return await upload(self.store, scope, payload, space=space, source=source, path=path)

    async def remove(self, space: str, source: str) -> int:
        """Remove a source with its documents; return how many they were.

        Raises:
            CallError: not_found; the store cannot be used.
        """
        return await self.store.remove_source(self.store.operator_scope(space), space, source)

    async def grant(self, who: str, space: str, access: Access = "read") -> None:
        """Grant a space to `user:NAME` or `role:NAME`.

        Raises:
            CallError: invalid_arguments, for anybody else.
        """
        await self.store.grant(who, space, access)

    async def revoke(self, who: str, space: str) -> bool:
        """Take a grant back; tell whether there was one."""
        return await self.store.revoke(who, space)

    async def grants(self, space: str | None = None) -> list[JSON]:
        """Return all grants, or those of a space."""
        return await self.store.grants(space)

    async def statistics(self) -> list[JSON]:
        """Return what each space holds, with its sources."""
        return await self.store.statistics()

    def close(self) -> None:
        """Close what is open; the next use opens it again."""
        self.store.close()
