"""Walking: every schema in a schema, with the way to it."""

from collections.abc import Iterator
from typing import Any

import jsonschema

NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
LISTED = {"anyOf", "oneOf", "allOf", "prefixItems"}
SINGLE = {
    "items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains", "propertyNames", "not",
    "if", "then", "else",
}  # fmt: skip


def schemas(schema: Any, way: str = "#", depth: int = 0) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield way, schema and the number of objects and arrays around it."""
    if not isinstance(schema, dict):
        return
    yield way, schema, depth
    kind = schema.get("type")
    inside = depth + bool({"object", "array"} & set(kind if isinstance(kind, list) else [kind]))
    for key, value in schema.items():
        if key in NAMED:
            for name, inner in value.items():
                yield from schemas(inner, f"{way}/{key}/{name}", 0 if key == "$defs" else inside)
        elif key in LISTED:
            for number, inner in enumerate(value):
                yield from schemas(inner, f"{way}/{key}/{number}", depth if key != "prefixItems" else inside)
        elif key in SINGLE:
            yield from schemas(value, f"{way}/{key}", inside)


def not_2020(schema: Any) -> list[str]:
    """Return why this is not a JSON Schema 2020-12; another library than the one we judge with says so."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        return [f"no JSON Schema 2020-12: {error.message[:200]}"]
    return []


def dangling(schema: Any) -> list[str]:
    """Return the references that point at nothing."""
    found: list[str] = []
    for way, item, _ in schemas(schema):
        ref = item.get("$ref")
        if ref is None:
            continue
        name = ref.removeprefix("#/$defs/")
        if ref != "#" and (name == ref or name not in schema.get("$defs", {})):
            found.append(f"{way}: {ref!r} points at nothing")
    return found
