"""DuckDuckGo: parses its result page for browsers without scripts; runs only in the sandbox."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

SEARCH_HIT_CHARS = 4_000  # characters of each text of a search hit
SEARCH_LINK_FIELDS = 20  # fields parsed from a redirect link of the search engine


def hits(request: dict[str, Any], payload: bytes) -> list[dict[str, str]]:
    """Return title, url and snippet of each result on the page in `payload` (UTF-8), at most `request["max_hits"]`."""
    page = _Page()
    page.feed(payload.decode("utf-8", "replace"))
    page.close()
    most: int = request["max_hits"]
    return [{name: text[:SEARCH_HIT_CHARS] for name, text in hit.items()} for hit in page.hits[:most]]


class _Page(HTMLParser):
    """Collects links of class result__a, and snippets of class result__snippet."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.hits: list[dict[str, str]] = []
        self._field = ""
        self._depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        if self._field:
            self._depth += tag == self._tag
        elif "result__a" in classes:
            self.hits.append({"title": "", "url": _target(attributes.get("href") or ""), "snippet": ""})
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
    """Return the target of a redirect link of the form `/l/?uddg=…`."""
    try:
        split = urlsplit(href)
        wrapped = parse_qs(split.query, max_num_fields=SEARCH_LINK_FIELDS).get("uddg") if split.path == "/l/" else None
    except ValueError:
        return ""
    return wrapped[0] if wrapped else href
