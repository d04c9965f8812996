"""Office: parses Word documents and spreadsheets, after checking the archive for decompression bombs."""

from __future__ import annotations

import io
import zipfile  # noqa: TID251 - of bytes that were read already, in a child that writes no files
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, cast

import docx
import python_calamine
from docx.opc.coreprops import CoreProperties
from docx.oxml.ns import qn
from docx.table import Table
from docx.text.paragraph import Paragraph

from pegboard.model.json_types import JSONValue
from pegboard.workspace.parsing.archives import check_archive, open_document_parts, safe_xml
from pegboard.workspace.parsing.parsed import Parsed, ParsedTable, UnreadableError, cleaned, headings_of, one_line
from pegboard.workspace.parsing.tabular import cell, column_names, titles_above, typed_table

_LEVELS = frozenset("123456789")
_PARAGRAPH, _TABLE, _TEXT, _BOX = qn("w:p"), qn("w:tbl"), qn("w:t"), qn("w:txbxContent")
_SECTION, _MARGINS, _RELATED = qn("w:sectPr"), (qn("w:headerReference"), qn("w:footerReference")), qn("r:id")
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_AS_TEXT = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
# Elements around paragraphs and tables: content controls, marked ranges, and tracked insertions and moves.
_AROUND_BLOCKS = frozenset(map(qn, ("w:sdt", "w:sdtContent", "w:customXml", "w:smartTag", "w:ins", "w:moveTo")))
# Elements in paragraphs without visible text: deletions, formatting, and text boxes.
_UNSEEN = frozenset({
    *map(qn, ("w:del", "w:moveFrom", "w:pPr", "w:rPr", "w:sdtPr", "w:instrText", "w:delText", "w:txbxContent")),
    _FALLBACK,
})  # fmt: skip
_PROPERTIES = "docProps/core.xml"


def parse_docx(_: object, payload: bytes) -> Parsed:
    """Parse a Word document: paragraphs and tables in order, headings in Markdown."""
    check_archive(payload)
    try:
        document = docx.Document(io.BytesIO(payload))
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UnreadableError(f"it is not a valid Word document: {str(error)[:200]}") from None
    parts: list[str] = []
    headings: list[str] = []
    tables: list[ParsedTable] = []
    for item in _blocks(cast("Any", document).element.body):
        if item.tag == _PARAGRAPH:
            text = _text_of(item)
            level = _level(Paragraph(item, document))
            if level and text.strip():
                headings.append(text)
                parts.append(f"{'#' * level} {one_line(text)}")
            else:
                parts.append(text)
            parts += (_text_of(each) for each in _boxed(item))
        else:
            rows = [[_cell_text(each) for each in row] for row in _cells(Table(item, document))]
            parts.append("\n".join(" | ".join(row) for row in rows))
            if len(rows) > 1 and len({len(row) for row in rows}) == 1:
                tables.append(typed_table(f"table_{len(tables) + 1}", column_names(rows[0]), rows[1:]))
    parts += _notes(document)
    parts += _margins(document)
    text = cleaned("\n\n".join(part for part in parts if part.strip()))
    parsed = Parsed(text=text, headings=headings_of(headings), tables=tables)
    if headings:
        parsed["title"] = one_line(headings[0])
    tell_properties(parsed, document.core_properties)
    return parsed


def _blocks(within: Any) -> Iterator[Any]:
    """Yield the paragraphs and tables of a part, including those in content controls and similar elements."""
    for each in within:
        if each.tag in (_PARAGRAPH, _TABLE):
            yield each
        elif each.tag in _AROUND_BLOCKS:
            yield from _blocks(each)


def _text_of(paragraph: Any) -> str:
    """Return the visible text of a paragraph: with tracked insertions, without deletions.

    Its text boxes are not included.
    """
    pieces: list[str] = []
    waiting = [iter(paragraph)]
    while waiting:
        each = next(waiting[-1], None)
        if each is None:
            waiting.pop()
        elif each.tag == _TEXT:
            pieces.append(each.text or "")
        elif each.tag in _AS_TEXT:
            pieces.append(_AS_TEXT[each.tag])
        elif each.tag not in _UNSEEN:
            waiting.append(iter(each))
    return "".join(pieces)


def _boxed(paragraph: Any) -> Iterator[Any]:
    """Yield the paragraphs in a paragraph's text boxes, without the copies that Word adds for older readers."""
    for box in paragraph.iter(_BOX):
        if not any(above.tag == _FALLBACK for above in box.iterancestors()):
            yield from box.iter(_PARAGRAPH)


def _cell_text(element: Any) -> str:
    lines = (
        _text_of(each) if each.tag == _PARAGRAPH else " ".join(map(_text_of, each.iter(_PARAGRAPH)))
        for each in _blocks(element)
    )
    return cleaned("\n".join(lines)).strip()


def _cells(table: Any) -> Iterator[Iterator[Any]]:
    """Yield the cells of each row; a cell that spans columns appears in each of them."""
    return ((cell._tc for cell in row.cells) for row in table.rows)


def _notes(document: Any) -> Iterator[str]:
    """Yield the footnotes and endnotes of a document."""
    for related in document.part.rels.values():
        if not related.is_external and related.reltype.rpartition("/")[2] in ("footnotes", "endnotes"):
            notes = safe_xml(related.target_part.blob)
            yield from (_text_of(each) for each in notes.iter(_PARAGRAPH))


def _margins(document: Any) -> Iterator[str]:
    """Yield headers and footers, once each, since most sections repeat them."""
    texts: dict[str, None] = {}
    for section in document.element.body.iter(_SECTION):
        for each in section.iter(*_MARGINS):
            related = document.part.rels.get(each.get(_RELATED))
            if related is not None and not related.is_external:
                margin = safe_xml(related.target_part.blob)
                lines = (_text_of(paragraph).strip() for paragraph in margin.iter(_PARAGRAPH))
                texts["\n".join(line for line in lines if line)] = None
    yield from texts


def _level(paragraph: Paragraph) -> int:
    """Return the level of a heading; 0 if the paragraph is not one."""
    name = (paragraph.style.name if paragraph.style is not None else None) or ""
    if name == "Title":
        return 1
    number = name.removeprefix("Heading ")
    return min(int(number), 6) if name.startswith("Heading ") and number in _LEVELS else 0


def parse_xlsx(_: object, payload: bytes) -> Parsed:
    """Parse a workbook: each sheet is a table, with column names in its first row."""
    check_archive(payload)
    parsed = _workbook(payload, "Excel workbook")
    properties = _properties(payload)
    if properties is not None:
        tell_properties(parsed, properties)
    return parsed


def parse_xls(options: object, payload: bytes) -> Parsed:
    """Parse a workbook of an Excel before 2007, or a newer one with the old extension."""
    return parse_xlsx(options, payload) if payload.startswith(b"PK") else _workbook(payload, "Excel workbook")


def parse_ods(_: object, payload: bytes) -> Parsed:
    """Parse an OpenDocument spreadsheet."""
    check_archive(payload, kind="OpenDocument", parts=open_document_parts)
    return _workbook(payload, "OpenDocument spreadsheet")


def _workbook(payload: bytes, kind: str) -> Parsed:
    try:
        workbook = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(payload))
        # Chart sheets have no cells.
        names = [each.name for each in workbook.sheets_metadata if each.typ == python_calamine.SheetTypeEnum.WorkSheet]
        sheets = [(name, _rows(workbook.get_sheet_by_name(name))) for name in names]
    except python_calamine.CalamineError as error:
        raise UnreadableError(f"it is not a valid {kind}: {str(error)[:200]}") from None
    parts: list[str] = []
    tables: list[ParsedTable] = []
    for name, (rows, shared) in sheets:
        places = [place for place, row in enumerate(rows) if any(_is_filled(row))]
        filled = [[_plain(value) for value in rows[place]] for place in places]
        parts.append(f"# {one_line(name)}\n\n" + "\n".join(" | ".join(map(_shown, row)) for row in filled))
        above = titles_above(filled)
        filled = filled[above:]
        if len(filled) > 1 and places[above] in shared:
            filled = _one_head(filled)
        if len(filled) > 1:
            columns = column_names(filled[0])
            table = one_line(name) if len(sheets) > 1 else ""
            tables.append(ParsedTable(name=table, columns=columns, rows=[*filled[1:]]))
    text = cleaned("\n\n".join(parts))
    return Parsed(text=text, headings=headings_of([name for name, _ in sheets]), tables=tables)


def _rows(sheet: Any) -> tuple[Sequence[list[Any]], set[int]]:
    """Return the rows of a sheet, and the indexes of those with horizontally merged cells.

    A merged cell's value appears in each of its places; if it is alone in its row, like a title, only once.
    """
    rows: list[list[Any]] = sheet.to_python()
    shared: set[int] = set()
    top, left = sheet.start or (0, 0)
    for (first_row, first), (last_row, last) in sheet.merged_cell_ranges or ():
        covered = rows[max(0, first_row - top) : last_row - top + 1]
        if not covered or not left <= first < left + len(covered[0]) or first_row < top:
            # Merged cells without a value.
            continue
        if sum(_is_filled(covered[0])) <= 1:
            continue
        value, end = covered[0][first - left], min(last + 1, left + len(covered[0]))
        for row in covered:
            row[first - left : end - left] = [value] * (end - first)
        if end > first + 1:
            shared.add(first_row - top)
    return rows, shared


def _one_head(rows: Sequence[list[JSONValue]]) -> Sequence[list[JSONValue]]:
    """Return the rows of a table with a two-row header combined into one."""
    if not all(isinstance(value, str) for value in rows[1]):
        return rows
    head: list[JSONValue] = [
        f"{above} {value}" if above not in (None, value) else value for above, value in zip(*rows[:2], strict=True)
    ]
    return [head, *rows[2:]]


def _properties(payload: bytes) -> CoreProperties | None:
    """Return the metadata of an Office file; `None` without any."""
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        if _PROPERTIES not in archive.namelist():
            return None
        try:
            root = safe_xml(archive.read(_PROPERTIES))
        except SyntaxError:
            # lxml's error for invalid XML. The rows can be read anyway.
            return None
    return CoreProperties(root) if root.tag == qn("cp:coreProperties") else None


def tell_properties(parsed: Parsed, properties: CoreProperties) -> None:
    """Add an Office file's metadata to its parsed contents."""
    if one_line(properties.title):
        parsed["title"] = one_line(properties.title)
    if one_line(properties.author):
        parsed["author"] = one_line(properties.author)
    if properties.created is not None:
        parsed["created"] = properties.created.isoformat()
    if one_line(properties.language):
        parsed["language"] = one_line(properties.language)


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
        # A workbook has only floats.
        return int(value)
    return cell(value)


def _shown(value: JSONValue) -> str:
    return "" if value is None else str(value)
