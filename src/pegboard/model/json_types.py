"""JSON types: what a value is, as far as types can say."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from types import CoroutineType
from typing import Any, TypeAlias, TypeGuard, cast

JSONValue: TypeAlias = Any


JSON: TypeAlias = dict[str, Any]


# Tells whether a value is a dict. Every call asks often, and this is one call into C where a function would be two.
is_object: Callable[[object], TypeGuard[JSON]] = cast("Any", dict).__instancecheck__


def is_list(value: object) -> TypeGuard[list[JSONValue]]:
    """Tell whether a value is a list."""
    return isinstance(value, list)


_NEVER_AWAITED = frozenset({dict, str, list, int, float, bool, tuple, type(None)})


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Tell whether a value can be awaited."""
    kind = type(value)
    # Told at once of what code gives mostly: asking an abstract class takes ten times as long.
    return kind is CoroutineType or (kind not in _NEVER_AWAITED and isinstance(value, Awaitable))


_PLACE = re.compile("0|[1-9][0-9]{0,8}")


def place_in(items: list[JSONValue], step: str) -> int | None:
    """Return the place in a list that a step of a JSON Pointer names; `None` for one that is not there.

    No other digits than ASCII's, and no more of them than any list has places.
    """
    return int(step) if _PLACE.fullmatch(step) and int(step) < len(items) else None


def at_pointer(whole: JSONValue, steps: Iterable[str]) -> list[JSONValue]:
    """Return what the steps of a JSON Pointer lead to, as a list of one; an empty one where there is nothing."""
    part = whole
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_object(part) and name in part:
            part = part[name]
        elif is_list(part) and (place := place_in(part, name)) is not None:
            part = part[place]
        else:
            return []
    return [part]
