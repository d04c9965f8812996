"""Slides: parses PowerPoint presentations."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, cast
from zipfile import BadZipFile  # noqa: TID251 - an error

import pptx
from pptx.exc import PackageNotFoundError

from pegboard.workspace.parsing.archives import check_archive
from pegboard.workspace.parsing.office import tell_properties
from pegboard.workspace.parsing.parsed import Parsed, ParsedTable, UnreadableError, cleaned, headings_of, one_line
from pegboard.workspace.parsing.tabular import column_names, typed_table

SLIDES = 10_000  # slides of one presentation
SLIDE_LEVELS = 50  # nesting levels of groups of shapes


def parse_pptx(_: object, payload: bytes) -> Parsed:
    """Parse a presentation: a heading for each slide, its texts, tables and notes."""
    check_archive(payload)
    untyped: Any = pptx
    try:
        presentation = untyped.Presentation(io.BytesIO(payload))
    except (KeyError, ValueError, BadZipFile, PackageNotFoundError) as error:
        raise UnreadableError(f"it is not a PowerPoint presentation: {str(error)[:200]}") from None
    parts: list[str] = []
    titles: list[str] = []
    tables: list[ParsedTable] = []
    for number, slide in enumerate(presentation.slides, start=1):
        if number > SLIDES:
            raise UnreadableError(f"it has more than {SLIDES:,} slides. Split it")
        shown = slide.shapes.title
        title = one_line(shown.text_frame.text) if shown is not None else ""
        titles += [title] if title else []
        parts.append(f"# {title or f'Slide {number}'}")
        for shape in _shapes(slide.shapes):
            if shown is not None and shape.shape_id == shown.shape_id:
                continue
            if getattr(shape, "has_table", False):
                rows = [[cleaned(cell.text).strip() for cell in row.cells] for row in shape.table.rows]
                parts.append("\n".join(" | ".join(row) for row in rows))
                if len(rows) > 1:
                    tables.append(typed_table(f"table_{len(tables) + 1}", column_names(rows[0]), rows[1:]))
            elif shape.has_text_frame:
                parts.append(shape.text_frame.text)
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            parts.append(slide.notes_slide.notes_text_frame.text)
    text = cleaned("\n\n".join(part.strip() for part in parts if part.strip()))
    parsed = Parsed(text=text, headings=headings_of(titles), tables=tables, pages=len(presentation.slides))
    if titles:
        parsed["title"] = titles[0]
    tell_properties(parsed, presentation.core_properties)
    return parsed


def _shapes(shapes: Iterable[Any], level: int = 0) -> Iterator[Any]:
    """Yield the shapes of a slide, including those in groups."""
    for shape in shapes:
        inner = cast("Iterable[Any] | None", getattr(shape, "shapes", None))
        if inner is None:
            yield shape
        elif level < SLIDE_LEVELS:
            yield from _shapes(inner, level + 1)
