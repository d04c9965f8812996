"""Tabular: parses CSV, TSV, JSON and JSON lines to text and queryable rows."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.workspace.dates import iso_dates
from pegboard.workspace.numbers import number_columns
from pegboard.workspace.parsing.encodings import decode
from pegboard.workspace.parsing.parsed import Parsed, ParsedTable, UnreadableError, cleaned, one_line

TABLE_CELL_CHARS = 1_000_000  # characters of one cell
TABLE_COLUMNS = 1_000  # columns of one table
TABLE_ROWS = 1_000_000  # rows of one table

_DELIMITERS = ",;\t|"
_NAMED_DELIMITER = re.compile(r"\"?sep=(.)\"?", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_LOOKED_AT_CHARS = 65_536  # characters of a file examined for its delimiter
_LINES_OF_OBJECTS = re.compile(r"\s*\{.*\}[ \t]*\n+[ \t]*\{")
_JSON_LEVELS = 4  # nesting levels of objects searched for tables
_TITLE_ROWS = 10  # rows above a table that may be titles


def parse_csv(options: object, payload: bytes) -> Parsed:
    """Parse CSV; the header line, the first one with delimiters, determines the delimiter."""
    source = decode(options, payload)
    text = cleaned(source.text)
    first, _, rest = text.lstrip("\n").partition("\n")
    named = _NAMED_DELIMITER.fullmatch(first)
    if named is not None:
        # Excel's `sep=` line, which is not a row.
        parsed = _separated(rest, named[1])
        parsed["text"] = text
        return source.mark(parsed)
    # A title above the table has no delimiters.
    lines = (_QUOTED.sub("", line) for line in text[:_LOOKED_AT_CHARS].split("\n"))
    telling = next((line for line in lines if set(line) & set(_DELIMITERS)), "")
    delimiter = max(_DELIMITERS, key=telling.count)
    # A quote after a space begins a value only if every delimiter is followed by a space.
    is_spaced = f'{delimiter} "' in text[:_LOOKED_AT_CHARS] and f"{delimiter} " in telling
    return source.mark(_separated(text, delimiter, is_spaced=is_spaced))


def parse_tsv(options: object, payload: bytes) -> Parsed:
    """Parse tab-separated values."""
    source = decode(options, payload)
    return source.mark(_separated(cleaned(source.text), "\t"))


def _separated(text: str, delimiter: str, *, is_spaced: bool = False) -> Parsed:
    csv.field_size_limit(TABLE_CELL_CHARS)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=is_spaced)
    try:
        rows = [row for row in lines if any(map(str.strip, row))]
    except csv.Error as error:
        raise UnreadableError(f"line {lines.line_num} is not CSV: {error}") from None
    rows = rows[titles_above(rows) :]
    if not rows:
        return Parsed(text=text)
    columns = column_names(rows[0])
    body = [_fitted(row, len(columns)) for row in rows[1:]]
    return Parsed(text=text, tables=[typed_table("", columns, body, delimiter=delimiter)])


def parse_json(options: object, payload: bytes) -> Parsed:
    """Parse JSON. A list of objects is a table, and so is each such list in a named property.

    Many programs use the extension for JSON lines, so a file that is not JSON may be that.
    """
    source = decode(options, payload)
    text = cleaned(source.text)
    try:
        value = _loaded(text, "it")
    except UnreadableError:
        if _LINES_OF_OBJECTS.match(text) is None:
            raise
        return parse_jsonl(options, payload)
    return source.mark(Parsed(text=text, tables=list(_tables_in(value, ()))))


def _tables_in(value: JSONValue, names: tuple[str, ...]) -> Iterator[ParsedTable]:
    """Yield the lists of objects in a value and its nested objects, each with its path of names."""
    if _is_rows(value):
        yield _table_of_objects("_".join(names), value)
    elif is_object(value) and len(names) < _JSON_LEVELS:
        for name, each in value.items():
            yield from _tables_in(each, (*names, name))


def parse_jsonl(options: object, payload: bytes) -> Parsed:
    """Parse JSON lines; the objects among them form a table."""
    source = decode(options, payload)
    text = cleaned(source.text)
    values = [_loaded(line, f"line {number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return source.mark(Parsed(text=text, tables=[_table_of_objects("", values)] if _is_rows(values) else []))


def _unique(pairs: list[tuple[str, JSONValue]]) -> JSON:
    """Return an object. Duplicate keys are refused: the text would have both values, the table only one."""
    found: JSON = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} occurs twice in one object")
        found[key] = value
    return found


def _loaded(text: str, what: str) -> JSONValue:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise UnreadableError(f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if what == "it" else f"column {error.colno}"
        raise UnreadableError(f"{what} is not JSON at {place}: {error.msg}") from None
    except ValueError as error:
        raise UnreadableError(f"{what} is not JSON: {error}") from None


def _is_rows(value: JSONValue) -> bool:
    return is_list(value) and bool(value) and all(map(is_object, value))


def _table_of_objects(name: str, objects: Sequence[JSON]) -> ParsedTable:
    columns = list(dict.fromkeys(key for row in objects for key in row))
    names = column_names(columns)
    rows = [[cell(row.get(key)) for key in columns] for row in objects]
    for place in range(len(columns)):
        filled = [row[place] for row in rows if row[place] is not None]
        texts = [value for value in filled if isinstance(value, str)]
        dates = iso_dates(texts) if len(texts) == len(filled) else None
        if dates is not None:
            for row in rows:
                row[place] = dates.get(str(row[place]))
    _check(len(columns), len(rows))
    return ParsedTable(name=one_line(name), columns=names, rows=rows)


def titles_above(rows: Sequence[Sequence[object]]) -> int:
    """Return the number of title rows above a table: rows with one cell above rows with more."""
    widths = [sum(value not in ("", None) for value in row) for row in rows[: _TITLE_ROWS + 1]]
    above = next((place for place, width in enumerate(widths) if width > 1), 0)
    # Below a title a table needs rows; otherwise the single cells are the contents.
    return above if len(rows) > above + 1 else 0


def column_names(cells: Iterable[object]) -> list[str]:
    """Return unique names for columns, ignoring case as SQL does, and none of them empty."""
    names: list[str] = []
    taken: set[str] = set()
    for place, value in enumerate(cells, start=1):
        plain = one_line("" if value is None else str(value)) or f"column_{place}"
        name, count = plain, 1
        while name.lower() in taken:
            count += 1
            name = f"{plain}_{count}"
        taken.add(name.lower())
        names.append(name)
    return names


def typed_table(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, delimiter: str = ""
) -> ParsedTable:
    """Return a table of texts with columns of numbers and dates converted, and empty cells as null.

    `delimiter` is what separates the cells in the file; it tells of the decimal sign.
    """
    _check(len(columns), len(rows))
    if not rows:
        return ParsedTable(name=name, columns=list(columns), rows=[])
    by_column = list(zip(*rows, strict=True))
    numbers = number_columns(by_column, delimiter=delimiter)
    typed = [_dated(cells) if found is None else found for cells, found in zip(by_column, numbers, strict=True)]
    return ParsedTable(name=name, columns=list(columns), rows=[list(row) for row in zip(*typed, strict=True)])


def _dated(cells: Sequence[str]) -> list[JSONValue]:
    """Return the cells of one column: ISO dates only if every non-empty cell is one."""
    dates = iso_dates([value.strip() for value in cells if value.strip()])
    return [value or None for value in cells] if dates is None else [dates.get(value.strip()) for value in cells]


def cell(value: Any) -> JSONValue:
    """Return one value of a table: nested values as JSON text, numbers beyond JSON as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, str):
        return cleaned(value)
    if is_object(value) or is_list(value):
        return json.dumps(value, ensure_ascii=False)
    return value


def _fitted(row: Sequence[str], width: int) -> list[str]:
    """Return a row with one cell per column; surplus cells are joined in the last."""
    if len(row) > width:
        return [*row[: width - 1], ",".join(row[width - 1 :])]
    return [*row, *[""] * (width - len(row))]


def _check(columns: int, rows: int) -> None:
    if columns > TABLE_COLUMNS or rows > TABLE_ROWS:
        text = (
            f"a table has {rows:,} rows and {columns:,} columns; at most {TABLE_ROWS:,} and {TABLE_COLUMNS:,} are taken"
        )
        raise UnreadableError(f"{text}. Split it")
