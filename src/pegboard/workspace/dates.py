"""Dates: converts columns of dates to ISO 8601, and reports columns with ambiguous dates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pegboard.model.json_types import JSONValue

_DAYS: Final = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d %Y", "%b %d, %Y", "%B %d %Y", "%B %d, %Y",
)  # fmt: skip
_TIMES: Final = ("", " %H:%M", " %H:%M:%S")
_MONTH: Final = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_LIKE_DATE: Final = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}|\d{1,2}/\d{1,2}/\d\d"
    rf"|\d{{1,2}}[ -]{_MONTH}[ -]\d{{4}}"
    rf"|{_MONTH} \d{{1,2}},? \d{{4}})(?: \d{{1,2}}:\d\d(?::\d\d)?)?",
    re.IGNORECASE,
)
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")


def iso_dates(filled: Sequence[str]) -> dict[str, str] | None:
    """Return the cells of a column as ISO 8601; `None` unless all are dates in one unambiguous form.

    `03/04/2020` may be in March or April: such a column is unchanged, unless another cell decides the form.
    """
    if not filled or not all(map(_LIKE_DATE.fullmatch, filled)) or all(map(_ISO.fullmatch, filled)):
        return None
    readings: list[dict[str, str]] = []
    for form in (day + time for time in _TIMES for day in _DAYS):
        read: dict[str, str] = {}
        try:
            for text in filled:
                if text not in read:
                    moment = datetime.strptime(text, form)  # noqa: DTZ007 - a table seldom says a zone
                    read[text] = moment.isoformat(sep=" ") if "%H" in form else moment.date().isoformat()
        except ValueError:
            continue
        if read not in readings:
            readings.append(read)
    return readings[0] if len(readings) == 1 else None


def unclear_dates(columns: Sequence[str], rows: Iterable[Sequence[JSONValue]]) -> list[str]:
    """Return the columns with dates that are not ISO 8601, which SQL can neither sort nor parse."""
    found: dict[int, None] = {}
    for row in rows:
        for place, value in enumerate(row):
            if isinstance(value, str) and _LIKE_DATE.fullmatch(value.strip()) and not _ISO.fullmatch(value.strip()):
                found[place] = None
    return [columns[place] for place in sorted(found)]


def dates_note(columns: Sequence[str]) -> str:
    """Return a note for readers about columns with ambiguous dates."""
    named = ", ".join(columns[:20])
    return (
        f"The dates in {named} are text that is not ISO 8601, in mixed or ambiguous forms (03/04/2020): sorting and "
        "date functions give wrong results on them. Take the parts with substr()."
    )
