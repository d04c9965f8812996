"""Paging: cursors of lists, and the number of items that fit into one answer."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import orjson

from pegboard.model.error import CallError
from pegboard.model.json_types import JSON, JSONValue, is_list
from pegboard.workspace.limits import DOCUMENT_RESULT_BYTES

_NUMBERS = 1 << 31  # numbers above this are refused, since some databases cannot store them
_ROOM_BYTES = 1_024  # bytes of an answer reserved for everything except its items


def cursor_after(*place: JSONValue) -> str:
    """Return a cursor for the items after a place. It reveals nothing that the answer does not show."""
    return base64.urlsafe_b64encode(orjson.dumps(place)).decode().rstrip("=")


def place_of(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the place in a cursor; `None` without one.

    Raises:
        CallError: invalid_arguments, if no list returned it.
    """
    if cursor is None:
        return None
    try:
        place = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError):
        place = None
    if not is_list(place) or [type(each) for each in place] != list(kinds) or not all(map(_is_valid_item, place)):
        text = f"The cursor {cursor[:40]!r} was not given by this list. Leave it out to start from the beginning."
        raise CallError("invalid_arguments", text)
    return tuple(place)


def _is_valid_item(each: JSONValue) -> bool:
    """Tell whether a list could have returned it: numbers are small, and stored texts have no NUL."""
    return abs(each) < _NUMBERS if isinstance(each, int) else "\0" not in each


def fitting_count(items: Sequence[JSON], *, max_bytes: int = DOCUMENT_RESULT_BYTES) -> int:
    """Return how many items fit into one answer, at least one."""
    size = _ROOM_BYTES
    for count, item in enumerate(items):
        size += len(orjson.dumps(item)) + 1
        if size > max_bytes and count:
            return count
    return len(items)


def page(items: Sequence[JSON], *, limit: int, places: Sequence[tuple[JSONValue, ...]]) -> JSON:
    """Return an answer with the items that fit. `items` has one more than `limit` if there are more."""
    count = fitting_count(items[:limit])
    is_truncated = count < len(items)
    return {
        "items": list(items[:count]),
        "next_cursor": cursor_after(*places[count - 1]) if is_truncated else None,
        "truncated": is_truncated,
    }
