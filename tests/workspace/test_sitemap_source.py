"""Site maps: the pages that a web site lists come in, as far as its robots.txt allows, and only when they changed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from pegboard import Workspace
from pegboard.egress.destinations import Destinations
from pegboard.model.error import CallError, DefinitionError
from pegboard.workspace.failed_files import FAILED_RETRY_S, FailedFiles
from pegboard.workspace.ingest import IngestReport
from pegboard.workspace.sources.sitemap_source import SitemapSource
from tests.workspace.library import ON_SQLITE_ALONE, Library
from tests.workspace.test_watching import ids
from tests.workspace.web_server import Answer, Asked, answering

ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /*?print\nSitemap: {url}/maps.xml\n"


class Site:
    """A site: its pages, when each changed, and its robots.txt."""

    def __init__(self) -> None:
        self.url = ""
        self.pages = {f"/p{number}": f"<h1>Page {number}</h1>" for number in range(4)}
        self.changed = dict.fromkeys(self.pages, "2026-01-01")
        self.more: list[str] = []
        self.robots = Answer(status=404)
        self.failing = Answer()

    def answer(self, asked: Asked) -> Answer:
        path = asked.path
        if path == "/robots.txt":
            return self.robots._replace(body=self.robots.body.replace(b"{url}", self.url.encode()))
        if path == "/maps.xml":
            return Answer(f"<sitemapindex><sitemap><loc>{self.url}/map.xml.gz</loc></sitemap></sitemapindex>".encode())
        if path == "/map.xml.gz":
            return Answer(gzip.compress(self._map()))
        if path == "/sitemap.xml":
            return Answer(self._map())
        if self.failing.status != 200:
            return self.failing
        if path not in self.pages:
            return Answer(status=404)
        etag = f'"{self.pages[path]}"'
        if asked.headers.get("if-none-match") == etag:
            return Answer(status=304)
        page = f"<html><body>{self.pages[path]}</body></html>".encode()
        return Answer(page, headers={"content-type": "text/html", "etag": etag})

    def _map(self) -> bytes:
        rows = [
            f"<url><loc>{self.url}{path}</loc>"
            f"{f'<lastmod>{self.changed[path]}</lastmod>' if self.changed.get(path) else ''}</url>"
            for path in self.pages
        ]
        rows += [f"<url><loc>{each}</loc></url>" for each in self.more]
        return (
            f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{"".join(rows)}</urlset>'
        ).encode()


class Served:
    def __init__(self, site: Site, asked: list[Asked]) -> None:
        self.site, self.asked = site, asked

    def fetched(self) -> list[str]:
        paths = [each.path for each in self.asked if each.path.startswith("/p")]
        self.asked.clear()
        return sorted(paths)


@pytest.fixture
def served() -> Iterator[Served]:
    site = Site()
    with answering(site.answer) as (url, asked):
        site.url = url
        yield Served(site, asked)


async def take_in(library: Library, served: Served, path: str = "/sitemap.xml") -> dict[str, int]:
    workspace = Workspace(library.store, allow_private=True)
    report = await workspace.ingest(f"sitemap:{served.site.url}{path}", space="s1", source="site")
    removed = {"removed": report.removed} if report.removed else {}
    return {**report.counts, **removed}


async def test_pages_come_in_and_those_with_the_same_lastmod_are_not_fetched_again(
    library: Library, served: Served
) -> None:
    site = served.site
    assert await take_in(library, served) == {"added": 4}
    before = await ids(library)
    assert served.fetched() == ["/p0", "/p1", "/p2", "/p3"]
    assert await take_in(library, served) == {"unchanged": 4}
    assert served.fetched() == []
    site.pages["/p1"], site.changed["/p1"] = "<h1>Another page</h1>", "2026-02-01"
    del site.pages["/p0"]
    site.pages["/p9"] = "<h1>New</h1>"
    assert await take_in(library, served) == {"added": 1, "changed": 1, "unchanged": 2, "removed": 1}
    assert served.fetched() == ["/p1", "/p9"]
    after = await ids(library)
    assert {path.rpartition("/")[2] for path in after} == {"p1.html", "p2.html", "p3.html", "p9.html"}
    assert {path: after[path] for path in after if path in before}.items() <= before.items()


async def test_a_page_without_lastmod_is_asked_for_by_its_etag(library: Library, served: Served) -> None:
    served.site.changed.clear()
    assert await take_in(library, served) == {"added": 4}
    served.fetched()
    served.site.pages["/p2"] = "<h1>Changed</h1>"
    assert await take_in(library, served) == {"changed": 1, "unchanged": 3}
    assert all(each.headers.get("if-none-match") for each in served.asked if each.path.startswith("/p"))


@ON_SQLITE_ALONE
async def test_a_site_is_read_by_the_site_maps_of_its_robots_txt_and_as_far_as_that_allows(
    library: Library, served: Served
) -> None:
    site = served.site
    site.robots = Answer(ROBOTS.encode())
    site.more = [f"{site.url}/private/a", f"{site.url}/p1?print=1", "https://other.example.com/p1"]
    workspace = Workspace(library.store, allow_private=True)
    report = await workspace.ingest(f"sitemap:{site.url}", space="s1")
    assert dict(report.counts) == {"added": 4}
    assert {bad.path.removeprefix(site.url): bad.reason for bad in report.bad} == {
        "/private/a": "robots.txt does not allow it",
        "/p1?print=1": "robots.txt does not allow it",
        "https://other.example.com/p1": "it is on another server than the site map",
    }
    assert served.fetched() == ["/p0", "/p1", "/p2", "/p3"]


@ON_SQLITE_ALONE
async def test_a_site_map_cannot_have_another_port_of_its_host_fetched(library: Library, served: Served) -> None:
    with answering(lambda _: Answer(b"internal")) as (other, asked):
        served.site.more = [f"{other}/p7"]
        report = await Workspace(library.store, allow_private=True).ingest(
            f"sitemap:{served.site.url}/sitemap.xml", space="s1"
        )
    assert [(bad.path, bad.reason) for bad in report.bad] == [
        (f"{other}/p7", "it is on another server than the site map")
    ]
    assert asked == []


async def test_a_site_that_fails_for_a_while_loses_nothing(library: Library, served: Served) -> None:
    site = served.site
    await take_in(library, served)
    before = await ids(library)
    site.changed = dict.fromkeys(site.pages, "2026-03-01")
    site.failing = Answer(status=503)
    assert await take_in(library, served) == {"failed": 4}
    assert await ids(library) == before
    assert (await library.call("grep_documents", pattern="Page"))["total"] == 4
    site.failing = Answer()
    assert await take_in(library, served) == {"unchanged": 4}
    # A map that lists nothing, as that of a site that is set up anew.
    site.pages = {}
    with pytest.raises(CallError, match="all 4 documents of the source 'site' would be removed"):
        await take_in(library, served)
    assert await ids(library) == before


@ON_SQLITE_ALONE
async def test_a_page_that_is_gone_though_it_is_listed_is_removed(library: Library, served: Served) -> None:
    site = served.site
    await take_in(library, served)
    site.changed["/p3"] = "2026-03-01"
    page = site.pages["/p3"]
    listed = site._map()
    del site.pages["/p3"]
    site._map = lambda: listed  # pyright: ignore[reportAttributeAccessIssue] - the map still lists it
    assert page
    assert await take_in(library, served) == {"failed": 1, "unchanged": 3, "removed": 1}


@ON_SQLITE_ALONE
async def test_a_robots_txt_that_cannot_be_read_now_forbids_everything(library: Library, served: Served) -> None:
    served.site.robots = Answer(status=500)
    with pytest.raises(CallError, match=r"robots\.txt of .* cannot be read now"):
        await take_in(library, served)
    assert served.fetched() == []


@ON_SQLITE_ALONE
async def test_the_pause_that_robots_txt_asks_for_is_kept(library: Library, served: Served) -> None:
    served.site.robots = Answer(b"User-agent: Pegboard\nCrawl-delay: 7\n")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    workspace = Workspace(library.store, allow_private=True)
    place = SitemapSource(f"{served.site.url}/sitemap.xml", workspace._access.destinations, sleep=sleep)
    await workspace.ingest_from(place, space="s1", source="site")
    assert pauses == [7.0] * 4


@ON_SQLITE_ALONE
@pytest.mark.parametrize(
    "body",
    [b"<urlset><!DOCTYPE a [<!ENTITY b 'c'>]></urlset>", b"<html></html>", b"no xml", gzip.compress(b"x", mtime=0)],
)
async def test_what_is_no_site_map_is_refused(library: Library, served: Served, body: bytes) -> None:
    served.site._map = lambda: body  # pyright: ignore[reportAttributeAccessIssue] - what the server sends
    with pytest.raises(CallError, match=r"cannot be read: (it is|its root)"):
        await take_in(library, served)


@ON_SQLITE_ALONE
async def test_a_private_site_is_refused_unless_it_is_allowed(library: Library, served: Served) -> None:
    with pytest.raises(CallError) as refused:
        await Workspace(library.store).ingest(f"sitemap:{served.site.url}", space="s1")
    assert refused.value.error.kind == "blocked_destination"
    with pytest.raises(DefinitionError, match="is not a site map"):
        await Workspace(library.store).ingest("sitemap:ftp://example.com", space="s1")


@ON_SQLITE_ALONE
async def test_pages_that_fail_are_tried_again_with_growing_pauses_or_when_they_change(
    library: Library, served: Served
) -> None:
    site, now = served.site, [0.0]
    workspace, failed = Workspace(library.store, allow_private=True), FailedFiles(clock=lambda: now[0])

    async def run() -> IngestReport:
        place = SitemapSource(f"{site.url}/sitemap.xml", Destinations(allow_private=True))
        return await workspace.ingest_from(place, space="s1", source="site", failed=failed)

    await run()
    served.fetched()
    site.failing = Answer(status=503)
    site.changed = dict.fromkeys(site.pages, "2026-02-02")
    first = await run()
    assert (served.fetched(), len(first.bad), first.waiting) == ([*site.pages], 4, 0)
    again = await run()
    assert (served.fetched(), again.bad, again.waiting, again.has_changes) == ([], [], 4, False)
    site.changed["/p1"] = "2026-03-03"
    await run()
    assert served.fetched() == ["/p1"]
    now[0] = FAILED_RETRY_S
    await run()
    assert served.fetched() == ["/p0", "/p1", "/p2", "/p3"]
    now[0] = 2 * FAILED_RETRY_S
    await run()
    assert served.fetched() == []
    site.failing = Answer()
    now[0] = 4 * FAILED_RETRY_S
    assert dict((await run()).counts) == {"unchanged": 4}
    assert served.fetched() == [*site.pages]
