"""Refusals: the parts of a tool's declared name and schema that a provider would refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pegboard.core.schema import json_path
from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.compile.references import circular, each_schema, inner_schemas
from pegboard.providers.dialect import Dialect, Refused, SchemaSize
from pegboard.providers.targets import dialect_of

Complaint: TypeAlias = tuple[str, str]
"""(rule, fault)"""

_LOOK_AROUND = re.compile(r"\(\?(?:[=!]|<[=!])|\\[1-9]")
_UNTYPED_STILL = frozenset({"type", "$ref", "anyOf", "enum", "const"})


def problems(target: str, name: str, schema: JSON) -> list[Refused]:
    """Return the reasons why `target` would refuse a tool with this name and schema; empty if it accepts the tool.

    An export rewrites these parts. They show what the compiler has to do, and what another client meets if it passes
    the schema on unchanged.

    Raises:
        DefinitionError: an unknown target.
    """
    rules = dialect_of(target)
    refused = list(schema_problems(rules, schema))
    if not re.fullmatch(rules.names, name):
        refused.insert(0, Refused("$", "name", f"{name!r} must match {rules.names}"))
    return refused


def schema_problems(rules: Dialect, schema: JSON) -> Iterator[Refused]:
    """Yield the refused parts of the schema, outermost first."""
    if rules.name == "mcp":
        return
    yield from _at_root(rules, schema)
    if rules.recursion == "optional" and circular(schema, always=True):
        yield Refused("$", "recursive", "a schema may contain itself only in properties that are not required")
    if rules.recursion == "never" and circular(schema):
        yield Refused("$", "recursive", "a schema may not contain itself")
    stack: list[tuple[tuple[str | int, ...], JSONValue, int]] = [((), schema, 0)]
    while stack:
        steps, item, depth = stack.pop()
        if not is_object(item):
            continue
        for rule, text in _in_one(rules, item):
            yield Refused(json_path([*steps]), rule, text)
        if rules.max_depth is not None and depth > rules.max_depth:
            yield Refused(json_path([*steps]), "depth", f"more than {rules.max_depth} levels of nesting")
        below = depth + (item.get("type") in ("object", "array"))
        inner = list(inner_schemas(item))
        stack.extend(((*steps, *more), value, below) for more, value in reversed(inner))
    if rules.max_size is not None:
        yield from (Refused("$", "limit", text) for text in _beyond_size(schema, rules.max_size))


def _at_root(rules: Dialect, schema: JSON) -> Iterator[Refused]:
    if schema.get("type") != "object":
        yield Refused("$", "root_type", 'the schema of the arguments must have "type": "object"')
    elif rules.root_needs_properties and not is_object(schema.get("properties")):
        yield Refused("$", "root_properties", 'the schema of the arguments must have "properties"')
    for keyword in sorted(rules.not_at_root & set(schema)):
        yield Refused("$", f"root:{keyword}", f"{keyword!r} is not allowed at the top level")


def _in_one(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    """Yield the faults of one schema, without its subschemas."""
    for keyword in item:
        if not rules.takes(keyword):
            yield f"keyword:{keyword}", f"{keyword!r} is not supported"
    for keyword, complaints in _BY_KEYWORD:
        if keyword in item:
            yield from complaints(rules, item)
    if rules.is_strict:
        yield from _strictly(item, keeps_optional=rules.keeps_optional)


def _min_items(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    if rules.takes("minItems") and not rules.takes_count("minItems", item["minItems"]):
        yield "minItems", f"'minItems' may be at most {rules.most_min_items}"


def _format(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    form = item["format"]
    if form is not None and rules.takes("format") and not rules.takes_format(form):
        yield f"format:{form}", f"the format {form!r} is not supported"


def _exclusive_minimum(_rules: Dialect, item: JSON) -> Iterator[Complaint]:
    if isinstance(item["exclusiveMinimum"], bool):
        yield "draft4:exclusiveMinimum", "'exclusiveMinimum' must be a number"


def _exclusive_maximum(_rules: Dialect, item: JSON) -> Iterator[Complaint]:
    if isinstance(item["exclusiveMaximum"], bool):
        yield "draft4:exclusiveMaximum", "'exclusiveMaximum' must be a number"


def _ref(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    siblings = [key for key in item if not key.startswith("$")] if rules.lone_refs else []
    if siblings:
        yield "ref_siblings", f"$ref must be the only keyword, but there are also {', '.join(siblings)}"


def _properties(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    properties: Any = item["properties"]
    for key in properties if is_object(properties) else ():
        if not re.fullmatch(rules.keys, key):
            yield "key", f"the property {key[:80]!r} must match {rules.keys}"


def _enum(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    values: Any = item["enum"] or ()
    if rules.scalar_enums and any(type(value) not in (str, int, float) for value in values):
        yield "enum", "an enum may list text and numbers only"


def _type(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    if rules.needs_items and "array" in _types(item) and not is_object(item.get("items")):
        yield "array_items", 'an array must say its "items"'


def _pattern(rules: Dialect, item: JSON) -> Iterator[Complaint]:
    if rules.linear_patterns and isinstance(item["pattern"], str) and has_look_around(item["pattern"]):
        yield "pattern", "look-around and back-references are not supported"


# In the order of the report.
_BY_KEYWORD: tuple[tuple[str, Callable[[Dialect, JSON], Iterator[Complaint]]], ...] = (
    ("minItems", _min_items),
    ("format", _format),
    ("exclusiveMinimum", _exclusive_minimum),
    ("exclusiveMaximum", _exclusive_maximum),
    ("$ref", _ref),
    ("properties", _properties),
    ("enum", _enum),
    ("type", _type),
    ("pattern", _pattern),
)


def _strictly(item: JSON, *, keeps_optional: bool) -> Iterator[Complaint]:
    if _UNTYPED_STILL.isdisjoint(item):
        yield "no_type", "every schema must say its type"
    if "object" in _types(item) or "properties" in item:
        if item.get("additionalProperties") is not False:
            yield "open_object", 'an object must say "additionalProperties": false'
        named: JSON = item.get("properties") or {}
        required: list[str] = item.get("required") or []
        optional = [key for key in named if key not in required]
        if optional and not keeps_optional:
            yield "optional_property", f"every property must be required, but {', '.join(optional[:5])} are not"


def _types(item: JSON) -> list[Any]:
    """Return the types of a schema, which may name one or several."""
    declared = item.get("type")
    return declared if is_list(declared) else [declared]


def has_look_around(pattern: str) -> bool:
    """Tell whether a pattern needs a backtracking engine."""
    return _LOOK_AROUND.search(pattern) is not None


# ---------------------------------------------------------------- size of a whole schema


def _beyond_size(schema: JSON, most: SchemaSize) -> Iterator[str]:
    """Yield the limits that a schema exceeds."""
    properties = values = chars = 0
    for item in each_schema(schema):
        named: JSON = item.get("properties") or {}
        listed = _enum_of(item)
        properties += len(named)
        values += len(listed)
        chars += sum(map(len, named)) + sum(map(len, item.get("$defs") or {})) + _chars(listed)
        chars += len(str(item["const"])) if "const" in item else 0
        if len(listed) > most.long_enum and _chars(listed) > most.long_enum_chars:
            yield f"an enum of {len(listed)} values has more than {most.long_enum_chars} characters"
    for what, count, limit in (
        ("properties", properties, most.properties),
        ("enum values", values, most.enum_values),
        ("characters in names and enum values", chars, most.chars),
    ):
        if count > limit:
            yield f"{count} {what}, more than {limit}"


def without_largest_enums(schema: JSON, most: SchemaSize) -> list[JSON]:
    """Remove the largest enums from the schema, in place, until it fits; return the schemas that had them."""
    taken: list[JSON] = []
    while any(True for _ in _beyond_size(schema, most)):
        holders = [item for item in each_schema(schema) if _enum_of(item)]
        if not holders:
            break
        largest = max(holders, key=lambda item: _chars(_enum_of(item)) + 100 * len(_enum_of(item)))
        taken.append(largest)
        del largest["enum"]
    return taken


def _enum_of(item: JSON) -> list[JSONValue]:
    """Return the values of an enum; empty without an enum."""
    listed = item.get("enum")
    return listed if is_list(listed) else []


def _chars(values: list[JSONValue]) -> int:
    return sum(len(value) if isinstance(value, str) else len(str(value)) for value in values)
