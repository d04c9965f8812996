"""Table file: the rows of a page as JSON or CSV, for the people who may see the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import orjson
from starlette.responses import Response

from pegboard.server.console.page_error import PageError
from pegboard.server.console.pages import SECURITY_HEADERS
from pegboard.server.console.visit import Visit

FORMATS = ("json", "csv")
Cell: TypeAlias = str | float | None
# A spreadsheet would run a cell that begins with one of these as a formula; some also read the wide forms.
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def links_of(visit: Visit, path: str) -> list[tuple[str, str]]:
    """Return the name and the address of each format, with the filters of the page."""
    kept = {name: value for name, value in visit.query.items() if name != "format"}
    return [(name.upper(), visit.address(path, {**kept, "format": name})) for name in FORMATS]


def table_file(
    visit: Visit, name: str, columns: Sequence[str], rows: Callable[[], Sequence[Sequence[Cell]]]
) -> Response | None:
    """Return the file that the address asks for with `format`; `None` if it asks for the page.

    Raises:
        PageError: there is no such format.
    """
    wanted = visit.query.get("format", "")
    if not wanted:
        return None
    if wanted not in FORMATS:
        raise PageError(404, "Not found", f"There is no format {wanted[:20]!r}. Formats: {', '.join(FORMATS)}.")
    headers = {**SECURITY_HEADERS, "content-disposition": f'attachment; filename="{name}.{wanted}"'}
    if wanted == "json":
        body = orjson.dumps([dict(zip(columns, row, strict=True)) for row in rows()], option=orjson.OPT_INDENT_2)
        return Response(body, media_type="application/json", headers=headers)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_plain(name) for name in columns])
    writer.writerows([_plain(cell) for cell in row] for row in rows())
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def iso_time(seconds: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="seconds")


def _plain(cell: Cell) -> Cell:
    """Return a cell that no spreadsheet runs: a text that could be a formula gets an apostrophe in front."""
    if isinstance(cell, str) and (cell[:1] in ("\t", "\r", "\n") or cell.lstrip().startswith(_FORMULA)):
        return f"'{cell}"
    return cell
