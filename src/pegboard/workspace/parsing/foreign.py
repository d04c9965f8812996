"""Foreign: runs the host's own parsers and its text recognition, and checks what they return."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue
from pegboard.workspace.parsing.parsed import (
    Parsed,
    ParsedTable,
    UnreadableError,
    check_chars,
    cleaned,
    headings_of,
    one_line,
)

_LINES: Final = ("title", "author", "created", "language", "mime")
_KEYS: Final = frozenset({*_LINES, "text", "headings", "pages", "metadata", "tables"})
_TABLE_KEYS: Final = frozenset({"name", "columns", "rows"})


def parse_own(options: JSON, payload: bytes) -> Parsed:
    """Parse a file with a function of the host; see `parsers.DocumentParser`."""
    reference: str = options["function"]
    result = _called(reference, payload, options["name"])
    if isinstance(result, str):
        return Parsed(text=cleaned(result))
    if not isinstance(result, Mapping):
        raise _wrong(reference, f"a {type(result).__name__}, not a text or a mapping")
    return _parsed(reference, cast("Mapping[str, Any]", result))


def parse_picture(options: JSON, payload: bytes) -> Parsed:
    """Recognize the text in a picture."""
    return Parsed(text=cleaned(recognized(options["ocr"], payload, options["mime"])), ocr_pages=1)


def recognized(reference: str, picture: bytes, mime: str) -> str:
    """Return the text in a picture, by a function of the host."""
    text = _called(reference, picture, mime)
    if not isinstance(text, str):
        raise _wrong(reference, f"a {type(text).__name__}, not a text")
    check_chars(len(text))
    return text


def _called(reference: str, *arguments: object) -> object:
    try:
        result = _function(reference)(*arguments)
        return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
    except CallError as error:
        raise UnreadableError(error.error.message) from None


async def _awaited(result: Awaitable[object]) -> object:
    return await result


@cache  # one child has the few functions of a config
def _function(reference: str) -> Callable[..., object]:
    function: Callable[..., object] = pkgutil.resolve_name(reference)
    return function


def _parsed(reference: str, result: Mapping[str, Any]) -> Parsed:
    unknown = sorted(str(key) for key in result.keys() - _KEYS)
    if unknown:
        raise _wrong(reference, f"the unknown key {unknown[0][:100]!r}; known are {', '.join(sorted(_KEYS))}")
    if not isinstance(result.get("text"), str):
        raise _wrong(reference, "no text under `text`")
    parsed = Parsed(text=cleaned(result["text"]))
    for key in _LINES:
        if result.get(key) is not None:
            if not isinstance(result[key], str):
                raise _wrong(reference, f"a {type(result[key]).__name__} under {key!r}, not a text")
            parsed[key] = one_line(result[key])
    if result.get("pages") is not None:
        if type(result["pages"]) is not int:
            raise _wrong(reference, "no whole number under 'pages'")
        parsed["pages"] = result["pages"]
    if result.get("headings"):
        parsed["headings"] = headings_of([str(each) for each in _listed(reference, result, "headings")])
    if result.get("metadata"):
        if not isinstance(result["metadata"], Mapping):
            raise _wrong(reference, "no mapping under 'metadata'")
        metadata = cast("Mapping[object, object]", result["metadata"])
        parsed["own"] = {str(key): str(value) for key, value in metadata.items()}
    if result.get("tables"):
        parsed["tables"] = [_table(reference, each) for each in _listed(reference, result, "tables")]
    return parsed


def _table(reference: str, table: object) -> ParsedTable:
    told = cast("Mapping[str, Any]", table if isinstance(table, Mapping) else {})
    if _TABLE_KEYS.symmetric_difference(told):
        raise _wrong(reference, "a table without exactly `name`, `columns` and `rows`")
    columns = [one_line(str(each)) for each in _listed(reference, told, "columns")]
    rows = [[_cell(cell) for cell in row] for row in _listed(reference, told, "rows")]
    if any(len(row) != len(columns) for row in rows):
        raise _wrong(reference, f"a row of the table {str(told['name'])[:100]!r} with more or fewer cells than columns")
    return ParsedTable(name=one_line(str(told["name"])), columns=columns, rows=rows)


def _cell(cell: object) -> JSONValue:
    return cell if cell is None or isinstance(cell, bool | int | float) else cleaned(str(cell))


def _listed(reference: str, result: Mapping[str, Any], key: str) -> Sequence[Any]:
    if not isinstance(result[key], list | tuple):
        raise _wrong(reference, f"no list under {key!r}")
    return cast("Sequence[Any]", result[key])


def _wrong(reference: str, what: str) -> UnreadableError:
    return UnreadableError(f"its parser {reference!r} returned {what}")
