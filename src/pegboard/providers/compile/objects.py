"""Objects: required properties, keys that a target does not support, and objects with arbitrary keys."""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.compile.descriptions import drop
from pegboard.providers.compile.nodes import (
    Compiler,
    Node,
    Place,
    Restore,
    as_text,
    is_impossible,
    nullable,
    takes_null,
)

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_COUNTED = ("minProperties", "maxProperties")
_FURTHER = frozenset({"additionalProperties", "unevaluatedProperties"})


def object_node(compiler: Compiler, core: JSON, place: Place, notes: list[str]) -> Node:
    """Return the node for an object."""
    rules = compiler.dialect
    open_to = _open_to(compiler, core, place)
    listed: list[str] = core.get("required") or []
    required = list(dict.fromkeys(listed))
    properties = _properties(compiler, core, required, open_to, place)
    counted = {key: core[key] for key in _COUNTED if key in core}
    for keyword, value in counted.items():
        if not rules.takes(keyword):
            drop(compiler, place, keyword, value, notes)
    if rules.is_strict and open_to is not False:
        if not properties and place.depth > 0:
            return _entries(compiler, open_to, place)
        if _FURTHER & set(core):
            compiler.lose(place, "additionalProperties", "narrowed", "further properties cannot be given")
    needs_all = rules.is_strict and not rules.keeps_optional
    optional = set(properties) - set(required) if needs_all else set[str]()
    restore = _ObjectRestore(optional)
    schema: JSON = {"type": "object", "properties": {}}
    for key, inner in properties.items():
        node = compiler.node(inner, place.inside("properties", key))
        if key in optional:
            node = _optional(compiler, node, inner, place.inside("properties", key))
        spelled = _spelled(key, rules.keys)
        schema["properties"][spelled] = node.schema
        restore.keep(key, spelled, node.restore)
    if needs_all or required:
        schema["required"] = [restore.spelled[key] for key in properties if needs_all or key in required]
    if rules.is_strict:
        schema["additionalProperties"] = False
    elif isinstance(open_to, dict):
        rest = compiler.node(cast("JSON", open_to), place.inside("additionalProperties"))
        schema["additionalProperties"], restore.rest = rest.schema, rest.restore
    elif "additionalProperties" in core or open_to is False:
        schema["additionalProperties"] = open_to
    schema.update((key, value) for key, value in counted.items() if rules.takes(key))
    return Node(schema, restore if restore.does_something else None)


def _properties(compiler: Compiler, core: JSON, required: list[str], open_to: JSONValue, place: Place) -> JSON:
    """Return the possible properties: declared ones, and required ones that are not declared."""
    declared: JSON = core.get("properties") or {}
    properties = {key: value for key, value in declared.items() if not is_impossible(value)}
    undeclared = [key for key in required if key not in properties]
    if undeclared and open_to is False:
        compiler.lose(place, "required", "widened", f"{undeclared[0]!r} is required and not allowed: nothing fits")
    return {**properties, **{key: open_to if is_object(open_to) else {} for key in undeclared}}


def _open_to(compiler: Compiler, core: JSON, place: Place) -> JSONValue:
    """Return the schema of further properties, `True` or `False`."""
    declared: Any = core.get("additionalProperties", core.get("unevaluatedProperties", True))
    patterns: Any = core.get("patternProperties")
    if not is_object(patterns) or not patterns:
        return declared
    compiler.lose(place, "patternProperties", "widened", "which keys are allowed is not said")
    if declared is not False:
        return declared
    inner = list(patterns.values())
    return inner[0] if len(inner) == 1 else {"anyOf": inner}


def _optional(compiler: Compiler, node: Node, inner: JSONValue, place: Place) -> Node:
    """Return the node of an optional property, which null represents as missing."""
    is_default = is_object(inner) and inner.get("default", False) is None
    if takes_null(node.schema) and not is_default:
        compiler.lose(
            place, "null", "narrowed", "null means that the property is absent, so the value null cannot be given"
        )
    return nullable(node)


def _spelled(key: str, keys: str) -> str:
    """Return a key in a form that the target supports, with a hash tail to keep it unique."""
    if re.fullmatch(keys, key):
        return key
    tail = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{_ILLEGAL.sub('_', key)[:55]}_{tail}"


class _ObjectRestore:
    """Converts an object back: original keys, without nulls for missing properties, each value converted."""

    def __init__(self, optional: set[str]) -> None:
        self.optional = optional
        self.spelled: dict[str, str] = {}
        self.rest: Restore | None = None
        self._names: dict[str, str] = {}
        self._inner: dict[str, Restore] = {}

    def keep(self, key: str, spelled: str, restore: Restore | None) -> None:
        """Remember the spelling of a property and how to convert its values back."""
        self.spelled[key] = spelled
        if spelled != key:
            self._names[spelled] = key
        if restore is not None:
            self._inner[key] = restore

    @property
    def does_something(self) -> bool:
        return bool(self._names or self._inner or self.optional or self.rest)

    def __call__(self, value: JSONValue) -> JSONValue:
        if not is_object(value):
            return value
        restored: JSON = {}
        for spelled, item in value.items():
            key = self._names.get(spelled, spelled)
            if item is None and key in self.optional:
                continue
            restore = self._inner.get(key, None if key in self.spelled else self.rest)
            restored[key] = item if restore is None else restore(item)
        return restored


# ---------------------------------------------------------------- arbitrary keys


def _entries(compiler: Compiler, open_to: JSONValue, place: Place) -> Node:
    """Return the node for an object of arbitrary keys as a list of keys and values."""
    if compiler.dialect.max_depth is not None and place.depth + 2 >= compiler.dialect.max_depth:
        compiler.lose(place, "depth", "widened", "nested too deep to be described; it is written as JSON text")
        return as_text("A JSON object")
    value = compiler.node(open_to, place._replace(depth=place.depth + 2).at("additionalProperties"))
    entry: JSON = {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": value.schema},
        "required": ["key", "value"],
        "additionalProperties": False,
    }
    schema = {"type": "array", "description": "An object, given as a list of its keys and values.", "items": entry}
    return Node(schema, _EntriesRestore(value.restore))


class _EntriesRestore:
    """Converts a list of keys and values back to an object."""

    def __init__(self, restore: Restore | None) -> None:
        self._restore = restore

    def __call__(self, value: JSONValue) -> JSONValue:
        if is_list(value) and all(is_object(item) and isinstance(item.get("key"), str) for item in value):
            value = {item["key"]: item.get("value") for item in value}
        if not is_object(value) or self._restore is None:
            return value
        return {key: self._restore(item) for key, item in value.items()}
