"""Unclear columns: the note about the dates and numbers of tables that stayed text because they are ambiguous."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pegboard.model.json_types import JSONValue
from pegboard.workspace.dates import dates_note, unclear_dates
from pegboard.workspace.numbers import numbers_note, unclear_numbers

Rows = Sequence[Sequence[JSONValue]]


def unclear_note(columns: Sequence[str], rows: Rows) -> str:
    """Return the note about one table, from some of its rows; empty if all is clear."""
    return _note(unclear_dates(columns, rows), unclear_numbers(columns, rows))


def unclear_notes(tables: Iterable[tuple[str, Sequence[str], Rows]]) -> str:
    """Return the note about several tables, each with its name, its columns and some of its rows."""
    dates: list[str] = []
    numbers: list[str] = []
    for table, columns, rows in tables:
        dates += [f"{table}.{name}" for name in unclear_dates(columns, rows)]
        numbers += [f"{table}.{name}" for name in unclear_numbers(columns, rows)]
    return _note(dates, numbers)


def _note(dates: Sequence[str], numbers: Sequence[str]) -> str:
    return " ".join([*([dates_note(dates)] if dates else []), *([numbers_note(numbers)] if numbers else [])])
