"""Embedded schema: rewrites a tool's JSON Schema for its place in a larger document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pegboard.model.json_types import JSON, is_list, is_object

_HOLD_SCHEMAS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_HOLD_VALUES = frozenset(("default", "const", "enum", "examples", "example"))
_BOUND_TO_THEIR_ROOT = frozenset(("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"))


def moved(schema: JSON, place: str) -> JSON | None:
    """Return a schema whose references are correct when it is placed at `place` (`#/…`).

    `None` for the rare schema that refers to its parts by anything but their path.
    """
    try:
        result: JSON = _schema({key: value for key, value in schema.items() if key != "$schema"}, place)
    except _UnmovableError:
        return None
    return result


class _UnmovableError(Exception):
    pass


def _schema(schema: Any, place: str) -> Any:
    if not is_object(schema):
        return [_schema(item, place) for item in schema] if is_list(schema) else schema
    if not _BOUND_TO_THEIR_ROOT.isdisjoint(schema):
        raise _UnmovableError
    return {key: _member(key, value, place) for key, value in schema.items()}


def _member(key: str, value: Any, place: str) -> Any:
    if key == "$ref" and isinstance(value, str):
        if not value.startswith("#"):
            raise _UnmovableError
        return place + value[1:]
    if key in _HOLD_VALUES:
        return value
    if key in _HOLD_SCHEMAS_BY_NAME and is_object(value):
        return {name: _schema(inner, place) for name, inner in value.items()}
    return _schema(value, place)


def object_of(required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> JSON:
    """Return the schema of an object with these properties; additional ones are allowed."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
