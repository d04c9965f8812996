"""Searching: the wire formats of four search providers."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import orjson

from pegboard.base.errors import CallError
from pegboard.base.model import JSON, is_list, is_object
from pegboard.egress.answers import json_of, text_of
from pegboard.egress.http import Response

_TAG = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """What is looked for."""

    query: str
    max_results: int
    recency: str | None
    site: str | None

    @property
    def words(self) -> str:
        """The query for providers that take the site among the words."""
        return f"{self.query} site:{self.site}" if self.site else self.query


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request to a provider, below its base URL."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """How one provider is asked and what it answers: results as `{title, url, snippet, published?}`."""

    base_url: str
    headers: Callable[[str], Mapping[str, str]]
    request: Callable[[Search], Request]
    read: Callable[[Response], list[dict[str, str]]]


def _query(**parts: object) -> str:
    return urlencode({name: value for name, value in parts.items() if value is not None})


def _hit(title: Any, url: Any, snippet: Any, published: Any = None) -> dict[str, str]:
    hit = {"title": _plain(title), "url": str(url or ""), "snippet": _plain(snippet)}
    return hit | {"published": str(published)} if published else hit


def _plain(value: Any) -> str:
    """Return text without the marks that providers put around matches."""
    return " ".join(html.unescape(_TAG.sub("", str(value or ""))).split())


def _entries(answer: Any, *steps: str) -> list[JSON]:
    for step in steps:
        if not is_object(answer):
            raise CallError("protocol_error", "The search provider answered in a form that is not known.")
        answer = answer.get(step, {} if step != steps[-1] else [])
    if not is_list(answer):
        raise CallError("protocol_error", "The search provider answered in a form that is not known.")
    return [entry for entry in answer if is_object(entry)]


# ---------------------------------------------------------------- Tavily


def _ask_tavily(search: Search) -> Request:
    order: JSON = {"query": search.query, "max_results": search.max_results, "search_depth": "basic"}
    if search.recency:
        order["time_range"] = search.recency
    if search.site:
        order["include_domains"] = [search.site]
    return Request(
        method="POST", path="/search", headers={"content-type": "application/json"}, body=orjson.dumps(order)
    )


def _read_tavily(response: Response) -> list[dict[str, str]]:
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


def _read_brave(response: Response) -> list[dict[str, str]]:
    entries = _entries(json_of(response, "Brave"), "web", "results")
    return [
        _hit(each.get("title"), each.get("url"), each.get("description"), each.get("page_age") or each.get("age"))
        for each in entries
    ]


# ---------------------------------------------------------------- SearXNG


def _ask_searxng(search: Search) -> Request:
    query = _query(q=search.words, format="json", time_range=search.recency)
    return Request(method="GET", path=f"/search?{query}", headers={"accept": "application/json"})


def _read_searxng(response: Response) -> list[dict[str, str]]:
    entries = _entries(json_of(response, "SearXNG"), "results")
    return [
        _hit(each.get("title"), each.get("url"), each.get("content"), each.get("publishedDate")) for each in entries
    ]


# ---------------------------------------------------------------- DuckDuckGo

_DUCK_RECENCY = {"day": "d", "week": "w", "month": "m", "year": "y"}


def _ask_duckduckgo(search: Search) -> Request:
    query = _query(q=search.words, df=_DUCK_RECENCY.get(search.recency or ""))
    # It answers programs that say so with a puzzle; browsers say Mozilla.
    headers = {"user-agent": "Mozilla/5.0 (compatible; pegboard)", "accept": "text/html"}
    return Request(method="GET", path=f"/html/?{query}", headers=headers)


class _DuckPage(HTMLParser):
    """Reads the page of results that needs no script: links of class result__a, snippets of class result__snippet."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[dict[str, str]] = []
        self._field = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        if self._field:
            self._depth += tag == self._tag
        elif "result__a" in classes:
            self.hits.append({"title": "", "url": _target(given.get("href") or ""), "snippet": ""})
            self._open("title", tag)
        elif "result__snippet" in classes and self.hits:
            self._open("snippet", tag)

    def handle_endtag(self, tag: str) -> None:
        if self._field and tag == self._tag:
            self._depth -= 1
            if self._depth == 0:
                self._field = ""

    def handle_data(self, data: str) -> None:
        if self._field:
            self.hits[-1][self._field] += data

    def _open(self, name: str, tag: str) -> None:
        self._field, self._tag, self._depth = name, tag, 1


def _target(href: str) -> str:
    """Return where a link of theirs leads; they go through `/l/?uddg=…`."""
    split = urlsplit(href)
    wrapped = parse_qs(split.query).get("uddg") if split.path == "/l/" else None
    return wrapped[0] if wrapped else href


def _read_duckduckgo(response: Response) -> list[dict[str, str]]:
    text = text_of(response)
    page = _DuckPage()
    page.feed(text)
    page.close()
    if not page.hits and (response.status_code == 202 or "anomaly" in text):
        raise CallError("rate_limited", "DuckDuckGo takes us for a robot. Wait, or ask the operator for a provider.")
    hits = [_hit(hit["title"], hit["url"], hit["snippet"]) for hit in page.hits]
    return [hit for hit in hits if not (urlsplit(hit["url"]).hostname or "").endswith("duckduckgo.com")]


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
