"""Web ingest: ingests a web page, file or feed into a source.

The current content of an address replaces the previous one; old entries of a feed stay.
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from pegboard.egress.destinations import Destinations
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import Response, media_type
from pegboard.model.document import DocumentScope, NewDocument, SourceType
from pegboard.model.error import CallError
from pegboard.model.record import replace
from pegboard.models.limits import LISTED_LINE_CHARS
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.ingest import IngestReport, checked_encoding, embed_into, empty_of
from pegboard.workspace.own_metadata import checked_metadata
from pegboard.workspace.parsing.feed import Feed, FeedEntry
from pegboard.workspace.sources.document_source import BadFile
from pegboard.workspace.sources.web_paths import is_address, path_of, payload_of
from pegboard.workspace.store.document_store import INGEST_BATCH_DOCUMENTS, SqlDocumentStore
from pegboard.workspace.store.writing import PreparedDocument, prepared

INGEST_URL_S = 120.0  # seconds to fetch one address, including redirects

_FEEDS: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
_PERHAPS_FEEDS: Final = frozenset({"application/xml", "text/xml"})
_FEED_MARKS: Final = (b"<rss", b"<feed", b"<rdf:RDF")
_LOOKED_AT_BYTES = 2_048  # bytes of a page examined for its format
ACCEPT: Final = "text/html,application/rss+xml,application/atom+xml,application/pdf,*/*;q=0.5"


class WebIngest(Struct, frozen=True, kw_only=True):
    """One run over an address.

    Args:
        source: its name; by default the host of a page, and the address of a feed.
        destinations: the allowed hosts, also for redirects.
        max_file_bytes: the largest response.
        metadata: of every document.
        encoding: of a page or file without a declared one.
        allow_shrink: whether a page without text may replace one with text.
        reads_again: whether an unchanged page is stored again.
        on_bad: called for each item that was skipped.
    """

    store: SqlDocumentStore
    scope: DocumentScope
    space: str
    source: str | None
    url: str
    destinations: Destinations
    max_file_bytes: int
    encoding: str | None = None
    metadata: Mapping[str, str] | None = None
    allow_shrink: bool = False
    reads_again: bool = False
    on_progress: Callable[[IngestReport], None] = lambda _: None
    on_bad: Callable[[BadFile], None] = lambda _: None

    async def run(self) -> IngestReport:
        """Ingest the address.

        Raises:
            CallError: it must not or cannot be fetched or stored.
        """
        report = IngestReport()
        async with GuardedClient(self.destinations) as client:
            response = await client.request(
                "GET", self.url, headers={"accept": ACCEPT}, timeout_s=INGEST_URL_S,
                max_response_bytes=self.max_file_bytes,
            )  # fmt: skip
        if response.status_code != 200:
            self._report_bad(report, f"the server answered {response.status_code}")
            return report
        async with FileReader(max_chars=self.store.document_chars, parsers=self.store.parsers) as reader:
            if _is_feed(response):
                await self._take_feed(response, reader, report)
            else:
                await self._take_page(response, reader, report)
        return report

    async def _take_page(self, response: Response, reader: FileReader, report: IngestReport) -> None:
        path = path_of(response.url, media_type(response))
        if path is None:
            self._report_bad(report, f"no parser reads what it is: {media_type(response)[:100]!r}")
            return
        source = self.source or urlsplit(response.url).hostname or "web"
        document = await reader.read(path, payload_of(response), encoding=checked_encoding(self.encoding) or "")
        if document.is_empty and not self.allow_shrink:
            known = (await self.store.known_files(self.scope, self.space, source, [path])).get(path)
            if known is not None and not known.error and known.checksum != document.checksum:
                text = "it has no text now, so what was there stays; run it with --allow-shrink to replace it"
                self._report_bad(report, text)
                return
        await self._store(source, "web", [document], report)

    async def _take_feed(self, response: Response, reader: FileReader, report: IngestReport) -> None:
        try:
            feed = await reader.feed(response.body)
        except CallError as error:
            self._report_bad(report, error.error.message)
            return
        address = urlsplit(response.url)
        source = self.source or f"{address.hostname}{address.path}".rstrip("/")
        documents = [each async for each in _documents(feed, reader, response.url)]
        for start in range(0, max(1, len(documents)), INGEST_BATCH_DOCUMENTS):
            await self._store(source, "feed", documents[start : start + INGEST_BATCH_DOCUMENTS], report)

    async def _store(self, source: str, kind: SourceType, documents: list[NewDocument], report: IngestReport) -> None:
        await self.store.begin_source(self.scope, self.space, source, type_=kind, origin=self.url)
        ready: list[PreparedDocument] = []
        for document in documents:
            if document.error:
                self._report_bad(report, document.error, path=document.path)
            else:
                of_source = checked_metadata(self.metadata or {})
                whole = prepared(replace(document, metadata={**of_source, **document.metadata}))
                ready.append(replace(whole, is_forced=self.reads_again))
        stored = await self.store.put(self.scope, self.space, source, ready)
        report.counts.update(each for _, each in stored)
        report.empty += empty_of([each.document for each in ready], stored)
        await self.store.end_source(self.scope, self.space, source)
        await embed_into(self.store, self.scope, self.space, report, self.on_progress)
        self.on_progress(report)

    def _report_bad(self, report: IngestReport, reason: str, *, path: str | None = None) -> None:
        bad = BadFile(path=path or self.url, reason=" ".join(reason.split())[:LISTED_LINE_CHARS])
        report.bad.append(bad)
        self.on_bad(bad)


async def _documents(feed: Feed, reader: FileReader, url: str) -> AsyncIterator[NewDocument]:
    """Yield a document for each entry, under the entry's link: titles change, addresses seldom do.

    A relative link is resolved with `url`, the feed's own address.
    """
    for entry in feed["entries"]:
        link = _address(url, entry["link"])
        known = link or entry["id"] or entry["title"]
        path = path_of(link, "text/html") if is_address(link) else None
        if path is None:
            path = f"entries/{hashlib.sha256(known.encode()).hexdigest()[:16]}.html"
        document = await reader.read(path, _page_of(entry).encode("utf-8-sig", "replace"))
        yield replace(document, metadata={**document.metadata, **({"url": link} if link else {})})


def _address(base: str, link: str) -> str:
    """Return the address of an entry's link; empty if it is missing or unreadable."""
    try:
        return urljoin(base, link) if link else ""
    except ValueError:
        return ""


def _page_of(entry: FeedEntry) -> str:
    metadata = {"author": entry["author"], "date": entry["created"]}
    metas = "".join(f'<meta name="{name}" content="{html.escape(text)}">' for name, text in metadata.items() if text)
    title = html.escape(entry["title"])
    return f"<html><head><title>{title}</title>{metas}</head><body><h1>{title}</h1>\n{entry['html']}</body></html>"


def _is_feed(response: Response) -> bool:
    kind = media_type(response)
    if kind in _FEEDS:
        return True
    beginning = response.body[:_LOOKED_AT_BYTES]
    return kind in _PERHAPS_FEEDS and any(mark in beginning for mark in _FEED_MARKS)
