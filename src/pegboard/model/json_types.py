"""JSON types: what a value is, as far as types can say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, TypeAlias, TypeGuard, cast

JSONValue: TypeAlias = Any


JSON: TypeAlias = dict[str, Any]


# Tells whether a value is a dict. Every call asks often, and this is one call into C where a function would be two.
is_object: Callable[[object], TypeGuard[JSON]] = cast("Any", dict).__instancecheck__


def is_list(value: object) -> TypeGuard[list[JSONValue]]:
    """Tell whether a value is a list."""
    return isinstance(value, list)


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Tell whether a value can be awaited."""
    return type(value) is CoroutineType or isinstance(value, Awaitable)
