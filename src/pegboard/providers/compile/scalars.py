"""Scalars: strings, numbers, booleans and null, and the types of a schema without `type`."""

from __future__ import annotations

import math
from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list
from pegboard.providers.compile.descriptions import drop
from pegboard.providers.compile.nodes import Compiler, Node, Place, as_text, read_text, written
from pegboard.providers.compile.refusals import has_look_around
from pegboard.providers.dialect import is_annotation

KINDS = ("object", "array", "string", "integer", "number", "boolean", "null")
_ANYWHERE = frozenset({"type", "enum"})
KEYWORDS_OF = {
    "object": frozenset(
        "properties required additionalProperties unevaluatedProperties patternProperties minProperties maxProperties "
        "propertyNames dependentRequired dependentSchemas dependencies".split()
    ),
    "array": frozenset(
        "items prefixItems minItems maxItems uniqueItems contains minContains maxContains unevaluatedItems "
        "additionalItems".split()
    ),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
}
KEYWORDS_OF["integer"] = KEYWORDS_OF["number"]


def kind_of(value: JSONValue) -> str:
    """Return the JSON type of a value; a whole number is an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def kinds_of(core: JSON) -> list[str]:
    """Return the types of a schema, from `type`, values or keywords; empty if it accepts any type."""
    declared: Any = core.get("type")
    listed: Any = core.get("enum")
    if declared is None and listed is not None:
        return list(dict.fromkeys(kind_of(value) for value in listed))
    if declared is None:
        about = [kind for kind in ("object", "array", "string", "number") if KEYWORDS_OF[kind] & set(core)]
        return ["string"] if "format" in core and about == ["string", "number"] else about
    kinds = [kind for kind in (declared if is_list(declared) else [declared]) if kind in KINDS]
    if listed is not None:
        kinds = [kind for kind in kinds if any(_is(value, kind) for value in listed)]
    return kinds


def _is(value: JSONValue, kind: str) -> bool:
    own = kind_of(value)
    return own == kind or (kind == "number" and own == "integer")


def typed(core: JSON, kind: str) -> JSON:
    """Return the part of a schema that applies to one type."""
    schema = {key: value for key, value in core.items() if key in KEYWORDS_OF[kind] | _ANYWHERE or is_annotation(key)}
    schema["type"] = kind
    if "enum" in core:
        schema["enum"] = [value for value in core["enum"] if _is(value, kind)]
    return schema


def container_enum(compiler: Compiler, core: JSON) -> Node:
    """Return the node of an enum of objects or lists."""
    if compiler.dialect.keywords is None:
        return Node({"type": core["type"], "enum": core["enum"]})
    texts = list(dict.fromkeys(written(value) for value in core["enum"]))
    return Node({**as_text("One of these").schema, "enum": texts}, read_text)


def scalar_node(compiler: Compiler, core: JSON, place: Place, notes: list[str]) -> Node:
    """Return the node for a string, a number, a boolean or null; unsupported keywords go into the notes."""
    rules, kind = compiler.dialect, core["type"]
    bounded = _with_plain_bounds(compiler, core, place, notes)
    schema: JSON = {"type": kind}
    for keyword, value in bounded.items():
        if keyword == "type":
            continue
        if keyword == "format" and kind in ("integer", "number") and rules.keywords is not None:
            drop(compiler, place, keyword, value, notes)
        elif keyword == "enum" and rules.scalar_enums and kind in ("boolean", "null"):
            # The type already says that both booleans, or null, are allowed.
            if kind == "boolean" and len(value) < 2:
                drop(compiler, place, keyword, value, notes)
        elif keyword == "pattern" and rules.linear_patterns and has_look_around(value):
            drop(compiler, place, keyword, value, notes)
        elif rules.takes_format(value) if keyword == "format" else rules.takes(keyword):
            schema[keyword] = value
        else:
            drop(compiler, place, keyword, value, notes)
    return Node(schema)


def _with_plain_bounds(compiler: Compiler, core: JSON, place: Place, notes: list[str]) -> JSON:
    """Return the schema with supported bounds: draft 4's converted, and those of integers inclusive."""
    bounded = dict(core)
    for open_one, closed, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        limit: Any = bounded.get(open_one)
        if isinstance(limit, bool):
            del bounded[open_one]
            if limit and closed in bounded:
                bounded[open_one] = limit = bounded.pop(closed)
        if limit is None or isinstance(limit, bool) or compiler.dialect.takes(open_one):
            continue
        del bounded[open_one]
        if core["type"] == "integer":
            limit = (math.floor(limit) if step > 0 else math.ceil(limit)) + step
        else:
            drop(compiler, place, open_one, limit, notes)
        pick = max if step > 0 else min
        bounded[closed] = pick(limit, bounded[closed]) if closed in bounded else limit
    return bounded
