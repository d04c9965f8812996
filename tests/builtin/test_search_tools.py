"""web_search, wikipedia and web_scrape against local servers of the same shape."""

import asyncio
import time
from typing import Any
from urllib.parse import unquote

import pytest

from pegboard import DefinitionError
from pegboard.sources.builtin.builtins import builtin_entry
from tests.builtin.parts import Shelf, shelf
from tests.builtin.web import Asked, Site, answer, as_json, page
from tests.timing import OF_THREAD, is_within

OPEN = {"allow_private": True}
CANARY = "CANARY-key-0002"
HIT = {"title": "One", "url": "https://one.example/a", "snippet": "first & best", "published": "2026-01-02"}

DUCK = """<html><body><div class="result results_links"><h2 class="result__title">
<a rel="nofollow"
 class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fone.example%2Fa&amp;rut=f00">One</a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x"><b>first</b> &amp; best</a></div>
<div class="result result--ad"><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">Buy</a></div>
<div class="result"><a class="result__a" href="javascript:alert(1)">Evil</a></div></body></html>"""


def provider(asked: Asked) -> bytes:
    if asked.path == "/html/":
        return page(DUCK)
    if asked.path == "/res/v1/web/search":
        found = {"title": "<strong>One</strong>", "url": HIT["url"], "description": "<strong>first</strong> &amp; best",
                 "page_age": "2026-01-02"}  # fmt: skip
        return as_json({"web": {"results": [found]}})
    common = {"title": "One", "url": HIT["url"], "content": "first & best"}
    dates = {"published_date": "2026-01-02", "publishedDate": "2026-01-02"}
    return as_json({"results": [common | dates, {"title": "Evil", "url": "file:///etc/passwd", "content": ""}]})


async def search(name: str, args: dict[str, Any]) -> tuple[Asked, Any]:
    site = Site(provider)
    async with site.server() as server:
        config = OPEN | {"provider": name, "base_url": server.url, "api_key": CANARY}
        got = await shelf("web_search", config).value("web_search", args)
    assert CANARY not in str(got)
    return site.asked[0], got


ARGS = {"query": "a b&c", "max_results": 3, "recency": "week", "site": "one.example"}


async def test_tavily_is_asked_in_its_own_words() -> None:
    asked, got = await search("tavily", ARGS)
    assert (asked.method, asked.target, asked.headers["authorization"]) == ("POST", "/search", f"Bearer {CANARY}")
    assert asked.json == {"query": "a b&c", "max_results": 3, "search_depth": "basic", "time_range": "week",
                          "include_domains": ["one.example"]}  # fmt: skip
    assert got == {"results": [HIT], "provider": "tavily"}


async def test_brave_is_asked_in_its_own_words() -> None:
    asked, got = await search("brave", ARGS)
    assert (asked.method, asked.path) == ("GET", "/res/v1/web/search")
    assert asked.headers["x-subscription-token"] == CANARY
    assert asked.query == {"q": "a b&c site:one.example", "count": "3", "freshness": "pw"}
    assert got == {"results": [HIT], "provider": "brave"}


async def test_searxng_is_asked_in_its_own_words() -> None:
    asked, got = await search("searxng", ARGS)
    assert asked.path == "/search"
    assert asked.query == {"q": "a b&c site:one.example", "format": "json", "time_range": "week"}
    assert got == {"results": [HIT], "provider": "searxng"}


async def test_duckduckgo_is_read_from_its_page() -> None:
    asked, got = await search("duckduckgo", ARGS)
    assert asked.query == {"q": "a b&c site:one.example", "df": "w"}
    assert got == {
        "results": [{key: HIT[key] for key in ("title", "url", "snippet")}],
        "provider": "duckduckgo",
    }


@pytest.mark.parametrize("name", ["tavily", "brave", "searxng", "duckduckgo"])
async def test_a_provider_that_fails_is_a_typed_error(name: str) -> None:
    replies = {
        "401 Unauthorized": "upstream_auth", "429 Too Many Requests": "rate_limited", "500 Oops": "upstream_error",
        "503 Away": "upstream_unavailable", "200 OK": "protocol_error",
    }  # fmt: skip
    for status, kind in replies.items():
        site = Site(lambda asked, status=status: as_json([1], status=status, headers=["Retry-After: 7"]))
        async with site.server() as server:
            config = OPEN | {"provider": name, "base_url": server.url, "api_key": CANARY}
            result = await shelf("web_search", config).call("web_search", {"query": "x"})
        if name == "duckduckgo" and status == "200 OK":
            assert result.structured == {"results": [], "provider": "duckduckgo"}
            continue
        assert result.error is not None
        assert (result.error.kind, CANARY in str(result)) == (kind, False)
        if kind == "rate_limited":
            assert result.error.retry_after_s == 7


HOSTILE = {
    "open tags": ("duckduckgo", page("<a class=result__a href=x>" + "<a>" * 1_000_000)),
    "a title without end": ("duckduckgo", page("<a class=result__a href=x>" + "y<b>" * 800_000)),
    "many entries": ("searxng", as_json({"results": [{}] * 1_000_000})),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_an_answer_made_to_be_read_for_hours_holds_up_nobody(case: str) -> None:
    name, reply = HOSTILE[case]
    spent = 0.0

    def beat(before: float) -> None:
        # The time of this thread alone: what the loop did between two of its turns.
        nonlocal spent, handle
        now = time.thread_time()
        spent = max(spent, now - before)
        handle = loop.call_soon(beat, now)

    async with Site(lambda asked: reply).server() as server:
        tools = shelf("web_search", OPEN | {"provider": name, "base_url": server.url, "timeout_seconds": 20})
        loop = asyncio.get_running_loop()
        handle = loop.call_soon(beat, time.thread_time())
        result = await tools.call("web_search", {"query": "x"})
        handle.cancel()
    assert result.error is None or result.error.kind in ("protocol_error", "result_too_large", "timeout"), result.error
    assert is_within(spent, 1.0, OF_THREAD)


async def test_what_a_provider_makes_up_comes_back_in_its_form_or_not_at_all() -> None:
    good = {"title": "T", "url": "https://one.example/", "content": "c"}
    entries: list[Any] = [
        None, 3, {"title": {"a": 1}, "url": ["http://x"], "content": None}, good | {"url": "http://x/\n\u001b[31m"},
        good | {"url": "http://x/" + "u" * 100_000}, good | {"url": "http://"}, good | {"url": "data:text/html,x"},
        good | {"title": "t" * 2_000_000, "content": "<b>" * 100_000 + "c" * 300_000, "publishedDate": {"a": 1}},
        good | {"title": 7, "publishedDate": "9" * 1000},
    ]  # fmt: skip
    async with Site(lambda asked: as_json({"results": entries})).server() as server:
        got = await shelf("web_search", OPEN | {"provider": "searxng", "base_url": server.url}).value(
            "web_search", {"query": "x"}
        )
    first, second = got["results"]
    assert (len(first["title"]), len(first["snippet"]) <= 4_000, "published" in first) == (500, True, False)
    assert second == {"title": "", "url": good["url"], "snippet": "c", "published": "9" * 100}
    odd = '<a class="result__a" href="http://[x">odd</a><a class="result__a" href="https://duckduckgo.com.evil/">E</a>'
    async with Site(lambda asked: page(odd)).server() as server:
        got = await shelf("web_search", {"provider": "duckduckgo", "base_url": server.url}).value(
            "web_search", {"query": "x"}
        )
    assert [hit["url"] for hit in got["results"]] == ["https://duckduckgo.com.evil/"]


def test_a_missing_key_is_refused_at_load() -> None:
    for config in (
        {"provider": "tavily"},
        {"provider": "brave", "api_key": ""},
        {"provider": "searxng"},
        {"provider": "x"},
    ):
        with pytest.raises(DefinitionError):
            builtin_entry("web_search", config=config)


async def test_max_results_and_site_are_held_to_their_form() -> None:
    many = Site(lambda asked: as_json({"results": [{"title": str(n), "url": f"http://h/{n}"} for n in range(50)]}))
    async with many.server() as server:
        tools = shelf("web_search", OPEN | {"provider": "searxng", "base_url": server.url})
        assert len((await tools.value("web_search", {"query": "x"}))["results"]) == 5
        assert len((await tools.value("web_search", {"query": "x", "max_results": 20}))["results"]) == 20
        for bad in ({"max_results": 21}, {"max_results": 0}, {"site": "a b"}, {"site": "x/y"}, {"recency": "eon"}):
            assert (await tools.error("web_search", {"query": "x"} | bad)).kind == "invalid_arguments"


def encyclopedia(asked: Asked) -> bytes:
    if asked.path == "/w/api.php":
        return as_json([asked.query["search"], ["Alan Turing", "Turing machine"], [], []])
    title = unquote(asked.path.removeprefix("/api/rest_v1/page/summary/"))
    if title == "Turning":
        return as_json({"type": "not_found"}, status="404 Not Found")
    where = {"desktop": {"page": f"https://en.wikipedia.org/wiki/{title}"}}
    return as_json({"title": title.replace("_", " "), "extract": "He …", "content_urls": where})


async def test_what_an_encyclopedia_makes_up_comes_back_in_its_form() -> None:
    evil = {"title": "t" * 2_000_000, "extract": "e" * 3_000_000,
            "content_urls": {"desktop": {"page": "javascript:alert(1)"}}}  # fmt: skip
    for reply, extract in ((evil, 199_998), ({"title": "x", "extract": {"a": 1}}, 0)):
        async with Site(lambda asked, reply=reply: as_json(reply)).server() as server:
            got = await shelf("wikipedia", {"base_url": server.url}).value("wikipedia", {"topic": "x"})
        assert (len(got["title"]) <= 500, len(got["extract"])) == (True, extract)
        assert got["url"] == f"{server.url}/wiki/x"


async def test_wikipedia_gives_the_summary_or_near_titles() -> None:
    site = Site(encyclopedia)
    async with site.server() as server:
        tools = shelf("wikipedia", OPEN | {"base_url": server.url})
        got = await tools.value("wikipedia", {"topic": "Alan Turing"})
        assert got == {"title": "Alan Turing", "extract": "He …", "url": "https://en.wikipedia.org/wiki/Alan_Turing"}
        error = await tools.error("wikipedia", {"topic": "Turning"})
        assert error.kind == "invalid_arguments"
        assert "'Alan Turing', 'Turing machine'" in error.message


@pytest.mark.parametrize(
    "topic", ["../../w/api.php", "%2e%2e%2f", "a?x=", "a#b", "//evil.example", "a/b", "Köln", "a\r\nb"]
)
async def test_a_topic_is_one_segment_of_the_path(topic: str) -> None:
    site = Site(encyclopedia)
    async with site.server() as server:
        got = await shelf("wikipedia", OPEN | {"base_url": server.url}).value("wikipedia", {"topic": topic})
    assert site.asked[0].path.count("/") == 5
    assert site.asked[0].target.count("?") == 1
    assert got["title"] == topic.replace("_", " ")


@pytest.mark.parametrize("language", ["evil.example/", "en.evil", "EN", "", "../x", "de@evil", "a", "en\n"])
async def test_a_language_is_a_code(language: str) -> None:
    site = Site(encyclopedia)
    async with site.server() as server:
        tools = shelf("wikipedia", OPEN | {"base_url": server.url.replace("127.0.0.1", "{language}.example")})
        assert (await tools.error("wikipedia", {"topic": "x", "language": language})).kind == "invalid_arguments"


ARTICLE = """<html><head><title>The  Peg &amp; the Board</title><script>var x = 'SCRIPT'</script></head><body>
<nav><a href="/">Home</a><a href="/x">Menu entry</a></nav><article><h1>The Peg</h1>""" + "".join(
    f"<p>Paragraph {n} tells at some length what a pegboard is good for, and why each tool has its outline. "
    f'See <a href="/more{n}">more of this</a>.</p>'
    for n in range(8)
) + "</article><footer>Imprint</footer></body></html>"  # fmt: skip


async def test_a_page_comes_as_its_main_text_or_as_markdown() -> None:
    async with Site(lambda asked: page(ARTICLE)).server() as server:
        tools = shelf("web_scrape", OPEN)
        got = await tools.value("web_scrape", {"url": f"{server.url}/a"})
        assert (got["title"], got["status_code"], got["truncated"]) == ("The Peg & the Board", 200, False)
        assert got["url"] == f"{server.url}/a"
        assert "Paragraph 7 tells" in got["content"]
        assert "SCRIPT" not in got["content"]
        assert "Menu entry" not in got["content"]
        marked = await tools.value("web_scrape", {"url": f"{server.url}/a", "format": "markdown"})
        assert "# The Peg" in marked["content"]
        assert "](" in marked["content"]
        short = await tools.value("web_scrape", {"url": f"{server.url}/a", "max_length": 50})
        assert (len(short["content"]), short["truncated"]) == (50, True)


@pytest.mark.parametrize(
    ("body", "kind", "content"),
    [("plain text", "text/plain", "plain text"), ("", "text/html", ""), ('{"a": 1}', "application/json", '{"a": 1}'),
     ("<p>tiny</p>", "text/html", "tiny"), ("no markup at all", "text/html", "no markup at all")],
)  # fmt: skip
async def test_pages_that_are_no_articles_come_as_they_are(body: str, kind: str, content: str) -> None:
    async with Site(lambda asked: page(body, kind=kind, status="404 Not Found")).server() as server:
        got = await shelf("web_scrape", OPEN).value("web_scrape", {"url": server.url})
    assert (got["content"], got["status_code"]) == (content, 404)


async def test_pictures_and_endless_pages_are_refused_or_cut() -> None:
    async with Site(lambda asked: answer(b"\x89PNG", headers=["Content-Type: image/png"])).server() as server:
        assert (await shelf("web_scrape", OPEN).error("web_scrape", {"url": server.url})).kind == "invalid_arguments"
    async with Site(lambda asked: page("<p>" + "word " * 400_000)).server() as server:
        got = await shelf("web_scrape", OPEN | {"max_response_bytes": 10_000}).value("web_scrape", {"url": server.url})
        assert got["truncated"] is True
    nested = "<div>" * 200_000 + "x"
    async with Site(lambda asked: page(nested)).server() as server:
        result = await Shelf().put("web_scrape", OPEN).call("web_scrape", {"url": server.url})
        assert result.error is None or result.error.kind in ("tool_error", "timeout")
