"""OpenDocument: parses texts and presentations of LibreOffice and other programs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import odfdo

from pegboard.workspace.parsing.archives import check_archive, open_document_parts
from pegboard.workspace.parsing.parsed import Parsed, ParsedTable, UnreadableError, cleaned, headings_of, one_line
from pegboard.workspace.parsing.tabular import column_names, typed_table

_LEVEL = "text:outline-level"
_UNSEEN = frozenset({"text:tracked-changes", "office:forms", "text:sequence-decls", "office:annotation"})
_PARAGRAPHS = "descendant::text:p|descendant::text:h"


def parse_odt(_: object, payload: bytes) -> Parsed:
    """Parse a text: paragraphs, lists and tables in order, headings in Markdown."""
    document = _document(payload)
    parts: list[str] = []
    headings: list[str] = []
    tables: list[ParsedTable] = []
    for element in _blocks(document.body):
        if element.tag == "text:h":
            heading = one_line(str(element.inner_text))
            if heading:
                headings.append(heading)
                level = str(element.get_attribute(_LEVEL) or "1")
                parts.append(f"{'#' * min(int(level) if level.isdecimal() else 1, 6)} {heading}")
        elif element.tag == "table:table":
            rows = [["" if value is None else str(value) for value in row] for row in element.get_values()]
            parts.append("\n".join(" | ".join(row) for row in rows))
            if len(rows) > 1:
                columns = column_names(rows[0])
                body = [[*row, *[""] * len(columns)][: len(columns)] for row in rows[1:]]
                tables.append(typed_table(one_line(element.name or "") or f"table_{len(tables) + 1}", columns, body))
        else:
            parts.append(str(element.inner_text))
    parsed = Parsed(text=_joined(parts), headings=headings_of(headings), tables=tables)
    if headings:
        parsed["title"] = headings[0]
    return _add_metadata(parsed, document)


def parse_odp(_: object, payload: bytes) -> Parsed:
    """Parse a presentation: a heading for each slide, its texts and notes."""
    document = _document(payload)
    parts: list[str] = []
    names: list[str] = []
    for number, page in enumerate(document.body.get_elements("descendant::draw:page"), start=1):
        names.append(one_line(str(page.get_attribute("draw:name") or "")) or f"Slide {number}")
        parts.append(f"# {names[-1]}")
        parts += (str(each.inner_text) for each in page.get_elements(_PARAGRAPHS))
    return _add_metadata(Parsed(text=_joined(parts), headings=headings_of(names), pages=len(names)), document)


def _document(payload: bytes) -> Any:
    check_archive(payload, kind="OpenDocument", parts=open_document_parts)
    try:
        document: Any = odfdo.Document(io.BytesIO(payload))
        assert document.body is not None
    except (AssertionError, AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise UnreadableError(f"it is not an OpenDocument file: {str(error)[:200]}") from None
    return document


def _blocks(within: Any) -> Iterator[Any]:
    """Yield headings, paragraphs, lists and tables in order, including those in sections."""
    waiting = [iter(within.children)]
    while waiting:
        element = next(waiting[-1], None)
        if element is None:
            waiting.pop()
        elif element.tag in ("text:section", "text:index-body", "text:table-of-content"):
            waiting.append(iter(element.children))
        elif element.tag not in _UNSEEN:
            yield element


def _joined(parts: list[str]) -> str:
    return cleaned("\n\n".join(part.strip() for part in parts if part.strip()))


def _add_metadata(parsed: Parsed, document: Any) -> Parsed:
    """Add a file's metadata to its parsed contents."""
    try:
        title, author = document.meta.title, document.meta.creator
        language, created = document.meta.language, document.meta.creation_date
    except (AttributeError, KeyError, SyntaxError, ValueError):
        # The text can be read anyway.
        return parsed
    if title and one_line(title):
        parsed["title"] = one_line(title)
    if author and one_line(author):
        parsed["author"] = one_line(author)
    if language and one_line(language):
        parsed["language"] = one_line(language)
    if created is not None:
        parsed["created"] = created.isoformat(timespec="seconds")
    return parsed
