"""Objects: properties that must all be given, keys that a target cannot spell, and objects with keys of any name."""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.compile.descriptions import drop
from pegboard.providers.compile.nodes import Node, Place, Restore, Work, as_text, nullable, takes_null

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_COUNTED = ("minProperties", "maxProperties")


def object_node(work: Work, core: JSON, place: Place, notes: list[str]) -> Node:
    """Return the node for an object."""
    rules = work.dialect
    open_to = _open_to(work, core, place)
    declared: JSON = core.get("properties") or {}
    properties = {key: value for key, value in declared.items() if value is not False}
    wanted: list[str] = core.get("required") or []
    required = list(dict.fromkeys(wanted))
    undeclared = [key for key in required if key not in properties]
    if undeclared and open_to is False:
        work.lose(place, "required", "widened", f"{undeclared[0]!r} is required and not allowed: nothing fits")
    properties.update((key, open_to if is_object(open_to) else {}) for key in undeclared)
    counted = {key: core[key] for key in _COUNTED if key in core}
    for keyword, value in counted.items():
        if not rules.takes(keyword):
            drop(work, place, keyword, value, notes)
    if rules.is_strict:
        if not properties and open_to is not False and place.depth > 0:
            return _entries(work, open_to, place)
        if open_to is not False and {"additionalProperties", "unevaluatedProperties"} & set(core):
            text = "further properties cannot be given"
            work.lose(place, "additionalProperties", "narrowed", text)
    made: JSON = {"type": "object", "properties": {}}
    back = _Back()
    for key, inner in properties.items():
        node = work.node(inner, place.inside("properties", key))
        if rules.is_strict and key not in required:
            node = _optional(work, node, inner, place.inside("properties", key))
            back.optional.add(key)
        spelled = _spelled(key, rules.keys)
        made["properties"][spelled] = node.schema
        back.keep(key, spelled, node.restore)
    if rules.is_strict or required:
        made["required"] = [back.spelled[key] for key in properties if rules.is_strict or key in required]
    if rules.is_strict:
        made["additionalProperties"] = False
    elif isinstance(open_to, dict):
        rest = work.node(cast("JSON", open_to), place.inside("additionalProperties"))
        made["additionalProperties"], back.rest = rest.schema, rest.restore
    elif "additionalProperties" in core or open_to is False:
        made["additionalProperties"] = open_to
    made.update((key, value) for key, value in counted.items() if rules.takes(key))
    return Node(made, back if back.does_something else None)


def _open_to(work: Work, core: JSON, place: Place) -> JSONValue:
    """Return what further properties may be: a schema, `True` or `False`."""
    said: Any = core.get("additionalProperties", core.get("unevaluatedProperties", True))
    patterns: Any = core.get("patternProperties")
    if not is_object(patterns) or not patterns:
        return said
    work.lose(place, "patternProperties", "widened", "which keys are allowed is not said")
    if said is not False:
        return said
    inner = list(patterns.values())
    return inner[0] if len(inner) == 1 else {"anyOf": inner}


def _optional(work: Work, node: Node, inner: JSONValue, place: Place) -> Node:
    """Return the node of a property that may be left out: null stands for that."""
    is_default = is_object(inner) and inner.get("default", False) is None
    if takes_null(node.schema) and not is_default:
        work.lose(place, "null", "narrowed", "null stands for a property that is not given, so null itself cannot be")
    return nullable(node)


def _spelled(key: str, keys: str) -> str:
    """Return a key as the target can carry it: mapped like a name, with a tail that belongs to the key alone."""
    if re.fullmatch(keys, key):
        return key
    tail = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{_ILLEGAL.sub('_', key)[:55]}_{tail}"


class _Back:
    """Takes an object back: its own keys, without what stands for "not given", each value as the tool wants it."""

    def __init__(self) -> None:
        self.spelled: dict[str, str] = {}
        self.optional: set[str] = set()
        self.rest: Restore | None = None
        self._names: dict[str, str] = {}
        self._inner: dict[str, Restore] = {}

    def keep(self, key: str, spelled: str, restore: Restore | None) -> None:
        """Remember how a property was spelled and how its values go back."""
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
        made: JSON = {}
        for spelled, item in value.items():
            key = self._names.get(spelled, spelled)
            if item is None and key in self.optional:
                continue
            restore = self._inner.get(key, None if key in self.spelled else self.rest)
            made[key] = item if restore is None else restore(item)
        return made


# ---------------------------------------------------------------- any keys


def _entries(work: Work, open_to: JSONValue, place: Place) -> Node:
    """Return the node for an object of any keys, for a target that must know them all: a list of keys and values."""
    if work.dialect.max_depth is not None and place.depth + 2 >= work.dialect.max_depth:
        work.lose(place, "depth", "widened", "nested too deep to be described; it is written as JSON text")
        return as_text("A JSON object")
    value = work.node(open_to, place._replace(depth=place.depth + 2).at("additionalProperties"))
    entry: JSON = {
        "type": "object",
        "properties": {"key": {"type": "string"}, "value": value.schema},
        "required": ["key", "value"],
        "additionalProperties": False,
    }
    made = {"type": "array", "description": "An object, given as a list of its keys and values.", "items": entry}
    return Node(made, _EntriesBack(value.restore))


class _EntriesBack:
    """Takes a list of keys and values back to the object that it stands for."""

    def __init__(self, restore: Restore | None) -> None:
        self._restore = restore

    def __call__(self, value: JSONValue) -> JSONValue:
        if is_list(value) and all(is_object(item) and isinstance(item.get("key"), str) for item in value):
            value = {item["key"]: item.get("value") for item in value}
        if not is_object(value) or self._restore is None:
            return value
        return {key: self._restore(item) for key, item in value.items()}
