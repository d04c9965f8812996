"""Merging: combines the schemas of `allOf`, or of a `$ref` and its sibling keywords, into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list

# Called with each keyword that could not be merged exactly.
ReportUnmerged = Callable[[str], None]

_LARGER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"})
_SMALLER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})
_BOTH = frozenset({"contains", "propertyNames", "unevaluatedItems"})
_OPEN = ("additionalProperties", "unevaluatedProperties")


def merged(one: JSON, other: JSON, report: ReportUnmerged) -> JSON:
    """Return a schema for values that match both; where impossible, keep the first rule and call `report`."""
    one, other = _closed_to(one, other, report), _closed_to(other, one, report)
    one, other = _by_item(one, other), _by_item(other, one)
    both = dict(one)
    for keyword, value in other.items():
        if keyword not in both or both[keyword] == value:
            both[keyword] = value
        else:
            both[keyword] = _both(keyword, both[keyword], value, report)
    # `additionalProperties: false` in either schema closes the merged one.
    if both.get("additionalProperties") is not False and False in (one.get(key) for key in _OPEN):
        both["additionalProperties"] = False
    return both


def _both(keyword: str, one: JSONValue, other: JSONValue, report: ReportUnmerged) -> JSONValue:
    if keyword in _LARGER and _are_numbers(one, other):
        return max(one, other)
    if keyword in _SMALLER and _are_numbers(one, other):
        return min(one, other)
    if keyword in _BOTH:
        return {"allOf": [one, other]}
    match keyword:
        case "properties" | "patternProperties" | "$defs" | "definitions":
            shared = {name: {"allOf": [one[name], other[name]]} for name in one if name in other}
            return {**one, **other, **{name: value for name, value in shared.items() if one[name] != other[name]}}
        case "required":
            return list(dict.fromkeys([*one, *other]))
        case "type" | "enum":
            shared = _shared_types(one, other) if keyword == "type" else _shared_values(one, other)
            if shared == []:
                # No value matches both, which a target cannot express.
                report(keyword)
                return one
            return shared
        case "additionalProperties" | "unevaluatedProperties" | "items":
            if False in (one, other):
                return False
            return {"allOf": [one, other]}
        case "uniqueItems":
            return bool(one or other)
        case "prefixItems":
            # `_by_item` has already applied the shorter schema's rule for further items.
            shorter = min(len(one), len(other))
            shared = [{"allOf": [one[i], other[i]]} for i in range(shorter)]
            return shared + one[shorter:] + other[shorter:]
        case "description" | "title" | "default" | "examples" | "example" | "$schema" | "$comment":
            # The outer value was written for this place.
            return other
        case _:
            report(keyword)
            return one


def _closed_to(one: JSON, other: JSON, report: ReportUnmerged) -> JSON:
    """Return the first schema with its properties restricted by the second, which does not declare all of them."""
    open_to = other.get("additionalProperties", True)
    properties: JSON = one.get("properties") or {}
    unknown = [name for name in properties if name not in (other.get("properties") or {})]
    if not unknown or open_to is True:
        return one
    if other.get("patternProperties"):
        report("patternProperties")
        return one
    if open_to is not False:
        return {**one, "properties": {**properties, **{key: {"allOf": [properties[key], open_to]} for key in unknown}}}
    if not {*unknown}.isdisjoint([*(one.get("required") or ()), *(other.get("required") or ())]):
        report("required")
    return {**one, "properties": {name: value for name, value in properties.items() if name not in unknown}}


def _by_item(one: JSON, other: JSON) -> JSON:
    """Return the first schema with as many listed items as the second."""
    named: list[JSONValue] = one.get("prefixItems") or []
    more = len(other.get("prefixItems") or ()) - len(named)
    rest: JSONValue = one.get("items", True)
    if more <= 0 or rest is True:
        return one
    if rest is False:
        return {**one, "maxItems": min(len(named), one.get("maxItems", len(named)))}
    return {**one, "prefixItems": [*named, *[rest] * more]}


def _are_numbers(*values: JSONValue) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _shared_types(one: Any, other: Any) -> JSONValue:
    ours = one if is_list(one) else [one]
    theirs = other if is_list(other) else [other]
    shared = [kind for kind in ours if kind in theirs or (kind == "integer" and "number" in theirs)]
    if "number" in ours and "integer" in theirs and "integer" not in shared:
        shared.append("integer")
    return shared[0] if len(shared) == 1 else shared


def _shared_values(one: list[JSONValue], other: list[JSONValue]) -> list[JSONValue]:
    return [value for value in one if any(_same(value, known) for known in other)]


def _same(one: JSONValue, other: JSONValue) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
