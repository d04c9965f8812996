"""Numbers: converts columns of texts to numbers, also with decimal commas, and reports ambiguous ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from pegboard.model.json_types import JSONValue

_Decimal = Literal[",", "."]

# Numbers as programs write them. `007`, `+1` and `1_000` are texts, which a number would change.
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][-+]?[0-9]{1,2})?")
# Between thousands, in addition to point and comma: spaces, also narrow ones, and apostrophes.
_SPACES: Final = " \u00a0\u2009\u202f'’"
_UNGROUPED: Final = str.maketrans("", "", _SPACES)


def _written_with(decimal: str, thousands: str) -> re.Pattern[str]:
    grouped = rf"[1-9][0-9]{{0,2}}(?P<sign>[{thousands}{_SPACES}])[0-9]{{3}}(?:(?P=sign)[0-9]{{3}}){{0,4}}"
    return re.compile(rf"-?(?:{grouped}|0|[1-9][0-9]{{0,17}})(?:[{decimal}][0-9]{{1,17}})?")


_STYLES: Final[dict[_Decimal, re.Pattern[str]]] = {",": _written_with(",", "."), ".": _written_with(".", ",")}


def number_columns(columns: Sequence[Sequence[str]], *, delimiter: str = "") -> list[list[JSONValue] | None]:
    """Return the numbers of each column of a table; `None` for a column that has other cells, or is ambiguous.

    `1.234` is more than a thousand in some countries and little more than one in others. Other cells of the column
    decide it (`1.234,56`), or else the other columns, if they agree. If nothing decides, the point is a decimal point,
    unless semicolons separate the cells: programs write these where numbers have commas.
    """
    filled = [[cell.strip() for cell in cells if cell.strip()] for cells in columns]
    styles = [_fitting(cells) for cells in filled]
    decided: set[_Decimal] = {fitting[0] for fitting in styles if len(fitting) == 1}
    common: _Decimal | None = next(iter(decided)) if len(decided) == 1 else None
    return [
        _column(cells, used, fitting, common, delimiter) if used else None
        for cells, used, fitting in zip(columns, filled, styles, strict=True)
    ]


def _fitting(cells: Sequence[str]) -> list[_Decimal]:
    """Return the decimal signs that make all cells numbers."""
    return [style for style, form in _STYLES.items() if all(map(form.fullmatch, cells))]


def _column(
    cells: Sequence[str], filled: Sequence[str], styles: Sequence[_Decimal], common: _Decimal | None, delimiter: str
) -> list[JSONValue] | None:
    if all(map(_INTEGER.fullmatch, filled)):
        return [int(text) if (text := cell.strip()) else None for cell in cells]
    if not styles:
        is_plain = all(map(_NUMBER.fullmatch, filled))
        return [float(text) if (text := cell.strip()) else None for cell in cells] if is_plain else None
    style = styles[0] if len(styles) == 1 else common
    if style is None:
        if not any("," in text or "." in text for text in filled):
            # Grouped by spaces alone.
            style = "."
        elif delimiter == ";" or any("," in text for text in filled):
            return None
        else:
            style = "."
    return _numbers(cells, style)


def _numbers(cells: Sequence[str], decimal: _Decimal) -> list[JSONValue]:
    """Return cells as numbers: integers if no cell has decimals."""
    thousands = "." if decimal == "," else ","
    plain = [cell.strip().translate(_UNGROUPED).replace(thousands, "").replace(decimal, ".") for cell in cells]
    if not any("." in text for text in plain):
        return [int(text) if text else None for text in plain]
    return [float(text) if text else None for text in plain]


def unclear_numbers(columns: Sequence[str], rows: Iterable[Sequence[JSONValue]]) -> list[str]:
    """Return the columns with texts that look like numbers, which SQL can neither sort nor add."""
    found: dict[int, None] = {}
    for row in rows:
        for place, value in enumerate(row):
            if isinstance(value, str) and _is_like_number(value.strip()):
                found[place] = None
    return [columns[place] for place in sorted(found)]


def _is_like_number(text: str) -> bool:
    has_sign = "," in text or "." in text
    return has_sign and any(form.fullmatch(text) for form in _STYLES.values())


def numbers_note(columns: Sequence[str]) -> str:
    """Return a note for readers about columns with ambiguous numbers."""
    named = ", ".join(columns[:20])
    return (
        f"The numbers in {named} are text, in mixed or ambiguous forms (1.234 may be more than a thousand, or little "
        "more than one): sorting, comparing and adding give wrong results on them. Find out which form is meant, then "
        "use replace() and CAST."
    )
