"""Page text: extracts the main text of a page; runs only in the sandbox."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any, Final, cast

import trafilatura

_UNSEEN: Final = frozenset({"script", "style", "noscript", "template", "title"})
_LINES: Final = frozenset({"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "table", "section"})


def extract(request: dict[str, Any], payload: bytes) -> dict[str, str]:
    """Return title and content of the page in `payload` (UTF-8), in the form `request["format"]`."""
    text = payload.decode("utf-8", "replace")
    page = _Page()
    page.feed(text)
    page.close()
    is_markdown = request["format"] == "markdown"
    content = cast("Any", trafilatura).extract(
        text,
        url=request["url"],
        output_format="markdown" if is_markdown else "txt",
        include_comments=False,
        include_tables=True,
        include_links=is_markdown,
        include_formatting=is_markdown,
        favor_recall=True,
    )
    # Without a recognised main part, return all of the text.
    text = content or re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", "".join(page.text))).strip()
    return {"title": " ".join("".join(page.title).split()), "content": text[: request["max_chars"]]}


class _Page(HTMLParser):
    """Collects the title and all visible text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.text: list[str] = []
        self._unseen = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN and not self._unseen:
            self._unseen = tag
        if tag in _LINES:
            self.text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._unseen:
            self._unseen = ""

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.text.append(data)
        elif self._unseen == "title" and len(self.title) < 10:  # a shorter title may be a heading
            self.title.append(data)
