"""Listings: parses lists of files that servers send as XML: pages of a bucket, and site maps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict
from urllib.parse import unquote

from docx.oxml import parse_xml

from pegboard.workspace.parsing.archives import defines_entities
from pegboard.workspace.parsing.detected import unpacked
from pegboard.workspace.parsing.parsed import UnreadableError

SITEMAP_URLS = 50_000  # addresses in one site map, as the protocol allows

_GZIP = b"\x1f\x8b"


class BucketListing(TypedDict):
    """One page: the objects as (key, size in bytes, etag, time of change), and the token of the next page."""

    objects: list[tuple[str, int, str, str]]
    next: str


class SiteMap(TypedDict):
    """The pages as (address, time of change), and further site maps."""

    pages: list[tuple[str, str]]
    maps: list[str]


def parse_bucket(_: object, payload: bytes) -> BucketListing:
    """Parse a page of ListObjectsV2 whose keys are encoded as URLs."""
    root = _root(payload, "ListBucketResult")
    objects = [
        (
            unquote(_text(each, "Key")),
            int(_text(each, "Size") or 0),
            _text(each, "ETag"),
            _text(each, "LastModified"),
        )
        for each in _children(root, "Contents")
    ]
    is_more = _text(root, "IsTruncated") == "true"
    return {"objects": objects, "next": _text(root, "NextContinuationToken") if is_more else ""}


def parse_sitemap(_: object, payload: bytes) -> SiteMap:
    """Parse a site map or a list of site maps, perhaps compressed with gzip."""
    root = _root(unpacked(payload) if payload.startswith(_GZIP) else payload, "urlset", "sitemapindex")
    pages = [(_text(each, "loc"), _text(each, "lastmod")) for each in _children(root, "url")]
    return {
        "pages": [each for each in pages if each[0]][:SITEMAP_URLS],
        "maps": [place for each in _children(root, "sitemap") if (place := _text(each, "loc"))],
    }


def _root(payload: bytes, *names: str) -> Any:
    if defines_entities(payload):
        raise UnreadableError("it is XML that defines entities")
    try:
        root: Any = parse_xml(payload)
    except SyntaxError as error:
        raise UnreadableError(f"it is not valid XML: {str(error)[:200]}") from None
    if _name(root) not in names:
        raise UnreadableError(f"its root element is {_name(root)[:40]!r}; expected {names[0]!r}")
    return root


def _children(element: Any, name: str) -> Iterator[Any]:
    return (each for each in element if _name(each) == name)


def _text(element: Any, name: str) -> str:
    return next(((each.text or "").strip() for each in _children(element, name)), "")


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]
