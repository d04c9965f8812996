"""Search providers: the wire formats of four search providers."""

from __future__ import annotations

import html
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from msgspec import Struct, field

from pegboard.egress.responses import Response, json_of, text_of
from pegboard.egress.sandbox import run_sandboxed
from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, is_list, is_object
from pegboard.model.record import CarriesCredentials

SEARCH_PAGE_HITS = 100  # hits read from one response
SEARCH_PAGE_S = 6.0  # seconds to parse a page of hits
SEARCH_TEXT_CHARS = 20_000  # characters of a hit's text before its markup is removed
SEARCH_TITLE_CHARS = 500  # characters of a hit's title
SEARCH_DATE_CHARS = 100  # characters of a hit's date

_TAG = re.compile(r"<[^<>]{0,200}>")
# Links to the provider's own pages are skipped.
_OWN_PAGE = r"(https?:)?//([^/?#]*\.)?duckduckgo\.com([:/?#]|\Z)"
_PAGE = "pegboard.sources.builtin.duckduckgo:hits"


class Search(Struct, frozen=True, kw_only=True):
    """A search request."""

    query: str
    max_results: int
    recency: str | None
    site: str | None

    @property
    def words(self) -> str:
        """The query for providers that accept `site:` in it."""
        return f"{self.query} site:{self.site}" if self.site else self.query


class Request(CarriesCredentials, frozen=True, kw_only=True):
    """One request to a provider, below its base URL."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None


class Provider(CarriesCredentials, frozen=True, kw_only=True):
    """How to call one provider and read its response: results as `{title, url, snippet, published?}`."""

    base_url: str
    headers: Callable[[str], Mapping[str, str]]
    request: Callable[[Search], Request]
    read: Callable[[Response], Awaitable[list[dict[str, str]]]]


def _query(**parts: object) -> str:
    return urlencode({name: value for name, value in parts.items() if value is not None})


def _hit(title: Any, url: Any, snippet: Any, published: Any = None) -> dict[str, str]:
    hit = {
        "title": _plain(title)[:SEARCH_TITLE_CHARS],
        "url": url if isinstance(url, str) else "",
        "snippet": _plain(snippet),
    }
    return hit | {"published": published[:SEARCH_DATE_CHARS]} if isinstance(published, str) and published else hit


def _plain(value: Any) -> str:
    """Return text without the provider's highlighting."""
    text = value[:SEARCH_TEXT_CHARS] if isinstance(value, str) else ""
    return " ".join(html.unescape(_TAG.sub("", text)).split())


def _entries(answer: Any, *steps: str) -> list[JSON]:
    for step in steps:
        if not is_object(answer):
            raise CallError("protocol_error", "The search provider answered in an unknown format.")
        answer = answer.get(step, {} if step != steps[-1] else [])
    if not is_list(answer):
        raise CallError("protocol_error", "The search provider answered in an unknown format.")
    return [entry for entry in answer[:SEARCH_PAGE_HITS] if is_object(entry)]


# ---------------------------------------------------------------- Tavily


def _ask_tavily(search: Search) -> Request:
    body: JSON = {"query": search.query, "max_results": search.max_results, "search_depth": "basic"}
    if search.recency:
        body["time_range"] = search.recency
    if search.site:
        body["include_domains"] = [search.site]
    return Request(method="POST", path="/search", headers={"content-type": "application/json"}, body=orjson.dumps(body))


async def _read_tavily(response: Response) -> list[dict[str, str]]:
    entries = _entries(json_of(response, "Tavily"), "results")
    return [
        _hit(each.get("title"), each.get("url"), each.get("content"), each.get("published_date")) for each in entries
    ]


# ---------------------------------------------------------------- Brave

_BRAVE_FRESHNESS = {"day": "pd", "week": "pw", "month": "pm", "year": "py"}


def _ask_brave(search: Search) -> Request:
    freshness = _BRAVE_FRESHNESS.get(search.recency or "")
    query = _query(q=search.words, count=search.max_results, freshness=freshness)
    return Request(method="GET", path=f"/res/v1/web/search?{query}", headers={"accept": "application/json"})


async def _read_brave(response: Response) -> list[dict[str, str]]:
    entries = _entries(json_of(response, "Brave"), "web", "results")
    return [
        _hit(each.get("title"), each.get("url"), each.get("description"), each.get("page_age") or each.get("age"))
        for each in entries
    ]


# ---------------------------------------------------------------- SearXNG


def _ask_searxng(search: Search) -> Request:
    query = _query(q=search.words, format="json", time_range=search.recency)
    return Request(method="GET", path=f"/search?{query}", headers={"accept": "application/json"})


async def _read_searxng(response: Response) -> list[dict[str, str]]:
    entries = _entries(json_of(response, "SearXNG"), "results")
    return [
        _hit(each.get("title"), each.get("url"), each.get("content"), each.get("publishedDate")) for each in entries
    ]


# ---------------------------------------------------------------- DuckDuckGo

_DUCK_RECENCY = {"day": "d", "week": "w", "month": "m", "year": "y"}


def _ask_duckduckgo(search: Search) -> Request:
    query = _query(q=search.words, df=_DUCK_RECENCY.get(search.recency or ""))
    # It answers declared programs with a puzzle; browsers identify as Mozilla.
    headers = {"user-agent": "Mozilla/5.0 (compatible; pegboard)", "accept": "text/html"}
    return Request(method="GET", path=f"/html/?{query}", headers=headers)


async def _read_duckduckgo(response: Response) -> list[dict[str, str]]:
    # In a child: the page is foreign, and the parser needs hours for some malicious ones.
    text = text_of(response)
    payload = text.encode("utf-8", "replace")
    try:
        hits_on_page: Any = await run_sandboxed(_PAGE, {"max_hits": SEARCH_PAGE_HITS}, payload, timeout_s=SEARCH_PAGE_S)
    except CallError:
        raise CallError("protocol_error", "The page of DuckDuckGo cannot be read. Try again later.") from None
    if not hits_on_page and (response.status_code == 202 or "anomaly" in text):
        raise CallError("rate_limited", "DuckDuckGo takes us for a robot. Wait, or ask the operator for a provider.")
    hits = [_hit(hit["title"], hit["url"], hit["snippet"]) for hit in hits_on_page]
    return [hit for hit in hits if not re.match(_OWN_PAGE, hit["url"])]


PROVIDERS: Mapping[str, Provider] = {
    "tavily": Provider(
        base_url="https://api.tavily.com",
        headers=lambda key: {"authorization": f"Bearer {key}"},
        request=_ask_tavily,
        read=_read_tavily,
    ),
    "brave": Provider(
        base_url="https://api.search.brave.com",
        headers=lambda key: {"x-subscription-token": key},
        request=_ask_brave,
        read=_read_brave,
    ),
    "searxng": Provider(
        base_url="",
        headers=lambda key: {"authorization": f"Bearer {key}"} if key else {},
        request=_ask_searxng,
        read=_read_searxng,
    ),
    "duckduckgo": Provider(
        base_url="https://html.duckduckgo.com",
        headers=lambda key: {},
        request=_ask_duckduckgo,
        read=_read_duckduckgo,
    ),
}
