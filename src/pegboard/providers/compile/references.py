"""References: resolve `$ref`, iterate over subschemas, and find circular references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object, place_in

_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
)


def inner_schemas(schema: JSON) -> Iterator[tuple[tuple[str | int, ...], JSONValue]]:
    """Yield the direct subschemas of a schema, each with the steps to it."""
    for keyword in _BY_NAME:
        named = schema.get(keyword)
        if is_object(named):
            yield from (((keyword, name), inner) for name, inner in named.items())
    for keyword in _LISTED:
        listed = schema.get(keyword)
        if is_list(listed):
            yield from (((keyword, place), inner) for place, inner in enumerate(listed))
    yield from (((keyword,), schema[keyword]) for keyword in _SINGLE if keyword in schema)


def resolved(root: JSON, ref: str) -> JSONValue:
    """Return the schema that a reference inside the root points to; `None` if it does not exist."""
    if not ref.startswith("#"):
        return None
    if ref != "#" and not ref.startswith("#/"):
        return next((item for item in each_schema(root) if item.get("$anchor") == ref[1:]), None)
    target: Any = root
    for step in [part.replace("~1", "/").replace("~0", "~") for part in unquote(ref[1:]).split("/")[1:]]:
        if is_object(target) and step in target:
            target = target[step]
        elif is_list(target) and (place := place_in(target, step)) is not None:
            target = target[place]
        else:
            return None
    return cast("object", target) if is_object(target) or isinstance(target, bool) else None


def each_schema(schema: JSONValue) -> Iterator[JSON]:
    """Yield a schema and all its subschemas."""
    stack: list[JSONValue] = [schema]
    while stack:
        item = stack.pop()
        if is_object(item):
            yield item
            stack.extend(inner for _, inner in inner_schemas(item))


def _refs_in(schema: JSONValue, *, always: bool) -> Iterator[str]:
    """Yield the references in a schema; with `always`, only those that every value must follow."""
    stack = [schema]
    while stack:
        item = stack.pop()
        if not is_object(item):
            continue
        if isinstance(item.get("$ref"), str):
            yield item["$ref"]
        required = item.get("required") or ()
        for steps, inner in inner_schemas(item):
            # A definition is not a use.
            is_use = steps[0] not in ("$defs", "definitions")
            if is_use and not (always and steps[0] == "properties" and steps[1] not in required):
                stack.append(inner)


def circular(root: JSON, *, always: bool = False) -> frozenset[str]:
    """Return the circular references; with `always`, only those that are circular through required properties.

    References that lead from one circle to another are included. Takes linear time.
    """
    leads: dict[str, frozenset[str]] = {}
    of_target: dict[int, frozenset[str]] = {}
    open_refs = [item["$ref"] for item in each_schema(root) if isinstance(item.get("$ref"), str)]
    while open_refs:
        ref = open_refs.pop()
        if ref in leads:
            continue
        target = resolved(root, ref)
        # Several spellings may point to one place.
        if id(target) not in of_target:
            of_target[id(target)] = frozenset(_refs_in(target, always=always))
        leads[ref] = of_target[id(target)]
        open_refs.extend(leads[ref])
    return frozenset(_without_ends(_without_ends(leads), backwards=True))


def _without_ends(leads: Mapping[str, frozenset[str]], *, backwards: bool = False) -> dict[str, frozenset[str]]:
    """Return the references that can be followed for ever; with `backwards`, those that can be reached so."""
    onward: dict[str, set[str]] = {ref: {to for to in refs if to in leads} for ref, refs in leads.items()}
    behind: dict[str, set[str]] = {ref: set() for ref in leads}
    for ref, refs in onward.items():
        for to in refs:
            behind[to].add(ref)
    if backwards:
        onward, behind = behind, onward
    left = {ref: len(refs) for ref, refs in onward.items()}
    ends = [ref for ref, count in left.items() if count == 0]
    while ends:
        end = ends.pop()
        del left[end]
        for ref in behind[end]:
            left[ref] -= 1
            if left[ref] == 0:
                ends.append(ref)
    return {ref: leads[ref] for ref in left}
