"""Limits: how large a strict schema may be as a whole, and which enums to give up when it is larger.

Source: OpenAI, Structured Outputs, supported schemas: at most 5,000 properties, 1,000 enum values, 120,000 characters
in names and enum values, and 15,000 characters in one enum of more than 250 values.
"""

from __future__ import annotations

from collections.abc import Iterator

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.compile.ref_targets import inner_schemas

MAX_PROPERTIES = 5_000
MAX_ENUM_VALUES = 1_000
MAX_CHARS = 120_000
LONG_ENUM, MAX_LONG_ENUM_CHARS = 250, 15_000


def beyond_limits(schema: JSON) -> Iterator[str]:
    """Yield what there is too much of."""
    properties = values = chars = 0
    for item in each_schema(schema):
        named: JSON = item.get("properties") or {}
        listed = enum_of(item)
        properties += len(named)
        values += len(listed)
        chars += sum(map(len, named)) + sum(map(len, item.get("$defs") or {})) + _chars(listed)
        chars += len(str(item["const"])) if "const" in item else 0
        if is_long(listed):
            yield f"an enum of {len(listed)} values has more than {MAX_LONG_ENUM_CHARS} characters"
    for what, count, most in (
        ("properties", properties, MAX_PROPERTIES),
        ("enum values", values, MAX_ENUM_VALUES),
        ("characters in names and enum values", chars, MAX_CHARS),
    ):
        if count > most:
            yield f"{count} {what}, more than {most}"


def each_schema(schema: JSON) -> Iterator[JSON]:
    """Yield a schema and all inside it."""
    stack: list[JSONValue] = [schema]
    while stack:
        item = stack.pop()
        if is_object(item):
            yield item
            stack.extend(inner for _, inner in inner_schemas(item))


def without_largest_enums(schema: JSON) -> list[JSON]:
    """Take the largest enums out of the schema, in place, until it is within the limits; return where they stood."""
    taken: list[JSON] = []
    while any(True for _ in beyond_limits(schema)):
        holders = [item for item in each_schema(schema) if enum_of(item)]
        if not holders:
            break
        largest = max(holders, key=lambda item: _chars(enum_of(item)) + 100 * len(enum_of(item)))
        taken.append(largest)
        del largest["enum"]
    return taken


def enum_of(item: JSON) -> list[JSONValue]:
    """Return the values of an enum; none where there is no enum."""
    listed = item.get("enum")
    return listed if is_list(listed) else []


def is_long(listed: list[JSONValue]) -> bool:
    """Tell whether one enum alone has too many characters."""
    return len(listed) > LONG_ENUM and _chars(listed) > MAX_LONG_ENUM_CHARS


def _chars(values: list[JSONValue]) -> int:
    return sum(len(value) if isinstance(value, str) else len(str(value)) for value in values)
