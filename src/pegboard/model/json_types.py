"""JSON types: type aliases and type checks for JSON values."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from types import CoroutineType
from typing import Any, TypeAlias, TypeGuard, cast

JSONValue: TypeAlias = Any


JSON: TypeAlias = dict[str, Any]


# Tells whether a value is a dict. Every call checks this often; it is one call into C instead of two Python calls.
is_object: Callable[[object], TypeGuard[JSON]] = cast("Any", dict).__instancecheck__


def is_list(value: object) -> TypeGuard[list[JSONValue]]:
    """Tell whether a value is a list."""
    return isinstance(value, list)


_NEVER_AWAITED = frozenset({dict, str, list, int, float, bool, tuple, type(None)})


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Tell whether a value can be awaited."""
    kind = type(value)
    # The common types are checked first: an `isinstance` check of an abstract class takes ten times as long.
    return kind is CoroutineType or (kind not in _NEVER_AWAITED and isinstance(value, Awaitable))


_PLACE = re.compile("0|[1-9][0-9]{0,8}")


def place_in(items: list[JSONValue], step: str) -> int | None:
    """Return the list index that a step of a JSON Pointer names; `None` if it does not exist.

    Only ASCII digits are accepted, and at most as many as a list index can have.
    """
    return int(step) if _PLACE.fullmatch(step) and int(step) < len(items) else None


def at_pointer(whole: JSONValue, steps: Iterable[str]) -> list[JSONValue]:
    """Return the value at a JSON Pointer as a list of one; an empty list if it does not exist."""
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
