"""Earlier keywords: converts keywords of JSON Schema drafts 3 to 7 and OpenAPI 3.0, which many servers still use."""

from __future__ import annotations

from typing import Final

from pegboard.model.json_types import JSON, is_list

_NULL: Final[JSON] = {"type": "null"}
# Only here does null say something.
_VALUES: Final = frozenset({"default", "const"})


def with_todays_keywords(schema: JSON) -> JSON:
    """Return a schema without boolean exclusive bounds, tuples and `nullable`; its subschemas are unchanged.

    `{"minimum": 0, "exclusiveMinimum": true}` becomes `{"exclusiveMinimum": 0}`, `{"items": [{}]}` becomes
    `{"prefixItems": [{}]}`, and `{"type": "string", "nullable": true}` becomes `{"type": ["string", "null"]}`.
    Keywords that are null are left out, as Go writes empty ones, and `required: true` of a property.
    """
    if None in schema.values() or isinstance(schema.get("required"), bool):
        schema = {
            key: value
            for key, value in schema.items()
            if (value is not None or key in _VALUES) and not (key == "required" and isinstance(value, bool))
        }
    if is_list(schema.get("items")):
        rest = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
        left_out = {"items", "additionalItems"}
        first = {"prefixItems": schema["items"]} if schema["items"] else {}
        schema = {key: value for key, value in schema.items() if key not in left_out} | first | rest
    for bound in ("Minimum", "Maximum"):
        flag, limit = schema.get(f"exclusive{bound}"), bound.lower()
        if isinstance(flag, bool):
            left_out = {f"exclusive{bound}", *([limit] if flag else [])}
            exclusive = {f"exclusive{bound}": schema[limit]} if flag and limit in schema else {}
            schema = {key: value for key, value in schema.items() if key not in left_out} | exclusive
    if not isinstance(schema.get("nullable"), bool):
        return schema
    can_be_null = schema["nullable"]
    schema = {key: value for key, value in schema.items() if key != "nullable"}
    return _or_null(schema) if can_be_null else schema


def _or_null(schema: JSON) -> JSON:
    """Return a schema that also accepts null."""
    kinds, values = schema.get("type"), schema.get("enum")
    if is_list(values) and None not in values:
        schema = {**schema, "enum": [*values, None]}
    if isinstance(kinds, str):
        kinds = [kinds]
    if is_list(kinds):
        return {**schema, "type": [*kinds, *(() if "null" in kinds else ("null",))]}
    return {"anyOf": [schema, _NULL]} if schema else schema
