"""Scalars: text, numbers, booleans and null, and which types a schema is about when it does not say."""

from __future__ import annotations

import math
from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list
from pegboard.providers.compile.descriptions import drop
from pegboard.providers.compile.nodes import Node, Place, Work, as_text, read_text, written
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
    """Return the types a schema is about: as it says, or as its values or keywords tell; none when it is about any."""
    told: Any = core.get("type")
    listed: Any = core.get("enum")
    if told is None and listed is not None:
        return list(dict.fromkeys(kind_of(value) for value in listed))
    if told is None:
        about = [kind for kind in ("object", "array", "string", "number") if KEYWORDS_OF[kind] & set(core)]
        return ["string"] if "format" in core and about == ["string", "number"] else about
    kinds = [kind for kind in (told if is_list(told) else [told]) if kind in KINDS]
    if listed is not None:
        kinds = [kind for kind in kinds if any(_is(value, kind) for value in listed)]
    return kinds


def _is(value: JSONValue, kind: str) -> bool:
    own = kind_of(value)
    return own == kind or (kind == "number" and own == "integer")


def typed(core: JSON, kind: str) -> JSON:
    """Return what a schema says of the values of one type."""
    kept = {key: value for key, value in core.items() if key in KEYWORDS_OF[kind] | _ANYWHERE or is_annotation(key)}
    kept["type"] = kind
    if "enum" in core:
        kept["enum"] = [value for value in core["enum"] if _is(value, kind)]
    return kept


def container_enum(work: Work, core: JSON) -> Node:
    """Return the node of objects or lists of which all are listed."""
    if work.dialect.keywords is None:
        return Node({"type": core["type"], "enum": core["enum"]})
    texts = list(dict.fromkeys(written(value) for value in core["enum"]))
    return Node({**as_text("One of these").schema, "enum": texts}, read_text)


def scalar_node(work: Work, core: JSON, place: Place, notes: list[str]) -> Node:
    """Return the node for text, a number, a boolean or null; what the target has no keyword for goes into the notes."""
    rules, kind = work.dialect, core["type"]
    said = _with_plain_bounds(work, core, place, notes)
    made: JSON = {"type": kind}
    for keyword, value in said.items():
        if keyword == "type":
            continue
        if keyword == "format" and kind in ("integer", "number") and rules.keywords is not None:
            drop(work, place, keyword, value, notes)
        elif keyword == "enum" and rules.scalar_enums and kind in ("boolean", "null"):
            # Both booleans, or the one null, are what the type says already.
            if kind == "boolean" and len(value) < 2:
                drop(work, place, keyword, value, notes)
        elif keyword == "pattern" and rules.linear_patterns and has_look_around(value):
            drop(work, place, keyword, value, notes)
        elif rules.takes_format(value) if keyword == "format" else rules.takes(keyword):
            made[keyword] = value
        else:
            drop(work, place, keyword, value, notes)
    return Node(made)


def _with_plain_bounds(work: Work, core: JSON, place: Place, notes: list[str]) -> JSON:
    """Return the schema with the bounds that the target knows, draft 4's translated and those of integers closed."""
    said = dict(core)
    for open_one, closed, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        limit: Any = said.get(open_one)
        if isinstance(limit, bool):
            del said[open_one]
            if limit and closed in said:
                said[open_one] = limit = said.pop(closed)
        if limit is None or isinstance(limit, bool) or work.dialect.takes(open_one):
            continue
        del said[open_one]
        if core["type"] == "integer":
            limit = (math.floor(limit) if step > 0 else math.ceil(limit)) + step
        else:
            drop(work, place, open_one, limit, notes)
        pick = max if step > 0 else min
        said[closed] = pick(limit, said[closed]) if closed in said else limit
    return said
