"""Relaxed schema: a weaker output schema; a result that only violates the full one is returned with a warning.

Types, required names and fixed values stay, because callers rely on them. The rules that servers most often violate are
dropped: formats, additional properties, write-only members, and the exact spelling of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object

_OF_ONE = frozenset({"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "then", "else"})
_OF_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
# Keywords whose keys are names, which may be the same as a keyword, and whose values are schemas.
SCHEMAS_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_REFERENCES = ("$ref", "$dynamicRef")
_CLOSING = frozenset({"additionalProperties", "unevaluatedProperties"})


def relaxed(schema: JSON) -> JSON:
    """Return a schema that accepts all that `schema` accepts, and common mistakes of servers.

    Subschemas of `not` and `if` stay unchanged, or are dropped if they refer to relaxed schemas.
    """
    return _relaxed(schema, schema)


def _relaxed(schema: JSON, root: JSON) -> JSON:
    made: JSON = {}
    # References lead to relaxed schemas; below `not` and `if` a weaker schema makes the whole stricter.
    dropped = {rule for rule in ("not", "if") if _has_reference(schema.get(rule))}
    if "if" in dropped:
        dropped |= {"then", "else"}
    for rule, value in schema.items():
        if rule in ("format", "maxContains") or (rule in _CLOSING and value is False):
            continue
        if rule in dropped:
            continue
        if rule in _OF_ONE:
            made[rule] = _part(value, root)
        elif rule in _OF_LIST and is_list(value):
            made[rule] = [_part(item, root) for item in value]
        elif rule in SCHEMAS_BY_NAME and is_object(value):
            made[rule] = {name: _part(item, root) for name, item in value.items()}
        elif rule == "type":
            made[rule] = _kinds(value)
        elif rule == "required" and is_list(value):
            made[rule] = [name for name in value if not _is_write_only(schema, name, root)]
        elif rule == "contains":
            made[rule] = _part(value, root)
        else:
            made[rule] = value
    if made.get("required") == []:
        del made["required"]
    if "oneOf" in made:
        # With weaker rules, more than one alternative may match.
        fitting = {"anyOf": made.pop("oneOf")}
        made |= fitting if "anyOf" not in made else {"allOf": [*made.get("allOf", []), fitting]}
    return made


def _has_reference(value: JSONValue) -> bool:
    if is_object(value):
        return any(rule in value for rule in _REFERENCES) or any(map(_has_reference, value.values()))
    return is_list(value) and any(map(_has_reference, value))


def _part(value: JSONValue, root: JSON) -> JSONValue:
    return _relaxed(value, root) if is_object(value) else value


def _kinds(value: JSONValue) -> JSONValue:
    if is_list(value):
        return list(dict.fromkeys("number" if kind == "integer" else kind for kind in value))
    return "number" if value == "integer" else value


def _is_write_only(schema: JSON, name: JSONValue, root: JSON) -> bool:
    properties: JSONValue = schema.get("properties")
    inner: JSONValue = properties.get(str(name)) if is_object(properties) else None
    if is_object(inner) and isinstance(inner.get("$ref"), str):
        part: JSONValue = root
        for step in str(inner["$ref"]).removeprefix("#/").split("/"):
            part = cast("Mapping[str, JSONValue]", part).get(step) if is_object(part) else None
        inner = {**part, **inner} if is_object(part) else inner
    return is_object(inner) and inner.get("writeOnly") is True
