"""Feed: parses RSS and Atom feeds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import product
from typing import Final, NoReturn, TypedDict
from urllib.parse import urljoin
from xml.parsers import expat

from pegboard.workspace.parsing.parsed import UnreadableError, check_chars, one_line

FEED_ENTRIES = 2_000  # entries of one feed
FEED_LEVELS = 100  # nesting levels of its elements

_ENTRIES: Final = frozenset({"item", "entry"})
# The fields of an entry, by their names in RSS, Atom and Dublin Core; the first that is not empty counts.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "title": ("title",),
    "link": ("link", "permalink"),
    "id": ("guid", "id"),
    "author": ("creator", "author"),
    "created": ("pubDate", "published", "date", "updated"),
    "html": ("encoded", "content", "description", "summary"),
}
_WANTED: Final = frozenset(name for names in _FIELDS.values() for name in names)
_QUOTED: Final = "source"
_BASE: Final = "http://www.w3.org/XML/1998/namespace base"
# Common date formats of programs that ignore the standards.
_DAY: Final = re.compile(r"[A-Za-z]{3,9}, ")
_LOOSE: Final = ("%d %b %Y", "%d %B %Y", "%B %d, %Y", "%Y/%m/%d", "%Y-%m-%d %H:%M:%S %z")


class FeedEntry(TypedDict):
    """One entry; missing fields are empty."""

    title: str
    link: str
    id: str
    author: str
    created: str
    html: str


class Feed(TypedDict):
    """A feed with its entries."""

    title: str
    entries: list[FeedEntry]


def parse_feed(_: object, payload: bytes) -> Feed:
    """Parse a feed. Feeds that define entities are refused."""
    reader = _Reader()
    try:
        reader.parser.Parse(payload, True)
    except expat.ExpatError as error:
        raise UnreadableError(f"it is not a readable feed: {error}"[:300]) from None
    if reader.root not in ("rss", "feed", "RDF"):
        raise UnreadableError("it is neither RSS nor Atom")
    return Feed(title=one_line(reader.title), entries=reader.entries)


class _Reader:
    """Builds entries from the events of an XML parser."""

    def __init__(self) -> None:
        self.root, self.title, self.entries = "", "", list[FeedEntry]()
        self._open: list[str] = []
        self._entry_fields: dict[str, str] | None = None
        self._field, self._field_level, self._text = "", 0, list[str]()
        self._chars = 0
        self._bases: list[str] = []
        self._is_link = False
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._read
        self.parser.EntityDeclHandler = self._refuse

    def _refuse(self, *_: object) -> NoReturn:
        raise UnreadableError("it defines entities, which a feed needs not")

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        self.root = self.root or name
        self._open.append(name)
        # A relative address is resolved with `xml:base`, which any element may set for its content.
        base = self._bases[-1] if self._bases else ""
        self._bases.append(_joined(base, attributes.get(_BASE, "")))
        if len(self._open) > FEED_LEVELS:
            raise UnreadableError(f"its elements are nested more than {FEED_LEVELS} deep")
        if self._field:
            # Markup inside a field, as in Atom's XHTML: its text, block by block.
            self._text.append("\n")
        elif name in _ENTRIES:
            self._entry_fields = {}
        elif _QUOTED in self._open:
            # The original source of an entry has its own title and addresses, which are skipped.
            return
        elif name in _WANTED and (self._entry_fields is not None or (name == "title" and not self.title)):
            self._field, self._field_level = name, len(self._open)
            # An id is an address too, unless it declares otherwise.
            self._is_link = name == "guid" and attributes.get("isPermaLink", "true") != "false"
            href = attributes.get("href")
            if href and attributes.get("rel", "alternate") == "alternate":
                self._text.append(href)

    def _end(self, tag: str) -> None:
        name = tag.rpartition(" ")[2]
        if self._field and len(self._open) == self._field_level:
            text = "".join(self._text).strip()
            if self._entry_fields is None:
                self.title = self.title or text
            elif text:
                self._tell(self._entry_fields, text)
            self._field, self._text = "", []
        elif name in _ENTRIES and self._entry_fields is not None and not self._field:
            if len(self.entries) < FEED_ENTRIES:
                self.entries.append(_entry(self._entry_fields))
            self._entry_fields = None
        self._open.pop()
        self._bases.pop()

    def _tell(self, entry: dict[str, str], text: str) -> None:
        if self._field == "author":
            # The name comes first; addresses may follow.
            text = text.partition("\n")[0]
        elif self._field == "link":
            text = _joined(self._bases[-1], text)
        entry.setdefault(self._field, text)
        if self._is_link and text.startswith(("http://", "https://")):
            entry.setdefault("permalink", text)

    def _read(self, text: str) -> None:
        if self._field:
            self._chars += len(text)
            check_chars(self._chars)
            self._text.append(text)


def _entry(declared: Mapping[str, str]) -> FeedEntry:
    fields = {
        field: next((declared[name] for name in names if name in declared), "") for field, names in _FIELDS.items()
    }
    return FeedEntry(
        title=one_line(fields["title"]),
        link=fields["link"],
        id=fields["id"],
        author=one_line(fields["author"]),
        created=_iso(fields["created"]),
        html=fields["html"],
    )


def _iso(date: str) -> str:
    """Return a date in ISO 8601; unchanged if its format is unknown."""
    date = one_line(date)
    plain = _DAY.sub("", date, count=1)
    readers = (datetime.fromisoformat, parsedate_to_datetime, *(partial(_as, form) for form in _LOOSE))
    for text, read in product((date, plain), readers):
        try:
            return read(text).isoformat()
        except ValueError:
            continue
    return date


def _as(form: str, text: str) -> datetime:
    return datetime.strptime(text, form)  # noqa: DTZ007 - a day has no zone


def _joined(base: str, address: str) -> str:
    """Return a relative address resolved with its base; unchanged if it is invalid."""
    try:
        return urljoin(base, address)
    except ValueError:
        return address
