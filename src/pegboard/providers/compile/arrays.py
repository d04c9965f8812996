"""Arrays: lists, and tuples for targets that only support lists of one kind of item."""

from __future__ import annotations

from typing import Any

from pegboard.model.json_types import JSON, JSONValue, is_list, is_object
from pegboard.providers.compile.descriptions import drop
from pegboard.providers.compile.nodes import Compiler, Node, Place, Restore, nullable

_COUNTED = ("minItems", "maxItems", "uniqueItems")


def array_node(compiler: Compiler, core: JSON, place: Place, notes: list[str]) -> Node:
    """Return the node for a list or tuple."""
    first: list[JSONValue] = core.get("prefixItems") or []
    rest: Any = core.get("items", True)
    if is_list(rest):
        # Before draft 2020-12 a tuple was in `items`.
        first, rest = rest, core.get("additionalItems", True)
    counted = {key: core[key] for key in _COUNTED if key in core}
    if rest is False:
        rest = True
        counted["maxItems"] = min(len(first), counted.get("maxItems", len(first)))
    if first and compiler.dialect.is_strict:
        return _tuple(compiler, first, rest, counted, place, notes)
    schema: JSON = {"type": "array"}
    restores: list[Restore | None] = []
    if first:
        nodes = [compiler.node(item, place.inside("prefixItems", i)) for i, item in enumerate(first)]
        restores = [node.restore for node in nodes]
        if compiler.dialect.takes("prefixItems"):
            schema["prefixItems"] = [node.schema for node in nodes]
    last: Restore | None = None
    if "items" in core or compiler.dialect.needs_items:
        node = compiler.node(rest, place.inside("items"))
        last = node.restore
        if rest is not True or compiler.dialect.needs_items:
            schema["items"] = node.schema
    for keyword, value in counted.items():
        if compiler.dialect.takes_count(keyword, value):
            schema[keyword] = value
        else:
            drop(compiler, place, keyword, value, notes)
    restore = _ListRestore(restores, last)
    return Node(schema, restore if last is not None or any(restores) else None)


class _ListRestore:
    """Converts the items of a list back, the first ones each in its own way."""

    def __init__(self, first: list[Restore | None], rest: Restore | None) -> None:
        self._first, self._rest = first, rest

    def __call__(self, value: JSONValue) -> JSONValue:
        if not is_list(value):
            return value
        ways = [*self._first, *[self._rest] * max(0, len(value) - len(self._first))]
        return [item if way is None else way(item) for item, way in zip(value, ways, strict=False)]


def _tuple(
    compiler: Compiler, first: list[JSONValue], rest: JSONValue, counted: JSON, place: Place, notes: list[str]
) -> Node:
    """Return the node for a tuple: an object with one property per item; null ends the list early."""
    least, most = counted.get("minItems", 0), counted.get("maxItems")
    if most is None or most > len(first):
        compiler.lose(place, "items", "narrowed", f"no more than the first {len(first)} items can be given")
    if least > len(first):
        compiler.lose(
            place, "minItems", "widened", f"at least {least} items are needed, and only {len(first)} can be given"
        )
    if counted.get("uniqueItems"):
        drop(compiler, place, "uniqueItems", True, notes)
    described = first if most is None else first[:most]
    names = [f"item_{i + 1}" for i in range(len(described))]
    nodes = [compiler.node(item, place.inside("prefixItems", i)) for i, item in enumerate(described)]
    shown = [node if i < least else nullable(node) for i, node in enumerate(nodes)]
    schema: JSON = {
        "type": "object",
        "description": "A list, given item by item.",
        "properties": {name: node.schema for name, node in zip(names, shown, strict=True)},
        "required": names,
        "additionalProperties": False,
    }
    return Node(schema, _TupleRestore(names, [node.restore for node in nodes], least))


class _TupleRestore:
    """Converts an object with one property per item back to a list."""

    def __init__(self, names: list[str], ways: list[Restore | None], least: int) -> None:
        self._names, self._ways, self._least = names, ways, least

    def __call__(self, value: JSONValue) -> JSONValue:
        if not is_object(value):
            return value
        restored: list[JSONValue] = []
        for i, (name, way) in enumerate(zip(self._names, self._ways, strict=True)):
            item = value.get(name)
            if item is None and i >= self._least:
                break
            restored.append(item if way is None else way(item))
        return restored
