"""One call: tell when two calls of a tool are the same, however their arguments are spelled."""

from __future__ import annotations

from decimal import Decimal

from pegboard.core.digests import canonical_json, digest
from pegboard.core.limits import SCHEMA_HOPS
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_EXACT = 1 << 53  # up to here every whole number has a float of its own
_WITHIN = "#/$defs/"
_PLAIN = frozenset({str, int, bool, type(None)})
_NO_SCHEMA: JSON = {}


def call_digest(args: JSON, schema: JSON) -> str:
    """Return one hash for arguments that mean one call by the schema of its tool.

    As JSON Schema compares: numbers by their value (1, 1.0 and 1e0 are one, true is none), objects in any order; and
    what is given as its default is as if it was left out, at any depth that properties, items and references lead to.
    """
    return digest(_meant(args, schema, schema))


def _meant(value: JSONValue, schema: JSONValue, whole: JSON) -> JSONValue:
    """Return a value in its one spelling. Values get smaller and never larger: a default may have itself as a part."""
    if is_object(value):
        schema = _resolved(schema, whole)
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        declared = properties if is_object(properties) else _NO_SCHEMA
        meant: JSON = {}
        for name, item in value.items():
            inner = declared.get(name, others)
            item = _meant(item, inner, whole)  # noqa: PLW2901 - its spelling alone is another
            if not (is_object(inner) and "default" in inner and _equal(item, _meant(inner["default"], inner, whole))):
                meant[name] = item
        return meant
    if is_list(value):
        if _PLAIN.issuperset(map(type, value)):
            return value
        inner = _resolved(schema, whole).get("items")
        return [_meant(item, inner, whole) for item in value]
    return _number(value) if type(value) is float else value


def _equal(one: JSONValue, other: JSONValue) -> bool:
    return canonical_json(one) == canonical_json(other)


def _number(value: float) -> JSONValue:
    """Return a whole number as the integer that its digits write: the float 1e23 is not 10**23, and was written so."""
    if not value.is_integer():
        return value
    return int(value) if -_EXACT < value < _EXACT else int(Decimal(repr(value)))


def _resolved(schema: JSONValue, whole: JSON) -> JSON:
    """Return what a schema says of objects and lists: where it leads to another, or to one beside `null`, that one."""
    hops = 0
    while is_object(schema) and hops < SCHEMA_HOPS:
        hops += 1
        alternatives = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(target := schema.get("$ref"), str):
            definitions = whole.get("$defs")
            named = definitions.get(target.removeprefix(_WITHIN)) if is_object(definitions) else None
            schema = whole if target == "#" else named
        elif is_list(alternatives):
            several = [one for one in alternatives if not (is_object(one) and one.get("type") == "null")]
            schema = several[0] if len(several) == 1 else None
        else:
            return schema
    return _NO_SCHEMA
