"""Pages, files and feeds of the web: taken in through the guarded way out, and again after each change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pegboard import CallError, Workspace
from pegboard.workspace.parsing.feed import parse_feed
from pegboard.workspace.parsing.parsed import UnreadableError
from pegboard.workspace.web_ingest import path_of
from tests.builtin.web import Asked, Site
from tests.egress.loopback import answer
from tests.workspace.library import ON_SQLITE_ALONE, Library, as_bytes

RSS = """<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>Fernhill news</title><link>https://fernhill.example/</link>{items}</channel></rss>"""
ITEM = """<item><title>{title}</title><link>https://fernhill.example/{name}</link><guid>{name}</guid>
<pubDate>Tue, 06 Jan 2026 10:00:00 GMT</pubDate><dc:creator>Ines Faber</dc:creator>
<description>short</description><content:encoded><![CDATA[<p>{text}</p>]]></content:encoded></item>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">Atom news</title><id>urn:x</id>
<entry><title>Wrens &amp; owls</title><link rel="self" href="https://no.example/"/>
<link href="https://birds.example/wrens?id=1"/><id>urn:1</id><updated>2026-01-02T03:04:05Z</updated>
<author><name>Ann</name></author>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>Wrens <b>nest</b></p><p>low.</p></div></content>
</entry>
<entry><title>No link</title><id>urn:2</id><summary>Only an id.</summary></entry></feed>"""


class Web:
    """A site on this machine whose answers can change."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.site = Site(self._reply)

    def _reply(self, asked: Asked) -> bytes:
        if asked.target not in self.pages:
            return answer(b"nothing", status="404 Not Found")
        kind, body = self.pages[asked.target]
        if kind == "redirect":
            return answer(b"", status="302 Found", headers=[f"Location: {body.decode()}"])
        return answer(body, headers=[f"Content-Type: {kind}"])


@pytest.fixture
async def web() -> AsyncIterator[tuple[Web, str]]:
    made = Web()
    async with made.site.server() as server:
        yield made, server.url


def workspace(library: Library) -> Workspace:
    return Workspace(library.store, allow_hosts=["127.0.0.1"], allow_private=True)


async def listed(library: Library) -> dict[str, Any]:
    return {each["path"]: each["document_id"] for each in (await library.call("find_by_name", pattern="*"))["items"]}


async def test_a_page_or_feed_that_is_empty_for_a_moment_keeps_its_documents(
    library: Library, web: tuple[Web, str]
) -> None:
    site, url = web
    item = ITEM.format(title="Wrens", name="wrens", text="They nest low.")
    site.pages["/rules"] = ("text/html", b"<p>Thirty days of leave</p>")
    site.pages["/news"] = ("application/rss+xml", RSS.format(items=item).encode())
    ingest = workspace(library).ingest
    await ingest(url + "/rules", space="s1", source="rules")
    await ingest(url + "/news", space="s1", source="news")
    site.pages["/rules"] = ("text/html", b"<html><body></body></html>")
    site.pages["/news"] = ("application/rss+xml", RSS.format(items="").encode())
    report = await ingest(url + "/rules", space="s1", source="rules")
    [bad] = report.bad
    assert "it has no text now, so what was there stays" in bad.reason
    await ingest(url + "/news", space="s1", source="news")
    for query in ("leave", "nest"):
        assert len((await library.call("search_documents", query=query))["hits"]) == 1
    report = await ingest(url + "/rules", space="s1", source="rules", allow_shrink=True)
    assert (dict(report.counts), report.bad) == ({"changed": 1}, [])
    assert (await library.call("search_documents", query="leave"))["hits"] == []


@ON_SQLITE_ALONE
async def test_pages_and_files_of_a_host_are_one_source_that_follows_what_they_say(
    library: Library, web: tuple[Web, str]
) -> None:
    site, url = web
    site.pages["/docs/"] = ("text/html; charset=utf-8", "<title>Übersicht</title><p>Der Zaunkönig</p>".encode())
    site.pages["/old"] = ("redirect", b"/rates?year=2026")
    site.pages["/rates?year=2026"] = ("text/csv", b"city,eur\nOslo,190\n")
    site.pages["/latin.html"] = ("text/html; charset=iso-8859-1", "<p>caf\xe9</p>".encode("latin-1"))
    ingest = workspace(library).ingest
    for path in ("/docs/", "/old", "/latin.html"):
        report = await ingest(url + path, space="s1")
        assert (dict(report.counts), report.bad) == ({"added": 1}, [])
    [source] = (await library.call("list_sources"))["items"]
    assert (source["name"], source["type"], source["document_count"]) == ("127.0.0.1", "web", 3)
    assert set(await listed(library)) == {
        "127.0.0.1/docs/index.html", "127.0.0.1/rates?year=2026.csv", "127.0.0.1/latin.html",
    }  # fmt: skip
    assert (await library.call("grep_documents", pattern="café"))["total"] == 1
    [hit] = (await library.call("search_documents", query="Zaunkönig"))["hits"]
    before = hit["document_id"]
    site.pages["/docs/"] = ("text/html", b"<p>The owl</p>")
    assert dict((await ingest(url + "/docs/", space="s1")).counts) == {"changed": 1}
    assert dict((await ingest(url + "/docs/", space="s1")).counts) == {"unchanged": 1}
    assert (await library.call("search_documents", query="Zaunkönig"))["hits"] == []
    assert [hit["document_id"] for hit in (await library.call("search_documents", query="owl"))["hits"]] == [before]


@ON_SQLITE_ALONE
async def test_the_entries_of_a_feed_come_in_once_and_stay_when_the_feed_forgets_them(
    library: Library, web: tuple[Web, str]
) -> None:
    site, url = web
    items = "".join(ITEM.format(title=f"News {n}", name=f"news-{n}", text=f"wren number{n}") for n in range(3))
    site.pages["/feed"] = ("application/rss+xml", RSS.format(items=items).encode())
    ingest = workspace(library).ingest
    assert dict((await ingest(f"{url}/feed", space="s1", source="news")).counts) == {"added": 3}
    # Told from the place of the feed; one that nobody can read is no reason to lose the entry.
    relative = (
        items.replace("https://fernhill.example/", "/") + "<item><link>http://[x</link><title>lost</title></item>"
    )
    site.pages["/relative"] = ("application/rss+xml", RSS.format(items=relative).encode())
    assert dict((await ingest(f"{url}/relative", space="s2")).counts) == {"added": 4}
    later = ITEM.format(title="News 2, corrected", name="news-2", text="wren number2 after all")
    site.pages["/feed"] = ("text/xml", RSS.format(items=later + ITEM.format(title="4", name="n4", text="owl")).encode())
    assert dict((await ingest(f"{url}/feed", space="s1", source="news")).counts) == {"changed": 1, "added": 1}
    assert set(await listed(library)) == {
        f"fernhill.example/{each}.html" for each in ("news-0", "news-1", "news-2", "n4")
    }
    [source] = (await library.call("list_sources", type="feed"))["items"]
    found = await library.call("search_documents", query="number2", feed_ids=[source["source_id"]])
    assert "number2 after all" in found["hits"][0]["text"]
    info = await library.call("document_info", document_id=found["hits"][0]["document_id"])
    assert (info["metadata"]["title"], info["metadata"]["author"]) == ("News 2, corrected", "Ines Faber")
    assert info["created_at"] == "2026-01-06T10:00:00+00:00"
    # A feed has no pages: what has that name already is not written over.
    site.pages["/page"] = ("text/html", b"<p>x</p>")
    with pytest.raises(CallError, match="of the type 'feed'"):
        await ingest(f"{url}/page", space="s1", source="news")


@ON_SQLITE_ALONE
async def test_what_cannot_be_taken_in_is_one_line_and_no_address_inside_is_reached(
    library: Library, web: tuple[Web, str], tmp_path: Path
) -> None:
    site, url = web
    bomb = b'<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]><rss><channel>&b;</channel></rss>'
    site.pages |= {
        "/bomb": ("application/rss+xml", bomb),
        "/broken": ("application/rss+xml", b"<rss><channel>"),
        "/other": ("application/atom+xml", b"<html><entry/></html>"),
        "/picture": ("image/png", b"\x89PNG"),
        "/bad.pdf": ("application/pdf", b"no pdf"),
        "/huge.txt": ("text/plain", b"x" * 3_000),
    }
    made = Workspace(library.store, allow_hosts=["127.0.0.1"], allow_private=True, max_file_bytes=2_000)
    for path, words in (
        ("/gone", "the server answered 404"),
        ("/bomb", "it defines entities"),
        ("/broken", "it is not a readable feed"),
        ("/other", "it is neither RSS nor Atom"),
        ("/picture", "no parser reads what it is: 'image/png'"),
        ("/bad.pdf", "it is not a readable PDF"),
    ):
        [bad] = (await made.ingest(url + path, space="s1")).bad
        assert words in bad.reason, (path, bad)
        assert "\n" not in bad.reason
    with pytest.raises(CallError) as refused:
        await made.ingest(f"{url}/huge.txt", space="s1")
    assert refused.value.error.kind == "result_too_large"
    # Without a word about this machine nothing on it is asked, nor where a page elsewhere leads to it.
    asked = len(site.site.asked)
    with pytest.raises(CallError) as refused:
        await Workspace(library.store).ingest(f"{url}/picture", space="s1")
    assert (refused.value.error.kind, len(site.site.asked)) == ("blocked_destination", asked)
    assert await listed(library) == {}
    assert b"127.0.0.1" not in as_bytes(await library.call("search_documents", query="x"))


def test_atom_is_read_with_its_markup_and_entries_without_a_link() -> None:
    feed = parse_feed(None, ATOM.encode())
    assert feed["title"] == "Atom news"
    first, second = feed["entries"]
    assert (first["title"], first["link"], first["author"]) == (
        "Wrens & owls",
        "https://birds.example/wrens?id=1",
        "Ann",
    )
    assert (first["created"], first["html"].split()) == ("2026-01-02T03:04:05+00:00", ["Wrens", "nest", "low."])
    assert (second["link"], second["id"], second["html"]) == ("", "urn:2", "Only an id.")


def test_an_address_in_a_feed_is_told_from_the_place_that_it_names_and_a_date_in_any_usual_form() -> None:
    atom = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://birds.example/blog/"><title>T</title>
    <link rel="self" href="feed.xml"/><entry xml:base="posts/"><source><title>Other</title>
    <link href="http://x.example"/></source><title type="html"><![CDATA[Wrens & owls]]></title>
    <link rel="enclosure" href="a.mp3"/><link href="one.html"/><author><name>Ann Q</name>
    <email>a@x.example</email></author><updated>{}</updated>
    </entry></feed>"""
    dates = ["2 Jan 2026", "Fri, 02 January 2026", "January 2, 2026", "Fri, 2026-01-02 00:00:00 +0000", "2026-01-02"]
    read = [parse_feed(None, atom.format(each).encode())["entries"][0] for each in dates]
    assert {each["created"].removesuffix("+00:00") for each in read} == {"2026-01-02T00:00:00"}
    assert {(each["title"], each["link"], each["author"]) for each in read} == {
        ("Wrens & owls", "https://birds.example/blog/posts/one.html", "Ann Q")
    }
    rss = b"<rss><channel><item><guid>https://a.example/1</guid></item><item><link>http://[x</link></item></channel></rss>"
    assert [each["link"] for each in parse_feed(None, rss)["entries"]] == ["https://a.example/1", "http://[x"]


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"<a>" * 200, "<rss>ö".encode("utf-16"), b"<rss>&nbsp;</rss>", b"{}"]
)
def test_what_is_no_feed_is_refused_in_words(payload: bytes) -> None:
    with pytest.raises(UnreadableError):
        parse_feed(None, payload)


@pytest.mark.parametrize(
    ("url", "kind", "path"),
    [
        ("https://a.example", "text/html", "a.example/index.html"),
        ("https://a.example/x/../../etc/passwd", "text/html", "a.example/x/etc/passwd.html"),
        ("https://a.example/%2e%2e%2f%2e%2e/x", "text/html", "a.example/x.html"),
        ("https://a.example/a%0ab%00c.pdf", "application/pdf", "a.example/abc.pdf"),
        ("https://a.example/a.txt", "text/html", "a.example/a.txt.html"),
        ("https://a.example/data.csv", "application/octet-stream", "a.example/data.csv"),
        ("https://a.example/日本?q=ä/b", "text/html", "a.example/日本?q=äb.html"),
        ("https://a.example/x.exe", "application/octet-stream", None),
    ],
)
def test_an_address_has_one_path_that_leads_nowhere_else(url: str, kind: str, path: str | None) -> None:
    assert path_of(url, kind) == path
    long = path_of(f"https://a.example/{'x' * 3_000}", "text/html")
    assert long is not None
    assert (len(long), long.endswith(".html")) == (500, True)
