"""Sitemap source: the pages that a web site lists in its site map, as a document source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urljoin, urlsplit

from msgspec import Struct
from protego import Protego

from pegboard.egress.destinations import Destinations
from pegboard.egress.http import GuardedClient
from pegboard.egress.responses import Response, media_type, text_of
from pegboard.model.bounds import MIB
from pegboard.model.document import SourceType
from pegboard.model.error import CallError
from pegboard.workspace.file_reader import FileReader
from pegboard.workspace.parsing.formats import format_of
from pegboard.workspace.sources.document_source import (
    BadFile,
    Fetched,
    SourceFile,
    check_count,
    path_fault,
    path_of_stored,
)
from pegboard.workspace.sources.web_paths import is_address, path_of, payload_of
from pegboard.workspace.store.source_settings import SourceRoot
from pegboard.workspace.store.writing import StoredFile

if TYPE_CHECKING:
    from pegboard.workspace.parsing.listings import SiteMap

SITEMAP_PREFIX: Final = "sitemap:"
SITEMAP_MAPS = 200  # site maps of one site
SITEMAP_BYTES = 52 * MIB  # bytes of one site map, as the protocol allows
SITEMAP_ANSWER_S = 60.0  # seconds for one answer
SITEMAP_AT_ONCE = 2  # pages fetched at once
SITEMAP_DELAY_S = 30.0  # the longest pause that `robots.txt` can ask for, in seconds

ROBOT = "Pegboard"
_PARSER: Final = "pegboard.workspace.parsing.listings:parse_sitemap"
_ROBOTS_BYTES: Final = 512 * 1024
_BATCH = 100
_GONE = frozenset({404, 410})


class _Page(Struct, frozen=True):
    """A page: its address, and its last change according to the site map, which may be empty."""

    url: str
    changed: str


class SitemapSource:
    """The pages in a site map, on the host of the site map only, and as far as `robots.txt` allows.

    A page with the same `lastmod` is not fetched; one without `lastmod` is, unless the server confirms its etag.

    Args:
        url: the site map, a list of site maps, or a site, whose `robots.txt` names its site maps.
        destinations: the allowed hosts, also after redirects.
        sleep: waits between pages, if `robots.txt` asks for it.
    """

    type: SourceType = "site"
    is_whole = True

    def __init__(
        self,
        url: str,
        destinations: Destinations,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._url, self._sleep = url, sleep
        self._client, self._reader = GuardedClient(destinations), FileReader()
        self._places = asyncio.Semaphore(SITEMAP_AT_ONCE)
        self._pages: dict[str, _Page] | None = None
        self._skipped: list[BadFile] = []
        self._robots: Protego | None = None
        self._gone: set[str] = set()

    @property
    def origin(self) -> str:
        return f"{SITEMAP_PREFIX}{self._url}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._reader.__aexit__(kind, exc, trace)
        await self._client.aclose()

    async def place(self) -> SourceRoot | None:
        return SourceRoot(self.origin, 0, 0)

    def version(self) -> str:
        return ""

    async def files(self, on_bad: Callable[[BadFile], None]) -> AsyncIterator[Sequence[SourceFile]]:
        pages = [*(await self._all()).items()]
        for bad in self._skipped:
            on_bad(bad)
        for start in range(0, len(pages), _BATCH):
            yield [
                SourceFile(path=path, size_bytes=0, etag=page.changed and f"lastmod {page.changed}")
                for path, page in pages[start : start + _BATCH]
            ]

    async def beginning(self, file: SourceFile) -> bytes:
        return b""

    async def fetch(self, file: SourceFile, *, max_bytes: int, known_etag: str) -> Fetched | None:
        if file.etag and file.etag == known_etag:
            return None
        page = (await self._all())[file.path]
        headers = {"if-none-match": known_etag} if known_etag.startswith(('"', "W/")) else {}
        async with self._places:
            await self._pause()
            response = await self._get(page.url, max_bytes, headers)
        if response.status_code == 304 and headers:
            return None
        if response.status_code != 200:
            if response.status_code in _GONE:
                self._gone.add(file.path)
            raise CallError("upstream_error", f"the server answered {response.status_code}")
        name = (path_of(response.url, media_type(response)) or file.path).rpartition("/")[2]
        return Fetched(payload=payload_of(response), etag=file.etag or response.headers.get("etag", ""), name=name)

    async def without_file(self, documents: Sequence[StoredFile]) -> list[StoredFile]:
        pages = await self._all()
        return [each for each in documents if (path := path_of_stored(each)) not in pages or path in self._gone]

    # ------------------------------------------------------------ the list

    async def _all(self) -> Mapping[str, _Page]:
        """Return the pages by path."""
        if self._pages is None:
            robots = await self._rules()
            pages: dict[str, _Page] = {}
            skipped: list[BadFile] = []
            waiting, seen = await self._maps(robots), set[str]()
            while waiting:
                url = waiting.pop(0)
                if url in seen or not self._is_here(url):
                    continue
                seen.add(url)
                if len(seen) > SITEMAP_MAPS:
                    raise CallError("result_too_large", f"{self._url} has more than {SITEMAP_MAPS} site maps.")
                listed = await self._map(url)
                waiting += [urljoin(url, each) for each in listed["maps"]]
                for place, changed in listed["pages"]:
                    self._add(urljoin(url, place), changed, robots, pages, skipped)
                check_count(len(pages), self.origin)
            self._robots, self._pages, self._skipped = robots, pages, skipped
        return self._pages

    def _add(self, url: str, changed: str, robots: Protego, pages: dict[str, _Page], skipped: list[BadFile]) -> None:
        if not self._is_here(url):
            skipped.append(BadFile(path=url[:500], reason="it is on another server than the site map"))
            return
        if not robots.can_fetch(url, ROBOT):
            skipped.append(BadFile(path=url[:500], reason="robots.txt does not allow it"))
            return
        path = path_of(url, _kind_of(url))
        if path is None or path_fault(path):
            skipped.append(BadFile(path=url[:500], reason="it has no path that can be stored"))
            return
        pages[path] = _Page(url, changed[:64])

    async def _maps(self, robots: Protego) -> list[str]:
        """Return the site maps to begin with: the given one, or those of the site."""
        if urlsplit(self._url).path not in ("", "/"):
            return [self._url]
        return [*robots.sitemaps] or [urljoin(self._url, "/sitemap.xml")]

    async def _map(self, url: str) -> SiteMap:
        response = await self._get(url, SITEMAP_BYTES, {})
        if response.status_code != 200:
            raise CallError("upstream_error", f"The site map {url!r} cannot be read: the server answered "
                            f"{response.status_code}.")  # fmt: skip
        try:
            return cast("SiteMap", await self._reader.listing(_PARSER, response.body))
        except CallError as error:
            raise CallError("upstream_error", f"The site map {url!r} cannot be read: {error.error.message}.") from None

    async def _rules(self) -> Protego:
        """Return the rules of `robots.txt`.

        A site without one allows everything; while its server fails, it allows nothing.

        Raises:
            CallError: the server fails.

        Source: RFC 9309, "Robots Exclusion Protocol".
        """
        response = await self._get(urljoin(self._url, "/robots.txt"), _ROBOTS_BYTES, {})
        if response.status_code >= 500:
            text = f"The robots.txt of {self._url!r} cannot be read now: the server answered {response.status_code}."
            raise CallError("upstream_unavailable", text)
        return Protego.parse(text_of(response) if response.status_code == 200 else "")

    def _is_here(self, url: str) -> bool:
        """Tell whether an address is on the server of the site map: a site must not choose other servers to fetch from.

        The default ports of http and https count as one server.
        """
        return is_address(url) and _server_of(url) == _server_of(self._url)

    async def _pause(self) -> None:
        delay_s = None if self._robots is None else self._robots.crawl_delay(ROBOT)
        if delay_s:
            await self._sleep(min(float(delay_s), SITEMAP_DELAY_S))

    async def _get(self, url: str, max_bytes: int, headers: Mapping[str, str]) -> Response:
        return await self._client.request(
            "GET", url, headers={"user-agent": ROBOT, **headers}, timeout_s=SITEMAP_ANSWER_S,
            max_response_bytes=max_bytes,
        )  # fmt: skip


def _server_of(url: str) -> tuple[str | None, int | None]:
    """Return the host and port of an address; no port for the default ones."""
    parts = urlsplit(url)
    return parts.hostname, None if parts.port in (80, 443) else parts.port


def _kind_of(url: str) -> str:
    """Return the likely media type of an address; generated pages count as HTML."""
    known = format_of(urlsplit(url).path)
    return "text/html" if known is None or known.mime.startswith(("text/x-", "text/javascript")) else known.mime
