"""Office: read Word documents and Excel workbooks, once their archive is seen to be no bomb."""

from __future__ import annotations

import io
import zipfile  # noqa: TID251 - of bytes that were read already, in a child that writes no files
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, cast

import docx
import python_calamine
from docx.text.paragraph import Paragraph

from pegboard.model.bounds import ARCHIVE_BYTES, ARCHIVE_ENTRIES, ARCHIVE_RATIO, ARCHIVE_RATIO_BYTES, MIB
from pegboard.model.json_types import JSONValue
from pegboard.workspace.parsing.parsed import Parsed, ParsedTable, UnreadableError, cleaned, headings_of, one_line
from pegboard.workspace.parsing.tabular import cell, column_names, typed_table

# `<!DOCTYPE` as IBM wrote it, and as UTF-7 does.
_EBCDIC_DOCTYPE, _UTF_7_DOCTYPE = "<!DOCTYPE".encode("cp037"), b"+ADw-!DOCTYPE"
_LEVELS = frozenset("123456789")
_OVERLAP = 64  # not a limit: bytes, longer than any such mark
_PIECE_BYTES = 1 << 20  # not a limit: how much is read at once


def parse_docx(_: object, payload: bytes) -> Parsed:
    """Read a Word document: paragraphs and tables in their order, headings as Markdown writes them."""
    _check_archive(payload)
    try:
        document = docx.Document(io.BytesIO(payload))
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UnreadableError(f"it is no Word document: {str(error)[:200]}") from None
    parts: list[str] = []
    headings: list[str] = []
    tables: list[ParsedTable] = []
    for item in document.iter_inner_content():
        if isinstance(item, Paragraph):
            level = _level(item)
            if level and item.text.strip():
                headings.append(item.text)
                parts.append(f"{'#' * level} {one_line(item.text)}")
            else:
                parts.append(item.text)
        else:
            rows = [[cleaned(each.text).strip() for each in row.cells] for row in item.rows]
            parts.append("\n".join(" | ".join(row) for row in rows))
            if len(rows) > 1 and len({len(row) for row in rows}) == 1:
                tables.append(typed_table(f"table_{len(tables) + 1}", column_names(rows[0]), rows[1:]))
    told = document.core_properties
    text = cleaned("\n\n".join(part for part in parts if part.strip()))
    parsed = Parsed(text=text, headings=headings_of(headings), tables=tables)
    title = one_line(told.title) or (one_line(headings[0]) if headings else "")
    if title:
        parsed["title"] = title
    if told.author:
        parsed["author"] = one_line(told.author)
    if told.created is not None:
        parsed["created"] = told.created.isoformat()
    if told.language:
        parsed["language"] = one_line(told.language)
    return parsed


def _level(paragraph: Paragraph) -> int:
    """Return the level of a heading; 0 for what is none."""
    name = (paragraph.style.name if paragraph.style is not None else None) or ""
    if name == "Title":
        return 1
    number = name.removeprefix("Heading ")
    return min(int(number), 6) if name.startswith("Heading ") and number in _LEVELS else 0


def parse_xlsx(_: object, payload: bytes) -> Parsed:
    """Read a workbook: each sheet is a table, whose first row names the columns."""
    _check_archive(payload)
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(payload))
        sheets = [(name, workbook.get_sheet_by_name(name).to_python()) for name in workbook.sheet_names]
    except python_calamine.CalamineError as error:
        raise UnreadableError(f"it is no Excel workbook: {str(error)[:200]}") from None
    parts: list[str] = []
    tables: list[ParsedTable] = []
    for name, rows in sheets:
        filled = [
            [_plain(value) for value in row] for row in cast("Sequence[Sequence[Any]]", rows) if any(_is_filled(row))
        ]
        parts.append(f"# {one_line(name)}\n\n" + "\n".join(" | ".join(map(_shown, row)) for row in filled))
        if len(filled) > 1:
            columns = column_names(filled[0])
            tables.append(ParsedTable(name=one_line(name) if len(sheets) > 1 else "", columns=columns, rows=filled[1:]))
    return Parsed(text=cleaned("\n\n".join(parts)), headings=headings_of([name for name, _ in sheets]), tables=tables)


def _is_filled(row: Sequence[Any]) -> Iterator[bool]:
    return (value not in ("", None) for value in row)


def _plain(value: Any) -> JSONValue:
    if value == "":
        return None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        # A workbook has but one kind of number.
        return int(value)
    return cell(value)


def _shown(value: JSONValue) -> str:
    return "" if value is None else str(value)


def _defines_entities(markup: bytes) -> bool:
    """Tell whether XML has a document type, in whatever encoding a parser would read it."""
    # Without the zeros that wide encodings put between the letters.
    letters = markup.replace(b"\0", b"")
    return any(mark in letters for mark in (b"<!DOCTYPE", b"<!ENTITY", _EBCDIC_DOCTYPE, _UTF_7_DOCTYPE))


def _check_archive(payload: bytes) -> None:
    """See that an Office file unpacks to what such a file may, and that nothing in it defines entities.

    Raises:
        UnreadableError: it does not.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            entries = archive.infolist()
            if len(entries) > ARCHIVE_ENTRIES:
                raise UnreadableError(f"it has {len(entries):,} parts; at most {ARCHIVE_ENTRIES:,} are taken")
            allowed = min(ARCHIVE_BYTES, max(ARCHIVE_RATIO_BYTES, ARCHIVE_RATIO * len(payload)))
            unpacked = 0
            for entry in entries:
                # Counted as it is unpacked: what an entry says of its own size may be wrong.
                with archive.open(entry) as part:
                    before = b""
                    while piece := part.read(_PIECE_BYTES):
                        unpacked += len(piece)
                        if unpacked > allowed:
                            raise UnreadableError(f"it unpacks to more than {allowed / MIB:,.0f} MiB")
                        # Whatever the part is called, and also where it begins in one piece and ends in the next.
                        if _defines_entities(before + piece):
                            raise UnreadableError(
                                f"its part {entry.filename[:100]!r} defines entities, as no Office file does"
                            )
                        before = piece[-_OVERLAP:]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UnreadableError(f"it is no Office file: {str(error)[:200]}") from None
