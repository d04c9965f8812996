"""One call: tells whether two calls of a tool are equal, however their arguments are spelled."""

from __future__ import annotations

from decimal import Decimal

from pegboard.core.digests import canonical_json, digest
from pegboard.core.limits import SCHEMA_HOPS
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_EXACT = 1 << 53  # every integer up to this one is exact as a float
_WITHIN = "#/$defs/"
_PLAIN = frozenset({str, int, bool, type(None)})
_NO_SCHEMA: JSON = {}


def call_digest(args: JSON, schema: JSON) -> str:
    """Return the same hash for all arguments that mean the same call under the tool's schema.

    Compares as JSON Schema does: numbers by value (1, 1.0 and 1e0 are equal, true is not 1), objects in any order. A
    value equal to its default counts as omitted, at any depth within properties, items and references.
    """
    return digest(_canonical(args, schema, schema))


def _canonical(value: JSONValue, schema: JSONValue, whole: JSON) -> JSONValue:
    """Return a value in canonical form. The value only shrinks on the way down, since a default may contain itself."""
    if is_object(value):
        schema = _resolved(schema, whole)
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        declared = properties if is_object(properties) else _NO_SCHEMA
        meant: JSON = {}
        for name, item in value.items():
            inner = declared.get(name, others)
            item = _canonical(item, inner, whole)  # noqa: PLW2901 - its spelling alone is another
            if not (
                is_object(inner) and "default" in inner and _equal(item, _canonical(inner["default"], inner, whole))
            ):
                meant[name] = item
        return meant
    if is_list(value):
        if _PLAIN.issuperset(map(type, value)):
            return value
        inner = _resolved(schema, whole).get("items")
        return [_canonical(item, inner, whole) for item in value]
    return _number(value) if type(value) is float else value


def _equal(one: JSONValue, other: JSONValue) -> bool:
    return canonical_json(one) == canonical_json(other)


def _number(value: float) -> JSONValue:
    """Return a whole number as the integer that its digits show: the float 1e23 is written so, but is not 10**23."""
    if not value.is_integer():
        return value
    return int(value) if -_EXACT < value < _EXACT else int(Decimal(repr(value)))


def _resolved(schema: JSONValue, whole: JSON) -> JSON:
    """Follow references and return the schema of an object or list; of alternatives with `null`, the other one."""
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
