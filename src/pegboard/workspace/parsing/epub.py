"""EPUB: parses books: the chapters in reading order.

The libraries for this format have licences that do not fit (EbookLib: AGPL). An EPUB is an archive of web pages, for
which we have a parser, with two lists in XML.
"""

from __future__ import annotations

import io
import posixpath
import zipfile  # noqa: TID251 - of bytes that were read already, in a child that writes no files
from typing import Any
from urllib.parse import unquote

from pegboard.workspace.parsing.archives import check_archive, package_parts, safe_xml
from pegboard.workspace.parsing.markup import parse_html
from pegboard.workspace.parsing.parsed import Parsed, UnreadableError, check_chars, headings_of, one_line

EPUB_CHAPTERS = 5_000  # chapters of one book

_CONTAINER = "META-INF/container.xml"
_PAGES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})
_PACKAGE = "{http://www.idpf.org/2007/opf}"
_DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"


def parse_epub(_: object, payload: bytes) -> Parsed:
    """Parse a book."""
    check_archive(payload, kind="EPUB", parts=package_parts)
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        try:
            container = safe_xml(archive.read(_CONTAINER))
            place = next(each.get("full-path", "") for each in container.iter() if str(each.tag).endswith("rootfile"))
            package = safe_xml(archive.read(place))
        except (KeyError, StopIteration, SyntaxError) as error:
            raise UnreadableError(f"it is not an EPUB file: {str(error)[:200]}") from None
        chapters = _chapters(package, posixpath.dirname(place))
        if len(chapters) > EPUB_CHAPTERS:
            raise UnreadableError(f"it has {len(chapters):,} chapters; at most {EPUB_CHAPTERS:,} are taken")
        texts: list[str] = []
        headings: list[str] = []
        size = 0
        for chapter in chapters:
            try:
                content = archive.read(chapter)
            except KeyError:
                # A list may name a page that is missing; the others can be read.
                continue
            page = parse_html({}, content)
            size += len(page["text"])
            check_chars(size)
            texts.append(page["text"])
            headings += page.get("headings", [])
    parsed = Parsed(text="\n\n".join(text for text in texts if text), headings=headings_of(headings))
    title, author = _metadata(package, "title"), _metadata(package, "creator")
    language, created = _metadata(package, "language"), _metadata(package, "date")
    if title or headings:
        parsed["title"] = title or headings[0]
    if author:
        parsed["author"] = author
    if language:
        parsed["language"] = language
    if created:
        parsed["created"] = created
    return parsed


def _chapters(package: Any, folder: str) -> list[str]:
    """Return the names of the pages in reading order, each once."""
    pages = {
        each.get("id"): posixpath.normpath(posixpath.join(folder, unquote(each.get("href", "").partition("#")[0])))
        for each in package.iter(f"{_PACKAGE}item")
        if each.get("media-type") in _PAGES
    }
    order = [each.get("idref") for each in package.iter(f"{_PACKAGE}itemref")]
    return list(dict.fromkeys(pages[each] for each in order if each in pages))


def _metadata(package: Any, name: str) -> str:
    return next((one_line(each.text) for each in package.iter(f"{_DUBLIN_CORE}{name}") if each.text), "")
